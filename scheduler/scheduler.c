/* scheduler.c -- making a schedule, and the face over the samplers.
 *
 * tsr_sched_make allocates everything: the tables (training products, timesteps, sigmas) in one
 * block, and the histories where the caller gives out of memory for them. Then it runs the whole
 * schedule once over a single element: whatever the config and the number of steps divide by (equal
 * neighbouring sigmas, a signal of zero), what is not finite there would be a ruined picture
 * later, and is refused now. Steps do not allocate and cannot fail. */
#include "scheduler/scheduler_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

enum { MAX_STEPS = 100000 };

static const tsr_sched_ops *const all_ops[TSR_SCHED_N_CLASSES] = {
    [TSR_SCHED_DDIM] = &tsr_sched_ddim_ops,
    [TSR_SCHED_DDPM] = &tsr_sched_ddpm_ops,
    [TSR_SCHED_PNDM] = &tsr_sched_pndm_ops,
    [TSR_SCHED_LMS] = &tsr_sched_lms_ops,
    [TSR_SCHED_EULER] = &tsr_sched_euler_ops,
    [TSR_SCHED_EULER_A] = &tsr_sched_euler_a_ops,
    [TSR_SCHED_HEUN] = &tsr_sched_heun_ops,
    [TSR_SCHED_DPM2] = &tsr_sched_kdpm2_ops,
    [TSR_SCHED_DPMPP_2S] = &tsr_sched_dpm_single_ops,
    [TSR_SCHED_DPMPP_2M] = &tsr_sched_dpm_multi_ops,
    [TSR_SCHED_UNIPC] = &tsr_sched_unipc_ops,
    [TSR_SCHED_DEIS] = &tsr_sched_deis_ops,
    [TSR_SCHED_LCM] = &tsr_sched_lcm_ops,
};

static int32_t n_state(const tsr_sched_config *cfg)
{
    const tsr_sched_ops *ops = all_ops[cfg->class_id];

    return ops->n_state ? ops->n_state(cfg) : 0;
}

size_t tsr_sched_state_bytes(const tsr_sched_config *cfg, size_t n)
{
    size_t bytes = SIZE_MAX;

    if (!tsr_mul_size(n, (size_t)n_state(cfg) * sizeof(float), &bytes))
        return SIZE_MAX;
    return bytes;
}

/* ------------------------------------------------------------------ the tables */

static tsr_status alloc_tables(tsr_sched *s, tsr_sched_work *w)
{
    const size_t train = (size_t)s->cfg.n_train, calls = 2 * (size_t)s->n_steps + 16;
    const size_t points = (size_t)s->n_steps + 4;

    s->tables = tsr_calloc(train + 3 * calls, sizeof *s->tables);
    w->train = tsr_calloc(2 * train, sizeof *w->train);
    w->t = tsr_calloc(2 * points, sizeof *w->t);
    if (!s->tables || !w->train || !w->t)
        TSR_FAIL(w->err, TSR_E_OOM, "out of memory for a schedule of %d steps", s->n_steps);
    s->alphas = s->tables;
    s->timesteps = s->alphas + train;
    s->sigmas = s->timesteps + calls;
    s->between = s->sigmas + calls;
    w->log_train = w->train + train;
    w->sigma = w->t + points;
    return TSR_OK;
}

static tsr_status plan(tsr_sched *s, const tsr_sched_config *cfg, tsr_sched_work *w)
{
    TSR_TRY(tsr_sched_alphas(cfg, s->alphas, w->err));
    s->final_alpha = cfg->alpha_one ? 1 : s->alphas[0];
    s->init_noise_sigma = 1;
    return s->ops->plan(s, w);
}

/* --------------------------------------------------------------- the rehearsal */

static tsr_status refuse(const tsr_sched *s, int32_t call, tsr_err *err)
{
    static const char *const spacings[] = {"linspace", "leading", "trailing"};

    TSR_FAIL(err, TSR_E_USAGE,
             "scheduler %s with %d steps, %s sigmas, %s spacing and %s prediction is not finite at "
             "model call %d of %d%s",
             tsr_sched_config_name(&s->cfg), s->n_steps, tsr_sched_config_sigmas(&s->cfg),
             spacings[s->cfg.spacing], tsr_sched_config_prediction(&s->cfg), call + 1, s->n_calls,
             s->cfg.zero_snr ? " (the config's rescale_betas_zero_snr leaves no signal there)"
                             : "");
}

