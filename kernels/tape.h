/* tape.h -- the tape: what a network computes, recorded once, executed by any backend.
 *
 * Model code appends ops to a tape and computes nothing. A tape has values (activations and
 * inputs, NHWC), weights (references into a checkpoint) and fixed-size op records. Every op is
 * checked when it is recorded (shapes, dtypes, limits): after that a kernel cannot fail.
 *
 * Values are [N,H,W,C]; a token sequence [N,T,D] is the value [N,T,1,D], and an image [N,H,W,C]
 * may be used where tokens are expected (T = H*W), and back, without a copy. A vector per entry
 * is [N,1,1,C].
 *
 * Index 0 is "none" for values and weights, so a zero-initialised op descriptor has no optional
 * operands.
 *
 * Entries. The N entries of a value are a grid [steps][prompts][pictures], and a value has more
 * than one along an axis only where it depends on it: what does not depend on the prompt is the
 * same for both halves of guidance and has one entry a picture; the prompt's keys have one entry a
 * prompt, for all pictures. That is found while recording: the output of an op has the entries of
 * its operands together, and an operand with one entry along an axis where the output has more is
 * the same for all of them. A plain input has its entries along the last axis.
 *
 * Sections: ops before tsr_tape_begin_loop run once (the prompt's keys and values, all steps'
 * time projections); ops after it run once a step. A value made before and used after keeps its
 * place until the end. `step views` select the entries of the current step. */
#ifndef TSR_KERNELS_TAPE_H
#define TSR_KERNELS_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/half.h"

typedef int32_t tsr_val; /* 1-based index of a value; 0: none */
typedef int32_t tsr_wt;  /* 1-based index of a weight; 0: none */

/* Where a weight's bytes come from: implemented by model/ (a checkpoint) and by tests. Several
 * threads may read at once. */
typedef struct tsr_source {
    /* `bytes` bytes at `offset` of tensor `tensor`'s data, in the file's own dtype; with `packed`,
     * of the weight as this backend packs it (tsr_backend.packed_offset), in the weight's dtype:
     * checked, ready to be computed with */
    tsr_status (*read)(const struct tsr_source *s, int32_t tensor, size_t offset, void *dst,
                       size_t bytes, tsr_err *err);
    bool packed;
} tsr_source;

typedef enum tsr_weight_kind {
    TSR_WEIGHT_MATRIX, /* conv or linear: packed by the backend, dtype f16 or f32 */
    TSR_WEIGHT_VECTOR  /* norm weights, biases, position tables: plain f32 array */
} tsr_weight_kind;

typedef struct tsr_weight {
    const char *name; /* full tensor name, for messages; outlives the tape */
    const tsr_source *source;
    int32_t tensor; /* the source's number for it */
    int32_t n_dims;
    int32_t dims[4]; /* as stored: [Co,C,R,R], [Co,C] or [C] */
    tsr_dtype file_dtype;
    tsr_dtype dtype; /* computed with: TSR_F16 or TSR_F32 (vectors always F32) */
    tsr_weight_kind kind;
    int32_t first, last; /* op indices that use it; -1 when unused */
} tsr_weight;

typedef enum tsr_value_kind {
    TSR_VALUE_TEMP,  /* made by an op */
    TSR_VALUE_INPUT, /* written by the caller before the run */
    TSR_VALUE_VIEW   /* entries of another value, selected by the step */
} tsr_value_kind;

/* Entry (step, prompt, picture) is number (step * prompts + prompt) * pictures + picture. */
typedef struct tsr_entries {
    int32_t steps, prompts, pictures;
} tsr_entries;

typedef struct tsr_value {
    int32_t n, h, w, c;
    tsr_entries entries; /* n is their product */
    tsr_dtype dtype;     /* TSR_F16, TSR_F32, TSR_U8 or TSR_I32 */
    tsr_value_kind kind;
    bool is_output;      /* keeps its place to the end of the tape */
    int32_t first, last; /* op indices: made at, last used at; inputs have first = 0 */
    tsr_val base;        /* VIEW: of this value; entries step*n .. step*n + n-1 */
    const char *name;    /* for messages and the plan's table; may be NULL */
} tsr_value;

typedef enum tsr_op_kind {
    TSR_OP_CONV2D,
    TSR_OP_LINEAR,
    TSR_OP_ATTENTION,
    TSR_OP_GROUP_NORM,
    TSR_OP_LAYER_NORM,
    TSR_OP_ADD,
    TSR_OP_TIME_EMBED,
    TSR_OP_GATHER_ROW,
    TSR_OP_CONCAT,
    TSR_OP_LATENT_IN,
    TSR_OP_LATENT_OUT,
    TSR_OP_IMAGE_IN,
    TSR_OP_IMAGE_OUT,
    TSR_OP_KINDS
} tsr_op_kind;

