/* check_linear.c -- linear layers against double: activations, GEGLU, joined inputs, residuals. */
#include <math.h>

#include "tests/support/check.h"

typedef struct linear_case {
    int32_t n, h, w, c, c2, co;
    tsr_act pre, act;
    bool geglu, residual, no_bias;
    char dtype[4]; /* input, weight, output, residual: 'h' half, 'f' float */
    check_fill fill;
} linear_case;

static const linear_case CASES[] = {
    /* real layers, fewer tokens */
    {2, 9, 1, 320, 0, 320, 0, 0, false, true, false, "hhhh", CHECK_UNIFORM},
    {1, 7, 1, 320, 0, 1280, 0, 0, true, false, false, "hhhh", CHECK_UNIFORM},
    {1, 5, 1, 1280, 0, 320, 0, 0, false, true, false, "hhhh", CHECK_UNIFORM},
    {2, 11, 1, 768, 0, 320, 0, 0, false, false, true, "hhhh", CHECK_UNIFORM},
    {1, 6, 1, 768, 0, 3072, 0, TSR_ACT_QUICK_GELU, false, false, false, "hhhh", CHECK_UNIFORM},
    {1, 6, 1, 1280, 0, 640, 0, TSR_ACT_GELU, false, false, false, "hhhh", CHECK_UNIFORM},
    {5, 1, 1, 320, 0, 1280, 0, TSR_ACT_SILU, false, false, false, "fhfh", CHECK_UNIFORM},
    {3, 1, 1, 1280, 0, 640, TSR_ACT_SILU, 0, false, false, false, "fhhh", CHECK_UNIFORM},
    {1, 4, 5, 512, 0, 512, 0, 0, false, true, false, "ffff", CHECK_UNIFORM},
    {1, 3, 4, 640, 320, 320, 0, 0, false, false, false, "hhhh", CHECK_UNIFORM},
    {1, 3, 1, 1280, 1536, 320, 0, 0, false, false, false, "hhhh", CHECK_UNIFORM},
    {1, 7, 1, 640, 0, 640, 0, 0, true, false, false, "ffff", CHECK_UNIFORM},
    /* odd shapes */
    {1, 1, 1, 1, 0, 1, 0, 0, false, false, false, "ffff", CHECK_UNIFORM},
    {1, 1, 1, 17, 0, 3, TSR_ACT_SILU, TSR_ACT_GELU, false, true, false, "hhhh", CHECK_UNIFORM},
    {2, 33, 1, 13, 4, 31, 0, TSR_ACT_SILU, false, true, false, "ffff", CHECK_UNIFORM},
    {1, 19, 3, 37, 0, 50, 0, 0, true, true, true, "hhhh", CHECK_UNIFORM},
    {1, 8, 1, 5, 0, 1, 0, 0, true, false, false, "ffff", CHECK_UNIFORM},
    {1, 5, 5, 65, 1, 65, 0, 0, false, false, false, "hhhh", CHECK_UNIFORM},
    {1, 65, 1, 24, 0, 9, 0, TSR_ACT_QUICK_GELU, false, false, false, "ffff", CHECK_UNIFORM},
    /* mixed types, extreme numbers */
    {1, 9, 1, 64, 0, 48, 0, 0, false, true, false, "hfhf", CHECK_UNIFORM},
    {1, 9, 1, 64, 0, 48, 0, 0, false, true, false, "fhfh", CHECK_UNIFORM},
    {1, 9, 1, 64, 0, 48, 0, 0, false, true, false, "hhff", CHECK_UNIFORM},
    {1, 9, 1, 64, 0, 48, 0, TSR_ACT_GELU, false, false, false, "hhhh", CHECK_OFFSET},
    {1, 9, 1, 64, 0, 48, TSR_ACT_SILU, 0, false, false, false, "hhhh", CHECK_LARGE},
    {1, 9, 1, 64, 0, 48, 0, 0, true, false, false, "hhfh", CHECK_LARGE},
    {1, 9, 1, 64, 0, 48, 0, 0, false, false, true, "hhhh", CHECK_DENORMAL},
    {1, 9, 1, 64, 0, 48, 0, 0, false, false, true, "ffff", CHECK_DENORMAL},
    {1, 9, 1, 64, 0, 48, TSR_ACT_SILU, TSR_ACT_SILU, false, false, true, "ffff", CHECK_LOGITS},
};

static tsr_dtype type(char c)
{
    return c == 'h' ? TSR_F16 : TSR_F32;
}

