/* test_kernels.h -- see test_kernels.cu. */
#ifndef TSR_TESTS_TEST_KERNELS_H
#define TSR_TESTS_TEST_KERNELS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TEST_RIGHT,
    TEST_NO_BARRIER,
    TEST_LEAVE,
    TEST_OTHER_BARRIER,
    TEST_HALF_WARP,
    TEST_MISALIGNED,
    TEST_BESIDE_SHARED,
    TEST_NO_WAIT
};

typedef struct test_args {
    const float *in;
    const void *half; // [16,16] then [8,16]
    float *out;
    uint32_t n;
    int32_t wrong;
} test_args;

cudaError_t test_sum(const test_args *a, unsigned blocks, unsigned threads, cudaStream_t s);
cudaError_t test_leave(const test_args *a, unsigned threads, cudaStream_t s);
cudaError_t test_tile(const test_args *a, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
