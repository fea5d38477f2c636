/* unet_up.c -- one level of the way up: residual blocks that each join one skip, with transformers
 * where the level has them, then a nearest-neighbour resize and a convolution.
 *
 * x [N,H,W,C] with skip [N,H,W,Cs] becomes [N,H,W,Co]. The resize goes to the size of the next
 * skip: twice this one's where the picture's sides are multiples of 2^(levels-1), one less where a
 * side was odd on the way down. It is part of the convolution and never materialised. */
#include "unet/unet_internal.h"

tsr_status tsr_unet_up_build(tsr_unet *u, const tsr_unet_block *b, tsr_val *x)
{
    tsr_scope s = tsr_scope_in(&u->root, "%s", b->path);
    tsr_scope up = tsr_scope_in(&s, "upsamplers.0");

    for (int32_t i = 0; i < b->n_resnets; i++) {
        tsr_val skip = u->skips[--u->n_skips];
        TSR_TRY(tsr_unet_res_build(u, b, i, *x, skip, x)); // [N,H,W,Co]
        if (i < b->n_transformers)
            TSR_TRY(tsr_unet_transformer_build(u, b, i, *x, x)); // [N,H,W,Co]
    }
    if (b->resample) {
        const tsr_value *next = tsr_tape_value(s.tape, u->skips[u->n_skips - 1]);
        tsr_conv_desc d = {.x = *x, .up_h = next->h, .up_w = next->w};
        TSR_TRY(tsr_block_conv2d(&up, "conv", b->co, 3, &d, x)); // [N,2*H,2*W,Co]
        tsr_scope_tap(&up, "", *x);
    }
    tsr_scope_tap(&s, "", *x);
    return TSR_OK;
}
