/* plan_io.c -- when jobs are issued, and what waits for what.
 *
 * 0. Small pieces become larger ones where there is room (plan_merge.c).
 * 1. Read-ahead. A load may be issued before it is due: its item then lives longer. Going through
 *    the loads in order, each is moved ahead, action by action, while what is live stays under a
 *    ceiling and what has been read and is not yet needed stays under the read-ahead. The ceiling
 *    is the largest live sum that nothing can avoid, plus the room that the candidate allows: so
 *    even the smallest plan reads far ahead wherever it does not need its memory for activations.
 * 2. Order. Jobs are sorted by issue, stores first: they read what the action before has made.
 * 3. Waits. Before action t: stores that were due (their buffers may be written from now on),
 *    then jobs are issued, then loads that are due. One number each, for jobs are done in order.
 * 4. Places in the spill file: lifetimes in planner time, as for the arena. */
#include "kernels/plan_internal.h"

#include <string.h>

#include "base/alloc.h"

/* ----------------------------------------------------------------- lifetimes */

static void clamp_ends(tsr_plan *p)
{
    int32_t end = tsr_max_i32((int32_t)p->n_actions, 1);

    for (size_t i = 1; i < p->n_items; i++)
        p->items[i].last = tsr_max_i32(tsr_min_i32(p->items[i].last, end), p->items[i].first);
    for (size_t i = 1; i < p->n_regions; i++)
        p->regions[i].last = tsr_max_i32(tsr_min_i32(p->regions[i].last, end), p->regions[i].first);
}

/* live[t] for t = 0 .. n_actions + 1 */
static void sum_live(const tsr_plan *p, size_t *live)
{
    size_t n = p->n_actions + 2;

    for (size_t t = 0; t <= n; t++)
        live[t] = 0;
    for (size_t i = 1; i < p->n_items; i++) {
        live[p->items[i].first] += p->items[i].bytes;
        live[p->items[i].last + 1] -= p->items[i].bytes; /* wraps, and the sum wraps back */
    }
    for (size_t t = 1; t < n; t++)
        live[t] += live[t - 1];
}

static size_t largest(const size_t *live, size_t n)
{
    size_t most = 0;

    for (size_t t = 0; t < n; t++)
        most = tsr_max_size(most, live[t]);
    return most;
}

/* ----------------------------------------------------------------- read-ahead */

typedef struct ahead {
    size_t *live, *early;
    size_t ceiling, limit;
} ahead;

static void move_ahead(tsr_plan *p, const tsr_job *job, ahead *a, int32_t *issue)
{
    size_t bytes = p->items[job->item].bytes;
    int32_t t = job->due;

    while (t > *issue && t > job->earliest && a->live[t - 1] + bytes <= a->ceiling &&
           a->early[t - 1] + bytes <= a->limit) {
        t--;
        a->live[t] += bytes;
        a->early[t] += bytes;
    }
    *issue = t;
}

/* Never before the load before it: what is needed first is read first. */
static void read_ahead(tsr_plan *p, ahead *a)
{
    int32_t before = 0;

    for (size_t i = 0; i < p->n_jobs; i++) {
        tsr_job *job = &p->jobs[i];
        if (job->kind == TSR_JOB_STORE || job->earliest >= job->due)
            continue;
        if (job->issue == job->due) {
            job->issue = before;
            move_ahead(p, job, a, &job->issue);
        }
        before = tsr_max_i32(before, job->issue);
        p->items[job->item].first = tsr_min_i32(p->items[job->item].first, job->issue);
    }
}

/* ------------------------------------------------------------- order and waits */

static bool comes_later(const tsr_job *a, const tsr_job *b)
{
    bool store_a = a->kind == TSR_JOB_STORE, store_b = b->kind == TSR_JOB_STORE;

    if (a->issue != b->issue)
        return a->issue > b->issue;
    return store_a != store_b ? store_b : a->due > b->due;
}

/* Sorts by issue by counting; those of one time, which are few or in order, by insertion. `begin`:
 * [n_actions + 3]. The prologue's come first by themselves: none is issued after the loop's first
 * action, and there it is a store. */
