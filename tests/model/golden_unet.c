/* golden_unet.c -- the UNet against the reference's forwards, and against itself.
 *
 * Goldens: every case of every model in tests/data, and of the whole reference data where it is
 * here; in fp32 (this is what finds errors of logic: with every block's output compared where the
 * reference has them) and in fp16. Then what must not change a bit: the batch, shared latents,
 * windows, threads, the step's place in the run, the type that a checkpoint is stored in. */
#include "tests/support/golden_nets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double FP32_LIMIT = 2e-5, FP16_LIMIT = 5e-3;

/* One model of one root with its goldens. */
typedef struct fixture {
    const char *model;
    char dir[4096]; /* of the component */
    golden g;
    golden_unet unet;
} fixture;

static bool fixture_open(fixture *f, const char *root, const char *model)
{
    char name[64];

    memset(f, 0, sizeof *f);
    f->model = model;
    snprintf(name, sizeof name, "unet-%s", model);
    snprintf(f->dir, sizeof f->dir, "%s/models/%s/unet", root, model);
    return golden_open(&f->g, root, name) && golden_unet_open(&f->unet, f->dir);
}

static void fixture_close(fixture *f)
{
    golden_unet_close(&f->unet);
    golden_close(&f->g);
}

/* ----------------------------------------------------------------- goldens */

static void check_case(fixture *f, const char *name, golden_job job)
{
    double limit = job.dtype == TSR_F32 ? FP32_LIMIT : FP16_LIMIT;
    const golden_tensor *want = golden_need(&f->g, "%s.out", name);
    golden_unet_in in;
    golden_net net = {0};
    tsr_val out;
    char what[256];

    if (job.dtype == TSR_F32)
        job.taps = golden_taps_make(&f->g, name, &job.n_taps);
    if (want && golden_unet_inputs(&f->g, name, NULL, &in) &&
        golden_unet_forward(&net, &f->unet, &job, &in, &out)) {
        size_t n;
        float *got = golden_net_get(&net, out, &n);
        snprintf(what, sizeof what, "%s %s", f->model, name);
        golden_taps_compare(&net, &f->g, f->model, name, &job, limit);
        golden_compare(what, golden_precision(&job), tsr_cpu_tier_name(job.tier), got, n, want,
                       limit);
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

        snprintf(path, sizeof path, "golden/unet-%s.safetensors", golden_model(m));
        if (!complete && !golden_has(root, path))
            continue;
        if (fixture_open(&f, root, golden_model(m))) {
            while (golden_next_case(&f.g, ".out", &pos, name, sizeof name)) {
                check_case(&f, name, golden_job_best(TSR_F32));
                check_case(&f, name, golden_job_best(TSR_F16));
                n_cases++;
            }
            golden_check_all_used(&f.unet.comp);
            CHECK(n_cases >= 4);
        }
        fixture_close(&f);
    }
}

static void unet__small_models__match_the_reference(void)
{
    check_root(golden_root(0), false);
}

static void unet__all_cases__match_the_reference(void)
{
    const char *root = golden_root(1);

    if (!root)
        SKIP("the reference data");
    check_root(root, true);
}

static void unet__portable_tier__matches_the_reference(void)
{
    static const char *const CASES[][2] = {{"sd1-odd", "b1_15x9_t400"},
                                           {"sdxl-tiny", "blocks_8x12_t301"}};

    for (size_t i = 0; i < 2; i++) {
        fixture f;
        golden_job job = {.tier = TSR_TIER_PORTABLE, .n_threads = 2, .dtype = TSR_F32};
        if (fixture_open(&f, golden_root(0), CASES[i][0])) {
            check_case(&f, CASES[i][1], job);
            job.dtype = TSR_F16;
            check_case(&f, CASES[i][1], job);
        }
        fixture_close(&f);
    }
}

/* ----------------------------------------------------------------- same bits */

static float *forward_any(void *u, golden_job job, const void *in, size_t *n)
{
    return golden_unet_once(u, job, in, n);
}

/* Entry by entry against the whole, which has two. */
static void check_entries(const golden_forward *u, golden_job job, const golden_unet_in *in,
                          const char *what)
{
    golden_unet_in one[2] = {golden_unet_entry(in, 0), golden_unet_entry(in, 1)};

    CHECK(in->n == 2);
    golden_check_entries(u, job, in, one, sizeof *one, 2, what);
}

