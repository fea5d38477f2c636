/* portable_norm.c -- group and layer normalisation, the oracle.
 *
 *     out = (x - mean) / sqrt(variance + eps) * gamma + beta   (then SiLU where asked for)
 *
 * Mean and variance are two passes in double over whole groups (of the whole image, whatever the
 * window; channels of (x, x2) in joined order) or over one token's channels. The variance is the
 * biased one; the epsilon stands inside the root. The affine part is float32. */
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
static moments measure(const tsr_call *call, int32_t n, const int32_t p[2], const int32_t c[2])
{
    double count = (double)(p[1] - p[0]) * (c[1] - c[0]), sum = 0, squares = 0, mean;

    for (int32_t i = p[0]; i < p[1]; i++)
        for (int32_t j = c[0]; j < c[1]; j++)
            sum += (double)joined(call, n, i, j);
    mean = sum / count;
    for (int32_t i = p[0]; i < p[1]; i++) {
        for (int32_t j = c[0]; j < c[1]; j++) {
            double d = (double)joined(call, n, i, j) - mean;
            squares += d * d;
        }
    }
    return (moments){(float)mean,
                     (float)(1 / sqrt(squares / count + (double)call->op->u.norm.eps))};
}

static float affine(const tsr_call *call, moments m, int32_t c, float x)
{
    const float *gamma = call->w[0], *beta = call->w[1];
    float v = (x - m.mean) * m.rstd * gamma[c] + beta[c];

    return call->op->u.norm.silu ? tsr_cpu_act(TSR_ACT_SILU, v) : v;
}

static void group_measure(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    moments *all = call->work; // [N,G]
    int32_t groups = call->op->u.norm.groups, width = call->out.c / groups;
    int32_t g = task % groups;

    (void)thread;
    all[task] =
        measure(call, call->window.n0 + task / groups, (int32_t[]){0, call->out.h * call->out.w},
                (int32_t[]){g * width, (g + 1) * width});
}

static void group_apply(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const moments *all = call->work; // [N,G]
    int32_t groups = call->op->u.norm.groups, width = call->out.c / groups;
    tsr_portable_row at = tsr_portable_task_row(call, task);

    (void)thread;
    for (int32_t x = 0; x < call->out.w; x++) {
        for (int32_t c = 0; c < call->out.c; c++) {
            moments m = all[(at.n - call->window.n0) * groups + c / width];
            float v = joined(call, at.n, at.y * call->out.w + x, c);
            tsr_cpu_store(&call->out, at.n, at.y, x, c, affine(call, m, c, v));
        }
    }
}

void tsr_group_norm_f64acc_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    tsr_call copy = *call;

    (void)t;
    tsr_pool_run(call->pool, (call->window.n1 - call->window.n0) * call->op->u.norm.groups,
                 group_measure, &copy);
    tsr_portable_each_row(call, group_apply);
}

size_t tsr_group_norm_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                    const tsr_window *window, int32_t n_threads)
{
    (void)t;
    (void)tape;
    (void)n_threads;
    return (size_t)(window->n1 - window->n0) * (size_t)op->u.norm.groups * sizeof(moments);
}

static void layer_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    tsr_portable_row at = tsr_portable_task_row(call, task);

    (void)thread;
    for (int32_t x = 0; x < call->out.w; x++) {
        int32_t p = at.y * call->out.w + x;
        moments m = measure(call, at.n, (int32_t[]){p, p + 1}, (int32_t[]){0, call->out.c});
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
