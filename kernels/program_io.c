/* program_io.c -- the plan's jobs, done: weights read and packed, rows written and read back.
 *
 * Jobs of a section are submitted in the plan's order and executed one by one. The spill file keeps
 * a value as the arena would, [N,H,W,C]: rows of an entry are one run of bytes. Without an I/O
 * thread a job is done where it would be submitted.
 *
 * For a device a job is done when its copies are queued; so to wait for one is to wait for its
 * thread, and then to make the compute queue wait for its event. The copy queue in turn waits for
 * what was computed before the jobs were submitted: the first of them carries that fence. */
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
        if (p->backend->device && job->kind == TSR_JOB_STORE)
            TSR_TRY(tsr_program_take_spilled(p, rows, at, bytes, err));
        else if (p->backend->device)
            TSR_TRY(tsr_program_send_spilled(p, rows, at, bytes, err));
        else if (job->kind == TSR_JOB_STORE)
            TSR_TRY(tsr_spill_write(p->spill, at, rows, bytes, err));
        else
            TSR_TRY(tsr_spill_read(p->spill, at, rows, bytes, err));
        p->bytes_spilled += bytes;
    }
    return TSR_OK;
}

static tsr_status move_job(tsr_program *p, const tsr_job *job, int32_t step, tsr_err *err)
{
    int32_t c[2] = {job->a, job->b};
    void *dst = place(p, job->item);

    if (job->kind != TSR_JOB_WEIGHT)
        return move_rows(p, job, step, err);
    if (p->backend->device)
        return tsr_program_send_weight(p, job->index, c, dst, NULL, &p->bytes_streamed, err);
    return tsr_program_read_weight(p, job->index, c, dst, NULL, &p->bytes_streamed, err);
}

/* Processor time of this thread. */
static double core_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The step, and above it that the job is the first of those submitted together. */
enum { FIRST_SHIFT = 32 };

static tsr_status do_job(tsr_program *p, int32_t i, uint64_t step_first, tsr_err *err)
{
    const tsr_device *d = p->backend->device;

    if (d && step_first >> FIRST_SHIFT)
        d->await(p->backend, TSR_QUEUE_COPY, tsr_program_job_fence(i));
    TSR_TRY(move_job(p, &p->plan.jobs[i], (int32_t)(step_first & INT32_MAX), err));
    if (d)
        d->record(p->backend, TSR_QUEUE_COPY, tsr_program_job_done(i));
    return TSR_OK;
}

static tsr_status run_job(void *arg, uint64_t index, uint64_t step_first, tsr_err *err)
{
    tsr_program *p = arg;
    double start = core_seconds();
    tsr_status st = do_job(p, (int32_t)index, step_first, err);

    p->io_core_seconds += core_seconds() - start;
    return st;
}

void tsr_program_submit(tsr_program *p, int32_t begin, int32_t end, int32_t step)
{
    const tsr_device *d = p->backend->device;

    if (d && begin < end)
        d->record(p->backend, TSR_QUEUE_COMPUTE, tsr_program_job_fence(begin));
    for (int32_t i = begin; i < end; i++) {
        uint64_t step_first = (uint64_t)step | (uint64_t)(i == begin) << FIRST_SHIFT;
        (void)tsr_program_item(p, p->plan.jobs[i].item);
        if (p->io)
            p->tickets[i] = tsr_io_submit(p->io, run_job, p, (uint64_t)i, step_first);
        else if (p->io_status == TSR_OK)
            p->io_status = run_job(p, (uint64_t)i, step_first, p->err);
    }
}

tsr_status tsr_program_wait(tsr_program *p, int32_t begin, int32_t n)
{
    const tsr_device *d = p->backend->device;

    if (n <= begin)
        return TSR_OK;
    TSR_TRY(p->io ? tsr_io_wait(p->io, p->tickets[n - 1], &p->seconds_waiting, p->err)
                  : p->io_status);
    if (d)
        d->await(p->backend, TSR_QUEUE_COMPUTE, tsr_program_job_done(n - 1));
    return TSR_OK;
}

/* After a section that ended with `st`: nothing is in flight, the first failure is returned. */
tsr_status tsr_program_drain(tsr_program *p, tsr_status st)
{
    tsr_err ignored = {0};
    tsr_status last = p->io ? tsr_io_drain(p->io, st == TSR_OK ? p->err : &ignored) : p->io_status;

    p->io_status = TSR_OK;
    if (p->backend->device) {
        tsr_status device = p->backend->device->finish(
            p->backend, st == TSR_OK && last == TSR_OK ? p->err : &ignored);
        last = last == TSR_OK ? device : last;
    }
    return st == TSR_OK ? last : st;
}
