/* clip.c -- CLIP's text transformer, layer by layer.
 *
 *   x = token embeddings + position embeddings
 *   x = x + out_proj(attention(layer_norm1(x)))     every layer; the mask is causal
 *   x = x + fc2(act(fc1(layer_norm2(x))))
 *   hidden = [final_layer_norm of] the x that the asked layer made
 *   pooled = [text_projection of] the end token's row of final_layer_norm(x)
 *
 * Shapes: x [N,S,1,D]. The token table is no weight of the tape: the rows in use are the input, so
 * that 76 MB of SD1.5's text encoder are never read. Layers that nothing needs are not recorded.
 * Sources: see clip.h; what is taken for clip skip k is that of diffusers' pipelines: SD
 * final_layer_norm(hidden_states[-(k + 1)]), SDXL hidden_states[-(k + 2)] as it is. */
#include "text/clip.h"

static tsr_status layer(const tsr_scope *root, const tsr_clip_config *cfg, int32_t i, tsr_val *x)
{
    tsr_scope s = tsr_scope_in(root, "text_model.encoder.layers.%d", i);
    tsr_scope attn = tsr_scope_in(&s, "self_attn"), mlp = tsr_scope_in(&s, "mlp");
    tsr_attention_desc a = {.n_heads = cfg->heads, .causal = true};
    tsr_linear_desc in = {0}, proj = {.residual = *x}, fc1 = {0}, fc2 = {0};
    int32_t d = cfg->width;

    TSR_TRY(tsr_block_layer_norm(&s, "layer_norm1", *x, cfg->eps, &in.x)); // [N,S,1,D]
    TSR_TRY(tsr_block_linear(&attn, "q_proj", d, true, &in, &a.q));        // [N,S,1,D]
    TSR_TRY(tsr_block_linear(&attn, "k_proj", d, true, &in, &a.k));        // [N,S,1,D]
    TSR_TRY(tsr_block_linear(&attn, "v_proj", d, true, &in, &a.v));        // [N,S,1,D]
    TSR_TRY(tsr_block_attention(&attn, &a, &proj.x));                      // [N,S,1,D]
    TSR_TRY(tsr_block_linear(&attn, "out_proj", d, true, &proj, x));       // [N,S,1,D]
    fc1.act = cfg->quick_gelu ? TSR_ACT_QUICK_GELU : TSR_ACT_GELU;
    fc2.residual = *x;
    TSR_TRY(tsr_block_layer_norm(&s, "layer_norm2", *x, cfg->eps, &fc1.x));        // [N,S,1,D]
    TSR_TRY(tsr_block_linear(&mlp, "fc1", cfg->intermediate, true, &fc1, &fc2.x)); // [N,S,1,4*D]
    return tsr_block_linear(&mlp, "fc2", d, true, &fc2, x);                        // [N,S,1,D]
}

/* Makes the input of token embeddings and adds the positions'. */
static tsr_status embed(const tsr_scope *root, const tsr_clip_config *cfg,
                        const tsr_clip_shape *shape, tsr_clip_io *io, tsr_val *x)
{
    static const char scope[] = "text_model.embeddings";
    int32_t tokens[2] = {cfg->vocab, cfg->width}, table[2] = {cfg->positions, cfg->width};
    int32_t input[4] = {shape->n, shape->s, 1, cfg->width};
    tsr_add_desc add = {0};

    TSR_TRY(tsr_component_expect(root->comp, scope, "token_embedding.weight", 2, tokens));
    TSR_TRY(tsr_component_weight(root->comp, root->tape, TSR_WEIGHT_VECTOR, scope,
                                 "position_embedding.weight", 2, table, &add.table)); // [Smax,D]
    TSR_TRY(tsr_tape_input(root->tape, input, root->tape->dtype, "embeds", &io->embeds));
    add.x = io->embeds;
    TSR_TRY(tsr_op_add(root->tape, &add, x)); // [N,S,1,D]
    tsr_scope_tap(root, "embeddings", *x);
    return TSR_OK;
}

