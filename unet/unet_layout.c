/* unet_layout.c -- the UNet's blocks as its config describes them, as one table.
 *
 * Every rule of the config is applied here and nowhere else: level l has channels[l]; the way down
 * has layers[l] residual blocks a level and a downsampler everywhere but at the deepest level; the
 * way up mirrors it from the deepest level with one residual block more (so that it takes every
 * skip) and an upsampler everywhere but at the end. With
 *   skips left: 1 (conv_in) + sum(layers) + (levels - 1), skips taken: sum(layers + 1)
 * the two are equal for every config. The middle has one residual block, or two around a
 * transformer.
 *
 * Source: diffusers' UNet2DConditionModel. */
#include "unet/unet_internal.h"

#include <stdio.h>

#include "base/alloc.h"

static tsr_unet_block *add_block(tsr_unet *u, tsr_unet_part part, int32_t level)
{
    const tsr_unet_config *cfg = u->cfg;
    tsr_unet_block *b = &u->blocks[u->n_blocks++];

    *b = (tsr_unet_block){.part = part,
                          .co = cfg->channels[level],
                          .n_layers = cfg->transformer_layers[level],
                          .n_heads = cfg->n_heads[level],
                          .context_dim = cfg->cross_attention_dim[level]};
    return b;
}

/* Numbers the block's residual blocks and transformer layers behind those before it. */
static void number_parts(tsr_unet *u, tsr_unet_block *b)
{
    b->first_resnet = u->n_resnets;
    b->first_layer = u->n_layers;
    u->n_resnets += b->n_resnets;
    u->n_layers += b->n_transformers * b->n_layers;
}

static void add_down(tsr_unet *u, int32_t level)
{
    tsr_unet_block *b = add_block(u, TSR_UNET_DOWN, level);

    snprintf(b->path, sizeof b->path, "down_blocks.%d", level);
    b->n_resnets = u->cfg->layers_per_block[level];
    b->n_transformers = u->cfg->down_cross[level] ? b->n_resnets : 0;
    b->resample = level < u->cfg->n_levels - 1;
    number_parts(u, b);
}

static void add_mid(tsr_unet *u)
{
    tsr_unet_block *b = add_block(u, TSR_UNET_MID, u->cfg->n_levels - 1);

    snprintf(b->path, sizeof b->path, "mid_block");
    b->n_resnets = u->cfg->mid_cross ? 2 : 1;
    b->n_transformers = b->n_resnets - 1;
    number_parts(u, b);
}

static void add_up(tsr_unet *u, int32_t i)
{
    int32_t level = u->cfg->n_levels - 1 - i;
    tsr_unet_block *b = add_block(u, TSR_UNET_UP, level);

    snprintf(b->path, sizeof b->path, "up_blocks.%d", i);
    b->n_resnets = u->cfg->layers_per_block[level] + 1;
    b->n_transformers = u->cfg->up_cross[i] ? b->n_resnets : 0;
    b->resample = level > 0;
    number_parts(u, b);
}

tsr_status tsr_unet_layout_make(tsr_unet *u)
{
    const tsr_unet_config *cfg = u->cfg;

    for (int32_t level = 0; level < cfg->n_levels; level++)
        add_down(u, level);
    if (cfg->has_mid)
        add_mid(u);
    for (int32_t i = 0; i < cfg->n_levels; i++)
        add_up(u, i);
    u->time_rows = tsr_calloc((size_t)u->n_resnets, sizeof *u->time_rows);
    u->skips = tsr_calloc((size_t)u->n_resnets + 1, sizeof *u->skips);
    u->prompt = tsr_calloc((size_t)u->n_layers + 1, sizeof *u->prompt);
    if (!u->time_rows || !u->skips || !u->prompt)
        TSR_FAIL(u->root.tape->err, TSR_E_OOM, "no memory for the UNet's table of blocks");
    return TSR_OK;
}

void tsr_unet_layout_free(tsr_unet *u)
{
    tsr_free(u->time_rows);
    tsr_free(u->skips);
    tsr_free(u->prompt);
}
