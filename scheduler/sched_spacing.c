/* sched_spacing.c -- which timesteps a run of n steps visits: linspace, leading, trailing.
 *
 * The values are numpy's, with its roundings (half to even; arange's difference of the first two
 * values). One deviation: for some n (61, 103, 121, ... of 1000) arange's rounding gives trailing a
 * point too many, at timestep -1, which the reference then reads from the table's other end; that
 * point is dropped, so that n steps are n steps. */
#include "scheduler/scheduler_internal.h"

/* numpy.linspace(0, stop, n)[i] */
static double linspace(double stop, int32_t n, int32_t i)
{
    if (i == n - 1 && n > 1)
        return stop;
    return n > 1 ? (double)i * (stop / (double)(n - 1)) : 0;
}

static int32_t space_trailing(const tsr_sched_config *cfg, int32_t last, int32_t n, double *t)
{
    const double ratio = (double)cfg->n_train / (double)n;
    const double delta = ((double)last - ratio) - (double)last;
    const int32_t count = (int32_t)fmin(ceil((double)last / ratio), (double)n + 1);
    int32_t used = 0;

    for (int32_t i = 0; i < count; i++) {
        const double v = i == 1 ? (double)last - ratio : (double)last + (double)i * delta;

        if (rint(v) >= 1)
            t[used++] = rint(v) - 1;
    }
    return used;
}

int32_t tsr_sched_space(const tsr_sched_config *cfg, tsr_sched_points kind, int32_t last, int32_t n,
                        double *t)
{
    const int32_t points = kind == TSR_POINTS_INNER ? n + 1 : n;

    if (cfg->spacing == TSR_SPACING_TRAILING)
        return space_trailing(cfg, last, n, t);
    for (int32_t i = 0; i < n; i++) {
        const int32_t from_below = points - 1 - i;

        if (cfg->spacing == TSR_SPACING_LEADING)
            t[i] = (double)from_below * (double)(last / points) + (double)cfg->steps_offset;
        else if (kind == TSR_POINTS_EXACT)
            t[i] = (double)(float)linspace((double)last - 1, points, from_below);
        else
            t[i] = rint(linspace((double)last - 1, points, from_below));
    }
    return n;
}

tsr_status tsr_sched_check_timestep(const tsr_sched *s, int32_t t, tsr_err *err)
{
    if (t < s->cfg.n_train)
        return TSR_OK;
    TSR_FAIL(err, TSR_E_USAGE,
             "scheduler %s with %d steps would need timestep %d, but training ended at %d: use "
             "fewer steps",
             tsr_sched_config_name(&s->cfg), s->n_steps, t, s->cfg.n_train - 1);
}

tsr_status tsr_sched_plan_whole(tsr_sched *s, tsr_sched_work *w)
{
    if (s->n_steps > s->cfg.n_train)
        TSR_FAIL(w->err, TSR_E_USAGE, "scheduler %s takes at most %d steps (num_train_timesteps)",
                 tsr_sched_config_name(&s->cfg), s->cfg.n_train);
    s->n_calls = tsr_sched_space(&s->cfg, TSR_POINTS_ROUNDED, s->cfg.n_train, s->n_steps, w->t);
    for (int32_t i = 0; i < s->n_calls; i++) {
        s->timesteps[i] = (float)w->t[i];
        TSR_TRY(tsr_sched_check_timestep(s, (int32_t)w->t[i], w->err));
    }
    return TSR_OK;
}
