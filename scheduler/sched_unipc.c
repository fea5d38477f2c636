/* sched_unipc.c -- UniPC in its B(h) form (arXiv 2302.04867): predictor and corrector.
 *
 * Over one step, with hh = -h when x0 is predicted and h when noise is,
 *
 *     x' = linear part in x and m0 - scale B(h) sum_k rho_k (m_k - m0) / r_k
 *
 * m0 is the prediction at the step's start, m_k older ones at the relative lambdas r_k. The
 * predictor solves for the rho_k of its older predictions (one half at order two); the corrector,
 * run at the next call when the prediction at the step's end is known, takes that in as r = 1 and
 * makes the same step again with one order more. So x is first corrected, then carried on.
 * Scalars are float32; the systems, at most 4x4, are solved in double.
 *
 * state: 0.. ring of solver_order + 1 predictions, then the corrected sample at the step's start,
 * then the threshold's scratch. */
#include "scheduler/scheduler_internal.h"

typedef struct bh_step {
    int32_t n;                          /* differences to older predictions */
    float keep, m0, scale;              /* of x, of m0, of the weighted differences */
    float inverse[TSR_SCHED_MAX_ORDER]; /* r_k: the differences are divided by it */
    float weight[TSR_SCHED_MAX_ORDER];  /* rho_k; the last is the step's end in a corrector */
} bh_step;

/* Solves a u = v in place by elimination with pivoting; u replaces v. */
static void solve(double a[TSR_SCHED_MAX_ORDER][TSR_SCHED_MAX_ORDER], double *v, int32_t n)
{
    for (int32_t c = 0; c < n; c++) {
        int32_t best = c;

        for (int32_t r = c + 1; r < n; r++)
            best = fabs(a[r][c]) > fabs(a[best][c]) ? r : best;
        for (int32_t j = 0; j < n; j++) {
            const double t = a[c][j];
            a[c][j] = a[best][j];
            a[best][j] = t;
        }
        {
            const double t = v[c];
            v[c] = v[best];
            v[best] = t;
        }
        for (int32_t r = c + 1; r < n; r++) {
            const double f = a[r][c] / a[c][c];
            for (int32_t j = c; j < n; j++)
                a[r][j] -= f * a[c][j];
            v[r] -= f * v[c];
        }
    }
    for (int32_t r = n - 1; r >= 0; r--) {
        for (int32_t j = r + 1; j < n; j++)
            v[r] -= a[r][j] * v[j];
        v[r] /= a[r][r];
    }
}

/* rho of n unknowns at the relative lambdas r: sum_k r_k^i rho_k = b_i. */
static void find_weights(const tsr_sched *s, const float *r, int32_t n, float hh, float *weight)
{
    const float first = expm1f(hh), b_h = s->cfg.bh1 ? hh : first;
    double a[TSR_SCHED_MAX_ORDER][TSR_SCHED_MAX_ORDER], b[TSR_SCHED_MAX_ORDER];
    float phi = first / hh - 1, factorial = 1;

    if (n == 1) {
        weight[0] = 0.5f;
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < n; k++)
            a[i][k] = (double)powf(r[k], (float)i);
        b[i] = (double)(phi * factorial / b_h);
        factorial *= (float)(i + 2);
        phi = phi / hh - 1 / factorial;
    }
    solve(a, b, n);
    for (int32_t k = 0; k < n; k++)
        weight[k] = (float)b[k];
}

/* The step from sigmas[from] to sigmas[from + 1] of `order`, as predictor or as corrector. */
static bh_step plan_step(const tsr_sched *s, int32_t from, int32_t order, bool corrector)
{
    const tsr_sched_mix now = tsr_sched_mix_sigma(s->sigmas[from]);
    const tsr_sched_mix next = tsr_sched_mix_sigma(s->sigmas[from + 1]);
    const float start = tsr_sched_lambda(now), h = tsr_sched_lambda(next) - start;
    const float hh = s->cfg.predict_x0 ? -h : h;
    const float b_h = s->cfg.bh1 ? hh : expm1f(hh);
    const float side = s->cfg.predict_x0 ? next.signal : next.noise;
    bh_step p = {.n = order - 1, .scale = side * b_h, .m0 = side * expm1f(hh)};

    p.keep = s->cfg.predict_x0 ? next.noise / now.noise : next.signal / now.signal;
    for (int32_t k = 0; k < p.n; k++)
        p.inverse[k] = (tsr_sched_lambda(tsr_sched_mix_sigma(s->sigmas[from - 1 - k])) - start) / h;
    p.inverse[p.n] = 1;
    if (corrector || p.n > 0)
        find_weights(s, p.inverse, corrector ? order : p.n, hh, p.weight);
    return p;
}

/* m[0] is the prediction at the step's start, m[1..] older; `end` that at its end, or NULL. */
static void make_step(const tsr_sched *s, const bh_step *p, const float *const *m, const float *end,
                      const float *start, float *x)
{
    for (size_t k = 0; k < s->n; k++) {
        const float m0 = m[0][k];
        float sum = 0;

        for (int32_t j = 0; j < p->n; j++)
            sum += p->weight[j] * ((m[j + 1][k] - m0) / p->inverse[j]);
        if (end)
            sum += p->weight[p->n] * (end[k] - m0);
        x[k] = p->keep * start[k] - p->m0 * m0 - p->scale * sum;
    }
}

static void convert(const tsr_sched *s, int32_t i, const float *out, const float *x, float *p)
{
    const tsr_sched_mix mix = tsr_sched_mix_sigma(s->sigmas[i]);

    if (s->cfg.predict_x0) {
        tsr_sched_x0(s, mix, out, x, p, s->state[s->cfg.solver_order + 2]);
        return;
    }
    for (size_t k = 0; k < s->n; k++)
        p[k] = tsr_sched_eps(s->cfg.prediction, mix, out[k], x[k]);
}

static int32_t order_at(const tsr_sched *s, int32_t i)
{
    const int32_t most = s->cfg.solver_order, left = s->n_calls - i;
    const int32_t order = s->cfg.lower_order_final && left < most ? left : most;

    return order < i + 1 ? order : i + 1;
}

static bool is_corrected(const tsr_sched *s, int32_t i)
{
    for (int32_t j = 0; j < s->cfg.n_uncorrected; j++) {
        if (s->cfg.uncorrected[j] == i)
            return false;
    }
    return true;
}

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    const int32_t ring = s->cfg.solver_order + 1;
    const float *m[TSR_SCHED_MAX_ORDER + 1];
    float *newest = s->state[i % ring], *start = s->state[ring]; // [n]
    bh_step p;

    (void)noise;
    for (int32_t j = 0; j < ring; j++)
        m[j] = s->state[(i - j + ring) % ring];
    convert(s, i, out, x, newest);
    if (i > 0 && is_corrected(s, i - 1)) {
        p = plan_step(s, i - 1, order_at(s, i - 1), true);
        make_step(s, &p, m + 1, newest, start, x);
    }
    for (size_t k = 0; k < s->n; k++)
        start[k] = x[k];
    p = plan_step(s, i, order_at(s, i), false);
    make_step(s, &p, m, NULL, start, x);
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    return cfg->solver_order + 2 + cfg->thresholding;
}

const tsr_sched_ops tsr_sched_unipc_ops = {
    .plan = tsr_sched_plan_lambda,
    .step = step,
    .n_state = n_state,
};
