/* plan_make.c -- the candidates, and the fastest of them that fits.
 *
 * A fixed list of configurations, from "all there" to "everything streamed, spilled and in strips".
 * Each is lowered once with its weights streamed; what is left of the budget above its peak holds
 * weights, the most valuable first (seconds saved a byte), always a beginning of one fixed order.
 * Resident weights are stacked below the rest, whose offsets stay: so a candidate's peak is exactly
 * its own plus what is resident, more budget means a longer beginning and no more seconds, and the
 * fastest that fits is monotone in the budget by construction.
 *
 * Offsets cost more than lowering, so they are computed only where they can matter: the largest
 * live sum bounds the peak from below, and gives a bound for the time (branch and bound). */
#include "kernels/plan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define OFF SIZE_MAX

static const tsr_knobs CANDIDATES[] = {
    /* all resident */
    {.all_resident = true,
     .window_bytes = OFF,
     .hold_bytes = OFF,
     .piece_bytes = OFF,
     .ahead_bytes = OFF,
     .strip_above = OFF,
     .strip_bytes = OFF},
    {.all_resident = true,
     .window_bytes = 8 * MIB,
     .hold_bytes = OFF,
     .piece_bytes = OFF,
     .ahead_bytes = OFF,
     .strip_above = OFF,
     .strip_bytes = OFF},
    {.all_resident = true,
     .window_bytes = 8 * MIB,
     .hold_bytes = OFF,
     .piece_bytes = OFF,
     .ahead_bytes = OFF,
     .gap_ops = 8,
     .gap_bytes = 32 * KIB,
     .strip_above = 32 * MIB,
     .strip_bytes = 4 * MIB},
    {.all_resident = true,
     .window_bytes = 2 * MIB,
     .hold_bytes = OFF,
     .piece_bytes = OFF,
     .ahead_bytes = OFF,
     .gap_ops = 8,
     .gap_bytes = 32 * KIB,
     .spill_prologue = true,
     .strip_above = 8 * MIB,
     .strip_bytes = 2 * MIB},
    /* streamed */
    {.window_bytes = OFF,
     .hold_bytes = OFF,
     .piece_bytes = 8 * MIB,
     .ahead_bytes = 12 * MIB,
     .ahead_room = 12 * MIB,
     .strip_above = OFF,
     .strip_bytes = OFF},
    {.window_bytes = 8 * MIB,
     .hold_bytes = 10 * MIB,
     .piece_bytes = 4 * MIB,
     .ahead_bytes = 12 * MIB,
     .ahead_room = 12 * MIB,
     .strip_above = OFF,
     .strip_bytes = OFF},
    {.window_bytes = 4 * MIB,
     .hold_bytes = 10 * MIB,
     .piece_bytes = 4 * MIB,
     .ahead_bytes = 12 * MIB,
     .ahead_room = 8 * MIB,
     .gap_ops = 8,
     .gap_bytes = 32 * KIB,
     .strip_above = 32 * MIB,
     .strip_bytes = 4 * MIB},
    {.window_bytes = 4 * MIB,
     .hold_bytes = 10 * MIB,
     .piece_bytes = 4 * MIB,
     .ahead_bytes = 12 * MIB,
     .ahead_room = 2 * MIB,
     .gap_ops = 8,
     .gap_bytes = 32 * KIB,
     .spill_prologue = true,
     .strip_above = 8 * MIB,
     .strip_bytes = 2 * MIB},
    {.window_bytes = 2 * MIB,
     .hold_bytes = 10 * MIB,
     .piece_bytes = 4 * MIB,
     .ahead_bytes = 12 * MIB,
     .gap_ops = 8,
     .gap_bytes = 32 * KIB,
     .spill_prologue = true,
     .strip_above = 4 * MIB,
     .strip_bytes = MIB},
    {.window_bytes = MIB,
     .hold_bytes = 6 * MIB,
     .piece_bytes = 2 * MIB,
     .ahead_bytes = 8 * MIB,
     .gap_ops = 8,
     .gap_bytes = 32 * KIB,
     .spill_prologue = true,
     .stream_vectors = true,
     .strip_above = 4 * MIB,
     .strip_bytes = MIB},
    {.window_bytes = 512 * KIB,
     .hold_bytes = 4 * MIB,
     .piece_bytes = MIB,
     .ahead_bytes = 8 * MIB,
     .gap_ops = 6,
     .gap_bytes = 32 * KIB,
     .spill_prologue = true,
     .stream_vectors = true,
     .strip_above = 2 * MIB,
     .strip_bytes = 512 * KIB,
     .strip_keys = true},
};
enum { N_CANDIDATES = sizeof CANDIDATES / sizeof *CANDIDATES };

