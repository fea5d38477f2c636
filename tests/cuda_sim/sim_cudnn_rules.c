/* sim_cudnn_rules.c -- which attributes cuDNN's descriptors have, and what must hold of them. See
 * sim_cudnn.c. */
#include "tests/cuda_sim/sim_cudnn.h"

#include <string.h>

/* ------------------------------------------------------------------------ the rules */

#define RULE(of, name, type, most, needed)                                                         \
    {                                                                                              \
        DESCRIPTOR(of), CUDNN_ATTR_##name, "CUDNN_ATTR_" #name, CUDNN_TYPE_##type, most, needed    \
    }
#define KNOWN(of, name) RULE(of, name, VOID_PTR, 0, false)

static const rule RULES[] = {
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, true),
    RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, true),
    RULE(TENSOR, TENSOR_DIMENSIONS, INT64, 4, true),
    RULE(TENSOR, TENSOR_STRIDES, INT64, 4, true),
    RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, true),
    RULE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, false),
    RULE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, false),
    KNOWN(TENSOR, TENSOR_VECTOR_COUNT),
    KNOWN(TENSOR, TENSOR_VECTORIZED_DIMENSION),
    KNOWN(TENSOR, TENSOR_REORDERING_MODE),
    KNOWN(TENSOR, TENSOR_RAGGED_OFFSET_DESC),
    RULE(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, true),
    RULE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, true),
    RULE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, true),
    RULE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 2, true),
    RULE(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 2, true),
    RULE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 2, true),
    RULE(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 2, true),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_CONV_DESC, BACKEND_DESCRIPTOR,
         1, true),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_X, BACKEND_DESCRIPTOR, 1,
         true),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_W, BACKEND_DESCRIPTOR, 1,
         true),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_Y, BACKEND_DESCRIPTOR, 1,
         true),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_ALPHA, FLOAT, 1, true),
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_BETA, FLOAT, 1, true),
    RULE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, true),
    RULE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, true),
    KNOWN(POINTWISE, POINTWISE_RELU_LOWER_CLIP),
    KNOWN(POINTWISE, POINTWISE_SWISH_BETA),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, true),
    KNOWN(OPERATION_POINTWISE, OPERATION_POINTWISE_ALPHA1),
    KNOWN(OPERATION_POINTWISE, OPERATION_POINTWISE_ALPHA2),
    RULE(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_QDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_KDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_VDESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_ODESC, BACKEND_DESCRIPTOR, 1, true),
    RULE(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_SCALEDESC, BACKEND_DESCRIPTOR, 1, true),
    KNOWN(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_STATSDESC),
    KNOWN(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_BLOCK_MASK_DESC),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, MAX_OPS, true),
    KNOWN(OPERATIONGRAPH, OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED),
    RULE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, true),
    RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, true),
    RULE(ENGINEHEUR, ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, 1, true),
    KNOWN(ENGINEHEUR, ENGINEHEUR_SM_COUNT_TARGET),
    RULE(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1, true),
    KNOWN(ENGINECFG, ENGINECFG_KNOB_CHOICES),
    RULE(ENGINE, ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, true),
    KNOWN(ENGINE, ENGINE_KNOB_INFO),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, true),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, 1, true),
    KNOWN(EXECUTION_PLAN, EXECUTION_PLAN_KERNEL_CACHE),
    RULE(DEVICEPROP, DEVICEPROP_HANDLE, HANDLE, 1, true),
    RULE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, MAX_TENSORS, true),
    RULE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, MAX_TENSORS, true),
    RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, true),
    KNOWN(VARIANT_PACK, VARIANT_PACK_INTERMEDIATES),
};
enum { N_RULES = sizeof RULES / sizeof *RULES };

const rule *sim_dnn_rule(int32_t i)
{
    return i < N_RULES ? &RULES[i] : NULL;
}

size_t sim_dnn_size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    default:
        return 4;
    }
}

const rule *sim_dnn_rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name)
{
    for (int32_t i = 0; i < N_RULES; i++)
        if (RULES[i].of == of && RULES[i].name == name)
            return &RULES[i];
    return NULL;
}

const attribute *sim_dnn_found(const descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int32_t i = 0; i < d->n; i++)
        if (d->all[i].name == name)
            return &d->all[i];
    return NULL;
}

