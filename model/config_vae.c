/* config_vae.c -- vae/config.json of a diffusers directory: AutoencoderKL.
 *
 * Defaults are those of the class's constructor (they are not Stable Diffusion's: one level of 64
 * channels). Pictures have three channels. latents_mean and latents_std are both there or neither:
 * pipelines then use (x * std / scaling_factor + mean) instead of x / scaling_factor.
 *
 * Source: AutoencoderKL.__init__ of diffusers 0.42. */
#include "model/config.h"

#include <string.h>

#include "base/alloc.h"
#include "model/config_json.h"

enum { MAX_CHANNELS = 16384, MAX_LAYERS = 16, MAX_LATENT = 64, MAX_SAMPLE = 16384 };

_Static_assert(MAX_LATENT * sizeof(float) == sizeof(((tsr_vae_config *)0)->latents_mean),
               "one mean a latent channel");

static const tsr_cfg_fixed fixed_fields[] = {
    {.key = "act_fn", .kind = TSR_CFG_WORD, .words = "silu|swish"},
    {.key = "in_channels", .kind = TSR_CFG_NUMBER, .number = 3},
    {.key = "out_channels", .kind = TSR_CFG_NUMBER, .number = 3},
};

static tsr_status check_block_types(tsr_cfg *c, const char *key, const char *type, int32_t n_levels)
{
    int32_t n = 1, types[TSR_MAX_LEVELS];

    TSR_TRY(tsr_cfg_word_list(c, key, type, TSR_MAX_LEVELS, &n, types));
    if (n != n_levels)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %d %s for %d block_out_channels", c->name, (int)n, key,
                 (int)n_levels);
    return TSR_OK;
}

static tsr_status read_levels(tsr_cfg *c, tsr_vae_config *v)
{
    static const int32_t channels[2] = {1, MAX_CHANNELS}, layers[2] = {1, MAX_LAYERS};

    v->n_levels = 1;
    v->channels[0] = 64;
    TSR_TRY(tsr_cfg_int_list(c, "block_out_channels", channels, TSR_MAX_LEVELS, &v->n_levels,
                             v->channels));
    TSR_TRY(check_block_types(c, "down_block_types", "DownEncoderBlock2D", v->n_levels));
    TSR_TRY(check_block_types(c, "up_block_types", "UpDecoderBlock2D", v->n_levels));
    TSR_TRY(tsr_cfg_int(c, "layers_per_block", 1, layers, &v->layers_per_block));
    TSR_TRY(tsr_cfg_int(c, "norm_num_groups", 32, channels, &v->groups));
    for (int32_t i = 0; i < v->n_levels; i++)
        if (v->channels[i] % v->groups != 0)
            TSR_FAIL(c->err, TSR_E_MODEL,
                     "%s: block_out_channels %d is no multiple of norm_num_groups %d", c->name,
                     (int)v->channels[i], (int)v->groups);
    v->factor = 1 << (v->n_levels - 1);
    return TSR_OK;
}

static tsr_status read_latents(tsr_cfg *c, tsr_vae_config *v)
{
    static const int32_t latents[2] = {1, MAX_LATENT};
    int32_t n_mean, n_std;

    TSR_TRY(tsr_cfg_int(c, "latent_channels", 4, latents, &v->latent_channels));
    TSR_TRY(
        tsr_cfg_float(c, "scaling_factor", 0.18215f, (float[]){1e-6f, 1e6f}, &v->scaling_factor));
    TSR_TRY(tsr_cfg_float(c, "shift_factor", 0, (float[]){-1e6f, 1e6f}, &v->shift_factor));
    TSR_TRY(tsr_cfg_floats(c, "latents_mean", v->latent_channels, &n_mean, v->latents_mean));
    TSR_TRY(tsr_cfg_floats(c, "latents_std", v->latent_channels, &n_std, v->latents_std));
    if (n_mean != n_std)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: latents_mean and latents_std must be given together",
                 c->name);
    for (int32_t i = 0; i < n_std; i++)
        if (!(v->latents_std[i] > 0))
            TSR_FAIL(c->err, TSR_E_MODEL, "%s: latents_std has an entry that is not positive",
                     c->name);
    v->has_mean_std = n_mean > 0;
    return TSR_OK;
}

static tsr_status read_vae(tsr_cfg *c, tsr_vae_config *v)
{
    static const int32_t samples[2] = {1, MAX_SAMPLE};
    int32_t class_index, size[2];

    TSR_TRY(tsr_cfg_word(c, "_class_name", "AutoencoderKL", &class_index));
    TSR_TRY(tsr_cfg_check_fixed(c, fixed_fields, sizeof fixed_fields / sizeof *fixed_fields));
    v->in_channels = v->out_channels = 3;
    TSR_TRY(read_levels(c, v));
    TSR_TRY(read_latents(c, v));
    TSR_TRY(tsr_cfg_ints(c, "sample_size", 32, samples, 2, size));
    v->sample_size = size[0];
    TSR_TRY(tsr_cfg_bool(c, "force_upcast", true, &v->force_upcast));
    TSR_TRY(tsr_cfg_bool(c, "use_quant_conv", true, &v->use_quant_conv));
    TSR_TRY(tsr_cfg_bool(c, "use_post_quant_conv", true, &v->use_post_quant_conv));
    TSR_TRY(tsr_cfg_bool(c, "mid_block_add_attention", true, &v->mid_attention));
    tsr_cfg_report_unknown(c, "");
    return TSR_OK;
}

tsr_status tsr_vae_config_parse(const char *json, const char *name, tsr_vae_config *out,
                                const tsr_log *log, tsr_err *err)
{
    tsr_vae_config v = {0};
    tsr_cfg c;
    tsr_status st;

    TSR_TRY(tsr_cfg_open(&c, json, name, log, err));
    st = read_vae(&c, &v);
    tsr_cfg_close(&c);
    if (st == TSR_OK)
        *out = v;
    return st;
}

tsr_status tsr_vae_config_load(const char *path, tsr_vae_config *out, const tsr_log *log,
                               tsr_err *err)
{
    char *json = NULL;
    tsr_status st = tsr_cfg_slurp(path, &json, err);

    if (st == TSR_OK)
        st = tsr_vae_config_parse(json, path, out, log, err);
    tsr_free(json);
    return st;
}
