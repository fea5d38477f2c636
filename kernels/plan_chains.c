/* plan_chains.c -- consecutive ops that run window by window, so that what is between them exists
 * for one window only.
 *
 * A chain grows from an op to the last reader of its output, then from there on, as long as every
 * value that is made and read inside it is read row by row: norm -> linear, norm -> GEGLU ->
 * linear, norm -> convolution. A convolution needs a halo of rows, which its producer then makes
 * twice: only cheap ops (norms, sums) may be such producers. A group_norm needs the whole of its
 * input before its first row, attention all keys: what they read so is never made in the chain.
 *
 * Windows cut the rows of the chain's exports: each of their rows is made once. The rows that the
 * other ops make follow backwards from there. */
#include "kernels/plan_internal.h"

/* Outputs that are cheap to make twice. */
static bool cheap(const tsr_op *op)
{
    return op->kind == TSR_OP_GROUP_NORM || op->kind == TSR_OP_LAYER_NORM ||
           op->kind == TSR_OP_ADD || op->kind == TSR_OP_CONCAT || op->kind == TSR_OP_IMAGE_IN;
}

bool tsr_lower_is_kept(const tsr_tape *t, tsr_val v)
{
    const tsr_value *x = &t->values[v];
    bool before = x->kind == TSR_VALUE_INPUT || x->first < t->loop_begin;

    return x->is_output || (before && x->last >= t->loop_begin);
}

static bool made_in(const tsr_chain *c, const tsr_value *x)
{
    return x->kind == TSR_VALUE_TEMP && x->first >= c->a && x->first <= c->b;
}

bool tsr_chain_internal(const tsr_lower *l, const tsr_chain *c, tsr_val v)
{
    const tsr_value *x = &l->t->values[v];

    return c->b > c->a && made_in(c, x) && x->last <= c->b && x->last > x->first &&
           !tsr_lower_is_kept(l->t, v);
}

static bool reads_in_chain(const tsr_lower *l, const tsr_chain *c, const tsr_op *op)
{
    for (int32_t k = 0; k < 4; k++)
        if (op->in[k] && made_in(c, &l->t->values[op->in[k]]))
            return true;
    return false;
}

/* Whether op may read operand k inside the chain, if it was made there. */
static bool may_read(const tsr_lower *l, const tsr_chain *c, const tsr_op *op, int32_t k)
{
    const tsr_value *x = &l->t->values[op->in[k]];
    const tsr_op *maker;

    if (!op->in[k] || !made_in(c, x))
        return true;
    if (op->kind == TSR_OP_GROUP_NORM)
        return false;
    switch (tsr_plan_reach(l->t, op, k)) {
    case TSR_REACH_SAME:
        return true;
    case TSR_REACH_HALO:
        maker = &l->t->ops[x->first];
        return cheap(maker) && tsr_chain_internal(l, c, op->in[k]) && !reads_in_chain(l, c, maker);
    case TSR_REACH_WHOLE:
        break;
    }
    return false;
}

bool tsr_lower_keys_in_strips(const tsr_lower *l, const tsr_op *op)
{
    return op->kind == TSR_OP_ATTENTION && (l->values[op->in[1]].mode == TSR_MODE_STRIP ||
                                            l->values[op->in[2]].mode == TSR_MODE_STRIP);
}

/* Every op can be windowed, every read is allowed, all exports have the same rows. */
static bool valid(const tsr_lower *l, tsr_chain *c)
{
    const tsr_tape *t = l->t;

    c->h = 0;
    if (c->b - c->a >= TSR_MAX_CHAIN || (c->a < t->loop_begin && c->b >= t->loop_begin))
        return false;
    for (int32_t i = c->a; i <= c->b; i++) {
        const tsr_op *op = &t->ops[i];
        const tsr_value *out = &t->values[op->out];

        if (!tsr_plan_has_windows(op) || tsr_lower_keys_in_strips(l, op))
            return false;
        for (int32_t k = 0; k < 4; k++)
            if (!may_read(l, c, op, k))
                return false;
        if (tsr_chain_internal(l, c, op->out))
            continue;
        if (c->h && c->h != out->h)
            return false;
        c->h = out->h;
    }
    return true;
}

/* The longest chain that begins at op a. */
static tsr_chain grow(const tsr_lower *l, int32_t a)
{
    tsr_chain c = {.a = a, .b = a, .h = l->t->values[l->t->ops[a].out].h};
    tsr_chain longer = c;

    if (!tsr_plan_has_windows(&l->t->ops[a]))
        return c;
    for (;;) {
        const tsr_value *x = &l->t->values[l->t->ops[c.b].out];
        if (tsr_lower_is_kept(l->t, l->t->ops[c.b].out) || x->last <= c.b)
            return c;
        longer.b = x->last;
        if (longer.b - a >= TSR_MAX_CHAIN || !valid(l, &longer))
            return c;
        c = longer;
    }
}

void tsr_chain_needs(const tsr_lower *l, tsr_chain *c, tsr_rows part)
{
    const tsr_tape *t = l->t;

    c->part = part;
    for (int32_t i = c->b; i >= c->a; i--) {
        tsr_val out = t->ops[i].out;
        tsr_rows r = {INT32_MAX, 0};

        for (int32_t j = i + 1; j <= c->b && tsr_chain_internal(l, c, out); j++) {
            for (int32_t k = 0; k < 4; k++) {
                tsr_rows one;
                if (t->ops[j].in[k] != out)
                    continue;
                one = tsr_plan_rows_read(l->b, t, &t->ops[j], k, c->need[j - c->a]);
                r.begin = tsr_min_i32(r.begin, one.begin);
                r.end = tsr_max_i32(r.end, one.end);
            }
        }
        c->need[i - c->a] = r.end ? r : part;
    }
}

