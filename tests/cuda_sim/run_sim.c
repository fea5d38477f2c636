/* run_sim.c -- gen on the simulated device, as a user runs it: budgets, placements, the record.
 *
 * The device's budget counts its context (300 MiB there) and the arena in pieces of 2 MiB; what the
 * driver tells after each phase must be what was predicted, to the byte. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/gen_run.h"
#include "tests/support/test.h"

enum { PARTS = 5 }; /* budgets between the least and the fastest */

#define MODEL TSR_TEST_DATA "/models/embedded"
#define PICTURE                                                                                    \
    "--prompt", "a red fox", "--seed", "3", "--steps", "1", "--guidance", "1", "--width", "64",    \
        "--height", "64", "--backend", "cuda-sim", "--strict", "--model", MODEL

static double number_of(const char *report, const char *key)
{
    static char text[GEN_MAX_OUTPUT];
    cJSON *json;
    double x;

    gen_read(report, text);
    json = cJSON_Parse(text);
    x = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(json, key));
    cJSON_Delete(json);
    return x;
}

/* The same picture within `budget` bytes; what it streamed. */
static double in_budget(size_t budget, const char *offload)
{
    char number[32];

    snprintf(number, sizeof number, "%zu", budget);
    gen(PICTURE, "--out", "b.png", "--report", "b.json", "--budget", number, "--offload", offload,
        NULL);
    CHECK_MSG(gen_result.code == 0, "budget %zu, %s: %d, %s", budget, offload, gen_result.code,
              gen_result.err);
    CHECK_MSG(gen_same_pixels("a.png", "b.png"), "budget %zu, %s: other pixels", budget, offload);
    CHECK_MSG(number_of("b.json", "measured_peak_bytes") <= (double)budget &&
                  number_of("b.json", "measured_peak_bytes") ==
                      number_of("b.json", "predicted_peak_bytes"),
              "budget %zu: predicted %.0f, measured %.0f", budget,
              number_of("b.json", "predicted_peak_bytes"),
              number_of("b.json", "measured_peak_bytes"));
    return number_of("b.json", "bytes_streamed");
}

static void gen__any_budget_and_placement__same_pixels_within_it(void)
{
    size_t least, fastest;

    gen(PICTURE, "--out", "a.png", "--report", "a.json", NULL);
    REQUIRE(gen_result.code == 0);
    least = (size_t)number_of("a.json", "minimum_budget_bytes");
    fastest = (size_t)number_of("a.json", "fastest_budget_bytes");
    CHECK_MSG(least > (size_t)300 << 20 && least < fastest, "%zu, %zu", least, fastest);
    CHECK(in_budget(least, "auto") > 0);
    for (size_t part = 1; part < PARTS; part++)
        in_budget(least + (fastest - least) / PARTS * part, part % 2 ? "auto" : "block");
    CHECK(in_budget(fastest, "auto") == 0);
    CHECK(in_budget(fastest, "stream") > 0);
}

static void gen__a_page_too_little__is_refused_with_the_least(void)
{
    char number[32], want[64];
    size_t least = (size_t)number_of("a.json", "minimum_budget_bytes");

    snprintf(number, sizeof number, "%zu", least - 4096);
    snprintf(want, sizeof want, "the smallest budget is %zu bytes", least);
    gen(PICTURE, "--out", "c.png", "--budget", number, NULL);
    CHECK_MSG(gen_result.code == 3 && strstr(gen_result.err, want), "%d, %s", gen_result.code,
              gen_result.err);
}

static void gen__host_budget__bounds_the_host(void)
{
    char number[32];
    size_t host = (size_t)number_of("a.json", "predicted_host_peak_bytes");

    /* the simulated device's memory is the host's, too: what is measured there says nothing */
    CHECK(host > (size_t)12 << 20);
    gen(PICTURE, "--out", "c.png", "--host-budget", "1M", NULL);
    CHECK_MSG(gen_result.code == 3 && strstr(gen_result.err, "of host memory"), "%d, %s",
              gen_result.code, gen_result.err);
    snprintf(number, sizeof number, "%zu", 2 * host);
    gen(PICTURE, "--out", "c.png", "--host-budget", number, NULL);
    CHECK(gen_result.code == 0);
}

static void gen__record__names_the_device(void)
{
    static char text[GEN_MAX_OUTPUT];

    gen_read("a.json", text);
    CHECK(strstr(text, "\"backend\": \"cuda\"") && strstr(text, "\"tier\": \"sm_90\"") &&
          strstr(text, "\"device\": \"simulated device 0\""));
}

int main(void)
{
    gen_setup(TSR_BINARY_DIR "/gen", test_temp_dir(), MODEL);
    RUN(gen__any_budget_and_placement__same_pixels_within_it);
    RUN(gen__a_page_too_little__is_refused_with_the_least);
    RUN(gen__host_budget__bounds_the_host);
    RUN(gen__record__names_the_device);
    return test_end();
}
