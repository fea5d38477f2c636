/* program_io.c -- the plan's jobs, done: weights read and packed, rows written and read back.
 *
 * Jobs of a section are submitted in the plan's order and executed one by one. The spill file keeps
 * a value as the arena would, [N,H,W,C]: rows of an entry are one run of bytes. Without an I/O
 * thread a job is done where it would be submitted. */
#include "kernels/program_internal.h"

#include <time.h>

/* Address of an item: the arena's high water is the compute threads' business, who note it when
 * they submit. */
static unsigned char *place(const tsr_program *p, int32_t item)
{
    return p->arena->base + p->arena_base + p->plan.items[item].offset;
}

/* Rows [a,b) of every entry, between the item and the file. */
static tsr_status move_rows(tsr_program *p, const tsr_job *job, int32_t step, tsr_err *err)
{
    const tsr_value *x = &p->tape->values[job->index];
    size_t row = (size_t)x->w * (size_t)x->c * tsr_dtype_size(x->dtype);
    size_t entry = row * (size_t)x->h, bytes = row * (size_t)(job->b - job->a);
    size_t at = p->plan.regions[job->region].offset + row * (size_t)job->a;
    unsigned char *rows = place(p, job->item);

    if (!p->spill)
        TSR_FAIL(err, TSR_E_INTERNAL, "a plan that spills is run without a spill file");
    if (x->kind == TSR_VALUE_VIEW)
        at += (size_t)step * (size_t)x->n * entry;
    for (int32_t n = 0; n < x->n; n++, rows += bytes, at += entry) {
        if (job->kind == TSR_JOB_STORE)
            TSR_TRY(tsr_spill_write(p->spill, at, rows, bytes, err));
        else
            TSR_TRY(tsr_spill_read(p->spill, at, rows, bytes, err));
        p->bytes_spilled += bytes;
    }
    return TSR_OK;
}

static tsr_status do_job(tsr_program *p, const tsr_job *job, int32_t step, tsr_err *err)
{
    int32_t c[2] = {job->a, job->b};

    if (job->kind != TSR_JOB_WEIGHT)
        return move_rows(p, job, step, err);
    return tsr_program_read_weight(p, job->index, c, place(p, job->item), NULL, &p->bytes_streamed,
                                   err);
}

/* Processor time of this thread. */
static double core_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tsr_status run_job(void *arg, uint64_t index, uint64_t step, tsr_err *err)
{
    tsr_program *p = arg;
    double start = core_seconds();
    tsr_status st = do_job(p, &p->plan.jobs[index], (int32_t)step, err);

    p->io_core_seconds += core_seconds() - start;
    return st;
}

void tsr_program_submit(tsr_program *p, int32_t begin, int32_t end, int32_t step)
{
    for (int32_t i = begin; i < end; i++) {
        (void)tsr_program_item(p, p->plan.jobs[i].item);
        if (p->io)
            p->tickets[i] = tsr_io_submit(p->io, run_job, p, (uint64_t)i, (uint64_t)step);
        else if (p->io_status == TSR_OK)
            p->io_status = run_job(p, (uint64_t)i, (uint64_t)step, p->err);
    }
}

tsr_status tsr_program_wait(tsr_program *p, int32_t begin, int32_t n)
{
    if (n <= begin)
        return TSR_OK;
    if (!p->io)
        return p->io_status;
    return tsr_io_wait(p->io, p->tickets[n - 1], &p->seconds_waiting, p->err);
}

/* After a section that ended with `st`: nothing is in flight, the first failure is returned. */
tsr_status tsr_program_drain(tsr_program *p, tsr_status st)
{
    tsr_err ignored = {0};
    tsr_status last = p->io ? tsr_io_drain(p->io, st == TSR_OK ? p->err : &ignored) : p->io_status;

    p->io_status = TSR_OK;
    return st == TSR_OK ? last : st;
}
