/* fail_io.c -- files that fail while they are needed: always a clean end with a sentence.
 *
 * Checkpoints (plain and packed) that are cut while a run has them open, reads that fail one after
 * the other, writes of a conversion that fail, a spill file whose disk fails behind the I/O
 * thread's back, and gen itself: exit code 5 for the disk, 4 for the file. Under ASAN nothing
 * leaks. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/io.h"
#include "memory/spill.h"
#include "tessera.h"
#include "tests/support/micro_model.h"
#include "tests/support/packed_model.h"
#include "tests/support/test.h"

enum { SIDE = 16 };

static const char *path_of(const char *dir, const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* A packed micro model for the best tier, in a directory of its own. */
static const char *packed_micro(void)
{
    const char *dir = micro_model(&(micro_options){0}), *path = path_of(test_temp_dir(), "m.tsr");
    char why[512] = "";

    CHECK_MSG(dir && packed_model_make(dir, path, TSR_TIER_AUTO, TSR_PRECISION_AUTO, why) == TSR_OK,
              "%s", why);
    return path;
}

/* ------------------------------------------------------------------ cut while running */

/* Plans a run, cuts `file`, makes the picture. */
static tsr_status run_while_cut(const char *model_path, const char *file, char *why)
{
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_picture pic;
    tsr_run_desc d = {
        .prompt = "fox", .width = SIDE, .height = SIDE, .steps = 1, .seed_given = true};
    tsr_status st = tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 2}, why, 512);

    if (st != TSR_OK)
        return st;
    st = tsr_model_open(ctx, model_path, &model);
    if (st == TSR_OK)
        st = tsr_run_make(ctx, model, &d, &run);
    CHECK_MSG(st == TSR_OK, "%s", tsr_context_error(ctx));
    CHECK(truncate(file, 6000) == 0);
    if (st == TSR_OK)
        st = tsr_run_next(run, &pic);
    snprintf(why, 512, "%s", tsr_context_error(ctx));
    tsr_run_free(run);
    tsr_model_free(model);
    tsr_context_free(ctx);
    return st;
}

static void run__checkpoint_is_cut_meanwhile__an_io_error(void)
{
    const char *dir = micro_model(&(micro_options){0});
    char why[512] = "";
    const char *file;

    REQUIRE(dir);
    file = path_of(dir, "unet/diffusion_pytorch_model.safetensors");
    CHECK(run_while_cut(dir, file, why) == TSR_E_IO);
    CHECK_MSG(strstr(why, "diffusion_pytorch_model.safetensors ends at byte"), "\"%s\"", why);
}

static void run__packed_file_is_cut_meanwhile__an_io_error(void)
{
    const char *path = packed_micro();
    char why[512] = "";

    CHECK(run_while_cut(path, path, why) == TSR_E_IO);
    CHECK_MSG(strstr(why, "m.tsr ends at byte"), "\"%s\"", why);
}

/* ------------------------------------------------------------------ the nth read or write */

/* Every call near the beginning, then one in seven. */
static uint64_t next_call(uint64_t n)
{
    return n < 40 ? n + 1 : n + 7;
}

static void run__the_nth_read_of_a_packed_file_fails__clean(void)
{
    const char *path = packed_micro();
    static small_picture p;
    size_t live = tsr_alloc_live();
    uint64_t n = 1;

    for (;; n = next_call(n)) {
        tsr_io_fail_at(n);
        small_picture_make(&p, path, TSR_TIER_AUTO, TSR_PRECISION_AUTO, SIDE);
        if (!tsr_io_failed())
            break;
        CHECK_MSG(p.st == TSR_E_IO && p.why[0], "read %d: status %d \"%s\"", (int)n, p.st, p.why);
        CHECK(tsr_alloc_live() == live);
    }
    tsr_io_fail_at(0);
    CHECK_MSG(p.st == TSR_OK && n > 100, "%d reads: %s", (int)n, p.why);
}

static void convert__the_nth_call_fails__nothing_is_left(void (*fail_at)(uint64_t),
                                                         bool (*failed)(void), tsr_status want)
{
    const char *dir = micro_model(&(micro_options){0}), *path;
    size_t live = tsr_alloc_live();
    tsr_status st;

    REQUIRE(dir);
    path = path_of(dir, "out.tsr");
    for (uint64_t n = 1;; n = n < 40 ? n + 1 : n + n / 7) {
        char why[512] = "";
        fail_at(n);
        st = packed_model_make(dir, path, TSR_TIER_AUTO, TSR_PRECISION_AUTO, why);
        if (!failed())
            break;
        CHECK_MSG(st == want && why[0] && !tsr_path_is_file(path), "call %d: status %d \"%s\"",
                  (int)n, st, why);
        CHECK(tsr_alloc_live() == live);
    }
    fail_at(0);
    CHECK(st == TSR_OK && tsr_path_is_file(path));
}

