/* run_gen.c -- the program itself, as a user runs it: exit codes, what it prints, what it writes.
 *
 * The model is the micro model of the test support: a few kilobytes, real in shape. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/latents_file.h"
#include "cli/png.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>

enum { MAX_ARGS = 24, MAX_OUTPUT = 65536 };

static struct {
    int code; /* exit code; 128 + the signal's number when it was killed */
    char out[MAX_OUTPUT], err[MAX_OUTPUT];
} result;

static const char *dir;   /* where it runs */
static const char *model; /* NULL: could not be made */

static void redirect(const char *name, int to, int flags)
{
    int fd = open(name, flags, 0666);

    if (fd < 0 || dup2(fd, to) < 0)
        _exit(99);
    close(fd);
}

static void read_text(const char *name, char text[MAX_OUTPUT])
{
    char *path = tsr_path_join(dir, name);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, MAX_OUTPUT - 1, f) : 0;

    text[n] = 0;
    if (f)
        fclose(f);
    tsr_free(path);
}

static void write_file(const char *name, const char *text)
{
    char *path = tsr_path_join(dir, name);
    FILE *f = fopen(path, "wb");

    if (f) {
        fputs(text, f);
        fclose(f);
    }
    tsr_free(path);
}

static pid_t start(char *const *argv)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (chdir(dir) != 0)
        _exit(99);
    redirect("stdin", 0, O_RDONLY | O_CREAT);
    redirect("stdout", 1, O_WRONLY | O_CREAT | O_TRUNC);
    redirect("stderr", 2, O_WRONLY | O_CREAT | O_TRUNC);
    execv(TSR_BINARY_DIR "/gen", argv);
    _exit(98);
}

static void finish(pid_t pid)
{
    int status = 0;

    (void)waitpid(pid, &status, 0);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    read_text("stdout", result.out);
    read_text("stderr", result.err);
}

/* gen with these arguments up to NULL; "MODEL" stands for the model's path. */
static void gen(const char *first, ...)
{
    char *argv[MAX_ARGS + 2] = {(char *)"gen"};
    int argc = 1;
    va_list args;

    va_start(args, first);
    for (const char *a = first; a && argc <= MAX_ARGS; a = va_arg(args, const char *))
        argv[argc++] = (char *)(strcmp(a, "MODEL") == 0 ? model : a);
    va_end(args);
    finish(start(argv));
}

static bool exists(const char *name)
{
    char *path = tsr_path_join(dir, name);
    bool there = tsr_path_is_file(path);

    tsr_free(path);
    return there;
}

static uint8_t *load(const char *name, int *width, int *height)
{
    char *path = tsr_path_join(dir, name);
    uint8_t *rgb = stbi_load(path, width, height, NULL, 3);

    tsr_free(path);
    return rgb;
}

static bool same_pixels(const char *a, const char *b)
{
    int aw = 0, ah = 0, bw = 1, bh = 1;
    uint8_t *x = load(a, &aw, &ah), *y = load(b, &bw, &bh);
    bool same = x && y && aw == bw && ah == bh && memcmp(x, y, (size_t)aw * (size_t)ah * 3) == 0;

    stbi_image_free(x);
    stbi_image_free(y);
    return same;
}

/* Exactly one line on standard error, and that is the sentence. */
static bool one_sentence(void)
{
    const char *end = strchr(result.err, '\n');

    return strncmp(result.err, "gen: error: ", 12) == 0 && end && !end[1];
}

/* ---------------------------------------------------------------- tests */

static void gen__without_a_run__answers(void)
{
    gen(NULL);
    CHECK(result.code == 2 && strstr(result.err, "Usage: gen") && !*result.out);
    gen("--help", NULL);
    CHECK(result.code == 0 && strstr(result.out, "--prompt TEXT") && !*result.err);
    gen("plan", "--help", NULL);
    CHECK(result.code == 0 && strstr(result.out, "Usage: gen plan"));
    gen("--version", NULL);
    CHECK(result.code == 0 && strncmp(result.out, "gen (Tessera) ", 14) == 0);
    gen("info", "--devices", NULL);
    CHECK(result.code == 0 && strstr(result.out, "portable"));
}

