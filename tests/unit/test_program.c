/* test_program.c -- plans, loading and running: the bits never depend on places, windows, threads
 * or what ran before; the predicted peak is the measured one; broken weights are named. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "kernels/program.h"
#include "tests/support/test.h"
#include "tests/support/toy_net.h"

/* A network with all that it needs to run. */
typedef struct rig {
    toy_net net;
    tsr_program p;
    tsr_arena arena;
    tsr_pool *pool;
} rig;

typedef struct rig_desc {
    tsr_dtype dtype, file_dtype;
    tsr_cpu_tier tier; /* AUTO: portable */
    int32_t threads, window_rows;
    bool keep_all;
    size_t base; /* of the program in its arena */
} rig_desc;

static bool rig_plan(rig *r, const rig_desc *d)
{
    tsr_cpu_tier tier = d->tier ? d->tier : TSR_TIER_PORTABLE;
    tsr_plan_options opt = {.tile_rows = d->window_rows};
    tsr_status st;

    memset(r, 0, sizeof *r);
    st = toy_net_record(&r->net, d->dtype, d->file_dtype, d->keep_all);
    if (st == TSR_OK)
        st = tsr_pool_make(&r->pool, d->threads ? d->threads : 1, &r->net.err);
    if (st == TSR_OK)
        st = tsr_program_make(&r->p, &r->net.tape, tsr_cpu_backend(tier), r->pool, &opt,
                              &r->net.err);
    if (st == TSR_OK)
        st = tsr_arena_make(&r->arena, d->base + tsr_program_bytes(&r->p), &r->net.err);
    CHECK_MSG(st == TSR_OK, "%s", r->net.err.msg);
    if (st == TSR_OK)
        tsr_program_bind(&r->p, &r->arena, d->base);
    return st == TSR_OK;
}

static bool rig_load(rig *r, const rig_desc *d)
{
    tsr_status st;

    if (!rig_plan(r, d))
        return false;
    st = tsr_program_load(&r->p);
    CHECK_MSG(st == TSR_OK, "%s", r->net.err.msg);
    return st == TSR_OK;
}

static void rig_free(rig *r)
{
    tsr_program_free(&r->p);
    toy_net_free(&r->net);
    tsr_arena_free(&r->arena);
    tsr_pool_free(r->pool);
}

/* The outputs of one step, in a heap block of *bytes. */
static unsigned char *outputs(const rig *r, size_t *bytes)
{
    size_t a = tsr_value_bytes(tsr_tape_value(&r->net.tape, r->net.noise));
    size_t b = tsr_value_bytes(tsr_tape_value(&r->net.tape, r->net.image));
    unsigned char *x = malloc(a + b);

    memcpy(x, tsr_program_data(&r->p, r->net.noise), a);
    memcpy(x + a, tsr_program_data(&r->p, r->net.image), b);
    *bytes = a + b;
    return x;
}

static bool run_prologue(rig *r)
{
    toy_net_fill_prologue(&r->net, &r->p);
    return tsr_program_run_prologue(&r->p) == TSR_OK;
}

static unsigned char *run_step(rig *r, int32_t step, size_t *bytes)
{
    tsr_status st;

    toy_net_fill_step(&r->net, &r->p, step);
    st = tsr_program_run_step(&r->p, step);
    CHECK_MSG(st == TSR_OK, "%s", r->net.err.msg);
    CHECK(tsr_program_finite(&r->p, r->net.noise));
    return outputs(r, bytes);
}

/* Everything from recording to the outputs of one step; NULL on failure. */
static unsigned char *run_all(const rig_desc *d, int32_t step, size_t *bytes)
{
    unsigned char *x = NULL;
    rig r;

    if (rig_load(&r, d) && run_prologue(&r))
        x = run_step(&r, step, bytes);
    rig_free(&r);
    return x;
}

static void check_same(const rig_desc *a, const rig_desc *b, const char *what)
{
    size_t na = 0, nb = 0;
    unsigned char *x = run_all(a, 1, &na), *y = run_all(b, 1, &nb);

    CHECK_MSG(x && y && na == nb && memcmp(x, y, na) == 0, "other bits with %s", what);
    free(x);
    free(y);
}

/* ---------------------------------------------------------------- the bits */

static void run__places_used_once_only__same_bits(void)
{
    for (int32_t i = 0; i < 2; i++) {
        tsr_dtype dtype = i ? TSR_F16 : TSR_F32;
        rig_desc plain = {.dtype = dtype, .file_dtype = TSR_F16}, kept = plain;
        kept.keep_all = true;
        check_same(&plain, &kept, "a place for every value");
    }
}