static void convert__a_read_or_write_fails__nothing_is_left(void)
{
    convert__the_nth_call_fails__nothing_is_left(tsr_io_fail_at, tsr_io_failed, TSR_E_IO);
}

static void convert__an_allocation_fails__nothing_is_left(void)
{
    convert__the_nth_call_fails__nothing_is_left(tsr_alloc_fail_at, tsr_alloc_failed, TSR_E_OOM);
}

/* ------------------------------------------------------------------ spilling behind a thread */

enum { ROWS = 64, ROW_BYTES = 4096 };

static tsr_status spill_row(void *arg, uint64_t row, uint64_t unused, tsr_err *err)
{
    static const uint8_t bytes[ROW_BYTES];

    (void)unused;
    return tsr_spill_write(arg, (size_t)row * ROW_BYTES, bytes, sizeof bytes, err);
}

static void spill__disk_fails_at_any_row__the_wait_says_so(void)
{
    for (uint64_t n = 1; n <= ROWS; n += 9) {
        tsr_err err = {0};
        tsr_io *io = NULL;
        tsr_spill s;
        uint64_t last = 0;

        REQUIRE(tsr_io_make(&io, &err) == TSR_OK);
        REQUIRE(tsr_spill_open(&s, test_temp_dir(), ROWS * ROW_BYTES, NULL, &err) == TSR_OK);
        tsr_io_fail_at(n);
        for (uint64_t row = 0; row < ROWS; row++)
            last = tsr_io_submit(io, spill_row, &s, row, 0);
        CHECK(tsr_io_wait(io, last, NULL, &err) == TSR_E_IO);
        CHECK_MSG(strstr(err.msg, "spill file in") && strstr(err.msg, "--spill-dir"), "\"%s\"",
                  err.msg);
        CHECK(s.bytes_written == (n - 1) * ROW_BYTES); /* what comes later is not even tried */
        tsr_io_fail_at(0);
        tsr_io_free(io);
        tsr_spill_close(&s);
    }
}

/* ------------------------------------------------------------------ exit codes */

/* gen with these arguments, able to write files of `limit` bytes; its standard error in text. */
static int gen(char *const argv[], rlim_t limit, char *text, size_t text_bytes)
{
    const char *log = path_of(test_temp_dir(), "stderr");
    int status = 0, fd = open(log, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pid_t pid = fork();
    ssize_t n;

    if (pid == 0) {
        struct rlimit r = {limit, limit};
        if (dup2(fd, 2) < 0 || setrlimit(RLIMIT_FSIZE, &r) != 0)
            _exit(99);
        execv(TSR_BINARY_DIR "/gen", argv);
        _exit(98);
    }
    (void)waitpid(pid, &status, 0);
    n = pread(fd, text, text_bytes - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void gen__what_cannot_be_read_or_written__is_its_exit_code(void)
{
    const char *dir = micro_model(&(micro_options){0});
    char model[4096], out[4096], text[4096];

    REQUIRE(dir);
    snprintf(model, sizeof model, "%s", packed_micro());
    snprintf(out, sizeof out, "%s/new.tsr", dir);
    {
        char *const full[] = {"gen", "convert", (char *)dir, out, NULL};
        CHECK(gen(full, 1 << 16, text, sizeof text) == 5);
        CHECK_MSG(strstr(text, "gen: error: cannot write") && !tsr_path_is_file(out), "\"%s\"",
                  text);
    }
    {
        char *const nowhere[] = {"gen", "convert", (char *)dir, "/proc/new.tsr", NULL};
        CHECK(gen(nowhere, RLIM_INFINITY, text, sizeof text) == 5);
        CHECK_MSG(strstr(text, "/proc/new.tsr"), "\"%s\"", text);
    }
    CHECK(truncate(model, 7000) == 0);
    {
        char *const cut[] = {"gen", "--model", model, "--prompt", "x", "--out", "x.png", NULL};
        CHECK(gen(cut, RLIM_INFINITY, text, sizeof text) == 4);
        CHECK_MSG(strstr(text, "is damaged") && strstr(text, "gen convert"), "\"%s\"", text);
    }
}

int main(void)
{
    RUN(run__checkpoint_is_cut_meanwhile__an_io_error);
    RUN(run__packed_file_is_cut_meanwhile__an_io_error);
    RUN(run__the_nth_read_of_a_packed_file_fails__clean);
    RUN(convert__a_read_or_write_fails__nothing_is_left);
    RUN(convert__an_allocation_fails__nothing_is_left);
    RUN(spill__disk_fails_at_any_row__the_wait_says_so);
    RUN(gen__what_cannot_be_read_or_written__is_its_exit_code);
    return test_end();
}
