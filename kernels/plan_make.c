/* plan_make.c -- the fastest candidate that fits.
 *
 * What is left of the budget above a streamed candidate's own peak holds weights, the most valuable
 * first (seconds saved a byte), always a beginning of one fixed order. They are stacked below the
 * rest, whose offsets stay: so a plan's peak is exactly its candidate's plus what is kept, more
 * budget means a longer beginning and no more seconds, and the fastest that fits is monotone in the
 * budget by construction.
 *
 * Offsets cost more than lowering, so they are computed only where they can matter: the largest
 * live sum bounds the peak from below, and with it the time (branch and bound). A plan's tables
 * may take megabytes: there is one at a time, made again where it is wanted again. */
#include "kernels/plan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MOST_CANDIDATES = 32 };

/* One candidate and what is known of it. */
typedef struct attempt {
    tsr_knobs knobs;
    int32_t number;
    size_t bound, peak; /* of the arena: from below, and exactly (0: not known yet) */
    tsr_plan costs;     /* without its tables */
} attempt;

typedef struct ranked_weight {
    double value; /* seconds that are not read, a byte that is held */
    double seconds;
    size_t bytes;
    int32_t w;
} ranked_weight;

typedef struct search {
    const tsr_plan_question *q;
    tsr_err *err;
    attempt tries[MOST_CANDIDATES];
    int32_t n_tries;
    ranked_weight *order; /* weights of the loop, the most valuable first */
    size_t n_order;
} search;

/* --------------------------------------------------------- which are allowed */

static bool allowed(const tsr_plan_options *o, tsr_knobs *k)
{
    if (!o->may_spill) {
        k->gap_ops = 0;
        k->spill_prologue = k->strip_keys = false;
        k->strip_above = k->strip_bytes = SIZE_MAX;
    }
    if (o->read_ahead_bytes && !k->all_resident)
        k->ahead_bytes = k->ahead_room = o->read_ahead_bytes;
    switch (o->offload) {
    case TSR_OFFLOAD_NONE:
    case TSR_OFFLOAD_MODEL:
        return k->all_resident;
    case TSR_OFFLOAD_BLOCK:
        k->piece_bytes = SIZE_MAX;
        return !k->all_resident;
    case TSR_OFFLOAD_STREAM:
        return !k->all_resident;
    case TSR_OFFLOAD_AUTO:
        break;
    }
    return true;
}

static void list_candidates(search *s)
{
    const tsr_knobs *forced = s->q->options.knobs;
    int32_t n = forced ? 1 : tsr_min_i32(tsr_n_candidates, MOST_CANDIDATES);

    for (int32_t i = 0; i < n; i++) {
        attempt a = {.knobs = forced ? *forced : tsr_candidates[i], .number = i};
        if (allowed(&s->q->options, &a.knobs))
            s->tries[s->n_tries++] = a;
    }
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
        bool packed;

        if (wd->last < t->loop_begin || !r.bytes)
            continue;
        for (int32_t i = 0; i < wd->n_dims; i++)
            file *= wd->dims[i];
        packed = wd->source && wd->source->packed;
        file = packed ? (double)r.bytes : file;
        r.seconds = tsr_plan_read_seconds(file, packed);
        r.value = r.seconds / (double)r.bytes;
        s->order[s->n_order++] = r;
    }
    qsort(s->order, s->n_order, sizeof *s->order, by_value);
    return TSR_OK;
}

/* What a candidate keeps in a given room. */
typedef struct keeping {
    size_t n; /* of the order */
    size_t bytes;
    double seconds; /* saved a step */
} keeping;

/* Vectors may be there already. */
static bool is_there(const search *s, const attempt *a, int32_t w)
{
    return a->knobs.all_resident ||
           (s->q->tape->weights[w].kind == TSR_WEIGHT_VECTOR && !a->knobs.stream_vectors);
}

static keeping keep(const search *s, const attempt *a, size_t room)
{
    keeping k = {0};
    bool may = !a->knobs.all_resident && s->q->options.offload == TSR_OFFLOAD_AUTO;

    for (; may && k.n < s->n_order; k.n++) {
        const ranked_weight *r = &s->order[k.n];
        if (is_there(s, a, r->w))
            continue;
        if (r->bytes > room - k.bytes)
            break;
        k.bytes += r->bytes;
        k.seconds += r->seconds;
    }
    return k;
}

/* Seconds of the candidate with `room` bytes for weights. */
static double seconds_with(const search *s, const attempt *a, size_t room)
{
    return tsr_plan_seconds(&a->costs, s->q, keep(s, a, room).seconds);
}