int64_t sim_dnn_number(const descriptor *d, cudnnBackendAttributeName_t name, int32_t i)
{
    const attribute *a = sim_dnn_found(d, name);
    int64_t v = 0;

    if (!a || i >= a->n)
        return 0;
    if (sim_dnn_rule_of(d->type, name)->type == CUDNN_TYPE_INT64)
        memcpy(&v, a->values + 8 * i, 8);
    else
        memcpy(&v, a->values,
               sim_dnn_size_of(sim_dnn_rule_of(d->type, name)->type)); /* little-endian */
    return v;
}

void *sim_dnn_pointer(const descriptor *d, cudnnBackendAttributeName_t name, int32_t i)
{
    const attribute *a = sim_dnn_found(d, name);
    void *p = NULL;

    if (a && i < a->n)
        memcpy(&p, a->values + 8 * i, 8);
    return p;
}

descriptor *sim_dnn_child(const descriptor *d, cudnnBackendAttributeName_t name)
{
    return sim_dnn_alive(sim_dnn_pointer(d, name, 0));
}

/* ------------------------------------------------------------------- what must hold */

static tsr_dtype dtype_of(const descriptor *tensor)
{
    switch ((cudnnDataType_t)sim_dnn_number(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, 0)) {
    case CUDNN_DATA_HALF:
        return TSR_F16;
    case CUDNN_DATA_BFLOAT16:
        return TSR_BF16;
    case CUDNN_DATA_FLOAT:
        return TSR_F32;
    default:
        return TSR_DTYPE_NONE;
    }
}

