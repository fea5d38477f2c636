/* model.c -- a diffusers directory, opened: configs, tensor headers, tokenizers; no tensor data.
 *
 * After the parts are open, every network is recorded once at a small size on a throw-away tape
 * (check_all): that is the one list of the tensors that the model needs, so a missing tensor,
 * a wrong shape and a tensor that nobody uses are all found before anything is computed. */
#include "pipeline/pipeline_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/config_json.h"

static const char *const encoder_names[] = {"text_encoder", "text_encoder_2"};
static const char *const tokenizer_names[] = {"tokenizer", "tokenizer_2"};

const char *tsr_model_family(const tsr_model *m)
{
    if (m->index.is_xl)
        return "Stable Diffusion XL";
    return m->unet_cfg.use_linear_projection ? "Stable Diffusion 2.x" : "Stable Diffusion 1.x";
}

/* dir/part/file of the model; NULL when out of memory. */
static char *part_path(const tsr_model *m, const char *part, const char *file)
{
    char *dir = tsr_path_join(m->path, part);
    char *path = dir && file ? tsr_path_join(dir, file) : NULL;

    if (!file)
        return dir;
    tsr_free(dir);
    return path;
}

typedef tsr_status (*config_load_fn)(const char *path, void *out, const tsr_log *log, tsr_err *err);

static tsr_status load_unet_config(const char *path, void *out, const tsr_log *log, tsr_err *err)
{
    return tsr_unet_config_load(path, out, log, err);
}
static tsr_status load_vae_config(const char *path, void *out, const tsr_log *log, tsr_err *err)
{
    return tsr_vae_config_load(path, out, log, err);
}
static tsr_status load_clip_config(const char *path, void *out, const tsr_log *log, tsr_err *err)
{
    return tsr_clip_config_load(path, out, log, err);
}

/* One part: its config and its tensors' names. */
static tsr_status open_part(tsr_model *m, const char *name, const char *stem, config_load_fn load,
                            void *config, tsr_component *c)
{
    tsr_err *err = &m->ctx->err;
    char *path = part_path(m, name, "config.json");
    char *dir = part_path(m, name, NULL);
    tsr_status st = TSR_OK;

    if (!path || !dir)
        st = tsr_err_set(err, TSR_E_OOM, "no memory for the path of %s", name);
    if (st == TSR_OK)
        st = load(path, config, &m->ctx->log, err);
    if (st == TSR_OK)
        st = tsr_component_open(c, dir, name, stem, err);
    tsr_free(path);
    tsr_free(dir);
    return st;
}

tsr_status tsr_model_open_tokenizer(tsr_model *m, int32_t e)
{
    tsr_err *err = &m->ctx->err;
    char *dir = part_path(m, tokenizer_names[e], NULL);
    tsr_status st;

    if (!dir)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the path of %s", tokenizer_names[e]);
    st = tsr_tokenizer_load(&m->tokenizer[e], dir, &m->ctx->log, err);
    tsr_free(dir);
    if (st == TSR_OK && tsr_tokenizer_size(m->tokenizer[e]) > m->clip_cfg[e].vocab)
        TSR_FAIL(
            err, TSR_E_MODEL,
            "%s/%s: %d tokens, but %s/config.json says vocab_size %d; they are not of one model",
            m->path, tokenizer_names[e], tsr_tokenizer_size(m->tokenizer[e]), encoder_names[e],
            m->clip_cfg[e].vocab);
    return st;
}

tsr_status tsr_model_open_scheduler(tsr_model *m)
{
    tsr_err *err = &m->ctx->err;
    char *path = part_path(m, "scheduler", "scheduler_config.json");
    tsr_status st;

    if (!path)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the scheduler's path");
    st = tsr_cfg_slurp(path, &m->scheduler_json, err);
    tsr_free(path);
    return st;
}

tsr_status tsr_model_open_encoder(tsr_model *m, int32_t e)
{
    TSR_TRY(
        open_part(m, encoder_names[e], "model", load_clip_config, &m->clip_cfg[e], &m->clip[e]));
    /* The pipeline's class decides, as in diffusers: a config may leave its "architectures" out. */
    m->clip_cfg[e].with_projection = e == 1;
    return TSR_OK;
}

tsr_status tsr_model_open_unet(tsr_model *m)
{
    return open_part(m, "unet", "diffusion_pytorch_model", load_unet_config, &m->unet_cfg,
                     &m->unet);
}

tsr_status tsr_model_open_vae(tsr_model *m)
{
    return open_part(m, "vae", "diffusion_pytorch_model", load_vae_config, &m->vae_cfg, &m->vae);
}

static tsr_status open_parts(tsr_model *m)
{
    tsr_err *err = &m->ctx->err;

    TSR_TRY(tsr_model_index_load(m->path, &m->index, &m->ctx->log, err));
    m->n_encoders = m->index.has_text_encoder_2 ? 2 : 1;
    for (int32_t e = 0; e < m->n_encoders; e++)
        TSR_TRY(tsr_model_open_encoder(m, e));
    TSR_TRY(tsr_model_open_unet(m));
    TSR_TRY(tsr_model_open_vae(m));
    TSR_TRY(tsr_model_check_parts(&m->unet_cfg, &m->vae_cfg, &m->clip_cfg[0],
                                  m->n_encoders > 1 ? &m->clip_cfg[1] : NULL, &m->index, err));
    for (int32_t e = 0; e < m->n_encoders; e++)
        TSR_TRY(tsr_model_open_tokenizer(m, e));
    return tsr_model_open_scheduler(m);
}

