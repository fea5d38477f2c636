/* check_add.c -- addition of values and of tables, and concatenation, against double. */
#include "tests/support/check.h"

typedef struct add_case {
    int32_t n, h, w, c;
    int32_t table_rows; /* 0: add a value */
    tsr_dtype x, y;
    check_fill fill;
} add_case;

static const add_case CASES[] = {
    {2, 5, 7, 320, 0, TSR_F16, TSR_F16, CHECK_UNIFORM},
    {1, 3, 3, 17, 0, TSR_F32, TSR_F32, CHECK_UNIFORM},
    {1, 3, 3, 9, 0, TSR_F16, TSR_F32, CHECK_UNIFORM},
    {1, 3, 3, 9, 0, TSR_F32, TSR_F16, CHECK_UNIFORM},
    {1, 1, 1, 1, 0, TSR_F16, TSR_F16, CHECK_UNIFORM},
    {1, 4, 4, 33, 0, TSR_F16, TSR_F16, CHECK_LARGE}, /* 131008 is infinity */
    {1, 4, 4, 33, 0, TSR_F16, TSR_F16, CHECK_DENORMAL},
    {2, 77, 1, 768, 77, TSR_F16, TSR_DTYPE_NONE, CHECK_UNIFORM},
    {1, 5, 1, 31, 9, TSR_F32, TSR_DTYPE_NONE, CHECK_UNIFORM},
    {3, 2, 3, 13, 6, TSR_F16, TSR_DTYPE_NONE, CHECK_UNIFORM},
};

static void add_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];
    int32_t pixels = out->h * out->w;

    for (int32_t i = 0; i < out->n * pixels * out->c; i++) {
        int32_t n = i / out->c / pixels, p = i / out->c % pixels, ch = i % out->c;
        double y = op->in[1] ? check_at(c, op->in[1], n, p, ch)
                             : (double)c->weight_data[op->w[0]][p * out->c + ch];
        *want++ = check_at(c, op->in[0], n, p, ch) + y;
    }
}

static void add__table_of_shapes__equals_double(void)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const add_case *k = &CASES[i];
        int32_t shape[4] = {k->n, k->h, k->w, k->c};
        tsr_add_desc d = {0};
        tsr_val out;
        check c;

        check_begin(&c, k->x, "add [%d,%d,%d,%d] table %d fill %d", k->n, k->h, k->w, k->c,
                    k->table_rows, k->fill);
        d.x = check_input(&c, shape, k->x, k->fill);
        if (k->table_rows)
            d.table = check_vector(&c, 2, (int32_t[]){k->table_rows, k->c}, CHECK_UNIFORM);
        else
            d.y = check_input(&c, shape, k->y, k->fill);
        if (check_recorded(&c, tsr_op_add(&c.tape, &d, &out)))
            check_all(&c, add_reference, (check_limits){1e-7, 1e-7});
    }
}

static void concat_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];
    int32_t pixels = out->h * out->w;

    for (int32_t i = 0; i < out->n * pixels * out->c; i++)
        *want++ = check_joined(c, op, i / out->c / pixels, i / out->c % pixels, i % out->c);
}

static void concat__table_of_shapes__is_exact(void)
{
    static const int32_t shapes[][5] = {
        {2, 5, 7, 320, 640}, {1, 1, 1, 1, 1}, {3, 77, 1, 768, 1280}, {1, 2, 9, 13, 5}};

    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const int32_t *s = shapes[i / 2];
        tsr_dtype dtype = i % 2 ? TSR_F16 : TSR_F32;
        tsr_val x, y, out;
        check c;

        check_begin(&c, dtype, "concat [%d,%d,%d,%d+%d] %s", s[0], s[1], s[2], s[3], s[4],
                    tsr_dtype_name(dtype));
        x = check_input(&c, s, dtype, CHECK_UNIFORM);
        y = check_input(&c, (int32_t[]){s[0], s[1], s[2], s[4]}, dtype, CHECK_LARGE);
        if (check_recorded(&c, tsr_op_concat(&c.tape, x, y, &out)))
            check_all(&c, concat_reference, (check_limits){0, 0});
    }
}

int main(void)
{
    RUN(add__table_of_shapes__equals_double);
    RUN(concat__table_of_shapes__is_exact);
    return test_end();
}
