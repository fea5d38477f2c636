/* micro_model.c -- see micro_model.h.
 *
 * The list of tensors is the networks' own: each is recorded once in the component's collecting
 * mode on an empty file, where every tensor is missing but still gets its record on the tape, with
 * name and shape. */
#include "tests/support/micro_model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text_util.h"
#include "model/component.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "tests/support/test.h"
#include "text/clip.h"
#include "unet/unet.h"
#include "vae/vae.h"

enum { WIDTH = 8, POSITIONS = 16, VOCAB = 514, MAX_TENSORS = 1024 };

static const char unet_json[] =
    "{\"_class_name\": \"UNet2DConditionModel\", \"sample_size\": 8, \"in_channels\": 4, "
    "\"out_channels\": 4,"
    " \"down_block_types\": [\"CrossAttnDownBlock2D\", \"DownBlock2D\"],"
    " \"up_block_types\": [\"UpBlock2D\", \"CrossAttnUpBlock2D\"], \"block_out_channels\": [8, 16],"
    " \"layers_per_block\": 1, \"attention_head_dim\": 2, \"cross_attention_dim\": %d, "
    "\"norm_num_groups\": 4%s}";
static const char xl_json[] =
    ", \"use_linear_projection\": true, \"addition_embed_type\": \"text_time\","
    " \"addition_time_embed_dim\": 4, \"projection_class_embeddings_input_dim\": 32";
static const char vae_json[] =
    "{\"_class_name\": \"AutoencoderKL\", \"in_channels\": 3, \"out_channels\": 3, "
    "\"latent_channels\": 4,"
    " \"block_out_channels\": [8, 8], \"layers_per_block\": 1, \"norm_num_groups\": 4, "
    "\"sample_size\": 16,"
    " \"down_block_types\": [\"DownEncoderBlock2D\", \"DownEncoderBlock2D\"],"
    " \"up_block_types\": [\"UpDecoderBlock2D\", \"UpDecoderBlock2D\"], \"scaling_factor\": 0.5,"
    " \"force_upcast\": false}";
static const char clip_json[] = "{\"architectures\": [\"%s\"], \"vocab_size\": 514, "
                                "\"hidden_size\": 8, \"num_hidden_layers\": 3,"
                                " \"num_attention_heads\": 2, \"intermediate_size\": 16, "
                                "\"max_position_embeddings\": 16, \"hidden_act\":"
                                " \"quick_gelu\", \"projection_dim\": 8, \"eos_token_id\": 2, "
                                "\"model_type\": \"clip_text_model\"}";
static const char euler_json[] =
    "{\"_class_name\": \"EulerDiscreteScheduler\", \"beta_start\": 0.00085, \"beta_end\": 0.012,"
    " \"beta_schedule\": \"scaled_linear\", \"num_train_timesteps\": 1000, \"prediction_type\": "
    "\"epsilon\","
    " \"timestep_spacing\": \"leading\", \"steps_offset\": 1}";

static bool write_text(const char *dir, const char *part, const char *file, const char *fmt, ...)
    TEST_PRINTF(4, 5);

static bool write_text(const char *dir, const char *part, const char *file, const char *fmt, ...)
{
    char path[4096];
    va_list args;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, part);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", dir, part, file);
    f = fopen(path, "w");
    if (!f)
        return false;
    va_start(args, fmt);
    vfprintf(f, fmt, args);
    va_end(args);
    return fclose(f) == 0;
}

/* One value from a tensor's name and an index: uniform in [-1, 1). */
static float uniform(const char *name, size_t i)
{
    uint64_t z = tsr_fnv1a64(name, strlen(name), TSR_FNV_SEED) + (uint64_t)i * 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (float)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1.0f;
}

/* Norms near 1, biases small, matrices with variance 1/fan_in, times `scale`. */
static float *make_values(const tsr_st_out *t, float scale)
{
    size_t n = 1, fan_in = 1;
    bool is_norm = t->n_dims == 1 && strstr(t->name, ".weight");
    float amplitude, *x;

    for (int32_t d = 0; d < t->n_dims; d++) {
        n *= (size_t)t->dims[d];
        fan_in *= d ? (size_t)t->dims[d] : 1;
    }
    amplitude = t->n_dims == 1 ? 0.125f : scale * sqrtf(3.0f / (float)fan_in);
    x = malloc(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++)
        x[i] = (is_norm ? 1.0f : 0.0f) + amplitude * uniform(t->name, i);
    return x;
}

