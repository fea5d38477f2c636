/* portable.h -- what the oracle's files share. Private to kernels/cpu/portable.
 *
 * Every kernel computes call->window of one op. Work is split into tasks (rows, pixel chunks,
 * heads) that write disjoint outputs; a task's scratch is its thread's slice of call->work. Each
 * output element is summed by one task in the order of the formula, so that neither the window
 * nor the number of threads can change a bit. */
#ifndef TSR_KERNELS_CPU_PORTABLE_H
#define TSR_KERNELS_CPU_PORTABLE_H

#include "base/num.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/span.h"

/* Pixel p = y * W + column of entry n: C contiguous elements, followed by those of pixel p + 1. */
unsigned char *tsr_portable_pixel(const tsr_tensor *x, int32_t n, int32_t p);
/* `count` pixels from p as float32, channels of x then of x2 (x2->data may be NULL). */
void tsr_portable_load(float *dst, const tsr_tensor *x, const tsr_tensor *x2, int32_t n, int32_t p,
                       int32_t count); // dst [count,C]
/* `count` channels of pixel p from c0 on. */
void tsr_portable_store(const tsr_tensor *x, int32_t n, int32_t p, int32_t c0, int32_t count,
                        const float *src);

/* The entry and row of a task when every row of the window is one. */
typedef struct tsr_portable_row {
    int32_t n, y;
} tsr_portable_row;
tsr_portable_row tsr_portable_task_row(const tsr_call *call, int32_t task);
/* Runs fn(call, task, thread) once for every row of the window. */
void tsr_portable_each_row(const tsr_call *call, tsr_task_fn fn);

/* Scratch: `floats` floats a thread, each slice 64-byte aligned. */
size_t tsr_portable_scratch_bytes(size_t floats, int32_t n_threads);
float *tsr_portable_scratch(const tsr_call *call, size_t floats, int32_t thread);

/* A convolution's or linear layer's output channels are computed a panel of them at a time. */
enum { TSR_PORTABLE_PANEL = 64 };
typedef struct tsr_portable_panel {
    int32_t c0, width;      /* its first channel, and how many */
    int32_t columns;        /* sums: twice as many for geglu, a's and then b's */
    const unsigned char *w; // [K,columns]
} tsr_portable_panel;
int32_t tsr_portable_panel_count(const tsr_call *call); /* of the window */
tsr_portable_panel tsr_portable_panel_of(const tsr_call *call, int32_t panel);
/* Sums begin with the bias. */
void tsr_portable_begin(const tsr_call *call, const tsr_portable_panel *p, int32_t count,
                        float *acc); // [count,columns]

/* acc[i] += in[cols[i]] * weight for n_cols columns and rows [k0, k0+c) of the panel;
 * cols[i] < 0 is padding, cols NULL means i. `row` holds one weight row as float32. */
typedef struct tsr_portable_taps {
    const tsr_portable_panel *panel;
    tsr_dtype dtype; /* of the weight */
    const float *in; // [.,C]
    const int32_t *cols;
    int32_t n_cols, c;
    size_t k0;
    float *acc; // [n_cols,columns]
    float *row; // [columns]
} tsr_portable_taps;
void tsr_portable_accumulate(const tsr_portable_taps *t);

/* Kernels and their scratch, as in tsr_cpu_table. */
void tsr_conv2d_f32acc_portable(const tsr_cpu_table *t, const tsr_call *call);
size_t tsr_conv2d_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                const tsr_window *window, int32_t n_threads);
void tsr_linear_f32acc_portable(const tsr_cpu_table *t, const tsr_call *call);
size_t tsr_linear_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                const tsr_window *window, int32_t n_threads);
void tsr_attention_f32acc_portable(const tsr_cpu_table *t, const tsr_call *call);
size_t tsr_attention_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                   const tsr_window *window, int32_t n_threads);
int32_t tsr_attention_kv_block_portable(void);
size_t tsr_attention_carry_portable(const tsr_op *op, const tsr_value *q, const tsr_window *w);
void tsr_group_norm_f64acc_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_norm_stats_portable(const tsr_cpu_table *t, const tsr_call *call);
size_t tsr_group_norm_work_portable(const tsr_cpu_table *t, const tsr_tape *tape, const tsr_op *op,
                                    const tsr_window *window, int32_t n_threads);
void tsr_layer_norm_f64acc_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_add_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_concat_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_gather_row_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_time_embed_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_latent_in_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_latent_out_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_image_in_portable(const tsr_cpu_table *t, const tsr_call *call);
void tsr_image_out_portable(const tsr_cpu_table *t, const tsr_call *call);

#endif
