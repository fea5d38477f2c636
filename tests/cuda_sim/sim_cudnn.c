/* sim_cudnn.c -- cuDNN's backend API, as far as the backend uses it: descriptors and their rules.
 *
 * Checked: that an attribute is known (an unknown one is an error that names it), has its type and
 * number of values, is set before its descriptor is final; that what a descriptor needs is there,
 * final and alive; shapes, strides and types of operations; when a plan runs, that each tensor has
 * an address of its own, aligned as declared and inside of one piece of device memory, and that the
 * workspace is as large as the plan says and lies apart. Graphs: a convolution with up to three
 * sums behind it, or one attention.
 *
 * Heuristics propose three engines: one that does not repeat its bits, one whose scratch is huge,
 * one that will do. It overwrites its whole scratch. */
#include "tests/cuda_sim/sim_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cudnn_graph.h>

enum { MAX_ATTRIBUTES = 16, MAX_BYTES = 64, MAX_OPS = 4, MAX_TENSORS = 8, N_ENGINES = 3 };
enum { GOOD_WORK = 1000 }; /* bytes; not a round number */
#define HUGE_WORK ((int64_t)1 << 30)

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t n;
    _Alignas(8) unsigned char values[MAX_BYTES];
    uint64_t numbers[MAX_OPS]; /* of descriptors: an address may be another's by now */
} attribute;

typedef struct descriptor descriptor;
struct descriptor {
    descriptor *next;
    uint64_t number; /* of all that were ever made */
    cudnnBackendDescriptorType_t type;
    bool is_final;
    int32_t n;
    attribute all[MAX_ATTRIBUTES];
    int32_t engine; /* ENGINECFG, ENGINE: number */
};

struct cudnnContext {
    cudaStream_t stream;
};

static descriptor *living;
static uint64_t made_so_far;
static struct cudnnContext *handles[8];

/* ------------------------------------------------------------------------ the rules */

/* What may be set: of which type, how many values, and whether it must be. A row of no values is
 * one that exists and is not simulated. */
typedef struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    const char *text;
    cudnnBackendAttributeType_t type;
    int32_t most;
    bool needed;
} rule;

#define DESCRIPTOR(x) CUDNN_BACKEND_##x##_DESCRIPTOR
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

static size_t size_of(cudnnBackendAttributeType_t type)
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

static cudnnStatus_t wrong(cudnnStatus_t s, const char *what, const char *which)
{
    (void)sim_mistake(cudaErrorInvalidValue, "cuDNN: %s%s%s", which, *which ? " " : "", what);
    return s;
}

static const rule *rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name)
{
    for (int32_t i = 0; i < N_RULES; i++)
        if (RULES[i].of == of && RULES[i].name == name)
            return &RULES[i];
    return NULL;
}

static descriptor *alive(const void *p)
{
    for (descriptor *d = living; d; d = d->next)
        if (d == p)
            return d;
    return NULL;
}

static const attribute *found(const descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int32_t i = 0; i < d->n; i++)
        if (d->all[i].name == name)
            return &d->all[i];
    return NULL;
}

static int64_t number(const descriptor *d, cudnnBackendAttributeName_t name, int32_t i)
{
    const attribute *a = found(d, name);
    int64_t v = 0;

    if (!a || i >= a->n)
        return 0;
    if (rule_of(d->type, name)->type == CUDNN_TYPE_INT64)
        memcpy(&v, a->values + 8 * i, 8);
    else
        memcpy(&v, a->values, size_of(rule_of(d->type, name)->type)); /* little-endian */
    return v;
}

static void *pointer(const descriptor *d, cudnnBackendAttributeName_t name, int32_t i)
{
    const attribute *a = found(d, name);
    void *p = NULL;

    if (a && i < a->n)
        memcpy(&p, a->values + 8 * i, 8);
    return p;
}

static descriptor *child(const descriptor *d, cudnnBackendAttributeName_t name)
{
    return alive(pointer(d, name, 0));
}

/* --------------------------------------------------------------------- descriptors */

