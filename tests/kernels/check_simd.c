/* check_simd.c -- what the vector tiers can get wrong and the portable one cannot: the borders of
 * their blocks, tiles and vectors, and the accuracy of their own exp and gelu.
 *
 * The operators' meaning is checked in check_<op>.c. Here sizes lie one below, on and one above
 * each border of every tier: vectors of 8 and 16, panels of 16 and 32 channels, tiles of 6 and 12
 * rows, blocks of 144 rows, 256 sums and 96 keys, panels of queries. --bench prints the machine's
 * roof, for what the other checks' benches print. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "kernels/roof.h"
#include "tests/support/check.h"

/* ------------------------------------------------------------------ matrix products */

typedef struct product_case {
    int32_t n, h, w, c, c2, co, r;
    tsr_dtype dtype;
} product_case;

/* out = bias + weight * in (+ residual), taps r = 1 or 3 with half padding; GEGLU where asked. */
static double product_sum(const check *c, const tsr_op *op, int32_t n, int32_t p, int32_t row)
{
    const tsr_value *x = &c->tape.values[op->in[0]];
    const tsr_weight *w = &c->tape.weights[op->w[0]];
    int32_t r = w->n_dims == 4 ? w->dims[2] : 1, channels = w->dims[1];
    double sum = (double)c->weight_data[op->w[1]][row];

    for (int32_t tap = 0; tap < r * r; tap++) {
        int32_t y = p / x->w + tap / r - r / 2, col = p % x->w + tap % r - r / 2;

        if (y < 0 || y >= x->h || col < 0 || col >= x->w)
            continue;
        for (int32_t ch = 0; ch < channels; ch++)
            sum += check_joined(c, op, n, y * x->w + col, ch) *
                   (double)c->weight_data[op->w[0]][(row * channels + ch) * r * r + tap];
    }
    return sum;
}

static void product_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];
    bool geglu = op->kind == TSR_OP_LINEAR && op->u.linear.geglu;

    for (int32_t i = 0; i < out->n * out->h * out->w; i++) {
        int32_t n = i / (out->h * out->w), p = i % (out->h * out->w);

        for (int32_t co = 0; co < out->c; co++) {
            double v = product_sum(c, op, n, p, co);

            if (geglu) {
                double gate = product_sum(c, op, n, p, out->c + co);

                v *= 0.5 * gate * erfc(-gate * 0.70710678118654752440);
            }
            *want++ = v + (op->in[3] ? check_at(c, op->in[3], n, p, co) : 0);
        }
    }
}

static void product_check(const product_case *k, bool geglu)
{
    const int32_t rows = geglu ? 2 * k->co : k->co;
    check c;
    tsr_val x, x2 = 0, residual, out;
    tsr_wt weight, bias;

    check_begin(&c, k->dtype, "product %d+%d to %d, %dx%d taps, %dx%dx%d%s", k->c, k->c2, k->co,
                k->r, k->r, k->n, k->h, k->w, geglu ? ", geglu" : "");
    x = check_input(&c, (int32_t[4]){k->n, k->h, k->w, k->c}, k->dtype, CHECK_UNIFORM);
    if (k->c2)
        x2 = check_input(&c, (int32_t[4]){k->n, k->h, k->w, k->c2}, k->dtype, CHECK_UNIFORM);
    residual = check_input(&c, (int32_t[4]){k->n, k->h, k->w, k->co}, k->dtype, CHECK_UNIFORM);
    bias = check_vector(&c, 1, &rows, CHECK_UNIFORM);
    if (k->r == 1) {
        tsr_linear_desc d = {.x = x, .x2 = x2, .residual = residual, .geglu = geglu};

        weight = check_matrix(&c, 2, (int32_t[2]){rows, k->c + k->c2}, k->dtype, CHECK_UNIFORM);
        d.weight = weight;
        d.bias = bias;
        check_recorded(&c, tsr_op_linear(&c.tape, &d, &out));
    } else {
        int32_t pad = k->r / 2;
        tsr_conv_desc d = {.x = x,
                           .x2 = x2,
                           .residual = residual,
                           .pad_top = pad,
                           .pad_left = pad,
                           .pad_bottom = pad,
                           .pad_right = pad};

        weight = check_matrix(&c, 4, (int32_t[4]){rows, k->c + k->c2, k->r, k->r}, k->dtype,
                              CHECK_UNIFORM);
        d.weight = weight;
        d.bias = bias;
        check_recorded(&c, tsr_op_conv2d(&c.tape, &d, &out));
    }
    check_all(&c, product_reference,
              k->dtype == TSR_F16 ? (check_limits){5e-5, 5e-4} : (check_limits){2e-6, 1e-5});
}

