/* portable_attention.c -- attention, the oracle: online softmax over blocks of keys.
 *
 *     out[q] = sum over j of exp(s_j - m) v_j / sum over j of exp(s_j - m),  s_j = scale * q . k_j
 *
 * A task is one head and a few queries. Keys come in blocks of KEY_BLOCK, always from the first;
 * after each block the running maximum m is raised, and what was summed under the old one is
 * multiplied by exp(old - new). Everything is float32; dot products sum over the head's width in
 * order, the weighted sum over keys in order. The block size is part of the numerics: changing it
 * changes bits.
 *
 * A task's maximum, sum and accumulator are one record. With call->carry the records of all tasks
 * live there from call to call, and a call adds the keys [kv0, kv1) to them.
 *
 * Source: "Self-attention Does Not Need O(n^2) Memory" (Rabe and Staats, 2021). */
#include "kernels/cpu/portable/portable.h"

#include <math.h>
#include <string.h>

enum { KEY_BLOCK = 128, QUERIES = 16 };

/* A thread's scratch, in floats. */
typedef struct attention_scratch {
    float *acc;      // [QUERIES,Dh]
    float *most;     // [QUERIES] running maximum
    float *sum;      // [QUERIES]
    float *q;        // [QUERIES,Dh]
    float *keys;     // [Dh,KEY_BLOCK]
    float *values;   // [KEY_BLOCK,Dh]
    float *scores;   // [KEY_BLOCK]
    float *head_row; // [Dh]
} attention_scratch;

static size_t record_floats(int32_t dh)
{
    return QUERIES * ((size_t)dh + 2);
}

static size_t scratch_floats(int32_t dh)
{
    return record_floats(dh) + (size_t)dh * (QUERIES + 2 * KEY_BLOCK + 1) + KEY_BLOCK;
}

/* The record is the first part of `base`, or `carried`. */
static attention_scratch carve(float *base, float *carried, int32_t dh)
{
    attention_scratch s;
    size_t d = (size_t)dh;

    s.acc = carried ? carried : base;
    s.most = s.acc + QUERIES * d;
    s.sum = s.most + QUERIES;
    s.q = base + record_floats(dh);
    s.keys = s.q + QUERIES * d;
    s.values = s.keys + KEY_BLOCK * d;
    s.head_row = s.values + KEY_BLOCK * d;
    s.scores = s.head_row + d;
    return s;
}

/* One head of one token as float32. */
static void load_head(float *dst, const tsr_tensor *x, int32_t n, int32_t p, int32_t head,
                      int32_t dh)
{
    size_t skip = (size_t)head * (size_t)dh * tsr_dtype_size(x->dtype);

    tsr_to_f32(dst, tsr_portable_pixel(x, n, p) + skip, x->dtype, (size_t)dh);
}

/* Keys transposed, so that the loop over keys is the inner one. */
static void load_block(const tsr_call *call, const attention_scratch *s, int32_t n, int32_t head,
                       int32_t key0, int32_t keys)
{
    int32_t dh = call->out.c / call->op->u.attention.n_heads;

    for (int32_t j = 0; j < keys; j++) {
        load_head(s->head_row, &call->in[1], n, key0 + j, head, dh);
        for (int32_t d = 0; d < dh; d++)
            s->keys[(size_t)d * KEY_BLOCK + (size_t)j] = s->head_row[d];
        load_head(s->values + (size_t)j * (size_t)dh, &call->in[2], n, key0 + j, head, dh);
    }
}

/* Query i of the chunk against the first `keys` keys of the block. */
static void attend(const attention_scratch *s, int32_t i, int32_t dh, int32_t keys, float scale)
{
    const float *q = s->q + (size_t)i * (size_t)dh; // [Dh]
    float *acc = s->acc + (size_t)i * (size_t)dh;   // [Dh]
    float most = s->most[i], shrink;

    memset(s->scores, 0, KEY_BLOCK * sizeof *s->scores);
    for (int32_t d = 0; d < dh; d++) {
        const float *k = s->keys + (size_t)d * KEY_BLOCK; // [KEY_BLOCK]
        for (int32_t j = 0; j < keys; j++)
            s->scores[j] += q[d] * k[j];
    }
    for (int32_t j = 0; j < keys; j++) {
        s->scores[j] *= scale;
        most = s->scores[j] > most ? s->scores[j] : most;
    }
    shrink = expf(s->most[i] - most);
    s->most[i] = most;
    s->sum[i] *= shrink;
    for (int32_t d = 0; d < dh; d++)
        acc[d] *= shrink;
    for (int32_t j = 0; j < keys; j++) {
        const float *v = s->values + (size_t)j * (size_t)dh; // [Dh]
        float p = expf(s->scores[j] - most);
        s->sum[i] += p;
        for (int32_t d = 0; d < dh; d++)
            acc[d] += p * v[d];
    }
}

