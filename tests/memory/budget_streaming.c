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
#include "base/file.h"
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
    c[n].k.piece_bytes = 512;
    c[n].k.ahead_bytes = c[n].k.ahead_room = 16 << 10;
    c[n++].name = "small pieces that are put together again";
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

/* -------------------------------------------------------------- an autoencoder */

/* Picture in, one attention over all of it, twice the size out: [1,24,20] becomes [1,48,40,3]. */
enum { VAE_C = 48 }; /* several panels */
typedef struct vae_net {
    tsr_err err;
    tsr_tape tape;
    toy_source source;
    tsr_val in, out, image;
    tsr_status st;
} vae_net;

static tsr_val vae_conv(vae_net *n, tsr_conv_desc d, int32_t co, int32_t k)
{
    int32_t c = tsr_tape_value(&n->tape, d.x)->c;
    tsr_val out = 0;

    d.weight =
        toy_weight(&n->source, &n->tape, TSR_WEIGHT_MATRIX, 4, (int32_t[]){co, c, k, k}, TSR_F16);
    d.bias = toy_weight(&n->source, &n->tape, TSR_WEIGHT_VECTOR, 1, (int32_t[]){co}, TSR_F16);
    if (!d.pad_bottom)
        d.pad_top = d.pad_left = d.pad_bottom = d.pad_right = k / 2;
    if (n->st == TSR_OK)
        n->st = tsr_op_conv2d(&n->tape, &d, &out);
    return out;
}

static tsr_val vae_linear(vae_net *n, tsr_val x, tsr_val residual)
{
    int32_t c = tsr_tape_value(&n->tape, x)->c;
    tsr_linear_desc d = {.x = x, .residual = residual};
    tsr_val out = 0;

    d.weight = toy_weight(&n->source, &n->tape, TSR_WEIGHT_MATRIX, 2, (int32_t[]){c, c}, TSR_F16);
    if (n->st == TSR_OK)
        n->st = tsr_op_linear(&n->tape, &d, &out);
    return out;
}

static tsr_val vae_norm(vae_net *n, tsr_val x)
{
    int32_t c = tsr_tape_value(&n->tape, x)->c;
    tsr_group_norm_desc d = {.x = x, .groups = 4, .eps = 1e-5f, .silu = true};
    tsr_val out = 0;

    d.gamma = toy_weight(&n->source, &n->tape, TSR_WEIGHT_VECTOR, 1, (int32_t[]){c}, TSR_F16);
    d.beta = toy_weight(&n->source, &n->tape, TSR_WEIGHT_VECTOR, 1, (int32_t[]){c}, TSR_F16);
    if (n->st == TSR_OK)
        n->st = tsr_op_group_norm(&n->tape, &d, &out);
    return out;
}

static tsr_val vae_resnet(vae_net *n, tsr_val x)
{
    int32_t c = tsr_tape_value(&n->tape, x)->c;
    tsr_val h = vae_conv(n, (tsr_conv_desc){.x = vae_norm(n, x)}, c, 3);

    return vae_conv(n, (tsr_conv_desc){.x = vae_norm(n, h), .residual = x}, c, 3);
}

static void vae_record(vae_net *n, tsr_dtype dtype)
{
    tsr_attention_desc a = {.n_heads = 2};
    tsr_val x = 0, h, o = 0;

    memset(n, 0, sizeof *n);
    toy_source_init(&n->source);
    tsr_tape_init(&n->tape, dtype, &n->err);
    n->tape.scope = "vae";
    n->st = tsr_tape_input(&n->tape, (int32_t[]){1, 4, 48, 40}, TSR_F32, "in", &n->in);
    if (n->st == TSR_OK)
        n->st = tsr_op_latent_in(&n->tape, n->in, 1, &x);
    x = vae_conv(n, (tsr_conv_desc){.x = x}, VAE_C, 3);
    x = vae_conv(n, (tsr_conv_desc){.x = x, .stride = 2, .pad_bottom = 1, .pad_right = 1}, VAE_C,
                 3);
    x = vae_resnet(n, x);
    h = vae_norm(n, x);
    a.q = vae_linear(n, h, 0);
    a.k = vae_linear(n, h, 0);
    a.v = vae_linear(n, h, 0);
    if (n->st == TSR_OK)
        n->st = tsr_op_attention(&n->tape, &a, &o);
    x = vae_linear(n, o, x);
    x = vae_conv(n, (tsr_conv_desc){.x = x, .up_h = 48, .up_w = 40}, VAE_C, 3);
    x = vae_resnet(n, x);
    n->image = vae_conv(n, (tsr_conv_desc){.x = vae_norm(n, x)}, 3, 3);
    if (n->st == TSR_OK)
        n->st = tsr_op_image_out(&n->tape, n->image, &n->out);
    tsr_tape_output(&n->tape, n->out, "out");
}

