/* run_large_vae.c -- large pictures through the decoder and the encoder in little memory: strips,
 * spilled values, keys and values of the attention in blocks from the file. Equal, bit for bit, to
 * the run that keeps everything, and never over the budget.
 *
 * The long one is the promise: the decoder of Stable Diffusion 1.5 at 2048x2048 in 192 and in 96
 * MB, its encoder at 1024x1024. TSR_LONG_TESTS=1, and TSR_HASHED_DIR a folder with sd15/ in it,
 * made by hashed_weights; half an hour on two cores, 5.5 GB for the run that keeps everything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_util.h"
#include "cli/latents_file.h"
#include "tests/support/gen_run.h"
#include "tests/support/test.h"

#define SMALL TSR_TEST_DATA "/models/sd1-small"

/* Random latents [1,4,side,side] as the file `name`. */
/* Of a model with four channels. */
static void write_latents(const char *name, int32_t side)
{
    int32_t shape[3] = {4, side, side};
    size_t n = 4 * (size_t)side * (size_t)side;
    float *x = malloc(n * sizeof *x);
    tsr_latents_out out = {0};
    tsr_err err = {0};
    uint64_t state = 1;
    char path[4096];

    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(state >> 40) / (float)(1 << 23) - 1;
    }
    snprintf(path, sizeof path, "%s/%s", gen_result.dir, name);
    CHECK_MSG(tsr_latents_open(&out, path, 1, &err) == TSR_OK &&
                  tsr_latents_append(&out, x, shape, &err) == TSR_OK &&
                  tsr_latents_close(&out, &err) == TSR_OK,
              "%s", err.msg);
    free(x);
}

/* A number of the report of the last run. */
static double reported(const char *key)
{
    static char text[GEN_MAX_OUTPUT];
    char quoted[64];
    const char *at;

    gen_read("r.json", text);
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    at = strstr(text, quoted);
    CHECK_MSG(at, "no %s in the report", key);
    return at ? strtod(at + strlen(quoted), NULL) : 0;
}

static void check_run(const char *what, const char *budget)
{
    double limit = strtod(budget, NULL), peak;

    CHECK_MSG(gen_result.code == 0, "%s in %s: %d, %s", what, budget, gen_result.code,
              gen_result.err);
    peak = reported("measured_peak_bytes");
    test_note("%s in %s bytes: %.1f MB at most, %.2f s, %.0f MB spilled, %.2f core-seconds of I/O",
              what, budget, peak / 1e6, reported("seconds_total"), reported("bytes_spilled") / 1e6,
              reported("io_core_seconds"));
    CHECK(reported("bytes_spilled") > 0 && reported("io_core_seconds") > 0);
#ifndef TSR_SANITIZED
    CHECK_MSG(peak <= limit, "%s: %.0f bytes in a budget of %s", what, peak, budget);
#else
    (void)limit;
#endif
}

/* `budgets`: in bytes, NULL at the end. */
static void check_decode(const char *model, int32_t side, const char *const *budgets)
{
    write_latents("l.st", side);
    gen("decode", "l.st", "--model", model, "--out=all.png", "--report=r.json", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    for (; *budgets; budgets++) {
        gen("decode", "l.st", "--model", model, "--out=part.png", "--report=r.json",
            "--spill-dir=.", "--budget", *budgets, NULL);
        check_run("decode", *budgets);
        CHECK(gen_same_pixels("all.png", "part.png"));
        gen_remove("part.png");
    }
}

/* Encodes the picture that check_decode has left. */
static void check_encode(const char *model, const char *const *budgets)
{
    gen("encode", "all.png", "--model", model, "--save-latents=all.st", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    for (; *budgets; budgets++) {
        gen("encode", "all.png", "--model", model, "--save-latents=part.st", "--report=r.json",
            "--spill-dir=.", "--budget", *budgets, NULL);
        check_run("encode", *budgets);
        CHECK(gen_same_bytes("all.st", "part.st"));
        gen_remove("part.st");
    }
}

/* The smallest budget by the refusal's sentence. */
static const char *least(void)
{
    static char number[32];
    static const char words[] = "the smallest budget is ";
    const char *at = strstr(gen_result.err, words);

    CHECK_MSG(gen_result.code == 3 && at, "%d, %s", gen_result.code, gen_result.err);
    snprintf(number, sizeof number, "%llu", at ? strtoull(at + strlen(words), NULL, 10) : 1);
    return number;
}

/* 12,544 tokens: the decoder's keys are spilled, too. */
static void gen_decode__large_and_small_memory__same_pixels(void)
{
    SKIP_IF_SANITIZED();
    write_latents("l.st", 112);
    gen("decode", "l.st", "--model", SMALL, "--budget=1000000", NULL);
    check_decode(SMALL, 112, (const char *const[]){least(), "48000000", NULL});
    gen("encode", "all.png", "--model", SMALL, "--save-latents=x.st", "--budget=1000000", NULL);
    check_encode(SMALL, (const char *const[]){least(), "34000000", NULL});
}

static void gen_decode__full_size__in_the_promised_memory(void)
{
    const char *root = getenv("TSR_HASHED_DIR");
    char model[4096];

    if (!test_long())
        SKIP("the switch for long tests, TSR_LONG_TESTS=1");
    snprintf(model, sizeof model, "%s/sd15", root ? root : "");
    if (!root || !tsr_path_is_dir(model))
        SKIP("hashed weights in TSR_HASHED_DIR");
    check_decode(model, 128, (const char *const[]){"96000000", NULL});
    check_encode(model, (const char *const[]){"96000000", NULL});
    check_decode(model, 256, (const char *const[]){"192000000", "96000000", NULL});
}

int main(void)
{
    gen_setup(TSR_BINARY_DIR "/gen", test_temp_dir(), SMALL);
    RUN(gen_decode__large_and_small_memory__same_pixels);
    RUN(gen_decode__full_size__in_the_promised_memory);
    return test_end();
}
