/* cuda_internal.h -- the state of one opened device. Private to kernels/cuda.
 *
 * The first CUDA error is kept with what was being done; everything after it is still called, and
 * fails at once. tsr_cuda_finish tells it. Queues, events and slots are used by two threads: the
 * one that runs the program, and the one that moves weights; each CUDA call is safe for that, and
 * the slots belong to one of them at a time (backend.h). */
#ifndef TSR_KERNELS_CUDA_INTERNAL_H
#define TSR_KERNELS_CUDA_INTERNAL_H

#include <stdatomic.h>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/plugin.h"

enum { TSR_CUDA_SLOTS = 3, TSR_CUDA_BUCKETS = 256 };
enum { TSR_CUDA_ALIGN = 16 }; /* addresses that libraries get are multiples of this */

/* The libraries' own, see cuda_library.h. */
struct cudnnContext;
struct cublasLtContext;
struct tsr_cuda_plan;

typedef struct tsr_cuda {
    tsr_backend backend; /* first */
    tsr_device device;
    tsr_plugin_host host;
    char tier[16]; /* "sm_90" */
    int32_t index, capability;
    cudaStream_t queue[2]; /* by tsr_queue */
    cudaEvent_t *events;
    int32_t n_events;
    unsigned char *ring; /* pinned: TSR_CUDA_SLOTS slots */
    size_t slot_bytes;
    cudaEvent_t slot_free[TSR_CUDA_SLOTS];
    int32_t slot;                 /* the one handed out last */
    uint32_t *flag, *flag_up;     /* of all_finite: on the device, and pinned */
    struct cudnnContext *dnn;     /* NULL: too old, or not yet there */
    struct cublasLtContext *blas; /* likewise */
    void *dnn_device;             /* descriptor: which device plans are for */
    struct tsr_cuda_plan *plans[TSR_CUDA_BUCKETS];
    atomic_int error; /* the first cudaError_t */
    _Atomic(const char *) doing;
} tsr_cuda;

static inline tsr_cuda *tsr_cuda_of(const tsr_backend *b)
{
    return (tsr_cuda *)b->impl;
}

/* Keeps the first error. True when e is none. */
bool tsr_cuda_ok(tsr_cuda *c, cudaError_t e, const char *doing);
/* The sentence for an error; its status (TSR_E_DEVICE, or TSR_E_OOM). */
tsr_status tsr_cuda_say(tsr_err *err, cudaError_t e, const char *doing);

/* cuda_memory.c: fills the table of device functions. Makes queues, slots and flags; what was made
 * is given back by tsr_cuda_memory_free, also after a failure. */
tsr_status tsr_cuda_memory_make(tsr_cuda *c, tsr_err *err);
void tsr_cuda_memory_free(tsr_cuda *c);

/* cuda_pack.c */
size_t tsr_cuda_packed_bytes(const tsr_backend *b, const tsr_op *op, const tsr_weight *w);
int32_t tsr_cuda_panel_rows(const tsr_backend *b, const tsr_op *op, const tsr_weight *w);
int32_t tsr_cuda_panel_channels(const tsr_backend *b, const tsr_op *op, const tsr_weight *w);
size_t tsr_cuda_packed_offset(const tsr_backend *b, const tsr_op *op, const tsr_weight *w,
                              int32_t c);
void tsr_cuda_pack(const tsr_backend *b, const tsr_op *op, const tsr_weight *w, const float *rows,
                   int32_t row0, int32_t n_rows, int32_t c0, void *dst);

/* The bias in a type that it is packed in; NULL where the call has none. */
const void *tsr_cuda_bias(const tsr_call *call, tsr_dtype dtype);

/* cuda_plans.c: what libraries compute. Scratch that one may take for a window of the op, 0 where
 * none is asked. */
size_t tsr_cuda_library_work(const tsr_cuda *c, const tsr_tape *t, const tsr_op *op,
                             const tsr_window *w);
const char *tsr_cuda_method(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
/* Keys that a block of attention has: all of them where a library computes it, so that it is never
 * computed in two ways. */
int32_t tsr_cuda_kv_block(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
bool tsr_cuda_in_place(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
tsr_status tsr_cuda_prepare(const tsr_backend *b, const tsr_call *call, bool run, tsr_err *err);
bool tsr_cuda_library_run(tsr_cuda *c, const tsr_call *call); /* false: nothing is prepared */
tsr_status tsr_cuda_libraries_make(tsr_cuda *c, tsr_err *err);
void tsr_cuda_libraries_free(tsr_cuda *c);

/* cuda_backend.c: fills the table of the backend. */
void tsr_cuda_backend_fill(tsr_cuda *c);

#endif
