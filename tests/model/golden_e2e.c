/* golden_e2e.c -- whole pipeline calls against the reference: final latents, and the picture.
 *
 * Every text-to-image case of the reference in float32 (relative L2 error of the final latents at
 * most 1e-3: this finds logic errors) and in half (2e-2, and 35 dB for the picture). The start
 * noise is ours: the same seed must give torch's numbers. A case with several pictures from one
 * generator gets the recorded noise, since ours draw each picture from its own seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/e2e.h"

static const struct precision {
    const char *name;
    tsr_precision precision;
    double latents, psnr;
} precisions[] = {
    {"fp32", TSR_PRECISION_FP32, 1e-3, 50},
    {"fp16", TSR_PRECISION_AUTO, 2e-2, 35},
};

static void check_picture(const e2e_case *c, const struct precision *p, const char *root,
                          const tsr_picture *pic)
{
    char path[8192];
    int32_t w = 0, h = 0;
    uint8_t *png, *row;
    double psnr = 99;

    snprintf(path, sizeof path, "%s/golden/e2e/%s.png", root, c->name);
    png = e2e_read_png(path, &w, &h);
    CHECK_MSG(png != NULL, "%s cannot be read", path);
    if (!png)
        return;
    /* Several pictures stand side by side in the golden one. */
    if (h != pic->height || w % pic->width != 0) {
        test_failed(__FILE__, __LINE__, "%s is %dx%d", path, w, h);
        free(png);
        return;
    }
    for (int32_t y = 0; y < pic->height; y++) {
        row = png + 3 * ((size_t)y * (size_t)w + (size_t)(pic->index * pic->width));
        memmove(png + 3 * (size_t)y * (size_t)pic->width, row, 3 * (size_t)pic->width);
    }
    psnr = e2e_psnr(pic->rgb, png, 3 * (size_t)pic->width * (size_t)pic->height);
    CHECK_MSG(psnr >= p->psnr, "%s %s: the picture is at %.1f dB, below %.0f", c->name, p->name,
              psnr, p->psnr);
    test_note("%-24s %s picture %.1f dB (at least %.0f)", c->name, p->name, psnr, p->psnr);
    free(png);
}

static void check_latents(const e2e_case *c, const struct precision *p, golden *g,
                          const tsr_picture *pic)
{
    const golden_tensor *want = golden_need(g, "latents"); // [n,C,h,w]
    size_t n;
    double error;

    if (!want)
        return;
    n = want->n / (size_t)want->dims[0];
    CHECK(n == (size_t)pic->latents_shape[0] * (size_t)pic->latents_shape[1] *
                   (size_t)pic->latents_shape[2]);
    error = test_rel_l2(pic->latents, want->data + (size_t)pic->index * n, n);
    CHECK_MSG(error <= p->latents, "%s %s: final latents are off by %.3g, above %.1g", c->name,
              p->name, error, p->latents);
    test_note("%-24s %s latents %.3g (at most %.1g)", c->name, p->name, error, p->latents);
}

static void run_case(const e2e_case *c, const struct precision *p, const char *root)
{
    char why[512], golden_name[128];
    tsr_run_desc desc = e2e_desc(c);
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_picture pic;
    golden g;

    snprintf(golden_name, sizeof golden_name, "e2e/%s", c->name);
    REQUIRE(golden_open(&g, root, golden_name));
    desc.precision = p->precision;
    if (desc.n_pictures > 1) {
        const golden_tensor *noise = golden_need(&g, "noise.0");
        REQUIRE(noise != NULL);
        desc.latents = noise->data;
        memcpy(desc.latents_shape, noise->dims, sizeof desc.latents_shape);
    }
    CHECK_MSG(tsr_context_make(&ctx, &(tsr_context_desc){0}, why, sizeof why) == TSR_OK, "%s", why);
    CHECK_MSG(ctx && tsr_model_open(ctx, c->model_dir, &model) == TSR_OK, "%s: %s", c->name,
              tsr_context_error(ctx));
    CHECK_MSG(model && tsr_run_make(ctx, model, &desc, &run) == TSR_OK, "%s: %s", c->name,
              tsr_context_error(ctx));
    for (int32_t i = 0; run && i < desc.n_pictures; i++) {
        bool made = tsr_run_next(run, &pic) == TSR_OK;
        CHECK_MSG(made, "%s: %s", c->name, tsr_context_error(ctx));
        if (made) {
            check_latents(c, p, &g, &pic);
            check_picture(c, p, root, &pic);
        }
    }
    tsr_run_free(run);
    tsr_model_free(model);
    tsr_context_free(ctx);
    golden_close(&g);
}

static void run_root(int32_t which)
{
    const char *root = golden_root(which);
    cJSON *manifest, *item = NULL;
    e2e_case c;
    int32_t n = 0;

    if (!root)
        SKIP("the reference data (shared/reference) is not here");
    manifest = e2e_manifest(root);
    REQUIRE(manifest != NULL);
    while (e2e_next(manifest, &item, root, &c)) {
        for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
            run_case(&c, &precisions[i], root);
        n++;
    }
    cJSON_Delete(manifest);
    CHECK_MSG(n > 0, "%s has no case", root);
}

static void e2e__copied_cases__match_the_reference(void)
{
    run_root(0);
}
static void e2e__all_cases__match_the_reference(void)
{
    run_root(1);
}

int main(void)
{
    RUN(e2e__copied_cases__match_the_reference);
    RUN(e2e__all_cases__match_the_reference);
    return test_end();
}
