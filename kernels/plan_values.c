/* plan_values.c -- where values are while they are needed.
 *
 *   whole    one item from its making to its last use. Where an op adds or normalises element by
 *            element and its input dies, the output takes the input's item. A value that rests for
 *            long is parked: written to the spill file after one use, read back before the next.
 *   window   made and read inside a chain: rows of one window.
 *   strip    lives in the spill file; each window reads its rows (with halo) or writes them
 *            through two buffers in turn, so that the I/O thread works beside the compute threads.
 *
 * Jobs are executed in order of issue, so a load that is issued after a store may read what it
 * wrote; only the compute threads have to wait, before they write into a buffer that is still being
 * stored (`due`). */
#include "kernels/plan_internal.h"

/* -------------------------------------------------------------------- modes */

static bool may_be_strip(const tsr_lower *l, tsr_val v)
{
    const tsr_value *x = &l->t->values[v];

    return x->kind == TSR_VALUE_TEMP && !tsr_lower_is_kept(l->t, v) && x->last > x->first &&
           tsr_value_bytes(x) > l->k->strip_above && tsr_plan_has_windows(&l->t->ops[x->first]);
}

static bool reads_strips(const tsr_lower *l, const tsr_op *op, int32_t k)
{
    if (op->kind == TSR_OP_ATTENTION && k > 0)
        return l->k->strip_keys && op->in[k] != op->in[0];
    return tsr_plan_has_windows(op) && tsr_plan_reach(l->t, op, k) != TSR_REACH_WHOLE;
}

static void choose_modes(tsr_lower *l)
{
    for (size_t v = 1; v < l->t->n_values; v++)
        if (may_be_strip(l, (tsr_val)v))
            l->values[v].mode = TSR_MODE_STRIP;
    for (size_t i = 0; i < l->t->n_ops; i++) {
        const tsr_op *op = &l->t->ops[i];
        for (int32_t k = 0; k < 4; k++)
            if (op->in[k] && !reads_strips(l, op, k))
                l->values[op->in[k]].mode = TSR_MODE_WHOLE;
    }
    for (size_t i = 0; i < l->t->n_ops; i++) {
        const tsr_op *op = &l->t->ops[i];
        tsr_value_state *s = &l->values[op->in[0]];
        if (op->kind == TSR_OP_GROUP_NORM && !op->in[1] && s->mode == TSR_MODE_STRIP && !s->norm)
            s->norm = (int32_t)i + 1;
    }
}

void tsr_lower_values(tsr_lower *l)
{
    choose_modes(l);
    for (size_t v = 1; v < l->t->n_values; v++) {
        const tsr_value *x = &l->t->values[v];
        tsr_value_state *s = &l->values[v];

        s->kept = x->kind != TSR_VALUE_VIEW && tsr_lower_is_kept(l->t, (tsr_val)v);
        s->across = s->kept && l->k->spill_prologue && x->kind == TSR_VALUE_TEMP && !x->is_output;
        s->kept = s->kept && !s->across;
        if (x->kind != TSR_VALUE_INPUT)
            continue;
        s->item = tsr_lower_item(l, tsr_value_bytes(x), TSR_ITEM_STATE);
        l->plan->value_item[v] = s->item;
        if (s->kept && s->item)
            l->plan->items[s->item].last = TSR_TO_THE_END;
    }
}

/* -------------------------------------------------------------- whole values */

static tsr_value_state *spilled_state(const tsr_lower *l, tsr_val v)
{
    const tsr_value *x = &l->t->values[v];

    return &l->values[x->kind == TSR_VALUE_VIEW ? x->base : v];
}

/* Its item is free after the last use; what was stored once is not stored again. */
static void park(tsr_lower *l, tsr_val v)
{
    tsr_value_state *s = &l->values[v], *file = spilled_state(l, v);
    int32_t after = s->last_time + 1;
    tsr_job job = {.kind = TSR_JOB_STORE,
                   .index = v,
                   .item = s->item,
                   .b = l->t->values[v].h,
                   .issue = after,
                   .due = after};

    if (!file->region) {
        file->region = job.region = tsr_lower_region(l, v);
        file->stored_at = after;
        if (!job.region || tsr_lower_job(l, &job) < 0)
            return;
        l->plan->regions[job.region].first = after;
        l->plan->items[s->item].last = tsr_max_i32(l->plan->items[s->item].last, after);
    }
    s->item = 0;
}