/* The next name in the component's list of missing tensors: `tensor "NAME" of the ...`. NULL at the
 * end. */
static char *next_name(char **lines)
{
    static const char mark[] = "tensor \"";
    char *name = *lines ? strstr(*lines, mark) : NULL;

    if (!name)
        return NULL;
    name += sizeof mark - 1;
    *lines = strchr(name, '"');
    *(*lines)++ = '\0';
    return name;
}

/* Writes a file with every missing tensor: the list has the names, the tape's weights the shapes,
 * in one order; the token table is on the list only. A tensor whose name has `hot` in it is scaled
 * by 2e5, so that what it makes is beyond half precision. */
static bool write_weights(const char *path, const tsr_tape *tape, char *lines, const char *hot)
{
    static tsr_st_out tensors[MAX_TENSORS];
    size_t weight = 1;
    int32_t n = 0;
    tsr_status st;
    char *name;

    while ((name = next_name(&lines)) && n < MAX_TENSORS) {
        tsr_st_out *t = &tensors[n++];
        bool is_table = strstr(name, "token_embedding") != NULL;
        *t = (tsr_st_out){.name = name, .n_dims = 2, .dims = {VOCAB, WIDTH}};
        if (!is_table && weight == tape->n_weights)
            return false;
        if (!is_table) {
            const tsr_weight *w = &tape->weights[weight++];
            t->n_dims = w->n_dims;
            for (int32_t d = 0; d < w->n_dims; d++)
                t->dims[d] = w->dims[d];
        }
        t->data = make_values(t, hot && strstr(name, hot) ? 2e5f : 1);
    }
    st = tsr_st_write(path, tensors, n, NULL);
    for (int32_t i = 0; i < n; i++)
        free((void *)tensors[i].data);
    return st == TSR_OK && weight == tape->n_weights;
}

/* What is recorded to learn a part's tensors. */
typedef tsr_status (*record_fn)(tsr_tape *t, tsr_component *c, const char *config);

static tsr_status record_unet(tsr_tape *t, tsr_component *c, const char *config)
{
    tsr_unet_shape shape = {.pictures = 1, .prompts = 1, .h = 8, .w = 8, .s = 1, .n_steps = 1};
    tsr_unet_config cfg;
    tsr_unet_io io = {0};

    TSR_TRY(tsr_unet_config_parse(config, "micro unet", &cfg, NULL, t->err));
    return tsr_unet_build(t, c, &cfg, &shape, &io, NULL, 0);
}

static tsr_status record_vae(tsr_tape *t, tsr_component *c, const char *config)
{
    tsr_vae_config cfg;
    tsr_val in, out;

    TSR_TRY(tsr_vae_config_parse(config, "micro vae", &cfg, NULL, t->err));
    TSR_TRY(tsr_vae_decode_build(t, c, &cfg, (int32_t[]){1, 4, 4}, false, &in, &out, NULL, 0));
    return tsr_vae_encode_build(t, c, &cfg, (int32_t[]){1, 8, 8}, &in, &out, NULL, 0);
}

static tsr_status record_clip(tsr_tape *t, tsr_component *c, const char *config)
{
    tsr_clip_shape shape = {.n = 1, .s = 1, .final_norm = true, .pooled = true};
    tsr_clip_config cfg;
    tsr_clip_io io = {0};

    TSR_TRY(tsr_clip_config_parse(config, "micro text encoder", &cfg, NULL, t->err));
    return tsr_clip_build(t, c, &cfg, &shape, &io, NULL, 0);
}

static bool write_part(const char *dir, const char *part, const char *stem, const char *config,
                       record_fn record, const char *hot)
{
    char path[8192], part_dir[4096];
    tsr_err err = {0};
    tsr_component c = {0};
    tsr_buf lines = {0};
    tsr_tape tape;
    bool ok = write_text(dir, part, "config.json", "%s", config);

    snprintf(part_dir, sizeof part_dir, "%s/%s", dir, part);
    snprintf(path, sizeof path, "%s/%s.safetensors", part_dir, stem);
    ok = ok && tsr_st_write(path, NULL, 0, &err) == TSR_OK;
    tsr_tape_init(&tape, TSR_F32, &err);
    if (ok && tsr_component_open(&c, part_dir, part, stem, &err) == TSR_OK) {
        c.problems = &lines;
        ok = record(&tape, &c, config) == TSR_OK && write_weights(path, &tape, lines.data, hot);
    } else {
        ok = false;
    }
    if (!ok)
        test_failed(__FILE__, __LINE__, "the micro model's %s: %s", part, err.msg);
    tsr_tape_free(&tape);
    tsr_component_close(&c);
    tsr_buf_free(&lines);
    return ok;
}

