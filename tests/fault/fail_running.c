/* fail_running.c -- what goes wrong while gen runs: files that are cut, disks that fill, a second
 * interrupt. Always the exit code of its kind and one sentence, no partial file; and where the
 * steps were done, their latents in a file that gen decode takes.
 *
 * gen is stopped (SIGSTOP) as soon as it has said its seed, which is after planning and before the
 * steps; then the disk is spoilt, and it goes on. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "tests/support/gen_run.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

#define EMBEDDED TSR_SOURCE_DIR "/assets/model"
#define SMALL TSR_TEST_DATA "/models/sd1-odd" // its pictures are noise: they do not get smaller
#define STEPS "--steps=200"
#define SIDES "--width=32", "--height=32"

static char text[GEN_MAX_OUTPUT];
static const char *model; /* a copy that may be spoilt */

/* ------------------------------------------------------------------ gen, stopped on its way */

enum { MAX_ARGS = 20 };

/* Starts gen and stops it when it has said its seed. */
static pid_t start_stopped(const char *const *args)
{
    char *argv[MAX_ARGS + 2] = {(char *)"gen"};
    int n = 1;
    pid_t pid;

    while (args[n - 1] && n <= MAX_ARGS) {
        argv[n] = (char *)args[n - 1];
        n++;
    }
    gen_write("stderr", "");
    pid = gen_start(argv);
    for (int i = 0; i < 20000; i++) {
        gen_read("stderr", text);
        if (strstr(text, "gen: seed ") && strchr(text, '\n'))
            break;
        usleep(500);
    }
    kill(pid, SIGSTOP);
    CHECK_MSG(strstr(text, "gen: seed "), "no seed: %s", text);
    return pid;
}

static void go_on(pid_t pid)
{
    kill(pid, SIGCONT);
    gen_finish(pid);
}

/* "gen: error: ..." is the last line, and the only error. */
static bool ends_in_one_error(void)
{
    const char *at = strstr(gen_result.err, "gen: error: "), *end = at ? strchr(at, '\n') : NULL;

    return end && !end[1];
}

/* Files in the folder whose name has `part` in it. */
static int count_files(const char *part)
{
    DIR *d = opendir(gen_result.dir);
    const struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += strstr(e->d_name, part) != NULL;
    if (d)
        closedir(d);
    return n;
}

/* Nothing half-written: no picture of this name, no temporary file. */
static void check_failed(int code, const char *out, const char *says)
{
    CHECK_MSG(gen_result.code == code && ends_in_one_error() && strstr(gen_result.err, says),
              "exit code %d, not %d with \"%s\": %s", gen_result.code, code, says, gen_result.err);
    CHECK_MSG(!gen_exists(out) && count_files(".tmp") == 0, "%s: something is left", out);
}

/* The seed that was said, as an option. */
static const char *same_seed(void)
{
    static char option[64];
    const char *at = strstr(gen_result.err, "gen: seed ");

    snprintf(option, sizeof option, "--seed=%llu", at ? strtoull(at + 10, NULL, 10) : 0);
    return option;
}

/* ------------------------------------------------------------------ a checkpoint to be spoilt */

static void cut(const char *file, off_t bytes)
{
    CHECK_MSG(truncate(file, bytes) == 0, "%s: %s", file, strerror(errno));
}

