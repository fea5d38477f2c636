/* pool.h -- a pool of parked threads that claim tasks dynamically.
 *
 * tsr_pool_run calls fn(arg, task, thread) for task = 0 .. n_tasks-1, each exactly once, on
 * the calling thread (thread 0) and the pool's workers (1 .. n_threads-1), and returns when
 * all are done. Tasks are claimed one by one from a shared counter, so a thread that is held
 * up costs its own task only. Which thread runs a task never changes a result: tasks write
 * disjoint outputs and never split a reduction. Workers spin briefly, then park. */
#ifndef TSR_BASE_POOL_H
#define TSR_BASE_POOL_H

#include <stdint.h>

#include "base/err.h"

typedef struct tsr_pool tsr_pool;
typedef void (*tsr_task_fn)(void *arg, int32_t task, int32_t thread);

/* n_threads >= 1, the caller's included; 1 makes no thread. Worker stacks are small (256 KiB). */
tsr_status tsr_pool_make(tsr_pool **pool, int32_t n_threads, tsr_err *err);
void tsr_pool_free(tsr_pool *pool); /* accepts NULL */
int32_t tsr_pool_threads(const tsr_pool *pool);
void tsr_pool_run(tsr_pool *pool, int32_t n_tasks, tsr_task_fn fn, void *arg); /* not re-entrant */

int32_t
tsr_cpu_count(void); /* CPUs this process may run on (affinity and cgroup quota), at least 1 */

#endif
