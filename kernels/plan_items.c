/* plan_items.c -- the plan's growing lists: items, jobs, regions of the spill file, actions.
 *
 * An item begins at the time at which it is asked for and ends at the last time it is touched. */
#include "kernels/plan_internal.h"

#include <string.h>

#include "base/alloc.h"

int32_t tsr_lower_now(const tsr_lower *l)
{
    return (int32_t)l->plan->n_actions + 1;
}

/* Room for one more; slot 0 of items and regions stays zero. */
static bool room(tsr_lower *l, void **array, size_t *cap, size_t n, size_t size)
{
    bool fresh = *array == NULL;

    if (l->st != TSR_OK)
        return false;
    if (n >= INT32_MAX / 2 || !tsr_grow(array, cap, n + 1, size)) {
        l->st = tsr_err_set(l->err, TSR_E_OOM, "no memory for the tables of the plan");
        return false;
    }
    if (fresh)
        memset(*array, 0, size);
    return true;
}

int32_t tsr_lower_item(tsr_lower *l, size_t bytes, tsr_item_class cls)
{
    tsr_plan *p = l->plan;
    int32_t now = tsr_lower_now(l);

    p->n_items += p->n_items == 0;
    if (!room(l, (void **)&p->items, &p->cap_items, p->n_items, sizeof *p->items))
        return 0;
    p->items[p->n_items] = (tsr_item){
        .bytes = tsr_align_up(bytes, TSR_PLAN_ALIGN), .first = now, .last = now, .cls = cls};
    return (int32_t)p->n_items++;
}

void tsr_lower_touch(tsr_lower *l, int32_t item)
{
    if (item)
        l->plan->items[item].last = tsr_max_i32(l->plan->items[item].last, tsr_lower_now(l));
}

void tsr_lower_grow(tsr_lower *l, int32_t item, size_t bytes)
{
    if (item)
        l->plan->items[item].bytes =
            tsr_max_size(l->plan->items[item].bytes, tsr_align_up(bytes, TSR_PLAN_ALIGN));
}

int32_t tsr_lower_job(tsr_lower *l, const tsr_job *job)
{
    tsr_plan *p = l->plan;

    if (!room(l, (void **)&p->jobs, &p->cap_jobs, p->n_jobs, sizeof *p->jobs))
        return -1;
    p->jobs[p->n_jobs] = *job;
    p->jobs[p->n_jobs].in_loop = l->in_loop;
    return (int32_t)p->n_jobs++;
}

int32_t tsr_lower_region(tsr_lower *l, tsr_val v)
{
    tsr_plan *p = l->plan;
    int32_t now = tsr_lower_now(l);

    p->n_regions += p->n_regions == 0;
    if (!room(l, (void **)&p->regions, &p->cap_regions, p->n_regions, sizeof *p->regions))
        return 0;
    p->regions[p->n_regions] = (tsr_item){.bytes = tsr_value_bytes(&l->t->values[v]),
                                          .first = now,
                                          .last = now,
                                          .cls = TSR_ITEM_ACTIVATION};
    return (int32_t)p->n_regions++;
}

void tsr_lower_action(tsr_lower *l, const tsr_action *a)
{
    tsr_plan *p = l->plan;

    if (room(l, (void **)&p->actions, &p->cap_actions, p->n_actions, sizeof *p->actions))
        p->actions[p->n_actions++] = *a;
}

void tsr_plan_free(tsr_plan *p)
{
    tsr_free(p->actions);
    tsr_free(p->items);
    tsr_free(p->jobs);
    tsr_free(p->regions);
    tsr_free(p->value_item);
    tsr_free(p->weight_item);
    *p = (tsr_plan){0};
}
