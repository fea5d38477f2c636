/* budget_pieces.c -- pieces of streamed weights are joined where there is room, and what a survey
 * of the candidates has taught changes no later plan. That neither changes a bit of the result is
 * budget_streaming's business. */
#include "base/alloc.h"
#include "kernels/plan_internal.h"
#include "tests/support/test.h"
#include "tests/support/toy_net.h"

typedef struct wide_net {
    tsr_err err;
    tsr_tape tape;
    toy_source source;
    tsr_status st;
} wide_net;

/* Three convolutions of 96 channels, whose weights have several panels, at 20x20. */
static void wide_record(wide_net *n)
{
    tsr_val x = 0;
    int32_t c = 4;

    *n = (wide_net){0};
    toy_source_init(&n->source);
    tsr_tape_init(&n->tape, TSR_F16, &n->err);
    n->st = tsr_tape_input(&n->tape, (int32_t[]){1, 20, 20, 4}, TSR_F16, "in", &x);
    for (int32_t i = 0; i < 3 && n->st == TSR_OK; i++, c = 96) {
        tsr_conv_desc d = {.x = x, .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1};
        d.weight = toy_weight(&n->source, &n->tape, TSR_WEIGHT_MATRIX, 4, (int32_t[]){96, c, 3, 3},
                              TSR_F16);
        n->st = tsr_op_conv2d(&n->tape, &d, &x);
    }
    tsr_tape_output(&n->tape, x, "out");
}

static tsr_plan_question ask(const tsr_tape *t)
{
    return (tsr_plan_question){
        .tape = t, .backend = tsr_cpu_backend(tsr_cpu_best_tier()), .n_threads = 2};
}

/* As far as the room of the knobs goes, and no further. */
static void plan__room_beside_pieces__joins_them(void)
{
    static const size_t rooms[] = {0, 8 << 10, 4 << 20};
    tsr_knobs k = {.window_bytes = SIZE_MAX,
                   .hold_bytes = SIZE_MAX,
                   .piece_bytes = 512,
                   .ahead_bytes = 4 << 20,
                   .strip_above = SIZE_MAX,
                   .strip_bytes = SIZE_MAX};
    size_t actions[3] = {0}, live = 0;
    wide_net n;

    wide_record(&n);
    REQUIRE(n.st == TSR_OK);
    for (size_t i = 0; i < 3; i++) {
        tsr_plan_question q = ask(&n.tape);
        tsr_plan_sizes sizes;
        tsr_plan p;
        q.options.knobs = &k;
        k.ahead_room = rooms[i];
        REQUIRE(tsr_plan_make(&p, &sizes, &q, &n.err) == TSR_OK);
        actions[i] = p.n_actions;
        live = i == 0 ? p.live_bytes : live;
        CHECK_MSG(p.live_bytes <= live + rooms[i], "%zu bytes live with %zu of room above %zu",
                  p.live_bytes, rooms[i], live);
        tsr_plan_free(&p);
    }
    CHECK_MSG(actions[2] < actions[0] && actions[1] <= actions[0] && actions[2] == n.tape.n_ops,
              "%zu, %zu, %zu actions", actions[0], actions[1], actions[2]);
    tsr_tape_free(&n.tape);
}

static bool same_plan(const tsr_plan *a, const tsr_plan *b)
{
    bool same = a->candidate == b->candidate && a->layout.peak_bytes == b->layout.peak_bytes &&
                a->n_actions == b->n_actions && a->n_jobs == b->n_jobs &&
                a->n_items == b->n_items && a->resident_bytes == b->resident_bytes;

    for (size_t i = 1; same && i < a->n_items; i++)
        same = a->items[i].offset == b->items[i].offset && a->items[i].bytes == b->items[i].bytes;
    return same;
}

/* The same plans, with less work. */
static void plan__survey_kept__changes_no_plan(void)
{
    tsr_plan_survey *kept = NULL;
    tsr_plan_sizes sizes = {0}, again;
    uint64_t first = 0, before, now;
    toy_net net;

    REQUIRE(toy_net_record(&net, TSR_F16, TSR_F16, false) == TSR_OK);
    for (size_t i = 0; i <= 8; i++) {
        tsr_plan_question q = ask(&net.tape);
        tsr_plan a, b;
        q.options.may_spill = true;
        q.options.budget_bytes =
            i ? sizes.minimum_bytes + (sizes.fastest_bytes - sizes.minimum_bytes) / 8 * i : 0;
        REQUIRE(tsr_plan_make(&a, &sizes, &q, &net.err) == TSR_OK);
        q.options.survey = &kept;
        before = tsr_alloc_count();
        REQUIRE(tsr_plan_make(&b, &again, &q, &net.err) == TSR_OK);
        now = tsr_alloc_count() - before;
        CHECK(same_plan(&a, &b));
        CHECK(again.minimum_bytes == sizes.minimum_bytes &&
              again.fastest_bytes == sizes.fastest_bytes);
        first = i ? first : now;
        CHECK_MSG(i == 0 || now < first, "%llu allocations, %llu at first", (unsigned long long)now,
                  (unsigned long long)first);
        tsr_plan_free(&a);
        tsr_plan_free(&b);
    }
    tsr_plan_survey_free(kept);
    toy_net_free(&net);
}

int main(void)
{
    RUN(plan__room_beside_pieces__joins_them);
    RUN(plan__survey_kept__changes_no_plan);
    return test_end();
}
