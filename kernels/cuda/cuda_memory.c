/* cuda_memory.c -- the device's memory, queues, events and slots (tsr_device of backend.h).
 *
 * Two streams: what is computed, and what is copied. The ring is pinned memory of three slots:
 * one is being filled, one copied, one in between. After a slot's copy is queued its event is
 * recorded, and the slot is given out again when that has come. */
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "kernels/cuda/cuda_internal.h"

#define SLOT_BYTES ((size_t)4 << 20)

bool tsr_cuda_ok(tsr_cuda *c, cudaError_t e, const char *doing)
{
    int none = 0;

    if (e == cudaSuccess)
        return true;
    if (atomic_compare_exchange_strong(&c->error, &none, (int)e))
        atomic_store(&c->doing, doing);
    return false;
}

tsr_status tsr_cuda_say(tsr_err *err, cudaError_t e, const char *doing)
{
    const char *why = cudaGetErrorString(e);

    switch (e) {
    case cudaErrorMemoryAllocation:
        TSR_FAIL(
            err, TSR_E_OOM,
            "the device has no memory left (%s); other programs may have taken it: close them, "
            "or give a smaller --budget",
            doing);
    case cudaErrorECCUncorrectable:
        TSR_FAIL(err, TSR_E_DEVICE,
                 "the device's memory is damaged (%s, while %s); reset the device, or choose "
                 "another one with --backend cuda:N",
                 why, doing);
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorNoKernelImageForDevice:
        TSR_FAIL(err, TSR_E_DEVICE, "CUDA cannot be used: %s", why);
    default:
        TSR_FAIL(err, TSR_E_DEVICE,
                 "the device failed while %s (%s); the system's log may say more", doing, why);
    }
}

/* -------------------------------------------------------------------------- memory */

static tsr_status reserve(const tsr_backend *b, size_t bytes, void **base, tsr_err *err)
{
    cudaError_t e = cudaMalloc(base, tsr_max_size(bytes, 1));

    (void)b;
    if (e == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&free_bytes, &total);
        TSR_FAIL(err, TSR_E_OOM,
                 "the run needs %zu MiB of the device's memory and only %zu MiB are free; close "
                 "other programs, or give a smaller --budget",
                 (bytes + 0xFFFFF) >> 20, free_bytes >> 20);
    }
    return e == cudaSuccess ? TSR_OK : tsr_cuda_say(err, e, "reserving its memory");
}

static void release(const tsr_backend *b, void *base)
{
    (void)b;
    (void)cudaFree(base);
}

static tsr_status measure(const tsr_backend *b, size_t *held, size_t *free_bytes, tsr_err *err)
{
    size_t total = 0;
    cudaError_t e = cudaMemGetInfo(free_bytes, &total);

    (void)b;
    if (e != cudaSuccess)
        return tsr_cuda_say(err, e, "asking for its free memory");
    *held = total - *free_bytes;
    return TSR_OK;
}

static tsr_status pin(const tsr_backend *b, size_t bytes, void **p, tsr_err *err)
{
    cudaError_t e = cudaHostAlloc(p, tsr_max_size(bytes, 1), cudaHostAllocDefault);

    (void)b;
    if (e == cudaErrorMemoryAllocation)
        TSR_FAIL(err, TSR_E_OOM, "the system has no %zu MiB of memory that can be pinned",
                 (bytes + 0xFFFFF) >> 20);
    return e == cudaSuccess ? TSR_OK : tsr_cuda_say(err, e, "pinning host memory");
}

static void unpin(const tsr_backend *b, void *p)
{
    (void)b;
    (void)cudaFreeHost(p);
}

/* -------------------------------------------------------------------------- events */

static tsr_status events(const tsr_backend *b, int32_t n, tsr_err *err)
{
    tsr_cuda *c = tsr_cuda_of(b);
    cudaEvent_t *more;

    if (n <= c->n_events)
        return TSR_OK;
    more = c->host.alloc((size_t)n * sizeof *more);
    if (!more)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the device's events");
    if (c->n_events)
        memcpy(more, c->events, (size_t)c->n_events * sizeof *more);
    c->host.free(c->events);
    c->events = more;
    while (c->n_events < n) {
        cudaError_t e = cudaEventCreateWithFlags(&more[c->n_events], cudaEventDisableTiming);
        if (e != cudaSuccess)
            return tsr_cuda_say(err, e, "making events");
        c->n_events++;
    }
    return TSR_OK;
}

static void record(const tsr_backend *b, tsr_queue q, int32_t event)
{
    tsr_cuda *c = tsr_cuda_of(b);

    tsr_cuda_ok(c, cudaEventRecord(c->events[event], c->queue[q]), "recording an event");
}

static void await(const tsr_backend *b, tsr_queue q, int32_t event)
{
    tsr_cuda *c = tsr_cuda_of(b);

    tsr_cuda_ok(c, cudaStreamWaitEvent(c->queue[q], c->events[event], 0), "waiting for an event");
}

