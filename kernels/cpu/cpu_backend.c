/* cpu_backend.c -- the CPU tiers as backends: one constant object a tier.
 *
 * The tables are filled once in a process, before the first one is handed out, and never written
 * again: every context shares them. A tier is there when its sources were built in and the machine
 * can run it; its table is the portable one with the better kernels of every lower tier and its
 * own written over it.
 *
 * Vectors (norm weights, biases, tables) are plain float32 arrays for every tier, so their
 * "packing" is here. */
#include <pthread.h>
#include <string.h>

#include "base/num.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/norm_stats.h"

enum { N_TIERS = TSR_TIER_AVX512FP16 + 1 };

typedef struct cpu_tier {
    bool present;
    tsr_cpu_table table;
    tsr_backend backend;
} cpu_tier;

static cpu_tier tiers[N_TIERS]; /* written by fill_tiers only */
static pthread_once_t tiers_once = PTHREAD_ONCE_INIT;

static size_t vector_row(const tsr_weight *w)
{
    size_t n = 1;

    for (int32_t i = 1; i < w->n_dims; i++)
        n *= (size_t)w->dims[i];
    return n;
}

static size_t packed_bytes(const tsr_backend *b, const tsr_op *op, const tsr_weight *w)
{
    const tsr_cpu_table *t = b->impl;

    if (w->kind == TSR_WEIGHT_VECTOR)
        return tsr_align_up((size_t)w->dims[0] * vector_row(w) * sizeof(float), 64);
    return t->packed_bytes(t, op, w);
}

static int32_t panel_rows(const tsr_backend *b, const tsr_op *op, const tsr_weight *w)
{
    const tsr_cpu_table *t = b->impl;

    return w->kind == TSR_WEIGHT_VECTOR ? 1 : t->panel_rows(t, op, w);
}

static int32_t panel_channels(const tsr_backend *b, const tsr_op *op, const tsr_weight *w)
{
    const tsr_cpu_table *t = b->impl;

    return w->kind == TSR_WEIGHT_VECTOR ? 1 : t->panel_channels(t, op, w);
}

static size_t packed_offset(const tsr_backend *b, const tsr_op *op, const tsr_weight *w, int32_t c)
{
    const tsr_cpu_table *t = b->impl;

    if (w->kind == TSR_WEIGHT_VECTOR)
        return (size_t)c * vector_row(w) * sizeof(float);
    return t->packed_offset(t, op, w, c);
}

static void pack(const tsr_backend *b, const tsr_op *op, const tsr_weight *w, const float *rows,
                 int32_t row0, int32_t n_rows, int32_t c0, void *dst)
{
    const tsr_cpu_table *t = b->impl;
    size_t row = vector_row(w);

    if (w->kind == TSR_WEIGHT_VECTOR)
        memcpy((float *)dst + (size_t)(row0 - c0) * row, rows,
               (size_t)n_rows * row * sizeof(float));
    else
        t->pack(t, op, w, rows, row0, n_rows, c0, dst);
}

static bool pack_halves(const tsr_backend *b, const tsr_op *op, const tsr_weight *w,
                        const uint16_t *rows, int32_t row0, int32_t n_rows, int32_t c0, void *dst)
{
    const tsr_cpu_table *t = b->impl;

    return w->kind == TSR_WEIGHT_MATRIX && t->pack_halves &&
           t->pack_halves(t, op, w, rows, row0, n_rows, c0, dst);
}

static size_t stats_bytes(const tsr_backend *b, const tsr_tape *tape, const tsr_op *op)
{
    const tsr_value *out = &tape->values[op->out];

    (void)b;
    return op->kind == TSR_OP_GROUP_NORM ? tsr_norm_stats_bytes(out->n, out->h, op->u.norm.groups)
                                         : 0;
}

static void norm_stats(const tsr_backend *b, const tsr_call *call)
{
    const tsr_cpu_table *t = b->impl;

    t->norm_stats(t, call);
}

static int32_t kv_block(const tsr_backend *b, const tsr_tape *tape, const tsr_op *op)
{
    const tsr_cpu_table *t = b->impl;

    (void)tape;
    (void)op;
    return t->kv_block();
}

static size_t carry_bytes(const tsr_backend *b, const tsr_tape *tape, const tsr_op *op,
                          const tsr_window *window)
{
    const tsr_cpu_table *t = b->impl;

    if (op->kind != TSR_OP_ATTENTION)
        return 0;
    return tsr_align_up(t->carry(op, &tape->values[op->in[0]], window), 64);
}

