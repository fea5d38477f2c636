/* bench_ops.c -- gen bench --ops: every kind of op of a run, against what this machine can do.
 *
 * One picture is made with every op timed, then the roof is measured (whose buffers are no part of
 * the run's memory): multiply-adds in registers and reading of memory, on one thread and on all.
 * FLOPs and bytes are counted, not measured; an op's share of the roof is what the roof would have
 * taken over what it took. Winograd's FLOPs are those of the plain sum that it replaces (it
 * computes fewer), and say so. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 2 };

typedef struct bench_ops {
    tsr_roof one, all; /* threads */
    const tsr_op_info *ops;
    int32_t n;
} bench_ops;

/* Of the least time that the roof allows; 0: the roof is not known. */
static double share(const tsr_roof *roof, const tsr_op_info *op)
{
    double compute = roof->flops > 0 ? op->flops / roof->flops : 0, move = op->bytes / roof->bytes;

    return op->seconds > 0 ? (compute > move ? compute : move) / op->seconds : 0;
}

static void print_roof(const tsr_roof *r)
{
    printf("%2d thread%s  %8.1f GFLOP/s  %6.1f GB/s\n", r->n_threads, r->n_threads == 1 ? " " : "s",
           r->flops / 1e9, r->bytes / 1e9);
}

static void print_op(const bench_ops *b, const tsr_op_info *op, double whole)
{
    char name[128];

    snprintf(name, sizeof name, "%s%s%s", op->what, *op->method ? " *" : "", op->method);
    printf("%-56s %4d %9.2f %5.1f", name, op->n_ops, op->seconds * 1e3,
           whole > 0 ? 100 * op->seconds / whole : 0);
    printf(" %9.3f %9.2f %8.1f %7.1f %5.0f\n", op->flops / 1e9, op->bytes / 1e6,
           op->flops / 1e9 / op->seconds, op->bytes / 1e9 / op->seconds, 100 * share(&b->all, op));
}

static const char *section_name(const tsr_op_info *op)
{
    if (op->once)
        return "once, before the first step";
    return strcmp(op->phase, "denoise") == 0 ? "a step"
           : strcmp(op->phase, "text") == 0  ? "the prompts"
                                             : "a picture";
}

/* Rows [i, end) are one section; the last has all of it. */
static void print_section(const bench_ops *b, int32_t i, int32_t end)
{
    double whole = b->ops[end - 1].seconds;

    printf("\n%s, %s\n", b->ops[i].phase, section_name(&b->ops[i]));
    printf("%-56s %4s %9s %5s %9s %9s %8s %7s %5s\n", "op", "ops", "ms", "%", "GFLOP", "MB",
           "GFLOP/s", "GB/s", "roof%");
    for (; i < end; i++)
        print_op(b, &b->ops[i], whole);
}

static int32_t section_end(const bench_ops *b, int32_t i)
{
    while (strcmp(b->ops[i].what, "all of it") != 0)
        i++;
    return i + 1;
}

static void print_table(const tsr_cli *c, const tsr_run *run, const bench_ops *b)
{
    tsr_run_info info;

    tsr_run_get_info(run, &info);
    printf("%dx%d, tier %s, %d threads, %s\nroof, measured:\n", info.width, info.height,
           tsr_context_tier(c->ctx), tsr_context_threads(c->ctx), info.precision);
    print_roof(&b->one);
    if (b->all.n_threads > 1)
        print_roof(&b->all);
    for (int32_t i = 0, end; i < b->n; i = end)
        print_section(b, i, end = section_end(b, i));
    printf("\nroof%%: of the speed that the roof allows (bytes as if from memory: above 100 out of "
           "a cache)\n"
           "* winograd: GFLOP and GFLOP/s of the plain sum, of which it computes a part\n");
}

static void print_json(const tsr_cli *c, const tsr_run *run, const bench_ops *b)
{
    tsr_run_info info;

    tsr_run_get_info(run, &info);
    printf("{\"width\":%d,\"height\":%d,\"tier\":\"%s\",\"threads\":%d,\"precision\":\"%s\","
           "\"roof\":[{\"threads\":1,\"gflops\":%.3f,\"gbytes\":%.3f},"
           "{\"threads\":%d,\"gflops\":%.3f,\"gbytes\":%.3f}],\"ops\":[",
           info.width, info.height, tsr_context_tier(c->ctx), tsr_context_threads(c->ctx),
           info.precision, b->one.flops / 1e9, b->one.bytes / 1e9, b->all.n_threads,
           b->all.flops / 1e9, b->all.bytes / 1e9);
    for (int32_t i = 0; i < b->n; i++) {
        const tsr_op_info *op = &b->ops[i];
        printf(
            "%s\n{\"phase\":\"%s\",\"once\":%s,\"what\":\"%s\",\"method\":\"%s\",\"ops\":%d,"
            "\"gflop\":%.6f,\"mbytes\":%.6f,\"seconds\":%.9f,\"gflops\":%.3f,\"roof_share\":%.4f}",
            i ? "," : "", op->phase, op->once ? "true" : "false", op->what, op->method, op->n_ops,
            op->flops / 1e9, op->bytes / 1e6, op->seconds,
            op->seconds > 0 ? op->flops / 1e9 / op->seconds : 0, share(&b->all, op));
    }
    printf("]}\n");
}

static tsr_status measure(tsr_cli *c, tsr_run *run, bench_ops *b)
{
    tsr_picture pic;
    int32_t threads = tsr_context_threads(c->ctx);

    TSR_TRY(tsr_cli_library(c, tsr_run_next(run, &pic)));
    TSR_TRY(tsr_cli_library(c, tsr_run_get_ops(run, &b->ops, &b->n)));
    TSR_TRY(tsr_cli_library(c, tsr_context_roof(c->ctx, 1, &b->one)));
    return tsr_cli_library(c, tsr_context_roof(c->ctx, threads, &b->all));
}

tsr_status tsr_cli_bench_ops(tsr_cli *c, const tsr_run_desc *asked)
{
    tsr_run_desc desc = *asked;
    tsr_run *run = NULL;
    bench_ops b = {0};
    tsr_status st;

    desc.time_ops = true;
    if (!desc.steps)
        desc.steps = STEPS;
    TSR_TRY(tsr_cli_run_make(c, &desc, &run));
    st = measure(c, run, &b);
    tsr_progress_line_wipe(&c->line);
    if (st == TSR_OK) {
        if (c->opt.json)
            print_json(c, run, &b);
        else
            print_table(c, run, &b);
    }
    tsr_run_free(run);
    return st;
}
