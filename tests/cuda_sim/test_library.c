/* test_library.c -- what the simulated cuDNN and cuBLASLt refuse: mistakes, planted one by one.
 *
 * A convolution's and a product's descriptors are built here as the backend builds them (by its own
 * files); then one thing is wrong: a stride, a workspace, an alignment, an attribute, an address, a
 * lifetime. Each must be refused with a sentence that names it, and the right ones must not. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_library.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/test.h"

enum { N = 2, H = 6, W = 5, C = 16, CO = 24, R = 3 };
enum { X_BYTES = N * H * W * C * 2, Y_BYTES = N * H * W * CO * 2, WORK = 1 << 20 };

static void *zeroed(size_t bytes)
{
    return calloc(1, bytes);
}

typedef struct rig {
    tsr_backend *b;
    tsr_cuda *c;
    unsigned char *memory[5]; /* x, w, bias, y, work: allocations of their own */
    tsr_op op;
    tsr_weight weight, bias;
    tsr_call call;
    tsr_err err;
} rig;

static tsr_tensor image(void *data, int32_t channels)
{
    tsr_tensor t = {
        .data = data, .n = N, .h = H, .w = W, .c = channels, .n_rows = H, .dtype = TSR_F16};

    t.row_stride = (size_t)W * (size_t)channels * 2;
    t.entry_stride = t.row_stride * H;
    return t;
}

static void rig_make(rig *r, tsr_op_kind kind)
{
    static const tsr_plugin_host host = {zeroed, free};
    const size_t bytes[5] = {X_BYTES, CO * R * R * C * 2, CO * 8, Y_BYTES, WORK};
    void *p = NULL;

    *r = (rig){.op = {.kind = kind, .name = "planted"}};
    tsr_sim_control()->set(&(sim_options){0});
    tsr_sim_control()->clear_fault();
    REQUIRE(tsr_plugin_get()->open(&host, 0, &r->b, &r->err) == TSR_OK);
    r->c = tsr_cuda_of(r->b);
    for (int32_t i = 0; i < 5; i++) {
        REQUIRE(r->b->device->reserve(r->b, bytes[i], &p, &r->err) == TSR_OK);
        r->memory[i] = p;
        r->b->device->fill(r->b, p, 0, bytes[i]);
    }
    r->weight = (tsr_weight){.n_dims = kind == TSR_OP_CONV2D ? 4 : 2,
                             .dims = {CO, C, R, R},
                             .dtype = TSR_F16,
                             .kind = TSR_WEIGHT_MATRIX};
    r->bias = (tsr_weight){.n_dims = 1, .dims = {CO}, .dtype = TSR_F32, .kind = TSR_WEIGHT_VECTOR};
    if (kind == TSR_OP_CONV2D) {
        r->op.u.conv.r = r->op.u.conv.s = R;
        r->op.u.conv.stride = r->op.u.conv.pad_top = r->op.u.conv.pad_left = 1;
    }
    r->call = (tsr_call){.op = &r->op,
                         .out = image(r->memory[3], CO),
                         .in = {image(r->memory[0], C)},
                         .w = {r->memory[1], r->memory[2]},
                         .wd = {&r->weight, &r->bias},
                         .window = {0, N, 0, H, 0, 0},
                         .work = r->memory[4],
                         .work_bytes = WORK};
}

/* Plans and runs; then all is given back, and nothing may be left. */
static void rig_end(rig *r, const char *says)
{
    sim_figures f;
    tsr_status st = r->b->device->prepare(r->b, &r->call, false, &r->err);

    if (st == TSR_OK)
        r->b->run(r->b, &r->call);
    if (st == TSR_OK)
        st = r->b->device->finish(r->b, &r->err);
    if (says)
        CHECK_MSG(st != TSR_OK && strstr(tsr_sim_control()->fault(), says), "status %d, \"%s\"",
                  (int)st, tsr_sim_control()->fault());
    else
        CHECK_MSG(st == TSR_OK, "%s", r->err.msg);
    tsr_sim_control()->figures(&f);
    CHECK(says || f.n_library_calls > 0);
    for (int32_t i = 0; i < 5; i++)
        r->b->device->release(r->b, r->memory[i]);
    tsr_plugin_get()->close(r->b);
    tsr_sim_control()->figures(&f);
    CHECK_MSG(f.n_handles == 0 && f.n_allocations == 0, "%zu handles are left", f.n_handles);
}

static void libraries__right_calls__are_computed(void)
{
    rig r;

    rig_make(&r, TSR_OP_CONV2D);
    rig_end(&r, NULL);
    rig_make(&r, TSR_OP_LINEAR);
    rig_end(&r, NULL);
}

static void libraries__wrong_strides__are_caught(void)
{
    rig r;

    rig_make(&r, TSR_OP_CONV2D);
    r.call.in[0].entry_stride *= 2; /* the last entry lies beyond the end */
    rig_end(&r, "reaches beyond the memory");
    rig_make(&r, TSR_OP_CONV2D);
    r.call.out.entry_stride /= 2; /* entries lie over each other */
    rig_end(&r, "strides let elements overlap");
    rig_make(&r, TSR_OP_LINEAR);
    r.call.out.entry_stride += r.call.out.row_stride;
    rig_end(&r, "reaches beyond the memory");
}

