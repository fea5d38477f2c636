/* unet_time.c -- all that follows from the timestep: computed once for all steps, before the loop.
 *
 *   emb = linear_2(silu(linear_1(sinusoids(t) [+ cond_proj(guidance)])))          time_embedding
 *   SDXL: emb += linear_2(silu(linear_1(text_embeds ++ sinusoids(time_ids))))     add_embedding
 *   then for every residual block: row = time_emb_proj(silu(emb))
 *
 * R = n_steps * Nt rows of emb [R,1,1,E], step by step: Nt is 1, and in SDXL, where the prompt is
 * in it, the number of prompts. Nothing of it depends on the latents, so the loop only looks rows
 * up. The embedding is kept in f32 (a few
 * hundred rows at most); the projected rows stay for the whole run and have the tape's dtype.
 *
 * Source: "Attention Is All You Need" (Vaswani et al., 2017) for the sinusoids; "SDXL" (Podell et
 * al., 2023), section 2.2, for the size conditions; diffusers' TimestepEmbedding. */
#include "unet/unet_internal.h"

/* x -> linear_2(silu(linear_1(x, x2))) in f32; `module` is "time_embedding" or "add_embedding". */
static tsr_status embedding_mlp(tsr_unet *u, const char *module, tsr_val x, tsr_val x2,
                                tsr_val *out)
{
    tsr_scope s = tsr_scope_in(&u->root, "%s", module);
    int32_t e = u->cfg->time_embed_dim;
    tsr_linear_desc first = {.x = x, .x2 = x2, .act = TSR_ACT_SILU, .out_dtype = TSR_F32};
    tsr_val h;

    TSR_TRY(tsr_block_linear(&s, "linear_1", e, true, &first, &h)); // [R,1,1,E]
    TSR_TRY(tsr_block_linear(&s, "linear_2", e, true,
                             &(tsr_linear_desc){.x = h, .out_dtype = TSR_F32}, out)); // [R,1,1,E]
    tsr_scope_tap(&s, "", *out);
    return TSR_OK;
}

static tsr_status sinusoids(tsr_unet *u, const char *module, tsr_val x, int32_t dim, tsr_val *out)
{
    tsr_time_embed_desc d = {.x = x,
                             .dim = dim,
                             .flip_sin_to_cos = u->cfg->flip_sin_to_cos,
                             .freq_shift = u->cfg->freq_shift};

    TSR_TRY(tsr_tape_set_scope(u->root.tape, module));
    TSR_TRY(tsr_op_time_embed(u->root.tape, &d, out)); // [N,1,1,K*dim] f32
    tsr_scope_tap(&u->root, module, *out);
    return TSR_OK;
}

/* x [N,1,1,C] in the tape's dtype. For one pixel the conversions between NCHW and NHWC move
 * nothing: they are the ops that convert. */
static tsr_status convert(tsr_unet *u, const char *module, tsr_val x, tsr_val *out)
{
    tsr_val nchw;

    TSR_TRY(tsr_tape_set_scope(u->root.tape, module));
    TSR_TRY(tsr_op_latent_out(u->root.tape, x, &nchw));     // [N,C,1,1] f32
    return tsr_op_latent_in(u->root.tape, nchw, 1.0f, out); // [N,1,1,C]
}

/* x + y for every step of x [R,1,1,C] and every prompt of y [Pc,1,1,C]. */
static tsr_status add_to_steps(tsr_unet *u, const char *module, tsr_val x, tsr_val y, tsr_val *out)
{
    tsr_add_desc d = {.x = x};

    TSR_TRY(convert(u, module, y, &d.y));     // [Pc,1,1,C]
    return tsr_op_add(u->root.tape, &d, out); // [R*Pc,1,1,C] f32
}