static tsr_status check_encoder_text(tsr_model *m, tsr_tape *t, int32_t e)
{
    tsr_clip_shape shape = {.n = 1, .s = 1, .final_norm = true, .pooled = true};
    tsr_clip_io io = {0};

    return tsr_clip_build(t, &m->clip[e], &m->clip_cfg[e], &shape, &io, NULL, 0);
}

tsr_status tsr_model_check_text(tsr_model *m, tsr_tape *t)
{
    return check_encoder_text(m, t, 0);
}

tsr_status tsr_model_check_text_2(tsr_model *m, tsr_tape *t)
{
    return m->n_encoders > 1 ? check_encoder_text(m, t, 1) : TSR_OK;
}

tsr_status tsr_model_check_unet(tsr_model *m, tsr_tape *t)
{
    tsr_unet_shape shape = {
        .n = 1, .latent_n = 1, .h = 8, .w = 8, .s = 1, .n_steps = 1, .t_rows = 1};
    tsr_unet_io io = {0};

    return tsr_unet_build(t, &m->unet, &m->unet_cfg, &shape, &io, NULL, 0);
}

tsr_status tsr_model_check_decoder(tsr_model *m, tsr_tape *t)
{
    tsr_val in, out;

    return tsr_vae_decode_build(t, &m->vae, &m->vae_cfg, (int32_t[]){1, 2, 2}, true, &in, &out,
                                NULL, 0);
}

tsr_status tsr_model_check_encoder(tsr_model *m, tsr_tape *t)
{
    int32_t side = 2 * m->vae_cfg.factor;
    tsr_val in, out;

    return tsr_vae_encode_build(t, &m->vae, &m->vae_cfg, (int32_t[]){1, side, side}, &in, &out,
                                NULL, 0);
}

static tsr_status check_all(tsr_model *m)
{
    static tsr_status (*const checks[])(tsr_model *, tsr_tape *) = {
        tsr_model_check_text,    tsr_model_check_text_2,  tsr_model_check_unet,
        tsr_model_check_decoder, tsr_model_check_encoder,
    };
    const tsr_log *log = &m->ctx->log;

    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        tsr_tape t;
        tsr_status st;

        tsr_tape_init(&t, TSR_F32, &m->ctx->err);
        st = checks[i](m, &t);
        tsr_tape_free(&t);
        TSR_TRY(st);
    }
    for (int32_t e = 0; e < m->n_encoders; e++)
        tsr_component_report_unused(&m->clip[e], log);
    tsr_component_report_unused(&m->unet, log);
    tsr_component_report_unused(&m->vae, log);
    return TSR_OK;
}

tsr_status tsr_model_new(tsr_context *ctx, const char *path, tsr_model **out)
{
    tsr_model *m;

    if (tsr_path_is_file(path))
        TSR_FAIL(
            &ctx->err, TSR_E_USAGE,
            "%s is a file: single-file checkpoints are not there yet; give a diffusers directory",
            path);
    if (!tsr_path_is_dir(path))
        TSR_FAIL(&ctx->err, TSR_E_IO, "%s: no such directory; --model takes a diffusers directory",
                 path);
    m = tsr_calloc(1, sizeof *m);
    if (!m || !(m->path = tsr_strdup(path))) {
        tsr_free(m);
        TSR_FAIL(&ctx->err, TSR_E_OOM, "no memory to open %s", path);
    }
    m->ctx = ctx;
    *out = m;
    return TSR_OK;
}

tsr_status tsr_model_open(tsr_context *ctx, const char *path, tsr_model **out)
{
    tsr_model *m;
    tsr_status st;

    tsr_err_clear(&ctx->err);
    TSR_TRY(tsr_model_new(ctx, path, &m));
    st = open_parts(m);
    if (st == TSR_OK)
        st = check_all(m);
    if (st != TSR_OK) {
        tsr_model_free(m);
        return st;
    }
    TSR_INFO(&ctx->log, "%s: %s", path, tsr_model_family(m));
    *out = m;
    return TSR_OK;
}

void tsr_model_free(tsr_model *m)
{
    if (!m)
        return;
    for (int32_t e = 0; e < TSR_MAX_ENCODERS; e++) {
        tsr_component_close(&m->clip[e]);
        tsr_tokenizer_free(m->tokenizer[e]);
    }
    tsr_component_close(&m->unet);
    tsr_component_close(&m->vae);
    tsr_free(m->scheduler_json);
    tsr_free(m->path);
    tsr_free(m);
}

tsr_status tsr_model_tokenize(tsr_model *m, int32_t encoder, const char *text, size_t text_bytes,
                              const int32_t **ids, int32_t *n_ids)
{
    tsr_err_clear(&m->ctx->err);
    if (encoder < 0 || encoder >= m->n_encoders)
        TSR_FAIL(&m->ctx->err, TSR_E_USAGE, "tokenizer %d: this model has %d", encoder,
                 m->n_encoders);
    return tsr_tokenizer_encode(m->tokenizer[encoder], text, text_bytes, ids, n_ids, &m->ctx->err);
}
