/* golden_full.c -- the full-size networks of SD1.5 and SDXL, with hashed weights, against the
 * reference. Long: minutes, and up to 11 GB of memory (SDXL's UNet in fp32).
 *
 * TSR_LONG_TESTS=1, and TSR_HASHED_DIR a folder with sd15/ and sdxl/ in it, made by
 * tools/hashed_weights (2 and 7 GB). TSR_HASHED_ONLY=sd15 or sdxl runs one of them. */
#include "tests/support/golden_clip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double FP32_LIMIT = 2e-5;
/* The goldens' pictures are stored as halves; ours are rounded, too, and where a value lies next to
 * the middle between two halves it may fall to the other side. */
static const double FP32_LIMIT_OF_HALVES = 1e-4;
static const double TEXT_FP16_LIMIT = 2e-3, UNET_FP16_LIMIT = 5e-3, VAE_FP16_LIMIT = 4e-3;

/* The folder of one part of a hashed model, or why this test does not run. */
static const char *part_dir(char *dir, size_t bytes, const char *model, const char *part)
{
    const char *root = getenv("TSR_HASHED_DIR"), *only = getenv("TSR_HASHED_ONLY");

    if (!test_long())
        return "the switch for long tests, TSR_LONG_TESTS=1";
    if (!golden_root(1))
        return "the reference data";
    if (only && strcmp(only, model) != 0)
        return "left out by TSR_HASHED_ONLY";
    snprintf(dir, bytes, "%s/%s/%s", root ? root : "", model, part);
    return root && tsr_path_is_dir(dir) ? NULL : "hashed weights in TSR_HASHED_DIR";
}

static void compare(golden_net *net, const char *what, const golden_job *job, tsr_val v,
                    const golden_tensor *want, double limit)
{
    size_t n;
    float *got = golden_net_get(net, v, &n);

    golden_compare(what, golden_precision(job), tsr_cpu_tier_name(job->tier), got, n, want, limit);
    free(got);
}

/* -------------------------------------------------------------------- UNet */

static void check_unet(const char *dir, const char *model, const char *context_file)
{
    char name[64], what[128];
    golden g = {0}, text = {0};
    golden_unet u = {0};
    bool ok;

    snprintf(name, sizeof name, "full-%s-unet", model);
    ok = golden_open(&g, golden_root(1), name) && golden_unet_open(&u, dir) &&
         (!context_file || golden_open(&text, golden_root(1), context_file));
    for (int32_t i = 0; ok && i < 4; i++) { /* two runs, two precisions */
        char run[2] = {(char)('0' + i / 2), '\0'};
        golden_job job = golden_job_best(i % 2 ? TSR_F16 : TSR_F32);
        const golden_tensor *context =
            context_file ? golden_find(&text, "last_hidden_state") : NULL;
        golden_net net = {0};
        golden_unet_in in;
        tsr_val out;
        if (!golden_find(&g, "%s.out", run))
            continue;
        snprintf(what, sizeof what, "full %s unet %s", model, run);
        if (golden_unet_inputs(&g, run, context, &in) &&
            golden_unet_forward(&net, &u, &job, &in, &out))
            compare(&net, what, &job, out, golden_need(&g, "%s.out", run),
                    i % 2 ? UNET_FP16_LIMIT : FP32_LIMIT);
        golden_net_free(&net);
    }
    if (ok)
        golden_check_all_used(&u.comp);
    golden_unet_close(&u);
    golden_close(&g);
    golden_close(&text);
}

static void full__sd15_unet__matches_the_reference(void)
{
    char dir[4096];
    const char *missing = part_dir(dir, sizeof dir, "sd15", "unet");

    if (missing)
        SKIP(missing);
    check_unet(dir, "sd15", "full-sd15-text_encoder");
}

static void full__sdxl_unet__matches_the_reference(void)
{
    char dir[4096];
    const char *missing = part_dir(dir, sizeof dir, "sdxl", "unet");

    if (missing)
        SKIP(missing);
    check_unet(dir, "sdxl", NULL);
}

/* --------------------------------------------------------------------- VAE */

/* Every n-th row and column of planes [N*C,H,W] as halves hold them, in place; returns how many
 * values are left. */
