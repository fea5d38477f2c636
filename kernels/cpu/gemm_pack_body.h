/* gemm_pack_body.h -- matrix weights packed for gemm_body.h.
 *
 * A weight [Co,C,R,S] (or [Co,C]) becomes panels [panel][K][TILE_N] in the weight's own dtype, K in
 * the order (r, s, c), so that the run of channels at one tap is contiguous in the input too. The
 * last panel is filled with zeros.
 *
 * GEGLU's weight [2*Co,C]: a panel holds VEC_N channels, first their a and then their b, so
 * that both are in one register tile and the product is formed before anything is stored.
 *
 * A tier that sums up in halves (gemm_half_body.h) has PACK_SCALED. It packs an output channel's
 * halves multiplied by the power of two that brings its largest to 2^(SCALED_BITS - 1) or more, but
 * under 2^SCALED_BITS, and a panel begins with [TILE_N] floats that take this back. What becomes a
 * denormal by that is under 2^-18 of the channel's largest. */
#ifndef TSR_KERNELS_CPU_GEMM_PACK_BODY_H
#define TSR_KERNELS_CPU_GEMM_PACK_BODY_H

#include <string.h>

#include "base/num.h"
#include "kernels/cpu/cpu.h"

enum { SCALED_BITS = 5 };

/* A matrix weight as the packing sees it. */
typedef struct pack_shape {
    int32_t taps, c;  /* R * S, input channels */
    int32_t co;       /* output channels; of each half for GEGLU */
    int32_t panel_co; /* output channels a panel */
    int32_t n_panels;
    bool geglu;
    size_t k, elem, head_bytes, panel_bytes; /* head: what takes the scales back */
} pack_shape;

/* Only linear layers, and not those of the time embedding (the ones with SiLU): an error there, or
 * in a convolution (3x3, or the shortcut of a residual block), goes into what all later blocks add
 * to. With them the golden tests of UNets came to 6.1e-3, without them to 3.7e-3. */
static bool pack_is_scaled(const tsr_op *op, const tsr_weight *w)
{
    return PACK_SCALED && w->dtype == TSR_F16 && op && op->kind == TSR_OP_LINEAR &&
           op->u.linear.pre != TSR_ACT_SILU && op->u.linear.act != TSR_ACT_SILU;
}

static pack_shape pack_shape_of(const tsr_op *op, const tsr_weight *w)
{
    pack_shape s = {.taps = w->n_dims == 4 ? w->dims[2] * w->dims[3] : 1,
                    .c = w->dims[1],
                    .co = w->dims[0],
                    .panel_co = TILE_N,
                    .geglu = op && op->kind == TSR_OP_LINEAR && op->u.linear.geglu};

    if (s.geglu) {
        s.co /= 2;
        s.panel_co = VEC_N;
    }
    s.n_panels = tsr_div_up(s.co, s.panel_co);
    s.k = (size_t)s.taps * (size_t)s.c;
    s.elem = w->dtype == TSR_F16 ? 2 : 4;
    s.head_bytes = pack_is_scaled(op, w) ? TILE_N * sizeof(float) : 0;
    s.panel_bytes = s.head_bytes + s.k * TILE_N * s.elem;
    return s;
}

static size_t gemm_packed_bytes(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w)
{
    pack_shape s = pack_shape_of(op, w);

    (void)t;
    return tsr_align_up((size_t)s.n_panels * s.panel_bytes, 64);
}

static int32_t gemm_panel_channels(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w)
{
    (void)t;
    return pack_shape_of(op, w).panel_co;
}

static size_t gemm_packed_offset(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w,
                                 int32_t c)
{
    pack_shape s = pack_shape_of(op, w);

    (void)t;
    return (size_t)tsr_div_up(c, s.panel_co) * s.panel_bytes;
}

/* The power of two, of those whose inverse is a normal float, that scales |x| up to the largest of
 * n values to under 2^SCALED_BITS and no lower than a half of it. NaN does not count. */
