/* settings.c -- what a run was asked for, resolved against the model.
 *
 * Order of precedence, for every setting: the caller's value, the model's own card (the "tessera"
 * object of its model_index.json), the documented default. Everything is checked here, by name, so
 * that later stages take it as given. */
#include "pipeline/pipeline_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/num.h"

#define DEFAULT_STEPS 25
#define LCM_STEPS 4

const char *tsr_dtype_precision(tsr_dtype d)
{
    return d == TSR_F16 ? "fp16" : "fp32";
}

static bool in_range(float x, float low, float high)
{
    return x >= low && x <= high;
} /* false for NaN */

static tsr_status check_numbers(tsr_context *ctx, const tsr_model *m, const tsr_run_desc *d)
{
    tsr_err *err = &ctx->err;

    if ((d->width != 0 && (d->width < 8 || d->width > TSR_MAX_SIZE)) ||
        (d->height != 0 && (d->height < 8 || d->height > TSR_MAX_SIZE)))
        TSR_FAIL(err, TSR_E_USAGE, "a picture of %dx%d: width and height are 8 to %d", d->width,
                 d->height, TSR_MAX_SIZE);
    if (d->steps < 0 || d->steps > TSR_MAX_STEPS)
        TSR_FAIL(err, TSR_E_USAGE, "%d steps: use 1 to %d", d->steps, TSR_MAX_STEPS);
    if (!in_range(d->guidance, 0, 1000))
        TSR_FAIL(err, TSR_E_USAGE, "guidance %g: use 0 to 1000, 1 turns it off",
                 (double)d->guidance);
    if (!in_range(d->guidance_rescale, 0, 1))
        TSR_FAIL(err, TSR_E_USAGE, "guidance rescale %g: use 0 to 1", (double)d->guidance_rescale);
    if (!in_range(d->eta, 0, 1))
        TSR_FAIL(err, TSR_E_USAGE, "eta %g: use 0 to 1", (double)d->eta);
    if (d->n_pictures < 0 || d->n_pictures > 1000000)
        TSR_FAIL(err, TSR_E_USAGE, "%d pictures: use 1 to 1000000", d->n_pictures);
    for (int32_t e = 0; e < m->n_encoders; e++) {
        /* SDXL takes the layer before the last to begin with */
        int32_t most = m->clip_cfg[e].layers - 1 - (m->index.is_xl ? 1 : 0);
        if (d->clip_skip < 0 || d->clip_skip > most)
            TSR_FAIL(err, TSR_E_USAGE, "clip skip %d: this model's text encoder allows 0 to %d",
                     d->clip_skip, most);
    }
    if (d->precision == TSR_PRECISION_BF16)
        TSR_FAIL(err, TSR_E_USAGE, "precision bf16 is for GPUs; on a CPU use fp16 or fp32");
    return TSR_OK;
}

static tsr_status copy_text(tsr_context *ctx, char **dst, const char *text, const char *what)
{
    *dst = tsr_strdup(text ? text : "");
    if (!*dst)
        TSR_FAIL(&ctx->err, TSR_E_OOM, "no memory for %s", what);
    return TSR_OK;
}

static void check_text(tsr_context *ctx, const char *text, const char *what)
{
    if (text && !tsr_utf8_valid(text, strlen(text)))
        TSR_WARN(&ctx->log, "%s is no valid UTF-8; broken bytes are replaced", what);
}

/* The second encoder's prompts are the first's where they are not given (or empty, as in
 * diffusers). */
static tsr_status resolve_prompts(tsr_settings *s, tsr_context *ctx, const tsr_model *m,
                                  const tsr_run_desc *d)
{
    const char *prompt_2 = d->prompt_2 && *d->prompt_2 ? d->prompt_2 : d->prompt;
    const char *negative_2 =
        d->negative_prompt_2 && *d->negative_prompt_2 ? d->negative_prompt_2 : d->negative_prompt;

    if (m->n_encoders < 2 && (d->prompt_2 || d->negative_prompt_2))
        TSR_FAIL(&ctx->err, TSR_E_USAGE,
                 "this model has one text encoder; --prompt-2 and --negative-prompt-2 are for "
                 "models with two");
    check_text(ctx, d->prompt, "the prompt");
    check_text(ctx, d->negative_prompt, "the negative prompt");
    check_text(ctx, d->prompt_2, "the second prompt");
    check_text(ctx, d->negative_prompt_2, "the second negative prompt");
    TSR_TRY(copy_text(ctx, &s->prompt[0], d->prompt, "the prompt"));
    TSR_TRY(copy_text(ctx, &s->negative[0], d->negative_prompt, "the negative prompt"));
    TSR_TRY(copy_text(ctx, &s->prompt[1], prompt_2, "the second prompt"));
    TSR_TRY(copy_text(ctx, &s->negative[1], negative_2, "the second negative prompt"));
    s->negative_given = d->negative_prompt != NULL;
    s->prompt_2_given = d->prompt_2 != NULL;
    s->negative_2_given = d->negative_prompt_2 != NULL;
    s->zero_negative =
        m->index.is_xl && m->index.force_zeros_for_empty_prompt && !d->negative_prompt;
    return TSR_OK;
}