static bool record(check *c, const linear_case *k)
{
    tsr_linear_desc d = {
        .pre = k->pre, .act = k->act, .geglu = k->geglu, .out_dtype = type(k->dtype[2])};
    int32_t rows = k->geglu ? 2 * k->co : k->co;
    tsr_val out;

    check_begin(c, type(k->dtype[0]),
                "linear [%d,%d,%d,%d+%d]->%d pre %d act %d geglu %d %.4s fill %d", k->n, k->h, k->w,
                k->c, k->c2, k->co, k->pre, k->act, k->geglu, k->dtype, k->fill);
    d.x = check_input(c, (int32_t[]){k->n, k->h, k->w, k->c}, type(k->dtype[0]), k->fill);
    if (k->c2)
        d.x2 = check_input(c, (int32_t[]){k->n, k->h, k->w, k->c2}, type(k->dtype[0]), k->fill);
    d.weight = check_matrix(c, 2, (int32_t[]){rows, k->c + k->c2}, type(k->dtype[1]),
                            k->c > 200 || k->fill != CHECK_UNIFORM ? CHECK_SMALL : CHECK_UNIFORM);
    if (!k->no_bias)
        d.bias = check_vector(c, 1, (int32_t[]){rows}, CHECK_UNIFORM);
    if (k->residual)
        d.residual =
            check_input(c, (int32_t[]){k->n, k->h, k->w, k->co}, type(k->dtype[3]), CHECK_UNIFORM);
    return check_recorded(c, tsr_op_linear(&c->tape, &d, &out));
}

static double act(tsr_act a, double x)
{
    switch (a) {
    case TSR_ACT_SILU:
        return x / (1 + exp(-x));
    case TSR_ACT_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case TSR_ACT_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case TSR_ACT_NONE:
        break;
    }
    return x;
}

static double row_sum(const check *c, const tsr_op *op, int32_t n, int32_t p, int32_t row)
{
    int32_t k = c->tape.weights[op->w[0]].dims[1];
    const float *w = c->weight_data[op->w[0]] + (size_t)row * (size_t)k;
    double sum = op->w[1] ? (double)c->weight_data[op->w[1]][row] : 0;

    for (int32_t i = 0; i < k; i++)
        sum += act(op->u.linear.pre, check_joined(c, op, n, p, i)) * (double)w[i];
    return sum;
}

static void reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];

    for (int32_t n = 0; n < out->n; n++) {
        for (int32_t p = 0; p < out->h * out->w; p++) {
            for (int32_t co = 0; co < out->c; co++) {
                double v = act(op->u.linear.act, row_sum(c, op, n, p, co));
                if (op->u.linear.geglu)
                    v *= act(TSR_ACT_GELU, row_sum(c, op, n, p, out->c + co));
                if (op->in[3])
                    v += check_at(c, op->in[3], n, p, co);
                *want++ = v;
            }
        }
    }
}

static void linear__table_of_shapes__equals_double(void)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        check c;
        if (record(&c, &CASES[i]))
            check_all(&c, reference, (check_limits){1e-6, 2e-6});
    }
}

/* SD1.5's transformer and time layers. */
static const linear_case BENCH[] = {
    {1, 4096, 1, 320, 0, 320, 0, 0, false, true, false, "hhhh", CHECK_UNIFORM},
    {1, 1024, 1, 320, 0, 1280, 0, 0, true, false, false, "hhhh", CHECK_UNIFORM},
    {1, 4096, 1, 1280, 0, 320, 0, 0, false, true, false, "hhhh", CHECK_UNIFORM},
    {1, 1024, 1, 640, 0, 640, 0, 0, false, true, false, "hhhh", CHECK_UNIFORM},
    {1, 256, 1, 1280, 0, 1280, 0, 0, false, true, false, "hhhh", CHECK_UNIFORM},
    {1, 256, 1, 1280, 0, 5120, 0, 0, true, false, false, "hhhh", CHECK_UNIFORM},
    {1, 77, 1, 768, 0, 3072, 0, TSR_ACT_QUICK_GELU, false, false, false, "hhhh", CHECK_UNIFORM},
    {1, 1, 1, 1280, 0, 1280, TSR_ACT_SILU, 0, false, false, false, "hhhh", CHECK_UNIFORM},
    {1, 1024, 1, 512, 0, 512, 0, 0, false, false, false, "ffff", CHECK_UNIFORM},
};

int main(int argc, char **argv)
{
    if (check_bench_asked(argc, argv)) {
        for (size_t i = 0; i < sizeof BENCH / sizeof *BENCH; i++) {
            check c;
            if (record(&c, &BENCH[i]))
                check_bench(&c);
        }
        return 0;
    }
    RUN(linear__table_of_shapes__equals_double);
    return test_end();
}
