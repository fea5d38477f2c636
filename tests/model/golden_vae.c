/* golden_vae.c -- the autoencoder against the reference's, and against itself; see golden_unet.c.
 */
#include "tests/support/golden_nets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const double FP32_LIMIT = 2e-5, FP16_LIMIT = 4e-3;

typedef struct fixture {
    const char *model;
    char dir[4096];
    golden g;
    golden_vae vae;
} fixture;

static bool fixture_open(fixture *f, const char *root, const char *model)
{
    char name[64];

    memset(f, 0, sizeof *f);
    f->model = model;
    snprintf(name, sizeof name, "vae-%s", model);
    snprintf(f->dir, sizeof f->dir, "%s/models/%s/vae", root, model);
    return golden_open(&f->g, root, name) && golden_vae_open(&f->vae, f->dir);
}

static void fixture_close(fixture *f)
{
    golden_vae_close(&f->vae);
    golden_close(&f->g);
}

/* The output of case `name` of either kind. */
static float *run(golden_vae *v, golden_job job, const golden_tensor *in, bool decode, size_t *n)
{
    golden_net net = {0};
    tsr_val out;
    float *x = NULL;

    *n = 0;
    if (decode ? golden_vae_decode(&net, v, &job, in, false, &out)
               : golden_vae_encode(&net, v, &job, in, &out))
        x = golden_net_get(&net, out, n);
    golden_net_free(&net);
    return x;
}

/* ----------------------------------------------------------------- goldens */

/* Half `part` (0: mean, 1: log variance) of every entry's moments [N,2,half]. */
static float *moments_half(const float *moments, size_t n_entries, size_t half, size_t part)
{
    float *x = malloc(n_entries * half * sizeof *x);

    for (size_t i = 0; x && i < n_entries * half; i++)
        x[i] = moments[(2 * (i / half) + part) * half + i % half];
    return x;
}

static void compare_moments(fixture *f, const char *name, const golden_job *job,
                            const float *moments, size_t n, double limit)
{
    static const char *const PARTS[] = {"mean", "logvar", "sample"};
    const golden_tensor *noise = golden_need(&f->g, "%s.noise", name);
    size_t entries = noise ? (size_t)noise->dims[0] : 1;
    float *part[3] = {moments_half(moments, entries, n / 2 / entries, 0),
                      moments_half(moments, entries, n / 2 / entries, 1),
                      malloc(n / 2 * sizeof(float))};

    CHECK(noise && noise->n == n / 2);
    for (size_t i = 0; noise && noise->n == n / 2 && i < n / 2; i++) {
        part[1][i] = fminf(fmaxf(part[1][i], -30.0f), 20.0f);
        part[2][i] = part[0][i] + expf(0.5f * part[1][i]) * noise->data[i];
    }
    for (int32_t p = 0; p < 3; p++) {
        char what[256];
        snprintf(what, sizeof what, "%s %s %s", f->model, name, PARTS[p]);
        golden_compare(what, golden_precision(job), tsr_cpu_tier_name(job->tier), part[p], n / 2,
                       golden_need(&f->g, "%s.%s", name, PARTS[p]), limit);
        free(part[p]);
    }
}

static void check_case(fixture *f, const char *name, golden_job job)
{
    double limit = job.dtype == TSR_F32 ? FP32_LIMIT : FP16_LIMIT;
    const golden_tensor *in = golden_need(&f->g, "%s.in", name);
    const golden_tensor *picture = golden_find(&f->g, "%s.out", name);
    golden_net net = {0};
    tsr_val out;
    size_t n;
    float *got;
    char what[256];

    if (!in)
        return;
    if (job.dtype == TSR_F32)
        job.taps = golden_taps_make(&f->g, name, &job.n_taps);
    if (picture ? golden_vae_decode(&net, &f->vae, &job, in, false, &out)
                : golden_vae_encode(&net, &f->vae, &job, in, &out)) {
        got = golden_net_get(&net, out, &n);
        snprintf(what, sizeof what, "%s %s", f->model, name);
        golden_taps_compare(&net, &f->g, f->model, name, &job, limit);
        if (picture)
            golden_compare(what, golden_precision(&job), tsr_cpu_tier_name(job.tier), got, n,
                           picture, limit);
        else if (got)
            compare_moments(f, name, &job, got, n, limit);
        free(got);
    }
    golden_net_free(&net);
    free(job.taps);
}

