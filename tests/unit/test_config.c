/* test_config.c -- configs: what is read, what is refused and how it is said. */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/model_files.h"
#include "tests/support/test.h"

typedef struct row {
    const char *from, *to;
    const char *reason; /* part of the sentence; NULL: accepted */
} row;

typedef tsr_status (*parse_fn)(const char *json, tsr_err *err);

static tsr_status parse_unet(const char *json, tsr_err *err)
{
    tsr_unet_config u;

    return tsr_unet_config_parse(json, "the-file", &u, NULL, err);
}

static tsr_status parse_vae(const char *json, tsr_err *err)
{
    tsr_vae_config v;

    return tsr_vae_config_parse(json, "the-file", &v, NULL, err);
}

static tsr_status parse_clip(const char *json, tsr_err *err)
{
    tsr_clip_config t;

    return tsr_clip_config_parse(json, "the-file", &t, NULL, err);
}

static tsr_status parse_index(const char *json, tsr_err *err)
{
    tsr_model_index m;

    return tsr_model_index_parse(json, "the-file", &m, NULL, err);
}

/* Each row is a config with one change. */
static void check_rows(parse_fn parse, const char *base, const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tsr_err err = {0};
        const char *json =
            rows[i].from ? model_file_replace(base, rows[i].from, rows[i].to) : rows[i].to;
        tsr_status st = parse(json, &err);
        CHECK_MSG(st == (rows[i].reason ? TSR_E_MODEL : TSR_OK), "%s: %s", rows[i].to, err.msg);
        CHECK_MSG(!rows[i].reason || strstr(err.msg, rows[i].reason), "%s: %s", rows[i].to,
                  err.msg);
        CHECK_MSG(!rows[i].reason || strstr(err.msg, "the-file"), "no file named: %s", err.msg);
    }
}

#define CHECK_ROWS(parse, base, rows) check_rows(parse, base, rows, sizeof(rows) / sizeof *(rows))
#define FIELD(text)                                                                                \
    "\"act_fn\": \"silu\"", "\"act_fn\": \"silu\", " text /* one more UNet field                   \
                                                           */
#define LATENT(text) "\"latent_channels\": 4", "\"latent_channels\": 4, " text
#define HIDDEN(text) "\"hidden_size\": 12", "\"hidden_size\": 12, " text
#define SAFETY(text) "\"safety_checker\": [null, null]", "\"safety_checker\": [null, null], " text

/* ------------------------------------------------------------------ JSON */

static void config__not_json__refused(void)
{
    static const row rows[] = {
        {NULL, "", "JSON"},
        {NULL, "[]", "not a JSON object"},
        {NULL, "3", "not a JSON object"},
        {NULL, "{} x", "JSON"},
        {NULL, "{\"a\":1,}", "JSON"},
        {NULL, "{'a':1}", "JSON"},
        {NULL, "{\"norm_eps\": NaN}", "JSON"},
        {NULL, "{\"norm_eps\": Infinity}", "JSON"},
        {NULL, "{\"norm_eps\": .5}", "JSON"},
        {NULL, "{\"a\": \"\xFF\"}", "UTF-8"},
        {NULL, "{\"act_fn\\u0000\": 1}", "zero byte"},
        {NULL, "{\"act_fn\": \"silu\\u0000x\"}", "zero byte"},
        {NULL, "{\"a\": 1111111111111111111111111111111111111111111111111111111111111}", "digits"},
        {NULL, "{\"act_fn\": \"silu\", \"act_fn\": \"silu\"}", "act_fn is there twice"},
        {NULL, "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
         "deep"},
    };

    CHECK_ROWS(parse_unet, "", rows);
}

static void config__missing_or_huge_file__refused(void)
{
    static char big[(1 << 20) + 10];
    const char *dir = test_temp_dir();
    char path[4096];
    tsr_err err = {0};
    tsr_unet_config u;
    tsr_model_index m;

    snprintf(path, sizeof path, "%s/config.json", dir);
    CHECK(tsr_unet_config_load(path, &u, NULL, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, path) && strstr(err.msg, "missing"), "%s", err.msg);
    CHECK(tsr_model_index_load(dir, &m, NULL, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "model_index.json"), "%s", err.msg);
    memset(big, ' ', sizeof big);
    big[0] = '{';
    big[sizeof big - 1] = '}';
    model_file_write(dir, "config.json", big, sizeof big);
    CHECK(tsr_unet_config_load(path, &u, NULL, &err) == TSR_E_MODEL);
    model_file_write(dir, "config.json", "{}\0{}", 5);
    CHECK(tsr_unet_config_load(path, &u, NULL, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "zero byte"), "%s", err.msg);
}

