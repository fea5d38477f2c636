/* sim_cublaslt.c -- cuBLASLt, as far as the backend uses it: D = A^T B + beta C + bias.
 *
 * Checked: that an attribute is known (an unknown one is an error that names its number) and has
 * its size; that descriptors are alive; types, shapes, leading dimensions, batches; when a product
 * runs, that each matrix is aligned as the preference promised and lies inside of one piece of
 * device memory, that D lies apart from A and B and is C's buffer or apart from it, and that the
 * workspace is as large as the algorithm said. The whole of it is overwritten. */
#include "tests/cuda_sim/sim_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>

enum { GOOD_WORK = 1000, MAX_OBJECTS = 1 << 14, ALGO = 0x544C };

typedef enum object_kind { HANDLE, MATMUL, LAYOUT, PREFERENCE } object_kind;

/* Every object of the library, as the library's own types are opaque. */
typedef struct object {
    object_kind kind;
    /* MATMUL */
    cublasOperation_t transa;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    /* LAYOUT */
    cudaDataType type;
    int64_t rows, columns, ld, entry;
    int32_t batch;
    /* PREFERENCE */
    uint64_t work;
    uint32_t sums, alignment[4];
} object;

static object *objects[MAX_OBJECTS];
static int n_objects;

static cublasStatus_t wrong(const char *what)
{
    (void)sim_mistake(cudaErrorInvalidValue, "cuBLASLt: %s", what);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t enter(void)
{
    return sim_enter(cudaErrorUnknown) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                      : CUBLAS_STATUS_INTERNAL_ERROR;
}

static cublasStatus_t leave(cublasStatus_t s)
{
    (void)sim_leave(cudaSuccess);
    return s;
}

static object *alive(const void *p, object_kind kind)
{
    for (int i = 0; i < n_objects; i++)
        if (objects[i] == p && objects[i]->kind == kind)
            return objects[i];
    return NULL;
}

/* A new object; NULL when there is no room. */
static object *make(object_kind kind)
{
    object *o = n_objects < MAX_OBJECTS ? calloc(1, sizeof *o) : NULL;

    if (!o)
        return NULL;
    o->kind = kind;
    objects[n_objects++] = o;
    sim.f.n_handles++;
    return o;
}

static cublasStatus_t destroy(const void *p, object_kind kind)
{
    object *o;

    (void)sim_enter_release();
    o = alive(p, kind);
    if (!o)
        return leave(wrong("something is destroyed that is not alive"));
    for (int i = 0; i < n_objects; i++)
        if (objects[i] == o)
            objects[i] = objects[--n_objects];
    free(o);
    sim.f.n_handles--;
    return leave(CUBLAS_STATUS_SUCCESS);
}

/* Copies an attribute of `size` bytes. */
static cublasStatus_t take(void *to, size_t size, const void *from, size_t bytes)
{
    if (bytes != size)
        return wrong("an attribute has another size");
    memcpy(to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t unknown(const char *of, int attribute)
{
    char text[120];

    snprintf(text, sizeof text, "attribute %d of a %s is not simulated", attribute, of);
    return wrong(text);
}

/* -------------------------------------------------------------------------- objects */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    cublasStatus_t s = enter();

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    *h = (cublasLtHandle_t)make(HANDLE);
    return leave(*h ? s : CUBLAS_STATUS_ALLOC_FAILED);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    return destroy(h, HANDLE);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *m, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    cublasStatus_t s = enter();

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return leave(wrong("sums are not float32"));
    *m = (cublasLtMatmulDesc_t)make(MATMUL);
    return leave(*m ? s : CUBLAS_STATUS_ALLOC_FAILED);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t m)
{
    return destroy(m, MATMUL);
}

static cublasStatus_t set_matmul(object *o, cublasLtMatmulDescAttributes_t a, const void *p,
                                 size_t n)
{
    switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&o->transa, sizeof o->transa, p, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&o->epilogue, sizeof o->epilogue, p, n);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&o->bias, sizeof o->bias, p, n);
    default:
        return unknown("product (cublasLtMatmulDescAttributes_t)", (int)a);
    }
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t m,
                                              cublasLtMatmulDescAttributes_t a, const void *p,
                                              size_t n)
{
    cublasStatus_t s = enter();
    object *o;

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    o = alive(m, MATMUL);
    return leave(o ? set_matmul(o, a, p, n) : wrong("an attribute of no product is set"));
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *m, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    cublasStatus_t s = enter();
    object *o;

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (type != CUDA_R_16F && type != CUDA_R_16BF && type != CUDA_R_32F)
        return leave(wrong("a matrix is of a type that is not simulated"));
    if (rows == 0 || columns == 0 || ld < (int64_t)rows)
        return leave(wrong("a matrix's leading dimension is smaller than its rows"));
    o = make(LAYOUT);
    if (!o)
        return leave(CUBLAS_STATUS_ALLOC_FAILED);
    o->type = type;
    o->rows = (int64_t)rows;
    o->columns = (int64_t)columns;
    o->ld = ld;
    o->batch = 1;
    *m = (cublasLtMatrixLayout_t)o;
    return leave(s);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m)
{
    return destroy(m, LAYOUT);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t m,
                                                cublasLtMatrixLayoutAttribute_t a, const void *p,
                                                size_t n)
{
    cublasStatus_t s = enter();
    object *o;

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    o = alive(m, LAYOUT);
    if (!o)
        return leave(wrong("an attribute of no matrix is set"));
    if (a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return leave(take(&o->batch, sizeof o->batch, p, n));
    if (a == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        return leave(take(&o->entry, sizeof o->entry, p, n));
    return leave(unknown("matrix (cublasLtMatrixLayoutAttribute_t)", (int)a));
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    cublasStatus_t s = enter();
    object *o;

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    o = make(PREFERENCE);
    for (int i = 0; o && i < 4; i++)
        o->alignment[i] = 256;
    if (o)
        o->sums = CUBLASLT_REDUCTION_SCHEME_MASK;
    *p = (cublasLtMatmulPreference_t)o;
    return leave(o ? s : CUBLAS_STATUS_ALLOC_FAILED);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return destroy(p, PREFERENCE);
}

static cublasStatus_t set_preference(object *o, cublasLtMatmulPreferenceAttributes_t a,
                                     const void *p, size_t n)
{
    switch (a) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(&o->work, sizeof o->work, p, n);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return take(&o->sums, sizeof o->sums, p, n);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(&o->alignment[a - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], 4, p, n);
    default:
        return unknown("preference (cublasLtMatmulPreferenceAttributes_t)", (int)a);
    }
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void *p, size_t n)
{
    cublasStatus_t s = enter();
    object *o;

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    o = alive(pref, PREFERENCE);
    return leave(o ? set_preference(o, a, p, n) : wrong("an attribute of no preference is set"));
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS ? "no error" : sim.fault[0] ? sim.fault : "simulated error";
}

/* -------------------------------------------------------------------------- products */

typedef struct product {
    const object *m, *a, *b, *c, *d;
} product;

static const char *product_wrong(const product *p)
{
    if (!p->m || !p->a || !p->b || !p->c || !p->d)
        return "a description of the product is not alive";
    if (p->m->transa != CUBLAS_OP_T)
        return "A is not transposed";
    if (p->a->type != p->b->type || p->a->type != p->c->type || p->a->type != p->d->type)
        return "the matrices are not all of one type";
    if (p->a->rows != p->b->rows || p->a->columns != p->d->rows || p->b->columns != p->d->columns ||
        p->c->rows != p->d->rows || p->c->columns != p->d->columns)
        return "the matrices' shapes do not agree";
    if (p->a->batch != p->d->batch || p->b->batch != p->d->batch || p->c->batch != p->d->batch)
        return "the matrices' batches do not agree";
    if (p->d->batch > 1 && p->d->entry < p->d->ld * (p->d->columns - 1) + p->d->rows)
        return "the batch's outputs lie over each other";
    if (p->m->epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->m->epilogue != CUBLASLT_EPILOGUE_BIAS)
        return "the epilogue is not simulated";
    return NULL;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t m,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int asked,
                                              cublasLtMatmulHeuristicResult_t *results, int *n)
{
    cublasStatus_t s = enter();
    product p;
    const object *o;
    const char *why;

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    p = (product){alive(m, MATMUL), alive(a, LAYOUT), alive(b, LAYOUT), alive(c, LAYOUT),
                  alive(d, LAYOUT)};
    o = alive(pref, PREFERENCE);
    why = product_wrong(&p);
    if (!alive(h, HANDLE) || !o || asked < 1)
        why = why ? why : "no handle, preference or room for a result";
    if (why)
        return leave(wrong(why));
    if (o->sums & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
        return leave(wrong("sums may be made in any order, or in half precision"));
    *n = o->work >= GOOD_WORK && !sim.o.no_engines;
    memset(results, 0, sizeof *results);
    results->workspaceSize = GOOD_WORK;
    results->algo.data[0] = ALGO;
    for (int i = 0; i < 4; i++)
        results->algo.data[1 + i] = o->alignment[i];
    return leave(s);
}

typedef struct matmul {
    sim_array x, w, y, residual; /* N M . K, 1 Co . K, N M . Co */
    sim_array bias;
    float beta;
    void *work;
} matmul;

static const char *compute(void *arg)
{
    matmul *m = arg;
    sim_conv c = {.y = m->y, .stride = {1, 1}, .n_sums = 0};

    memset(m->work, 0xFF, GOOD_WORK);
    c.x = m->x;
    c.w = m->w;
    if (m->bias.data)
        c.sums[c.n_sums++] = m->bias;
    if (m->beta != 0)
        c.sums[c.n_sums++] = m->residual;
    return sim_compute_conv(&c);
}

/* A column-major matrix of a batch as an image [N,C,H,1], pixels its columns. */
static sim_array image_of(const object *l, const void *data)
{
    sim_array a = {.data = (unsigned char *)(uintptr_t)data,
                   .dtype = l->type == CUDA_R_32F   ? TSR_F32
                            : l->type == CUDA_R_16F ? TSR_F16
                                                    : TSR_BF16,
                   .dims = {l->batch, l->rows, l->columns, 1},
                   .strides = {l->entry, 1, l->ld, l->ld}};

    return a;
}

static const char *places_wrong(const matmul *m, const cublasLtMatmulAlgo_t *algo,
                                size_t work_bytes)
{
    const sim_array *all[4] = {&m->w, &m->x, &m->residual, &m->y};
    size_t y_bytes = sim_array_bytes(&m->y);
    const char *why = NULL;
    bool whole;

    for (int i = 0; i < 4 && !why; i++) {
        bool same = i == 2 && all[i]->data == m->y.data;
        why = i == 2 && m->beta == 0 ? NULL : sim_array_wrong(all[i], (size_t)algo->data[1 + i]);
        if (!why && i < 3 && !same &&
            sim_overlap(all[i]->data, sim_array_bytes(all[i]), m->y.data, y_bytes))
            why = "the output lies over an operand";
        if (!why && sim_overlap(all[i]->data, sim_array_bytes(all[i]), m->work, GOOD_WORK))
            why = "the workspace lies over a matrix";
    }
    if (!why && m->bias.data)
        why = sim_array_wrong(&m->bias, 16);
    if (!why && (work_bytes < GOOD_WORK || sim_place_of(m->work, GOOD_WORK, &whole) != SIM_DEVICE ||
                 !whole))
        why = "the workspace is smaller than the algorithm needs";
    return why;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t m, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes,
                              cudaStream_t stream)
{
    cublasStatus_t s = enter();
    product p;
    matmul run = {.work = work};
    const char *why;

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    p = (product){alive(m, MATMUL), alive(la, LAYOUT), alive(lb, LAYOUT), alive(lc, LAYOUT),
                  alive(ld, LAYOUT)};
    why = product_wrong(&p);
    if (!why && (!alive(h, HANDLE) || algo->data[0] != ALGO || *(const float *)alpha != 1))
        why = "no handle, no algorithm, or a factor that is not 1";
    if (why)
        return leave(wrong(why));
    memcpy(&run.beta, beta, sizeof run.beta);
    run.w = image_of(p.a, a); /* [batch,K,Co,1]: as a filter [Co,K,1,1] */
    run.w.dims[0] = run.w.dims[2];
    run.w.strides[0] = run.w.strides[2];
    run.w.dims[2] = 1;
    run.x = image_of(p.b, b);
    run.residual = image_of(p.c, c);
    run.y = image_of(p.d, d);
    if (p.m->epilogue == CUBLASLT_EPILOGUE_BIAS)
        run.bias = (sim_array){(unsigned char *)(uintptr_t)p.m->bias,
                               run.y.dtype,
                               {1, run.y.dims[1], 1, 1},
                               {run.y.dims[1], 1, 1, 1}};
    why = p.m->epilogue == CUBLASLT_EPILOGUE_BIAS && !p.m->bias
              ? "the bias has no address"
              : places_wrong(&run, algo, work_bytes);
    if (why)
        return leave(wrong(why));
    if (sim_load_library() != cudaSuccess)
        return leave(CUBLAS_STATUS_ALLOC_FAILED);
    if (sim_queue(stream, compute, &run, sizeof run) != cudaSuccess)
        return leave(CUBLAS_STATUS_EXECUTION_FAILED);
    sim.f.n_library_calls++;
    return leave(s);
}
