/* tape_ops.c -- recording the ops that have weights: convolution, linear, norms, add.
 *
 * Each function checks everything that its kernels take for granted, then appends one record;
 * what it refuses comes from a config or checkpoint, so the sentence names the tensor. */
#include "kernels/tape_internal.h"

enum { MAX_KERNEL = 7, MAX_STRIDE = 2 };

static bool out_dtype_ok(tsr_dtype d)
{
    return d == TSR_F16 || d == TSR_F32;
}

static tsr_status check_out_dtype(const tsr_tape *t, const char *name, tsr_dtype d)
{
    if (!out_dtype_ok(d))
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: the output's type %s is neither F16 nor F32", name,
                 tsr_dtype_name(d));
    return TSR_OK;
}

/* Kernel size, stride, padding and resize, without regard to the operands. */
static tsr_status check_conv_numbers(const tsr_tape *t, const char *name, const tsr_conv_desc *d,
                                     const tsr_weight *w)
{
    int32_t r = w->dims[2], s = w->dims[3];

    if (w->n_dims != 4 || r > MAX_KERNEL || s > MAX_KERNEL)
        TSR_FAIL(t->err, TSR_E_MODEL,
                 "%s: a convolution needs a tensor of 4 dimensions with a kernel of at most %d",
                 name, MAX_KERNEL);
    if (d->stride < 0 || d->stride > MAX_STRIDE)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: stride %d is not supported, only 1 and 2", name,
                 d->stride);
    if (d->pad_top < 0 || d->pad_bottom < 0 || d->pad_left < 0 || d->pad_right < 0 ||
        d->pad_top >= r || d->pad_bottom >= r || d->pad_left >= s || d->pad_right >= s)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: a padding is negative or not smaller than the kernel",
                 name);
    if (d->up_h < 0 || d->up_w < 0 || (d->up_h > 0) != (d->up_w > 0))
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the resize to [%d,%d] is not possible", name, d->up_h,
                 d->up_w);
    return TSR_OK;
}

static tsr_status check_add_channel(const tsr_tape *t, const char *name, tsr_val v, tsr_shape *out)
{
    const tsr_value *a;

    if (!v)
        return TSR_OK;
    TSR_TRY(tsr_tape_float_operand(t, name, "vector to add", v, &a));
    if (a->h != 1 || a->w != 1 || a->c != out->c || !tsr_entries_join(&out->entries, &a->entries))
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the vector to add is [%d,%d,%d,%d] and not [1,1,1,%lld]",
                 name, a->n, a->h, a->w, a->c, (long long)out->c);
    return TSR_OK;
}

tsr_status tsr_op_conv2d(tsr_tape *t, const tsr_conv_desc *d, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_CONV2D, d->weight);
    const tsr_weight *w;
    tsr_shape x, shape;
    int64_t h, width, stride = d->stride ? d->stride : 1;
    tsr_op op = {.kind = TSR_OP_CONV2D,
                 .in = {d->x, d->x2, d->add_channel, d->residual},
                 .w = {d->weight, d->bias},
                 .name = name};

    TSR_TRY(tsr_tape_weight_operand(t, name, d->weight, TSR_WEIGHT_MATRIX, &w));
    TSR_TRY(check_conv_numbers(t, name, d, w));
    TSR_TRY(tsr_tape_joined_operand(t, name, d->x, d->x2, &x));
    if (w->dims[1] != x.c)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the tensor is for %d input channels but gets %lld", name,
                 w->dims[1], (long long)x.c);
    TSR_TRY(tsr_tape_vector_operand(t, name, d->bias, w->dims[0], true));
    h = (d->up_h ? d->up_h : x.h) + d->pad_top + d->pad_bottom - w->dims[2];
    width = (d->up_w ? d->up_w : x.w) + d->pad_left + d->pad_right - w->dims[3];
    if (h < 0 || width < 0)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: an input of %lldx%lld is smaller than the %dx%d kernel",
                 name, (long long)x.h, (long long)x.w, w->dims[2], w->dims[3]);
    shape = (tsr_shape){x.entries, h / stride + 1, width / stride + 1, w->dims[0],
                        d->out_dtype ? d->out_dtype : x.dtype};
    TSR_TRY(check_out_dtype(t, name, shape.dtype));
    TSR_TRY(check_add_channel(t, name, d->add_channel, &shape));
    TSR_TRY(tsr_tape_residual_operand(t, name, d->residual, &shape));
    op.u.conv.r = w->dims[2];
    op.u.conv.s = w->dims[3];
    op.u.conv.stride = (int32_t)stride;
    op.u.conv.pad_top = d->pad_top;
    op.u.conv.pad_left = d->pad_left;
    op.u.conv.up_h = d->up_h;
    op.u.conv.up_w = d->up_w;
    op.u.conv.direct = t->direct;
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_linear(tsr_tape *t, const tsr_linear_desc *d, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_LINEAR, d->weight);
    const tsr_weight *w;
    tsr_shape shape;
    bool flat;
    tsr_op op = {.kind = TSR_OP_LINEAR,
                 .in = {d->x, d->x2, 0, d->residual},
                 .w = {d->weight, d->bias},
                 .name = name};

    TSR_TRY(tsr_tape_weight_operand(t, name, d->weight, TSR_WEIGHT_MATRIX, &w));
    flat = w->n_dims == 2 || (w->n_dims == 4 && w->dims[2] == 1 && w->dims[3] == 1);
    if (!flat)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: a linear layer needs a tensor [out,in] or [out,in,1,1]",
                 name);
    TSR_TRY(tsr_tape_joined_operand(t, name, d->x, d->x2, &shape));
    if (w->dims[1] != shape.c)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the tensor is for %d input channels but gets %lld", name,
                 w->dims[1], (long long)shape.c);
    if (d->geglu && w->dims[0] % 2 != 0)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: %d output channels cannot be split into two halves",
                 name, w->dims[0]);
    if ((d->pre != TSR_ACT_NONE && d->pre != TSR_ACT_SILU) || (unsigned)d->act > TSR_ACT_QUICK_GELU)
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: the activation is not supported", name);
    if (d->geglu && d->act != TSR_ACT_NONE)
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: GEGLU takes no further activation", name);
    TSR_TRY(tsr_tape_vector_operand(t, name, d->bias, w->dims[0], true));
    shape.c = d->geglu ? w->dims[0] / 2 : w->dims[0];
    shape.dtype = d->out_dtype ? d->out_dtype : shape.dtype;
    TSR_TRY(check_out_dtype(t, name, shape.dtype));
    TSR_TRY(tsr_tape_residual_operand(t, name, d->residual, &shape));
    op.u.linear.pre = d->pre;
    op.u.linear.act = d->act;
    op.u.linear.geglu = d->geglu;
    return tsr_tape_append(t, &op, &shape, out);
}

