/* attention_body.h -- softmax(q k^T * scale) v per head, with an online softmax.
 *
 * Algorithm (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; the blocking
 * is FlashAttention's): a task is one entry, one head and up to block_q queries. It walks the keys
 * in blocks of BLOCK_KEYS and keeps for every query the largest score m, the sum l of e^(score - m)
 * and the unfinished output o; when a block raises m, l and o are scaled by e^(m_old - m_new). At
 * the end out = o / l.
 *
 * Everything is transposed, so that a vector holds one number for each of VEC_N queries: scores are
 * [key][query] and outputs [d][query]. Both products then run on the register tile with K and V as
 * its broadcast side, just as they lie in memory (only widened to f32), and the softmax needs no
 * horizontal step. Q is transposed on the way in (times scale), o on the way out.
 *
 * Exactness: blocks of keys start at key 0 and have one fixed size; a query's sums run over them in
 * order, inside a block over d (scores) and keys (l, o) in order. Windows, threads, batch and the
 * cut of the queries do not enter. All in f32. Scores are in units of ln 2 (q is scaled by
 * scale / ln 2), so that weights are powers of 2. A masked score is -inf, its weight 2^-125.
 *
 * Keys in blocks: m, l and o of a panel are one record, [2 + dh_tiles][TILE_N]. With call->carry
 * the records of the window's panels live there from call to call instead of in the scratch, and a
 * call adds the keys [kv0, kv1) to them: the same steps in the same order as one call.
 *
 * A head's rows are short and far apart (80 bytes every 640 in SD1.5), which no hardware prefetcher
 * follows: the next block's rows are asked for while this one is worked on. With 256 queries a task
 * instead of 128 that raised 8 heads of 40 from 53 to 62 GFLOP/s of 102 (one core of Zen 3).
 *
 * Scratch a thread: 2 [BLOCK_KEYS][ld] + 2 [Dh][queries] floats, queries the window's, up to
 * block_q: 126 KiB for 40, 911 KiB for 512 (AVX2). */
#ifndef TSR_KERNELS_CPU_ATTENTION_BODY_H
#define TSR_KERNELS_CPU_ATTENTION_BODY_H

#include <string.h>

#include "base/num.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/span.h"

enum {
    BLOCK_KEYS = 96, /* a whole number of tiles in every tier */
    WIDE_HEAD = 256, /* above it fewer queries a task, for the scratch's sake */
    BLOCK_Q = 256,   /* a whole number of panels in every tier */
    BLOCK_Q_WIDE = 128
};

typedef struct attention {
    const tsr_call *call;
    int32_t dh, dh_tiles; /* head width; rounded up to tiles */
    int32_t ld;           /* stride of K and V rows: dh, then zeros to a whole tile */
    int32_t block_q;      /* queries a task; no result depends on it */
    attention_keys keys;
    int32_t q0, q1, n_blocks_q, n_panels; /* of the window, n_panels an entry and head */
    int32_t room;                         /* panels that the scratch has room for */
    size_t record;                        /* floats of a panel's m, l and o */
    size_t thread_bytes;
} attention;

/* One thread's scratch. */
typedef struct attention_scratch {
    float *k, *v;   /* [BLOCK_KEYS][ld] */
    float *s;       /* [BLOCK_KEYS][TILE_N] scores, then weights, of one panel */
    float *q;       /* [room][dh][TILE_N] */
    float *records; /* [room][2 + dh_tiles][TILE_N] of the task's panels */
} attention_scratch;

static void attention_sizes(attention *a, int32_t dh, const tsr_window *w, int32_t width)
{
    size_t kv, panel;

    a->dh = dh;
    a->dh_tiles = tsr_div_up(dh, TILE_M) * TILE_M;
    a->ld = tsr_div_up(dh, VEC_N) * VEC_N + VEC_N;
    a->block_q = dh > WIDE_HEAD ? BLOCK_Q_WIDE : BLOCK_Q;
    a->q0 = w->h0 * width;
    a->q1 = w->h1 * width;
    a->n_panels = tsr_div_up(a->q1 - a->q0, TILE_N);
    a->n_blocks_q = tsr_div_up(a->q1 - a->q0, a->block_q);
    a->room = tsr_min_i32(a->n_panels, a->block_q / TILE_N);
    a->record = (size_t)(2 + a->dh_tiles) * TILE_N;
    kv = (size_t)BLOCK_KEYS * (size_t)a->ld;
    panel = (size_t)dh * TILE_N + a->record;
    a->thread_bytes = tsr_align_up(
        sizeof(float) * (2 * kv + (size_t)BLOCK_KEYS * TILE_N + (size_t)a->room * panel), 64);
}

