/* unet_res.c -- the UNet's residual block: the shared one, with this step's row of the time
 * embedding.
 *
 * out = skip(x) + conv2(silu(norm2(conv1(silu(norm1(x))) + row)))
 * Shapes: x [N,H,W,C], or x and skip joined; row [Nt,1,1,Co]; out [N,H,W,Co]. */
#include "unet/unet_internal.h"

tsr_status tsr_unet_res_build(tsr_unet *u, const tsr_unet_block *b, int32_t i, tsr_val x,
                              tsr_val skip, tsr_val *out)
{
    tsr_scope s = tsr_scope_in(&u->root, "%s.resnets.%d", b->path, i);
    tsr_resnet_desc d = {
        .x = x, .x2 = skip, .co = b->co, .groups = u->cfg->groups, .eps = u->cfg->norm_eps};

    TSR_TRY(tsr_tape_step_view(s.tape, u->time_rows[b->first_resnet + i],
                               &d.add_channel)); // [Nt,1,1,Co]
    return tsr_block_resnet(&s, &d, out);        // [N,H,W,Co]
}