static size_t work_bytes(const tsr_backend *b, const tsr_tape *tape, const tsr_op *op,
                         const tsr_window *window, int32_t n_threads)
{
    const tsr_cpu_table *t = b->impl;

    return t->work[op->kind] ? t->work[op->kind](t, tape, op, window, n_threads) : 0;
}

static size_t least_work(const tsr_backend *b, const tsr_tape *tape, const tsr_op *op,
                         const tsr_window *window, int32_t n_threads)
{
    const tsr_cpu_table *t = b->impl;

    return t->least_work[op->kind] ? t->least_work[op->kind](t, tape, op, window, n_threads)
                                   : work_bytes(b, tape, op, window, n_threads);
}

static void run(const tsr_backend *b, const tsr_call *call)
{
    const tsr_cpu_table *t = b->impl;

    t->run[call->op->kind](t, call);
}

static bool all_finite(const tsr_backend *b, const tsr_tensor *x, tsr_pool *pool)
{
    const tsr_cpu_table *t = b->impl;

    return t->all_finite(x, pool);
}

static const char *method(const tsr_backend *b, const tsr_tape *tape, const tsr_op *op)
{
    const tsr_cpu_table *t = b->impl;

    return t->method ? t->method(t, tape, op) : NULL;
}

static int32_t row_unit(const tsr_backend *b, const tsr_tape *tape, const tsr_op *op)
{
    const tsr_cpu_table *t = b->impl;

    return t->row_unit ? t->row_unit(t, tape, op) : 1;
}

static double fma_rounds(const tsr_backend *b, int32_t rounds)
{
    const tsr_cpu_table *t = b->impl;

    return t->fma(rounds);
}

/* Whether the table could be filled up to `tier`. */
static bool fill_table(tsr_cpu_table *t, tsr_cpu_tier tier)
{
    tsr_cpu_tier reached = TSR_TIER_PORTABLE;

    tsr_cpu_fill_portable(t);
#if defined(TSR_HAVE_TIER_avx2)
    if (tier >= TSR_TIER_AVX2) {
        tsr_cpu_fill_avx2(t);
        reached = TSR_TIER_AVX2;
    }
#endif
#if defined(TSR_HAVE_TIER_avx512)
    if (tier >= TSR_TIER_AVX512) {
        tsr_cpu_fill_avx512(t);
        reached = TSR_TIER_AVX512;
    }
#endif
#if defined(TSR_HAVE_TIER_avx512fp16)
    if (tier >= TSR_TIER_AVX512FP16) {
        tsr_cpu_fill_avx512fp16(t);
        reached = TSR_TIER_AVX512FP16;
    }
#endif
    t->tier = tier;
    t->name = tsr_cpu_tier_name(tier);
    return reached == tier;
}

static void fill_tiers(void)
{
    for (int32_t i = TSR_TIER_PORTABLE; i < N_TIERS; i++) {
        cpu_tier *c = &tiers[i];
        /* in this order: even a tier's fill function is compiled for its instruction set */
        c->present = tsr_cpu_has_tier((tsr_cpu_tier)i) && fill_table(&c->table, (tsr_cpu_tier)i);
        c->backend = (tsr_backend){.name = "cpu",
                                   .tier = c->table.name,
                                   .packed_bytes = packed_bytes,
                                   .panel_rows = panel_rows,
                                   .pack = pack,
                                   .pack_halves = pack_halves,
                                   .packed_offset = packed_offset,
                                   .panel_channels = panel_channels,
                                   .stats_bytes = stats_bytes,
                                   .norm_stats = norm_stats,
                                   .kv_block = kv_block,
                                   .carry_bytes = carry_bytes,
                                   .work_bytes = work_bytes,
                                   .run = run,
                                   .all_finite = all_finite,
                                   .method = method,
                                   .row_unit = row_unit,
                                   .least_work = least_work,
                                   .fma = fma_rounds,
                                   .impl = &c->table};
    }
}

const tsr_backend *tsr_cpu_backend(tsr_cpu_tier tier)
{
    if (tier < TSR_TIER_PORTABLE || (int32_t)tier >= N_TIERS)
        return NULL;
    pthread_once(&tiers_once, fill_tiers);
    return tiers[tier].present ? &tiers[tier].backend : NULL;
}
