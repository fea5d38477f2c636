/* budget_streaming.c -- whatever is streamed, spilled, chained, in place or in strips: the bits are
 * those of the program that keeps everything.
 *
 * A toy network with every op kind runs under forced knobs and under every budget from the least to
 * plenty, with and without the I/O thread. Then what goes wrong: reads that fail while it runs,
 * weights that are no numbers, a budget one page too small. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "kernels/plan_internal.h"
#include "kernels/program.h"
#include "tests/support/test.h"
#include "tests/support/toy_net.h"

typedef struct rig {
    toy_net net;
    tsr_program p;
    tsr_arena arena;
    tsr_pool *pool;
    tsr_io *io;
    tsr_spill spill;
} rig;

typedef struct rig_desc {
    tsr_dtype dtype;
    tsr_cpu_tier tier;
    int32_t threads;
    bool no_io_thread;
    tsr_plan_options opt;
} rig_desc;

static bool rig_make(rig *r, const rig_desc *d)
{
    tsr_log log = {0};
    tsr_status st;

    memset(r, 0, sizeof *r);
    st = toy_net_record(&r->net, d->dtype, TSR_F16, false);
    if (st == TSR_OK)
        st = tsr_pool_make(&r->pool, d->threads, &r->net.err);
    if (st == TSR_OK)
        st = tsr_program_make(&r->p, &r->net.tape, tsr_cpu_backend(d->tier), r->pool, &d->opt,
                              &r->net.err);
    if (st == TSR_OK)
        st = tsr_arena_make(&r->arena, tsr_program_bytes(&r->p), &r->net.err);
    if (st == TSR_OK && r->p.spill_bytes)
        st = tsr_spill_open(&r->spill, test_temp_dir(), r->p.spill_bytes, &log, &r->net.err);
    if (st == TSR_OK && !d->no_io_thread)
        st = tsr_io_make(&r->io, &r->net.err);
    if (st != TSR_OK)
        return false;
    tsr_program_bind(&r->p, &r->arena, 0);
    tsr_program_set_io(&r->p, r->io, r->p.spill_bytes ? &r->spill : NULL);
    return true;
}

static void rig_free(rig *r)
{
    tsr_io_free(r->io);
    if (r->p.spill_bytes)
        tsr_spill_close(&r->spill);
    tsr_program_free(&r->p);
    toy_net_free(&r->net);
    tsr_arena_free(&r->arena);
    tsr_pool_free(r->pool);
}

static tsr_status rig_start(rig *r)
{
    TSR_TRY(tsr_program_load(&r->p));
    toy_net_fill_prologue(&r->net, &r->p);
    return tsr_program_run_prologue(&r->p);
}

static tsr_status rig_step(rig *r, int32_t step)
{
    toy_net_fill_step(&r->net, &r->p, step);
    return tsr_program_run_step(&r->p, step);
}

/* Outputs of steps 0, 2 and 1, one after the other, in a heap block; NULL on failure. */
static unsigned char *run_steps(rig *r, size_t *bytes)
{
    static const int32_t steps[] = {0, 2, 1};
    size_t a = tsr_value_bytes(tsr_tape_value(&r->net.tape, r->net.noise));
    size_t b = tsr_value_bytes(tsr_tape_value(&r->net.tape, r->net.image));
    unsigned char *x = malloc(3 * (a + b));
    tsr_status st = rig_start(r);

    for (size_t i = 0; i < 3 && st == TSR_OK; i++) {
        st = rig_step(r, steps[i]);
        memcpy(x + i * (a + b), tsr_program_data(&r->p, r->net.noise), a);
        memcpy(x + i * (a + b) + a, tsr_program_data(&r->p, r->net.image), b);
    }
    *bytes = 3 * (a + b);
    CHECK_MSG(st == TSR_OK, "%s", r->net.err.msg);
    if (st == TSR_OK)
        return x;
    free(x);
    return NULL;
}