static void gen__wrong_usage__is_exit_2_and_one_sentence(void)
{
    static const char *const rows[][4] = {
        {"--steps", "3", NULL},
        {"--prompt", NULL},
        {"--prompt", "x", "--stepz=3", NULL},
        {"--prompt", "x", "--width=7", NULL},
        {"--prompt", "x", "--out=x.jpg", NULL},
        {"--prompt", "x", "--out={sed}.png", NULL},
        {"--prompt", "x", "--init-image=x.png", NULL},
        {"--prompt", "x", "--model=stdout", NULL},
        {"batch", "x.jsonl", NULL},
        {"nonsense", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gen(rows[i][0], rows[i][1], rows[i][2], rows[i][3], NULL);
        CHECK_MSG(result.code == 2 && one_sentence(), "row %zu: %d, %s", i, result.code,
                  result.err);
    }
}

static void gen__devices_that_are_not_there__are_exit_6(void)
{
    gen("--prompt", "x", "--backend", "cuda", "--model", "MODEL", NULL);
    CHECK_MSG(result.code == 6 && one_sentence(), "%d, %s", result.code, result.err);
    gen("--prompt", "x", "--backend", "cuda-sim", "--model", "MODEL", NULL);
    CHECK_MSG(result.code == 6 && one_sentence(), "%d, %s", result.code, result.err);
}

static void gen__outputs_that_cannot_be_written__are_exit_5_before_the_run(void)
{
    static const char *const rows[] = {"--out=/proc/none/x.png", "--report=/proc/none/r.json",
                                       "--save-latents=/proc/none/l.safetensors"};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gen("--prompt", "x", "--model", "MODEL", "--seed", "1", rows[i], NULL);
        CHECK_MSG(result.code == 5 && one_sentence(), "%s: %d, %s", rows[i], result.code,
                  result.err);
        CHECK(!*result.out && !exists("out/1.png"));
    }
}

static void gen__a_prompt__makes_a_picture_and_says_so(void)
{
    int width = 0, height = 0;
    char *path = tsr_path_join(dir, "made/a.png");
    tsr_png_meta meta = {0};
    uint8_t *rgb;

    gen("--prompt", "a red fox", "--model", "MODEL", "--seed", "7", "--steps", "2", "--width", "22",
        "--height", "17", "--out", "made/a.png", "--report", "made/r.json", NULL);
    CHECK_MSG(result.code == 0 && !*result.err, "%d, %s", result.code, result.err);
    CHECK_MSG(strncmp(result.out, "made/a.png  22x17  seed 7  ", 27) == 0, "%s", result.out);
    rgb = load("made/a.png", &width, &height);
    CHECK(rgb && width == 22 && height == 17);
    CHECK(tsr_png_read_meta(path, &meta, NULL) == TSR_OK);
    CHECK(meta.parameters && strncmp(meta.parameters, "a red fox\nSteps: 2, ", 20) == 0);
    CHECK(meta.record && strstr(meta.record, "\"seed\":7"));
    read_text("made/r.json", result.out);
    CHECK(strstr(result.out, "\"measured_peak_bytes\"") && strstr(result.out, "\"phases\""));
    stbi_image_free(rgb);
    tsr_png_meta_free(&meta);
    tsr_free(path);
}

static void gen__quiet_and_random_seed__behave(void)
{
    gen("--prompt", "x", "--model", "MODEL", "--steps", "1", "--out", "q.png", "--quiet", NULL);
    CHECK(result.code == 0 && !*result.out && !*result.err && exists("q.png"));
    gen("--prompt", "x", "--model", "MODEL", "--steps", "1", "--out", "q.png", NULL);
    CHECK_MSG(result.code == 0 && strncmp(result.err, "gen: seed ", 10) == 0, "%s", result.err);
}