static void check_root(const char *root, bool complete)
{
    for (int32_t m = 0; golden_model(m); m++) {
        char path[128], name[128];
        int32_t pos = 0, n_cases = 0;
        fixture f;

        snprintf(path, sizeof path, "golden/vae-%s.safetensors", golden_model(m));
        if (!complete && !golden_has(root, path))
            continue;
        if (fixture_open(&f, root, golden_model(m))) {
            while (golden_next_case(&f.g, ".in", &pos, name, sizeof name)) {
                check_case(&f, name, golden_job_best(TSR_F32));
                check_case(&f, name, golden_job_best(TSR_F16));
                n_cases++;
            }
            golden_check_all_used(&f.vae.comp);
            CHECK(n_cases >= 2);
        }
        fixture_close(&f);
    }
}

static void vae__small_models__match_the_reference(void)
{
    check_root(golden_root(0), false);
}

static void vae__all_cases__match_the_reference(void)
{
    const char *root = golden_root(1);

    if (!root)
        SKIP("the reference data");
    check_root(root, true);
}

static void vae__portable_tier__matches_the_reference(void)
{
    static const char *const CASES[] = {"dec_blocks_5x3", "enc_28x36"};
    fixture f;

    if (fixture_open(&f, golden_root(0), "sd1-odd")) {
        for (size_t i = 0; i < 2; i++) {
            golden_job job = {.tier = TSR_TIER_PORTABLE, .n_threads = 2, .dtype = TSR_F32};
            check_case(&f, CASES[i], job);
            job.dtype = TSR_F16;
            check_case(&f, CASES[i], job);
        }
    }
    fixture_close(&f);
}

/* --------------------------------------------------------------- same bits */

static golden_tensor entry(const golden_tensor *t, int32_t i)
{
    golden_tensor one = *t;

    one.n /= (size_t)t->dims[0];
    one.data += (size_t)i * one.n;
    one.dims[0] = 1;
    return one;
}

static float *decode_any(void *vae, golden_job job, const void *in, size_t *n)
{
    return run(vae, job, in, true, n);
}

static float *encode_any(void *vae, golden_job job, const void *in, size_t *n)
{
    return run(vae, job, in, false, n);
}

static void same_bits(fixture *f, const char *name, tsr_dtype dtype)
{
    enum { MOST = 4 };
    const golden_tensor *in = golden_need(&f->g, "%s.in", name);
    golden_forward vae = {golden_find(&f->g, "%s.out", name) ? decode_any : encode_any, &f->vae};
    golden_job job = golden_job_best(dtype);
    golden_tensor one[MOST];

    if (!in)
        return;
    CHECK(in->dims[0] <= MOST);
    for (int32_t i = 0; i < in->dims[0] && i < MOST; i++)
        one[i] = entry(in, i);
    golden_check_entries(&vae, job, in, one, sizeof *one, in->dims[0], "a batch and its entries");
    golden_check_windows_threads(&vae, job, in);
}

static void vae__batch_windows_threads__change_no_bit(void)
{
    static const char *const CASES[][2] = {
        {"sd2-tiny", "enc_b2_24x32"}, {"sd2-tiny", "dec_9x6"}, {"sd1-odd", "dec_10x6"}};

    for (size_t i = 0; i < 3; i++) {
        fixture f;
        if (fixture_open(&f, golden_root(0), CASES[i][0])) {
            same_bits(&f, CASES[i][1], TSR_F32);
            same_bits(&f, CASES[i][1], TSR_F16);
        }
        fixture_close(&f);
    }
}

/* ---------------------------------------------------- pictures, checkpoints */

static float as_type(tsr_dtype d, float x)
{
    return d == TSR_F16 ? tsr_f16_to_f32(tsr_f32_to_f16(x)) : x;
}

/* Byte i of the picture [H,W,3] from the decoder's own values [3,H,W], in the precision that the
 * reference has at each step. */