static void libraries__workspaces_that_are_too_long__are_caught(void)
{
    rig r;

    for (int32_t kind = 0; kind < 2; kind++) {
        rig_make(&r, kind ? TSR_OP_LINEAR : TSR_OP_CONV2D);
        r.call.work = r.memory[4] + WORK - 64; /* 64 bytes are there, and more is said to be */
        rig_end(&r, kind ? "the workspace is smaller" : "the workspace reaches beyond");
        rig_make(&r, kind ? TSR_OP_LINEAR : TSR_OP_CONV2D);
        r.call.work = r.memory[3]; /* the output's place */
        rig_end(&r, "the workspace lies over");
    }
}

static void libraries__little_scratch__is_left_to_the_own_kernel(void)
{
    sim_figures before, after;
    rig r;

    rig_make(&r, TSR_OP_CONV2D);
    r.call.work_bytes = 64;
    tsr_sim_control()->figures(&before);
    REQUIRE(r.b->device->prepare(r.b, &r.call, false, &r.err) == TSR_OK);
    r.b->run(r.b, &r.call);
    CHECK(r.b->device->finish(r.b, &r.err) == TSR_OK);
    tsr_sim_control()->figures(&after);
    CHECK(after.n_library_calls == before.n_library_calls && after.n_launches > before.n_launches);
    r.call.work_bytes = WORK;
    rig_end(&r, NULL);
}

static void libraries__addresses__must_be_aligned_and_apart(void)
{
    rig r;

    rig_make(&r, TSR_OP_CONV2D);
    r.call.w[0] = r.memory[1] + 2;
    rig_end(&r, "is not aligned");
    rig_make(&r, TSR_OP_LINEAR);
    r.call.w[0] = r.memory[1] + 8;
    rig_end(&r, "is not aligned");
    rig_make(&r, TSR_OP_CONV2D);
    r.call.out.data = r.memory[0]; /* over x, and beyond it */
    rig_end(&r, "reaches beyond");
    rig_make(&r, TSR_OP_CONV2D);
    r.call.in[0].data = r.memory[3];
    rig_end(&r, "the output lies over an operand");
    rig_make(&r, TSR_OP_CONV2D);
    r.call.in[0].data = &r; /* the host's */
    rig_end(&r, "is not in the device's memory");
}

static void libraries__unknown_attributes__are_named(void)
{
    cudnnBackendDescriptor_t d = NULL;
    cublasLtMatmulDesc_t m = NULL;
    int64_t one = 1;
    rig r;

    rig_make(&r, TSR_OP_CONV2D);
    REQUIRE(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d) ==
            CUDNN_STATUS_SUCCESS);
    CHECK(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_VECTOR_COUNT, CUDNN_TYPE_INT64, 1, &one) !=
          CUDNN_STATUS_SUCCESS);
    CHECK_MSG(strstr(tsr_sim_control()->fault(), "CUDNN_ATTR_TENSOR_VECTOR_COUNT is not simulated"),
              "\"%s\"", tsr_sim_control()->fault());
    tsr_sim_control()->clear_fault();
    CHECK(cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &one) !=
          CUDNN_STATUS_SUCCESS);
    CHECK(strstr(tsr_sim_control()->fault(),
                 "CUDNN_ATTR_TENSOR_UNIQUE_ID is given values of another"));
    tsr_sim_control()->clear_fault();
    CHECK(cudnnBackendFinalize(d) != CUDNN_STATUS_SUCCESS);
    CHECK(strstr(tsr_sim_control()->fault(), "is not set"));
    cudnnBackendDestroyDescriptor(d);
    tsr_sim_control()->clear_fault();
    REQUIRE(cublasLtMatmulDescCreate(&m, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulDescSetAttribute(m, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &one, 4) !=
          CUBLAS_STATUS_SUCCESS);
    CHECK(strstr(tsr_sim_control()->fault(), "attribute 15 of a product"));
    cublasLtMatmulDescDestroy(m);
    tsr_sim_control()->clear_fault();
    rig_end(&r, NULL);
}

static void libraries__what_a_plan_was_made_of_is_gone__is_caught(void)
{
    rig r;

    rig_make(&r, TSR_OP_CONV2D);
    REQUIRE(r.b->device->prepare(r.b, &r.call, false, &r.err) == TSR_OK);
    for (int32_t i = 0; i < TSR_CUDA_BUCKETS; i++)
        if (r.c->plans[i]) { /* the first that was made: a tensor, or the convolution */
            tsr_cuda_plan *p = r.c->plans[i];
            cudnnBackendDestroyDescriptor(p->made[0]);
            memmove(p->made, p->made + 1, (size_t)--p->n_made * sizeof *p->made);
        }
    rig_end(&r, "no longer alive");
}

int main(void)
{
    RUN(libraries__right_calls__are_computed);
    RUN(libraries__wrong_strides__are_caught);
    RUN(libraries__workspaces_that_are_too_long__are_caught);
    RUN(libraries__little_scratch__is_left_to_the_own_kernel);
    RUN(libraries__addresses__must_be_aligned_and_apart);
    RUN(libraries__unknown_attributes__are_named);
    RUN(libraries__what_a_plan_was_made_of_is_gone__is_caught);
    return test_end();
}
