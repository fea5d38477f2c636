/* budget_sweep.c -- the promise itself, over budgets from the least to plenty, 1 and 2 threads,
 * plain and packed checkpoints: the peak resident set is under the budget every time, the picture
 * is the same every time, and what was predicted is what was measured, or a little more.
 *
 * The short sweep takes the embedded model and two of the test data; the long one
 * (TSR_LONG_TESTS=1) twelve budgets over every reference model. */
#include <stdio.h>
#include <string.h>

#include "memory/budget.h"
#include "tests/support/apart.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

static int32_t n_budgets(void)
{
    return test_long() ? 12 : 3;
}

/* A packed copy of a model, in a temporary place. */
static bool convert(const char *model, char *path, size_t path_bytes)
{
    char why[512];
    tsr_context *ctx = NULL;
    tsr_model *m = NULL;
    bool ok =
        tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 1}, why, sizeof why) == TSR_OK;

    snprintf(path, path_bytes, "%s/model.tsr", test_temp_dir());
    ok = ok && tsr_model_open(ctx, model, &m) == TSR_OK &&
         tsr_model_convert(m, path, &(tsr_convert_desc){0}) == TSR_OK;
    CHECK_MSG(ok, "%s: %s", model, ctx ? tsr_context_error(ctx) : why);
    tsr_model_free(m);
    tsr_context_free(ctx);
    return ok;
}

static void check_at(const char *model, tsr_run_desc d, int32_t threads, size_t budget,
                     uint64_t *hash)
{
    apart_figures f;
    size_t slack;

    d.budget_bytes = budget;
    d.strict = true;
    REQUIRE(run_apart(model, &d, threads, &f));
    CHECK_MSG(f.st == TSR_OK, "%s in %zu bytes: %s", model, budget, f.why);
    CHECK_MSG(f.peak <= budget, "%s took %zu of %zu bytes", model, f.peak, budget);
    slack = f.peak * 3 / 100 > ((size_t)4 << 20) ? f.peak * 3 / 100 : (size_t)4 << 20;
    CHECK_MSG(f.peak <= f.info.predicted_peak_bytes &&
                  f.info.predicted_peak_bytes <= f.peak + slack,
              "%s: predicted %zu, measured %zu", model, f.info.predicted_peak_bytes, f.peak);
    CHECK_MSG(f.info.allocations_while_running == 0, "%s: %llu allocations while running", model,
              (unsigned long long)f.info.allocations_while_running);
    if (!*hash)
        *hash = f.rgb_hash;
    CHECK_MSG(f.rgb_hash == *hash, "%s in %zu bytes with %d threads: another picture", model,
              budget, threads);
}

/* Budgets in equal ratios from the least to the fastest. */
static void sweep(const char *model, int32_t side, int32_t threads, uint64_t *hash)
{
    tsr_run_desc d = {.prompt = "a red fox",
                      .width = side,
                      .height = side,
                      .steps = 2,
                      .seed_given = true,
                      .plan_only = true};
    apart_figures plan;
    double least, most;

    REQUIRE(run_apart(model, &d, threads, &plan));
    CHECK_MSG(plan.st == TSR_OK, "%s: %s", model, plan.why);
    d.plan_only = false;
    least = (double)plan.info.minimum_budget_bytes;
    most = (double)plan.info.fastest_budget_bytes;
    for (int32_t i = 0; i < n_budgets() && test_failures() < 5; i++) {
        double share = (double)i / (n_budgets() - 1);
        check_at(model, d, threads, (size_t)(least + share * share * (most - least)), hash);
    }
}

/* Pictures of `side` pixels; 0: of the model's own size. Small ones: a plan keeps room for a PNG's
 * buffers and for a decoder in float32, which waits for an overflow, and neither is touched here.
 */
static void sweep_model(const char *model, int32_t side)
{
    char packed[4096];
    uint64_t hash = 0;

    for (int32_t threads = 1; threads <= 2; threads++)
        sweep(model, side, threads, &hash);
    if (convert(model, packed, sizeof packed))
        for (int32_t threads = 1; threads <= 2; threads++)
            sweep(packed, side, threads, &hash);
}

static void budgets__models_of_the_tree__hold_and_change_nothing(void)
{
    const char *micro = micro_model(&(micro_options){.xl = true});

    SKIP_IF_SANITIZED();
    REQUIRE(micro != NULL);
    sweep_model(micro, 0);
    sweep_model(TSR_SOURCE_DIR "/assets/model", 128);
    sweep_model(TSR_TEST_DATA "/models/sd2-tiny", 0);
}

static void budgets__reference_models__hold_and_change_nothing(void)
{
    static const char *const models[] = {"sd1-tiny", "sd2-tiny", "sdxl-tiny", "sd1-odd"};
    const char *root = test_reference_dir();
    char path[4096];

    SKIP_IF_SANITIZED();
    if (!test_long())
        SKIP("the switch for long tests, TSR_LONG_TESTS=1");
    if (!root)
        SKIP("the reference data (shared/reference) is not here");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(path, sizeof path, "%s/models/%s", root, models[i]);
        sweep_model(path, 0);
    }
}

int main(void)
{
    RUN(budgets__models_of_the_tree__hold_and_change_nothing);
    RUN(budgets__reference_models__hold_and_change_nothing);
    return test_end();
}