static void gen__a_picture__is_replayed_bit_for_bit(void)
{
    gen("--prompt", "caf\xc3\xa9 \xe7\x8c\xab", "--negative-prompt", "", "--model", "MODEL",
        "--seed", "18446744073709551615", "--steps", "3", "--scheduler", "euler_a", "--guidance",
        "3.3", "--width", "19", "--out", "one.png", NULL);
    CHECK_MSG(result.code == 0, "%s", result.err);
    gen("replay", "one.png", "--model", "MODEL", "--out", "two.png", NULL);
    CHECK_MSG(result.code == 0 && !*result.err, "%s", result.err);
    CHECK(same_pixels("one.png", "two.png"));
    gen("replay", "one.png", "--model", "MODEL", "--out", "three.png", "--steps", "2", NULL);
    CHECK(result.code == 0 && !same_pixels("one.png", "three.png"));
    gen("replay", "stdout", "--model", "MODEL", NULL);
    CHECK_MSG(result.code == 4 && one_sentence(), "%d, %s", result.code, result.err);
}

static void gen__replay_of_its_own_default_path__keeps_the_source(void)
{
    gen("--prompt", "x", "--model", "MODEL", "--seed", "5", "--steps", "1", NULL);
    CHECK(result.code == 0 && exists("out/5.png"));
    gen("replay", "out/5.png", "--model", "MODEL", NULL);
    CHECK_MSG(result.code == 0 && exists("out/5-replay.png"), "%s", result.err);
    CHECK(same_pixels("out/5.png", "out/5-replay.png"));
}

static void gen__several_pictures__are_each_as_if_made_alone(void)
{
    gen("--prompt", "x", "--model", "MODEL", "--seed", "10", "--num", "3", "--steps", "2", "--out",
        "many.png", "--save-latents", "many.safetensors", NULL);
    CHECK_MSG(result.code == 0, "%s", result.err);
    gen("--prompt", "x", "--model", "MODEL", "--seed", "12", "--steps", "2", "--out",
        "{seed}_{index}.png", NULL);
    CHECK(same_pixels("many-2.png", "12_0.png") && !same_pixels("many-0.png", "many-1.png"));
}

static void gen__latents__go_out_and_come_in(void)
{
    char *path = tsr_path_join(dir, "l.safetensors");
    float *data = NULL; // [2,4,8,8]
    int32_t shape[4] = {0};

    gen("--prompt", "x", "--model", "MODEL", "--seed", "1", "--num", "2", "--steps", "1", "--out",
        "l{index}.png", "--save-latents", "l.safetensors", NULL);
    CHECK(tsr_latents_read(path, &data, shape, NULL) == TSR_OK);
    CHECK(shape[0] == 2 && shape[1] == 4 && shape[2] == 8 && shape[3] == 8);
    gen("--prompt", "x", "--model", "MODEL", "--seed", "1", "--num", "2", "--steps", "1", "--out",
        "m{index}.png", "--latents", "l.safetensors", NULL);
    CHECK_MSG(result.code == 0 && !same_pixels("l0.png", "m0.png"), "%s", result.err);
    gen("replay", "m0.png", "--model", "MODEL", "--out", "n.png", NULL);
    CHECK_MSG(result.code == 2 && strstr(result.err, "--latents"), "%s", result.err);
    gen("--prompt", "x", "--model", "MODEL", "--width", "32", "--latents", "l.safetensors", NULL);
    CHECK(result.code == 2 && one_sentence());
    tsr_free(data);
    tsr_free(path);
}

static void gen__prompts__come_from_files_and_standard_input(void)
{
    write_file("prompt.txt", "a red fox\n");
    write_file("stdin", "a red fox\n");
    gen("--prompt", "a red fox", "--model", "MODEL", "--seed", "1", "--steps", "1", "--out",
        "p0.png", NULL);
    gen("--prompt-file", "prompt.txt", "--model", "MODEL", "--seed", "1", "--steps", "1", "--out",
        "p1.png", NULL);
    gen("--prompt-file=-", "--model", "MODEL", "--seed", "1", "--steps", "1", "--out", "p2.png",
        NULL);
    CHECK(same_pixels("p0.png", "p1.png") && same_pixels("p0.png", "p2.png"));
    gen("--prompt-file", "nothing.txt", "--model", "MODEL", NULL);
    CHECK(result.code == 5 && one_sentence());
    write_file("stdin", "");
}

