/* portable_conv2d.c -- 2-D convolution, the oracle: one panel of channels of an output row a task.
 *
 *     out[y,x,co] = bias[co] + sum over r, s, c of in[y*stride + r - top, x*stride + s - left, c]
 *                   * w[r,s,c,co]   (+ add_channel[co]) (+ residual[y,x,co])
 *
 * The R input rows that an output row needs are widened to float32 one after another, joined from
 * (x, x2) and picked through the nearest resize when there is one; sums are float32 in the order r,
 * s, c, beginning with the bias. Taps in the padding are left out. The output may take the
 * residual's place: each element is read just before it is written. */
#include "kernels/cpu/portable/portable.h"

typedef struct conv_scratch {
    size_t in, acc, row, cols; /* offsets in floats */
    size_t floats;
} conv_scratch;

static conv_scratch layout(int32_t in_w, int32_t c, int32_t out_w)
{
    conv_scratch s = {0};

    s.acc = (size_t)in_w * (size_t)c;
    s.row = s.acc + (size_t)out_w * TSR_PORTABLE_PANEL;
    s.cols = s.row + TSR_PORTABLE_PANEL;
    s.floats = s.cols + (size_t)out_w;
    return s;
}

/* Source row or column of position i of the (resized) input; -1 in the padding. */
static int32_t source(int32_t i, int32_t in, int32_t up)
{
    int32_t size = up ? up : in;

    if (i < 0 || i >= size)
        return -1;
    return up ? tsr_cpu_nearest(i, in, up) : i;
}

static void finish_row(const tsr_call *call, const tsr_portable_panel *panel, tsr_portable_row at,
                       float *acc)
{
    const tsr_tensor *out = &call->out, *add = &call->in[2], *residual = &call->in[3];

    for (int32_t x = 0; x < out->w; x++, acc += panel->width) { // [width]
        for (int32_t j = 0; j < panel->width; j++) {
            int32_t co = panel->c0 + j;
            if (add->data)
                acc[j] += tsr_cpu_load(add, add->n == 1 ? 0 : at.n, 0, 0, co);
            if (residual->data)
                acc[j] += tsr_cpu_load(residual, at.n, at.y, x, co);
        }
        tsr_portable_store(out, at.n, at.y * out->w + x, panel->c0, panel->width, acc);
    }
}

static void conv_row(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_op *op = call->op;
    const tsr_tensor *x = &call->in[0];
    int32_t panels = tsr_portable_panel_count(call);
    tsr_portable_panel panel = tsr_portable_panel_of(call, task % panels);
    tsr_portable_row at = tsr_portable_task_row(call, task / panels);
    int32_t c = x->c + (call->in[1].data ? call->in[1].c : 0);
    conv_scratch s = layout(x->w, c, call->out.w);
    float *base = tsr_portable_scratch(call, s.floats, thread);
    float *in = base + s.in;                    // [W,C]
    float *acc = base + s.acc;                  // [W,width]
    int32_t *cols = (int32_t *)(base + s.cols); // [W]

    tsr_portable_begin(call, &panel, call->out.w, acc);
    for (int32_t r = 0; r < op->u.conv.r; r++) {
        int32_t row =
            source(at.y * op->u.conv.stride + r - op->u.conv.pad_top, x->h, op->u.conv.up_h);
        if (row < 0)
            continue;
        tsr_portable_load(in, x, &call->in[1], at.n, row * x->w, x->w);
        for (int32_t q = 0; q < op->u.conv.s; q++) {
            for (int32_t i = 0; i < call->out.w; i++)
                cols[i] =
                    source(i * op->u.conv.stride + q - op->u.conv.pad_left, x->w, op->u.conv.up_w);
            tsr_portable_accumulate(
                &(tsr_portable_taps){.panel = &panel,
                                     .dtype = call->wd[0]->dtype,
                                     .in = in,
                                     .cols = cols,
                                     .n_cols = call->out.w,
                                     .c = c,
                                     .k0 = (size_t)(r * op->u.conv.s + q) * (size_t)c,
                                     .acc = acc,
                                     .row = base + s.row});
        }
    }
    finish_row(call, &panel, at, acc);
}

void tsr_conv2d_f32acc_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    int32_t rows = (call->window.n1 - call->window.n0) * (call->window.h1 - call->window.h0);
    tsr_call copy = *call; /* the pool's argument is not const */

    (void)t;
    tsr_pool_run(call->pool, rows * tsr_portable_panel_count(call), conv_row, &copy);
}

size_t tsr_conv2d_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                const tsr_window *window, int32_t n_threads)
{
    const tsr_value *out = tsr_tape_value(tape, op->out), *x = tsr_tape_value(tape, op->in[0]);
    const tsr_value *x2 = tsr_tape_value(tape, op->in[1]);
    conv_scratch s = layout(x->w, x->c + (x2 ? x2->c : 0), out->w);

    (void)t;
    (void)window;
    return tsr_portable_scratch_bytes(s.floats, n_threads);
}
