/* sched_lms.c -- linear multistep over sigma (k-diffusion's LMS), order up to four.
 *
 * x' = x + sum_j c_j d_j over the last derivatives d = (x - x0) / sigma, where c_j is the integral
 * from sigma_i to sigma_{i+1} of the Lagrange polynomial that is 1 at d_j's sigma and 0 at the
 * others'. The reference integrates numerically to 1e-4; a cubic is integrated exactly by Gauss and
 * Legendre's two points.
 *
 * state: 0-3 ring of derivatives. */
#include "scheduler/scheduler_internal.h"

enum { MAX_ORDER = 4 };

static double lagrange(const float *sigmas, int32_t i, int32_t order, int32_t j, double tau)
{
    double product = 1;

    for (int32_t k = 0; k < order; k++) {
        if (k != j)
            product *= (tau - (double)sigmas[i - k]) / (double)(sigmas[i - j] - sigmas[i - k]);
    }
    return product;
}

static float coefficient(const float *sigmas, int32_t i, int32_t order, int32_t j)
{
    const double from = sigmas[i], to = sigmas[i + 1];
    const double middle = (from + to) / 2, half = (to - from) / 2, at = half / sqrt(3);

    return (float)(half * (lagrange(sigmas, i, order, j, middle - at) +
                           lagrange(sigmas, i, order, j, middle + at)));
}

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const int32_t order = i + 1 < MAX_ORDER ? i + 1 : MAX_ORDER;
    const float sigma = s->sigmas[i];
    float c[MAX_ORDER];
    const float *d[MAX_ORDER];
    float *newest = s->state[i % MAX_ORDER]; // [n]

    (void)noise;
    for (int32_t j = 0; j < order; j++) {
        c[j] = coefficient(s->sigmas, i, order, j);
        d[j] = s->state[(i - j) % MAX_ORDER];
    }
    for (size_t k = 0; k < s->n; k++) {
        float sum;

        newest[k] = (x[k] - tsr_sched_denoised(s->cfg.prediction, sigma, out[k], x[k])) / sigma;
        sum = c[0] * newest[k];
        for (int32_t j = 1; j < order; j++)
            sum += c[j] * d[j][k];
        x[k] += sum;
    }
}

static tsr_status plan(tsr_sched *s, tsr_sched_work *w)
{
    tsr_sched_plan_sigma(s, w);
    s->n_calls = w->n_t;
    s->n_sigmas = w->n_sigma + 1;
    for (int32_t i = 0; i < w->n_t; i++)
        s->timesteps[i] = (float)w->t[i];
    for (int32_t i = 0; i < w->n_sigma; i++)
        s->sigmas[i] = (float)w->sigma[i];
    s->sigmas[w->n_sigma] = 0;
    s->init_noise_sigma = tsr_sched_start_sigma(s);
    return TSR_OK;
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    (void)cfg;
    return MAX_ORDER;
}

const tsr_sched_ops tsr_sched_lms_ops = {
    .plan = plan,
    .step = step,
    .input_sigma = tsr_sched_sigma_at,
    .n_state = n_state,
};
