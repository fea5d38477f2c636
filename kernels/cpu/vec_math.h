/* vec_math.h -- exp and the activations, written once against vec_<isa>.h (include that first).
 *
 * exp(x) = 2^n * e^r with n = round(x / ln 2), |r| <= ln(2)/2, and e^r = 1 + r + r^2 q(r): q has
 * degree 4, its minimax error is 4e-10 of e^r, so rounding dominates: measured at most 1.3 ulp.
 *
 * exp2 for the softmax, whose arguments are at most 0: 2^r = 1 + r q(r), |r| <= 1/2, q of degree 4;
 * minimax error 9e-8, with rounding at most 1.4 ulp. Half the instructions of exp.
 *
 * gelu(x) = x * Phi(x), Phi the normal distribution: Phi = 1/2 + x * a(x^2) for |x| < 1.25, and
 * Phi(-|x|) = e^-b(|x|) beyond (b = -ln Phi is nearly a parabola), which keeps the small values
 * at negative x that 1 + erf would lose. Where Phi(-|x|) < 2^-34, at |x| > 6.4, it is 0: gelu's
 * error there is below 5e-10.
 *
 * The coefficients are weighted minimax fits made for this file with Lawson's iteration
 * (errors: a 5e-11, b 1e-10 of gelu). NaN goes through every function. */
#ifndef TSR_KERNELS_CPU_VEC_MATH_H
#define TSR_KERNELS_CPU_VEC_MATH_H

#include "kernels/tape.h"

static inline vec vec_exp_below(vec x) /* x <= 88.3, or NaN */
{
    /* ln 2 in two parts: n * ln2_hi is exact for |n| < 2^8 */
    const vec log2e = vec_set(1.44269504f), ln2_hi = vec_set(-0x1.62e4p-1f),
              ln2_lo = vec_set(-0x1.7f7d1cp-20f), lo = vec_set(-87.3f);
    vec in = vec_max(lo, x);
    vec n = vec_round(vec_mul(in, log2e));
    vec r = vec_fma(n, ln2_lo, vec_fma(n, ln2_hi, in));
    vec q = vec_set(0.0013813095f);

    q = vec_fma(q, r, vec_set(0.0083694166f));
    q = vec_fma(q, r, vec_set(0.041668457f));
    q = vec_fma(q, r, vec_set(0.16666515f));
    q = vec_fma(q, r, vec_set(0.49999993f));
    q = vec_fma(vec_mul(r, r), q, vec_add(r, vec_set(1.0f)));
    return vec_if_less(x, lo, vec_zero(), vec_mul(q, vec_pow2(n)));
}

/* 2^r times 2^n, n given as n + 1.5 * 2^23 */
static inline vec vec_exp2_part(vec r, vec n)
{
    vec q = vec_set(0.0013264727f);

    q = vec_fma(q, r, vec_set(0.009671513f));
    q = vec_fma(q, r, vec_set(0.055507336f));
    q = vec_fma(q, r, vec_set(0.24022242f));
    q = vec_fma(q, r, vec_set(0.693147f));
    q = vec_fma(q, r, vec_set(1.0f));
    return vec_scale(q, n);
}

/* 2^x for x <= 0, or NaN; 2^-125 for all below -125, -inf included. n is rounded by adding
 * 1.5 * 2^23, after which its integer lies in the low bits, ready for the exponent. */
static inline vec vec_exp2_below(vec x)
{
    const vec shift = vec_set(0x1.8p23f);
    vec in = vec_max(vec_set(-125.0f), x);
    vec n = vec_add(in, shift);

    return vec_exp2_part(vec_sub(in, vec_sub(n, shift)), n);
}

/* e^x = 2^n e^r, r in units of ln 2 from there on; n * ln2_hi is exact for |n| < 2^8. inf
 * above 88.3, 2^-125 below -86.6. */
static inline vec vec_exp(vec x)
{
    const vec shift = vec_set(0x1.8p23f), hi = vec_set(88.3f), log2e = vec_set(1.44269504f),
              ln2_hi = vec_set(-0x1.62e4p-1f), ln2_lo = vec_set(-0x1.7f7d1cp-20f);
    vec in = vec_max(vec_set(-86.6f), vec_min(hi, x));
    vec n = vec_fma(in, log2e, shift), whole = vec_sub(n, shift);
    vec r = vec_fma(whole, ln2_lo, vec_fma(whole, ln2_hi, in));

    return vec_if_less(hi, x, vec_set(__builtin_inff()), vec_exp2_part(vec_mul(r, log2e), n));
}

static inline vec vec_silu(vec x)
{
    return vec_div(x, vec_add(vec_set(1.0f), vec_exp(vec_sub(vec_zero(), x))));
}

static inline vec vec_quick_gelu(vec x)
{
    return vec_div(x, vec_add(vec_set(1.0f), vec_exp(vec_mul(vec_set(-1.702f), x))));
}

static inline vec vec_gelu(vec x)
{
    const vec half = vec_set(0.5f), one = vec_set(1.0f);
    vec a = vec_abs(x), s = vec_mul(x, x), p, b, tail;

    p = vec_set(4.659566e-7f);
    p = vec_fma(p, s, vec_set(-9.006664e-6f));
    p = vec_fma(p, s, vec_set(1.1493009e-4f));
    p = vec_fma(p, s, vec_set(-1.1870128e-3f));
    p = vec_fma(p, s, vec_set(9.973455e-3f));
    p = vec_fma(p, s, vec_set(-6.6490366e-2f));
    p = vec_fma(p, s, vec_set(0.39894228f));
    p = vec_fma(p, x, half);

    b = vec_set(-1.82762926e-6f);
    b = vec_fma(b, a, vec_set(5.36725083e-5f));
    b = vec_fma(b, a, vec_set(-7.32787291e-4f));
    b = vec_fma(b, a, vec_set(6.26215621e-3f));
    b = vec_fma(b, a, vec_set(-3.82426060e-2f));
    b = vec_fma(b, a, vec_set(-0.316726764f));
    b = vec_fma(b, a, vec_set(-0.798649319f));
    b = vec_fma(b, a, vec_set(-0.692984039f));
    tail = vec_if_less(vec_set(6.4f), a, vec_zero(), vec_exp_below(b));
    tail = vec_if_less(x, vec_zero(), tail, vec_sub(one, tail));
    return vec_mul(x, vec_if_less(a, vec_set(1.25f), p, tail));
}

static inline vec vec_act(tsr_act act, vec x)
{
    switch (act) {
    case TSR_ACT_SILU:
        return vec_silu(x);
    case TSR_ACT_GELU:
        return vec_gelu(x);
    case TSR_ACT_QUICK_GELU:
        return vec_quick_gelu(x);
    case TSR_ACT_NONE:
        break;
    }
    return x;
}

#endif
