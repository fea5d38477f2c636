/* check_group_norm.c -- group normalisation against double: groups across the seam of two inputs,
 * one-pixel images, means far above the deviation, SiLU. */
#include <math.h>

#include "tests/support/check.h"

typedef struct norm_case {
    int32_t n, h, w, c, c2, groups;
    float eps;
    bool silu;
    tsr_dtype dtype;
    check_fill fill;
} norm_case;

static const norm_case CASES[] = {
    /* real layers, cropped */
    {2, 8, 9, 320, 0, 32, 1e-5f, true, TSR_F16, CHECK_UNIFORM},
    {1, 4, 5, 1280, 640, 32, 1e-5f, true, TSR_F16, CHECK_UNIFORM}, /* a group over the seam */
    {1, 4, 4, 640, 320, 32, 1e-6f, false, TSR_F32, CHECK_UNIFORM},
    {1, 9, 16, 128, 0, 32, 1e-6f, true, TSR_F16, CHECK_UNIFORM},
    {1, 6, 7, 512, 0, 32, 1e-6f, true, TSR_F32, CHECK_UNIFORM},
    /* odd shapes */
    {1, 1, 1, 32, 0, 32, 1e-5f, false, TSR_F32, CHECK_UNIFORM}, /* one element a group */
    {3, 1, 1, 64, 0, 8, 1e-5f, true, TSR_F16, CHECK_UNIFORM},
    {1, 1, 5, 6, 0, 1, 1e-5f, false, TSR_F32, CHECK_UNIFORM},
    {1, 7, 1, 21, 0, 7, 1e-5f, true, TSR_F32, CHECK_UNIFORM},
    {1, 5, 5, 13, 11, 3, 1e-5f, true, TSR_F16, CHECK_UNIFORM},
    {2, 5, 3, 17, 0, 17, 1e-5f, false, TSR_F16, CHECK_UNIFORM},
    {1, 33, 31, 40, 0, 4, 1e-5f, true, TSR_F32, CHECK_UNIFORM},
    /* numbers */
    {1, 16, 16, 64, 0, 4, 1e-5f, false, TSR_F32, CHECK_OFFSET},
    {1, 16, 16, 64, 0, 4, 1e-5f, false, TSR_F16, CHECK_OFFSET},
    {1, 8, 8, 32, 0, 4, 1e-5f, true, TSR_F16, CHECK_LARGE},
    {1, 8, 8, 32, 0, 4, 1e-5f, true, TSR_F16, CHECK_DENORMAL},
    {1, 8, 8, 32, 0, 4, 1e-5f, true, TSR_F32, CHECK_DENORMAL},
};

static bool record(check *c, const norm_case *k)
{
    tsr_group_norm_desc d = {.groups = k->groups, .eps = k->eps, .silu = k->silu};
    tsr_val out;

    check_begin(c, k->dtype, "group_norm [%d,%d,%d,%d+%d]/%d silu %d %s fill %d", k->n, k->h, k->w,
                k->c, k->c2, k->groups, k->silu, tsr_dtype_name(k->dtype), k->fill);
    d.x = check_input(c, (int32_t[]){k->n, k->h, k->w, k->c}, k->dtype, k->fill);
    if (k->c2)
        d.x2 = check_input(c, (int32_t[]){k->n, k->h, k->w, k->c2}, k->dtype, CHECK_LOGITS);
    d.gamma = check_vector(c, 1, (int32_t[]){k->c + k->c2}, CHECK_NEAR_ONE);
    d.beta = check_vector(c, 1, (int32_t[]){k->c + k->c2}, CHECK_UNIFORM);
    return check_recorded(c, tsr_op_group_norm(&c->tape, &d, &out));
}

static void moments(const check *c, const tsr_op *op, int32_t n, int32_t g, double m[2])
{
    const tsr_value *out = &c->tape.values[op->out];
    int32_t width = out->c / op->u.norm.groups, pixels = out->h * out->w;
    double count = (double)width * pixels;

    m[0] = m[1] = 0;
    for (int32_t i = 0; i < pixels * width; i++)
        m[0] += check_joined(c, op, n, i / width, g * width + i % width) / count;
    for (int32_t i = 0; i < pixels * width; i++)
        m[1] += pow(check_joined(c, op, n, i / width, g * width + i % width) - m[0], 2) / count;
}

static void reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];
    int32_t width = out->c / op->u.norm.groups, pixels = out->h * out->w;

    for (int32_t n = 0; n < out->n; n++) {
        for (int32_t g = 0; g < op->u.norm.groups; g++) {
            double m[2];
            moments(c, op, n, g, m);
            for (int32_t i = 0; i < pixels * width; i++) {
                int32_t p = i / width, ch = g * width + i % width;
                double v =
                    (check_joined(c, op, n, p, ch) - m[0]) / sqrt(m[1] + (double)op->u.norm.eps);
                v = v * (double)c->weight_data[op->w[0]][ch] + (double)c->weight_data[op->w[1]][ch];
                want[((size_t)n * (size_t)pixels + (size_t)p) * (size_t)out->c + (size_t)ch] =
                    op->u.norm.silu ? v / (1 + exp(-v)) : v;
            }
        }
    }
}

static void group_norm__table_of_shapes__equals_double(void)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        /* 1000 - mean is exact, but the mean itself is rounded to float32: 3e-5 of a deviation */
        double scale = CASES[i].fill == CHECK_OFFSET ? 200 : 1;
        check c;
        if (record(&c, &CASES[i]))
            check_all(&c, reference, (check_limits){3e-7 * scale, 1e-6 * scale});
    }
}

static const norm_case BENCH[] = {
    {1, 64, 64, 320, 0, 32, 1e-5f, true, TSR_F16, CHECK_UNIFORM},
    {1, 64, 64, 640, 320, 32, 1e-5f, true, TSR_F16, CHECK_UNIFORM},
    {1, 64, 512, 128, 0, 32, 1e-6f, true, TSR_F16, CHECK_UNIFORM},
    {1, 64, 512, 128, 0, 32, 1e-6f, true, TSR_F32, CHECK_UNIFORM},
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
    RUN(group_norm__table_of_shapes__equals_double);
    return test_end();
}
