/* plan_make.c -- the fastest candidate that fits.
 *
 * What is left of the budget above a streamed candidate's own peak holds weights, the most valuable
 * first (seconds saved a byte), always a beginning of one fixed order. They are stacked below the
 * rest, whose offsets stay: so a plan's peak is exactly its candidate's plus what is kept, more
 * budget means a longer beginning and no more seconds, and the fastest that fits is monotone in the
 * budget by construction.
 *
 * Offsets cost as much as lowering, so they are computed only where they can matter: the largest
 * live sum bounds the peak from below, and with it the time (branch and bound). A plan's tables
 * may take megabytes: there is one at a time, in the same memory, made again where it is wanted
 * again. What was learned of the candidates is the survey: it does not depend on the budget, and
 * planning again takes a tenth of the time with it. */
#include "kernels/plan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MOST_CANDIDATES = 16 };

/* One candidate and what is known of it. */
typedef struct attempt {
    tsr_knobs knobs;
    int32_t number;
    size_t bound, peak; /* of the arena: from below, and exactly (0: not known yet) */
    bool lowered;       /* else `bound` is a guess from below, and the costs are not known */
    tsr_plan_cost prologue, loop;
} attempt;

typedef struct ranked_weight {
    int32_t value; /* sixteenths of a byte that are not read, a byte that is held */
    double seconds;
    size_t bytes;
    int32_t w;
} ranked_weight;

struct tsr_plan_survey {
    attempt tries[MOST_CANDIDATES];
    int32_t n_tries, n_steps;
    ranked_weight *order; /* weights of the loop, the most valuable first */
    size_t n_order;
    tsr_plan_sizes sizes;
};

typedef struct search {
    const tsr_plan_question *q;
    tsr_err *err;
    tsr_plan_survey *known;
    tsr_lower_tables tables;
    tsr_plan plan;       /* of the candidate that was lowered last */
    const attempt *last; /* this one */
    bool placed;         /* and has its offsets */
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
            s->known->tries[s->known->n_tries++] = a;
    }
}

/* ----------------------------------------------------------- resident weights */

static int by_value(const void *pa, const void *pb)
{
    const ranked_weight *a = pa, *b = pb;

    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    if (a->bytes != b->bytes) /* the small ones fill any room */
        return a->bytes < b->bytes ? -1 : 1;
    return a->w < b->w ? -1 : a->w > b->w;
}