/* ------------------------------------------------------------------ UNet */

static void unet_config__empty__has_the_class_defaults(void)
{
    tsr_err err = {0};
    tsr_unet_config u;

    REQUIRE(tsr_unet_config_parse("{}", "x", &u, NULL, &err) == TSR_OK);
    CHECK(u.n_levels == 4 && u.channels[0] == 320 && u.channels[3] == 1280);
    CHECK(u.down_cross[0] && u.down_cross[2] && !u.down_cross[3]);
    CHECK(!u.up_cross[0] && u.up_cross[1] && u.up_cross[3]);
    CHECK(u.has_mid && u.mid_cross && u.groups == 32 && u.norm_eps == 1e-5f);
    CHECK(u.layers_per_block[3] == 2 && u.n_heads[2] == 8 && u.cross_attention_dim[1] == 1280);
    CHECK(u.transformer_layers[0] == 1 && u.in_channels == 4 && u.out_channels == 4);
    CHECK(u.sample_size[0] == 64 && u.time_embed_dim == 1280 && u.time_cond_proj_dim == 0);
    CHECK(u.flip_sin_to_cos && u.freq_shift == 0 && !u.text_time && !u.use_linear_projection);
    CHECK(u.conv_in_kernel == 3 && u.conv_out_kernel == 3 && u.mid_block_scale_factor == 1);
}

static void unet_config__every_field_that_changes_the_computation__checked(void)
{
    static const row rows[] = {
        {FIELD("\"_name_or_path\": \"x\""), NULL},
        {"\"silu\"", "\"swish\"", NULL},
        {"\"silu\"", "\"gelu\"", "act_fn \"gelu\" is not supported; supported: silu|swish"},
        {"\"silu\"", "null", "act_fn null is not supported"},
        {"UNet2DConditionModel", "UNet2DModel", "_class_name \"UNet2DModel\""},
        {FIELD("\"attention_type\": \"gated\""), "attention_type \"gated\""},
        {FIELD("\"class_embed_type\": \"timestep\""), "class_embed_type \"timestep\""},
        {FIELD("\"num_class_embeds\": 10"), "num_class_embeds 10"},
        {FIELD("\"class_embeddings_concat\": true"), "class_embeddings_concat true"},
        {FIELD("\"encoder_hid_dim\": 4096"), "encoder_hid_dim 4096"},
        {FIELD("\"encoder_hid_dim_type\": \"text_proj\""), "encoder_hid_dim_type"},
        {FIELD("\"addition_embed_type\": \"image\""), "addition_embed_type \"image\""},
        {FIELD("\"addition_embed_type\": \"text_time\""), "addition_time_embed_dim"},
        {FIELD("\"resnet_time_scale_shift\": \"scale_shift\""), "resnet_time_scale_shift"},
        {FIELD("\"resnet_skip_time_act\": true"), "resnet_skip_time_act"},
        {FIELD("\"resnet_out_scale_factor\": 1.4"), "resnet_out_scale_factor 1.4"},
        {FIELD("\"resnet_out_scale_factor\": 1.0"), NULL},
        {FIELD("\"mid_block_scale_factor\": 1.414"), "mid_block_scale_factor"},
        {FIELD("\"center_input_sample\": true"), "center_input_sample true"},
        {FIELD("\"dual_cross_attention\": true"), "dual_cross_attention"},
        {FIELD("\"only_cross_attention\": true"), "only_cross_attention"},
        {FIELD("\"only_cross_attention\": [false, true]"), "only_cross_attention"},
        {FIELD("\"only_cross_attention\": [false, false]"), NULL},
        {FIELD("\"mid_block_only_cross_attention\": true"), "mid_block_only_cross_attention"},
        {FIELD("\"mid_block_only_cross_attention\": null"), NULL},
        {FIELD("\"mid_block_type\": \"UNetMidBlock2DSimpleCrossAttn\""), "mid_block_type"},
        {FIELD("\"mid_block_type\": \"UNetMidBlock2D\""), NULL},
        {FIELD("\"mid_block_type\": null"), NULL},
        {"\"CrossAttnDownBlock2D\"", "\"SimpleCrossAttnDownBlock2D\"", "down_block_types"},
        {"\"CrossAttnUpBlock2D\"", "\"ResnetUpsampleBlock2D\"", "up_block_types"},
        {", \"CrossAttnUpBlock2D\"", "", "1 up_block_types for 2"},
        {", \"DownBlock2D\"", "", "1 down_block_types for 2"},
        {FIELD("\"time_embedding_type\": \"fourier\""), "time_embedding_type \"fourier\""},
        {FIELD("\"time_embedding_act_fn\": \"silu\""), "time_embedding_act_fn"},
        {FIELD("\"timestep_post_act\": \"silu\""), "timestep_post_act"},
        {FIELD("\"cross_attention_norm\": \"layer_norm\""), "cross_attention_norm"},
        {FIELD("\"cross_attention_norm\": false"), NULL},
        {FIELD("\"downsample_padding\": 0"), "downsample_padding 0"},
        {FIELD("\"dropout\": 0.1"), NULL},
        {FIELD("\"reverse_transformer_layers_per_block\": [1, 1]"), NULL},
        {FIELD("\"reverse_transformer_layers_per_block\": [1, 2]"), "reverse_transformer"},
        {FIELD("\"transformer_layers_per_block\": [[1, 1], 1]"), "transformer_layers_per_block"},
    };

    CHECK_ROWS(parse_unet, model_unet_json, rows);
}

