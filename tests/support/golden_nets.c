/* golden_nets.c -- see golden_nets.h. */
#include "tests/support/golden_nets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char STEM[] = "diffusion_pytorch_model";

const char *golden_precision(const golden_job *job)
{
    return job->dtype == TSR_F16 ? "fp16" : "fp32";
}

golden_job golden_job_best(tsr_dtype dtype)
{
    return (golden_job){.dtype = dtype, .tier = tsr_cpu_best_tier(), .n_threads = 2};
}

void golden_check_bits(const char *what, const golden_job *job, const float *a, const float *b,
                       size_t n)
{
    CHECK_MSG(a && b && memcmp(a, b, n * sizeof *a) == 0, "%s, %s: bits differ, by up to %g", what,
              golden_precision(job), a && b ? test_max_abs_diff(a, b, n) : 0.0);
}

void golden_check_same(const golden_forward *f, golden_job a, const void *in_a, golden_job b,
                       const void *in_b, const char *what)
{
    size_t n, m;
    float *x = f->run(f->net, a, in_a, &n), *y = f->run(f->net, b, in_b, &m);

    CHECK(n == m);
    golden_check_bits(what, &a, x, n == m ? y : NULL, n);
    free(x);
    free(y);
}

void golden_check_windows_threads(const golden_forward *f, golden_job job, const void *in)
{
    golden_job windows = job, alone = job;

    windows.window_rows = 4;
    golden_check_same(f, job, in, windows, in, "windows of four rows");
    alone.n_threads = 1;
    golden_check_same(f, job, in, alone, in, "one thread and two");
}

void golden_check_entries(const golden_forward *f, golden_job job, const void *in,
                          const void *entries, size_t entry_bytes, int32_t n, const char *what)
{
    size_t whole, m;
    float *all = f->run(f->net, job, in, &whole);

    for (int32_t i = 0; i < n; i++) {
        float *x = f->run(f->net, job, (const char *)entries + (size_t)i * entry_bytes, &m);
        CHECK(m * (size_t)n == whole);
        golden_check_bits(what, &job, all ? all + (size_t)i * m : NULL, x, m);
        free(x);
    }
    free(all);
}

const char *golden_model(int32_t i)
{
    static const char *const MODELS[] = {"sd1-tiny", "sd1-odd", "sd2-tiny", "sdxl-tiny"};

    return i < (int32_t)(sizeof MODELS / sizeof *MODELS) ? MODELS[i] : NULL;
}

/* -------------------------------------------------------------- components */

bool golden_unet_open(golden_unet *u, const char *dir)
{
    char path[4200];

    memset(u, 0, sizeof *u);
    snprintf(path, sizeof path, "%s/config.json", dir);
    return golden_ok(tsr_unet_config_load(path, &u->cfg, NULL, &u->err), &u->err) &&
           golden_ok(tsr_component_open(&u->comp, dir, "unet", STEM, &u->err), &u->err);
}

void golden_unet_close(golden_unet *u)
{
    tsr_component_close(&u->comp);
}

bool golden_vae_open(golden_vae *v, const char *dir)
{
    char path[4200];

    memset(v, 0, sizeof *v);
    snprintf(path, sizeof path, "%s/config.json", dir);
    return golden_ok(tsr_vae_config_load(path, &v->cfg, NULL, &v->err), &v->err) &&
           golden_ok(tsr_component_open(&v->comp, dir, "vae", STEM, &v->err), &v->err);
}

void golden_vae_close(golden_vae *v)
{
    tsr_component_close(&v->comp);
}

/* -------------------------------------------------------------------- UNet */

bool golden_unet_inputs(golden *g, const char *name, const golden_tensor *context,
                        golden_unet_in *in)
{
    const golden_tensor *x = golden_need(g, "%s.sample", name);
    const golden_tensor *t = golden_need(g, "%s.timestep", name);
    const golden_tensor *text = golden_find(g, "%s.text_embeds", name);
    const golden_tensor *ids = golden_find(g, "%s.time_ids", name);

    if (!context)
        context = golden_need(g, "%s.encoder_hidden_states", name);
    if (!x || !t || !context)
        return false;
    *in = (golden_unet_in){.n = x->dims[0],
                           .latent_n = x->dims[0],
                           .h = x->dims[2],
                           .w = x->dims[3],
                           .s = context->dims[1],
                           .sample = x->data,
                           .context = context->data,
                           .text_embeds = text ? text->data : NULL,
                           .time_ids = ids ? ids->data : NULL,
                           .timesteps = t->data,
                           .n_steps = 1};
    in->sample_size = x->n / (size_t)in->n;
    in->context_size = context->n / (size_t)in->n;
    in->text_size = text ? text->n / (size_t)in->n : 0;
    return true;
}

