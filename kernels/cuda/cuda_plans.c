/* cuda_plans.c -- which calls cuDNN and cuBLASLt compute, and the table of their plans.
 *
 * What a library is asked for depends on shapes and types alone: one type for all operands,
 * channels in eights (16-byte accesses), nothing that its graph cannot say. The rest is the own
 * kernels'. float32 is float32: no engine that rounds it to less. The scratch that a library may
 * take is a function of the window, too; the planner counts it. */
#include "kernels/cuda/cuda_library.h"

#include <string.h>

#include "base/num.h"

#define LEAST_WORK ((size_t)64 << 10)
#define MOST_WORK ((size_t)8 << 20)

enum { OLDEST_CUDNN = 91300, OLDEST_SDPA = 80, WIDE_HEADS = 90 };

/* One op, as the libraries' side sees it. */
typedef struct library {
    tsr_cuda_key (*key)(const tsr_call *call);
    tsr_status (*build)(tsr_cuda *c, tsr_cuda_plan *p, tsr_err *err);
    void (*run)(tsr_cuda *c, const tsr_cuda_plan *p, const tsr_call *call);
    const char *name;
} library;

static const library LIBRARIES[TSR_OP_KINDS] = {
    [TSR_OP_CONV2D] = {tsr_cuda_conv_key, tsr_cuda_conv_build, tsr_cuda_conv_run, "cudnn"},
    [TSR_OP_LINEAR] = {tsr_cuda_matmul_key, tsr_cuda_matmul_build, tsr_cuda_matmul_run, "cublaslt"},
    [TSR_OP_ATTENTION] = {tsr_cuda_sdpa_key, tsr_cuda_sdpa_build, tsr_cuda_sdpa_run, "cudnn"},
};

/* ----------------------------------------------------------------------- which calls */

/* All of one type, with channels in eights. Operands that are not there have n 0. */
static bool is_even(const tsr_cuda *c, const tsr_call *call)
{
    tsr_dtype d = call->out.dtype;
    bool known = d == TSR_F16 || d == TSR_F32 || (d == TSR_BF16 && c->capability >= 80);
    bool all = known && call->out.c % 8 == 0;

    for (int32_t k = 0; k < 4; k++)
        all = all && (call->in[k].n == 0 || (call->in[k].dtype == d && call->in[k].c % 8 == 0));
    return all && (!call->wd[0] || call->wd[0]->dtype == d);
}

static bool takes_heads(const tsr_cuda *c, const tsr_call *call)
{
    int32_t width = call->in[0].c / call->op->u.attention.n_heads;

    return c->capability >= OLDEST_SDPA && call->out.dtype != TSR_F32 &&
           !call->op->u.attention.causal && width % 8 == 0 &&
           width <= (c->capability >= WIDE_HEADS ? 256 : 128);
}

bool tsr_cuda_takes(const tsr_cuda *c, const tsr_call *call)
{
    const tsr_op *op = call->op;

    if (!is_even(c, call))
        return false;
    switch (op->kind) {
    case TSR_OP_CONV2D:
        return c->dnn && call->in[1].n == 0 && op->u.conv.up_h == 0;
    case TSR_OP_LINEAR:
        return c->blas && call->in[1].n == 0 && op->u.linear.pre == TSR_ACT_NONE &&
               op->u.linear.act == TSR_ACT_NONE && !op->u.linear.geglu;
    case TSR_OP_ATTENTION:
        return c->dnn && takes_heads(c, call);
    default:
        return false;
    }
}

/* Several entries, and an operand has one for all of them: a library gets them one by one. */
static bool repeats(const tsr_call *call)
{
    bool any = false;

    for (int32_t k = 0; k < 4; k++)
        any = any || (call->in[k].data && call->in[k].n > 1 && call->in[k].entry_stride == 0);
    return any && call->window.n1 - call->window.n0 > 1;
}

