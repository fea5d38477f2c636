/* program.c -- a plan, and the tables to run it with.
 *
 * The hash covers every decision: two plans with the same hash do the same things in the same
 * places. Debug builds prove that no two live items overlap. */
#include "kernels/program_internal.h"

#include "base/alloc.h"
#include "base/text_util.h"

/* FNV's step, a field at a time and not a byte: a plan has a hundred thousand of them. */
static uint64_t mix(uint64_t h, int64_t field)
{
    h = (h ^ (uint64_t)field) * 0x100000001B3u;
    return h ^ h >> 32;
}

static uint64_t hash_operand(const tsr_operand *o, uint64_t h)
{
    return mix(mix(mix(h, o->item), o->row0), o->n_rows);
}

static uint64_t hash_fields(const int32_t *fields, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++)
        h = mix(h, fields[i]);
    return h;
}

static uint64_t hash_action(const tsr_action *a, uint64_t h)
{
    const tsr_window *w = &a->window;
    int32_t fields[] = {a->op,    a->stats_only, a->w[0], a->w[1],   a->work,     a->stats,
                        a->carry, a->kv0,        a->kv1,  a->n_free, a->n_issued, a->n_needed,
                        w->n0,    w->n1,         w->h0,   w->h1,     w->c0,       w->c1};

    h = hash_fields(fields, sizeof fields / sizeof *fields, h);
    h = hash_operand(&a->out, h);
    for (int32_t k = 0; k < 4; k++)
        h = hash_operand(&a->in[k], h);
    return h;
}

static uint64_t hash_plan(const tsr_plan *p)
{
    uint64_t h = mix(TSR_FNV_SEED, (int64_t)p->layout.peak_bytes);

    for (size_t i = 1; i < p->n_items; i++)
        h = mix(mix(h, (int64_t)p->items[i].offset), (int64_t)p->items[i].bytes);
    for (size_t i = 0; i < p->n_actions; i++)
        h = hash_action(&p->actions[i], h);
    for (size_t i = 0; i < p->n_jobs; i++) {
        const tsr_job *j = &p->jobs[i];
        int32_t fields[] = {(int32_t)j->kind, j->index, j->item, j->a, j->b, j->issue, j->region};
        h = hash_fields(fields, sizeof fields / sizeof *fields, h);
    }
    return h;
}

/* A lifetime bug shows as a wrong picture, rarely: debug builds prove the plan instead. */
static tsr_status check_plan(const tsr_plan *p, tsr_err *err)
{
    size_t a, b;

    if (TSR_PROGRAM_CHECKED && (tsr_plan_find_overlap(p->items, p->n_items, &a, &b) ||
                                tsr_plan_find_overlap(p->regions, p->n_regions, &a, &b)))
        TSR_FAIL(err, TSR_E_INTERNAL, "items %zu and %zu of the plan overlap", a, b);
    return TSR_OK;
}

tsr_status tsr_program_make(tsr_program *p, tsr_tape *t, const tsr_backend *b, tsr_pool *pool,
                            const tsr_plan_options *opt, tsr_err *err)
{
    tsr_program made = {.tape = t, .backend = b, .pool = pool, .err = err};
    tsr_plan_question q = {.tape = t, .backend = b, .n_threads = tsr_pool_threads(pool)};
    tsr_plan_sizes sizes;
    tsr_status st = TSR_OK;

    if (opt)
        q.options = *opt;
    *p = (tsr_program){0};
    TSR_TRY_GOTO(tsr_plan_make(&made.plan, &sizes, &q, err));
    TSR_TRY_GOTO(check_plan(&made.plan, err));
    made.tickets = tsr_calloc(made.plan.n_jobs + 1, sizeof *made.tickets);
    if (!made.tickets) {
        st = tsr_err_set(err, TSR_E_OOM, "no memory for the tables of the plan");
        goto done;
    }
    if (b->device)
        TSR_TRY_GOTO(tsr_program_make_shadows(&made));
    made.layout = made.plan.layout;
    made.spill_bytes = made.plan.spill_bytes;
    made.hash = hash_plan(&made.plan);
    *p = made;
done:
    if (st != TSR_OK)
        tsr_program_free(&made);
    p->minimum_bytes = sizes.minimum_bytes;
    p->fastest_bytes = sizes.fastest_bytes;
    return st;
}

void tsr_program_free(tsr_program *p)
{
    if (!p)
        return;
    tsr_plan_free(&p->plan);
    tsr_free(p->tickets);
    tsr_free(p->shadow);
    tsr_free(p->shadow_offsets);
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

void *tsr_program_item(const tsr_program *p, int32_t item)
{
    const tsr_item *i = &p->plan.items[item];

    if (!item || !i->bytes)
        return NULL;
    return tsr_arena_use(p->arena, p->arena_base + i->offset, i->bytes);
}

void tsr_program_poison(const tsr_program *p, size_t offset, size_t bytes)
{
    if (p->backend->device)
        p->backend->device->fill(p->backend, p->arena->base + offset, TSR_ARENA_POISON, bytes);
    else
        tsr_arena_poison(p->arena, offset, bytes);
}

void tsr_program_bind(tsr_program *p, tsr_arena *arena, size_t base)
{
    p->arena = arena;
    p->arena_base = base;
    if (TSR_PROGRAM_CHECKED)
        tsr_program_poison(p, base, p->layout.peak_bytes); /* the gaps stay so */
}

void tsr_program_set_io(tsr_program *p, tsr_io *io, tsr_spill *spill)
{
    p->io = io;
    p->spill = spill;
}

void tsr_program_set_pictures(tsr_program *p, int32_t n)
{
    p->is_prepared = p->is_prepared && n == p->n_pictures;
    p->n_pictures = n;
}

void tsr_program_watch(tsr_program *p, tsr_val v)
{
    p->watched = v;
    p->watched_finite = true;
}

void *tsr_program_data(const tsr_program *p, tsr_val v)
{
    return p->backend->device ? tsr_program_shadow(p, v)
                              : tsr_program_item(p, p->plan.value_item[v]);
}
