/* winograd_body.h -- 3x3 convolutions of stride 1 by Winograd's F(4x4,3x3), and which ones.
 *
 * The output is cut into tiles of 4x4 from the image's origin. A tile is made from 6x6 inputs:
 *
 *     V = B^T d B  a channel,   U = G g G^T  a pair of channels,
 *     M[p] = sum over c of V[p][c] * U[p][c] for p = 0 .. 35,   y = A^T M A + bias + ...
 *
 * 36 multiply-adds for 16 outputs instead of 144; everything in f32 (maps: winograd_transform.h).
 *
 * Algorithm: a task has up to WINO_TILES tiles and WINO_GROUP_CO output channels. It walks the
 * input channels in blocks of at most WINO_CHUNK. For each block it
 *   1. maps its tiles' inputs, gathered straight from NHWC through padding, nearest resize and the
 *      seam of two inputs, to V [36][tile][WINO_ROW];
 *   2. for each panel maps the block's weights (packed as for gemm_body.h) to U [36][k][TILE_N],
 * and adds the 36 products V U to M [panel][36][tile][TILE_N] with the register tile;
 *   3. after the last block maps M to pixels, adds bias, vector and residual, and stores.
 * Weights are mapped again for every block of tiles, inputs for every group of channels: U alone
 * would be 8 times the weight if it were kept. Both together are a quarter of the time.
 *
 * Exactness: a tile's bits are a function of its inputs alone: blocks of channels follow from C,
 * sums run over channels in order, maps are fixed expressions. A window that cuts a tile computes
 * it whole and stores its own rows, so it needs the rows under all of the tile (conv_row_unit).
 *
 * Scratch a thread: V 545 KiB, U 146 KiB (291 with 16 lanes), M 882 KiB; V and M shrink with the
 * tiles of a window, M with its channels, too. With less than that (conv_least_work) a task takes
 * half of the tiles and channels: 642 KiB. Planes begin an odd number of cache lines apart: the
 * 36 of them would meet in a few sets of the first cache otherwise. */
#ifndef TSR_KERNELS_CPU_WINOGRAD_BODY_H
#define TSR_KERNELS_CPU_WINOGRAD_BODY_H

#include <string.h>

#include "base/num.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/span.h"
#include "kernels/cpu/winograd_transform.h"

enum {
    WINO_TILES = 48,            /* mapping weights is 9 % of the work */
    WINO_CHUNK = 64,            /* 36 blocks of V, U and M of this length pass through 20 KiB */
    WINO_ROW = WINO_CHUNK + 16, /* room for a whole vector behind the last channel */
    WINO_GROUP_CO = 128,        /* mapping the input is 9 % */
    WINO_FEW_TILES = 24,        /* where scratch is short: 15 % slower */
    WINO_FEW_CO = 64,
    WINO_LINE = 16,        /* floats of a cache line */
    WINO_LEAST_C = 16,     /* fewer input channels: the maps cost more than they save */
    WINO_LEAST_PIXELS = 64 /* fewer pixels: mapping the weight does */
};

/* One call, and how it is cut. */
typedef struct wino {
    const tsr_call *call;
    pack_shape w;
    int32_t c1, c, chunk; /* channels of x, of both inputs together, of a block */
    int32_t pad_top, pad_left, in_h, in_w, up_h, up_w; /* as in gemm */
    int32_t panel0, n_panels;                          /* of the window's channels */
    int32_t tiles_x, tile_y0, entry_tiles, n_tiles;    /* of the window */
    int32_t most_tiles, most_panels;                   /* of a task: as the scratch allows */
    int32_t block_t, n_blocks, group_panels, n_groups;
    size_t v_plane, u_plane, m_plane; /* floats of each of the 36 */
    size_t u_at, m_at, thread_bytes;  /* a thread's scratch: V at 0 */
} wino;

