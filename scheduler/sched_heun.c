/* sched_heun.c -- Heun's method over sigma (arXiv 2206.00364, algorithm 1 without churn).
 *
 * Two calls a step: an Euler step to sigma', then the same step again with the mean of the
 * derivatives at both ends; the last step, to sigma 0, is a single Euler step. So there are 2n - 1
 * calls, and all sigmas but the first and last stand twice in the table.
 *
 * state: 0 the first derivative, 1 the sample at the step's start. */
#include "scheduler/scheduler_internal.h"

static float denoised(const tsr_sched *s, float sigma, float out, float x)
{
    const float x0 = tsr_sched_denoised(s->cfg.prediction, sigma, out, x), r = s->cfg.clip_range;

    if (!s->cfg.clip_sample)
        return x0;
    return x0 < -r ? -r : x0 > r ? r : x0;
}

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    float *first = s->state[0], *start = s->state[1]; // [n]
    const bool second = i % 2;
    const float sigma = s->sigmas[i];
    const float dt = second ? sigma - s->sigmas[i - 1] : s->sigmas[i + 1] - sigma;

    (void)noise;
    for (size_t k = 0; k < s->n; k++) {
        float d = (x[k] - denoised(s, sigma, out[k], x[k])) / sigma;

        if (second) {
            d = (first[k] + d) / 2;
        } else {
            first[k] = d;
            start[k] = x[k];
        }
        x[k] = start[k] + d * dt;
    }
}

static tsr_status plan(tsr_sched *s, tsr_sched_work *w)
{
    tsr_sched_plan_sigma(s, w);
    for (int32_t i = 0; i < w->n_sigma; i++) {
        for (int32_t twice = i > 0 ? 2 : 1; twice > 0; twice--) {
            s->sigmas[s->n_sigmas++] = (float)w->sigma[i];
            s->timesteps[s->n_calls++] = (float)w->t[i];
        }
    }
    s->sigmas[s->n_sigmas++] = 0;
    s->init_noise_sigma = tsr_sched_start_sigma(s);
    return TSR_OK;
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    (void)cfg;
    return 2;
}

const tsr_sched_ops tsr_sched_heun_ops = {
    .plan = plan,
    .step = step,
    .input_sigma = tsr_sched_sigma_at,
    .n_state = n_state,
};
