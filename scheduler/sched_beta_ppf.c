/* sched_beta_ppf.c -- the inverse of the regularised incomplete beta function.
 *
 * I_x(a, b) is the beta distribution's probability below x. It is computed by its continued
 * fraction (Abramowitz and Stegun 26.5.8, evaluated by Lentz's method), which converges fast below
 * x = (a + 1) / (a + b + 2), and above that from I_x(a, b) = 1 - I_{1-x}(b, a). The inverse is
 * bracketed in [0, 1] and found by Newton steps that fall back to bisection whenever they would
 * leave the bracket; for p above one half it is mirrored, so that both tails keep their relative
 * precision. Good to 1e-13 for the a = b = 0.6 of the beta sigma table. */
#include "scheduler/scheduler_internal.h"

static double beta_fraction(double x, double a, double b)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1), f;

    d = 1 / (fabs(d) < tiny ? tiny : d);
    f = d;
    for (int32_t m = 1; m < 500; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));

        d = 1 / (1 + even * d);
        c = 1 + even / c;
        f *= d * c;
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        f *= d * c;
        if (fabs(d * c - 1) < 1e-16)
            break;
    }
    return f;
}

/* exp of the logarithm of x^a (1-x)^b / B(a, b). */
static double beta_power(double x, double a, double b)
{
    return exp(a * log(x) + b * log1p(-x) + lgamma(a + b) - lgamma(a) - lgamma(b));
}

static double beta_cdf(double x, double a, double b)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    if (x > (a + 1) / (a + b + 2))
        return 1 - beta_power(1 - x, b, a) * beta_fraction(1 - x, b, a) / b;
    return beta_power(x, a, b) * beta_fraction(x, a, b) / a;
}

double tsr_sched_beta_ppf(double p, double a, double b)
{
    double low = 0, high = 1, x;

    if (p <= 0 || p >= 1)
        return p <= 0 ? 0 : 1;
    if (p > 0.5)
        return 1 - tsr_sched_beta_ppf(1 - p, b, a);
    x = 0.25;
    for (int32_t i = 0; i < 200; i++) {
        const double excess = beta_cdf(x, a, b) - p;
        const double slope = beta_power(x, a, b) / (x * (1 - x));
        double next = x - excess / slope;

        if (excess > 0)
            high = x;
        else
            low = x;
        if (!(next > low && next < high))
            next = low + (high - low) / 2;
        if (fabs(next - x) <= 1e-16 * x)
            break;
        x = next;
    }
    return x;
}