bool tsr_chain_reads_exactly(const tsr_lower *l, const tsr_chain *c, tsr_val v)
{
    const tsr_tape *t = l->t;

    for (int32_t i = c->a; i <= c->b; i++) {
        tsr_rows need = c->need[i - c->a];
        for (int32_t k = 0; k < 4; k++) {
            if (t->ops[i].in[k] != v)
                continue;
            if (tsr_plan_reach(t, &t->ops[i], k) != TSR_REACH_SAME || need.begin != c->part.begin ||
                need.end != c->part.end)
                return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------- windows */

/* Bytes that one window of `rows` rows takes: of what is inside the chain, all together, and the
 * largest strip. */
typedef struct window_bytes {
    size_t inside, strip;
} window_bytes;

static void note_strip(const tsr_lower *l, tsr_val v, tsr_rows r, window_bytes *w)
{
    if (v && l->values[v].mode == TSR_MODE_STRIP)
        w->strip = tsr_max_size(w->strip, tsr_plan_rows_bytes(&l->t->values[v], r.end - r.begin));
}

/* A window in the middle of the picture. */
static window_bytes measure(const tsr_lower *l, tsr_chain *c, int32_t rows)
{
    int32_t begin = tsr_max_i32(0, tsr_min_i32(c->h - rows, c->h / 2));
    window_bytes w = {0};

    tsr_chain_needs(l, c, (tsr_rows){begin, tsr_min_i32(begin + rows, c->h)});
    for (int32_t i = c->a; i <= c->b; i++) {
        const tsr_op *op = &l->t->ops[i];
        tsr_rows need = c->need[i - c->a];

        for (int32_t k = 0; k < 4; k++)
            if (op->in[k] && !tsr_chain_internal(l, c, op->in[k]) &&
                tsr_plan_reach(l->t, op, k) != TSR_REACH_WHOLE)
                note_strip(l, op->in[k], tsr_plan_rows_read(l->b, l->t, op, k, need), &w);
        if (tsr_chain_internal(l, c, op->out))
            w.inside += tsr_plan_rows_bytes(&l->t->values[op->out], need.end - need.begin);
        else if (!c->stats)
            note_strip(l, op->out, need, &w);
    }
    return w;
}

/* Streamed weights of the chain. */
static size_t streamed_bytes(const tsr_lower *l, const tsr_chain *c)
{
    size_t sum = 0;

    for (int32_t i = c->a; i <= c->b; i++) {
        const tsr_op *op = &l->t->ops[i];
        for (int32_t k = 0; k < 2; k++)
            if (op->w[k] && !l->resident[op->w[k]])
                sum += l->b->packed_bytes(l->b, op, &l->t->weights[op->w[k]]);
    }
    return sum;
}

static bool fits(const tsr_lower *l, const window_bytes *w, bool strips)
{
    size_t inside =
        strips ? tsr_min_size(2 * l->k->strip_bytes, l->k->window_bytes) : l->k->window_bytes;

    return w->inside <= inside && (!strips || w->strip <= l->k->strip_bytes);
}

/* Rows of the largest tile in the chain: fewer would be made more than once. */
static int32_t row_unit(const tsr_lower *l, const tsr_chain *c)
{
    int32_t unit = 1;

    for (int32_t i = c->a; i <= c->b && !c->stats; i++)
        unit = tsr_max_i32(unit, tsr_plan_row_unit(l->b, l->t, &l->t->ops[i]));
    return unit;
}

/* The largest number of rows that fits, by halves: a multiple of four where it can be one, but not
 * fewer than a tile's. */
static int32_t choose_rows(const tsr_lower *l, tsr_chain *c)
{
    window_bytes w = measure(l, c, c->h);
    bool strips = w.strip > 0;
    int32_t rows = c->h, least = row_unit(l, c);

    if (!strips && w.inside > l->k->window_bytes && streamed_bytes(l, c) > l->k->hold_bytes)
        return c->h;
    while (rows > least && !fits(l, &w, strips)) {
        rows = tsr_div_up(rows, 2);
        rows = rows > 4 ? tsr_div_up(rows, 4) * 4 : tsr_max_i32(rows, least);
        w = measure(l, c, rows);
    }
    return rows;
}

/* Sets the window; false when one will do. */
static bool needs_cut(const tsr_lower *l, tsr_chain *c)
{
    c->rows = choose_rows(l, c);
    if (l->tile_rows > 0)
        c->rows = tsr_min_i32(c->rows, l->tile_rows);
    c->windowed = c->rows < c->h;
    return c->windowed;
}

tsr_chain tsr_lower_next_chain(const tsr_lower *l, int32_t a)
{
    tsr_chain c = grow(l, a), one = {.a = a, .b = a, .h = l->t->values[l->t->ops[a].out].h};

    if (!tsr_plan_has_windows(&l->t->ops[a])) {
        one.rows = one.h;
        return one;
    }
    if (c.b > a && l->k->window_bytes < SIZE_MAX && needs_cut(l, &c))
        return c;
    needs_cut(l, &one);
    return one;
}
