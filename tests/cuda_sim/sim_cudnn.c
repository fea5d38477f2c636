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
#include "tests/cuda_sim/sim_cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ENGINES = 3, GOOD_WORK = 1000 /* bytes; not a round number */ };
#define HUGE_WORK ((int64_t)1 << 30)

struct cudnnContext {
    cudaStream_t stream;
};

static descriptor *living;
static uint64_t made_so_far;
static struct cudnnContext *handles[8];

static cudnnStatus_t wrong(cudnnStatus_t s, const char *what, const char *which)
{
    (void)sim_mistake(cudaErrorInvalidValue, "cuDNN: %s%s%s", which, *which ? " " : "", what);
    return s;
}

descriptor *sim_dnn_alive(const void *p)
{
    for (descriptor *d = living; d; d = d->next)
        if (d == p)
            return d;
    return NULL;
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
    for (int32_t i = 0; sim_dnn_rule(i); i++)
        known = known || sim_dnn_rule(i)->of == type;
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
    if (n < 1 || n > r->most || (size_t)n * sim_dnn_size_of(type) > MAX_BYTES)
        return wrong(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "has another number of values", r->text);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++) {
        const descriptor *d = sim_dnn_alive(((void *const *)values)[i]);
        if (!d || !d->is_final)
            return wrong(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                         "is given a descriptor that is not final, or not alive", r->text);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(descriptor *d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    const rule *r = sim_dnn_rule_of(d->type, name);
    char text[80];
    cudnnStatus_t s;

    snprintf(text, sizeof text, "attribute %d of descriptor %d", (int)name, (int)d->type);
    if (!r)
        return wrong(CUDNN_STATUS_NOT_SUPPORTED, "is not simulated", text);
    if (d->is_final || d->n == MAX_ATTRIBUTES || sim_dnn_found(d, name))
        return wrong(CUDNN_STATUS_BAD_PARAM, "is set twice, or after the end", r->text);
    s = check_values(r, type, n, values);
    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    d->all[d->n] = (attribute){.name = name, .n = n};
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < n; i++)
        d->all[d->n].numbers[i] = sim_dnn_alive(((void *const *)values)[i])->number;
    memcpy(d->all[d->n++].values, values, (size_t)n * sim_dnn_size_of(type));
    return s;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t p, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *values)
{
    cudnnStatus_t s = enter();

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    if (!sim_dnn_alive(p))
        return leave(wrong(CUDNN_STATUS_BAD_PARAM, "an attribute of no descriptor is set", ""));
    return leave(set(p, name, type, n, values));
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t p)
{
    cudnnStatus_t s = enter();
    descriptor *d;
    const char *why;

    if (s != CUDNN_STATUS_SUCCESS)
        return s;
    d = sim_dnn_alive(p);
    if (!d || d->is_final)
        return leave(wrong(CUDNN_STATUS_BAD_PARAM, "no descriptor to make final", ""));
    for (int32_t i = 0; sim_dnn_rule(i); i++) {
        const rule *r = sim_dnn_rule(i);
        if (r->of == d->type && r->needed && !sim_dnn_found(d, r->name))
            return leave(wrong(CUDNN_STATUS_BAD_PARAM, "is not set", r->text));
    }
    why = sim_dnn_wrong(d);
    if (why)
        return leave(wrong(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, why, ""));
    d->is_final = true;
    return leave(s);
}

/* ------------------------------------------------------------------------- engines */

static int64_t work_of(const descriptor *plan)
{
    const descriptor *config = sim_dnn_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    return config->engine == 1 ? HUGE_WORK : GOOD_WORK;
}