static float pack_scale_of(const float *x, size_t n)
{
    vec most = vec_zero();
    float lanes[VEC_N], scale;
    uint32_t bits;
    int32_t e;

    for (size_t i = 0; i < n; i += VEC_N)
        most =
            vec_max(vec_abs(vec_load_as(TSR_F32, x, i, (int32_t)tsr_min_size(n - i, VEC_N))), most);
    vec_store(lanes, most);
    for (int32_t i = 1; i < VEC_N; i++)
        lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
    memcpy(&bits, lanes, sizeof bits);
    e = SCALED_BITS - 1 - ((int32_t)(bits >> 23) - 127);
    bits = (uint32_t)(tsr_max_i32(tsr_min_i32(e, 126), -126) + 127) << 23;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* Scales of n rows, with their inverses in `head`; ones where the weight is not scaled. */
static vec pack_scales(const pack_shape *s, const float *rows, int32_t n, float *head)
{
    float scale[VEC_N];

    if (!s->head_bytes)
        return vec_set(1.0f);
    for (int32_t i = 0; i < VEC_N; i++)
        scale[i] = i < n ? pack_scale_of(rows + (size_t)i * s->k, s->k) : 1.0f;
    for (int32_t i = 0; i < n; i++)
        head[i] = 1.0f / scale[i];
    return vec_load(scale);
}

/* Writes n columns of one panel, [k][TILE_N] from `dst` on, from n rows of K floats in file order
 * (c, r, s); with `fill` the columns up to VEC_N become zero. A few channels with all their taps at
 * a time: what is read stays in the first cache until its last tap. */
static void pack_columns(const pack_shape *s, tsr_dtype d, const float *rows, vec scale, int32_t n,
                         bool fill, void *dst)
{
    enum { STEP = 16 }; /* channels: enough that no load waits for the stores just before it */
    float block[STEP * VEC_N] = {0};
    size_t taps = (size_t)s->taps, c = (size_t)s->c;

    for (size_t i = 0; i < (c + STEP - 1) / STEP * taps; i++) {
        size_t c0 = i / taps * STEP, tap = i % taps, n_c = tsr_min_size(STEP, c - c0);

        for (size_t ch = 0; ch < n_c; ch++)
            for (size_t j = 0; j < (size_t)n; j++)
                block[ch * VEC_N + j] = rows[j * s->k + (c0 + ch) * taps + tap];
        for (size_t ch = 0; ch < n_c; ch++)
            vec_store_as(d, dst, (tap * c + c0 + ch) * TILE_N,
                         vec_mul(vec_load(block + ch * VEC_N), scale), fill ? VEC_N : n);
    }
}

static void pack_zero_columns(const pack_shape *s, tsr_dtype d, void *dst)
{
    for (size_t k = 0; k < s->k; k++)
        vec_store_as(d, dst, k * TILE_N, vec_zero(), VEC_N);
}

/* Rows are packed in runs that share a half panel: VEC_N of them when nothing cuts them. */
static void gemm_pack(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w,
                      const float *rows, int32_t row0, int32_t n_rows, int32_t c0, void *dst)
{
    pack_shape s = pack_shape_of(op, w);
    int32_t n;

    (void)t;
    for (int32_t r = row0; r < row0 + n_rows; r += n, rows += (size_t)n * s.k) {
        int32_t half = r / s.co, co = r % s.co, lane = co % VEC_N; /* half is 0 without GEGLU */
        int32_t column = s.geglu ? half * VEC_N : co % TILE_N - lane;
        char *head = (char *)dst + (size_t)((co - c0) / s.panel_co) * s.panel_bytes,
             *panel = head + s.head_bytes;
        float *unscale = (float *)(void *)head + column + lane;
        bool last;
        vec scale;

        n = tsr_min_i32(tsr_min_i32(VEC_N - lane, row0 + n_rows - r), s.co - co);
        last = co + n == s.co;
        if (last && lane > 0) { /* a run that starts inside: its rows, then zeros behind them */
            int32_t end = lane + n;

            for (size_t k = 0; k < s.k; k++)
                vec_store_as(w->dtype, panel, k * TILE_N + (size_t)(column + end), vec_zero(),
                             VEC_N - end);
        }
        scale = pack_scales(&s, rows, n, unscale);
        pack_columns(&s, w->dtype, rows, scale, n, last && lane == 0,
                     panel + (size_t)(column + lane) * s.elem);
        if (last && !s.geglu && column == 0)
            pack_zero_columns(&s, w->dtype, panel + VEC_N * s.elem);
        if (last && s.head_bytes)
            memset(unscale + n, 0,
                   sizeof(float) *
                       (size_t)((s.geglu ? column + VEC_N : TILE_N) - column - lane - n));
    }
}

#endif
