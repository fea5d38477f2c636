/* vae_mid.c -- the deepest point of encoder and decoder: a residual block, attention over the whole
 * picture, another residual block. x [N,H,W,C] keeps its shape.
 *
 *   out = x + to_out(attention(to_q(n), to_k(n), to_v(n))),  n = group_norm(x)
 *
 * One head of width C, every pixel with every other: T = H*W tokens. It is never cut into tiles.
 * (Most published checkpoints still have its tensors under their first names; model/component.c
 * finds them.)
 *
 * Source: diffusers' UNetMidBlock2D and Attention. */
#include "vae/vae_internal.h"

static tsr_status attention(const tsr_scope *s, const tsr_vae_config *cfg, tsr_val *x)
{
    int32_t c = tsr_tape_value(s->tape, *x)->c;
    tsr_group_norm_desc norm = {.x = *x, .groups = cfg->groups, .eps = TSR_VAE_EPS};
    tsr_attention_desc a = {.n_heads = 1};
    tsr_linear_desc in = {0}, out = {.residual = *x};

    TSR_TRY(tsr_block_group_norm(s, "group_norm", &norm, &in.x)); // [N,H,W,C]
    TSR_TRY(tsr_block_linear(s, "to_q", c, true, &in, &a.q));     // [N,T,C]
    TSR_TRY(tsr_block_linear(s, "to_k", c, true, &in, &a.k));     // [N,T,C]
    TSR_TRY(tsr_block_linear(s, "to_v", c, true, &in, &a.v));     // [N,T,C]
    TSR_TRY(tsr_block_attention(s, &a, &out.x));                  // [N,T,C]
    TSR_TRY(tsr_block_linear(s, "to_out.0", c, true, &out, x));   // [N,H,W,C]
    tsr_scope_tap(s, "", *x);
    return TSR_OK;
}

tsr_status tsr_vae_mid_build(const tsr_scope *s, const tsr_vae_config *cfg, tsr_val *x)
{
    tsr_scope mid = tsr_scope_in(s, "mid_block");
    tsr_resnet_desc d = {
        .co = tsr_tape_value(s->tape, *x)->c, .groups = cfg->groups, .eps = TSR_VAE_EPS};

    for (int32_t i = 0; i < 2; i++) {
        tsr_scope res = tsr_scope_in(&mid, "resnets.%d", i);
        tsr_scope attn = tsr_scope_in(&mid, "attentions.0");
        d.x = *x;
        TSR_TRY(tsr_block_resnet(&res, &d, x)); // [N,H,W,C]
        if (i == 0 && cfg->mid_attention)
            TSR_TRY(attention(&attn, cfg, x)); // [N,H,W,C]
    }
    tsr_scope_tap(&mid, "", *x);
    return TSR_OK;
}
