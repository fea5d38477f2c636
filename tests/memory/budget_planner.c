/* budget_planner.c -- the planner's promises: live items never overlap, nothing is wasted where
 * there is a choice, the answer depends on the question alone, and it comes at once. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory/planner.h"
#include "tests/support/test.h"

enum { TIMES = 40, MAX_ITEMS = 400 };

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* A third lives the whole time, as weights do; some sizes are zero. */
static size_t random_items(uint64_t seed, tsr_item *items)
{
    uint64_t state = seed;
    size_t n = 1 + draw(&state, MAX_ITEMS);

    for (size_t i = 0; i < n; i++) {
        int32_t a = (int32_t)draw(&state, TIMES), b = (int32_t)draw(&state, TIMES);
        bool whole = draw(&state, 3) == 0;
        items[i] = (tsr_item){.bytes = draw(&state, 8) ? draw(&state, 100000) : 0,
                              .first = whole   ? 0
                                       : a < b ? a
                                               : b,
                              .last = whole   ? TIMES
                                      : a < b ? b
                                              : a,
                              .cls = (tsr_item_class)draw(&state, TSR_ITEM_CLASSES)};
    }
    return n;
}

static size_t rounded(size_t bytes)
{
    return (bytes + TSR_PLAN_ALIGN - 1) / TSR_PLAN_ALIGN * TSR_PLAN_ALIGN;
}

