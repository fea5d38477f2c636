/* unet_mid.c -- the deepest point: a residual block, and in all published models a transformer and
 * another residual block. x [N,H,W,C] keeps its shape. */
#include "unet/unet_internal.h"

tsr_status tsr_unet_mid_build(tsr_unet *u, const tsr_unet_block *b, tsr_val *x)
{
    for (int32_t i = 0; i < b->n_resnets; i++) {
        TSR_TRY(tsr_unet_res_build(u, b, i, *x, 0, x)); // [N,H,W,C]
        if (i < b->n_transformers)
            TSR_TRY(tsr_unet_transformer_build(u, b, i, *x, x)); // [N,H,W,C]
    }
    tsr_scope_tap(&u->root, b->path, *x);
    return TSR_OK;
}
