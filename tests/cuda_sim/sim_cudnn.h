/* sim_cudnn.h -- descriptors of the simulated cuDNN: what sim_cudnn.c and its rules share. */
#ifndef TSR_TESTS_SIM_CUDNN_H
#define TSR_TESTS_SIM_CUDNN_H

#include <cudnn_graph.h>

#include "tests/cuda_sim/sim_library.h"

enum { MAX_ATTRIBUTES = 16, MAX_BYTES = 64, MAX_OPS = 4, MAX_TENSORS = 8 };
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

/* sim_cudnn.c: NULL when it is not, or no longer, a descriptor. */
descriptor *sim_dnn_alive(const void *p);

/* sim_cudnn_rules.c */
const rule *sim_dnn_rule_of(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name);
const rule *sim_dnn_rule(int32_t i); /* NULL behind the last */
size_t sim_dnn_size_of(cudnnBackendAttributeType_t type);
/* Attributes of a descriptor; 0 or NULL where they are not set. */
const attribute *sim_dnn_found(const descriptor *d, cudnnBackendAttributeName_t name);
int64_t sim_dnn_number(const descriptor *d, cudnnBackendAttributeName_t name, int32_t i);
void *sim_dnn_pointer(const descriptor *d, cudnnBackendAttributeName_t name, int32_t i);
descriptor *sim_dnn_child(const descriptor *d, cudnnBackendAttributeName_t name);
sim_array sim_dnn_array(const descriptor *tensor, void *data);
descriptor *sim_dnn_op(const descriptor *graph, int32_t i);
int32_t sim_dnn_n_ops(const descriptor *graph);
/* What is wrong with a descriptor that has all that it needs; NULL: nothing. */
const char *sim_dnn_wrong(const descriptor *d);

#endif
