/* portable_table.c -- the oracle's table, its packing, and the helpers that every tier uses.
 *
 * Packed matrix: panels of TSR_PORTABLE_PANEL output channels, [panel][K,columns] in the weight's
 * dtype, K = R*S*C in the order r, s, c: the rows that an input element multiplies are contiguous
 * over output channels, so the plain loop over them vectorises while each output is still summed in
 * the order of the formula. The last panel has as many columns as there are channels left; one of
 * geglu has twice as many, those of a before those of b. */
#include "kernels/cpu/portable/portable.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

float tsr_cpu_act(tsr_act act, float x)
{
    switch (act) {
    case TSR_ACT_SILU:
        return x / (1.0f + expf(-x));
    case TSR_ACT_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case TSR_ACT_QUICK_GELU:
        return x / (1.0f + expf(-1.702f * x));
    case TSR_ACT_NONE:
        break;
    }
    return x;
}

static unsigned char *element(const tsr_tensor *x, int32_t n, int32_t y, int32_t col, int32_t c)
{
    size_t i = (size_t)col * (size_t)x->c + (size_t)c;

    return (unsigned char *)x->data + (size_t)n * x->entry_stride +
           (size_t)(y - x->row0) * x->row_stride + i * tsr_dtype_size(x->dtype);
}

float tsr_cpu_load(const tsr_tensor *x, int32_t n, int32_t y, int32_t col, int32_t c)
{
    const unsigned char *p = element(x, n, y, col, c);
    float f;
    uint16_t h;

    if (x->dtype == TSR_F16) {
        memcpy(&h, p, sizeof h);
        return tsr_f16_to_f32(h);
    }
    memcpy(&f, p, sizeof f);
    return f;
}

void tsr_cpu_store(const tsr_tensor *x, int32_t n, int32_t y, int32_t col, int32_t c, float v)
{
    unsigned char *p = element(x, n, y, col, c);
    uint16_t h;

    if (x->dtype == TSR_F16) {
        h = tsr_f32_to_f16(v);
        memcpy(p, &h, sizeof h);
        return;
    }
    memcpy(p, &v, sizeof v);
}

int32_t tsr_cpu_nearest(int32_t i, int32_t in, int32_t out)
{
    float scale = (float)in / (float)out;

    return tsr_min_i32((int32_t)floorf((float)i * scale), in - 1);
}

unsigned char *tsr_portable_pixel(const tsr_tensor *x, int32_t n, int32_t p)
{
    return element(x, n, p / x->w, p % x->w, 0);
}

void tsr_portable_load(float *dst, const tsr_tensor *x, const tsr_tensor *x2, int32_t n, int32_t p,
                       int32_t count)
{
    size_t c = (size_t)x->c, c2 = x2 && x2->data ? (size_t)x2->c : 0;

    if (!c2) {
        tsr_to_f32(dst, tsr_portable_pixel(x, n, p), x->dtype, (size_t)count * c);
        return;
    }
    for (int32_t i = 0; i < count; i++, dst += c + c2) {
        tsr_to_f32(dst, tsr_portable_pixel(x, n, p + i), x->dtype, c);
        tsr_to_f32(dst + c, tsr_portable_pixel(x2, n, p + i), x2->dtype, c2);
    }
}

void tsr_portable_store(const tsr_tensor *x, int32_t n, int32_t p, int32_t c0, int32_t count,
                        const float *src)
{
    unsigned char *dst = tsr_portable_pixel(x, n, p) + (size_t)c0 * tsr_dtype_size(x->dtype);

    tsr_from_f32(dst, x->dtype, src, (size_t)count);
}

tsr_portable_row tsr_portable_task_row(const tsr_call *call, int32_t task)
{
    int32_t rows = call->window.h1 - call->window.h0;

    return (tsr_portable_row){call->window.n0 + task / rows, call->window.h0 + task % rows};
}

void tsr_portable_each_row(const tsr_call *call, tsr_task_fn fn)
{
    int32_t rows = call->window.h1 - call->window.h0;
    tsr_call copy = *call; /* the pool's argument is not const */

    tsr_pool_run(call->pool, (call->window.n1 - call->window.n0) * rows, fn, &copy);
}

size_t tsr_portable_scratch_bytes(size_t floats, int32_t n_threads)
{
    return tsr_align_up(floats * sizeof(float), 64) * (size_t)n_threads;
}