/* Weights of the loop; a file in float32 is worth more, since it is packed smaller. */
static tsr_status rank_weights(search *s)
{
    const tsr_tape *t = s->q->tape;
    tsr_plan_survey *k = s->known;

    k->order = tsr_calloc(t->n_weights, sizeof *k->order);
    if (!k->order)
        TSR_FAIL(s->err, TSR_E_OOM, "no memory for the tables of the plan");
    for (size_t w = 1; w < t->n_weights; w++) {
        const tsr_weight *wd = &t->weights[w];
        ranked_weight r = {.bytes = tsr_align_up(tsr_plan_packed(s->q, w), TSR_PLAN_ALIGN),
                           .w = (int32_t)w};
        double file;

        if (wd->last < t->loop_begin || !r.bytes)
            continue;
        file = tsr_plan_file_bytes(wd, r.bytes);
        r.seconds = tsr_plan_read_seconds(file, wd->source && wd->source->packed);
        r.value = (int32_t)(16 * file / (double)r.bytes + 0.5);
        k->order[k->n_order++] = r;
    }
    qsort(k->order, k->n_order, sizeof *k->order, by_value);
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

/* A net of one step reads every weight once, kept or not. */
static keeping keep(const search *s, const attempt *a, size_t room)
{
    const tsr_plan_survey *known = s->known;
    keeping k = {0};
    bool may =
        !a->knobs.all_resident && s->q->options.offload == TSR_OFFLOAD_AUTO && known->n_steps > 1;

    for (; may && k.n < known->n_order; k.n++) {
        const ranked_weight *r = &known->order[k.n];
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
    return tsr_plan_cost_seconds(&a->prologue, 0, s->q->n_threads) +
           s->known->n_steps *
               tsr_plan_cost_seconds(&a->loop, keep(s, a, room).seconds, s->q->n_threads);
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
static tsr_status make(search *s, attempt *a)
{
    s->last = NULL;
    s->placed = false;
    TSR_TRY(tsr_plan_lower(&s->plan, &s->tables, s->q, &a->knobs, s->err));
    s->last = a;
    s->plan.candidate = a->number;
    a->lowered = true;
    a->bound = s->plan.live_bytes;
    a->prologue = s->plan.prologue;
    a->loop = s->plan.loop;
    return TSR_OK;
}

/* The same with offsets. */
static tsr_status place(search *s, attempt *a)
{
    if (s->last != a)
        TSR_TRY(make(s, a));
    if (s->placed)
        return TSR_OK;
    TSR_TRY(tsr_plan_offsets(s->plan.items, s->plan.n_items, &s->plan.layout, s->err));
    s->placed = true;
    a->peak = tsr_max_size(1, s->plan.layout.peak_bytes);
    return TSR_OK;
}

/* What a candidate that keeps every weight needs at the least. */
static size_t all_weights(const search *s)
{
    size_t sum = 0;

    for (size_t w = 1; w < s->q->tape->n_weights; w++)
        sum += tsr_plan_packed(s->q, w);
    return sum;
}

/* Every candidate that may be a new minimum, the smallest first. */
static tsr_status survey(search *s)
{
    tsr_plan_survey *k = s->known;
    size_t minimum = SIZE_MAX, weights = all_weights(s);

    k->n_steps = tsr_plan_steps(s->q->tape);
    list_candidates(s);
    TSR_TRY(rank_weights(s));
    for (int32_t i = k->n_tries - 1; i >= 0; i--) {
        attempt *a = &k->tries[i];
        a->bound = a->knobs.all_resident ? weights : 0;
        if (a->bound < minimum || i == 0)
            TSR_TRY(make(s, a));
        if (a->bound < minimum || i == 0) {
            TSR_TRY(place(s, a));
            minimum = tsr_min_size(minimum, a->peak);
        }
    }
    k->sizes.minimum_bytes = minimum;
    k->sizes.fastest_bytes = k->tries[0].peak;
    return TSR_OK;
}

/* The fastest that fits; -1: none does. */
static tsr_status find_fastest(search *s, size_t budget, int32_t *best)
{
    double seconds = 0;

    *best = -1;
    for (int32_t i = 0; i < s->known->n_tries; i++) {
        attempt *a = &s->known->tries[i];
        double now;

        if (a->bound <= budget && !a->lowered)
            TSR_TRY(make(s, a));
        if (a->bound > budget || (*best >= 0 && seconds_with(s, a, budget - a->bound) >= seconds))
            continue;
        if (!a->peak)
            TSR_TRY(place(s, a));
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
static tsr_status add_kept(search *s, const attempt *a, const keeping *k)
{
    tsr_plan *p = &s->plan;
    tsr_lower l = {.plan = p, .err = s->err};

    for (size_t i = 0; i < k->n && l.st == TSR_OK; i++) {
        const ranked_weight *r = &s->known->order[i];
        int32_t item;
        if (is_there(s, a, r->w))
            continue;
        item = tsr_lower_item(&l, r->bytes, TSR_ITEM_WEIGHT);
        p->weight_item[r->w] = item;
        p->items[item].first = 0;
        p->items[item].last = tsr_max_i32((int32_t)p->n_actions, 1);
    }
    return l.st;
}

/* Adds the kept weights below the rest. */
static tsr_status settle(search *s, const attempt *a, size_t room)
{
    keeping k = keep(s, a, room);
    tsr_plan *p = &s->plan;
    int32_t *map;

    p->resident_bytes = k.bytes;
    if (k.bytes == 0)
        return TSR_OK;
    TSR_TRY(add_kept(s, a, &k));
    map = tsr_calloc(p->n_items, sizeof *map);
    if (!map)
        TSR_FAIL(s->err, TSR_E_OOM, "no memory for the tables of the plan");
    drop_jobs(p, map);
    tsr_free(map);
    TSR_TRY(tsr_plan_order_jobs(p, s->err));
    tsr_plan_costs(p, s->q);
    return tsr_plan_offsets(p->items, p->n_items, &p->layout, s->err);
}

static tsr_status choose(search *s, int32_t *best)
{
    size_t budget = s->q->options.budget_bytes;

    *best = 0;
    if (budget == 0)
        return TSR_OK;
    TSR_TRY(find_fastest(s, budget, best));
    if (*best < 0)
        TSR_FAIL(s->err, TSR_E_BUDGET,
                 "the network needs at least %zu bytes of memory for its data, and %zu are given",
                 s->known->sizes.minimum_bytes, budget);
    return TSR_OK;
}

/* The chosen candidate once more, with what the room holds. */
static tsr_status make_best(search *s)
{
    size_t budget = s->q->options.budget_bytes;
    int32_t best;
    attempt *a;

    TSR_TRY(choose(s, &best));
    a = &s->known->tries[best];
    TSR_TRY(place(s, a));
    return settle(s, a, budget ? budget - a->peak : 0);
}

/* The survey that was kept, or a new one. */
static tsr_status know(search *s)
{
    tsr_plan_survey **kept = s->q->options.survey;

    s->known = kept ? *kept : NULL;
    if (s->known)
        return TSR_OK;
    s->known = tsr_calloc(1, sizeof *s->known);
    if (!s->known)
        TSR_FAIL(s->err, TSR_E_OOM, "no memory for the tables of the plan");
    TSR_TRY(survey(s));
    if (kept)
        *kept = s->known;
    return TSR_OK;
}

/* `p` points to an array of any type; a smaller one that cannot be had leaves it as it is. */
static void shrink(void *p, size_t *cap, size_t n, size_t size)
{
    void *old, *small;

    memcpy(&old, p, sizeof old);
    small = n && n < *cap ? tsr_realloc(old, n * size) : NULL;
    if (!small)
        return;
    memcpy(p, &small, sizeof small);
    *cap = n;
}

/* The tables had room for the largest candidate. */
static void trim(tsr_plan *p)
{
    shrink(&p->actions, &p->cap_actions, p->n_actions, sizeof *p->actions);
    shrink(&p->items, &p->cap_items, p->n_items, sizeof *p->items);
    shrink(&p->jobs, &p->cap_jobs, p->n_jobs, sizeof *p->jobs);
    shrink(&p->regions, &p->cap_regions, p->n_regions, sizeof *p->regions);
}

void tsr_plan_survey_free(tsr_plan_survey *s)
{
    if (s)
        tsr_free(s->order);
    tsr_free(s);
}

tsr_status tsr_plan_make(tsr_plan *p, tsr_plan_sizes *sizes, const tsr_plan_question *q,
                         tsr_err *err)
{
    search s = {.q = q, .err = err};
    tsr_status st = know(&s);

    *sizes = (tsr_plan_sizes){0};
    if (st == TSR_OK) {
        *sizes = s.known->sizes;
        st = make_best(&s);
    }
    if (st == TSR_OK) {
        trim(&s.plan);
        *p = s.plan;
    } else {
        tsr_plan_free(&s.plan);
    }
    tsr_lower_tables_free(&s.tables);
    if (!q->options.survey || *q->options.survey != s.known)
        tsr_plan_survey_free(s.known);
    return st;
}
