/* gemm_pack_halves.h -- a weight of halves packed from its file's bytes, without widening them.
 *
 * What gemm_pack makes of rows in float, byte for byte: panels [panel][K][TILE_N] out of rows
 * [Co][K], which is a transposition, and for 3x3 kernels an exchange of taps and channels. Blocks
 * of 8x8 halves are transposed in registers: 8 loads, 24 shuffles and 8 stores for 64 elements.
 * The roof is the second cache: a line of a panel is finished within BLOCK_K elements. */
#ifndef TSR_KERNELS_CPU_GEMM_PACK_HALVES_H
#define TSR_KERNELS_CPU_GEMM_PACK_HALVES_H

#include "kernels/cpu/gemm_pack_body.h"

enum { HALVES_SIDE = 8, HALVES_BLOCK_K = 64 };

typedef uint16_t halves8 __attribute__((vector_size(16)));

#define LOW_HALVES(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_HALVES(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

/* Each of the three rounds interleaves vectors i and i + 4. */
static inline void halves_transpose(halves8 x[HALVES_SIDE])
{
    for (int32_t round = 0; round < 3; round++) {
        halves8 y[HALVES_SIDE];

        for (int32_t i = 0; i < HALVES_SIDE / 2; i++) {
            y[2 * i] = LOW_HALVES(x[i], x[i + 4]);
            y[2 * i + 1] = HIGH_HALVES(x[i], x[i + 4]);
        }
        memcpy(x, y, sizeof y);
    }
}

/* Elements [e0, e1) of 8 rows into 8 columns of their panel, from `dst` on. */
static void halves_columns(const pack_shape *s, const uint16_t *rows, size_t e0, size_t e1,
                           uint16_t *dst)
{
    size_t taps = (size_t)s->taps, c = (size_t)s->c, tap = e0 % taps, ch = e0 / taps;

    for (size_t e = e0; e < e1; e += HALVES_SIDE) {
        size_t n = tsr_min_size(HALVES_SIDE, e1 - e);
        halves8 x[HALVES_SIDE] = {0};

        for (size_t j = 0; j < HALVES_SIDE; j++)
            memcpy(&x[j], rows + j * s->k + e, n * sizeof *rows);
        halves_transpose(x);
        for (size_t i = 0; i < n; i++) {
            memcpy(dst + (tap * c + ch) * TILE_N, &x[i], sizeof x[i]);
            if (++tap == taps) {
                tap = 0;
                ch++;
            }
        }
    }
}

/* As gemm_pack, from rows as the file has them. False when it does not take them: then nothing was
 * written. */
static bool gemm_pack_halves(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w,
                             const uint16_t *rows, int32_t row0, int32_t n_rows, int32_t c0,
                             void *dst)
{
    pack_shape s = pack_shape_of(op, w);
    int32_t n;

    (void)t;
    if (s.elem != 2 || s.head_bytes || s.co % s.panel_co || row0 % HALVES_SIDE ||
        n_rows % HALVES_SIDE)
        return false;
    for (int32_t r = row0; r < row0 + n_rows; r += n, rows += (size_t)n * s.k) {
        int32_t co = r % s.co, inside = co % s.panel_co;
        uint16_t *panel =
            (uint16_t *)(void *)((char *)dst + (size_t)((co - c0) / s.panel_co) * s.panel_bytes) +
            (s.geglu ? r / s.co * VEC_N : 0) + inside;

        n = tsr_min_i32(s.panel_co - inside, row0 + n_rows - r);
        for (size_t e = 0; e < s.k; e += HALVES_BLOCK_K)
            for (int32_t i = 0; i < n; i += HALVES_SIDE)
                halves_columns(&s, rows + (size_t)i * s.k, e, tsr_min_size(e + HALVES_BLOCK_K, s.k),
                               panel + i);
    }
    return true;
}

#endif