static tsr_status final_norm(const tsr_scope *root, const tsr_clip_config *cfg, tsr_val x,
                             tsr_val *out)
{
    return tsr_block_layer_norm(root, "text_model.final_layer_norm", x, cfg->eps, out);
}

/* The pooled output from the normed last layer. */
static tsr_status pool(const tsr_scope *root, const tsr_clip_config *cfg, int32_t n, tsr_val normed,
                       tsr_clip_io *io)
{
    int32_t rows[4] = {n, 1, 1, 1};
    tsr_linear_desc proj = {0};

    TSR_TRY(tsr_tape_input(root->tape, rows, TSR_I32, "eot", &io->eot));
    TSR_TRY(tsr_op_gather_row(root->tape, normed, io->eot, &io->pooled)); // [N,1,1,D]
    if (cfg->with_projection) {
        proj.x = io->pooled;
        TSR_TRY(tsr_block_linear(root, "text_projection", cfg->projection_dim, false, &proj,
                                 &io->pooled)); // [N,1,1,P]
    }
    tsr_tape_output(root->tape, io->pooled, "pooled");
    return TSR_OK;
}

tsr_status tsr_clip_build(tsr_tape *t, tsr_component *c, const tsr_clip_config *cfg,
                          const tsr_clip_shape *shape, tsr_clip_io *io, tsr_tap *taps,
                          int32_t n_taps)
{
    tsr_scope root = {.tape = t, .comp = c, .taps = taps, .n_taps = taps ? n_taps : 0};
    int32_t taken = cfg->layers - shape->skip; /* hidden is what so many layers made */
    int32_t n_layers = shape->pooled ? cfg->layers : taken;
    tsr_val x, last;

    *io = (tsr_clip_io){0};
    if (shape->skip < 0 || taken < 0 || shape->s > cfg->positions)
        TSR_FAIL(t->err, TSR_E_USAGE,
                 "a text encoder of %d layers and %d positions cannot skip %d or take %d tokens",
                 (int)cfg->layers, (int)cfg->positions, (int)shape->skip, (int)shape->s);
    TSR_TRY(embed(&root, cfg, shape, io, &x)); // [N,S,1,D]
    io->hidden = x;
    for (int32_t i = 0; i < n_layers; i++) {
        tsr_scope tap = tsr_scope_in(&root, "layer%d", (int)i);
        TSR_TRY(layer(&root, cfg, i, &x)); // [N,S,1,D]
        tsr_scope_tap(&tap, "", x);
        io->hidden = i < taken ? x : io->hidden;
    }
    last = x;
    if (shape->pooled)
        TSR_TRY(final_norm(&root, cfg, x, &last)); // [N,S,1,D]
    if (shape->final_norm && shape->pooled && shape->skip == 0)
        io->hidden = last;
    else if (shape->final_norm)
        TSR_TRY(final_norm(&root, cfg, io->hidden, &io->hidden)); // [N,S,1,D]
    tsr_tape_output(t, io->hidden, "hidden");
    return shape->pooled ? pool(&root, cfg, shape->n, last, io) : TSR_OK;
}

/* Rows one at a time, through `row`: the table's rows are small and scattered. */
tsr_status tsr_clip_read_embeds(tsr_component *c, const tsr_clip_config *cfg, const int32_t *ids,
                                int32_t n_ids, tsr_dtype dtype, void *dst, float *row, tsr_err *err)
{
    size_t width = (size_t)cfg->width, bytes = width * tsr_dtype_size(dtype);

    for (int32_t i = 0; i < n_ids; i++) {
        TSR_TRY(tsr_component_read_rows(c, "text_model.embeddings.token_embedding.weight", &ids[i],
                                        1, cfg->width, row, err));
        tsr_from_f32((char *)dst + (size_t)i * bytes, dtype, row, width);
    }
    return TSR_OK;
}

int32_t tsr_clip_eot(const tsr_clip_config *cfg, const int32_t *ids, int32_t s)
{
    int32_t best = 0;

    for (int32_t i = 0; i < s; i++) {
        if (cfg->eos_token_id != 2 && ids[i] == cfg->eos_token_id)
            return i;
        if (cfg->eos_token_id == 2 && ids[i] > ids[best])
            best = i;
    }
    return best;
}
