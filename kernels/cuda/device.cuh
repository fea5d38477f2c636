/* device.cuh -- what a .cu file may use: the same names for the device and for the host.
 *
 * Every .cu file compiles twice: with nvcc for the device, and with the host's C++ compiler, where
 * cuda_fiber.h (tests/cuda_sim) runs the threads of a block as fibers. What is written here has to
 * mean the same on both sides:
 *
 *   launch    cu_launch(kernel, grid, block, shared_bytes, stream, args): a kernel has one
 *             parameter, a plain struct, so that a launch is a copy of it
 *   shared    cu_shared<T>(): the block's dynamic shared memory, the only kind that is used, not
 *             cleared; one struct T says what is in it
 *   threads   threadIdx, blockIdx, blockDim, gridDim, __syncthreads(), __syncwarp()
 *   warps     cu_shfl_xor(v, mask), cu_shfl(v, lane): all 32 lanes take part, always
 *   memory    cu_load<V>(p), cu_store(p, v): one access of sizeof(V) (4, 8 or 16) bytes, aligned
 *   tiles     cu_mma_f16/_bf16: D[16,8] += A[16,16] B[16,8] of a warp (mma.sync m16n8k16, row.col,
 *             float accumulators); cu_ldmatrix_x4/_x2 and ..._trans; from sm_80 cu_copy_async,
 *             cu_copy_commit, cu_copy_wait<n> (before that a plain copy)
 *   loops     CU_UNROLL before a loop whose arrays have to be registers
 *   atomics   atomicOr, atomicAdd, atomicMax on 32-bit integers
 *
 * Fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16"), g = lane / 4, t = lane % 4, two halves
 * a register, the lower column (A) or row (B) in the lower half:
 *   a[0] A[g][2t..]  a[1] A[g+8][2t..]  a[2] A[g][2t+8..]  a[3] A[g+8][2t+8..]
 *   b[0] B[2t..][g]  b[1] B[2t+8..][g]
 *   d[0] D[g][2t]  d[1] D[g][2t+1]  d[2] D[g+8][2t]  d[3] D[g+8][2t+1]
 * ldmatrix: lanes 8m .. 8m+7 give the addresses of the 16-byte rows of matrix m; register m of a
 * lane is row g, columns 2t and 2t+1 of it; with _trans column g, rows 2t and 2t+1.
 *
 * No fast-math; expf, erff, rsqrtf, sqrtf, fmaxf, fminf and the like are the plain ones of both
 * sides. sm_75 has no bf16 tiles: bf16 is refused there before anything is launched. */
#ifndef TSR_KERNELS_CUDA_DEVICE_CUH
#define TSR_KERNELS_CUDA_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#ifdef __CUDACC__

/* Before a loop whose arrays have to be registers. */
#define CU_UNROLL _Pragma("unroll")

template <class T> static __device__ inline T *cu_shared()
{
    extern __shared__ __align__(16) unsigned char cu_shared_bytes[];

    return reinterpret_cast<T *>(cu_shared_bytes);
}

template <class A>
static inline cudaError_t cu_launch(void (*kernel)(A), dim3 grid, dim3 block, size_t shared_bytes,
                                    cudaStream_t stream, A args)
{
    const void *function = reinterpret_cast<const void *>(kernel);
    void *list[1] = {&args};

    if (shared_bytes > 48 * 1024) {
        cudaError_t e = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(shared_bytes));
        if (e != cudaSuccess)
            return e;
    }
    return cudaLaunchKernel(function, grid, block, list, shared_bytes, stream);
}

template <class T> static __device__ inline T cu_shfl_xor(T v, int mask)
{
    return __shfl_xor_sync(0xFFFFFFFFu, v, mask);
}

template <class T> static __device__ inline T cu_shfl(T v, int lane)
{
    return __shfl_sync(0xFFFFFFFFu, v, lane);
}

template <class V> static __device__ inline V cu_load(const void *p)
{
    return *static_cast<const V *>(p);
}

template <class V> static __device__ inline void cu_store(void *p, V v)
{
    *static_cast<V *>(p) = v;
}

static __device__ inline uint32_t cu_shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

static __device__ inline void cu_ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(cu_shared_address(row))
                 : "memory");
}

static __device__ inline void cu_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(cu_shared_address(row))
                 : "memory");
}

static __device__ inline void cu_ldmatrix_x2(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(cu_shared_address(row))
                 : "memory");
}

static __device__ inline void cu_ldmatrix_x2_trans(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(cu_shared_address(row))
                 : "memory");
}

/* Turing has the product in two halves of the reduction. */
static __device__ inline void cu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int i = 0; i < 2; i++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, "
                     "{%6}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}

static __device__ inline void cu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

/* 16 bytes from global to shared memory; zeros where `valid` is false (src is not read then).
 * There after cu_copy_wait for the thread itself, after a barrier behind that for the others. */
static __device__ inline void cu_copy_async(void *dst, const void *src, bool valid)
{
#if __CUDA_ARCH__ >= 800
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(cu_shared_address(dst)), "l"(__cvta_generic_to_global(src)), "r"(bytes)
                 : "memory");
#else
    cu_store(dst, valid ? cu_load<uint4>(src) : make_uint4(0, 0, 0, 0));
#endif
}

static __device__ inline void cu_copy_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* All but the `n` latest groups are there. */
template <int n> static __device__ inline void cu_copy_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

#else
#include "cuda_fiber.h"
#endif

/* Elements of the three types that are computed with, as float and back (to nearest, ties to even).
 */
static __device__ inline float cu_float(float x)
{
    return x;
}
static __device__ inline float cu_float(__half x)
{
    return __half2float(x);
}
static __device__ inline float cu_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <class T> struct cu_element;
template <> struct cu_element<float> {
    static __device__ inline float of(float x) { return x; }
};
template <> struct cu_element<__half> {
    static __device__ inline __half of(float x) { return __float2half_rn(x); }
};
template <> struct cu_element<__nv_bfloat16> {
    static __device__ inline __nv_bfloat16 of(float x) { return __float2bfloat16_rn(x); }
};

#endif
