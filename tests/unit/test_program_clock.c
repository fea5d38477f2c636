/* test_program_clock.c -- the times of ops: every op has one, and runs of the two sections are
 * counted apart. */
#include <stdlib.h>

#include "tests/support/test.h"
#include "tests/support/toy_net.h"

typedef struct rig {
    tsr_err err;
    tsr_pool *pool;
    tsr_program p;
    tsr_arena arena;
    double *seconds;
} rig;

static bool rig_make(rig *r, tsr_tape *t, int32_t threads)
{
    const tsr_backend *b = tsr_cpu_backend(TSR_TIER_PORTABLE);

    CHECK(tsr_pool_make(&r->pool, threads, &r->err) == TSR_OK);
    CHECK(tsr_program_make(&r->p, t, b, r->pool, NULL, &r->err) == TSR_OK);
    CHECK(tsr_arena_make(&r->arena, tsr_program_bytes(&r->p), &r->err) == TSR_OK);
    tsr_program_bind(&r->p, &r->arena, 0);
    r->seconds = calloc(t->n_ops, sizeof *r->seconds);
    tsr_program_time_ops(&r->p, r->seconds);
    return r->seconds && tsr_program_load(&r->p) == TSR_OK;
}

static void rig_free(rig *r)
{
    free(r->seconds);
    tsr_program_free(&r->p);
    tsr_arena_free(&r->arena);
    tsr_pool_free(r->pool);
}

static void clock__two_steps__are_counted_apart_from_the_prologue(void)
{
    toy_net net;
    rig r = {0};
    double sum = 0;

    REQUIRE(toy_net_record(&net, TSR_F16, TSR_F16, false) == TSR_OK);
    REQUIRE(rig_make(&r, &net.tape, 2));
    toy_net_fill_prologue(&net, &r.p);
    CHECK(tsr_program_run_prologue(&r.p) == TSR_OK);
    for (int32_t i = 0; i < 2; i++) {
        toy_net_fill_step(&net, &r.p, i);
        CHECK(tsr_program_run_step(&r.p, i) == TSR_OK);
    }
    CHECK(r.p.clock.n_runs[0] == 1 && r.p.clock.n_runs[1] == 2);
    for (size_t i = 0; i < net.tape.n_ops; i++) {
        CHECK_MSG(r.seconds[i] > 0, "op %zu took no time", i);
        sum += r.seconds[i];
    }
    CHECK(sum <= r.p.clock.section_seconds[0] + r.p.clock.section_seconds[1]);
    rig_free(&r);
    toy_net_free(&net);
}

/* A decoder is all loop: its empty prologue is no run of the loop. */
static void clock__no_prologue__counts_the_steps_alone(void)
{
    tsr_err err = {0};
    tsr_tape t;
    tsr_val x;
    rig r = {0};

    tsr_tape_init(&t, TSR_F32, &err);
    CHECK(tsr_tape_input(&t, (int32_t[]){1, 8, 1, 16}, TSR_F32, "x", &x) == TSR_OK);
    CHECK(tsr_op_add(&t, &(tsr_add_desc){.x = x, .y = x}, &x) == TSR_OK);
    tsr_tape_output(&t, x, "out");
    REQUIRE(rig_make(&r, &t, 1));
    CHECK(tsr_program_run_prologue(&r.p) == TSR_OK && tsr_program_run_step(&r.p, 0) == TSR_OK);
    CHECK(r.p.clock.n_runs[0] == 1 && r.p.clock.n_runs[1] == 1);
    rig_free(&r);
    tsr_tape_free(&t);
}

int main(void)
{
    RUN(clock__two_steps__are_counted_apart_from_the_prologue);
    RUN(clock__no_prologue__counts_the_steps_alone);
    return test_end();
}
