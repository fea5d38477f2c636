/* cuda_matmul.c -- linear layers through cuBLASLt: y = x w^T + bias + residual.
 *
 * cuBLASLt's matrices are column-major. What is row-major here is their transposes: D [Co,M] is y,
 * A [K,Co], transposed, is the weight, B [K,M] is x, C the residual, whose buffer may be the
 * output's. Bias is the epilogue's. Entries are one matrix where their rows lie one behind the
 * other, else a batch with a stride (0 where x is the same for all).
 *
 * Not asked for: an activation before or behind, GEGLU. cuBLASLt's GELU is the tanh formula, up to
 * 5e-4 beside the one that models are trained with (cuda_gemm.cu computes that).
 *
 * Bytes: x, w, residual and y once. Roof: the tensor cores'; for few rows the memory's rate. */
#include "kernels/cuda/cuda_library.h"

#include "base/num.h"

/* The window's rows of all entries lie one behind the other. */
static bool is_dense(const tsr_tensor *t, int32_t rows)
{
    return !t->data || t->entry_stride == (size_t)rows * t->row_stride;
}

tsr_cuda_key tsr_cuda_matmul_key(const tsr_call *call)
{
    const tsr_window *w = &call->window;
    const tsr_tensor *x = &call->in[0], *residual = &call->in[3];
    int32_t rows = w->h1 - w->h0, n = w->n1 - w->n0;
    bool one =
        n == 1 || (is_dense(x, rows) && is_dense(residual, rows) && is_dense(&call->out, rows));
    tsr_cuda_key k = {.kind = TSR_OP_LINEAR,
                      .dtype = (int32_t)x->dtype,
                      .bias = call->w[1] != NULL,
                      .residual = residual->data != NULL,
                      .n = one ? 1 : n,
                      .co = (w->c1 ? w->c1 : call->out.c) - w->c0,
                      .c = x->c,
                      .in_h = rows * call->out.w * (one ? n : 1),
                      .out_pixel = call->out.c};

    if (!one) {
        k.x_entry = tsr_cuda_elements(call, x->entry_stride);
        k.out_entry = tsr_cuda_elements(call, call->out.entry_stride);
        k.residual_entry = tsr_cuda_elements(call, residual->entry_stride);
    }
    return k;
}

/* ------------------------------------------------------------------------ building */

/* A matrix of `rows` x `columns`, columns `ld` elements apart, entries `entry`. */
typedef struct layout {
    int64_t rows, columns, ld, entry;
} layout;

static cublasStatus_t make_layout(cublasLtMatrixLayout_t *m, const tsr_cuda_key *k, layout l)
{
    cudaDataType_t type = k->dtype == TSR_F32    ? CUDA_R_32F
                          : k->dtype == TSR_BF16 ? CUDA_R_16BF
                                                 : CUDA_R_16F;
    cublasStatus_t s =
        cublasLtMatrixLayoutCreate(m, type, (uint64_t)l.rows, (uint64_t)l.columns, l.ld);

    if (s == CUBLAS_STATUS_SUCCESS && k->n > 1)
        s = cublasLtMatrixLayoutSetAttribute(*m, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &k->n,
                                             sizeof k->n);
    if (s == CUBLAS_STATUS_SUCCESS && k->n > 1)
        s = cublasLtMatrixLayoutSetAttribute(*m, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &l.entry, sizeof l.entry);
    return s;
}

static cublasStatus_t make_layouts(tsr_cuda_plan *p)
{
    const tsr_cuda_key *k = &p->key;
    layout c = {k->co, k->in_h, k->out_pixel, k->residual ? k->residual_entry : k->out_entry};
    layout d = {k->co, k->in_h, k->out_pixel, k->out_entry};
    cublasStatus_t s = make_layout(&p->a, k, (layout){k->c, k->co, k->c, 0});

    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(&p->b, k, (layout){k->c, k->in_h, k->c, k->x_entry});
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(&p->c, k, c);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(&p->d, k, d);
    return s;
}

static cublasStatus_t make_matmul(tsr_cuda_plan *p)
{
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = p->key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cublasStatus_t s = cublasLtMatmulDescCreate(&p->matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                           sizeof transposed);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof epilogue);
    return s;
}