static void batch_checks(fixture *f, const char *name, tsr_dtype dtype)
{
    static const float MIXED[2] = {999.0f, 1.5f};
    const golden_forward u = {forward_any, &f->unet};
    golden_unet_in in, twice;
    golden_job job = golden_job_best(dtype);
    float *sample;

    if (!golden_unet_inputs(&f->g, name, NULL, &in))
        return;
    check_entries(&u, job, &in, "a batch of two and two of one");
    twice = in;
    twice.timesteps = MIXED;
    check_entries(&u, job, &twice, "entries with times of their own");
    in.latent_n = 1;
    check_entries(&u, job, &in, "latents that the entries share");
    sample = malloc(2 * in.sample_size * sizeof *sample);
    if (sample) {
        memcpy(sample, in.sample, in.sample_size * sizeof *sample);
        memcpy(sample + in.sample_size, in.sample, in.sample_size * sizeof *sample);
        twice = in;
        twice.latent_n = 2;
        twice.sample = sample;
        golden_check_same(&u, job, &in, job, &twice, "shared latents and repeated ones");
    }
    free(sample);
}

static void unet__batch__gives_the_bits_of_single_entries(void)
{
    static const char *const CASES[][2] = {
        {"sd1-odd", "b2_10x14_t1"}, {"sd2-tiny", "b2_12x20_t250"}, {"sdxl-tiny", "b2_16x24_t1"}};

    for (size_t i = 0; i < 3; i++) {
        fixture f;
        if (fixture_open(&f, golden_root(0), CASES[i][0])) {
            batch_checks(&f, CASES[i][1], TSR_F32);
            batch_checks(&f, CASES[i][1], TSR_F16);
        }
        fixture_close(&f);
    }
}

static void unet__windows_threads_steps__change_no_bit(void)
{
    static const char *const CASES[][2] = {{"sd1-odd", "b2_10x14_t1"},
                                           {"sdxl-tiny", "b1_13x15_t77"}};

    for (size_t i = 0; i < 4; i++) {
        fixture f;
        golden_unet_in in, late;
        const golden_forward u = {forward_any, &f.unet};
        golden_job job = golden_job_best(i % 2 ? TSR_F32 : TSR_F16);

        if (fixture_open(&f, golden_root(0), CASES[i / 2][0]) &&
            golden_unet_inputs(&f.g, CASES[i / 2][1], NULL, &in)) {
            golden_check_windows_threads(&u, job, &in);
            late = in;
            late.n_steps = 3;
            late.step = 1;
            golden_check_same(&u, job, &in, job, &late, "the second of three steps");
        }
        fixture_close(&f);
    }
}

/* ------------------------------------------------------------ stored types */

/* The fixture's checkpoint, its values rounded to `round` and stored as `store`. */
static float *forward_converted(const fixture *f, tsr_dtype round, tsr_dtype store, golden_job job,
                                const golden_unet_in *in, size_t *n)
{
    golden_unet u = {.cfg = f->unet.cfg};
    char src[4200], dst[4200];
    const char *dir = test_temp_dir();
    float *x = NULL;

    *n = 0;
    snprintf(src, sizeof src, "%s/diffusion_pytorch_model.safetensors", f->dir);
    snprintf(dst, sizeof dst, "%s/diffusion_pytorch_model.safetensors", dir);
    if (golden_convert(src, dst, round, store) &&
        golden_ok(tsr_component_open(&u.comp, dir, "unet", "diffusion_pytorch_model", &u.err),
                  &u.err))
        x = golden_unet_once(&u, job, in, n);
    tsr_component_close(&u.comp);
    return x;
}

static void unet__checkpoints_of_other_types__give_the_same_bits(void)
{
    fixture f;
    golden_unet_in in;

    if (fixture_open(&f, golden_root(0), "sd2-tiny") &&
        golden_unet_inputs(&f.g, "blocks_8x8_t601", NULL, &in)) {
        for (int32_t i = 0; i < 2; i++) {
            golden_job job = golden_job_best(i ? TSR_F16 : TSR_F32);
            size_t n, m;
            float *x = golden_unet_once(&f.unet, job, &in, &n);
            float *y = forward_converted(&f, TSR_F16, TSR_F32, job, &in, &m);
            float *b, *c;
            CHECK(n == m);
            golden_check_bits("a checkpoint in F32", &job, x, y, n);
            b = forward_converted(&f, TSR_BF16, TSR_BF16, job, &in, &n);
            c = forward_converted(&f, TSR_BF16, TSR_F32, job, &in, &m);
            CHECK(n == m);
            golden_check_bits("a checkpoint in BF16", &job, b, c, n);
            if (b && x) {
                double far = test_rel_l2(b, x, n);
                CHECK_MSG(far > 1e-4 && far < 5e-2, "BF16 weights are %g away", far);
            }
            free(x);
            free(y);
            free(b);
            free(c);
        }
    }
    fixture_close(&f);
}

