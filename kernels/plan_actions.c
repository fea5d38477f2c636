/* plan_actions.c -- from chains to actions: windows outermost, then ops, then pieces of weights.
 *
 * A weight is resident, or streamed: read whole before its first use and held to the end of the
 * chain, or, where the op is one window, in pieces of output channels, each of which is an action
 * of its own. A group_norm whose output is made by windows takes its statistics first: by a sweep
 * over its input, or, where that is a value in strips, from each strip as it is made. Attention
 * with its keys in strips goes over blocks of keys for every window of queries and carries the
 * running maximum, sum and output from block to block. */
#include "kernels/plan_internal.h"

/* ------------------------------------------------------------------- weights */

static bool streamed_matrix(const tsr_lower *l, const tsr_op *op)
{
    return op->w[0] && !l->resident[op->w[0]] && l->t->weights[op->w[0]].kind == TSR_WEIGHT_MATRIX;
}

/* Output channels of a piece; 0: the weight is used whole. */
static int32_t piece_channels(const tsr_lower *l, const tsr_chain *c, const tsr_op *op)
{
    const tsr_weight *w = &l->t->weights[op->w[0]];
    int32_t co = l->t->values[op->out].c, panel, pieces;
    size_t bytes;

    if (!streamed_matrix(l, op) || c->windowed || !l->b->packed_offset || !l->b->panel_channels)
        return 0;
    bytes = l->b->packed_bytes(l->b, op, w);
    panel = l->b->panel_channels(l->b, op, w);
    if (bytes <= l->k->piece_bytes || panel >= co)
        return 0;
    pieces = (int32_t)tsr_min_size((bytes + l->k->piece_bytes - 1) / l->k->piece_bytes,
                                   (size_t)tsr_div_up(co, panel));
    return tsr_div_up(tsr_div_up(co, pieces), panel) * panel;
}

/* Item of channels [c0,c1) of weight w (both 0: all). */
static int32_t weight_item(tsr_lower *l, const tsr_op *op, tsr_wt w, int32_t c0, int32_t c1)
{
    const tsr_weight *wd = &l->t->weights[w];
    bool whole = c1 == 0, matrix = wd->kind == TSR_WEIGHT_MATRIX;
    int32_t now = tsr_lower_now(l);
    tsr_job job = {.kind = TSR_JOB_WEIGHT,
                   .index = w,
                   .a = c0,
                   .b = whole ? (matrix ? l->t->values[op->out].c : wd->dims[0]) : c1,
                   .issue = now,
                   .due = now,
                   .earliest = l->section_time};
    size_t bytes;

    if (l->resident[w])
        return l->plan->weight_item[w];
    if (l->held[w] && whole) {
        tsr_lower_touch(l, l->held[w]);
        return l->held[w];
    }
    bytes = whole ? l->b->packed_bytes(l->b, op, wd)
                  : l->b->packed_offset(l->b, op, wd, c1) - l->b->packed_offset(l->b, op, wd, c0);
    job.item = tsr_lower_item(l, bytes, TSR_ITEM_WEIGHT);
    tsr_lower_job(l, &job);
    if (whole)
        l->held[w] = job.item;
    return job.item;
}

static void release_weights(tsr_lower *l, const tsr_chain *c)
{
    for (int32_t i = c->a; i <= c->b; i++)
        for (int32_t k = 0; k < 2; k++)
            l->held[l->t->ops[i].w[k]] = 0;
}

/* ------------------------------------------------------------------ one action */

static int32_t work_item(tsr_lower *l, tsr_chain *c, const tsr_op *op, const tsr_window *w)
{
    bool least = l->k->least_work && l->b->least_work;
    size_t bytes = (least ? l->b->least_work : l->b->work_bytes)(l->b, l->t, op, w, l->n_threads);

    if (bytes == 0)
        return 0;
    if (!c->work)
        c->work = tsr_lower_item(l, bytes, TSR_ITEM_WORK);
    tsr_lower_grow(l, c->work, bytes);
    tsr_lower_touch(l, c->work);
    return c->work;
}

static int32_t stats_item(tsr_lower *l, int32_t i)
{
    if (!l->stats[i])
        l->stats[i] =
            tsr_lower_item(l, l->b->stats_bytes(l->b, l->t, &l->t->ops[i]), TSR_ITEM_WORK);
    tsr_lower_touch(l, l->stats[i]);
    return l->stats[i];
}

static tsr_action new_action(tsr_lower *l, tsr_chain *c, int32_t i)
{
    const tsr_op *op = &l->t->ops[i];
    tsr_rows need = c->need[i - c->a];
    tsr_action a = {.op = i, .window = {0, l->t->values[op->out].n, need.begin, need.end, 0, 0}};

    for (int32_t k = 0; k < 4; k++)
        a.in[k] = tsr_lower_read(l, i, k);
    return a;
}

