/* unet_build.c -- the whole UNet: what is made once, then one step.
 *
 * Once (prologue): every step's time embedding and its projections, the prompt's keys and values.
 * A step (loop): latents -> conv_in -> down -> mid -> up -> norm, SiLU, conv_out -> prediction.
 * Shapes: latents [N,C,H,W] f32 outside, [N,H,W,C] inside; a level down halves H and W (rounded
 * up). The prediction is f32 from conv_out on: it goes to the sampler without another rounding.
 * Pictures and guidance halves are entries of one batch, so that each weight that is read serves
 * all. What does not depend on the prompt, from conv_in to the first cross-attention, has one
 * entry a picture (SDXL: to the first residual block, whose time embedding has text in it); the
 * tape finds that out. */
#include "unet/unet_internal.h"

static tsr_status check_shape(const tsr_unet *u)
{
    const tsr_unet_shape *s = u->shape;

    if (s->pictures < 1 || s->prompts < 1 || s->n_steps < 1)
        TSR_FAIL(u->root.tape->err, TSR_E_INTERNAL,
                 "a UNet of %d pictures with %d prompts and %d steps", s->pictures, s->prompts,
                 s->n_steps);
    return TSR_OK;
}

/* What all steps share. */
static tsr_status prologue(tsr_unet *u, tsr_unet_io *io)
{
    const tsr_unet_shape *s = u->shape;
    int32_t d = 0;

    for (int32_t i = 0; i < u->n_blocks && d == 0; i++)
        d = u->blocks[i].n_transformers > 0 ? u->blocks[i].context_dim : 0;
    TSR_TRY(tsr_unet_time_build(u, io));
    if (d > 0) {
        TSR_TRY(tsr_tape_input_grid(u->root.tape, &u->of_prompts, (int32_t[]){s->s, 1, d},
                                    u->root.tape->dtype, "context", &io->context)); // [Pc,S,1,D]
        TSR_TRY(tsr_unet_prompt_build(u, io->context));
    }
    return TSR_OK;
}

static tsr_status block_build(tsr_unet *u, const tsr_unet_block *b, tsr_val *x)
{
    switch (b->part) {
    case TSR_UNET_DOWN:
        return tsr_unet_down_build(u, b, x);
    case TSR_UNET_MID:
        return tsr_unet_mid_build(u, b, x);
    default:
        return tsr_unet_up_build(u, b, x);
    }
}

static tsr_status step(tsr_unet *u, tsr_unet_io *io)
{
    const tsr_unet_config *cfg = u->cfg;
    const tsr_unet_shape *s = u->shape;
    tsr_group_norm_desc norm = {.groups = cfg->groups, .eps = cfg->norm_eps, .silu = true};
    tsr_conv_desc last = {.out_dtype = TSR_F32};
    tsr_val x;

    TSR_TRY(tsr_tape_input(u->root.tape, (int32_t[]){s->pictures, cfg->in_channels, s->h, s->w},
                           TSR_F32, "latents", &io->latents)); // [B,C,H,W] f32
    TSR_TRY(tsr_tape_set_scope(u->root.tape, "latents"));
    TSR_TRY(tsr_op_latent_in(u->root.tape, io->latents, 1.0f, &x)); // [B,H,W,C]
    TSR_TRY(tsr_block_conv2d(&u->root, "conv_in", cfg->channels[0], cfg->conv_in_kernel,
                             &(tsr_conv_desc){.x = x}, &x)); // [B,H,W,C0]
    u->skips[u->n_skips++] = x;
    for (int32_t i = 0; i < u->n_blocks; i++)
        TSR_TRY(block_build(u, &u->blocks[i], &x)); // [N,H,W,C0] in the end
    norm.x = x;
    TSR_TRY(tsr_block_group_norm(&u->root, "conv_norm_out", &norm, &last.x)); // [N,H,W,C0]
    TSR_TRY(tsr_block_conv2d(&u->root, "conv_out", cfg->out_channels, cfg->conv_out_kernel, &last,
                             &x)); // [N,H,W,Co] f32
    TSR_TRY(tsr_tape_set_scope(u->root.tape, "prediction"));
    TSR_TRY(tsr_op_latent_out(u->root.tape, x, &io->out)); // [N,Co,H,W] f32
    tsr_tape_output(u->root.tape, io->out, "prediction");
    return TSR_OK;
}

static tsr_status build(tsr_unet *u, tsr_unet_io *io)
{
    TSR_TRY(check_shape(u));
    TSR_TRY(tsr_unet_layout_make(u));
    TSR_TRY(prologue(u, io));
    tsr_tape_begin_loop(u->root.tape);
    return step(u, io);
}

tsr_status tsr_unet_build(tsr_tape *t, tsr_component *c, const tsr_unet_config *cfg,
                          const tsr_unet_shape *shape, tsr_unet_io *io, tsr_unet_tap *taps,
                          int32_t n_taps)
{
    tsr_unet u = {.root = {.tape = t, .comp = c, .taps = taps, .n_taps = taps ? n_taps : 0},
                  .cfg = cfg,
                  .shape = shape,
                  .of_prompts = {1, shape->prompts, shape->own_prompts ? shape->pictures : 1}};
    tsr_unet_io made = {0};
    tsr_status st = build(&u, &made);

    tsr_unet_layout_free(&u);
    if (st == TSR_OK)
        *io = made;
    return st;
}
