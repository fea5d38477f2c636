/* gemm_body.h -- conv2d and linear: one blocked matrix product with fused ends.
 *
 *     out[m][co] = end(sum over k of in[m][k] * w[k][co]),  m = (n, y, x), k = (r, s, c)
 *
 * Algorithm (after Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008,
 * with an implicit im2col): the outputs are cut into tasks of block_m rows times a group of panels.
 * A task walks k in blocks. For each block it
 *   1. gathers its rows of the input into f32, [block_m][A_ROW] (L2): run by run of channels
 * straight from NHWC memory, through padding, stride, nearest resize and the seam of two inputs;
 * `pre` is applied here;
 *   2. for each panel converts the block's weights to f32 once, [k][TILE_N] (L1), and runs the
 *      register tile down the rows, adding into the task's sums [panel][block_m][TILE_N];
 *   3. after the last block adds bias, vector and residual, activates and stores.
 *
 * Exactness: the blocks of k are a function of K alone, each block's sum runs over k in order from
 * zero (gemm_tile.h) and the blocks are added in order. Rows that do not exist are zeros. So a
 * result depends on neither windows, threads, batch nor on where task borders fall: those may be
 * chosen freely. Accumulation f32; storage f16 or f32 each for inputs, weight, residual, output.
 *
 *
 * A window of channels is a range of panels, whose weights may be a piece of their own. The output
 * may take the residual's place: an element is read by the task that writes it, just before.
 *
 * Scratch a thread: A 153 KiB, B 16 KiB (32 with 16 lanes), sums at most 360 KiB; A and sums shrink
 * with the rows of a window under BLOCK_M, sums with its channels too. */
#ifndef TSR_KERNELS_CPU_GEMM_BODY_H
#define TSR_KERNELS_CPU_GEMM_BODY_H

#include <string.h>

#include "base/num.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/span.h"

enum {
    BLOCK_M = 144,        /* rows: many enough that converting weights is 2 % of the work */
    BLOCK_K = 256,        /* a panel's block is 16 KiB with 8 lanes: half of the first cache */
    A_ROW = BLOCK_K + 16, /* room for a whole vector behind the last k, and an odd cache stride */
    GROUP_CO = 640        /* columns a task at most */
};

/* One call, and how it is cut. */
typedef struct gemm {
    const tsr_call *call;
    bool conv;     /* rows are pixels with taps; else positions */
    int32_t c1, c; /* channels of x, and of x and x2 together */
    int32_t s, stride, pad_top, pad_left;
    int32_t in_h, in_w, up_h, up_w; /* up: as the taps see the input */
    pack_shape w;
    int32_t k, block_k;
    int32_t panel0, n_panels; /* of the window's channels */
    int32_t n_rows, entry_rows, block_m, n_blocks_m;
    int32_t group_panels, n_groups;
    tsr_act pre, act;
    int32_t room_m;                     /* rows that the scratch has room for */
    size_t b_at, sums_at, thread_bytes; /* a thread's scratch: A at 0 */
} gemm;

/* The rows of a task: entry, output position y * W + x, and the input pixel of tap (0,0). */
typedef struct gemm_rows {
    int32_t n[BLOCK_M], t[BLOCK_M], y[BLOCK_M], x[BLOCK_M];
    int32_t count;
} gemm_rows;

static void gemm_rows_set(const gemm *g, int32_t m0, gemm_rows *rows)
{
    const tsr_call *call = g->call;
    int32_t width = call->out.w;

    rows->count = tsr_min_i32(g->block_m, g->n_rows - m0);
    for (int32_t i = 0; i < rows->count; i++) {
        int32_t m = m0 + i, t = call->window.h0 * width + m % g->entry_rows;

        rows->n[i] = call->window.n0 + m / g->entry_rows;
        rows->t[i] = t;
        rows->y[i] = t / width * g->stride - g->pad_top;
        rows->x[i] = t % width * g->stride - g->pad_left;
    }
}

