/* unet_transformer.c -- the spatial transformer, where the picture meets the prompt.
 *
 *   h = proj_in(norm(x)); for every layer:
 *     h += attn1(norm1(h))            among the picture's tokens
 *     h += attn2(norm2(h), prompt)    between picture and prompt
 *     h += ff.2(geglu(ff.0(norm3(h))))
 *   out = x + proj_out(h)
 *
 * Shapes: x and out [N,H,W,C], h [N,T,C] with tokens T = H*W, prompt [N,S,1,D]. proj_in and
 * proj_out are 1x1 convolutions in some checkpoints (SD1) and linear layers in others (SD2, SDXL):
 * the same sums, one op. Keys and values of the prompt are the same in every step and are made
 * before the loop.
 *
 * Precision: attention's softmax and all its sums are f32 on every backend, whatever the storage,
 * so a config's upcast_attention asks for nothing more.
 * Source: "High-Resolution Image Synthesis with Latent Diffusion Models" (Rombach et al., 2022),
 * section 3.3; "GLU Variants Improve Transformer" (Shazeer, 2020); diffusers' Transformer2DModel
 * and BasicTransformerBlock. */
#include "unet/unet_internal.h"

static const float GROUP_NORM_EPS = 1e-6f, LAYER_NORM_EPS = 1e-5f;
enum { FEED_FORWARD_FACTOR = 4 };

/* Layer k of the block, counted through all its transformers. */
static tsr_scope layer_scope(const tsr_unet *u, const tsr_unet_block *b, int32_t k)
{
    return tsr_scope_in(&u->root, "%s.attentions.%d.transformer_blocks.%d", b->path,
                        k / b->n_layers, k % b->n_layers);
}

/* Keys and values of x [N,S,1,D] for attention `s`. */
static tsr_status keys_values(const tsr_scope *s, int32_t c, tsr_val x, tsr_unet_kv *kv)
{
    tsr_linear_desc in = {.x = x};

    TSR_TRY(tsr_block_linear(s, "to_k", c, false, &in, &kv->k)); // [N,S,1,C]
    return tsr_block_linear(s, "to_v", c, false, &in, &kv->v);   // [N,S,1,C]
}

/* h += to_out(attention(to_q(x), k, v)) */
static tsr_status attend(const tsr_scope *s, const tsr_unet_block *b, tsr_val x,
                         const tsr_unet_kv *kv, tsr_val *h)
{
    tsr_attention_desc a = {.k = kv->k, .v = kv->v, .n_heads = b->n_heads};
    tsr_linear_desc in = {.x = x}, out = {.residual = *h};

    TSR_TRY(tsr_block_linear(s, "to_q", b->co, false, &in, &a.q)); // [N,T,C]
    TSR_TRY(tsr_block_attention(s, &a, &out.x));                   // [N,T,C]
    return tsr_block_linear(s, "to_out.0", b->co, true, &out, h);  // [N,T,C]
}

static tsr_status feed_forward(const tsr_scope *s, int32_t c, tsr_val *h)
{
    tsr_linear_desc in = {.geglu = true}, out = {.residual = *h};
    int32_t inner = FEED_FORWARD_FACTOR * c;

    TSR_TRY(tsr_block_layer_norm(s, "norm3", *h, LAYER_NORM_EPS, &in.x));    // [N,T,C]
    TSR_TRY(tsr_block_linear(s, "ff.net.0.proj", inner, true, &in, &out.x)); // [N,T,4*C]
    return tsr_block_linear(s, "ff.net.2", c, true, &out, h);                // [N,T,C]
}

static tsr_status layer_build(const tsr_scope *s, const tsr_unet_block *b,
                              const tsr_unet_kv *prompt, tsr_val *h)
{
    tsr_scope attn1 = tsr_scope_in(s, "attn1"), attn2 = tsr_scope_in(s, "attn2");
    tsr_unet_kv picture;
    tsr_val x;

    TSR_TRY(tsr_block_layer_norm(s, "norm1", *h, LAYER_NORM_EPS, &x)); // [N,T,C]
    TSR_TRY(keys_values(&attn1, b->co, x, &picture));                  // [N,T,C]
    TSR_TRY(attend(&attn1, b, x, &picture, h));                        // [N,T,C]
    TSR_TRY(tsr_block_layer_norm(s, "norm2", *h, LAYER_NORM_EPS, &x)); // [N,T,C]
    TSR_TRY(attend(&attn2, b, x, prompt, h));                          // [N,T,C]
    return feed_forward(s, b->co, h);                                  // [N,T,C]
}

tsr_status tsr_unet_transformer_build(tsr_unet *u, const tsr_unet_block *b, int32_t i, tsr_val x,
                                      tsr_val *out)
{
    tsr_scope s = tsr_scope_in(&u->root, "%s.attentions.%d", b->path, i);
    tsr_group_norm_desc norm = {.x = x, .groups = u->cfg->groups, .eps = GROUP_NORM_EPS};
    tsr_linear_desc in = {0}, last = {.residual = x};

    TSR_TRY(tsr_block_group_norm(&s, "norm", &norm, &in.x));             // [N,H,W,C]
    TSR_TRY(tsr_block_linear(&s, "proj_in", b->co, true, &in, &last.x)); // [N,T,C]
    for (int32_t k = i * b->n_layers; k < (i + 1) * b->n_layers; k++) {
        tsr_scope layer = layer_scope(u, b, k);
        TSR_TRY(layer_build(&layer, b, &u->prompt[b->first_layer + k], &last.x)); // [N,T,C]
    }
    TSR_TRY(tsr_block_linear(&s, "proj_out", b->co, true, &last, out)); // [N,H,W,C]
    tsr_scope_tap(&s, "", *out);
    return TSR_OK;
}

tsr_status tsr_unet_prompt_build(tsr_unet *u, tsr_val context)
{
    for (int32_t i = 0; i < u->n_blocks; i++) {
        const tsr_unet_block *b = &u->blocks[i];
        for (int32_t k = 0; k < b->n_transformers * b->n_layers; k++) {
            tsr_scope layer = layer_scope(u, b, k);
            tsr_scope attn2 = tsr_scope_in(&layer, "attn2");
            TSR_TRY(keys_values(&attn2, b->co, context,
                                &u->prompt[b->first_layer + k])); // [N,S,1,C]
        }
    }
    return TSR_OK;
}