void tsr_settings_set_size(tsr_settings *s, const tsr_model *m, int32_t width, int32_t height)
{
    int32_t f = m->vae_cfg.factor;

    s->width = width;
    s->height = height;
    s->net_width = tsr_div_up(width, f) * f;
    s->net_height = tsr_div_up(height, f) * f;
    s->latent_c = m->vae_cfg.latent_channels;
    s->latent_w = s->net_width / f;
    s->latent_h = s->net_height / f;
    if (s->task == TSR_TASK_ENCODE) { /* a picture is taken as it is */
        s->latent_w = width / f;
        s->latent_h = height / f;
    }
}

/* Final latents say how many pictures there are, and how large. */
static tsr_status resolve_decode(tsr_run_desc *d, tsr_context *ctx, const tsr_model *m)
{
    const int32_t *shape = d->latents_shape, f = m->vae_cfg.factor;

    if (!d->latents)
        TSR_FAIL(&ctx->err, TSR_E_USAGE, "there are no latents to decode");
    if (shape[0] < 1 || shape[2] < 1 || shape[3] < 1 || shape[2] > TSR_MAX_SIZE / f ||
        shape[3] > TSR_MAX_SIZE / f)
        TSR_FAIL(&ctx->err, TSR_E_USAGE,
                 "latents of [%d,%d,%d,%d]: a picture has at most %d x %d of them", shape[0],
                 shape[1], shape[2], shape[3], TSR_MAX_SIZE / f, TSR_MAX_SIZE / f);
    d->n_pictures = shape[0];
    d->height = d->height ? d->height : shape[2] * f;
    d->width = d->width ? d->width : shape[3] * f;
    return TSR_OK;
}

static tsr_status resolve_encode(tsr_run_desc *d, tsr_context *ctx, const tsr_model *m)
{
    int32_t f = m->vae_cfg.factor;

    if (!d->image || d->width < f || d->height < f)
        TSR_FAIL(&ctx->err, TSR_E_USAGE,
                 "a picture of %dx%d cannot be encoded: this model needs at least %dx%d", d->width,
                 d->height, f, f);
    d->n_pictures = 1;
    return TSR_OK;
}

/* A task without a prompt: what only a prompt has does not matter, and what it has itself rules. */
static tsr_status resolve_task(tsr_run_desc *d, tsr_context *ctx, const tsr_model *m)
{
    if (d->task == TSR_TASK_DECODE)
        return resolve_decode(d, ctx, m);
    if (d->task == TSR_TASK_ENCODE)
        return resolve_encode(d, ctx, m);
    return TSR_OK;
}

/* The caller's size; the card's; the network's own. One given side means a square. */
static void resolve_size(tsr_settings *s, const tsr_model *m, const tsr_run_desc *d)
{
    int32_t f = m->vae_cfg.factor;
    int32_t w = m->index.card_width > 0 ? m->index.card_width : m->unet_cfg.sample_size[1] * f;
    int32_t h = m->index.card_height > 0 ? m->index.card_height : m->unet_cfg.sample_size[0] * f;

    tsr_settings_set_size(s, m,
                          d->width    ? d->width
                          : d->height ? d->height
                                      : w,
                          d->height  ? d->height
                          : d->width ? d->width
                                     : h);
    s->asked_width = s->width;
    s->asked_height = s->height;
}

/* What the text encoders hand to the UNet: their sequences side by side, as long as the shortest
 * allows. */
static void resolve_context(tsr_settings *s, const tsr_model *m)
{
    s->context_s = INT32_MAX;
    for (int32_t e = 0; e < m->n_encoders; e++) {
        const tsr_clip_config *c = &m->clip_cfg[e];
        int32_t most = tsr_min_i32(tsr_tokenizer_max_length(m->tokenizer[e]), c->positions);
        s->context_s = tsr_min_i32(s->context_s, most);
        s->context_d += c->width;
        if (m->unet_cfg.text_time)
            s->pooled_d = c->with_projection ? c->projection_dim : c->width;
    }
}

/* SDXL's size conditions, (height, width) and (top, left), as the network takes them. */
static tsr_status resolve_conditions(tsr_settings *s, tsr_context *ctx, const tsr_model *m,
                                     const tsr_run_desc *d)
{
    bool any = d->original_width || d->original_height || d->crop_x || d->crop_y ||
               d->target_width || d->target_height;

    if (any && !m->unet_cfg.text_time)
        TSR_FAIL(&ctx->err, TSR_E_USAGE,
                 "this model takes no size conditions; --original-size, --crop and --target-size "
                 "are for SDXL");
    if (d->original_width < 0 || d->original_height < 0 || d->target_width < 0 ||
        d->target_height < 0)
        TSR_FAIL(&ctx->err, TSR_E_USAGE, "--original-size and --target-size are positive");
    s->original[0] = d->original_width ? d->original_height : s->height;
    s->original[1] = d->original_width ? d->original_width : s->width;
    s->target[0] = d->target_width ? d->target_height : s->height;
    s->target[1] = d->target_width ? d->target_width : s->width;
    s->crop[0] = d->crop_y;
    s->crop[1] = d->crop_x;
    return TSR_OK;
}

