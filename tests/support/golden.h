/* golden.h -- reference results, and running a recorded network against them.
 *
 * A root is a folder with golden/ and models/ in it: tests/data (small copies, always there) and
 * the whole reference data where this machine has it. Golden tensors are read as float32 whatever
 * the file's dtype.
 *
 *     golden g;                                        golden_net net;
 *     if (!golden_open(&g, root, "unet-sd2-tiny")) ..  golden_net_init(&net, TSR_F32);
 *     want = golden_need(&g, "%s.out", case_name);     ... record on net.tape ...
 *                                                      if (golden_net_plan(&net, TIER, 1, 0))
 *                                                          golden_net_put / run / golden_net_get
 *     golden_close(&g);                                golden_net_free(&net);
 *
 * Functions that return false or NULL have already failed the running test with a sentence, unless
 * their comment says otherwise. */
#ifndef TSR_TESTS_GOLDEN_H
#define TSR_TESTS_GOLDEN_H

#include "kernels/program.h"
#include "model/component.h"
#include "tests/support/test.h"

enum { GOLDEN_ROOTS = 2 };
/* 0: tests/data; 1: the reference data, or NULL when it is not here (fails nothing). */
const char *golden_root(int32_t i);

typedef struct golden_tensor {
    float *data;
    size_t n; /* elements */
    int32_t n_dims;
    int32_t dims[TSR_ST_MAX_DIMS];
} golden_tensor;

typedef struct golden {
    tsr_st st;
    golden_tensor *loaded; /* [st.n_tensors], data NULL until asked for */
} golden;

/* True when <root>/<path> is a file; fails nothing. */
bool golden_has(const char *root, const char *path);
/* Opens <root>/golden/<name>.safetensors, or any safetensors file. */
bool golden_open(golden *g, const char *root, const char *name);
bool golden_open_file(golden *g, const char *path);
void golden_close(golden *g);
/* A tensor by its formatted name; golden_find gives NULL without failing the test. */
const golden_tensor *golden_need(golden *g, const char *fmt, ...) TEST_PRINTF(2, 3);
const golden_tensor *golden_find(golden *g, const char *fmt, ...) TEST_PRINTF(2, 3);
/* Walks the cases: the names of tensors that end in `suffix` (".out"), without it. *pos starts at
 * 0. False after the last one. */
bool golden_next_case(const golden *g, const char *suffix, int32_t *pos, char *name,
                      size_t name_bytes);

/* Opens the component <root>/models/<model>/<part>; `stem` as in tsr_component_open. */
bool golden_component(tsr_component *c, const char *root, const char *model, const char *part,
                      const char *stem, tsr_err *err);
/* Fails the test for every tensor that no recording asked for. */
void golden_check_all_used(const tsr_component *c);

/* A safetensors file with the same tensors as `src`, its values rounded to `round` and stored as
 * `store` (both F32, F16 or BF16). */
bool golden_convert(const char *src, const char *dst, tsr_dtype round, tsr_dtype store);

typedef struct golden_net {
    tsr_err err;
    tsr_tape tape;
    tsr_program program;
    tsr_arena arena;
    tsr_pool *pool;
} golden_net;

void golden_net_init(golden_net *n, tsr_dtype dtype);
/* Plans, reserves and loads what is on the tape. `window_rows` > 0 forces windows of that many
 * output rows on every op. */
bool golden_net_plan(golden_net *n, tsr_cpu_tier tier, int32_t n_threads, int32_t window_rows);
/* Fills an input of dtype F32, F16 or I32 from `count` floats, which must be its size. */
bool golden_net_put(golden_net *n, tsr_val v, const float *x, size_t count);
/* Reads a value as float32; a heap array of *count floats (the caller frees it with free). */
float *golden_net_get(golden_net *n, tsr_val v, size_t *count);
/* The same of an NHWC value in NCHW order. */
float *golden_net_get_nchw(golden_net *n, tsr_val v, size_t *count);
bool golden_net_run(golden_net *n, bool prologue, int32_t step); /* one section */
void golden_net_free(golden_net *n);

/* CHECK(st == TSR_OK) with the sentence; returns whether it held. */
bool golden_ok(tsr_status st, const tsr_err *err);

/* Compares, prints "what precision tier error tolerance" and fails above `tolerance`. */
void golden_compare(const char *what, const char *precision, const char *tier, const float *got,
                    size_t n_got, const golden_tensor *want, double tolerance);

#endif
