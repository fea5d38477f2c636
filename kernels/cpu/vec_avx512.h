/* vec_avx512.h -- the vector that the shared bodies are written against: 16 floats, AVX-512 F, BW,
 * DQ and VL. The names and their meaning are those of vec_avx2.h.
 *
 * The test build compiles this tier a second time with tests/simde ahead of the system's headers:
 * its immintrin.h gives the same intrinsics in portable C. */
#ifndef TSR_KERNELS_CPU_VEC_AVX512_H
#define TSR_KERNELS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    VEC_N = 16,
    TILE_M = 12 /* rows of the register tile: 24 sums + 2 columns + 1 broadcast of 32 registers */
};
typedef __m512 vec;

static inline __mmask16 vec_mask(int32_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

static inline vec vec_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vec vec_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vec_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}
static inline vec vec_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void vec_store_f16(uint16_t *p, vec v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vec vec_load_n(const float *p, int32_t n)
{
    return _mm512_maskz_loadu_ps(vec_mask(n), p);
}
static inline vec vec_load_f16_n(const uint16_t *p, int32_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vec_mask(n), p));
}
static inline void vec_store_n(float *p, vec v, int32_t n)
{
    _mm512_mask_storeu_ps(p, vec_mask(n), v);
}
static inline void vec_store_f16_n(uint16_t *p, vec v, int32_t n)
{
    _mm256_mask_storeu_epi16(p, vec_mask(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
static inline vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
static inline vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
static inline vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
static inline vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}
static inline vec vec_abs(vec a)
{
    return _mm512_abs_ps(a);
}
static inline vec vec_round(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT);
}
static inline vec vec_pow2(vec n)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
static inline vec vec_scale(vec p, vec n_shifted)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(n_shifted), 23)));
}
static inline bool vec_any_less(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) != 0;
}
static inline vec vec_if_less(vec a, vec b, vec x, vec y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

static inline void vec_zip(vec *a, vec *b)
{
    const __m512i lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    vec lo = _mm512_permutex2var_ps(*a, lower, *b);

    *b = _mm512_permutex2var_ps(*a, _mm512_add_epi32(lower, _mm512_set1_epi32(8)), *b);
    *a = lo;
}

/* Upper half onto lower half, then as in vec_avx2.h. */
static inline float vec_sum(vec a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

#endif