static bool eps_ok(float eps)
{
    return eps >= 0 && eps <= 1; /* false for NaN */
}

tsr_status tsr_op_group_norm(tsr_tape *t, const tsr_group_norm_desc *d, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_GROUP_NORM, d->gamma);
    tsr_shape shape;
    int32_t c;
    tsr_op op = {
        .kind = TSR_OP_GROUP_NORM, .in = {d->x, d->x2}, .w = {d->gamma, d->beta}, .name = name};

    TSR_TRY(tsr_tape_joined_operand(t, name, d->x, d->x2, &shape));
    c = (int32_t)shape.c;
    if (d->groups < 1 || c % d->groups != 0 || !eps_ok(d->eps))
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: %d channels in %d groups (eps %g) cannot be normalised",
                 name, c, d->groups, (double)d->eps);
    TSR_TRY(tsr_tape_vector_operand(t, name, d->gamma, c, false));
    TSR_TRY(tsr_tape_vector_operand(t, name, d->beta, c, false));
    op.u.norm.groups = d->groups;
    op.u.norm.eps = d->eps;
    op.u.norm.silu = d->silu;
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_layer_norm(tsr_tape *t, const tsr_layer_norm_desc *d, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_LAYER_NORM, d->gamma);
    const tsr_value *x;
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_LAYER_NORM, .in = {d->x}, .w = {d->gamma, d->beta}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "input", d->x, &x));
    if (!eps_ok(d->eps))
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: a layer norm's eps cannot be %g", name, (double)d->eps);
    TSR_TRY(tsr_tape_vector_operand(t, name, d->gamma, x->c, false));
    TSR_TRY(tsr_tape_vector_operand(t, name, d->beta, x->c, false));
    shape = (tsr_shape){x->entries, x->h, x->w, x->c, d->out_dtype ? d->out_dtype : x->dtype};
    TSR_TRY(check_out_dtype(t, name, shape.dtype));
    op.u.norm.groups = 1;
    op.u.norm.eps = d->eps;
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_add(tsr_tape *t, const tsr_add_desc *d, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_ADD, d->table);
    const tsr_value *x;
    const tsr_weight *w;
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_ADD, .in = {d->x, d->y}, .w = {d->table}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "input", d->x, &x));
    if ((d->y != 0) == (d->table != 0))
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: an addition takes a value or a table", name);
    shape = (tsr_shape){x->entries, x->h, x->w, x->c, x->dtype};
    TSR_TRY(tsr_tape_residual_operand(t, name, d->y, &shape));
    if (d->table) {
        TSR_TRY(tsr_tape_weight_operand(t, name, d->table, TSR_WEIGHT_VECTOR, &w));
        if (w->n_dims != 2 || w->dims[0] < x->h * x->w || w->dims[1] != x->c)
            TSR_FAIL(t->err, TSR_E_MODEL, "%s: the table cannot be added to %d rows of %d", name,
                     x->h * x->w, x->c);
    }
    return tsr_tape_append(t, &op, &shape, out);
}
