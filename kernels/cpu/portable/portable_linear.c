/* portable_linear.c -- linear layers, the oracle: one panel of channels of a few pixels (tokens) a
 * task.
 *
 *     out[p,co] = act(bias[co] + sum over c of pre(in[p,c]) * w[c,co]) (+ residual[p,co])
 *     geglu: out[p,co] = a * gelu(b), a and b rows co and Co + co of the weight
 *
 * Sums are float32 in the order of c, beginning with the bias. The output may take the residual's
 * place: each element is read just before it is written. */
#include "kernels/cpu/portable/portable.h"

enum { CHUNK = 16 }; /* pixels that share one widening of the weights */

typedef struct linear_scratch {
    size_t in, acc, row; /* offsets in floats */
    size_t floats;
} linear_scratch;

static linear_scratch layout(int32_t c)
{
    linear_scratch s = {0};

    s.acc = CHUNK * (size_t)c;
    s.row = s.acc + CHUNK * 2 * TSR_PORTABLE_PANEL;
    s.floats = s.row + 2 * TSR_PORTABLE_PANEL;
    return s;
}

/* One pixel from its sums to its outputs, in place at the beginning of acc. */
static void finish_pixel(const tsr_call *call, const tsr_portable_panel *panel, int32_t n,
                         int32_t p, float *acc)
{
    const tsr_tensor *out = &call->out, *residual = &call->in[3];
    const tsr_op *op = call->op;

    for (int32_t j = 0; j < panel->width; j++) {
        float v = acc[j];
        v = op->u.linear.geglu ? v * tsr_cpu_act(TSR_ACT_GELU, acc[panel->width + j])
                               : tsr_cpu_act(op->u.linear.act, v);
        if (residual->data)
            v += tsr_cpu_load(residual, n, p / out->w, p % out->w, panel->c0 + j);
        acc[j] = v;
    }
    tsr_portable_store(out, n, p, panel->c0, panel->width, acc);
}

static void linear_chunk(void *arg, int32_t task, int32_t thread)
{
    const tsr_call *call = arg;
    const tsr_tensor *x = &call->in[0];
    int32_t panels = tsr_portable_panel_count(call), at = task / panels;
    tsr_portable_panel panel = tsr_portable_panel_of(call, task % panels);
    int32_t begin = call->window.h0 * x->w, end = call->window.h1 * x->w;
    int32_t chunks = tsr_div_up(end - begin, CHUNK), c = call->wd[0]->dims[1];
    int32_t n = call->window.n0 + at / chunks, p = begin + at % chunks * CHUNK;
    int32_t count = tsr_min_i32(CHUNK, end - p);
    linear_scratch s = layout(c);
    float *base = tsr_portable_scratch(call, s.floats, thread);
    float *in = base + s.in;   // [count,C]
    float *acc = base + s.acc; // [count,columns]

    tsr_portable_load(in, x, &call->in[1], n, p, count);
    if (call->op->u.linear.pre != TSR_ACT_NONE)
        for (size_t i = 0; i < (size_t)count * (size_t)c; i++)
            in[i] = tsr_cpu_act(call->op->u.linear.pre, in[i]);
    tsr_portable_begin(call, &panel, count, acc);
    tsr_portable_accumulate(&(tsr_portable_taps){.panel = &panel,
                                                 .dtype = call->wd[0]->dtype,
                                                 .in = in,
                                                 .n_cols = count,
                                                 .c = c,
                                                 .acc = acc,
                                                 .row = base + s.row});
    for (int32_t i = 0; i < count; i++)
        finish_pixel(call, &panel, n, p + i, acc + (size_t)(i * panel.columns));
}

void tsr_linear_f32acc_portable(const tsr_cpu_table *t, const tsr_call *call)
{
    int32_t pixels = (call->window.h1 - call->window.h0) * call->in[0].w;
    int32_t chunks = (call->window.n1 - call->window.n0) * tsr_div_up(pixels, CHUNK);
    tsr_call copy = *call;

    (void)t;
    tsr_pool_run(call->pool, chunks * tsr_portable_panel_count(call), linear_chunk, &copy);
}

size_t tsr_linear_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                const tsr_window *window, int32_t n_threads)
{
    (void)t;
    (void)window;
    return tsr_portable_scratch_bytes(layout(tape->weights[op->w[0]].dims[1]).floats, n_threads);
}
