/* program_run.c -- the executor: walks a section of the plan, action by action.
 *
 * Before each action it waits for stores whose buffers may be written from now on, hands the I/O
 * thread the jobs that the plan wants issued here, and waits for the loads that the action needs;
 * then it looks up the operands' addresses and calls the backend. A section ends with nothing in
 * flight, also when it fails.
 *
 * Entries. An operand with fewer entries than the output is shown to the kernel as if it had all of
 * them (backend.h). One distance between entries must do in a call: an op whose operands do not
 * allow that for all entries at once is called for groups of them, prompt by prompt. A group is
 * also where a run with fewer pictures than were planned leaves out the rest.
 *
 * A step view is its base from entry step * n. Operands that an op adds element by element
 * (residuals, the second summand) may be recorded with tokens where the output is an image, or the
 * other way round; kernels see them with the output's rows. Debug builds overwrite every item with
 * NaN patterns after its last use. */
#include "kernels/program_internal.h"

#include "base/clock.h"

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

/* -------------------------------------------------------------------- entries */

/* Entries along the last `axes` axes. */
static int32_t last_entries(const tsr_value *x, int32_t axes)
{
    const tsr_entries *e = &x->entries;

    return axes == 3 ? x->n : axes == 2 ? e->prompts * e->pictures : e->pictures;
}

static bool is_partial(const tsr_program *p, const tsr_value *x)
{
    return p->n_pictures > 0 && p->n_pictures < x->entries.pictures;
}

/* Entries of the output from one group's first to the next one's: along as many axes as every
 * operand has whole, or has one entry of. */
static int32_t group_pitch(const tsr_program *p, const tsr_op *op)
{
    const tsr_value *values = p->tape->values, *out = &values[op->out];
    int32_t axes = is_partial(p, out) ? 1 : 3;

    for (int32_t k = 0; k < 4; k++) {
        int32_t n;
        while (axes > 1 && op->in[k] && (n = last_entries(&values[op->in[k]], axes)) > 1 &&
               n != last_entries(out, axes))
            axes--;
    }
    return last_entries(out, axes);
}

/* Of those so many are computed. */
static int32_t group_size(const tsr_program *p, const tsr_value *out, int32_t pitch)
{
    return is_partial(p, out) ? p->n_pictures : pitch;
}

/* The number of x's entry that stands for the output's entry n. */
static int32_t entry_of(const tsr_value *x, const tsr_value *out, int32_t n)
{
    const tsr_entries *e = &x->entries, *o = &out->entries;
    int32_t picture = n % o->pictures, prompt = n / o->pictures % o->prompts,
            step = n / o->pictures / o->prompts;

    picture = e->pictures > 1 ? picture : 0;
    prompt = e->prompts > 1 ? prompt : 0;
    step = e->steps > 1 ? step : 0;
    return (step * e->prompts + prompt) * e->pictures + picture;
}

/* Shows operand x with the output's entries, of which those of the window are right. */
static void spread(tsr_tensor *t, const tsr_value *x, const tsr_value *out, const tsr_window *w)
{
    int32_t first = entry_of(x, out, w->n0), last = entry_of(x, out, w->n1 - 1);
    size_t stride = last > first ? t->entry_stride : 0;

    if (x->n == out->n)
        return;
    t->data =
        (void *)((uintptr_t)t->data + (size_t)first * t->entry_stride - (size_t)w->n0 * stride);
    t->entry_stride = stride;
    t->n = out->n;
}

/* ---------------------------------------------------------------------- calls */

static tsr_call place_call(const tsr_program *p, const tsr_action *a, const tsr_window *w,
                           int32_t step)
{
    const tsr_tape *t = p->tape;
    const tsr_op *op = &t->ops[a->op];
    tsr_window one = {w->n0, w->n0 + 1, w->h0, w->h1, 0, 0};
    tsr_call call = {.op = op,
                     .window = *w,
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
        spread(&call.in[k], &t->values[op->in[k]], &t->values[op->out], w);
        if (k == 3 || (k == 1 && op->kind == TSR_OP_ADD))
            reshape_rows(&call.in[k], &call.out);
    }
    for (int32_t k = 0; k < 2; k++) {
        if (!a->w[k])
            continue;
        call.wd[k] = &t->weights[op->w[k]];
        call.w[k] = weight_of(p, a, k);
    }
    if (call.carry)
        call.carry = (unsigned char *)call.carry +
                     (size_t)w->n0 * p->backend->carry_bytes(p->backend, t, op, &one);
    return call;
}