/* LCM's guidance embedding: the same for all steps, added before the first layer. */
static tsr_status add_guidance(tsr_unet *u, tsr_unet_io *io, tsr_val *time)
{
    tsr_scope s = tsr_scope_in(&u->root, "time_embedding");
    tsr_val cond;

    TSR_TRY(tsr_tape_input(u->root.tape, (int32_t[]){1, 1, 1, u->cfg->time_cond_proj_dim}, TSR_F32,
                           "guidance_cond", &io->guidance_cond)); // [1,1,1,P] f32
    TSR_TRY(tsr_block_linear(&s, "cond_proj", u->cfg->channels[0], false,
                             &(tsr_linear_desc){.x = io->guidance_cond}, &cond)); // [1,1,1,C]
    return add_to_steps(u, "time_embedding", *time, cond, time);                  // [R,1,1,C] f32
}

/* SDXL's size conditions and pooled prompt, the same for all steps. */
static tsr_status add_text_time(tsr_unet *u, tsr_unet_io *io, tsr_val *emb)
{
    const tsr_unet_config *cfg = u->cfg;
    int32_t dim = cfg->addition_time_embed_dim;
    tsr_val ids, aug;

    TSR_TRY(tsr_tape_input_grid(u->root.tape, &u->of_prompts,
                                (int32_t[]){1, 1, cfg->projection_input_dim - 6 * dim},
                                u->root.tape->dtype, "text_embeds",
                                &io->text_embeds)); // [Pc,1,1,Dp]
    TSR_TRY(tsr_tape_input_grid(u->root.tape, &u->of_prompts, (int32_t[]){1, 1, 6}, TSR_F32,
                                "time_ids", &io->time_ids));                // [Pc,1,1,6] f32
    TSR_TRY(sinusoids(u, "add_time_proj", io->time_ids, dim, &ids));        // [Pc,1,1,6*dim] f32
    TSR_TRY(convert(u, "add_time_proj", ids, &ids));                        // [Pc,1,1,6*dim]
    TSR_TRY(embedding_mlp(u, "add_embedding", io->text_embeds, ids, &aug)); // [Pc,1,1,E] f32
    return add_to_steps(u, "add_embedding", *emb, aug, emb);                // [R,1,1,E] f32
}

/* Every residual block's projection of all rows. */
static tsr_status project_rows(tsr_unet *u, tsr_val emb)
{
    tsr_linear_desc d = {.x = emb, .pre = TSR_ACT_SILU, .out_dtype = u->root.tape->dtype};

    for (int32_t i = 0; i < u->n_blocks; i++) {
        const tsr_unet_block *b = &u->blocks[i];
        for (int32_t k = 0; k < b->n_resnets; k++) {
            tsr_scope s = tsr_scope_in(&u->root, "%s.resnets.%d", b->path, k);
            TSR_TRY(tsr_block_linear(&s, "time_emb_proj", b->co, true, &d,
                                     &u->time_rows[b->first_resnet + k])); // [R,1,1,Co]
        }
    }
    return TSR_OK;
}

tsr_status tsr_unet_time_build(tsr_unet *u, tsr_unet_io *io)
{
    const tsr_unet_shape *s = u->shape;
    tsr_entries rows = {s->n_steps, 1, s->own_timesteps ? s->pictures : 1};
    tsr_val time, emb;

    TSR_TRY(tsr_tape_input_grid(u->root.tape, &rows, (int32_t[]){1, 1, 1}, TSR_F32, "timesteps",
                                &io->timesteps));                                  // [R,1,1,1] f32
    TSR_TRY(sinusoids(u, "time_proj", io->timesteps, u->cfg->channels[0], &time)); // [R,1,1,C] f32
    if (u->cfg->time_cond_proj_dim > 0)
        TSR_TRY(add_guidance(u, io, &time));                    // [R,1,1,C] f32
    TSR_TRY(embedding_mlp(u, "time_embedding", time, 0, &emb)); // [R,1,1,E] f32
    if (u->cfg->text_time)
        TSR_TRY(add_text_time(u, io, &emb)); // [R,1,1,E] f32
    return project_rows(u, emb);
}
