/* portable_conv2d.c -- 2-D convolution, the oracle: one output row a task.
 *
 *     out[y,x,co] = bias[co] + sum over r, s, c of in[y*stride + r - top, x*stride + s - left, c]
 *                   * w[r,s,c,co]   (+ add_channel[co]) (+ residual[y,x,co])
 *
 * The R input rows that an output row needs are widened to float32 in scratch, joined from (x, x2)
 * and picked through the nearest resize when there is one; sums are float32 in the order r, s, c,
 * beginning with the bias. Taps in the padding are left out. */
#include "kernels/cpu/portable/portable.h"

#include <string.h>

typedef struct conv_scratch {
    size_t in, acc, row, cols; /* offsets in floats */
    size_t floats;
} conv_scratch;

static conv_scratch layout(int32_t r, int32_t in_w, int32_t c, int32_t out_w, int32_t co)
{
    conv_scratch s = {0};

    s.acc = (size_t)r * (size_t)in_w * (size_t)c;
    s.row = s.acc + (size_t)out_w * (size_t)co;
    s.cols = s.row + (size_t)co;
    s.floats = s.cols + (size_t)out_w;
    return s;
}

static conv_scratch call_layout(const tsr_call *call)
{
    const tsr_tensor *x = &call->in[0];
    int32_t c = x->c + (call->in[1].data ? call->in[1].c : 0);

    return layout(call->op->u.conv.r, x->w, c, call->out.w, call->out.c);
}

/* Source row or column of position i of the (resized) input; -1 in the padding. */
static int32_t source(int32_t i, int32_t in, int32_t up)
{
    int32_t size = up ? up : in;

    if (i < 0 || i >= size)
        return -1;
    return up ? tsr_cpu_nearest(i, in, up) : i;
}

static void finish_row(const tsr_call *call, int32_t n, int32_t y, float *acc)
{
    const tsr_tensor *out = &call->out, *add = &call->in[2], *residual = &call->in[3];

    for (int32_t x = 0; x < out->w; x++) {
        float *p = acc + (size_t)x * (size_t)out->c; // [Co]
        for (int32_t co = 0; co < out->c; co++) {
            if (add->data)
                p[co] += tsr_cpu_load(add, add->n == 1 ? 0 : n, 0, 0, co);
            if (residual->data)
                p[co] += tsr_cpu_load(residual, n, y, x, co);
        }
    }
    tsr_portable_store(out, n, y * out->w, out->w, acc);
}

static void conv_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_op *op = call->op;
    const tsr_tensor *x = &call->in[0];
    tsr_portable_row at = tsr_portable_task_row(call, task);
    conv_scratch s = call_layout(call);
    float *base = tsr_portable_scratch(call, s.floats, thread);
    float *acc = base + s.acc;                  // [W,Co]
    int32_t *cols = (int32_t *)(base + s.cols); // [W]
    int32_t c = x->c + (call->in[1].data ? call->in[1].c : 0), co = call->out.c;

    for (int32_t i = 0; i < call->out.w; i++)
        for (int32_t o = 0; o < co; o++)
            acc[(size_t)i * (size_t)co + (size_t)o] =
                call->w[1] ? ((const float *)call->w[1])[o] : 0;
    for (int32_t r = 0; r < op->u.conv.r; r++) {
        int32_t row =
            source(at.y * op->u.conv.stride + r - op->u.conv.pad_top, x->h, op->u.conv.up_h);
        float *in = base + s.in + (size_t)r * (size_t)x->w * (size_t)c; // [W,C]
        if (row < 0)
            continue;
        tsr_portable_load(in, x, &call->in[1], at.n, row * x->w, x->w);
        for (int32_t q = 0; q < op->u.conv.s; q++) {
            for (int32_t i = 0; i < call->out.w; i++)
                cols[i] =
                    source(i * op->u.conv.stride + q - op->u.conv.pad_left, x->w, op->u.conv.up_w);
            tsr_portable_accumulate(
                &(tsr_portable_taps){.wd = call->wd[0],
                                     .w = call->w[0],
                                     .in = in,
                                     .cols = cols,
                                     .n_cols = call->out.w,
                                     .c = c,
                                     .k0 = (size_t)(r * op->u.conv.s + q) * (size_t)c,
                                     .acc = acc,
                                     .row = base + s.row});
        }
    }
    finish_row(call, at.n, at.y, acc);
}

void tsr_conv2d_f32acc_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    tsr_portable_each_row(call, conv_row);
}

size_t tsr_conv2d_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                const tsr_window *window, int32_t n_threads)
{
    const tsr_value *out = tsr_tape_value(tape, op->out), *x = tsr_tape_value(tape, op->in[0]);
    const tsr_value *x2 = tsr_tape_value(tape, op->in[1]);
    conv_scratch s = layout(op->u.conv.r, x->w, x->c + (x2 ? x2->c : 0), out->w, out->c);

    (void)t;
    (void)window;
    return tsr_portable_scratch_bytes(s.floats, n_threads);
}