static void run__any_tier_threads_window__same_bits(void)
{
    for (int32_t tier = TSR_TIER_PORTABLE; tier <= TSR_TIER_AVX512FP16; tier++) {
        rig_desc plain = {.dtype = TSR_F16, .file_dtype = TSR_F16, .tier = (tsr_cpu_tier)tier};
        rig_desc other = plain;
        if (!tsr_cpu_backend(plain.tier))
            continue;
        other.threads = 2;
        other.window_rows = 1;
        check_same(&plain, &other, "2 threads and windows of 1");
        other.threads = 3;
        other.window_rows = 2;
        check_same(&plain, &other, "3 threads and windows of 2");
        other.window_rows = 5;
        check_same(&plain, &other, "3 threads and windows of 5");
        other.window_rows = 1000;
        other.base = 4096 * 3;
        check_same(&plain, &other, "3 threads and a larger arena");
    }
}

static void run__tiers__agree_with_the_oracle(void)
{
    rig_desc d = {.dtype = TSR_F32, .file_dtype = TSR_F32};
    size_t bytes = 0, n;
    unsigned char *want = run_all(&d, 1, &bytes);

    REQUIRE(want);
    n = (size_t)2 * 4 * 9 * 7;
    for (int32_t tier = TSR_TIER_AVX2; tier <= TSR_TIER_AVX512FP16; tier++) {
        unsigned char *got;
        d.tier = (tsr_cpu_tier)tier;
        got = tsr_cpu_backend(d.tier) ? run_all(&d, 1, &bytes) : NULL;
        if (got)
            CHECK(test_rel_l2((const float *)got, (const float *)want, n) < 1e-5);
        free(got);
    }
    free(want);
}

static void run__steps_in_any_order__same_bits(void)
{
    rig_desc d = {.dtype = TSR_F16, .file_dtype = TSR_F16, .threads = 2};
    const int32_t order[] = {2, 0, 1, 0, 2};
    unsigned char *first[TOY_STEPS] = {0}, *other;
    size_t bytes = 0;
    rig r;

    REQUIRE(rig_load(&r, &d) && run_prologue(&r));
    for (int32_t i = 0; i < 5; i++) {
        unsigned char *x = run_step(&r, order[i], &bytes);
        if (first[order[i]])
            CHECK(memcmp(first[order[i]], x, bytes) == 0);
        else
            first[order[i]] = x;
        if (first[order[i]] != x)
            free(x);
    }
    CHECK(r.p.n_steps_run == 5);
    toy_net_fill_step(&r.net, &r.p, 0); /* the inputs of step 0 with the embedding of step 1 */
    CHECK(tsr_program_run_step(&r.p, 1) == TSR_OK);
    other = outputs(&r, &bytes);
    CHECK(memcmp(first[0], other, bytes) != 0);
    free(other);
    REQUIRE(run_prologue(&r)); /* and once more from the start */
    free(first[0]);
    first[0] = run_step(&r, 2, &bytes);
    CHECK(memcmp(first[0], first[2], bytes) == 0);
    for (int32_t i = 0; i < TOY_STEPS; i++)
        free(first[i]);
    rig_free(&r);
}

static void run__files_of_any_type__same_as_their_float_values(void)
{
    static const tsr_dtype types[] = {TSR_F16, TSR_BF16, TSR_F64, TSR_F32, TSR_I8};

    for (int32_t i = 0; i < 5; i++) {
        rig_desc d = {.dtype = TSR_F32, .file_dtype = types[i]};
        rig r;
        REQUIRE(rig_load(&r, &d));
        CHECK(r.p.bytes_read == r.net.source.bytes && r.net.source.in_order);
        for (int32_t t = 0; t < r.net.source.n_tensors; t++)
            r.net.source.bytes -= r.net.source.elements[t] * tsr_dtype_size(types[i]);
        CHECK(r.net.source.bytes == 0); /* each byte once */
        rig_free(&r);
    }
    /* multiples of 2^-15 in [-1/4,1/4): exact in all of these */
    check_same(&(rig_desc){.dtype = TSR_F32, .file_dtype = TSR_F64},
               &(rig_desc){.dtype = TSR_F32, .file_dtype = TSR_F32}, "doubles in the file");
}

/* --------------------------------------------------------------- the plan */

