/* planner.c -- lifetimes to offsets: greedy best fit, larger items first.
 *
 * Items that live the whole time (weights) can share with nobody: they are stacked at the bottom
 * in index order. The others follow above them, largest first (ties by index): among those already
 * placed whose lifetimes meet the item's, in order of offset, the smallest gap that fits is taken,
 * else the place above the last of them. The list of placed items is kept sorted by offset, so
 * one item costs one walk. Most items live for a few steps only: time is cut into SPANS spans, each
 * with a list of its own of what lives in it, and an item inside one span walks that list. The
 * answer is the same; 4,000 items of SDXL's UNet take 2 ms and not 10.
 *
 * Sizes count rounded up to TSR_PLAN_ALIGN. The order of placing is part of the plan's hash:
 * changing it changes no pixel, but every recorded plan.
 *
 * Source: greedy-by-size offset calculation of Pisarchyk and Lee, "Efficient Memory Management for
 * Deep Neural Net Inference" (2020). */
#include "memory/planner.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

enum { SPANS = 64 };

typedef struct slot {
    size_t begin, end;
    int32_t first, last;
} slot;

typedef struct ranked {
    size_t key; /* size or time */
    size_t index;
} ranked;

static size_t taken(const tsr_item *item)
{
    return tsr_align_up(item->bytes, TSR_PLAN_ALIGN);
}

static int by_size_down(const void *pa, const void *pb)
{
    const ranked *a = pa, *b = pb;

    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Every size and lifetime is sane and their sum fits a size_t: nothing wraps afterwards. */
static tsr_status check_items(const tsr_item *items, size_t n, tsr_err *err)
{
    size_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (items[i].first > items[i].last || (unsigned)items[i].cls >= TSR_ITEM_CLASSES)
            TSR_FAIL(err, TSR_E_INTERNAL,
                     "the planner was given a lifetime that ends before it "
                     "begins");
        if (items[i].bytes > SIZE_MAX - TSR_PLAN_ALIGN ||
            !tsr_add_size(sum, taken(&items[i]), &sum))
            TSR_FAIL(err, TSR_E_BUDGET, "the memory needed is more than any machine can address");
    }
    return TSR_OK;
}

/* Stacks what lives from the first to the last time; returns where they end. The rest's ranks
 * go to `rest`. */
static size_t place_whole(tsr_item *items, size_t n, ranked *rest, size_t *n_rest)
{
    int32_t first = n ? items[0].first : 0, last = n ? items[0].last : 0;
    size_t end = 0;

    for (size_t i = 1; i < n; i++) {
        first = tsr_min_i32(first, items[i].first);
        last = tsr_max_i32(last, items[i].last);
    }
    *n_rest = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].offset = 0;
        if (items[i].bytes == 0)
            continue;
        if (items[i].first == first && items[i].last == last) {
            items[i].offset = end;
            end += taken(&items[i]);
        } else {
            rest[(*n_rest)++] = (ranked){items[i].bytes, i};
        }
    }
    return end;
}

/* The best place for `bytes` at or above `floor` beside the placed ones that live at the same time.
 */
static size_t best_gap(const slot *placed, size_t n, size_t floor, const tsr_item *item)
{
    size_t bytes = taken(item), end = floor, best = 0, best_size = SIZE_MAX;

    for (size_t i = 0; i < n; i++) {
        const slot *s = &placed[i];
        if (s->last < item->first || s->first > item->last)
            continue;
        if (s->begin > end && s->begin - end >= bytes && s->begin - end < best_size) {
            best_size = s->begin - end;
            best = end;
        }
        end = tsr_max_size(end, s->end);
    }
    return best_size == SIZE_MAX ? end : best;
}

static void insert_slot(slot *placed, size_t n, slot s)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (placed[mid].begin <= s.begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(placed + lo + 1, placed + lo, (n - lo) * sizeof *placed);
    placed[lo] = s;
}

/* What is placed and lives in one span of time; list SPANS has all. */
typedef struct slot_list {
    slot *slots;
    size_t n, cap;
} slot_list;

typedef struct placed_items {
    slot_list lists[SPANS + 1];
    int64_t first, length; /* of a span */
} placed_items;

static int32_t span_of(const placed_items *p, int32_t time)
{
    return (int32_t)((time - p->first) / p->length);
}

/* Where to look for the item's neighbours. */
static const slot_list *neighbours(const placed_items *p, const tsr_item *item)
{
    int32_t a = span_of(p, item->first), b = span_of(p, item->last);

    return &p->lists[a == b ? a : SPANS];
}

