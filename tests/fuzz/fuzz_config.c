/* fuzz_config.c -- the four configs of a diffusers directory from hostile text.
 *
 * Input: a byte that says which config, then its text. What is accepted must be in range, since
 * shapes, loops and divisions rest on it. */
#include "model/config.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool ok)
{
    if (!ok)
        abort();
}

static void count_line(void *user, tsr_log_level level, const char *line)
{
    (void)level;
    *(size_t *)user += strlen(line);
}

static void check_unet(const tsr_unet_config *u)
{
    expect(u->n_levels >= 1 && u->n_levels <= TSR_MAX_LEVELS && u->groups > 0);
    for (int32_t i = 0; i < u->n_levels; i++) {
        expect(u->channels[i] > 0 && u->channels[i] % u->groups == 0);
        expect(u->layers_per_block[i] > 0 && u->n_heads[i] > 0 && u->cross_attention_dim[i] > 0);
        expect(u->transformer_layers[i] <= TSR_MAX_TRANSFORMER_LAYERS);
        if (tsr_unet_level_attends(u, i))
            expect(u->channels[i] % u->n_heads[i] == 0 && u->transformer_layers[i] > 0);
    }
    expect(u->sample_size[0] > 0 && u->sample_size[1] > 0 && u->time_embed_dim > 0);
    expect(u->norm_eps > 0 && u->norm_eps <= 1 && isfinite(u->freq_shift));
    expect((float)u->channels[0] / 2 > u->freq_shift && u->time_cond_proj_dim >= 0);
    expect(!u->text_time || (u->addition_time_embed_dim > 0 && u->projection_input_dim > 0));
    expect(u->conv_in_kernel % 2 == 1 && u->conv_out_kernel % 2 == 1 && u->conv_in_kernel <= 7);
}

static void check_vae(const tsr_vae_config *v)
{
    expect(v->n_levels >= 1 && v->n_levels <= TSR_MAX_LEVELS && v->groups > 0);
    for (int32_t i = 0; i < v->n_levels; i++)
        expect(v->channels[i] > 0 && v->channels[i] % v->groups == 0);
    expect(v->factor == 1 << (v->n_levels - 1) && v->layers_per_block > 0 && v->sample_size > 0);
    expect(v->latent_channels > 0 && v->latent_channels <= 64);
    expect(v->scaling_factor > 0 && isfinite(v->scaling_factor) && isfinite(v->shift_factor));
    for (int32_t i = 0; i < v->latent_channels && v->has_mean_std; i++)
        expect(isfinite(v->latents_mean[i]) && v->latents_std[i] > 0);
}

static void check_clip(const tsr_clip_config *t)
{
    expect(t->width > 0 && t->heads > 0 && t->width % t->heads == 0 && t->layers > 0);
    expect(t->vocab > 0 && t->positions > 0 && t->intermediate > 0 && t->eps > 0);
    expect(!t->with_projection || t->projection_dim > 0);
}

static tsr_status parse(int which, const char *json, const tsr_log *log, tsr_err *err)
{
    tsr_model_index m;
    tsr_unet_config u;
    tsr_vae_config v;
    tsr_clip_config t;
    tsr_status st;

    switch (which) {
    case 0:
        st = tsr_model_index_parse(json, "model_index.json", &m, log, err);
        if (st == TSR_OK)
            expect(m.pipeline[0] && m.card_steps >= 0 && m.card_guidance >= -1);
        return st;
    case 1:
        st = tsr_unet_config_parse(json, "unet/config.json", &u, log, err);
        if (st == TSR_OK)
            check_unet(&u);
        return st;
    case 2:
        st = tsr_vae_config_parse(json, "vae/config.json", &v, log, err);
        if (st == TSR_OK)
            check_vae(&v);
        return st;
    default:
        st = tsr_clip_config_parse(json, "text_encoder/config.json", &t, log, err);
        if (st == TSR_OK)
            check_clip(&t);
        return st;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n_logged = 0;
    const tsr_log log = {.fn = count_line, .user = &n_logged};
    tsr_err err = {0};
    char *json;

    if (size == 0)
        return 0;
    json = malloc(size);
    expect(json != NULL);
    memcpy(json, data + 1, size - 1);
    json[size - 1] = '\0';
    if (parse(data[0] % 4, json, &log, &err) != TSR_OK)
        expect(err.code == TSR_E_MODEL && err.msg[0]);
    free(json);
    return 0;
}
