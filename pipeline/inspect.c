/* inspect.c -- the checkpoint's doctor: what a model directory is, and everything that is wrong
 * with it.
 *
 * Unlike tsr_model_open it goes on after a problem. Parts are opened one by one, each failure is
 * noted; then every network whose config was readable is recorded in collecting mode, where a
 * missing tensor or a wrong shape is a line in the list and not the end. Warnings of the library
 * are caught and listed too. */
#include "pipeline/pipeline_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

enum { MAX_PARTS = 4 };

typedef struct tsr_doctor {
    tsr_model *m;
    tsr_buf problems, warnings; /* JSON strings, comma-separated */
    tsr_buf lines;              /* problems of the component that is being recorded, one a line */
    int32_t n_problems;
    bool config_ok[MAX_PARTS]; /* text_encoder, text_encoder_2, unet, vae */
} tsr_doctor;

static void add_item(tsr_buf *list, const char *text)
{
    if (list->len)
        tsr_buf_puts(list, ",\n    ");
    tsr_buf_json_string(list, text);
}

static void add_problem(tsr_doctor *d, const char *text)
{
    add_item(&d->problems, text);
    d->n_problems++;
}

/* Notes what a call left in the context's error, if it failed. */
static bool worked(tsr_doctor *d, tsr_status st)
{
    tsr_err *err = &d->m->ctx->err;

    if (st != TSR_OK)
        add_problem(d, err->msg);
    tsr_err_clear(err);
    return st == TSR_OK;
}

static void catch_warning(void *user, tsr_log_level level, const char *line)
{
    tsr_doctor *d = user;

    if (level == TSR_LOG_WARNING)
        add_item(&d->warnings, line);
}

/* Problems that a component collected, one a line. */
static void take_lines(tsr_doctor *d)
{
    char *line = d->lines.data, *end;

    while (line && *line) {
        end = strchr(line, '\n');
        if (end)
            *end = '\0';
        add_problem(d, line);
        line = end ? end + 1 : NULL;
    }
    tsr_buf_free(&d->lines);
    d->lines = (tsr_buf){0};
}

static void open_parts(tsr_doctor *d)
{
    tsr_model *m = d->m;

    m->n_encoders = m->index.has_text_encoder_2 ? 2 : 1;
    for (int32_t e = 0; e < m->n_encoders; e++) {
        d->config_ok[e] = worked(d, tsr_model_open_encoder(m, e));
        if (d->config_ok[e])
            worked(d, tsr_model_open_tokenizer(m, e));
    }
    d->config_ok[2] = worked(d, tsr_model_open_unet(m));
    d->config_ok[3] = worked(d, tsr_model_open_vae(m));
    worked(d, tsr_model_open_scheduler(m));
    if (d->config_ok[0] && d->config_ok[2] && d->config_ok[3] &&
        (m->n_encoders < 2 || d->config_ok[1]))
        worked(d, tsr_model_check_parts(&m->unet_cfg, &m->vae_cfg, &m->clip_cfg[0],
                                        m->n_encoders > 1 ? &m->clip_cfg[1] : NULL, &m->index,
                                        &m->ctx->err));
}

static void record_part(tsr_doctor *d, tsr_component *c, tsr_model_check_fn check)
{
    tsr_tape t;

    c->problems = &d->lines;
    tsr_tape_init(&t, tsr_model_check_dtype(d->m), &d->m->ctx->err);
    worked(d, check(d->m, &t));
    tsr_tape_free(&t);
    take_lines(d);
    c->problems = NULL;
}

static void record_parts(tsr_doctor *d)
{
    tsr_model *m = d->m;

    for (int32_t e = 0; e < m->n_encoders; e++)
        if (d->config_ok[e]) {
            record_part(d, &m->clip[e], e ? tsr_model_check_text_2 : tsr_model_check_text);
            tsr_component_report_unused(&m->clip[e], &m->ctx->log);
        }
    if (d->config_ok[2]) {
        record_part(d, &m->unet, tsr_model_check_unet);
        tsr_component_report_unused(&m->unet, &m->ctx->log);
    }
    if (d->config_ok[3]) {
        record_part(d, &m->vae, tsr_model_check_decoder);
        record_part(d, &m->vae, tsr_model_check_encoder);
        tsr_component_report_unused(&m->vae, &m->ctx->log);
    }
}

static void write_part(tsr_buf *b, const tsr_component *c, bool first)
{
    size_t count[TSR_BOOL + 1] = {0}, bytes = 0, parameters = 0;
    bool any = false;

    for (int32_t i = 0; i < c->n_tensors; i++) {
        const tsr_st_tensor *t = c->tensors[i];
        count[t->dtype]++;
        bytes += t->bytes;
        parameters += t->bytes / tsr_dtype_size(t->dtype);
    }
    tsr_buf_puts(b, first ? "\n    {\"name\": " : ",\n    {\"name\": ");
    tsr_buf_json_string(b, c->name);
    tsr_buf_printf(
        b, ", \"files\": %d, \"tensors\": %d, \"parameters\": %zu, \"bytes\": %zu, \"dtypes\": {",
        c->packed ? 1 : c->n_files, c->n_tensors, parameters, bytes);
    for (int32_t t = TSR_F32; t <= TSR_BOOL; t++)
        if (count[t]) {
            tsr_buf_printf(b, "%s\"%s\": %zu", any ? ", " : "", tsr_dtype_name((tsr_dtype)t),
                           count[t]);
            any = true;
        }
    tsr_buf_puts(b, "}}");
}