static bool add_placed(placed_items *p, const tsr_item *item)
{
    slot s = {item->offset, item->offset + taken(item), item->first, item->last};
    int32_t a = span_of(p, item->first), b = span_of(p, item->last);

    for (int32_t i = a; i <= SPANS; i = i == b ? SPANS : i + 1) {
        slot_list *list = &p->lists[i];
        if (!tsr_grow((void **)&list->slots, &list->cap, list->n + 1, sizeof s))
            return false;
        insert_slot(list->slots, list->n++, s);
    }
    return true;
}

static void cut_time(placed_items *p, const tsr_item *items, const ranked *rest, size_t n_rest)
{
    int64_t first = INT32_MAX, last = INT32_MIN;

    for (size_t i = 0; i < n_rest; i++) {
        const tsr_item *item = &items[rest[i].index];
        first = item->first < first ? item->first : first;
        last = item->last > last ? item->last : last;
    }
    p->first = first;
    p->length = (last - first) / SPANS + 1;
}

/* False when out of memory. */
static bool place_rest(tsr_item *items, ranked *rest, size_t n_rest, size_t floor)
{
    placed_items p = {0};
    bool ok = true;

    cut_time(&p, items, rest, n_rest);
    qsort(rest, n_rest, sizeof *rest, by_size_down);
    for (size_t i = 0; i < n_rest && ok; i++) {
        tsr_item *item = &items[rest[i].index];
        const slot_list *near = neighbours(&p, item);
        item->offset = best_gap(near->slots, near->n, floor, item);
        ok = add_placed(&p, item);
    }
    for (int32_t i = 0; i <= SPANS; i++)
        tsr_free(p.lists[i].slots);
    return ok;
}

static int by_time(const void *pa, const void *pb)
{
    const ranked *a = pa, *b = pb;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* int32 order as size_t order */
static size_t time_key(int32_t t)
{
    return (size_t)((int64_t)t - INT32_MIN);
}

/* Sweeps the times: the live sum is largest when some item has just begun. */
static void find_peak(const tsr_item *items, size_t n, ranked *begin, ranked *end,
                      tsr_layout *layout)
{
    size_t live[TSR_ITEM_CLASSES] = {0}, sum = 0, most = 0, ended = 0;

    for (size_t i = 0; i < n; i++) {
        begin[i] = (ranked){time_key(items[i].first), i};
        end[i] = (ranked){time_key(items[i].last), i};
    }
    qsort(begin, n, sizeof *begin, by_time);
    qsort(end, n, sizeof *end, by_time);
    for (size_t i = 0; i < n; i++) {
        const tsr_item *now = &items[begin[i].index];
        for (; ended < n && end[ended].key < begin[i].key; ended++) {
            const tsr_item *gone = &items[end[ended].index];
            live[gone->cls] -= taken(gone);
            sum -= taken(gone);
        }
        live[now->cls] += taken(now);
        sum += taken(now);
        if (sum > most) {
            most = sum;
            memcpy(layout->class_bytes, live, sizeof live);
            layout->peak_time = now->first;
        }
    }
}

tsr_status tsr_plan_offsets(tsr_item *items, size_t n_items, tsr_layout *layout, tsr_err *err)
{
    tsr_status st = TSR_OK;
    tsr_layout made = {0};
    ranked *ranks = NULL;
    size_t n_rest, floor, n2;

    TSR_TRY(check_items(items, n_items, err));
    if (!tsr_mul_size(n_items, 2, &n2))
        TSR_FAIL(err, TSR_E_BUDGET, "the plan has too many parts");
    ranks = tsr_calloc(n2, sizeof *ranks);
    if (n_items > 0 && !ranks)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the tables of the planner");
    floor = place_whole(items, n_items, ranks, &n_rest);
    if (n_rest > 0 && !place_rest(items, ranks, n_rest, floor)) {
        st = tsr_err_set(err, TSR_E_OOM, "no memory for the tables of the planner");
        goto done;
    }
    for (size_t i = 0; i < n_items; i++)
        made.peak_bytes = tsr_max_size(made.peak_bytes, items[i].offset + taken(&items[i]));
    find_peak(items, n_items, ranks, ranks + n_items, &made);
    *layout = made;
done:
    tsr_free(ranks);
    return st;
}

bool tsr_plan_find_overlap(const tsr_item *items, size_t n_items, size_t *a, size_t *b)
{
    for (size_t i = 0; i < n_items; i++) {
        for (size_t j = i + 1; j < n_items; j++) {
            const tsr_item *x = &items[i], *y = &items[j];
            bool time = x->first <= y->last && y->first <= x->last;
            bool space = x->bytes > 0 && y->bytes > 0 && x->offset < y->offset + y->bytes &&
                         y->offset < x->offset + x->bytes;
            if (time && space) {
                *a = i;
                *b = j;
                return true;
            }
        }
    }
    return false;
}
