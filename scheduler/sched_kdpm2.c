/* sched_kdpm2.c -- DPM-Solver-2 over sigma (arXiv 2206.00364, algorithm 2 without churn).
 *
 * Two calls a step: an Euler step to the geometric mean of sigma and sigma', then the whole step
 * with the derivative found there; the last step, to sigma 0, is a single Euler step. `sigmas` has
 * every sigma but the first twice and a zero at the end; `between` has the middle sigmas in the
 * same places.
 *
 * state: 0 the sample at the step's start. */
#include "scheduler/scheduler_internal.h"

static float input_sigma(const tsr_sched *s, int32_t i)
{
    return i % 2 ? s->between[i] : s->sigmas[i];
}

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const bool second = i % 2;
    const float sigma = input_sigma(s, i);
    const float dt = second ? s->sigmas[i] - s->sigmas[i - 1] : s->between[i + 1] - sigma;
    float *start = s->state[0]; // [n]

    (void)noise;
    for (size_t k = 0; k < s->n; k++) {
        const float x0 = tsr_sched_denoised(s->cfg.prediction, sigma, out[k], x[k]);
        const float d = (x[k] - x0) / sigma;

        if (!second)
            start[k] = x[k];
        x[k] = start[k] + d * dt;
    }
}

/* As sigma_to_t for a float32 sigma: the reference does this one lookup in float32. */
static float middle_timestep(const float *log_train, int32_t n, float sigma)
{
    const float x = tsr_sched_logf(fmaxf(sigma, 1e-10f));
    int32_t low;
    float w;

    if (n < 2)
        return 0;
    low = tsr_sched_find(log_train, n, (double)x);
    w = (log_train[low] - x) / (log_train[low] - log_train[low + 1]);
    w = fminf(fmaxf(w, 0), 1);
    return (1 - w) * (float)low + w * (float)(low + 1);
}

static tsr_status plan(tsr_sched *s, tsr_sched_work *w)
{
    const bool round = s->cfg.sigmas == TSR_SIGMAS_KARRAS;
    int32_t n;

    tsr_sched_plan_sigma(s, w);
    n = w->n_sigma;
    w->sigma[n] = 0;
    s->sigmas[0] = (float)w->sigma[0];
    s->timesteps[0] = (float)(round ? rint(w->t[0]) : w->t[0]);
    for (int32_t i = 1; i <= n; i++) {
        const float a = logf((float)w->sigma[i]), b = logf((float)w->sigma[i - 1]);
        const float middle = i < n ? expf(b - (b - a) * 0.5f) : 0;

        s->sigmas[2 * i - 1] = s->sigmas[2 * i] = (float)w->sigma[i];
        s->between[2 * i - 1] = s->between[2 * i] = middle;
        if (i < n) {
            s->timesteps[2 * i - 1] = middle_timestep(w->log_train, s->cfg.n_train, middle);
            s->timesteps[2 * i] = (float)(round ? rint(w->t[i]) : w->t[i]);
        }
    }
    s->sigmas[2 * n + 1] = 0;
    s->n_calls = 2 * n - 1;
    s->n_sigmas = 2 * n + 2;
    s->init_noise_sigma = tsr_sched_start_sigma(s);
    return TSR_OK;
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    (void)cfg;
    return 1;
}

const tsr_sched_ops tsr_sched_kdpm2_ops = {
    .plan = plan,
    .step = step,
    .input_sigma = input_sigma,
    .n_state = n_state,
};