static void gen__tokenize__prints_ids_a_line_a_text(void)
{
    static char ids[MAX_OUTPUT];

    write_file("stdin", "a\nred fox");
    gen("tokenize", "--model", "MODEL", "a", "red fox", NULL);
    CHECK_MSG(result.code == 0, "%s", result.err);
    memcpy(ids, result.out, sizeof ids);
    gen("tokenize", "--model", "MODEL", "-", NULL);
    CHECK(result.code == 0 && strcmp(ids, result.out) == 0);
    gen("tokenize", "--model", "MODEL", "--json", "a", NULL);
    CHECK(result.out[0] == '[' && strstr(result.out, "]\n"));
    write_file("stdin", "");
}

static void gen__plan_info_bench__say_what_they_should(void)
{
    gen("plan", "--model", "MODEL", NULL);
    CHECK_MSG(result.code == 0 && strstr(result.out, "predicted peak"), "%s", result.err);
    gen("plan", "--model", "MODEL", "--json", "--width", "40", NULL);
    CHECK(result.code == 0 && strstr(result.out, "\"minimum_budget_bytes\"") &&
          strstr(result.out, "\"width\": 40"));
    gen("info", "MODEL", NULL);
    CHECK_MSG(result.code == 0 && strstr(result.out, "unet"), "%d %s", result.code, result.err);
    gen("info", "MODEL", "--json", NULL);
    CHECK(result.code == 0 && result.out[0] == '{');
    gen("bench", "--model", "MODEL", "--steps", "1", NULL);
    CHECK_MSG(result.code == 0 && strstr(result.out, "denoise"), "%s", result.err);
}

static void gen__too_small_a_budget__is_exit_3_with_the_minimum(void)
{
    gen("--prompt", "x", "--model", "MODEL", "--budget", "64K", "--out", "b.png", NULL);
    CHECK_MSG(result.code == 3 && one_sentence() && strstr(result.err, "MiB"), "%d, %s",
              result.code, result.err);
    CHECK(!exists("b.png"));
}

static void gen__models_that_are_not_there_or_broken__have_their_exit_codes(void)
{
    gen("--prompt", "x", "--model", "no/such/model", NULL);
    CHECK_MSG((result.code == 4 || result.code == 5) && one_sentence(), "%d, %s", result.code,
              result.err);
    write_file("model_index.json", "{");
    gen("--prompt", "x", "--model", ".", NULL);
    CHECK_MSG(result.code == 4 && one_sentence(), "%d, %s", result.code, result.err);
    gen("info", ".", NULL);
    CHECK_MSG(result.code == 4 && strstr(result.out, "model_index.json"), "%d, %s", result.code,
              result.out);
}

static void gen__interrupted__keeps_what_is_finished(void)
{
    char *argv[] = {(char *)"gen",
                    (char *)"--prompt",
                    (char *)"x",
                    (char *)"--model",
                    (char *)model,
                    (char *)"--num",
                    (char *)"100000",
                    (char *)"--steps",
                    (char *)"2",
                    (char *)"--seed",
                    (char *)"0",
                    (char *)"--out",
                    (char *)"i/{index}.png",
                    NULL};
    pid_t pid = start(argv);

    for (int i = 0; i < 1000 && !exists("i/1.png"); i++)
        usleep(20000);
    kill(pid, SIGINT);
    finish(pid);
    CHECK_MSG(result.code == 130 && strstr(result.err, "interrupted"), "%d, %s", result.code,
              result.err);
    CHECK(exists("i/0.png") && exists("i/1.png"));
    gen("replay", "i/0.png", "--model", "MODEL", "--out", "again.png", NULL);
    CHECK(same_pixels("i/0.png", "again.png"));
}