static void sort_jobs(const tsr_plan *p, size_t *begin, tsr_job *sorted)
{
    size_t n = p->n_actions + 3, sum = 0;

    memset(begin, 0, n * sizeof *begin);
    for (size_t i = 0; i < p->n_jobs; i++)
        begin[p->jobs[i].issue]++;
    for (size_t t = 0; t < n; t++) {
        size_t count = begin[t];
        begin[t] = sum;
        sum += count;
    }
    for (size_t i = 0; i < p->n_jobs; i++)
        sorted[begin[p->jobs[i].issue]++] = p->jobs[i];
    for (size_t i = 1; i < p->n_jobs; i++) {
        tsr_job job = sorted[i];
        size_t at = i;

        for (; at > 0 && comes_later(&sorted[at - 1], &job); at--)
            sorted[at] = sorted[at - 1];
        if (at < i)
            sorted[at] = job;
    }
}

/* Raises n_free or n_needed of the action of time t to `jobs`. */
static void wait_at(tsr_plan *p, int32_t t, bool needed, int32_t jobs)
{
    tsr_action *a;

    if (t < 1 || (size_t)t > p->n_actions)
        return; /* the end of the section waits for all */
    a = &p->actions[t - 1];
    if (needed)
        a->n_needed = tsr_max_i32(a->n_needed, jobs);
    else
        a->n_free = tsr_max_i32(a->n_free, jobs);
}

static void set_waits(tsr_plan *p)
{
    size_t next = 0;

    p->loop_job = 0;
    for (size_t i = 0; i < p->n_jobs; i++) {
        const tsr_job *job = &p->jobs[i];
        bool load = job->kind != TSR_JOB_STORE;

        p->loop_job += !job->in_loop;
        if (job->due < TSR_TO_THE_END)
            wait_at(p, load ? job->due : job->due + 1, load, (int32_t)i + 1);
    }
    for (size_t t = 0; t < p->n_actions; t++) {
        bool in_loop = (int32_t)t >= p->loop_action;
        while (next < p->n_jobs && p->jobs[next].in_loop <= in_loop &&
               (p->jobs[next].issue <= (int32_t)t + 1 || p->jobs[next].in_loop < in_loop))
            next++;
        p->actions[t].n_issued = (int32_t)next;
    }
}

tsr_status tsr_plan_order_jobs(tsr_plan *p, tsr_err *err)
{
    size_t *begin = tsr_malloc((p->n_actions + 3) * sizeof *begin);
    tsr_job *sorted = tsr_malloc((p->n_jobs + 1) * sizeof *sorted);

    if (begin && sorted && p->n_jobs > 0) {
        sort_jobs(p, begin, sorted);
        memcpy(p->jobs, sorted, p->n_jobs * sizeof *sorted);
    }
    tsr_free(begin);
    tsr_free(sorted);
    if (!begin || !sorted)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the tables of the plan");
    for (size_t t = 0; t < p->n_actions; t++)
        p->actions[t].n_free = p->actions[t].n_needed = 0;
    set_waits(p);
    return TSR_OK;
}

static tsr_status place_spill(tsr_plan *p, tsr_err *err)
{
    tsr_layout layout = {0};

    if (p->n_regions > 1)
        TSR_TRY(tsr_plan_offsets(p->regions, p->n_regions, &layout, err));
    p->spill_bytes = layout.peak_bytes;
    return TSR_OK;
}

static bool times_room(tsr_lower_tables *x, size_t n_times, size_t n_items)
{
    size_t caps[3] = {x->cap_times, x->cap_times, x->cap_times};
    bool ok = tsr_grow((void **)&x->live, &caps[0], n_times, sizeof *x->live) &&
              tsr_grow((void **)&x->early, &caps[1], n_times, sizeof *x->early) &&
              tsr_grow((void **)&x->time, &caps[2], n_times, sizeof *x->time) &&
              tsr_grow((void **)&x->into, &x->cap_into, n_items, sizeof *x->into);

    if (ok)
        x->cap_times = caps[0];
    return ok;
}

tsr_status tsr_lower_finish(tsr_lower *l)
{
    tsr_plan *p = l->plan;
    tsr_lower_tables *x = l->tables;
    size_t n = p->n_actions + 4;
    ahead a = {.limit = l->k->ahead_bytes};

    if (!times_room(x, n, p->n_items + 1))
        TSR_FAIL(l->err, TSR_E_OOM, "no memory for the tables of the plan");
    a.live = x->live;
    a.early = x->early;
    memset(a.early, 0, n * sizeof *a.early);
    clamp_ends(p);
    sum_live(p, a.live);
    a.ceiling = largest(a.live, p->n_actions + 2) + l->k->ahead_room;
    tsr_lower_merge(l, a.ceiling);
    sum_live(p, a.live);
    read_ahead(p, &a);
    p->live_bytes = largest(a.live, p->n_actions + 2);
    TSR_TRY(tsr_plan_order_jobs(p, l->err));
    return place_spill(p, l->err);
}
