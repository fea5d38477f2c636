/* immintrin.h -- the AVX-512 intrinsics in portable C, for tests on machines without them.
 *
 * The test build puts this folder ahead of the system's headers and compiles the avx512 and
 * avx512fp16 tiers once more: SIMDe supplies the intrinsics under their own names, and what its
 * version 0.7 lacks follows here, in plain loops over the same meaning. Never part of the library.
 *
 * Halves in arithmetic are kept as floats that a half can hold. A multiply-add of halves is
 * computed in double and rounded to half once more, which is the single rounding of the
 * instruction: a product of halves is exact in double, and where the sum is not (its bits span more
 * than 53), the product is far below half a step of the other term, so no sum comes near a
 * midpoint of halves by the first rounding. */
#ifndef TSR_TESTS_SIMDE_IMMINTRIN_H
#define TSR_TESTS_SIMDE_IMMINTRIN_H

#include <stdint.h>
#include <string.h>

#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include "base/half.h"

static inline __m512 simde_extra_cvtph_ps(__m256i a)
{
    uint16_t h[16];
    float f[16];

    memcpy(h, &a, sizeof h);
    for (int i = 0; i < 16; i++)
        f[i] = tsr_f16_to_f32(h[i]);
    return _mm512_loadu_ps(f);
}

static inline __m256i simde_extra_cvtps_ph(__m512 a)
{
    uint16_t h[16];
    float f[16];
    __m256i r;

    _mm512_storeu_ps(f, a);
    for (int i = 0; i < 16; i++)
        h[i] = tsr_f32_to_f16(f[i]);
    memcpy(&r, h, sizeof r);
    return r;
}

static inline __m512i simde_extra_cvtps_epi32(__m512 a)
{
    int32_t n[16];
    float f[16];
    __m512i r;

    _mm512_storeu_ps(f, a);
    for (int i = 0; i < 16; i++) /* out of range: the value that the instruction gives */
        n[i] = f[i] > -2147483648.0f && f[i] < 2147483648.0f ? (int32_t)simde_math_nearbyintf(f[i])
                                                             : INT32_MIN;
    memcpy(&r, n, sizeof r);
    return r;
}

static inline __m512 simde_extra_maskz_loadu_ps(unsigned mask, const float *p)
{
    float f[16] = {0};

    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            f[i] = p[i];
    return _mm512_loadu_ps(f);
}

static inline void simde_extra_mask_storeu_ps(float *p, unsigned mask, __m512 a)
{
    float f[16];

    _mm512_storeu_ps(f, a);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            p[i] = f[i];
}

static inline __m256 simde_extra_extractf32x8_ps(__m512 a, int half)
{
    __m256 r;

    memcpy(&r, (const char *)&a + (half ? sizeof r : 0), sizeof r);
    return r;
}

static inline __m256i simde_extra_maskz_loadu_epi16(unsigned mask, const uint16_t *p)
{
    uint16_t h[16] = {0};
    __m256i r;

    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            h[i] = p[i];
    memcpy(&r, h, sizeof r);
    return r;
}

static inline void simde_extra_mask_storeu_epi16(uint16_t *p, unsigned mask, __m256i a)
{
    uint16_t h[16];

    memcpy(h, &a, sizeof h);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            p[i] = h[i];
}

typedef struct simde_extra_m512h {
    float v[32];
} simde_extra_m512h;

static inline simde_extra_m512h simde_extra_setzero_ph(void)
{
    return (simde_extra_m512h){{0}};
}

static inline simde_extra_m512h simde_extra_loadu_ph(const void *p)
{
    simde_extra_m512h r;
    uint16_t h[32];

    memcpy(h, p, sizeof h);
    for (int i = 0; i < 32; i++)
        r.v[i] = tsr_f16_to_f32(h[i]);
    return r;
}

static inline simde_extra_m512h simde_extra_set1_ph(uint16_t h)
{
    simde_extra_m512h r;
    float x = tsr_f16_to_f32(h);

    for (int i = 0; i < 32; i++)
        r.v[i] = x;
    return r;
}

/* Rounds to a multiple of the step that halves have at x by adding and taking away a number that
 * has no finer bits. */
static inline simde_extra_m512h simde_extra_fmadd_ph(simde_extra_m512h a, simde_extra_m512h b,
                                                     simde_extra_m512h c)
{
    double x[32], power[32];
    uint64_t bits[32];

    for (int i = 0; i < 32; i++)
        x[i] = (double)a.v[i] * (double)b.v[i] + (double)c.v[i];
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 32; i++)
        bits[i] &= 0x7FF0000000000000u; /* the power of two at or under |x| */
    memcpy(power, bits, sizeof power);
    for (int i = 0; i < 32; i++) {
        double step = power[i] * 0x1p-10 > 0x1p-24 ? power[i] * 0x1p-10 : 0x1p-24;
        double magic = step * 0x1.8p52, r = (x[i] + magic) - magic;

        r = __builtin_fabs(x[i]) < 65520 ? r : x[i] * (double)__builtin_inff(); /* NaN stays NaN */
        c.v[i] = (float)__builtin_copysign(r, x[i]);
    }
    return c;
}

static inline __m512i simde_extra_castph_si512(simde_extra_m512h a)
{
    uint16_t h[32];
    __m512i r;

    for (int i = 0; i < 32; i++)
        h[i] = tsr_f32_to_f16(a.v[i]);
    memcpy(&r, h, sizeof r);
    return r;
}

#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#undef _mm512_cvtps_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm256_maskz_loadu_epi16
#undef _mm256_mask_storeu_epi16
#define __mmask16 simde__mmask16
#define _mm512_cvtph_ps(a) simde_extra_cvtph_ps(a)
#define _mm512_cvtps_ph(a, rounding) simde_extra_cvtps_ph(a) /* rounds to nearest even */
#define _mm512_cvtps_epi32(a) simde_extra_cvtps_epi32(a)
#define _mm512_extractf32x8_ps(a, half) simde_extra_extractf32x8_ps(a, half)
#define _mm512_maskz_loadu_ps(mask, p) simde_extra_maskz_loadu_ps(mask, p)
#define _mm512_mask_storeu_ps(p, mask, a) simde_extra_mask_storeu_ps(p, mask, a)
#define _mm256_maskz_loadu_epi16(mask, p) simde_extra_maskz_loadu_epi16(mask, p)
#define _mm256_mask_storeu_epi16(p, mask, a) simde_extra_mask_storeu_epi16(p, mask, a)
#define __m512h simde_extra_m512h
#define _mm512_setzero_ph() simde_extra_setzero_ph()
#define _mm512_loadu_ph(p) simde_extra_loadu_ph(p)
#define _mm512_fmadd_ph(a, b, c) simde_extra_fmadd_ph(a, b, c)
#define _mm512_castph_si512(a) simde_extra_castph_si512(a)

#endif