/* The picture under the options; a copy. */
static unsigned char *vae_run(const rig_desc *d, size_t *bytes)
{
    vae_net n;
    rig r = {0}; /* its own network is not used */
    tsr_log log = {0};
    tsr_status st;
    unsigned char *x = NULL;

    vae_record(&n, d->dtype);
    st = n.st;
    if (st == TSR_OK)
        st = tsr_pool_make(&r.pool, d->threads, &n.err);
    if (st == TSR_OK)
        st = tsr_program_make(&r.p, &n.tape, tsr_cpu_backend(d->tier), r.pool, &d->opt, &n.err);
    if (st == TSR_OK)
        st = tsr_arena_make(&r.arena, tsr_program_bytes(&r.p), &n.err);
    if (st == TSR_OK && r.p.spill_bytes)
        st = tsr_spill_open(&r.spill, test_temp_dir(), r.p.spill_bytes, &log, &n.err);
    if (st == TSR_OK && !d->no_io_thread)
        st = tsr_io_make(&r.io, &n.err);
    if (st == TSR_OK) {
        tsr_program_bind(&r.p, &r.arena, 0);
        tsr_program_set_io(&r.p, r.io, &r.spill);
        tsr_program_watch(&r.p, n.image);
        st = tsr_program_load(&r.p);
    }
    for (int32_t i = 0; st == TSR_OK && i < 4 * 48 * 40; i++)
        ((float *)tsr_program_data(&r.p, n.in))[i] = (float)(i * 37 % 101) / 50 - 1;
    if (st == TSR_OK)
        st = tsr_program_run_step(&r.p, 0);
    CHECK_MSG(st == TSR_OK, "%s", n.err.msg);
    CHECK(r.p.watched_finite);
    *bytes = tsr_value_bytes(tsr_tape_value(&n.tape, n.out));
    x = malloc(*bytes);
    if (st == TSR_OK && x)
        memcpy(x, tsr_program_data(&r.p, n.out), *bytes);
    rig_free(&r);
    tsr_tape_free(&n.tape);
    return x;
}

static void run__an_autoencoder_in_strips__same_bits(void)
{
    static const tsr_dtype dtypes[] = {TSR_F16, TSR_F32};
    knob_case cases[14] = {0};
    size_t n_cases = knob_cases(cases), n, m;

    for (int32_t i = 0; i < 4; i++) {
        rig_desc d = {.dtype = dtypes[i % 2],
                      .tier = i / 2 ? tsr_cpu_best_tier() : TSR_TIER_PORTABLE,
                      .threads = 2};
        unsigned char *want = vae_run(&d, &n);
        d.opt.may_spill = true;
        for (size_t c = 0; c < n_cases; c++) {
            unsigned char *got;
            d.opt.knobs = &cases[c].k;
            d.opt.tile_rows = cases[c].tile_rows;
            d.no_io_thread = c % 2;
            got = vae_run(&d, &m);
            CHECK_MSG(want && got && n == m && memcmp(want, got, n) == 0, "%s, %s: other bits",
                      cases[c].name, tsr_cpu_tier_name(d.tier));
            free(got);
        }
        free(want);
    }
}

/* --------------------------------------------------------------------- budgets */

/* What every plan must be: live parts apart, jobs inside the lives of their items, totals right. */
static void check_plan(const tsr_program *p)
{
    const tsr_plan *plan = &p->plan;
    size_t a, b, sum = 0;

    CHECK(!tsr_plan_find_overlap(plan->items, plan->n_items, &a, &b));
    CHECK(!tsr_plan_find_overlap(plan->regions, plan->n_regions, &a, &b));
    for (size_t i = 0; i < plan->n_jobs; i++) {
        const tsr_job *job = &plan->jobs[i];
        const tsr_item *item = &plan->items[job->item];
        CHECK(item->first <= job->issue && job->issue <= item->last + 1);
        if (job->kind != TSR_JOB_STORE)
            CHECK(job->issue <= job->due && job->due <= item->last);
        if (job->region)
            CHECK(plan->regions[job->region].first <= job->issue &&
                  (job->issue <= plan->regions[job->region].last || job->kind == TSR_JOB_STORE));
        CHECK(i == 0 || plan->jobs[i - 1].issue <= job->issue ||
              plan->jobs[i - 1].in_loop != job->in_loop);
    }
    for (size_t i = 0; i < plan->n_actions; i++)
        CHECK(plan->actions[i].n_needed <= plan->actions[i].n_issued);
    for (int32_t c = 0; c < TSR_ITEM_CLASSES; c++)
        sum += p->layout.class_bytes[c];
    CHECK(sum <= p->layout.peak_bytes);
}