static void plan__predicted_peak__is_the_high_water(void)
{
    for (int32_t i = 0; i < 2; i++) {
        rig_desc d = {.dtype = i ? TSR_F16 : TSR_F32, .file_dtype = TSR_F16, .threads = 2};
        size_t bytes, sum = 0;
        rig r;
        REQUIRE(rig_load(&r, &d) && run_prologue(&r));
        free(run_step(&r, 0, &bytes));
        CHECK_MSG(r.arena.high_water == tsr_program_bytes(&r.p), "%zu predicted, %zu used",
                  tsr_program_bytes(&r.p), r.arena.high_water);
        for (int32_t c = 0; c < TSR_ITEM_CLASSES; c++)
            sum += r.p.layout.class_bytes[c];
        CHECK(sum <= tsr_program_bytes(&r.p) && r.p.layout.class_bytes[TSR_ITEM_WEIGHT] > 0);
        rig_free(&r);
    }
}

static void plan__reuse__needs_less_than_a_place_for_each(void)
{
    rig_desc d = {.dtype = TSR_F16, .file_dtype = TSR_F16}, kept = d;
    rig a, b;

    kept.keep_all = true;
    REQUIRE(rig_plan(&a, &d));
    REQUIRE(rig_plan(&b, &kept));
    CHECK(tsr_program_bytes(&a.p) < tsr_program_bytes(&b.p));
    CHECK(a.p.hash != b.p.hash);
    rig_free(&a);
    rig_free(&b);
}

static void plan__same_question__same_hash(void)
{
    rig_desc d = {.dtype = TSR_F16, .file_dtype = TSR_F16}, single = d;
    rig a, b, c;

    single.dtype = TSR_F32;
    REQUIRE(rig_plan(&a, &d));
    REQUIRE(rig_plan(&b, &d));
    REQUIRE(rig_plan(&c, &single));
    CHECK(a.p.hash == b.p.hash && a.p.hash != c.p.hash);
    CHECK(tsr_program_flops(&a.p, false) > 0 && tsr_program_flops(&a.p, true) > 0);
    rig_free(&a);
    rig_free(&b);
    rig_free(&c);
}

/* Inputs of the prologue, and its temporaries, give their places to the loop. */
static void plan__prologue_only_values__die(void)
{
    tsr_err err = {0};
    tsr_tape t;
    tsr_pool *pool = NULL;
    tsr_program p;
    tsr_val x, y, z;

    tsr_tape_init(&t, TSR_F32, &err);
    REQUIRE(tsr_pool_make(&pool, 1, &err) == TSR_OK);
    CHECK(tsr_tape_input(&t, (int32_t[]){1, 1000, 1, 16}, TSR_F32, "x", &x) == TSR_OK);
    CHECK(tsr_op_add(&t, &(tsr_add_desc){.x = x, .y = x}, &y) == TSR_OK);
    CHECK(tsr_op_add(&t, &(tsr_add_desc){.x = y, .y = y}, &y) == TSR_OK);
    tsr_tape_begin_loop(&t);
    for (int32_t i = 0; i < 3; i++)
        CHECK(tsr_op_add(&t, &(tsr_add_desc){.x = y, .y = i ? z : y}, &z) == TSR_OK);
    tsr_tape_output(&t, z, "z");
    CHECK(tsr_program_make(&p, &t, tsr_cpu_backend(TSR_TIER_PORTABLE), pool, NULL, &err) == TSR_OK);
    /* y for ever, and one of the loop's, in place: what the prologue had lies under it */
    CHECK(tsr_program_bytes(&p) == 2 * 64000);
    CHECK(p.plan.items[p.plan.value_item[x]].bytes == 64000);
    tsr_program_free(&p);
    tsr_tape_free(&t);
    tsr_pool_free(pool);
}

static void plan__nothing_allocated_afterwards(void)
{
    rig_desc d = {.dtype = TSR_F16, .file_dtype = TSR_F16, .threads = 2};
    uint64_t before;
    rig r;

    REQUIRE(rig_plan(&r, &d));
    toy_net_fill_prologue(&r.net, &r.p);
    before = tsr_alloc_count();
    CHECK(tsr_program_load(&r.p) == TSR_OK);
    toy_net_fill_prologue(&r.net, &r.p);
    toy_net_fill_step(&r.net, &r.p, 0);
    CHECK(tsr_program_run_prologue(&r.p) == TSR_OK);
    toy_net_fill_step(&r.net, &r.p, 0);
    CHECK(tsr_program_run_step(&r.p, 0) == TSR_OK);
    CHECK(tsr_program_find_overflow(&r.p, true, 0) == NULL);
    CHECK(tsr_alloc_count() == before);
    rig_free(&r);
}