/* Hanging up ends a run as an interrupt does, but not one that was told to ignore it (nohup). */
static void gen__hung_up__ends_clean_unless_told_to_ignore_it(void)
{
    char *argv[] = {(char *)"gen",
                    (char *)"--prompt",
                    (char *)"x",
                    (char *)"--model",
                    (char *)model,
                    (char *)"--steps=2",
                    (char *)"--num",
                    (char *)"100000",
                    (char *)"--out=h/{index}.png",
                    (char *)"--seed=0",
                    NULL};

    for (int ignored = 0; ignored < 2; ignored++) {
        const char *first = ignored ? "n/0.png" : "h/0.png";
        pid_t pid;

        if (ignored) {
            argv[7] = (char *)"8";
            argv[8] = (char *)"--out=n/{index}.png";
        }
        signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
        pid = start(argv);
        for (int i = 0; i < 1000 && !exists(first); i++)
            usleep(20000);
        kill(pid, SIGHUP);
        finish(pid);
        CHECK_MSG(result.code == (ignored ? 0 : 130), "%d, %s", result.code, result.err);
    }
    signal(SIGHUP, SIG_DFL);
    CHECK(exists("n/7.png"));
}

static void gen__outputs_of_one_name__are_refused(void)
{
    static const char *const rows[][2] = {{"--report=s-1.png", "--quiet"},
                                          {"--save-latents=s-0.png", "--quiet"},
                                          {"--report=s.x", "--save-latents=s.x"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gen("--prompt", "x", "--model", "MODEL", "--steps=1", "--num=2", "--out=s.png", rows[i][0],
            rows[i][1], NULL);
        CHECK_MSG(result.code == 2 && strstr(result.err, "the same file"), "row %zu: %d, %s", i,
                  result.code, result.err);
        CHECK(!exists("s-0.png"));
    }
}

/* What is of no use is said once. */
static void gen__warnings__come_once(void)
{
    const char *eta;

    gen("--prompt", "x\xff", "--model", "MODEL", "--steps=1", "--seed=1", "--scheduler=euler",
        "--eta=0.5", "--out=w.png", NULL);
    eta = strstr(result.err, "eta");
    CHECK_MSG(result.code == 0 && eta && !strstr(eta + 3, " eta ") && !strstr(eta + 3, "--eta"),
              "%s", result.err);
    CHECK_MSG(strstr(result.err, "the prompt is no valid UTF-8") &&
                  !strstr(result.err, "the second prompt"),
              "%s", result.err);
}

static void make_model(void)
{
    static const micro_options options;

    model = micro_model(&options);
    dir = test_temp_dir();
}

int main(void)
{
    RUN(make_model);
    if (!model)
        return test_end();
    RUN(gen__without_a_run__answers);
    RUN(gen__wrong_usage__is_exit_2_and_one_sentence);
    RUN(gen__devices_that_are_not_there__are_exit_6);
    RUN(gen__outputs_that_cannot_be_written__are_exit_5_before_the_run);
    RUN(gen__a_prompt__makes_a_picture_and_says_so);
    RUN(gen__quiet_and_random_seed__behave);
    RUN(gen__a_picture__is_replayed_bit_for_bit);
    RUN(gen__replay_of_its_own_default_path__keeps_the_source);
    RUN(gen__several_pictures__are_each_as_if_made_alone);
    RUN(gen__latents__go_out_and_come_in);
    RUN(gen__prompts__come_from_files_and_standard_input);
    RUN(gen__tokenize__prints_ids_a_line_a_text);
    RUN(gen__plan_info_bench__say_what_they_should);
    RUN(gen__too_small_a_budget__is_exit_3_with_the_minimum);
    RUN(gen__models_that_are_not_there_or_broken__have_their_exit_codes);
    RUN(gen__interrupted__keeps_what_is_finished);
    RUN(gen__hung_up__ends_clean_unless_told_to_ignore_it);
    RUN(gen__outputs_of_one_name__are_refused);
    RUN(gen__warnings__come_once);
    return test_end();
}
