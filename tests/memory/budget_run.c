/* budget_run.c -- what is predicted is what is measured, and what does not fit is refused before
 * the first step.
 *
 * Every figure is of a process of its own (fork), since a peak resident set cannot be taken back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "memory/budget.h"
#include "tessera.h"
#include "tests/support/apart.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

#define EMBEDDED TSR_SOURCE_DIR "/assets/model"

/* A picture of `side` pixels; 0: of the model's own size. */
static void check_model(const char *dir, const char *name, int32_t threads, tsr_precision precision,
                        int32_t side)
{
    tsr_run_desc d = {.prompt = "a red fox",
                      .steps = 2,
                      .seed_given = true,
                      .plan_only = true,
                      .width = side,
                      .height = side,
                      .precision = precision};
    apart_figures plan, made, refused, least;
    size_t slack;

    REQUIRE(run_apart(dir, &d, threads, &plan));
    CHECK_MSG(plan.st == TSR_OK, "%s", plan.why);
    d.plan_only = false;
    REQUIRE(run_apart(dir, &d, threads, &made));
    CHECK_MSG(made.st == TSR_OK, "%s", made.why);
    CHECK(made.info.predicted_peak_bytes == plan.info.predicted_peak_bytes);
    CHECK(made.info.arena_high_water_bytes == made.info.arena_bytes);
    CHECK_MSG(made.info.allocations_while_running == 0, "%llu allocations after planning",
              (unsigned long long)made.info.allocations_while_running);
    slack = made.peak * 3 / 100 > ((size_t)4 << 20) ? made.peak * 3 / 100 : (size_t)4 << 20;
    CHECK_MSG(made.peak <= made.info.predicted_peak_bytes, "measured %zu, predicted %zu", made.peak,
              made.info.predicted_peak_bytes);
    CHECK_MSG(made.info.predicted_peak_bytes <= made.peak + slack, "measured %zu, predicted %zu",
              made.peak, made.info.predicted_peak_bytes);
    CHECK_MSG(made.peak - made.info.arena_bytes < (size_t)12 << 20, "%zu bytes outside the arena",
              made.peak - made.info.arena_bytes);
    test_note("%s, %d threads: predicted %zu, measured %zu, arena %zu, minimum %zu", name, threads,
              made.info.predicted_peak_bytes, made.peak, made.info.arena_bytes,
              made.info.minimum_budget_bytes);

    d.budget_bytes = plan.info.minimum_budget_bytes;
    REQUIRE(run_apart(dir, &d, threads, &least));
    CHECK_MSG(least.st == TSR_OK, "at the minimum: %s", least.why);
    CHECK_MSG(least.peak <= d.budget_bytes, "measured %zu in a budget of %zu", least.peak,
              d.budget_bytes);
    CHECK(least.rgb_hash == made.rgb_hash);
    d.budget_bytes -= (size_t)sysconf(_SC_PAGESIZE);
    d.strict = true;
    REQUIRE(run_apart(dir, &d, threads, &refused));
    CHECK(refused.st == TSR_E_BUDGET);
    CHECK_MSG(strstr(refused.why, "smallest budget"), "%s", refused.why);
}

static void run__any_model__predicted_is_measured(void)
{
    const char *micro = micro_model(&(micro_options){.xl = true});

    SKIP_IF_SANITIZED();
    REQUIRE(micro != NULL);
    for (int32_t threads = 1; threads <= 2; threads++) {
        check_model(micro, "micro XL", threads, TSR_PRECISION_AUTO, 0);
        /* In half their largest network is the decoder in float32, which waits for an overflow. No
         * PNG is written here, whose buffers count for large pictures. */
        check_model(EMBEDDED, "the embedded model", threads, TSR_PRECISION_FP32, 256);
        check_model(TSR_TEST_DATA "/models/sd2-tiny", "sd2-tiny (full vocabulary)", threads,
                    TSR_PRECISION_FP32, 0);
    }
}

static void run__fifty_pictures__does_not_grow(void)
{
    const char *dir = micro_model(&(micro_options){0});
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    char why[512];
    /* What this library holds is the same, to the byte, after every picture. The allocator keeps up
     * to 128 KiB (its trim threshold) of what was freed, now less, now more. */
    size_t after_second = 0, trim = (size_t)128 << 10, live = 0;

    SKIP_IF_SANITIZED();
    REQUIRE(dir != NULL);
    REQUIRE(tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 2}, why, sizeof why) == TSR_OK);
    for (int32_t i = 0; i < 50; i++) {
        tsr_run_desc d = {
            .prompt = "a red fox", .steps = 1, .seed = (uint64_t)i, .seed_given = true};
        tsr_run *run = NULL;
        tsr_picture pic;
        bool ok = tsr_model_open(ctx, dir, &model) == TSR_OK &&
                  tsr_run_make(ctx, model, &d, &run) == TSR_OK && tsr_run_next(run, &pic) == TSR_OK;
        CHECK_MSG(ok, "%s", tsr_context_error(ctx));
        tsr_run_free(run);
        tsr_model_free(model);
        model = NULL;
        live = i == 0 ? tsr_alloc_live() : live;
        CHECK_MSG(tsr_alloc_live() == live, "picture %d: %zu bytes are held, not %zu", i,
                  tsr_alloc_live(), live);
        if (i == 1)
            after_second = tsr_mem_resident();
    }
    CHECK_MSG(tsr_mem_resident() <= after_second + trim,
              "resident set: %zu after the second picture, %zu after the 50th", after_second,
              tsr_mem_resident());
    tsr_context_free(ctx);
}

int main(void)
{
    RUN(run__any_model__predicted_is_measured);
    RUN(run__fifty_pictures__does_not_grow);
    return test_end();
}
