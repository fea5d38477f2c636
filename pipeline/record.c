/* record.c -- what a picture says of itself: everything that is needed to make it again.
 *
 * `record` is JSON with every resolved setting (gen replay reads it back); `parameters` is the line
 * that A1111's web UI writes and reads. Both buffers are reserved when the run is made: writing
 * them allocates nothing. */
#include "pipeline/pipeline_internal.h"

#include <stdio.h>
#include <string.h>

/* Names that A1111's readers know; the rest keep ours. */
static const char *const a1111_names[][2] = {
    {"euler", "Euler"},       {"euler_a", "Euler a"},
    {"heun", "Heun"},         {"lms", "LMS"},
    {"dpm2", "DPM2"},         {"dpmpp_2s", "DPM++ 2S"},
    {"dpmpp_2m", "DPM++ 2M"}, {"dpmpp_2m_sde", "DPM++ 2M SDE"},
    {"ddim", "DDIM"},         {"pndm", "PLMS"},
    {"unipc", "UniPC"},       {"lcm", "LCM"},
    {"ddpm", "DDPM"},         {"deis", "DEIS"},
};

static const char *sampler_name(const char *name)
{
    for (size_t i = 0; i < sizeof a1111_names / sizeof *a1111_names; i++)
        if (strcmp(a1111_names[i][0], name) == 0)
            return a1111_names[i][1];
    return name;
}

