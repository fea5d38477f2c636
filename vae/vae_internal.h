/* vae_internal.h -- what encoder and decoder share. Private to the folder. */
#ifndef TSR_VAE_INTERNAL_H
#define TSR_VAE_INTERNAL_H

#include "vae/vae.h"

#define TSR_VAE_EPS 1e-6f /* of every norm in an AutoencoderKL */

/* vae_mid.c: "<s>.mid_block" on *x [N,H,W,C]. */
tsr_status tsr_vae_mid_build(const tsr_scope *s, const tsr_vae_config *cfg, tsr_val *x);

/* vae_parts.c: `n` residual blocks of width `co` in `s`, a block of the way up or down. */
tsr_status tsr_vae_resnets_build(const tsr_scope *s, const tsr_vae_config *cfg, int32_t n,
                                 int32_t co, tsr_val *x);
/* conv_norm_out, SiLU, conv_out. */
tsr_status tsr_vae_head_build(const tsr_scope *s, const tsr_vae_config *cfg, int32_t co,
                              tsr_dtype out_dtype, tsr_val *x);

#endif
