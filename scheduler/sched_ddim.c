/* sched_ddim.c -- DDIM (arXiv 2010.02502, formula 12).
 *
 *     x' = sqrt(a') x0 + sqrt(1 - a' - std^2) eps + std noise,
 *     std = eta sqrt((1 - a') / (1 - a) (1 - a / a'))
 *
 * a, a' are the cumulative products at this timestep and n_train / n_steps before it, whatever the
 * spacing; before timestep 0 stands final_alpha. eps is the model's, also when x0 was clipped.
 *
 * state: 0 x0, 1 scratch of the threshold. */
#include "scheduler/scheduler_internal.h"

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const int32_t t = (int32_t)s->timesteps[i], prev = t - s->cfg.n_train / s->n_steps;
    const float a = s->alphas[t], b = 1 - a;
    const float a_prev = prev >= 0 ? s->alphas[prev] : s->final_alpha;
    const float variance = (1 - a_prev) / b * (1 - a / a_prev);
    const float std = s->cfg.eta > 0 ? s->cfg.eta * sqrtf(variance) : 0;
    /* never below zero but by rounding, where eta is 1 and a is 0 */
    const float direction = sqrtf(fmaxf(1 - a_prev - std * std, 0)), signal = sqrtf(a_prev);
    const tsr_sched_mix mix = tsr_sched_mix_alpha(a);
    float *x0 = s->state[0]; // [n]

    tsr_sched_x0(s, mix, out, x, x0, s->state[1]);
    for (size_t k = 0; k < s->n; k++) {
        const float eps = tsr_sched_eps(s->cfg.prediction, mix, out[k], x[k]);

        x[k] = signal * x0[k] + direction * eps;
        if (std > 0)
            x[k] += std * noise[k];
    }
}

static bool needs_noise(const tsr_sched *s, int32_t i)
{
    (void)i;
    return s->cfg.eta > 0;
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    return cfg->thresholding ? 2 : 1;
}

const tsr_sched_ops tsr_sched_ddim_ops = {
    .plan = tsr_sched_plan_whole,
    .step = step,
    .needs_noise = needs_noise,
    .n_state = n_state,
};
