/* roof.c -- measures the peak of multiply-adds and of reading memory.
 *
 * The best of a few short rounds each: a roof is not an average. Reading adds up 64-bit words of a
 * buffer far larger than any cache, in four sums a thread. */
#include "kernels/roof.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"

enum { ROUNDS = 8, FMA_COUNT = 500000, FMA_ROUNDS = 12, BUFFER = 128 << 20 };

typedef struct roof {
    const tsr_backend *backend;
    const uint64_t *words;
    int32_t n_threads;
    double flops[256];
    uint64_t sums[256];
} roof;

static void fma_task(void *arg, int32_t task, int32_t thread)
{
    roof *r = arg;

    (void)thread;
    r->flops[task] = r->backend->fma(r->backend, FMA_COUNT);
}

static void read_task(void *arg, int32_t task, int32_t thread)
{
    roof *r = arg;
    size_t n = BUFFER / sizeof *r->words / (size_t)r->n_threads & ~(size_t)3;
    const uint64_t *p = r->words + (size_t)task * n;
    uint64_t sum[4] = {0};

    (void)thread;
    for (size_t i = 0; i < n; i += 4)
        for (size_t j = 0; j < 4; j++)
            sum[j] += p[i + j];
    r->sums[task] = sum[0] + sum[1] + sum[2] + sum[3];
}

static double best_seconds(roof *r, tsr_pool *pool, int32_t rounds, tsr_task_fn fn)
{
    double best = 1e9;

    for (int32_t i = 0; i < rounds; i++) {
        double start = tsr_clock_seconds(), took;

        tsr_pool_run(pool, r->n_threads, fn, r);
        took = tsr_clock_seconds() - start;
        best = took < best ? took : best;
    }
    return best;
}

tsr_status tsr_roof_measure(const tsr_backend *b, tsr_pool *pool, int32_t n_threads,
                            tsr_roof_rates *rates, tsr_err *err)
{
    roof *r = tsr_calloc(1, sizeof *r);
    uint64_t *words = tsr_malloc(BUFFER);
    double seconds;

    if (!r || !words) {
        tsr_free(r);
        tsr_free(words);
        TSR_FAIL(err, TSR_E_OOM, "no memory to measure this machine's roof");
    }
    memset(words, 1, BUFFER);
    *r = (roof){.backend = b, .words = words, .n_threads = tsr_min_i32(n_threads, 256)};
    *rates = (tsr_roof_rates){.bytes = BUFFER / best_seconds(r, pool, ROUNDS, read_task)};
    if (b->fma) {
        seconds = best_seconds(r, pool, FMA_ROUNDS, fma_task);
        for (int32_t i = 0; i < r->n_threads; i++)
            rates->flops += r->flops[i] / seconds;
    }
    tsr_free(words);
    tsr_free(r);
    return TSR_OK;
}