golden_unet_in golden_unet_entry(const golden_unet_in *in, int32_t i)
{
    golden_unet_in one = *in;
    size_t k = (size_t)i;

    one.n = one.latent_n = 1;
    one.sample += in->latent_n > 1 ? k * in->sample_size : 0;
    one.context += k * in->context_size;
    one.timesteps += k;
    if (in->text_embeds) {
        one.text_embeds += k * in->text_size;
        one.time_ids += 6 * k;
    }
    return one;
}

static bool own_timesteps(const golden_unet_in *in)
{
    for (int32_t i = 1; i < in->n; i++)
        if (in->timesteps[i] != in->timesteps[0])
            return true;
    return false;
}

/* Times of all steps: the given ones at in->step, others elsewhere. */
static bool put_times(golden_net *net, tsr_val v, int32_t rows, const golden_unet_in *in)
{
    size_t count = (size_t)in->n_steps * (size_t)rows;
    float *t = malloc(count * sizeof *t);
    bool ok = t;

    for (size_t i = 0; ok && i < count; i++)
        t[i] = (int32_t)(i / (size_t)rows) == in->step ? in->timesteps[i % (size_t)rows]
                                                       : 17.0f + (float)i;
    ok = ok && golden_net_put(net, v, t, count);
    free(t);
    return ok;
}

bool golden_unet_forward(golden_net *net, golden_unet *u, const golden_job *job,
                         const golden_unet_in *in, tsr_val *out)
{
    size_t n;
    tsr_unet_io io;
    tsr_unet_shape shape = {.pictures = in->latent_n,
                            .prompts = in->n / in->latent_n,
                            .own_prompts = in->latent_n > 1 && !in->same_prompts,
                            .own_timesteps = own_timesteps(in),
                            .h = in->h,
                            .w = in->w,
                            .s = in->s,
                            .n_steps = in->n_steps};
    int32_t rows = shape.own_timesteps ? shape.pictures : 1;

    n = (size_t)(shape.own_prompts ? in->n : shape.prompts);
    golden_net_init(net, job->dtype);
    u->comp.err = &net->err;
    if (!golden_ok(
            tsr_unet_build(&net->tape, &u->comp, &u->cfg, &shape, &io, job->taps, job->n_taps),
            &net->err) ||
        !golden_net_plan(net, job->tier, job->n_threads, job->window_rows) ||
        !golden_net_put(net, io.latents, in->sample, (size_t)in->latent_n * in->sample_size) ||
        !golden_net_put(net, io.context, in->context, n * in->context_size) ||
        !put_times(net, io.timesteps, rows, in))
        return false;
    if (u->cfg.text_time &&
        (!golden_net_put(net, io.text_embeds, in->text_embeds, n * in->text_size) ||
         !golden_net_put(net, io.time_ids, in->time_ids, n * 6)))
        return false;
    if (u->cfg.time_cond_proj_dim > 0 &&
        !golden_net_put(net, io.guidance_cond, in->guidance, (size_t)u->cfg.time_cond_proj_dim))
        return false;
    *out = io.out;
    return golden_net_run(net, true, 0) && golden_net_run(net, false, in->step);
}

float *golden_unet_once(golden_unet *u, golden_job job, const golden_unet_in *in, size_t *n)
{
    golden_net net = {0};
    tsr_val out;
    float *x = NULL;

    *n = 0;
    if (golden_unet_forward(&net, u, &job, in, &out))
        x = golden_net_get(&net, out, n);
    golden_net_free(&net);
    return x;
}

/* --------------------------------------------------------------------- VAE */

