/* cmd_plan.c -- gen plan: what a run would need, as a table or as the report's JSON.
 *
 * The run is made with plan_only: configs, tensor headers and tokenizers are read, no tensor data,
 * and nothing is reserved. */
#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <stdio.h>

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
        printf(" %12.1f", p->flops / 1e9);
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
    printf("%s on %s, tier %s, %d thread%s\n\n", i->precision, tsr_context_backend(c->ctx),
           tsr_context_tier(c->ctx), tsr_context_threads(c->ctx),
           tsr_context_threads(c->ctx) == 1 ? "" : "s");
}

/* `json` is the report, for what has no place in tsr_run_info. */
static tsr_status print_table(tsr_cli *c, const tsr_run *run, const char *json)
{
    cJSON *report = cJSON_Parse(json);
    tsr_run_info i;
    double flops = 0;

    if (!report)
        TSR_FAIL(&c->err, TSR_E_OOM, "out of memory for the plan");
    tsr_run_get_info(run, &i);
    print_settings(c, &i);
    printf("%-9s %12s %12s %12s %12s %14s %12s\n", "phase", "weights", "activations", "work",
           "state", "predicted peak", "GFLOP");
    for (int32_t p = 0; p < i.n_phases; p++) {
        print_phase(&i.phases[p]);
        flops += i.phases[p].flops;
    }
    printf("\n");
    print_bytes("predicted peak", i.predicted_peak_bytes, "");
    print_bytes("budget", i.budget_bytes,
                i.predicted_peak_bytes > i.budget_bytes ? " (too small: the run would be refused)"
                : c->opt.given[TSR_OPT_BUDGET]          ? ""
                                                        : " (what is free, less a margin)");
    print_bytes("smallest budget", i.minimum_budget_bytes, "");
    print_bytes("fastest budget", i.fastest_budget_bytes, " (more memory changes nothing)");
    printf("%-17s %.0fx%.0f within this budget\n", "largest picture",
           cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(report, "largest_width")),
           cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(report, "largest_height")));
    printf("%-17s %.1f GFLOP a picture\n", "work", flops / 1e9);
    cJSON_Delete(report);
    return TSR_OK;
}

tsr_status tsr_cli_plan(tsr_cli *c)
{
    tsr_run_desc desc;
    tsr_run *run = NULL;
    char *json = NULL;
    tsr_status st;

    TSR_TRY(tsr_cli_run_desc(c, &desc));
    desc.plan_only = true;
    TSR_TRY(tsr_cli_open_model(c));
    TSR_TRY(tsr_cli_run_make(c, &desc, &run));
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