/* The tiles of a task: entry, and the first of its output pixels. */
typedef struct wino_tiles {
    int32_t n[WINO_TILES], y[WINO_TILES], x[WINO_TILES];
    int32_t count;
} wino_tiles;

static void wino_tiles_set(const wino *g, int32_t t0, wino_tiles *tiles)
{
    tiles->count = tsr_min_i32(g->block_t, g->n_tiles - t0);
    for (int32_t i = 0; i < tiles->count; i++) {
        int32_t t = t0 + i, at = t % g->entry_tiles;

        tiles->n[i] = g->call->window.n0 + t / g->entry_tiles;
        tiles->y[i] = (g->tile_y0 + at / g->tiles_x) * WINO_OUT;
        tiles->x[i] = at % g->tiles_x * WINO_OUT;
    }
}

/* ------------------------------------------------------------------- inputs */

/* The source of row or column i of the input as the taps see it; -1 in the padding. */
static inline int32_t wino_source(int32_t i, int32_t in, int32_t up)
{
    if (i < 0 || i >= up)
        return -1;
    return up == in ? i : tsr_cpu_nearest(i, in, up);
}

/* Where the tile's inputs are, from channel c of x on. */
static void wino_sources(const wino *g, const wino_tiles *tiles, int32_t i, const tsr_tensor *x,
                         int32_t c, const void *at[WINO_N])
{
    static const float zeros[WINO_ROW];
    size_t size = x->dtype == TSR_F16 ? 2 : 4;
    int32_t y[WINO_IN], col[WINO_IN];

    for (int32_t r = 0; r < WINO_IN; r++) {
        y[r] = wino_source(tiles->y[i] + r - g->pad_top, g->in_h, g->up_h);
        col[r] = wino_source(tiles->x[i] + r - g->pad_left, g->in_w, g->up_w);
    }
    for (int32_t p = 0; p < WINO_N; p++) {
        int32_t r = y[p / WINO_IN], s = col[p % WINO_IN];

        if (r < 0 || s < 0)
            at[p] = zeros;
        else
            at[p] = (char *)tensor_at(x, tiles->n[i], (int64_t)r * g->in_w + s) + (size_t)c * size;
    }
}

/* Channels c .. c + VEC_N of a tile, n of which exist. */
static inline __attribute__((always_inline)) void wino_input_vec(tsr_dtype d,
                                                                 const void *const at[WINO_N],
                                                                 int32_t c, int32_t n, float *v,
                                                                 size_t plane)
{
    vec t[WINO_IN][WINO_IN], x[WINO_IN];

#pragma GCC unroll 8
    for (int32_t j = 0; j < WINO_IN; j++) {
#pragma GCC unroll 8
        for (int32_t i = 0; i < WINO_IN; i++)
            x[i] = vec_load_as(d, at[i * WINO_IN + j], (size_t)c, n);
        wino_map_input(x, &t[0][j], WINO_IN);
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < WINO_IN; i++) {
        wino_map_input(t[i], x, 1);
#pragma GCC unroll 8
        for (int32_t j = 0; j < WINO_IN; j++)
            vec_store(v + (size_t)(i * WINO_IN + j) * plane + c, x[j]);
    }
}

/* n channels; up to VEC_N - 1 floats behind them are overwritten. */
static inline __attribute__((always_inline)) void
wino_input_run(tsr_dtype d, const void *const at[WINO_N], int32_t n, float *v, size_t plane)
{
    int32_t c = 0;

    for (; c + VEC_N <= n; c += VEC_N)
        wino_input_vec(d, at, c, VEC_N, v, plane);
    if (c < n)
        wino_input_vec(d, at, c, n - c, v, plane);
}