/* What is done with each call of an action: it is computed, or prepared. */
typedef tsr_status (*call_fn)(tsr_program *p, const tsr_action *a, const tsr_call *call);

static tsr_status compute(tsr_program *p, const tsr_action *a, const tsr_call *call)
{
    double start = p->clock.seconds ? tsr_clock_seconds() : 0;

    if (a->stats_only)
        p->backend->norm_stats(p->backend, call);
    else
        p->backend->run(p->backend, call);
    if (p->clock.seconds)
        p->clock.seconds[a->op] += tsr_clock_seconds() - start;
    return TSR_OK;
}

static tsr_status prepare(tsr_program *p, const tsr_action *a, const tsr_call *call)
{
    return a->stats_only ? TSR_OK : p->backend->device->prepare(p->backend, call, false, p->err);
}

static tsr_status try_out(tsr_program *p, const tsr_action *a, const tsr_call *call)
{
    return a->stats_only ? TSR_OK : p->backend->device->prepare(p->backend, call, true, p->err);
}

static tsr_status each_call(tsr_program *p, const tsr_action *a, int32_t step, call_fn fn)
{
    const tsr_op *op = &p->tape->ops[a->op];
    const tsr_value *out = &p->tape->values[op->out];
    int32_t pitch = group_pitch(p, op);

    for (int32_t n0 = 0; n0 < out->n; n0 += pitch) {
        tsr_window w = a->window;
        tsr_call call;

        w.n0 = n0;
        w.n1 = n0 + group_size(p, out, pitch);
        call = place_call(p, a, &w, step);
        TSR_TRY(fn(p, a, &call));
    }
    return TSR_OK;
}

tsr_status tsr_program_prepare(tsr_program *p, bool run)
{
    TSR_TRY(p->backend->device->events(p->backend, tsr_program_events(p), p->err));
    for (size_t i = 0; i < p->plan.n_actions; i++)
        TSR_TRY(each_call(p, &p->plan.actions[i], 0, run ? try_out : prepare));
    p->is_prepared = true;
    return TSR_OK;
}

/* Whether the rows that t shows of x are finite, in all entries that are computed. */
static bool entries_finite(const tsr_program *p, const tsr_tensor *t, const tsr_value *x)
{
    int32_t pitch = is_partial(p, x) ? x->entries.pictures : x->n;

    for (int32_t n0 = 0; n0 < x->n; n0 += pitch) {
        tsr_tensor group = *t;
        group.data = (unsigned char *)t->data + (size_t)n0 * t->entry_stride;
        group.n = group_size(p, x, pitch);
        if (!p->backend->all_finite(p->backend, &group, p->pool))
            return false;
    }
    return true;
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
    return entries_finite(p, &out, x);
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
    bool loop;                  /* not the prologue */
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

    TSR_TRY(tsr_program_wait(p, s->first_job, a->n_free));
    if (i > s->begin)
        poison_dead(p, i + 1);
    tsr_program_submit(p, *issued, a->n_issued, s->step);
    *issued = tsr_max_i32(*issued, a->n_issued);
    TSR_TRY(tsr_program_wait(p, s->first_job, a->n_needed));
    TSR_TRY(each_call(p, a, s->step, compute));
    if (s->find && !made_finite(p, a, s->step))
        s->overflowing = op->name;
    if (p->watched == op->out && p->watched_finite)
        p->watched_finite = made_finite(p, a, s->step);
    return TSR_OK;
}

static tsr_status run_section(tsr_program *p, section *s)
{
    int32_t issued = s->first_job;
    double start = p->clock.seconds ? tsr_clock_seconds() : 0;
    tsr_status st = TSR_OK;

    if (p->backend->device && !p->is_prepared)
        TSR_TRY(tsr_program_prepare(p, false));
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
    st = tsr_program_drain(p, st);
    if (p->clock.seconds) {
        p->clock.section_seconds[s->loop] += tsr_clock_seconds() - start;
        p->clock.n_runs[s->loop]++;
    }
    return st;
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

    return entries_finite(p, &x, &p->tape->values[v]);
}

void tsr_program_time_ops(tsr_program *p, double *seconds)
{
    p->clock = (tsr_op_clock){.seconds = seconds};
}

const char *tsr_program_find_overflow(tsr_program *p, bool loop, int32_t step)
{
    section s = section_of(p, loop, step);

    s.find = true;
    if (check_step(p, step) != TSR_OK || run_section(p, &s) != TSR_OK)
        return NULL;
    return s.overflowing;
}