/* Of a task: the panels from `panel` on of the pair'th entry and head. */
static attention_scratch attention_scratch_of(const attention *a, int32_t thread, int32_t pair,
                                              int32_t panel)
{
    attention_scratch s;
    size_t kv = (size_t)BLOCK_KEYS * (size_t)a->ld;

    s.k = (float *)(void *)((char *)a->call->work + (size_t)thread * a->thread_bytes);
    s.v = s.k + kv;
    s.s = s.v + kv;
    s.q = s.s + (size_t)BLOCK_KEYS * TILE_N;
    s.records = s.q + (size_t)a->room * (size_t)a->dh * TILE_N;
    if (a->call->carry)
        s.records = (float *)a->call->carry +
                    ((size_t)pair * (size_t)a->n_panels + (size_t)panel) * a->record;
    return s;
}

/* m, l and o of one panel of the task. */
typedef struct attention_record {
    float *max, *sum; /* [TILE_N] */
    float *o;         /* [dh_tiles][TILE_N] */
} attention_record;

static attention_record attention_record_of(const attention *a, const attention_scratch *s,
                                            int32_t panel)
{
    float *p = s->records + (size_t)panel * a->record;

    return (attention_record){p, p + TILE_N, p + 2 * (size_t)TILE_N};
}

static void attention_start(const attention *a, const attention_scratch *s, int32_t n_panels)
{
    for (int32_t p = 0; p < n_panels; p++) {
        attention_record r = attention_record_of(a, s, p);

        memset(r.max, 0, sizeof(float) * a->record);
        for (int32_t i = 0; i < TILE_N; i++)
            r.max[i] = -__builtin_inff();
    }
}

/* One head of row t as f32: dh elements, zeros up to ld. */
static void attention_load_row(const attention *a, const tsr_tensor *x, int32_t n, int32_t head,
                               int32_t t, float *dst)
{
    size_t at = (size_t)head * (size_t)a->dh;
    const void *src = tensor_at(x, n, t);
    int32_t d = 0;

    if (x->dtype == TSR_F16)
        for (; d + VEC_N <= a->dh; d += VEC_N)
            vec_store(dst + d, vec_load_f16((const uint16_t *)src + at + d));
    for (; d < a->dh; d += VEC_N)
        vec_store(dst + d, vec_load_as(x->dtype, src, at + (size_t)d, a->dh - d));
    vec_store(dst + a->ld - VEC_N, vec_zero());
}

/* Rows to columns: every round puts row i + VEC_N / 2 between the lanes of row i. */
static inline void attention_transpose(vec r[VEC_N])
{
#pragma GCC unroll 4
    for (int32_t round = 1; round < VEC_N; round *= 2) {
        vec from[VEC_N];

        memcpy(from, r, sizeof from);
#pragma GCC unroll 8
        for (int32_t i = 0; i < VEC_N / 2; i++) {
            vec_zip(&from[i], &from[i + VEC_N / 2]);
            r[2 * i] = from[i];
            r[2 * i + 1] = from[i + VEC_N / 2];
        }
    }
}

/* Queries q0 .. q0 + n times scale / ln 2, transposed into panels; missing queries are zeros. */
static void attention_load_q(const attention *a, const attention_scratch *s, int32_t n,
                             int32_t head, int32_t q0, int32_t n_q)
{
    const tsr_tensor *q = &a->call->in[0];
    size_t at = (size_t)head * (size_t)a->dh;
    const vec scale = vec_set(a->call->op->u.attention.scale * 1.44269504f);

    for (int32_t i = 0; i < tsr_div_up(n_q, TILE_N) * TILE_N; i += VEC_N) {
        float *dst = s->q + (size_t)(i / TILE_N) * (size_t)a->dh * TILE_N + i % TILE_N;

        for (int32_t d = 0; d < a->dh; d += VEC_N, dst += (size_t)VEC_N * TILE_N) {
            vec r[VEC_N];

            for (int32_t j = 0; j < VEC_N; j++)
                r[j] = i + j < n_q ? vec_load_as(q->dtype, tensor_at(q, n, q0 + i + j),
                                                 at + (size_t)d, a->dh - d)
                                   : vec_zero();
            attention_transpose(r);
            for (int32_t j = 0; j < tsr_min_i32(VEC_N, a->dh - d); j++)
                vec_store(dst + (size_t)j * TILE_N, vec_mul(r[j], scale));
        }
    }
}

