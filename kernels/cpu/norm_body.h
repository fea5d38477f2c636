/* norm_body.h -- group_norm (with silu, over one or two inputs) and layer_norm.
 *
 * group_norm, two passes:
 *   1. For every entry and row of the whole image, and every group: the row's mean and M2 (sum of
 *      squared distances from it). Values are summed per channel in f32 after subtracting a shift,
 *      the mean of the row's first pixels, so nothing cancels where |mean| is large against the
 *      deviation; channels are joined in order, in double. norm_stats.h merges the rows.
 *      norm_stats does this for its window's rows alone; then run leaves it out.
 *   2. out = (x - mean) * (rstd * gamma) + beta over the window's rows, rstd = 1 / sqrt(M2 / count
 * + eps), then silu. Groups may straddle the seam of x and x2: a channel's place in the joined
 * order counts.
 *
 * layer_norm: per row the mean, then M2 about it, in f32; four interleaved vector sums, joined
 * ((0+1)+(2+3)), then vec_sum.
 *
 * The statistics' order depends on the shape alone: any window has the same bits. Pass 2 and
 * layer_norm may write over x: an element is read by the task that writes it, before it does, and
 * a token's sums are done before its first output. (group_norm by windows then needs call->stats:
 * a later window could no longer measure the rows of the earlier ones.) */
#ifndef TSR_KERNELS_CPU_NORM_BODY_H
#define TSR_KERNELS_CPU_NORM_BODY_H

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/norm_stats.h"
#include "kernels/cpu/span.h"

enum {
    SHIFT_PIXELS = 8,
    NORM_TASK = 8192 /* elements a task at least */
};

typedef struct norm_kind {
    tsr_dtype in, out;
    bool silu;
} norm_kind;

/* Of one entry. */
typedef struct norm_channels {
    const float *mean, *scale, *beta; // [C] each
} norm_channels;

typedef struct group_norm {
    const tsr_call *call;
    int32_t c, groups, width;
    int32_t y0, n_rows; /* of pass 1 */
    tsr_norm_stats stats;
    void *rows;          /* room for the window's entries' statistics */
    float *mean, *scale; // [N,C] each: the group's mean, rstd * gamma
    float *thread;       // [n_threads,3,c_room]
    size_t c_room;
    int32_t step; /* positions a task, pass 2 */
} group_norm;

/* Per-channel sums over `width` pixels of x - shift, and of its square; VEC_N * nv channels. */
static inline __attribute__((always_inline)) void
channel_sums(const int32_t nv, const tsr_tensor *x, const char *row, int32_t width, int32_t c,
             const float *shift, float *sum, float *square)
{
    vec s[4], q[4], k[4];

#pragma GCC unroll 4
    for (int32_t j = 0; j < nv; j++) {
        s[j] = q[j] = vec_zero();
        k[j] = vec_load(shift + j * VEC_N);
    }
    for (int32_t i = 0; i < width; i++) {
        size_t at = (size_t)i * (size_t)x->c + (size_t)c;

#pragma GCC unroll 4
        for (int32_t j = 0; j < nv; j++) {
            int32_t n = nv > 1 ? VEC_N : x->c - c;
            vec d = vec_sub(vec_load_as(x->dtype, row, at + (size_t)(j * VEC_N), n), k[j]);

            s[j] = vec_add(s[j], d);
            q[j] = vec_fma(d, d, q[j]);
        }
    }
#pragma GCC unroll 4
    for (int32_t j = 0; j < nv; j++) {
        vec_store(sum + j * VEC_N, s[j]);
        vec_store(square + j * VEC_N, q[j]);
    }
}

/* The same for all channels of one row of (x, x2). A channel's sums depend on it alone; what the
 * last vector of x writes behind its channels, x2 overwrites. */