static void store_queries(const tsr_call *call, const attention_scratch *s, int32_t n, int32_t head,
                          int32_t q0, int32_t count)
{
    int32_t dh = call->out.c / call->op->u.attention.n_heads;
    size_t skip = (size_t)head * (size_t)dh * tsr_dtype_size(call->out.dtype);

    for (int32_t i = 0; i < count; i++) {
        float *acc = s->acc + (size_t)i * (size_t)dh; // [Dh]
        for (int32_t d = 0; d < dh; d++)
            acc[d] /= s->sum[i];
        tsr_from_f32(tsr_portable_pixel(&call->out, n, q0 + i) + skip, call->out.dtype, acc,
                     (size_t)dh);
    }
}

static void start_record(const attention_scratch *s, int32_t dh)
{
    memset(s->acc, 0, QUERIES * (size_t)dh * sizeof *s->acc);
    for (int32_t i = 0; i < QUERIES; i++) {
        s->most[i] = -INFINITY;
        s->sum[i] = 0;
    }
}

static void attention_chunk(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *q = &call->in[0];
    int32_t heads = call->op->u.attention.n_heads, dh = q->c / heads;
    int32_t begin = call->window.h0 * q->w, end = call->window.h1 * q->w;
    int32_t chunks = tsr_div_up(end - begin, QUERIES);
    int32_t head = task / chunks % heads, n = call->window.n0 + task / chunks / heads;
    int32_t q0 = begin + task % chunks * QUERIES, count = tsr_min_i32(QUERIES, end - q0);
    float *carried = call->carry ? (float *)call->carry + (size_t)task * record_floats(dh) : NULL;
    attention_scratch s =
        carve(tsr_portable_scratch(call, scratch_floats(dh), thread), carried, dh);
    attention_keys keys = attention_keys_of(call);

    if (keys.begin == 0)
        start_record(&s, dh);
    for (int32_t i = 0; i < count; i++)
        load_head(s.q + (size_t)i * (size_t)dh, q, n, q0 + i, head, dh);
    for (int32_t key0 = keys.begin; key0 < keys.end; key0 += KEY_BLOCK) {
        int32_t block = tsr_min_i32(KEY_BLOCK, keys.end - key0);
        load_block(call, &s, n, head, key0, block);
        for (int32_t i = 0; i < count; i++) {
            int32_t seen = call->op->u.attention.causal ? q0 + i + 1 - key0 : block;
            if (seen > 0)
                attend(&s, i, dh, tsr_min_i32(seen, block), call->op->u.attention.scale);
        }
    }
    if (keys.end == keys.count)
        store_queries(call, &s, n, head, q0, count);
}

void tsr_attention_f32acc_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    int32_t queries = (call->window.h1 - call->window.h0) * call->in[0].w;
    int32_t entries = call->window.n1 - call->window.n0;
    tsr_call copy = *call;

    (void)t;
    tsr_pool_run(call->pool, entries * call->op->u.attention.n_heads * tsr_div_up(queries, QUERIES),
                 attention_chunk, &copy);
}

int32_t tsr_attention_kv_block_portable(void)
{
    return KEY_BLOCK;
}

size_t tsr_attention_carry_portable(const tsr_op *op, const tsr_value *q, const tsr_window *w)
{
    size_t tasks = (size_t)(w->n1 - w->n0) * (size_t)op->u.attention.n_heads *
                   (size_t)tsr_div_up((w->h1 - w->h0) * q->w, QUERIES);

    return tasks * record_floats(q->c / op->u.attention.n_heads) * sizeof(float);
}

size_t tsr_attention_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                   const tsr_window *window, int32_t n_threads)
{
    int32_t dh = tsr_tape_value(tape, op->out)->c / op->u.attention.n_heads;

    (void)t;
    (void)window;
    return tsr_portable_scratch_bytes(scratch_floats(dh), n_threads);
}
