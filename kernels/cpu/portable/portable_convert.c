/* portable_convert.c -- the network's ends: NCHW float latents and 8-bit pictures, the oracle.
 *
 * An NCHW tensor is a value whose (h, w, c) hold (C, H, W). Pictures are made as diffusers does:
 * x / 2 + 0.5 is rounded to the model's type at each step, clamped, widened to float32,
 * multiplied by 255 and rounded to nearest, ties to even. */
#include "kernels/cpu/portable/portable.h"

#include <math.h>

static void latent_in_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *x = &call->in[0], *out = &call->out;
    tsr_portable_row at = tsr_portable_task_row(call, task);

    (void)thread;
    for (int32_t col = 0; col < out->w; col++) {
        for (int32_t c = 0; c < out->c; c++) {
            float v = tsr_cpu_load(x, at.n, c, at.y, col); /* x(n, c, y, col) */
            tsr_cpu_store(out, at.n, at.y, col, c, v * call->op->u.convert.scale);
        }
    }
}

void tsr_latent_in_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, latent_in_row);
}

/* A row of the output value is one channel's plane. */
static void latent_out_plane(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *x = &call->in[0], *out = &call->out;
    tsr_portable_row at = tsr_portable_task_row(call, task);

    (void)thread;
    for (int32_t y = 0; y < x->h; y++)
        for (int32_t col = 0; col < x->w; col++)
            tsr_cpu_store(out, at.n, at.y, y, col, tsr_cpu_load(x, at.n, y, col, at.y));
}

void tsr_latent_out_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, latent_out_plane);
}

static void image_in_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *out = &call->out;
    tsr_portable_row at = tsr_portable_task_row(call, task);
    const unsigned char *src = tsr_portable_pixel(&call->in[0], at.n, at.y * out->w); // [W,3]

    (void)thread;
    for (int32_t col = 0; col < out->w; col++)
        for (int32_t c = 0; c < 3; c++)
            tsr_cpu_store(out, at.n, at.y, col, c, (float)src[3 * col + c] / 127.5f - 1.0f);
}

void tsr_image_in_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, image_in_row);
}

/* v as the value's type holds it. */
static float rounded(tsr_dtype d, float v)
{
    return d == TSR_F16 ? tsr_f16_to_f32(tsr_f32_to_f16(v)) : v;
}

static void image_out_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *x = &call->in[0];
    tsr_portable_row at = tsr_portable_task_row(call, task);
    unsigned char *dst = tsr_portable_pixel(&call->out, at.n, at.y * x->w); // [W,3]

    (void)thread;
    for (int32_t col = 0; col < x->w; col++) {
        for (int32_t c = 0; c < 3; c++) {
            float v = rounded(x->dtype, tsr_cpu_load(x, at.n, at.y, col, c) / 2);
            v = rounded(x->dtype, v + 0.5f);
            v = fminf(fmaxf(v, 0), 1); /* NaN becomes 0 */
            dst[3 * col + c] = (unsigned char)nearbyintf(v * 255);
        }
    }
}

void tsr_image_out_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, image_out_row);
}
