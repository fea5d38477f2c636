/* sched_lcm.c -- latent consistency sampling (arXiv 2310.04378).
 *
 *     denoised = c_out x0 + c_skip x,  x' = sqrt(a') denoised + sqrt(1 - a') noise,
 *     c_skip = 1/4 / (st^2 + 1/4), c_out = st / sqrt(st^2 + 1/4), st = timestep_scaling t
 *
 * The last call returns `denoised` and draws no noise. The timesteps are taken evenly from the
 * distillation's own schedule of original_inference_steps; spacing and offset play no part.
 *
 * state: 0 x0, 1 scratch of the threshold. */
#include "scheduler/scheduler_internal.h"

static bool needs_noise(const tsr_sched *s, int32_t i)
{
    return i != s->n_calls - 1;
}

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const bool last = !needs_noise(s, i);
    const float st = s->timesteps[i] * s->cfg.timestep_scaling, square = st * st + 0.25f;
    const float skip = 0.25f / square, keep = st / sqrtf(square);
    const float a = s->alphas[(int32_t)s->timesteps[i]];
    const tsr_sched_mix next =
        tsr_sched_mix_alpha(last ? 1 : s->alphas[(int32_t)s->timesteps[i + 1]]);
    float *x0 = s->state[0]; // [n]

    tsr_sched_x0(s, tsr_sched_mix_alpha(a), out, x, x0, s->state[1]);
    for (size_t k = 0; k < s->n; k++) {
        const float denoised = keep * x0[k] + skip * x[k];

        x[k] = last ? denoised : next.signal * denoised + next.noise * noise[k];
    }
}

static tsr_status plan(tsr_sched *s, tsr_sched_work *w)
{
    const int32_t original = s->cfg.original_steps, n = s->n_steps;

    if (original > s->cfg.n_train)
        TSR_FAIL(w->err, TSR_E_MODEL,
                 "original_inference_steps (%d) is above num_train_timesteps (%d)", original,
                 s->cfg.n_train);
    if (n > original)
        TSR_FAIL(w->err, TSR_E_USAGE,
                 "scheduler lcm takes at most %d steps (original_inference_steps), not %d",
                 original, n);
    for (int32_t i = 0; i < n; i++) {
        const int32_t index = (int32_t)floor((double)i * ((double)original / (double)n));

        s->timesteps[i] = (float)((original - index) * (s->cfg.n_train / original) - 1);
    }
    s->n_calls = n;
    return TSR_OK;
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    return cfg->thresholding ? 2 : 1;
}

const tsr_sched_ops tsr_sched_lcm_ops = {
    .plan = plan,
    .step = step,
    .needs_noise = needs_noise,
    .n_state = n_state,
};
