/* run_gen.c -- the program itself, as a user runs it: exit codes, what it prints, what it writes.
 *
 * The model is the micro model of the test support: a few kilobytes, real in shape. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/latents_file.h"
#include "cli/png.h"
#include "tests/support/gen_run.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

/* ---------------------------------------------------------------- tests */

static void gen__without_a_run__answers(void)
{
    gen(NULL);
    CHECK(gen_result.code == 2 && strstr(gen_result.err, "Usage: gen") && !*gen_result.out);
    gen("--help", NULL);
    CHECK(gen_result.code == 0 && strstr(gen_result.out, "--prompt TEXT") && !*gen_result.err);
    gen("plan", "--help", NULL);
    CHECK(gen_result.code == 0 && strstr(gen_result.out, "Usage: gen plan"));
    gen("--version", NULL);
    CHECK(gen_result.code == 0 && strncmp(gen_result.out, "gen (Tessera) ", 14) == 0);
    gen("info", "--devices", NULL);
    CHECK(gen_result.code == 0 && strstr(gen_result.out, "portable"));
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
        CHECK_MSG(gen_result.code == 2 && gen_one_sentence(), "row %zu: %d, %s", i, gen_result.code,
                  gen_result.err);
    }
}

static void gen__devices_that_are_not_there__are_exit_6(void)
{
    gen("--prompt", "x", "--backend", "cuda", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 6 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
    gen("--prompt", "x", "--backend", "cpu", "--host-budget", "1G", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 2 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
    if (tsr_path_is_file(TSR_BINARY_DIR "/libtessera_cuda_sim.so"))
        return;
    gen("--prompt", "x", "--backend", "cuda-sim", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 6 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
}

static void gen__outputs_that_cannot_be_written__are_exit_5_before_the_run(void)
{
    static const char *const rows[] = {"--out=/proc/none/x.png", "--report=/proc/none/r.json",
                                       "--save-latents=/proc/none/l.safetensors"};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gen("--prompt", "x", "--model", "MODEL", "--seed", "1", rows[i], NULL);
        CHECK_MSG(gen_result.code == 5 && gen_one_sentence(), "%s: %d, %s", rows[i],
                  gen_result.code, gen_result.err);
        CHECK(!*gen_result.out && !gen_exists("out/1.png"));
    }
}

static void gen__a_prompt__makes_a_picture_and_says_so(void)
{
    int width = 0, height = 0;
    char *path = tsr_path_join(gen_result.dir, "made/a.png");
    tsr_png_meta meta = {0};
    uint8_t *rgb;

    gen("--prompt", "a red fox", "--model", "MODEL", "--seed", "7", "--steps", "2", "--width", "22",
        "--height", "17", "--out", "made/a.png", "--report", "made/r.json", NULL);
    CHECK_MSG(gen_result.code == 0 && !*gen_result.err, "%d, %s", gen_result.code, gen_result.err);
    CHECK_MSG(strncmp(gen_result.out, "made/a.png  22x17  seed 7  ", 27) == 0, "%s",
              gen_result.out);
    rgb = gen_load("made/a.png", &width, &height);
    CHECK(rgb && width == 22 && height == 17);
    CHECK(tsr_png_read_meta(path, &meta, NULL) == TSR_OK);
    CHECK(meta.parameters && strncmp(meta.parameters, "a red fox\nSteps: 2, ", 20) == 0);
    CHECK(meta.record && strstr(meta.record, "\"seed\":7"));
    gen_read("made/r.json", gen_result.out);
    CHECK(strstr(gen_result.out, "\"measured_peak_bytes\"") &&
          strstr(gen_result.out, "\"phases\""));
    free(rgb);
    tsr_png_meta_free(&meta);
    tsr_free(path);
}

static void gen__quiet_and_random_seed__behave(void)
{
    gen("--prompt", "x", "--model", "MODEL", "--steps", "1", "--out", "q.png", "--quiet", NULL);
    CHECK(gen_result.code == 0 && !*gen_result.out && !*gen_result.err && gen_exists("q.png"));
    gen("--prompt", "x", "--model", "MODEL", "--steps", "1", "--out", "q.png", NULL);
    CHECK_MSG(gen_result.code == 0 && strncmp(gen_result.err, "gen: seed ", 10) == 0, "%s",
              gen_result.err);
}

static void gen__a_picture__is_replayed_bit_for_bit(void)
{
    gen("--prompt", "caf\xc3\xa9 \xe7\x8c\xab", "--negative-prompt", "", "--model", "MODEL",
        "--seed", "18446744073709551615", "--steps", "3", "--scheduler", "euler_a", "--guidance",
        "3.3", "--width", "19", "--out", "one.png", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    gen("replay", "one.png", "--model", "MODEL", "--out", "two.png", NULL);
    CHECK_MSG(gen_result.code == 0 && !*gen_result.err, "%s", gen_result.err);
    CHECK(gen_same_pixels("one.png", "two.png"));
    gen("replay", "one.png", "--model", "MODEL", "--out", "three.png", "--steps", "2", NULL);
    CHECK(gen_result.code == 0 && !gen_same_pixels("one.png", "three.png"));
    gen("replay", "stdout", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 4 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
}

static void gen__replay_of_its_own_default_path__keeps_the_source(void)
{
    gen("--prompt", "x", "--model", "MODEL", "--seed", "5", "--steps", "1", NULL);
    CHECK(gen_result.code == 0 && gen_exists("out/5.png"));
    gen("replay", "out/5.png", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 0 && gen_exists("out/5-replay.png"), "%s", gen_result.err);
    CHECK(gen_same_pixels("out/5.png", "out/5-replay.png"));
}

static void gen__several_pictures__are_each_as_if_made_alone(void)
{
    gen("--prompt", "x", "--model", "MODEL", "--seed", "10", "--num", "3", "--steps", "2", "--out",
        "many.png", "--save-latents", "many.safetensors", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    gen("--prompt", "x", "--model", "MODEL", "--seed", "12", "--steps", "2", "--out",
        "{seed}_{index}.png", NULL);
    CHECK(gen_same_pixels("many-2.png", "12_0.png") &&
          !gen_same_pixels("many-0.png", "many-1.png"));
}

static void gen__latents__go_out_and_come_in(void)
{
    char *path = tsr_path_join(gen_result.dir, "l.safetensors");
    float *data = NULL; // [2,4,8,8]
    int32_t shape[4] = {0};

    gen("--prompt", "x", "--model", "MODEL", "--seed", "1", "--num", "2", "--steps", "1", "--out",
        "l{index}.png", "--save-latents", "l.safetensors", NULL);
    CHECK(tsr_latents_read(path, &data, shape, NULL) == TSR_OK);
    CHECK(shape[0] == 2 && shape[1] == 4 && shape[2] == 8 && shape[3] == 8);
    gen("--prompt", "x", "--model", "MODEL", "--seed", "1", "--num", "2", "--steps", "1", "--out",
        "m{index}.png", "--latents", "l.safetensors", NULL);
    CHECK_MSG(gen_result.code == 0 && !gen_same_pixels("l0.png", "m0.png"), "%s", gen_result.err);
    gen("replay", "m0.png", "--model", "MODEL", "--out", "n.png", NULL);
    CHECK_MSG(gen_result.code == 2 && strstr(gen_result.err, "--latents"), "%s", gen_result.err);
    gen("--prompt", "x", "--model", "MODEL", "--width", "32", "--latents", "l.safetensors", NULL);
    CHECK(gen_result.code == 2 && gen_one_sentence());
    tsr_free(data);
    tsr_free(path);
}

static void gen__prompts__come_from_files_and_standard_input(void)
{
    gen_write("prompt.txt", "a red fox\n");
    gen_write("stdin", "a red fox\n");
    gen("--prompt", "a red fox", "--model", "MODEL", "--seed", "1", "--steps", "1", "--out",
        "p0.png", NULL);
    gen("--prompt-file", "prompt.txt", "--model", "MODEL", "--seed", "1", "--steps", "1", "--out",
        "p1.png", NULL);
    gen("--prompt-file=-", "--model", "MODEL", "--seed", "1", "--steps", "1", "--out", "p2.png",
        NULL);
    CHECK(gen_same_pixels("p0.png", "p1.png") && gen_same_pixels("p0.png", "p2.png"));
    gen("--prompt-file", "nothing.txt", "--model", "MODEL", NULL);
    CHECK(gen_result.code == 5 && gen_one_sentence());
    gen_write("stdin", "");
}

static void gen__tokenize__prints_ids_a_line_a_text(void)
{
    static char ids[GEN_MAX_OUTPUT];

    gen_write("stdin", "a\nred fox");
    gen("tokenize", "--model", "MODEL", "a", "red fox", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    memcpy(ids, gen_result.out, sizeof ids);
    gen("tokenize", "--model", "MODEL", "-", NULL);
    CHECK(gen_result.code == 0 && strcmp(ids, gen_result.out) == 0);
    gen("tokenize", "--model", "MODEL", "--json", "a", NULL);
    CHECK(gen_result.out[0] == '[' && strstr(gen_result.out, "]\n"));
    gen_write("stdin", "");
}

static void gen__plan_info_bench__say_what_they_should(void)
{
    gen("plan", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.out, "predicted peak"), "%s",
              gen_result.err);
    gen("plan", "--model", "MODEL", "--json", "--width", "40", NULL);
    CHECK(gen_result.code == 0 && strstr(gen_result.out, "\"minimum_budget_bytes\"") &&
          strstr(gen_result.out, "\"width\": 40"));
    gen("info", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.out, "unet"), "%d %s", gen_result.code,
              gen_result.err);
    gen("info", "MODEL", "--json", NULL);
    CHECK(gen_result.code == 0 && gen_result.out[0] == '{');
    gen("bench", "--model", "MODEL", "--steps", "1", NULL);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.out, "denoise"), "%s", gen_result.err);
    gen("bench", "--model", "MODEL", "--ops", NULL);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.out, "roof, measured") &&
                  strstr(gen_result.out, "text, the prompts") &&
                  strstr(gen_result.out, "denoise, a step") &&
                  strstr(gen_result.out, "decode, a picture") &&
                  strstr(gen_result.out, "conv2d 3x3, ") && strstr(gen_result.out, "all of it"),
              "%s%s", gen_result.out, gen_result.err);
    gen("bench", "--model", "MODEL", "--ops", "--json", "--steps", "1", "--budget=60M", NULL);
    CHECK_MSG(gen_result.code == 0 && strncmp(gen_result.out, "{\"width\":", 9) == 0 &&
                  strstr(gen_result.out, "\"roof_share\":") && strstr(gen_result.out, "]}\n"),
              "%s", gen_result.err);
}