static void wait(const tsr_backend *b, int32_t event)
{
    tsr_cuda *c = tsr_cuda_of(b);

    tsr_cuda_ok(c, cudaEventSynchronize(c->events[event]), "waiting for a copy");
}

/* -------------------------------------------------------------------------- copies */

static void *slot(const tsr_backend *b, size_t *bytes)
{
    tsr_cuda *c = tsr_cuda_of(b);

    c->slot = (c->slot + 1) % TSR_CUDA_SLOTS;
    *bytes = c->slot_bytes;
    if (!tsr_cuda_ok(c, cudaEventSynchronize(c->slot_free[c->slot]), "copying weights") ||
        atomic_load(&c->error))
        return NULL;
    return c->ring + (size_t)c->slot * c->slot_bytes;
}

static void upload(const tsr_backend *b, tsr_queue q, void *dst, const void *src, size_t bytes)
{
    tsr_cuda *c = tsr_cuda_of(b);
    const unsigned char *from = src;

    tsr_cuda_ok(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, c->queue[q]),
                "copying to it");
    if (from >= c->ring && from < c->ring + TSR_CUDA_SLOTS * c->slot_bytes)
        tsr_cuda_ok(
            c, cudaEventRecord(c->slot_free[(size_t)(from - c->ring) / c->slot_bytes], c->queue[q]),
            "copying to it");
}

static void download(const tsr_backend *b, tsr_queue q, void *dst, const void *src, size_t bytes)
{
    tsr_cuda *c = tsr_cuda_of(b);

    tsr_cuda_ok(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, c->queue[q]),
                "copying from it");
}

static void fill(const tsr_backend *b, void *dst, int byte, size_t bytes)
{
    tsr_cuda *c = tsr_cuda_of(b);

    if (bytes)
        tsr_cuda_ok(c, cudaMemsetAsync(dst, byte, bytes, c->queue[TSR_QUEUE_COMPUTE]),
                    "filling memory");
}

static tsr_status finish(const tsr_backend *b, tsr_err *err)
{
    tsr_cuda *c = tsr_cuda_of(b);
    cudaError_t e;

    for (int32_t q = 0; q < 2; q++)
        tsr_cuda_ok(c, cudaStreamSynchronize(c->queue[q]), "computing");
    e = (cudaError_t)atomic_exchange(&c->error, 0);
    return e == cudaSuccess ? TSR_OK : tsr_cuda_say(err, e, atomic_load(&c->doing));
}

/* ------------------------------------------------------------------ making, freeing */

static cudaError_t make_all(tsr_cuda *c)
{
    cudaError_t e = cudaSuccess;

    for (int32_t q = 0; q < 2 && e == cudaSuccess; q++)
        e = cudaStreamCreateWithFlags(&c->queue[q], cudaStreamNonBlocking);
    for (int32_t i = 0; i < TSR_CUDA_SLOTS && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&c->slot_free[i], cudaEventDisableTiming);
    c->slot_bytes = SLOT_BYTES;
    if (e == cudaSuccess)
        e = cudaHostAlloc((void **)&c->ring, TSR_CUDA_SLOTS * SLOT_BYTES, cudaHostAllocDefault);
    if (e == cudaSuccess)
        e = cudaHostAlloc((void **)&c->flag_up, sizeof *c->flag_up, cudaHostAllocDefault);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&c->flag, sizeof *c->flag);
    return e;
}

tsr_status tsr_cuda_memory_make(tsr_cuda *c, tsr_err *err)
{
    cudaError_t e;

    c->device.reserve = reserve;
    c->device.release = release;
    c->device.measure = measure;
    c->device.pin = pin;
    c->device.unpin = unpin;
    c->device.prepare = tsr_cuda_prepare;
    c->device.events = events;
    c->device.record = record;
    c->device.await = await;
    c->device.wait = wait;
    c->device.slot = slot;
    c->device.upload = upload;
    c->device.download = download;
    c->device.fill = fill;
    c->device.finish = finish;
    e = make_all(c);
    return e == cudaSuccess ? TSR_OK : tsr_cuda_say(err, e, "opening it");
}

void tsr_cuda_memory_free(tsr_cuda *c)
{
    for (int32_t i = 0; i < c->n_events; i++)
        (void)cudaEventDestroy(c->events[i]);
    c->host.free(c->events);
    (void)cudaFree(c->flag);
    (void)cudaFreeHost(c->flag_up);
    (void)cudaFreeHost(c->ring);
    for (int32_t i = 0; i < TSR_CUDA_SLOTS; i++)
        if (c->slot_free[i])
            (void)cudaEventDestroy(c->slot_free[i]);
    for (int32_t q = 0; q < 2; q++)
        if (c->queue[q])
            (void)cudaStreamDestroy(c->queue[q]);
}
