/* sim_library.h -- what the simulated cuDNN and cuBLASLt share. */
#ifndef TSR_TESTS_SIM_LIBRARY_H
#define TSR_TESTS_SIM_LIBRARY_H

#include "base/half.h"
#include "tests/cuda_sim/sim_internal.h"

/* A library runs for the first time: what it loads stays. The lock is held. */
cudaError_t sim_load_library(void);

/* A strided tensor in device memory, in the library's order of axes. */
typedef struct sim_array {
    unsigned char *data;
    tsr_dtype dtype;
    int64_t dims[4], strides[4]; /* elements */
} sim_array;

size_t sim_array_bytes(const sim_array *a); /* from the first element to the last */
/* NULL, or what is wrong with where it lies: alignment, memory of another kind, beyond its end. */
const char *sim_array_wrong(const sim_array *a, size_t alignment);
bool sim_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes);
/* All elements as float, dense in the order of the axes; on the heap. */
float *sim_array_floats(const sim_array *a);
float sim_array_get(const sim_array *a, const int64_t at[4]);
void sim_array_put(const sim_array *a, const int64_t at[4], float v);

/* y[n,h,w,co] += x * w over c, in this order: r, s, c. */
typedef struct sim_conv {
    sim_array x, w, y; /* N C H W, K C R S, N K H W */
    int64_t stride[2], before[2];
    sim_array sums[3]; /* added to y; dims of 1 repeat */
    int32_t n_sums;
} sim_conv;
const char *sim_compute_conv(void *conv);

typedef struct sim_sdpa {
    sim_array q, k, v, o; /* B H S D */
    float scale;
} sim_sdpa;
const char *sim_compute_sdpa(void *sdpa);

#endif
