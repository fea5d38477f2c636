/* immintrin.h -- the AVX-512 intrinsics in portable C, for tests on machines without them.
 *
 * The test build puts this folder ahead of the system's headers and compiles the avx512 tier once
 * more: SIMDe supplies the intrinsics under their own names, and what its version 0.7 lacks follows
 * here, in plain loops over the same meaning. Never part of the library. */
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

#endif