static void fetch(tsr_lower *l, tsr_val v)
{
    const tsr_value *x = &l->t->values[v];
    tsr_value_state *s = &l->values[v], *file = spilled_state(l, v);
    int32_t now = tsr_lower_now(l);
    tsr_job job = {.kind = TSR_JOB_LOAD,
                   .index = v,
                   .b = x->h,
                   .issue = now,
                   .due = now,
                   .earliest = tsr_max_i32(l->section_time, file->stored_at),
                   .region = file->region};

    s->item = job.item = tsr_lower_item(l, tsr_value_bytes(x), TSR_ITEM_ACTIVATION);
    if (tsr_lower_job(l, &job) >= 0 && job.region)
        l->plan->regions[job.region].last = tsr_max_i32(l->plan->regions[job.region].last, now);
}

static bool rests(const tsr_lower *l, tsr_val v, int32_t op)
{
    const tsr_value *x = &l->t->values[v];
    const tsr_value_state *s = &l->values[v];

    return l->k->gap_ops > 0 && x->kind != TSR_VALUE_INPUT && !s->kept &&
           op - s->last_op > l->k->gap_ops && tsr_value_bytes(x) >= l->k->gap_bytes;
}

static tsr_operand whole(tsr_lower *l, tsr_val v, int32_t op)
{
    const tsr_value *x = &l->t->values[v];
    tsr_value_state *s = &l->values[v];
    tsr_operand o = {.n_rows = x->h};

    if (x->kind == TSR_VALUE_VIEW && !l->values[x->base].across) {
        s = &l->values[x->base];
        o.of_step = true;
    } else {
        if (s->item && rests(l, v, op))
            park(l, v);
        if (!s->item)
            fetch(l, v);
    }
    tsr_lower_touch(l, s->item);
    s->last_op = op;
    s->last_time = tsr_lower_now(l);
    o.item = s->item;
    return o;
}

void tsr_lower_begin_loop(tsr_lower *l)
{
    for (size_t v = 1; v < l->t->n_values && l->st == TSR_OK; v++) {
        if (!l->values[v].across || !l->values[v].item)
            continue;
        park(l, (tsr_val)v);
        if (l->values[v].region)
            l->plan->regions[l->values[v].region].last = TSR_TO_THE_END;
    }
    l->in_loop = true;
    l->section_time = tsr_lower_now(l);
    l->plan->loop_action = (int32_t)l->plan->n_actions;
}

/* ------------------------------------------------------------------ in place */

static int32_t times_read(const tsr_op *op, tsr_val v)
{
    int32_t n = 0;

    for (int32_t k = 0; k < 4; k++)
        n += op->in[k] == v;
    return n;
}

/* Operands that are read where the output is written, element by element. */
static bool in_place_operand(const tsr_op *op, int32_t k)
{
    switch (op->kind) {
    case TSR_OP_GROUP_NORM:
        return k == 0 && !op->in[1];
    case TSR_OP_LAYER_NORM:
    case TSR_OP_ATTENTION:
        return k == 0;
    case TSR_OP_ADD:
        return k <= 1;
    case TSR_OP_CONV2D:
    case TSR_OP_LINEAR:
        return k == 3;
    default:
        return false;
    }
}

static bool may_be_in_place(const tsr_lower *l, const tsr_op *op)
{
    return !l->b->in_place || l->b->in_place(l->b, l->t, op);
}

static bool same_size(const tsr_value *a, const tsr_value *b)
{
    return a->dtype == b->dtype && tsr_value_bytes(a) == tsr_value_bytes(b);
}

/* The item of an input that dies at op i and whose place the output may take; 0: none. */
static int32_t dying_item(const tsr_lower *l, const tsr_chain *c, int32_t i)
{
    const tsr_op *op = &l->t->ops[i];
    const tsr_value *out = &l->t->values[op->out];

    for (int32_t k = 0; k < 4 && may_be_in_place(l, op); k++) {
        tsr_val v = op->in[k];
        const tsr_value *x = &l->t->values[v];
        const tsr_value_state *s = &l->values[v];

        if (!v || !in_place_operand(op, k) || x->kind != TSR_VALUE_TEMP || x->last != i ||
            s->mode != TSR_MODE_WHOLE || s->kept || s->across || !s->item ||
            times_read(op, v) > 1 || !same_size(x, out))
            continue;
        if (!c->windowed || tsr_chain_reads_exactly(l, c, v))
            return s->item;
    }
    return 0;
}