bool golden_vae_decode(golden_net *net, golden_vae *v, const golden_job *job,
                       const golden_tensor *latents, bool as_image, tsr_val *out)
{
    int32_t nhw[3] = {latents->dims[0], latents->dims[2], latents->dims[3]};
    float *scaled = malloc(latents->n * sizeof *scaled);
    tsr_val in;
    bool ok = scaled;

    golden_net_init(net, job->dtype);
    net->tape.direct &= !job->upcast;
    v->comp.err = &net->err;
    for (size_t i = 0; ok && i < latents->n; i++)
        scaled[i] = latents->data[i] * v->cfg.scaling_factor; /* which the decoder undoes */
    ok = ok &&
         golden_ok(tsr_vae_decode_build(&net->tape, &v->comp, &v->cfg, nhw, as_image, &in, out,
                                        job->taps, job->n_taps),
                   &net->err) &&
         golden_net_plan(net, job->tier, job->n_threads, job->window_rows) &&
         golden_net_put(net, in, scaled, latents->n) && golden_net_run(net, false, 0);
    free(scaled);
    return ok;
}

bool golden_vae_encode(golden_net *net, golden_vae *v, const golden_job *job,
                       const golden_tensor *image, tsr_val *moments)
{
    int32_t nhw[3] = {image->dims[0], image->dims[2], image->dims[3]};
    tsr_val in;

    golden_net_init(net, job->dtype);
    net->tape.direct &= !job->upcast;
    v->comp.err = &net->err;
    return golden_ok(tsr_vae_encode_build(&net->tape, &v->comp, &v->cfg, nhw, &in, moments,
                                          job->taps, job->n_taps),
                     &net->err) &&
           golden_net_plan(net, job->tier, job->n_threads, job->window_rows) &&
           golden_net_put(net, in, image->data, image->n) && golden_net_run(net, false, 0);
}

/* -------------------------------------------------------------------- taps */

tsr_tap *golden_taps_make(const golden *g, const char *name, int32_t *n_taps)
{
    char prefix[256];
    size_t len = (size_t)snprintf(prefix, sizeof prefix, "%s.block.", name);
    tsr_tap *taps = calloc((size_t)g->st.n_tensors, sizeof *taps);

    *n_taps = 0;
    for (int32_t i = 0; taps && i < g->st.n_tensors; i++)
        if (strncmp(g->st.tensors[i].name, prefix, len) == 0)
            taps[(*n_taps)++].module = g->st.tensors[i].name + len;
    return taps;
}

/* The reference records the norm before the network ends without the SiLU that our op contains. */
static float after_silu(float x)
{
    return x / (1.0f + expf(-x));
}

/* Error of one tap; infinity when it cannot be compared. */
static double tap_error(golden_net *net, const golden_tensor *want, const tsr_tap *tap)
{
    static const char SILU_AFTER[] = "conv_norm_out";
    const char *dot = strrchr(tap->module, '.');
    bool silu = strcmp(dot ? dot + 1 : tap->module, SILU_AFTER) == 0;
    double error = INFINITY;
    size_t n = 0;
    float *got = tap->value ? golden_net_get_nchw(net, tap->value, &n) : NULL;
    float *reference = malloc(want->n * sizeof *reference);

    if (got && reference && n == want->n) {
        for (size_t i = 0; i < n; i++)
            reference[i] = silu ? after_silu(want->data[i]) : want->data[i];
        error = test_rel_l2(got, reference, n);
    }
    free(got);
    free(reference);
    return error;
}

void golden_taps_compare(golden_net *net, golden *g, const char *model, const char *name,
                         const golden_job *job, double tolerance)
{
    const char *worst = "";
    double most = -1;

    for (int32_t i = 0; i < job->n_taps; i++) {
        const char *module = job->taps[i].module;
        const golden_tensor *want = golden_need(g, "%s.block.%s", name, module);
        double error = want ? tap_error(net, want, &job->taps[i]) : INFINITY;
        CHECK_MSG(error <= tolerance, "%s %s %s: error %.3e is above %.0e", model, name, module,
                  error, tolerance);
        if (error > most) {
            most = error;
            worst = module;
        }
    }
    if (job->n_taps > 0)
        test_note("%s %s: %d blocks, worst %s %.2e", model, name, job->n_taps, worst, most);
}