static void write_parts(tsr_buf *b, const tsr_doctor *d)
{
    const tsr_model *m = d->m;
    const tsr_component *parts[MAX_PARTS] = {&m->clip[0], &m->clip[1], &m->unet, &m->vae};
    bool first = true;

    tsr_buf_puts(b, "  \"parts\": [");
    for (int32_t i = 0; i < MAX_PARTS; i++)
        if (d->config_ok[i]) {
            write_part(b, parts[i], first);
            first = false;
        }
    tsr_buf_puts(b, "\n  ],\n");
}

/* The scheduler as the files have it; its own problems are noted. */
static void write_scheduler(tsr_buf *b, tsr_doctor *d)
{
    tsr_model *m = d->m;
    tsr_sched_config *cfg = NULL;
    tsr_sched_options none = {0};

    if (m->scheduler_json &&
        worked(d, tsr_sched_config_make(&cfg, m->scheduler_json, "scheduler/scheduler_config.json",
                                        &none, &m->ctx->log, &m->ctx->err)))
        tsr_buf_printf(
            b, "  \"scheduler\": \"%s\",\n  \"sigmas\": \"%s\",\n  \"prediction_type\": \"%s\",\n",
            tsr_sched_config_name(cfg), tsr_sched_config_sigmas(cfg),
            tsr_sched_config_prediction(cfg));
    tsr_sched_config_free(cfg);
}

static void write_sizes(tsr_buf *b, const tsr_doctor *d)
{
    const tsr_model *m = d->m;
    int32_t f = m->vae_cfg.factor;

    if (d->config_ok[2] && d->config_ok[3])
        tsr_buf_printf(
            b,
            "  \"native_width\": %d,\n  \"native_height\": %d,\n  \"latent_channels\": %d,\n"
            "  \"vae_factor\": %d,\n  \"scaling_factor\": %.9g,\n",
            m->unet_cfg.sample_size[1] * f, m->unet_cfg.sample_size[0] * f,
            m->vae_cfg.latent_channels, f, (double)m->vae_cfg.scaling_factor);
    if (d->config_ok[0] && m->tokenizer[0])
        tsr_buf_printf(b, "  \"tokens\": %d,\n  \"prompt_tokens\": %d,\n",
                       tsr_tokenizer_size(m->tokenizer[0]),
                       tsr_tokenizer_max_length(m->tokenizer[0]) - 2);
}

static void examine(tsr_doctor *d, tsr_buf *b)
{
    tsr_model *m = d->m;
    bool index_ok = worked(d, tsr_model_open_index(m));

    if (index_ok) {
        open_parts(d);
        record_parts(d);
    }
    tsr_buf_puts(b, "{\n  \"path\": ");
    tsr_buf_json_string(b, m->path);
    tsr_buf_puts(b, ",\n");
    if (index_ok) {
        tsr_buf_puts(b, "  \"pipeline\": ");
        tsr_buf_json_string(b, m->index.pipeline);
        tsr_buf_printf(b, ",\n  \"family\": \"%s\",\n", tsr_model_family(m));
        write_scheduler(b, d);
        write_sizes(b, d);
    }
    write_parts(b, d);
    tsr_buf_printf(b, "  \"problems\": [%s%s%s],\n", d->n_problems ? "\n    " : "",
                   d->problems.data ? d->problems.data : "", d->n_problems ? "\n  " : "");
    tsr_buf_printf(b, "  \"warnings\": [%s%s%s]\n}\n", d->warnings.len ? "\n    " : "",
                   d->warnings.data ? d->warnings.data : "", d->warnings.len ? "\n  " : "");
}

tsr_status tsr_model_inspect(tsr_context *ctx, const char *path, char **json, int32_t *n_problems)
{
    tsr_doctor d = {0};
    tsr_log log = ctx->log;
    tsr_buf b = {0};
    bool ok;

    tsr_err_clear(&ctx->err);
    TSR_TRY(tsr_model_new(ctx, path, &d.m));
    ctx->log = (tsr_log){.fn = catch_warning, .user = &d};
    examine(&d, &b);
    ctx->log = log;
    ok = tsr_buf_ok(&b) && tsr_buf_ok(&d.problems) && tsr_buf_ok(&d.warnings) &&
         tsr_buf_ok(&d.lines);
    tsr_model_free(d.m);
    tsr_buf_free(&d.problems);
    tsr_buf_free(&d.warnings);
    tsr_buf_free(&d.lines);
    if (!ok) {
        tsr_buf_free(&b);
        TSR_FAIL(&ctx->err, TSR_E_OOM, "no memory to describe %s", path);
    }
    *json = b.data;
    *n_problems = d.n_problems;
    return TSR_OK;
}
