/* plan_rows.c -- which rows of an operand the rows of an output need.
 *
 * Most ops make row y from row y. A convolution reads rows y * stride - pad .. + R - 1 of its
 * (resized) input: a true halo, and only the picture's border is padded; where the backend makes
 * it in tiles of rows, those of the whole tiles. Attention needs all
 * keys, vectors an entry are needed whole, and the conversions to and from NCHW are taken whole
 * on the NCHW side. A residual that is recorded with other rows than the output (tokens for an
 * image) is needed whole, too. */
#include "kernels/plan_internal.h"

static bool same_rows(const tsr_tape *t, const tsr_op *op, int32_t k)
{
    const tsr_value *x = &t->values[op->in[k]], *out = &t->values[op->out];

    return x->h == out->h && x->w == out->w && x->kind != TSR_VALUE_VIEW;
}

static tsr_reach conv_reach(const tsr_tape *t, const tsr_op *op, int32_t k)
{
    bool plain = op->u.conv.r == 1 && op->u.conv.stride == 1 && op->u.conv.up_h == 0;

    if (k == 2)
        return TSR_REACH_WHOLE;
    if (k == 3)
        return same_rows(t, op, k) ? TSR_REACH_SAME : TSR_REACH_WHOLE;
    return plain ? TSR_REACH_SAME : TSR_REACH_HALO;
}

tsr_reach tsr_plan_reach(const tsr_tape *t, const tsr_op *op, int32_t k)
{
    switch (op->kind) {
    case TSR_OP_CONV2D:
        return conv_reach(t, op, k);
    case TSR_OP_ATTENTION:
        return k == 0 ? TSR_REACH_SAME : TSR_REACH_WHOLE;
    case TSR_OP_LINEAR:
    case TSR_OP_GROUP_NORM:
    case TSR_OP_LAYER_NORM:
    case TSR_OP_ADD:
    case TSR_OP_CONCAT:
    case TSR_OP_IMAGE_IN:
    case TSR_OP_IMAGE_OUT:
        return same_rows(t, op, k) ? TSR_REACH_SAME : TSR_REACH_WHOLE;
    case TSR_OP_TIME_EMBED:
    case TSR_OP_GATHER_ROW:
    case TSR_OP_LATENT_IN:
    case TSR_OP_LATENT_OUT:
    case TSR_OP_KINDS:
        break;
    }
    return TSR_REACH_WHOLE;
}

bool tsr_plan_has_windows(const tsr_op *op)
{
    return op->kind != TSR_OP_TIME_EMBED && op->kind != TSR_OP_GATHER_ROW &&
           op->kind != TSR_OP_LATENT_OUT;
}

/* Rows of the source of a nearest resize. Kernels compute the source row in float32: where that may
 * round to a neighbour, the neighbour is there, too. */
static tsr_rows resized(tsr_rows r, int32_t h, int32_t up)
{
    int32_t slack = up % h == 0 && up / h <= 2 ? 0 : 1;
    int32_t begin = (int32_t)((int64_t)r.begin * h / up) - slack;
    int32_t end = (int32_t)((int64_t)(r.end - 1) * h / up) + 1 + slack;

    return (tsr_rows){tsr_max_i32(begin, 0), tsr_min_i32(end, h)};
}

int32_t tsr_plan_row_unit(const tsr_backend *b, const tsr_tape *t, const tsr_op *op)
{
    return op->kind == TSR_OP_CONV2D && b->row_unit ? b->row_unit(b, t, op) : 1;
}

tsr_rows tsr_plan_whole_units(tsr_rows r, int32_t unit)
{
    return (tsr_rows){r.begin / unit * unit, tsr_div_up(r.end, unit) * unit};
}

/* `out` may end below the picture. */
static tsr_rows conv_rows(const tsr_value *x, const tsr_op *op, tsr_rows out)
{
    int32_t size = op->u.conv.up_h ? op->u.conv.up_h : x->h;
    int32_t top = op->u.conv.pad_top, stride = op->u.conv.stride;
    tsr_rows r;

    r.begin = tsr_max_i32(out.begin * stride - top, 0);
    r.end = tsr_min_i32((out.end - 1) * stride - top + op->u.conv.r, size);
    return op->u.conv.up_h ? resized(r, x->h, size) : r;
}

tsr_rows tsr_plan_rows_read(const tsr_backend *b, const tsr_tape *t, const tsr_op *op, int32_t k,
                            tsr_rows out)
{
    const tsr_value *x = &t->values[op->in[k]];

    switch (tsr_plan_reach(t, op, k)) {
    case TSR_REACH_SAME:
        return out;
    case TSR_REACH_HALO:
        return conv_rows(x, op, tsr_plan_whole_units(out, tsr_plan_row_unit(b, t, op)));
    case TSR_REACH_WHOLE:
        break;
    }
    return (tsr_rows){0, x->h};
}

size_t tsr_plan_rows_bytes(const tsr_value *v, int32_t n_rows)
{
    return (size_t)v->n * (size_t)n_rows * (size_t)v->w * (size_t)v->c * tsr_dtype_size(v->dtype);
}
