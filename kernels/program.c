/* program.c -- from a tape to a plan: what needs memory, when, and where.
 *
 * Items for the planner, in this order: every value that is no view, every used weight, every op's
 * scratch, and the staging place. Lifetimes in the plan's time (0 loading, op i is i + 1):
 *
 *     weight                        the whole program
 *     scratch of op i               i + 1
 *     staging                       0, so activations take its place
 *     value made by op i            i + 1 .. last use
 *       made before the loop, used in it          .. the end (every step needs it again)
 *       output                                    .. the end
 *     input                         1 .. last use (the caller fills it before op 0)
 *       used in the loop                          .. the end
 *
 * Nothing is allocated after tsr_program_make. The hash covers every decision: two plans with the
 * same hash put the same things in the same places. */
#include "kernels/program_internal.h"

#include "base/alloc.h"
#include "base/text_util.h"

enum { READ_TARGET = 1 << 20 }; /* staging bytes that one read aims at */

tsr_lifetime tsr_program_value_life(const tsr_tape *t, tsr_val v)
{
    const tsr_value *x = &t->values[v];
    int32_t end = (int32_t)t->n_ops;
    tsr_lifetime life = {x->first + 1, x->last + 1};
    bool before_loop = x->kind == TSR_VALUE_INPUT || x->first < t->loop_begin;
    bool in_loop = x->last >= t->loop_begin;

    if (x->is_output || (before_loop && in_loop))
        life.last = tsr_max_i32(end, life.first);
    return life;
}

tsr_panels tsr_program_panels(const tsr_program *p, const tsr_weight *w)
{
    const tsr_op *op = &p->tape->ops[w->first];
    tsr_panels s = {.n_rows = w->dims[0], .row_elements = 1};
    size_t file_size = w->file_dtype == TSR_F32 ? 0 : tsr_dtype_size(w->file_dtype);
    size_t row_bytes, panels;

    for (int32_t i = 1; i < w->n_dims; i++)
        s.row_elements *= (size_t)w->dims[i];
    s.panel_rows = p->backend->panel_rows(p->backend, op, w);
    row_bytes = s.row_elements * (file_size + sizeof(float));
    panels = tsr_max_size(1, READ_TARGET / (row_bytes * (size_t)s.panel_rows));
    panels = tsr_min_size(panels, (size_t)tsr_div_up(s.n_rows, s.panel_rows));
    s.rows_a_read = tsr_min_i32((int32_t)panels * s.panel_rows, s.n_rows);
    s.raw_bytes = tsr_align_up(s.row_elements * (size_t)s.rows_a_read * file_size, TSR_PLAN_ALIGN);
    s.staging_bytes = s.raw_bytes + s.row_elements * (size_t)s.rows_a_read * sizeof(float);
    return s;
}

static tsr_item item(size_t bytes, int32_t first, int32_t last, tsr_item_class cls)
{
    return (tsr_item){
        .bytes = tsr_align_up(bytes, TSR_PLAN_ALIGN), .first = first, .last = last, .cls = cls};
}

static tsr_item value_item(const tsr_tape *t, tsr_val v)
{
    const tsr_value *x = &t->values[v];
    tsr_lifetime life = tsr_program_value_life(t, v);
    bool kept = x->kind == TSR_VALUE_INPUT || life.last > x->last + 1;

    if (x->kind == TSR_VALUE_VIEW)
        return item(0, 1, 1, TSR_ITEM_ACTIVATION);
    return item(tsr_value_bytes(x), life.first, life.last,
                kept ? TSR_ITEM_STATE : TSR_ITEM_ACTIVATION);
}

static tsr_item weight_item(const tsr_program *p, const tsr_weight *w)
{
    const tsr_backend *b = p->backend;
    size_t bytes = w->first < 0 ? 0 : b->packed_bytes(b, &p->tape->ops[w->first], w);

    return item(bytes, 0, (int32_t)p->tape->n_ops, TSR_ITEM_WEIGHT);
}

/* Scratch of the largest window of the op, and of the last one, which may be cut differently. */
static tsr_item work_item(const tsr_program *p, int32_t i)
{
    const tsr_backend *b = p->backend;
    const tsr_op *op = &p->tape->ops[i];
    const tsr_value *out = &p->tape->values[op->out];
    int32_t rows = p->window_rows[i] ? tsr_min_i32(p->window_rows[i], out->h) : out->h;
    int32_t tail = (out->h - 1) / rows * rows, threads = tsr_pool_threads(p->pool);
    tsr_window first = {0, out->n, 0, rows}, last = {0, out->n, tail, out->h};
    size_t bytes = b->work_bytes(b, p->tape, op, &first, threads);

    bytes = tsr_max_size(bytes, b->work_bytes(b, p->tape, op, &last, threads));
    return item(bytes, i + 1, i + 1, TSR_ITEM_WORK);
}

static size_t n_items(const tsr_tape *t)
{
    return t->n_values + t->n_weights + t->n_ops + 1;
}

