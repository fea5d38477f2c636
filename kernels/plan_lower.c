/* plan_lower.c -- one candidate lowered: what is there from the start, then the tape's chains, then
 * read-ahead and waits, then costs. */
#include "kernels/plan_internal.h"

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

static tsr_status lower_tables(tsr_lower *l, tsr_plan *p, const tsr_tape *t)
{
    l->values = tsr_calloc(t->n_values, sizeof *l->values);
    l->held = tsr_calloc(t->n_weights, sizeof *l->held);
    l->stats = tsr_calloc(t->n_ops + 1, sizeof *l->stats);
    p->value_item = tsr_calloc(t->n_values, sizeof *p->value_item);
    p->weight_item = tsr_calloc(t->n_weights, sizeof *p->weight_item);
    if (!l->resident || !l->values || !l->held || !l->stats || !p->value_item || !p->weight_item)
        TSR_FAIL(l->err, TSR_E_OOM, "no memory for the tables of the plan");
    return TSR_OK;
}

tsr_status tsr_plan_lower(tsr_plan *p, const tsr_plan_question *q, const tsr_knobs *k, tsr_err *err)
{
    uint8_t *resident = tsr_calloc(q->tape->n_weights, 1);
    tsr_lower l = {.t = q->tape,
                   .b = q->backend,
                   .n_threads = q->n_threads,
                   .tile_rows = q->options.tile_rows,
                   .k = k,
                   .resident = resident,
                   .plan = p,
                   .err = err};
    tsr_status st = TSR_OK;

    *p = (tsr_plan){0};
    TSR_TRY_GOTO(lower_tables(&l, p, q->tape));
    mark_resident(q->tape, k, resident);
    first_items(&l, q);
    TSR_TRY_GOTO(tsr_lower_all(&l));
    TSR_TRY_GOTO(tsr_lower_finish(&l));
    tsr_plan_costs(p, q);
done:
    tsr_free(resident);
    tsr_free(l.values);
    tsr_free(l.held);
    tsr_free(l.stats);
    if (st != TSR_OK)
        tsr_plan_free(p);
    return st;
}
