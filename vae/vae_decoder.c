/* vae_decoder.c -- from latents to a picture.
 *
 *   z / scaling_factor -> [post_quant_conv] -> conv_in -> mid -> up blocks -> norm, SiLU, conv_out
 *
 * Shapes: z [N,h,w,L]; level by level from the deepest: [N,h,w,C3] ... [N,h*f,w*f,C0], f =
 * 2^(levels-1); picture [N,h*f,w*f,3] in [-1,1], not clamped. A level up is a nearest-neighbour
 * resize inside the convolution that follows it.
 *
 * Source: "Auto-Encoding Variational Bayes" (Kingma and Welling, 2013); "Taming Transformers"
 * (Esser et al., 2021) for the network; diffusers' AutoencoderKL. */
#include "vae/vae_internal.h"

/* One level: residual blocks of width `co`, then the resize, but at the last level. */
static tsr_status level_up(const tsr_scope *s, const tsr_vae_config *cfg, int32_t co, bool resize,
                           tsr_val *x)
{
    tsr_scope up = tsr_scope_in(s, "upsamplers.0");

    TSR_TRY(tsr_vae_resnets_build(s, cfg, cfg->layers_per_block + 1, co, x)); // [N,H,W,Co]
    if (resize) {
        const tsr_value *v = tsr_tape_value(s->tape, *x);
        tsr_conv_desc d = {.x = *x, .up_h = 2 * v->h, .up_w = 2 * v->w};
        TSR_TRY(tsr_block_conv2d(&up, "conv", co, 3, &d, x)); // [N,2*H,2*W,Co]
        tsr_scope_tap(&up, "", *x);
    }
    tsr_scope_tap(s, "", *x);
    return TSR_OK;
}

static tsr_status decoder(const tsr_scope *root, const tsr_vae_config *cfg, tsr_val *x)
{
    tsr_scope s = tsr_scope_in(root, "decoder");
    int32_t deepest = cfg->n_levels - 1;

    if (cfg->use_post_quant_conv)
        TSR_TRY(tsr_block_conv2d(root, "post_quant_conv", cfg->latent_channels, 1,
                                 &(tsr_conv_desc){.x = *x}, x)); // [N,h,w,L]
    TSR_TRY(tsr_block_conv2d(&s, "conv_in", cfg->channels[deepest], 3, &(tsr_conv_desc){.x = *x},
                             x));           // [N,h,w,C3]
    TSR_TRY(tsr_vae_mid_build(&s, cfg, x)); // [N,h,w,C3]
    for (int32_t i = 0; i <= deepest; i++) {
        tsr_scope block = tsr_scope_in(&s, "up_blocks.%d", i);
        TSR_TRY(level_up(&block, cfg, cfg->channels[deepest - i], i < deepest, x)); // [N,H,W,Co]
    }
    return tsr_vae_head_build(&s, cfg, cfg->out_channels, TSR_DTYPE_NONE, x); // [N,H,W,3]
}

tsr_status tsr_vae_decode_build(tsr_tape *t, tsr_component *c, const tsr_vae_config *cfg,
                                const int32_t latent_nhw[3], bool as_image, tsr_val *in,
                                tsr_val *out, tsr_vae_tap *taps, int32_t n_taps)
{
    tsr_scope root = {.tape = t, .comp = c, .taps = taps, .n_taps = taps ? n_taps : 0};
    int32_t n = latent_nhw[0];
    tsr_val latents, x, picture;

    TSR_TRY(tsr_tape_input(t, (int32_t[]){n, cfg->latent_channels, latent_nhw[1], latent_nhw[2]},
                           TSR_F32, "latents", &latents)); // [N,L,h,w] f32
    TSR_TRY(tsr_tape_set_scope(t, "latents"));
    TSR_TRY(tsr_op_latent_in(t, latents, 1.0f / cfg->scaling_factor, &x)); // [N,h,w,L]
    TSR_TRY(decoder(&root, cfg, &x));                                      // [N,H,W,3]
    TSR_TRY(tsr_tape_set_scope(t, "picture"));
    if (as_image)
        TSR_TRY(tsr_op_image_out(t, x, &picture)); // [N,H,W,3] u8
    else
        TSR_TRY(tsr_op_latent_out(t, x, &picture)); // [N,3,H,W] f32
    tsr_tape_output(t, picture, "picture");
    *in = latents;
    *out = picture;
    return TSR_OK;
}
