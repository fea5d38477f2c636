/* backend.h -- what the executor asks of a device: a small table of functions.
 *
 * A backend computes one window of one op at a time on operands that the executor has placed.
 * It decides nothing about memory: it only says how many bytes a packed weight and an op's
 * scratch take, which the planner turns into offsets.
 *
 * Entries. Operands are seen with the output's entries. One that is the same for several of them
 * has an entry_stride of 0, and `data` may lie outside of the value: what may be touched are the
 * window's entries and no others. All sizes of tables (stats) are the output's.
 *
 * Rows. Every operand and the output may hold some rows only: row y of entry n is at
 *     data + n * entry_stride + (y - row0) * row_stride,
 * rows are dense, and entries may have anything between them. A window needs these rows:
 *     conv2d        x, x2: those under its taps (of the source, where there is a resize), and
 *                   under those of the whole tiles that it touches (row_unit)
 *     attention     k, v: all keys, or those of [kv0, kv1); q as the others
 *     group_norm    x, x2: its own with `stats`, else the whole image
 *     latent_in     x: all rows, which are channels of an NCHW value
 *     latent_out    x: all rows; the output's rows are channels
 *     others, and every residual: the window's own rows; vectors and gathered values: all
 *
 * In place. The output may be the very buffer (same layout and type) of: conv2d's and linear's
 * residual, either summand of add, x of layer_norm, q of attention where it is neither k nor v, x
 * of group_norm without x2 (with `stats`, or in one window of all rows). A task reads such an
 * element just before it writes it, and no other task reads it. Any other overlap of the output
 * with an operand is wrong.
 *
 * Bits depend on none of this: not on windows and their order, pieces, blocks, buffers, threads.
 *
 * Devices. Where `device` is not NULL every operand lies in the device's memory, and what is asked
 * for is queued: `run`, `norm_stats` and the device's functions return at once. Two queues are
 * worked through side by side, each in order; events order them among each other. Whatever fails
 * is remembered and told by `finish`. Packing stays on the host. Such a backend has the state of
 * one context: one program at a time uses it. */
#ifndef TSR_KERNELS_BACKEND_H
#define TSR_KERNELS_BACKEND_H

#include "base/pool.h"
#include "kernels/tape.h"

/* A value as a kernel sees it: rows [row0, row0 + n_rows) of every entry are in memory. */
typedef struct tsr_tensor {
    void *data;
    int32_t n, h, w, c;   /* of the whole value */
    int32_t row0, n_rows; /* rows held; 0, h when whole */
    tsr_dtype dtype;
    size_t entry_stride; /* bytes from entry to entry */
    size_t row_stride;   /* bytes from row to row: w * c * size */
} tsr_tensor;

/* Which part of an op's output to compute. A whole op is entries 0..N, rows 0..H, channels 0..Co.
 */
typedef struct tsr_window {
    int32_t n0, n1; /* entries */
    int32_t h0, h1; /* output rows */
    int32_t c0, c1; /* output channels of a conv or linear: c0 a multiple of panel_channels, c1 too,
                       but at Co. Both 0: all of them, and the only choice for other ops */
} tsr_window;

/* One op, placed: everything that a kernel needs. */
typedef struct tsr_call {
    const tsr_op *op;
    tsr_tensor out, in[4]; /* data NULL where there is no operand */
    const void *w[2]; /* packed weight / vector, NULL where there is none. Of a matrix: the panels
                         from the window's c0 on (vectors are always whole) */
    const tsr_weight *wd[2]; /* their descriptions */
    tsr_window window;
    /* group_norm: per-row partial sums of the whole image, filled by norm_stats over every row
     * before the first window is applied, which merges them (so it writes here, too); NULL: the
     * kernel computes them itself, with the same bits. */
    void *stats;
    /* attention over keys and values that come in blocks: tokens [kv0, kv1) are in in[1], in[2]
     * (row0, n_rows say which rows are held); `carry` keeps maximum, sum and accumulator of every
     * query of the window between calls; the first block starts it (kv0 == 0), the last one (kv1 ==
     * T) writes the output. carry NULL: one call over all tokens. kv0 is a multiple of kv_block. */
    void *carry; /* 64-byte aligned, as stats */
    int32_t kv0, kv1;
    void *work; /* 64-byte aligned scratch of work_bytes, or of least_work */
    size_t work_bytes;
    tsr_pool *pool;
} tsr_call;

typedef struct tsr_backend tsr_backend;

typedef enum tsr_queue { TSR_QUEUE_COMPUTE, TSR_QUEUE_COPY } tsr_queue;

typedef struct tsr_device {
    char name[256];
    size_t total_bytes;   /* of the device */
    size_t context_bytes; /* what opening it took: context, libraries */
    /* The arena: one piece of device memory. TSR_E_OOM says how much is free. */
    tsr_status (*reserve)(const tsr_backend *b, size_t bytes, void **base, tsr_err *err);
    void (*release)(const tsr_backend *b, void *base);
    /* What this process holds on the device now, and what is free. */
    tsr_status (*measure)(const tsr_backend *b, size_t *held, size_t *free_bytes, tsr_err *err);
    /* Host memory that copies need no detour for (pinned). */
    tsr_status (*pin)(const tsr_backend *b, size_t bytes, void **p, tsr_err *err);
    void (*unpin)(const tsr_backend *b, void *p);
    /* What the call needs from a library is built and kept, once for every shape; a call that was
     * not prepared is computed without. With `run` it is computed once, too, on whatever its
     * operands hold: then the library has loaded all that it ever will, and `measure` tells it. */
    tsr_status (*prepare)(const tsr_backend *b, const tsr_call *call, bool run, tsr_err *err);
    /* Events 0 .. n-1 are there. One that was never recorded holds nobody up. */
    tsr_status (*events)(const tsr_backend *b, int32_t n, tsr_err *err);
    void (*record)(const tsr_backend *b, tsr_queue q, int32_t event); /* when q comes here */
    void (*await)(const tsr_backend *b, tsr_queue q, int32_t event);  /* q goes on after it */
    void (*wait)(const tsr_backend *b, int32_t event);                /* the caller does */
    /* Pinned memory for the next upload from it, of *bytes bytes: waits until what it held before
     * is copied. NULL after a failure. One thread at a time. */
    void *(*slot)(const tsr_backend *b, size_t *bytes);
    void (*upload)(const tsr_backend *b, tsr_queue q, void *dst, const void *src, size_t bytes);
    void (*download)(const tsr_backend *b, tsr_queue q, void *dst, const void *src, size_t bytes);
    void (*fill)(const tsr_backend *b, void *dst, int byte, size_t bytes); /* compute queue */
    /* Both queues are empty; the first failure since the last time. */
    tsr_status (*finish)(const tsr_backend *b, tsr_err *err);
} tsr_device;