static void plan__any_allocation_fails__is_out_of_memory(void)
{
    tsr_pool *pool = NULL;
    toy_net net;
    bool failed = true;

    REQUIRE(toy_net_record(&net, TSR_F16, TSR_F16, false) == TSR_OK);
    REQUIRE(tsr_pool_make(&pool, 1, &net.err) == TSR_OK);
    for (uint64_t n = 1; failed; n++) {
        tsr_program p = {0};
        tsr_status st;
        net.err = (tsr_err){0};
        tsr_alloc_fail_at(n);
        st = tsr_program_make(&p, &net.tape, tsr_cpu_backend(TSR_TIER_PORTABLE), pool, NULL,
                              &net.err);
        failed = tsr_alloc_failed();
        tsr_alloc_fail_at(0);
        CHECK(st == (failed ? TSR_E_OOM : TSR_OK) && (!failed || net.err.msg[0]));
        tsr_program_free(&p);
    }
    toy_net_free(&net);
    tsr_pool_free(pool);
}

/* ------------------------------------------------------------ the weights */

typedef struct bad_weight {
    tsr_dtype dtype, file_dtype;
    float value;
    tsr_status status;
} bad_weight;

static void load__numbers_that_cannot_be_held__are_refused_by_name(void)
{
    static const bad_weight cases[] = {
        {TSR_F16, TSR_F16, NAN, TSR_E_MODEL},       {TSR_F32, TSR_F16, INFINITY, TSR_E_MODEL},
        {TSR_F32, TSR_F32, -INFINITY, TSR_E_MODEL}, {TSR_F32, TSR_BF16, NAN, TSR_E_MODEL},
        {TSR_F16, TSR_F32, 65520, TSR_E_MODEL},     {TSR_F16, TSR_BF16, -1e6f, TSR_E_MODEL},
        {TSR_F16, TSR_F32, 65519, TSR_OK},          {TSR_F32, TSR_F32, 1e30f, TSR_OK},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_desc d = {.dtype = cases[i].dtype, .file_dtype = cases[i].file_dtype, .threads = 2};
        tsr_status st;
        rig r;
        REQUIRE(rig_plan(&r, &d));
        r.net.source.bad_tensor = 1; /* the first matrix: [16,24] */
        r.net.source.bad_element = 16 * 24 - 1;
        r.net.source.bad_value = cases[i].value;
        st = tsr_program_load(&r.p);
        CHECK_MSG(st == cases[i].status, "case %zu: %d (%s)", i, st, r.net.err.msg);
        CHECK(st == TSR_OK || strstr(r.net.err.msg, "toy.1"));
        rig_free(&r);
    }
}

static void load__any_read_fails__is_its_error(void)
{
    tsr_status st = TSR_E_IO;

    for (int32_t n = 1; st != TSR_OK; n++) {
        rig_desc d = {.dtype = TSR_F16, .file_dtype = TSR_F16};
        rig r;
        REQUIRE(n < 1000 && rig_plan(&r, &d));
        r.net.source.fail_read = n;
        st = tsr_program_load(&r.p);
        CHECK(r.net.source.n_reads < n ? st == TSR_OK : st == TSR_E_IO && r.net.err.msg[0]);
        rig_free(&r);
    }
}

/* One linear layer with a weight that takes several reads and tasks, on its own tape. */
enum { BIG_ROWS = 3001, BIG_WIDTH = 600, BIG_TOKENS = 300 };

static void check_big_result(const toy_source *s, const tsr_program *p, tsr_val x, tsr_val y)
{
    const tsr_value *out = tsr_tape_value(p->tape, y);
    size_t size = tsr_dtype_size(s->dtype[0]), n = (size_t)BIG_ROWS * BIG_WIDTH;
    unsigned char *raw = malloc(n * size);
    float *w = malloc(n * sizeof *w), in[BIG_WIDTH], got[BIG_ROWS], want[BIG_ROWS];

    CHECK(s->source.read(&s->source, 0, 0, raw, n * size, NULL) == TSR_OK);
    tsr_to_f32(w, raw, s->dtype[0], n);
    tsr_to_f32(in, tsr_program_data(p, x), out->dtype, BIG_WIDTH);
    tsr_to_f32(got, tsr_program_data(p, y), out->dtype, BIG_ROWS);
    for (size_t r = 0; r < BIG_ROWS; r++) {
        double sum = 0;
        for (size_t k = 0; k < BIG_WIDTH; k++)
            sum += (double)in[k] * (double)w[r * BIG_WIDTH + k];
        want[r] = (float)sum;
    }
    CHECK(test_rel_l2(got, want, BIG_ROWS) < (out->dtype == TSR_F16 ? 1e-3 : 1e-6));
    free(raw);
    free(w);
}