/* Jobs of kept weights go, their readers read the resident place. `map`: [n_items] zeroed. */
static void drop_jobs(tsr_plan *p, int32_t *map)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->n_jobs; i++) {
        tsr_job job = p->jobs[i];
        if (job.kind == TSR_JOB_WEIGHT && p->weight_item[job.index])
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

/* ------------------------------------------------------------------- the search */

/* Lowers the candidate; what was learned is noted. */
static tsr_status make(search *s, attempt *a, tsr_plan *p)
{
    TSR_TRY(tsr_plan_lower(p, s->q, &a->knobs, s->err));
    p->candidate = a->number;
    a->bound = p->live_bytes;
    a->costs = (tsr_plan){.prologue = p->prologue, .loop = p->loop};
    return TSR_OK;
}

/* Offsets of a plan; on failure its tables are freed. */
static tsr_status place(search *s, attempt *a, tsr_plan *p)
{
    tsr_status st = tsr_plan_offsets(p->items, p->n_items, &p->layout, s->err);

    if (st != TSR_OK)
        tsr_plan_free(p);
    else
        a->peak = tsr_max_size(1, p->layout.peak_bytes);
    return st;
}

/* Every candidate once, the smallest first: its offsets only where they may be a new minimum. */
static tsr_status survey(search *s, tsr_plan_sizes *sizes)
{
    size_t minimum = SIZE_MAX;

    for (int32_t i = s->n_tries - 1; i >= 0; i--) {
        attempt *a = &s->tries[i];
        tsr_plan p;
        TSR_TRY(make(s, a, &p));
        if (a->bound < minimum || i == 0) {
            TSR_TRY(place(s, a, &p));
            minimum = tsr_min_size(minimum, a->peak);
        }
        tsr_plan_free(&p);
    }
    sizes->minimum_bytes = minimum;
    sizes->fastest_bytes = s->tries[0].peak;
    return TSR_OK;
}

static tsr_status know_peak(search *s, attempt *a)
{
    tsr_plan p;

    if (a->peak)
        return TSR_OK;
    TSR_TRY(make(s, a, &p));
    TSR_TRY(place(s, a, &p));
    tsr_plan_free(&p);
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

        if (a->bound > budget || (*best >= 0 && seconds_with(s, a, budget - a->bound) >= seconds))
            continue;
        TSR_TRY(know_peak(s, a));
        if (a->peak > budget)
            continue;
        now = seconds_with(s, a, budget - a->peak);
        if (*best >= 0 && now >= seconds)
            continue;
        *best = i;
        seconds = now;
    }
    return TSR_OK;
}

/* ------------------------------------------------------------- the plan itself */

/* Items for the kept weights. */
static tsr_status add_kept(search *s, const attempt *a, const keeping *k, tsr_plan *p)
{
    tsr_lower l = {.plan = p, .err = s->err};

    for (size_t i = 0; i < k->n && l.st == TSR_OK; i++) {
        int32_t w = s->order[i].w, item;
        if (is_there(s, a, w))
            continue;
        item = tsr_lower_item(&l, s->order[i].bytes, TSR_ITEM_WEIGHT);
        p->weight_item[w] = item;
        p->items[item].first = 0;
        p->items[item].last = tsr_max_i32((int32_t)p->n_actions, 1);
    }
    return l.st;
}

/* Adds the kept weights below the rest. */
static tsr_status settle(search *s, attempt *a, size_t room, tsr_plan *p)
{
    keeping k = keep(s, a, room);
    int32_t *map;

    p->resident_bytes = k.bytes;
    if (k.bytes == 0)
        return TSR_OK;
    TSR_TRY(add_kept(s, a, &k, p));
    map = tsr_calloc(p->n_items, sizeof *map);
    if (!map)
        TSR_FAIL(s->err, TSR_E_OOM, "no memory for the tables of the plan");
    drop_jobs(p, map);
    tsr_free(map);
    tsr_plan_order_jobs(p);
    tsr_plan_costs(p, s->q);
    return tsr_plan_offsets(p->items, p->n_items, &p->layout, s->err);
}

static tsr_status choose(search *s, tsr_plan_sizes *sizes, int32_t *best)
{
    size_t budget = s->q->options.budget_bytes;

    list_candidates(s);
    TSR_TRY(rank_weights(s));
    TSR_TRY(survey(s, sizes));
    *best = 0;
    if (budget == 0)
        return TSR_OK;
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
    size_t budget = q->options.budget_bytes;
    tsr_plan made = {0};
    int32_t best = 0;
    tsr_status st = TSR_OK;

    *sizes = (tsr_plan_sizes){0};
    if (!s)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the tables of the plan");
    s->q = q;
    s->err = err;
    TSR_TRY_GOTO(choose(s, sizes, &best));
    TSR_TRY_GOTO(make(s, &s->tries[best], &made));
    TSR_TRY_GOTO(place(s, &s->tries[best], &made));
    TSR_TRY_GOTO(settle(s, &s->tries[best], budget ? budget - s->tries[best].peak : 0, &made));
    *p = made;
    made = (tsr_plan){0};
done:
    tsr_plan_free(&made);
    tsr_free(s->order);
    tsr_free(s);
    return st;
}