static void plan__any_budget__fits_is_monotone_and_has_the_bits(void)
{
    rig_desc d = {.dtype = TSR_F16, .tier = tsr_cpu_best_tier(), .threads = 2};
    size_t n, m, minimum, fastest;
    unsigned char *want = run_all(&d, &n);
    double seconds = 0;
    rig r;

    d.opt.may_spill = true;
    d.opt.budget_bytes = 1;
    CHECK(!rig_make(&r, &d) && r.net.err.code == TSR_E_BUDGET);
    minimum = r.p.minimum_bytes;
    fastest = r.p.fastest_bytes;
    rig_free(&r);
    REQUIRE(want && minimum > 0 && minimum <= fastest);
    d.opt.budget_bytes = minimum - 1;
    CHECK(!rig_make(&r, &d));
    rig_free(&r);
    for (size_t i = 0; i <= 12; i++) {
        unsigned char *got;
        d.opt.budget_bytes = minimum + (fastest - minimum) * i / 12;
        REQUIRE(rig_make(&r, &d));
        check_plan(&r.p);
        CHECK(tsr_program_bytes(&r.p) <= d.opt.budget_bytes);
        CHECK(i == 0 || r.p.plan.seconds <= seconds);
        seconds = r.p.plan.seconds;
        got = run_steps(&r, &m);
        CHECK(got && memcmp(want, got, n) == 0);
        CHECK((r.p.bytes_streamed > 0) ==
              (r.p.plan.loop.bytes_streamed > 0 || r.p.plan.prologue.bytes_streamed > 0));
        free(got);
        rig_free(&r);
    }
    free(want);
}

static void plan__forced_mechanisms__are_sound(void)
{
    knob_case cases[14] = {0};
    size_t n_cases = knob_cases(cases);

    for (size_t c = 0; c < n_cases; c++) {
        rig_desc d = {
            .dtype = TSR_F16,
            .tier = TSR_TIER_PORTABLE,
            .threads = 1,
            .opt = {.may_spill = true, .knobs = &cases[c].k, .tile_rows = cases[c].tile_rows}};
        rig r;
        REQUIRE(rig_make(&r, &d));
        check_plan(&r.p);
        rig_free(&r);
    }
}

static void plan__offload_and_spill_options__are_kept(void)
{
    rig_desc d = {.dtype = TSR_F16, .tier = TSR_TIER_PORTABLE, .threads = 1};
    rig r;

    d.opt.offload = TSR_OFFLOAD_NONE;
    REQUIRE(rig_make(&r, &d));
    CHECK(r.p.plan.n_jobs == 0 && r.p.spill_bytes == 0);
    rig_free(&r);
    d.opt.offload = TSR_OFFLOAD_STREAM;
    REQUIRE(rig_make(&r, &d));
    CHECK(r.p.plan.n_jobs > 0 && r.p.plan.resident_bytes == 0 && r.p.spill_bytes == 0);
    rig_free(&r);
    d.opt.offload = TSR_OFFLOAD_BLOCK;
    d.opt.budget_bytes = SIZE_MAX / 2;
    REQUIRE(rig_make(&r, &d));
    CHECK(r.p.plan.n_jobs > 0 && r.p.plan.resident_bytes == 0);
    rig_free(&r);
}

static void plan__nothing_allocated_afterwards(void)
{
    knob_case cases[14] = {0};
    size_t n_cases = knob_cases(cases);
    rig_desc d = {.dtype = TSR_F16,
                  .tier = TSR_TIER_PORTABLE,
                  .threads = 2,
                  .opt = {.may_spill = true, .knobs = &cases[n_cases - 1].k}};
    uint64_t before;
    rig r;

    REQUIRE(rig_make(&r, &d));
    before = tsr_alloc_count();
    CHECK(rig_start(&r) == TSR_OK && rig_step(&r, 1) == TSR_OK);
    CHECK(tsr_alloc_count() == before);
    rig_free(&r);
}

