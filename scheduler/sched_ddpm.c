/* sched_ddpm.c -- DDPM's ancestral sampling (arXiv 2006.11239, formulas 6 and 7).
 *
 *     x' = sqrt(a') beta / (1 - a) x0 + sqrt(alpha) (1 - a') / (1 - a) x + std noise,
 *
 * alpha = a / a', beta = 1 - alpha, a' the cumulative product at the run's next timestep, 1 after
 * the last. The variance is (1 - a') / (1 - a) beta, or beta itself (fixed_large); fixed_small_log
 * goes through a logarithm and back. No noise at timestep 0.
 *
 * state: 0 x0, 1 scratch of the threshold. */
#include "scheduler/scheduler_internal.h"

static float deviation(const tsr_sched *s, float a, float a_prev, float beta)
{
    const float small = fmaxf((1 - a_prev) / (1 - a) * beta, 1e-20f);

    if (s->cfg.variance == TSR_VARIANCE_FIXED_LARGE)
        return sqrtf(beta);
    if (s->cfg.variance == TSR_VARIANCE_FIXED_SMALL_LOG)
        return expf(0.5f * logf(small));
    return sqrtf(small);
}

static bool needs_noise(const tsr_sched *s, int32_t i)
{
    return s->timesteps[i] > 0;
}

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const float a = s->alphas[(int32_t)s->timesteps[i]];
    const float a_prev = i + 1 < s->n_calls ? s->alphas[(int32_t)s->timesteps[i + 1]] : 1;
    const float alpha = a / a_prev, beta = 1 - alpha;
    const float x0_share = sqrtf(a_prev) * beta / (1 - a);
    const float x_share = sqrtf(alpha) * (1 - a_prev) / (1 - a);
    const float std = needs_noise(s, i) ? deviation(s, a, a_prev, beta) : 0;
    float *x0 = s->state[0]; // [n]

    tsr_sched_x0(s, tsr_sched_mix_alpha(a), out, x, x0, s->state[1]);
    for (size_t k = 0; k < s->n; k++) {
        x[k] = x0_share * x0[k] + x_share * x[k];
        if (needs_noise(s, i))
            x[k] += std * noise[k];
    }
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    return cfg->thresholding ? 2 : 1;
}

const tsr_sched_ops tsr_sched_ddpm_ops = {
    .plan = tsr_sched_plan_whole,
    .step = step,
    .needs_noise = needs_noise,
    .n_state = n_state,
};