static void product__channels_at_vector_and_panel_borders__as_portable(void)
{
    static const int32_t channels[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 49, 65};

    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        product_check(&(product_case){1, 7, 1, 20, 0, channels[i], 1, TSR_F32}, false);
        product_check(&(product_case){1, 7, 1, 20, 0, channels[i], 1, TSR_F16}, true);
    }
}

static void product__rows_at_tile_and_block_borders__as_portable(void)
{
    static const int32_t rows[] = {1, 5, 6, 7, 11, 12, 13, 143, 144, 145, 289};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        product_check(&(product_case){2, rows[i], 1, 9, 0, 40, 1, TSR_F16}, false);
}

static void product__sums_at_block_borders__as_portable(void)
{
    static const int32_t k[] = {1, 15, 16, 17, 255, 256, 257, 511, 513, 769};

    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        product_check(&(product_case){1, 8, 1, k[i], 0, 20, 1, TSR_F32}, false);
}

static void product__two_inputs_with_seams_inside_vectors__as_portable(void)
{
    static const int32_t seams[][2] = {{1, 1}, {3, 14}, {8, 5}, {13, 20}, {29, 3}, {16, 16}};

    for (size_t i = 0; i < sizeof seams / sizeof *seams; i++) {
        product_check(&(product_case){2, 5, 7, seams[i][0], seams[i][1], 18, 3, TSR_F16}, false);
        product_check(&(product_case){2, 3, 2, seams[i][0], seams[i][1], 18, 1, TSR_F16}, false);
    }
}

/* Sums in halves must neither overflow nor fall among the denormals: rows and columns at both ends
 * of what a half holds. */
static void linear__rows_and_columns_of_any_magnitude__as_portable(void)
{
    static const check_fill fills[][2] = {{CHECK_LARGE, CHECK_DENORMAL},
                                          {CHECK_DENORMAL, CHECK_LARGE},
                                          {CHECK_LARGE, CHECK_LARGE},
                                          {CHECK_DENORMAL, CHECK_DENORMAL},
                                          {CHECK_BYTES, CHECK_OFFSET}};

    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
        tsr_linear_desc d = {.out_dtype = TSR_F32};
        check c;
        tsr_val out;

        check_begin(&c, TSR_F16, "linear 300 to 70, fills %d and %d", fills[i][0], fills[i][1]);
        d.x = check_input(&c, (int32_t[4]){2, 7, 1, 300}, TSR_F16, fills[i][0]);
        d.weight = check_matrix(&c, 2, (int32_t[2]){70, 300}, TSR_F16, fills[i][1]);
        d.bias = check_vector(&c, 1, (int32_t[1]){70}, CHECK_DENORMAL);
        check_recorded(&c, tsr_op_linear(&c.tape, &d, &out));
        check_all(&c, product_reference, (check_limits){2e-6, 1e-5});
    }
}

/* Many panels, several tasks a row block, several blocks of sums. */
static void product__more_panels_than_a_task_takes__as_portable(void)
{
    product_check(&(product_case){1, 3, 50, 300, 0, 700, 1, TSR_F16}, false);
    product_check(&(product_case){1, 5, 6, 40, 0, 330, 3, TSR_F32}, false);
}

/* ------------------------------------------------------------------------ attention */

static void attention_row(const check *c, int32_t n, int32_t head, int32_t q, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *v = &c->tape.values[op->in[0]], *keys = &c->tape.values[op->in[1]];
    int32_t dh = v->c / op->u.attention.n_heads, at = head * dh;
    int32_t n_keys = op->u.attention.causal ? q + 1 : keys->h;
    double sum = 0;

    memset(want, 0, (size_t)dh * sizeof *want);
    for (int32_t k = 0; k < n_keys; k++) {
        double s = 0;

        for (int32_t d = 0; d < dh; d++)
            s += check_at(c, op->in[0], n, q, at + d) * check_at(c, op->in[1], n, k, at + d);
        s = exp(s * (double)op->u.attention.scale); /* scores here are far from overflow */
        sum += s;
        for (int32_t d = 0; d < dh; d++)
            want[d] += s * check_at(c, op->in[2], n, k, at + d);
    }
    for (int32_t d = 0; d < dh; d++)
        want[d] /= sum;
}