/* Configurations are made final here; their engine remembers the graph. */
static int64_t propose(const descriptor *heuristics, int64_t most, void *const *configs)
{
    void *graph = sim_dnn_pointer(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0);
    int64_t n = sim.o.no_engines ? 0 : most < N_ENGINES ? most : N_ENGINES;

    for (int64_t i = 0; i < n; i++) {
        descriptor *d = sim_dnn_alive(configs[i]);
        d->engine = (int32_t)i;
        d->all[0] = (attribute){.name = CUDNN_ATTR_ENGINECFG_ENGINE, .n = 1};
        memcpy(d->all[0].values, &graph, sizeof graph);
        d->all[0].numbers[0] = sim_dnn_alive(graph)->number;
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
        descriptor *engine = sim_dnn_alive(*(void **)values);
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
    d = sim_dnn_alive(p);
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
    int64_t id = sim_dnn_number(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    const attribute *ids = sim_dnn_found(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    sim_array a = sim_dnn_array(tensor, NULL);
    const char *why = "has no address";

    r->n_named++;
    for (int32_t i = 0; i < ids->n; i++)
        if (sim_dnn_number(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) == id) {
            a.data = sim_dnn_pointer(r->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
            why = NULL;
        }
    if (sim_dnn_number(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0)) {
        bool whole;
        if (!why && sim_place_of(a.data, 4, &whole) == SIM_DEVICE)
            why = "is a value and not on the host";
    } else {
        if (!why)
            why = sim_array_wrong(
                &a, (size_t)sim_dnn_number(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0));
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
    if (!r->why && r->n_named != sim_dnn_found(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->n)
        r->why = "there is an address for no tensor";
    if (r->why)
        return wrong(CUDNN_STATUS_BAD_PARAM, r->why, "while running:");
    if (sim_load_library() != cudaSuccess)
        return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    e = sim_queue(s, spoil, &work, sizeof work);
    if (e == cudaSuccess)
        e = sim_queue(s, fn, arg, bytes);
    sim.f.n_library_calls++;
    return e == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

static cudnnStatus_t run_conv(running *r, const descriptor *graph, cudaStream_t s, scratch work)
{
    const descriptor *op = sim_dnn_op(graph, 0),
                     *last = sim_dnn_op(graph, sim_dnn_n_ops(graph) - 1);
    const descriptor *conv = sim_dnn_child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    sim_conv c = {.n_sums = sim_dnn_n_ops(graph) - 1};

    c.y = placed(r, sim_dnn_child(last, last == op ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
                                                   : CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    c.x = placed(r, sim_dnn_child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X));
    c.w = placed(r, sim_dnn_child(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W));
    for (int32_t i = 0; i < c.n_sums; i++)
        c.sums[i] = placed(
            r, sim_dnn_child(sim_dnn_op(graph, i + 1), CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
    for (int32_t i = 0; i < 2; i++) {
        c.stride[i] = sim_dnn_number(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        c.before[i] = sim_dnn_number(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
    }
    return finish(r, s, work, sim_compute_conv, &c, sizeof c);
}

static cudnnStatus_t run_sdpa(running *r, const descriptor *graph, cudaStream_t s, scratch work)
{
    const descriptor *op = sim_dnn_op(graph, 0);
    sim_sdpa a = {0};
    sim_array scale;

    a.o = placed(r, sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC));
    a.q = placed(r, sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC));
    a.k = placed(r, sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC));
    a.v = placed(r, sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC));
    scale = placed(r, sim_dnn_child(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC));
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
            const descriptor *x = sim_dnn_alive(sim_dnn_pointer(d, a->name, (int32_t)k));
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
    p = sim_dnn_alive(plan);
    r.pack = sim_dnn_alive(pack);
    if (!is_handle(h) || !p || !p->is_final || p->type != DESCRIPTOR(EXECUTION_PLAN) || !r.pack ||
        !r.pack->is_final)
        return leave(
            wrong(CUDNN_STATUS_BAD_PARAM, "no plan, no addresses or no handle to run", ""));
    config = sim_dnn_child(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    graph = is_whole(p) ? sim_dnn_child(config, CUDNN_ATTR_ENGINECFG_ENGINE) : NULL;
    if (!graph)
        return leave(
            wrong(CUDNN_STATUS_BAD_PARAM, "what a plan was made of is no longer alive", ""));
    work = (scratch){sim_dnn_pointer(r.pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0),
                     (size_t)work_of(p)};
    if (sim_dnn_op(graph, 0)->type == DESCRIPTOR(OPERATION_SDPA_FWD))
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
