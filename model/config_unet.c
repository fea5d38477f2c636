/* config_unet.c -- unet/config.json of a diffusers directory: UNet2DConditionModel.
 *
 * The class has some fifty fields, grown over years. Each one that changes the computation is
 * either carried into tsr_unet_config or must have its neutral value; defaults are those of the
 * class's constructor, since old configs leave most fields out. Two oddities are diffusers' own:
 * "attention_head_dim" is the NUMBER of heads (unless "num_attention_heads" is given), and up
 * blocks are listed from the deepest level.
 *
 * Source: UNet2DConditionModel.__init__ of diffusers 0.42. */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "model/config_json.h"

enum {
    MAX_CHANNELS = 16384,
    MAX_LAYERS = 16,
    MAX_KERNEL = 7,
    MAX_SAMPLE = 4096,
    MAX_TIME_DIM = 1 << 16
};

static const int32_t channel_range[2] = {1, MAX_CHANNELS};
static const int32_t layer_range[2] = {1, MAX_LAYERS};
static const int32_t time_range[2] = {1, MAX_TIME_DIM};
static const int32_t sample_range[2] = {1, MAX_SAMPLE};

static const tsr_cfg_fixed fixed_fields[] = {
    {.key = "act_fn", .kind = TSR_CFG_WORD, .words = "silu|swish"},
    {.key = "attention_type", .kind = TSR_CFG_WORD, .words = "default"},
    {.key = "resnet_time_scale_shift", .kind = TSR_CFG_WORD, .words = "default"},
    {.key = "time_embedding_type", .kind = TSR_CFG_WORD, .words = "positional"},
    {.key = "center_input_sample", .kind = TSR_CFG_OFF},
    {.key = "class_embed_type", .kind = TSR_CFG_OFF},
    {.key = "class_embeddings_concat", .kind = TSR_CFG_OFF},
    {.key = "num_class_embeds", .kind = TSR_CFG_OFF},
    {.key = "cross_attention_norm", .kind = TSR_CFG_OFF},
    {.key = "dual_cross_attention", .kind = TSR_CFG_OFF},
    {.key = "encoder_hid_dim", .kind = TSR_CFG_OFF},
    {.key = "encoder_hid_dim_type", .kind = TSR_CFG_OFF},
    {.key = "mid_block_only_cross_attention", .kind = TSR_CFG_OFF},
    {.key = "resnet_skip_time_act", .kind = TSR_CFG_OFF},
    {.key = "time_embedding_act_fn", .kind = TSR_CFG_OFF},
    {.key = "timestep_post_act", .kind = TSR_CFG_OFF},
    {.key = "downsample_padding", .kind = TSR_CFG_NUMBER, .number = 1},
    {.key = "mid_block_scale_factor", .kind = TSR_CFG_NUMBER, .number = 1},
    {.key = "resnet_out_scale_factor", .kind = TSR_CFG_NUMBER, .number = 1},
};

/* ------------------------------------------------------------------ levels */

static tsr_status read_block_types(tsr_cfg *c, tsr_unet_config *u)
{
    int32_t n = 4, down[TSR_MAX_LEVELS] = {1, 1, 1, 0}, up[TSR_MAX_LEVELS] = {0, 1, 1, 1};
    int32_t mid = 0;
    const cJSON *item;

    TSR_TRY(tsr_cfg_word_list(c, "down_block_types", "DownBlock2D|CrossAttnDownBlock2D",
                              TSR_MAX_LEVELS, &n, down));
    if (n != u->n_levels)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %d down_block_types for %d block_out_channels", c->name,
                 (int)n, (int)u->n_levels);
    n = 4;
    TSR_TRY(tsr_cfg_word_list(c, "up_block_types", "UpBlock2D|CrossAttnUpBlock2D", TSR_MAX_LEVELS,
                              &n, up));
    if (n != u->n_levels)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %d up_block_types for %d block_out_channels", c->name,
                 (int)n, (int)u->n_levels);
    for (int32_t i = 0; i < n; i++) {
        u->down_cross[i] = down[i] == 1;
        u->up_cross[i] = up[i] == 1;
    }
    TSR_TRY(tsr_cfg_get(c, "mid_block_type", &item));
    u->has_mid = !cJSON_IsNull(item);
    if (u->has_mid)
        TSR_TRY(tsr_cfg_word(c, "mid_block_type", "UNetMidBlock2DCrossAttn|UNetMidBlock2D", &mid));
    u->mid_cross = u->has_mid && mid == 0;
    return TSR_OK;
}

/* false, or a list of false. */
static tsr_status check_only_cross_attention(tsr_cfg *c)
{
    static const tsr_cfg_fixed field = {.key = "only_cross_attention", .kind = TSR_CFG_OFF};
    const cJSON *list, *item;

    TSR_TRY(tsr_cfg_get(c, field.key, &list));
    if (!cJSON_IsArray(list))
        return tsr_cfg_check_fixed(c, &field, 1);
    for (item = list->child; item; item = item->next)
        if (!cJSON_IsFalse(item))
            return tsr_cfg_unsupported(c, field.key, item, "supported: false for every level");
    return TSR_OK;
}