static uint64_t random_seed(void)
{
    uint32_t seed = 0;

    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = (uint32_t)time(NULL) * 2654435761u; /* early boot: any number that differs will do */
    return seed;
}

static tsr_status resolve_scheduler(tsr_settings *s, tsr_context *ctx, const tsr_model *m,
                                    const tsr_run_desc *d)
{
    const char *card = m->index.card_scheduler[0] ? m->index.card_scheduler : NULL;
    tsr_sched_options opt = {
        .name = d->scheduler ? d->scheduler : card,
        .sigmas = d->sigmas,
        .prediction = d->prediction_type,
        .eta = d->eta,
        .repair_sd = !m->index.is_xl,
    };
    bool lcm;

    TSR_TRY(tsr_sched_config_make(&s->sched_cfg, m->scheduler_json,
                                  "scheduler/scheduler_config.json", &opt, &ctx->log, &ctx->err));
    s->eta = d->eta;
    lcm = strcmp(tsr_sched_config_name(s->sched_cfg), "lcm") == 0;
    s->steps = d->steps ? d->steps : lcm ? LCM_STEPS : DEFAULT_STEPS;
    s->guidance = d->guidance > 0 ? d->guidance : lcm ? 1.0f : m->index.is_xl ? 5.0f : 7.5f;
    /* The card speaks for the scheduler that it was tuned with. */
    if (!d->steps && m->index.card_steps > 0 && !(lcm && d->scheduler))
        s->steps = m->index.card_steps;
    if (!(d->guidance > 0) && m->index.card_guidance > 0 && !(lcm && d->scheduler))
        s->guidance = m->index.card_guidance;
    return TSR_OK;
}

/* A packed checkpoint has its weights in one precision, which is then what auto means. */
static tsr_status resolve_precision(tsr_settings *s, tsr_context *ctx, const tsr_model *m,
                                    const tsr_run_desc *d)
{
    s->dtype = d->precision == TSR_PRECISION_FP32 ? TSR_F32 : TSR_F16;
    if (m->is_packed && d->precision == TSR_PRECISION_AUTO)
        s->dtype = m->packed.dtype;
    if (m->is_packed && s->dtype != m->packed.dtype)
        TSR_FAIL(&ctx->err, TSR_E_USAGE,
                 "%s is packed for %s: leave --precision out, or convert the model again with "
                 "--precision %s",
                 m->path, tsr_dtype_precision(m->packed.dtype), tsr_dtype_precision(s->dtype));
    s->vae_dtype = tsr_model_vae_dtype(m, s->dtype);
    return TSR_OK;
}

tsr_status tsr_settings_resolve(tsr_settings *s, tsr_context *ctx, const tsr_model *m,
                                const tsr_run_desc *desc)
{
    tsr_run_desc resolved = *desc, *d = &resolved;

    s->task = d->task;
    TSR_TRY(resolve_task(d, ctx, m));
    TSR_TRY(check_numbers(ctx, m, d));
    TSR_TRY(resolve_prompts(s, ctx, m, d));
    resolve_size(s, m, d);
    resolve_context(s, m);
    TSR_TRY(resolve_conditions(s, ctx, m, d));
    TSR_TRY(resolve_scheduler(s, ctx, m, d));
    /* A network with an embedded guidance scale (LCM) is run once a step whatever the scale. */
    s->cfg = s->guidance > 1 && m->unet_cfg.time_cond_proj_dim == 0;
    s->entries = s->cfg ? 2 : 1;
    s->guidance_rescale = d->guidance_rescale;
    s->n_pictures = d->n_pictures ? d->n_pictures : 1;
    s->batch = 1;
    s->clip_skip = d->clip_skip;
    s->seed = d->seed_given ? d->seed : random_seed();
    s->rng = d->rng;
    TSR_TRY(resolve_precision(s, ctx, m, d));
    s->budget_bytes = d->budget_bytes;
    s->host_budget_bytes = d->host_budget_bytes;
    if (d->host_budget_bytes && !ctx->backend->device)
        TSR_FAIL(&ctx->err, TSR_E_USAGE,
                 "a host budget is for runs on a device; on a CPU --budget bounds all memory");
    s->budget_given = d->budget_bytes > 0;
    s->strict = d->strict;
    s->offload = d->offload;
    s->tile_rows = d->tile_rows;
    if (d->spill_dir && !(s->spill_dir = tsr_strdup(d->spill_dir)))
        TSR_FAIL(&ctx->err, TSR_E_OOM, "no memory for the spill directory's name");
    return TSR_OK;
}

void tsr_settings_free(tsr_settings *s)
{
    for (int32_t e = 0; e < TSR_MAX_ENCODERS; e++) {
        tsr_free(s->prompt[e]);
        tsr_free(s->negative[e]);
    }
    tsr_free(s->spill_dir);
    tsr_sched_config_free(s->sched_cfg);
}
