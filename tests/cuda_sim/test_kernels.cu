/* test_kernels.cu -- small kernels that do each thing that device.cuh offers, right and wrong.
 *
 * test_fiber.c runs them; a wrong one has to be caught. */
#include "kernels/cuda/device.cuh"
#include "tests/cuda_sim/test_kernels.h"

/* Block sums: warps by shuffles, then through shared memory. */
static __global__ void sum_kernel(const test_args a)
{
    float *part = cu_shared<float>(); // [32]
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < a.n ? a.in[i] : 0;

    for (int m = 16; m > 0; m /= 2)
        v += cu_shfl_xor(v, m);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    if (a.wrong != TEST_NO_BARRIER)
        __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < blockDim.x / 32; w++)
            v += part[w];
        a.out[blockIdx.x] = v;
    }
}

/* Some threads leave before a barrier, or wait at another. */
static __global__ void leave_kernel(const test_args a)
{
    if (a.wrong == TEST_LEAVE && threadIdx.x == 3)
        return;
    if (a.wrong == TEST_OTHER_BARRIER && threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    if (a.wrong == TEST_HALF_WARP && threadIdx.x < 16)
        a.out[0] = cu_shfl_xor(1.0f, 1);
    if (a.wrong == TEST_MISALIGNED)
        a.out[0] = cu_load<float4>(a.in + 1).x;
    if (a.wrong == TEST_BESIDE_SHARED)
        cu_shared<float>()[blockDim.x + threadIdx.x] = 1;
    a.out[threadIdx.x] = 1;
}

/* out [16,8] = in [16,16] f16 (rows) times in2 [16,8] f16 stored as [8,16], by one warp; the rows
 * come by cp.async and ldmatrix. */
static __global__ void tile_kernel(const test_args a)
{
    __half *s = cu_shared<__half>(); // [16,16] then [8,16]
    const __half *h = static_cast<const __half *>(a.half);
    unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4 * 2;
    uint32_t fa[4], fb[2];
    float d[4] = {0, 0, 0, 0};

    cu_copy_async(s + lane * 8, h + lane * 8, true);
    if (lane < 16)
        cu_copy_async(s + 256 + lane * 8, h + 256 + lane * 8, true);
    cu_copy_commit();
    if (a.wrong != TEST_NO_WAIT)
        cu_copy_wait<0>();
    __syncthreads();
    cu_ldmatrix_x4(fa, s + (lane % 16) * 16 + lane / 16 * 8);
    cu_ldmatrix_x2(fb, s + 256 + (lane % 8) * 16 + lane / 8 % 2 * 8);
    cu_mma_f16(d, fa, fb);
    a.out[g * 8 + t] = d[0];
    a.out[g * 8 + t + 1] = d[1];
    a.out[(g + 8) * 8 + t] = d[2];
    a.out[(g + 8) * 8 + t + 1] = d[3];
}

cudaError_t test_sum(const test_args *a, unsigned blocks, unsigned threads, cudaStream_t s)
{
    return cu_launch(sum_kernel, dim3(blocks), dim3(threads), 32 * sizeof(float), s, *a);
}

cudaError_t test_leave(const test_args *a, unsigned threads, cudaStream_t s)
{
    return cu_launch(leave_kernel, dim3(1), dim3(threads), threads * sizeof(float), s, *a);
}

cudaError_t test_tile(const test_args *a, cudaStream_t s)
{
    return cu_launch(tile_kernel, dim3(1), dim3(32), 384 * sizeof(__half), s, *a);
}
