/* model_files.c -- see model_files.h. */
#include "tests/support/model_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/safetensors.h"

const char *const model_index_json =
    "{\"_class_name\": \"StableDiffusionPipeline\", \"_diffusers_version\": \"0.42.1\",\n"
    " \"safety_checker\": [null, null], \"feature_extractor\": [null, null],\n"
    " \"scheduler\": [\"diffusers\", \"DDIMScheduler\"],\n"
    " \"text_encoder\": [\"transformers\", \"CLIPTextModel\"],\n"
    " \"tokenizer\": [\"transformers\", \"CLIPTokenizer\"],\n"
    " \"unet\": [\"diffusers\", \"UNet2DConditionModel\"],\n"
    " \"vae\": [\"diffusers\", \"AutoencoderKL\"]}\n";
const char *const model_unet_json =
    "{\"_class_name\": \"UNet2DConditionModel\", \"act_fn\": \"silu\", \"attention_head_dim\": 2,\n"
    " \"block_out_channels\": [8, 16], \"cross_attention_dim\": 12,\n"
    " \"down_block_types\": [\"CrossAttnDownBlock2D\", \"DownBlock2D\"],\n"
    " \"up_block_types\": [\"UpBlock2D\", \"CrossAttnUpBlock2D\"],\n"
    " \"in_channels\": 4, \"out_channels\": 4, \"layers_per_block\": 1, \"norm_num_groups\": 4,\n"
    " \"norm_eps\": 1e-05, \"sample_size\": 8}\n";
const char *const model_vae_json =
    "{\"_class_name\": \"AutoencoderKL\", \"block_out_channels\": [8, 16],\n"
    " \"down_block_types\": [\"DownEncoderBlock2D\", \"DownEncoderBlock2D\"],\n"
    " \"up_block_types\": [\"UpDecoderBlock2D\", \"UpDecoderBlock2D\"],\n"
    " \"latent_channels\": 4, \"layers_per_block\": 1, \"norm_num_groups\": 4,\n"
    " \"sample_size\": 16, \"scaling_factor\": 0.18215}\n";
const char *const model_clip_json =
    "{\"architectures\": [\"CLIPTextModel\"], \"model_type\": \"clip_text_model\",\n"
    " \"hidden_act\": \"quick_gelu\", \"hidden_size\": 12, \"intermediate_size\": 48,\n"
    " \"max_position_embeddings\": 16, \"num_attention_heads\": 3, \"num_hidden_layers\": 1,\n"
    " \"vocab_size\": 32, \"eos_token_id\": 2, \"layer_norm_eps\": 1e-05}\n";

static void file_path(char path[4096], const char *dir, const char *name)
{
    tsr_err err = {0};

    snprintf(path, 4096, "%s/%s", dir, name);
    CHECK_MSG(tsr_make_parent_dirs(path, &err) == TSR_OK, "%s", err.msg);
}

static FILE *create(const char *dir, const char *name)
{
    char path[4096];
    FILE *f;

    file_path(path, dir, name);
    f = fopen(path, "wb");
    CHECK_MSG(f != NULL, "cannot write %s", path);
    return f;
}

void model_file_write(const char *dir, const char *name, const void *data, size_t bytes)
{
    FILE *f = create(dir, name);

    if (!f)
        return;
    CHECK(fwrite(data, 1, bytes, f) == bytes);
    CHECK(fclose(f) == 0);
}

void model_file_text(const char *dir, const char *name, const char *text)
{
    model_file_write(dir, name, text, strlen(text));
}

void model_file_st(const char *dir, const char *name, const char *header, const void *data,
                   size_t data_bytes)
{
    FILE *f = create(dir, name);
    uint64_t size = strlen(header);

    if (!f)
        return;
    CHECK(fwrite(&size, 1, 8, f) == 8);
    CHECK(fwrite(header, 1, size, f) == size);
    if (data)
        CHECK(fwrite(data, 1, data_bytes, f) == data_bytes);
    for (size_t i = 0; !data && i < data_bytes; i++)
        fputc(0, f);
    CHECK(fclose(f) == 0);
}

const char *model_file_replace(const char *text, const char *from, const char *to)
{
    static char copies[4][8192];
    static int turn;
    char *copy = copies[turn++ % 4];
    const char *at = strstr(text, from);

    CHECK_MSG(at && !strstr(at + 1, from), "\"%s\" is not there once", from);
    if (!at)
        return text;
    snprintf(copy, sizeof *copies, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return copy;
}

static void write_part(const char *dir, const char *part, const char *stem, const tsr_st_out *t,
                       int32_t n)
{
    char name[256], path[4096];
    tsr_err err = {0};

    snprintf(name, sizeof name, "%s/%s.safetensors", part, stem);
    file_path(path, dir, name);
    CHECK_MSG(tsr_st_write(path, t, n, &err) == TSR_OK, "%s", err.msg);
}

void model_dir_make(const char *dir)
{
    static float data[12 * 48];
    const tsr_st_out unet[] = {{"conv_in.bias", 1, {8}, data},
                               {"conv_in.weight", 4, {8, 4, 3, 3}, data},
                               {"conv_norm_out.weight", 1, {8}, data},
                               {"conv_out.weight", 4, {4, 8, 3, 3}, data}};
    const tsr_st_out vae[] = {{"decoder.conv_in.weight", 4, {16, 4, 3, 3}, data},
                              {"decoder.mid_block.attentions.0.to_q.weight", 2, {16, 16}, data}};
    const tsr_st_out clip[] = {{"text_model.embeddings.token_embedding.weight", 2, {32, 12}, data},
                               {"text_model.encoder.layers.0.mlp.fc1.weight", 2, {48, 12}, data}};

    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        data[i] = (float)(i % 7) - 3;
    model_file_text(dir, "model_index.json", model_index_json);
    model_file_text(dir, "unet/config.json", model_unet_json);
    model_file_text(dir, "vae/config.json", model_vae_json);
    model_file_text(dir, "text_encoder/config.json", model_clip_json);
    write_part(dir, "unet", "diffusion_pytorch_model", unet, 4);
    write_part(dir, "vae", "diffusion_pytorch_model", vae, 2);
    write_part(dir, "text_encoder", "model", clip, 2);
}
