/* test_pool.c -- every task exactly once, on any number of threads, and nothing burnt while idle.
 */
#include "base/pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "tests/support/test.h"

enum { MOST_TASKS = 2000 };

typedef struct job {
    int32_t n_threads;
    int32_t
        calls[MOST_TASKS]; /* each written by the thread that runs the task: TSAN sees overlaps */
    int32_t plain_input;   /* written by the caller before a run */
    _Atomic int32_t bad;
} job;

static void count_task(void *arg, int32_t task, int32_t thread)
{
    job *j = arg;

    if (thread < 0 || thread >= j->n_threads)
        atomic_fetch_add(&j->bad, 1);
    j->calls[task] += j->plain_input;
}

static tsr_pool *make_pool(int32_t n_threads)
{
    tsr_pool *pool = NULL;
    tsr_err err = {0};

    CHECK_MSG(tsr_pool_make(&pool, n_threads, &err) == TSR_OK, "%s", err.msg);
    return pool;
}

static void pool_run__any_number_of_tasks_and_threads__runs_each_once(void)
{
    static const int32_t counts[] = {0, 1, 2, 3, 7, 64, MOST_TASKS, -5};

    for (int32_t n_threads = 1; n_threads <= 9; n_threads += 2) {
        tsr_pool *pool = make_pool(n_threads);
        REQUIRE(pool && tsr_pool_threads(pool) == n_threads);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            static job j;
            memset(&j, 0, sizeof j);
            j.n_threads = n_threads;
            j.plain_input = 3;
            tsr_pool_run(pool, counts[c], count_task, &j);
            for (int32_t i = 0; i < MOST_TASKS; i++)
                CHECK(j.calls[i] == (i < counts[c] ? 3 : 0));
            CHECK(j.bad == 0);
        }
        tsr_pool_free(pool);
    }
}

static void pool_run__many_short_runs__never_mixes_them_up(void)
{
    enum { RUNS = 4000 };
    static job jobs[2];
    tsr_pool *pool = make_pool(4);
    int64_t want[2] = {0, 0}, got[2] = {0, 0};

    REQUIRE(pool);
    memset(jobs, 0, sizeof jobs);
    for (int32_t r = 0; r < RUNS; r++) {
        job *j = &jobs[r % 2];
        int32_t n = r * 7 % 23;
        j->n_threads = 4;
        j->plain_input = r;
        tsr_pool_run(pool, n, count_task, j);
        want[r % 2] += (int64_t)r * n;
    }
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < MOST_TASKS; i++)
            got[k] += jobs[k].calls[i];
    CHECK(got[0] == want[0] && got[1] == want[1]);
    CHECK(jobs[0].bad == 0 && jobs[1].bad == 0);
    tsr_pool_free(pool);
}

typedef struct waiting {
    _Atomic int32_t finished;
    int32_t n_tasks;
} waiting;

/* Task 0 goes on when all the others are done. */
static void wait_for_others(void *arg, int32_t task, int32_t thread)
{
    waiting *w = arg;

    (void)thread;
    while (task == 0 && atomic_load(&w->finished) < w->n_tasks - 1)
        sched_yield();
    atomic_fetch_add(&w->finished, 1);
}

static void pool_run__a_thread_held_up_by_its_task__leaves_the_rest_to_others(void)
{
    tsr_pool *pool = make_pool(2);
    waiting w = {.n_tasks = 50};

    REQUIRE(pool);
    tsr_pool_run(pool, w.n_tasks, wait_for_others, &w);
    CHECK(atomic_load(&w.finished) == 50);
    tsr_pool_free(pool);
}

typedef struct meeting {
    _Atomic bool worker_began;
    bool worker_finished;
} meeting;

static void nap_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000 * 1000};

    nanosleep(&t, NULL);
}

/* The caller's task waits for the worker to begin (ten seconds at most); the worker's is slow. */
static void meet(void *arg, int32_t task, int32_t thread)
{
    meeting *m = arg;

    (void)task;
    if (thread == 0) {
        for (int i = 0; i < 10000 && !atomic_load(&m->worker_began); i++)
            nap_ms(1);
        return;
    }
    atomic_store(&m->worker_began, true);
    nap_ms(20);
    m->worker_finished = true;
}