static const char *part_of(const char *dir, const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

#define UNET "unet/diffusion_pytorch_model.safetensors"
#define VAE "vae/diffusion_pytorch_model.safetensors"

/* The kept latents are those of the undisturbed run: decoding them gives its picture, the
 * first of them as `first`. */
static void check_kept(const char *latents, const char *first)
{
    char seed[64];

    CHECK_MSG(gen_exists(latents) && strstr(gen_result.err, latents) &&
                  strstr(gen_result.err, "gen decode"),
              "%s is not kept: %s", latents, gen_result.err);
    snprintf(seed, sizeof seed, "%s", same_seed());
    gen("--prompt=x", "--model", gen_result.model, STEPS, SIDES, seed, "--out=good.png", NULL);
    gen("decode", latents, "--model", gen_result.model, "--out=again.png", NULL);
    CHECK_MSG(gen_result.code == 0 && gen_same_pixels("good.png", first), "%d, %s", gen_result.code,
              gen_result.err);
}

static void gen__decoder_is_cut_meanwhile__keeps_the_latents(void)
{
    const char *const args[] = {"--prompt=x", "--model",        model, STEPS, SIDES,
                                "--out",      "cut/deep/a.png", NULL};
    pid_t pid;

    REQUIRE(model);
    pid = start_stopped(args);
    cut(part_of(model, VAE), 100);
    go_on(pid);
    check_failed(5, "cut/deep/a.png", "ends at byte");
    check_kept("cut/deep/a.latents.safetensors", "again.png");
}

/* The second failure of one output does not replace what the first one kept. */
static void gen__latents_are_there_already__are_not_replaced(void)
{
    static const micro_options options;
    const char *copy = micro_model(&options);
    const char *const args[] = {"--prompt=x", "--model", copy,    STEPS,
                                SIDES,        "--out",   "b.png", NULL};
    pid_t pid;

    REQUIRE(copy);
    gen_write("b.latents.safetensors", "mine");
    pid = start_stopped(args);
    cut(part_of(copy, VAE), 100);
    go_on(pid);
    check_failed(5, "b.png", "ends at byte");
    check_kept("b.latents-2.safetensors", "again.png");
    gen_read("b.latents.safetensors", text);
    CHECK(strcmp(text, "mine") == 0);
}

/* Where --save-latents names a file they are in that. */
static void gen__save_latents_is_given__has_them(void)
{
    static const micro_options options;
    const char *copy = micro_model(&options);
    const char *const args[] = {
        "--prompt=x",          "--model", copy, STEPS, SIDES, "--num=3", "--out", "c.png",
        "--save-latents=c.st", NULL};
    pid_t pid;

    REQUIRE(copy);
    pid = start_stopped(args);
    cut(part_of(copy, VAE), 100);
    go_on(pid);
    check_failed(5, "c-0.png", "ends at byte");
    CHECK(count_files("latents.safetensors") == count_files("b.latents.safetensors"));
    check_kept("c.st", "again-0.png"); /* all three: they were denoised together */
}

static void gen__packed_checkpoint_is_cut_meanwhile__is_exit_5(void)
{
    static const char *const places[] = {"--offload=none", "--offload=stream"};

    for (int i = 0; i < 2; i++) {
        const char *const args[] = {"--prompt=x", "--model", "m.tsr", STEPS, SIDES,
                                    places[i],    "--out",   "d.png", NULL};
        pid_t pid;

        gen("convert", gen_result.model, "m.tsr", NULL);
        CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
        pid = start_stopped(args);
        cut(part_of(gen_result.dir, "m.tsr"), 9000);
        go_on(pid);
        check_failed(5, "d.png", "m.tsr ends at byte");
    }
}

static void gen__unet_is_cut_while_it_is_streamed__is_exit_5_without_latents(void)
{
    static const micro_options options;
    const char *copy = micro_model(&options);
    const char *const args[] = {"--prompt=x",       "--model", copy,    STEPS, SIDES,
                                "--offload=stream", "--out",   "e.png", NULL};
    pid_t pid;

    REQUIRE(copy);
    pid = start_stopped(args);
    cut(part_of(copy, UNET), 100);
    go_on(pid);
    check_failed(5, "e.png", "ends at byte");
    CHECK(!gen_exists("e.latents.safetensors") && !strstr(gen_result.err, "latents"));
}

/* ------------------------------------------------------------------ outputs that cannot be written
 */

/* gen that may write files of `bytes` bytes. */
static void limit_files(rlim_t bytes, struct rlimit *before)
{
    struct rlimit now;

    CHECK(getrlimit(RLIMIT_FSIZE, before) == 0);
    now = *before;
    now.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &now) == 0);
}