typedef enum tsr_act { TSR_ACT_NONE, TSR_ACT_SILU, TSR_ACT_GELU, TSR_ACT_QUICK_GELU } tsr_act;

/* Operands whose entries are written [N,...] below may have one along any axis.
 *
 * conv2d: out[n,y,x,co] = bias + sum weight * in, then + add_channel, then + residual.
 * Input is x, or the channel concatenation (x, x2). With up_h > 0 the input is first resized to
 * [up_h,up_w] by nearest neighbour (source row = floor(y * H / up_h), as torch's interpolate),
 * never materialised. Padding is with zeros. Weight [Co,C,R,S], R and S up to 7; stride 1 or 2. */
typedef struct tsr_conv_desc {
    tsr_val x, x2;
    tsr_wt weight, bias;
    tsr_val add_channel; /* [N,1,1,Co], added to every pixel */
    tsr_val residual;    /* the output's shape */
    int32_t stride;      /* 0: 1 */
    int32_t pad_top, pad_left, pad_bottom, pad_right;
    int32_t up_h, up_w;  /* 0: no resize */
    tsr_dtype out_dtype; /* 0: the input's */
} tsr_conv_desc;

/* linear over the last axis: out = act(bias + weight * pre(in)) + residual, in = (x, x2) joined.
 * geglu: weight is [2*Co,C]; out = a * gelu(b), a the first half of the rows, exact (erf) gelu. */
typedef struct tsr_linear_desc {
    tsr_val x, x2;
    tsr_wt weight, bias; /* weight [Co,C] or [Co,C,1,1] */
    tsr_val residual;
    tsr_act pre; /* NONE or SILU, applied to the input */
    tsr_act act;
    bool geglu;
    tsr_dtype out_dtype;
} tsr_linear_desc;

/* attention: softmax(q k^T * scale [+ causal mask]) v, per head, online over key blocks of one
 * fixed size. q [N,Tq,Nh*Dh]; k, v [N,Tk,Nh*Dh] (Tk > 0). Softmax and sums in f32. */
typedef struct tsr_attention_desc {
    tsr_val q, k, v;
    int32_t n_heads;
    float scale; /* 0: 1/sqrt(Dh) */
    bool causal;
} tsr_attention_desc;

/* group_norm over (x, x2) joined by channels; out = [silu]((x - mean) * rstd * gamma + beta). */
typedef struct tsr_group_norm_desc {
    tsr_val x, x2;
    tsr_wt gamma, beta; /* [C] */
    int32_t groups;
    float eps;
    bool silu;
} tsr_group_norm_desc;

typedef struct tsr_layer_norm_desc {
    tsr_val x;
    tsr_wt gamma, beta;
    float eps;
    tsr_dtype out_dtype;
} tsr_layer_norm_desc;

/* add: out = x + y, or x + table where table is a weight [H*W (or more rows), C] shared by all
 * entries. */
typedef struct tsr_add_desc {
    tsr_val x, y;
    tsr_wt table;
} tsr_add_desc;

/* time_embed: sinusoids of each entry's scalars: x [N,1,1,K] f32 -> [N,1,1,K*dim] f32 of torch's
 * get_timestep_embedding (flip_sin_to_cos, freq_shift, max period 10000). */
typedef struct tsr_time_embed_desc {
    tsr_val x;
    int32_t dim;
    bool flip_sin_to_cos;
    float freq_shift;
} tsr_time_embed_desc;

/* One op record: kind, operands in fixed places, and the descriptor's numbers. */
typedef struct tsr_op {
    tsr_op_kind kind;
    tsr_val out;
    tsr_val in[4];    /* x, x2/k, add_channel/v, residual */
    tsr_wt w[2];      /* weight/gamma/table, bias/beta */
    const char *name; /* the layer, for messages: its weight's tensor name, or the scope */
    union {
        struct {
            int32_t r, s, stride, pad_top, pad_left, up_h, up_w;
            bool direct; /* the tape's */
        } conv;
        struct {
            tsr_act pre, act;
            bool geglu;
        } linear;
        struct {
            int32_t n_heads;
            float scale;
            bool causal;
        } attention;
        struct {
            int32_t groups;
            float eps;
            bool silu;
        } norm;
        struct {
            int32_t dim;
            bool flip_sin_to_cos;
            float freq_shift;
        } time_embed;
        struct {
            float scale, shift;
        } convert;
    } u;
} tsr_op;