/* Position of row i's input at a tap, -1 in the padding. */
static inline int64_t gemm_source(const gemm *g, const gemm_rows *rows, int32_t i, int32_t dy,
                                  int32_t dx)
{
    int32_t y = rows->y[i] + dy, x = rows->x[i] + dx;

    if (!g->conv)
        return rows->t[i];
    if (y < 0 || y >= g->up_h || x < 0 || x >= g->up_w)
        return -1;
    if (g->up_h != g->in_h)
        y = tsr_cpu_nearest(y, g->in_h, g->up_h);
    if (g->up_w != g->in_w)
        x = tsr_cpu_nearest(x, g->in_w, g->up_w);
    return (int64_t)y * g->in_w + x;
}

/* n elements to f32; up to VEC_N - 1 floats behind them are overwritten. */
static inline void gemm_gather_run(tsr_dtype d, const void *src, int32_t n, tsr_act pre, float *dst)
{
    if (pre == TSR_ACT_SILU) {
        for (int32_t i = 0; i < n; i += VEC_N)
            vec_store(dst + i, vec_silu(vec_load_as(d, src, (size_t)i, n - i)));
        return;
    }
    for (int32_t i = 0; i < n; i += VEC_N)
        vec_store(dst + i, vec_load_as(d, src, (size_t)i, n - i));
}

/* Pass 1: columns k0 .. k1 of the task's rows, and zeros up to a whole tile. */
static void gemm_gather(const gemm *g, const gemm_rows *rows, int32_t k0, int32_t k1, float *a)
{
    int32_t n;

    for (int32_t k = k0; k < k1; k += n) {
        int32_t tap = k / g->c, c = k % g->c;
        const tsr_tensor *x = &g->call->in[c >= g->c1];
        size_t size = x->dtype == TSR_F16 ? 2 : 4;

        c -= c >= g->c1 ? g->c1 : 0;
        n = tsr_min_i32(x->c - c, k1 - k);
        for (int32_t i = 0; i < rows->count; i++) {
            int64_t p = gemm_source(g, rows, i, tap / g->s, tap % g->s);
            float *dst = a + (size_t)i * A_ROW + (k - k0);

            if (p < 0)
                memset(dst, 0, (size_t)n * sizeof *dst);
            else
                gemm_gather_run(x->dtype, (char *)tensor_at(x, rows->n[i], p) + (size_t)c * size, n,
                                g->pre, dst);
        }
    }
    for (int32_t i = rows->count; i % TILE_M != 0; i++)
        memset(a + (size_t)i * A_ROW, 0, (size_t)(k1 - k0) * sizeof *a);
}

/* Pass 2: block k0 .. k1 of the window's panel `panel`, as f32; f32 weights are used where they
 * are. */
static const float *gemm_panel(const gemm *g, int32_t panel, int32_t k0, int32_t k1, float *b)
{
    const char *src = (const char *)g->call->w[0] + (size_t)panel * g->w.panel_bytes +
                      (size_t)k0 * TILE_N * g->w.elem;

    if (g->w.elem == 4)
        return (const float *)(const void *)src;
    for (size_t i = 0; i < (size_t)(k1 - k0) * TILE_N; i += VEC_N)
        vec_store(b + i, vec_load_f16((const uint16_t *)(const void *)src + i));
    return b;
}

static void gemm_panel_product(const float *a, const float *b, int32_t n_rows, int32_t nk,
                               bool one_vec, bool keep, float *sums)
{
    for (int32_t i = 0; i < n_rows; i += TILE_M) {
        tile_a rows = {a + (size_t)i * A_ROW, A_ROW, 1};
        float *c = sums + (size_t)i * TILE_N;

        if (one_vec)
            tile_run(1, rows, b, nk, c, keep);
        else
            tile_run(2, rows, b, nk, c, keep);
    }
}