static size_t value_bytes(const tsr_program *p, tsr_val v)
{
    return p->plan.items[p->plan.value_item[v]].bytes;
}

/* Memory: the weight, and above it either what loading needs or what running needs. */
static void check_big_plan(const toy_source *s, const tsr_program *p, tsr_val x, tsr_val y)
{
    size_t staging = p->plan.items[p->plan.staging_item].bytes + p->plan.staging_bytes;
    size_t run =
        value_bytes(p, x) + value_bytes(p, y) + p->plan.items[p->plan.actions[0].work].bytes;

    CHECK(s->n_reads > 1 && s->in_order && s->largest_read <= staging);
    CHECK(staging <= 1 << 20 && staging > 1 << 19);
    CHECK(s->bytes == s->elements[0] * tsr_dtype_size(s->dtype[0]));
    CHECK(tsr_program_bytes(p) ==
          p->plan.items[p->plan.weight_item[1]].bytes + tsr_max_size(staging, run));
}

static void load__big_weight__is_read_in_bounded_pieces(void)
{
    static const tsr_dtype types[] = {TSR_F16, TSR_F32};

    for (int32_t i = 0; i < 4; i++) {
        tsr_err err = {0};
        tsr_tape t;
        toy_source s;
        tsr_pool *pool = NULL;
        tsr_program p;
        tsr_arena arena;
        tsr_val x, y;
        tsr_linear_desc d = {0};

        toy_source_init(&s);
        tsr_tape_init(&t, types[i / 2], &err);
        REQUIRE(tsr_pool_make(&pool, 2, &err) == TSR_OK);
        REQUIRE(tsr_tape_input(&t, (int32_t[]){1, BIG_TOKENS, 1, BIG_WIDTH}, t.dtype, "x", &x) ==
                TSR_OK);
        d.x = x;
        d.weight = toy_weight(&s, &t, TSR_WEIGHT_MATRIX, 2, (int32_t[]){BIG_ROWS, BIG_WIDTH},
                              types[i % 2]);
        REQUIRE(tsr_op_linear(&t, &d, &y) == TSR_OK);
        tsr_tape_output(&t, y, "y");
        REQUIRE(tsr_program_make(&p, &t, tsr_cpu_backend(tsr_cpu_best_tier()), pool, NULL, &err) ==
                TSR_OK);
        REQUIRE(tsr_arena_make(&arena, tsr_program_bytes(&p), &err) == TSR_OK);
        tsr_program_bind(&p, &arena, 0);
        CHECK(tsr_program_load(&p) == TSR_OK);
        check_big_plan(&s, &p, x, y);
        for (int32_t k = 0; k < BIG_TOKENS * BIG_WIDTH; k++)
            tsr_from_f32((unsigned char *)tsr_program_data(&p, x) +
                             (size_t)k * tsr_dtype_size(t.dtype),
                         t.dtype, &(float){(float)(k % 7) / 8}, 1);
        CHECK(tsr_program_run_step(&p, 0) == TSR_OK);
        check_big_result(&s, &p, x, y);
        tsr_program_free(&p);
        tsr_arena_free(&arena);
        tsr_tape_free(&t);
        tsr_pool_free(pool);
    }
}

/* -------------------------------------------------------------- the errors */

static void run__without_memory_or_beyond_the_steps__is_refused(void)
{
    rig_desc d = {.dtype = TSR_F16, .file_dtype = TSR_F16};
    tsr_arena *arena;
    rig r;

    REQUIRE(rig_load(&r, &d) && run_prologue(&r));
    CHECK(tsr_program_run_step(&r.p, TOY_STEPS) == TSR_E_INTERNAL && r.net.err.msg[0]);
    CHECK(tsr_program_run_step(&r.p, -1) == TSR_E_INTERNAL);
    arena = r.p.arena;
    r.p.arena = NULL;
    CHECK(tsr_program_run_step(&r.p, 0) == TSR_E_INTERNAL);
    CHECK(tsr_program_run_prologue(&r.p) == TSR_E_INTERNAL);
    CHECK(tsr_program_load(&r.p) == TSR_E_INTERNAL);
    r.p.arena = arena;
    rig_free(&r);
}

