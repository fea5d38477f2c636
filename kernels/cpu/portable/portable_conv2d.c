/* portable_conv2d.c -- 2-D convolution, the oracle: a panel of channels of a run of columns a task.
 *
 *     out[y,x,co] = bias[co] + sum over r, s, c of in[y*stride + r - top, x*stride + s - left, c]
 *                   * w[r,s,c,co]   (+ add_channel[co]) (+ residual[y,x,co])
 *
 * The columns that a run needs of its R input rows are widened to float32 one row after another,
 * joined from (x, x2) and picked through the nearest resize when there is one; sums are float32 in
 * the order r, s, c, beginning with the bias. Taps in the padding are left out. The output may take
 * the residual's place: each element is read just before it is written. */
#include "kernels/cpu/portable/portable.h"

enum { RUN = 256 }; /* output columns a task: bounds the scratch of wide images */

typedef struct conv_scratch {
    size_t in, acc, row, cols; /* offsets in floats */
    size_t floats;
} conv_scratch;

static conv_scratch layout(const tsr_op *op, int32_t in_w, int32_t c, int32_t out_w)
{
    int32_t run = tsr_min_i32(out_w, RUN);
    conv_scratch s = {0};

    s.acc = (size_t)tsr_min_i32(in_w, (run - 1) * op->u.conv.stride + op->u.conv.s) * (size_t)c;
    s.row = s.acc + (size_t)run * TSR_PORTABLE_PANEL;
    s.cols = s.row + TSR_PORTABLE_PANEL;
    s.floats = s.cols + (size_t)run;
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

/* Output columns [x0, x1) of a row, and the input columns [in0, in1) under their taps. */
typedef struct conv_run {
    int32_t x0, x1, in0, in1;
} conv_run;

static conv_run run_of(const tsr_call *call, int32_t index)
{
    const tsr_op *op = call->op;
    const tsr_tensor *x = &call->in[0];
    int32_t up = op->u.conv.up_w, last = (up ? up : x->w) - 1;
    conv_run run = {.x0 = index * RUN, .x1 = tsr_min_i32(call->out.w, (index + 1) * RUN)};
    int32_t a = run.x0 * op->u.conv.stride - op->u.conv.pad_left;
    int32_t b = (run.x1 - 1) * op->u.conv.stride - op->u.conv.pad_left + op->u.conv.s - 1;

    run.in0 = source(tsr_max_i32(tsr_min_i32(a, last), 0), x->w, up);
    run.in1 = source(tsr_max_i32(tsr_min_i32(b, last), 0), x->w, up) + 1;
    return run;
}

static void finish_run(const tsr_call *call, const tsr_portable_panel *panel, tsr_portable_row at,
                       const conv_run *run, float *acc)
{
    const tsr_tensor *out = &call->out, *add = &call->in[2], *residual = &call->in[3];

    for (int32_t x = run->x0; x < run->x1; x++, acc += panel->width) { // [width]
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

/* cols[i]: the input column, counted from in0, at tap q of the run's i-th output. */
static void pick_columns(const tsr_call *call, const conv_run *run, int32_t q, int32_t *cols)
{
    const tsr_op *op = call->op;

    for (int32_t x = run->x0; x < run->x1; x++) {
        int32_t col =
            source(x * op->u.conv.stride + q - op->u.conv.pad_left, call->in[0].w, op->u.conv.up_w);
        cols[x - run->x0] = col < 0 ? -1 : col - run->in0;
    }
}

static void conv_task(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_op *op = call->op;
    const tsr_tensor *x = &call->in[0];
    int32_t panels = tsr_portable_panel_count(call), runs = tsr_div_up(call->out.w, RUN);
    tsr_portable_panel panel = tsr_portable_panel_of(call, task % panels);
    conv_run run = run_of(call, task / panels % runs);
    tsr_portable_row at = tsr_portable_task_row(call, task / panels / runs);
    int32_t c = x->c + (call->in[1].data ? call->in[1].c : 0);
    conv_scratch s = layout(op, x->w, c, call->out.w);
    float *base = tsr_portable_scratch(call, s.floats, thread);
    float *in = base + s.in;                    // [columns,C]
    float *acc = base + s.acc;                  // [RUN,width]
    int32_t *cols = (int32_t *)(base + s.cols); // [RUN]

    tsr_portable_begin(call, &panel, run.x1 - run.x0, acc);
    for (int32_t r = 0; r < op->u.conv.r; r++) {
        int32_t row =
            source(at.y * op->u.conv.stride + r - op->u.conv.pad_top, x->h, op->u.conv.up_h);
        if (row < 0)
            continue;
        tsr_portable_load(in, x, &call->in[1], at.n, row * x->w + run.in0, run.in1 - run.in0);
        for (int32_t q = 0; q < op->u.conv.s; q++) {
            pick_columns(call, &run, q, cols);
            tsr_portable_accumulate(
                &(tsr_portable_taps){.panel = &panel,
                                     .dtype = call->wd[0]->dtype,
                                     .in = in,
                                     .cols = cols,
                                     .n_cols = run.x1 - run.x0,
                                     .c = c,
                                     .k0 = (size_t)(r * op->u.conv.s + q) * (size_t)c,
                                     .acc = acc,
                                     .row = base + s.row});
        }
    }
    finish_run(call, &panel, at, &run, acc);
}

void tsr_conv2d_f32acc_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    int32_t rows = (call->window.n1 - call->window.n0) * (call->window.h1 - call->window.h0);
    int32_t tasks = rows * tsr_div_up(call->out.w, RUN) * tsr_portable_panel_count(call);
    tsr_call copy = *call; /* the pool's argument is not const */

    (void)t;
    tsr_pool_run(call->pool, tasks, conv_task, &copy);
}

size_t tsr_conv2d_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                const tsr_window *window, int32_t n_threads)
{
    const tsr_value *out = tsr_tape_value(tape, op->out), *x = tsr_tape_value(tape, op->in[0]);
    const tsr_value *x2 = tsr_tape_value(tape, op->in[1]);
    conv_scratch s = layout(op, x->w, x->c + (x2 ? x2->c : 0), out->w);

    (void)t;
    (void)window;
    return tsr_portable_scratch_bytes(s.floats, n_threads);
}
