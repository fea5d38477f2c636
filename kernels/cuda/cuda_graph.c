/* cuda_graph.c -- graphs of cuDNN: descriptors, the choice of an engine, running.
 *
 * A graph is a few operations over tensors that are named by numbers; at its end cuDNN's heuristics
 * propose engines for it, best first. The first is taken that can be built, needs no more scratch
 * than the key says, repeats its bits and does not sum up in less than float32. A graph that cuDNN
 * does not support is not an error: the plan is then the own kernel's.
 *
 * Source: the cuDNN backend API reference, "CUDNN_BACKEND_*_DESCRIPTOR". */
#include <stdio.h>

#include "base/num.h"
#include "kernels/cuda/cuda_library.h"

enum { MAX_ENGINES = 8 };

static bool ok(tsr_cuda_graph *g, cudnnStatus_t status)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = status;
    return g->status == CUDNN_STATUS_SUCCESS;
}

cudnnBackendDescriptor_t tsr_cuda_graph_make(tsr_cuda_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (g->plan->n_made == TSR_CUDA_MADE)
        ok(g, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    if (g->status != CUDNN_STATUS_SUCCESS || !ok(g, cudnnBackendCreateDescriptor(type, &d)))
        return NULL;
    g->plan->made[g->plan->n_made++] = d;
    return d;
}

void tsr_cuda_graph_set(tsr_cuda_graph *g, cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        int64_t n, const void *values)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        ok(g, cudnnBackendSetAttribute(d, name, type, n, values));
}

void tsr_cuda_graph_end(tsr_cuda_graph *g, cudnnBackendDescriptor_t d)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        ok(g, cudnnBackendFinalize(d));
}

void tsr_cuda_graph_op(tsr_cuda_graph *g, cudnnBackendDescriptor_t d)
{
    tsr_cuda_graph_end(g, d);
    g->ops[g->n_ops++] = d;
}

cudnnBackendDescriptor_t tsr_cuda_graph_tensor(tsr_cuda_graph *g, const tsr_cuda_tensor *t)
{
    cudnnBackendDescriptor_t d = tsr_cuda_graph_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t alignment = t->is_by_value || t->is_virtual ? 4 : TSR_CUDA_ALIGN;

    tsr_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t->id);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dims);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->strides);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (t->is_virtual)
        tsr_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                           &t->is_virtual);
    if (t->is_by_value)
        tsr_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                           &t->is_by_value);
    tsr_cuda_graph_end(g, d);
    return d;
}

/* ------------------------------------------------------------------------ engines */

/* The engine's bits repeat, its operands are not rounded, and its sums are float32's. */
static bool is_exact(tsr_cuda_graph *g, cudnnBackendDescriptor_t config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0;
    bool exact = true;

    if (!ok(g, cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine)))
        return false;
    ok(g, cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine));
    if (g->status == CUDNN_STATUS_SUCCESS)
        ok(g, cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                       &n, notes));
    for (int64_t i = 0; i < n && g->status == CUDNN_STATUS_SUCCESS; i++)
        exact = exact && notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
                notes[i] != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS &&
                notes[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
                notes[i] != CUDNN_NUMERICAL_NOTE_WINOGRAD;
    ok(g, cudnnBackendDestroyDescriptor(engine));
    return exact && g->status == CUDNN_STATUS_SUCCESS;
}

/* Failures that only mean "not this one". */
static bool is_unsupported(cudnnStatus_t s)
{
    return (s >= CUDNN_STATUS_NOT_SUPPORTED && s < CUDNN_STATUS_INTERNAL_ERROR) ||
           s == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
}