static void run__any_read_fails__is_its_error_and_the_next_run_is_right(void)
{
    knob_case cases[14] = {0};
    size_t n_cases = knob_cases(cases), n = 0, m = 0;
    rig_desc d = {.dtype = TSR_F16,
                  .tier = TSR_TIER_PORTABLE,
                  .threads = 2,
                  .opt = {.may_spill = true, .knobs = &cases[n_cases - 2].k}};
    unsigned char *want = run_all(&d, &n);
    bool failed = true;

    for (int32_t i = 1; failed; i += 7) {
        unsigned char *got;
        tsr_status st;
        rig r;
        d.no_io_thread = i % 2;
        REQUIRE(i < 2000 && rig_make(&r, &d));
        r.net.source.fail_read = i;
        st = rig_start(&r);
        if (st == TSR_OK)
            st = rig_step(&r, 0);
        failed = r.net.source.n_reads >= i;
        CHECK(st == (failed ? TSR_E_IO : TSR_OK) && (!failed || r.net.err.msg[0]));
        r.net.err = (tsr_err){0};
        r.net.source.fail_read = 0;
        got = run_steps(&r, &m);
        CHECK(want && got && n == m && memcmp(want, got, n) == 0);
        free(got);
        rig_free(&r);
    }
    free(want);
}

static void run__spilling_fails__is_its_error(void)
{
    knob_case cases[14] = {0};
    size_t n_cases = knob_cases(cases);
    rig_desc d = {.dtype = TSR_F16,
                  .tier = TSR_TIER_PORTABLE,
                  .threads = 1,
                  .opt = {.may_spill = true, .knobs = &cases[n_cases - 2].k}};
    bool failed = true;

    for (uint64_t i = 1; failed; i += 13) {
        tsr_status st;
        rig r;
        REQUIRE(i < 4000 && rig_make(&r, &d));
        tsr_io_fail_at(i);
        st = rig_start(&r);
        if (st == TSR_OK)
            st = rig_step(&r, 0);
        failed = tsr_io_failed();
        tsr_io_fail_at(0);
        CHECK(st == (failed ? TSR_E_IO : TSR_OK) && (!failed || r.net.err.msg[0]));
        rig_free(&r);
    }
}

static void run__a_streamed_weight_is_no_number__is_refused_by_name(void)
{
    knob_case cases[14] = {0};
    rig_desc d = {.dtype = TSR_F16, .tier = TSR_TIER_PORTABLE, .threads = 2};
    rig r;

    (void)knob_cases(cases);
    d.opt.knobs = &cases[0].k;
    REQUIRE(rig_make(&r, &d));
    r.net.source.bad_tensor = 1;
    r.net.source.bad_element = 5;
    r.net.source.bad_value = NAN;
    CHECK(rig_start(&r) == TSR_E_MODEL && strstr(r.net.err.msg, "toy.1"));
    rig_free(&r);
}

static void find_overflow__streamed_and_in_strips__names_the_op(void)
{
    knob_case cases[14] = {0};
    size_t n_cases = knob_cases(cases);
    rig_desc d = {.dtype = TSR_F16,
                  .tier = tsr_cpu_best_tier(),
                  .threads = 2,
                  .opt = {.may_spill = true, .knobs = &cases[n_cases - 2].k}};
    const char *name;
    rig r;

    REQUIRE(rig_make(&r, &d));
    r.net.source.scale[15] = 65000; /* a convolution in the loop */
    CHECK(rig_start(&r) == TSR_OK && rig_step(&r, 0) == TSR_OK);
    CHECK(!tsr_program_finite(&r.p, r.net.noise));
    name = tsr_program_find_overflow(&r.p, true, 0);
    CHECK(name && name == r.net.tape.ops[r.net.tape.weights[16].first].name);
    rig_free(&r);
}

int main(void)
{
    RUN(run__any_mechanism__same_bits);
    RUN(run__an_autoencoder_in_strips__same_bits);
    RUN(plan__any_budget__fits_is_monotone_and_has_the_bits);
    RUN(plan__forced_mechanisms__are_sound);
    RUN(plan__offload_and_spill_options__are_kept);
    RUN(plan__nothing_allocated_afterwards);
    RUN(run__any_read_fails__is_its_error_and_the_next_run_is_right);
    RUN(run__spilling_fails__is_its_error);
    RUN(run__a_streamed_weight_is_no_number__is_refused_by_name);
    RUN(find_overflow__streamed_and_in_strips__names_the_op);
    return test_end();
}
