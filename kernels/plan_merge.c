/* plan_merge.c -- pieces of a streamed weight put together again where there is room.
 *
 * A candidate cuts streamed weights into pieces that fit where memory is scarcest: where the
 * image is largest, and the weights are small. Where the image is small the weights are large, and
 * each piece costs: the op's input is gathered again, and threads wait for each other at its end.
 * So, once lifetimes are known, neighbouring pieces of an op become one action, as many as leave
 * room for a piece of the same size that is read meanwhile. The plan's peak does not change.
 *
 * Times change: tables->time maps the old ones, and many may become one. An item that is merged
 * into another stays in the list, empty. */
#include "kernels/plan_internal.h"

#include <string.h>

typedef struct merge {
    const tsr_lower *l;
    tsr_plan *p;
    tsr_lower_tables *x;
    size_t ceiling, most; /* live bytes; bytes of a merged piece */
} merge;

static bool is_piece_of(const tsr_action *a, int32_t op)
{
    return a->op == op && a->window.c1 > 0;
}

/* Pieces of the op from action `at` on. */
static size_t count_pieces(const tsr_plan *p, size_t at)
{
    size_t n = 1;

    while (at + n < p->n_actions && p->actions[at].window.c1 > 0 &&
           is_piece_of(&p->actions[at + n], p->actions[at].op))
        n++;
    return n;
}

static tsr_window joined(const tsr_plan *p, size_t at, size_t n)
{
    tsr_window w = p->actions[at].window;

    w.c1 = p->actions[at + n - 1].window.c1;
    return w;
}

static size_t work_of(const merge *m, size_t at, size_t n)
{
    tsr_window w = joined(m->p, at, n);
    const tsr_op *op = &m->l->t->ops[m->p->actions[at].op];

    return tsr_align_up(m->l->b->work_bytes(m->l->b, m->l->t, op, &w, m->l->n_threads),
                        TSR_PLAN_ALIGN);
}

/* How many of the `n` pieces at `at` become one action. */
static size_t pieces_together(const merge *m, size_t at, size_t n)
{
    const tsr_plan *p = m->p;
    size_t rest = 0, piece = 0, work = p->items[p->actions[at].work].bytes;

    for (size_t i = at; i < at + n; i++) {
        size_t bytes = p->items[p->actions[i].w[0]].bytes;
        piece = tsr_max_size(piece, bytes);
        rest = tsr_max_size(rest, m->x->live[i + 1] - bytes - work);
    }
    for (size_t parts = 1; parts < n; parts++) {
        size_t together = (n + parts - 1) / parts, bytes = together * piece;
        if (bytes <= m->most && rest + 2 * bytes + work_of(m, at, together) <= m->ceiling)
            return together;
    }
    return 1;
}

/* Pieces [at, at + n) become the action `to`. */
static void join(const merge *m, size_t at, size_t n, size_t to)
{
    tsr_plan *p = m->p;
    const tsr_op *op = &m->l->t->ops[p->actions[at].op];
    const tsr_weight *w = &m->l->t->weights[op->w[0]];
    tsr_action a = p->actions[at];
    const tsr_backend *b = m->l->b;

    a.window = joined(p, at, n);
    for (size_t i = at + 1; i < at + n; i++) {
        m->x->into[p->actions[i].w[0]] = a.w[0];
        p->items[p->actions[i].w[0]].bytes = 0;
    }
    p->items[a.w[0]].bytes = tsr_align_up(b->packed_offset(b, op, w, a.window.c1) -
                                              b->packed_offset(b, op, w, a.window.c0),
                                          TSR_PLAN_ALIGN);
    p->items[a.work].bytes = tsr_max_size(p->items[a.work].bytes, work_of(m, at, n));
    p->actions[to] = a;
}

static void merge_actions(const merge *m)
{
    tsr_plan *p = m->p;
    size_t made = 0, n, together;

    m->x->time[0] = 0;
    for (size_t at = 0; at < p->n_actions; at += n) {
        n = count_pieces(p, at);
        together = n > 1 ? pieces_together(m, at, n) : 1;
        for (size_t i = 0; i < n; i += together) {
            size_t k = tsr_min_size(together, n - i);
            for (size_t j = 0; j < k; j++)
                m->x->time[at + i + j + 1] = (int32_t)made + 1;
            if (k > 1)
                join(m, at + i, k, made++);
            else
                p->actions[made++] = p->actions[at + i];
        }
    }
    m->x->time[p->n_actions + 1] = (int32_t)made + 1;
    p->loop_action = m->x->time[p->loop_action + 1] - 1;
    p->n_actions = made;
}

/* Jobs of merged pieces become one. */
static void merge_jobs(const merge *m)
{
    tsr_plan *p = m->p;
    size_t kept = 0, head;

    for (size_t i = 0; i < p->n_jobs; i++) {
        const tsr_job *job = &p->jobs[i];
        int32_t into = job->kind == TSR_JOB_WEIGHT ? m->x->into[job->item] : 0;

        if (!into) {
            p->jobs[kept++] = *job;
            continue;
        }
        for (head = kept - 1; p->jobs[head].item != into; head--)
            ;
        p->jobs[head].b = job->b;
    }
    p->n_jobs = kept;
}

static void map_time(const merge *m, size_t n, int32_t *t)
{
    if ((size_t)*t <= n)
        *t = m->x->time[*t];
}

static void map_times(const merge *m, size_t n)
{
    tsr_plan *p = m->p;

    for (size_t i = 1; i < p->n_items; i++) {
        map_time(m, n, &p->items[i].first);
        map_time(m, n, &p->items[i].last);
    }
    for (size_t i = 1; i < p->n_regions; i++) {
        map_time(m, n, &p->regions[i].first);
        map_time(m, n, &p->regions[i].last);
    }
    for (size_t i = 0; i < p->n_jobs; i++) {
        map_time(m, n, &p->jobs[i].issue);
        map_time(m, n, &p->jobs[i].due);
        map_time(m, n, &p->jobs[i].earliest);
    }
}

void tsr_lower_merge(const tsr_lower *l, size_t ceiling)
{
    merge m = {
        .l = l, .p = l->plan, .x = l->tables, .ceiling = ceiling, .most = l->k->ahead_bytes / 2};
    size_t n = l->plan->n_actions + 1;

    memset(m.x->into, 0, l->plan->n_items * sizeof *m.x->into);
    merge_actions(&m);
    if (l->plan->n_actions + 1 == n)
        return;
    merge_jobs(&m);
    map_times(&m, n);
}
