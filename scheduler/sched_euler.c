/* sched_euler.c -- Euler steps over sigma, plain and ancestral (arXiv 2206.00364, algorithm 1).
 *
 * The derivative is (x - x0) / sigma. Plain: x' = x + d (sigma' - sigma). Ancestral: down to
 * sigma_down, then noise back up, with sigma_up^2 = sigma'^2 (sigma^2 - sigma'^2) / sigma^2 and
 * sigma_down^2 = sigma'^2 - sigma_up^2; noise is drawn in the last step, too, where it counts for
 * nothing. */
#include "scheduler/scheduler_internal.h"

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const float sigma = s->sigmas[i], dt = s->sigmas[i + 1] - sigma;

    (void)noise;
    for (size_t k = 0; k < s->n; k++) {
        const float x0 = tsr_sched_denoised(s->cfg.prediction, sigma, out[k], x[k]);

        x[k] += (x[k] - x0) / sigma * dt;
    }
}

static void step_ancestral(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const float sigma = s->sigmas[i], to = s->sigmas[i + 1];
    const float up = sqrtf(to * to * (sigma * sigma - to * to) / (sigma * sigma));
    const float down = sqrtf(to * to - up * up), dt = down - sigma;

    for (size_t k = 0; k < s->n; k++) {
        const float x0 = tsr_sched_denoised(s->cfg.prediction, sigma, out[k], x[k]);

        x[k] = x[k] + (x[k] - x0) / sigma * dt + noise[k] * up;
    }
}

static bool always(const tsr_sched *s, int32_t i)
{
    (void)s;
    (void)i;
    return true;
}

static tsr_status plan(tsr_sched *s, tsr_sched_work *w)
{
    const bool by_sigma = s->cfg.continuous && s->cfg.prediction == TSR_PREDICT_V;

    tsr_sched_plan_sigma(s, w);
    w->sigma[w->n_sigma++] = s->cfg.final_sigma_min ? (double)w->train[0] : 0;
    s->n_calls = w->n_t;
    s->n_sigmas = w->n_sigma;
    for (int32_t i = 0; i < s->n_sigmas; i++)
        s->sigmas[i] = (float)w->sigma[i];
    if (by_sigma) /* the model was trained on c_noise; one timestep for every sigma but the last */
        s->n_calls = s->n_sigmas - 1;
    for (int32_t i = 0; i < s->n_calls; i++)
        s->timesteps[i] = by_sigma ? 0.25f * logf(s->sigmas[i]) : (float)w->t[i];
    s->init_noise_sigma = tsr_sched_start_sigma(s);
    return TSR_OK;
}

const tsr_sched_ops tsr_sched_euler_ops = {
    .plan = plan,
    .step = step,
    .input_sigma = tsr_sched_sigma_at,
};

const tsr_sched_ops tsr_sched_euler_a_ops = {
    .plan = plan,
    .step = step_ancestral,
    .needs_noise = always,
    .input_sigma = tsr_sched_sigma_at,
};
