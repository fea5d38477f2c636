/* num.h -- arithmetic on sizes that cannot wrap, and small integer helpers. */
#ifndef TSR_BASE_NUM_H
#define TSR_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns false on overflow and then leaves *out alone. */
static inline bool tsr_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool tsr_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline size_t tsr_align_up(size_t x, size_t a) /* a is a power of two */
{
    return (x + a - 1) & ~(a - 1);
}
static inline int32_t tsr_div_up(int32_t a, int32_t b)
{
    return (a + b - 1) / b;
}
static inline size_t tsr_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t tsr_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}
static inline int32_t tsr_min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}
static inline int32_t tsr_max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

#endif
