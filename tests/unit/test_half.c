/* test_half.c -- half and bfloat16 against their definition in double arithmetic. */
#include "base/half.h"

#include <math.h>
#include <string.h>

#include "tests/support/test.h"

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* The value of a half by the formula of IEEE 754. */
static double value_of_half(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 0x3FF;
    double sign = h & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, -24);
    return sign * ldexp(1024 + mantissa, exponent - 25);
}

/* Nearest half, ties to even, by rounding a multiple of the unit in the last place. */
static uint16_t nearest_half(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs((double)x), units;
    int exponent;

    if (isnan(x))
        return (uint16_t)(sign | 0x7E00 | (bits(x) >> 13 & 0x1FF));
    if (a >= 65520)
        return sign | 0x7C00;
    (void)frexp(a, &exponent);
    exponent = exponent < -13 ? -13 : exponent; /* a < 2^exponent; ulp = 2^(exponent-11) */
    units = nearbyint(ldexp(a, 11 - exponent));
    if (units < 1024) /* denormal */
        return (uint16_t)(sign | (int)units);
    return (uint16_t)(sign | (((exponent + 14) << 10) + ((int)units - 1024)));
}

static void half__all_65536__widen_to_their_value(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float x = tsr_f16_to_f32((uint16_t)h);
        double want = value_of_half((uint16_t)h);
        if (isnan(want))
            CHECK(isnan(x) && (bits(x) & 0x00400000) && bits(x) >> 31 == h >> 15);
        else
            CHECK_MSG((double)x == want && !!signbit(x) == (h >> 15), "%04x is %g, not %g", h, x,
                      want);
    }
}

static void half__all_65536__come_back(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t back = tsr_f32_to_f16(tsr_f16_to_f32((uint16_t)h));
        uint32_t quiet = (h & 0x7FFF) > 0x7C00 ? h | 0x0200 : h;
        CHECK_MSG(back == quiet, "%04x comes back as %04x", h, back);
    }
}

static void half__neighbours_of_every_half_and_tie__round_to_nearest_even(void)
{
    for (uint32_t h = 0; h < 0x7C00; h++) {
        float low = tsr_f16_to_f32((uint16_t)h);
        float high = h + 1 < 0x7C00 ? tsr_f16_to_f32((uint16_t)(h + 1)) : 65536.0f;
        float tie = (low + high) / 2;
        uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
        CHECK_MSG(tsr_f32_to_f16(tie) == even, "tie above %04x", h);
        CHECK(tsr_f32_to_f16(-tie) == (even | 0x8000));
        CHECK(tsr_f32_to_f16(nextafterf(tie, 0)) == h);
        CHECK(tsr_f32_to_f16(nextafterf(tie, INFINITY)) == h + 1);
    }
}

static void half__special_floats__narrow_as_documented(void)
{
    static const struct {
        uint32_t in;
        uint16_t out;
    } cases[] = {
        {0x00000000, 0x0000}, {0x80000000, 0x8000},
        {0x3F800000, 0x3C00}, {0x477FE000, 0x7BFF}, /* 65504, the largest */
        {0x477FEFFF, 0x7BFF},                       /* just below 65520 */
        {0x477FF000, 0x7C00},                       /* 65520: the tie goes to infinity */
        {0x7F7FFFFF, 0x7C00}, {0xFF7FFFFF, 0xFC00},
        {0x7F800000, 0x7C00}, {0xFF800000, 0xFC00},
        {0x7F800001, 0x7E00}, /* signalling NaN with a payload that is cut: still a NaN */
        {0xFFC02000, 0xFE01}, {0x7FFFFFFF, 0x7FFF},
        {0x33000000, 0x0000}, /* 2^-25: the tie goes to zero */
        {0x33000001, 0x0001}, {0xB3000001, 0x8001},
        {0x00000001, 0x0000}, {0x387FFFFF, 0x0400}, /* rounds up to the smallest normal half */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint16_t got = tsr_f32_to_f16(from_bits(cases[i].in));
        CHECK_MSG(got == cases[i].out, "%08x gives %04x, not %04x", cases[i].in, got, cases[i].out);
    }
}