static void list_items(tsr_program *p, tsr_item *items)
{
    const tsr_tape *t = p->tape;
    tsr_item none = item(0, 0, 0, TSR_ITEM_ACTIVATION);

    p->staging_bytes = 0;
    *items++ = none;
    for (size_t v = 1; v < t->n_values; v++)
        *items++ = value_item(t, (tsr_val)v);
    *items++ = none;
    for (size_t w = 1; w < t->n_weights; w++) {
        *items++ = weight_item(p, &t->weights[w]);
        if (t->weights[w].first >= 0)
            p->staging_bytes =
                tsr_max_size(p->staging_bytes, tsr_program_panels(p, &t->weights[w]).staging_bytes);
    }
    for (size_t i = 0; i < t->n_ops; i++)
        *items++ = work_item(p, (int32_t)i);
    *items = item(p->staging_bytes, 0, 0, TSR_ITEM_WORK);
}

static void take_places(tsr_place *places, size_t n, const tsr_item *items)
{
    for (size_t i = 0; i < n; i++)
        places[i] = (tsr_place){TSR_PLACE_RESIDENT, items[i].offset, items[i].bytes};
}

static void take_layout(tsr_program *p, const tsr_item *items)
{
    const tsr_tape *t = p->tape;
    size_t at = 0;

    take_places(p->values, t->n_values, items);
    at += t->n_values;
    take_places(p->weights, t->n_weights, items + at);
    at += t->n_weights;
    take_places(p->work, t->n_ops, items + at);
    at += t->n_ops;
    p->staging_offset = items[at].offset;
    p->staging_bytes = items[at].bytes;
    for (size_t v = 1; v < t->n_values; v++)
        if (t->values[v].kind == TSR_VALUE_VIEW)
            p->values[v] = p->values[t->values[v].base];
}

static uint64_t hash_places(const tsr_place *places, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t fields[3] = {(uint64_t)places[i].placement, places[i].offset, places[i].bytes};
        h = tsr_fnv1a64(fields, sizeof fields, h);
    }
    return h;
}

static uint64_t hash_plan(const tsr_program *p)
{
    uint64_t ends[3] = {p->staging_offset, p->staging_bytes, p->layout.peak_bytes};
    uint64_t h = tsr_fnv1a64(ends, sizeof ends, TSR_FNV_SEED);

    h = hash_places(p->values, p->tape->n_values, h);
    h = hash_places(p->weights, p->tape->n_weights, h);
    h = hash_places(p->work, p->tape->n_ops, h);
    return tsr_fnv1a64(p->window_rows, p->tape->n_ops * sizeof *p->window_rows, h);
}

/* A lifetime bug shows as a wrong picture, rarely: debug builds prove the plan instead. */
static tsr_status check_plan(const tsr_program *p, const tsr_item *items)
{
    size_t a, b;

    if (TSR_PROGRAM_CHECKED && tsr_plan_find_overlap(items, n_items(p->tape), &a, &b))
        TSR_FAIL(p->err, TSR_E_INTERNAL, "items %zu and %zu of the plan overlap", a, b);
    return TSR_OK;
}

tsr_status tsr_program_make(tsr_program *p, tsr_tape *t, const tsr_backend *b, tsr_pool *pool,
                            tsr_err *err)
{
    tsr_program made = {.tape = t, .backend = b, .pool = pool, .err = err};
    tsr_item *items = tsr_calloc(n_items(t), sizeof *items);
    tsr_status st = TSR_OK;

    made.values = tsr_calloc(t->n_values, sizeof *made.values);
    made.weights = tsr_calloc(t->n_weights, sizeof *made.weights);
    made.work = tsr_calloc(t->n_ops + 1, sizeof *made.work);
    made.window_rows = tsr_calloc(t->n_ops + 1, sizeof *made.window_rows);
    if (!items || !made.values || !made.weights || !made.work || !made.window_rows) {
        st = tsr_err_set(err, TSR_E_OOM, "no memory for the tables of the plan");
        goto done;
    }
    list_items(&made, items);
    TSR_TRY_GOTO(tsr_plan_offsets(items, n_items(t), &made.layout, err));
    TSR_TRY_GOTO(check_plan(&made, items));
    take_layout(&made, items);
    made.hash = hash_plan(&made);
    *p = made;
done:
    tsr_free(items);
    if (st != TSR_OK)
        tsr_program_free(&made);
    return st;
}

void tsr_program_free(tsr_program *p)
{
    if (!p)
        return;
    tsr_free(p->values);
    tsr_free(p->weights);
    tsr_free(p->work);
    tsr_free(p->window_rows);
    *p = (tsr_program){0};
}

size_t tsr_program_bytes(const tsr_program *p)
{
    return p->layout.peak_bytes;
}

double tsr_program_flops(const tsr_program *p, bool loop)
{
    size_t split = (size_t)p->tape->loop_begin;
    double sum = 0;

    for (size_t i = loop ? split : 0; i < (loop ? p->tape->n_ops : split); i++)
        sum += tsr_op_flops(p->tape, &p->tape->ops[i]);
    return sum;
}

void *tsr_program_at(const tsr_program *p, size_t offset, size_t bytes)
{
    return tsr_arena_use(p->arena, p->arena_base + offset, bytes);
}

void tsr_program_bind(tsr_program *p, tsr_arena *arena, size_t base)
{
    p->arena = arena;
    p->arena_base = base;
    if (TSR_PROGRAM_CHECKED)
        tsr_arena_poison(arena, base, p->layout.peak_bytes); /* the gaps stay so */
}

void *tsr_program_data(const tsr_program *p, tsr_val v)
{
    return tsr_program_at(p, p->values[v].offset, p->values[v].bytes);
}
