/* sched_dpm.c -- DPM-Solver and DPM-Solver++, multistep and singlestep, plain and with noise.
 *
 * Sources: arXiv 2206.00927 (dpmsolver: integrates the noise prediction), 2211.01095 (dpmsolver++:
 * the data prediction). One update carries x from a base sigma to the next one over h = lambda' -
 * lambda:
 *
 *     x' = cx x + c0 D0 + c1 D1 + c2 D2 + cn noise
 *
 * D0 is the prediction at the base, D1 and D2 estimate its derivatives from neighbouring
 * predictions: older ones (multistep), or those made since the base (singlestep, which goes on
 * from the sample at the base; its calls go 1st, 2nd, 3rd order, 1st, ...). The midpoint form takes
 * half of c0 for c1. Coefficients are float32 in the reference's order: small steps cancel digits
 * there.
 *
 * state: 0.. ring of solver_order predictions, then the singlestep base sample, then the
 * threshold's scratch. */
#include "scheduler/scheduler_internal.h"

typedef struct coefficients {
    float x, d0, d1, d2, noise;
} coefficients;

/* From sigmas[base] to sigmas[to]; `midpoint` says which c1. */
static coefficients coefficients_at(const tsr_sched *s, int32_t base, int32_t to, bool midpoint)
{
    const tsr_sched_mix from = tsr_sched_mix_sigma(s->sigmas[base]);
    const tsr_sched_mix next = tsr_sched_mix_sigma(s->sigmas[to]);
    const float h = tsr_sched_lambda(next) - tsr_sched_lambda(from);
    const float a = next.signal, b = next.noise;
    coefficients c = {0};
    float e;

    switch (s->cfg.algorithm) {
    case TSR_ALG_DPMPP:
        e = expf(-h) - 1;
        c.x = b / from.noise;
        c.d0 = -(a * e);
        c.d1 = midpoint ? -0.5f * (a * e) : a * (e / h + 1);
        c.d2 = -(a * ((e + h) / (h * h) - 0.5f));
        break;
    case TSR_ALG_DPM:
        e = expf(h) - 1;
        c.x = a / from.signal;
        c.d0 = -(b * e);
        c.d1 = midpoint ? -0.5f * (b * e) : -(b * (e / h - 1));
        c.d2 = -(b * ((e - h) / (h * h) - 0.5f));
        break;
    case TSR_ALG_SDE_DPMPP:
        e = 1 - expf(-2 * h);
        c.x = b / from.noise * expf(-h);
        c.d0 = a * e;
        c.d1 = midpoint ? 0.5f * (a * e) : a * (e / (-2 * h) + 1);
        c.d2 = a * ((e - 2 * h) / (2 * h * (2 * h)) - 0.5f);
        c.noise = b * sqrtf(e);
        break;
    case TSR_ALG_SDE_DPM:
        e = expf(h) - 1;
        c.x = a / from.signal;
        c.d0 = -2 * (b * e);
        c.d1 = midpoint ? -(b * e) : -2 * (b * (e / h - 1));
        c.noise = b * sqrtf(expf(2 * h) - 1);
        break;
    }
    return c;
}

static float lambda_at(const tsr_sched *s, int32_t i)
{
    return tsr_sched_lambda(tsr_sched_mix_sigma(s->sigmas[i]));
}

static bool is_sde(const tsr_sched *s)
{
    return s->cfg.algorithm == TSR_ALG_SDE_DPM || s->cfg.algorithm == TSR_ALG_SDE_DPMPP;
}

