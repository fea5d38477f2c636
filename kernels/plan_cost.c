/* plan_cost.c -- how long a plan takes: a simple model, for choosing among plans and for saying it.
 *
 *     seconds = max(compute + io / threads, io)
 *
 * The compute threads have all the cores, so what the I/O thread computes (copying out of the page
 * cache, packing) is taken from them; and nothing is faster than its I/O. A matrix product gathers
 * its rows once for a group of columns, and widens its weights once for a block of rows: that is
 * what small windows and pieces cost. Rates are those of one thread of the machine of
 * bench/NOTES.md; for a choice only their ratios matter. Fewer streamed bytes never make a plan
 * slower, which is what keeps the choice monotone in the budget. */
#include "kernels/plan_internal.h"

static const double MATRIX_RATE = 98e9, ATTENTION_RATE = 62e9; /* operations a second */
static const double WINOGRAD_FASTER = 3.5;               /* counting the plain sum's operations */
static const double PLAIN_RATE = 3.4e9;                  /* elementwise ones */
static const double GATHER_RATE = 4e9, WIDEN_RATE = 8e9; /* elements */
static const double ACTION_SECONDS = 20e-6;              /* waking the threads and the ragged end */
static const double READ_RATE = 2e9, PACK_RATE = 4e9;    /* bytes, of the checkpoint */
static const double FETCH_RATE = 2.8e9, STORE_RATE = 6e9; /* of the spill file */
static const double FRESH_RATE = 1e9;                     /* its pages written first */

enum { ROWS_A_BLOCK = 144, COLUMNS_A_GROUP = 640 };

static double share(int32_t part, int32_t all)
{
    return all > 0 ? (double)part / (double)all : 1;
}

static double blocks(double n, int32_t of)
{
    return (double)(int64_t)((n + of - 1) / of);
}

/* Gathering rows and widening weights for a product of `rows` x `columns`. */
static double handling_seconds(const tsr_weight *w, double rows, int32_t columns)
{
    double k = 1;

    for (int32_t i = 1; i < w->n_dims; i++)
        k *= w->dims[i];
    return rows * k * blocks(columns, COLUMNS_A_GROUP) / GATHER_RATE +
           k * columns * blocks(rows, ROWS_A_BLOCK) / WIDEN_RATE;
}

/* What the action computes: operations, and a single thread's seconds. Backends that make an op in
 * tiles of rows make whole ones, and need fewer multiplications for it. */
static double action_work(const tsr_backend *b, const tsr_tape *t, const tsr_action *a,
                          double *seconds)
{
    const tsr_op *op = &t->ops[a->op];
    const tsr_value *out = &t->values[op->out], *keys = &t->values[op->in[1]];
    int32_t columns = a->window.c1 ? a->window.c1 - a->window.c0 : out->c;
    int32_t unit = tsr_plan_row_unit(b, t, op);
    tsr_rows made = tsr_plan_whole_units((tsr_rows){a->window.h0, a->window.h1}, unit);
    double rows = (double)out->n * (made.end - made.begin) * out->w;
    double flops = tsr_op_flops(t, op) * share(made.end - made.begin, out->h);

    flops *= share(columns, out->c);
    if (a->carry)
        flops *= share(a->kv1 - a->kv0, keys->h * keys->w);
    switch (op->kind) {
    case TSR_OP_CONV2D:
    case TSR_OP_LINEAR:
        *seconds = flops / (unit > 1 ? WINOGRAD_FASTER * MATRIX_RATE : MATRIX_RATE) +
                   handling_seconds(&t->weights[op->w[0]], rows, columns);
        break;
    case TSR_OP_ATTENTION:
        *seconds = flops / ATTENTION_RATE;
        break;
    default:
        *seconds = flops / PLAIN_RATE;
    }
    return flops;
}

static bool is_packed(const tsr_weight *w)
{
    return w->source && w->source->packed;
}

