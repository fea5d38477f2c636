/* sched_sigmas.c -- sigma tables: interpolated, Karras, exponential, beta, uniform in lambda.
 *
 * sigma(t) = sqrt((1 - a) / a) of the training schedule's cumulative products a, in float32. The
 * default table interpolates it at the spaced timesteps; the others lay n sigmas between two ends
 * (arXiv 2206.00364 eq. 5 with rho 7; geometric; 2407.12173; 2206.00927) and look the timesteps up
 * in the logarithms of the training sigmas. Tables are double, rounded to float32 at the end.
 * Some timesteps are then rounded or cut to whole numbers, so a last-bit difference in a float32
 * logarithm can move a timestep by one: that is why tsr_sched_logf follows numpy's own. */
#include "scheduler/scheduler_internal.h"

/* numpy's vector kernel: log of the mantissa in [sqrt(1/2), sqrt(2)) as a ratio of two polynomials
 * of degree 5 (minimax), fused multiply-adds throughout. Equal to it bit for bit for x > 0. */
float tsr_sched_logf(float x)
{
    static const float p[] = {0,
                              1,
                              2.112677543073053063722e+00f,
                              1.480000633576506585156e+00f,
                              3.808837741388407920751e-01f,
                              2.589979117907922693523e-02f};
    static const float q[] = {1,
                              2.612677543073109236779e+00f,
                              2.453006071784736363091e+00f,
                              9.864942958519418960339e-01f,
                              1.546476374983906719538e-01f,
                              5.875095403124574342950e-03f};
    float over = p[5], under = q[5], m;
    int exponent;

    if (!(x > 0) || isinf(x))
        return logf(x);
    m = frexpf(x, &exponent);
    if (m <= (float)M_SQRT1_2) {
        m += m;
        exponent--;
    }
    m -= 1;
    for (int32_t i = 4; i >= 0; i--) {
        over = fmaf(over, m, p[i]);
        under = fmaf(under, m, q[i]);
    }
    return fmaf((float)exponent, (float)M_LN2, over / under);
}

double tsr_sched_interpolate(const float *table, int32_t n, double t)
{
    int32_t i;

    if (t <= 0)
        return table[0];
    if (t >= (double)(n - 1))
        return table[n - 1];
    i = (int32_t)t;
    return ((double)table[i + 1] - (double)table[i]) * (t - (double)i) + (double)table[i];
}

/* The training sigmas and their logarithms. A schedule with zero terminal SNR has no last sigma:
 * the reference puts the smallest half where the signal is zero. */
static void fill_training(tsr_sched *s, tsr_sched_work *w)
{
    if (s->cfg.zero_snr)
        s->alphas[s->cfg.n_train - 1] = 0x1p-24f;
    for (int32_t i = 0; i < s->cfg.n_train; i++) {
        w->train[i] = sqrtf((1 - s->alphas[i]) / s->alphas[i]);
        w->log_train[i] = tsr_sched_logf(w->train[i]);
    }
}

