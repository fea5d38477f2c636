/* vae_parts.c -- what every level of encoder and decoder starts with, and what both end with.
 * Shapes: x [N,H,W,C] becomes [N,H,W,Co]. */
#include "vae/vae_internal.h"

tsr_status tsr_vae_resnets_build(const tsr_scope *s, const tsr_vae_config *cfg, int32_t n,
                                 int32_t co, tsr_val *x)
{
    tsr_resnet_desc d = {.co = co, .groups = cfg->groups, .eps = TSR_VAE_EPS};

    for (int32_t i = 0; i < n; i++) {
        tsr_scope res = tsr_scope_in(s, "resnets.%d", i);
        d.x = *x;
        TSR_TRY(tsr_block_resnet(&res, &d, x)); // [N,H,W,Co]
    }
    return TSR_OK;
}

tsr_status tsr_vae_head_build(const tsr_scope *s, const tsr_vae_config *cfg, int32_t co,
                              tsr_dtype out_dtype, tsr_val *x)
{
    tsr_group_norm_desc norm = {.x = *x, .groups = cfg->groups, .eps = TSR_VAE_EPS, .silu = true};
    tsr_conv_desc last = {.out_dtype = out_dtype};

    TSR_TRY(tsr_block_group_norm(s, "conv_norm_out", &norm, &last.x)); // [N,H,W,C]
    return tsr_block_conv2d(s, "conv_out", co, 3, &last, x);           // [N,H,W,Co]
}
