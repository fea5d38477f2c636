/* check.c -- see check.h. */
#include "tests/support/check_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/num.h"

enum { N_TIERS = TSR_TIER_AVX512FP16 + 1 };

/* Relative errors that sums in halves may have. */
#define HALF_SUMS_L2 2e-3
#define HALF_SUMS_MAX 4e-3

/* Relative errors that Winograd's maps may add to a layer. */
#define WINOGRAD_L2 2e-5
#define WINOGRAD_MAX 4e-5

/* ---------------------------------------------------------------- operands */

static double uniform(check *c) /* [-1,1) */
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (double)(c->random >> 11) * 0x1p-52 - 1;
}

static float draw(check *c, tsr_dtype dtype, check_fill fill)
{
    double u = uniform(c);

    switch (fill) {
    case CHECK_UNIFORM:
        return (float)u;
    case CHECK_SMALL:
        return (float)(u / 64);
    case CHECK_DENORMAL:
        return (float)(u * (dtype == TSR_F16 ? 6e-5 : 1e-38));
    case CHECK_LARGE:
        return u < 0 ? -65504.0f : 65504.0f;
    case CHECK_NEAR_ONE:
        return (float)(1 + u / 8);
    case CHECK_OFFSET:
        return (float)(1000 + u);
    case CHECK_LOGITS:
        return (float)(16 * u);
    case CHECK_BYTES:
        return (float)floor(128 * (u + 1));
    }
    return 0;
}

static float *draw_all(check *c, size_t n, tsr_dtype dtype, check_fill fill)
{
    float *x = malloc(n * sizeof *x);

    for (size_t i = 0; i < n; i++) {
        x[i] = draw(c, dtype, fill);
        if (dtype == TSR_F16)
            x[i] = tsr_f16_to_f32(tsr_f32_to_f16(x[i]));
    }
    return x;
}

void check_begin(check *c, tsr_dtype dtype, const char *label_format, ...)
{
    va_list args;

    memset(c, 0, sizeof *c);
    c->random = 0x9E3779B97F4A7C15u;
    tsr_tape_init(&c->tape, dtype, &c->err);
    va_start(args, label_format);
    vsnprintf(c->label, sizeof c->label, label_format, args);
    va_end(args);
    c->tape.scope = c->label;
}

void check_end(check *c)
{
    for (int32_t i = 0; i < CHECK_MAX; i++) {
        free(c->value_data[i]);
        free(c->weight_data[i]);
    }
    tsr_tape_free(&c->tape);
    memset(c, 0, sizeof *c);
}

tsr_val check_input(check *c, const int32_t shape[4], tsr_dtype dtype, check_fill fill)
{
    tsr_val v = 0;

    if (check_recorded(c, tsr_tape_input(&c->tape, shape, dtype, "input", &v)))
        c->value_data[v] =
            draw_all(c, tsr_value_bytes(&c->tape.values[v]) / tsr_dtype_size(dtype), dtype, fill);
    return v;
}

static tsr_wt add_weight(check *c, tsr_weight w, const int32_t *dims, check_fill fill)
{
    size_t n = 1;
    tsr_wt index = 0;

    for (int32_t i = 0; i < w.n_dims; i++) {
        w.dims[i] = dims[i];
        n *= (size_t)dims[i];
    }
    w.name = c->label;
    if (check_recorded(c, tsr_tape_weight(&c->tape, &w, &index)))
        c->weight_data[index] = draw_all(c, n, w.dtype, fill);
    return index;
}

tsr_wt check_matrix(check *c, int32_t n_dims, const int32_t *dims, tsr_dtype dtype, check_fill fill)
{
    tsr_weight w = {
        .n_dims = n_dims, .dtype = dtype, .file_dtype = dtype, .kind = TSR_WEIGHT_MATRIX};

    return add_weight(c, w, dims, fill);
}

tsr_wt check_vector(check *c, int32_t n_dims, const int32_t *dims, check_fill fill)
{
    tsr_weight w = {
        .n_dims = n_dims, .dtype = TSR_F32, .file_dtype = TSR_F32, .kind = TSR_WEIGHT_VECTOR};

    return add_weight(c, w, dims, fill);
}