static void row_sums(const group_norm *g, int32_t n, int32_t y, int32_t width, const float *shift,
                     float *sum, float *square)
{
    for (int32_t i = 0, c0 = 0; i < 2 && g->call->in[i].data; c0 += g->call->in[i].c, i++) {
        const tsr_tensor *x = &g->call->in[i];
        const char *row = tensor_at(x, n, (int64_t)y * g->width);
        int32_t c = 0;

        for (; c + 4 * VEC_N <= x->c; c += 4 * VEC_N)
            channel_sums(4, x, row, width, c, shift + c0 + c, sum + c0 + c, square + c0 + c);
        for (; c < x->c; c += VEC_N)
            channel_sums(1, x, row, width, c, shift + c0 + c, sum + c0 + c, square + c0 + c);
    }
}

static double sum_of(const float *x, int32_t n)
{
    double s = 0;

    for (int32_t i = 0; i < n; i++)
        s += (double)x[i];
    return s;
}

/* Pass 1, one row. */
static void group_norm_row(void *arg, int32_t task, int32_t thread)
{
    const group_norm *g = arg;
    int32_t n = g->call->window.n0 + task / g->n_rows, y = g->y0 + task % g->n_rows,
            size = g->c / g->groups, head = tsr_min_i32(g->width, SHIFT_PIXELS);
    float *shift = g->thread + (size_t)thread * 3 * g->c_room, *sum = shift + g->c_room,
          *square = sum + g->c_room;
    tsr_moments *out = tsr_norm_row(&g->stats, n, y); // [G]
    double count = (double)g->width * size;

    memset(shift, 0, g->c_room * sizeof *shift);
    row_sums(g, n, y, head, shift, sum, square);
    for (int32_t i = 0; i < g->groups; i++) {
        float s = (float)(sum_of(sum + i * size, size) / ((double)head * size));

        for (int32_t c = i * size; c < (i + 1) * size; c++)
            shift[c] = s;
    }
    row_sums(g, n, y, g->width, shift, sum, square);
    for (int32_t i = 0; i < g->groups; i++) {
        double s = sum_of(sum + i * size, size);

        out[i].mean = (double)shift[i * size] + s / count;
        out[i].m2 = sum_of(square + i * size, size) - s * s / count;
    }
}

/* What pass 2 multiplies and subtracts, for every channel of one entry. */
static void group_norm_channels(const group_norm *g, int32_t n)
{
    int32_t size = g->c / g->groups;
    const float *gamma = g->call->w[0];
    const tsr_group_moments *whole = tsr_norm_whole(&g->stats, n); // [G]
    size_t at = (size_t)(n - g->call->window.n0) * (size_t)g->c;

    for (int32_t c = 0; c < g->c; c++) {
        g->mean[at + (size_t)c] = (float)whole[c / size].mean;
        g->scale[at + (size_t)c] = (float)(whole[c / size].rstd * (double)gamma[c]);
    }
}

/* n lanes: channels c .. of x, which are c0 + c .. of the joined ones. */
static inline __attribute__((always_inline)) void group_norm_vec(const norm_channels *g,
                                                                 const norm_kind k, const void *src,
                                                                 void *dst, int32_t c, int32_t c0,
                                                                 int32_t n)
{
    size_t at = (size_t)(c0 + c);
    vec v = vec_sub(vec_load_as(k.in, src, (size_t)c, n), vec_load_as(TSR_F32, g->mean, at, n));

    v = vec_fma(v, vec_load_as(TSR_F32, g->scale, at, n), vec_load_as(TSR_F32, g->beta, at, n));
    vec_store_as(k.out, dst, at, k.silu ? vec_silu(v) : v, n);
}

