/* unet_transformer.c -- the spatial transformer, where the picture meets the prompt.
 *
 *   h = proj_in(norm(x)); for every layer:
 *     h += attn1(norm1(h))            among the picture's tokens (or with the prompt: only_cross)
 *     h += attn2(norm2(h), prompt)    between picture and prompt
 *     h += ff.2(geglu(ff.0(norm3(h))))
 *   out = x + proj_out(h)
 *
 * Shapes: x and out [N,H,W,C] (tokens T = H*W), h [N,T,D] with D = heads * floor(C / heads), prompt
 * [N,S,1,Dc]. proj_in and proj_out are 1x1 convolutions in some checkpoints (SD1) and linear layers
 * in others (SD2, SDXL): the same sums, one op. Keys and values of the prompt are the same in every
 * step and are made before the loop.
 *
 * Precision: attention's softmax and all its sums are f32 on every backend, whatever the storage,
 * so a config's upcast_attention asks for nothing more.
 * Source: "High-Resolution Image Synthesis with Latent Diffusion Models" (Rombach et al., 2022),
 * section 3.3; "GLU Variants Improve Transformer" (Shazeer, 2020); diffusers' Transformer2DModel
 * and BasicTransformerBlock. */
#include "unet/unet_internal.h"

static const float GROUP_NORM_EPS = 1e-6f, LAYER_NORM_EPS = 1e-5f;
enum { FEED_FORWARD_FACTOR = 4 };

static int32_t inner_width(const tsr_unet_block *b)
{
    return b->co / b->n_heads * b->n_heads;
}

static tsr_scope layer_scope(const tsr_unet *u, const tsr_unet_block *b, int32_t i, int32_t layer)
{
    return tsr_scope_in(&u->root, "%s.attentions.%d.transformer_blocks.%d", b->path, i, layer);
}

static tsr_unet_prompt_kv *prompt_kv(const tsr_unet *u, const tsr_unet_block *b, int32_t i,
                                     int32_t layer)
{
    return &u->prompt[b->first_layer + i * b->n_layers + layer];
}

/* Keys and values of x [N,S,1,C] for the attention `s`. */
static tsr_status keys_values(const tsr_scope *s, int32_t d, tsr_val x, tsr_val *k, tsr_val *v)
{
    tsr_linear_desc in = {.x = x};

    TSR_TRY(tsr_block_linear(s, "to_k", d, false, &in, k)); // [N,S,1,D]
    return tsr_block_linear(s, "to_v", d, false, &in, v);   // [N,S,1,D]
}

/* h + to_out(attention(to_q(x), k, v)) */
static tsr_status attend(const tsr_scope *s, const tsr_unet_block *b, tsr_val x,
                         const tsr_val kv[2], tsr_val *h)
{
    tsr_attention_desc a = {.k = kv[0], .v = kv[1], .n_heads = b->n_heads};
    tsr_val y;

    TSR_TRY(tsr_block_linear(s, "to_q", inner_width(b), false, &(tsr_linear_desc){.x = x},
                             &a.q));         // [N,T,D]
    TSR_TRY(tsr_block_attention(s, &a, &y)); // [N,T,D]
    return tsr_block_linear(s, "to_out.0", inner_width(b), true,
                            &(tsr_linear_desc){.x = y, .residual = *h}, h); // [N,T,D]
}

static tsr_status feed_forward(const tsr_scope *s, int32_t d, tsr_val *h)
{
    tsr_val x;

    TSR_TRY(tsr_block_layer_norm(s, "norm3", *h, LAYER_NORM_EPS, &x)); // [N,T,D]
    TSR_TRY(tsr_block_linear(s, "ff.net.0.proj", FEED_FORWARD_FACTOR * d, true,
                             &(tsr_linear_desc){.x = x, .geglu = true}, &x)); // [N,T,4*D]
    return tsr_block_linear(s, "ff.net.2", d, true, &(tsr_linear_desc){.x = x, .residual = *h},
                            h); // [N,T,D]
}

static tsr_status layer_build(const tsr_scope *s, const tsr_unet_block *b,
                              const tsr_unet_prompt_kv *prompt, tsr_val *h)
{
    tsr_scope attn1 = tsr_scope_in(s, "attn1"), attn2 = tsr_scope_in(s, "attn2");
    tsr_val x, kv[2] = {prompt->k1, prompt->v1};

    TSR_TRY(tsr_block_layer_norm(s, "norm1", *h, LAYER_NORM_EPS, &x)); // [N,T,D]
    if (!b->only_cross)
        TSR_TRY(keys_values(&attn1, inner_width(b), x, &kv[0], &kv[1]));   // [N,T,D]
    TSR_TRY(attend(&attn1, b, x, kv, h));                                  // [N,T,D]
    TSR_TRY(tsr_block_layer_norm(s, "norm2", *h, LAYER_NORM_EPS, &x));     // [N,T,D]
    TSR_TRY(attend(&attn2, b, x, (tsr_val[]){prompt->k2, prompt->v2}, h)); // [N,T,D]
    return feed_forward(s, inner_width(b), h);                             // [N,T,D]
}

tsr_status tsr_unet_transformer_build(tsr_unet *u, const tsr_unet_block *b, int32_t i, tsr_val x,
                                      tsr_val *out)
{
    tsr_scope s = tsr_scope_in(&u->root, "%s.attentions.%d", b->path, i);
    tsr_group_norm_desc norm = {.x = x, .groups = u->cfg->groups, .eps = GROUP_NORM_EPS};
    tsr_val h;

    TSR_TRY(tsr_block_group_norm(&s, "norm", &norm, &h)); // [N,H,W,C]
    TSR_TRY(tsr_block_linear(&s, "proj_in", inner_width(b), true, &(tsr_linear_desc){.x = h},
                             &h)); // [N,T,D]
    for (int32_t layer = 0; layer < b->n_layers; layer++) {
        tsr_scope in = layer_scope(u, b, i, layer);
        TSR_TRY(layer_build(&in, b, prompt_kv(u, b, i, layer), &h)); // [N,T,D]
    }
    TSR_TRY(tsr_block_linear(&s, "proj_out", b->co, true, &(tsr_linear_desc){.x = h, .residual = x},
                             out)); // [N,H,W,C]
    tsr_scope_tap(&s, "", *out);
    return TSR_OK;
}

tsr_status tsr_unet_prompt_build(tsr_unet *u, tsr_val context)
{
    for (int32_t k = 0; k < u->n_blocks; k++) {
        const tsr_unet_block *b = &u->blocks[k];
        int32_t d = b->n_transformers > 0 ? inner_width(b) : 0;
        for (int32_t i = 0; i < b->n_transformers * b->n_layers; i++) {
            tsr_scope s = layer_scope(u, b, i / b->n_layers, i % b->n_layers);
            tsr_scope attn1 = tsr_scope_in(&s, "attn1"), attn2 = tsr_scope_in(&s, "attn2");
            tsr_unet_prompt_kv *p = &u->prompt[b->first_layer + i];
            if (b->only_cross)
                TSR_TRY(keys_values(&attn1, d, context, &p->k1, &p->v1)); // [N,S,1,D]
            TSR_TRY(keys_values(&attn2, d, context, &p->k2, &p->v2));     // [N,S,1,D]
        }
    }
    return TSR_OK;
}
