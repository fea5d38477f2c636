/* half.c -- half and bfloat16 conversions that vectorise.
 *
 * Both directions of half are written without branches: every range's answer is computed and the
 * right one selected, which compilers turn into SIMD compares and masks at any instruction set
 * (checkpoints of 2 GB go through here). Denormal halves use one exact float addition
 * of a power of two in place of a variable shift; its operands and result are normal floats or
 * zero, so flush-to-zero modes and denormal stalls do not touch it.
 *
 *     half      1 sign, 5 exponent (bias 15), 10 mantissa bits; largest 65504
 *     bfloat16  the upper 16 bits of a float32
 *
 * NaNs keep the upper bits of their payload and become quiet, as the F16C instructions do: the
 * tiers' faster copies are compared bit for bit with this file. */
#include "base/half.h"

#include <stdbool.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor data is little-endian"
#endif

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* A choice as arithmetic: written with `?:`, gcc moves the float addition into a branch and then
 * does not vectorise (measured: 0.5 against 1.6 elements a nanosecond). */
static inline int32_t choose(bool yes, int32_t a, int32_t b)
{
    int32_t mask = -(int32_t)yes;

    return (a & mask) | (b & ~mask);
}

static inline float widen_f16(uint16_t h)
{
    const int32_t rebias = 112 << 23; /* 127 - 15 */
    const int32_t smallest_normal = 0x0400, infinity = 0x7C00;
    int32_t magnitude = h & 0x7FFF;
    int32_t normal = (magnitude << 13) + rebias;
    /* (2^-14 + m * 2^-24) - 2^-14 */
    float tiny = float_of((uint32_t)(normal + (1 << 23))) - 0x1p-14f;
    int32_t r = choose(magnitude < smallest_normal, (int32_t)bits_of(tiny), normal);

    r += magnitude >= infinity ? rebias : 0;
    r |= magnitude > infinity ? 0x00400000 : 0;
    return float_of((uint32_t)r | (uint32_t)(h & 0x8000) << 16);
}

static inline uint16_t narrow_f16(float x)
{
    const int32_t rebias = 112 << 23;
    const int32_t two_to_16 = 0x47800000, smallest_normal = 0x38800000, infinity = 0x7F800000;
    uint32_t u = bits_of(x);
    int32_t a = (int32_t)(u & 0x7FFFFFFF);
    /* Rounds to even by carry: what rounds up past 65504 lands on infinity's pattern. */
    int32_t normal = (a - rebias + 0xFFF + ((a >> 13) & 1)) >> 13;
    /* Half a unit of 0.5f is half a unit of a denormal half: the addition rounds. */
    int32_t tiny = (int32_t)(bits_of(float_of((uint32_t)a) + 0.5f) - bits_of(0.5f));
    int32_t nan = 0x7E00 | ((a >> 13) & 0x1FF);
    int32_t r = choose(a < smallest_normal, tiny, normal);

    r = choose(a >= two_to_16, 0x7C00, r);
    r = choose(a > infinity, nan, r);
    return (uint16_t)((uint32_t)r | (u >> 16 & 0x8000));
}

static inline uint16_t narrow_bf16(float x)
{
    uint32_t u = bits_of(x);
    uint32_t rounded = (u + 0x7FFF + (u >> 16 & 1)) >> 16;
    uint32_t nan = u >> 16 | 0x0040;

    return (uint16_t)((int32_t)(u & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}

static inline float widen_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t tsr_f32_to_f16(float x)
{
    return narrow_f16(x);
}

float tsr_f16_to_f32(uint16_t h)
{
    return widen_f16(h);
}

uint16_t tsr_f32_to_bf16(float x)
{
    return narrow_bf16(x);
}

float tsr_bf16_to_f32(uint16_t h)
{
    return widen_bf16(h);
}

size_t tsr_dtype_size(tsr_dtype d)
{
    static const unsigned char sizes[] = {
        [TSR_F32] = 4, [TSR_F16] = 2, [TSR_BF16] = 2, [TSR_F64] = 8, [TSR_I8] = 1,
        [TSR_U8] = 1,  [TSR_I16] = 2, [TSR_U16] = 2,  [TSR_I32] = 4, [TSR_U32] = 4,
        [TSR_I64] = 8, [TSR_U64] = 8, [TSR_BOOL] = 1,
    };

    return (size_t)d < sizeof sizes ? sizes[d] : 0;
}

const char *tsr_dtype_name(tsr_dtype d)
{
    static const char *const names[] = {
        [TSR_DTYPE_NONE] = "none", [TSR_F32] = "F32",   [TSR_F16] = "F16", [TSR_BF16] = "BF16",
        [TSR_F64] = "F64",         [TSR_I8] = "I8",     [TSR_U8] = "U8",   [TSR_I16] = "I16",
        [TSR_U16] = "U16",         [TSR_I32] = "I32",   [TSR_U32] = "U32", [TSR_I64] = "I64",
        [TSR_U64] = "U64",         [TSR_BOOL] = "BOOL",
    };

    return (size_t)d < sizeof names / sizeof names[0] ? names[d] : "none";
}

/* Source elements may lie at any address (a buffer cut out of a file): they are loaded as bytes. */
#define WIDEN_EACH(type, expr)                                                                     \
    for (size_t i = 0; i < n; i++) {                                                               \
        type v;                                                                                    \
        memcpy(&v, bytes + i * sizeof v, sizeof v);                                                \
        dst[i] = (expr);                                                                           \
    }                                                                                              \
    break

void tsr_to_f32(float *restrict dst, const void *restrict src, tsr_dtype d, size_t n)
{
    const unsigned char *restrict bytes = src;

    switch (d) {
    case TSR_F32:
        memcpy(dst, src, n * sizeof *dst);
        break;
    case TSR_F16:
        WIDEN_EACH(uint16_t, widen_f16(v));
    case TSR_BF16:
        WIDEN_EACH(uint16_t, widen_bf16(v));
    case TSR_F64:
        WIDEN_EACH(double, (float)v);
    case TSR_I8:
        WIDEN_EACH(int8_t, (float)v);
    case TSR_U8:
        WIDEN_EACH(uint8_t, (float)v);
    case TSR_I16:
        WIDEN_EACH(int16_t, (float)v);
    case TSR_U16:
        WIDEN_EACH(uint16_t, (float)v);
    case TSR_I32:
        WIDEN_EACH(int32_t, (float)v);
    case TSR_U32:
        WIDEN_EACH(uint32_t, (float)v);
    case TSR_I64:
        WIDEN_EACH(int64_t, (float)v);
    case TSR_U64:
        WIDEN_EACH(uint64_t, (float)v);
    case TSR_BOOL:
        WIDEN_EACH(uint8_t, v ? 1.0f : 0.0f);
    case TSR_DTYPE_NONE:
        break;
    }
}

void tsr_from_f32(void *restrict dst, tsr_dtype d, const float *restrict src, size_t n)
{
    uint16_t *restrict narrow = dst;

    if (d == TSR_F32)
        memcpy(dst, src, n * sizeof *src);
    else if (d == TSR_F16)
        for (size_t i = 0; i < n; i++)
            narrow[i] = narrow_f16(src[i]);
    else if (d == TSR_BF16)
        for (size_t i = 0; i < n; i++)
            narrow[i] = narrow_bf16(src[i]);
}