/* Injected failures and a lost device reach a library, too. */
static cudnnStatus_t enter(void)
{
    cudaError_t e = sim_enter(cudaErrorUnknown);

    return e == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

static cudnnStatus_t leave(cudnnStatus_t s)
{
    (void)sim_leave(cudaSuccess);
    return s;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    cudnnStatus_t s = enter();
    descriptor *d;
    bool known = false;

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    for (int32_t i = 0; i < N_RULES; i++)
        known = known || RULES[i].of == type;
    if (!known)
        return leave(wrong(CUDNN_STATUS_NOT_SUPPORTED, "a descriptor that is not simulated", ""));
    d = calloc(1, sizeof *d);
    if (!d)
        return leave(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    d->type = type;
    d->number = ++made_so_far;
    d->next = living;
    living = d;
    sim.f.n_handles++;
    *out = d;
    return leave(CUDNN_STATUS_SUCCESS);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t p)
{
    (void)sim_enter_release();
    for (descriptor **d = &living; *d; d = &(*d)->next)
        if (*d == p) {
            *d = (*d)->next;
            free(p);
            sim.f.n_handles--;
            return leave(CUDNN_STATUS_SUCCESS);
        }
    return leave(wrong(CUDNN_STATUS_BAD_PARAM, "a descriptor is destroyed that is not alive", ""));
}

static cudnnStatus_t check_values(const rule *r, cudnnBackendAttributeType_t type, int64_t n,
                                  const void *values)
{
    if (r->most == 0)
        return wrong(CUDNN_STATUS_NOT_SUPPORTED, "is not simulated", r->text);
    if (type != r->type)
        return wrong(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "is given values of another type",
                     r->text);
    if (n < 1 || n > r->most || (size_t)n * size_of(type) > MAX_BYTES)
        return wrong(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "has another number of values", r->text);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++) {
        const descriptor *d = alive(((void *const *)values)[i]);
        if (!d || !d->is_final)
            return wrong(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                         "is given a descriptor that is not final, or not alive", r->text);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(descriptor *d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    const rule *r = rule_of(d->type, name);
    char text[80];
    cudnnStatus_t s;

    snprintf(text, sizeof text, "attribute %d of descriptor %d", (int)name, (int)d->type);
    if (!r)
        return wrong(CUDNN_STATUS_NOT_SUPPORTED, "is not simulated", text);
    if (d->is_final || d->n == MAX_ATTRIBUTES || found(d, name))
        return wrong(CUDNN_STATUS_BAD_PARAM, "is set twice, or after the end", r->text);
    s = check_values(r, type, n, values);
    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    d->all[d->n] = (attribute){.name = name, .n = n};
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++)
        d->all[d->n].numbers[i] = alive(((void *const *)values)[i])->number;
    memcpy(d->all[d->n++].values, values, (size_t)n * size_of(type));
    return s;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t p, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    cudnnStatus_t s = enter();

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    if (!alive(p))
        return leave(wrong(CUDNN_STATUS_BAD_PARAM, "an attribute of no descriptor is set", ""));
    return leave(set(p, name, type, n, values));
}

/* ------------------------------------------------------------------- what must hold */

static tsr_dtype dtype_of(const descriptor *tensor)
{
    switch ((cudnnDataType_t)number(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, 0)) {
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

static sim_array array_of(const descriptor *tensor, void *data)
{
    sim_array a = {.data = data, .dtype = dtype_of(tensor)};

    for (int32_t i = 0; i < 4; i++) {
        a.dims[i] = number(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        a.strides[i] = number(tensor, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    return a;
}

static int64_t dim(const descriptor *tensor, int32_t i)
{
    return number(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
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
    sim_array a = array_of(d, NULL);
    int64_t alignment = number(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);

    if (a.dtype == TSR_DTYPE_NONE)
        return "a tensor's type is not simulated";
    if (found(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->n != 4 ||
        found(d, CUDNN_ATTR_TENSOR_STRIDES)->n != 4)
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
    const descriptor *conv = child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    const descriptor *x = child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
    const descriptor *w = child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    const descriptor *y = child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);

    if (dtype_of(x) != dtype_of(w))
        return "a convolution's operands are not both of one type";
    if (dim(x, 0) != dim(y, 0) || dim(x, 1) != dim(w, 1) || dim(w, 0) != dim(y, 1))
        return "a convolution's entries or channels do not agree";
    if (number(x, CUDNN_ATTR_TENSOR_STRIDES, 1) != 1 ||
        number(w, CUDNN_ATTR_TENSOR_STRIDES, 1) != 1)
        return "a convolution's channels are not the last in memory";
    for (int32_t i = 0; i < 2; i++) {
        int64_t size = dim(x, 2 + i) + number(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i) +
                       number(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i) - dim(w, 2 + i);
        if (number(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, i) != 1)
            return "a convolution's dilation is not 1";
        if (size < 0 ||
            size / number(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i) + 1 != dim(y, 2 + i))
            return "a convolution's output has another size";
    }
    return NULL;
}

static const char *add_wrong(const descriptor *op)
{
    const descriptor *x = child(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const descriptor *b = child(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const descriptor *y = child(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const descriptor *mode = child(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);

    if (number(mode, CUDNN_ATTR_POINTWISE_MODE, 0) != CUDNN_POINTWISE_ADD)
        return "a pointwise operation is no addition";
    for (int32_t i = 0; i < 4; i++)
        if (dim(x, i) != dim(y, i) || (dim(b, i) != dim(y, i) && dim(b, i) != 1))
            return "a sum's shapes do not agree";
    return NULL;
}

static const char *sdpa_wrong(const descriptor *op)
{
    const descriptor *q = child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
    const descriptor *k = child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
    const descriptor *v = child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
    const descriptor *o = child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
    const descriptor *scale = child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC);

    for (int32_t i = 0; i < 4; i++)
        if (dim(q, i) != dim(o, i) || dim(k, i) != dim(v, i) || (i != 2 && dim(q, i) != dim(k, i)))
            return "attention's shapes do not agree";
    if (dtype_of(q) == TSR_F32 || dtype_of(q) != dtype_of(k) || dtype_of(q) != dtype_of(v) ||
        dtype_of(q) != dtype_of(o))
        return "attention's operands are not all of one half type";
    if (dim(q, 3) % 8 || dim(q, 3) > 256)
        return "attention's head width is not supported";
    if (!number(scale, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) || dtype_of(scale) != TSR_F32)
        return "attention's scale is not a float by value";
    return NULL;
}

static descriptor *op_of(const descriptor *graph, int32_t i)
{
    return alive(pointer(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
}

static int32_t n_ops(const descriptor *graph)
{
    return (int32_t)found(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)->n;
}

/* A convolution and sums, each of which takes what the one before has made; or attention alone. */
static const char *graph_wrong(const descriptor *graph)
{
    const descriptor *made = NULL, *first = op_of(graph, 0);

    if (first->type == DESCRIPTOR(OPERATION_SDPA_FWD))
        return n_ops(graph) == 1 ? NULL : "attention is not alone in its graph";
    if (first->type != DESCRIPTOR(OPERATION_CONVOLUTION_FORWARD))
        return "a graph does not begin with a convolution or attention";
    made = child(first, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    for (int32_t i = 1; i < n_ops(graph); i++) {
        const descriptor *op = op_of(graph, i);
        if (op->type != DESCRIPTOR(OPERATION_POINTWISE) ||
            child(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != made)
            return "an operation does not take what the one before it has made";
        if (!number(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0))
            return "what is between two operations is not virtual";
        made = child(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    }
    return number(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) ? "a graph's output is virtual" : NULL;
}

static const char *descriptor_wrong(const descriptor *d)
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
        return found(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->n ==
                       found(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->n
                   ? NULL
                   : "numbers and addresses are not as many";
    default:
        return NULL;
    }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t p)
{
    cudnnStatus_t s = enter();
    descriptor *d;
    const char *why;

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    d = alive(p);
    if (!d || d->is_final)
        return leave(wrong(CUDNN_STATUS_BAD_PARAM, "no descriptor to make final", ""));
    for (int32_t i = 0; i < N_RULES; i++)
        if (RULES[i].of == d->type && RULES[i].needed && !found(d, RULES[i].name))
            return leave(wrong(CUDNN_STATUS_BAD_PARAM, "is not set", RULES[i].text));
    why = descriptor_wrong(d);
    if (why)
        return leave(wrong(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, why, ""));
    d->is_final = true;
    return leave(s);
}

/* ------------------------------------------------------------------------- engines */

static int64_t work_of(const descriptor *plan)
{
    const descriptor *config = child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    return config->engine == 1 ? HUGE_WORK : GOOD_WORK;
}

/* Configurations are made final here; their engine remembers the graph. */
static int64_t propose(const descriptor *heuristics, int64_t most, void *const *configs)
{
    void *graph = pointer(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0);
    int64_t n = sim.o.no_engines ? 0 : most < N_ENGINES ? most : N_ENGINES;

    for (int64_t i = 0; i < n; i++) {
        descriptor *d = alive(configs[i]);
        d->engine = (int32_t)i;
        d->all[0] = (attribute){.name = CUDNN_ATTR_ENGINECFG_ENGINE, .n = 1};
        memcpy(d->all[0].values, &graph, sizeof graph);
        d->all[0].numbers[0] = alive(graph)->number;
        d->n = 1;
        d->is_final = true;
    }
    return n;
}

static cudnnStatus_t get(const descriptor *d, cudnnBackendAttributeName_t name, int64_t most,
                         int64_t *n, void *values)
{
    *n = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && d->type == DESCRIPTOR(ENGINEHEUR)) {
        *n = propose(d, most, values);
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE && d->type == DESCRIPTOR(ENGINECFG)) {
        descriptor *engine = alive(*(void **)values);
        if (!engine || engine->type != DESCRIPTOR(ENGINE))
            return wrong(CUDNN_STATUS_BAD_PARAM, "no engine's descriptor is given", "");
        engine->engine = d->engine;
        engine->is_final = true;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && d->type == DESCRIPTOR(ENGINE)) {
        cudnnBackendNumericalNote_t notes[2] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
        *n = d->engine == 0 ? 2 : 1;
        memcpy(values, notes, (size_t)*n * sizeof *notes);
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
               d->type == DESCRIPTOR(EXECUTION_PLAN)) {
        int64_t bytes = work_of(d);
        memcpy(values, &bytes, sizeof bytes);
    } else {
        char text[80];
        snprintf(text, sizeof text, "attribute %d of descriptor %d", (int)name, (int)d->type);
        return wrong(CUDNN_STATUS_NOT_SUPPORTED, "is not simulated", text);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const p,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *n,
                                       void *values)
{
    cudnnStatus_t s = enter();
    const descriptor *d;

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    (void)type;
    d = alive(p);
    if (!d || !d->is_final)
        return leave(
            wrong(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "no final descriptor is asked", ""));
    return leave(get(d, name, most, n, values));
}

/* ------------------------------------------------------------------------- running */

/* Everything that a plan touches, checked. */
typedef struct running {
    const descriptor *pack;
    sim_array tensors[MAX_TENSORS];
    int32_t n, n_named; /* placed; addresses that were asked for */
    const char *why;
} running;

/* The tensor with its address. */
static sim_array placed(running *r, const descriptor *tensor)
{
    int64_t id = number(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    const attribute *ids = found(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    sim_array a = array_of(tensor, NULL);
    const char *why = "has no address";

    r->n_named++;
    for (int32_t i = 0; i < ids->n; i++)
        if (number(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) == id) {
            a.data = pointer(r->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
            why = NULL;
        }
    if (number(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0)) {
        bool whole;
        if (!why && sim_place_of(a.data, 4, &whole) == SIM_DEVICE)
            why = "is a value and not on the host";
    } else {
        if (!why)
            why = sim_array_wrong(&a, (size_t)number(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0));
        r->tensors[r->n++] = a;
    }
    r->why = r->why ? r->why : why;
    return a;
}

/* Scratch is there and apart from everything else; so is the output, tensors[0]. */
static void check_apart(running *r, void *work, size_t bytes)
{
    bool whole;

    if (bytes && (sim_place_of(work, bytes, &whole) != SIM_DEVICE || !whole))
        r->why = r->why ? r->why : "the workspace reaches beyond the memory that it lies in";
    for (int32_t i = 0; i < r->n && !r->why; i++) {
        const sim_array *a = &r->tensors[i], *out = &r->tensors[0];
        if (sim_overlap(work, bytes, a->data, sim_array_bytes(a)))
            r->why = "the workspace lies over a tensor";
        else if (i && sim_overlap(out->data, sim_array_bytes(out), a->data, sim_array_bytes(a)))
            r->why = "the output lies over an operand";
    }
}

typedef struct scratch {
    void *p;
    size_t bytes;
} scratch;

static const char *spoil(void *arg)
{
    const scratch *s = arg;

    memset(s->p, 0xFF, s->bytes);
    return NULL;
}

static cudnnStatus_t finish(running *r, cudaStream_t s, scratch work, sim_work_fn fn,
                            const void *arg, size_t bytes)
{
    cudaError_t e;

    check_apart(r, work.p, work.bytes);
    if (!r->why && r->n_named != found(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->n)
        r->why = "there is an address for no tensor";
    if (r->why)
        return wrong(CUDNN_STATUS_BAD_PARAM, r->why, "while running:");
    e = sim_load_library();
    if (e == cudaSuccess)
        e = sim_queue(s, spoil, &work, sizeof work);
    if (e == cudaSuccess)
        e = sim_queue(s, fn, arg, bytes);
    sim.f.n_library_calls++;
    return e == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

static cudnnStatus_t run_conv(running *r, const descriptor *graph, cudaStream_t s, scratch work)
{
    const descriptor *op = op_of(graph, 0), *last = op_of(graph, n_ops(graph) - 1);
    const descriptor *conv = child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    sim_conv c = {.n_sums = n_ops(graph) - 1};

    c.y = placed(r, child(last, last == op ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
                                           : CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    c.x = placed(r, child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X));
    c.w = placed(r, child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W));
    for (int32_t i = 0; i < c.n_sums; i++)
        c.sums[i] = placed(r, child(op_of(graph, i + 1), CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
    for (int32_t i = 0; i < 2; i++) {
        c.stride[i] = number(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        c.before[i] = number(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
    }
    return finish(r, s, work, sim_compute_conv, &c, sizeof c);
}

static cudnnStatus_t run_sdpa(running *r, const descriptor *graph, cudaStream_t s, scratch work)
{
    const descriptor *op = op_of(graph, 0);
    sim_sdpa a = {0};
    sim_array scale;

    a.o = placed(r, child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC));
    a.q = placed(r, child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC));
    a.k = placed(r, child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC));
    a.v = placed(r, child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC));
    scale = placed(r, child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC));
    if (!r->why)
        memcpy(&a.scale, scale.data, sizeof a.scale);
    return finish(r, s, work, sim_compute_sdpa, &a, sizeof a);
}

/* The descriptor and all that it was made of are still those. */
static bool is_whole(const descriptor *d)
{
    for (int32_t i = 0; i < d->n; i++) {
        const attribute *a = &d->all[i];
        for (int64_t k = 0; k < a->n && a->numbers[0]; k++) {
            const descriptor *x = alive(pointer(d, a->name, (int32_t)k));
            if (!x || x->number != a->numbers[k] || !is_whole(x))
                return false;
        }
    }
    return true;
}

static bool is_handle(cudnnHandle_t h)
{
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        if (h && handles[i] == h)
            return true;
    return false;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    cudnnStatus_t s = enter();
    const descriptor *p, *graph, *config;
    running r = {0};
    scratch work;

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    p = alive(plan);
    r.pack = alive(pack);
    if (!is_handle(h) || !p || !p->is_final || p->type != DESCRIPTOR(EXECUTION_PLAN) || !r.pack ||
        !r.pack->is_final)
        return leave(
            wrong(CUDNN_STATUS_BAD_PARAM, "no plan, no addresses or no handle to run", ""));
    config = child(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    graph = is_whole(p) ? child(config, CUDNN_ATTR_ENGINECFG_ENGINE) : NULL;
    if (!graph)
        return leave(
            wrong(CUDNN_STATUS_BAD_PARAM, "what a plan was made of is no longer alive", ""));
    work = (scratch){pointer(r.pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0), (size_t)work_of(p)};
    if (op_of(graph, 0)->type == DESCRIPTOR(OPERATION_SDPA_FWD))
        return leave(run_sdpa(&r, graph, h->stream, work));
    return leave(run_conv(&r, graph, h->stream, work));
}

/* ------------------------------------------------------------------------- handles */

cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
    cudnnStatus_t s = enter();

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        if (!handles[i]) {
            *h = handles[i] = calloc(1, sizeof **h);
            sim.f.n_handles++;
            return leave(s);
        }
    return leave(CUDNN_STATUS_NOT_INITIALIZED);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    (void)sim_enter_release();
    if (!is_handle(h))
        return leave(wrong(CUDNN_STATUS_BAD_PARAM, "no handle to destroy", ""));
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        handles[i] = handles[i] == h ? NULL : handles[i];
    free(h);
    sim.f.n_handles--;
    return leave(CUDNN_STATUS_SUCCESS);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream)
{
    cudnnStatus_t s = enter();

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    if (!is_handle(h) || !sim_stream_known(stream))
        return leave(wrong(CUDNN_STATUS_BAD_PARAM, "no handle, or no stream for it", ""));
    h->stream = stream;
    return leave(s);
}

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t s)
{
    return s == CUDNN_STATUS_SUCCESS ? "no error" : sim.fault[0] ? sim.fault : "simulated error";
}