/* One candidate, lowered. */
typedef struct attempt {
    tsr_knobs knobs;
    tsr_plan plan;
    size_t bound, peak; /* of the arena: from below, and exactly (0: not known yet) */
} attempt;

typedef struct ranked_weight {
    double value; /* bytes that are not read, a byte that is held */
    size_t bytes;
    int32_t w;
} ranked_weight;

typedef struct search {
    const tsr_plan_question *q;
    tsr_err *err;
    attempt tries[N_CANDIDATES];
    int32_t n_tries;
    ranked_weight *order; /* streamable weights, the most valuable first */
    size_t n_order;
    uint8_t *resident; /* [n_weights] */
} search;

size_t tsr_plan_packed(const tsr_plan_question *q, size_t w)
{
    const tsr_weight *wd = &q->tape->weights[w];

    return wd->first < 0 ? 0 : q->backend->packed_bytes(q->backend, &q->tape->ops[wd->first], wd);
}

/* --------------------------------------------------------- which are allowed */

static bool allowed(const tsr_plan_options *o, tsr_knobs *k)
{
    if (!o->may_spill) {
        k->gap_ops = 0;
        k->spill_prologue = k->strip_keys = false;
        k->strip_above = k->strip_bytes = OFF;
    }
    if (o->read_ahead_bytes && !k->all_resident)
        k->ahead_bytes = k->ahead_room = o->read_ahead_bytes;
    switch (o->offload) {
    case TSR_OFFLOAD_NONE:
    case TSR_OFFLOAD_MODEL:
        return k->all_resident;
    case TSR_OFFLOAD_BLOCK:
        k->piece_bytes = OFF;
        return !k->all_resident;
    case TSR_OFFLOAD_STREAM:
        return !k->all_resident;
    case TSR_OFFLOAD_AUTO:
        break;
    }
    return true;
}

/* ------------------------------------------------------------------ lowering */

/* What the candidate keeps from the start. */
static void mark_resident(const search *s, const tsr_knobs *k)
{
    const tsr_tape *t = s->q->tape;

    for (size_t w = 1; w < t->n_weights; w++)
        s->resident[w] =
            k->all_resident || (t->weights[w].kind == TSR_WEIGHT_VECTOR && !k->stream_vectors);
}

/* Resident weights, and the place where weights are read: for loading only, where all is resident.
 */
static void first_items(tsr_lower *l, const tsr_plan_question *q)
{
    size_t staging = 0;

    for (size_t w = 1; w < q->tape->n_weights && l->st == TSR_OK; w++) {
        const tsr_weight *wd = &q->tape->weights[w];
        if (wd->first < 0)
            continue;
        if (!wd->source || !wd->source->packed)
            staging = tsr_max_size(staging, tsr_plan_panels(q->tape, q->backend, wd).staging_bytes);
        if (!l->resident[w])
            continue;
        l->plan->weight_item[w] = tsr_lower_item(l, tsr_plan_packed(q, w), TSR_ITEM_WEIGHT);
        if (l->st != TSR_OK)
            return;
        l->plan->items[l->plan->weight_item[w]].first = 0;
        l->plan->items[l->plan->weight_item[w]].last = TSR_TO_THE_END;
    }
    l->plan->staging_item = tsr_lower_item(l, staging, TSR_ITEM_WORK);
    if (l->st != TSR_OK)
        return;
    l->plan->items[l->plan->staging_item].first = 0;
    l->plan->items[l->plan->staging_item].last = l->k->all_resident ? 0 : TSR_TO_THE_END;
}

static tsr_status lower_tables(tsr_lower *l, tsr_plan *p, const tsr_tape *t)
{
    l->values = tsr_calloc(t->n_values, sizeof *l->values);
    l->held = tsr_calloc(t->n_weights, sizeof *l->held);
    l->stats = tsr_calloc(t->n_ops + 1, sizeof *l->stats);
    p->value_item = tsr_calloc(t->n_values, sizeof *p->value_item);
    p->weight_item = tsr_calloc(t->n_weights, sizeof *p->weight_item);
    if (!l->values || !l->held || !l->stats || !p->value_item || !p->weight_item)
        TSR_FAIL(l->err, TSR_E_OOM, "no memory for the tables of the plan");
    return TSR_OK;
}

