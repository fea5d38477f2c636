/* vec_avx512fp16.h -- vec_avx512.h and, for products of halves, a vector of 32 of them.
 *
 * Its multiply-add takes one factor as a broadcast element from memory, by inline assembly: with
 * intrinsics compilers broadcast 16 bits in an instruction of its own, which runs on one of the two
 * ports that multiply-adds need (about 400 GFLOP/s instead of 520 to 630 on two cores of Sapphire
 * Rapids). The test build has the same names in portable C (tests/simde). */
#ifndef TSR_KERNELS_CPU_VEC_AVX512FP16_H
#define TSR_KERNELS_CPU_VEC_AVX512FP16_H

#include "kernels/cpu/vec_avx512.h"

typedef __m512h vec_half; /* 2 VEC_N halves */

static inline vec_half vec_half_zero(void)
{
    return _mm512_setzero_ph();
}
static inline vec_half vec_half_load(const uint16_t *p)
{
    return _mm512_loadu_ph(p);
}

/* sum + *a * b, each lane rounded once */
static inline vec_half vec_half_fma(vec_half sum, const uint16_t *a, vec_half b)
{
#if defined(__AVX512FP16__)
    __asm__("vfmadd231ph %2%{1to32%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*a));
    return sum;
#else
    return _mm512_fmadd_ph(simde_extra_set1_ph(*a), b, sum);
#endif
}

/* The first and the second VEC_N lanes as floats. */
static inline vec vec_half_low(vec_half a)
{
    return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_castph_si512(a)));
}
static inline vec vec_half_high(vec_half a)
{
    return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(_mm512_castph_si512(a), 1));
}

#endif
