/* toy_net.h -- a small network with every op kind, a prologue and a loop, and its weights.
 *
 * The weights are a function of (tensor, element): nothing is stored. The source counts reads, can
 * fail one, and can put one chosen number anywhere. Inputs are a function of the element, too. */
#ifndef TSR_TESTS_TOY_NET_H
#define TSR_TESTS_TOY_NET_H

#include "kernels/program.h"

enum { TOY_STEPS = 3, TOY_WEIGHTS = 64 };

typedef struct toy_source {
    tsr_source source; /* first */
    tsr_dtype dtype[TOY_WEIGHTS];
    size_t elements[TOY_WEIGHTS];
    float scale[TOY_WEIGHTS];
    int32_t n_tensors;
    /* what was read */
    int32_t n_reads;
    size_t bytes, largest_read;
    bool in_order;
    int32_t last_tensor;
    size_t last_end;
    /* faults */
    int32_t fail_read;  /* the nth read fails (1 = first); 0: none */
    int32_t bad_tensor; /* this one ... */
    size_t bad_element; /* ... has here ... */
    float bad_value;    /* ... this, when bad_value is not 0 */
} toy_source;

typedef struct toy_net {
    tsr_err err;
    tsr_tape tape;
    toy_source source;
    tsr_val context, times, rows;     /* inputs of the prologue */
    tsr_val latents, picture, tokens; /* inputs of every step */
    tsr_val noise, image;             /* outputs */
    tsr_val dead;                     /* a value of the loop that is soon not needed */
} toy_net;

void toy_source_init(toy_source *s);
/* A weight of the tape with its tensor; 0 (and an error in t->err) when it is refused. */
tsr_wt toy_weight(toy_source *s, tsr_tape *t, tsr_weight_kind kind, int32_t n_dims,
                  const int32_t *dims, tsr_dtype file_dtype);
/* Records the network with activations of `dtype`, weights stored as `file_dtype`. With keep_all
 * every value is an output, so that no place is ever used twice, and an input that is a
 * list of tokens otherwise has an image's shape: neither may change a bit. */
tsr_status toy_net_record(toy_net *n, tsr_dtype dtype, tsr_dtype file_dtype, bool keep_all);
void toy_net_fill_prologue(const toy_net *n, const tsr_program *p);
void toy_net_fill_step(const toy_net *n, const tsr_program *p, int32_t step);
void toy_net_free(toy_net *n);

#endif