static uint8_t pixel_of(const float *nchw, size_t i, size_t hw, tsr_dtype d)
{
    float x = as_type(d, as_type(d, nchw[i % 3 * hw + i / 3] / 2.0f) + 0.5f);

    return (uint8_t)nearbyintf(fminf(fmaxf(x, 0.0f), 1.0f) * 255.0f);
}

static void vae__picture__is_the_rounded_decoding(void)
{
    fixture f;
    const golden_tensor *in;

    if (fixture_open(&f, golden_root(0), "sd1-odd") && (in = golden_need(&f.g, "dec_10x6.in"))) {
        for (int32_t k = 0; k < 2; k++) {
            golden_job job = golden_job_best(k ? TSR_F16 : TSR_F32);
            golden_net net = {0};
            tsr_val out;
            size_t n, m = 0, wrong = 0;
            float *x = run(&f.vae, job, in, true, &n);
            if (x && golden_vae_decode(&net, &f.vae, &job, in, true, &out)) {
                const uint8_t *rgb = tsr_program_data(&net.program, out);
                m = tsr_value_bytes(tsr_tape_value(&net.tape, out));
                for (size_t i = 0; m == n && i < n; i++)
                    wrong += rgb[i] != pixel_of(x, i, n / 3, job.dtype);
            }
            CHECK(m == n);
            CHECK_MSG(wrong == 0, "%zu of %zu pixels differ", wrong, n);
            golden_net_free(&net);
            free(x);
        }
    }
    fixture_close(&f);
}

/* A copy of the checkpoint in which the middle attention's tensors have their first names; only the
 * header's text changes, and its length. */
static bool write_with_first_names(const char *src, const char *dst)
{
    static const char *const NAMES[][2] = {{".to_q.", ".query."},
                                           {".to_k.", ".key."},
                                           {".to_v.", ".value."},
                                           {".to_out.0.", ".proj_attn."}};
    char *text = NULL, *out = NULL;
    size_t len, header, at = 8;
    uint64_t bytes;
    tsr_err err = {0};
    FILE *file = NULL;
    bool ok;

    if (!golden_ok(tsr_file_slurp(src, (size_t)64 << 20, &text, &len, &err), &err))
        return false;
    memcpy(&bytes, text, 8);
    header = 8 + (size_t)bytes;
    out = malloc(2 * len);
    for (size_t i = 8; out && i < header;) {
        size_t k = 0;
        while (k < 4 && strncmp(text + i, NAMES[k][0], strlen(NAMES[k][0])) != 0)
            k++;
        if (k < 4) {
            memcpy(out + at, NAMES[k][1], strlen(NAMES[k][1]));
            at += strlen(NAMES[k][1]);
            i += strlen(NAMES[k][0]);
        } else {
            out[at++] = text[i++];
        }
    }
    bytes = at - 8;
    ok = out && (file = fopen(dst, "wb"));
    if (ok) {
        memcpy(out, &bytes, 8);
        memcpy(out + at, text + header, len - header);
        ok = fwrite(out, 1, at + len - header, file) == at + len - header;
        ok = fclose(file) == 0 && ok;
    }
    free(out);
    tsr_free(text);
    CHECK(ok);
    return ok;
}

typedef bool (*rewrite_fn)(const char *src, const char *dst);

static bool write_f32(const char *src, const char *dst)
{
    return golden_convert(src, dst, TSR_F16, TSR_F32);
}
static bool write_bf16(const char *src, const char *dst)
{
    return golden_convert(src, dst, TSR_BF16, TSR_BF16);
}
static bool write_bf16_as_f32(const char *src, const char *dst)
{
    return golden_convert(src, dst, TSR_BF16, TSR_F32);
}