static tsr_status rehearse(tsr_sched *s, tsr_err *err)
{
    float cell[TSR_SCHED_MAX_STATE] = {0}, x = s->init_noise_sigma, in, out;
    const float noise = 0.5f;
    int32_t bad = -1;

    s->n = 1;
    for (int32_t j = 0; j < TSR_SCHED_MAX_STATE; j++)
        s->state[j] = &cell[j];
    for (int32_t i = 0; i < s->n_calls && bad < 0; i++) {
        tsr_sched_scale_input(s, i, &x, &in);
        out = 0.3f * in + 0.1f * sinf(3 * in + s->timesteps[i] / 200);
        tsr_sched_step(s, i, &out, &noise, &x);
        if (!isfinite(x) || !isfinite(in) || !isfinite(s->timesteps[i]))
            bad = i;
    }
    return bad < 0 ? TSR_OK : refuse(s, bad, err);
}

/* ------------------------------------------------------------------- the face */

static tsr_status attach_state(tsr_sched *s, size_t n, float *state, tsr_err *err)
{
    const size_t bytes = tsr_sched_state_bytes(&s->cfg, n);
    const int32_t count = n_state(&s->cfg);

    if (!state && count > 0) {
        s->own_state = bytes < SIZE_MAX ? tsr_malloc(bytes) : NULL;
        if (!s->own_state)
            TSR_FAIL(err, TSR_E_OOM, "out of memory for the scheduler's history of %zu elements",
                     n);
        state = s->own_state;
    }
    s->n = n;
    for (int32_t j = 0; j < TSR_SCHED_MAX_STATE; j++)
        s->state[j] = j < count ? state + (size_t)j * n : NULL;
    tsr_sched_reset(s);
    return TSR_OK;
}

tsr_status tsr_sched_make(tsr_sched **out, const tsr_sched_config *cfg, int32_t n_steps, size_t n,
                          float *state, tsr_err *err)
{
    tsr_sched *s;
    tsr_sched_work w = {.err = err};
    tsr_status st;

    if (n_steps < 1 || n_steps > MAX_STEPS)
        TSR_FAIL(err, TSR_E_USAGE, "steps must be from 1 to %d, not %d", MAX_STEPS, n_steps);
    s = tsr_calloc(1, sizeof *s);
    if (!s)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for a schedule");
    s->cfg = *cfg;
    s->cfg.trained_betas = NULL;
    s->ops = all_ops[cfg->class_id];
    s->n_steps = n_steps;
    TSR_TRY_GOTO(alloc_tables(s, &w));
    TSR_TRY_GOTO(plan(s, cfg, &w));
    TSR_TRY_GOTO(rehearse(s, err));
    TSR_TRY_GOTO(attach_state(s, n, state, err));
    *out = s;
    s = NULL;
done:
    tsr_free(w.train);
    tsr_free(w.t);
    tsr_sched_free(s);
    return st;
}

void tsr_sched_free(tsr_sched *s)
{
    if (!s)
        return;
    tsr_free(s->own_state);
    tsr_free(s->tables);
    tsr_free(s);
}

void tsr_sched_reset(tsr_sched *s)
{
    const int32_t count = n_state(&s->cfg);

    for (int32_t j = 0; j < count; j++)
        memset(s->state[j], 0, s->n * sizeof(float));
}

int32_t tsr_sched_n_calls(const tsr_sched *s)
{
    return s->n_calls;
}

const float *tsr_sched_timesteps(const tsr_sched *s)
{
    return s->timesteps;
}

const float *tsr_sched_sigmas(const tsr_sched *s, int32_t *n)
{
    *n = s->n_sigmas;
    return s->n_sigmas > 0 ? s->sigmas : NULL;
}

float tsr_sched_init_noise_sigma(const tsr_sched *s)
{
    return s->init_noise_sigma;
}

void tsr_sched_scale_input(const tsr_sched *s, int32_t i, const float *x, float *in)
{
    const float sigma = s->ops->input_sigma ? s->ops->input_sigma(s, i) : 0;
    const float scale = sqrtf(sigma * sigma + 1);

    for (size_t k = 0; k < s->n; k++)
        in[k] = s->ops->input_sigma ? x[k] / scale : x[k];
}

bool tsr_sched_needs_noise(const tsr_sched *s, int32_t i)
{
    return s->ops->needs_noise && s->ops->needs_noise(s, i);
}

void tsr_sched_step(tsr_sched *s, int32_t i, const float *model_out, const float *noise, float *x)
{
    s->ops->step(s, i, model_out, noise, x);
}