float *tsr_portable_scratch(const tsr_call *call, size_t floats, int32_t thread)
{
    size_t slice = tsr_align_up(floats * sizeof(float), 64);

    return (float *)((unsigned char *)call->work + slice * (size_t)thread);
}

static size_t fan_in(const tsr_weight *w)
{
    size_t k = 1;

    for (int32_t i = 1; i < w->n_dims; i++)
        k *= (size_t)w->dims[i];
    return k;
}

static size_t packed_bytes(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w)
{
    (void)t;
    (void)op;
    return tsr_align_up((size_t)w->dims[0] * fan_in(w) * tsr_dtype_size(w->dtype), 64);
}

static bool is_geglu(const tsr_op *op)
{
    return op->kind == TSR_OP_LINEAR && op->u.linear.geglu;
}

static int32_t panel_channels(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w)
{
    (void)t;
    (void)op;
    (void)w;
    return TSR_PORTABLE_PANEL;
}

static size_t packed_offset(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w,
                            int32_t c)
{
    size_t rows = (size_t)c * (is_geglu(op) ? 2 : 1);

    (void)t;
    return rows * fan_in(w) * tsr_dtype_size(w->dtype);
}

static int32_t panel_rows(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w)
{
    (void)t;
    (void)op;
    (void)w;
    return 1;
}

static void pack(const tsr_cpu_table *t, const tsr_op *op, const tsr_weight *w, const float *rows,
                 int32_t row0, int32_t n_rows, int32_t c0, void *dst)
{
    size_t k_n = fan_in(w), c_n = (size_t)w->dims[1], taps = k_n / c_n;
    size_t size = tsr_dtype_size(w->dtype), begin = packed_offset(t, op, w, c0);
    int32_t halves = is_geglu(op) ? 2 : 1, co_n = w->dims[0] / halves;

    for (int32_t row = row0; row < row0 + n_rows; row++) {
        int32_t co = row % co_n, first = co / TSR_PORTABLE_PANEL * TSR_PORTABLE_PANEL;
        int32_t width = tsr_min_i32(TSR_PORTABLE_PANEL, co_n - first);
        size_t column = (size_t)(row / co_n * width + co - first),
               columns = (size_t)(width * halves);
        unsigned char *panel = (unsigned char *)dst + (packed_offset(t, op, w, first) - begin);

        for (size_t k = 0; k < k_n; k++) {
            size_t c = k / taps, tap = k % taps; /* the file's order is c, r, s */
            size_t at = (tap * c_n + c) * columns + column;
            tsr_from_f32(panel + at * size, w->dtype, rows++, 1);
        }
    }
}

tsr_portable_panel tsr_portable_panel_of(const tsr_call *call, int32_t panel)
{
    int32_t halves = is_geglu(call->op) ? 2 : 1;
    tsr_portable_panel p = {.c0 = call->window.c0 + panel * TSR_PORTABLE_PANEL};
    size_t skip = (size_t)((p.c0 - call->window.c0) * halves) * fan_in(call->wd[0]);

    p.width = tsr_min_i32(TSR_PORTABLE_PANEL, call->out.c - p.c0);
    p.columns = p.width * halves;
    p.w = (const unsigned char *)call->w[0] + skip * tsr_dtype_size(call->wd[0]->dtype);
    return p;
}

int32_t tsr_portable_panel_count(const tsr_call *call)
{
    return tsr_div_up(window_c1(&call->window, call->out.c) - call->window.c0, TSR_PORTABLE_PANEL);
}

void tsr_portable_begin(const tsr_call *call, const tsr_portable_panel *p, int32_t count,
                        float *acc)
{
    const float *bias = call->w[1]; // [Co] or [2*Co]

    for (int32_t i = 0; i < count; i++, acc += p->columns)
        for (int32_t j = 0; j < p->columns; j++)
            acc[j] = bias ? bias[p->c0 + j % p->width + j / p->width * call->out.c] : 0;
}

void tsr_portable_accumulate(const tsr_portable_taps *t)
{
    size_t co_n = (size_t)t->panel->columns, size = tsr_dtype_size(t->dtype);

    for (int32_t c = 0; c < t->c; c++) {
        const unsigned char *packed = t->panel->w + (t->k0 + (size_t)c) * co_n * size; // [Co]
        tsr_to_f32(t->row, packed, t->dtype, co_n);                                    // [Co]
        for (int32_t i = 0; i < t->n_cols; i++) {
            int32_t col = t->cols ? t->cols[i] : i;
            float *restrict acc = t->acc + (size_t)i * co_n; // [Co]
            const float *restrict row = t->row;              // [Co]
            if (col < 0)
                continue;
            float x = t->in[(size_t)col * (size_t)t->c + (size_t)c];
            for (size_t co = 0; co < co_n; co++)
                acc[co] += x * row[co];
        }
    }
}