static void lower_op(tsr_lower *l, tsr_chain *c, int32_t i)
{
    const tsr_op *op = &l->t->ops[i];
    int32_t co = l->t->values[op->out].c, piece = piece_channels(l, c, op);

    for (int32_t c0 = 0; c0 < co && l->st == TSR_OK; c0 = piece ? c0 + piece : co) {
        tsr_action a = new_action(l, c, i);

        if (piece) {
            a.window.c0 = c0;
            a.window.c1 = tsr_min_i32(co, c0 + piece);
        }
        if (op->w[0])
            a.w[0] = weight_item(l, op, op->w[0], a.window.c0, a.window.c1);
        if (op->w[1])
            a.w[1] = weight_item(l, op, op->w[1], 0, 0);
        if (op->kind == TSR_OP_GROUP_NORM && l->stats[i])
            a.stats = stats_item(l, i);
        a.work = work_item(l, c, op, &a.window);
        a.out = tsr_lower_write(l, c, i);
        tsr_lower_action(l, &a);
    }
}

/* Statistics of group_norm i over rows `r` of what it reads. */
static void lower_stats(tsr_lower *l, tsr_chain *c, int32_t i, tsr_rows r)
{
    const tsr_op *op = &l->t->ops[i];
    tsr_action a = {
        .op = i, .stats_only = true, .window = {0, l->t->values[op->out].n, r.begin, r.end, 0, 0}};

    for (int32_t k = 0; k < 2; k++)
        a.in[k] = tsr_lower_read(l, i, k);
    a.stats = stats_item(l, i);
    a.work = work_item(l, c, op, &a.window);
    tsr_lower_action(l, &a);
}

/* -------------------------------------------------------- attention by blocks */

/* Keys that a block has: about a strip of K, a multiple of the kernel's block. */
static int32_t keys_a_block(const tsr_lower *l, const tsr_op *op)
{
    const tsr_value *k = &l->t->values[op->in[1]];
    int32_t unit = l->b->kv_block(l->b, l->t, op);
    size_t key = tsr_plan_rows_bytes(k, 1) / (size_t)k->w;
    size_t keys = tsr_max_size(1, l->k->strip_bytes / key / (size_t)unit) * (size_t)unit;

    return (int32_t)tsr_min_size(keys, (size_t)k->h * (size_t)k->w);
}

/* The running maximum, sum and output of all the window's queries, entry by entry. */
static size_t carry_bytes(const tsr_lower *l, const tsr_op *op, const tsr_window *w)
{
    tsr_window one = *w;

    one.n1 = one.n0 + 1;
    return (size_t)(w->n1 - w->n0) * l->b->carry_bytes(l->b, l->t, op, &one);
}

/* Rows of v with tokens [kv0,kv1), through one of its two buffers. */
static tsr_operand load_keys(tsr_lower *l, tsr_val v, tsr_rows tokens, int32_t turn, int32_t issue)
{
    const tsr_value *x = &l->t->values[v];
    tsr_value_state *s = &l->values[v];
    int32_t now = tsr_lower_now(l);
    tsr_operand o = {.row0 = tokens.begin / x->w};
    tsr_job job = {.kind = TSR_JOB_LOAD,
                   .index = v,
                   .a = o.row0,
                   .b = tsr_div_up(tokens.end, x->w),
                   .issue = issue,
                   .due = now,
                   .earliest = issue,
                   .region = s->region};
    size_t bytes;

    o.n_rows = job.b - job.a;
    bytes = tsr_plan_rows_bytes(x, o.n_rows);
    if (!s->strip[turn])
        s->strip[turn] = tsr_lower_item(l, bytes, TSR_ITEM_ACTIVATION);
    o.item = job.item = s->strip[turn];
    tsr_lower_job(l, &job);
    tsr_lower_grow(l, o.item, bytes);
    tsr_lower_touch(l, o.item);
    if (o.item)
        l->plan->items[o.item].first = tsr_min_i32(l->plan->items[o.item].first, issue);
    if (s->region)
        l->plan->regions[s->region].last = now;
    return o;
}

/* Keys and values may be one value or two; only one of them may be in strips. */
static void read_keys(tsr_lower *l, tsr_action *a, int32_t turn, int32_t issue)
{
    const tsr_op *op = &l->t->ops[a->op];

    for (int32_t k = 1; k <= 2; k++) {
        if (l->values[op->in[k]].mode != TSR_MODE_STRIP)
            a->in[k] = tsr_lower_read(l, a->op, k);
        else if (k == 2 && op->in[2] == op->in[1])
            a->in[2] = a->in[1];
        else
            a->in[k] = load_keys(l, op->in[k], (tsr_rows){a->kv0, a->kv1}, turn, issue);
    }
}

