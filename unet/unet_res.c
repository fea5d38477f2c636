/* unet_res.c -- the UNet's residual block: the shared one, with this step's row of the time
 * embedding.
 *
 * out = (skip(x) + conv2(silu(norm2(conv1(silu(norm1(x))) + row)))) / output_scale
 * Shapes: x [N,H,W,C], or x and skip joined; row [t_rows,1,1,Co]; out [N,H,W,Co]. */
#include "unet/unet_internal.h"

/* The two conversions at the network's ends are the tape's ops that scale, repeat entries and
 * change the dtype. For [n,1,1,C] they move nothing; for pictures only a config with an unusual
 * mid_block_scale_factor pays for the detour. */
tsr_status tsr_unet_rescale(tsr_unet *u, const char *name, tsr_val x, float scale, int32_t n_out,
                            tsr_val *out)
{
    tsr_val nchw;

    TSR_TRY(tsr_tape_set_scope(u->root.tape, name));
    TSR_TRY(tsr_op_latent_out(u->root.tape, x, &nchw));             // [n,C,H,W] f32
    return tsr_op_latent_in(u->root.tape, nchw, scale, n_out, out); // [n_out,H,W,C]
}

tsr_status tsr_unet_res_build(tsr_unet *u, const tsr_unet_block *b, int32_t i, tsr_val x,
                              tsr_val skip, tsr_val *out)
{
    tsr_scope s = tsr_scope_in(&u->root, "%s.resnets.%d", b->path, i);
    tsr_resnet_desc d = {
        .x = x, .x2 = skip, .co = b->co, .groups = u->cfg->groups, .eps = u->cfg->norm_eps};

    TSR_TRY(tsr_tape_step_view(s.tape, u->time_rows[b->first_resnet + i], u->shape->t_rows,
                               &d.add_channel)); // [t_rows,1,1,Co]
    TSR_TRY(tsr_block_resnet(&s, &d, out));      // [N,H,W,Co]
    if (b->output_scale != 1.0f) {
        TSR_TRY(tsr_unet_rescale(u, s.path, *out, 1.0f / b->output_scale, u->shape->n,
                                 out)); // [N,H,W,Co]
        tsr_scope_tap(&s, "", *out);
    }
    return TSR_OK;
}
