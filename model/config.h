/* config.h -- the configs of a diffusers directory as plain structs.
 *
 * Read with cJSON (bounded size), every field checked; a value that would change the computation
 * and is not supported is refused by its name ("unet/config.json: class_embed_type \"timestep\"
 * is not supported"). Unknown keys are ignored, with a warning where they are set; absent keys have
 * diffusers' defaults. */
#ifndef TSR_MODEL_CONFIG_H
#define TSR_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

enum { TSR_MAX_LEVELS = 8, TSR_MAX_TRANSFORMER_LAYERS = 32 };

typedef struct tsr_unet_config {
    int32_t sample_size[2]; /* h, w of the native latents */
    int32_t in_channels, out_channels;
    int32_t n_levels;
    int32_t channels[TSR_MAX_LEVELS]; /* block_out_channels */
    bool down_cross[TSR_MAX_LEVELS];  /* CrossAttnDownBlock2D, else DownBlock2D */
    bool up_cross[TSR_MAX_LEVELS];    /* in up_block_types' order (from the deepest) */
    bool mid_cross;                   /* UNetMidBlock2DCrossAttn; false: UNetMidBlock2D or none */
    bool has_mid;
    int32_t layers_per_block[TSR_MAX_LEVELS];
    int32_t
        n_heads[TSR_MAX_LEVELS]; /* attention_head_dim / num_attention_heads: the NUMBER of heads */
    int32_t transformer_layers[TSR_MAX_LEVELS];
    int32_t cross_attention_dim[TSR_MAX_LEVELS];
    int32_t groups;
    float norm_eps;
    bool use_linear_projection;
    bool upcast_attention;
    bool only_cross_attention[TSR_MAX_LEVELS];
    bool flip_sin_to_cos;
    float freq_shift;
    int32_t time_embed_dim; /* 4 * channels[0] unless given */
    bool text_time;         /* addition_embed_type "text_time" (SDXL) */
    int32_t addition_time_embed_dim, projection_input_dim;
    int32_t time_cond_proj_dim; /* LCM's guidance embedding; 0: none */
    int32_t conv_in_kernel, conv_out_kernel;
    float mid_block_scale_factor;
} tsr_unet_config;

typedef struct tsr_vae_config {
    int32_t in_channels, out_channels, latent_channels;
    int32_t n_levels;
    int32_t channels[TSR_MAX_LEVELS];
    int32_t layers_per_block, groups;
    int32_t sample_size;
    float scaling_factor, shift_factor; /* shift 0 when null */
    bool has_mean_std;                  /* latents_mean / latents_std */
    float latents_mean[64], latents_std[64];
    bool force_upcast, use_quant_conv, use_post_quant_conv, mid_attention;
    int32_t factor; /* 2^(n_levels-1): pixels a latent */
} tsr_vae_config;

typedef struct tsr_clip_config {
    int32_t vocab, width, layers, heads, intermediate, positions;
    int32_t projection_dim; /* used with_projection only */
    /* CLIPTextModelWithProjection. The class in model_index.json rules (text_encoder_2 has one,
     * text_encoder has none); a config may lack "architectures", which says it here. */
    bool with_projection;
    bool quick_gelu; /* else exact gelu */
    float eps;
    int32_t eos_token_id; /* 2: pooled row is the first argmax of the ids */
} tsr_clip_config;

typedef enum tsr_prediction {
    TSR_PREDICT_EPSILON,
    TSR_PREDICT_V,
    TSR_PREDICT_SAMPLE
} tsr_prediction;
typedef enum tsr_spacing {
    TSR_SPACING_LINSPACE,
    TSR_SPACING_LEADING,
    TSR_SPACING_TRAILING
} tsr_spacing;
typedef enum tsr_sigma_table {
    TSR_SIGMAS_DEFAULT,
    TSR_SIGMAS_KARRAS,
    TSR_SIGMAS_EXPONENTIAL,
    TSR_SIGMAS_BETA,
    TSR_SIGMAS_LU
} tsr_sigma_table;

/* scheduler_config.json is kept as raw text, since changing the scheduler means diffusers'
 * from_config: the new class's own defaults, overlaid by what the file says. scheduler/ parses it
 * (tsr_sched_config_from_json). */

typedef enum tsr_family {
    TSR_FAMILY_SD1,
    TSR_FAMILY_SD2,
    TSR_FAMILY_SDXL,
    TSR_FAMILY_OTHER
} tsr_family;

typedef struct tsr_model_index {
    char pipeline[64]; /* "StableDiffusionPipeline" */
    bool is_xl;
    bool has_text_encoder_2;
    bool force_zeros_for_empty_prompt; /* SDXL: true when absent, as in diffusers; else false */
    /* the model card: a "tessera" object; zero / -1 when not given */
    int32_t card_steps, card_width, card_height;
    float card_guidance;
    char card_scheduler[32];
} tsr_model_index;

tsr_status tsr_model_index_load(const char *dir, tsr_model_index *out, const tsr_log *log,
                                tsr_err *err);
tsr_status tsr_unet_config_load(const char *path, tsr_unet_config *out, const tsr_log *log,
                                tsr_err *err);
tsr_status tsr_vae_config_load(const char *path, tsr_vae_config *out, const tsr_log *log,
                               tsr_err *err);
tsr_status tsr_clip_config_load(const char *path, tsr_clip_config *out, const tsr_log *log,
                                tsr_err *err);

/* Checks the parts against each other: latent channels, context width (the sum of both encoders'
 * for SDXL), SDXL's added embedding. `te2` is NULL when there is one text encoder. */
tsr_status tsr_model_check_parts(const tsr_unet_config *unet, const tsr_vae_config *vae,
                                 const tsr_clip_config *te1, const tsr_clip_config *te2,
                                 const tsr_model_index *index, tsr_err *err);

/* Whether the level has cross-attention anywhere: down, up or (the deepest) in the middle. */
bool tsr_unet_level_attends(const tsr_unet_config *unet, int32_t level);

/* The loaders' work on text in memory (fuzzers; `name` is used in messages). */
tsr_status tsr_model_index_parse(const char *json, const char *name, tsr_model_index *out,
                                 const tsr_log *log, tsr_err *err);
tsr_status tsr_unet_config_parse(const char *json, const char *name, tsr_unet_config *out,
                                 const tsr_log *log, tsr_err *err);
tsr_status tsr_vae_config_parse(const char *json, const char *name, tsr_vae_config *out,
                                const tsr_log *log, tsr_err *err);
tsr_status tsr_clip_config_parse(const char *json, const char *name, tsr_clip_config *out,
                                 const tsr_log *log, tsr_err *err);

#endif