static tsr_status lower_candidate(search *s, attempt *a)
{
    const tsr_plan_question *q = s->q;
    tsr_lower l = {.t = q->tape,
                   .b = q->backend,
                   .n_threads = q->n_threads,
                   .tile_rows = q->options.tile_rows,
                   .k = &a->knobs,
                   .resident = s->resident,
                   .plan = &a->plan,
                   .err = s->err};
    tsr_status st = TSR_OK;

    mark_resident(s, &a->knobs);
    TSR_TRY_GOTO(lower_tables(&l, &a->plan, q->tape));
    first_items(&l, q);
    TSR_TRY_GOTO(tsr_lower_all(&l));
    TSR_TRY_GOTO(tsr_lower_finish(&l));
    tsr_plan_costs(&a->plan, q, NULL);
    a->bound = a->plan.live_bytes;
done:
    tsr_free(l.values);
    tsr_free(l.held);
    tsr_free(l.stats);
    return st;
}

static tsr_status lower_candidates(search *s)
{
    const tsr_knobs *forced = s->q->options.knobs;

    for (int32_t i = 0; i < (forced ? 1 : N_CANDIDATES); i++) {
        attempt *a = &s->tries[s->n_tries];
        a->knobs = forced ? *forced : CANDIDATES[i];
        if (!allowed(&s->q->options, &a->knobs))
            continue;
        s->n_tries++;
        a->plan.candidate = i;
        TSR_TRY(lower_candidate(s, a));
    }
    return TSR_OK;
}

/* ----------------------------------------------------------- resident weights */

static int by_value(const void *pa, const void *pb)
{
    const ranked_weight *a = pa, *b = pb;

    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return a->w < b->w ? -1 : a->w > b->w;
}

/* Weights of the loop; a file in float32 is worth more, since it is packed smaller. */
static tsr_status rank_weights(search *s)
{
    const tsr_tape *t = s->q->tape;

    s->order = tsr_calloc(t->n_weights, sizeof *s->order);
    if (!s->order)
        TSR_FAIL(s->err, TSR_E_OOM, "no memory for the tables of the plan");
    for (size_t w = 1; w < t->n_weights; w++) {
        const tsr_weight *wd = &t->weights[w];
        ranked_weight r = {.bytes = tsr_align_up(tsr_plan_packed(s->q, w), TSR_PLAN_ALIGN),
                           .w = (int32_t)w};
        double file = (double)tsr_dtype_size(wd->file_dtype);

        if (wd->last < t->loop_begin || !r.bytes)
            continue;
        for (int32_t i = 0; i < wd->n_dims; i++)
            file *= wd->dims[i];
        r.value = wd->source && wd->source->packed ? 1 : file / (double)r.bytes;
        s->order[s->n_order++] = r;
    }
    qsort(s->order, s->n_order, sizeof *s->order, by_value);
    return TSR_OK;
}

static bool may_keep(const search *s, const attempt *a)
{
    return !a->knobs.all_resident && (s->q->options.offload == TSR_OFFLOAD_AUTO);
}

/* Marks the beginning of the order that fits into `room`; returns its bytes. */
static size_t keep_weights(search *s, const attempt *a, size_t room)
{
    size_t sum = 0;

    memset(s->resident, 0, s->q->tape->n_weights);
    for (size_t i = 0; may_keep(s, a) && i < s->n_order; i++) {
        const ranked_weight *r = &s->order[i];
        if (a->plan.weight_item[r->w])
            continue;
        if (r->bytes > room - sum)
            break;
        sum += r->bytes;
        s->resident[r->w] = 1;
    }
    return sum;
}

/* Jobs of kept weights go, their readers read the resident place. `map`: [n_items] zeroed. */
static void drop_jobs(tsr_plan *p, const uint8_t *resident, int32_t *map)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->n_jobs; i++) {
        tsr_job job = p->jobs[i];
        if (job.kind == TSR_JOB_WEIGHT && resident[job.index])
            map[job.item] = p->weight_item[job.index];
        else
            p->jobs[kept++] = job;
    }
    p->n_jobs = kept;
    for (size_t i = 0; i < p->n_actions; i++)
        for (int32_t k = 0; k < 2; k++)
            if (map[p->actions[i].w[k]])
                p->actions[i].w[k] = map[p->actions[i].w[k]];
}

/* Seconds of the candidate with what is marked resident. */
static double seconds_with(search *s, attempt *a)
{
    tsr_plan_costs(&a->plan, s->q, s->resident);
    return a->plan.seconds;
}

/* ------------------------------------------------------------------- the search */

static tsr_status place(search *s, attempt *a)
{
    if (a->peak)
        return TSR_OK;
    TSR_TRY(tsr_plan_offsets(a->plan.items, a->plan.n_items, &a->plan.layout, s->err));
    a->peak = a->plan.layout.peak_bytes;
    a->peak += a->peak == 0;
    return TSR_OK;
}

