/* unet.h -- UNet2DConditionModel, recorded on a tape.
 *
 * Source: "High-Resolution Image Synthesis with Latent Diffusion Models" (Rombach et al.,
 * 2022) and diffusers' UNet2DConditionModel, whose tensor names are used. */
#ifndef TSR_UNET_UNET_H
#define TSR_UNET_UNET_H

#include "model/blocks.h"
#include "model/config.h"

/* Values that the caller fills and reads. B pictures go through the network together, each with P
 * prompts (guidance halves: unconditional first): entry p * B + b is picture b with prompt p. Pc
 * prompts are given: P that all pictures share, or P * B in the same order. */
typedef struct tsr_unet_io {
    /* inputs */
    tsr_val latents;       /* f32 NCHW [B,C,H,W], scaled for the model; filled before every step */
    tsr_val context;       /* [Pc,S,1,D] in the tape's dtype; used by the prologue only */
    tsr_val timesteps;     /* f32 [n_steps or n_steps*B,1,1,1]; used by the prologue only */
    tsr_val text_embeds;   /* [Pc,1,1,Dp] tape's dtype; SDXL only, else 0 */
    tsr_val time_ids;      /* f32 [Pc,1,1,6]; SDXL only, else 0 */
    tsr_val guidance_cond; /* f32 [1,1,1,time_cond_proj_dim], LCM's guidance embedding; else 0 */
    /* output */
    tsr_val out; /* f32 NCHW [P*B,Co,H,W] */
} tsr_unet_io;

typedef struct tsr_unet_shape {
    int32_t pictures;   /* B */
    int32_t prompts;    /* P: 2 with guidance */
    bool own_prompts;   /* every picture has prompts of its own */
    bool own_timesteps; /* every picture has timesteps of its own */
    int32_t h, w;       /* latents */
    int32_t s;          /* context tokens */
    int32_t n_steps;    /* how many time steps the prologue prepares */
} tsr_unet_shape;

typedef tsr_tap tsr_unet_tap; /* "down_blocks.0.resnets.1" */

/* Records the whole network: prologue (time embeddings and every resnet's projection of them for
 * all steps, every cross-attention's keys and values), then the loop section. `taps` may be NULL,
 * or receives the outputs of named modules for tests. Inputs that this network does not have are 0
 * in *io. TSR_E_MODEL by tensor name for a checkpoint that is not what the config says. */
tsr_status tsr_unet_build(tsr_tape *t, tsr_component *c, const tsr_unet_config *cfg,
                          const tsr_unet_shape *shape, tsr_unet_io *io, tsr_unet_tap *taps,
                          int32_t n_taps);

#endif
