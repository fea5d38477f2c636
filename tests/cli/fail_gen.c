/* fail_gen.c -- gen in this process, with an allocation or a transfer that fails.
 *
 * Whatever fails, the answer is an exit code of its kind and a sentence, or the whole output;
 * under ASAN a leak is a failure too. The first failures are tried one by one, later ones in steps:
 * the library's own tests try them all. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

enum { ONE_BY_ONE = 150, STEP = 23, MAX_FAILURES = 100000 };

static const char *model;
static char out[4096], report[4096], latents[4096], encoded[4096];

/* Exit code of gen with these arguments, with its messages thrown away. */
static int run_gen(int argc, char **argv)
{
    int kept = dup(2), null = open("/dev/null", O_WRONLY), code;

    fflush(stderr);
    dup2(null, 2);
    code = tsr_cli_main(argc, argv);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    close(null);
    return code;
}

static int make_picture(void)
{
    char *argv[] = {(char *)"gen",
                    (char *)"--prompt",
                    (char *)"a fox",
                    (char *)"--model",
                    (char *)model,
                    (char *)"--steps",
                    (char *)"1",
                    (char *)"--seed",
                    (char *)"1",
                    (char *)"--quiet",
                    (char *)"--out",
                    out,
                    (char *)"--report",
                    report,
                    (char *)"--save-latents",
                    latents,
                    NULL};

    return run_gen((int)(sizeof argv / sizeof *argv) - 1, argv);
}

static int encode_picture(void)
{
    static char *argv[] = {(char *)"gen",
                           (char *)"encode",
                           encoded,
                           (char *)"--quiet",
                           (char *)"--save-latents",
                           out,
                           (char *)"--model",
                           NULL,
                           NULL};

    argv[7] = (char *)model;
    return run_gen(8, argv);
}

static int decode_latents(void)
{
    static char *argv[] = {(char *)"gen",
                           (char *)"decode",
                           latents,
                           (char *)"--quiet",
                           (char *)"--out",
                           out,
                           (char *)"--model",
                           NULL,
                           NULL};

    argv[7] = (char *)model;
    return run_gen(8, argv);
}

/* Calls `run` with the nth failure of a kind for n = 1, 2, ...; `code` is the exit code that
 * belongs to it. */
static void fail_each(int (*run)(void), void (*fail_at)(uint64_t), bool (*failed)(void), int code)
{
    int refused = 0;

    for (uint64_t n = 1; n < MAX_FAILURES; n += n < ONE_BY_ONE ? 1 : STEP) {
        int got;
        unlink(out);
        fail_at(n);
        got = run();
        if (!failed()) {
            CHECK_MSG(got == 0, "nothing failed, exit code %d", got);
            CHECK_MSG(n > 10 && refused > 5, "only %llu could fail", (unsigned long long)n);
            break;
        }
        CHECK_MSG(got == code || (got == 0 && tsr_path_is_file(out)), "failure %llu: exit code %d",
                  (unsigned long long)n, got);
        refused += got == code;
    }
    fail_at(0);
}

static void gen__an_allocation_fails__is_exit_3_or_a_whole_picture(void)
{
    fail_each(make_picture, tsr_alloc_fail_at, tsr_alloc_failed, 3);
    fail_each(encode_picture, tsr_alloc_fail_at, tsr_alloc_failed, 3);
    fail_each(decode_latents, tsr_alloc_fail_at, tsr_alloc_failed, 3);
}

static void gen__a_transfer_fails__is_exit_5_or_a_whole_picture(void)
{
    fail_each(make_picture, tsr_io_fail_at, tsr_io_failed, 5);
    fail_each(encode_picture, tsr_io_fail_at, tsr_io_failed, 5);
    fail_each(decode_latents, tsr_io_fail_at, tsr_io_failed, 5);
}

static bool same_file(const char *path, const char *bytes, size_t n)
{
    char *now = NULL;
    size_t len = 0;
    bool same = tsr_file_slurp(path, (size_t)1 << 20, &now, &len, NULL) == TSR_OK && len == n &&
                memcmp(now, bytes, n) == 0;

    tsr_free(now);
    return same;
}

/* Reads and writes that the system does in parts are continued. */
static void gen__short_reads_and_writes__change_nothing(void)
{
    static const size_t most[] = {1, 7, 4096};
    char *bytes = NULL;
    size_t n = 0;

    CHECK(make_picture() == 0);
    REQUIRE(tsr_file_slurp(latents, (size_t)1 << 20, &bytes, &n, NULL) == TSR_OK);
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        unlink(latents);
        tsr_io_short(most[i]);
        CHECK_MSG(make_picture() == 0, "%zu bytes at most", most[i]);
        tsr_io_short(0);
        CHECK_MSG(same_file(latents, bytes, n), "%zu bytes at most: other latents", most[i]);
    }
    tsr_free(bytes);
}

static void make_model(void)
{
    static const micro_options options;
    const char *dir = test_temp_dir();

    model = micro_model(&options);
    snprintf(out, sizeof out, "%s/a.png", dir);
    snprintf(report, sizeof report, "%s/r.json", dir);
    snprintf(latents, sizeof latents, "%s/l.safetensors", dir);
    REQUIRE(model != NULL);
    CHECK(make_picture() == 0);
    snprintf(encoded, sizeof encoded, "%s/e.png", dir);
    CHECK(rename(out, encoded) == 0);
}

int main(void)
{
    RUN(make_model);
    if (!model)
        return test_end();
    RUN(gen__an_allocation_fails__is_exit_3_or_a_whole_picture);
    RUN(gen__short_reads_and_writes__change_nothing);
    RUN(gen__a_transfer_fails__is_exit_5_or_a_whole_picture);
    return test_end();
}
