/* gemm_tile.h -- the register tile under convolution, linear and attention.
 *
 *     c[i][j] = (keep ? c[i][j] : 0) + sum over k of a[i][k] * b[k][j]
 *
 * for TILE_M rows i and nv * VEC_N columns j (nv is 1 or 2). The sum starts from zero and runs over
 * k in order, one FMA each; only the finished sum is added to c. So a result depends on its own row
 * and column and on nk alone, and an edge tile (rows or columns of zeros) has the bits of a full
 * one. Long sums are cut into blocks by the caller, which also keeps their rounding error small.
 *
 * Layout: a[i * row + k * col], broadcast; b is a panel [k][TILE_N]; c has rows of TILE_N.
 * Per k: TILE_M broadcasts and 2 loads for 2 TILE_M FMAs: the FMA pipes are the limit (6 cycles for
 * 6x16 on AVX2 with two of them). All loops over the tile are unrolled: `sum` lives in registers.
 */
#ifndef TSR_KERNELS_CPU_GEMM_TILE_H
#define TSR_KERNELS_CPU_GEMM_TILE_H

enum { TILE_N = 2 * VEC_N };

typedef struct tile_a {
    const float *p;
    size_t row, col; /* strides in floats */
} tile_a;

static inline __attribute__((always_inline)) void
tile_run(const int32_t nv, tile_a a, const float *b, int32_t nk, float *c, bool keep)
{
    vec sum[TILE_M][2];

#pragma GCC unroll 16
    for (int32_t i = 0; i < TILE_M; i++)
        sum[i][0] = sum[i][1] = vec_zero();
    for (int32_t k = 0; k < nk; k++, b += TILE_N) {
        vec b0 = vec_load(b), b1 = nv > 1 ? vec_load(b + VEC_N) : vec_zero();
        const float *ak = a.p + (size_t)k * a.col;

#pragma GCC unroll 16
        for (int32_t i = 0; i < TILE_M; i++) {
            vec x = vec_set(ak[(size_t)i * a.row]);

            sum[i][0] = vec_fma(x, b0, sum[i][0]);
            if (nv > 1)
                sum[i][1] = vec_fma(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 16
    for (int32_t i = 0; i < TILE_M; i++, c += TILE_N) {
        vec_store(c, keep ? vec_add(vec_load(c), sum[i][0]) : sum[i][0]);
        if (nv > 1)
            vec_store(c + VEC_N, keep ? vec_add(vec_load(c + VEC_N), sum[i][1]) : sum[i][1]);
    }
}

#endif
