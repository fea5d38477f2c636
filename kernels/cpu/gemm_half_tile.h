/* gemm_half_tile.h -- the register tile of products of halves that are summed up in halves.
 *
 *     c[i][j] = (keep ? c[i][j] : 0) + unscale[i] * sum over k of a[i][k] * b[k][j]
 *
 * for TILE_M rows and nv panels of TILE_N columns. k is cut into chunks of HALF_CHUNK from 0 on: a
 * chunk's products are added in halves, one FMA each, from zero and in order; the sum is widened
 * and added to c in float, chunk after chunk. So a result depends on its own row and column and on
 * nk alone.
 *
 * No sum can overflow: rows and columns come scaled by powers of two so that |a| and |b| are at
 * most 2^SCALED_BITS (gemm_pack_body.h), and HALF_CHUNK products stay at or under 2^15, which is
 * half of what a half holds (by induction: the bound after j products is itself a half, and
 * rounding is monotone). The same scaling keeps small operands away from denormals. Dividing by a
 * power of two is exact, so scaling costs no accuracy.
 *
 * HALF_CHUNK, the one constant that accuracy hangs on: rounding in halves grows with the square
 * root of a chunk, the cost of widening falls with its inverse. Relative error of a sum of products
 * of random signs, and the share of multiply-adds by instruction counts (Golden Cove, two ports: 12
 * cycles a k, 84 a widening): 16  6.8e-4  70 %      32  9.6e-4  82 %      64  1.4e-3  90 %
 * 128  1.9e-3  95 % With 64 the text encoders and one UNet of the golden tests leave their bounds.
 *
 * 24 sums + 2 columns of 32 registers; rows are broadcast by the FMA itself. */
#ifndef TSR_KERNELS_CPU_GEMM_HALF_TILE_H
#define TSR_KERNELS_CPU_GEMM_HALF_TILE_H

enum { HALF_CHUNK = 32 };
_Static_assert(HALF_CHUNK << 2 * SCALED_BITS <= 1 << 15, "sums must stay within a half");

/* The chunk's sums of rows i and panels v, widened into c[v]. */
static inline __attribute__((always_inline)) void half_tile_widen(const int32_t nv,
                                                                  vec_half sum[TILE_M][2],
                                                                  const float *unscale, float *c[2],
                                                                  bool keep)
{
#pragma GCC unroll 16
    for (int32_t i = 0; i < TILE_M; i++) {
        vec s = vec_set(unscale[i]);

#pragma GCC unroll 2
        for (int32_t v = 0; v < nv; v++) {
            float *p = c[v] + (size_t)i * TILE_N;

            vec_store(p, vec_fma(vec_half_low(sum[i][v]), s, keep ? vec_load(p) : vec_zero()));
            vec_store(p + VEC_N, vec_fma(vec_half_high(sum[i][v]), s,
                                         keep ? vec_load(p + VEC_N) : vec_zero()));
        }
    }
}

/* Rows of `a` are `row` halves apart, rows of a panel TILE_N. */
static inline __attribute__((always_inline)) void
half_tile_run(const int32_t nv, const uint16_t *a, const size_t row, const uint16_t *const b[2],
              int32_t nk, const float *unscale, float *c[2], bool keep)
{
    for (int32_t k0 = 0; k0 < nk; k0 += HALF_CHUNK, keep = true) {
        int32_t k1 = tsr_min_i32(k0 + HALF_CHUNK, nk);
        const uint16_t *b0 = b[0] + (size_t)k0 * TILE_N, *b1 = b[1] + (size_t)k0 * TILE_N;
        vec_half sum[TILE_M][2];

#pragma GCC unroll 16
        for (int32_t i = 0; i < TILE_M; i++)
            sum[i][0] = sum[i][1] = vec_half_zero();
        for (int32_t k = k0; k < k1; k++, b0 += TILE_N, b1 += TILE_N) {
            vec_half x = vec_half_load(b0), y = nv > 1 ? vec_half_load(b1) : vec_half_zero();

#pragma GCC unroll 16
            for (int32_t i = 0; i < TILE_M; i++) {
                const uint16_t *ak = a + (size_t)i * row + k;

                sum[i][0] = vec_half_fma(sum[i][0], ak, x);
                if (nv > 1)
                    sum[i][1] = vec_half_fma(sum[i][1], ak, y);
            }
        }
        half_tile_widen(nv, sum, unscale, c, keep);
    }
}

#endif