static void lower_attention(tsr_lower *l, tsr_chain *c, int32_t i)
{
    const tsr_op *op = &l->t->ops[i];
    int32_t n_keys = l->t->values[op->in[1]].h * l->t->values[op->in[1]].w;
    int32_t block = keys_a_block(l, op), before = tsr_lower_now(l), turn = 0, carry = 0;
    tsr_operand out = {0};

    for (int32_t kv0 = 0; kv0 < n_keys && l->st == TSR_OK; kv0 += block, turn = !turn) {
        tsr_rows need = c->need[i - c->a];
        int32_t now = tsr_lower_now(l);
        tsr_action a = {.op = i,
                        .window = {0, l->t->values[op->out].n, need.begin, need.end, 0, 0},
                        .kv0 = kv0,
                        .kv1 = tsr_min_i32(n_keys - kv0, block) + kv0};

        a.in[0] = tsr_lower_read(l, i, 0);
        read_keys(l, &a, turn, before);
        if (!carry)
            carry = tsr_lower_item(l, carry_bytes(l, op, &a.window), TSR_ITEM_WORK);
        tsr_lower_touch(l, carry);
        a.carry = carry;
        a.work = work_item(l, c, op, &a.window);
        if (kv0 == 0)
            out = tsr_lower_write(l, c, i);
        tsr_lower_touch(l, out.item);
        a.out = out;
        tsr_lower_action(l, &a);
        before = now;
    }
}

/* --------------------------------------------------------------------- chains */

/* The statistics of a group_norm that reads strips alone: from this strip, which was just made. */
static void stats_of_made(tsr_lower *l, tsr_chain *c, int32_t i)
{
    tsr_val v = l->t->ops[i].out;
    const tsr_value_state *s = &l->values[v];

    if (s->mode == TSR_MODE_STRIP && s->norm)
        lower_stats(l, c, s->norm - 1, (tsr_rows){s->row0, s->row0 + s->n_rows});
}

static void lower_window(tsr_lower *l, tsr_chain *c, tsr_rows part)
{
    tsr_chain_needs(l, c, part);
    c->window_time[0] = c->window_time[1];
    c->window_time[1] = tsr_lower_now(l);
    tsr_lower_load_strips(l, c);
    if (c->stats) {
        lower_stats(l, c, c->a, part);
        return;
    }
    for (int32_t i = c->a; i <= c->b && l->st == TSR_OK; i++) {
        if (tsr_lower_keys_in_strips(l, &l->t->ops[i]))
            lower_attention(l, c, i);
        else
            lower_op(l, c, i);
        stats_of_made(l, c, i);
        tsr_lower_written(l, c, i);
    }
}

static void lower_windows(tsr_lower *l, tsr_chain *c)
{
    for (int32_t h = 0; h < c->h && l->st == TSR_OK; h += c->rows, c->n++)
        lower_window(l, c, (tsr_rows){h, tsr_min_i32(c->h - h, c->rows) + h});
    if (!c->stats)
        release_weights(l, c);
    tsr_lower_end_strips(l, c);
}

/* What the group_norms of a chain need before its first window. */
static void sweep_stats(tsr_lower *l, const tsr_chain *c)
{
    for (int32_t i = c->a; i <= c->b; i++) {
        const tsr_op *op = &l->t->ops[i];
        bool strips = l->values[op->in[0]].mode == TSR_MODE_STRIP ||
                      (op->in[1] && l->values[op->in[1]].mode == TSR_MODE_STRIP);
        tsr_chain sweep = {.a = i, .b = i, .h = c->h, .rows = c->rows, .stats = true};

        if (op->kind != TSR_OP_GROUP_NORM || l->stats[i] || !(c->windowed || strips))
            continue;
        sweep.h = l->t->values[op->out].h;
        sweep.windowed = strips;
        if (!strips)
            sweep.rows = sweep.h;
        lower_windows(l, &sweep);
    }
}

tsr_status tsr_lower_all(tsr_lower *l)
{
    int32_t n = (int32_t)l->t->n_ops;

    l->section_time = 1;
    tsr_lower_values(l);
    for (int32_t i = 0; i < n && l->st == TSR_OK;) {
        tsr_chain c;
        if (i == l->t->loop_begin)
            tsr_lower_begin_loop(l);
        c = tsr_lower_next_chain(l, i);
        sweep_stats(l, &c);
        lower_windows(l, &c);
        i = c.b + 1;
    }
    if (l->t->loop_begin >= n)
        tsr_lower_begin_loop(l);
    return l->st;
}