/* The 256 byte symbols of byte-level BPE, with and without the end of word, and two special tokens.
 */
static bool write_tokenizer(const char *dir, const char *part)
{
    tsr_buf vocab = {0};
    int32_t id = 0, extra = 0;
    bool ok;

    tsr_buf_puts(&vocab, "{");
    for (int32_t round = 0; round < 2; round++, extra = 0) {
        for (uint32_t b = 0; b < 256; b++) {
            bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
            uint32_t cp = printable ? b : 256 + (uint32_t)extra++;
            char text[16];
            size_t n = tsr_utf8_encode(cp, text);
            snprintf(text + n, sizeof text - n, "%s", round ? "</w>" : "");
            tsr_buf_puts(&vocab, id ? ", " : "");
            tsr_buf_json_string(&vocab, text);
            tsr_buf_printf(&vocab, ": %d", id++);
        }
    }
    tsr_buf_puts(&vocab, ", \"<|startoftext|>\": 512, \"<|endoftext|>\": 513}");
    ok = write_text(dir, part, "vocab.json", "%s", vocab.data) &&
         write_text(dir, part, "merges.txt", "#version: 0.2\n") &&
         write_text(dir, part, "tokenizer_config.json",
                    "{\"model_max_length\": %d, \"bos_token\": \"<|startoftext|>\", \"eos_token\": "
                    "\"<|endoftext|>\","
                    " \"unk_token\": \"<|endoftext|>\", \"pad_token\": \"<|endoftext|>\"}",
                    POSITIONS);
    tsr_buf_free(&vocab);
    return ok;
}

static bool write_index(const char *dir, const micro_options *o)
{
    const char *clip = "[\"transformers\", \"CLIPTextModel\"]",
               *tokenizer = "[\"transformers\", \"CLIPTokenizer\"]";
    char second[256] = "", card[512] = "";

    if (o->xl)
        snprintf(second, sizeof second,
                 " \"text_encoder_2\": [\"transformers\", \"CLIPTextModelWithProjection\"], "
                 "\"tokenizer_2\": %s,",
                 tokenizer);
    if (o->card)
        snprintf(card, sizeof card, ", \"tessera\": %s", o->card);
    return write_text(
        dir, ".", "model_index.json",
        "{\"_class_name\": \"%s\", \"text_encoder\": %s, \"tokenizer\": %s,%s"
        " \"unet\": [\"diffusers\", \"UNet2DConditionModel\"], \"vae\": [\"diffusers\","
        " \"AutoencoderKL\"], \"scheduler\": [\"diffusers\", \"EulerDiscreteScheduler\"]%s}",
        o->xl ? "StableDiffusionXLPipeline" : "StableDiffusionPipeline", clip, tokenizer, second,
        card);
}

const char *micro_model(const micro_options *o)
{
    const char *dir = test_temp_dir(), *stem = "diffusion_pytorch_model";
    char unet[1024], clip[1024];
    bool ok;

    snprintf(unet, sizeof unet, unet_json, o->xl ? 2 * WIDTH : WIDTH, o->xl ? xl_json : "");
    snprintf(clip, sizeof clip, clip_json, "CLIPTextModel");
    ok = write_index(dir, o) && write_tokenizer(dir, "tokenizer") &&
         write_text(dir, "scheduler", "scheduler_config.json", "%s",
                    o->scheduler ? o->scheduler : euler_json) &&
         write_part(dir, "text_encoder", "model", clip, record_clip,
                    o->text_overflows ? "layers.1.mlp.fc1" : NULL) &&
         write_part(dir, "unet", stem, unet, record_unet,
                    o->unet_overflows ? "mid_block.resnets.0.conv1" : NULL) &&
         write_part(dir, "vae", stem, vae_json, record_vae,
                    o->vae_overflows ? "decoder.mid_block.resnets.0.conv1" : NULL);
    if (ok && o->xl) {
        snprintf(clip, sizeof clip, clip_json, "CLIPTextModelWithProjection");
        ok = write_tokenizer(dir, "tokenizer_2") &&
             write_part(dir, "text_encoder_2", "model", clip, record_clip, NULL);
    }
    CHECK_MSG(ok, "the micro model could not be made in %s", dir);
    return ok ? dir : NULL;
}