/* The up path's own depths are accepted when they are the mirror of the down path's. */
static tsr_status read_transformer_layers(tsr_cfg *c, tsr_unet_config *u)
{
    static const int32_t range[2] = {0, TSR_MAX_TRANSFORMER_LAYERS};
    int32_t n = u->n_levels, up[TSR_MAX_LEVELS];
    const cJSON *reverse;

    TSR_TRY(tsr_cfg_ints(c, "transformer_layers_per_block", 1, range, n, u->transformer_layers));
    TSR_TRY(tsr_cfg_get(c, "reverse_transformer_layers_per_block", &reverse));
    if (!reverse || cJSON_IsNull(reverse))
        return TSR_OK;
    TSR_TRY(tsr_cfg_ints(c, "reverse_transformer_layers_per_block", 1, range, n, up));
    for (int32_t i = 0; i < n; i++)
        if (up[i] != u->transformer_layers[n - 1 - i])
            return tsr_cfg_unsupported(c, "reverse_transformer_layers_per_block", reverse,
                                       "supported: the mirror of transformer_layers_per_block");
    return TSR_OK;
}

bool tsr_unet_level_attends(const tsr_unet_config *u, int32_t level)
{
    return u->down_cross[level] || u->up_cross[u->n_levels - 1 - level] ||
           (u->mid_cross && level == u->n_levels - 1);
}

static tsr_status check_levels(const tsr_cfg *c, const tsr_unet_config *u)
{
    for (int32_t i = 0; i < u->n_levels; i++) {
        if (u->channels[i] % u->groups != 0)
            TSR_FAIL(c->err, TSR_E_MODEL,
                     "%s: block_out_channels %d is no multiple of norm_num_groups %d", c->name,
                     (int)u->channels[i], (int)u->groups);
        if (!tsr_unet_level_attends(u, i))
            continue;
        if (u->channels[i] % u->n_heads[i] != 0)
            TSR_FAIL(c->err, TSR_E_MODEL,
                     "%s: attention_head_dim %d (the number of heads) does not divide the %d "
                     "channels of level %d",
                     c->name, (int)u->n_heads[i], (int)u->channels[i], (int)i);
        if (u->transformer_layers[i] == 0)
            TSR_FAIL(c->err, TSR_E_MODEL,
                     "%s: transformer_layers_per_block is 0 at level %d, which has attention",
                     c->name, (int)i);
    }
    return TSR_OK;
}

static tsr_status read_levels(tsr_cfg *c, tsr_unet_config *u)
{
    const cJSON *heads;

    u->n_levels = 4;
    memcpy(u->channels, (int32_t[]){320, 640, 1280, 1280}, 4 * sizeof *u->channels);
    TSR_TRY(tsr_cfg_int_list(c, "block_out_channels", channel_range, TSR_MAX_LEVELS, &u->n_levels,
                             u->channels));
    TSR_TRY(read_block_types(c, u));
    TSR_TRY(tsr_cfg_ints(c, "layers_per_block", 2, layer_range, u->n_levels, u->layers_per_block));
    TSR_TRY(tsr_cfg_ints(c, "attention_head_dim", 8, channel_range, u->n_levels, u->n_heads));
    TSR_TRY(tsr_cfg_get(c, "num_attention_heads", &heads));
    if (heads && !cJSON_IsNull(heads))
        TSR_TRY(tsr_cfg_ints(c, "num_attention_heads", 8, channel_range, u->n_levels, u->n_heads));
    TSR_TRY(tsr_cfg_ints(c, "cross_attention_dim", 1280, channel_range, u->n_levels,
                         u->cross_attention_dim));
    TSR_TRY(read_transformer_layers(c, u));
    TSR_TRY(check_only_cross_attention(c));
    TSR_TRY(tsr_cfg_int(c, "norm_num_groups", 32, channel_range, &u->groups));
    return check_levels(c, u);
}

/* ------------------------------------------------------------------ time and the rest */

/* Sinusoids: pairs of sine and cosine, and a divisor dim/2 - shift that must stay positive. */
static tsr_status check_sinusoid(const tsr_cfg *c, const char *key, int32_t dim, float shift)
{
    if (dim % 2 == 0 && (float)dim / 2 - shift > 0)
        return TSR_OK;
    TSR_FAIL(c->err, TSR_E_MODEL,
             "%s: %s %d cannot carry a time embedding with freq_shift %g (it must be even and "
             "larger than twice that)",
             c->name, key, (int)dim, (double)shift);
}

