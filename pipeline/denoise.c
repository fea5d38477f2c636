/* denoise.c -- noise to final latents: the loop over the sampler's model calls.
 *
 *     x = noise * init_sigma
 *     for every call: in = scale(x);  (u, c) = unet(in, t);  e = u + g (c - u);  x = step(e, x)
 *
 * Noise is drawn exactly when and as the reference draws it: the start noise in one call, then one
 * call a stochastic step, all from the picture's own generator. */
#include "pipeline/pipeline_internal.h"

#include <math.h>
#include <string.h>

static void fill_noise(tsr_run *r, int32_t picture, float *x)
{
    size_t n = tsr_latent_count(&r->set);

    tsr_rng_seed(&r->rng, r->set.rng, r->set.seed + (uint64_t)picture);
    if (r->given_latents)
        memcpy(x, r->given_latents + (size_t)picture * n, n * sizeof *x);
    else
        tsr_rng_normal(&r->rng, x, n);
}

/* LCM's embedding of the guidance scale: sinusoids of 1000 * (scale - 1), log spaced, sines first.
 */
static void fill_guidance_embedding(const tsr_run *r, float *dst)
{
    int32_t dim = r->model->unet_cfg.time_cond_proj_dim, half = dim / 2;
    float w = (r->set.guidance - 1.0f) * 1000.0f;

    memset(dst, 0, (size_t)dim * sizeof *dst);
    for (int32_t i = 0; i < half; i++) {
        float f = expf((float)i * (-(float)log(10000.0) / ((float)half - 1.0f)));
        dst[i] = sinf(w * f);
        dst[half + i] = cosf(w * f);
    }
}

/* Fills the inputs that do not change from step to step and runs the prologue. */
static tsr_status prepare(tsr_run *r)
{
    const tsr_settings *s = &r->set;
    const tsr_unet_io *io = &r->nets.unet_io;
    tsr_program *p = &r->nets.unet.program;
    size_t element = tsr_dtype_size(s->dtype), entries = (size_t)s->entries;
    const float *timesteps = tsr_sched_timesteps(r->sched);
    int32_t rows = r->model->unet_cfg.text_time ? s->entries : 1;
    float *t = tsr_program_data(p, io->timesteps); // [n_calls*rows]

    for (int32_t i = 0; i < r->nets.n_calls; i++)
        for (int32_t k = 0; k < rows; k++)
            t[i * rows + k] = timesteps[i];
    memcpy(tsr_program_data(p, io->context), tsr_run_state(r, r->state.context),
           entries * (size_t)s->context_s * (size_t)s->context_d * element);
    if (io->text_embeds)
        memcpy(tsr_program_data(p, io->text_embeds), tsr_run_state(r, r->state.pooled),
               entries * (size_t)s->pooled_d * element);
    if (io->time_ids) {
        float *ids = tsr_program_data(p, io->time_ids); // [entries,6]
        for (size_t e = 0; e < entries; e++, ids += 6) {
            ids[0] = (float)s->original[0];
            ids[1] = (float)s->original[1];
            ids[2] = (float)s->crop[0];
            ids[3] = (float)s->crop[1];
            ids[4] = (float)s->target[0];
            ids[5] = (float)s->target[1];
        }
    }
    if (io->guidance_cond)
        fill_guidance_embedding(r, tsr_program_data(p, io->guidance_cond));
    return tsr_program_run_prologue(p);
}

/* One model call: the guided prediction in the state's `guided`. */
static tsr_status predict(tsr_run *r, int32_t call)
{
    const tsr_settings *s = &r->set;
    const tsr_unet_io *io = &r->nets.unet_io;
    tsr_program *p = &r->nets.unet.program;
    size_t n = tsr_latent_count(s);
    const float *out = tsr_program_data(p, io->out); // [entries,C,h,w]
    float *guided = tsr_run_state(r, r->state.guided);
    const char *layer;

    tsr_sched_scale_input(r->sched, call, tsr_run_state(r, r->state.latents),
                          tsr_program_data(p, io->latents));
    TSR_TRY(tsr_program_run_step(p, call));
    if (!tsr_program_finite(p, io->out)) {
        layer = tsr_program_find_overflow(p, true, call);
        TSR_FAIL(&r->ctx->err, TSR_E_MODEL, "the UNet overflowed at %s in step %d%s",
                 layer ? layer : "its input", call + 1,
                 s->dtype == TSR_F16 ? "; use --precision fp32"
                                     : "; the model or its settings diverge");
    }
    if (s->cfg)
        tsr_guidance(guided, out, out + n, n, s->guidance, s->guidance_rescale);
    else
        memcpy(guided, out, n * sizeof *guided);
    return TSR_OK;
}

tsr_status tsr_denoise_run(tsr_run *r, int32_t picture)
{
    size_t n = tsr_latent_count(&r->set);
    float *x = tsr_run_state(r, r->state.latents), *noise = tsr_run_state(r, r->state.noise);
    float sigma = tsr_sched_init_noise_sigma(r->sched);
    double start = tsr_now();
    int32_t calls = r->nets.n_calls;

    r->latents_done = false;
    TSR_TRY(tsr_net_load(r, &r->nets.unet, TSR_RUN_DENOISE));
    tsr_sched_reset(r->sched);
    fill_noise(r, picture, x);
    for (size_t i = 0; i < n; i++)
        x[i] *= sigma;
    TSR_TRY(prepare(r));
    TSR_TRY(tsr_run_progress(r, TSR_PHASE_DENOISE, 0, calls, 0));
    for (int32_t i = 0; i < calls; i++) {
        double begin = tsr_now();
        TSR_TRY(predict(r, i));
        if (tsr_sched_needs_noise(r->sched, i))
            tsr_rng_normal(&r->rng, noise, n);
        tsr_sched_step(r->sched, i, tsr_run_state(r, r->state.guided), noise, x);
        r->denoise_seconds += tsr_now() - begin;
        r->denoise_calls++;
        TSR_TRY(tsr_run_progress(r, TSR_PHASE_DENOISE, i + 1, calls, tsr_now() - start));
    }
    r->phases[TSR_RUN_DENOISE].seconds += tsr_now() - start;
    return TSR_OK;
}