static void half__random_floats__round_as_double_arithmetic_says(void)
{
    uint32_t state = 1;

    for (int i = 0; i < 300000; i++) {
        uint32_t r = next_random(&state);
        /* every third: an exponent within the range of halves */
        float x = from_bits(i % 3 ? (r & 0x8FFFFFFF) | 0x30000000 : r);
        CHECK_MSG(tsr_f32_to_f16(x) == nearest_half(x), "%08x", bits(x));
    }
}

static void bfloat__all_65536__widen_and_come_back(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float x = tsr_bf16_to_f32((uint16_t)h);
        uint32_t quiet = (h & 0x7FFF) > 0x7F80 ? h | 0x0040 : h;
        CHECK(bits(x) == h << 16);
        CHECK_MSG(tsr_f32_to_bf16(x) == quiet, "%04x", h);
    }
}

static void bfloat__ties_and_overflow__round_to_nearest_even(void)
{
    for (uint32_t h = 0; h < 0x7F80; h++) {
        uint32_t tie = h << 16 | 0x8000;
        uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
        CHECK(tsr_f32_to_bf16(from_bits(tie)) == even);
        CHECK(tsr_f32_to_bf16(from_bits(tie | 0x80000000)) == (even | 0x8000));
        CHECK(tsr_f32_to_bf16(from_bits(tie - 1)) == h);
        CHECK(tsr_f32_to_bf16(from_bits(tie + 1)) == h + 1);
    }
    CHECK(tsr_f32_to_bf16(from_bits(0x7F7FFFFF)) == 0x7F80);
    CHECK(tsr_f32_to_bf16(from_bits(0x7F800001)) == 0x7FC0);
}

static void half_bulk__every_length_and_offset__equals_one_by_one(void)
{
    enum { MOST = 70 };
    float x[MOST], back[MOST + 1];
    unsigned char raw[2 * MOST + 1];
    uint32_t state = 7;

    for (int i = 0; i < MOST; i++)
        x[i] = from_bits(i % 5 ? (next_random(&state) & 0x8FFFFFFF) | 0x30000000
                               : next_random(&state));
    for (size_t n = 0; n <= MOST; n++) {
        uint16_t narrow[MOST + 1] = {0};
        narrow[n] = 0xABCD;
        tsr_from_f32(narrow, TSR_F16, x, n);
        for (size_t i = 0; i < n; i++)
            CHECK(narrow[i] == tsr_f32_to_f16(x[i]));
        CHECK(narrow[n] == 0xABCD);
        memcpy(raw + 1, narrow, 2 * n); /* an odd address */
        back[n] = 42;
        tsr_to_f32(back, raw + 1, TSR_F16, n);
        for (size_t i = 0; i < n; i++)
            CHECK(bits(back[i]) == bits(tsr_f16_to_f32(narrow[i])));
        CHECK(back[n] == 42);
        tsr_from_f32(narrow, TSR_BF16, x, n);
        tsr_to_f32(back, narrow, TSR_BF16, n);
        for (size_t i = 0; i < n; i++)
            CHECK(narrow[i] == tsr_f32_to_bf16(x[i]) && bits(back[i]) == (uint32_t)narrow[i] << 16);
        CHECK(back[n] == 42);
        tsr_from_f32(back, TSR_F32, x, n);
        CHECK(memcmp(back, x, n * sizeof *x) == 0 && back[n] == 42);
    }
}