static void unet_config__numbers__in_range_and_of_one_piece(void)
{
    static const row rows[] = {
        {"\"norm_eps\": 1e-05", "\"norm_eps\": 1e999", "norm_eps"},
        {"\"norm_eps\": 1e-05", "\"norm_eps\": -1", "norm_eps is -1"},
        {"\"norm_eps\": 1e-05", "\"norm_eps\": \"1\"", "norm_eps is \"1\""},
        {"\"in_channels\": 4", "\"in_channels\": 0", "in_channels is 0; it must be a whole number"},
        {"\"in_channels\": 4", "\"in_channels\": 4.5", "in_channels is 4.5"},
        {"\"in_channels\": 4", "\"in_channels\": 4.0", NULL},
        {"\"in_channels\": 4", "\"in_channels\": 1e300", "in_channels"},
        {"\"in_channels\": 4", "\"in_channels\": -9223372036854775808", "in_channels"},
        {"\"in_channels\": 4", "\"in_channels\": null", "in_channels is null"},
        {"[8, 16]", "[]", "block_out_channels has 0 entries"},
        {"[8, 16]", "[8,8,8,8,8,8,8,8,8]", "block_out_channels has 9 entries"},
        {"[8, 16]", "8", "block_out_channels is 8; it must be a list"},
        {"[8, 16]", "[8, 18]", "no multiple of norm_num_groups"},
        {"[8, 16]", "[8, 16385]", "16385"},
        {"\"norm_num_groups\": 4", "\"norm_num_groups\": null", "norm_num_groups is null"},
        {"\"attention_head_dim\": 2", "\"attention_head_dim\": 3",
         "does not divide the 8 channels"},
        {"\"attention_head_dim\": 2", "\"attention_head_dim\": [2, 4]", NULL},
        {"\"attention_head_dim\": 2", "\"attention_head_dim\": [2, 4, 8]", "it needs 2"},
        {"\"attention_head_dim\": 2", "\"attention_head_dim\": 3, \"num_attention_heads\": 2",
         NULL},
        {"\"layers_per_block\": 1", "\"layers_per_block\": [1, 2]", NULL},
        {"\"layers_per_block\": 1", "\"layers_per_block\": 17", "layers_per_block is 17"},
        {FIELD("\"transformer_layers_per_block\": [0, 1]"), "0 at level 0"},
        {FIELD("\"transformer_layers_per_block\": 33"), "33"},
        {"\"sample_size\": 8", "\"sample_size\": [8, 12]", NULL},
        {"\"sample_size\": 8", "\"sample_size\": null", NULL},
        {"\"sample_size\": 8", "\"sample_size\": [8]", "sample_size has 1 entries"},
        {FIELD("\"conv_in_kernel\": 2"), "conv_in_kernel is 2"},
        {FIELD("\"conv_out_kernel\": 9"), "conv_out_kernel"},
        {FIELD("\"freq_shift\": 4"), "freq_shift 4"},
        {FIELD("\"freq_shift\": 1"), NULL},
        {FIELD("\"flip_sin_to_cos\": 1"), "flip_sin_to_cos is 1; it must be true or false"},
        {FIELD("\"upcast_attention\": null"), NULL},
        {FIELD("\"time_cond_proj_dim\": 256"), NULL},
        {FIELD("\"time_cond_proj_dim\": -1"), "time_cond_proj_dim"},
    };

    CHECK_ROWS(parse_unet, model_unet_json, rows);
}