static void attention_load_keys(const attention *a, const attention_scratch *s, int32_t n,
                                int32_t head, int32_t key0, int32_t n_keys)
{
    for (int32_t i = 0; i < n_keys; i++) {
        attention_load_row(a, &a->call->in[1], n, head, key0 + i, s->k + (size_t)i * (size_t)a->ld);
        attention_load_row(a, &a->call->in[2], n, head, key0 + i, s->v + (size_t)i * (size_t)a->ld);
    }
    for (int32_t i = n_keys; i % TILE_M != 0; i++)
        memset(s->k + (size_t)i * (size_t)a->ld, 0, sizeof(float) * (size_t)a->ld);
}

/* Asks for keys key0 .. key0 + n_keys, as far as the call has so many, of the task's head. */
static void attention_prefetch(const attention *a, int32_t n, int32_t head, int32_t key0,
                               int32_t n_keys)
{
    for (int32_t t = key0; t < tsr_min_i32(key0 + n_keys, a->keys.end); t++) {
        for (int32_t i = 1; i <= 2; i++) {
            const tsr_tensor *x = &a->call->in[i];
            size_t bytes = (size_t)a->dh * (x->dtype == TSR_F16 ? 2 : 4);
            const char *row = (const char *)tensor_at(x, n, t) + (size_t)head * bytes;

            for (size_t b = 0; b < bytes; b += 64)
                __builtin_prefetch(row + b, 0, 2);
            __builtin_prefetch(row + bytes - 1, 0, 2);
        }
    }
}

/* Scores of keys after the query become -inf. q0: the query of lane 0. */
static void attention_mask(float *s, int32_t q0, int32_t key0, int32_t n_keys)
{
    float lane[TILE_N];

    for (int32_t i = 0; i < TILE_N; i++)
        lane[i] = (float)(q0 + i);
    for (int32_t i = 0; i < n_keys; i++) {
        vec key = vec_set((float)(key0 + i));

        for (int32_t j = 0; j < TILE_N; j += VEC_N) {
            float *p = s + (size_t)i * TILE_N + j;

            vec_store(
                p, vec_if_less(vec_load(lane + j), key, vec_set(-__builtin_inff()), vec_load(p)));
        }
    }
}

/* One block's softmax step for TILE_N queries: scores become weights, m and l move on, o is
 * scaled. */
static void attention_softmax(float *s, int32_t n_keys, float *max, float *sum, float *o,
                              int32_t n_o)
{
    vec m0 = vec_load(max), m1 = vec_load(max + VEC_N), a0 = m0, a1 = m1, l0, l1;
    bool raised;

    for (int32_t i = 0; i < n_keys; i++) {
        m0 = vec_max(m0, vec_load(s + (size_t)i * TILE_N));
        m1 = vec_max(m1, vec_load(s + (size_t)i * TILE_N + VEC_N));
    }
    raised = vec_any_less(a0, m0) || vec_any_less(a1, m1);
    a0 = vec_exp2_below(vec_sub(a0, m0));
    a1 = vec_exp2_below(vec_sub(a1, m1));
    l0 = vec_mul(vec_load(sum), a0);
    l1 = vec_mul(vec_load(sum + VEC_N), a1);
    for (int32_t i = 0; i < n_keys; i++) {
        float *p = s + (size_t)i * TILE_N;
        vec w0 = vec_exp2_below(vec_sub(vec_load(p), m0)),
            w1 = vec_exp2_below(vec_sub(vec_load(p + VEC_N), m1));

        vec_store(p, w0);
        vec_store(p + VEC_N, w1);
        l0 = vec_add(l0, w0);
        l1 = vec_add(l1, w1);
    }
    vec_store(max, m0);
    vec_store(max + VEC_N, m1);
    vec_store(sum, l0);
    vec_store(sum + VEC_N, l1);
    if (!raised) /* the factors are 1 */
        return;
    for (int32_t i = 0; i < n_o; i++, o += TILE_N) {
        vec_store(o, vec_mul(vec_load(o), a0));
        vec_store(o + VEC_N, vec_mul(vec_load(o + VEC_N), a1));
    }
}

