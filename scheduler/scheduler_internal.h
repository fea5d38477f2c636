/* scheduler_internal.h -- what the samplers share.
 *
 * A sampler is four functions (tsr_sched_ops). Everything it does in call i follows from i, the
 * tables and the arrays in `state`: there are no counters, so that a schedule can be begun again at
 * any time. Scalars are float32 in the reference's order of operations, since its tensors of one
 * element are; tables are made in double where numpy makes them so. */
#ifndef TSR_SCHEDULER_SCHEDULER_INTERNAL_H
#define TSR_SCHEDULER_SCHEDULER_INTERNAL_H

#include <math.h>

#include "scheduler/scheduler_config.h"

enum { TSR_SCHED_MAX_STATE = 8 };

/* Scratch of tsr_sched_make: the training schedule's sigmas, and timesteps and sigmas in double
 * before they are rounded. */
typedef struct tsr_sched_work {
    float *train, *log_train; // [n_train]
    double *t, *sigma;        // [n_steps + 4]
    int32_t n_t, n_sigma;     /* how many are there */
    tsr_err *err;
} tsr_sched_work;

typedef struct tsr_sched_ops {
    /* Fills s->timesteps, n_calls, and for sigma samplers s->sigmas, n_sigmas, init_noise_sigma. */
    tsr_status (*plan)(tsr_sched *s, tsr_sched_work *w);
    void (*step)(tsr_sched *s, int32_t i, const float *out, const float *noise, float *x);
    bool (*needs_noise)(const tsr_sched *s, int32_t i);  /* NULL: never */
    float (*input_sigma)(const tsr_sched *s, int32_t i); /* NULL: the model sees x as it is */
    int32_t (*n_state)(const tsr_sched_config *cfg);     /* NULL: none */
} tsr_sched_ops;

struct tsr_sched {
    tsr_sched_config cfg; /* trained_betas is NULL here: `alphas` has been made */
    const tsr_sched_ops *ops;
    int32_t n_steps, n_calls, n_sigmas;
    float init_noise_sigma;
    float final_alpha; /* before timestep 0 */
    float *tables;     /* owned; the four below */
    float *alphas;     // [n_train] cumulative products
    float *timesteps;  // [n_calls]
    float *sigmas;     // [n_sigmas]
    float *between;    // [n_sigmas] KDPM2's middle sigmas
    size_t n;
    float *state[TSR_SCHED_MAX_STATE]; // [n] each
    float *own_state;                  /* when the caller gave none */
};

extern const tsr_sched_ops tsr_sched_ddim_ops, tsr_sched_ddpm_ops, tsr_sched_pndm_ops,
    tsr_sched_lms_ops, tsr_sched_euler_ops, tsr_sched_euler_a_ops, tsr_sched_heun_ops,
    tsr_sched_kdpm2_ops, tsr_sched_dpm_single_ops, tsr_sched_dpm_multi_ops, tsr_sched_unipc_ops,
    tsr_sched_deis_ops, tsr_sched_lcm_ops;

/* sched_betas.c */
float tsr_sched_linspace_f32(float start, float end, int32_t n, int32_t i); /* torch.linspace */
tsr_status tsr_sched_alphas(const tsr_sched_config *cfg, float *alphas, tsr_err *err);

/* sched_spacing.c: descending timesteps into t; returns how many. */
typedef enum tsr_sched_points {
    TSR_POINTS_EXACT,   /* n points; linspace is not rounded */
    TSR_POINTS_ROUNDED, /* n points, all whole */
    TSR_POINTS_INNER    /* n + 1 points without the last, all whole (the DPM-Solvers) */
} tsr_sched_points;
int32_t tsr_sched_space(const tsr_sched_config *cfg, tsr_sched_points kind, int32_t last, int32_t n,
                        double *t);
/* Plans the samplers that read `alphas` by timestep: whole timesteps, all below n_train. */
tsr_status tsr_sched_plan_whole(tsr_sched *s, tsr_sched_work *w);
tsr_status tsr_sched_check_timestep(const tsr_sched *s, int32_t t, tsr_err *err);

/* sched_sigmas.c */
float tsr_sched_logf(float x); /* numpy's float32 logarithm */
/* The last index of 0..n-2 whose value is at most x; 0 when there is none. n >= 2. The last value
 * may be below the one before it (a rescaled schedule's is set by hand). */
int32_t tsr_sched_find(const float *ascending, int32_t n, double x);
double tsr_sched_interpolate(const float *table, int32_t n, double t);
/* Timesteps and sigmas of the samplers that integrate over sigma (k-diffusion's) and of those that
 * integrate over lambda (the DPM-Solvers); tables, w->t and w->sigma without the final sigma. */
void tsr_sched_plan_sigma(tsr_sched *s, tsr_sched_work *w);
tsr_status tsr_sched_plan_lambda(tsr_sched *s, tsr_sched_work *w);
float tsr_sched_start_sigma(const tsr_sched *s);         /* init_noise_sigma from the sigmas */
float tsr_sched_sigma_at(const tsr_sched *s, int32_t i); /* sigmas[i], as ops->input_sigma */

/* sched_beta_ppf.c: x with I_x(a, b) = p, the beta distribution's inverse. */
double tsr_sched_beta_ppf(double p, double a, double b);

/* How a variance-preserving x is mixed: x = signal * x0 + noise * eps, from a cumulative product
 * (signal^2) or from a sigma (noise / signal). */
typedef struct tsr_sched_mix {
    float signal, noise;
} tsr_sched_mix;
static inline tsr_sched_mix tsr_sched_mix_alpha(float alpha)
{
    return (tsr_sched_mix){sqrtf(alpha), sqrtf(1 - alpha)};
}
static inline tsr_sched_mix tsr_sched_mix_sigma(float sigma)
{
    const float signal = 1 / sqrtf(sigma * sigma + 1);

    return (tsr_sched_mix){signal, sigma * signal};
}
/* Half the logarithm of the signal-to-noise ratio. */
static inline float tsr_sched_lambda(tsr_sched_mix m)
{
    return logf(m.signal) - logf(m.noise);
}

/* The noise in x, as the model predicts it. */
static inline float tsr_sched_eps(tsr_prediction p, tsr_sched_mix m, float out, float x)
{
    if (p == TSR_PREDICT_EPSILON)
        return out;
    if (p == TSR_PREDICT_V)
        return m.signal * out + m.noise * x;
    return (x - m.signal * out) / m.noise;
}

/* sched_predict.c: what the model's output says x0 is, clipped or thresholded. `sort` is scratch
 * that is used only when cfg.thresholding. */
void tsr_sched_x0(const tsr_sched *s, tsr_sched_mix mix, const float *out, const float *x,
                  float *x0, float *sort);
void tsr_sched_threshold(const tsr_sched *s, float *x0, float *sort);

/* x0 of one element where x = x0 + sigma * noise (k-diffusion's samplers). */
static inline float tsr_sched_denoised(tsr_prediction p, float sigma, float out, float x)
{
    if (p == TSR_PREDICT_EPSILON)
        return x - sigma * out;
    if (p == TSR_PREDICT_V)
        return out * (-sigma / sqrtf(sigma * sigma + 1)) + x / (sigma * sigma + 1);
    return out;
}

#endif
