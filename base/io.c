/* io.c -- a ring of jobs and the one thread that does them in order.
 *
 * Two counters say everything: job number t (1, 2, ...) lies in jobs[t % TSR_IO_JOBS]; `submitted`
 * is the last one queued and `done` the last one finished, so the ring is full when they are
 * TSR_IO_JOBS apart and a wait for t is a wait for done >= t. Only the owner waits, and it says up
 * to which number (`wake_at`): the thread wakes it once, and not after every job before that.
 *
 * After a failure the thread goes on taking jobs and does not do them, so nobody can hang. The
 * thread sleeps on a condition variable when the ring is empty; the work of a job is done without
 * the lock. Everything but the jobs' own data is under the lock. */
#include "base/io.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/thread.h"

typedef struct io_job {
    tsr_io_fn fn;
    void *arg;
    uint64_t a, b;
} io_job;

struct tsr_io {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;     /* to the thread: a job was queued, or the end */
    pthread_cond_t progress; /* to the owner: done has reached wake_at */
    uint64_t submitted, done;
    uint64_t wake_at;
    bool ending;
    tsr_err failure; /* code TSR_OK: none */
    io_job jobs[TSR_IO_JOBS];
};

/* The next job; false at the end, when nothing is queued any more. */
static bool take_job(tsr_io *io, io_job *job, bool *skip)
{
    bool there;

    pthread_mutex_lock(&io->lock);
    while (io->done == io->submitted && !io->ending)
        pthread_cond_wait(&io->work, &io->lock);
    there = io->done != io->submitted;
    if (there)
        *job = io->jobs[(io->done + 1) % TSR_IO_JOBS];
    *skip = io->failure.code != TSR_OK;
    pthread_mutex_unlock(&io->lock);
    return there;
}

static void *io_main(void *arg)
{
    tsr_io *io = arg;
    io_job job;
    bool skip;

    while (take_job(io, &job, &skip)) {
        tsr_err err = {0};
        tsr_status st = skip ? TSR_OK : job.fn(job.arg, job.a, job.b, &err);

        pthread_mutex_lock(&io->lock);
        if (st != TSR_OK) {
            io->failure = err;
            io->failure.code = st;
        }
        io->done++;
        if (io->done == io->wake_at)
            pthread_cond_signal(&io->progress);
        pthread_mutex_unlock(&io->lock);
    }
    return NULL;
}

/* With the lock held: returns when job `ticket` is done. */
static void await(tsr_io *io, uint64_t ticket)
{
    io->wake_at = ticket;
    while (io->done < ticket)
        pthread_cond_wait(&io->progress, &io->lock);
    io->wake_at = 0;
}

uint64_t tsr_io_submit(tsr_io *io, tsr_io_fn fn, void *arg, uint64_t a, uint64_t b)
{
    uint64_t ticket;

    pthread_mutex_lock(&io->lock);
    ticket = io->submitted + 1;
    if (ticket > TSR_IO_JOBS)
        await(io, ticket - TSR_IO_JOBS);
    io->jobs[ticket % TSR_IO_JOBS] = (io_job){fn, arg, a, b};
    io->submitted = ticket;
    pthread_cond_signal(&io->work);
    pthread_mutex_unlock(&io->lock);
    return ticket;
}

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

tsr_status tsr_io_wait(tsr_io *io, uint64_t ticket, double *seconds, tsr_err *err)
{
    tsr_err failure;

    pthread_mutex_lock(&io->lock);
    if (io->done < ticket) {
        double start = seconds_now();

        await(io, ticket);
        if (seconds)
            *seconds += seconds_now() - start;
    }
    failure = io->failure;
    pthread_mutex_unlock(&io->lock);
    if (failure.code != TSR_OK)
        TSR_FAIL(err, failure.code, "%s", failure.msg);
    return TSR_OK;
}

uint64_t tsr_io_last(const tsr_io *io)
{
    return io->submitted; /* written by the owner only, who asks */
}

tsr_status tsr_io_drain(tsr_io *io, tsr_err *err)
{
    tsr_status st = tsr_io_wait(io, io->submitted, NULL, err);

    pthread_mutex_lock(&io->lock);
    io->failure = (tsr_err){0};
    pthread_mutex_unlock(&io->lock);
    return st;
}

static void destroy(tsr_io *io)
{
    pthread_cond_destroy(&io->progress);
    pthread_cond_destroy(&io->work);
    pthread_mutex_destroy(&io->lock);
    tsr_free(io);
}

tsr_status tsr_io_make(tsr_io **out, tsr_err *err)
{
    tsr_io *io = tsr_calloc(1, sizeof *io);
    int error;

    if (!io)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the thread that reads ahead");
    pthread_mutex_init(&io->lock, NULL);
    pthread_cond_init(&io->work, NULL);
    pthread_cond_init(&io->progress, NULL);
    error = tsr_thread_start(&io->thread, io_main, io);
    if (error) {
        char text[96];

        destroy(io);
        TSR_FAIL(err, TSR_E_OOM, "cannot start the thread that reads ahead: %s",
                 strerror_r(error, text, sizeof text));
    }
    *out = io;
    return TSR_OK;
}

void tsr_io_free(tsr_io *io)
{
    if (!io)
        return;
    pthread_mutex_lock(&io->lock);
    io->ending = true;
    pthread_cond_signal(&io->work);
    pthread_mutex_unlock(&io->lock);
    pthread_join(io->thread, NULL);
    destroy(io);
}
