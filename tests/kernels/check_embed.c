/* check_embed.c -- time embeddings against torch's formula, and the gather of one row an entry. */
#include <math.h>
#include <stdlib.h>

#include "tests/support/check.h"

typedef struct embed_case {
    int32_t n, k, dim;
    bool flip;
    float shift;
} embed_case;

static const embed_case CASES[] = {
    {5, 1, 320, true, 0}, {2, 6, 256, true, 0}, {1, 1, 64, false, 1},
    {1, 1, 2, true, 0},   {3, 2, 7, true, 0},   {1, 1, 33, false, 1},
};

/* Frequencies and angles are float32 in the formula itself; sine and cosine are exact here. */
static void embed_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *x = &c->tape.values[op->in[0]];
    int32_t dim = op->u.time_embed.dim, half = dim / 2;

    for (int32_t i = 0; i < x->n * x->c; i++, want += dim) {
        for (int32_t j = 0; j < half; j++) {
            float exponent =
                (float)-log(10000) * (float)j / ((float)half - op->u.time_embed.freq_shift);
            float angle = c->value_data[op->in[0]][i] * (float)exp((double)exponent);
            int32_t first = op->u.time_embed.flip_sin_to_cos ? j : half + j; /* of the cosine */
            want[first] = cos((double)angle);
            want[first < half ? half + j : j] = sin((double)angle);
        }
        if (dim % 2)
            want[dim - 1] = 0;
    }
}

static void time_embed__table_of_shapes__equals_double(void)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const embed_case *k = &CASES[i];
        tsr_time_embed_desc d = {.dim = k->dim, .flip_sin_to_cos = k->flip, .freq_shift = k->shift};
        tsr_val out;
        check c;

        check_begin(&c, TSR_F16, "time_embed [%d,%d] dim %d flip %d shift %g", k->n, k->k, k->dim,
                    k->flip, (double)k->shift);
        d.x = check_input(&c, (int32_t[]){k->n, 1, 1, k->k}, TSR_F32, CHECK_OFFSET);
        if (check_recorded(&c, tsr_op_time_embed(&c.tape, &d, &out)))
            check_all(&c, embed_reference, (check_limits){1e-5, 2e-5});
    }
}

/* Known values: t = 1, dim 4: frequencies 1 and 0.01. */
static void time_embed__one__is_the_sinusoids_of_two_frequencies(void)
{
    const double want[2][4] = {{0.8414709848, 0.0099998333, 0.5403023059, 0.9999500004},
                               {0.5403023059, 0.9999500004, 0.8414709848, 0.0099998333}};

    for (int32_t flip = 0; flip < 2; flip++) {
        tsr_time_embed_desc d = {.dim = 4, .flip_sin_to_cos = flip == 1};
        tsr_val out;
        check c;
        float *got;

        check_begin(&c, TSR_F32, "time_embed of 1");
        d.x = check_input(&c, (int32_t[]){1, 1, 1, 1}, TSR_F32, CHECK_UNIFORM);
        c.value_data[d.x][0] = 1;
        if (!check_recorded(&c, tsr_op_time_embed(&c.tape, &d, &out)))
            continue;
        got = check_portable_output(&c);
        for (int32_t i = 0; i < 4; i++)
            CHECK(fabs((double)got[i] - want[flip][i]) < 1e-7);
        free(got);
        check_end(&c);
    }
}

static void gather_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *x = &c->tape.values[op->in[0]];

    for (int32_t n = 0; n < x->n; n++) {
        int32_t row = (int32_t)c->value_data[op->in[1]][n];
        row = row < 0 ? 0 : row >= x->h ? x->h - 1 : row; /* whatever the caller wrote */
        for (int32_t ch = 0; ch < x->c; ch++)
            *want++ = check_at(c, op->in[0], n, row, ch);
    }
}

static void gather_row__any_index__is_that_row_or_the_nearest(void)
{
    static const float rows[][3] = {{0, 5, 76}, {76, 76, 1}, {-1, 77, 1e9f}};

    for (int32_t i = 0; i < 6; i++) {
        tsr_dtype dtype = i % 2 ? TSR_F16 : TSR_F32;
        tsr_val x, index, out;
        check c;

        check_begin(&c, dtype, "gather_row %d %s", i / 2, tsr_dtype_name(dtype));
        x = check_input(&c, (int32_t[]){3, 77, 1, 13}, dtype, CHECK_UNIFORM);
        index = check_input(&c, (int32_t[]){3, 1, 1, 1}, TSR_I32, CHECK_UNIFORM);
        for (int32_t n = 0; n < 3; n++)
            c.value_data[index][n] = rows[i / 2][n];
        if (check_recorded(&c, tsr_op_gather_row(&c.tape, x, index, &out)))
            check_all(&c, gather_reference, (check_limits){0, 0});
    }
}

int main(void)
{
    RUN(time_embed__table_of_shapes__equals_double);
    RUN(time_embed__one__is_the_sinusoids_of_two_frequencies);
    RUN(gather_row__any_index__is_that_row_or_the_nearest);
    return test_end();
}