static void unet_config__lists__reach_their_levels(void)
{
    static const char json[] =
        "{\"block_out_channels\": [32, 64], \"attention_head_dim\": [2, 4],"
        "\"layers_per_block\": [1, 3], \"cross_attention_dim\": [5, 6],"
        "\"transformer_layers_per_block\": [0, 7], \"mid_block_type\": null,"
        "\"down_block_types\": [\"DownBlock2D\", \"CrossAttnDownBlock2D\"],"
        "\"up_block_types\": [\"CrossAttnUpBlock2D\", \"UpBlock2D\"], \"sample_size\": [24, 32],"
        "\"time_embedding_dim\": 100, \"freq_shift\": 1, \"flip_sin_to_cos\": false}";
    tsr_err err = {0};
    tsr_unet_config u;

    CHECK_MSG(tsr_unet_config_parse(json, "x", &u, NULL, &err) == TSR_OK, "%s", err.msg);
    CHECK(u.n_heads[1] == 4 && u.layers_per_block[1] == 3 && u.cross_attention_dim[0] == 5);
    CHECK(u.transformer_layers[1] == 7 && !u.has_mid && !u.mid_cross);
    CHECK(!u.down_cross[0] && u.down_cross[1] && u.up_cross[0] && !u.up_cross[1]);
    CHECK(u.sample_size[0] == 24 && u.sample_size[1] == 32 && u.time_embed_dim == 100);
    CHECK(u.freq_shift == 1 && !u.flip_sin_to_cos);
    CHECK(!tsr_unet_level_attends(&u, 0) && tsr_unet_level_attends(&u, 1));
}

/* ------------------------------------------------------------------ VAE */

static void vae_config__empty__has_the_class_defaults(void)
{
    tsr_err err = {0};
    tsr_vae_config v;

    REQUIRE(tsr_vae_config_parse("{}", "x", &v, NULL, &err) == TSR_OK);
    CHECK(v.n_levels == 1 && v.channels[0] == 64 && v.factor == 1 && v.layers_per_block == 1);
    CHECK(v.latent_channels == 4 && v.groups == 32 && v.sample_size == 32);
    CHECK(v.scaling_factor == 0.18215f && v.shift_factor == 0 && !v.has_mean_std);
    CHECK(v.force_upcast && v.use_quant_conv && v.use_post_quant_conv && v.mid_attention);
    CHECK(v.in_channels == 3 && v.out_channels == 3);
}

