/* config_index.c -- model_index.json: which pipeline a diffusers directory is, and of which parts.
 *
 *     "_class_name": "StableDiffusionPipeline",
 *     "unet": ["diffusers", "UNet2DConditionModel"], "safety_checker": [null, null], ...
 *     "tessera": { "steps": 20, "guidance": 5, "width": 512, "height": 512, "scheduler": "ddim" }
 *
 * A part is a folder of the same name with the class that reads it; [null, null] is an absent part.
 * Image-to-image and inpainting pipelines of the same families have the same parts, so they are
 * accepted; whether the UNet takes anything besides latents is checked in config_parts.c. Any
 * other pipeline or class would compute something else and is refused by its name. The safety
 * checker is not run. The "tessera" object is the model card: defaults for what `gen` is not told.
 *
 * force_zeros_for_empty_prompt is a constructor argument of the SDXL pipelines, true when absent;
 * the other pipelines have no such argument. */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/config_json.h"

enum { MAX_STEPS = 1000, MAX_SIDE = 16384 };

static const char pipelines_sd[] =
    "StableDiffusionPipeline|StableDiffusionImg2ImgPipeline|StableDiffusionInpaintPipeline|"
    "LatentConsistencyModelPipeline|LatentConsistencyModelImg2ImgPipeline";
static const char pipelines_xl[] = "StableDiffusionXLPipeline|StableDiffusionXLImg2ImgPipeline|"
                                   "StableDiffusionXLInpaintPipeline";

typedef struct part {
    const char *key, *library;
    const char *classes; /* NULL: checked elsewhere */
    bool xl_only;
} part;

static const part parts[] = {
    {"unet", "diffusers", "UNet2DConditionModel", false},
    {"vae", "diffusers", "AutoencoderKL", false},
    {"scheduler", "diffusers", NULL, false},
    {"text_encoder", "transformers", "CLIPTextModel", false},
    {"tokenizer", "transformers", "CLIPTokenizer|CLIPTokenizerFast", false},
    {"text_encoder_2", "transformers", "CLIPTextModelWithProjection", true},
    {"tokenizer_2", "transformers", "CLIPTokenizer|CLIPTokenizerFast", true},
};
/* Parts that change nothing in a picture made from text alone. */
static const char idle_parts[] = "safety_checker|feature_extractor|image_encoder";
static const char idle_keys[] = "requires_safety_checker|add_watermarker|safety_checker|"
                                "feature_extractor|image_encoder";

static tsr_status read_pipeline(tsr_cfg *c, tsr_model_index *m)
{
    bool refiner;

    TSR_TRY(tsr_cfg_text(c, "_class_name", m->pipeline, sizeof m->pipeline));
    m->is_xl = tsr_cfg_word_index(pipelines_xl, m->pipeline) >= 0;
    if (!m->is_xl && tsr_cfg_word_index(pipelines_sd, m->pipeline) < 0)
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s: pipeline \"%s\" is not supported; supported are StableDiffusionPipeline, "
                 "StableDiffusionXLPipeline, LatentConsistencyModelPipeline and their image "
                 "variants",
                 c->name, m->pipeline);
    TSR_TRY(tsr_cfg_bool(c, "requires_aesthetics_score", false, &refiner));
    if (refiner)
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s: the SDXL refiner (requires_aesthetics_score) is not supported; give the "
                 "SDXL base model",
                 c->name);
    return TSR_OK;
}

/* ["library", "Class"]; *there is false for null, [null, null] and an absent key. */
static tsr_status read_part(tsr_cfg *c, const char *key, const char **library, const char **class,
                            bool *there)
{
    const cJSON *item, *lib, *cls;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    *there = false;
    if (!item || cJSON_IsNull(item))
        return TSR_OK;
    lib = cJSON_GetArrayItem(item, 0);
    cls = cJSON_GetArrayItem(item, 1);
    if (cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2 && cJSON_IsNull(cls))
        return TSR_OK;
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 2 || !cJSON_IsString(lib) ||
        !cJSON_IsString(cls))
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s is not a pair of a library and a class", c->name,
                 key);
    *library = lib->valuestring;
    *class = cls->valuestring;
    *there = true;
    return TSR_OK;
}

