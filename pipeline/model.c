/* model.c -- a diffusers directory or a packed checkpoint, opened: configs, tensor headers,
 * tokenizers; no tensor data.
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

typedef tsr_status (*config_parse_fn)(const char *json, const char *name, void *out,
                                      const tsr_log *log, tsr_err *err);

static tsr_status parse_index(const char *json, const char *name, void *out, const tsr_log *log,
                              tsr_err *err)
{
    return tsr_model_index_parse(json, name, out, log, err);
}
static tsr_status parse_unet(const char *json, const char *name, void *out, const tsr_log *log,
                             tsr_err *err)
{
    return tsr_unet_config_parse(json, name, out, log, err);
}
static tsr_status parse_vae(const char *json, const char *name, void *out, const tsr_log *log,
                            tsr_err *err)
{
    return tsr_vae_config_parse(json, name, out, log, err);
}
static tsr_status parse_clip(const char *json, const char *name, void *out, const tsr_log *log,
                             tsr_err *err)
{
    return tsr_clip_config_parse(json, name, out, log, err);
}

/* A config of the model by its name ("unet/config.json"). */
static tsr_status read_config(tsr_model *m, const char *name, config_parse_fn parse, void *config)
{
    tsr_err *err = &m->ctx->err;
    char *json = NULL, *path = tsr_path_join(m->path, name);
    tsr_status st;

    if (!path)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the path of %s", name);
    st = tsr_cfg_read(&m->folder, name, &json, err);
    if (st == TSR_OK)
        st = parse(json, path, config, &m->ctx->log, err);
    tsr_free(json);
    tsr_free(path);
    return st;
}

/* One part: its config and its tensors' names. */
static tsr_status open_part(tsr_model *m, const char *name, const char *stem, config_parse_fn parse,
                            void *config, tsr_component *c)
{
    tsr_err *err = &m->ctx->err;
    char file[64], *dir;
    tsr_status st;

    snprintf(file, sizeof file, "%s/config.json", name);
    TSR_TRY(read_config(m, file, parse, config));
    if (m->is_packed)
        return tsr_component_open_packed(c, &m->packed, name, err);
    dir = tsr_path_join(m->path, name);
    if (!dir)
        TSR_FAIL(err, TSR_E_OOM, "no memory for the path of %s", name);
    st = tsr_component_open(c, dir, name, stem, err);
    tsr_free(dir);
    return st;
}

tsr_status tsr_model_open_index(tsr_model *m)
{
    return read_config(m, "model_index.json", parse_index, &m->index);
}

tsr_status tsr_model_open_tokenizer(tsr_model *m, int32_t e)
{
    tsr_err *err = &m->ctx->err;
    tsr_folder folder = m->folder;

    folder.sub = tokenizer_names[e];
    TSR_TRY(tsr_tokenizer_load_from(&m->tokenizer[e], &folder, &m->ctx->log, err));
    if (tsr_tokenizer_size(m->tokenizer[e]) > m->clip_cfg[e].vocab)
        TSR_FAIL(
            err, TSR_E_MODEL,
            "%s/%s: %d tokens, but %s/config.json says vocab_size %d; they are not of one model",
            m->path, tokenizer_names[e], tsr_tokenizer_size(m->tokenizer[e]), encoder_names[e],
            m->clip_cfg[e].vocab);
    return TSR_OK;
}

tsr_status tsr_model_open_scheduler(tsr_model *m)
{
    return tsr_cfg_read(&m->folder, "scheduler/scheduler_config.json", &m->scheduler_json,
                        &m->ctx->err);
}

tsr_status tsr_model_open_encoder(tsr_model *m, int32_t e)
{
    TSR_TRY(open_part(m, encoder_names[e], "model", parse_clip, &m->clip_cfg[e], &m->clip[e]));
    /* The pipeline's class decides, as in diffusers: a config may leave its "architectures" out. */
    m->clip_cfg[e].with_projection = e == 1;
    return TSR_OK;
}

tsr_status tsr_model_open_unet(tsr_model *m)
{
    return open_part(m, "unet", "diffusion_pytorch_model", parse_unet, &m->unet_cfg, &m->unet);
}

tsr_status tsr_model_open_vae(tsr_model *m)
{
    return open_part(m, "vae", "diffusion_pytorch_model", parse_vae, &m->vae_cfg, &m->vae);
}

static tsr_status open_parts(tsr_model *m)
{
    tsr_err *err = &m->ctx->err;

    TSR_TRY(tsr_model_open_index(m));
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
    tsr_unet_shape shape = {.pictures = 1, .prompts = 1, .h = 8, .w = 8, .s = 1, .n_steps = 1};
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

tsr_dtype tsr_model_check_dtype(const tsr_model *m)
{
    return m->is_packed ? m->packed.dtype : TSR_F32;
}

tsr_dtype tsr_model_vae_dtype(const tsr_model *m, tsr_dtype dtype)
{
    return m->index.is_xl && m->vae_cfg.force_upcast ? TSR_F32 : dtype;
}

static tsr_status check_all(tsr_model *m)
{
    static const tsr_model_check_fn checks[] = {
        tsr_model_check_text,    tsr_model_check_text_2,  tsr_model_check_unet,
        tsr_model_check_decoder, tsr_model_check_encoder,
    };
    const tsr_log *log = &m->ctx->log;

    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        tsr_tape t;
        tsr_status st;

        tsr_tape_init(&t, tsr_model_check_dtype(m), &m->ctx->err);
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

static tsr_status check_path(tsr_context *ctx, const char *path)
{
    if (tsr_path_is_file(path) && !tsr_packed_is(path))
        TSR_FAIL(&ctx->err, TSR_E_USAGE,
                 "%s is a file: single-file checkpoints are not there yet; give a diffusers "
                 "directory, or what gen convert made of one",
                 path);
    if (!tsr_path_is_file(path) && !tsr_path_is_dir(path))
        TSR_FAIL(&ctx->err, TSR_E_IO, "%s: no such directory; --model takes a diffusers directory",
                 path);
    return TSR_OK;
}

tsr_status tsr_model_new(tsr_context *ctx, const char *path, tsr_model **out)
{
    tsr_model *m;

    TSR_TRY(check_path(ctx, path));
    m = tsr_calloc(1, sizeof *m);
    if (!m || !(m->path = tsr_strdup(path))) {
        tsr_free(m);
        TSR_FAIL(&ctx->err, TSR_E_OOM, "no memory to open %s", path);
    }
    m->ctx = ctx;
    m->folder.path = m->path;
    if (tsr_path_is_file(path)) {
        tsr_status st = tsr_packed_open(&m->packed, path, ctx->backend, &ctx->err);
        if (st != TSR_OK) {
            tsr_model_free(m);
            return st;
        }
        m->is_packed = true;
        m->folder.ranges = m->packed.files;
        m->folder.n_ranges = m->packed.n_files;
    }
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
    tsr_packed_close(&m->packed);
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