/* The same for a strip: the residual's buffer of this window, which nobody reads afterwards. */
static int32_t dying_strip(const tsr_lower *l, const tsr_chain *c, int32_t i)
{
    const tsr_op *op = &l->t->ops[i];
    tsr_val v = op->in[3];
    const tsr_value_state *s = &l->values[v];
    bool matrix = op->kind == TSR_OP_CONV2D || op->kind == TSR_OP_LINEAR;

    if (!matrix || !v || !may_be_in_place(l, op) || s->mode != TSR_MODE_STRIP ||
        s->window != c->n + 1 || times_read(op, v) > 1 ||
        !same_size(&l->t->values[v], &l->t->values[op->out]) || !tsr_chain_reads_exactly(l, c, v))
        return 0;
    for (int32_t j = i + 1; j <= c->b; j++)
        if (times_read(&l->t->ops[j], v))
            return 0;
    return s->item;
}

/* ------------------------------------------------------------------- operands */

tsr_operand tsr_lower_read(tsr_lower *l, int32_t op, int32_t k)
{
    tsr_val v = l->t->ops[op].in[k];
    tsr_value_state *s = &l->values[v];

    if (!v)
        return (tsr_operand){0};
    if (s->mode == TSR_MODE_WHOLE)
        return whole(l, v, op);
    tsr_lower_touch(l, s->item);
    return (tsr_operand){.item = s->item, .row0 = s->row0, .n_rows = s->n_rows};
}

static void write_whole(tsr_lower *l, const tsr_chain *c, int32_t op, tsr_val v)
{
    tsr_value_state *s = &l->values[v];
    const tsr_value *x = &l->t->values[v];

    if (!s->item)
        s->item = dying_item(l, c, op);
    if (!s->item)
        s->item =
            tsr_lower_item(l, tsr_value_bytes(x), s->kept ? TSR_ITEM_STATE : TSR_ITEM_ACTIVATION);
    if (s->kept && s->item)
        l->plan->items[s->item].last = TSR_TO_THE_END;
    l->plan->value_item[v] = s->item;
    s->row0 = 0;
    s->n_rows = x->h;
    s->last_op = op;
    s->last_time = tsr_lower_now(l);
}

static void write_strip(tsr_lower *l, const tsr_chain *c, int32_t op, tsr_val v, size_t bytes)
{
    tsr_value_state *s = &l->values[v];
    int32_t turn = c->n & 1, now = tsr_lower_now(l);
    int32_t taken = dying_strip(l, c, op);

    if (!taken && s->store[turn])
        l->plan->jobs[s->store[turn] - 1].due = now - 1;
    if (!taken && !s->strip[turn])
        s->strip[turn] = tsr_lower_item(l, bytes, TSR_ITEM_ACTIVATION);
    s->item = taken ? taken : s->strip[turn];
    tsr_lower_grow(l, s->item, bytes);
}

tsr_operand tsr_lower_write(tsr_lower *l, const tsr_chain *c, int32_t op)
{
    tsr_val v = l->t->ops[op].out;
    tsr_value_state *s = &l->values[v];
    tsr_rows need = c->need[op - c->a];
    size_t bytes = tsr_plan_rows_bytes(&l->t->values[v], need.end - need.begin);

    if (c->windowed && tsr_chain_internal(l, c, v))
        s->mode = TSR_MODE_WINDOW;
    if (s->mode == TSR_MODE_WHOLE) {
        write_whole(l, c, op, v);
    } else {
        if (s->mode == TSR_MODE_STRIP)
            write_strip(l, c, op, v, bytes);
        else if (!s->item)
            s->item = tsr_lower_item(l, bytes, TSR_ITEM_ACTIVATION);
        tsr_lower_grow(l, s->item, bytes);
        s->row0 = need.begin;
        s->n_rows = need.end - need.begin;
    }
    tsr_lower_touch(l, s->item);
    return (tsr_operand){.item = s->item, .row0 = s->row0, .n_rows = s->n_rows};
}

/* --------------------------------------------------------------------- strips */

