/* cuda_library.h -- what cuDNN and cuBLASLt compute: plans, one for each shape.
 *
 * A plan is what a library needs to compute calls of one shape: cuDNN's execution plan, or
 * cuBLASLt's descriptors and algorithm. It is built by `prepare`, kept until the device is closed,
 * and found by its key: plain numbers, never an address. Which calls a library is asked for is a
 * question of shapes and types alone (tsr_cuda_takes), so is which of its algorithms is taken: the
 * first that it proposes, repeats its bits, and needs no more scratch than the planner gave
 * (tsr_cuda_library_work). Where it has none the plan says so, and the own kernel computes.
 *
 *   cuda_conv.c    convolutions                 cuDNN's graph API, with bias, vector and residual
 *   cuda_matmul.c  linear layers                cuBLASLt, with bias and residual
 *   cuda_sdpa.c    attention                    cuDNN's graph API
 *   cuda_graph.c   graphs of cuDNN: tensors, operations, the choice of an engine
 *   cuda_plans.c   the table of plans, and the backend's questions */
#ifndef TSR_KERNELS_CUDA_LIBRARY_H
#define TSR_KERNELS_CUDA_LIBRARY_H

#include <cublasLt.h>
#include <cudnn_graph.h>

#include "kernels/cuda/cuda_internal.h"

/* Everything that a plan depends on. No padding: keys are compared as bytes. */
typedef struct tsr_cuda_key {
    int32_t kind;                /* tsr_op_kind */
    int32_t dtype;               /* of x, the matrix and the output */
    int32_t bias, add, residual; /* there: 0, or 1; add: 2 where each entry has its own */
    int32_t n, co, c;            /* entries; channels of the output, and of the input */
    int32_t out_h, out_w, in_h, in_w;
    int32_t r, s, stride, pad[4]; /* conv2d: top, left, bottom, right */
    int32_t heads, keys;          /* attention */
    float scale;
    int64_t out_entry, out_pixel; /* strides, in elements */
    int64_t x_entry, add_entry, residual_entry, v_entry;
    int64_t work_bytes; /* at most */
} tsr_cuda_key;

enum { TSR_CUDA_MADE = 96 }; /* descriptors that a graph of cuDNN may have */

typedef struct tsr_cuda_plan tsr_cuda_plan;
struct tsr_cuda_plan {
    tsr_cuda_plan *next; /* of the same hash */
    tsr_cuda_key key;
    bool is_own; /* the library has nothing for it */
    size_t work_bytes;
    /* cuDNN: the last of `made` is the execution plan */
    cudnnBackendDescriptor_t made[TSR_CUDA_MADE];
    int32_t n_made;
    /* cuBLASLt */
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulAlgo_t algo;
};

/* cuda_plans.c */
/* True when a library is asked for calls of this op; windows and blocks do not matter. */
bool tsr_cuda_takes(const tsr_cuda *c, const tsr_call *call);

/* Each op: the key of a call; a plan built for its key (TSR_OK with is_own where the library has
 * none); one run. Failures of running are kept in c->error. */
tsr_cuda_key tsr_cuda_conv_key(const tsr_call *call);
tsr_status tsr_cuda_conv_build(tsr_cuda *c, tsr_cuda_plan *p, tsr_err *err);
void tsr_cuda_conv_run(tsr_cuda *c, const tsr_cuda_plan *p, const tsr_call *call);
tsr_cuda_key tsr_cuda_matmul_key(const tsr_call *call);
tsr_status tsr_cuda_matmul_build(tsr_cuda *c, tsr_cuda_plan *p, tsr_err *err);
void tsr_cuda_matmul_run(tsr_cuda *c, const tsr_cuda_plan *p, const tsr_call *call);
void tsr_cuda_matmul_free(tsr_cuda_plan *p);
tsr_cuda_key tsr_cuda_sdpa_key(const tsr_call *call);
tsr_status tsr_cuda_sdpa_build(tsr_cuda *c, tsr_cuda_plan *p, tsr_err *err);
void tsr_cuda_sdpa_run(tsr_cuda *c, const tsr_cuda_plan *p, const tsr_call *call);

/* cuda_graph.c: a graph of cuDNN while it is made. The first failure sticks; what follows it does
 * nothing. Descriptors belong to the plan. */
typedef struct tsr_cuda_graph {
    tsr_cuda_plan *plan;
    cudnnStatus_t status;
    cudnnBackendDescriptor_t ops[4];
    int32_t n_ops;
} tsr_cuda_graph;

typedef struct tsr_cuda_tensor {
    int64_t id; /* of the address that it gets when it runs */
    cudnnDataType_t type;
    int64_t dims[4], strides[4]; /* cuDNN's order: N, C, H, W */
    bool is_virtual;             /* between two operations: never in memory */
    bool is_by_value;            /* a number in host memory */
} tsr_cuda_tensor;

cudnnBackendDescriptor_t tsr_cuda_graph_tensor(tsr_cuda_graph *g, const tsr_cuda_tensor *t);
cudnnBackendDescriptor_t tsr_cuda_graph_make(tsr_cuda_graph *g, cudnnBackendDescriptorType_t type);
void tsr_cuda_graph_set(tsr_cuda_graph *g, cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        int64_t n, const void *values);
void tsr_cuda_graph_end(tsr_cuda_graph *g, cudnnBackendDescriptor_t d); /* it is complete */
void tsr_cuda_graph_op(tsr_cuda_graph *g, cudnnBackendDescriptor_t d);  /* complete, and an op */
/* Chooses an engine; the plan is ready then, or its own kernel's. */
tsr_status tsr_cuda_graph_plan(tsr_cuda_graph *g, tsr_cuda *c, tsr_err *err);
void tsr_cuda_graph_free(tsr_cuda_plan *p);
/* Runs the plan with addresses for the tensors' ids. */
void tsr_cuda_graph_run(tsr_cuda *c, const tsr_cuda_plan *p, const int64_t *ids,
                        void *const *addresses, int64_t n, const tsr_call *call);

static inline cudnnDataType_t tsr_cuda_dnn_type(int32_t dtype)
{
    return dtype == TSR_F32    ? CUDNN_DATA_FLOAT
           : dtype == TSR_BF16 ? CUDNN_DATA_BFLOAT16
                               : CUDNN_DATA_HALF;
}

static inline int64_t tsr_cuda_elements(const tsr_call *call, size_t bytes)
{
    return (int64_t)(bytes / tsr_dtype_size(call->in[0].dtype));
}

#endif
