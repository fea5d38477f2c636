/* portable_plain.c -- add, concat, row gather and time embedding, the oracle.
 *
 * The time embedding follows torch's float32 steps one by one (diffusers get_timestep_embedding):
 * with t up to 1000 a last bit of a frequency is 6e-5 of an angle, so the order of its roundings
 * shows in the result. */
#include "kernels/cpu/portable/portable.h"

#include <math.h>
#include <string.h>

static void add_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const float *table = call->w[0]; // [T,C]
    tsr_portable_row at = tsr_portable_task_row(call, task);

    (void)thread;
    for (int32_t x = 0; x < call->out.w; x++) {
        size_t p = (size_t)at.y * (size_t)call->out.w + (size_t)x;
        for (int32_t c = 0; c < call->out.c; c++) {
            float y = table ? table[p * (size_t)call->out.c + (size_t)c]
                            : tsr_cpu_load(&call->in[1], at.n, at.y, x, c);
            tsr_cpu_store(&call->out, at.n, at.y, x, c,
                          tsr_cpu_load(&call->in[0], at.n, at.y, x, c) + y);
        }
    }
}

void tsr_add_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, add_row);
}

static void concat_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *a = &call->in[0], *b = &call->in[1], *out = &call->out;
    tsr_portable_row at = tsr_portable_task_row(call, task);
    size_t size = tsr_dtype_size(out->dtype);

    (void)thread;
    for (int32_t x = 0; x < out->w; x++) {
        int32_t p = at.y * out->w + x;
        unsigned char *dst = tsr_portable_pixel(out, at.n, p);
        memcpy(dst, tsr_portable_pixel(a, at.n, p), (size_t)a->c * size);
        memcpy(dst + (size_t)a->c * size, tsr_portable_pixel(b, at.n, p), (size_t)b->c * size);
    }
}

void tsr_concat_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, concat_row);
}

/* The row number is the caller's data: out of range it is brought into it. */
static void gather_entry(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *x = &call->in[0];
    tsr_portable_row at = tsr_portable_task_row(call, task);
    int32_t row;

    (void)thread;
    memcpy(&row, tsr_portable_pixel(&call->in[1], at.n, 0), sizeof row);
    row = tsr_max_i32(0, tsr_min_i32(row, x->h * x->w - 1));
    memcpy(tsr_portable_pixel(&call->out, at.n, 0), tsr_portable_pixel(x, at.n, row),
           (size_t)x->c * tsr_dtype_size(x->dtype));
}

void tsr_gather_row_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, gather_entry);
}

/* One scalar's embedding; half * 2 <= dim, an odd dim ends with a zero. */
static void embed(const tsr_op *op, float time, float *dst) // [dim]
{
    int32_t dim = op->u.time_embed.dim, half = dim / 2;
    int32_t sines = op->u.time_embed.flip_sin_to_cos ? half : 0;
    float scale = (float)-9.210340371976184; /* -ln 10000, a double rounded as torch does */
    float divisor = (float)half - op->u.time_embed.freq_shift;

    for (int32_t i = 0; i < half; i++) {
        float angle = time * expf(scale * (float)i / divisor);
        dst[sines + i] = sinf(angle);
        dst[half - sines + i] = cosf(angle);
    }
    if (dim % 2)
        dst[dim - 1] = 0;
}

static void time_embed_entry(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *x = &call->in[0];
    tsr_portable_row at = tsr_portable_task_row(call, task);
    float *dst = (float *)tsr_portable_pixel(&call->out, at.n, 0); // [K*dim]

    (void)thread;
    for (int32_t k = 0; k < x->c; k++)
        embed(call->op, tsr_cpu_load(x, at.n, 0, 0, k),
              dst + (size_t)k * (size_t)call->op->u.time_embed.dim);
}

void tsr_time_embed_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, time_embed_entry);
}
