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

static tsr_status use_cpu(tsr_context *ctx, tsr_cpu_tier tier, tsr_err *err)
{
    if (tier == TSR_TIER_AUTO)
        tier = tsr_cpu_best_tier();
    ctx->backend = tsr_cpu_backend(tier);
    if (!ctx->backend)
        TSR_FAIL(err, TSR_E_DEVICE,
                 "the CPU tier %s is not available: this machine or this build lacks it; the best "
                 "here is %s",
                 tsr_cpu_tier_name(tier), tsr_cpu_tier_name(tsr_cpu_best_tier()));
    return TSR_OK;
}

static const char *plugin_name(tsr_backend_kind kind)
{
    return kind == TSR_BACKEND_CUDA_SIM ? "libtessera_cuda_sim.so" : "libtessera_cuda.so";
}

static void *zeroed(size_t bytes)
{
    return tsr_calloc(1, bytes);
}

static tsr_status use_device(tsr_context *ctx, const tsr_context_desc *d, tsr_err *err)
{
    static const tsr_plugin_host host = {zeroed, tsr_free};
    tsr_backend *b = NULL;

    TSR_TRY(tsr_plugin_open(plugin_name(d->backend), &ctx->plugin_handle, &ctx->plugin, err));
    TSR_TRY(ctx->plugin->open(&host, d->device, &b, err));
    ctx->backend = b;
    return TSR_OK;
}

/* A device that cannot be used is told; the CPU is used then. */
static tsr_status use_best(tsr_context *ctx, const tsr_context_desc *d, tsr_err *err)
{
    tsr_err why = {0};

    if (d->cpu_tier == TSR_TIER_AUTO && use_device(ctx, d, &why) == TSR_OK)
        return TSR_OK;
    if (why.msg[0])
        TSR_DETAIL(&ctx->log, "%s", why.msg);
    tsr_plugin_close(ctx->plugin_handle); /* its libraries would count against the budget */
    ctx->plugin_handle = NULL;
    return use_cpu(ctx, d->cpu_tier, err);
}

static tsr_status context_fill(tsr_context *ctx, const tsr_context_desc *d, tsr_err *err)
{
    int32_t n = d->n_threads;

    if (n < 0 || n > MAX_THREADS)
        TSR_FAIL(err, TSR_E_USAGE, "%d threads: use 1 to %d, or 0 for one a CPU", n, MAX_THREADS);
    if (n == 0)
        n = tsr_min_i32(tsr_cpu_count(), MAX_THREADS);
    switch (d->backend) {
    case TSR_BACKEND_AUTO:
        TSR_TRY(use_best(ctx, d, err));
        break;
    case TSR_BACKEND_CPU:
        TSR_TRY(use_cpu(ctx, d->cpu_tier, err));
        break;
    case TSR_BACKEND_CUDA:
    case TSR_BACKEND_CUDA_SIM:
        TSR_TRY(use_device(ctx, d, err));
        break;
    }
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
    if (ctx->backend && ctx->backend->device)
        ctx->plugin->close((tsr_backend *)(uintptr_t)ctx->backend);
    tsr_plugin_close(ctx->plugin_handle);
    tsr_free(ctx);
}

tsr_status tsr_list_devices(tsr_device_info *list, int32_t max, int32_t *n, char *why,
                            size_t why_bytes)
{
    const tsr_plugin *plugin;
    void *handle;
    tsr_err err = {0};
    tsr_status st = tsr_plugin_open(plugin_name(TSR_BACKEND_CUDA), &handle, &plugin, &err);

    if (st == TSR_OK) {
        st = plugin->list(list, max, n, &err);
        tsr_plugin_close(handle);
    }
    if (st != TSR_OK && why_bytes)
        snprintf(why, why_bytes, "%s", err.msg);
    return st;
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
