/* e2e.c -- see e2e.h. */
#include "tests/support/e2e.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_PNG
#include <stb_image.h>

#include "base/alloc.h"
#include "base/file.h"

static cJSON *read_json(const char *path)
{
    char *text = NULL;
    cJSON *json;

    if (tsr_file_slurp(path, (size_t)8 << 20, &text, NULL, NULL) != TSR_OK)
        return NULL;
    json = cJSON_Parse(text);
    tsr_free(text);
    return json;
}

cJSON *e2e_manifest(const char *root)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/manifest.json", root);
    return read_json(path);
}

/* Writes the scheduler config of a case: the model's own, with another class and other values. */
static bool write_scheduler(const char *model, const char *dir, const cJSON *override)
{
    char path[8192];
    cJSON *config, *item;
    char *text;
    FILE *f;

    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", model);
    config = read_json(path);
    if (!config)
        return false;
    if (override) {
        cJSON_ReplaceItemInObject(config, "_class_name",
                                  cJSON_Duplicate(cJSON_GetArrayItem(override, 0), true));
        cJSON_ArrayForEach(item, cJSON_GetArrayItem(override, 1))
        {
            cJSON_DeleteItemFromObject(config, item->string);
            cJSON_AddItemToObject(config, item->string, cJSON_Duplicate(item, true));
        }
    }
    text = cJSON_Print(config);
    snprintf(path, sizeof path, "%s/scheduler", dir);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", dir);
    f = fopen(path, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    cJSON_free(text);
    cJSON_Delete(config);
    return f != NULL;
}

static bool make_model(const char *root, e2e_case *c)
{
    static const char *const parts[] = {"model_index.json",
                                        "text_encoder",
                                        "text_encoder_2",
                                        "tokenizer",
                                        "tokenizer_2",
                                        "unet",
                                        "vae"};
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(c->spec, "model"));
    char model[4096], from[8192], to[8192];
    struct stat st;

    snprintf(model, sizeof model, "%s/models/%s", root, name);
    snprintf(from, sizeof from, "%s/text_encoder", model);
    if (stat(from, &st) != 0)
        return false; /* this root has the model's networks only */
    snprintf(c->model_dir, sizeof c->model_dir, "%s", test_temp_dir());
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(from, sizeof from, "%s/%s", model, parts[i]);
        snprintf(to, sizeof to, "%s/%s", c->model_dir, parts[i]);
        if (stat(from, &st) == 0 && symlink(from, to) != 0)
            return false;
    }
    return write_scheduler(model, c->model_dir, cJSON_GetObjectItem(c->spec, "scheduler"));
}

bool e2e_next(cJSON *manifest, cJSON **item, const char *root, e2e_case *c)
{
    static const char prefix[] = "golden/e2e/", suffix[] = ".safetensors";

    for (*item = *item ? (*item)->next : manifest->child; *item; *item = (*item)->next) {
        const char *key = (*item)->string;
        size_t n = strlen(key);

        c->spec = cJSON_GetObjectItem(*item, "case");
        if (strncmp(key, prefix, sizeof prefix - 1) != 0 || n < sizeof suffix ||
            strcmp(key + n - (sizeof suffix - 1), suffix) != 0 || !c->spec ||
            cJSON_GetObjectItem(c->spec, "pipeline"))
            continue; /* another kind of file, or image to image */
        snprintf(c->name, sizeof c->name, "%.*s",
                 (int)(n - (sizeof prefix - 1) - (sizeof suffix - 1)), key + sizeof prefix - 1);
        if (golden_has(root, key) && make_model(root, c))
            return true;
    }
    return false;
}

static double number(const cJSON *o, const char *key, double otherwise)
{
    const cJSON *x = cJSON_GetObjectItem(o, key);

    return cJSON_IsNumber(x) ? x->valuedouble : otherwise;
}

static int32_t element(const cJSON *o, const char *key, int i)
{
    const cJSON *x = cJSON_GetArrayItem(cJSON_GetObjectItem(o, key), i);

    return x ? x->valueint : 0;
}

tsr_run_desc e2e_desc(const e2e_case *c)
{
    const cJSON *call = cJSON_GetObjectItem(c->spec, "call");

    return (tsr_run_desc){
        .prompt = cJSON_GetStringValue(cJSON_GetObjectItem(call, "prompt")),
        .negative_prompt = cJSON_GetStringValue(cJSON_GetObjectItem(call, "negative_prompt")),
        .prompt_2 = cJSON_GetStringValue(cJSON_GetObjectItem(call, "prompt_2")),
        .negative_prompt_2 = cJSON_GetStringValue(cJSON_GetObjectItem(call, "negative_prompt_2")),
        .width = (int32_t)number(call, "width", 0),
        .height = (int32_t)number(call, "height", 0),
        .steps = (int32_t)number(call, "num_inference_steps", 0),
        .guidance = (float)number(call, "guidance_scale", 0),
        .guidance_rescale = (float)number(call, "guidance_rescale", 0),
        .eta = (float)number(call, "eta", 0),
        .clip_skip = (int32_t)number(call, "clip_skip", 0),
        .n_pictures = (int32_t)number(call, "num_images_per_prompt", 1),
        .seed = (uint64_t)number(c->spec, "seed", 0),
        .seed_given = true,
        .original_height = element(call, "original_size", 0),
        .original_width = element(call, "original_size", 1),
        .crop_y = element(call, "crops_coords_top_left", 0),
        .crop_x = element(call, "crops_coords_top_left", 1),
        .target_height = element(call, "target_size", 0),
        .target_width = element(call, "target_size", 1),
    };
}

uint8_t *e2e_read_png(const char *path, int32_t *width, int32_t *height)
{
    int channels;

    return stbi_load(path, width, height, &channels, 3);
}

double e2e_psnr(const uint8_t *a, const uint8_t *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)n / sum) : 99;
}
