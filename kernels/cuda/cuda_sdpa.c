/* cuda_sdpa.c -- attention through cuDNN: softmax(q k^T * scale) v, one fused operation.
 *
 * Tensors are [N][T][Nh*Dh] in memory and [N, Nh, T, Dh] to cuDNN. Causal masks, keys that come in
 * blocks and heads that cuDNN has no engine for are the own kernel's (cuda_attention.cu).
 *
 * Bytes: q, k, v and the output once, where k and v of a head stay in the cache. Roof: the tensor
 * cores', less exp. */
#include "kernels/cuda/cuda_library.h"

enum { ID_Q = 1, ID_K, ID_V, ID_O, ID_SCALE };

tsr_cuda_key tsr_cuda_sdpa_key(const tsr_call *call)
{
    const tsr_window *w = &call->window;
    tsr_cuda_key k = {.kind = TSR_OP_ATTENTION,
                      .dtype = (int32_t)call->in[0].dtype,
                      .n = w->n1 - w->n0,
                      .c = call->in[0].c,
                      .co = call->out.c,
                      .heads = call->op->u.attention.n_heads,
                      .scale = call->op->u.attention.scale,
                      .in_h = (w->h1 - w->h0) * call->in[0].w,
                      .keys = call->in[1].h * call->in[1].w,
                      .out_entry = tsr_cuda_elements(call, call->out.entry_stride),
                      .x_entry = tsr_cuda_elements(call, call->in[0].entry_stride),
                      .add_entry = tsr_cuda_elements(call, call->in[1].entry_stride),
                      .v_entry = tsr_cuda_elements(call, call->in[2].entry_stride)};

    if (k.n == 1) /* no stride between entries is used: it makes no other plan */
        k.out_entry = k.x_entry = k.add_entry = k.v_entry = 0;
    return k;
}

static cudnnBackendDescriptor_t heads_of(tsr_cuda_graph *g, const tsr_cuda_key *k, int64_t id,
                                         int64_t tokens, int64_t entry)
{
    int64_t width = k->c / k->heads;
    tsr_cuda_tensor t = {.id = id,
                         .type = tsr_cuda_dnn_type(k->dtype),
                         .dims = {k->n, k->heads, tokens, width},
                         .strides = {entry ? entry : tokens * k->c, width, k->c, 1}};

    return tsr_cuda_graph_tensor(g, &t);
}

tsr_status tsr_cuda_sdpa_build(tsr_cuda *c, tsr_cuda_plan *p, tsr_err *err)
{
    const tsr_cuda_key *k = &p->key;
    tsr_cuda_graph g = {.plan = p};
    tsr_cuda_tensor scale = {.id = ID_SCALE,
                             .type = CUDNN_DATA_FLOAT,
                             .dims = {1, 1, 1, 1},
                             .strides = {1, 1, 1, 1},
                             .is_by_value = true};
    struct {
        cudnnBackendAttributeName_t name;
        cudnnBackendDescriptor_t tensor;
    } operands[] = {
        {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, heads_of(&g, k, ID_Q, k->in_h, k->x_entry)},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, heads_of(&g, k, ID_K, k->keys, k->add_entry)},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, heads_of(&g, k, ID_V, k->keys, k->v_entry)},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, heads_of(&g, k, ID_O, k->in_h, k->out_entry)},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, tsr_cuda_graph_tensor(&g, &scale)},
    };
    cudnnBackendDescriptor_t d =
        tsr_cuda_graph_make(&g, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);

    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        tsr_cuda_graph_set(&g, d, operands[i].name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                           &operands[i].tensor);
    tsr_cuda_graph_op(&g, d);
    return tsr_cuda_graph_plan(&g, c, err);
}

static void *at(const tsr_tensor *t, int32_t n, int32_t y)
{
    return (void *)((uintptr_t)t->data + (size_t)n * t->entry_stride + (size_t)y * t->row_stride -
                    (size_t)t->row0 * t->row_stride);
}

void tsr_cuda_sdpa_run(tsr_cuda *c, const tsr_cuda_plan *p, const tsr_call *call)
{
    const tsr_window *w = &call->window;
    float scale = p->key.scale;
    const int64_t ids[] = {ID_Q, ID_K, ID_V, ID_O, ID_SCALE};
    void *const addresses[] = {at(&call->in[0], w->n0, w->h0), at(&call->in[1], w->n0, 0),
                               at(&call->in[2], w->n0, 0), at(&call->out, w->n0, w->h0), &scale};

    tsr_cuda_graph_run(c, p, ids, addresses, 5, call);
}