/* ------------------------------------------------------ guidance embedding */

enum { GUIDANCE = 6 }; /* width of the made-up guidance embedding */

/* Writes the tensors of `w` and, when not NULL, `extra`, as F32 into `dir`. */
static bool write_unet(golden *w, const tsr_st_out *extra, const char *dir)
{
    tsr_st_out *list = calloc((size_t)w->st.n_tensors + 1, sizeof *list);
    int32_t n = 0;
    char path[4200];
    tsr_err err = {0};
    bool ok = list;

    for (int32_t i = 0; ok && i < w->st.n_tensors; i++) {
        const tsr_st_tensor *t = &w->st.tensors[i];
        const golden_tensor *x = golden_need(w, "%s", t->name);
        list[n] = (tsr_st_out){.name = t->name, .n_dims = t->n_dims, .data = x ? x->data : NULL};
        memcpy(list[n].dims, t->dims, sizeof list[n].dims);
        ok = x;
        n++;
    }
    if (ok && extra)
        list[n++] = *extra;
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", dir);
    ok = ok && golden_ok(tsr_st_write(path, list, n, &err), &err);
    free(list);
    return ok;
}

/* b += w x, [Co] += [Co,C] [C] */
static void add_product(float *b, const float *w, const float *x, int32_t co, int32_t c)
{
    for (int32_t i = 0; i < co; i++) {
        double sum = b[i];
        for (int32_t k = 0; k < c; k++)
            sum += (double)w[i * c + k] * (double)x[k];
        b[i] = (float)sum;
    }
}

static float *forward_dir(const char *dir, const tsr_unet_config *cfg, const golden_unet_in *in,
                          size_t *n)
{
    golden_unet u = {.cfg = *cfg};
    float *x = NULL;

    *n = 0;
    if (golden_ok(tsr_component_open(&u.comp, dir, "unet", "diffusion_pytorch_model", &u.err),
                  &u.err)) {
        x = golden_unet_once(&u, golden_job_best(TSR_F32), in, n);
        golden_check_all_used(&u.comp);
    }
    tsr_component_close(&u.comp);
    return x;
}

/* cond_proj's product g is added before linear_1, so a checkpoint without it and with linear_1's
 * bias moved by linear_1.weight g must give the same prediction. */
static void unet__guidance_embedding__acts_before_the_first_linear(void)
{
    const char *with = test_temp_dir(), *moved = test_temp_dir();
    static const float guidance[GUIDANCE] = {0.5f, -1.0f, 0.25f, 2.0f, 0.0f, -0.75f};
    float proj[8 * GUIDANCE], g[8] = {0};
    tsr_st_out extra = {.name = "time_embedding.cond_proj.weight",
                        .n_dims = 2,
                        .dims = {8, GUIDANCE},
                        .data = proj};
    char path[4200];
    const golden_tensor *w1, *b1;
    golden_unet_in in;
    golden weights = {0};
    fixture f;

    for (int32_t i = 0; i < 8 * GUIDANCE; i++)
        proj[i] = (float)(i % 7 - 3) * 0.2f;
    add_product(g, proj, guidance, 8, GUIDANCE);
    if (fixture_open(&f, golden_root(0), "sd2-tiny") &&
        golden_unet_inputs(&f.g, "b2_12x20_t250", NULL, &in)) {
        tsr_unet_config cfg = f.unet.cfg;
        size_t n = 0, m = 0, k = 0;
        float *plain = golden_unet_once(&f.unet, golden_job_best(TSR_F32), &in, &k), *a = NULL,
              *b = NULL;
        snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", f.dir);
        if (golden_open_file(&weights, path) && write_unet(&weights, &extra, with) &&
            (w1 = golden_need(&weights, "time_embedding.linear_1.weight")) &&
            (b1 = golden_need(&weights, "time_embedding.linear_1.bias"))) {
            add_product(b1->data, w1->data, g, w1->dims[0], w1->dims[1]);
            if (write_unet(&weights, NULL, moved))
                b = forward_dir(moved, &cfg, &in, &m);
            cfg.time_cond_proj_dim = GUIDANCE;
            in.guidance = guidance;
            a = forward_dir(with, &cfg, &in, &n);
        }
        CHECK(a && b && plain && n == m && n == k);
        if (a && b && plain && n == m && n == k) {
            CHECK_MSG(test_rel_l2(a, b, n) <= FP32_LIMIT, "error %g", test_rel_l2(a, b, n));
            CHECK_MSG(test_rel_l2(a, plain, n) > 1e-3, "the guidance changes nothing");
        }
        free(plain);
        free(a);
        free(b);
    }
    golden_close(&weights);
    fixture_close(&f);
}