static size_t thin_out(float *x, size_t n, int32_t h, int32_t w, int32_t every)
{
    size_t kept = 0, plane = (size_t)h * (size_t)w;

    for (size_t i = 0; i < n; i++) {
        size_t row = i % plane / (size_t)w, col = i % (size_t)w;
        if (row % (size_t)every == 0 && col % (size_t)every == 0)
            x[kept++] = tsr_f16_to_f32(tsr_f32_to_f16(x[i]));
    }
    return kept;
}

static void check_vae(const char *dir, const char *model, const char *out_name, int32_t every)
{
    char name[64], what[128];
    golden g = {0};
    golden_vae v = {0};
    const golden_tensor *in, *want;

    snprintf(name, sizeof name, "full-%s-vae", model);
    snprintf(what, sizeof what, "full %s vae", model);
    if (golden_open(&g, golden_root(1), name) && golden_vae_open(&v, dir) &&
        (in = golden_need(&g, "0.in")) && (want = golden_need(&g, "%s", out_name))) {
        for (int32_t p = 0; p < 2; p++) {
            golden_job job = golden_job_best(p ? TSR_F16 : TSR_F32);
            golden_net net = {0};
            tsr_val out;
            size_t n;
            float *got;
            if (golden_vae_decode(&net, &v, &job, in, false, &out)) {
                got = golden_net_get(&net, out, &n);
                n = thin_out(got, n, 8 * in->dims[2], 8 * in->dims[3], every);
                golden_compare(what, golden_precision(&job), tsr_cpu_tier_name(job.tier), got, n,
                               want, p ? VAE_FP16_LIMIT : FP32_LIMIT_OF_HALVES);
                free(got);
            }
            golden_net_free(&net);
        }
    }
    golden_vae_close(&v);
    golden_close(&g);
}

static void full__sd15_vae__matches_the_reference(void)
{
    char dir[4096];
    const char *missing = part_dir(dir, sizeof dir, "sd15", "vae");

    if (missing)
        SKIP(missing);
    check_vae(dir, "sd15", "0.out", 1);
}

static void full__sdxl_vae__matches_the_reference(void)
{
    char dir[4096];
    const char *missing = part_dir(dir, sizeof dir, "sdxl", "vae");

    if (missing)
        SKIP(missing);
    check_vae(dir, "sdxl", "0.out_every2", 2);
}

/* -------------------------------------------------------------------- text */

static void check_text(golden_clip *c, golden *g, const golden_job *job)
{
    double limit = job->dtype == TSR_F16 ? TEXT_FP16_LIMIT : FP32_LIMIT;
    const golden_tensor *ids = golden_need(g, "input_ids");
    tsr_clip_shape last = {.n = 1, .s = 77, .final_norm = true, .pooled = true};
    tsr_clip_shape before = {.n = 1, .s = 77, .skip = 1};
    golden_net net = {0};
    tsr_clip_io io = {0};

    if (!ids)
        return;
    if (golden_clip_forward(&net, c, job, &last, ids->data, &io)) {
        compare(&net, "full sd15 text", job, io.hidden, golden_need(g, "last_hidden_state"), limit);
        compare(&net, "full sd15 text, pooled", job, io.pooled, golden_need(g, "pooled"), limit);
    }
    golden_net_free(&net);
    if (golden_clip_forward(&net, c, job, &before, ids->data, &io))
        compare(&net, "full sd15 text, layer before", job, io.hidden,
                golden_need(g, "hidden_penultimate"), limit);
    golden_net_free(&net);
}

static void full__sd15_text_encoder__matches_the_reference(void)
{
    char dir[4096];
    const char *missing = part_dir(dir, sizeof dir, "sd15", "text_encoder");
    golden_job full = golden_job_best(TSR_F32), half = golden_job_best(TSR_F16);
    golden g = {0};
    golden_clip c = {0};

    if (missing)
        SKIP(missing);
    if (golden_open(&g, golden_root(1), "full-sd15-text_encoder") && golden_clip_open(&c, dir)) {
        check_text(&c, &g, &full);
        check_text(&c, &g, &half);
    }
    golden_clip_close(&c);
    golden_close(&g);
}

int main(void)
{
    RUN(full__sd15_text_encoder__matches_the_reference);
    RUN(full__sd15_unet__matches_the_reference);
    RUN(full__sd15_vae__matches_the_reference);
    RUN(full__sdxl_unet__matches_the_reference);
    RUN(full__sdxl_vae__matches_the_reference);
    return test_end();
}
