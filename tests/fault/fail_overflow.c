/* fail_overflow.c -- what is beyond half precision: the decoder is done again as a whole in
 * float32, the UNet and the text encoder stop with the layer's name; never a black picture. All of
 * it within the budget, the least one included. */
#include <string.h>

#include "tessera.h"
#include "tests/support/apart.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

static char warnings[4096];

static void keep_warning(void *user, tsr_log_level level, const char *line)
{
    (void)user;
    if (level == TSR_LOG_WARNING)
        strncat(warnings, line, sizeof warnings - strlen(warnings) - 1);
}

static tsr_status draw(const char *dir, tsr_precision precision, char *why, size_t why_bytes,
                       uint8_t rgb[3 * 64])
{
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_run_desc d = {.prompt = "fox",
                      .width = 8,
                      .height = 8,
                      .steps = 2,
                      .seed_given = true,
                      .precision = precision};
    tsr_picture pic;
    tsr_status st = tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 1, .log = keep_warning},
                                     why, why_bytes);

    warnings[0] = '\0';
    if (st != TSR_OK)
        return st;
    st = tsr_model_open(ctx, dir, &model);
    if (st == TSR_OK)
        st = tsr_run_make(ctx, model, &d, &run);
    if (st == TSR_OK)
        st = tsr_run_next(run, &pic);
    if (st == TSR_OK)
        memcpy(rgb, pic.rgb, 3 * 64);
    strncpy(why, tsr_context_error(ctx), why_bytes - 1);
    tsr_run_free(run);
    tsr_model_free(model);
    tsr_context_free(ctx);
    return st;
}

static void unet__overflows_in_half__stops_with_the_layer(void)
{
    const char *dir = micro_model(&(micro_options){.unet_overflows = true});
    char why[512] = "";
    uint8_t rgb[3 * 64];

    REQUIRE(dir != NULL);
    CHECK(draw(dir, TSR_PRECISION_AUTO, why, sizeof why, rgb) == TSR_E_MODEL);
    CHECK_MSG(strstr(why, "mid_block.resnets.0.conv1") && strstr(why, "--precision fp32"), "%s",
              why);
    CHECK_MSG(draw(dir, TSR_PRECISION_FP32, why, sizeof why, rgb) == TSR_OK, "%s", why);
}

static void decoder__overflows_in_half__decoded_again_in_float32(void)
{
    const char *dir = micro_model(&(micro_options){.vae_overflows = true});
    char why[512] = "";
    uint8_t half[3 * 64], full[3 * 64];
    int32_t most = 0;

    REQUIRE(dir != NULL);
    CHECK_MSG(draw(dir, TSR_PRECISION_AUTO, why, sizeof why, half) == TSR_OK, "%s", why);
    CHECK_MSG(strstr(warnings, "float32"), "no warning, but: %s", warnings);
    CHECK_MSG(draw(dir, TSR_PRECISION_FP32, why, sizeof why, full) == TSR_OK, "%s", why);
    for (int32_t i = 0; i < 3 * 64; i++) {
        int32_t d = half[i] > full[i] ? half[i] - full[i] : full[i] - half[i];
        most = d > most ? d : most;
    }
    CHECK_MSG(most <= 4, "the pictures differ by %d grey levels",
              most); /* the latents come from half precision */
}

static void text_encoder__overflows_in_half__stops_with_the_layer(void)
{
    const char *dir = micro_model(&(micro_options){.text_overflows = true});
    char why[512] = "";
    uint8_t rgb[3 * 64];

    REQUIRE(dir != NULL);
    CHECK(draw(dir, TSR_PRECISION_AUTO, why, sizeof why, rgb) == TSR_E_MODEL);
    CHECK_MSG(strstr(why, "text encoder overflowed at") && strstr(why, "layers.1.mlp.fc1") &&
                  strstr(why, "--precision fp32"),
              "%s", why);
    CHECK_MSG(draw(dir, TSR_PRECISION_FP32, why, sizeof why, rgb) == TSR_OK, "%s", why);
}

/* A picture large enough that its values, and not the process, make the least budget. */
static void in_least_budget(const micro_options *options, tsr_status want, const char *layer)
{
    const char *dir = micro_model(options);
    tsr_run_desc d = {.prompt = "fox", .width = 256, .height = 256, .steps = 1, .seed_given = true};
    apart_figures plan, plenty, least;

    REQUIRE(dir != NULL);
    for (int32_t threads = 1; threads <= 2; threads++) {
        d.budget_bytes = 0;
        d.plan_only = true;
        REQUIRE(run_apart(dir, &d, threads, &plan) && plan.st == TSR_OK);
        d.plan_only = false;
        REQUIRE(run_apart(dir, &d, threads, &plenty));
        d.budget_bytes = plan.info.minimum_budget_bytes;
        d.strict = true;
        REQUIRE(run_apart(dir, &d, threads, &least));
        CHECK_MSG(least.st == want && plenty.st == want, "in %zu bytes: status %d, \"%s\"",
                  d.budget_bytes, least.st, least.why);
        CHECK_MSG(strstr(least.why, layer), "\"%s\"", least.why);
        CHECK(want != TSR_OK || least.rgb_hash == plenty.rgb_hash);
        CHECK_MSG(least.peak <= d.budget_bytes, "measured %zu in a budget of %zu", least.peak,
                  d.budget_bytes);
    }
}

static void overflow__in_the_least_budget__is_the_same(void)
{
    SKIP_IF_SANITIZED();
    in_least_budget(&(micro_options){.vae_overflows = true}, TSR_OK, "");
    in_least_budget(&(micro_options){.unet_overflows = true}, TSR_E_MODEL,
                    "the UNet overflowed at mid_block.resnets.0.conv1");
    in_least_budget(&(micro_options){.text_overflows = true}, TSR_E_MODEL, "layers.1.mlp.fc1");
}

int main(void)
{
    RUN(text_encoder__overflows_in_half__stops_with_the_layer);
    RUN(overflow__in_the_least_budget__is_the_same);
    RUN(unet__overflows_in_half__stops_with_the_layer);
    RUN(decoder__overflows_in_half__decoded_again_in_float32);
    return test_end();
}
