/* cuda_open.c -- the plug-in's table: which devices there are, opening one, closing it.
 *
 * Why CUDA is not used is one sentence: no driver, a driver older than the toolkit that this was
 * built with, no device, one that is too old. What opening takes (context, libraries) is measured:
 * the device's used memory before and after, as the driver tells it. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda_internal.h"

enum { OLDEST = 75 };

static tsr_status count_devices(int32_t *n, tsr_err *err)
{
    int driver = 0, count = 0;
    cudaError_t e;

    (void)cudaDriverGetVersion(&driver);
    if (driver == 0)
        TSR_FAIL(err, TSR_E_DEVICE,
                 "CUDA is not used: there is no NVIDIA driver; install one, or use --backend cpu");
    e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver)
        TSR_FAIL(
            err, TSR_E_DEVICE,
            "CUDA is not used: the NVIDIA driver is for CUDA %d.%d and %d.%d is needed; update "
            "the driver, or use --backend cpu",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (e != cudaSuccess || count == 0)
        TSR_FAIL(err, TSR_E_DEVICE, "CUDA is not used: no device is found (%s)",
                 cudaGetErrorString(e));
    *n = count;
    return TSR_OK;
}

static void describe(tsr_device_info *d, int32_t index)
{
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, index);

    *d = (tsr_device_info){.index = index};
    if (e != cudaSuccess) {
        snprintf(d->why_not, sizeof d->why_not, "%s", cudaGetErrorString(e));
        return;
    }
    snprintf(d->name, sizeof d->name, "%.*s", (int)sizeof p.name - 1, p.name);
    d->capability = 10 * p.major + p.minor;
    d->total_bytes = p.totalGlobalMem;
    if (d->capability < OLDEST)
        snprintf(d->why_not, sizeof d->why_not,
                 "its compute capability %d.%d is below %d.%d, the oldest that is supported",
                 p.major, p.minor, OLDEST / 10, OLDEST % 10);
}

static tsr_status list(tsr_device_info *devices, int32_t max, int32_t *n, tsr_err *err)
{
    int32_t count;

    TSR_TRY(count_devices(&count, err));
    for (int32_t i = 0; i < count && i < max; i++)
        describe(&devices[i], i);
    *n = count;
    return TSR_OK;
}

static void close_device(tsr_backend *b)
{
    tsr_cuda *c;

    if (!b)
        return;
    c = tsr_cuda_of(b);
    tsr_cuda_libraries_free(c);
    tsr_cuda_memory_free(c);
    c->host.free(c);
}

static tsr_status open_device(const tsr_plugin_host *host, int32_t index, tsr_backend **b,
                              tsr_err *err)
{
    tsr_device_info info;
    int32_t count;
    tsr_cuda *c;
    tsr_status st;
    cudaError_t e;
    size_t free_bytes = 0, total = 0;

    TSR_TRY(count_devices(&count, err));
    if (index < 0 || index >= count)
        TSR_FAIL(err, TSR_E_DEVICE, "there is no CUDA device %d: the devices are 0 to %d", index,
                 count - 1);
    describe(&info, index);
    if (info.why_not[0])
        TSR_FAIL(err, TSR_E_DEVICE, "CUDA device %d cannot be used: %s", index, info.why_not);
    e = cudaSetDevice(index);
    if (e != cudaSuccess)
        return tsr_cuda_say(err, e, "opening it");
    c = host->alloc(sizeof *c);
    if (!c)
        TSR_FAIL(err, TSR_E_OOM, "no memory for a device");
    *c = (tsr_cuda){.host = *host, .index = index, .capability = info.capability};
    memcpy(c->device.name, info.name, sizeof c->device.name);
    snprintf(c->tier, sizeof c->tier, "sm_%d", info.capability);
    tsr_cuda_backend_fill(c);
    st = tsr_cuda_memory_make(c, err);
    if (st == TSR_OK)
        st = tsr_cuda_libraries_make(c, err);
    if (st == TSR_OK && (e = cudaMemGetInfo(&free_bytes, &total)) != cudaSuccess)
        st = tsr_cuda_say(err, e, "asking for its memory");
    if (st != TSR_OK) {
        close_device(&c->backend);
        return st;
    }
    c->device.total_bytes = total;
    c->device.context_bytes = total - free_bytes;
    *b = &c->backend;
    return TSR_OK;
}

__attribute__((visibility("default"))) const tsr_plugin *tsr_plugin_get(void)
{
    static const tsr_plugin plugin = {
        .abi = tsr_plugin_abi, .list = list, .open = open_device, .close = close_device};

    return &plugin;
}
