/* tape_describe.c -- an op as people read it: its kind and the shape that decides what it costs.
 *
 *     conv2d 3x3, 2x64x64, 320+320 to 640      entries, rows, columns of the output; channels
 *     linear geglu, 2x4096, 320 to 1280        entries and rows
 *     attention, 2x4096 over 4096, 8 of 40     queries, keys, heads */
#include "kernels/tape.h"

#include <stdio.h>

/* "320" or, for two inputs, "320+640". */
static void channels(const tsr_tape *t, const tsr_op *op, char text[32])
{
    const tsr_value *x = &t->values[op->in[0]], *x2 = &t->values[op->in[1]];

    if (op->in[1])
        snprintf(text, 32, "%d+%d", x->c, x2->c);
    else
        snprintf(text, 32, "%d", x->c);
}

static const char *linear_kind(const tsr_op *op)
{
    static const char *const acts[] = {"", " silu", " gelu", " quick gelu"};

    return op->u.linear.geglu ? " geglu" : acts[op->u.linear.act];
}

void tsr_op_describe(const tsr_tape *t, const tsr_op *op, char *text, size_t bytes)
{
    const tsr_value *out = &t->values[op->out], *x = &t->values[op->in[0]],
                    *k = &t->values[op->in[1]];
    const char *kind = tsr_op_kind_name(op->kind);
    char c[32];

    channels(t, op, c);
    switch (op->kind) {
    case TSR_OP_CONV2D:
        snprintf(text, bytes, "%s %dx%d%s%s, %dx%dx%d, %s to %d", kind, op->u.conv.r, op->u.conv.s,
                 op->u.conv.stride > 1 ? " by 2" : "", op->u.conv.up_h ? " enlarged" : "", out->n,
                 out->h, out->w, c, out->c);
        break;
    case TSR_OP_LINEAR:
        snprintf(text, bytes, "%s%s, %dx%d, %s to %d", kind, linear_kind(op), out->n,
                 out->h * out->w, c, out->c);
        break;
    case TSR_OP_ATTENTION:
        snprintf(text, bytes, "%s%s, %dx%d over %d, %d of %d", kind,
                 op->u.attention.causal ? " causal" : "", out->n, x->h * x->w, k->h * k->w,
                 op->u.attention.n_heads, x->c / op->u.attention.n_heads);
        break;
    case TSR_OP_GROUP_NORM:
        snprintf(text, bytes, "%s%s, %dx%dx%d, %s", kind, op->u.norm.silu ? " silu" : "", out->n,
                 out->h, out->w, c);
        break;
    default:
        snprintf(text, bytes, "%s, %dx%dx%d, %d", kind, out->n, out->h, out->w, out->c);
        break;
    }
}
