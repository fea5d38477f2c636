/* vec_avx2.h -- the vector that the shared bodies are written against: 8 floats, AVX2 + FMA + F16C.
 *
 * Every tier has such a header with the same names: kernels/cpu/<op>_body.h is compiled once a tier
 * against it. All operations are lane by lane (a lane's result never depends on its neighbours),
 * except the two reductions at the end, whose order is written down there. `_n` forms touch the
 * first n < VEC_N elements only; loads fill the rest with zero. Half conversions round to nearest
 * even, as base/half.h does. */
#ifndef TSR_KERNELS_CPU_VEC_AVX2_H
#define TSR_KERNELS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    VEC_N = 8,
    TILE_M = 6 /* rows of the register tile: 12 sums + 2 columns + 1 broadcast of 16 registers */
};
typedef __m256 vec;

static inline vec vec_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vec vec_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vec_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}
static inline vec vec_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void vec_store_f16(uint16_t *p, vec v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vec vec_load_n(const float *p, int32_t n)
{
    float t[8] = {0};

    for (int32_t i = 0; i < n; i++)
        t[i] = p[i];
    return _mm256_loadu_ps(t);
}
static inline vec vec_load_f16_n(const uint16_t *p, int32_t n)
{
    uint16_t t[8] = {0};

    for (int32_t i = 0; i < n; i++)
        t[i] = p[i];
    return vec_load_f16(t);
}
static inline void vec_store_n(float *p, vec v, int32_t n)
{
    float t[8];

    _mm256_storeu_ps(t, v);
    memcpy(p, t, (size_t)n * sizeof *p);
}
static inline void vec_store_f16_n(uint16_t *p, vec v, int32_t n)
{
    uint16_t t[8];

    vec_store_f16(t, v);
    memcpy(p, t, (size_t)n * sizeof *p);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
static inline vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
static inline vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
static inline vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}
static inline vec vec_fma(vec a, vec b, vec c) /* a * b + c */
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vec vec_max(vec a, vec b) /* b where either is NaN */
{
    return _mm256_max_ps(a, b);
}
static inline vec vec_min(vec a, vec b) /* b where either is NaN */
{
    return _mm256_min_ps(a, b);
}
static inline vec vec_abs(vec a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline vec vec_round(vec a) /* to an integer, ties to even */
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT);
}
static inline vec vec_pow2(vec n) /* 2^n for integers -126..127 */
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
/* p * 2^n, given n + 1.5 * 2^23 (the float whose low bits are n); both must be normal */
static inline vec vec_scale(vec p, vec n_shifted)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(
        _mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(n_shifted), 23)));
}
static inline bool vec_any_less(vec a, vec b) /* in any lane */
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)) != 0;
}
static inline vec vec_if_less(vec a, vec b, vec x, vec y) /* a < b ? x : y; y where NaN */
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

/* Lanes of a and b in turn: *a gets a0 b0 a1 .. of the lower halves, *b those of the upper. */
static inline void vec_zip(vec *a, vec *b)
{
    __m256 lo = _mm256_unpacklo_ps(*a, *b), hi = _mm256_unpackhi_ps(*a, *b);

    *a = _mm256_permute2f128_ps(lo, hi, 0x20);
    *b = _mm256_permute2f128_ps(lo, hi, 0x31);
}

/* ((0+4) + (2+6)) + ((1+5) + (3+7)) */
static inline float vec_sum(vec a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

#endif
