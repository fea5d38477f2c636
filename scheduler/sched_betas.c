/* sched_betas.c -- the training schedule: betas, and the cumulative products of 1 - beta.
 *
 * linear, scaled_linear (linear in the root), squaredcos_cap_v2 (cosine), the odd ones of single
 * classes, or a list; then, when asked for, the rescaling to zero terminal SNR (arXiv 2305.08891,
 * algorithm 1). Roundings are torch's: linspace in float32 from both ends with one fused rounding
 * per value, cumprod with a double accumulator rounded at each store. They decide the last bit of
 * every sigma, and through it which whole timestep a table's sigma falls on. */
#include "scheduler/scheduler_internal.h"

float tsr_sched_linspace_f32(float start, float end, int32_t n, int32_t i)
{
    const float step = n > 1 ? (end - start) / (float)(n - 1) : 0;

    return i < n / 2 || n == 1 ? fmaf(step, (float)i, start) : fmaf(-step, (float)(n - i - 1), end);
}

/* The share of the signal that is left at time t of 0..1. */
static double alpha_bar(tsr_beta_schedule kind, double t)
{
    double lambda, snr;

    if (kind == TSR_BETAS_EXP)
        return exp(t * -12.0);
    if (kind == TSR_BETAS_SQUAREDCOS)
        return pow(cos((t + 0.008) / 1.008 * M_PI / 2), 2);
    lambda = -0.5 * copysign(1, 0.5 - t) * log(1 - 2 * fabs(0.5 - t) + 1e-6); /* Laplace */
    snr = exp(lambda);
    return sqrt(snr / (1 + snr));
}

static float beta_at(const tsr_sched_config *cfg, int32_t i)
{
    const int32_t n = cfg->n_train;
    const double t1 = (double)i / n, t2 = (double)(i + 1) / n;
    float b;

    if (cfg->trained_betas)
        return cfg->trained_betas[i];
    switch (cfg->beta_schedule) {
    case TSR_BETAS_LINEAR:
        return tsr_sched_linspace_f32((float)cfg->beta_start, (float)cfg->beta_end, n, i);
    case TSR_BETAS_SCALED_LINEAR:
        b = tsr_sched_linspace_f32((float)sqrt(cfg->beta_start), (float)sqrt(cfg->beta_end), n, i);
        return b * b;
    case TSR_BETAS_SIGMOID:
        b = 1 / (1 + expf(-tsr_sched_linspace_f32(-6, 6, n, i)));
        return b * (float)(cfg->beta_end - cfg->beta_start) + (float)cfg->beta_start;
    default:
        return (float)fmin(
            1 - alpha_bar(cfg->beta_schedule, t2) / alpha_bar(cfg->beta_schedule, t1), 0.999);
    }
}

/* betas -> cumulative products of 1 - beta, in place. */
static void accumulate(float *v, int32_t n)
{
    double product = 1;

    for (int32_t i = 0; i < n; i++) {
        product *= (double)(1 - v[i]);
        v[i] = (float)product;
    }
}

/* Shifts and scales the roots of the products so that the last is 0 and the first stays. */
static void rescale_to_zero_snr(float *betas, int32_t n)
{
    float first, last, scale;

    accumulate(betas, n);
    first = sqrtf(betas[0]);
    last = sqrtf(betas[n - 1]);
    scale = first / (first - last);
    for (int32_t i = 0; i < n; i++) {
        const float root = (sqrtf(betas[i]) - last) * scale;
        betas[i] = root * root;
    }
    for (int32_t i = n - 1; i > 0; i--)
        betas[i] = 1 - betas[i] / betas[i - 1];
    betas[0] = 1 - betas[0];
}

tsr_status tsr_sched_alphas(const tsr_sched_config *cfg, float *alphas, tsr_err *err)
{
    const int32_t n = cfg->n_train;

    for (int32_t i = 0; i < n; i++)
        alphas[i] = beta_at(cfg, i);
    if (cfg->zero_snr)
        rescale_to_zero_snr(alphas, n);
    accumulate(alphas, n);
    for (int32_t i = 0; i < n; i++) {
        if (!(alphas[i] >= 0 && alphas[i] <= 1))
            TSR_FAIL(err, TSR_E_MODEL,
                     "the scheduler's betas leave no valid signal at timestep %d (%g)", i,
                     (double)alphas[i]);
    }
    return TSR_OK;
}
