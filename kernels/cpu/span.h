/* span.h -- a call's channels and keys, and its window's positions cut into tasks.
 *
 * Positions are t = y * W + x of an entry; rows are dense, so a window's rows h0 .. h1 are the
 * positions h0 * W .. h1 * W. Entries are cut one by one into spans of `step`, which no result
 * depends on. */
#ifndef TSR_KERNELS_CPU_SPAN_H
#define TSR_KERNELS_CPU_SPAN_H

#include "base/num.h"
#include "kernels/backend.h"

typedef struct span {
    int32_t n;
    int64_t t0, t1;
} span;

/* End of a window's output channels of `co`; they begin at c0. */
static inline int32_t window_c1(const tsr_window *w, int32_t co)
{
    return w->c1 ? w->c1 : co;
}

/* The keys of one attention call: all `count` of them, or a range when they come in blocks. */
typedef struct attention_keys {
    int32_t begin, end, count;
} attention_keys;

static inline attention_keys attention_keys_of(const tsr_call *call)
{
    int32_t count = call->in[1].h * call->in[1].w;

    return call->carry ? (attention_keys){call->kv0, call->kv1, count}
                       : (attention_keys){0, count, count};
}

static inline int32_t span_entry_count(const tsr_window *w, int32_t width, int32_t step)
{
    return tsr_div_up((w->h1 - w->h0) * width, step);
}
static inline int32_t span_count(const tsr_window *w, int32_t width, int32_t step)
{
    return (w->n1 - w->n0) * span_entry_count(w, width, step);
}
static inline span span_of(const tsr_window *w, int32_t width, int32_t step, int32_t task)
{
    int32_t count = span_entry_count(w, width, step);
    int64_t t0 = (int64_t)w->h0 * width + (int64_t)(task % count) * step,
            end = (int64_t)w->h1 * width;

    return (span){w->n0 + task / count, t0, t0 + step < end ? t0 + step : end};
}

#endif