static tsr_status check_part(tsr_cfg *c, const tsr_model_index *m, const part *p)
{
    const char *library = "", *class = "";
    bool there;

    TSR_TRY(read_part(c, p->key, &library, &class, &there));
    if (p->xl_only && !m->is_xl) {
        if (there)
            TSR_FAIL(c->err, TSR_E_MODEL, "%s: a %s in a %s is not supported", c->name, p->key,
                     m->pipeline);
        return TSR_OK;
    }
    if (!there)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: the model has no %s%s", c->name, p->key,
                 m->is_xl && strcmp(p->key, "text_encoder") == 0
                     ? ": it is the SDXL refiner, which is not supported; give the SDXL base model"
                     : "");
    if (strcmp(library, p->library) != 0 ||
        (p->classes && tsr_cfg_word_index(p->classes, class) < 0))
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s of class %s.%s is not supported; supported: %s.%s",
                 c->name, p->key, library, class, p->library, p->classes ? p->classes : "any");
    return TSR_OK;
}

/* A pair of texts under any other key is a part that would take part in the computation. */
static tsr_status check_other_parts(tsr_cfg *c)
{
    for (const cJSON *i = c->obj->child; i; i = i->next) {
        const char *library, *class;
        bool there, known = tsr_cfg_word_index(idle_parts, i->string) >= 0;
        for (size_t k = 0; k < sizeof parts / sizeof *parts && !known; k++)
            known = strcmp(parts[k].key, i->string) == 0;
        if (known || !cJSON_IsArray(i))
            continue;
        TSR_TRY(read_part(c, i->string, &library, &class, &there));
        if (there)
            TSR_FAIL(c->err, TSR_E_MODEL, "%s: a model with a part \"%s\" (%s) is not supported",
                     c->name, i->string, class);
    }
    return TSR_OK;
}

static tsr_status read_card_fields(tsr_cfg *card, tsr_model_index *m)
{
    static const int32_t steps[2] = {1, MAX_STEPS}, sides[2] = {8, MAX_SIDE};

    TSR_TRY(tsr_cfg_int(card, "steps", 0, steps, &m->card_steps));
    TSR_TRY(tsr_cfg_int(card, "width", 0, sides, &m->card_width));
    TSR_TRY(tsr_cfg_int(card, "height", 0, sides, &m->card_height));
    TSR_TRY(tsr_cfg_float(card, "guidance", -1, (float[]){0, 100}, &m->card_guidance));
    TSR_TRY(tsr_cfg_text(card, "scheduler", m->card_scheduler, sizeof m->card_scheduler));
    tsr_cfg_report_unknown(card, "");
    return TSR_OK;
}

static tsr_status read_card(tsr_cfg *c, tsr_model_index *m)
{
    char name[512];
    tsr_cfg card = {.name = name, .log = c->log, .err = c->err};

    m->card_guidance = -1;
    TSR_TRY(tsr_cfg_get(c, "tessera", &card.obj));
    if (!card.obj || cJSON_IsNull(card.obj))
        return TSR_OK;
    if (!cJSON_IsObject(card.obj))
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: tessera (the model card) is not an object", c->name);
    snprintf(name, sizeof name, "%s: tessera", c->name);
    return read_card_fields(&card, m);
}

static tsr_status read_index(tsr_cfg *c, tsr_model_index *m)
{
    TSR_TRY(read_pipeline(c, m));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        TSR_TRY(check_part(c, m, &parts[i]));
    TSR_TRY(check_other_parts(c));
    m->has_text_encoder_2 = m->is_xl;
    TSR_TRY(tsr_cfg_bool(c, "force_zeros_for_empty_prompt", m->is_xl,
                         &m->force_zeros_for_empty_prompt));
    TSR_TRY(read_card(c, m));
    tsr_cfg_report_unknown(c, idle_keys);
    return TSR_OK;
}

tsr_status tsr_model_index_parse(const char *json, const char *name, tsr_model_index *out,
                                 const tsr_log *log, tsr_err *err)
{
    tsr_model_index m = {0};
    tsr_cfg c;
    tsr_status st;

    TSR_TRY(tsr_cfg_open(&c, json, name, log, err));
    st = read_index(&c, &m);
    tsr_cfg_close(&c);
    if (st == TSR_OK)
        *out = m;
    return st;
}

tsr_status tsr_model_index_load(const char *dir, tsr_model_index *out, const tsr_log *log,
                                tsr_err *err)
{
    char *path = tsr_path_join(dir, "model_index.json"), *json = NULL;
    tsr_status st = path ? tsr_cfg_slurp(path, &json, err)
                         : tsr_err_set(err, TSR_E_OOM, "out of memory for opening %s", dir);

    if (st == TSR_OK)
        st = tsr_model_index_parse(json, path, out, log, err);
    tsr_free(json);
    tsr_free(path);
    return st;
}