void tsr_lower_written(tsr_lower *l, const tsr_chain *c, int32_t op)
{
    tsr_val v = l->t->ops[op].out;
    tsr_value_state *s = &l->values[v];
    int32_t now = tsr_lower_now(l), index;
    tsr_job job = {.kind = TSR_JOB_STORE,
                   .index = v,
                   .item = s->item,
                   .a = s->row0,
                   .b = s->row0 + s->n_rows,
                   .issue = now,
                   .due = TSR_TO_THE_END};

    if (s->mode != TSR_MODE_STRIP)
        return;
    if (!s->region)
        s->region = tsr_lower_region(l, v);
    job.region = s->region;
    index = tsr_lower_job(l, &job);
    s->store[c->n & 1] = index + 1;
    s->stored_at = now;
    if (s->region)
        l->plan->regions[s->region].last = now;
}

/* The rows of v that the window needs, of all the chain's ops. */
static tsr_rows rows_of_window(const tsr_lower *l, const tsr_chain *c, tsr_val v)
{
    tsr_rows all = {INT32_MAX, 0};

    for (int32_t i = c->a; i <= c->b; i++) {
        const tsr_op *op = &l->t->ops[i];
        for (int32_t k = 0; k < 4; k++) {
            tsr_rows one;
            if (op->in[k] != v || tsr_plan_reach(l->t, op, k) == TSR_REACH_WHOLE)
                continue;
            one = tsr_plan_rows_read(l->b, l->t, op, k, c->need[i - c->a]);
            all.begin = tsr_min_i32(all.begin, one.begin);
            all.end = tsr_max_i32(all.end, one.end);
        }
    }
    return all;
}

static void load_strip(tsr_lower *l, const tsr_chain *c, tsr_val v)
{
    tsr_value_state *s = &l->values[v];
    tsr_rows r = rows_of_window(l, c, v);
    size_t bytes = tsr_plan_rows_bytes(&l->t->values[v], r.end - r.begin);
    int32_t turn = c->n & 1, now = tsr_lower_now(l), issue = c->n ? c->window_time[0] : now;
    tsr_job job = {.kind = TSR_JOB_LOAD,
                   .index = v,
                   .a = r.begin,
                   .b = r.end,
                   .issue = issue,
                   .due = now,
                   .earliest = issue,
                   .region = s->region};

    if (!s->strip[turn])
        s->strip[turn] = tsr_lower_item(l, bytes, TSR_ITEM_ACTIVATION);
    s->item = job.item = s->strip[turn];
    if (tsr_lower_job(l, &job) < 0 || !s->item)
        return;
    tsr_lower_grow(l, s->item, bytes);
    tsr_lower_touch(l, s->item);
    l->plan->items[s->item].first = tsr_min_i32(l->plan->items[s->item].first, issue);
    if (s->region)
        l->plan->regions[s->region].last = now;
    s->row0 = r.begin;
    s->n_rows = r.end - r.begin;
    s->window = c->n + 1;
}

void tsr_lower_load_strips(tsr_lower *l, const tsr_chain *c)
{
    for (int32_t i = c->a; i <= c->b; i++) {
        const tsr_op *op = &l->t->ops[i];
        for (int32_t k = 0; k < 4 && l->st == TSR_OK; k++) {
            tsr_val v = op->in[k];
            bool made =
                v && l->t->values[v].first >= c->a && l->t->values[v].kind == TSR_VALUE_TEMP;

            if (v && !made && l->values[v].mode == TSR_MODE_STRIP &&
                l->values[v].window != c->n + 1 && tsr_plan_reach(l->t, op, k) != TSR_REACH_WHOLE)
                load_strip(l, c, v);
        }
    }
}

/* What was written last is stored while the next action runs. */
static void forget(tsr_lower *l, tsr_val v)
{
    tsr_value_state *s = &l->values[v];

    for (int32_t i = 0; i < 2; i++) {
        if (s->store[i] && l->plan->jobs[s->store[i] - 1].due == TSR_TO_THE_END) {
            l->plan->jobs[s->store[i] - 1].due = tsr_lower_now(l);
            tsr_lower_touch(l, l->plan->jobs[s->store[i] - 1].item);
        }
        s->store[i] = s->strip[i] = 0;
    }
    s->item = s->window = 0;
}

void tsr_lower_end_strips(tsr_lower *l, const tsr_chain *c)
{
    for (int32_t i = c->a; i <= c->b; i++) {
        const tsr_op *op = &l->t->ops[i];
        if (l->values[op->out].mode != TSR_MODE_WHOLE)
            forget(l, op->out);
        for (int32_t k = 0; k < 4; k++)
            if (op->in[k] && l->values[op->in[k]].mode != TSR_MODE_WHOLE)
                forget(l, op->in[k]);
    }
}