/* Pass 1: channels k0 .. k1 of the task's tiles, and zeros up to a whole register tile. */
static void wino_inputs(const wino *g, const wino_tiles *tiles, int32_t k0, int32_t k1, float *v)
{
    const void *at[WINO_N];
    int32_t n;

    for (int32_t k = k0; k < k1; k += n) {
        const tsr_tensor *x = &g->call->in[k >= g->c1];
        int32_t c = k >= g->c1 ? k - g->c1 : k;

        n = tsr_min_i32(x->c - c, k1 - k);
        for (int32_t i = 0; i < tiles->count; i++) {
            float *dst = v + (size_t)i * WINO_ROW + (k - k0);

            wino_sources(g, tiles, i, x, c, at);
            if (x->dtype == TSR_F16)
                wino_input_run(TSR_F16, at, n, dst, g->v_plane);
            else
                wino_input_run(TSR_F32, at, n, dst, g->v_plane);
        }
    }
    for (int32_t i = tiles->count; i % TILE_M != 0; i++)
        for (int32_t p = 0; p < WINO_N; p++)
            memset(v + (size_t)p * g->v_plane + (size_t)i * WINO_ROW, 0,
                   (size_t)(k1 - k0) * sizeof *v);
}

/* ------------------------------------------------------------------ weights */

/* VEC_N output channels of one input channel; taps are `tap` elements apart. */
static inline __attribute__((always_inline)) void
wino_weight_vec(tsr_dtype d, const void *w, size_t at, size_t tap, float *u, size_t plane)
{
    vec t[WINO_IN][3], x[WINO_IN];

#pragma GCC unroll 8
    for (size_t s = 0; s < 3; s++)
        wino_map_weight(vec_load_as(d, w, at + s * tap, VEC_N),
                        vec_load_as(d, w, at + (s + 3) * tap, VEC_N),
                        vec_load_as(d, w, at + (s + 6) * tap, VEC_N), &t[0][s], 3);
#pragma GCC unroll 8
    for (int32_t i = 0; i < WINO_IN; i++) {
        wino_map_weight(t[i][0], t[i][1], t[i][2], x, 1);
#pragma GCC unroll 8
        for (int32_t j = 0; j < WINO_IN; j++)
            vec_store(u + (size_t)(i * WINO_IN + j) * plane + at, x[j]);
    }
}

/* Both halves of a cache line in one go: U is larger than the first cache. */
static inline __attribute__((always_inline)) void wino_weight_run(tsr_dtype d, const void *w,
                                                                  size_t tap, int32_t nk,
                                                                  bool one_vec, float *u,
                                                                  size_t plane)
{
    for (int32_t k = 0; k < nk; k++) {
        wino_weight_vec(d, w, (size_t)k * TILE_N, tap, u, plane);
        if (!one_vec)
            wino_weight_vec(d, w, (size_t)k * TILE_N + VEC_N, tap, u, plane);
    }
}

/* Pass 2a: block k0 .. k1 of the window's panel `panel`. */
static void wino_weights(const wino *g, int32_t panel, int32_t k0, int32_t k1, bool one_vec,
                         float *u)
{
    const char *w = (const char *)g->call->w[0] + (size_t)panel * g->w.panel_bytes +
                    (size_t)k0 * TILE_N * g->w.elem;
    size_t tap = (size_t)g->c * TILE_N;

    if (g->w.elem == 2)
        wino_weight_run(TSR_F16, w, tap, k1 - k0, one_vec, u, g->u_plane);
    else
        wino_weight_run(TSR_F32, w, tap, k1 - k0, one_vec, u, g->u_plane);
}

/* ----------------------------------------------------------------- products */

/* Pass 2b. */
static void wino_products(const wino *g, const float *v, const float *u, int32_t n_tiles,
                          int32_t nk, bool one_vec, bool keep, float *m)
{
    for (int32_t p = 0; p < WINO_N; p++, v += g->v_plane, u += g->u_plane, m += g->m_plane) {
        for (int32_t i = 0; i < n_tiles; i += TILE_M) {
            tile_a rows = {v + (size_t)i * WINO_ROW, WINO_ROW, 1};
            float *c = m + (size_t)i * TILE_N;

            if (one_vec)
                tile_run(1, rows, u, nk, c, keep);
            else
                tile_run(2, rows, u, nk, c, keep);
        }
    }
}