/* Sums in one order and in float32, scratch as planned, addresses at multiples of 16 bytes. */
static cublasStatus_t set_preference(cublasLtMatmulPreference_t pref, const tsr_cuda_key *k)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t alignment = TSR_CUDA_ALIGN;
    uint32_t sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint64_t work = (uint64_t)k->work_bytes;
    cublasStatus_t s = cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &sums, sizeof sums);
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned && s == CUBLAS_STATUS_SUCCESS; i++)
        s = cublasLtMatmulPreferenceSetAttribute(pref, aligned[i], &alignment, sizeof alignment);
    return s;
}

static cublasStatus_t choose(const tsr_cuda *c, tsr_cuda_plan *p)
{
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t best = {0};
    int n = 0;
    cublasStatus_t s = cublasLtMatmulPreferenceCreate(&pref);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_preference(pref, &p->key);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulAlgoGetHeuristic(c->blas, p->matmul, p->a, p->b, p->c, p->d, pref, 1,
                                           &best, &n);
    if (s == CUBLAS_STATUS_SUCCESS && (n == 0 || best.state != CUBLAS_STATUS_SUCCESS))
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    p->algo = best.algo;
    p->work_bytes = best.workspaceSize;
    if (pref)
        (void)cublasLtMatmulPreferenceDestroy(pref);
    return s;
}

tsr_status tsr_cuda_matmul_build(tsr_cuda *c, tsr_cuda_plan *p, tsr_err *err)
{
    cublasStatus_t s = make_matmul(p);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layouts(p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = choose(c, p);
    if (s == CUBLAS_STATUS_SUCCESS)
        return TSR_OK;
    tsr_cuda_matmul_free(p);
    p->is_own = true;
    if (s == CUBLAS_STATUS_NOT_SUPPORTED)
        return TSR_OK;
    TSR_FAIL(err, TSR_E_DEVICE, "cuBLASLt failed while planning for the device (%s)",
             cublasLtGetStatusString(s));
}

void tsr_cuda_matmul_free(tsr_cuda_plan *p)
{
    cublasLtMatrixLayout_t *const layouts[] = {&p->a, &p->b, &p->c, &p->d};

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (*layouts[i])
            (void)cublasLtMatrixLayoutDestroy(*layouts[i]);
        *layouts[i] = NULL;
    }
    if (p->matmul)
        (void)cublasLtMatmulDescDestroy(p->matmul);
    p->matmul = NULL;
}

/* ------------------------------------------------------------------------- running */

static void *at(const tsr_tensor *t, int32_t n, int32_t y, int32_t c0)
{
    return (void *)((uintptr_t)t->data + (size_t)n * t->entry_stride +
                    (size_t)(y - t->row0) * t->row_stride + (size_t)c0 * tsr_dtype_size(t->dtype));
}

void tsr_cuda_matmul_run(tsr_cuda *c, const tsr_cuda_plan *p, const tsr_call *call)
{
    const tsr_window *w = &call->window;
    float one = 1, beta = p->key.residual ? 1 : 0;
    void *x = at(&call->in[0], w->n0, w->h0, 0), *y = at(&call->out, w->n0, w->h0, w->c0);
    const void *residual = p->key.residual ? at(&call->in[3], w->n0, w->h0, w->c0) : y;
    const void *bias = (const unsigned char *)tsr_cuda_bias(call, call->in[0].dtype);
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;

    if (bias) {
        bias = (const unsigned char *)bias + (size_t)w->c0 * tsr_dtype_size(call->in[0].dtype);
        s = cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof bias);
    }
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmul(c->blas, p->matmul, &one, call->w[0], p->a, x, p->b, &beta, residual,
                           p->c, y, p->d, &p->algo, p->work_bytes ? call->work : NULL,
                           p->work_bytes, c->queue[TSR_QUEUE_COMPUTE]);
    if (s != CUBLAS_STATUS_SUCCESS)
        tsr_cuda_ok(
            c, s == CUBLAS_STATUS_ALLOC_FAILED ? cudaErrorMemoryAllocation : cudaErrorLaunchFailure,
            call->op->name);
}
