/* ops.c -- where a run's time went, op by op: for gen bench --ops.
 *
 * Each program adds up the seconds of its ops (tsr_program_time_ops). Here ops of the same kind,
 * shape and method become one row of their section, per call of that section; a last row has the
 * whole section, so what no op accounts for (waiting, the planner's seams) can be seen. */
#include "pipeline/pipeline_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static void count_ops(tsr_program *p, void *arg)
{
    *(size_t *)arg += p->tape->n_ops;
}

static void hand_out(tsr_program *p, void *arg)
{
    double **next = arg;

    tsr_program_time_ops(p, *next);
    *next += p->tape->n_ops;
}

static size_t all_ops(tsr_run *r)
{
    size_t n = 0;

    tsr_nets_each(&r->nets, count_ops, &n);
    return n;
}

tsr_status tsr_run_time_ops(tsr_run *r)
{
    double *next;

    if (!r->time_ops)
        return TSR_OK;
    next = r->op_seconds = tsr_calloc(all_ops(r), sizeof *next);
    if (!next)
        TSR_FAIL(&r->ctx->err, TSR_E_OOM, "no memory for the times of the ops");
    tsr_nets_each(&r->nets, hand_out, &next);
    return TSR_OK;
}

/* Rows are filled in place; the first `n` are there. */
typedef struct op_rows {
    tsr_op_info *rows;
    char (*texts)[TSR_OP_TEXT];
    int32_t n;
} op_rows;

/* The row of these ops among [first, n), made when there is none. */
static tsr_op_info *row_of(op_rows *o, int32_t first, const tsr_op_info *like)
{
    for (int32_t i = first; i < o->n; i++)
        if (strcmp(o->rows[i].what, like->what) == 0 &&
            strcmp(o->rows[i].method, like->method) == 0)
            return &o->rows[i];
    o->rows[o->n] = *like;
    memcpy(o->texts[o->n], like->what, TSR_OP_TEXT);
    o->rows[o->n].what = o->texts[o->n];
    return &o->rows[o->n++];
}

static void add_op(op_rows *o, int32_t first, const tsr_program *p, const char *phase, size_t i)
{
    const tsr_op *op = &p->tape->ops[i];
    const tsr_backend *b = p->backend;
    const char *method = b->method ? b->method(b, p->tape, op) : NULL;
    bool once = (int32_t)i < p->tape->loop_begin;
    char text[TSR_OP_TEXT] = {0};
    tsr_op_info *row, like = {.phase = phase, .what = text, .method = method ? method : ""};

    tsr_op_describe(p->tape, op, text, sizeof text);
    like.once = once;
    like.matrix =
        op->kind == TSR_OP_CONV2D || op->kind == TSR_OP_LINEAR || op->kind == TSR_OP_ATTENTION;
    row = row_of(o, first, &like);
    row->n_ops++;
    row->flops += tsr_op_flops(p->tape, op);
    row->bytes += tsr_op_bytes(p->tape, op);
    row->seconds += p->clock.seconds[i] / p->clock.n_runs[!once];
}

static int longest_first(const void *a, const void *b)
{
    const tsr_op_info *x = a, *y = b;

    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

/* One section of a network that has run. */
static void add_section(op_rows *o, const tsr_program *p, const char *phase, bool loop)
{
    size_t split = (size_t)p->tape->loop_begin;
    int32_t first = o->n;
    tsr_op_info all = {.phase = phase, .once = !loop, .what = "all of it", .method = ""};

    if (!p->clock.n_runs[loop] || (!loop && split == 0))
        return;
    for (size_t i = loop ? split : 0; i < (loop ? p->tape->n_ops : split); i++)
        add_op(o, first, p, phase, i);
    for (int32_t i = first; i < o->n; i++) {
        all.n_ops += o->rows[i].n_ops;
        all.flops += o->rows[i].flops;
        all.bytes += o->rows[i].bytes;
    }
    qsort(o->rows + first, (size_t)(o->n - first), sizeof *o->rows, longest_first);
    all.seconds = p->clock.section_seconds[loop] / p->clock.n_runs[loop];
    o->rows[o->n++] = all;
}

static void add_net(op_rows *o, const tsr_net *net, const char *phase)
{
    add_section(o, &net->program, phase, false);
    add_section(o, &net->program, phase, true);
}

tsr_status tsr_run_get_ops(tsr_run *r, const tsr_op_info **ops, int32_t *n)
{
    size_t room = all_ops(r) + 2 * (2 * TSR_MAX_ENCODERS + 3);
    tsr_nets *nets = &r->nets;
    op_rows o = {0};

    tsr_err_clear(&r->ctx->err);
    if (!r->op_seconds)
        TSR_FAIL(&r->ctx->err, TSR_E_USAGE, "the ops of this run were not timed");
    tsr_free(r->ops);
    tsr_free(r->op_texts);
    o.rows = r->ops = tsr_calloc(room, sizeof *r->ops);
    o.texts = r->op_texts = tsr_calloc(room, sizeof *r->op_texts);
    if (!o.rows || !o.texts)
        TSR_FAIL(&r->ctx->err, TSR_E_OOM, "no memory for the table of the ops");
    for (int32_t i = 0; i < nets->n_text; i++)
        add_net(&o, &nets->text[i].net, "text");
    if (nets->has_unet)
        add_net(&o, &nets->unet, "denoise");
    for (int32_t i = 0; i < nets->n_vae; i++)
        add_net(&o, &nets->vae[i], r->phases[TSR_RUN_DECODE].name);
    *ops = r->ops;
    *n = o.n;
    return TSR_OK;
}