/* Pass 2 over one span. `k` is a constant wherever this is called: no branch in the loops. */
static inline __attribute__((always_inline)) void group_norm_span(const group_norm *g, span s,
                                                                  const norm_kind k)
{
    size_t entry = (size_t)(s.n - g->call->window.n0) * (size_t)g->c;
    const norm_channels of = {g->mean + entry, g->scale + entry, g->call->w[1]};

    for (int64_t t = s.t0; t < s.t1; t++) {
        void *dst = tensor_at(&g->call->out, s.n, t);

        for (int32_t i = 0, c0 = 0; i < 2 && g->call->in[i].data; c0 += g->call->in[i].c, i++) {
            const tsr_tensor *x = &g->call->in[i];
            const void *src = tensor_at(x, s.n, t);
            int32_t c = 0;

            for (; c + VEC_N <= x->c; c += VEC_N)
                group_norm_vec(&of, k, src, dst, c, c0, VEC_N);
            if (c < x->c)
                group_norm_vec(&of, k, src, dst, c, c0, x->c - c);
        }
    }
}

static void group_norm_apply(void *arg, int32_t task, int32_t thread)
{
    const group_norm *g = arg;
    span s = span_of(&g->call->window, g->width, g->step, task);
    norm_kind k = {g->call->in[0].dtype, g->call->out.dtype, g->call->op->u.norm.silu};

    (void)thread;
    if (k.in == TSR_F16 && k.out == TSR_F16 && k.silu)
        group_norm_span(g, s, (norm_kind){TSR_F16, TSR_F16, true});
    else if (k.in == TSR_F16 && k.out == TSR_F16)
        group_norm_span(g, s, (norm_kind){TSR_F16, TSR_F16, false});
    else
        group_norm_span(g, s, k);
}

/* Places of the parts in the scratch; returns its size. The rows come last: they are not touched
 * when call->stats has them. */
static size_t group_norm_scratch(group_norm *g, int32_t n, int32_t n_threads, void *work)
{
    size_t c = (size_t)n * (size_t)g->c, floats;

    g->c_room = tsr_align_up((size_t)g->c + VEC_N, 16);
    floats = tsr_align_up(2 * c + 3 * g->c_room * (size_t)n_threads, 16);
    g->mean = work;
    if (work) {
        g->scale = g->mean + c;
        g->thread = g->scale + c;
        g->rows = g->mean + floats;
    }
    return floats * sizeof(float);
}

static size_t group_norm_work(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                              const tsr_window *window, int32_t n_threads)
{
    const tsr_value *out = &tape->values[op->out];
    group_norm g = {.c = out->c};
    int32_t n = window->n1 - window->n0;

    (void)t;
    return group_norm_scratch(&g, n, n_threads, NULL) +
           tsr_norm_stats_bytes(n, out->h, op->u.norm.groups);
}

static group_norm group_norm_of(const tsr_call *call)
{
    const tsr_window *w = &call->window;
    group_norm g = {.call = call,
                    .c = call->out.c,
                    .groups = call->op->u.norm.groups,
                    .width = call->out.w,
                    .step = tsr_max_i32(1, NORM_TASK / call->out.c)};

    group_norm_scratch(&g, w->n1 - w->n0, tsr_pool_threads(call->pool), call->work);
    g.stats = tsr_norm_stats_of(call, g.rows);
    return g;
}

/* Pass 1 over rows y0 .. y0 + n_rows of the window's entries. */
static void group_norm_rows(group_norm *g, int32_t y0, int32_t n_rows)
{
    const tsr_window *w = &g->call->window;

    g->y0 = y0;
    g->n_rows = n_rows;
    tsr_norm_stats_begin(&g->stats, w);
    tsr_pool_run(g->call->pool, (w->n1 - w->n0) * n_rows, group_norm_row, g);
}

static void group_norm_stats_run(const tsr_cpu_table *t, const tsr_call *call)
{
    group_norm g = group_norm_of(call);

    (void)t;
    group_norm_rows(&g, call->window.h0, call->window.h1 - call->window.h0);
}

static void group_norm_run(const tsr_cpu_table *t, const tsr_call *call)
{
    const tsr_window *w = &call->window;
    group_norm g = group_norm_of(call);

    (void)t;
    if (!call->stats)
        group_norm_rows(&g, 0, call->out.h);
    tsr_norm_stats_merge(&g.stats, call);
    for (int32_t n = w->n0; n < w->n1; n++)
        group_norm_channels(&g, n);
    tsr_pool_run(call->pool, span_count(w, g.width, g.step), group_norm_apply, &g);
}

