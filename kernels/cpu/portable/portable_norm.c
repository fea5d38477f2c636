/* portable_norm.c -- group and layer normalisation, the oracle.
 *
 *     out = (x - mean) / sqrt(variance + eps) * gamma + beta   (then SiLU where asked for)
 *
 * Mean and variance are two passes in double, for group_norm over one row of a group (channels of
 * (x, x2) in joined order), which norm_stats.h then merges over the whole image, whatever the
 * window, and for layer_norm over one token's channels. The variance is the biased one; the epsilon
 * stands inside the root. The affine part is float32.
 *
 * The output may take the place of x: each element is read just before it is written, and a token's
 * moments are done before its first output. */
#include "kernels/cpu/norm_stats.h"
#include "kernels/cpu/portable/portable.h"

#include <math.h>

typedef struct moments {
    float mean, rstd;
} moments;

/* Element (p, c) of x and x2 joined by channels. */
static float joined(const tsr_call *call, int32_t n, int32_t p, int32_t c)
{
    const tsr_tensor *x = &call->in[0], *x2 = &call->in[1];

    return c < x->c ? tsr_cpu_load(x, n, p / x->w, p % x->w, c)
                    : tsr_cpu_load(x2, n, p / x->w, p % x->w, c - x->c);
}

/* Moments of channels [c0, c1) over pixels [p0, p1). */
static tsr_moments measure(const tsr_call *call, int32_t n, const int32_t p[2], const int32_t c[2])
{
    double count = (double)(p[1] - p[0]) * (c[1] - c[0]), sum = 0;
    tsr_moments m = {0, 0};

    for (int32_t i = p[0]; i < p[1]; i++)
        for (int32_t j = c[0]; j < c[1]; j++)
            sum += (double)joined(call, n, i, j);
    m.mean = sum / count;
    for (int32_t i = p[0]; i < p[1]; i++) {
        for (int32_t j = c[0]; j < c[1]; j++) {
            double d = (double)joined(call, n, i, j) - m.mean;
            m.m2 += d * d;
        }
    }
    return m;
}

static float affine(const tsr_call *call, moments m, int32_t c, float x)
{
    const float *gamma = call->w[0], *beta = call->w[1];
    float v = (x - m.mean) * m.rstd * gamma[c] + beta[c];

    return call->op->u.norm.silu ? tsr_cpu_act(TSR_ACT_SILU, v) : v;
}

typedef struct group_norm {
    const tsr_call *call;
    tsr_norm_stats stats;
    int32_t y0, n_rows; /* to measure */
} group_norm;

static void group_measure_row(void *arg, int32_t task, int32_t thread)
{
    const group_norm *g = arg;
    const tsr_call *call = g->call;
    int32_t n = call->window.n0 + task / g->n_rows, y = g->y0 + task % g->n_rows;
    int32_t width = call->out.c / g->stats.groups, p = y * call->out.w;
    tsr_moments *row = tsr_norm_row(&g->stats, n, y); // [G]

    (void)thread;
    for (int32_t i = 0; i < g->stats.groups; i++)
        row[i] = measure(call, n, (int32_t[]){p, p + call->out.w},
                         (int32_t[]){i * width, (i + 1) * width});
}

static void group_measure(group_norm *g, int32_t y0, int32_t n_rows)
{
    const tsr_window *w = &g->call->window;

    g->y0 = y0;
    g->n_rows = n_rows;
    tsr_norm_stats_begin(&g->stats, w);
    tsr_pool_run(g->call->pool, (w->n1 - w->n0) * n_rows, group_measure_row, g);
}

static void group_apply(void *arg, int32_t task, int32_t thread)
{
    const group_norm *g = arg;
    const tsr_call *call = g->call;
    tsr_portable_row at = tsr_portable_task_row(call, task);
    const tsr_group_moments *whole = tsr_norm_whole(&g->stats, at.n); // [G]
    int32_t width = call->out.c / g->stats.groups;

    (void)thread;
    for (int32_t x = 0; x < call->out.w; x++) {
        for (int32_t c = 0; c < call->out.c; c++) {
            tsr_group_moments m = whole[c / width];
            float v = joined(call, at.n, at.y * call->out.w + x, c);
            v = affine(call, (moments){(float)m.mean, (float)m.rstd}, c, v);
            tsr_cpu_store(&call->out, at.n, at.y, x, c, v);
        }
    }
}

void tsr_norm_stats_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    group_norm g = {.call = call, .stats = tsr_norm_stats_of(call, NULL)};

    (void)t;
    group_measure(&g, call->window.h0, call->window.h1 - call->window.h0);
}

void tsr_group_norm_f64acc_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    group_norm g = {.call = call, .stats = tsr_norm_stats_of(call, call->work)};
    int32_t rows = call->window.h1 - call->window.h0;

    (void)t;
    if (!call->stats)
        group_measure(&g, 0, call->out.h);
    tsr_norm_stats_merge(&g.stats, call);
    tsr_pool_run(call->pool, (call->window.n1 - call->window.n0) * rows, group_apply, &g);
}

size_t tsr_group_norm_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                    const tsr_window *window, int32_t n_threads)
{
    (void)t;
    (void)n_threads;
    return tsr_norm_stats_bytes(window->n1 - window->n0, tape->values[op->out].h,
                                op->u.norm.groups);
}

static void layer_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    tsr_portable_row at = tsr_portable_task_row(call, task);

    (void)thread;
    for (int32_t x = 0; x < call->out.w; x++) {
        int32_t p = at.y * call->out.w + x;
        tsr_moments sums = measure(call, at.n, (int32_t[]){p, p + 1}, (int32_t[]){0, call->out.c});
        double variance = sums.m2 / call->out.c, eps = (double)call->op->u.norm.eps;
        moments m = {(float)sums.mean, (float)(1 / sqrt(variance + eps))};
        for (int32_t c = 0; c < call->out.c; c++)
            tsr_cpu_store(&call->out, at.n, at.y, x, c,
                          affine(call, m, c, joined(call, at.n, p, c)));
    }
}

void tsr_layer_norm_f64acc_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, layer_row);
}