static void attention_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];
    int32_t heads = op->u.attention.n_heads, dh = out->c / heads;

    for (int32_t i = 0; i < out->n * out->h * heads; i++, want += dh)
        attention_row(c, i / heads / out->h, i % heads, i / heads % out->h, want);
}

static void attention_check(const int32_t shape[5], tsr_dtype dtype, bool causal)
{
    int32_t n = shape[0], tq = shape[1], tk = shape[2], heads = shape[3], d = heads * shape[4];
    check c;
    tsr_attention_desc desc = {.n_heads = heads, .causal = causal};
    tsr_val out;

    check_begin(&c, dtype, "attention %d queries, %d keys, %d heads of %d%s", tq, tk, heads,
                shape[4], causal ? ", causal" : "");
    desc.q = check_input(&c, (int32_t[4]){n, tq, 1, d}, dtype, CHECK_UNIFORM);
    desc.k = check_input(&c, (int32_t[4]){n, tk, 1, d}, dtype, CHECK_UNIFORM);
    desc.v = check_input(&c, (int32_t[4]){n, tk, 1, d}, dtype, CHECK_UNIFORM);
    check_recorded(&c, tsr_op_attention(&c.tape, &desc, &out));
    check_all(&c, attention_reference, (check_limits){1e-6, 2e-6});
}

static void attention__keys_and_queries_at_block_borders__as_portable(void)
{
    static const int32_t counts[][2] = {{1, 1},   {5, 7},    {17, 95},   {16, 96},
                                        {33, 97}, {31, 192}, {129, 193}, {127, 13}};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        attention_check((int32_t[5]){2, counts[i][0], counts[i][1], 2, 8}, TSR_F32, false);
    attention_check((int32_t[5]){1, 97, 97, 1, 8}, TSR_F32, true);
    attention_check((int32_t[5]){2, 200, 200, 2, 4}, TSR_F16, true);
}

static void attention__head_widths_at_tile_and_vector_borders__as_portable(void)
{
    static const int32_t widths[] = {1, 5, 6, 7, 12, 13, 15, 16, 17, 40, 64, 160};

    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        attention_check((int32_t[5]){1, 19, 100, 3, widths[i]}, TSR_F32, false);
}

/* ---------------------------------------------------------------- norms, finite values */

static void norm_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];
    int32_t pixels = out->h * out->w, size = out->c / op->u.norm.groups;

    for (int32_t i = 0; i < out->n * op->u.norm.groups; i++) {
        int32_t n = i / op->u.norm.groups, c0 = i % op->u.norm.groups * size;
        double mean = 0, var = 0, count = (double)pixels * size;

        for (int32_t j = 0; j < pixels * size; j++)
            mean += check_joined(c, op, n, j / size, c0 + j % size) / count;
        for (int32_t j = 0; j < pixels * size; j++)
            var += pow(check_joined(c, op, n, j / size, c0 + j % size) - mean, 2) / count;
        for (int32_t j = 0; j < pixels * size; j++) {
            int32_t p = j / size, ch = c0 + j % size;
            double v = (check_joined(c, op, n, p, ch) - mean) / sqrt(var + (double)op->u.norm.eps);

            v = v * (double)c->weight_data[op->w[0]][ch] + (double)c->weight_data[op->w[1]][ch];
            want[((size_t)n * (size_t)pixels + (size_t)p) * (size_t)out->c + (size_t)ch] = v;
        }
    }
}

