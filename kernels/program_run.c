/* program_run.c -- the executor: walks a section of the plan, action by action.
 *
 * Before each action it waits for stores whose buffers may be written from now on, hands the I/O
 * thread the jobs that the plan wants issued here, and waits for the loads that the action needs;
 * then it looks up the operands' addresses and calls the backend. A section ends with nothing in
 * flight, also when it fails.
 *
 * A step view is its base from entry step * n. Operands that an op adds element by element
 * (residuals, the second summand) may be recorded with tokens where the output is an image, or the
 * other way round; kernels see them with the output's rows. Debug builds overwrite every item with
 * NaN patterns after its last use. */
#include "kernels/program_internal.h"

static tsr_tensor tensor_of(const tsr_program *p, tsr_val v, const tsr_operand *o, int32_t step)
{
    const tsr_value *x = &p->tape->values[v];
    tsr_tensor t = {.n = x->n,
                    .h = x->h,
                    .w = x->w,
                    .c = x->c,
                    .row0 = o->row0,
                    .n_rows = o->n_rows,
                    .dtype = x->dtype};

    t.row_stride = (size_t)x->w * (size_t)x->c * tsr_dtype_size(x->dtype);
    t.entry_stride = t.row_stride * (size_t)o->n_rows;
    t.data = tsr_program_item(p, o->item);
    if (o->of_step)
        t.data = (unsigned char *)t.data + (size_t)step * (size_t)x->n * t.entry_stride;
    return t;
}

/* The same pixels in the rows of `like`; both are whole. */
static void reshape_rows(tsr_tensor *t, const tsr_tensor *like)
{
    if (t->h == like->h && t->w == like->w)
        return;
    t->h = t->n_rows = like->h;
    t->w = like->w;
    t->row_stride = (size_t)t->w * (size_t)t->c * tsr_dtype_size(t->dtype);
}

/* A resident matrix is whole: the window's piece begins inside it. */
static void *weight_of(const tsr_program *p, const tsr_action *a, int32_t k)
{
    const tsr_op *op = &p->tape->ops[a->op];
    const tsr_backend *b = p->backend;
    unsigned char *data = tsr_program_item(p, a->w[k]);

    if (k == 0 && a->window.c0 > 0 && a->w[0] == p->plan.weight_item[op->w[0]])
        data += b->packed_offset(b, op, &p->tape->weights[op->w[0]], a->window.c0);
    return data;
}

tsr_call tsr_program_call(const tsr_program *p, const tsr_action *a, int32_t step)
{
    const tsr_tape *t = p->tape;
    const tsr_op *op = &t->ops[a->op];
    tsr_call call = {.op = op,
                     .window = a->window,
                     .stats = tsr_program_item(p, a->stats),
                     .carry = tsr_program_item(p, a->carry),
                     .kv0 = a->kv0,
                     .kv1 = a->kv1,
                     .work = tsr_program_item(p, a->work),
                     .work_bytes = p->plan.items[a->work].bytes,
                     .pool = p->pool};

    call.out = tensor_of(p, op->out, &a->out, step);
    for (int32_t k = 0; k < 4; k++) {
        if (!a->in[k].item)
            continue;
        call.in[k] = tensor_of(p, op->in[k], &a->in[k], step);
        if (k == 3 || (k == 1 && op->kind == TSR_OP_ADD))
            reshape_rows(&call.in[k], &call.out);
    }
    for (int32_t k = 0; k < 2; k++) {
        if (!a->w[k])
            continue;
        call.wd[k] = &t->weights[op->w[k]];
        call.w[k] = weight_of(p, a, k);
    }
    return call;
}

/* The rows that the action has made are finite. */
static bool made_finite(const tsr_program *p, const tsr_action *a, int32_t step)
{
    const tsr_value *x = &p->tape->values[p->tape->ops[a->op].out];
    tsr_tensor out = tensor_of(p, p->tape->ops[a->op].out, &a->out, step);
    bool last_piece = a->window.c1 == 0 || a->window.c1 == x->c;
    bool done = a->carry == 0 || a->kv1 == p->tape->values[p->tape->ops[a->op].in[1]].h *
                                               p->tape->values[p->tape->ops[a->op].in[1]].w;

    if (a->stats_only || !last_piece || !done)
        return true;
    out.data = (unsigned char *)out.data + (size_t)(a->window.h0 - out.row0) * out.row_stride;
    out.row0 = a->window.h0;
    out.n_rows = a->window.h1 - a->window.h0;
    return p->backend->all_finite(p->backend, &out, p->pool);
}

