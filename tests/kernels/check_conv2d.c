/* check_conv2d.c -- convolution against double: real channels on small images, odd shapes, borders,
 * strides, resizes, joined inputs, both types of everything. */
#include <stdlib.h>
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "tests/support/check.h"

typedef struct conv_case {
    int32_t n, h, w, c, c2, co, r, s, stride;
    int32_t top, left, bottom, right;
    int32_t up_h, up_w;
    int32_t add; /* entries of add_channel; 0: none */
    bool residual, no_bias;
    char dtype[4]; /* input, weight, output, add and residual: 'h' half, 'f' float */
    check_fill fill;
} conv_case;

#define PAD1 1, 1, 1, 1
static const conv_case CASES[] = {
    /* real layers, cropped */
    {1, 5, 9, 4, 0, 320, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {2, 4, 6, 320, 0, 320, 3, 3, 1, PAD1, 0, 0, 1, true, false, "hhhh", CHECK_UNIFORM},
    {1, 3, 5, 640, 320, 96, 3, 3, 1, PAD1, 0, 0, 1, true, false, "hhhh", CHECK_UNIFORM},
    {2, 2, 2, 1280, 0, 320, 3, 3, 1, PAD1, 0, 0, 2, false, false, "hhhh", CHECK_UNIFORM},
    {1, 6, 5, 320, 0, 4, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 7, 9, 320, 0, 64, 3, 3, 2, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 9, 11, 128, 0, 3, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 8, 10, 128, 0, 128, 3, 3, 2, 0, 0, 1, 1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 5, 7, 64, 0, 48, 3, 3, 1, PAD1, 10, 14, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 5, 7, 512, 0, 128, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, true, false, "hhhh", CHECK_UNIFORM},
    {2, 6, 6, 320, 0, 320, 3, 3, 1, PAD1, 0, 0, 2, true, false, "ffff", CHECK_UNIFORM},
    {1, 3, 4, 1280, 640, 64, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, false, false, "ffff", CHECK_UNIFORM},
    /* real layers, cropped, by Winograd where there is one; float outputs show its own error */
    {2, 8, 8, 320, 0, 64, 3, 3, 1, PAD1, 0, 0, 2, true, false, "hhfh", CHECK_UNIFORM},
    {1, 8, 12, 640, 320, 48, 3, 3, 1, PAD1, 0, 0, 1, false, false, "hhfh", CHECK_UNIFORM},
    {1, 8, 8, 1280, 1280, 48, 3, 3, 1, PAD1, 0, 0, 0, true, false, "hhfh", CHECK_UNIFORM},
    {1, 7, 7, 640, 0, 48, 3, 3, 1, PAD1, 14, 14, 0, false, false, "hhfh", CHECK_UNIFORM},
    {1, 16, 16, 512, 0, 136, 3, 3, 1, PAD1, 0, 0, 0, true, false, "hhfh", CHECK_UNIFORM},
    {1, 21, 67, 128, 0, 40, 3, 3, 1, PAD1, 0, 0, 0, true, false, "hhhh", CHECK_UNIFORM},
    {1, 12, 33, 128, 0, 3, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhfh", CHECK_UNIFORM},
    {2, 13, 11, 37, 12, 21, 3, 3, 1, PAD1, 0, 0, 2, true, true, "hhhh", CHECK_UNIFORM},
    {1, 5, 7, 16, 0, 19, 3, 3, 1, PAD1, 13, 15, 0, true, false, "hhhh", CHECK_UNIFORM},
    {1, 11, 13, 16, 0, 8, 3, 3, 1, 2, 0, 1, 1, 0, 0, 0, false, false, "hhff", CHECK_UNIFORM},
    {1, 10, 10, 24, 0, 8, 3, 3, 1, 0, 0, 0, 0, 0, 0, 0, false, false, "hfhf", CHECK_UNIFORM},
    {1, 9, 9, 32, 0, 32, 3, 3, 1, PAD1, 0, 0, 0, false, true, "hhhh", CHECK_DENORMAL},
    {1, 9, 9, 32, 0, 32, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhff", CHECK_LARGE},
    {1, 9, 9, 32, 0, 32, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhff", CHECK_OFFSET},
    {1, 9, 9, 32, 0, 32, 3, 3, 1, PAD1, 0, 0, 0, false, false, "ffff", CHECK_UNIFORM},
    /* odd shapes */
    {1, 1, 1, 1, 0, 1, 3, 3, 1, PAD1, 0, 0, 0, false, false, "ffff", CHECK_UNIFORM},
    {1, 1, 1, 32, 0, 16, 3, 3, 1, PAD1, 0, 0, 1, true, false, "hhhh", CHECK_UNIFORM},
    {1, 1, 17, 13, 0, 17, 3, 3, 1, PAD1, 0, 0, 0, true, false, "hhhh", CHECK_UNIFORM},
    {1, 17, 1, 13, 5, 33, 3, 3, 1, PAD1, 0, 0, 0, false, true, "ffff", CHECK_UNIFORM},
    {3, 5, 5, 7, 0, 9, 3, 3, 2, PAD1, 0, 0, 3, true, false, "ffff", CHECK_UNIFORM},
    {1, 9, 9, 3, 0, 8, 7, 7, 1, 3, 3, 3, 3, 0, 0, 0, false, false, "ffff", CHECK_UNIFORM},
    {1, 8, 12, 6, 0, 20, 4, 4, 2, 1, 1, 1, 1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 4, 8, 16, 0, 24, 1, 3, 1, 0, 1, 0, 1, 0, 0, 0, false, true, "hhhh", CHECK_UNIFORM},
    {1, 8, 4, 16, 0, 24, 3, 1, 1, 1, 0, 1, 0, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 5, 7, 16, 0, 18, 3, 3, 1, PAD1, 9, 13, 0, false, false, "ffff", CHECK_UNIFORM},
    {1, 6, 5, 16, 8, 18, 3, 3, 1, PAD1, 7, 3, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 5, 5, 4, 0, 4, 5, 5, 1, 4, 4, 4, 4, 0, 0, 0, false, false, "ffff", CHECK_UNIFORM},
    {1, 6, 6, 24, 0, 31, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, false, false, "ffff", CHECK_UNIFORM},
    {1, 3, 130, 8, 0, 8, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 3, 521, 5, 0, 7, 3, 3, 1, PAD1, 0, 0, 0, true, false, "ffff", CHECK_UNIFORM},
    {1, 4, 1043, 3, 0, 5, 3, 3, 2, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 3, 200, 4, 0, 6, 3, 5, 1, 1, 2, 1, 2, 7, 523, 0, false, false, "ffff", CHECK_UNIFORM},
    {1, 19, 21, 33, 0, 40, 3, 3, 1, PAD1, 0, 0, 1, true, false, "hhhh", CHECK_UNIFORM},
    /* mixed types, extreme numbers */
    {1, 4, 5, 24, 0, 40, 3, 3, 1, PAD1, 0, 0, 1, true, false, "hfhf", CHECK_UNIFORM},
    {1, 4, 5, 24, 8, 40, 3, 3, 1, PAD1, 0, 0, 1, true, false, "fhfh", CHECK_UNIFORM},
    {1, 4, 5, 24, 0, 40, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhff", CHECK_UNIFORM},
    {1, 4, 5, 24, 0, 40, 3, 3, 1, PAD1, 0, 0, 0, true, false, "fhhh", CHECK_UNIFORM},
    {1, 4, 5, 32, 0, 32, 3, 3, 1, PAD1, 0, 0, 0, false, true, "hhhh", CHECK_DENORMAL},
    {1, 4, 5, 32, 0, 32, 3, 3, 1, PAD1, 0, 0, 0, false, true, "ffff", CHECK_DENORMAL},
    {1, 4, 5, 32, 0, 32, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_LARGE},
    {1, 4, 5, 32, 0, 32, 3, 3, 1, PAD1, 0, 0, 0, false, false, "ffff", CHECK_OFFSET},
};

static tsr_dtype type(char c)
{
    return c == 'h' ? TSR_F16 : TSR_F32;
}

static bool record(check *c, const conv_case *k)
{
    tsr_conv_desc d = {.stride = k->stride,
                       .pad_top = k->top,
                       .pad_left = k->left,
                       .pad_bottom = k->bottom,
                       .pad_right = k->right,
                       .up_h = k->up_h,
                       .up_w = k->up_w,
                       .out_dtype = type(k->dtype[2])};
    int32_t oh = ((k->up_h ? k->up_h : k->h) + k->top + k->bottom - k->r) / k->stride + 1;
    int32_t ow = ((k->up_w ? k->up_w : k->w) + k->left + k->right - k->s) / k->stride + 1;
    bool large = k->fill == CHECK_LARGE;
    tsr_val out;

    check_begin(c, type(k->dtype[0]), "conv %dx%d/%d [%d,%d,%d,%d+%d]->%d up %d %.4s fill %d", k->r,
                k->s, k->stride, k->n, k->h, k->w, k->c, k->c2, k->co, k->up_h, k->dtype, k->fill);
    d.x = check_input(c, (int32_t[]){k->n, k->h, k->w, k->c}, type(k->dtype[0]), k->fill);
    if (k->c2)
        d.x2 = check_input(c, (int32_t[]){k->n, k->h, k->w, k->c2}, type(k->dtype[0]), k->fill);
    d.weight = check_matrix(c, 4, (int32_t[]){k->co, k->c + k->c2, k->r, k->s}, type(k->dtype[1]),
                            k->c > 16 || large ? CHECK_SMALL : CHECK_UNIFORM);
    if (!k->no_bias)
        d.bias = check_vector(c, 1, (int32_t[]){k->co}, CHECK_UNIFORM);
    if (k->add)
        d.add_channel =
            check_input(c, (int32_t[]){k->add, 1, 1, k->co}, type(k->dtype[3]), CHECK_UNIFORM);
    if (k->residual)
        d.residual =
            check_input(c, (int32_t[]){k->n, oh, ow, k->co}, type(k->dtype[3]), CHECK_UNIFORM);
    return check_recorded(c, tsr_op_conv2d(&c->tape, &d, &out));
}

/* torch's nearest: floor of a float32 product. */
static int32_t nearest(int32_t i, int32_t in, int32_t out)
{
    int32_t s = (int32_t)floorf((float)i * ((float)in / (float)out));
    return s < in ? s : in - 1;
}

/* Sum over the taps of one output element. */
static double taps(const check *c, const tsr_op *op, int32_t n, int32_t y, int32_t x, int32_t co)
{
    const tsr_value *in = &c->tape.values[op->in[0]];
    const tsr_weight *w = &c->tape.weights[op->w[0]];
    const float *row =
        c->weight_data[op->w[0]] + (size_t)co * (size_t)(w->dims[1] * w->dims[2] * w->dims[3]);
    int32_t height = op->u.conv.up_h ? op->u.conv.up_h : in->h;
    int32_t width = op->u.conv.up_w ? op->u.conv.up_w : in->w;
    double sum = 0;

    for (int32_t i = 0; i < w->dims[2] * w->dims[3]; i++) {
        int32_t r = i / w->dims[3], s = i % w->dims[3];
        int32_t iy = y * op->u.conv.stride + r - op->u.conv.pad_top;
        int32_t ix = x * op->u.conv.stride + s - op->u.conv.pad_left;
        if (iy < 0 || iy >= height || ix < 0 || ix >= width)
            continue;
        int32_t p = nearest(iy, in->h, height) * in->w + nearest(ix, in->w, width);
        for (int32_t ch = 0; ch < w->dims[1]; ch++)
            sum +=
                check_joined(c, op, n, p, ch) * (double)row[(ch * w->dims[2] + r) * w->dims[3] + s];
    }
    return sum;
}

static void reference(const check *c, double *want)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];

    for (int32_t n = 0; n < out->n; n++) {
        for (int32_t p = 0; p < out->h * out->w; p++) {
            for (int32_t co = 0; co < out->c; co++) {
                double v = taps(c, op, n, p / out->w, p % out->w, co);
                if (op->w[1])
                    v += (double)c->weight_data[op->w[1]][co];
                if (op->in[2])
                    v += check_at(c, op->in[2], c->tape.values[op->in[2]].n == 1 ? 0 : n, 0, co);
                if (op->in[3])
                    v += check_at(c, op->in[3], n, p, co);
                *want++ = v;
            }
        }
    }
}

/* The portable kernel sums up in one go: longer sums, more rounding. */
static check_limits limits_of(const conv_case *k)
{
    return k->c + k->c2 >= 512 ? (check_limits){3e-6, 6e-6} : (check_limits){1e-6, 2e-6};
}

static void conv2d__table_of_shapes__equals_double(void)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        check c;
        if (record(&c, &CASES[i]))
            check_all(&c, reference, limits_of(&CASES[i]));
    }
}

static void nearest__any_size__is_torchs_source_index(void)
{
    for (int32_t in = 1; in < 40; in++)
        for (int32_t out = 1; out < 80; out++)
            for (int32_t i = 0; i < out; i++)
                CHECK(tsr_cpu_nearest(i, in, out) == nearest(i, in, out));
}

/* SD1.5's convolutions (UNet at 64x64 latents, decoder at 512x512), heights cropped. */
static const conv_case BENCH[] = {
    {1, 16, 64, 320, 0, 320, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 16, 64, 640, 320, 320, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 16, 32, 640, 0, 640, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 16, 16, 1280, 0, 1280, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 8, 8, 1280, 1280, 1280, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 16, 64, 320, 0, 320, 3, 3, 2, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 8, 64, 512, 0, 512, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 4, 256, 256, 0, 256, 3, 3, 1, PAD1, 8, 512, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 8, 512, 256, 0, 128, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 8, 512, 128, 0, 128, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 8, 512, 128, 0, 128, 3, 3, 1, PAD1, 0, 0, 0, false, false, "ffff", CHECK_UNIFORM},
    {1, 16, 512, 128, 0, 3, 3, 3, 1, PAD1, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
    {1, 16, 64, 640, 320, 320, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, false, false, "hhhh", CHECK_UNIFORM},
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
    RUN(nearest__any_size__is_torchs_source_index);
    RUN(conv2d__table_of_shapes__equals_double);
    return test_end();
}