static void vae_config__fields__checked(void)
{
    static const row rows[] = {
        {"AutoencoderKL", "AutoencoderTiny", "_class_name \"AutoencoderTiny\""},
        {LATENT("\"act_fn\": \"relu\""), "act_fn \"relu\""},
        {LATENT("\"in_channels\": 4"), "in_channels 4"},
        {LATENT("\"out_channels\": 1"), "out_channels 1"},
        {"\"DownEncoderBlock2D\", ", "\"AttnDownEncoderBlock2D\", ", "AttnDownEncoderBlock2D"},
        {"\"UpDecoderBlock2D\", ", "", "1 up_block_types for 2"},
        {"[8, 16]", "[8, 15]", "no multiple"},
        {"\"latent_channels\": 4", "\"latent_channels\": 65", "latent_channels is 65"},
        {"0.18215", "0", "scaling_factor is 0"},
        {"0.18215", "1e999", "scaling_factor"},
        {LATENT("\"shift_factor\": null"), NULL},
        {LATENT("\"shift_factor\": \"a\""), "shift_factor"},
        {LATENT("\"latents_mean\": [0,0,0,0]"), "together"},
        {LATENT("\"latents_mean\": [0,0,0,0], \"latents_std\": [1,1,1,0]"), "not positive"},
        {LATENT("\"latents_mean\": [0,0,0], \"latents_std\": [1,1,1]"), "list of 4"},
        {LATENT("\"latents_mean\": [0,0,0,1e39], \"latents_std\": [1,1,1,1]"), "finite"},
        {LATENT("\"latents_mean\": [0,0,0,1], \"latents_std\": [1,1,1,2]"), NULL},
        {LATENT("\"force_upcast\": \"yes\""), "force_upcast"},
        {"\"layers_per_block\": 1", "\"layers_per_block\": [1, 1]", "layers_per_block is a list"},
    };

    CHECK_ROWS(parse_vae, model_vae_json, rows);
}

/* ------------------------------------------------------------------ CLIP */

static void clip_config__empty__has_the_class_defaults(void)
{
    tsr_err err = {0};
    tsr_clip_config t;

    REQUIRE(tsr_clip_config_parse("{}", "x", &t, NULL, &err) == TSR_OK);
    CHECK(t.vocab == 49408 && t.width == 512 && t.intermediate == 2048 && t.layers == 12);
    CHECK(t.heads == 8 && t.positions == 77 && t.projection_dim == 512 && t.quick_gelu);
    CHECK(t.eps == 1e-5f && t.eos_token_id == 49407 && !t.with_projection);
}

static void clip_config__whole_clip_model__reads_its_text_part(void)
{
    tsr_err err = {0};
    tsr_clip_config t;

    REQUIRE(tsr_clip_config_parse(
                "{\"model_type\": \"clip\", \"architectures\": [\"CLIPModel\"], \"hidden_size\": 7,"
                "\"text_config\": {\"hidden_size\": 24, \"hidden_act\": \"gelu\"}}",
                "x", &t, NULL, &err) == TSR_OK);
    CHECK(t.width == 24 && !t.quick_gelu && !t.with_projection);
}

static void clip_config__fields__checked(void)
{
    static const row rows[] = {
        {"\"CLIPTextModel\"", "\"CLIPTextModelWithProjection\"", NULL},
        {"\"CLIPTextModel\"", "\"T5EncoderModel\"", "architectures \"T5EncoderModel\""},
        {"\"clip_text_model\"", "\"t5\"", "model_type \"t5\""},
        {"\"quick_gelu\"", "\"gelu_new\"", "hidden_act \"gelu_new\""},
        {"\"hidden_size\": 12", "\"hidden_size\": 13", "does not divide hidden_size 13"},
        {"\"num_attention_heads\": 3", "\"num_attention_heads\": 0", "num_attention_heads is 0"},
        {"\"vocab_size\": 32", "\"vocab_size\": 1e9", "vocab_size"},
        {"\"layer_norm_eps\": 1e-05", "\"layer_norm_eps\": 0", "layer_norm_eps is 0"},
        {HIDDEN("\"projection_dim\": 0"), NULL},
        {"\"CLIPTextModel\"", "\"CLIPTextModelWithProjection\"], \"projection_dim\": 0, \"x\": [1",
         "projection_dim is 0"},
    };

    CHECK_ROWS(parse_clip, model_clip_json, rows);
}

/* ------------------------------------------------------------------ model_index.json */