/* An execution plan of this engine is the plan's last descriptor, or is not there. */
static bool try_engine(tsr_cuda_graph *g, const tsr_cuda *c, cudnnBackendDescriptor_t config)
{
    tsr_cuda_plan *p = g->plan;
    cudnnBackendDescriptor_t d;
    int64_t bytes = 0, n = 0;

    if (!is_exact(g, config))
        return false;
    d = tsr_cuda_graph_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       1, &config);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                       &c->dnn_device);
    tsr_cuda_graph_end(g, d);
    if (g->status == CUDNN_STATUS_SUCCESS)
        ok(g, cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &n, &bytes));
    if (g->status == CUDNN_STATUS_SUCCESS && bytes <= p->key.work_bytes) {
        p->work_bytes = (size_t)bytes;
        return true;
    }
    if (is_unsupported(g->status))
        g->status = CUDNN_STATUS_SUCCESS;
    if (d)
        ok(g, cudnnBackendDestroyDescriptor(p->made[--p->n_made]));
    return false;
}

/* The heuristics' proposals among the plan's descriptors: `configs` of them, as asked for. */
static int64_t propose(tsr_cuda_graph *g, const tsr_cuda *c, cudnnBackendDescriptor_t *configs)
{
    cudnnBackendDescriptor_t graph, heuristics;
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;

    graph = tsr_cuda_graph_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    tsr_cuda_graph_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       g->n_ops, g->ops);
    tsr_cuda_graph_end(g, graph);
    heuristics = tsr_cuda_graph_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    tsr_cuda_graph_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    tsr_cuda_graph_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    tsr_cuda_graph_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->dnn_device);
    tsr_cuda_graph_end(g, heuristics);
    for (int32_t i = 0; i < MAX_ENGINES; i++)
        configs[i] = tsr_cuda_graph_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->status == CUDNN_STATUS_SUCCESS)
        ok(g, cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_ENGINES, &n, configs));
    return g->status == CUDNN_STATUS_SUCCESS ? n : 0;
}

tsr_status tsr_cuda_graph_plan(tsr_cuda_graph *g, tsr_cuda *c, tsr_err *err)
{
    cudnnBackendDescriptor_t configs[MAX_ENGINES];
    bool found = false;
    int64_t n;

    n = propose(g, c, configs);
    for (int64_t i = 0; i < n && !found && g->status == CUDNN_STATUS_SUCCESS; i++)
        found = try_engine(g, c, configs[i]);
    if (found)
        return TSR_OK;
    tsr_cuda_graph_free(g->plan);
    g->plan->is_own = true;
    if (g->status == CUDNN_STATUS_SUCCESS || is_unsupported(g->status))
        return TSR_OK;
    TSR_FAIL(err, TSR_E_DEVICE, "cuDNN failed while planning for the device (%s)",
             cudnnGetErrorString(g->status));
}

void tsr_cuda_graph_free(tsr_cuda_plan *p)
{
    while (p->n_made > 0)
        (void)cudnnBackendDestroyDescriptor(p->made[--p->n_made]);
}

/* ------------------------------------------------------------------------ running */

void tsr_cuda_graph_run(tsr_cuda *c, const tsr_cuda_plan *p, const int64_t *ids,
                        void *const *addresses, int64_t n, const tsr_call *call)
{
    cudnnBackendDescriptor_t pack = NULL;
    tsr_cuda_plan none = {0};
    tsr_cuda_graph g = {.plan = &none};
    void *work = p->work_bytes ? call->work : NULL;

    pack = tsr_cuda_graph_make(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    tsr_cuda_graph_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    tsr_cuda_graph_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
                       addresses);
    tsr_cuda_graph_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &work);
    tsr_cuda_graph_end(&g, pack);
    if (g.status == CUDNN_STATUS_SUCCESS)
        ok(&g, cudnnBackendExecute(c->dnn, p->made[p->n_made - 1], pack));
    tsr_cuda_graph_free(&none);
    if (g.status != CUDNN_STATUS_SUCCESS)
        tsr_cuda_ok(c,
                    g.status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
                        ? cudaErrorMemoryAllocation
                        : cudaErrorLaunchFailure,
                    call->op->name);
}
