/* budget_batch.c -- several pictures in lockstep: within the budget, as predicted, and each the
 * picture that a run of its own makes, whatever the budget and the batch that it allows. */
#include <stdio.h>
#include <string.h>

#include "base/text_util.h"
#include "tests/support/apart.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

enum { PICTURES = 5, BUDGETS = 4 };

/* The hash of PICTURES pictures that are made one by one. */
static uint64_t made_alone(const char *model, tsr_run_desc d)
{
    tsr_context *ctx = NULL;
    tsr_model *m = NULL;
    uint64_t hash = TSR_FNV_SEED;
    char why[512];
    bool ok =
        tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 1}, why, sizeof why) == TSR_OK &&
        tsr_model_open(ctx, model, &m) == TSR_OK;

    d.n_pictures = 1;
    d.plan_only = false;
    for (int32_t i = 0; ok && i < PICTURES; i++, d.seed++) {
        tsr_run *run = NULL;
        tsr_picture pic;
        ok = tsr_run_make(ctx, m, &d, &run) == TSR_OK && tsr_run_next(run, &pic) == TSR_OK;
        if (ok)
            hash = tsr_fnv1a64(pic.rgb, 3 * (size_t)pic.width * (size_t)pic.height, hash);
        tsr_run_free(run);
    }
    CHECK_MSG(ok, "%s", ctx ? tsr_context_error(ctx) : why);
    tsr_model_free(m);
    tsr_context_free(ctx);
    return hash;
}

static void check_figures(const char *model, const tsr_run_desc *d, const apart_figures *f)
{
    size_t slack = f->peak * 3 / 100 > ((size_t)4 << 20) ? f->peak * 3 / 100 : (size_t)4 << 20;

    CHECK_MSG(f->info.allocations_while_running == 0, "%s: %llu allocations while running", model,
              (unsigned long long)f->info.allocations_while_running);
    CHECK_MSG(f->peak <= d->budget_bytes, "%s took %zu of %zu bytes", model, f->peak,
              d->budget_bytes);
    CHECK_MSG(f->peak <= f->info.predicted_peak_bytes &&
                  f->info.predicted_peak_bytes <= f->peak + slack,
              "%s: predicted %zu, measured %zu", model, f->info.predicted_peak_bytes, f->peak);
}

/* Budgets from the least to the fastest; a batch of several somewhere. Small
 * pictures: a plan keeps room for a PNG's buffers and for a decoder in float32, which waits for an
 * overflow, and neither is touched here. */
static void check_model(const char *model, int32_t side, int32_t steps, const char *scheduler)
{
    tsr_run_desc d = {.prompt = "a red fox",
                      .steps = steps,
                      .scheduler = scheduler,
                      .width = side,
                      .height = side,
                      .seed = 3,
                      .seed_given = true,
                      .n_pictures = PICTURES,
                      .plan_only = true,
                      .strict = true};
    uint64_t hash = made_alone(model, d);
    int32_t most = 0;
    apart_figures plan, one;
    size_t least, room;

    REQUIRE(run_apart(model, &d, 2, &plan));
    CHECK_MSG(plan.st == TSR_OK, "%s: %s", model, plan.why);
    d.n_pictures = 1;
    REQUIRE(run_apart(model, &d, 2, &one));
    d.n_pictures = PICTURES;
    d.plan_only = false;
    least = plan.info.minimum_budget_bytes;
    room = plan.info.fastest_budget_bytes - least;
    CHECK_MSG(least <= one.info.minimum_budget_bytes + ((size_t)64 << 10),
              "%s: %d pictures need %zu bytes and one %zu", model, PICTURES, least,
              one.info.minimum_budget_bytes);
    for (size_t i = 0; i < BUDGETS; i++) {
        apart_figures f;
        d.budget_bytes = least + room / (BUDGETS - 1) * i + room % (BUDGETS - 1);
        REQUIRE(run_apart(model, &d, 2 - (int32_t)i % 2, &f)); /* the least is of two threads */
        CHECK_MSG(f.st == TSR_OK, "%s in %zu bytes: %s", model, d.budget_bytes, f.why);
        CHECK_MSG(f.rgb_hash == hash, "%s in %zu bytes, %d together: other pictures", model,
                  d.budget_bytes, f.info.batch);
        check_figures(model, &d, &f);
        test_note("%zu bytes: %d of %d together, predicted %zu, measured %zu", d.budget_bytes,
                  f.info.batch, PICTURES, f.info.predicted_peak_bytes, f.peak);
        most = f.info.batch > most ? f.info.batch : most;
    }
    CHECK_MSG(most > 1, "%s: never more than one picture at a time", model);
}

static void batch__any_budget__pictures_of_runs_of_their_own(void)
{
    const char *micro = micro_model(&(micro_options){.xl = true});

    SKIP_IF_SANITIZED();
    REQUIRE(micro != NULL);
    check_model(micro, 0, 2, NULL);
    check_model(TSR_SOURCE_DIR "/assets/model", 128, 2, "euler_a"); /* which draws noise a step */
    check_model(TSR_TEST_DATA "/models/sd2-tiny", 0, 2, "dpmpp_2m");
}

/* What is read while running is read once for all pictures of a batch. */
static void batch__streamed_weights__are_read_once_a_step(void)
{
    tsr_run_desc d = {.prompt = "a red fox",
                      .steps = 3,
                      .seed_given = true,
                      .n_pictures = 4,
                      .offload = TSR_OFFLOAD_STREAM};
    apart_figures all, one;

    REQUIRE(run_apart(TSR_SOURCE_DIR "/assets/model", &d, 2, &all));
    d.n_pictures = 1;
    REQUIRE(run_apart(TSR_SOURCE_DIR "/assets/model", &d, 2, &one));
    CHECK_MSG(all.st == TSR_OK && one.st == TSR_OK, "%s%s", all.why, one.why);
    CHECK_MSG(all.info.batch == 4, "%d together", all.info.batch);
    CHECK_MSG(all.info.bytes_streamed < 2 * one.info.bytes_streamed, "%llu bytes, one picture %llu",
              (unsigned long long)all.info.bytes_streamed,
              (unsigned long long)one.info.bytes_streamed);
}

int main(void)
{
    RUN(batch__any_budget__pictures_of_runs_of_their_own);
    RUN(batch__streamed_weights__are_read_once_a_step);
    return test_end();
}