/* Largest live sum, and by class at the layout's peak time. */
static size_t live_sums(const tsr_item *items, size_t n, int32_t peak_time, size_t *by_class)
{
    size_t most = 0;

    memset(by_class, 0, TSR_ITEM_CLASSES * sizeof *by_class);
    for (int32_t t = -10; t <= TIMES; t++) {
        size_t sum = 0;
        for (size_t i = 0; i < n; i++) {
            if (t < items[i].first || t > items[i].last)
                continue;
            sum += rounded(items[i].bytes);
            if (t == peak_time)
                by_class[items[i].cls] += rounded(items[i].bytes);
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static void check_layout(const tsr_item *items, size_t n, const tsr_layout *l)
{
    size_t by_class[TSR_ITEM_CLASSES], a, b, sum = 0, end = 0;
    size_t most = live_sums(items, n, l->peak_time, by_class);

    CHECK_MSG(!tsr_plan_find_overlap(items, n, &a, &b), "items %zu and %zu overlap", a, b);
    CHECK(l->peak_bytes >= most);
    for (int32_t c = 0; c < TSR_ITEM_CLASSES; c++) {
        CHECK(l->class_bytes[c] == by_class[c]);
        sum += by_class[c];
    }
    CHECK(sum == most);
    for (size_t i = 0; i < n; i++) {
        CHECK(items[i].offset % TSR_PLAN_ALIGN == 0);
        if (items[i].bytes && items[i].offset + rounded(items[i].bytes) > end)
            end = items[i].offset + rounded(items[i].bytes);
    }
    CHECK(end == l->peak_bytes);
}

static void plan__random_lifetimes__never_overlap(void)
{
    static tsr_item items[MAX_ITEMS], again[MAX_ITEMS];
    double worst = 1;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        size_t n = random_items(seed, items), by_class[TSR_ITEM_CLASSES], most;
        tsr_layout l, l2;
        tsr_err err = {0};
        memcpy(again, items, n * sizeof *items);
        REQUIRE(tsr_plan_offsets(items, n, &l, &err) == TSR_OK);
        check_layout(items, n, &l);
        REQUIRE(tsr_plan_offsets(again, n, &l2, &err) == TSR_OK);
        CHECK(memcmp(again, items, n * sizeof *items) == 0 && memcmp(&l, &l2, sizeof l) == 0);
        most = live_sums(items, n, 0, by_class);
        if (most && (double)l.peak_bytes / (double)most > worst)
            worst = (double)l.peak_bytes / (double)most;
    }
    test_note("worst peak is %.3f of the largest live sum", worst);
    CHECK(worst < 1.25);
}

static void plan__lifetimes_side_by_side__share_one_place(void)
{
    tsr_item items[10];
    tsr_layout l;

    for (int32_t i = 0; i < 10; i++)
        items[i] = (tsr_item){.bytes = 1000, .first = i, .last = i, .cls = TSR_ITEM_WORK};
    REQUIRE(tsr_plan_offsets(items, 10, &l, NULL) == TSR_OK);
    CHECK(l.peak_bytes == 1024);
    items[3].last = 4; /* meets its neighbour: now both must be there */
    REQUIRE(tsr_plan_offsets(items, 10, &l, NULL) == TSR_OK);
    CHECK(l.peak_bytes == 2048);
    CHECK(l.peak_time == 4 && l.class_bytes[TSR_ITEM_WORK] == 2048);
}

static void plan__a_chain_of_layers__takes_two_buffers(void)
{
    tsr_item items[50];
    tsr_layout l;

    /* each value is read by the next op only */
    for (int32_t i = 0; i < 50; i++)
        items[i] = (tsr_item){.bytes = 64u * (size_t)(1 + i % 7), .first = i, .last = i + 1};
    REQUIRE(tsr_plan_offsets(items, 50, &l, NULL) == TSR_OK);
    check_layout(items, 50, &l);
    CHECK(l.peak_bytes == 64 * 13);
}

static void plan__best_gap__is_the_smallest_that_fits(void)
{
    /* at time 5 [1024,4096) and [6144,6656) are free: 320 bytes go to the smaller one */
    tsr_item items[] = {
        {.bytes = 4096, .first = 0, .last = 0}, /* at 0 */
        {.bytes = 2048, .first = 0, .last = 9}, /* at 4096 */
        {.bytes = 1024, .first = 5, .last = 9}, /* at 0 */
        {.bytes = 512, .first = 0, .last = 0},  /* at 6144 */
        {.bytes = 448, .first = 0, .last = 9},  /* at 6656 */
        {.bytes = 320, .first = 5, .last = 5},
        {.bytes = 64, .first = 20, .last = 20}, /* nothing lives the whole time */
    };
    tsr_layout l;

    REQUIRE(tsr_plan_offsets(items, 7, &l, NULL) == TSR_OK);
    CHECK(items[1].offset == 4096 && items[2].offset == 0 && items[4].offset == 6656);
    CHECK(items[5].offset == 6144);
    CHECK(l.peak_bytes == 6656 + 448);
}

static void plan__no_items_and_empty_items__need_nothing(void)
{
    tsr_item items[3] = {{.last = 5}, {.first = 2, .last = 2}, {.first = 5, .last = 5}};
    tsr_layout l = {.peak_bytes = 1};

    CHECK(tsr_plan_offsets(NULL, 0, &l, NULL) == TSR_OK);
    CHECK(l.peak_bytes == 0);
    CHECK(tsr_plan_offsets(items, 3, &l, NULL) == TSR_OK);
    CHECK(l.peak_bytes == 0);
}

static void plan__sizes_that_overflow__are_refused(void)
{
    tsr_item one[] = {{.bytes = SIZE_MAX, .last = 1}};
    tsr_item two[] = {{.bytes = SIZE_MAX / 2 + 1, .last = 1}, {.bytes = SIZE_MAX / 2, .last = 1}};
    tsr_layout l = {.peak_bytes = 7};
    tsr_err err = {0};

    CHECK(tsr_plan_offsets(one, 1, &l, &err) == TSR_E_BUDGET && err.msg[0]);
    err = (tsr_err){0};
    CHECK(tsr_plan_offsets(two, 2, &l, &err) == TSR_E_BUDGET && err.msg[0]);
    CHECK(l.peak_bytes == 7);
}

static void plan__lifetime_that_ends_before_it_begins__is_refused(void)
{
    tsr_item item = {.bytes = 1, .first = 3, .last = 2};
    tsr_layout l;
    tsr_err err = {0};

    CHECK(tsr_plan_offsets(&item, 1, &l, &err) == TSR_E_INTERNAL);
}

static void plan__extreme_times__are_ordered(void)
{
    tsr_item items[] = {{.bytes = 64, .first = INT32_MIN, .last = -1},
                        {.bytes = 64, .first = 0, .last = INT32_MAX},
                        {.bytes = 128, .first = -1, .last = -1}};
    tsr_layout l;

    REQUIRE(tsr_plan_offsets(items, 3, &l, NULL) == TSR_OK);
    CHECK(l.peak_bytes == 192 && l.peak_time == -1);
}

static void find_overlap__two_live_items_in_one_place__are_found(void)
{
    tsr_item items[] = {{.bytes = 64, .first = 0, .last = 3, .offset = 0},
                        {.bytes = 64, .first = 4, .last = 5, .offset = 0},
                        {.bytes = 65, .first = 3, .last = 4, .offset = 0}};
    size_t a = 9, b = 9;

    CHECK(!tsr_plan_find_overlap(items, 2, &a, &b));
    CHECK(tsr_plan_find_overlap(items, 3, &a, &b) && a == 0 && b == 2);
    items[2].offset = 64;
    CHECK(!tsr_plan_find_overlap(items, 3, &a, &b));
}

/* SDXL's UNet has about 1,700 weights; with values and scratch the plan has 6,000 items. */
static void plan__sdxl_sized_question__is_answered_at_once(void)
{
    enum { N = 6000, WEIGHTS = 2500, OPS = 1800 };
    tsr_item *items = calloc(N, sizeof *items);
    uint64_t state = 5;
    clock_t begin = clock();
    tsr_layout l;
    double ms;

    for (int32_t i = 0; i < N; i++) {
        int32_t t = (int32_t)draw(&state, OPS);
        bool weight = i < WEIGHTS;
        int32_t length = (int32_t)draw(&state, 10) ? 3 : OPS;
        items[i] = (tsr_item){.bytes = 1 + draw(&state, 1 << 22),
                              .first = weight ? 0 : t,
                              .last = weight             ? OPS
                                      : t + length < OPS ? t + length
                                                         : OPS};
    }
    CHECK(tsr_plan_offsets(items, N, &l, NULL) == TSR_OK);
    ms = (double)(clock() - begin) * 1e3 / CLOCKS_PER_SEC;
    test_note("%d items planned in %.1f ms", N, ms);
#ifndef TSR_SANITIZED
    CHECK(ms < 300); /* about 15; a loaded machine is given time */
#endif
    free(items);
}

int main(void)
{
    RUN(plan__random_lifetimes__never_overlap);
    RUN(plan__lifetimes_side_by_side__share_one_place);
    RUN(plan__a_chain_of_layers__takes_two_buffers);
    RUN(plan__best_gap__is_the_smallest_that_fits);
    RUN(plan__no_items_and_empty_items__need_nothing);
    RUN(plan__sizes_that_overflow__are_refused);
    RUN(plan__lifetime_that_ends_before_it_begins__is_refused);
    RUN(plan__extreme_times__are_ordered);
    RUN(find_overlap__two_live_items_in_one_place__are_found);
    RUN(plan__sdxl_sized_question__is_answered_at_once);
    return test_end();
}
