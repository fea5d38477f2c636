/* context.c -- a context: error, log, thread pool, backend. One thread uses it at a time. */
#include "pipeline/pipeline_internal.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/num.h"
#include "kernels/roof.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

enum { MAX_THREADS = 256 };

const char *tsr_version(void)
{
    return STRING(TSR_VERSION_MAJOR) "." STRING(TSR_VERSION_MINOR) "." STRING(TSR_VERSION_PATCH);
}

const char *tsr_status_name(tsr_status s)
{
    static const char *const names[] = {
        [TSR_OK] = "ok",           [TSR_E_INTERNAL] = "internal", [TSR_E_USAGE] = "usage",
        [TSR_E_BUDGET] = "budget", [TSR_E_MODEL] = "model",       [TSR_E_IO] = "io",
        [TSR_E_DEVICE] = "device", [TSR_E_OOM] = "out of memory", [TSR_E_CANCELLED] = "cancelled",
    };

    return (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown";
}

static tsr_status context_fill(tsr_context *ctx, const tsr_context_desc *d, tsr_err *err)
{
    tsr_cpu_tier tier = d->cpu_tier;
    int32_t n = d->n_threads;

    if (d->backend == TSR_BACKEND_CUDA)
        TSR_FAIL(err, TSR_E_DEVICE,
                 "the CUDA backend is not in this build; use --backend cpu or leave it out");
    if (tier == TSR_TIER_AUTO)
        tier = tsr_cpu_best_tier();
    ctx->backend = tsr_cpu_backend(tier);
    if (!ctx->backend)
        TSR_FAIL(err, TSR_E_DEVICE,
                 "the CPU tier %s is not available: this machine or this build lacks it; the best "
                 "here is %s",
                 tsr_cpu_tier_name(tier), tsr_cpu_tier_name(tsr_cpu_best_tier()));
    if (n < 0 || n > MAX_THREADS)
        TSR_FAIL(err, TSR_E_USAGE, "%d threads: use 1 to %d, or 0 for one a CPU", n, MAX_THREADS);
    if (n == 0)
        n = tsr_min_i32(tsr_cpu_count(), MAX_THREADS);
    return tsr_pool_make(&ctx->pool, n, err);
}

tsr_status tsr_context_make(tsr_context **out, const tsr_context_desc *desc, char *why,
                            size_t why_bytes)
{
    tsr_err err = {0};
    tsr_context *ctx = tsr_calloc(1, sizeof *ctx);
    tsr_status st;

    if (ctx) {
        ctx->log.fn = desc->log;
        ctx->log.user = desc->log_user;
        st = context_fill(ctx, desc, &err);
    } else {
        st = tsr_err_set(&err, TSR_E_OOM, "no memory for a context");
    }
    if (st != TSR_OK) {
        if (why_bytes)
            snprintf(why, why_bytes, "%s", err.msg);
        tsr_context_free(ctx);
        return st;
    }
    TSR_INFO(&ctx->log, "backend %s, tier %s, %d thread%s", ctx->backend->name, ctx->backend->tier,
             tsr_pool_threads(ctx->pool), tsr_pool_threads(ctx->pool) == 1 ? "" : "s");
    *out = ctx;
    return TSR_OK;
}

void tsr_context_free(tsr_context *ctx)
{
    if (!ctx)
        return;
    tsr_pool_free(ctx->pool);
    tsr_free(ctx);
}

const char *tsr_context_error(const tsr_context *ctx)
{
    return ctx->err.msg;
}
const char *tsr_context_backend(const tsr_context *ctx)
{
    return ctx->backend->name;
}
const char *tsr_context_tier(const tsr_context *ctx)
{
    return ctx->backend->tier;
}
int32_t tsr_context_threads(const tsr_context *ctx)
{
    return tsr_pool_threads(ctx->pool);
}

tsr_status tsr_context_roof(tsr_context *ctx, int32_t n_threads, tsr_roof *roof)
{
    tsr_roof_rates rates;

    tsr_err_clear(&ctx->err);
    if (n_threads < 1 || n_threads > tsr_pool_threads(ctx->pool))
        TSR_FAIL(&ctx->err, TSR_E_USAGE, "a roof of %d threads is asked of a context with %d",
                 n_threads, tsr_pool_threads(ctx->pool));
    TSR_TRY(tsr_roof_measure(ctx->backend, ctx->pool, n_threads, &rates, &ctx->err));
    *roof = (tsr_roof){.n_threads = n_threads, .flops = rates.flops, .bytes = rates.bytes};
    return TSR_OK;
}

void tsr_string_free(char *s)
{
    tsr_free(s);
}