double tsr_plan_file_bytes(const tsr_weight *w, size_t packed_bytes)
{
    double bytes = (double)tsr_dtype_size(w->file_dtype);

    for (int32_t i = 0; i < w->n_dims; i++)
        bytes *= w->dims[i];
    return is_packed(w) ? (double)packed_bytes : bytes;
}

/* Bytes that the job moves. */
static double job_bytes(const tsr_plan *p, const tsr_tape *t, const tsr_job *job)
{
    const tsr_weight *w = &t->weights[job->index];

    if (job->kind != TSR_JOB_WEIGHT)
        return (double)tsr_plan_rows_bytes(&t->values[job->index], job->b - job->a);
    if (is_packed(w) || w->kind == TSR_WEIGHT_VECTOR)
        return (double)p->items[job->item].bytes;
    return tsr_plan_file_bytes(w, 0) * share(job->b - job->a, t->values[t->ops[w->first].out].c);
}

double tsr_plan_cost_seconds(const tsr_plan_cost *c, double saved, int32_t n_threads)
{
    double io = c->io_seconds > saved ? c->io_seconds - saved : 0;
    double together = c->compute_seconds + io / n_threads;

    return together > io ? together : io;
}

int32_t tsr_plan_steps(const tsr_tape *t)
{
    for (size_t v = 1; v < t->n_values; v++)
        if (t->values[v].kind == TSR_VALUE_VIEW)
            return t->values[t->values[v].base].n / t->values[v].n;
    return 1;
}

double tsr_plan_read_seconds(double bytes, bool packed)
{
    return bytes / READ_RATE + (packed ? 0 : bytes / PACK_RATE);
}

/* All threads pack what one of them reads. The spill file's pages are made by the I/O thread. */
static double load_seconds(const tsr_plan *p, const tsr_plan_question *q)
{
    double seconds = (double)p->spill_bytes / (FRESH_RATE * q->n_threads);

    for (size_t w = 1; w < q->tape->n_weights; w++) {
        const tsr_weight *wd = &q->tape->weights[w];
        double bytes;
        if (!p->weight_item[w])
            continue;
        bytes = tsr_plan_file_bytes(wd, p->items[p->weight_item[w]].bytes);
        seconds += bytes / READ_RATE + (is_packed(wd) ? 0 : bytes / (PACK_RATE * q->n_threads));
    }
    return seconds;
}

void tsr_plan_costs(tsr_plan *p, const tsr_plan_question *q)
{
    tsr_plan_cost *cost[2] = {&p->prologue, &p->loop};

    p->prologue = p->loop = (tsr_plan_cost){0};
    for (size_t i = 0; i < p->n_actions; i++) {
        tsr_plan_cost *c = cost[(int32_t)i >= p->loop_action];
        double seconds;
        c->flops += action_work(q->backend, q->tape, &p->actions[i], &seconds);
        c->compute_seconds += seconds / q->n_threads + ACTION_SECONDS;
    }
    for (size_t i = 0; i < p->n_jobs; i++) {
        const tsr_job *job = &p->jobs[i];
        tsr_plan_cost *c = cost[job->in_loop];
        double bytes = job_bytes(p, q->tape, job);
        if (job->kind == TSR_JOB_WEIGHT) {
            c->bytes_streamed += bytes;
            c->io_seconds += tsr_plan_read_seconds(bytes, is_packed(&q->tape->weights[job->index]));
        } else {
            c->bytes_spilled += bytes;
            c->io_seconds += bytes / (job->kind == TSR_JOB_LOAD ? FETCH_RATE : STORE_RATE);
        }
    }
    for (int32_t i = 0; i < 2; i++)
        cost[i]->seconds = tsr_plan_cost_seconds(cost[i], 0, q->n_threads);
    p->seconds = p->prologue.seconds + tsr_plan_steps(q->tape) * p->loop.seconds;
    p->load_seconds = load_seconds(p, q);
}