static void half_bulk__all_halves__equal_the_scalar_code(void)
{
    static uint16_t h[65536], again[65536];
    static float x[65536];

    for (uint32_t i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    tsr_to_f32(x, h, TSR_F16, 65536);
    tsr_from_f32(again, TSR_F16, x, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
        CHECK(bits(x[i]) == bits(tsr_f16_to_f32(h[i])));
        CHECK(again[i] == tsr_f32_to_f16(x[i]));
    }
}

static void half_bulk__integers_and_doubles__convert_by_value(void)
{
    static const int8_t i8[] = {-128, 127};
    static const uint8_t u8[] = {0, 255}, flags[] = {0, 2};
    static const int16_t i16[] = {-32768, 32767};
    static const uint16_t u16[] = {1, 65535};
    static const int32_t i32[] = {-2147483647 - 1, 16777217};
    static const uint32_t u32[] = {4294967295u, 3};
    static const int64_t i64[] = {-((int64_t)1 << 62), 5};
    static const uint64_t u64[] = {UINT64_MAX, 6};
    static const double f64[] = {1e300, 0.1};
    static const float f32[] = {1.5f, -2};
    static const struct {
        tsr_dtype d;
        const void *src;
        float want[2];
    } cases[] = {
        {TSR_I8, i8, {-128, 127}},    {TSR_U8, u8, {0, 255}},
        {TSR_BOOL, flags, {0, 1}},    {TSR_I16, i16, {-32768, 32767}},
        {TSR_U16, u16, {1, 65535}},   {TSR_I32, i32, {-0x1p31f, 16777216}},
        {TSR_U32, u32, {0x1p32f, 3}}, {TSR_I64, i64, {-0x1p62f, 5}},
        {TSR_U64, u64, {0x1p64f, 6}}, {TSR_F64, f64, {INFINITY, 0.1f}},
        {TSR_F32, f32, {1.5f, -2}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float got[2];
        tsr_to_f32(got, cases[i].src, cases[i].d, 2);
        CHECK_MSG(memcmp(got, cases[i].want, sizeof got) == 0, "%s: %g %g",
                  tsr_dtype_name(cases[i].d), got[0], got[1]);
    }
}

static void dtype__every_one__has_a_size_and_a_name(void)
{
    static const struct {
        tsr_dtype d;
        size_t size;
        const char *name;
    } cases[] = {
        {TSR_DTYPE_NONE, 0, "none"}, {TSR_F32, 4, "F32"},   {TSR_F16, 2, "F16"},
        {TSR_BF16, 2, "BF16"},       {TSR_F64, 8, "F64"},   {TSR_I8, 1, "I8"},
        {TSR_U8, 1, "U8"},           {TSR_I16, 2, "I16"},   {TSR_U16, 2, "U16"},
        {TSR_I32, 4, "I32"},         {TSR_U32, 4, "U32"},   {TSR_I64, 8, "I64"},
        {TSR_U64, 8, "U64"},         {TSR_BOOL, 1, "BOOL"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(tsr_dtype_size(cases[i].d) == cases[i].size);
        CHECK(strcmp(tsr_dtype_name(cases[i].d), cases[i].name) == 0);
    }
    CHECK(tsr_dtype_size((tsr_dtype)99) == 0 && strcmp(tsr_dtype_name((tsr_dtype)99), "none") == 0);
}

int main(void)
{
    RUN(half__all_65536__widen_to_their_value);
    RUN(half__all_65536__come_back);
    RUN(half__neighbours_of_every_half_and_tie__round_to_nearest_even);
    RUN(half__special_floats__narrow_as_documented);
    RUN(half__random_floats__round_as_double_arithmetic_says);
    RUN(bfloat__all_65536__widen_and_come_back);
    RUN(bfloat__ties_and_overflow__round_to_nearest_even);
    RUN(half_bulk__every_length_and_offset__equals_one_by_one);
    RUN(half_bulk__all_halves__equal_the_scalar_code);
    RUN(half_bulk__integers_and_doubles__convert_by_value);
    RUN(dtype__every_one__has_a_size_and_a_name);
    return test_end();
}
