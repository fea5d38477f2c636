/* config_parts.c -- do the parts of a model fit each other?
 *
 * Each config was checked by itself; here are the numbers that two of them must agree on. A UNet
 * that takes more than the latents is another kind of model, which is said by its usual name. */
#include "model/config.h"

static tsr_status check_latents(const tsr_unet_config *u, const tsr_vae_config *v, tsr_err *err)
{
    int32_t latent = v->latent_channels;

    if (u->in_channels == 2 * latent + 1)
        TSR_FAIL(err, TSR_E_MODEL,
                 "unet/config.json: in_channels %d with %d latent channels is an inpainting model, "
                 "which is not "
                 "there yet",
                 (int)u->in_channels, (int)latent);
    if (u->in_channels == 2 * latent)
        TSR_FAIL(err, TSR_E_MODEL,
                 "unet/config.json: in_channels %d with %d latent channels is an image editing "
                 "model, which is "
                 "not there yet",
                 (int)u->in_channels, (int)latent);
    if (u->in_channels != latent || u->out_channels != latent)
        TSR_FAIL(err, TSR_E_MODEL,
                 "unet/config.json has in_channels %d and out_channels %d, but vae/config.json has "
                 "latent_channels %d; "
                 "they are not of one model",
                 (int)u->in_channels, (int)u->out_channels, (int)latent);
    return TSR_OK;
}

static tsr_status check_context(const tsr_unet_config *u, int32_t width, tsr_err *err)
{
    for (int32_t i = 0; i < u->n_levels; i++)
        if (tsr_unet_level_attends(u, i) && u->cross_attention_dim[i] != width)
            TSR_FAIL(err, TSR_E_MODEL,
                     "unet/config.json has cross_attention_dim %d, but the text encoder's output "
                     "is %d wide; "
                     "they are not of one model",
                     (int)u->cross_attention_dim[i], (int)width);
    return TSR_OK;
}

static tsr_status check_xl(const tsr_unet_config *u, const tsr_clip_config *te1,
                           const tsr_clip_config *te2, tsr_err *err)
{
    int64_t input = 6 * (int64_t)u->addition_time_embed_dim + te2->projection_dim;

    if (!te2->with_projection)
        TSR_FAIL(err, TSR_E_MODEL, "text_encoder_2 must be a CLIPTextModelWithProjection");
    if (te1->positions != te2->positions)
        TSR_FAIL(err, TSR_E_MODEL,
                 "text_encoder/config.json has max_position_embeddings %d and text_encoder_2 %d; "
                 "they must be "
                 "equal",
                 (int)te1->positions, (int)te2->positions);
    if (u->projection_input_dim != input)
        TSR_FAIL(err, TSR_E_MODEL,
                 "unet/config.json has projection_class_embeddings_input_dim %d, but 6 * "
                 "addition_time_embed_dim + text_encoder_2's projection_dim is %lld",
                 (int)u->projection_input_dim, (long long)input);
    return TSR_OK;
}

tsr_status tsr_model_check_parts(const tsr_unet_config *u, const tsr_vae_config *v,
                                 const tsr_clip_config *te1, const tsr_clip_config *te2,
                                 const tsr_model_index *index, tsr_err *err)
{
    TSR_TRY(check_latents(u, v, err));
    TSR_TRY(check_context(u, te1->width + (te2 ? te2->width : 0), err));
    if (u->text_time != (te2 != NULL))
        TSR_FAIL(err, TSR_E_MODEL,
                 "unet/config.json: addition_embed_type is %s, but %s has %s text encoder%s; they "
                 "are not of "
                 "one model",
                 u->text_time ? "\"text_time\"" : "null", index->pipeline, te2 ? "two" : "one",
                 te2 ? "s" : "");
    return te2 ? check_xl(u, te1, te2, err) : TSR_OK;
}
