/* cuda_fiber.h -- the host's half of device.cuh: a kernel's threads as fibers.
 *
 * A block runs on one thread of the host. Its CUDA threads are fibers: each runs until it meets a
 * barrier or an instruction of the whole warp, and then another one goes on. Which one is chosen by
 * an order that tests set (sim.h): forwards, backwards, or at random, with one warp as far ahead
 * of the others as barriers allow; so what is right in every order has no race between warps, nor
 * between the lanes of one. A thread that meets no such instruction never leaves the stack that it
 * starts on.
 *
 * What is checked, and ends the launch with cudaErrorLaunchFailure and a sentence (sim.h):
 *   - all threads of a block are at the same __syncthreads (file and line), none has ended
 *   - all lanes of a warp are at the same instruction of the warp
 *   - accesses by cu_load, cu_store and cu_copy_async, and ldmatrix's rows, are aligned
 *   - nothing is written beside the block's shared memory; it begins as NaNs in every block
 *   - cu_copy_async copies as late as it may: in cu_copy_wait
 * Global memory is looked after by sim_memory.c: red zones, and no access from the host. */
#ifndef TSR_TESTS_CUDA_FIBER_H
#define TSR_TESTS_CUDA_FIBER_H

#include <math.h>
#include <string.h>
#include <vector_functions.h>
#include <vector_types.h>

#undef __launch_bounds__
#define __launch_bounds__(...)

#include "tests/cuda_sim/sim_fiber.h"

#define CU_UNROLL

#define threadIdx (sim_now->thread)
#define blockIdx sim_block
#define blockDim sim_block_dim
#define gridDim sim_grid_dim
#define __syncthreads() sim_barrier(__FILE__, __LINE__)
#define __syncwarp() sim_warp_barrier(__FILE__, __LINE__)

template <class T> static inline T *cu_shared()
{
    return static_cast<T *>(sim_shared);
}

template <class A> static void sim_run(const void *kernel, const void *args)
{
    void (*k)(A);
    A copy;

    memcpy(&k, kernel, sizeof k);
    memcpy(&copy, args, sizeof copy);
    k(copy);
}

template <class A>
static inline cudaError_t cu_launch(void (*kernel)(A), dim3 grid, dim3 block, size_t shared_bytes,
                                    cudaStream_t stream, A args)
{
    return sim_launch(sim_run<A>, &kernel, grid, block, shared_bytes, stream, &args, sizeof args);
}

template <class T> static inline T sim_take(T v, int from, const char *file, int line)
{
    uint64_t word = 0;

    static_assert(sizeof v <= sizeof word, "a warp exchanges up to 8 bytes");
    memcpy(&word, &v, sizeof v);
    word = sim_exchange(word, from, file, line);
    memcpy(&v, &word, sizeof v);
    return v;
}

#define cu_shfl_xor(v, mask) sim_take(v, sim_now->lane ^ (mask), __FILE__, __LINE__)
#define cu_shfl(v, from) sim_take(v, (from)&31, __FILE__, __LINE__)

template <class V> static inline V cu_load(const void *p)
{
    V v;

    if (reinterpret_cast<uintptr_t>(p) % sizeof v)
        sim_misaligned(p, sizeof v);
    memcpy(&v, p, sizeof v);
    return v;
}

template <class V> static inline void cu_store(void *p, V v)
{
    if (reinterpret_cast<uintptr_t>(p) % sizeof v)
        sim_misaligned(p, sizeof v);
    memcpy(p, &v, sizeof v);
}

static inline void cu_ldmatrix_x4(uint32_t r[4], const void *row)
{
    sim_ldmatrix(SIM_LDMATRIX, r, 4, row);
}
static inline void cu_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    sim_ldmatrix(SIM_LDMATRIX_TRANS, r, 4, row);
}
static inline void cu_ldmatrix_x2(uint32_t r[2], const void *row)
{
    sim_ldmatrix(SIM_LDMATRIX, r, 2, row);
}
static inline void cu_ldmatrix_x2_trans(uint32_t r[2], const void *row)
{
    sim_ldmatrix(SIM_LDMATRIX_TRANS, r, 2, row);
}
static inline void cu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    sim_mma(SIM_MMA_F16, d, a, b);
}
static inline void cu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    sim_mma(SIM_MMA_BF16, d, a, b);
}
static inline void cu_copy_async(void *dst, const void *src, bool valid)
{
    sim_copy_async(dst, src, valid);
}
static inline void cu_copy_commit()
{
    sim_copy_commit();
}
template <int n> static inline void cu_copy_wait()
{
    sim_copy_wait(n);
}

/* One fiber runs at a time, and only whole instructions are interrupted: these are atomic. */
template <class T> static inline T atomicAdd(T *p, T v)
{
    T old = *p;

    *p += v;
    return old;
}
template <class T> static inline T atomicOr(T *p, T v)
{
    T old = *p;

    *p |= v;
    return old;
}
template <class T> static inline T atomicMax(T *p, T v)
{
    T old = *p;

    *p = old > v ? old : v;
    return old;
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

#endif