static void model_index__parts_and_classes__checked(void)
{
    static const row rows[] = {
        {"StableDiffusionPipeline", "StableDiffusionInpaintPipeline", NULL},
        {"StableDiffusionPipeline", "LatentConsistencyModelPipeline", NULL},
        {"StableDiffusionPipeline", "FluxPipeline", "pipeline \"FluxPipeline\" is not supported"},
        {"StableDiffusionPipeline", "StableDiffusion3Pipeline", "StableDiffusion3Pipeline"},
        {"StableDiffusionPipeline", "StableDiffusionControlNetPipeline", "ControlNet"},
        {"StableDiffusionPipeline", "", "pipeline \"\""},
        {"StableDiffusionPipeline", "StableDiffusionXLPipeline", "no text_encoder_2"},
        {"\"AutoencoderKL\"", "\"AutoencoderTiny\"", "vae of class diffusers.AutoencoderTiny"},
        {"\"UNet2DConditionModel\"", "\"UNet3DConditionModel\"", "UNet3DConditionModel"},
        {"\"CLIPTextModel\"", "\"CLIPTextModelWithProjection\"", "CLIPTextModelWithProjection"},
        {"\"CLIPTextModel\"", "\"RobertaSeriesModelWithTransformation\"", "Roberta"},
        {"\"CLIPTokenizer\"", "\"CLIPTokenizerFast\"", NULL},
        {"[\"diffusers\", \"UNet2DConditionModel\"]", "[\"my_code\", \"UNet2DConditionModel\"]",
         "my_code"},
        {"[\"diffusers\", \"UNet2DConditionModel\"]", "[null, null]", "the model has no unet"},
        {"[\"diffusers\", \"UNet2DConditionModel\"]", "null", "the model has no unet"},
        {"[\"diffusers\", \"UNet2DConditionModel\"]", "\"x\"", "unet is not a pair"},
        {"[\"diffusers\", \"UNet2DConditionModel\"]", "[1, 2]", "unet is not a pair"},
        {"\"scheduler\": [\"diffusers\", \"DDIMScheduler\"]", "\"scheduler\": null",
         "no scheduler"},
        {SAFETY("\"image_encoder\": [\"transformers\", \"CLIPVisionModel\"]"), NULL},
        {SAFETY("\"image_encoder\": null"), NULL},
        {SAFETY("\"controlnet\": [\"diffusers\", \"ControlNetModel\"]"), "\"controlnet\""},
        {SAFETY("\"text_encoder_2\": [\"transformers\", \"CLIPTextModel\"]"), "text_encoder_2"},
        {SAFETY("\"text_encoder_2\": [null, null]"), NULL},
        {SAFETY("\"requires_aesthetics_score\": true"), "refiner"},
        {SAFETY("\"numbers\": [1, 2, 3]"), "numbers is not a pair"},
    };

    CHECK_ROWS(parse_index, model_index_json, rows);
}

static void model_index__refiner__refused_by_name(void)
{
    const char *json = model_file_replace(model_index_json, "StableDiffusionPipeline",
                                          "StableDiffusionXLImg2ImgPipeline");
    tsr_err err = {0};

    json = model_file_replace(json, "[\"transformers\", \"CLIPTextModel\"]", "[null, null]");
    CHECK(parse_index(json, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "refiner"), "%s", err.msg);
}

static void model_index__card__read_or_marked_absent(void)
{
    static const row rows[] = {
        {SAFETY("\"tessera\": {\"steps\": 0}"), "steps is 0"},
        {SAFETY("\"tessera\": {\"width\": 7}"), "width is 7"},
        {SAFETY("\"tessera\": {\"guidance\": -1}"), "tessera: guidance is -1"},
        {SAFETY("\"tessera\": {\"scheduler\": \"a name that is longer than any of them is\"}"),
         "scheduler"},
        {SAFETY("\"tessera\": 3"), "not an object"},
        {SAFETY("\"tessera\": null"), NULL},
    };
    const char *json;
    tsr_err err = {0};
    tsr_model_index m;

    CHECK_ROWS(parse_index, model_index_json, rows);
    json = model_file_replace(model_index_json,
                              SAFETY("\"tessera\": {\"steps\": 7, \"guidance\": 0, \"width\": 96, "
                                     "\"height\": 128, \"scheduler\": \"euler_a\"}"));
    REQUIRE(tsr_model_index_parse(json, "x", &m, NULL, &err) == TSR_OK);
    CHECK(m.card_steps == 7 && m.card_guidance == 0 && m.card_width == 96 && m.card_height == 128);
    CHECK(strcmp(m.card_scheduler, "euler_a") == 0);
    REQUIRE(tsr_model_index_parse(model_index_json, "x", &m, NULL, &err) == TSR_OK);
    CHECK(m.card_steps == 0 && m.card_guidance == -1 && m.card_width == 0 && !m.card_scheduler[0]);
    CHECK(strcmp(m.pipeline, "StableDiffusionPipeline") == 0);
    CHECK(!m.is_xl && !m.has_text_encoder_2 && !m.force_zeros_for_empty_prompt);
}