static void pool_run__a_parked_worker__is_woken_and_waited_for(void)
{
    tsr_pool *pool = make_pool(2);

    REQUIRE(pool);
    for (int i = 0; i < 3; i++) {
        meeting m = {0};
        nap_ms(10); /* enough for it to park */
        tsr_pool_run(pool, 2, meet, &m);
        CHECK(atomic_load(&m.worker_began) && m.worker_finished);
    }
    tsr_pool_free(pool);
}

static void pool_run__at_work__takes_no_memory(void)
{
    static job j;
    tsr_pool *pool = make_pool(3);
    uint64_t before = tsr_alloc_count();

    REQUIRE(pool);
    j.n_threads = 3;
    for (int i = 0; i < 50; i++)
        tsr_pool_run(pool, 20, count_task, &j);
    CHECK(tsr_alloc_count() == before);
    tsr_pool_free(pool);
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pool__between_runs__burns_no_time(void)
{
    static job j;
    tsr_pool *pool = make_pool(4);
    double before;

    REQUIRE(pool);
    j.n_threads = 4;
    tsr_pool_run(pool, 100, count_task, &j);
    before = cpu_seconds();
    nap_ms(200);
    CHECK_MSG(cpu_seconds() - before < 0.05, "%.3f s", cpu_seconds() - before);
    tsr_pool_free(pool);
}

static void pool_make__impossible_counts__are_refused(void)
{
    tsr_pool *pool = NULL;
    tsr_err err = {0};

    CHECK(tsr_pool_make(&pool, 0, &err) == TSR_E_USAGE && !pool);
    CHECK(tsr_pool_make(&pool, -1, &err) == TSR_E_USAGE && !pool);
    CHECK(tsr_pool_make(&pool, 100000, &err) == TSR_E_USAGE && strstr(err.msg, "100000"));
    tsr_pool_free(NULL);
}

static void pool_make__no_memory__is_a_clean_error(void)
{
    tsr_pool *pool = NULL;
    tsr_err err = {0};

    tsr_alloc_fail_at(1);
    CHECK(tsr_pool_make(&pool, 3, &err) == TSR_E_OOM && !pool);
    tsr_alloc_fail_at(0);
}

#ifndef TSR_SANITIZED
/* In a child whose address space has no room for that many stacks. */
static int make_too_many(void)
{
    tsr_pool *pool = NULL;
    tsr_err err = {0};
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    struct rlimit limit;

    if (!f || fscanf(f, "%ld", &pages) != 1)
        return 2;
    fclose(f);
    limit.rlim_cur = limit.rlim_max =
        (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)8 << 20);
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 3;
    if (tsr_pool_make(&pool, 256, &err) != TSR_E_OOM || pool || !strstr(err.msg, "cannot start"))
        return 4;
    return tsr_pool_make(&pool, 2, &err) == TSR_OK ? 0 : 5; /* what was started is gone again */
}
#endif

static void pool_make__a_thread_that_cannot_start__is_a_clean_error(void)
{
#ifdef TSR_SANITIZED
    SKIP("sanitizers do not run in a limited address space");
#else
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(make_too_many());
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_MSG(status == 0, "status %x", (unsigned)status);
#endif
}

static void cpu_count__affinity__is_respected(void)
{
    cpu_set_t before, one;
    size_t cpu = 0;

    CHECK(tsr_cpu_count() >= 1);
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(tsr_cpu_count() == 1);
    sched_setaffinity(0, sizeof before, &before);
    CHECK(tsr_cpu_count() <= CPU_COUNT(&before));
}

int main(void)
{
    RUN(pool_run__any_number_of_tasks_and_threads__runs_each_once);
    RUN(pool_run__many_short_runs__never_mixes_them_up);
    RUN(pool_run__a_thread_held_up_by_its_task__leaves_the_rest_to_others);
    RUN(pool_run__a_parked_worker__is_woken_and_waited_for);
    RUN(pool_run__at_work__takes_no_memory);
    RUN(pool__between_runs__burns_no_time);
    RUN(pool_make__impossible_counts__are_refused);
    RUN(pool_make__no_memory__is_a_clean_error);
    RUN(pool_make__a_thread_that_cannot_start__is_a_clean_error);
    RUN(cpu_count__affinity__is_respected);
    return test_end();
}