/* Pass 3 for VEC_N channels from co on: `sums` are theirs, `gates` those of b for GEGLU. */
static void gemm_end(const gemm *g, const gemm_rows *rows, int32_t co, const float *sums,
                     const float *gates)
{
    const tsr_call *call = g->call;
    const tsr_tensor *add = &call->in[2], *residual = &call->in[3], *out = &call->out;
    const float *b = call->w[1];
    int32_t n = g->w.co - co;
    size_t c = (size_t)co;
    vec bias = b ? vec_load_as(TSR_F32, b, c, n) : vec_zero();
    vec gate_bias = b && gates ? vec_load_as(TSR_F32, b, c + (size_t)g->w.co, n) : vec_zero();
    bool has_add = g->conv && add->data;

    for (int32_t i = 0; i < rows->count; i++, sums += TILE_N) {
        int32_t entry = rows->n[i], t = rows->t[i];
        vec v = vec_add(vec_load(sums), bias);

        if (gates)
            v = vec_mul(v, vec_gelu(vec_add(vec_load(gates + (size_t)i * TILE_N), gate_bias)));
        if (has_add)
            v = vec_add(v,
                        vec_load_as(add->dtype, tensor_at(add, add->n == 1 ? 0 : entry, 0), c, n));
        v = vec_act(g->act, v);
        if (residual->data)
            v = vec_add(v, vec_load_as(residual->dtype, tensor_at(residual, entry, t), c, n));
        vec_store_as(out->dtype, tensor_at(out, entry, t), c, v, n);
    }
}

static void gemm_panel_end(const gemm *g, const gemm_rows *rows, int32_t panel, const float *sums)
{
    int32_t co = (g->panel0 + panel) * g->w.panel_co;

    if (g->w.geglu) {
        gemm_end(g, rows, co, sums, sums + VEC_N);
        return;
    }
    gemm_end(g, rows, co, sums, NULL);
    if (co + VEC_N < g->w.co)
        gemm_end(g, rows, co + VEC_N, sums + VEC_N, NULL);
}

/* Neighbouring tasks share their weights, not their rows: threads read each panel together. */
static void gemm_task(void *arg, int32_t task, int32_t thread)
{
    const gemm *g = arg;
    char *scratch = (char *)g->call->work + (size_t)thread * g->thread_bytes;
    float *a = (float *)(void *)scratch, *b = (float *)(void *)(scratch + g->b_at),
          *sums = (float *)(void *)(scratch + g->sums_at);
    int32_t p0 = task / g->n_blocks_m * g->group_panels,
            p1 = tsr_min_i32(p0 + g->group_panels, g->n_panels);
    gemm_rows rows;

    gemm_rows_set(g, task % g->n_blocks_m * g->block_m, &rows);
    for (int32_t k0 = 0; k0 < g->k; k0 += g->block_k) {
        int32_t k1 = tsr_min_i32(k0 + g->block_k, g->k);

        gemm_gather(g, &rows, k0, k1, a);
        for (int32_t p = p0; p < p1; p++) {
            float *panel_sums = sums + (size_t)((p - p0) * g->room_m) * TILE_N;
            const float *panel = gemm_panel(g, p, k0, k1, b);
            bool one_vec = !g->w.geglu && g->w.co - (g->panel0 + p) * TILE_N <= VEC_N;

            gemm_panel_product(a, panel, rows.count, k1 - k0, one_vec, k0 > 0, panel_sums);
            if (k1 == g->k)
                gemm_panel_end(g, &rows, p, panel_sums);
        }
    }
}

/* Rows evenly over as few blocks as will do; panels into enough groups that no thread is idle
 * long, but rather not under 128 columns, since each group gathers the rows again. */