static tsr_status find_minimum(search *s, size_t *minimum)
{
    *minimum = SIZE_MAX;
    for (int32_t i = s->n_tries - 1; i >= 0; i--) {
        if (s->tries[i].bound >= *minimum)
            continue;
        TSR_TRY(place(s, &s->tries[i]));
        *minimum = tsr_min_size(*minimum, s->tries[i].peak);
    }
    return TSR_OK;
}

/* The fastest that fits; -1: none does. */
static tsr_status find_fastest(search *s, size_t budget, int32_t *best)
{
    double seconds = 0;

    *best = -1;
    for (int32_t i = 0; i < s->n_tries; i++) {
        attempt *a = &s->tries[i];
        double now;

        if (a->bound > budget)
            continue;
        keep_weights(s, a, budget - a->bound);
        if (*best >= 0 && seconds_with(s, a) >= seconds)
            continue;
        TSR_TRY(place(s, a));
        if (a->peak > budget)
            continue;
        keep_weights(s, a, budget - a->peak);
        now = seconds_with(s, a);
        if (*best >= 0 && now >= seconds)
            continue;
        *best = i;
        seconds = now;
    }
    return TSR_OK;
}

/* Adds the kept weights below the rest. */
static tsr_status settle(search *s, attempt *a, size_t budget)
{
    tsr_plan *p = &a->plan;
    tsr_lower l = {.plan = p, .err = s->err};
    int32_t *map;

    TSR_TRY(place(s, a));
    p->resident_bytes = keep_weights(s, a, budget - a->peak);
    if (p->resident_bytes == 0) {
        tsr_plan_costs(p, s->q, NULL);
        return TSR_OK;
    }
    for (size_t w = 1; w < s->q->tape->n_weights && l.st == TSR_OK; w++) {
        if (!s->resident[w])
            continue;
        p->weight_item[w] = tsr_lower_item(&l, tsr_plan_packed(s->q, w), TSR_ITEM_WEIGHT);
        p->items[p->weight_item[w]].first = 0;
        p->items[p->weight_item[w]].last = tsr_max_i32((int32_t)p->n_actions, 1);
    }
    map = l.st == TSR_OK ? tsr_calloc(p->n_items, sizeof *map) : NULL;
    if (!map)
        TSR_FAIL(s->err, TSR_E_OOM, "no memory for the tables of the plan");
    drop_jobs(p, s->resident, map);
    tsr_free(map);
    tsr_plan_order_jobs(p);
    tsr_plan_costs(p, s->q, NULL);
    return tsr_plan_offsets(p->items, p->n_items, &p->layout, s->err);
}

static tsr_status choose(search *s, tsr_plan_sizes *sizes, int32_t *best)
{
    size_t budget = s->q->options.budget_bytes;

    TSR_TRY(lower_candidates(s));
    TSR_TRY(rank_weights(s));
    TSR_TRY(find_minimum(s, &sizes->minimum_bytes));
    TSR_TRY(place(s, &s->tries[0]));
    sizes->fastest_bytes = s->tries[0].peak;
    if (budget == 0) {
        *best = 0;
        return TSR_OK;
    }
    TSR_TRY(find_fastest(s, budget, best));
    if (*best < 0)
        TSR_FAIL(s->err, TSR_E_BUDGET,
                 "the network needs at least %zu bytes of memory for its data, and %zu are given",
                 sizes->minimum_bytes, budget);
    return TSR_OK;
}

tsr_status tsr_plan_make(tsr_plan *p, tsr_plan_sizes *sizes, const tsr_plan_question *q,
                         tsr_err *err)
{
    search *s = tsr_calloc(1, sizeof *s);
    int32_t best = 0;
    tsr_status st = TSR_OK;

    *sizes = (tsr_plan_sizes){0};
    if (s)
        s->resident = tsr_calloc(q->tape->n_weights, 1);
    if (!s || !s->resident) {
        st = tsr_err_set(err, TSR_E_OOM, "no memory for the tables of the plan");
        goto done;
    }
    s->q = q;
    s->err = err;
    TSR_TRY_GOTO(choose(s, sizes, &best));
    TSR_TRY_GOTO(settle(s, &s->tries[best],
                        q->options.budget_bytes ? q->options.budget_bytes : s->tries[best].peak));
    *p = s->tries[best].plan;
    s->tries[best].plan = (tsr_plan){0};
done:
    for (int32_t i = 0; s && i < s->n_tries; i++)
        tsr_plan_free(&s->tries[i].plan);
    if (s) {
        tsr_free(s->order);
        tsr_free(s->resident);
    }
    tsr_free(s);
    return st;
}