/* The model's output as the prediction that the algorithm integrates. */
static void convert(const tsr_sched *s, int32_t i, const float *out, const float *x, float *p)
{
    const tsr_sched_mix mix = tsr_sched_mix_sigma(s->sigmas[i]);
    const bool data = s->cfg.algorithm == TSR_ALG_DPMPP || s->cfg.algorithm == TSR_ALG_SDE_DPMPP;
    float *sort = s->state[s->cfg.solver_order + (s->cfg.class_id == TSR_SCHED_DPMPP_2S)];

    if (data) {
        tsr_sched_x0(s, mix, out, x, p, sort);
        return;
    }
    for (size_t k = 0; k < s->n; k++)
        p[k] = tsr_sched_eps(s->cfg.prediction, mix, out[k], x[k]);
    if (!s->cfg.thresholding)
        return;
    for (size_t k = 0; k < s->n; k++)
        p[k] = (x[k] - mix.noise * p[k]) / mix.signal;
    tsr_sched_threshold(s, p, sort);
    for (size_t k = 0; k < s->n; k++)
        p[k] = (x[k] - mix.signal * p[k]) / mix.noise;
}

/* m[0] is the newest prediction. First order needs D0 only. */
static void update_first(const tsr_sched *s, coefficients c, const float *d0, const float *base,
                         const float *noise, float *x)
{
    const bool sde = is_sde(s);

    for (size_t k = 0; k < s->n; k++) {
        x[k] = c.x * base[k] + c.d0 * d0[k];
        if (sde)
            x[k] += c.noise * noise[k];
    }
}

/* D1 = slope (m[0] - m[1]); D0 is m[0] (multistep) or m[1] (singlestep). */
static void update_second(const tsr_sched *s, coefficients c, const float *const *m,
                          const float *d0, float slope, const float *base, const float *noise,
                          float *x)
{
    const bool sde = is_sde(s);

    for (size_t k = 0; k < s->n; k++) {
        const float d1 = slope * (m[0][k] - m[1][k]);

        x[k] = c.x * base[k] + c.d0 * d0[k] + c.d1 * d1;
        if (sde)
            x[k] += c.noise * noise[k];
    }
}

/* ------------------------------------------------------------------ multistep */

static int32_t multi_order(const tsr_sched *s, int32_t i)
{
    const tsr_sched_config *cfg = &s->cfg;
    const bool short_run = cfg->lower_order_final && s->n_calls < 15;
    const bool last =
        i == s->n_calls - 1 && (cfg->euler_at_final || short_run || !cfg->final_sigma_min);

    if (cfg->solver_order == 1 || i < 1 || last)
        return 1;
    if (cfg->solver_order == 2 || i < 2 || (i == s->n_calls - 2 && short_run))
        return 2;
    return 3;
}

static void multi_third(const tsr_sched *s, int32_t i, const float *const *m, const float *noise,
                        float *x)
{
    const coefficients c = coefficients_at(s, i, i + 1, false);
    const float h = lambda_at(s, i + 1) - lambda_at(s, i);
    const float r0 = (lambda_at(s, i) - lambda_at(s, i - 1)) / h;
    const float r1 = (lambda_at(s, i - 1) - lambda_at(s, i - 2)) / h;
    const bool sde = is_sde(s);

    for (size_t k = 0; k < s->n; k++) {
        const float near = 1 / r0 * (m[0][k] - m[1][k]), far = 1 / r1 * (m[1][k] - m[2][k]);
        const float d1 = near + r0 / (r0 + r1) * (near - far), d2 = 1 / (r0 + r1) * (near - far);

        x[k] = c.x * x[k] + c.d0 * m[0][k] + c.d1 * d1 + c.d2 * d2;
        if (sde)
            x[k] += c.noise * noise[k];
    }
}

static void step_multi(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const int32_t ring = s->cfg.solver_order, order = multi_order(s, i);
    const bool midpoint = s->cfg.solver == TSR_SOLVER_MIDPOINT;
    const float *m[3] = {NULL};

    for (int32_t j = 0; j < order; j++)
        m[j] = s->state[(i - j) % ring];
    convert(s, i, out, x, s->state[i % ring]);
    if (order == 1) {
        update_first(s, coefficients_at(s, i, i + 1, true), m[0], x, noise, x);
    } else if (order == 2) {
        const float h = lambda_at(s, i + 1) - lambda_at(s, i);
        const float r0 = (lambda_at(s, i) - lambda_at(s, i - 1)) / h;

        update_second(s, coefficients_at(s, i, i + 1, midpoint), m, m[0], 1 / r0, x, noise, x);
    } else {
        multi_third(s, i, m, noise, x);
    }
}

