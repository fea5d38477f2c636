/* cmd_plan.c -- gen plan: what a run would need, as a table or as the report's JSON; with --sweep
 * the same at many budgets.
 *
 * The run is made with plan_only: configs, tensor headers and tokenizers are read, no tensor data,
 * and nothing is reserved. A budget that is too small gives the plan of the smaller picture that
 * the run would make. */
#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#include "cli/out_path.h"
#include "cli/sweep.h"
#include "memory/budget.h"

static const char *bytes_cell(size_t bytes, char buf[24])
{
    return bytes ? tsr_bytes_text(bytes, buf, 24) : "-";
}

static void print_phase(const tsr_phase_info *p)
{
    char weights[24], values[24], work[24], state[24], peak[24];

    printf("%-9s %12s %12s %12s %12s %14s", p->name, bytes_cell(p->weight_bytes, weights),
           bytes_cell(p->activation_bytes, values), bytes_cell(p->work_bytes, work),
           bytes_cell(p->state_bytes, state), bytes_cell(p->predicted_bytes, peak));
    if (p->flops > 0)
        printf(" %12.1f %10.2f", p->flops / 1e9, p->predicted_seconds);
    printf("\n");
}

/* Where the phase's weights and activations are, in words. */
static void print_placement(const tsr_phase_info *p, int32_t batch)
{
    const char *each = p->n_calls > 1 ? batch > 1 ? " a call and picture" : " a call" : "";
    char bytes[24], all[24];

    if (p->n_calls == 0)
        return;
    printf("%-9s ", p->name);
    if (p->streamed_bytes == 0)
        printf("all weights stay in memory");
    else
        printf("%s of weights streamed%s",
               tsr_bytes_text((size_t)p->streamed_bytes / (size_t)p->n_calls, bytes, sizeof bytes),
               each);
    if (p->streamed_bytes > 0 && p->n_calls > 1)
        printf(" (%s in %d calls)", tsr_bytes_text((size_t)p->streamed_bytes, all, sizeof all),
               p->n_calls);
    if (p->spilled_bytes > 0)
        printf(", %s of activations written and read%s",
               tsr_bytes_text((size_t)p->spilled_bytes / (size_t)p->n_calls, bytes, sizeof bytes),
               each);
    printf("\n");
}

static void print_bytes(const char *label, size_t bytes, const char *note)
{
    char text[24];

    printf("%-17s %s%s\n", label, tsr_bytes_text(bytes, text, sizeof text), note);
}

static void print_settings(const tsr_cli *c, const tsr_run_info *i)
{
    printf("%dx%d, %d picture%s, %d steps of %s, sigmas %s, guidance %g\n", i->width, i->height,
           i->n_pictures, i->n_pictures == 1 ? "" : "s", i->steps, i->scheduler, i->sigmas,
           (double)i->guidance);
    if (i->n_pictures > 1 && i->batch > 1)
        printf("denoised %d at a time: each weight is read once a step for all of them\n",
               i->batch);
    else if (i->n_pictures > 1)
        printf("denoised one at a time, which is no slower\n");
    printf("%s on %s, tier %s, %d thread%s\n\n", i->precision, tsr_context_backend(c->ctx),
           tsr_context_tier(c->ctx), tsr_context_threads(c->ctx),
           tsr_context_threads(c->ctx) == 1 ? "" : "s");
}

static void print_phases(const tsr_run_info *i)
{
    double flops = 0, seconds = 0;

    printf("%-9s %12s %12s %12s %12s %14s %12s %10s\n", "phase", "weights", "activations", "work",
           "state", "predicted peak", "GFLOP", "seconds");
    for (int32_t p = 0; p < i->n_phases; p++) {
        print_phase(&i->phases[p]);
        flops += i->phases[p].flops;
        seconds += i->phases[p].predicted_seconds;
    }
    printf("\n");
    for (int32_t p = 0; p < i->n_phases; p++)
        print_placement(&i->phases[p], i->batch);
    printf("\n%-17s %.1f GFLOP a picture\n", "work", flops / 1e9);
    printf("%-17s %.2f seconds a picture, predicted\n", "time", seconds);
}

static const char *budget_note(const tsr_cli *c, const tsr_run_info *i)
{
    if (i->predicted_peak_bytes > i->budget_bytes)
        return " (too small: the run would be refused)";
    if (i->minimum_budget_bytes > i->budget_bytes)
        return " (too small for the size that was asked for: the picture is made smaller)";
    return c->opt.given[TSR_OPT_BUDGET] ? "" : " (what is free, less a margin)";
}