/* Adds x - shift, or its square, of n lanes; those that do not exist add zero. */
static inline __attribute__((always_inline)) vec layer_norm_add(vec sum, tsr_dtype in,
                                                                const void *row, int32_t c,
                                                                int32_t n, float shift, bool square)
{
    vec d = vec_sub(vec_load_as(in, row, (size_t)c, n), vec_set(shift));

    if (n < VEC_N) {
        float lanes[VEC_N];

        vec_store(lanes, d);
        d = vec_load_n(lanes, n);
    }
    return square ? vec_fma(d, d, sum) : vec_add(sum, d);
}

/* Sum over c_n elements: vector i goes to sum i mod 4. */
static inline __attribute__((always_inline)) float
layer_norm_sum(tsr_dtype in, const void *row, int32_t c_n, float shift, bool square)
{
    vec sum[4] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};
    int32_t c = 0;

    for (; c + 4 * VEC_N <= c_n; c += 4 * VEC_N) {
#pragma GCC unroll 4
        for (int32_t j = 0; j < 4; j++)
            sum[j] = layer_norm_add(sum[j], in, row, c + j * VEC_N, VEC_N, shift, square);
    }
#pragma GCC unroll 4
    for (int32_t j = 0; j < 4; j++)
        if (c + j * VEC_N < c_n)
            sum[j] = layer_norm_add(sum[j], in, row, c + j * VEC_N,
                                    tsr_min_i32(VEC_N, c_n - c - j * VEC_N), shift, square);
    return vec_sum(vec_add(vec_add(sum[0], sum[1]), vec_add(sum[2], sum[3])));
}

static inline __attribute__((always_inline)) void
layer_norm_position(const tsr_call *call, const norm_kind k, int32_t n, int64_t t)
{
    const void *src = tensor_at(&call->in[0], n, t);
    void *dst = tensor_at(&call->out, n, t);
    const float *gamma = call->w[0], *beta = call->w[1];
    int32_t c_n = call->out.c;
    float count = (float)c_n, mean = layer_norm_sum(k.in, src, c_n, 0, false) / count,
          var = layer_norm_sum(k.in, src, c_n, mean, true) / count,
          rstd = 1 / sqrtf(var + call->op->u.norm.eps);

    for (int32_t c = 0; c < c_n; c += VEC_N) {
        int32_t left = c_n - c;
        size_t at = (size_t)c;
        vec v = vec_mul(vec_sub(vec_load_as(k.in, src, at, left), vec_set(mean)), vec_set(rstd));

        v = vec_fma(v, vec_load_as(TSR_F32, gamma, at, left), vec_load_as(TSR_F32, beta, at, left));
        vec_store_as(k.out, dst, at, v, left);
    }
}

static int32_t layer_norm_step(const tsr_call *call)
{
    return tsr_max_i32(1, NORM_TASK / call->out.c);
}

static void layer_norm_task(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    span s = span_of(&call->window, call->out.w, layer_norm_step(call), task);

    norm_kind k = {.in = call->in[0].dtype, .out = call->out.dtype};

    (void)thread;
    for (int64_t t = s.t0; t < s.t1; t++) {
        if (k.in == TSR_F16 && k.out == TSR_F16)
            layer_norm_position(call, (norm_kind){TSR_F16, TSR_F16, false}, s.n, t);
        else
            layer_norm_position(call, k, s.n, t);
    }
}

static void layer_norm_run(const tsr_cpu_table *t, const tsr_call *call)
{
    tsr_call copy = *call; /* tasks take a plain pointer */

    (void)t;
    tsr_pool_run(call->pool, span_count(&call->window, call->out.w, layer_norm_step(call)),
                 layer_norm_task, &copy);
}

#endif