/* ----------------------------------------------------------------- singlestep */

/* Cycles 1..solver_order, the tail lowered so that no cycle is broken off: always when the steps do
 * not divide, and where the last sigma is zero. */
static int32_t single_order(const tsr_sched *s, int32_t i)
{
    const int32_t cycle = s->cfg.solver_order, n = s->n_calls, left = n - i;
    const bool lowered = s->cfg.lower_order_final || n % cycle != 0 || !s->cfg.final_sigma_min;

    if (left == 1 && !s->cfg.final_sigma_min)
        return 1;
    if (lowered && n % cycle == 0 && cycle > 1 && left == 1)
        return 1;
    return i % cycle + 1;
}

static void single_third(const tsr_sched *s, int32_t i, const float *const *m, const float *base,
                         const float *noise, float *x)
{
    const bool midpoint = s->cfg.solver == TSR_SOLVER_MIDPOINT, sde = is_sde(s);
    const coefficients c = coefficients_at(s, i - 2, i + 1, false);
    const float start = lambda_at(s, i - 2), h = lambda_at(s, i + 1) - start;
    const float r0 = (lambda_at(s, i) - start) / h, r1 = (lambda_at(s, i - 1) - start) / h;

    for (size_t k = 0; k < s->n; k++) {
        const float near = 1 / r1 * (m[1][k] - m[2][k]), far = 1 / r0 * (m[0][k] - m[2][k]);
        const float d1 = midpoint ? far : (r0 * near - r1 * far) / (r0 - r1);

        x[k] = c.x * base[k] + c.d0 * m[2][k] + c.d1 * d1;
        if (!midpoint)
            x[k] += c.d2 * (2 * (far - near) / (r0 - r1));
        if (sde)
            x[k] += c.noise * noise[k];
    }
}

static void step_single(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const int32_t ring = s->cfg.solver_order, order = single_order(s, i);
    const bool midpoint = s->cfg.solver == TSR_SOLVER_MIDPOINT;
    const float *m[3] = {NULL};
    float *base = s->state[ring]; // [n]

    for (int32_t j = 0; j < order; j++)
        m[j] = s->state[(i - j) % ring];
    convert(s, i, out, x, s->state[i % ring]);
    if (order == 1) {
        for (size_t k = 0; k < s->n; k++)
            base[k] = x[k];
        update_first(s, coefficients_at(s, i, i + 1, true), m[0], base, noise, x);
    } else if (order == 2) {
        const float start = lambda_at(s, i - 1), h = lambda_at(s, i + 1) - start;
        const float r0 = (lambda_at(s, i) - start) / h;

        update_second(s, coefficients_at(s, i - 1, i + 1, midpoint), m, m[1], 1 / r0, base, noise,
                      x);
    } else {
        single_third(s, i, m, base, noise, x);
    }
}

/* ------------------------------------------------------------------ the tables */

static bool needs_noise(const tsr_sched *s, int32_t i)
{
    (void)i;
    return is_sde(s);
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    return cfg->solver_order + (cfg->class_id == TSR_SCHED_DPMPP_2S) + cfg->thresholding;
}

const tsr_sched_ops tsr_sched_dpm_multi_ops = {
    .plan = tsr_sched_plan_lambda,
    .step = step_multi,
    .needs_noise = needs_noise,
    .n_state = n_state,
};

const tsr_sched_ops tsr_sched_dpm_single_ops = {
    .plan = tsr_sched_plan_lambda,
    .step = step_single,
    .needs_noise = needs_noise,
    .n_state = n_state,
};