bool check_recorded(check *c, tsr_status st)
{
    CHECK_MSG(st == TSR_OK, "%s: %s", c->label, c->err.msg);
    return st == TSR_OK;
}

double check_at(const check *c, tsr_val v, int32_t n, int32_t p, int32_t ch)
{
    const tsr_value *x = &c->tape.values[v];
    size_t pixels = (size_t)x->h * (size_t)x->w;

    return (double)c->value_data[v][((size_t)n * pixels + (size_t)p) * (size_t)x->c + (size_t)ch];
}

double check_joined(const check *c, const tsr_op *op, int32_t n, int32_t p, int32_t ch)
{
    int32_t c1 = c->tape.values[op->in[0]].c;

    return ch < c1 ? check_at(c, op->in[0], n, p, ch) : check_at(c, op->in[1], n, p, ch - c1);
}

/* ------------------------------------------------------------------ demands */

/* The whole op in windows of `rows` output rows (0: all), from the last window when `backwards`. */
static void run_windows(const check *c, check_placed *p, tsr_pool *pool, int32_t rows,
                        bool backwards)
{
    int32_t h = p->call.out.h, step = rows ? rows : h, n = tsr_div_up(h, step);

    memset(p->out.data, CHECK_GUARD_BYTE, p->out.bytes);
    for (int32_t i = 0; i < n; i++) {
        int32_t h0 = (backwards ? n - 1 - i : i) * step;
        check_run_window(
            c, p, pool,
            (tsr_window){.n1 = p->call.out.n, .h0 = h0, .h1 = tsr_min_i32(h, h0 + step)});
    }
    CHECK_MSG(check_guards_hold(&p->out), "%s %s: wrote beside its output", c->label, p->b->tier);
}

static void same_bits(const check *c, const check_placed *p, const unsigned char *want,
                      const char *what)
{
    CHECK_MSG(memcmp(p->out.data, want, p->out.bytes) == 0, "%s %s: other bits with %s", c->label,
              p->b->tier, what);
}

static void check_windows(const check *c, check_placed *p, tsr_pool *pools[],
                          const unsigned char *want)
{
    static const int32_t rows[] = {1, 2, 3, 5};
    char what[64];

    for (int32_t i = 0; i < 4; i++) {
        run_windows(c, p, pools[i % CHECK_MAX_THREADS], rows[i], i % 2 == 1);
        snprintf(what, sizeof what, "windows of %d rows", rows[i]);
        same_bits(c, p, want, what);
    }
}

/* Every entry as if it were the only one. */
static void check_entries(const check *c, check_placed *p, tsr_pool *pool,
                          const unsigned char *want)
{
    tsr_call all = p->call;
    int32_t n = all.out.n;

    for (int32_t k = 0; k < 4; k++)
        if (all.in[k].data && all.in[k].n != n && all.in[k].n != 1)
            return; /* entries that repeat: each depends on its number */
    memset(p->out.data, CHECK_GUARD_BYTE, p->out.bytes);
    for (int32_t i = 0; i < n; i++) {
        p->call = all;
        p->call.out.n = 1;
        p->call.out.data = p->out.data + (size_t)i * all.out.entry_stride;
        for (int32_t k = 0; k < 4; k++) {
            if (all.in[k].n != n || !all.in[k].data)
                continue;
            p->call.in[k].n = 1;
            p->call.in[k].data = p->in[k].data + (size_t)i * all.in[k].entry_stride;
        }
        check_run_window(c, p, pool, (tsr_window){.n1 = 1, .h1 = all.out.h});
    }
    p->call = all;
    same_bits(c, p, want, "an entry computed alone");
}

static void check_operands(const check *c, const check_placed *p)
{
    for (int32_t k = 0; k < 4; k++) {
        check_guarded copy;
        if (!p->in[k].data)
            continue;
        copy = check_guarded_make(p->in[k].bytes);
        check_store(copy.data, p->call.in[k].dtype, c->value_data[p->call.op->in[k]],
                    copy.bytes / tsr_dtype_size(p->call.in[k].dtype));
        CHECK_MSG(memcmp(copy.data, p->in[k].data, copy.bytes) == 0 && check_guards_hold(&p->in[k]),
                  "%s %s: operand %d was written", c->label, p->b->tier, k);
        check_guarded_free(&copy);
    }
}