/* ------------------------------------------------------------------ outputs */

/* Stores what of a tile is inside the window and the picture; `shift` is added first. */
static void wino_store(const wino *g, const wino_tiles *tiles, int32_t i, int32_t co, vec shift,
                       vec y[WINO_OUT][WINO_OUT])
{
    const tsr_call *call = g->call;
    const tsr_tensor *residual = &call->in[3], *out = &call->out;
    int32_t n = g->w.co - co, entry = tiles->n[i];
    int32_t r0 = tsr_max_i32(call->window.h0 - tiles->y[i], 0);
    int32_t r1 = tsr_min_i32(call->window.h1 - tiles->y[i], WINO_OUT);
    int32_t s1 = tsr_min_i32(out->w - tiles->x[i], WINO_OUT);

    for (int32_t r = r0; r < r1; r++) {
        int64_t t = (int64_t)(tiles->y[i] + r) * out->w + tiles->x[i];
        void *dst = tensor_at(out, entry, t);
        const void *from = residual->data ? tensor_at(residual, entry, t) : NULL;

        for (int32_t s = 0; s < s1; s++) {
            size_t at = (size_t)s * (size_t)out->c + (size_t)co;
            vec v = vec_add(y[r][s], shift);

            if (from)
                v = vec_add(v, vec_load_as(residual->dtype, from, at, n));
            vec_store_as(out->dtype, dst, at, v, n);
        }
    }
}

/* Pass 3 for VEC_N channels from co on: `m` are theirs. */
static void wino_outputs_vec(const wino *g, const wino_tiles *tiles, int32_t co, const float *m)
{
    const tsr_tensor *add = &g->call->in[2];
    const float *b = g->call->w[1];
    int32_t n = g->w.co - co;
    vec bias = b ? vec_load_as(TSR_F32, b, (size_t)co, n) : vec_zero();

    for (int32_t i = 0; i < tiles->count; i++, m += TILE_N) {
        vec t[WINO_OUT][WINO_IN], y[WINO_OUT][WINO_OUT], x[WINO_IN], shift = bias;

#pragma GCC unroll 8
        for (int32_t j = 0; j < WINO_IN; j++) {
#pragma GCC unroll 8
            for (int32_t k = 0; k < WINO_IN; k++)
                x[k] = vec_load(m + (size_t)(k * WINO_IN + j) * g->m_plane);
            wino_map_output(x, &t[0][j], WINO_IN);
        }
#pragma GCC unroll 8
        for (int32_t k = 0; k < WINO_OUT; k++)
            wino_map_output(t[k], y[k], 1);
        if (add->data)
            shift = vec_add(bias, vec_load_as(add->dtype,
                                              tensor_at(add, add->n == 1 ? 0 : tiles->n[i], 0),
                                              (size_t)co, n));
        wino_store(g, tiles, i, co, shift, y);
    }
}

static void wino_outputs(const wino *g, const wino_tiles *tiles, int32_t panel, const float *m)
{
    int32_t co = (g->panel0 + panel) * TILE_N;

    wino_outputs_vec(g, tiles, co, m);
    if (co + VEC_N < g->w.co)
        wino_outputs_vec(g, tiles, co + VEC_N, m + VEC_N);
}

/* -------------------------------------------------------------------- tasks */