typedef struct tsr_tape {
    tsr_err *err;      /* the context's; not owned */
    tsr_dtype dtype;   /* of activations: TSR_F16 or TSR_F32 */
    bool direct;       /* convolutions are summed up as they are written: --precision fp32. What
                          tsr_tape_init sets: whether the dtype is TSR_F32 */
    tsr_value *values; /* [0] is unused */
    size_t n_values, cap_values;
    tsr_weight *weights; /* [0] is unused */
    size_t n_weights, cap_weights;
    tsr_op *ops;
    size_t n_ops, cap_ops;
    int32_t
        loop_begin;    /* index of the first op of the loop section; 0: everything is in the loop */
    const char *scope; /* name given to ops without weights */
    char **scopes;     /* tsr_tape_set_scope's copies: names of ops point into them */
    size_t n_scopes, cap_scopes;
} tsr_tape;

void tsr_tape_init(tsr_tape *t, tsr_dtype dtype, tsr_err *err);
void tsr_tape_free(tsr_tape *t);

/* Shape [n,h,w,c], each at least 1. */
tsr_status tsr_tape_input(tsr_tape *t, const int32_t shape[4], tsr_dtype dtype, const char *name,
                          tsr_val *out);
/* The same with its entries as a grid; `hwc` is the shape of one. */
tsr_status tsr_tape_input_grid(tsr_tape *t, const tsr_entries *entries, const int32_t hwc[3],
                               tsr_dtype dtype, const char *name, tsr_val *out);
void tsr_tape_output(tsr_tape *t, tsr_val v, const char *name); /* keeps its place to the end */
void tsr_tape_begin_loop(tsr_tape *t);
/* Names the following ops without weights; copied, the copy lives as long as the tape. */
tsr_status tsr_tape_set_scope(tsr_tape *t, const char *name);
/* The entries of `base` for one step. */
tsr_status tsr_tape_step_view(tsr_tape *t, tsr_val base, tsr_val *out);
/* Registers a weight (its first/last are set as ops use it); fields as in tsr_weight. */
tsr_status tsr_tape_weight(tsr_tape *t, const tsr_weight *w, tsr_wt *out);

const tsr_value *tsr_tape_value(const tsr_tape *t, tsr_val v);
size_t tsr_value_bytes(const tsr_value *v); /* whole value */

tsr_status tsr_op_conv2d(tsr_tape *t, const tsr_conv_desc *d, tsr_val *out);
tsr_status tsr_op_linear(tsr_tape *t, const tsr_linear_desc *d, tsr_val *out);
tsr_status tsr_op_attention(tsr_tape *t, const tsr_attention_desc *d, tsr_val *out);
tsr_status tsr_op_group_norm(tsr_tape *t, const tsr_group_norm_desc *d, tsr_val *out);
tsr_status tsr_op_layer_norm(tsr_tape *t, const tsr_layer_norm_desc *d, tsr_val *out);
tsr_status tsr_op_add(tsr_tape *t, const tsr_add_desc *d, tsr_val *out);
tsr_status tsr_op_time_embed(tsr_tape *t, const tsr_time_embed_desc *d, tsr_val *out);
/* out[n] = x[n, index[n]]: x [N,T,1,D], index [N,1,1,1] i32 -> [N,1,1,D] */
tsr_status tsr_op_gather_row(tsr_tape *t, tsr_val x, tsr_val index, tsr_val *out);
/* channels of x, then of y; same N, H, W */
tsr_status tsr_op_concat(tsr_tape *t, tsr_val x, tsr_val y, tsr_val *out);
/* f32 NCHW [n,c,h,w] kept in an input value of shape [n,c,h,w] -> NHWC value of the tape's dtype, x
 * * scale */
tsr_status tsr_op_latent_in(tsr_tape *t, tsr_val x, float scale, tsr_val *out);
/* NHWC value -> f32 NCHW, shape [n,c,h,w] */
tsr_status tsr_op_latent_out(tsr_tape *t, tsr_val x, tsr_val *out);
/* u8 [n,h,w,3] -> NHWC, x / 127.5 - 1 */
tsr_status tsr_op_image_in(tsr_tape *t, tsr_val x, tsr_val *out);
/* NHWC [n,h,w,3] -> u8: round(clamp(x / 2 + 0.5, 0, 1) * 255), half to even, as diffusers and PIL
 * do */
tsr_status tsr_op_image_out(tsr_tape *t, tsr_val x, tsr_val *out);

/* Multiply-adds counted twice, over the whole op (one execution). */
double tsr_op_flops(const tsr_tape *t, const tsr_op *op);
/* Operands, weights and output, each once, as they are stored: what must move at the least. */
double tsr_op_bytes(const tsr_tape *t, const tsr_op *op);
/* Kind and shape, "conv2d 3x3, 2x64x64, 320 to 320": the same for ops that cost the same. */
void tsr_op_describe(const tsr_tape *t, const tsr_op *op, char *text, size_t bytes);
const char *tsr_op_kind_name(tsr_op_kind k);

#endif