static void norm_check(const int32_t shape[6], tsr_dtype dtype, check_fill fill)
{
    int32_t c = shape[3] + shape[4];
    check k;
    tsr_group_norm_desc d = {.groups = shape[5], .eps = 1e-5f};
    tsr_val out;

    check_begin(&k, dtype, "group norm %d+%d in %d groups, %dx%dx%d", shape[3], shape[4], shape[5],
                shape[0], shape[1], shape[2]);
    d.x = check_input(&k, (int32_t[4]){shape[0], shape[1], shape[2], shape[3]}, dtype, fill);
    if (shape[4])
        d.x2 = check_input(&k, (int32_t[4]){shape[0], shape[1], shape[2], shape[4]}, dtype, fill);
    d.gamma = check_vector(&k, 1, &c, CHECK_NEAR_ONE);
    d.beta = check_vector(&k, 1, &c, CHECK_UNIFORM);
    check_recorded(&k, tsr_op_group_norm(&k.tape, &d, &out));
    check_all(&k, norm_reference,
              fill == CHECK_OFFSET ? (check_limits){4e-5, 4e-5} : (check_limits){1e-6, 2e-6});
}

static void group_norm__groups_and_seams_inside_vectors__as_portable(void)
{
    norm_check((int32_t[6]){2, 3, 5, 30, 0, 3}, TSR_F32, CHECK_UNIFORM);
    norm_check((int32_t[6]){2, 4, 9, 33, 15, 4}, TSR_F32, CHECK_UNIFORM);
    norm_check((int32_t[6]){1, 5, 3, 7, 1, 8}, TSR_F32, CHECK_UNIFORM);
    norm_check((int32_t[6]){1, 2, 2, 64, 131, 13}, TSR_F16, CHECK_UNIFORM);
    norm_check((int32_t[6]){1, 1, 1, 40, 0, 5}, TSR_F32, CHECK_UNIFORM);
}

static void group_norm__mean_far_above_deviation__nothing_cancels(void)
{
    norm_check((int32_t[6]){1, 6, 40, 32, 0, 4}, TSR_F32, CHECK_OFFSET);
}

/* ------------------------------------------------------------- one linear layer, by hand */

/* act(x) of n floats through a 1x1 linear layer with weight 1. */
static void activate(const tsr_backend *b, tsr_act act, const float *x, float *y, int32_t n)
{
    tsr_weight w = {.n_dims = 2, .dims = {1, 1}, .dtype = TSR_F32, .kind = TSR_WEIGHT_MATRIX};
    tsr_weight weights[2] = {{0}, w};
    tsr_value values[2] = {{0}, {.n = 1, .h = n, .w = 1, .c = 1, .dtype = TSR_F32}};
    tsr_tape tape = {.weights = weights, .n_weights = 2, .values = values, .n_values = 2};
    tsr_op op = {.kind = TSR_OP_LINEAR, .out = 1, .in = {1}, .w = {1, 0}, .u.linear.act = act};
    tsr_call call = {.op = &op, .wd = {&weights[1]}, .window = {.n1 = 1, .h1 = n}};
    tsr_tensor t = {.n = 1,
                    .h = n,
                    .w = 1,
                    .c = 1,
                    .n_rows = n,
                    .dtype = TSR_F32,
                    .entry_stride = (size_t)n * 4,
                    .row_stride = 4};
    const float one = 1;
    void *packed = aligned_alloc(64, b->packed_bytes(b, &op, &w));

    b->pack(b, &op, &w, &one, 0, 1, 0, packed);
    CHECK(tsr_pool_make(&call.pool, 1, NULL) == TSR_OK);
    call.work_bytes = tsr_align_up(b->work_bytes(b, &tape, &op, &call.window, 1), 64);
    call.work = aligned_alloc(64, call.work_bytes);
    call.w[0] = packed;
    call.in[0] = call.out = t;
    call.in[0].data = (void *)(uintptr_t)x;
    call.out.data = y;
    b->run(b, &call);
    tsr_pool_free(call.pool);
    free(call.work);
    free(packed);
}

static double exact(tsr_act act, double x)
{
    if (act == TSR_ACT_GELU)
        return 0.5 * x * erfc(-x * 0.70710678118654752440);
    return x / (1 + exp(act == TSR_ACT_SILU ? -x : -(double)1.702f * x));
}