static void to_float(float *dst, const check_placed *p, size_t n)
{
    tsr_to_f32(dst, p->out.data, p->call.out.dtype, n);
}

typedef struct errors {
    double l2, max;
} errors;

/* Infinities where the exact value is beyond the type are right; half a step of the smallest
 * half, and sums of denormal floats, are no errors. */
static errors measure(const float *got, const double *want, size_t n, tsr_dtype dtype)
{
    double limit = dtype == TSR_F16 ? 65520 : (double)INFINITY;
    double step = dtype == TSR_F16 ? 0x1p-25 : 1e-42;
    double diff = 0, norm = 0, most = 0, largest = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fmax(fabs((double)got[i] - want[i]) - step, 0);
        if (fabs(want[i]) >= limit && isinf(got[i]) && (got[i] > 0) == (want[i] > 0))
            continue;
        if (!isfinite(got[i]))
            return (errors){INFINITY, INFINITY};
        diff += d * d;
        norm += want[i] * want[i];
        most = fmax(most, d);
        largest = fmax(largest, fabs(want[i]));
    }
    if (norm == 0)
        return (errors){sqrt(diff), most};
    return (errors){sqrt(diff / norm), most / largest};
}

/* What the output's type itself costs, and what is not worth a complaint. */
static check_limits floors(tsr_dtype dtype)
{
    return dtype == TSR_F16 ? (check_limits){3e-4, 5e-4} : (check_limits){2e-7, 4e-7};
}

/* What a tier's own way of summing up costs: gemm_half_tile.h, winograd_body.h. */
static check_limits tier_floor(const check *c, tsr_cpu_tier tier, tsr_dtype out)
{
    const tsr_backend *b = tsr_cpu_backend(tier);
    const tsr_op *op = &c->tape.ops[0];
    check_limits floor = floors(out);

    if (tier == TSR_TIER_AVX512FP16 && op->kind == TSR_OP_LINEAR &&
        op->u.linear.pre != TSR_ACT_SILU && op->u.linear.act != TSR_ACT_SILU &&
        c->tape.weights[op->w[0]].dtype == TSR_F16)
        floor = (check_limits){HALF_SUMS_L2, HALF_SUMS_MAX};
    if (b->method(b, &c->tape, op)) {
        floor.l2 += WINOGRAD_L2;
        floor.max += WINOGRAD_MAX;
    }
    return floor;
}

static void check_tier(const check *c, tsr_cpu_tier tier, tsr_pool *pools[], const double *want,
                       errors *portable)
{
    const tsr_backend *b = tsr_cpu_backend(tier);
    const tsr_value *out = &c->tape.values[c->tape.ops[0].out];
    size_t n = tsr_value_bytes(out) / tsr_dtype_size(out->dtype);
    float *got = malloc(n * sizeof *got);
    unsigned char *bits = malloc(tsr_value_bytes(out));
    check_limits floor = tier_floor(c, tier, out->dtype);
    errors e;
    check_placed p;

    check_place(c, b, &p);
    run_windows(c, &p, pools[0], 0, false);
    memcpy(bits, p.out.data, p.out.bytes);
    to_float(got, &p, n);
    e = measure(got, want, n, out->dtype);
    if (tier == TSR_TIER_PORTABLE)
        *portable = e;
    CHECK_MSG(e.l2 <= 2 * portable->l2 + floor.l2 && e.max <= 3 * portable->max + floor.max,
              "%s %s: error %.2e (max %.2e), portable %.2e (max %.2e)", c->label, b->tier, e.l2,
              e.max, portable->l2, portable->max);
    for (int32_t t = 1; t < CHECK_MAX_THREADS; t++) {
        run_windows(c, &p, pools[t], 0, false);
        same_bits(c, &p, bits, t == 1 ? "2 threads" : "3 threads");
    }
    check_windows(c, &p, pools, bits);
    check_entries(c, &p, pools[1], bits);
    CHECK_MSG(b->all_finite(b, &p.call.out, pools[1]) == isfinite(test_max_abs_diff(got, got, n)),
              "%s %s: all_finite is wrong", c->label, b->tier);
    check_parts(c, &p, pools, bits);
    check_operands(c, &p);
    check_unplace(&p);
    free(got);
    free(bits);
}