/* An op of a tape as a call without addresses. */
static tsr_call call_of(const tsr_tape *t, const tsr_op *op)
{
    tsr_call call = {.op = op};

    for (int32_t k = -1; k < 4; k++) {
        tsr_val v = k < 0 ? op->out : op->in[k];
        const tsr_value *x = &t->values[v];
        if (v)
            *(k < 0 ? &call.out : &call.in[k]) =
                (tsr_tensor){.n = x->n, .h = x->h, .w = x->w, .c = x->c, .dtype = x->dtype};
    }
    if (op->w[0])
        call.wd[0] = &t->weights[op->w[0]];
    return call;
}

/* Bytes for `n` elements of the output: what two partial sums of each take, within bounds. */
static size_t work_for(size_t n)
{
    return tsr_min_size(LEAST_WORK + 8 * n, MOST_WORK);
}

static size_t window_elements(const tsr_window *w, int32_t width, int32_t channels)
{
    return (size_t)(w->n1 - w->n0) * (size_t)(w->h1 - w->h0) * (size_t)width *
           (size_t)(w->c1 ? w->c1 - w->c0 : channels);
}

size_t tsr_cuda_library_work(const tsr_cuda *c, const tsr_tape *t, const tsr_op *op,
                             const tsr_window *w)
{
    tsr_call call = call_of(t, op);

    return tsr_cuda_takes(c, &call) ? work_for(window_elements(w, call.out.w, call.out.c)) : 0;
}

const char *tsr_cuda_method(const tsr_backend *b, const tsr_tape *t, const tsr_op *op)
{
    tsr_call call = call_of(t, op);

    return tsr_cuda_takes(tsr_cuda_of(b), &call) ? LIBRARIES[op->kind].name : NULL;
}

int32_t tsr_cuda_kv_block(const tsr_backend *b, const tsr_tape *t, const tsr_op *op)
{
    tsr_call call = call_of(t, op);
    int32_t keys = call.in[1].h * call.in[1].w;

    if (!tsr_cuda_takes(tsr_cuda_of(b), &call))
        return TSR_CUDA_KV_BLOCK;
    return tsr_max_i32(tsr_div_up(keys, TSR_CUDA_KV_BLOCK) * TSR_CUDA_KV_BLOCK, TSR_CUDA_KV_BLOCK);
}

bool tsr_cuda_in_place(const tsr_backend *b, const tsr_tape *t, const tsr_op *op)
{
    tsr_call call = call_of(t, op);

    return op->kind == TSR_OP_LINEAR || !tsr_cuda_takes(tsr_cuda_of(b), &call);
}

/* ------------------------------------------------------------------------- the table */

static tsr_cuda_plan **place_of(tsr_cuda *c, const tsr_cuda_key *k)
{
    const unsigned char *p = (const unsigned char *)k;
    uint32_t h = 2166136261u;
    tsr_cuda_plan **at;

    for (size_t i = 0; i < sizeof *k; i++)
        h = (h ^ p[i]) * 16777619u;
    for (at = &c->plans[h % TSR_CUDA_BUCKETS]; *at; at = &(*at)->next)
        if (memcmp(&(*at)->key, k, sizeof *k) == 0)
            break;
    return at;
}

/* Attention over some of its keys is the own kernel's (and is not planned: tsr_cuda_kv_block). */
static bool asks_library(const tsr_cuda *c, const tsr_call *call)
{
    bool some = call->carry && (call->kv0 > 0 || call->kv1 < call->in[1].h * call->in[1].w);

    return LIBRARIES[call->op->kind].key && tsr_cuda_takes(c, call) && !some;
}

static tsr_cuda_key key_of(const tsr_call *call)
{
    tsr_cuda_key k = LIBRARIES[call->op->kind].key(call);

    k.work_bytes = (int64_t)work_for(window_elements(&call->window, call->out.w, call->out.c));
    return k;
}

static void free_plan(tsr_cuda *c, tsr_cuda_plan *p)
{
    tsr_cuda_graph_free(p);
    tsr_cuda_matmul_free(p);
    c->host.free(p);
}

/* The call for one of its entries. */
static tsr_call entry_call(const tsr_call *call, int32_t n)
{
    tsr_call one = *call;

    one.window.n0 = n;
    one.window.n1 = n + 1;
    return one;
}

