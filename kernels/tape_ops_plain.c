/* tape_ops_plain.c -- recording the ops without weights: attention, time embedding, row gather,
 * concatenation, and the conversions at the network's ends.
 *
 * The conversions change the layout: latents and decoded floats are NCHW outside and NHWC inside.
 * An NCHW tensor is kept in a value whose (h, w, c) fields hold (C, H, W). */
#include "kernels/tape_internal.h"

#include <math.h>

enum { MAX_TIME_DIM = 1 << 16 };

tsr_status tsr_op_attention(tsr_tape *t, const tsr_attention_desc *d, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_ATTENTION, 0);
    const tsr_value *q, *k, *v;
    tsr_shape shape;
    float scale = d->scale;
    tsr_op op = {.kind = TSR_OP_ATTENTION, .in = {d->q, d->k, d->v}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "query", d->q, &q));
    TSR_TRY(tsr_tape_float_operand(t, name, "key", d->k, &k));
    TSR_TRY(tsr_tape_float_operand(t, name, "attention value", d->v, &v));
    if (d->n_heads < 1 || q->c % d->n_heads != 0)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: %d channels cannot be split into %d attention heads",
                 name, q->c, d->n_heads);
    shape = (tsr_shape){q->entries, q->h, q->w, q->c, q->dtype};
    if (!tsr_entries_join(&shape.entries, &k->entries) ||
        !tsr_entries_join(&shape.entries, &v->entries) || k->c != q->c || v->c != q->c ||
        (int64_t)k->h * k->w != (int64_t)v->h * v->w || k->dtype != q->dtype ||
        v->dtype != q->dtype)
        TSR_FAIL(t->err, TSR_E_MODEL,
                 "%s: the shapes of query, key and value ([%d,%d,%d], [%d,%d,%d], [%d,%d,%d]) do "
                 "not go together",
                 name, q->n, q->h * q->w, q->c, k->n, k->h * k->w, k->c, v->n, v->h * v->w, v->c);
    if (d->causal && q->h * q->w != k->h * k->w)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: causal attention needs as many keys as queries", name);
    if (scale == 0)
        scale = 1.0f / sqrtf((float)(q->c / d->n_heads));
    if (!(scale > 0) || scale > 1e6f)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: an attention scale of %g is not supported", name,
                 (double)scale);
    op.u.attention.n_heads = d->n_heads;
    op.u.attention.scale = scale;
    op.u.attention.causal = d->causal;
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_time_embed(tsr_tape *t, const tsr_time_embed_desc *d, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_TIME_EMBED, 0);
    const tsr_value *x;
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_TIME_EMBED, .in = {d->x}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "time", d->x, &x));
    if (x->dtype != TSR_F32 || x->h != 1 || x->w != 1)
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: times must be an F32 value [N,1,1,K]", name);
    /* half - freq_shift divides: it must stay away from zero */
    if (d->dim < 2 || d->dim > MAX_TIME_DIM || !(d->freq_shift >= 0) ||
        !((float)(d->dim / 2) - d->freq_shift > 0))
        TSR_FAIL(t->err, TSR_E_MODEL,
                 "%s: a time embedding of %d channels with a frequency shift of %g is not possible",
                 name, d->dim, (double)d->freq_shift);
    shape = (tsr_shape){x->entries, 1, 1, (int64_t)x->c * d->dim, TSR_F32};
    op.u.time_embed.dim = d->dim;
    op.u.time_embed.flip_sin_to_cos = d->flip_sin_to_cos;
    op.u.time_embed.freq_shift = d->freq_shift;
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_gather_row(tsr_tape *t, tsr_val x, tsr_val index, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_GATHER_ROW, 0);
    const tsr_value *v, *i = tsr_tape_value(t, index);
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_GATHER_ROW, .in = {x, index}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "input", x, &v));
    shape = (tsr_shape){v->entries, 1, 1, v->c, v->dtype};
    if (!i || i->dtype != TSR_I32 || i->h != 1 || i->w != 1 || i->c != 1 ||
        !tsr_entries_join(&shape.entries, &i->entries))
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: row numbers must be an I32 value [%d,1,1,1]", name,
                 v->n);
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_concat(tsr_tape *t, tsr_val x, tsr_val y, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_CONCAT, 0);
    const tsr_value *b;
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_CONCAT, .in = {x, y}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "second input", y, &b));
    TSR_TRY(tsr_tape_joined_operand(t, name, x, y, &shape));
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_latent_in(tsr_tape *t, tsr_val x, float scale, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_LATENT_IN, 0);
    const tsr_value *v;
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_LATENT_IN, .in = {x}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "input", x, &v));
    if (v->dtype != TSR_F32 || !isfinite(scale))
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: latents of type %s cannot be scaled by %g", name,
                 tsr_dtype_name(v->dtype), (double)scale);
    shape = (tsr_shape){v->entries, v->w, v->c, v->h, t->dtype};
    op.u.convert.scale = scale;
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_latent_out(tsr_tape *t, tsr_val x, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_LATENT_OUT, 0);
    const tsr_value *v;
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_LATENT_OUT, .in = {x}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "input", x, &v));
    shape = (tsr_shape){v->entries, v->c, v->h, v->w, TSR_F32};
    op.u.convert.scale = 1;
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_image_in(tsr_tape *t, tsr_val x, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_IMAGE_IN, 0);
    const tsr_value *v = tsr_tape_value(t, x);
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_IMAGE_IN, .in = {x}, .name = name};

    if (!v || v->dtype != TSR_U8 || v->c != 3)
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: a picture must be a U8 value [N,H,W,3]", name);
    shape = (tsr_shape){v->entries, v->h, v->w, 3, t->dtype};
    return tsr_tape_append(t, &op, &shape, out);
}

tsr_status tsr_op_image_out(tsr_tape *t, tsr_val x, tsr_val *out)
{
    const char *name = tsr_tape_op_name(t, TSR_OP_IMAGE_OUT, 0);
    const tsr_value *v;
    tsr_shape shape;
    tsr_op op = {.kind = TSR_OP_IMAGE_OUT, .in = {x}, .name = name};

    TSR_TRY(tsr_tape_float_operand(t, name, "input", x, &v));
    if (v->c != 3)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: a picture needs 3 channels, not %d", name, v->c);
    shape = (tsr_shape){v->entries, v->h, v->w, 3, TSR_U8};
    return tsr_tape_append(t, &op, &shape, out);
}