static tsr_status read_time(tsr_cfg *c, tsr_unet_config *u)
{
    int32_t type = 0;
    const cJSON *item;

    TSR_TRY(tsr_cfg_bool(c, "flip_sin_to_cos", true, &u->flip_sin_to_cos));
    TSR_TRY(tsr_cfg_float(c, "freq_shift", 0, (float[]){-1024, 1024}, &u->freq_shift));
    TSR_TRY(tsr_cfg_int_or_null(c, "time_embedding_dim", 4 * u->channels[0], time_range,
                                &u->time_embed_dim));
    TSR_TRY(tsr_cfg_int_or_null(c, "time_cond_proj_dim", 0, time_range, &u->time_cond_proj_dim));
    TSR_TRY(check_sinusoid(c, "block_out_channels", u->channels[0], u->freq_shift));
    TSR_TRY(tsr_cfg_get(c, "addition_embed_type", &item));
    u->text_time = item && !cJSON_IsNull(item);
    TSR_TRY(tsr_cfg_int_or_null(c, "addition_time_embed_dim", 0, time_range,
                                &u->addition_time_embed_dim));
    TSR_TRY(tsr_cfg_int_or_null(c, "projection_class_embeddings_input_dim", 0, time_range,
                                &u->projection_input_dim));
    if (!u->text_time)
        return TSR_OK;
    TSR_TRY(tsr_cfg_word(c, "addition_embed_type", "text_time", &type));
    if (u->addition_time_embed_dim == 0 || u->projection_input_dim == 0)
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s: addition_embed_type \"text_time\" needs addition_time_embed_dim and "
                 "projection_class_embeddings_input_dim",
                 c->name);
    return check_sinusoid(c, "addition_time_embed_dim", u->addition_time_embed_dim, u->freq_shift);
}

/* A side for both, or [height, width]; null is the pipelines' own default. */
static tsr_status read_sample_size(tsr_cfg *c, tsr_unet_config *u)
{
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, "sample_size", &item));
    u->sample_size[0] = u->sample_size[1] = u->text_time ? 128 : 64;
    if (!item || cJSON_IsNull(item))
        return TSR_OK;
    return tsr_cfg_ints(c, "sample_size", 0, sample_range, 2, u->sample_size);
}

static tsr_status read_kernel(tsr_cfg *c, const char *key, int32_t *out)
{
    static const int32_t range[2] = {1, MAX_KERNEL};

    TSR_TRY(tsr_cfg_int(c, key, 3, range, out));
    if (*out % 2 == 0)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s is %d; it must be odd", c->name, key, (int)*out);
    return TSR_OK;
}

static tsr_status read_unet(tsr_cfg *c, tsr_unet_config *u)
{
    int32_t class_index;

    TSR_TRY(tsr_cfg_word(c, "_class_name", "UNet2DConditionModel", &class_index));
    TSR_TRY(tsr_cfg_check_fixed(c, fixed_fields, sizeof fixed_fields / sizeof *fixed_fields));
    TSR_TRY(read_levels(c, u));
    TSR_TRY(read_time(c, u));
    TSR_TRY(read_sample_size(c, u));
    TSR_TRY(tsr_cfg_int(c, "in_channels", 4, channel_range, &u->in_channels));
    TSR_TRY(tsr_cfg_int(c, "out_channels", 4, channel_range, &u->out_channels));
    TSR_TRY(read_kernel(c, "conv_in_kernel", &u->conv_in_kernel));
    TSR_TRY(read_kernel(c, "conv_out_kernel", &u->conv_out_kernel));
    TSR_TRY(tsr_cfg_float(c, "norm_eps", 1e-5f, (float[]){1e-12f, 1}, &u->norm_eps));
    TSR_TRY(tsr_cfg_bool(c, "use_linear_projection", false, &u->use_linear_projection));
    TSR_TRY(tsr_cfg_bool(c, "upcast_attention", false, &u->upcast_attention));
    u->mid_block_scale_factor = 1;
    tsr_cfg_report_unknown(c, "dropout|addition_embed_type_num_heads");
    return TSR_OK;
}

tsr_status tsr_unet_config_parse(const char *json, const char *name, tsr_unet_config *out,
                                 const tsr_log *log, tsr_err *err)
{
    tsr_unet_config u = {0};
    tsr_cfg c;
    tsr_status st;

    TSR_TRY(tsr_cfg_open(&c, json, name, log, err));
    st = read_unet(&c, &u);
    tsr_cfg_close(&c);
    if (st == TSR_OK)
        *out = u;
    return st;
}

tsr_status tsr_unet_config_load(const char *path, tsr_unet_config *out, const tsr_log *log,
                                tsr_err *err)
{
    char *json = NULL;
    tsr_status st = tsr_cfg_slurp(path, &json, err);

    if (st == TSR_OK)
        st = tsr_unet_config_parse(json, path, out, log, err);
    tsr_free(json);
    return st;
}