/* One block of keys against one panel of queries. */
static void attention_panel(const attention *a, const attention_scratch *s, int32_t panel,
                            int32_t n_keys, int32_t q0, int32_t key0)
{
    const float *q = s->q + (size_t)panel * (size_t)a->dh * TILE_N; // [Dh,TILE_N]
    attention_record r = attention_record_of(a, s, panel);
    size_t ld = (size_t)a->ld;

    for (int32_t i = 0; i < n_keys; i += TILE_M)
        tile_run(2, (tile_a){s->k + (size_t)i * ld, ld, 1}, q, a->dh, s->s + (size_t)i * TILE_N,
                 false);
    if (a->call->op->u.attention.causal)
        attention_mask(s->s, q0 + panel * TILE_N, key0, n_keys);
    attention_softmax(s->s, n_keys, r.max, r.sum, r.o, a->dh);
    for (int32_t d = 0; d < a->dh; d += TILE_M)
        tile_run(2, (tile_a){s->v + d, 1, ld}, s->s, n_keys, r.o + (size_t)d * TILE_N, true);
}

/* out = o / l, back to rows. */
static void attention_store(const attention *a, const attention_scratch *s, int32_t n, int32_t head,
                            int32_t q0, int32_t n_q)
{
    const tsr_tensor *out = &a->call->out;
    size_t at = (size_t)head * (size_t)a->dh;

    for (int32_t i = 0; i < n_q; i += VEC_N) {
        attention_record rec = attention_record_of(a, s, i / TILE_N);
        const float *o = rec.o + i % TILE_N, *sum = rec.sum + i % TILE_N;

        for (int32_t d = 0; d < a->dh; d += VEC_N, o += (size_t)VEC_N * TILE_N) {
            vec r[VEC_N];

            for (int32_t j = 0; j < VEC_N; j++)
                r[j] = d + j < a->dh ? vec_load(o + (size_t)j * TILE_N) : vec_zero();
            attention_transpose(r);
            for (int32_t j = 0; j < tsr_min_i32(VEC_N, n_q - i); j++)
                vec_store_as(out->dtype, tensor_at(out, n, q0 + i + j), at + (size_t)d,
                             vec_div(r[j], vec_set(sum[j])), a->dh - d);
        }
    }
}

/* Neighbouring tasks share their keys. */
static void attention_task(void *arg, int32_t task, int32_t thread)
{
    const attention *a = arg;
    int32_t heads = a->call->op->u.attention.n_heads, pair = task / a->n_blocks_q,
            block = task % a->n_blocks_q, head = pair % heads,
            n = a->call->window.n0 + pair / heads, q0 = a->q0 + block * a->block_q,
            n_q = tsr_min_i32(a->block_q, a->q1 - q0);
    int32_t panels = tsr_div_up(n_q, TILE_N), share = tsr_div_up(BLOCK_KEYS, panels);
    attention_scratch s = attention_scratch_of(a, thread, pair, block * (a->block_q / TILE_N));

    attention_load_q(a, &s, n, head, q0, n_q);
    if (a->keys.begin == 0)
        attention_start(a, &s, panels);
    for (int32_t key0 = a->keys.begin; key0 < a->keys.end; key0 += BLOCK_KEYS) {
        int32_t n_keys = tsr_min_i32(BLOCK_KEYS, a->keys.end - key0), next = key0 + BLOCK_KEYS;

        attention_load_keys(a, &s, n, head, key0, n_keys);
        for (int32_t p = 0; p < panels; p++) {
            attention_prefetch(a, n, head, next + p * share, share);
            attention_panel(a, &s, p, n_keys, q0, key0);
        }
    }
    if (a->keys.end == a->keys.count)
        attention_store(a, &s, n, head, q0, n_q);
}

static int32_t attention_kv_block(void)
{
    return BLOCK_KEYS;
}

static size_t attention_carry(const tsr_op *op, const tsr_value *q, const tsr_window *window)
{
    attention a;
    int32_t heads = op->u.attention.n_heads;

    attention_sizes(&a, q->c / heads, window, q->w);
    return (size_t)(window->n1 - window->n0) * (size_t)heads * (size_t)a.n_panels * a.record *
           sizeof(float);
}

static size_t attention_work(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                             const tsr_window *window, int32_t n_threads)
{
    attention a;
    const tsr_value *q = &tape->values[op->in[0]];

    (void)t;
    attention_sizes(&a, q->c / op->u.attention.n_heads, window, q->w);
    return a.thread_bytes * (size_t)n_threads;
}

static void attention_run(const tsr_cpu_table *t, const tsr_call *call)
{
    const tsr_window *w = &call->window;
    int32_t heads = call->op->u.attention.n_heads;
    attention a = {.call = call, .keys = attention_keys_of(call)};

    (void)t;
    attention_sizes(&a, call->in[0].c / heads, w, call->out.w);
    tsr_pool_run(call->pool, (w->n1 - w->n0) * heads * a.n_blocks_q, attention_task, &a);
}

#endif