/* Neighbouring tasks share their weights, as in gemm_body.h. */
static void wino_task(void *arg, int32_t task, int32_t thread)
{
    const wino *g = arg;
    char *scratch = (char *)g->call->work + (size_t)thread * g->thread_bytes;
    float *v = (float *)(void *)scratch, *u = (float *)(void *)(scratch + g->u_at),
          *m = (float *)(void *)(scratch + g->m_at);
    int32_t p0 = task / g->n_blocks * g->group_panels,
            p1 = tsr_min_i32(p0 + g->group_panels, g->n_panels);
    wino_tiles tiles;

    wino_tiles_set(g, task % g->n_blocks * g->block_t, &tiles);
    for (int32_t k0 = 0; k0 < g->c; k0 += g->chunk) {
        int32_t k1 = tsr_min_i32(k0 + g->chunk, g->c);

        wino_inputs(g, &tiles, k0, k1, v);
        for (int32_t p = p0; p < p1; p++) {
            float *sums = m + (size_t)(p - p0) * WINO_N * g->m_plane;
            bool one_vec = g->w.co - (g->panel0 + p) * TILE_N <= VEC_N;

            wino_weights(g, p, k0, k1, one_vec, u);
            wino_products(g, v, u, tiles.count, k1 - k0, one_vec, k0 > 0, sums);
            if (k1 == g->c)
                wino_outputs(g, &tiles, p, sums);
        }
    }
}

/* Tiles evenly over as few blocks as will do; panels into groups so that the last thread is done
 * soonest, where mapping the inputs once more takes as long as half a panel. */
static void wino_cut(wino *g, int32_t n_threads)
{
    int32_t blocks = tsr_div_up(g->n_tiles, g->most_tiles);
    int64_t least = INT64_MAX;

    g->block_t = tsr_div_up(tsr_div_up(g->n_tiles, blocks), TILE_M) * TILE_M;
    g->n_blocks = tsr_div_up(g->n_tiles, g->block_t);
    for (int32_t panels = g->most_panels; panels > 0; panels--) {
        int32_t groups = tsr_div_up(g->n_panels, panels);
        int64_t time = (int64_t)tsr_div_up(g->n_blocks * groups, n_threads) * (2 * panels + 1);

        if (time < least) {
            least = time;
            g->group_panels = panels;
            g->n_groups = groups;
        }
    }
}

/* rows * row is an even number of cache lines everywhere here. */
static size_t wino_plane(int32_t rows, int32_t row)
{
    return (size_t)(rows * row) + WINO_LINE;
}

/* The window's size, and the scratch of a thread, which grows with both. `width`: of the output;
 * `few`: with little scratch. */
static void wino_size(wino *g, const tsr_window *w, int32_t width, bool few)
{
    int32_t room;

    g->panel0 = w->c0 / g->w.panel_co;
    g->n_panels = tsr_div_up(window_c1(w, g->w.co), g->w.panel_co) - g->panel0;
    g->tiles_x = tsr_div_up(width, WINO_OUT);
    g->tile_y0 = w->h0 / WINO_OUT;
    g->entry_tiles = (tsr_div_up(w->h1, WINO_OUT) - g->tile_y0) * g->tiles_x;
    g->n_tiles = (w->n1 - w->n0) * g->entry_tiles;
    g->most_tiles = few ? WINO_FEW_TILES : WINO_TILES;
    g->most_panels = tsr_min_i32(g->n_panels, (few ? WINO_FEW_CO : WINO_GROUP_CO) / TILE_N);
    room = tsr_min_i32(g->most_tiles, tsr_div_up(g->n_tiles, TILE_M) * TILE_M);
    g->v_plane = wino_plane(room, WINO_ROW);
    g->u_plane = wino_plane(WINO_CHUNK, TILE_N);
    g->m_plane = wino_plane(room, TILE_N);
    g->u_at = sizeof(float) * WINO_N * g->v_plane;
    g->m_at = g->u_at + sizeof(float) * WINO_N * g->u_plane;
    g->thread_bytes = g->m_at + sizeof(float) * WINO_N * g->m_plane * (size_t)g->most_panels;
}

/* Blocks of channels: equal, a multiple of 16, at most WINO_CHUNK. A function of C alone. */
static int32_t wino_chunk(int32_t c)
{
    return tsr_div_up(tsr_div_up(c, tsr_div_up(c, WINO_CHUNK)), 16) * 16;
}

