/* plan_sweep.c -- the same run planned at many budgets (see sweep.h).
 *
 * Budgets are equally far apart as factors: from the smallest that holds the picture to the one
 * from which on more memory changes nothing, and a few below the first, where the picture becomes
 * smaller. Nothing is measured: each row is what tsr_run_make plans with that budget. */
#include "cli/sweep.h"

#include <math.h>
#include <stdio.h>

#include "memory/budget.h"

enum { BELOW = 3, FROM_LEAST = 12 };

static const double LOWEST = 0.5; /* of the smallest budget */

static tsr_status plan_at(tsr_cli *c, const tsr_run_desc *desc, size_t budget, tsr_run_info *info,
                          tsr_sweep_row *row)
{
    tsr_run_desc d = *desc;
    tsr_run *run = NULL;

    d.budget_bytes = budget;
    TSR_TRY(tsr_cli_run_make(c, &d, &run));
    tsr_run_get_info(run, info);
    *row = (tsr_sweep_row){.budget = budget,
                           .peak = info->predicted_peak_bytes,
                           .width = info->width,
                           .height = info->height};
    for (int32_t i = 0; i < info->n_phases && i < TSR_SWEEP_PHASES; i++) {
        const tsr_phase_info *p = &info->phases[i];
        row->phase_seconds[i] = p->predicted_seconds;
        row->seconds += p->predicted_seconds;
        row->streamed += p->streamed_bytes;
        row->spilled += p->spilled_bytes;
    }
    tsr_run_free(run); /* with it go info's phases and texts */
    return TSR_OK;
}

/* What all rows share, from a plan with all the memory that there could be. */
static tsr_status describe(tsr_cli *c, const tsr_run_desc *desc, tsr_sweep *s)
{
    tsr_run_desc d = *desc;
    tsr_run *run = NULL;
    tsr_run_info i;

    d.budget_bytes = SIZE_MAX / 2;
    TSR_TRY(tsr_cli_run_make(c, &d, &run));
    tsr_run_get_info(run, &i);
    *s = (tsr_sweep){.width = i.width,
                     .height = i.height,
                     .steps = i.steps,
                     .n_threads = tsr_context_threads(c->ctx),
                     .minimum = i.minimum_budget_bytes,
                     .fastest = i.fastest_budget_bytes};
    for (int32_t p = 0; p < TSR_SWEEP_PHASES && p < i.n_phases; p++)
        if (i.phases[p].predicted_seconds > 0)
            snprintf(s->phases[p], sizeof s->phases[p], "%s", i.phases[p].name);
    snprintf(s->scheduler, sizeof s->scheduler, "%s", i.scheduler);
    snprintf(s->precision, sizeof s->precision, "%s", i.precision);
    snprintf(s->tier, sizeof s->tier, "%s", tsr_context_tier(c->ctx));
    tsr_run_free(run);
    return TSR_OK;
}

static size_t scaled(size_t bytes, double factor)
{
    return (size_t)((double)bytes * factor);
}

static tsr_status add_row(tsr_cli *c, const tsr_run_desc *desc, size_t budget, tsr_sweep *s)
{
    tsr_sweep_row *row = &s->rows[s->n_rows];
    char text[96], bytes[24];
    tsr_run_info info;

    if (tsr_cli_interrupted())
        TSR_FAIL(&c->err, TSR_E_CANCELLED, "interrupted");
    snprintf(text, sizeof text, "plan  %s", tsr_bytes_text(budget, bytes, sizeof bytes));
    tsr_progress_line_put(&c->line, text);
    TSR_TRY(plan_at(c, desc, budget, &info, row));
    if (row->peak <= budget || budget >= s->minimum) /* else not even a smaller picture fits */
        s->n_rows++;
    return TSR_OK;
}

/* Each of these rows would say that its picture is made smaller; the table does. */
static tsr_status add_below(tsr_cli *c, const tsr_run_desc *desc, tsr_sweep *s)
{
    bool quiet = c->opt.quiet;
    tsr_status st = TSR_OK;

    c->opt.quiet = true;
    for (int32_t i = 0; i < BELOW && st == TSR_OK && !desc->strict; i++)
        st = add_row(c, desc, scaled(s->minimum, pow(LOWEST, 1.0 - (double)i / BELOW)), s);
    c->opt.quiet = quiet;
    return st;
}

tsr_status tsr_sweep_make(tsr_cli *c, const tsr_run_desc *desc, tsr_sweep *s)
{
    double factor;

    tsr_cli_catch_signals();
    TSR_TRY(describe(c, desc, s));
    factor = pow((double)s->fastest / (double)s->minimum, 1.0 / (FROM_LEAST - 1));
    TSR_TRY(add_below(c, desc, s));
    for (int32_t i = 0; i < FROM_LEAST; i++) {
        size_t budget =
            i == FROM_LEAST - 1 ? s->fastest : scaled(s->minimum, pow(factor, (double)i));
        if (i == 0)
            budget = s->minimum;
        if (s->n_rows == 0 || budget > s->rows[s->n_rows - 1].budget)
            TSR_TRY(add_row(c, desc, budget, s));
    }
    tsr_progress_line_wipe(&c->line);
    return TSR_OK;
}

static void row_json(const tsr_sweep *s, const tsr_sweep_row *r, tsr_buf *out)
{
    const char *comma = "";

    tsr_buf_printf(out,
                   "{\"budget_bytes\": %zu, \"width\": %d, \"height\": %d, \"predicted_seconds\": "
                   "%.3f, \"predicted_peak_bytes\": %zu, \"streamed_bytes\": %llu, "
                   "\"spilled_bytes\": %llu, \"phases\": [",
                   r->budget, r->width, r->height, r->seconds, r->peak,
                   (unsigned long long)r->streamed, (unsigned long long)r->spilled);
    for (int32_t p = 0; p < TSR_SWEEP_PHASES; p++) {
        if (!*s->phases[p])
            continue;
        tsr_buf_printf(out, "%s{\"name\": \"%s\", \"predicted_seconds\": %.3f}", comma,
                       s->phases[p], r->phase_seconds[p]);
        comma = ", ";
    }
    tsr_buf_puts(out, "]}");
}

void tsr_sweep_json(const tsr_sweep *s, tsr_buf *out)
{
    tsr_buf_printf(out,
                   "{\n  \"width\": %d,\n  \"height\": %d,\n  \"steps\": %d,\n  \"scheduler\": "
                   "\"%s\",\n  \"precision\": \"%s\",\n  \"tier\": \"%s\",\n  \"threads\": %d,\n",
                   s->width, s->height, s->steps, s->scheduler, s->precision, s->tier,
                   s->n_threads);
    tsr_buf_printf(
        out, "  \"minimum_budget_bytes\": %zu,\n  \"fastest_budget_bytes\": %zu,\n  \"sweep\": [",
        s->minimum, s->fastest);
    for (int32_t i = 0; i < s->n_rows; i++) {
        tsr_buf_puts(out, i ? ",\n    " : "\n    ");
        row_json(s, &s->rows[i], out);
    }
    tsr_buf_puts(out, "\n  ]\n}\n");
}
