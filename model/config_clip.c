/* config_clip.c -- text_encoder/config.json of a diffusers directory: CLIPTextModel,
 * CLIPTextModelWithProjection.
 *
 * Defaults are those of transformers' CLIPTextConfig. A config of a whole CLIP model (model_type
 * "clip") has the text part's fields in its "text_config" object, which is then what is read, as
 * transformers does. eos_token_id 2 is a marker of old configs: the pooled row is then the first
 * largest id of the sequence. */
#include "model/config.h"

#include <string.h>

#include "base/alloc.h"
#include "model/config_json.h"

enum { MAX_VOCAB = 1 << 20, MAX_WIDTH = 16384, MAX_LAYERS = 128, MAX_POSITIONS = 4096 };

/* The class: with a projection or without. Absent: without (see config.h). */
static tsr_status read_architecture(tsr_cfg *c, bool *with_projection)
{
    int32_t n = 1, kind[1] = {0};
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, "architectures", &item));
    if (item && !cJSON_IsNull(item))
        TSR_TRY(tsr_cfg_word_list(c, "architectures",
                                  "CLIPTextModel|CLIPTextModelWithProjection|CLIPModel", 1, &n,
                                  kind));
    *with_projection = kind[0] == 1;
    return TSR_OK;
}

static tsr_status read_text_fields(tsr_cfg *c, tsr_clip_config *t)
{
    static const int32_t widths[2] = {1, MAX_WIDTH};
    int32_t act;

    TSR_TRY(tsr_cfg_int(c, "vocab_size", 49408, (int32_t[]){1, MAX_VOCAB}, &t->vocab));
    TSR_TRY(tsr_cfg_int(c, "hidden_size", 512, widths, &t->width));
    TSR_TRY(
        tsr_cfg_int(c, "intermediate_size", 2048, (int32_t[]){1, 4 * MAX_WIDTH}, &t->intermediate));
    TSR_TRY(tsr_cfg_int(c, "num_hidden_layers", 12, (int32_t[]){1, MAX_LAYERS}, &t->layers));
    TSR_TRY(tsr_cfg_int(c, "num_attention_heads", 8, widths, &t->heads));
    TSR_TRY(tsr_cfg_int(c, "max_position_embeddings", 77, (int32_t[]){1, MAX_POSITIONS},
                        &t->positions));
    TSR_TRY(tsr_cfg_int(c, "projection_dim", 512, (int32_t[]){0, MAX_WIDTH}, &t->projection_dim));
    TSR_TRY(tsr_cfg_int(c, "eos_token_id", 49407, (int32_t[]){0, MAX_VOCAB}, &t->eos_token_id));
    TSR_TRY(tsr_cfg_float(c, "layer_norm_eps", 1e-5f, (float[]){1e-12f, 1}, &t->eps));
    TSR_TRY(tsr_cfg_word(c, "hidden_act", "quick_gelu|gelu", &act));
    t->quick_gelu = act == 0;
    if (t->width % t->heads != 0)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: num_attention_heads %d does not divide hidden_size %d",
                 c->name, (int)t->heads, (int)t->width);
    if (t->with_projection && t->projection_dim == 0)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: projection_dim is 0 and the model has a projection",
                 c->name);
    return TSR_OK;
}

static tsr_status read_clip(tsr_cfg *c, tsr_clip_config *t)
{
    static const char silent[] =
        "attention_dropout|bos_token_id|dropout|dtype|gradient_checkpointing|initializer_factor|"
        "initializer_range|pad_token_id|torch_dtype|transformers_version";
    int32_t type;
    const cJSON *text;

    TSR_TRY(tsr_cfg_word(c, "model_type", "clip_text_model|clip", &type));
    TSR_TRY(read_architecture(c, &t->with_projection));
    TSR_TRY(tsr_cfg_get(c, "text_config", &text));
    if (type == 1 && cJSON_IsObject(text)) {
        c->obj = text;
        return read_text_fields(c, t);
    }
    TSR_TRY(read_text_fields(c, t));
    tsr_cfg_report_unknown(c, silent);
    return TSR_OK;
}

tsr_status tsr_clip_config_parse(const char *json, const char *name, tsr_clip_config *out,
                                 const tsr_log *log, tsr_err *err)
{
    tsr_clip_config t = {0};
    tsr_cfg c;
    tsr_status st;

    TSR_TRY(tsr_cfg_open(&c, json, name, log, err));
    st = read_clip(&c, &t);
    tsr_cfg_close(&c);
    if (st == TSR_OK)
        *out = t;
    return st;
}

tsr_status tsr_clip_config_load(const char *path, tsr_clip_config *out, const tsr_log *log,
                                tsr_err *err)
{
    char *json = NULL;
    tsr_status st = tsr_cfg_slurp(path, &json, err);

    if (st == TSR_OK)
        st = tsr_clip_config_parse(json, path, out, log, err);
    tsr_free(json);
    return st;
}
