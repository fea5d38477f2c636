/* sched_deis.c -- DEIS, log-rho multistep (arXiv 2204.13902), order up to three.
 *
 * In rho = sigma / alpha the noise predictions are interpolated by Lagrange polynomials of log rho
 * and integrated exactly: x' = alpha' (x / alpha + sum_j c_j eps_j), c_j an antiderivative taken at
 * rho' less at rho. The first order is DDIM's. All in float32 with numpy's logarithm, like the
 * reference: these differences cancel.
 *
 * state: 0.. ring of solver_order predictions, then the threshold's scratch. */
#include "scheduler/scheduler_internal.h"

/* Antiderivative in t of (log t - log c) / (log b - log c). */
static float integral2(float t, float b, float c)
{
    const float lb = tsr_sched_logf(b), lc = tsr_sched_logf(c), lt = tsr_sched_logf(t);

    return t * (-lc + lt - 1) / (lb - lc);
}

/* Antiderivative in t of (log t - log c) (log t - log d) / ((log b - log c) (log b - log d)). */
static float integral3(float t, float b, float c, float d)
{
    const float lb = tsr_sched_logf(b), lc = tsr_sched_logf(c), ld = tsr_sched_logf(d);
    const float lt = tsr_sched_logf(t);
    const float over = t * (lc * (ld - lt + 1) - ld * lt + ld + lt * lt - 2 * lt + 2);

    return over / ((lb - lc) * (lb - ld));
}

static int32_t order_at(const tsr_sched *s, int32_t i)
{
    const bool short_run = s->cfg.lower_order_final && s->n_calls < 15;

    if (s->cfg.solver_order == 1 || i < 1 || (i == s->n_calls - 1 && short_run))
        return 1;
    if (s->cfg.solver_order == 2 || i < 2 || (i == s->n_calls - 2 && short_run))
        return 2;
    return 3;
}

static float rho_at(const tsr_sched *s, int32_t i)
{
    const tsr_sched_mix mix = tsr_sched_mix_sigma(s->sigmas[i]);

    return mix.noise / mix.signal;
}

/* c[j] belongs to the prediction of call i - j. */
static void coefficients_at(const tsr_sched *s, int32_t i, int32_t order, float c[3])
{
    const float t = rho_at(s, i + 1), r0 = rho_at(s, i), r1 = rho_at(s, i - 1);
    float r2;

    if (order == 2) {
        c[0] = integral2(t, r0, r1) - integral2(r0, r0, r1);
        c[1] = integral2(t, r1, r0) - integral2(r0, r1, r0);
        return;
    }
    r2 = rho_at(s, i - 2);
    c[0] = integral3(t, r0, r1, r2) - integral3(r0, r0, r1, r2);
    c[1] = integral3(t, r1, r2, r0) - integral3(r0, r1, r2, r0);
    c[2] = integral3(t, r2, r0, r1) - integral3(r0, r2, r0, r1);
}

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const int32_t ring = s->cfg.solver_order, order = order_at(s, i);
    const tsr_sched_mix now = tsr_sched_mix_sigma(s->sigmas[i]);
    const tsr_sched_mix next = tsr_sched_mix_sigma(s->sigmas[i + 1]);
    const float h = tsr_sched_lambda(next) - tsr_sched_lambda(now);
    const float keep = next.signal / now.signal, change = next.noise * (expf(h) - 1);
    float *newest = s->state[i % ring]; // [n]
    const float *m[3] = {NULL};
    float c[3] = {0};

    (void)noise;
    for (int32_t j = 0; j < order; j++)
        m[j] = s->state[(i - j) % ring];
    if (order > 1)
        coefficients_at(s, i, order, c);
    tsr_sched_x0(s, now, out, x, newest, s->state[ring]);
    for (size_t k = 0; k < s->n; k++) {
        float sum;

        newest[k] = (x[k] - now.signal * newest[k]) / now.noise;
        if (order == 1) {
            x[k] = keep * x[k] - change * newest[k];
            continue;
        }
        sum = x[k] / now.signal;
        for (int32_t j = 0; j < order; j++)
            sum += c[j] * m[j][k];
        x[k] = next.signal * sum;
    }
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    return cfg->solver_order + cfg->thresholding;
}

const tsr_sched_ops tsr_sched_deis_ops = {
    .plan = tsr_sched_plan_lambda,
    .step = step,
    .n_state = n_state,
};
