/* cmd_bench.c -- gen bench: a whole run, measured (with --ops op by op: bench_ops.c).
 *
 * One picture warms up (page cache, clocks, pool), then three are measured, each in a run of its
 * own from the same seed, so that a phase's seconds are those of one picture; the medians are
 * printed, with the spread of the whole. Waiting is for weights: resident ones as they are loaded,
 * streamed ones when they come late; rates leave it out. Nothing is written. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "memory/budget.h"

enum { MEASURED = 3, MAX_PHASES = 8 };

typedef struct bench {
    char name[MAX_PHASES][16];
    double seconds[MAX_PHASES][MEASURED], waiting[MAX_PHASES][MEASURED];
    double total[MEASURED], steps_per_second[MEASURED];
    double gflop[MAX_PHASES];
    int32_t n_phases, width, height, steps;
    size_t peak;
} bench;

static double median(const double v[MEASURED])
{
    double a = v[0], b = v[1], c = v[2];

    return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
}

static void note(bench *b, const tsr_run *run, int32_t round, double seconds)
{
    tsr_run_info i;

    tsr_run_get_info(run, &i);
    b->n_phases = i.n_phases < MAX_PHASES ? i.n_phases : MAX_PHASES;
    for (int32_t p = 0; p < b->n_phases; p++) {
        snprintf(b->name[p], sizeof b->name[p], "%s", i.phases[p].name);
        b->seconds[p][round] = i.phases[p].seconds;
        b->waiting[p][round] = i.phases[p].seconds_waiting_for_weights;
        b->gflop[p] = i.phases[p].flops / 1e9;
    }
    b->total[round] = seconds;
    b->steps_per_second[round] = i.steps_per_second;
    b->width = i.width;
    b->height = i.height;
    b->steps = i.steps;
    b->peak = i.measured_peak_bytes;
}

/* One picture; round -1 is the warm-up. */
static tsr_status run_once(tsr_cli *c, const tsr_run_desc *desc, bench *b, int32_t round)
{
    tsr_run *run = NULL;
    tsr_picture pic;
    double start;
    tsr_status st;

    TSR_TRY(tsr_cli_run_make(c, desc, &run));
    start = tsr_clock_seconds();
    st = tsr_cli_library(c, tsr_run_next(run, &pic));
    if (st == TSR_OK && round >= 0)
        note(b, run, round, tsr_clock_seconds() - start);
    tsr_run_free(run);
    return st;
}

static void print_table(const tsr_cli *c, const bench *b)
{
    char peak[24];

    printf("%dx%d, %d steps, tier %s, %d threads, peak %s; median of %d pictures after a warm-up\n",
           b->width, b->height, b->steps, tsr_context_tier(c->ctx), tsr_context_threads(c->ctx),
           tsr_bytes_text(b->peak, peak, sizeof peak), MEASURED);
    printf("%-10s %10s %10s %12s\n", "phase", "seconds", "waiting", "GFLOP/s");
    for (int32_t p = 0; p < b->n_phases; p++) {
        double s = median(b->seconds[p]);
        double waiting = median(b->waiting[p]);
        printf("%-10s %10.3f %10.3f", b->name[p], s, waiting);
        if (s > waiting && b->gflop[p] > 0)
            printf(" %12.1f", b->gflop[p] / (s - waiting));
        printf("\n");
    }
    printf("%-10s %10.3f  (%.3f %.3f %.3f), %.2f steps a second\n", "picture", median(b->total),
           b->total[0], b->total[1], b->total[2], median(b->steps_per_second));
}

static void print_json(const tsr_cli *c, const bench *b)
{
    printf("{\"width\":%d,\"height\":%d,\"steps\":%d,\"tier\":\"%s\",\"threads\":%d,"
           "\"measured_peak_bytes\":%zu,\"phases\":[",
           b->width, b->height, b->steps, tsr_context_tier(c->ctx), tsr_context_threads(c->ctx),
           b->peak);
    for (int32_t p = 0; p < b->n_phases; p++)
        printf("%s{\"name\":\"%s\",\"seconds\":%.6f,\"seconds_waiting_for_weights\":%.6f,"
               "\"gflop\":%.3f}",
               p ? "," : "", b->name[p], median(b->seconds[p]), median(b->waiting[p]), b->gflop[p]);
    printf("],\"seconds_total\":%.6f,\"steps_per_second\":%.6f}\n", median(b->total),
           median(b->steps_per_second));
}

tsr_status tsr_cli_bench(tsr_cli *c)
{
    tsr_run_desc desc;
    bench *b;
    tsr_status st = TSR_OK;

    TSR_TRY(tsr_cli_run_desc(c, &desc));
    desc.n_pictures = 1;
    desc.progress = tsr_cli_on_progress;
    desc.progress_user = c;
    if (!desc.prompt)
        desc.prompt = "a red apple on a blue background";
    if (!desc.seed_given) {
        desc.seed = 1;
        desc.seed_given = true;
    }
    TSR_TRY(tsr_cli_open_model(c));
    tsr_cli_catch_signals();
    if (c->opt.ops)
        return tsr_cli_bench_ops(c, &desc);
    b = tsr_calloc(1, sizeof *b);
    if (!b)
        TSR_FAIL(&c->err, TSR_E_OOM, "out of memory");
    for (int32_t round = -1; round < MEASURED && st == TSR_OK; round++)
        st = run_once(c, &desc, b, round);
    tsr_progress_line_wipe(&c->line);
    if (st == TSR_OK) {
        if (c->opt.json)
            print_json(c, b);
        else
            print_table(c, b);
    }
    tsr_free(b);
    return st;
}
