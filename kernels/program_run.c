/* program_run.c -- the executor: walks a section of the tape, op by op, window by window.
 *
 * For each op it looks up the operands' addresses, hands windows of `window_rows` output rows to
 * the backend (all entries at once), and goes on. Operands are whole values today, so a window
 * changes what is computed at once and nothing else. A step view is its base from entry step * n.
 *
 * Operands that an op adds element by element (residuals, the second summand) may be recorded
 * with tokens where the output is an image, or the other way round; kernels see them with the
 * output's rows. Debug builds overwrite every value with NaN patterns after its last use. */
#include "kernels/program_internal.h"

static tsr_tensor tensor_of(const tsr_program *p, tsr_val v, int32_t step)
{
    const tsr_value *x = &p->tape->values[v];
    tsr_tensor t = {.n = x->n, .h = x->h, .w = x->w, .c = x->c, .n_rows = x->h, .dtype = x->dtype};

    t.row_stride = (size_t)x->w * (size_t)x->c * tsr_dtype_size(x->dtype);
    t.entry_stride = t.row_stride * (size_t)x->h;
    t.data = tsr_program_data(p, v);
    if (x->kind == TSR_VALUE_VIEW)
        t.data = (unsigned char *)t.data + (size_t)step * (size_t)x->n * t.entry_stride;
    return t;
}

/* The same pixels in the rows of `like`. */
static void reshape_rows(tsr_tensor *t, const tsr_tensor *like)
{
    t->h = t->n_rows = like->h;
    t->w = like->w;
    t->row_stride = (size_t)t->w * (size_t)t->c * tsr_dtype_size(t->dtype);
}

static tsr_call place_call(const tsr_program *p, int32_t i, int32_t step)
{
    const tsr_tape *t = p->tape;
    const tsr_op *op = &t->ops[i];
    tsr_call call = {.op = op, .pool = p->pool, .work_bytes = p->work[i].bytes};

    call.out = tensor_of(p, op->out, step);
    for (int32_t k = 0; k < 4; k++) {
        if (!op->in[k])
            continue;
        call.in[k] = tensor_of(p, op->in[k], step);
        if (k == 3 || (k == 1 && op->kind == TSR_OP_ADD))
            reshape_rows(&call.in[k], &call.out);
    }
    for (int32_t k = 0; k < 2; k++) {
        if (!op->w[k])
            continue;
        call.wd[k] = &t->weights[op->w[k]];
        call.w[k] = tsr_program_at(p, p->weights[op->w[k]].offset, p->weights[op->w[k]].bytes);
    }
    if (call.work_bytes)
        call.work = tsr_program_at(p, p->work[i].offset, call.work_bytes);
    return call;
}

static void run_op(tsr_program *p, int32_t i, int32_t step)
{
    tsr_call call = place_call(p, i, step);
    int32_t rows = p->window_rows[i] ? p->window_rows[i] : call.out.h;

    call.window.n1 = call.out.n;
    for (int32_t h = 0; h < call.out.h; h += rows) {
        call.window.h0 = h;
        call.window.h1 = tsr_min_i32(rows, call.out.h - h) + h;
        p->backend->run(p->backend, &call);
    }
}

static void poison(const tsr_program *p, const tsr_place *place)
{
    tsr_arena_poison(p->arena, p->arena_base + place->offset, place->bytes);
}

/* Debug builds: what op i was the last to need is no more. What lives to the end is kept. */
static void poison_dead(const tsr_program *p, int32_t i)
{
    const tsr_tape *t = p->tape;

    if (!TSR_PROGRAM_CHECKED)
        return;
    for (size_t v = 1; v < t->n_values && (size_t)i + 1 < t->n_ops; v++)
        if (t->values[v].kind != TSR_VALUE_VIEW &&
            tsr_program_value_life(t, (tsr_val)v).last == i + 1)
            poison(p, &p->values[v]);
    poison(p, &p->work[i]);
}

/* Every step view has entries for this step. */
static tsr_status check_step(const tsr_program *p, int32_t step)
{
    if (!p->arena)
        TSR_FAIL(p->err, TSR_E_INTERNAL, "a program is run before it has memory");
    for (size_t v = 1; v < p->tape->n_values; v++) {
        const tsr_value *x = &p->tape->values[v];
        if (x->kind == TSR_VALUE_VIEW && (step < 0 || step >= p->tape->values[x->base].n / x->n))
            TSR_FAIL(p->err, TSR_E_INTERNAL, "%s has no entries for step %d",
                     x->name ? x->name : "a value", step);
    }
    return TSR_OK;
}

static void run_section(tsr_program *p, int32_t begin, int32_t end, int32_t step)
{
    for (int32_t i = begin; i < end; i++) {
        run_op(p, i, step);
        poison_dead(p, i);
    }
}

tsr_status tsr_program_run_prologue(tsr_program *p)
{
    TSR_TRY(check_step(p, 0));
    run_section(p, 0, p->tape->loop_begin, 0);
    return TSR_OK;
}

tsr_status tsr_program_run_step(tsr_program *p, int32_t step)
{
    TSR_TRY(check_step(p, step));
    run_section(p, p->tape->loop_begin, (int32_t)p->tape->n_ops, step);
    p->n_steps_run++;
    return TSR_OK;
}

bool tsr_program_finite(const tsr_program *p, tsr_val v)
{
    tsr_tensor x = tensor_of(p, v, 0);

    return p->backend->all_finite(p->backend, &x, p->pool);
}

const char *tsr_program_find_overflow(tsr_program *p, bool loop, int32_t step)
{
    int32_t begin = loop ? p->tape->loop_begin : 0;
    int32_t end = loop ? (int32_t)p->tape->n_ops : p->tape->loop_begin;

    for (int32_t i = begin; i < end; i++) {
        tsr_tensor out;
        run_op(p, i, step);
        out = tensor_of(p, p->tape->ops[i].out, step);
        if (!p->backend->all_finite(p->backend, &out, p->pool))
            return p->tape->ops[i].name;
        poison_dead(p, i);
    }
    return NULL;
}
