/* plan_lower.c -- one candidate lowered: what is there from the start, then the tape's chains, then
 * read-ahead and waits, then costs. */
#include "kernels/plan_internal.h"

#include <string.h>

#include "base/alloc.h"

size_t tsr_plan_packed(const tsr_plan_question *q, size_t w)
{
    const tsr_weight *wd = &q->tape->weights[w];

    return wd->first < 0 ? 0 : q->backend->packed_bytes(q->backend, &q->tape->ops[wd->first], wd);
}

/* What the candidate keeps from the start. */
static void mark_resident(const tsr_tape *t, const tsr_knobs *k, uint8_t *resident)
{
    for (size_t w = 1; w < t->n_weights; w++)
        resident[w] =
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
    l->plan->staging_bytes = q->backend->device ? staging : 0;
    l->plan->staging_item = tsr_lower_item(l, staging - l->plan->staging_bytes, TSR_ITEM_WORK);
    if (l->st != TSR_OK)
        return;
    l->plan->items[l->plan->staging_item].first = 0;
    l->plan->items[l->plan->staging_item].last = l->k->all_resident ? 0 : TSR_TO_THE_END;
}

void tsr_lower_tables_free(tsr_lower_tables *x)
{
    tsr_free(x->resident);
    tsr_free(x->values);
    tsr_free(x->held);
    tsr_free(x->stats);
    tsr_free(x->live);
    tsr_free(x->early);
    tsr_free(x->time);
    tsr_free(x->into);
    *x = (tsr_lower_tables){0};
}

static bool zeroed(void *pp, size_t n, size_t size)
{
    void *p;

    memcpy(&p, pp, sizeof p); /* the address of a pointer of any type */
    if (p) {
        memset(p, 0, n * size);
        return true;
    }
    p = tsr_calloc(n, size);
    memcpy(pp, &p, sizeof p);
    return p != NULL;
}

/* Empty tables; those of an earlier candidate are taken again. */
static tsr_status begin_tables(tsr_lower *l, tsr_plan *p, const tsr_tape *t)
{
    tsr_lower_tables *x = l->tables;

    p->n_actions = p->n_items = p->n_jobs = p->n_regions = 0;
    if (!zeroed(&x->resident, t->n_weights, sizeof *x->resident) ||
        !zeroed(&x->values, t->n_values, sizeof *x->values) ||
        !zeroed(&x->held, t->n_weights, sizeof *x->held) ||
        !zeroed(&x->stats, t->n_ops + 1, sizeof *x->stats) ||
        !zeroed(&p->value_item, t->n_values, sizeof *p->value_item) ||
        !zeroed(&p->weight_item, t->n_weights, sizeof *p->weight_item))
        TSR_FAIL(l->err, TSR_E_OOM, "no memory for the tables of the plan");
    l->values = x->values;
    l->held = x->held;
    l->stats = x->stats;
    l->resident = x->resident;
    return TSR_OK;
}

tsr_status tsr_plan_lower(tsr_plan *p, tsr_lower_tables *tables, const tsr_plan_question *q,
                          const tsr_knobs *k, tsr_err *err)
{
    tsr_lower l = {.t = q->tape,
                   .b = q->backend,
                   .n_threads = q->n_threads,
                   .tile_rows = q->options.tile_rows,
                   .k = k,
                   .tables = tables,
                   .plan = p,
                   .err = err};

    TSR_TRY(begin_tables(&l, p, q->tape));
    mark_resident(q->tape, k, tables->resident);
    first_items(&l, q);
    TSR_TRY(tsr_lower_all(&l));
    TSR_TRY(tsr_lower_finish(&l));
    tsr_plan_costs(p, q);
    return TSR_OK;
}