/* ------------------------------------------------------------------ messages */

static int n_lines, n_warnings;
static char lines[4096];

static void keep_line(void *user, tsr_log_level level, const char *line)
{
    (void)user;
    n_warnings += level == TSR_LOG_WARNING;
    n_lines++;
    strncat(lines, line, sizeof lines - strlen(lines) - 1);
}

static void config__unknown_keys__are_warned_about_where_they_are_set(void)
{
    const tsr_log log = {.fn = keep_line};
    tsr_err err = {0};
    tsr_unet_config u;

    CHECK(tsr_unet_config_parse("{\"_x\": 1, \"dropout\": 0, \"off\": false, \"none\": null, "
                                "\"empty\": [], \"act_fn\": \"silu\"}",
                                "the-file", &u, &log, &err) == TSR_OK);
    CHECK_MSG(n_lines == 3 && n_warnings == 0, "%s", lines);
    n_lines = n_warnings = 0;
    lines[0] = '\0';
    CHECK(tsr_unet_config_parse("{\"brand_new\": 1, \"old\": null}", "the-file", &u, &log, &err) ==
          TSR_OK);
    CHECK_MSG(n_lines == 2 && n_warnings == 1 && strstr(lines, "the-file: brand_new"), "%s", lines);
}

static void config__published_configs__hold_no_unknown_key(void)
{
    static const char *const models[] = {"sd15", "sdxl"};
    const tsr_log log = {.fn = keep_line};
    tsr_err err = {0};

    n_lines = 0;
    lines[0] = '\0';
    for (size_t i = 0; i < 2; i++) {
        char path[4096];
        tsr_model_index m;
        tsr_unet_config u;
        tsr_vae_config v;
        tsr_clip_config t;
        snprintf(path, sizeof path, TSR_TEST_DATA "/full/%s", models[i]);
        CHECK(tsr_model_index_load(path, &m, &log, &err) == TSR_OK);
        snprintf(path, sizeof path, TSR_TEST_DATA "/full/%s/unet/config.json", models[i]);
        CHECK(tsr_unet_config_load(path, &u, &log, &err) == TSR_OK);
        snprintf(path, sizeof path, TSR_TEST_DATA "/full/%s/vae/config.json", models[i]);
        CHECK(tsr_vae_config_load(path, &v, &log, &err) == TSR_OK);
        snprintf(path, sizeof path, TSR_TEST_DATA "/full/%s/text_encoder/config.json", models[i]);
        CHECK(tsr_clip_config_load(path, &t, &log, &err) == TSR_OK);
    }
    CHECK_MSG(n_lines == 0, "%s", lines);
}

int main(void)
{
    RUN(config__not_json__refused);
    RUN(config__missing_or_huge_file__refused);
    RUN(unet_config__empty__has_the_class_defaults);
    RUN(unet_config__every_field_that_changes_the_computation__checked);
    RUN(unet_config__numbers__in_range_and_of_one_piece);
    RUN(unet_config__lists__reach_their_levels);
    RUN(vae_config__empty__has_the_class_defaults);
    RUN(vae_config__fields__checked);
    RUN(clip_config__empty__has_the_class_defaults);
    RUN(clip_config__whole_clip_model__reads_its_text_part);
    RUN(clip_config__fields__checked);
    RUN(model_index__parts_and_classes__checked);
    RUN(model_index__refiner__refused_by_name);
    RUN(model_index__card__read_or_marked_absent);
    RUN(config__unknown_keys__are_warned_about_where_they_are_set);
    RUN(config__published_configs__hold_no_unknown_key);
    return test_end();
}