sim_array sim_dnn_array(const descriptor *tensor, void *data)
{
    sim_array a = {.data = data, .dtype = dtype_of(tensor)};

    for (int32_t i = 0; i < 4; i++) {
        a.dims[i] = sim_dnn_number(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        a.strides[i] = sim_dnn_number(tensor, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    return a;
}

static int64_t dim(const descriptor *tensor, int32_t i)
{
    return sim_dnn_number(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
}

/* No two elements lie at one place. */
static bool is_one_to_one(const sim_array *a)
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (i != j && a->dims[i] > 1 && a->dims[j] > 1 && a->strides[i] <= a->strides[j] &&
                (a->strides[i] == a->strides[j] || a->strides[j] < a->strides[i] * a->dims[i]))
                return false;
    return true;
}

static const char *tensor_wrong(const descriptor *d)
{
    sim_array a = sim_dnn_array(d, NULL);
    int64_t alignment = sim_dnn_number(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);

    if (a.dtype == TSR_DTYPE_NONE)
        return "a tensor's type is not simulated";
    if (sim_dnn_found(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->n != 4 ||
        sim_dnn_found(d, CUDNN_ATTR_TENSOR_STRIDES)->n != 4)
        return "a tensor has four axes here";
    for (int i = 0; i < 4; i++)
        if (a.dims[i] < 1 || (a.dims[i] > 1 && a.strides[i] < 1))
            return "a tensor's size or stride is not positive";
    if (alignment < 1 || (alignment & (alignment - 1)))
        return "a tensor's alignment is no power of 2";
    return is_one_to_one(&a) ? NULL : "a tensor's strides let elements overlap";
}

static const char *conv_wrong(const descriptor *op)
{
    const descriptor *conv = sim_dnn_child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    const descriptor *x = sim_dnn_child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
    const descriptor *w = sim_dnn_child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    const descriptor *y = sim_dnn_child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);

    if (dtype_of(x) != dtype_of(w))
        return "a convolution's operands are not both of one type";
    if (dim(x, 0) != dim(y, 0) || dim(x, 1) != dim(w, 1) || dim(w, 0) != dim(y, 1))
        return "a convolution's entries or channels do not agree";
    if (sim_dnn_number(x, CUDNN_ATTR_TENSOR_STRIDES, 1) != 1 ||
        sim_dnn_number(w, CUDNN_ATTR_TENSOR_STRIDES, 1) != 1)
        return "a convolution's channels are not the last in memory";
    for (int32_t i = 0; i < 2; i++) {
        int64_t size =
            dim(x, 2 + i) + sim_dnn_number(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i) +
            sim_dnn_number(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i) - dim(w, 2 + i);
        if (sim_dnn_number(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, i) != 1)
            return "a convolution's dilation is not 1";
        if (size < 0 || size / sim_dnn_number(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i) + 1 !=
                            dim(y, 2 + i))
            return "a convolution's output has another size";
    }
    return NULL;
}

static const char *add_wrong(const descriptor *op)
{
    const descriptor *x = sim_dnn_child(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const descriptor *b = sim_dnn_child(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const descriptor *y = sim_dnn_child(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const descriptor *mode = sim_dnn_child(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);

    if (sim_dnn_number(mode, CUDNN_ATTR_POINTWISE_MODE, 0) != CUDNN_POINTWISE_ADD)
        return "a pointwise operation is no addition";
    for (int32_t i = 0; i < 4; i++)
        if (dim(x, i) != dim(y, i) || (dim(b, i) != dim(y, i) && dim(b, i) != 1))
            return "a sum's shapes do not agree";
    return NULL;
}

static const char *sdpa_wrong(const descriptor *op)
{
    const descriptor *q = sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
    const descriptor *k = sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
    const descriptor *v = sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
    const descriptor *o = sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
    const descriptor *scale = sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC);

    for (int32_t i = 0; i < 4; i++)
        if (dim(q, i) != dim(o, i) || dim(k, i) != dim(v, i) || (i != 2 && dim(q, i) != dim(k, i)))
            return "attention's shapes do not agree";
    if (dtype_of(q) == TSR_F32 || dtype_of(q) != dtype_of(k) || dtype_of(q) != dtype_of(v) ||
        dtype_of(q) != dtype_of(o))
        return "attention's operands are not all of one half type";
    if (dim(q, 3) % 8 || dim(q, 3) > 256)
        return "attention's head width is not supported";
    if (!sim_dnn_number(scale, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) || dtype_of(scale) != TSR_F32)
        return "attention's scale is not a float by value";
    return NULL;
}

descriptor *sim_dnn_op(const descriptor *graph, int32_t i)
{
    return sim_dnn_alive(sim_dnn_pointer(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
}

int32_t sim_dnn_n_ops(const descriptor *graph)
{
    return (int32_t)sim_dnn_found(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)->n;
}

/* A convolution and sums, each of which takes what the one before has made; or attention alone. */
static const char *graph_wrong(const descriptor *graph)
{
    const descriptor *made = NULL, *first = sim_dnn_op(graph, 0);

    if (first->type == DESCRIPTOR(OPERATION_SDPA_FWD))
        return sim_dnn_n_ops(graph) == 1 ? NULL : "attention is not alone in its graph";
    if (first->type != DESCRIPTOR(OPERATION_CONVOLUTION_FORWARD))
        return "a graph does not begin with a convolution or attention";
    made = sim_dnn_child(first, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    for (int32_t i = 1; i < sim_dnn_n_ops(graph); i++) {
        const descriptor *op = sim_dnn_op(graph, i);
        if (op->type != DESCRIPTOR(OPERATION_POINTWISE) ||
            sim_dnn_child(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != made)
            return "an operation does not take what the one before it has made";
        if (!sim_dnn_number(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0))
            return "what is between two operations is not virtual";
        made = sim_dnn_child(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    }
    return sim_dnn_number(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) ? "a graph's output is virtual"
                                                                 : NULL;
}

const char *sim_dnn_wrong(const descriptor *d)
{
    switch ((int)d->type) {
    case DESCRIPTOR(TENSOR):
        return tensor_wrong(d);
    case DESCRIPTOR(OPERATION_CONVOLUTION_FORWARD):
        return conv_wrong(d);
    case DESCRIPTOR(OPERATION_POINTWISE):
        return add_wrong(d);
    case DESCRIPTOR(OPERATION_SDPA_FWD):
        return sdpa_wrong(d);
    case DESCRIPTOR(OPERATIONGRAPH):
        return graph_wrong(d);
    case DESCRIPTOR(VARIANT_PACK):
        return sim_dnn_found(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->n ==
                       sim_dnn_found(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->n
                   ? NULL
                   : "numbers and addresses are not as many";
    default:
        return NULL;
    }
}