static bool run_planned(tsr_cuda *c, const tsr_call *call)
{
    tsr_cuda_key k = key_of(call);
    const tsr_cuda_plan *p = *place_of(c, &k);

    if (!p || p->is_own || p->work_bytes > call->work_bytes)
        return false;
    LIBRARIES[call->op->kind].run(c, p, call);
    return true;
}

bool tsr_cuda_library_run(tsr_cuda *c, const tsr_call *call)
{
    bool done = true;

    if (!asks_library(c, call))
        return false;
    if (!repeats(call))
        return run_planned(c, call);
    for (int32_t n = call->window.n0; n < call->window.n1 && done; n++) {
        tsr_call one = entry_call(call, n);
        done = run_planned(c, &one);
    }
    return done;
}

static tsr_status prepare_one(tsr_cuda *c, const tsr_call *call, bool run, tsr_err *err)
{
    tsr_cuda_key k = key_of(call);
    tsr_cuda_plan **place = place_of(c, &k), *p;
    tsr_status st;

    if (*place)
        return TSR_OK;
    p = c->host.alloc(sizeof *p);
    if (!p)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the plans of the device's libraries");
    p->key = k;
    st = LIBRARIES[k.kind].build(c, p, err);
    if (st != TSR_OK) {
        free_plan(c, p);
        return st;
    }
    *place = p;
    if (run && !p->is_own && p->work_bytes <= call->work_bytes)
        LIBRARIES[k.kind].run(c, p, call);
    return TSR_OK;
}

tsr_status tsr_cuda_prepare(const tsr_backend *b, const tsr_call *call, bool run, tsr_err *err)
{
    tsr_cuda *c = tsr_cuda_of(b);

    if (!asks_library(c, call))
        return TSR_OK;
    if (!repeats(call))
        return prepare_one(c, call, run, err);
    for (int32_t n = call->window.n0; n < call->window.n1; n++) {
        tsr_call one = entry_call(call, n);
        TSR_TRY(prepare_one(c, &one, run, err));
    }
    return TSR_OK;
}

/* --------------------------------------------------------------------- opening, closing */

/* cuDNN is asked what it proposes for a device: for this one. */
static cudnnStatus_t describe_device(tsr_cuda *c)
{
    cudnnStatus_t s =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->dnn_device);

    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(c->dnn_device, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE,
                                     1, &c->dnn);
    return s == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(c->dnn_device) : s;
}

tsr_status tsr_cuda_libraries_make(tsr_cuda *c, tsr_err *err)
{
    cublasStatus_t s;
    cudnnStatus_t d = CUDNN_STATUS_SUCCESS;

    s = cublasLtCreate(&c->blas);
    if (s != CUBLAS_STATUS_SUCCESS)
        TSR_FAIL(err, TSR_E_DEVICE, "cuBLASLt cannot be used on the device (%s)",
                 cublasLtGetStatusString(s));
    if (cudnnGetVersion() < OLDEST_CUDNN)
        return TSR_OK; /* its graphs have no attention, and no device: own kernels do without */
    d = cudnnCreate(&c->dnn);
    if (d == CUDNN_STATUS_SUCCESS)
        d = cudnnSetStream(c->dnn, c->queue[TSR_QUEUE_COMPUTE]);
    if (d == CUDNN_STATUS_SUCCESS)
        d = describe_device(c);
    if (d != CUDNN_STATUS_SUCCESS)
        TSR_FAIL(err, TSR_E_DEVICE, "cuDNN cannot be used on the device (%s)",
                 cudnnGetErrorString(d));
    return TSR_OK;
}

void tsr_cuda_libraries_free(tsr_cuda *c)
{
    for (int32_t i = 0; i < TSR_CUDA_BUCKETS; i++)
        while (c->plans[i]) {
            tsr_cuda_plan *p = c->plans[i];
            c->plans[i] = p->next;
            free_plan(c, p);
        }
    if (c->dnn_device)
        (void)cudnnBackendDestroyDescriptor(c->dnn_device);
    if (c->dnn)
        (void)cudnnDestroy(c->dnn);
    if (c->blas)
        (void)cublasLtDestroy(c->blas);
}