static void find_overflow__half_that_overflows__names_the_first_op(void)
{
    for (int32_t tier = TSR_TIER_PORTABLE; tier <= TSR_TIER_AVX512FP16; tier++) {
        rig_desc d = {.dtype = TSR_F16, .file_dtype = TSR_F32, .tier = (tsr_cpu_tier)tier};
        const char *name;
        rig r;
        if (!tsr_cpu_backend(d.tier))
            continue;
        REQUIRE(rig_plan(&r, &d));
        r.net.source.scale[15] = 60000; /* a convolution in the loop */
        CHECK(r.net.tape.weights[16].n_dims == 4 &&
              r.net.tape.weights[16].first > r.net.tape.loop_begin);
        CHECK(tsr_program_load(&r.p) == TSR_OK && run_prologue(&r));
        toy_net_fill_step(&r.net, &r.p, 0);
        CHECK(tsr_program_run_step(&r.p, 0) == TSR_OK);
        CHECK(!tsr_program_finite(&r.p, r.net.noise));
        name = tsr_program_find_overflow(&r.p, true, 0);
        CHECK(name && name == r.net.tape.ops[r.net.tape.weights[16].first].name);
        toy_net_fill_prologue(&r.net, &r.p);
        CHECK(tsr_program_find_overflow(&r.p, false, 0) == NULL);
        rig_free(&r);
    }
}

static void debug__dead_values__are_nan(void)
{
#ifdef TSR_DEBUG
    rig_desc d = {.dtype = TSR_F16, .file_dtype = TSR_F16, .keep_all = false};
    const tsr_value *x;
    const unsigned char *dead;
    size_t bytes, n_poison = 0;
    rig r;

    REQUIRE(rig_load(&r, &d) && run_prologue(&r));
    free(run_step(&r, 0, &bytes));
    x = tsr_tape_value(&r.net.tape, r.net.dead);
    dead = tsr_program_data(&r.p, r.net.dead);
    for (size_t i = 0; i < tsr_value_bytes(x); i++)
        n_poison += dead[i] == 0xFF;
    CHECK(n_poison > 0);
    rig_free(&r);
#else
    SKIP("dead values are overwritten in debug builds only");
#endif
}

/* Two networks in two threads, each with its own pool: the bits of one alone. */
typedef struct job {
    rig_desc d;
    unsigned char *x;
    size_t bytes;
} job;

static void *run_job(void *arg)
{
    job *j = arg;

    j->x = run_all(&j->d, 2, &j->bytes);
    return NULL;
}

static void run__two_networks_at_once__same_bits(void)
{
    job jobs[3] = {{.d = {.dtype = TSR_F16, .file_dtype = TSR_F16, .threads = 2}}};
    pthread_t threads[2];

    jobs[0].d.tier = tsr_cpu_best_tier();
    jobs[1] = jobs[2] = jobs[0];
    for (int32_t i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0);
    for (int32_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    run_job(&jobs[2]);
    for (int32_t i = 0; i < 2; i++)
        CHECK(jobs[i].x && jobs[2].x && memcmp(jobs[i].x, jobs[2].x, jobs[2].bytes) == 0);
    for (int32_t i = 0; i < 3; i++)
        free(jobs[i].x);
}

int main(void)
{
    RUN(run__places_used_once_only__same_bits);
    RUN(run__any_tier_threads_window__same_bits);
    RUN(run__tiers__agree_with_the_oracle);
    RUN(run__steps_in_any_order__same_bits);
    RUN(run__files_of_any_type__same_as_their_float_values);
    RUN(plan__predicted_peak__is_the_high_water);
    RUN(plan__reuse__needs_less_than_a_place_for_each);
    RUN(plan__same_question__same_hash);
    RUN(plan__prologue_only_values__die);
    RUN(plan__nothing_allocated_afterwards);
    RUN(plan__any_allocation_fails__is_out_of_memory);
    RUN(load__numbers_that_cannot_be_held__are_refused_by_name);
    RUN(load__any_read_fails__is_its_error);
    RUN(load__big_weight__is_read_in_bounded_pieces);
    RUN(run__without_memory_or_beyond_the_steps__is_refused);
    RUN(find_overflow__half_that_overflows__names_the_first_op);
    RUN(debug__dead_values__are_nan);
    RUN(run__two_networks_at_once__same_bits);
    return test_end();
}