static void gen__too_small_a_budget__is_exit_3_with_the_minimum(void)
{
    gen("--prompt", "x", "--model", "MODEL", "--budget", "64K", "--out", "b.png", NULL);
    CHECK_MSG(gen_result.code == 3 && gen_one_sentence() && strstr(gen_result.err, "MiB"), "%d, %s",
              gen_result.code, gen_result.err);
    CHECK(!gen_exists("b.png"));
}

static void gen__models_that_are_not_there_or_broken__have_their_exit_codes(void)
{
    gen("--prompt", "x", "--model", "no/such/model", NULL);
    CHECK_MSG((gen_result.code == 4 || gen_result.code == 5) && gen_one_sentence(), "%d, %s",
              gen_result.code, gen_result.err);
    gen_write("model_index.json", "{");
    gen("--prompt", "x", "--model", ".", NULL);
    CHECK_MSG(gen_result.code == 4 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
    gen("info", ".", NULL);
    CHECK_MSG(gen_result.code == 4 && strstr(gen_result.out, "model_index.json"), "%d, %s",
              gen_result.code, gen_result.out);
}

static void gen__interrupted__keeps_what_is_finished(void)
{
    char *argv[] = {(char *)"gen",
                    (char *)"--prompt",
                    (char *)"x",
                    (char *)"--model",
                    (char *)gen_result.model,
                    (char *)"--num",
                    (char *)"100000",
                    (char *)"--steps",
                    (char *)"2",
                    (char *)"--seed",
                    (char *)"0",
                    (char *)"--out",
                    (char *)"i/{index}.png",
                    NULL};
    pid_t pid = gen_start(argv);

    for (int i = 0; i < 1000 && !gen_exists("i/1.png"); i++)
        usleep(20000);
    kill(pid, SIGINT);
    gen_finish(pid);
    CHECK_MSG(gen_result.code == 130 && strstr(gen_result.err, "interrupted"), "%d, %s",
              gen_result.code, gen_result.err);
    CHECK(gen_exists("i/0.png") && gen_exists("i/1.png"));
    gen("replay", "i/0.png", "--model", "MODEL", "--out", "again.png", NULL);
    CHECK(gen_same_pixels("i/0.png", "again.png"));
}

/* Hanging up ends a run as an interrupt does, but not one that was told to ignore it (nohup). */
static void gen__hung_up__ends_clean_unless_told_to_ignore_it(void)
{
    char *argv[] = {(char *)"gen",
                    (char *)"--prompt",
                    (char *)"x",
                    (char *)"--model",
                    (char *)gen_result.model,
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
        pid = gen_start(argv);
        for (int i = 0; i < 1000 && !gen_exists(first); i++)
            usleep(20000);
        kill(pid, SIGHUP);
        gen_finish(pid);
        CHECK_MSG(gen_result.code == (ignored ? 0 : 130), "%d, %s", gen_result.code,
                  gen_result.err);
    }
    signal(SIGHUP, SIG_DFL);
    CHECK(gen_exists("n/7.png"));
}

static void gen__outputs_of_one_name__are_refused(void)
{
    static const char *const rows[][2] = {{"--report=s-1.png", "--quiet"},
                                          {"--save-latents=s-0.png", "--quiet"},
                                          {"--report=s.x", "--save-latents=s.x"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gen("--prompt", "x", "--model", "MODEL", "--steps=1", "--num=2", "--out=s.png", rows[i][0],
            rows[i][1], NULL);
        CHECK_MSG(gen_result.code == 2 && strstr(gen_result.err, "the same file"),
                  "row %zu: %d, %s", i, gen_result.code, gen_result.err);
        CHECK(!gen_exists("s-0.png"));
    }
}

/* What is of no use is said once. */
static void gen__warnings__come_once(void)
{
    const char *eta;

    gen("--prompt", "x\xff", "--model", "MODEL", "--steps=1", "--seed=1", "--scheduler=euler",
        "--eta=0.5", "--out=w.png", NULL);
    eta = strstr(gen_result.err, "eta");
    CHECK_MSG(gen_result.code == 0 && eta && !strstr(eta + 3, " eta ") && !strstr(eta + 3, "--eta"),
              "%s", gen_result.err);
    CHECK_MSG(strstr(gen_result.err, "the prompt is no valid UTF-8") &&
                  !strstr(gen_result.err, "the second prompt"),
              "%s", gen_result.err);
}

static void make_model(void)
{
    static const micro_options options;

    gen_setup(TSR_BINARY_DIR "/gen", test_temp_dir(), micro_model(&options));
}

int main(void)
{
    RUN(make_model);
    if (!gen_result.model)
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