static void wino_run(const tsr_call *call)
{
    const tsr_op *op = call->op;
    const tsr_tensor *x = &call->in[0];
    wino g = {.call = call,
              .w = pack_shape_of(op, call->wd[0]),
              .c1 = x->c,
              .pad_top = op->u.conv.pad_top,
              .pad_left = op->u.conv.pad_left,
              .in_h = x->h,
              .in_w = x->w,
              .up_h = op->u.conv.up_h ? op->u.conv.up_h : x->h,
              .up_w = op->u.conv.up_w ? op->u.conv.up_w : x->w};

    g.c = g.w.c;
    g.chunk = wino_chunk(g.c);
    wino_size(&g, &call->window, call->out.w, false);
    if (g.thread_bytes * (size_t)tsr_pool_threads(call->pool) > call->work_bytes)
        wino_size(&g, &call->window, call->out.w, true);
    if (g.n_tiles <= 0 || g.n_panels <= 0)
        return;
    wino_cut(&g, tsr_pool_threads(call->pool));
    tsr_pool_run(call->pool, g.n_blocks * g.n_groups, wino_task, &g);
}

/* ------------------------------------------------------------------- choice */

/* Which convolutions are done so: a function of shape, tier and precision alone. Measured on AVX2
 * (bench/NOTES.md): 2.5 to 3.3 times as fast from 16x16 pixels on, 1.8 times at 8x8, where mapping
 * the weights is 30 % of the time; below that, and where half of the tiles would lie outside the
 * picture, the direct kernel is as good. F(2x2) is never the best of the three. */
static bool conv_by_winograd(const tsr_op *op, const tsr_weight *w, int32_t out_h, int32_t out_w)
{
    int64_t pixels = (int64_t)out_h * out_w;
    int64_t tiles = (int64_t)tsr_div_up(out_h, WINO_OUT) * tsr_div_up(out_w, WINO_OUT);

    return !op->u.conv.direct && op->u.conv.r == 3 && op->u.conv.s == 3 && op->u.conv.stride == 1 &&
           w->dims[1] >= WINO_LEAST_C && pixels >= WINO_LEAST_PIXELS &&
           tiles * WINO_OUT * WINO_OUT <= 2 * pixels;
}

static bool conv_is_winograd(const tsr_tape *tape, const tsr_op *op)
{
    const tsr_value *out = &tape->values[op->out];

    return op->kind == TSR_OP_CONV2D &&
           conv_by_winograd(op, &tape->weights[op->w[0]], out->h, out->w);
}

static const char *conv_method(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op)
{
    (void)t;
    return conv_is_winograd(tape, op) ? "winograd" : NULL;
}

static int32_t conv_row_unit(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op)
{
    (void)t;
    return conv_is_winograd(tape, op) ? WINO_OUT : 1;
}

static size_t conv_work_of(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                           const tsr_window *window, int32_t n_threads, bool few)
{
    wino g = {.w = pack_shape_of(op, &tape->weights[op->w[0]])};

    if (!conv_is_winograd(tape, op))
        return gemm_work(t, tape, op, window, n_threads);
    wino_size(&g, window, tape->values[op->out].w, few);
    return g.thread_bytes * (size_t)n_threads;
}

static size_t conv_work(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                        const tsr_window *window, int32_t n_threads)
{
    return conv_work_of(t, tape, op, window, n_threads, false);
}

static size_t conv_least_work(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                              const tsr_window *window, int32_t n_threads)
{
    return conv_work_of(t, tape, op, window, n_threads, true);
}

static void conv_run(const tsr_cpu_table *t, const tsr_call *call)
{
    if (conv_by_winograd(call->op, call->wd[0], call->out.h, call->out.w))
        wino_run(call);
    else
        conv2d_run(t, call);
}

#endif