static const char *base_name(const char *path)
{
    size_t n = strlen(path);

    while (n > 0 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    return path + n;
}

static void key(tsr_buf *b, const char *name)
{
    tsr_buf_puts(b, b->data && b->data[b->len - 1] == '{' ? "\"" : ",\"");
    tsr_buf_puts(b, name);
    tsr_buf_puts(b, "\":");
}
static void put_text(tsr_buf *b, const char *name, const char *text)
{
    key(b, name);
    tsr_buf_json_string(b, text);
}
static void put_number(tsr_buf *b, const char *name, double x)
{
    key(b, name);
    tsr_buf_printf(b, "%.9g", x);
}
static void put_count(tsr_buf *b, const char *name, uint64_t x)
{
    key(b, name);
    tsr_buf_printf(b, "%llu", (unsigned long long)x);
}
static void put_pair(tsr_buf *b, const char *name, int32_t x, int32_t y)
{
    key(b, name);
    tsr_buf_printf(b, "[%d,%d]", x, y);
}

static void write_prompts(tsr_buf *b, const tsr_run *r)
{
    const tsr_settings *s = &r->set;

    put_text(b, "prompt", s->prompt[0]);
    if (s->negative_given)
        put_text(b, "negative_prompt", s->negative[0]);
    if (s->prompt_2_given)
        put_text(b, "prompt_2", s->prompt[1]);
    if (s->negative_2_given)
        put_text(b, "negative_prompt_2", s->negative[1]);
}

static void write_settings(tsr_buf *b, const tsr_run *r, int32_t picture)
{
    const tsr_settings *s = &r->set;

    put_count(b, "width", (uint64_t)s->width);
    put_count(b, "height", (uint64_t)s->height);
    put_count(b, "frames", 1);
    put_count(b, "steps", (uint64_t)s->steps);
    put_number(b, "guidance", (double)s->guidance);
    put_number(b, "guidance_rescale", (double)s->guidance_rescale);
    put_text(b, "scheduler", tsr_sched_config_name(s->sched_cfg));
    put_text(b, "sigmas", tsr_sched_config_sigmas(s->sched_cfg));
    put_text(b, "prediction_type", tsr_sched_config_prediction(s->sched_cfg));
    put_number(b, "eta", (double)s->eta);
    put_count(b, "clip_skip", (uint64_t)s->clip_skip);
    put_count(b, "seed", s->seed + (uint64_t)picture);
    put_count(b, "index", (uint64_t)picture);
    put_text(b, "rng", s->rng == TSR_RNG_TORCH_CUDA ? "torch-cuda" : "torch-cpu");
    key(b, "own_latents");
    tsr_buf_puts(b, r->given_latents ? "true" : "false");
    put_text(b, "precision", tsr_dtype_precision(s->dtype));
    put_text(b, "vae_precision", tsr_dtype_precision(s->vae_dtype));
    if (r->model->unet_cfg.text_time) {
        put_pair(b, "original_size", s->original[1], s->original[0]);
        put_pair(b, "crop", s->crop[1], s->crop[0]);
        put_pair(b, "target_size", s->target[1], s->target[0]);
    }
}

void tsr_record_degradations(tsr_buf *b, const tsr_run *r)
{
    const tsr_settings *s = &r->set;

    if (!r->kept_by_budget) {
        tsr_buf_puts(b, "[]");
        return;
    }
    tsr_buf_printf(
        b,
        "[{\"what\":\"size\",\"from\":\"%dx%d\",\"to\":\"%dx%d\",\"why\":\"the budget is %zu "
        "bytes, %dx%d needs %zu\"}]",
        s->asked_width, s->asked_height, s->width, s->height, s->budget_bytes, s->asked_width,
        s->asked_height, r->kept_by_budget);
}

/* Of a picture that was decoded from latents: how they came to be is not known. */
static void write_decoding(tsr_buf *b, const tsr_run *r, int32_t picture)
{
    const tsr_settings *s = &r->set;

    put_text(b, "task", "decode");
    put_count(b, "width", (uint64_t)s->width);
    put_count(b, "height", (uint64_t)s->height);
    put_count(b, "index", (uint64_t)picture);
    put_text(b, "precision", tsr_dtype_precision(s->dtype));
    put_text(b, "vae_precision", tsr_dtype_precision(s->vae_dtype));
}

static void write_record(tsr_run *r, int32_t picture)
{
    tsr_buf *b = &r->record;

    tsr_buf_puts(b, "{");
    put_text(b, "tessera", tsr_version());
    if (r->set.task == TSR_TASK_PICTURE) {
        write_prompts(b, r);
        write_settings(b, r, picture);
    } else {
        write_decoding(b, r, picture);
    }
    put_text(b, "model", base_name(r->model->path));
    put_text(b, "model_hash", r->model_hash_text);
    put_text(b, "plan_hash", r->plan_hash_text);
    put_text(b, "backend", r->ctx->backend->name);
    put_text(b, "tier", r->ctx->backend->tier);
    put_count(b, "threads", (uint64_t)tsr_pool_threads(r->ctx->pool));
    put_count(b, "budget_bytes", r->set.budget_bytes);
    put_count(b, "predicted_peak_bytes", r->predicted_peak);
    put_count(b, "measured_peak_bytes", r->measured_peak);
    key(b, "degradations");
    tsr_record_degradations(b, r);
    tsr_buf_puts(b, "}");
}

static void write_parameters(tsr_run *r, int32_t picture)
{
    const tsr_settings *s = &r->set;
    tsr_buf *b = &r->parameters;

    tsr_buf_printf(b, "%s\n", s->prompt[0]);
    if (s->negative_given && *s->negative[0])
        tsr_buf_printf(b, "Negative prompt: %s\n", s->negative[0]);
    tsr_buf_printf(b, "Steps: %d, Sampler: %s", s->steps,
                   sampler_name(tsr_sched_config_name(s->sched_cfg)));
    if (strcmp(tsr_sched_config_sigmas(s->sched_cfg), "default") != 0)
        tsr_buf_printf(b, ", Schedule type: %s", tsr_sched_config_sigmas(s->sched_cfg));
    tsr_buf_printf(b, ", CFG scale: %.9g, Seed: %llu, Size: %dx%d, Model hash: %.10s, Model: %s",
                   (double)s->guidance, (unsigned long long)(s->seed + (uint64_t)picture), s->width,
                   s->height, r->model_hash_text, base_name(r->model->path));
    if (s->clip_skip > 0)
        tsr_buf_printf(b, ", Clip skip: %d", s->clip_skip + 1);
    if (s->eta > 0)
        tsr_buf_printf(b, ", Eta: %.9g", (double)s->eta);
    if (s->rng == TSR_RNG_TORCH_CPU)
        tsr_buf_puts(b, ", RNG: CPU"); /* readers take the GPU's generator where nothing is said */
    tsr_buf_printf(b, ", Version: Tessera %s", tsr_version());
}

/* Writes both once, as they are before anything ran, with room for numbers that grow. */
tsr_status tsr_record_reserve(tsr_run *r)
{
    static const char room[] = "                                                                ";
    tsr_buf *const both[] = {&r->record, &r->parameters};

    tsr_record_write(r, r->set.n_pictures - 1);
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        for (int32_t k = 0; k < 8; k++)
            tsr_buf_puts(both[i], room);
        if (!tsr_buf_ok(both[i]))
            TSR_FAIL(&r->ctx->err, TSR_E_OOM, "no memory for the picture's record");
    }
    return TSR_OK;
}

void tsr_record_write(tsr_run *r, int32_t picture)
{
    r->record.len = r->parameters.len = 0;
    write_record(r, picture);
    write_parameters(r, picture);
}
