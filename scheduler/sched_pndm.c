/* sched_pndm.c -- PNDM: pseudo Runge-Kutta start, then pseudo linear multistep (arXiv 2202.09778).
 *
 * Every update is formula 9 (transfer, below) with some mean of noise predictions. With
 * skip_prk_steps the first step is made twice (calls 0 and 1: a prediction, then the mean of two),
 * and the order grows to four. Without it the first three steps are Runge-Kutta, four calls each:
 * at a step's start, twice half a step on, and at its end; their first predictions are the
 * history.
 *
 * state: 0-3 ring of predictions, 4 the sample at a step's start, 5 Runge-Kutta's running mean. */
#include "scheduler/scheduler_internal.h"

enum { PRK_CALLS = 12, START = 4, MEAN = 5 };

/* x at prev from x at t and a noise prediction (or v). */
static void transfer(const tsr_sched *s, int32_t t, int32_t prev, const float *sample,
                     const float *model, float *x)
{
    const float a = s->alphas[t], a_prev = prev >= 0 ? s->alphas[prev] : s->final_alpha;
    const float b = 1 - a, b_prev = 1 - a_prev, ratio = sqrtf(a_prev / a);
    const float under = a * sqrtf(b_prev) + sqrtf(a * b * a_prev);
    const tsr_sched_mix mix = tsr_sched_mix_alpha(a);

    for (size_t k = 0; k < s->n; k++) {
        const float eps = tsr_sched_eps(s->cfg.prediction, mix, model[k], sample[k]);

        x[k] = ratio * sample[k] - (a_prev - a) * eps / under;
    }
}

static void step_prk(tsr_sched *s, int32_t i, const float *out, float *x)
{
    const int32_t half = i % 2 ? 0 : s->cfg.n_train / s->n_steps / 2;
    const int32_t t = (int32_t)s->timesteps[i / 4 * 4], prev = (int32_t)s->timesteps[i] - half;
    float *mean = s->state[MEAN], *start = s->state[START]; // [n]
    const float share = i % 4 == 0 || i % 4 == 3 ? (float)(1.0 / 6) : (float)(1.0 / 3);

    for (size_t k = 0; k < s->n; k++) {
        mean[k] = (i % 4 ? mean[k] : 0) + share * out[k];
        if (i % 4 == 0) {
            s->state[i / 4][k] = out[k];
            start[k] = x[k];
        }
    }
    transfer(s, t, prev, start, i % 4 == 3 ? mean : out, x);
}

/* The mean of the newest and up to three older predictions. */
static float multistep(const float *e[4], int32_t order, size_t k)
{
    if (order == 1)
        return e[0][k];
    if (order == 2)
        return (3 * e[0][k] - e[1][k]) / 2;
    if (order == 3)
        return (23 * e[0][k] - 16 * e[1][k] + 5 * e[2][k]) / 12;
    return (float)(1.0 / 24) * (55 * e[0][k] - 59 * e[1][k] + 37 * e[2][k] - 9 * e[3][k]);
}

static void step_plms(tsr_sched *s, int32_t i, const float *out, float *x)
{
    const int32_t gap = s->cfg.n_train / s->n_steps, t = (int32_t)s->timesteps[i];
    const int32_t before = !s->cfg.skip_prk ? i - PRK_CALLS + 3 : i > 1 ? i - 1 : 0;
    const int32_t order = before < 3 ? before + 1 : 4;
    float *newest = s->state[before % 4], *start = s->state[START]; // [n]
    const float *e[4];

    for (int32_t j = 0; j < 4; j++)
        e[j] = s->state[(before - j + 4) % 4];
    if (s->cfg.skip_prk && i == 1) { /* the first step again, with the mean of two predictions */
        for (size_t k = 0; k < s->n; k++)
            x[k] = (out[k] + newest[k]) / 2;
        transfer(s, t + gap, t, start, x, x);
        return;
    }
    for (size_t k = 0; k < s->n; k++) {
        newest[k] = out[k];
        start[k] = x[k];
    }
    for (size_t k = 0; k < s->n; k++)
        x[k] = multistep(e, order, k);
    transfer(s, t, t - gap, start, x, x);
}

static void step(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x)
{
    (void)noise;
    if (!s->cfg.skip_prk && i < PRK_CALLS)
        step_prk(s, i, out, x);
    else
        step_plms(s, i, out, x);
}

/* Timesteps of the Runge-Kutta calls: t, twice t - half, the next step's t, and so on. */
static tsr_status plan_prk(tsr_sched *s, tsr_sched_work *w)
{
    const int32_t half = s->cfg.n_train / s->n_steps / 2, n = s->n_calls;

    if (n < 4)
        TSR_FAIL(w->err, TSR_E_USAGE,
                 "scheduler pndm with skip_prk_steps false needs at least 4 steps, not %d", n);
    s->n_calls = 0;
    for (int32_t j = 0; j < 3; j++) {
        const float t = (float)w->t[j], next = (float)w->t[j + 1];

        s->timesteps[s->n_calls++] = t;
        s->timesteps[s->n_calls++] = next + (float)half;
        s->timesteps[s->n_calls++] = next + (float)half;
        s->timesteps[s->n_calls++] = next;
    }
    for (int32_t j = 3; j < n; j++)
        s->timesteps[s->n_calls++] = (float)w->t[j];
    return TSR_OK;
}

static tsr_status plan(tsr_sched *s, tsr_sched_work *w)
{
    const int32_t n_steps = s->n_steps;

    TSR_TRY(tsr_sched_plan_whole(s, w));
    if (!s->cfg.skip_prk)
        return plan_prk(s, w);
    if (s->n_calls < 2)
        return TSR_OK;
    /* the second timestep is visited twice, the second time from one step above it */
    for (int32_t j = s->n_calls; j > 2; j--)
        s->timesteps[j] = s->timesteps[j - 1];
    s->timesteps[2] = s->timesteps[1];
    s->n_calls++;
    return tsr_sched_check_timestep(s, (int32_t)s->timesteps[1] + s->cfg.n_train / n_steps, w->err);
}

static int32_t n_state(const tsr_sched_config *cfg)
{
    return cfg->skip_prk ? 5 : 6;
}

const tsr_sched_ops tsr_sched_pndm_ops = {.plan = plan, .step = step, .n_state = n_state};
