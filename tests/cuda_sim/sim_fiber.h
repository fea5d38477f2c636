/* sim_fiber.h -- threads of a kernel as fibers: the face in C. See cuda_fiber.h. */
#ifndef TSR_TESTS_SIM_FIBER_H
#define TSR_TESTS_SIM_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "tests/cuda_sim/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sim_thread {
    uint3 thread;
    int lane;
} sim_thread;

/* Of the fiber that runs now, and of its block. */
extern sim_thread *sim_now;
extern uint3 sim_block;
extern dim3 sim_block_dim, sim_grid_dim;
extern void *sim_shared;

/* What kernels call, through device.cuh. */
typedef enum sim_tile { SIM_MMA_F16, SIM_MMA_BF16, SIM_LDMATRIX, SIM_LDMATRIX_TRANS } sim_tile;
void sim_barrier(const char *file, int line);
/* Gives `mine`, takes that of lane `from`. */
uint64_t sim_exchange(uint64_t mine, int from, const char *file, int line);
void sim_warp_barrier(const char *file, int line);
void sim_mma(sim_tile kind, float d[4], const uint32_t a[4], const uint32_t b[2]);
void sim_ldmatrix(sim_tile kind, uint32_t *r, int n, const void *row);
void sim_copy_async(void *dst, const void *src, bool valid);
void sim_copy_commit(void);
void sim_copy_wait(int n);
void sim_misaligned(const void *p, size_t bytes);

/* A launch: `run` is one thread's part of the kernel, which is a pointer to a function at
 * `kernel`; both are copied. Queued on the stream (sim_stream.c). */
typedef void (*sim_run_fn)(const void *kernel, const void *args);
cudaError_t sim_launch(sim_run_fn run, const void *kernel, dim3 grid, dim3 block,
                       size_t shared_bytes, cudaStream_t stream, const void *args,
                       size_t args_bytes);

typedef struct sim_kernel {
    sim_run_fn run;
    const void *function, *args;
    dim3 grid, block;
    size_t shared_bytes;
} sim_kernel;

/* Runs it at once. False: the kernel, or its launch, is wrong, and the sentence says how. */
bool sim_fiber_run(const sim_kernel *k, sim_order order, char *fault, size_t fault_bytes);
void sim_fiber_free(void); /* stacks and tables */

#ifdef __cplusplus
}
#endif

#endif