static void gen__picture_cannot_be_written__keeps_the_latents(void)
{
    struct rlimit before;

    gen("--prompt=x", "--model", SMALL, "--steps=1", "--seed=1", "--out=f.png",
        "--save-latents=f.st", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    limit_files(36000, &before); /* latents have 32 KiB, the picture 44 */
    gen("--prompt=x", "--model", SMALL, "--steps=1", "--seed=1", "--out=g.png", NULL);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    check_failed(5, "g.png", "cannot write g.png");
    CHECK_MSG(gen_one_sentence() && gen_same_bytes("f.st", "g.latents.safetensors"), "%s",
              gen_result.err);
}

/* Neither can the latents: the sentence says both, and nothing is left. */
static void gen__nothing_can_be_written__says_so(void)
{
    struct rlimit before;

    limit_files(300, &before);
    gen("--prompt=x", "--model", gen_result.model, "--steps=1", "--seed=1", "--out=h.png",
        "--save-latents=h.st", NULL);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_MSG(gen_result.code == 5 && strstr(gen_result.err, "could not be kept"), "%d, %s",
              gen_result.code, gen_result.err);
    CHECK(!gen_exists("h.png") && !gen_exists("h.st") && count_files("h.lat") == 0 &&
          count_files(".tmp") == 0);
}

/* ------------------------------------------------------------------ spilling */

/* The least budget of the embedded model, by the refusal's sentence; with room for what varies from
 * run to run under a sanitizer. */
static const char *least_budget(void)
{
#ifdef TSR_SANITIZED
    enum { VARIES = 1 << 20 };
#else
    enum { VARIES = 0 };
#endif
    static const char words[] = "the smallest budget is ";
    static char option[64];
    const char *at;

    gen("--prompt=x", "--model", EMBEDDED, "--height=256", "--width=256", "--seed=1", "--steps=2",
        "--threads=1", "--strict", "--budget=1000000", NULL);
    at = strstr(gen_result.err, words);
    CHECK_MSG(at, "%s", gen_result.err);
    snprintf(option, sizeof option, "--budget=%llu",
             at ? strtoull(at + strlen(words), NULL, 10) + VARIES : 1);
    return option;
}

#define SPILLING                                                                                   \
    "--prompt=x", "--model", EMBEDDED, "--height=256", "--width=256", "--steps=2", "--threads=1",  \
        least_budget(), "--out", "s.png"

static void gen__spill_file_hits_its_limit_meanwhile__is_exit_5(void)
{
    const char *const args[] = {SPILLING, "--spill-dir", gen_result.dir, NULL};
    struct rlimit limit = {8192, 8192};
    pid_t pid = start_stopped(args);

    CHECK(prlimit(pid, RLIMIT_FSIZE, &limit, NULL) == 0);
    go_on(pid);
    check_failed(5, "s.png", "the spill file in");
    CHECK_MSG(strstr(gen_result.err, "--spill-dir"), "%s", gen_result.err);
}

/* A folder of the test with a file system of its own; false where this machine does not allow it.
 */
static bool mounted(const char *name, const char *type, const char *source, unsigned long flags,
                    const char *options, char path[4096])
{
    snprintf(path, 4096, "%s/%s", gen_result.dir, name);
    return (mkdir(path, 0700) == 0 || errno == EEXIST) &&
           mount(source, path, type, flags, options) == 0;
}

/* A disk that cannot set space aside (ext2), so that it can fill while it is spilled to. */
static bool mount_ext2(char path[4096])
{
    char command[32768];

    snprintf(path, 4096, "%s/disk", gen_result.dir);
    snprintf(command, sizeof command,
             "(mkdir -p '%s' && truncate -s 16M '%s.img' && mkfs.ext2 -q -m 0 '%s.img' && "
             "mount -o loop '%s.img' '%s') >/dev/null 2>&1",
             path, path, path, path, path);
    return system(command) == 0;
}

static void fill_disk(const char *dir)
{
    static char block[1 << 16];
    char path[4200];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/filler", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    for (size_t bytes = sizeof block; bytes > 0; bytes = n > 0 ? bytes : bytes / 2)
        n = write(fd, block, bytes);
    close(fd);
}

static void gen__spill_disk_fills_meanwhile__is_exit_5(void)
{
    char dir[4096];
    pid_t pid;

    if (!mount_ext2(dir))
        SKIP("the right to mount a disk of its own (ext2 on a loop device)");
    {
        const char *const args[] = {SPILLING, "--spill-dir", dir, NULL};
        pid = start_stopped(args);
        fill_disk(dir);
        go_on(pid);
        check_failed(5, "s.png", "No space left on device");
        CHECK_MSG(strstr(gen_result.err, "the spill file in"), "%s", gen_result.err);
    }
    CHECK(umount(dir) == 0);
}

static void gen__spill_disk_is_full_or_read_only__is_exit_5_before_the_run(void)
{
    static const struct {
        const char *name, *options;
        unsigned long flags;
        const char *says;
    } rows[] = {{"full", "size=64k", 0, "no room for"},
                {"frozen", "size=64k", MS_RDONLY, "cannot make a file to spill to in"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char dir[4096];

        if (!mounted(rows[i].name, "tmpfs", "none", rows[i].flags, rows[i].options, dir))
            SKIP("the right to mount a disk of its own (tmpfs)");
        gen(SPILLING, "--seed=1", "--spill-dir", dir, NULL);
        check_failed(5, "s.png", rows[i].says);
        CHECK_MSG(gen_one_sentence() && strstr(gen_result.err, "--spill-dir"), "%s",
                  gen_result.err);
        CHECK(umount(dir) == 0);
    }
}

static void gen__spill_dir_in_memory__is_warned_about_once(void)
{
    char dir[4096];
    const char *at;

    if (!mounted("memory", "tmpfs", "none", 0, "size=64m", dir))
        SKIP("the right to mount a disk of its own (tmpfs)");
    gen(SPILLING, "--seed=1", "--spill-dir", dir, NULL);
    at = strstr(gen_result.err, "gen: warning: ");
    CHECK_MSG(gen_result.code == 0 && at && strstr(at, dir) && strstr(at, "is in memory") &&
                  !strstr(at + 1, "gen: warning: "),
              "%d, %s", gen_result.code, gen_result.err);
    CHECK(umount(dir) == 0);
}

/* ------------------------------------------------------------------ interrupts */

static bool has_unnamed_files(void)
{
    int fd = open(gen_result.dir, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* A second interrupt kills at once; not even the file that was begun for --save-latents is left. */
static void gen__killed_or_interrupted_twice__leaves_nothing(void)
{
    static const int signals[] = {SIGINT, SIGKILL};
    const char *const args[] = {
        "--prompt=x", "--model",     gen_result.model, "--steps=1000",
        "--width=64", "--height=64", "--out=k.png",    "--save-latents=k.st",
        NULL};

    if (!has_unnamed_files())
        SKIP("a file system with files without a name (O_TMPFILE)");
    for (int i = 0; i < 2; i++) {
        pid_t pid = start_stopped(args);
        int status = 0;

        kill(pid, signals[i]);
        kill(pid, SIGCONT);
        usleep(20000);
        for (int k = 0; k < 1000 && waitpid(pid, &status, WNOHANG) == 0; k++) {
            kill(pid, signals[i]);
            usleep(1000);
        }
        CHECK_MSG((WIFSIGNALED(status) && WTERMSIG(status) == signals[i]) ||
                      (signals[i] == SIGINT && WIFEXITED(status) && WEXITSTATUS(status) == 130),
                  "status %x", (unsigned)status);
        CHECK(count_files(".tmp") == 0 && count_files("k.st") == 0 && !gen_exists("k.png"));
    }
}

/* One interrupt in the middle of the steps ends them, soon, with nothing kept. */
static void gen__interrupted_in_the_steps__keeps_no_latents(void)
{
    const char *const args[] = {"--prompt=x", "--model",     gen_result.model, "--steps=1000",
                                "--width=64", "--height=64", "--out=l.png",    NULL};
    pid_t pid = start_stopped(args);

    kill(pid, SIGINT);
    go_on(pid);
    check_failed(130, "l.png", "interrupted");
    CHECK(!strstr(gen_result.err, "latents") && count_files("l.latents") == 0);
}

static void make_models(void)
{
    static const micro_options options;

    gen_setup(TSR_BINARY_DIR "/gen", test_temp_dir(), micro_model(&options));
    model = micro_model(&options);
}

int main(void)
{
    RUN(make_models);
    if (!gen_result.model)
        return test_end();
    RUN(gen__decoder_is_cut_meanwhile__keeps_the_latents);
    RUN(gen__latents_are_there_already__are_not_replaced);
    RUN(gen__save_latents_is_given__has_them);
    RUN(gen__packed_checkpoint_is_cut_meanwhile__is_exit_5);
    RUN(gen__unet_is_cut_while_it_is_streamed__is_exit_5_without_latents);
    RUN(gen__picture_cannot_be_written__keeps_the_latents);
    RUN(gen__nothing_can_be_written__says_so);
    RUN(gen__spill_file_hits_its_limit_meanwhile__is_exit_5);
    RUN(gen__spill_disk_fills_meanwhile__is_exit_5);
    RUN(gen__spill_disk_is_full_or_read_only__is_exit_5_before_the_run);
    RUN(gen__spill_dir_in_memory__is_warned_about_once);
    RUN(gen__killed_or_interrupted_twice__leaves_nothing);
    RUN(gen__interrupted_in_the_steps__keeps_no_latents);
    return test_end();
}
