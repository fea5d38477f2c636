/* check_attention.c -- attention against double: head widths, token counts around the block size,
 * causal masks, peaky and flat softmax. */
#include <math.h>
#include <stdlib.h>

#include "tests/support/check.h"

typedef struct attention_case {
    int32_t n, h, w, keys, heads, dh;
    float scale; /* 0: the default */
    bool causal;
    tsr_dtype dtype;
    check_fill fill;
} attention_case;

static const attention_case CASES[] = {
    /* real heads */
    {2, 8, 9, 72, 8, 40, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 5, 7, 77, 8, 80, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 4, 4, 77, 8, 160, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 6, 5, 154, 5, 64, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 77, 1, 77, 12, 64, 0, true, TSR_F16, CHECK_UNIFORM},
    {1, 77, 1, 77, 4, 80, 0, true, TSR_F32, CHECK_UNIFORM},
    {1, 6, 6, 36, 1, 512, 0, false, TSR_F32, CHECK_UNIFORM},
    {1, 6, 6, 36, 1, 512, 0, false, TSR_F16, CHECK_UNIFORM},
    /* around block sizes, odd widths */
    {1, 1, 1, 1, 1, 1, 0, false, TSR_F32, CHECK_UNIFORM},
    {1, 1, 1, 1, 2, 8, 0, true, TSR_F16, CHECK_UNIFORM},
    {2, 3, 1, 63, 2, 17, 0, false, TSR_F32, CHECK_UNIFORM},
    {1, 3, 1, 64, 2, 24, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 3, 1, 65, 3, 10, 0, false, TSR_F32, CHECK_UNIFORM},
    {1, 5, 1, 127, 2, 32, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 5, 1, 128, 2, 32, 0, false, TSR_F32, CHECK_UNIFORM},
    {1, 5, 1, 129, 2, 32, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 7, 1, 257, 1, 33, 0, false, TSR_F32, CHECK_UNIFORM},
    {1, 300, 1, 300, 1, 16, 0, true, TSR_F32, CHECK_UNIFORM},
    {1, 17, 13, 221, 2, 12, 0, true, TSR_F16, CHECK_UNIFORM},
    {1, 2, 1, 1000, 1, 8, 0, false, TSR_F32, CHECK_UNIFORM},
    /* numbers */
    {1, 9, 1, 200, 2, 40, 1.0f, false, TSR_F32, CHECK_LOGITS},
    {1, 9, 1, 200, 2, 40, 0, false, TSR_F16, CHECK_LOGITS},
    {1, 9, 1, 90, 2, 40, 0, false, TSR_F16, CHECK_DENORMAL},
    {1, 9, 1, 90, 2, 40, 1e-9f, false, TSR_F16, CHECK_LARGE},
};

static bool record(check *c, const attention_case *k)
{
    tsr_attention_desc d = {.n_heads = k->heads, .scale = k->scale, .causal = k->causal};
    int32_t width = k->heads * k->dh;
    tsr_val out;

    check_begin(c, k->dtype, "attention [%d,%dx%d,%d] keys %d heads %d causal %d %s fill %d", k->n,
                k->h, k->w, width, k->keys, k->heads, k->causal, tsr_dtype_name(k->dtype), k->fill);
    d.q = check_input(c, (int32_t[]){k->n, k->h, k->w, width}, k->dtype, k->fill);
    d.k = check_input(c, (int32_t[]){k->n, k->keys, 1, width}, k->dtype,
                      k->fill == CHECK_LOGITS ? CHECK_UNIFORM : k->fill);
    d.v = check_input(c, (int32_t[]){k->n, k->keys, 1, width}, k->dtype,
                      k->fill == CHECK_LOGITS ? CHECK_UNIFORM : k->fill);
    return check_recorded(c, tsr_op_attention(&c->tape, &d, &out));
}

/* Weights of one query and head; returns their sum. */
static double softmax(const check *c, const tsr_op *op, int32_t n, int32_t p, int32_t head,
                      int32_t keys, double *weight)
{
    int32_t dh = c->tape.values[op->out].c / op->u.attention.n_heads;
    double most = -INFINITY, sum = 0;

    for (int32_t j = 0; j < keys; j++) {
        weight[j] = 0;
        for (int32_t d = head * dh; d < (head + 1) * dh; d++)
            weight[j] += check_at(c, op->in[0], n, p, d) * check_at(c, op->in[1], n, j, d);
        weight[j] *= (double)op->u.attention.scale;
        most = fmax(most, weight[j]);
    }
    for (int32_t j = 0; j < keys; j++)
        sum += weight[j] = exp(weight[j] - most);
    return sum;
}

static void reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];
    int32_t heads = op->u.attention.n_heads, dh = out->c / heads, t = out->h * out->w;
    double *weight = calloc((size_t)c->tape.values[op->in[1]].h, sizeof *weight);

    for (int32_t i = 0; i < out->n * t * heads; i++) {
        int32_t n = i / heads / t, p = i / heads % t, head = i % heads;
        int32_t keys = op->u.attention.causal ? p + 1 : c->tape.values[op->in[1]].h;
        double sum = softmax(c, op, n, p, head, keys, weight);
        for (int32_t d = head * dh; d < (head + 1) * dh; d++) {
            double v = 0;
            for (int32_t j = 0; j < keys; j++)
                v += weight[j] * check_at(c, op->in[2], n, j, d);
            *want++ = v / sum;
        }
    }
    free(weight);
}

static void attention__table_of_shapes__equals_double(void)
{
    /* a score of 60 has a rounding error of 2e-6, which exp makes relative */
    const check_limits peaky = {5e-6, 2e-5};

    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        check c;
        if (record(&c, &CASES[i]))
            check_all(&c, reference,
                      CASES[i].fill == CHECK_LOGITS ? peaky : (check_limits){2e-6, 3e-6});
    }
}

/* SD1.5: self attention of each level (fewer queries at the first), cross attention, text encoder,
 * and the decoder's single head. */
static const attention_case BENCH[] = {
    {1, 1024, 1, 4096, 8, 40, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 1024, 1, 1024, 8, 80, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 256, 1, 256, 8, 160, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 4096, 1, 77, 8, 40, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 1024, 1, 77, 8, 80, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 77, 1, 77, 12, 64, 0, true, TSR_F16, CHECK_UNIFORM},
    {1, 512, 1, 4096, 1, 512, 0, false, TSR_F16, CHECK_UNIFORM},
    {1, 512, 1, 4096, 1, 512, 0, false, TSR_F32, CHECK_UNIFORM},
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
    RUN(attention__table_of_shapes__equals_double);
    return test_end();
}