typedef struct finite_job {
    const tsr_tensor *x;
    atomic_bool broken;
} finite_job;

static void finite_row(void *arg, int32_t task, int32_t thread)
{
    finite_job *job = arg;
    const tsr_tensor *x = job->x;
    const unsigned char *row = element(x, task / x->n_rows, x->row0 + task % x->n_rows, 0, 0);
    size_t n = (size_t)x->w * (size_t)x->c;
    uint32_t most = 0; /* largest exponent */

    (void)thread;
    for (size_t i = 0; i < n; i++) {
        uint32_t word = 0;
        if (x->dtype == TSR_F16) {
            memcpy(&word, row + 2 * i, 2);
            word = (word & 0x7C00) == 0x7C00;
        } else {
            memcpy(&word, row + 4 * i, 4);
            word = (word & 0x7F800000) == 0x7F800000;
        }
        most |= word;
    }
    if (most)
        atomic_store_explicit(&job->broken, true, memory_order_relaxed);
}

static bool all_finite(const tsr_tensor *x, tsr_pool *pool)
{
    finite_job job = {.x = x};

    if (x->dtype != TSR_F16 && x->dtype != TSR_F32)
        return true;
    atomic_init(&job.broken, false);
    tsr_pool_run(pool, x->n * x->n_rows, finite_row, &job);
    return !atomic_load_explicit(&job.broken, memory_order_relaxed);
}

/* Multiplies and adds in registers; the compiler takes the baseline's vectors. */
static double fma_rounds(int32_t rounds)
{
    enum { LANES = 32 };
    float sum[LANES];
    volatile float sink = 0;

    for (int32_t i = 0; i < LANES; i++)
        sum[i] = (float)i;
    for (int32_t k = 0; k < rounds; k++)
        for (int32_t i = 0; i < LANES; i++)
            sum[i] = sum[i] * 0.999f + 1e-3f;
    for (int32_t i = 0; i < LANES; i++)
        sink += sum[i];
    (void)sink;
    return 2.0 * LANES * rounds;
}

void tsr_cpu_fill_portable(tsr_cpu_table *t)
{
    *t = (tsr_cpu_table){
        .name = "portable",
        .tier = TSR_TIER_PORTABLE,
        .run = {[TSR_OP_CONV2D] = tsr_conv2d_f32acc_portable,
                [TSR_OP_LINEAR] = tsr_linear_f32acc_portable,
                [TSR_OP_ATTENTION] = tsr_attention_f32acc_portable,
                [TSR_OP_GROUP_NORM] = tsr_group_norm_f64acc_portable,
                [TSR_OP_LAYER_NORM] = tsr_layer_norm_f64acc_portable,
                [TSR_OP_ADD] = tsr_add_portable,
                [TSR_OP_TIME_EMBED] = tsr_time_embed_portable,
                [TSR_OP_GATHER_ROW] = tsr_gather_row_portable,
                [TSR_OP_CONCAT] = tsr_concat_portable,
                [TSR_OP_LATENT_IN] = tsr_latent_in_portable,
                [TSR_OP_LATENT_OUT] = tsr_latent_out_portable,
                [TSR_OP_IMAGE_IN] = tsr_image_in_portable,
                [TSR_OP_IMAGE_OUT] = tsr_image_out_portable},
        .work = {[TSR_OP_CONV2D] = tsr_conv2d_work_portable,
                 [TSR_OP_LINEAR] = tsr_linear_work_portable,
                 [TSR_OP_ATTENTION] = tsr_attention_work_portable,
                 [TSR_OP_GROUP_NORM] = tsr_group_norm_work_portable},
        .packed_bytes = packed_bytes,
        .panel_rows = panel_rows,
        .panel_channels = panel_channels,
        .packed_offset = packed_offset,
        .pack = pack,
        .norm_stats = tsr_norm_stats_portable,
        .kv_block = tsr_attention_kv_block_portable,
        .carry = tsr_attention_carry_portable,
        .all_finite = all_finite,
        .fma = fma_rounds,
    };
}
