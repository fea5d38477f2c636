/* vae.h -- AutoencoderKL, decoder and encoder, recorded on a tape. Tensor names are diffusers'. */
#ifndef TSR_VAE_VAE_H
#define TSR_VAE_VAE_H

#include "model/blocks.h"
#include "model/config.h"

typedef tsr_tap tsr_vae_tap; /* "decoder.mid_block" */

/* in: f32 NCHW [N,L,h,w], multiplied by `scale` on the way in (1/scaling_factor); out: f32 NCHW
 * [N,3,h*f,w*f] when as_image is false, u8 [N,h*f,w*f,3] when true. Everything is in the loop
 * section (run_step(0)). */
tsr_status tsr_vae_decode_build(tsr_tape *t, tsr_component *c, const tsr_vae_config *cfg,
                                const int32_t latent_nhw[3], bool as_image, tsr_val *in,
                                tsr_val *out, tsr_vae_tap *taps, int32_t n_taps);
/* in: f32 NCHW [N,3,H,W] in [-1,1]; moments: f32 NCHW [N,2L,floor(H/f),floor(W/f)]: mean, then
 * logvar (not clamped). */
tsr_status tsr_vae_encode_build(tsr_tape *t, tsr_component *c, const tsr_vae_config *cfg,
                                const int32_t image_nhw[3], tsr_val *in, tsr_val *moments,
                                tsr_vae_tap *taps, int32_t n_taps);

#endif
