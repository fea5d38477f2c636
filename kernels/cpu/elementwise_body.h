/* elementwise_body.h -- add, and the test for finite values. Lane by lane: no order to keep. */
#ifndef TSR_KERNELS_CPU_ELEMENTWISE_BODY_H
#define TSR_KERNELS_CPU_ELEMENTWISE_BODY_H

#include <stdatomic.h>

#include "kernels/cpu/cpu.h"

enum { ELEMENTS_TASK = 16384 };

static int32_t add_step(const tsr_call *call)
{
    return tsr_max_i32(1, ELEMENTS_TASK / call->out.c);
}

/* out = x + y, or x + table, whose rows are positions. */
static void add_task(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    span s = span_of(&call->window, call->out.w, add_step(call), task);
    const tsr_tensor *x = &call->in[0], *y = &call->in[1], *out = &call->out;
    size_t c = (size_t)out->c, n = (size_t)(s.t1 - s.t0) * c;
    const void *a = tensor_at(x, s.n, s.t0);
    const void *b = y->data ? tensor_at(y, s.n, s.t0)
                            : (const void *)((const float *)call->w[0] + (size_t)s.t0 * c);
    tsr_dtype b_dtype = y->data ? y->dtype : TSR_F32;
    void *dst = tensor_at(out, s.n, s.t0);

    (void)thread;
    for (size_t i = 0; i < n; i += VEC_N) {
        int32_t left = (int32_t)tsr_min_size(VEC_N, n - i);

        vec_store_as(out->dtype, dst, i,
                     vec_add(vec_load_as(x->dtype, a, i, left), vec_load_as(b_dtype, b, i, left)),
                     left);
    }
}

static void add_run(const tsr_cpu_table *t, const tsr_call *call)
{
    tsr_call copy = *call; /* tasks take a plain pointer */

    (void)t;
    tsr_pool_run(call->pool, span_count(&call->window, call->out.w, add_step(call)), add_task,
                 &copy);
}

typedef struct finite_scan {
    const tsr_tensor *x;
    tsr_window window;
    int32_t step;
    atomic_bool found; /* a value that is not finite */
} finite_scan;

/* x * 0 is zero for every finite x and NaN else, and a sum with NaN in it stays NaN. */
static void finite_task(void *arg, int32_t task, int32_t thread)
{
    finite_scan *f = arg;
    span s = span_of(&f->window, f->x->w, f->step, task);
    const void *src = tensor_at(f->x, s.n, s.t0);
    size_t n = (size_t)(s.t1 - s.t0) * (size_t)f->x->c;
    vec sum = vec_zero();
    float total;

    (void)thread;
    for (size_t i = 0; i < n; i += VEC_N)
        sum = vec_fma(vec_load_as(f->x->dtype, src, i, (int32_t)tsr_min_size(VEC_N, n - i)),
                      vec_zero(), sum);
    total = vec_sum(sum);
    if (total != total)
        atomic_store_explicit(&f->found, true, memory_order_relaxed);
}

static bool all_finite(const tsr_tensor *x, tsr_pool *pool)
{
    finite_scan f = {.x = x,
                     .window = {.n1 = x->n, .h0 = x->row0, .h1 = x->row0 + x->n_rows},
                     .step = tsr_max_i32(1, ELEMENTS_TASK / x->c)};

    if (x->dtype != TSR_F16 && x->dtype != TSR_F32)
        return true;
    tsr_pool_run(pool, span_count(&f.window, x->w, f.step), finite_task, &f);
    return !atomic_load_explicit(&f.found, memory_order_relaxed);
}

#endif