static unsigned char *run_all(const rig_desc *d, size_t *bytes)
{
    unsigned char *x = NULL;
    rig r;

    if (rig_make(&r, d)) {
        x = run_steps(&r, bytes);
        CHECK(r.arena.high_water <= tsr_program_bytes(&r.p));
    } else {
        CHECK_MSG(false, "%s", r.net.err.msg);
    }
    rig_free(&r);
    return x;
}

/* Sizes that make the toy's values large, and its weights. */
static const tsr_knobs ALL_OFF = {.window_bytes = SIZE_MAX,
                                  .hold_bytes = SIZE_MAX,
                                  .piece_bytes = SIZE_MAX,
                                  .ahead_bytes = SIZE_MAX,
                                  .strip_above = SIZE_MAX,
                                  .strip_bytes = SIZE_MAX};

typedef struct knob_case {
    const char *name;
    tsr_knobs k;
    int32_t tile_rows;
} knob_case;

static size_t knob_cases(knob_case *c)
{
    size_t n = 0;

    for (size_t i = 0; i < 14; i++)
        c[i].k = ALL_OFF;
    c[n++].name = "everything streamed whole";
    c[n].k.ahead_bytes = 0;
    c[n++].name = "streamed without read-ahead";
    c[n].k.ahead_bytes = 4096;
    c[n].k.ahead_room = 4096;
    c[n].k.stream_vectors = true;
    c[n++].name = "vectors streamed, too";
    c[n].k.piece_bytes = 512;
    c[n++].name = "small pieces";
    c[n].k.window_bytes = 1000;
    c[n++].name = "chains";
    c[n].k.all_resident = true;
    c[n].k.window_bytes = 1;
    c[n++].name = "chains of single rows, resident";
    c[n].k.gap_ops = 1;
    c[n++].name = "values spilled between uses";
    c[n].k.gap_ops = 1;
    c[n].k.spill_prologue = true;
    c[n++].name = "the prologue's values spilled";
    c[n].k.strip_above = 1;
    c[n].k.strip_bytes = 1000;
    c[n++].name = "strips";
    c[n].k.strip_above = 1;
    c[n].k.strip_bytes = 1;
    c[n].k.strip_keys = true;
    c[n++].name = "strips of single rows, keys too";
    c[n].k.window_bytes = 500;
    c[n].k.strip_above = 1;
    c[n].k.strip_bytes = 2000;
    c[n].k.strip_keys = true;
    c[n].k.gap_ops = 1;
    c[n].k.spill_prologue = true;
    c[n].k.stream_vectors = true;
    c[n].k.piece_bytes = 512;
    c[n++].name = "everything at once";
    c[n].k = c[n - 1].k;
    c[n].tile_rows = 2;
    c[n++].name = "everything at once, windows of two rows";
    return n;
}

static void run__any_mechanism__same_bits(void)
{
    static const tsr_dtype dtypes[] = {TSR_F16, TSR_F32};
    knob_case cases[14] = {0};
    size_t n_cases = knob_cases(cases), n, m;

    for (int32_t i = 0; i < 4; i++) {
        rig_desc d = {.dtype = dtypes[i % 2],
                      .tier = i / 2 ? tsr_cpu_best_tier() : TSR_TIER_PORTABLE,
                      .threads = 2};
        unsigned char *want = run_all(&d, &n);
        REQUIRE(want);
        d.opt.may_spill = true;
        for (size_t c = 0; c < n_cases; c++) {
            unsigned char *got;
            d.opt.knobs = &cases[c].k;
            d.opt.tile_rows = cases[c].tile_rows;
            d.no_io_thread = c % 2;
            got = run_all(&d, &m);
            CHECK_MSG(got && n == m && memcmp(want, got, n) == 0, "%s, %s: other bits",
                      cases[c].name, tsr_cpu_tier_name(d.tier));
            free(got);
        }
        free(want);
    }
}

int main(void)
{
    RUN(run__any_mechanism__same_bits);
    return test_end();
}