/* ------------------------------------------------------------------- names */

static void unet__ops_without_weights__are_named_after_their_module(void)
{
    fixture f;
    golden_unet_in in;
    golden_net net = {0};
    golden_job job = golden_job_best(TSR_F32);
    tsr_val out;
    int32_t n_attention = 0;

    if (fixture_open(&f, golden_root(0), "sd2-tiny") &&
        golden_unet_inputs(&f.g, "blocks_8x8_t601", NULL, &in) &&
        golden_unet_forward(&net, &f.unet, &job, &in, &out)) {
        for (size_t i = 0; i < net.tape.n_ops; i++) {
            const tsr_op *op = &net.tape.ops[i];
            const char *end = strrchr(op->name, '.');
            if (op->kind != TSR_OP_ATTENTION)
                continue;
            CHECK_MSG(end && strncmp(end, ".attn", 5) == 0, "attention is named %s", op->name);
            n_attention++;
        }
        CHECK(n_attention == 2 * 16);
    }
    golden_net_free(&net);
    fixture_close(&f);
}

/* Inputs of ordinary size hardly show an epsilon: the records are looked at. */
static void unet__norms__have_the_epsilons_of_the_reference(void)
{
    fixture f;
    golden_net net;
    tsr_unet_io io;
    tsr_unet_shape shape = {.pictures = 1, .prompts = 1, .h = 8, .w = 8, .s = 77, .n_steps = 1};

    golden_net_init(&net, TSR_F32);
    if (fixture_open(&f, golden_root(0), "sd2-tiny")) {
        f.unet.cfg.norm_eps = 3e-4f; /* the config's: of residual blocks and the last norm */
        f.unet.comp.err = &net.err;
        golden_ok(tsr_unet_build(&net.tape, &f.unet.comp, &f.unet.cfg, &shape, &io, NULL, 0),
                  &net.err);
        for (size_t i = 0; i < net.tape.n_ops; i++) {
            const tsr_op *op = &net.tape.ops[i];
            float want = op->kind == TSR_OP_LAYER_NORM           ? 1e-5f
                         : strstr(op->name, ".attentions.") != 0 ? 1e-6f
                                                                 : 3e-4f;
            if (op->kind == TSR_OP_GROUP_NORM || op->kind == TSR_OP_LAYER_NORM)
                CHECK_MSG(op->u.norm.eps == want, "%s has %g", op->name, (double)op->u.norm.eps);
        }
        CHECK(net.tape.n_ops > 100);
    }
    golden_net_free(&net);
    fixture_close(&f);
}

static void unet__config_of_another_checkpoint__is_refused_by_tensor_name(void)
{
    fixture f;
    golden_unet_in in;
    golden_net net;
    tsr_unet_io io = {.out = 77};
    tsr_unet_shape shape = {.pictures = 1, .prompts = 1, .h = 8, .w = 8, .s = 77, .n_steps = 1};

    if (fixture_open(&f, golden_root(0), "sd2-tiny") &&
        golden_unet_inputs(&f.g, "blocks_8x8_t601", NULL, &in)) {
        f.unet.cfg.channels[1] = 24;
        golden_net_init(&net, TSR_F32);
        f.unet.comp.err = &net.err;
        CHECK(tsr_unet_build(&net.tape, &f.unet.comp, &f.unet.cfg, &shape, &io, NULL, 0) ==
              TSR_E_MODEL);
        CHECK_MSG(strstr(net.err.msg, "down_blocks.1.resnets.0."), "says: %s", net.err.msg);
        CHECK(io.out == 77);
        golden_net_free(&net);
    }
    fixture_close(&f);
}

int main(void)
{
    RUN(unet__small_models__match_the_reference);
    RUN(unet__all_cases__match_the_reference);
    RUN(unet__portable_tier__matches_the_reference);
    RUN(unet__batch__gives_the_bits_of_single_entries);
    RUN(unet__windows_threads_steps__change_no_bit);
    RUN(unet__checkpoints_of_other_types__give_the_same_bits);
    RUN(unet__guidance_embedding__acts_before_the_first_linear);
    RUN(unet__ops_without_weights__are_named_after_their_module);
    RUN(unet__norms__have_the_epsilons_of_the_reference);
    RUN(unet__config_of_another_checkpoint__is_refused_by_tensor_name);
    return test_end();
}