int32_t tsr_sched_find(const float *ascending, int32_t n, double x)
{
    int32_t low = 0, high = n - 1;

    if (x >= (double)ascending[n - 1])
        return n - 2;
    while (high - low > 1) {
        const int32_t mid = low + (high - low) / 2;
        if (x >= (double)ascending[mid])
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The timestep whose log sigma it is: linear between the two neighbours, clipped to the ends. */
static double sigma_to_t(const float *log_train, int32_t n, double sigma)
{
    const double x = log(fmax(sigma, 1e-10));
    int32_t low;
    double w;

    if (n < 2)
        return 0;
    low = tsr_sched_find(log_train, n, x);
    w = ((double)log_train[low] - x) / (double)(log_train[low] - log_train[low + 1]);
    w = fmin(fmax(w, 0), 1);
    return (1 - w) * (double)low + w * (double)(low + 1);
}

/* numpy.linspace(a, b, n)[i] */
static double ramp(double a, double b, int32_t n, int32_t i)
{
    if (n > 1 && i == n - 1)
        return b;
    return n > 1 ? (double)i * ((b - a) / (double)(n - 1)) + a : a;
}

/* Sigma i of n between `most` and `least`; for LU these are logarithms. */
static double table_sigma(tsr_sigma_table kind, double most, double least, int32_t n, int32_t i)
{
    const double rho = 7;
    double a, b;

    switch (kind) {
    case TSR_SIGMAS_KARRAS:
        a = pow(most, 1 / rho);
        b = pow(least, 1 / rho);
        return pow(a + ramp(0, 1, n, i) * (b - a), rho);
    case TSR_SIGMAS_EXPONENTIAL:
        return exp(ramp(log(most), log(least), n, i));
    case TSR_SIGMAS_BETA:
        return least + tsr_sched_beta_ppf(1 - ramp(0, 1, n, i), 0.6, 0.6) * (most - least);
    default:
        return exp(most + ramp(0, 1, n, i) * (least - most));
    }
}

/* Replaces sigmas and timesteps by the configured table's. */
static void fill_table(const tsr_sched *s, tsr_sched_work *w, double most, double least)
{
    const tsr_sched_config *cfg = &s->cfg;

    for (int32_t i = 0; i < s->n_steps; i++) {
        w->sigma[i] = table_sigma(cfg->sigmas, most, least, s->n_steps, i);
        w->t[i] = sigma_to_t(w->log_train, cfg->n_train, w->sigma[i]);
    }
    w->n_t = w->n_sigma = s->n_steps;
}

/* ------------------------------------------------------------- k-diffusion's */

void tsr_sched_plan_sigma(tsr_sched *s, tsr_sched_work *w)
{
    const tsr_sched_config *cfg = &s->cfg;
    const int32_t n = cfg->n_train;
    /* LMS has a Karras table of its own that does not look at the config's limits */
    const bool limits = !(cfg->class_id == TSR_SCHED_LMS && cfg->sigmas == TSR_SIGMAS_KARRAS);

    fill_training(s, w);
    w->n_t = tsr_sched_space(cfg, TSR_POINTS_EXACT, n, s->n_steps, w->t);
    w->n_sigma = cfg->log_linear ? s->n_steps + 1 : w->n_t;
    for (int32_t i = 0; i < w->n_sigma; i++) {
        if (cfg->log_linear) /* the reference's table has one sigma more than timesteps */
            w->sigma[i] = (double)expf(
                tsr_sched_linspace_f32(w->log_train[n - 1], w->log_train[0], w->n_sigma, i));
        else
            w->sigma[i] = tsr_sched_interpolate(w->train, n, w->t[i]);
    }
    if (cfg->sigmas != TSR_SIGMAS_DEFAULT)
        fill_table(s, w, limits && cfg->sigma_max > 0 ? cfg->sigma_max : w->sigma[0],
                   limits && cfg->sigma_min > 0 ? cfg->sigma_min : w->sigma[w->n_sigma - 1]);
}

float tsr_sched_start_sigma(const tsr_sched *s)
{
    float most = 0;

    for (int32_t i = 0; i < s->n_sigmas; i++)
        most = fmaxf(most, s->sigmas[i]);
    return s->cfg.spacing == TSR_SPACING_LEADING ? sqrtf(most * most + 1) : most;
}

float tsr_sched_sigma_at(const tsr_sched *s, int32_t i)
{
    return s->sigmas[i];
}

/* ---------------------------------------------------------- the DPM-Solvers' */

/* How many of the last timesteps have a lambda below lambda_min_clipped. */
static int32_t n_clipped(const tsr_sched *s)
{
    int32_t n = 0;

    for (int32_t i = 0; i < s->cfg.n_train; i++) {
        const float a = s->alphas[i];
        n += (double)(logf(sqrtf(a)) - logf(sqrtf(1 - a))) < s->cfg.lambda_min_clipped;
    }
    return n;
}

/* The reference keeps these timesteps as integers: Karras and lambda tables are rounded first (by
 * the multistep solver not for the cosine schedule), all others are cut. */
static double whole_timestep(const tsr_sched_config *cfg, double t)
{
    const bool cosine =
        cfg->class_id == TSR_SCHED_DPMPP_2M && cfg->beta_schedule == TSR_BETAS_SQUAREDCOS;

    if (!cosine && (cfg->sigmas == TSR_SIGMAS_KARRAS || cfg->sigmas == TSR_SIGMAS_LU))
        return rint(t);
    return trunc(t);
}

static double final_sigma(const tsr_sched *s, const tsr_sched_work *w)
{
    const tsr_sched_config *cfg = &s->cfg;
    const bool own_table = cfg->sigmas != TSR_SIGMAS_DEFAULT &&
                           (cfg->class_id == TSR_SCHED_UNIPC || cfg->class_id == TSR_SCHED_DEIS);

    if (cfg->class_id != TSR_SCHED_DEIS && !cfg->final_sigma_min)
        return 0;
    return own_table ? w->sigma[w->n_sigma - 1] : (double)w->train[0];
}

tsr_status tsr_sched_plan_lambda(tsr_sched *s, tsr_sched_work *w)
{
    const tsr_sched_config *cfg = &s->cfg;
    const int32_t n = cfg->n_train;
    int32_t last;

    fill_training(s, w);
    last = n - n_clipped(s);
    if (last < 1)
        TSR_FAIL(w->err, TSR_E_MODEL, "lambda_min_clipped %g leaves no timestep",
                 cfg->lambda_min_clipped);
    w->n_t = w->n_sigma = tsr_sched_space(cfg, TSR_POINTS_INNER, last, s->n_steps, w->t);
    for (int32_t i = 0; i < w->n_t; i++)
        w->sigma[i] = tsr_sched_interpolate(w->train, n, w->t[i]);
    if (cfg->sigmas == TSR_SIGMAS_LU)
        fill_table(s, w, (double)w->log_train[n - 1], (double)w->log_train[0]);
    else if (cfg->sigmas != TSR_SIGMAS_DEFAULT)
        fill_table(s, w, cfg->sigma_max > 0 ? cfg->sigma_max : (double)w->train[n - 1],
                   cfg->sigma_min > 0 ? cfg->sigma_min : (double)w->train[0]);
    w->sigma[w->n_sigma] = final_sigma(s, w);
    s->n_calls = w->n_t;
    s->n_sigmas = w->n_sigma + 1;
    for (int32_t i = 0; i < s->n_calls; i++)
        s->timesteps[i] = (float)whole_timestep(cfg, w->t[i]);
    for (int32_t i = 0; i < s->n_sigmas; i++)
        s->sigmas[i] = (float)w->sigma[i];
    s->init_noise_sigma = 1;
    return TSR_OK;
}
