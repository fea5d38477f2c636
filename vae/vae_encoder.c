/* vae_encoder.c -- from a picture to the distribution of its latents.
 *
 *   conv_in -> down blocks -> mid -> norm, SiLU, conv_out -> [quant_conv] -> mean ++ logvar
 *
 * Shapes: picture [N,H,W,3]; a level down [N,floor(H/2),floor(W/2),Co]; moments [N,h,w,2*L]. The
 * stride-2 convolutions are padded at the right and at the bottom only, which also makes odd sizes
 * work. What the caller does with the moments (clamping, sampling, scaling) happens outside.
 *
 * Source: diffusers' AutoencoderKL. */
#include "vae/vae_internal.h"

static tsr_status level_down(const tsr_scope *s, const tsr_vae_config *cfg, int32_t co, bool halve,
                             tsr_val *x)
{
    tsr_scope down = tsr_scope_in(s, "downsamplers.0");

    TSR_TRY(tsr_vae_resnets_build(s, cfg, cfg->layers_per_block, co, x)); // [N,H,W,Co]
    if (halve) {
        tsr_conv_desc d = {.x = *x, .stride = 2, .pad_bottom = 1, .pad_right = 1};
        TSR_TRY(tsr_block_conv2d(&down, "conv", co, 3, &d, x)); // [N,H/2,W/2,Co]
        tsr_scope_tap(&down, "", *x);
    }
    tsr_scope_tap(s, "", *x);
    return TSR_OK;
}

static tsr_status encoder(const tsr_scope *root, const tsr_vae_config *cfg, tsr_val *x)
{
    tsr_scope s = tsr_scope_in(root, "encoder");
    int32_t deepest = cfg->n_levels - 1, moments = 2 * cfg->latent_channels;
    tsr_dtype head = cfg->use_quant_conv ? TSR_DTYPE_NONE : TSR_F32; /* the last layer is f32 */

    TSR_TRY(tsr_block_conv2d(&s, "conv_in", cfg->channels[0], 3, &(tsr_conv_desc){.x = *x},
                             x)); // [N,H,W,C0]
    for (int32_t i = 0; i <= deepest; i++) {
        tsr_scope block = tsr_scope_in(&s, "down_blocks.%d", i);
        TSR_TRY(level_down(&block, cfg, cfg->channels[i], i < deepest, x)); // [N,H,W,Co]
    }
    TSR_TRY(tsr_vae_mid_build(&s, cfg, x));                 // [N,h,w,C3]
    TSR_TRY(tsr_vae_head_build(&s, cfg, moments, head, x)); // [N,h,w,2*L]
    if (cfg->use_quant_conv)
        TSR_TRY(tsr_block_conv2d(root, "quant_conv", moments, 1,
                                 &(tsr_conv_desc){.x = *x, .out_dtype = TSR_F32},
                                 x)); // [N,h,w,2*L] f32
    return TSR_OK;
}

tsr_status tsr_vae_encode_build(tsr_tape *t, tsr_component *c, const tsr_vae_config *cfg,
                                const int32_t image_nhw[3], tsr_val *in, tsr_val *moments,
                                tsr_vae_tap *taps, int32_t n_taps)
{
    tsr_scope root = {.tape = t, .comp = c, .taps = taps, .n_taps = taps ? n_taps : 0};
    int32_t n = image_nhw[0];
    tsr_val picture, x, out;

    TSR_TRY(tsr_tape_input(t, (int32_t[]){n, cfg->in_channels, image_nhw[1], image_nhw[2]}, TSR_F32,
                           "picture", &picture)); // [N,3,H,W] f32
    TSR_TRY(tsr_tape_set_scope(t, "picture"));
    TSR_TRY(tsr_op_latent_in(t, picture, 1.0f, &x)); // [N,H,W,3]
    TSR_TRY(encoder(&root, cfg, &x));                // [N,h,w,2*L] f32
    TSR_TRY(tsr_tape_set_scope(t, "moments"));
    TSR_TRY(tsr_op_latent_out(t, x, &out)); // [N,2*L,h,w] f32
    tsr_tape_output(t, out, "moments");
    *in = picture;
    *moments = out;
    return TSR_OK;
}