void check_all(check *c, check_reference reference, check_limits limits)
{
    tsr_pool *pools[CHECK_MAX_THREADS] = {0};
    const tsr_value *out = &c->tape.values[c->tape.ops[0].out];
    double *want = calloc(tsr_value_bytes(out), sizeof *want);
    errors portable = {0, 0};
    check_limits floor = floors(out->dtype);

    reference(c, want);
    for (int32_t t = 0; t < CHECK_MAX_THREADS; t++)
        CHECK(tsr_pool_make(&pools[t], t + 1, &c->err) == TSR_OK);
    for (int32_t tier = TSR_TIER_PORTABLE; tier < N_TIERS; tier++)
        if (tsr_cpu_backend((tsr_cpu_tier)tier))
            check_tier(c, (tsr_cpu_tier)tier, pools, want, &portable);
    CHECK_MSG(portable.l2 <= limits.l2 + floor.l2 && portable.max <= limits.max + floor.max,
              "%s portable: error %.2e (max %.2e) against double", c->label, portable.l2,
              portable.max);
    for (int32_t t = 0; t < CHECK_MAX_THREADS; t++)
        tsr_pool_free(pools[t]);
    free(want);
    check_end(c);
}

float *check_portable_output(check *c)
{
    const tsr_value *out = &c->tape.values[c->tape.ops[0].out];
    size_t n = tsr_value_bytes(out) / tsr_dtype_size(out->dtype);
    float *got = malloc(n * sizeof *got);
    tsr_pool *pool = NULL;
    check_placed p;

    CHECK(tsr_pool_make(&pool, 1, &c->err) == TSR_OK);
    check_place(c, tsr_cpu_backend(TSR_TIER_PORTABLE), &p);
    run_windows(c, &p, pool, 0, false);
    to_float(got, &p, n);
    check_unplace(&p);
    tsr_pool_free(pool);
    return got;
}

/* -------------------------------------------------------------------- bench */

bool check_bench_asked(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], "--bench") == 0;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Best of at least three runs and a quarter of a second. */
static double best_seconds(const check *c, check_placed *p, tsr_pool *pool)
{
    double best = INFINITY, begin = now();
    tsr_window whole = {.n1 = p->call.out.n, .h1 = p->call.out.h};
    check_guarded work = check_guarded_make(
        p->b->work_bytes(p->b, &c->tape, p->call.op, &whole, tsr_pool_threads(pool)));

    p->call.window = whole;
    p->call.pool = pool;
    p->call.work = work.data;
    p->call.work_bytes = work.bytes;
    for (int32_t i = 0; (i < 3 || now() - begin < 0.25) && !(i == 1 && best > 1); i++) {
        double start = now();
        p->b->run(p->b, &p->call);
        best = fmin(best, now() - start);
    }
    check_guarded_free(&work);
    return best;
}

/* What the op reads and writes, once each. */
static double moved_bytes(const check_placed *p)
{
    double sum = (double)p->out.bytes;

    for (int32_t k = 0; k < 4; k++)
        sum += (double)p->in[k].bytes;
    for (int32_t k = 0; k < 2; k++)
        sum += (double)p->w[k].bytes;
    return sum;
}

void check_bench(check *c)
{
    int32_t counts[2] = {1, tsr_cpu_count()};
    double flops = tsr_op_flops(&c->tape, &c->tape.ops[0]);

    for (int32_t tier = TSR_TIER_PORTABLE; tier < N_TIERS; tier++) {
        const tsr_backend *b = tsr_cpu_backend((tsr_cpu_tier)tier);
        check_placed p;
        if (!b)
            continue;
        check_place(c, b, &p);
        for (int32_t i = 0; i < 2; i++) {
            tsr_pool *pool = NULL;
            double s;
            if (tsr_pool_make(&pool, counts[i], &c->err) != TSR_OK)
                break;
            s = best_seconds(c, &p, pool);
            printf("%-44s %-10s %d threads %9.2f ms %8.1f GFLOP/s %6.2f GB/s\n", c->label, b->tier,
                   counts[i], s * 1e3, flops / s * 1e-9, moved_bytes(&p) / s * 1e-9);
            tsr_pool_free(pool);
        }
        check_unplace(&p);
    }
    check_end(c);
}
