/* sim_runtime.c -- devices, errors and faults of the simulated runtime, and what tests set.
 *
 * See sim.h. The functions have the signatures of the real headers; only what the backend uses is
 * here, so a call of anything else does not link. */
#include "tests/cuda_sim/sim_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sim_state sim = {.o = {.device_bytes = (size_t)8 << 30,
                       .context_bytes = (size_t)300 << 20,
                       .library_bytes = (size_t)16 << 20,
                       .n_devices = 1,
                       .capability = 90,
                       .driver = 13000},
                 .random = 0x9E3779B97F4A7C15u};
pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;

cudaError_t sim_mistake(cudaError_t e, const char *format, ...)
{
    va_list args;

    if (sim.fault[0])
        return e;
    va_start(args, format);
    vsnprintf(sim.fault, sizeof sim.fault, format, args);
    va_end(args);
    return e;
}

uint32_t sim_below(uint32_t n)
{
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return (uint32_t)((sim.random >> 33) % n);
}

/* The context comes with the first call that needs it. */
static cudaError_t open_context(void)
{
    if (sim.is_open)
        return cudaSuccess;
    if (sim.o.context_bytes > sim_memory_free_bytes())
        return cudaErrorMemoryAllocation;
    sim.is_open = true;
    sim.f.used += sim.o.context_bytes;
    sim.f.peak = sim.f.used > sim.f.peak ? sim.f.used : sim.f.peak;
    return cudaSuccess;
}

cudaError_t sim_enter(cudaError_t on_fault)
{
    cudaError_t e = cudaSuccess;

    pthread_mutex_lock(&sim_lock);
    sim.f.n_calls++;
    if (sim.o.driver < 0)
        e = cudaErrorInsufficientDriver;
    else if (sim.lost != cudaSuccess)
        e = sim.lost;
    else if (sim.sticky != cudaSuccess)
        e = sim.sticky;
    else if (sim.fail_in > 0 && --sim.fail_in == 0) {
        sim.has_failed = true;
        e = on_fault;
    } else {
        e = open_context();
    }
    if (e != cudaSuccess)
        pthread_mutex_unlock(&sim_lock);
    return e;
}

cudaError_t sim_enter_release(void)
{
    cudaError_t e = sim_enter(cudaErrorLaunchFailure);

    if (e != cudaSuccess)
        pthread_mutex_lock(&sim_lock);
    return e;
}

cudaError_t sim_leave(cudaError_t e)
{
    pthread_mutex_unlock(&sim_lock);
    return e;
}

/* --------------------------------------------------------------------- devices */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = sim.o.driver < 0 ? 0 : sim.o.driver;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    if (sim.o.driver < CUDART_VERSION / 1000 * 1000)
        return cudaErrorInsufficientDriver;
    *n = sim.o.n_devices;
    return *n ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (device < 0 || device >= sim.o.n_devices)
        return cudaErrorInvalidDevice;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "simulated device %d", device);
    p->major = sim.o.capability / 10;
    p->minor = sim.o.capability % 10;
    p->totalGlobalMem = sim.o.device_bytes;
    p->multiProcessorCount = 4;
    p->sharedMemPerBlockOptin = 99 << 10;
    p->warpSize = 32;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t e;

    if (device < 0 || device >= sim.o.n_devices)
        return cudaErrorInvalidDevice;
    e = sim_enter(cudaErrorDevicesUnavailable);
    return e == cudaSuccess ? sim_leave(e) : e;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    cudaError_t e = sim_enter(cudaErrorUnknown);

    if (e != cudaSuccess)
        return e;
    *free_bytes = sim_memory_free_bytes();
    *total = sim.o.device_bytes;
    return sim_leave(cudaSuccess);
}

/* Every error here is returned by the call that made it, and is not kept. */
cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorECCUncorrectable:
        return "uncorrectable ECC error encountered";
    case cudaErrorDevicesUnavailable:
        return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    default:
        return "simulated error";
    }
}

/* ----------------------------------------------------------------- what tests set */

static void set(const sim_options *o)
{
    pthread_mutex_lock(&sim_lock);
    sim.o = *o;
    if (sim.o.device_bytes == 0)
        sim.o.device_bytes = (size_t)8 << 30;
    if (sim.o.context_bytes == 0)
        sim.o.context_bytes = (size_t)300 << 20;
    if (sim.o.library_bytes == 0)
        sim.o.library_bytes = (size_t)16 << 20;
    if (sim.o.n_devices == 0)
        sim.o.n_devices = 1;
    if (sim.o.capability == 0)
        sim.o.capability = 90;
    if (sim.o.driver == 0)
        sim.o.driver = 13000;
    sim.random = o->stream_seed * 2 + 0x9E3779B97F4A7C15u;
    if (sim_memory_empty()) { /* between runs: the process begins again */
        sim.is_open = sim.libraries_loaded = false;
        sim.f.used = sim.f.peak = 0;
        sim.lost = sim.sticky = cudaSuccess;
    }
    pthread_mutex_unlock(&sim_lock);
}

static void figures(sim_figures *f)
{
    pthread_mutex_lock(&sim_lock);
    *f = sim.f;
    pthread_mutex_unlock(&sim_lock);
}

static void fail_at(uint64_t n)
{
    pthread_mutex_lock(&sim_lock);
    sim.fail_in = n;
    sim.has_failed = false;
    pthread_mutex_unlock(&sim_lock);
}

static bool failed(void)
{
    return sim.has_failed;
}

static void lose_device(int32_t cuda_error)
{
    pthread_mutex_lock(&sim_lock);
    sim.lost = (cudaError_t)cuda_error;
    pthread_mutex_unlock(&sim_lock);
}

static const char *fault(void)
{
    return sim.fault;
}

static void clear_fault(void)
{
    pthread_mutex_lock(&sim_lock);
    sim.fault[0] = 0;
    pthread_mutex_unlock(&sim_lock);
}

__attribute__((visibility("default"))) const sim_control *tsr_sim_control(void)
{
    static const sim_control control = {.set = set,
                                        .figures = figures,
                                        .fail_at = fail_at,
                                        .failed = failed,
                                        .lose_device = lose_device,
                                        .fault = fault,
                                        .clear_fault = clear_fault};

    return &control;
}