struct tsr_backend {
    const char *name; /* "cpu" */
    const char *tier; /* "avx2" */
    /* Bytes of `w` packed for this backend (64-byte multiple). */
    size_t (*packed_bytes)(const tsr_backend *b, const tsr_op *op, const tsr_weight *w);
    /* Output channels a panel of `w` has; packing goes panel by panel. 1 for vectors. */
    int32_t (*panel_rows)(const tsr_backend *b, const tsr_op *op, const tsr_weight *w);
    /* Packs rows [row0, row0+n_rows) (row0 a multiple of panel_rows; n_rows too, but at the end) of
     * `w`, given as float32 in file order, into the piece at dst, whose first channel is c0 (a
     * multiple of panel_channels); 0 when dst is the whole packed weight. A piece has no other
     * rows than its channels' (geglu: c0 .. c1 and Co + c0 .. Co + c1), packed in any order. */
    void (*pack)(const tsr_backend *b, const tsr_op *op, const tsr_weight *w, const float *rows,
                 int32_t row0, int32_t n_rows, int32_t c0, void *dst);
    /* The same from halves as the file has them, which saves widening them. False, and nothing is
     * written, where the backend packs such rows from floats only. May be NULL. */
    bool (*pack_halves)(const tsr_backend *b, const tsr_op *op, const tsr_weight *w,
                        const uint16_t *rows, int32_t row0, int32_t n_rows, int32_t c0, void *dst);
    /* Where output channel c (a multiple of panel_channels, or Co) begins in the packed matrix: the
     * piece of channels [c0, c1) has the bytes from packed_offset(c0) to packed_offset(c1) and can
     * be packed and streamed on its own. For geglu a channel stands for its two rows. Of a vector:
     * its elements' places; panel_channels is 1. */
    size_t (*packed_offset)(const tsr_backend *b, const tsr_op *op, const tsr_weight *w, int32_t c);
    int32_t (*panel_channels)(const tsr_backend *b, const tsr_op *op, const tsr_weight *w);
    /* group_norm: bytes of `stats`, and filling it for the window's rows. */
    size_t (*stats_bytes)(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
    void (*norm_stats)(const tsr_backend *b, const tsr_call *call);
    /* attention: tokens a key/value block has, and bytes of `carry` for a window of queries; that
     * of several entries is at most so many times that of one. */
    int32_t (*kv_block)(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
    size_t (*carry_bytes)(const tsr_backend *b, const tsr_tape *t, const tsr_op *op,
                          const tsr_window *window);
    /* Scratch for one window of the op, all threads together; never more for a part of a window.
     * norm_stats takes that of its window. */
    size_t (*work_bytes)(const tsr_backend *b, const tsr_tape *t, const tsr_op *op,
                         const tsr_window *window, int32_t n_threads);
    /* Computes the window. Cannot fail. */
    void (*run)(const tsr_backend *b, const tsr_call *call);
    /* True when every element of the value is finite. Waits for a device's compute queue. */
    bool (*all_finite)(const tsr_backend *b, const tsr_tensor *x, tsr_pool *pool);
    /* How it computes the op where that is not the plain sum: "winograd". NULL: it is. The function
     * may be NULL, too. */
    const char *(*method)(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
    /* conv2d: the output's rows are made in tiles of this many, the first at row 0. A window may
     * begin and end anywhere, but a tile is made whole, and made again by every window that it
     * reaches into. 1: no tiles. The function may be NULL, too. */
    int32_t (*row_unit)(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
    /* What it can do with instead of work_bytes, somewhat slower, with the same bits: tsr_call's
     * work_bytes says which of the two there is. The function may be NULL: no less. */
    size_t (*least_work)(const tsr_backend *b, const tsr_tape *t, const tsr_op *op,
                         const tsr_window *window, int32_t n_threads);
    /* Whether the output may be the buffer of an operand where "In place" above lets it. The
     * function may be NULL: it may. */
    bool (*in_place)(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
    /* One thread's multiply-adds that never leave the registers, `rounds` times a few dozen: the
     * roof of every kernel. Returns their FLOPs. May be NULL. */
    double (*fma)(const tsr_backend *b, int32_t rounds);
    const tsr_device *device; /* NULL: operands are in host memory */
    const void *impl;         /* the backend's own */
};

/* The CPU backend for a tier (not AUTO); NULL when this build or this machine lacks it. The object
 * is constant and shared by all contexts. (kernels/cpu/cpu_backend.c) */
const tsr_backend *tsr_cpu_backend(tsr_cpu_tier tier);
tsr_cpu_tier tsr_cpu_best_tier(void);
const char *tsr_cpu_tier_name(tsr_cpu_tier tier);

#endif
