/* check_convert.c -- the network's ends: layouts, scales, and the rounding of pictures. */
#include <math.h>
#include <stdlib.h>

#include "tests/support/check.h"

static void latent_in_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *x = &c->tape.values[op->in[0]], *out = &c->tape.values[op->out];

    /* x is [n,c,h,w]: its value's (h, w, c) hold (c, h, w) */
    for (int32_t i = 0; i < out->n * out->h * out->w * out->c; i++) {
        int32_t ch = i % out->c, p = i / out->c % (out->h * out->w);
        int32_t n = i / out->c / (out->h * out->w) % x->n;
        size_t at = ((size_t)n * (size_t)out->c + (size_t)ch) * (size_t)(out->h * out->w);
        *want++ = (double)c->value_data[op->in[0]][at + (size_t)p] * (double)op->u.convert.scale;
    }
}

static void latent_in__any_shape__is_nhwc_and_scaled(void)
{
    static const int32_t shapes[][4] = {
        {1, 4, 8, 8}, {1, 4, 5, 7}, {2, 16, 3, 1}, {4, 4, 1, 9}, {1, 1, 1, 1}};

    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const int32_t *s = shapes[i / 2];
        tsr_dtype dtype = i % 2 ? TSR_F16 : TSR_F32;
        tsr_val x, out;
        check c;

        check_begin(&c, dtype, "latent_in [%d,%d,%d,%d] %s", s[0], s[1], s[2], s[3],
                    tsr_dtype_name(dtype));
        x = check_input(&c, s, TSR_F32, CHECK_UNIFORM);
        if (check_recorded(&c, tsr_op_latent_in(&c.tape, x, 1 / 0.18215f, &out)))
            check_all(&c, latent_in_reference, (check_limits){1e-7, 1e-7});
    }
}

static void latent_out_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *x = &c->tape.values[op->in[0]];
    int32_t pixels = x->h * x->w;

    for (int32_t i = 0; i < x->n * x->c * pixels; i++)
        *want++ = check_at(c, op->in[0], i / pixels / x->c, i % pixels, i / pixels % x->c);
}

static void latent_out__any_shape__is_nchw(void)
{
    static const int32_t shapes[][4] = {
        {2, 8, 8, 4}, {1, 5, 7, 3}, {3, 1, 9, 16}, {1, 1, 1, 1}, {1, 11, 2, 8}};

    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const int32_t *s = shapes[i / 2];
        tsr_dtype dtype = i % 2 ? TSR_F16 : TSR_F32;
        tsr_val x, out;
        check c;

        check_begin(&c, dtype, "latent_out [%d,%d,%d,%d] %s", s[0], s[1], s[2], s[3],
                    tsr_dtype_name(dtype));
        x = check_input(&c, s, dtype, CHECK_UNIFORM);
        if (check_recorded(&c, tsr_op_latent_out(&c.tape, x, &out)))
            check_all(&c, latent_out_reference, (check_limits){0, 0});
    }
}

static void image_in_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *x = &c->tape.values[op->in[0]];

    for (int32_t i = 0; i < x->n * x->h * x->w * 3; i++)
        *want++ = (double)c->value_data[op->in[0]][i] / 127.5 - 1;
}

static void image_in__bytes__are_minus_one_to_one(void)
{
    for (int32_t i = 0; i < 2; i++) {
        tsr_dtype dtype = i % 2 ? TSR_F16 : TSR_F32;
        tsr_val x, out;
        check c;

        check_begin(&c, dtype, "image_in %s", tsr_dtype_name(dtype));
        x = check_input(&c, (int32_t[]){2, 9, 29, 3}, TSR_U8, CHECK_BYTES);
        if (check_recorded(&c, tsr_op_image_in(&c.tape, x, &out)))
            check_all(&c, image_in_reference, (check_limits){1e-7, 1e-7});
    }
}

static void image_out_reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *x = &c->tape.values[op->in[0]];
    bool half = x->dtype == TSR_F16;

    for (int32_t i = 0; i < x->n * x->h * x->w * 3; i++) {
        float v = c->value_data[op->in[0]][i] / 2 + 0.5f;
        if (half)
            v = tsr_f16_to_f32(tsr_f32_to_f16(v));
        v = v < 0 ? 0 : v > 1 ? 1 : v;
        *want++ = (double)rintf(v * 255);
    }
}

static void image_out__any_value__is_clamped_and_rounded(void)
{
    static const check_fill fills[] = {CHECK_UNIFORM, CHECK_LOGITS, CHECK_LARGE, CHECK_DENORMAL};

    for (int32_t i = 0; i < 8; i++) {
        tsr_dtype dtype = i % 2 ? TSR_F16 : TSR_F32;
        tsr_val x, out;
        check c;

        check_begin(&c, dtype, "image_out fill %d %s", fills[i / 2], tsr_dtype_name(dtype));
        x = check_input(&c, (int32_t[]){2, 17, 31, 3}, dtype, fills[i / 2]);
        if (check_recorded(&c, tsr_op_image_out(&c.tape, x, &out)))
            check_all(&c, image_out_reference, (check_limits){0, 0});
    }
}

/* Ties go to even, as in numpy. */
static void image_out__ties_and_nan__are_even_and_zero(void)
{
    const float x[9] = {-1, 1, 0, NAN, INFINITY, -INFINITY, 2 * 0.7f - 1, 2 * 0.3f - 1, 0.25f};
    const float want[9] = {0, 255, 128 /* 127.5 */, 0, 255, 0, 178 /* 178.5 */, 76 /* 76.5 */, 159};
    tsr_val v, out;
    check c;
    float *got;

    check_begin(&c, TSR_F32, "image_out of known values");
    v = check_input(&c, (int32_t[]){1, 1, 3, 3}, TSR_F32, CHECK_UNIFORM);
    for (int32_t i = 0; i < 9; i++)
        c.value_data[v][i] = x[i];
    if (!check_recorded(&c, tsr_op_image_out(&c.tape, v, &out)))
        return;
    got = check_portable_output(&c);
    for (int32_t i = 0; i < 9; i++)
        CHECK_MSG(got[i] == want[i], "%g became %g and not %g", (double)x[i], (double)got[i],
                  (double)want[i]);
    free(got);
    check_end(&c);
}

int main(void)
{
    RUN(latent_in__any_shape__is_nhwc_and_scaled);
    RUN(latent_out__any_shape__is_nchw);
    RUN(image_in__bytes__are_minus_one_to_one);
    RUN(image_out__any_value__is_clamped_and_rounded);
    RUN(image_out__ties_and_nan__are_even_and_zero);
    return test_end();
}
