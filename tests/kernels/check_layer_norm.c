/* check_layer_norm.c -- layer normalisation against double. */
#include <math.h>

#include "tests/support/check.h"

typedef struct norm_case {
    int32_t n, h, w, c;
    float eps;
    tsr_dtype dtype, out;
    check_fill fill;
} norm_case;

static const norm_case CASES[] = {
    {2, 9, 1, 320, 1e-5f, TSR_F16, TSR_F16, CHECK_UNIFORM},
    {1, 77, 1, 768, 1e-5f, TSR_F16, TSR_F16, CHECK_UNIFORM},
    {1, 5, 1, 1280, 1e-5f, TSR_F32, TSR_F32, CHECK_UNIFORM},
    {1, 4, 5, 640, 1e-5f, TSR_F16, TSR_F32, CHECK_UNIFORM},
    {1, 4, 5, 64, 1e-5f, TSR_F32, TSR_F16, CHECK_UNIFORM},
    {1, 1, 1, 1, 1e-5f, TSR_F32, TSR_F32, CHECK_UNIFORM},
    {3, 7, 1, 17, 1e-5f, TSR_F16, TSR_F16, CHECK_UNIFORM},
    {1, 3, 1, 33, 1e-5f, TSR_F32, TSR_F32, CHECK_UNIFORM},
    {1, 8, 1, 512, 1e-5f, TSR_F32, TSR_F32, CHECK_OFFSET},
    {1, 8, 1, 512, 1e-5f, TSR_F16, TSR_F16, CHECK_OFFSET},
    {1, 8, 1, 100, 1e-5f, TSR_F16, TSR_F16, CHECK_LARGE},
    {1, 8, 1, 100, 1e-5f, TSR_F16, TSR_F16, CHECK_DENORMAL},
    {1, 8, 1, 100, 1e-5f, TSR_F32, TSR_F32, CHECK_DENORMAL},
};

static bool record(check *c, const norm_case *k)
{
    tsr_layer_norm_desc d = {.eps = k->eps, .out_dtype = k->out};
    tsr_val out;

    check_begin(c, k->dtype, "layer_norm [%d,%d,%d,%d] %s -> %s fill %d", k->n, k->h, k->w, k->c,
                tsr_dtype_name(k->dtype), tsr_dtype_name(k->out), k->fill);
    d.x = check_input(c, (int32_t[]){k->n, k->h, k->w, k->c}, k->dtype, k->fill);
    d.gamma = check_vector(c, 1, (int32_t[]){k->c}, CHECK_NEAR_ONE);
    d.beta = check_vector(c, 1, (int32_t[]){k->c}, CHECK_UNIFORM);
    return check_recorded(c, tsr_op_layer_norm(&c->tape, &d, &out));
}

static void reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];
    int32_t pixels = out->h * out->w;

    for (int32_t i = 0; i < out->n * pixels; i++) {
        int32_t n = i / pixels, p = i % pixels;
        double mean = 0, variance = 0;
        for (int32_t ch = 0; ch < out->c; ch++)
            mean += check_at(c, op->in[0], n, p, ch) / out->c;
        for (int32_t ch = 0; ch < out->c; ch++)
            variance += pow(check_at(c, op->in[0], n, p, ch) - mean, 2) / out->c;
        for (int32_t ch = 0; ch < out->c; ch++)
            *want++ = (check_at(c, op->in[0], n, p, ch) - mean) /
                          sqrt(variance + (double)op->u.norm.eps) *
                          (double)c->weight_data[op->w[0]][ch] +
                      (double)c->weight_data[op->w[1]][ch];
    }
}

static void layer_norm__table_of_shapes__equals_double(void)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        /* the mean is rounded to float32: 3e-5 of a deviation */
        double scale = CASES[i].fill == CHECK_OFFSET ? 200 : 1;
        check c;
        if (record(&c, &CASES[i]))
            check_all(&c, reference, (check_limits){3e-7 * scale, 1e-6 * scale});
    }
}

static const norm_case BENCH[] = {
    {1, 4096, 1, 320, 1e-5f, TSR_F16, TSR_F16, CHECK_UNIFORM},
    {1, 256, 1, 1280, 1e-5f, TSR_F16, TSR_F16, CHECK_UNIFORM},
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
    RUN(layer_norm__table_of_shapes__equals_double);
    return test_end();
}