/* Debug builds: what action t - 1 was the last to need is no more. What lives to the end is kept.
 */
static void poison_dead(const tsr_program *p, int32_t t)
{
    if (!TSR_PROGRAM_CHECKED)
        return;
    for (size_t i = 1; i < p->plan.n_items; i++) {
        const tsr_item *item = &p->plan.items[i];
        if (item->last == t - 1 && item->last < (int32_t)p->plan.n_actions)
            tsr_program_poison(p, p->arena_base + item->offset, item->bytes);
    }
}

typedef struct section {
    int32_t begin, end;         /* actions */
    int32_t first_job, end_job; /* jobs */
    bool loop;
    int32_t step;
    bool find;               /* stop at the first output that is not finite */
    const char *overflowing; /* its op */
} section;

static section section_of(const tsr_program *p, bool loop, int32_t step)
{
    const tsr_plan *plan = &p->plan;
    section s = {.begin = loop ? plan->loop_action : 0,
                 .end = loop ? (int32_t)plan->n_actions : plan->loop_action,
                 .first_job = loop ? plan->loop_job : 0,
                 .end_job = loop ? (int32_t)plan->n_jobs : plan->loop_job,
                 .loop = loop,
                 .step = step};

    return s;
}

static tsr_status run_action(tsr_program *p, section *s, int32_t i, int32_t *issued)
{
    const tsr_action *a = &p->plan.actions[i];
    const tsr_op *op = &p->tape->ops[a->op];
    tsr_call call;

    TSR_TRY(tsr_program_wait(p, s->first_job, a->n_free));
    if (i > s->begin)
        poison_dead(p, i + 1);
    tsr_program_submit(p, *issued, a->n_issued, s->step);
    *issued = tsr_max_i32(*issued, a->n_issued);
    TSR_TRY(tsr_program_wait(p, s->first_job, a->n_needed));
    call = tsr_program_call(p, a, s->step);
    if (a->stats_only)
        p->backend->norm_stats(p->backend, &call);
    else
        p->backend->run(p->backend, &call);
    if (s->find && !made_finite(p, a, s->step))
        s->overflowing = op->name;
    if (p->watched == op->out && p->watched_finite)
        p->watched_finite = made_finite(p, a, s->step);
    return TSR_OK;
}

static tsr_status run_section(tsr_program *p, section *s)
{
    int32_t issued = s->first_job;
    tsr_status st = TSR_OK;

    if (p->backend->device)
        tsr_program_send_inputs(p, s->loop);
    for (int32_t i = s->begin; i < s->end && st == TSR_OK && !s->overflowing; i++) {
        st = run_action(p, s, i, &issued);
        if (st == TSR_OK && p->between)
            st = p->between(p->between_user);
    }
    if (st == TSR_OK && !s->overflowing)
        tsr_program_submit(p, issued, s->end_job, s->step);
    if (p->backend->device && st == TSR_OK)
        tsr_program_take_outputs(p, s->loop);
    return tsr_program_drain(p, st);
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

tsr_status tsr_program_run_prologue(tsr_program *p)
{
    section s = section_of(p, false, 0);

    TSR_TRY(check_step(p, 0));
    return run_section(p, &s);
}

tsr_status tsr_program_run_step(tsr_program *p, int32_t step)
{
    section s = section_of(p, true, step);

    TSR_TRY(check_step(p, step));
    if (p->watched)
        p->watched_finite = true;
    TSR_TRY(run_section(p, &s));
    p->n_steps_run++;
    return TSR_OK;
}

bool tsr_program_finite(const tsr_program *p, tsr_val v)
{
    tsr_operand whole = {.item = p->plan.value_item[v], .n_rows = p->tape->values[v].h};
    tsr_tensor x = tensor_of(p, v, &whole, 0);

    return p->backend->all_finite(p->backend, &x, p->pool);
}

const char *tsr_program_find_overflow(tsr_program *p, bool loop, int32_t step)
{
    section s = section_of(p, loop, step);

    s.find = true;
    if (check_step(p, step) != TSR_OK || run_section(p, &s) != TSR_OK)
        return NULL;
    return s.overflowing;
}