static void gemm_cut(gemm *g, int32_t n_threads)
{
    enum { TASKS_A_THREAD = 4, LEAST_PANELS = 128 / TILE_N };
    int32_t blocks = tsr_div_up(g->n_rows, BLOCK_M), want, most = GROUP_CO / TILE_N;

    g->block_m = tsr_div_up(tsr_div_up(g->n_rows, blocks), TILE_M) * TILE_M;
    g->n_blocks_m = tsr_div_up(g->n_rows, g->block_m);
    want = tsr_div_up(TASKS_A_THREAD * n_threads, g->n_blocks_m);
    g->group_panels = tsr_max_i32(g->n_panels / want, LEAST_PANELS);
    g->group_panels = tsr_min_i32(tsr_min_i32(g->group_panels, most), g->n_panels);
    g->n_groups = tsr_div_up(g->n_panels, g->group_panels);
    g->group_panels = tsr_div_up(g->n_panels, g->n_groups); /* no short one at the end */
}

/* The window's size, and the scratch of a thread, which grows with both. `width`: of the output. */
static void gemm_size(gemm *g, const tsr_window *w, int32_t width)
{
    int32_t panels;

    g->panel0 = w->c0 / g->w.panel_co;
    g->n_panels = tsr_div_up(window_c1(w, g->w.co), g->w.panel_co) - g->panel0;
    g->entry_rows = (w->h1 - w->h0) * width;
    g->n_rows = (w->n1 - w->n0) * g->entry_rows;
    g->room_m = tsr_min_i32(BLOCK_M, tsr_div_up(g->n_rows, TILE_M) * TILE_M);
    panels = tsr_min_i32(g->n_panels, GROUP_CO / TILE_N);
    g->b_at = sizeof(float) * (size_t)g->room_m * A_ROW;
    g->sums_at = g->b_at + sizeof(float) * BLOCK_K * TILE_N;
    g->thread_bytes = g->sums_at + sizeof(float) * (size_t)(panels * g->room_m) * TILE_N;
}

static size_t gemm_work(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                        const tsr_window *window, int32_t n_threads)
{
    gemm g = {.w = pack_shape_of(op, &tape->weights[op->w[0]])};

    (void)t;
    gemm_size(&g, window, tape->values[op->out].w);
    return g.thread_bytes * (size_t)n_threads;
}

/* Blocks of k: equal, a multiple of 16, at most BLOCK_K. A function of K alone. */
static int32_t gemm_block_k(int32_t k)
{
    return tsr_div_up(tsr_div_up(k, tsr_div_up(k, BLOCK_K)), 16) * 16;
}

static void gemm_start(gemm *g, tsr_task_fn task)
{
    const tsr_call *call = g->call;
    const tsr_tensor *x = &call->in[0];

    g->w = pack_shape_of(call->op, call->wd[0]);
    g->c1 = x->c;
    g->c = g->w.c;
    g->k = (int32_t)g->w.k;
    g->block_k = gemm_block_k(g->k);
    gemm_size(g, &call->window, call->out.w);
    if (g->n_rows <= 0 || g->n_panels <= 0)
        return;
    gemm_cut(g, tsr_pool_threads(call->pool));
    tsr_pool_run(call->pool, g->n_blocks_m * g->n_groups, task, g);
}

static void conv2d_run(const tsr_cpu_table *t, const tsr_call *call)
{
    const tsr_op *op = call->op;
    const tsr_tensor *x = &call->in[0];
    gemm g = {.call = call,
              .conv = true,
              .s = op->u.conv.s,
              .stride = op->u.conv.stride,
              .pad_top = op->u.conv.pad_top,
              .pad_left = op->u.conv.pad_left,
              .in_h = x->h,
              .in_w = x->w,
              .up_h = op->u.conv.up_h ? op->u.conv.up_h : x->h,
              .up_w = op->u.conv.up_w ? op->u.conv.up_w : x->w};

    (void)t;
    gemm_start(&g, gemm_task);
}

static void linear_with(const tsr_call *call, tsr_task_fn task)
{
    gemm g = {.call = call,
              .s = 1,
              .stride = 1,
              .pre = call->op->u.linear.pre,
              .act = call->op->u.linear.act};

    gemm_start(&g, task);
}

static void linear_run(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    linear_with(call, gemm_task);
}

#endif
