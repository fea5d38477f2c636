/* rng.h -- the noise of torch's generators, number for number.
 *
 * TSR_RNG_TORCH_CPU: mt19937 seeded with the low 32 bits of the seed, and both normal paths
 * of torch.randn (n >= 16: Box-Muller over groups of 16 float32 uniforms, the last 16 drawn
 * again when n is no multiple of 16; n < 16: doubles one by one, the second of a pair kept
 * across calls). Agrees with torch within 2e-6 (its own SIMD and scalar kernels differ by
 * that much). TSR_RNG_TORCH_CUDA: Philox4x32-10 as torch.randn(device="cuda").
 * Source: torch's published algorithms; shared/reference/README.md describes both. */
#ifndef TSR_BASE_RNG_H
#define TSR_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "tessera.h"

typedef struct tsr_rng {
    tsr_rng_kind kind;
    uint64_t seed;
    uint32_t mt[624];
    int32_t mt_index;
    int32_t has_next; /* torch's cached second normal of the double path */
    double next;
    uint64_t philox_offset;
    /* T of the GPU that is imitated; 0 (seed sets it): one as large as every draw, and then the
     * numbers are those of every GPU whose T is not below the number of elements. */
    size_t philox_threads;
} tsr_rng;

void tsr_rng_seed(tsr_rng *r, tsr_rng_kind kind, uint64_t seed);
uint32_t tsr_rng_u32(tsr_rng *r); /* raw word of mt19937 (TORCH_CPU only) */
void tsr_rng_uniform(tsr_rng *r, float *dst,
                     size_t n); /* torch.rand: (word & 0xFFFFFF) * 2^-24 (TORCH_CPU only) */
void tsr_rng_normal(tsr_rng *r, float *dst, size_t n); /* torch.randn of n elements in one call */

#endif
