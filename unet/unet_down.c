/* unet_down.c -- one level of the way down: residual blocks, each with a transformer where the
 * level has them, then a convolution of stride 2.
 *
 * x [N,H,W,C] becomes [N,H,W,Co], then [N,ceil(H/2),ceil(W/2),Co]. Every output is left on the
 * stack of skips, where the way up finds it. */
#include "unet/unet_internal.h"

tsr_status tsr_unet_down_build(tsr_unet *u, const tsr_unet_block *b, tsr_val *x)
{
    tsr_scope s = tsr_scope_in(&u->root, "%s", b->path);
    tsr_scope down = tsr_scope_in(&s, "downsamplers.0");

    for (int32_t i = 0; i < b->n_resnets; i++) {
        TSR_TRY(tsr_unet_res_build(u, b, i, *x, 0, x)); // [N,H,W,Co]
        if (i < b->n_transformers)
            TSR_TRY(tsr_unet_transformer_build(u, b, i, *x, x)); // [N,H,W,Co]
        u->skips[u->n_skips++] = *x;
    }
    if (b->resample) {
        TSR_TRY(tsr_block_conv2d(&down, "conv", b->co, 3, &(tsr_conv_desc){.x = *x, .stride = 2},
                                 x)); // [N,H/2,W/2,Co]
        tsr_scope_tap(&down, "", *x);
        u->skips[u->n_skips++] = *x;
    }
    tsr_scope_tap(&s, "", *x);
    return TSR_OK;
}
