/* denoise.c -- noise to final latents: the loop over the sampler's model calls, for the pictures of
 * a batch in lockstep, so that a weight that is read serves all of them. For each picture:
 *
 *     x = noise * init_sigma
 *     for every call: in = scale(x);  (u, c) = unet(in, t);  e = u + g (c - u);  x = step(e, x)
 *
 * Noise is drawn exactly when and as the reference draws it: the start noise in one call, then one
 * call a stochastic step, all from the picture's own generator. Each picture has its own sampler:
 * it is the picture that a run of its own would make. */
#include "pipeline/pipeline_internal.h"

#include <math.h>
#include <string.h>

/* The lane's start: `picture`'s noise as the sampler wants it. */
static void begin_lane(tsr_run *r, int32_t lane, int32_t picture)
{
    tsr_lane *l = &r->lanes[lane];
    size_t n = tsr_latent_count(&r->set);
    float *x = tsr_run_lane_latents(r, lane), sigma = tsr_sched_init_noise_sigma(l->sched);

    tsr_sched_reset(l->sched);
    tsr_rng_seed(&l->rng, r->set.rng, r->set.seed + (uint64_t)picture);
    if (r->given_latents)
        memcpy(x, r->given_latents + (size_t)picture * n, n * sizeof *x);
    else
        tsr_rng_normal(&l->rng, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] *= sigma;
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
    const float *timesteps = tsr_sched_timesteps(r->lanes[0].sched);

    memcpy(tsr_program_data(p, io->timesteps), timesteps,
           (size_t)r->nets.n_calls * sizeof *timesteps);
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

/* One model call, for the first `count` lanes. */
static tsr_status predict(tsr_run *r, int32_t count, int32_t call)
{
    const tsr_settings *s = &r->set;
    const tsr_unet_io *io = &r->nets.unet_io;
    tsr_program *p = &r->nets.unet.program;
    size_t n = tsr_latent_count(s);
    float *in = tsr_program_data(p, io->latents); // [batch,C,h,w]
    const char *layer;

    for (int32_t i = 0; i < count; i++)
        tsr_sched_scale_input(r->lanes[i].sched, call, tsr_run_lane_latents(r, i),
                              in + (size_t)i * n);
    TSR_TRY(tsr_program_run_step(p, call));
    if (!tsr_program_finite(p, io->out)) {
        layer = tsr_program_find_overflow(p, true, call);
        TSR_FAIL(&r->ctx->err, TSR_E_MODEL, "the UNet overflowed at %s in step %d%s",
                 layer ? layer : "its input", call + 1,
                 s->dtype == TSR_F16 ? "; use --precision fp32"
                                     : "; the model or its settings diverge");
    }
    return TSR_OK;
}

/* The lane's guided prediction, and its sampler's step. */
static void step_lane(tsr_run *r, int32_t lane, int32_t call)
{
    const tsr_settings *s = &r->set;
    tsr_lane *l = &r->lanes[lane];
    size_t n = tsr_latent_count(s), half = (size_t)s->batch * n;
    const float *out = tsr_program_data(&r->nets.unet.program, r->nets.unet_io.out);
    float *guided = tsr_run_state(r, r->state.guided), *noise = tsr_run_state(r, r->state.noise);

    out += (size_t)lane * n; // of [entries,batch,C,h,w]
    if (s->cfg)
        tsr_guidance(guided, out, out + half, n, s->guidance, s->guidance_rescale);
    else
        memcpy(guided, out, n * sizeof *guided);
    if (tsr_sched_needs_noise(l->sched, call))
        tsr_rng_normal(&l->rng, noise, n);
    tsr_sched_step(l->sched, call, guided, noise, tsr_run_lane_latents(r, lane));
}

tsr_status tsr_denoise_run(tsr_run *r, int32_t first, int32_t end)
{
    double start = tsr_now();
    int32_t calls = r->nets.n_calls, count = end - first;

    r->batch_first = first;
    r->batch_end = end;
    r->latents_done = false;
    TSR_TRY(tsr_run_progress(r, TSR_PHASE_DENOISE, 0, calls, 0));
    TSR_TRY(tsr_net_load(r, &r->nets.unet, TSR_RUN_DENOISE));
    tsr_program_set_pictures(&r->nets.unet.program, count);
    for (int32_t i = 0; i < count; i++)
        begin_lane(r, i, first + i);
    TSR_TRY(prepare(r));
    for (int32_t i = 0; i < calls; i++) {
        double begin = tsr_now();
        TSR_TRY(predict(r, count, i));
        for (int32_t k = 0; k < count; k++)
            step_lane(r, k, i);
        r->denoise_seconds += tsr_now() - begin;
        r->denoise_calls += count;
        TSR_TRY(tsr_run_progress(r, TSR_PHASE_DENOISE, i + 1, calls, tsr_now() - start));
    }
    r->phases[TSR_RUN_DENOISE].seconds += tsr_now() - start;
    return TSR_OK;
}
