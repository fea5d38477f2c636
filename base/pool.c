/* pool.c -- parked threads, tasks claimed through one atomic word.
 *
 * `claim` holds the number of the run (upper half) and how many of its tasks nobody has taken
 * (lower half). Taking one is a compare-and-swap that counts down, so it fails for a thread that
 * comes late from an earlier run, and success pins the run: it cannot end before that task is done,
 * hence `fn`, `arg` and `n_tasks`, plain fields written before `claim` was published, may
 * be read. `unfinished` counts the tasks that are not done; whoever brings it to zero wakes the
 * caller. So a run waits for its tasks and never for a worker that got none: a worker that the
 * system has descheduled holds up nobody.
 *
 * Between runs workers watch `claim` for some tens of microseconds (ops of a network follow each
 * other at that distance, and waking a virtual machine's idle core takes longer than that) and then
 * sleep on a condition variable; the machine may be shared. A run wakes no more workers than it has
 * tasks for, and makes no allocation. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/num.h"
#include "base/thread.h"

enum { MOST_THREADS = 256, SPINS = 2000 };

struct tsr_pool;

typedef struct pool_worker {
    struct tsr_pool *pool;
    pthread_t thread;
    int32_t index; /* 1 .. n_threads-1 */
} pool_worker;

struct tsr_pool {
    _Atomic uint64_t claim;     /* run << 32 | tasks not taken */
    _Atomic int32_t unfinished; /* tasks of the run that are not done */
    /* of the run; readable by who has taken a task */
    tsr_task_fn fn;
    void *arg;
    int32_t n_tasks;
    /* parking */
    pthread_mutex_t lock;
    pthread_cond_t work;     /* to workers: a run has begun, or the pool ends */
    pthread_cond_t finished; /* to the caller: unfinished is zero */
    int32_t n_parked;        /* workers that wait; under lock */
    _Atomic bool ending;
    int32_t n_threads, n_started;
    pool_worker workers[]; /* n_threads - 1 */
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool has_tasks(tsr_pool *p)
{
    return (uint32_t)atomic_load_explicit(&p->claim, memory_order_relaxed) != 0;
}

/* Takes tasks until there are none. */
static void work_on(tsr_pool *p, int32_t thread)
{
    uint64_t claim = atomic_load_explicit(&p->claim, memory_order_acquire);
    int32_t done = 0;

    while ((uint32_t)claim != 0) {
        if (!atomic_compare_exchange_weak_explicit(&p->claim, &claim, claim - 1,
                                                   memory_order_acquire, memory_order_acquire))
            continue;
        p->fn(p->arg, p->n_tasks - (int32_t)(uint32_t)claim, thread);
        claim--;
        done++;
    }
    if (done && atomic_fetch_sub_explicit(&p->unfinished, done, memory_order_acq_rel) == done) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->finished);
        pthread_mutex_unlock(&p->lock);
    }
}

/* Returns when there is something to do, or the pool ends. */
static void await_work(tsr_pool *p)
{
    for (int32_t i = 0; i < SPINS; i++) {
        if (has_tasks(p))
            return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    p->n_parked++;
    while (!has_tasks(p) && !atomic_load(&p->ending))
        pthread_cond_wait(&p->work, &p->lock);
    p->n_parked--;
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    pool_worker *w = arg;

    while (!atomic_load(&w->pool->ending)) {
        work_on(w->pool, w->index);
        await_work(w->pool);
    }
    return NULL;
}

void tsr_pool_run(tsr_pool *p, int32_t n_tasks, tsr_task_fn fn, void *arg)
{
    uint64_t run;
    int32_t wake;

    if (p->n_threads == 1 || n_tasks <= 1) {
        for (int32_t i = 0; i < n_tasks; i++)
            fn(arg, i, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_tasks = n_tasks;
    atomic_store_explicit(&p->unfinished, n_tasks, memory_order_relaxed);
    run = (atomic_load_explicit(&p->claim, memory_order_relaxed) >> 32) + 1;
    pthread_mutex_lock(&p->lock); /* a worker that is about to park sees the new run */
    atomic_store_explicit(&p->claim, run << 32 | (uint32_t)n_tasks, memory_order_release);
    wake = tsr_min_i32(p->n_parked, n_tasks - 1);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < wake; i++)
        pthread_cond_signal(&p->work);

    work_on(p, 0);
    for (int32_t i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->unfinished, memory_order_acquire) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->unfinished, memory_order_acquire) != 0)
        pthread_cond_wait(&p->finished, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static int start_workers(tsr_pool *p)
{
    int error = 0;

    for (int32_t i = 1; i < p->n_threads && !error; i++) {
        pool_worker *w = &p->workers[i - 1];
        *w = (pool_worker){.pool = p, .index = i};
        error = tsr_thread_start(&w->thread, worker_main, w);
        p->n_started += !error;
    }
    return error;
}

tsr_status tsr_pool_make(tsr_pool **pool, int32_t n_threads, tsr_err *err)
{
    tsr_pool *p;
    int error;

    if (n_threads < 1 || n_threads > MOST_THREADS)
        TSR_FAIL(err, TSR_E_USAGE, "%d threads are not possible: 1 to %d are", (int)n_threads,
                 (int)MOST_THREADS);
    p = tsr_calloc(1, sizeof *p + (size_t)(n_threads - 1) * sizeof p->workers[0]);
    if (!p)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for %d threads", (int)n_threads);
    p->n_threads = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
    error = start_workers(p);
    if (error) {
        char text[96];
        tsr_err_set(err, TSR_E_OOM, "cannot start thread %d of %d (fewer may do): %s",
                    (int)p->n_started + 2, (int)n_threads, strerror_r(error, text, sizeof text));
        tsr_pool_free(p);
        return TSR_E_OOM;
    }
    *pool = p;
    return TSR_OK;
}

void tsr_pool_free(tsr_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->ending, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    tsr_free(p);
}

int32_t tsr_pool_threads(const tsr_pool *p)
{
    return p->n_threads;
}

/* -------------------------------------------------------------------- CPUs */

static int32_t affinity_count(void)
{
    enum { WORDS = 8192 / (8 * sizeof(unsigned long)) }; /* the most CPUs that Linux is built for */
    unsigned long mask[WORDS] = {0};
    int32_t n = 0;

    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)(void *)mask) == 0)
        for (size_t i = 0; i < WORDS; i++)
            n += __builtin_popcountl(mask[i]);
    if (n == 0)
        n = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    return tsr_max_i32(n, 1);
}

int32_t tsr_cpu_count(void)
{
    return tsr_min_i32(affinity_count(), tsr_cgroup_cpus(NULL, NULL));
}
