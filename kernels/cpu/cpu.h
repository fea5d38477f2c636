/* cpu.h -- the CPU backend's table of kernels, one a tier.
 *
 * A table is filled portable first and overwritten upwards (portable, avx2, avx512,
 * avx512fp16): a tier only replaces what it does better, together with the packing and scratch
 * facts that belong to it. A table is a value: tests build two and compare them op by op.
 *
 * Exactness laws for every kernel here: the order of every reduction depends on the op's shape and
 * the tier alone, never on window, thread count or batch; work is split over rows, columns, heads
 * and output channels, never over a reduction; edge tiles add in the same order as full ones.
 *
 * Kernels reach elements through tensor_at (vec_elems.h), tsr_portable_pixel or tsr_cpu_load/store
 * only: these know that a buffer may begin at a later row. */
#ifndef TSR_KERNELS_CPU_CPU_H
#define TSR_KERNELS_CPU_CPU_H

#include "kernels/backend.h"

typedef struct tsr_cpu_table tsr_cpu_table;

/* Computes call->window of one op. */
typedef void (*tsr_cpu_run_fn)(const tsr_cpu_table *t, const tsr_call *call);
/* Scratch of one window for all threads. */
typedef size_t (*tsr_cpu_work_fn)(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                  const tsr_window *window, int32_t n_threads);

struct tsr_cpu_table {
    const char *name;
    tsr_cpu_tier tier;
    tsr_cpu_run_fn run[TSR_OP_KINDS];
    tsr_cpu_work_fn work[TSR_OP_KINDS];       /* NULL: no scratch */
    tsr_cpu_work_fn least_work[TSR_OP_KINDS]; /* NULL: as much as work says */
    /* packing of matrix weights, conv and linear alike (see tsr_backend) */
    size_t (*packed_bytes)(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w);
    int32_t (*panel_rows)(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w);
    int32_t (*panel_channels)(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w);
    size_t (*packed_offset)(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w,
                            int32_t c);
    /* Any row range: rows are scattered one by one; the padding of the last panel is zeroed with
     * its last row. For geglu row r belongs to half r / Co. */
    void (*pack)(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w, const float *rows,
                 int32_t row0, int32_t n_rows, int32_t c0, void *dst);
    /* NULL: never takes them */
    bool (*pack_halves)(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w,
                        const uint16_t *rows, int32_t row0, int32_t n_rows, int32_t c0, void *dst);
    tsr_cpu_run_fn norm_stats; /* group_norm's statistics of the window's rows: norm_stats.h */
    int32_t (*kv_block)(void);
    /* Bytes of attention's carry for a window of the queries q. */
    size_t (*carry)(const tsr_op *op, const tsr_value *q, const tsr_window *window);
    bool (*all_finite)(const tsr_tensor *x, tsr_pool *pool);
    /* NULL: the plain sum, always (see tsr_backend) */
    const char *(*method)(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op);
    /* NULL: 1, always */
    int32_t (*row_unit)(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op);
    double (*fma)(int32_t rounds);
};

void tsr_cpu_fill_portable(tsr_cpu_table *t);
void tsr_cpu_fill_avx2(tsr_cpu_table *t);       /* in builds for x86 */
void tsr_cpu_fill_avx512(tsr_cpu_table *t);     /* likewise */
void tsr_cpu_fill_avx512fp16(tsr_cpu_table *t); /* likewise, where the compiler knows it */

/* The machine has the tier's instructions and its system saves their registers (cpu_tiers.c). */
bool tsr_cpu_has_tier(tsr_cpu_tier tier);

/* Scalar helpers shared by all tiers' tails and the oracle (kernels/cpu/portable). */
float tsr_cpu_act(tsr_act act, float x); /* exact erf gelu, quick gelu, silu */
float tsr_cpu_load(const tsr_tensor *x, int32_t n, int32_t y, int32_t col, int32_t c);
void tsr_cpu_store(const tsr_tensor *x, int32_t n, int32_t y, int32_t col, int32_t c, float v);
/* Source row or column of torch's nearest resize from `in` to `out`: floorf(i * ((float)in / out)).
 */
int32_t tsr_cpu_nearest(int32_t i, int32_t in, int32_t out);

#endif