/* Decodes and encodes with a rewritten checkpoint: both outputs one after the other. */
static float *run_rewritten(const fixture *f, rewrite_fn rewrite, golden_job job,
                            const golden_tensor *latents, const golden_tensor *image, size_t *n)
{
    golden_vae v = {.cfg = f->vae.cfg};
    char src[4200], dst[4200];
    const char *dir = test_temp_dir();
    float *x = NULL, *y = NULL, *both = NULL;
    size_t m = 0;

    *n = 0;
    snprintf(src, sizeof src, "%s/diffusion_pytorch_model.safetensors", f->dir);
    snprintf(dst, sizeof dst, "%s/diffusion_pytorch_model.safetensors", dir);
    if (!rewrite)
        dir = f->dir;
    if ((!rewrite || rewrite(src, dst)) &&
        golden_ok(tsr_component_open(&v.comp, dir, "vae", "diffusion_pytorch_model", &v.err),
                  &v.err)) {
        x = run(&v, job, latents, true, n);
        y = run(&v, job, image, false, &m);
        golden_check_all_used(&v.comp);
    }
    tsr_component_close(&v.comp);
    if (x && y && (both = malloc((*n + m) * sizeof *both))) {
        memcpy(both, x, *n * sizeof *x);
        memcpy(both + *n, y, m * sizeof *y);
    }
    *n += m;
    free(x);
    free(y);
    return both;
}

static void vae__other_checkpoints_of_the_same_weights__give_the_same_bits(void)
{
    static const struct {
        const char *what;
        rewrite_fn a, b;
    } PAIRS[] = {{"a checkpoint in F32", NULL, write_f32},
                 {"a checkpoint in BF16", write_bf16, write_bf16_as_f32},
                 {"the first names of the attention", NULL, write_with_first_names}};
    fixture f;
    const golden_tensor *latents, *image;

    if (fixture_open(&f, golden_root(0), "sd2-tiny") &&
        (latents = golden_need(&f.g, "dec_9x6.in")) &&
        (image = golden_need(&f.g, "enc_b2_24x32.in"))) {
        for (size_t i = 0; i < 6; i++) {
            golden_job job = golden_job_best(i % 2 ? TSR_F16 : TSR_F32);
            size_t n, m;
            float *x = run_rewritten(&f, PAIRS[i / 2].a, job, latents, image, &n);
            float *y = run_rewritten(&f, PAIRS[i / 2].b, job, latents, image, &m);
            CHECK(n == m);
            golden_check_bits(PAIRS[i / 2].what, &job, x, y, n);
            free(x);
            free(y);
        }
    }
    fixture_close(&f);
}

/* Inputs of ordinary size hardly show an epsilon: the records are looked at. */
static void vae__norms__have_the_epsilon_of_the_reference(void)
{
    fixture f;
    golden_net net;
    tsr_val in, out;
    size_t n_norms = 0;

    golden_net_init(&net, TSR_F32);
    if (fixture_open(&f, golden_root(0), "sd2-tiny")) {
        f.vae.comp.err = &net.err;
        golden_ok(tsr_vae_decode_build(&net.tape, &f.vae.comp, &f.vae.cfg, (int32_t[]){1, 4, 4},
                                       true, &in, &out, NULL, 0),
                  &net.err);
        golden_ok(tsr_vae_encode_build(&net.tape, &f.vae.comp, &f.vae.cfg, (int32_t[]){1, 32, 32},
                                       &in, &out, NULL, 0),
                  &net.err);
        for (size_t i = 0; i < net.tape.n_ops; i++) {
            const tsr_op *op = &net.tape.ops[i];
            if (op->kind == TSR_OP_GROUP_NORM)
                CHECK_MSG(op->u.norm.eps == 1e-6f, "%s has %g", op->name, (double)op->u.norm.eps);
            n_norms += op->kind == TSR_OP_GROUP_NORM;
        }
        CHECK(n_norms == (2 * (2 + 12) + 2) + (2 * (2 + 8) + 2));
    }
    golden_net_free(&net);
    fixture_close(&f);
}

int main(void)
{
    RUN(vae__small_models__match_the_reference);
    RUN(vae__all_cases__match_the_reference);
    RUN(vae__portable_tier__matches_the_reference);
    RUN(vae__batch_windows_threads__change_no_bit);
    RUN(vae__picture__is_the_rounded_decoding);
    RUN(vae__other_checkpoints_of_the_same_weights__give_the_same_bits);
    RUN(vae__norms__have_the_epsilon_of_the_reference);
    return test_end();
}