/* Largest error in units of the last place of max(|exact|, floor). */
static double act_error(const tsr_backend *b, tsr_act act, double floor)
{
    enum { N = 160001 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    double worst = 0;

    for (int32_t i = 0; i < N; i++) /* -80 .. 80, denser near zero */
        x[i] = (float)(pow((i - N / 2) / (double)(N / 2), 3) * 80);
    activate(b, act, x, y, N);
    for (int32_t i = 0; i < N; i++) {
        double want = exact(act, (double)x[i]), at = fmax(fabs(want), floor);

        worst = fmax(worst, fabs((double)y[i] - want) / (at * 0x1p-23));
    }
    free(x);
    free(y);
    return worst;
}

static void activations__whole_range__a_few_ulp(void)
{
    for (int32_t tier = TSR_TIER_AVX2; tier <= TSR_TIER_AVX512FP16; tier++) {
        const tsr_backend *b = tsr_cpu_backend((tsr_cpu_tier)tier);
        double silu, quick, gelu;

        if (!b)
            continue;
        silu = act_error(b, TSR_ACT_SILU, 1e-30);
        /* below 1e-2 the argument's rounding (quick gelu) and b's (gelu) grow with |x| */
        quick = act_error(b, TSR_ACT_QUICK_GELU, 1e-2);
        gelu = act_error(b, TSR_ACT_GELU, 1e-2);
        CHECK_MSG(silu < 3 && quick < 8 && gelu < 10, "%s: silu %.1f, quick gelu %.1f, gelu %.1f",
                  b->tier, silu, quick, gelu);
        test_note("%s: silu %.1f, quick gelu %.1f, gelu %.1f ulp", b->tier, silu, quick, gelu);
    }
}

static void activations__special_values__as_the_formula(void)
{
    static const float x[8] = {NAN, INFINITY, 0, 3e38f, -3e38f, 100, -100, -0.0f};
    static const float want[8] = {NAN, INFINITY, 0, 3e38f, 0, 100, 0, 0};

    for (int32_t tier = TSR_TIER_AVX2; tier <= TSR_TIER_AVX512FP16; tier++) {
        const tsr_backend *b = tsr_cpu_backend((tsr_cpu_tier)tier);

        for (int32_t act = TSR_ACT_SILU; b && act <= TSR_ACT_QUICK_GELU; act++) {
            float y[8];

            activate(b, (tsr_act)act, x, y, 8);
            for (int32_t i = 0; i < 8; i++)
                CHECK_MSG(i == 0 ? isnan(y[i]) : y[i] == want[i] || fabsf(y[i] - want[i]) < 1e-30f,
                          "%s: act %d of %g is %g", b->tier, act, (double)x[i], (double)y[i]);
        }
    }
}

/* -------------------------------------------------------------------------- roof */

static void bench_roof(int32_t n_threads)
{
    const tsr_backend *b = tsr_cpu_backend(tsr_cpu_best_tier());
    tsr_roof_rates r;
    tsr_pool *pool = NULL;

    if (tsr_pool_make(&pool, n_threads, NULL) != TSR_OK)
        return;
    if (tsr_roof_measure(b, pool, n_threads, &r, NULL) == TSR_OK)
        printf("roof of %s, %d threads: %.1f GFLOP/s, %.1f GB/s\n", b->tier, n_threads,
               r.flops * 1e-9, r.bytes * 1e-9);
    tsr_pool_free(pool);
}

int main(int argc, char **argv)
{
    if (check_bench_asked(argc, argv)) {
        bench_roof(1);
        bench_roof(tsr_cpu_count());
        return 0;
    }
    RUN(product__channels_at_vector_and_panel_borders__as_portable);
    RUN(product__rows_at_tile_and_block_borders__as_portable);
    RUN(product__sums_at_block_borders__as_portable);
    RUN(product__two_inputs_with_seams_inside_vectors__as_portable);
    RUN(product__more_panels_than_a_task_takes__as_portable);
    RUN(linear__rows_and_columns_of_any_magnitude__as_portable);
    RUN(attention__keys_and_queries_at_block_borders__as_portable);
    RUN(attention__head_widths_at_tile_and_vector_borders__as_portable);
    RUN(group_norm__groups_and_seams_inside_vectors__as_portable);
    RUN(group_norm__mean_far_above_deviation__nothing_cancels);
    RUN(activations__whole_range__a_few_ulp);
    RUN(activations__special_values__as_the_formula);
    return test_end();
}
