/* tape_flops.c -- the arithmetic and the traffic of an op, for time predictions and GFLOP/s
 * figures.
 *
 * A multiply-add counts two. Matrix work is exact (causal attention counts the whole square, as
 * kernels for short texts compute it); norms count four an element, plain elementwise work one. */
#include "kernels/tape.h"

static double elements(const tsr_value *v)
{
    return (double)v->n * (double)v->h * (double)v->w * (double)v->c;
}

double tsr_op_flops(const tsr_tape *t, const tsr_op *op)
{
    const tsr_value *out = &t->values[op->out];
    const tsr_value *k;
    const tsr_weight *w = &t->weights[op->w[0]];
    double pixels = (double)out->n * (double)out->h * (double)out->w;

    switch (op->kind) {
    case TSR_OP_CONV2D:
        return 2 * pixels * (double)w->dims[0] * (double)w->dims[1] * (double)w->dims[2] *
               (double)w->dims[3];
    case TSR_OP_LINEAR:
        return 2 * pixels * (double)w->dims[0] * (double)w->dims[1];
    case TSR_OP_ATTENTION:
        k = &t->values[op->in[1]];
        return 4 * elements(out) * (double)k->h * (double)k->w;
    case TSR_OP_GROUP_NORM:
    case TSR_OP_LAYER_NORM:
        return 4 * elements(out);
    case TSR_OP_ADD:
    case TSR_OP_TIME_EMBED:
    case TSR_OP_LATENT_IN:
    case TSR_OP_IMAGE_IN:
    case TSR_OP_IMAGE_OUT:
        return elements(out);
    case TSR_OP_GATHER_ROW:
    case TSR_OP_CONCAT:
    case TSR_OP_LATENT_OUT:
    case TSR_OP_KINDS:
        break;
    }
    return 0;
}

static double weight_bytes(const tsr_weight *w)
{
    double n = (double)tsr_dtype_size(w->dtype);

    for (int32_t i = 0; i < w->n_dims; i++)
        n *= w->dims[i];
    return n;
}

double tsr_op_bytes(const tsr_tape *t, const tsr_op *op)
{
    double bytes = (double)tsr_value_bytes(&t->values[op->out]);

    for (int32_t i = 0; i < 4; i++)
        if (op->in[i])
            bytes += (double)tsr_value_bytes(&t->values[op->in[i]]);
    for (int32_t i = 0; i < 2; i++)
        if (op->w[i])
            bytes += weight_bytes(&t->weights[op->w[i]]);
    return bytes;
}
