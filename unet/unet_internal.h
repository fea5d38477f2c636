/* unet_internal.h -- what the files of unet/ share: the network's blocks as a table, and the
 * builder that records them. Private to the folder. */
#ifndef TSR_UNET_INTERNAL_H
#define TSR_UNET_INTERNAL_H

#include "unet/unet.h"

enum { TSR_UNET_MAX_BLOCKS = 2 * TSR_MAX_LEVELS + 1 };

typedef enum tsr_unet_part { TSR_UNET_DOWN, TSR_UNET_MID, TSR_UNET_UP } tsr_unet_part;

/* One of down_blocks.i, mid_block, up_blocks.i: `n_resnets` residual blocks of width `co`, a
 * transformer after each of the first `n_transformers` of them. */
typedef struct tsr_unet_block {
    tsr_unet_part part;
    char path[24]; /* "down_blocks.0" */
    int32_t co;
    int32_t n_resnets, n_transformers;
    int32_t n_layers; /* in each transformer */
    int32_t n_heads, context_dim;
    bool resample;                     /* ends in a downsampler or an upsampler */
    int32_t first_resnet, first_layer; /* of this block in tsr_unet's tables */
} tsr_unet_block;

/* Keys and values for one attention, [N,S,1,C] each. */
typedef struct tsr_unet_kv {
    tsr_val k, v;
} tsr_unet_kv;

typedef struct tsr_unet {
    tsr_scope root;
    const tsr_unet_config *cfg;
    const tsr_unet_shape *shape;
    tsr_unet_block blocks[TSR_UNET_MAX_BLOCKS]; /* in the order of the data */
    int32_t n_blocks, n_resnets, n_layers;
    tsr_entries of_prompts; /* what is given with the prompts: [Pc] */
    /* made by the prologue */
    tsr_val *time_rows;  /* [n_resnets] of [n_steps*Nt,1,1,Co] */
    tsr_unet_kv *prompt; /* [n_layers]: the prompt, for attn2 */
    /* what the way down leaves for the way up: a stack */
    tsr_val *skips;
    int32_t n_skips;
} tsr_unet;

/* unet_layout.c: the blocks that a config describes, and the tables that go with them. */
tsr_status tsr_unet_layout_make(tsr_unet *u);
void tsr_unet_layout_free(tsr_unet *u);

/* unet_time.c: everything that follows from the timesteps, for all steps. Sets the inputs
 * timesteps, text_embeds, time_ids and guidance_cond of *io. */
tsr_status tsr_unet_time_build(tsr_unet *u, tsr_unet_io *io);

/* unet_res.c: residual block i of `b`, on x or on (x, skip) joined. */
tsr_status tsr_unet_res_build(tsr_unet *u, const tsr_unet_block *b, int32_t i, tsr_val x,
                              tsr_val skip, tsr_val *out);

/* unet_transformer.c: all transformers' keys and values of the prompt [N,S,1,D]; and transformer
 * i of `b`. */
tsr_status tsr_unet_prompt_build(tsr_unet *u, tsr_val context);
tsr_status tsr_unet_transformer_build(tsr_unet *u, const tsr_unet_block *b, int32_t i, tsr_val x,
                                      tsr_val *out);

/* unet_down.c, unet_mid.c, unet_up.c: *x is replaced by the block's output. */
tsr_status tsr_unet_down_build(tsr_unet *u, const tsr_unet_block *b, tsr_val *x);
tsr_status tsr_unet_mid_build(tsr_unet *u, const tsr_unet_block *b, tsr_val *x);
tsr_status tsr_unet_up_build(tsr_unet *u, const tsr_unet_block *b, tsr_val *x);

#endif
