/* plan_cost.c -- how long a plan takes: a simple model, for choosing among plans.
 *
 *     seconds = max(compute + io / threads, io)
 *
 * The compute threads have all the cores, so what the I/O thread computes (copying out of the page
 * cache, packing) is taken from them; and nothing is faster than its I/O. Rates were measured
 * on two cores (design.md, "Memory facts"); only their ratios matter for a choice. Fewer streamed
 * bytes never make it slower, which is what keeps the choice monotone in the budget. */
#include "kernels/plan_internal.h"

static const double FLOPS_A_THREAD = 50e9;  /* matrix products */
static const double PLAIN_SLOWER = 12;      /* elementwise work, an operation */
static const double WINOGRAD_FASTER = 2.7;  /* counting the plain sum's operations */
static const double ACTION_SECONDS = 20e-6; /* waking the threads and the ragged end */
static const double READ_RATE = 2e9, PACK_RATE = 4e9, SPILL_RATE = 1.2e9;

static bool matrix_work(tsr_op_kind k)
{
    return k == TSR_OP_CONV2D || k == TSR_OP_LINEAR || k == TSR_OP_ATTENTION;
}

static double share(int32_t part, int32_t all)
{
    return all > 0 ? (double)part / (double)all : 1;
}

/* What the action computes, in matrix operations. */
static double action_flops(const tsr_backend *b, const tsr_tape *t, const tsr_action *a)
{
    const tsr_op *op = &t->ops[a->op];
    const tsr_value *out = &t->values[op->out], *keys = &t->values[op->in[1]];
    int32_t unit = tsr_plan_row_unit(b, t, op);
    tsr_rows made = tsr_plan_whole_units((tsr_rows){a->window.h0, a->window.h1}, unit);
    double flops = tsr_op_flops(t, op) * share(made.end - made.begin, out->h);

    if (a->window.c1)
        flops *= share(a->window.c1 - a->window.c0, out->c);
    if (a->carry)
        flops *= share(a->kv1 - a->kv0, keys->h * keys->w);
    return matrix_work(op->kind) ? flops : flops * PLAIN_SLOWER;
}

/* Bytes that the job moves. */
static double job_bytes(const tsr_plan *p, const tsr_tape *t, const tsr_job *job, bool *packed)
{
    const tsr_weight *w = &t->weights[job->index];
    double bytes = (double)tsr_dtype_size(w->file_dtype);

    *packed = false;
    if (job->kind != TSR_JOB_WEIGHT)
        return (double)tsr_plan_rows_bytes(&t->values[job->index], job->b - job->a);
    *packed = w->source && w->source->packed;
    if (*packed || w->kind == TSR_WEIGHT_VECTOR)
        return (double)p->items[job->item].bytes;
    for (int32_t i = 0; i < w->n_dims; i++)
        bytes *= w->dims[i];
    return bytes * share(job->b - job->a, t->values[t->ops[w->first].out].c);
}

/* Seconds of one run when `saved` seconds of its I/O are not needed. */
static double seconds_of(const tsr_plan_cost *c, double saved, int32_t n_threads)
{
    double io = c->io_seconds > saved ? c->io_seconds - saved : 0;
    double together = c->compute_seconds + io / n_threads;

    return together > io ? together : io;
}

/* Backends that make an op in tiles of rows need fewer multiplications for it. */
static double flops_a_thread(const tsr_plan_question *q, const tsr_action *a)
{
    bool tiles = tsr_plan_row_unit(q->backend, q->tape, &q->tape->ops[a->op]) > 1;

    return tiles ? FLOPS_A_THREAD * WINOGRAD_FASTER : FLOPS_A_THREAD;
}

static int32_t steps_of(const tsr_tape *t)
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

double tsr_plan_seconds(const tsr_plan *p, const tsr_plan_question *q, double saved)
{
    return seconds_of(&p->prologue, 0, q->n_threads) +
           steps_of(q->tape) * seconds_of(&p->loop, saved, q->n_threads);
}

void tsr_plan_costs(tsr_plan *p, const tsr_plan_question *q)
{
    tsr_plan_cost *cost[2] = {&p->prologue, &p->loop};

    p->prologue = p->loop = (tsr_plan_cost){0};
    for (size_t i = 0; i < p->n_actions; i++) {
        tsr_plan_cost *c = cost[(int32_t)i >= p->loop_action];
        double flops = action_flops(q->backend, q->tape, &p->actions[i]);
        c->flops += flops;
        c->compute_seconds +=
            flops / (flops_a_thread(q, &p->actions[i]) * q->n_threads) + ACTION_SECONDS;
    }
    for (size_t i = 0; i < p->n_jobs; i++) {
        const tsr_job *job = &p->jobs[i];
        tsr_plan_cost *c = cost[job->in_loop];
        bool packed;
        double bytes = job_bytes(p, q->tape, job, &packed);
        if (job->kind == TSR_JOB_WEIGHT) {
            c->bytes_streamed += bytes;
            c->io_seconds += tsr_plan_read_seconds(bytes, packed);
        } else {
            c->bytes_spilled += bytes;
            c->io_seconds += bytes / SPILL_RATE;
        }
    }
    for (int32_t i = 0; i < 2; i++)
        cost[i]->seconds = seconds_of(cost[i], 0, q->n_threads);
    p->seconds = tsr_plan_seconds(p, q, 0);
}