/* `json` is the report, for what has no place in tsr_run_info. */
static tsr_status print_table(tsr_cli *c, const tsr_run *run, const char *json)
{
    cJSON *report = cJSON_Parse(json);
    tsr_run_info i;

    if (!report)
        TSR_FAIL(&c->err, TSR_E_OOM, "out of memory for the plan");
    tsr_run_get_info(run, &i);
    print_settings(c, &i);
    print_phases(&i);
    print_bytes("predicted peak", i.predicted_peak_bytes, "");
    print_bytes("budget", i.budget_bytes, budget_note(c, &i));
    print_bytes("smallest budget", i.minimum_budget_bytes, "");
    print_bytes("fastest budget", i.fastest_budget_bytes, " (more memory changes nothing)");
    printf("%-17s %.0fx%.0f within this budget\n", "largest picture",
           cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(report, "largest_width")),
           cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(report, "largest_height")));
    cJSON_Delete(report);
    return TSR_OK;
}

static tsr_status plan_once(tsr_cli *c, const tsr_run_desc *desc)
{
    tsr_run *run = NULL;
    char *json = NULL;
    tsr_status st;

    TSR_TRY(tsr_cli_run_make(c, desc, &run));
    TSR_TRY_GOTO(tsr_cli_library(c, tsr_run_report(run, false, &json)));
    if (c->opt.report)
        TSR_TRY_GOTO(tsr_cli_write_text(c->opt.report, json, &c->err));
    if (c->opt.json)
        fputs(json, stdout);
    else
        st = print_table(c, run, json);
done:
    tsr_string_free(json);
    tsr_run_free(run);
    return st;
}

static void print_sweep(const tsr_sweep *s)
{
    char budget[24], peak[24], streamed[24], spilled[24], size[24];

    printf("%dx%d, %d steps of %s, %s, tier %s, %d thread%s; a picture, predicted\n\n", s->width,
           s->height, s->steps, s->scheduler, s->precision, s->tier, s->n_threads,
           s->n_threads == 1 ? "" : "s");
    printf("%12s %12s %10s %12s %12s %12s\n", "budget", "size", "seconds", "peak", "streamed",
           "spilled");
    for (int32_t i = 0; i < s->n_rows; i++) {
        const tsr_sweep_row *r = &s->rows[i];
        snprintf(size, sizeof size, "%dx%d", r->width, r->height);
        printf("%12s %12s %10.2f %12s %12s %12s\n", bytes_cell(r->budget, budget), size, r->seconds,
               bytes_cell(r->peak, peak), bytes_cell((size_t)r->streamed, streamed),
               bytes_cell((size_t)r->spilled, spilled));
    }
}

/* Writes what `make` says of the sweep to `path`. */
static tsr_status write_sweep(tsr_cli *c, const tsr_sweep *s, const char *path,
                              void (*make)(const tsr_sweep *s, tsr_buf *out))
{
    tsr_buf out = {0};
    tsr_status st;

    make(s, &out);
    if (!tsr_buf_ok(&out))
        st = tsr_err_set(&c->err, TSR_E_OOM, "out of memory for %s", path);
    else
        st = tsr_cli_write_text(path, out.data, &c->err);
    tsr_buf_free(&out);
    return st;
}

static tsr_status print_sweep_json(tsr_cli *c, const tsr_sweep *s)
{
    tsr_buf out = {0};
    bool ok;

    tsr_sweep_json(s, &out);
    ok = tsr_buf_ok(&out);
    if (ok)
        fputs(out.data, stdout);
    tsr_buf_free(&out);
    if (!ok)
        TSR_FAIL(&c->err, TSR_E_OOM, "out of memory for the plan");
    return TSR_OK;
}

static tsr_status plan_sweep(tsr_cli *c, const tsr_run_desc *desc)
{
    tsr_sweep s;

    TSR_TRY(tsr_sweep_make(c, desc, &s));
    if (c->opt.plot)
        TSR_TRY(write_sweep(c, &s, c->opt.plot, tsr_sweep_svg));
    if (c->opt.report)
        TSR_TRY(write_sweep(c, &s, c->opt.report, tsr_sweep_json));
    if (c->opt.json)
        return print_sweep_json(c, &s);
    print_sweep(&s);
    return TSR_OK;
}

tsr_status tsr_cli_plan(tsr_cli *c)
{
    const tsr_options *o = &c->opt;
    tsr_run_desc desc;

    if (o->plot)
        TSR_TRY(tsr_out_path_probe(o->plot, &c->err));
    TSR_TRY(tsr_cli_run_desc(c, &desc));
    desc.plan_only = true;
    TSR_TRY(tsr_cli_open_model(c));
    return o->sweep || o->plot ? plan_sweep(c, &desc) : plan_once(c, &desc);
}
