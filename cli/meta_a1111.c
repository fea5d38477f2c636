/* meta_a1111.c -- the "parameters" text of A1111's web UI and of those that write the same.
 *
 *     a red apple on a table,                      the prompt, any number of lines
 *     soft light
 *     Negative prompt: blurry                      optional, any number of lines
 *     Steps: 20, Sampler: Euler a, Schedule type: Automatic, CFG scale: 7, Seed: 1,
 *         Size: 512x512, Model hash: 6ce0161689, Model: v1-5, Clip skip: 2      one line
 *
 * In the last line a value with a comma, colon or line feed is a JSON string. Differences to know:
 * their clip skip counts from 1, ours from 0; "Automatic" is the spacing that the sampler was
 * published with; where nothing is said the noise is drawn as on a GPU. What is not understood
 * is a warning by name. Source: the text's grammar as the web UI's own reader takes it
 * (infotext); names of samplers as its versions 1.5 to 1.10 write them. */
#include "cli/meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const char negative_mark[] = "Negative prompt:";

/* Sampler, our name, and the sigmas that "Automatic" means for it (NULL: default). */
static const char *const samplers[][3] = {
    {"Euler", "euler", NULL},
    {"Euler a", "euler_a", NULL},
    {"Euler Ancestral", "euler_a", NULL},
    {"LMS", "lms", NULL},
    {"Heun", "heun", NULL},
    {"DPM2", "dpm2", "karras"},
    {"DPM++ 2S", "dpmpp_2s", "karras"},
    {"DPM++ 2M", "dpmpp_2m", "karras"},
    {"DPM++ 2M SDE", "dpmpp_2m_sde", "exponential"},
    {"DDIM", "ddim", NULL},
    {"DDPM", "ddpm", NULL},
    {"PLMS", "pndm", NULL},
    {"PNDM", "pndm", NULL},
    {"UniPC", "unipc", NULL},
    {"DEIS", "deis", NULL},
    {"LCM", "lcm", NULL},
};

static const char *const schedules[][2] = {
    {"Karras", "karras"},   {"Exponential", "exponential"}, {"Beta", "beta"},
    {"Uniform", "default"}, {"Normal", "default"},
};

/* Keys whose value is an option's value as it stands. */
static const struct plain_key {
    const char *name;
    tsr_option_id id;
} plain_keys[] = {
    {"Steps", TSR_OPT_STEPS}, {"CFG scale", TSR_OPT_GUIDANCE}, {"Seed", TSR_OPT_SEED},
    {"Eta", TSR_OPT_ETA},     {"Eta DDIM", TSR_OPT_ETA},
};

/* Keys that say nothing about the pixels. */
static const char *const silent_keys[] = {"Version", "Model hash", "VAE hash", "Hashes",
                                          "Lora hashes"};

typedef struct reader {
    tsr_meta m;
    char *sampler, *schedule;
    bool rng_given;
    const tsr_log *log;
    tsr_err *err;
} reader;

static tsr_status put(reader *r, tsr_option_id id, const char *text)
{
    return tsr_meta_put(&r->m.value[id], text, strlen(text), r->err);
}

static tsr_status put_clip_skip(reader *r, const char *value)
{
    char text[16];
    int n = atoi(value);

    if (n < 1 || n > 64) {
        TSR_WARN(r->log, "the picture's \"Clip skip: %s\" is not understood and left out", value);
        return TSR_OK;
    }
    snprintf(text, sizeof text, "%d", n - 1);
    return put(r, TSR_OPT_CLIP_SKIP, text);
}

static tsr_status put_size(reader *r, const char *value)
{
    const char *x = strchr(value, 'x');

    if (!x)
        TSR_FAIL(r->err, TSR_E_MODEL, "the picture's \"Size: %s\" is no size", value);
    TSR_TRY(tsr_meta_put(&r->m.value[TSR_OPT_WIDTH], value, (size_t)(x - value), r->err));
    return put(r, TSR_OPT_HEIGHT, x + 1);
}

static tsr_status put_rng(reader *r, const char *value)
{
    r->rng_given = true;
    return put(r, TSR_OPT_RNG, strcmp(value, "CPU") == 0 ? "torch-cpu" : "torch-cuda");
}

/* One "Key: value". */
static tsr_status take_pair(reader *r, const char *key, const char *value)
{
    for (size_t i = 0; i < sizeof plain_keys / sizeof *plain_keys; i++)
        if (strcmp(plain_keys[i].name, key) == 0)
            return put(r, plain_keys[i].id, value);
    for (size_t i = 0; i < sizeof silent_keys / sizeof *silent_keys; i++)
        if (strcmp(silent_keys[i], key) == 0)
            return TSR_OK;
    if (strcmp(key, "Sampler") == 0)
        return tsr_meta_put(&r->sampler, value, strlen(value), r->err);
    if (strcmp(key, "Schedule type") == 0)
        return tsr_meta_put(&r->schedule, value, strlen(value), r->err);
    if (strcmp(key, "Size") == 0)
        return put_size(r, value);
    if (strcmp(key, "Clip skip") == 0)
        return put_clip_skip(r, value);
    if (strcmp(key, "RNG") == 0)
        return put_rng(r, value);
    if (strcmp(key, "Model") == 0)
        return tsr_meta_put(&r->m.model, value, strlen(value), r->err);
    TSR_WARN(r->log, "the picture's \"%s: %s\" is not understood and left out", key, value);
    return TSR_OK;
}

/* ------------------------------------------------------- the last line */

/* Takes one JSON string at *p, unescaped as far as the web UI escapes (\" \\ \n); false when it
 * does not end. */
static bool quoted(const char **p, tsr_buf *out)
{
    const char *s = *p + 1;

    for (; *s && *s != '"'; s++) {
        if (*s == '\\' && s[1]) {
            s++;
            tsr_buf_append(out, *s == 'n' ? "\n" : s, 1);
        } else {
            tsr_buf_append(out, s, 1);
        }
    }
    if (!*s)
        return false;
    *p = s + 1;
    return true;
}

/* A value: a JSON string, or everything up to the next comma. */
static void take_value(const char **p, tsr_buf *out)
{
    const char *start = *p;
    size_t n;

    tsr_buf_puts(out, "");
    if (*start == '"' && quoted(p, out))
        return;
    out->len = 0;
    n = strcspn(start, ",");
    tsr_buf_append(out, start, n);
    *p = start + n;
}

static tsr_status take_settings(reader *r, const char *line)
{
    tsr_status st = TSR_OK;

    while (*line && st == TSR_OK) {
        tsr_buf key = {0}, value = {0};
        size_t n = strcspn(line, ":,");
        tsr_buf_append(&key, line, n);
        line += n;
        if (*line == ':') {
            line += 1 + strspn(line + 1, " ");
            take_value(&line, &value);
        }
        if (!tsr_buf_ok(&key) || !tsr_buf_ok(&value))
            st = tsr_err_set(r->err, TSR_E_OOM, "out of memory while reading the picture's text");
        else if (key.len > 0 && value.data)
            st = take_pair(r, key.data, value.data);
        line += strspn(line, ", ");
        tsr_buf_free(&key);
        tsr_buf_free(&value);
    }
    return st;
}

/* ---------------------------------------------------------- the samplers */

static bool find_schedule(const char *name, const char **sigmas)
{
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        if (strcmp(schedules[i][0], name) == 0 || strcmp(schedules[i][1], name) == 0) {
            *sigmas = schedules[i][1];
            return true;
        }
    }
    return false;
}

/* Our row of samplers for name[0..n), in their spelling or ours; -1 when there is none. */
static int find_sampler(const char *name, size_t n)
{
    for (int i = 0; i < (int)(sizeof samplers / sizeof *samplers); i++)
        for (int column = 0; column < 2; column++)
            if (strlen(samplers[i][column]) == n && strncmp(samplers[i][column], name, n) == 0)
                return i;
    return -1;
}

/* Older versions write the spacing into the sampler: "DPM++ 2M Karras". */
static tsr_status resolve_sampler(reader *r)
{
    const char *space = r->sampler ? strrchr(r->sampler, ' ') : NULL;
    const char *sigmas = "default";
    int row;

    if (!r->sampler)
        return TSR_OK;
    row = find_sampler(r->sampler, strlen(r->sampler));
    if (row < 0 && space && find_schedule(space + 1, &sigmas))
        row = find_sampler(r->sampler, (size_t)(space - r->sampler));
    if (row < 0) {
        TSR_WARN(r->log, "the picture's sampler \"%s\" is not there; the model's own is used",
                 r->sampler);
        return TSR_OK;
    }
    if (r->schedule && strcmp(r->schedule, "Automatic") == 0)
        sigmas = samplers[row][2] ? samplers[row][2] : "default";
    else if (r->schedule && !find_schedule(r->schedule, &sigmas))
        TSR_WARN(r->log, "the picture's schedule type \"%s\" is not there; the default is used",
                 r->schedule);
    TSR_TRY(put(r, TSR_OPT_SCHEDULER, samplers[row][1]));
    return put(r, TSR_OPT_SIGMAS, sigmas);
}

/* ------------------------------------------------------------- the text */

/* Length of text[0..n) without the line feeds and blanks at its end. */
static size_t trimmed(const char *text, size_t n)
{
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        n--;
    return n;
}

/* The beginning of the last line, if that is one of settings. */
static const char *last_line(const char *text, size_t n)
{
    const char *line = text + n;

    while (line > text && line[-1] != '\n')
        line--;
    return strncmp(line, "Steps: ", 7) == 0 ? line : NULL;
}

/* The line of text[0..n) that begins with the mark of the negative prompt; NULL: none. */
static const char *find_negative(const char *text, size_t n)
{
    const char *line = text, *end = text + n;

    while (line) {
        size_t left = (size_t)(end - line);
        if (left >= sizeof negative_mark - 1 &&
            memcmp(line, negative_mark, sizeof negative_mark - 1) == 0)
            return line;
        line = memchr(line, '\n', left);
        line = line ? line + 1 : NULL;
    }
    return NULL;
}

/* text[0..n) is what stands before the settings. */
static tsr_status take_prompts(reader *r, const char *text, size_t n)
{
    const char *mark = find_negative(text, n), *end = text + n;
    size_t prompt = trimmed(text, mark ? (size_t)(mark - text) : n);

    TSR_TRY(tsr_meta_put(&r->m.value[TSR_OPT_PROMPT], text, prompt, r->err));
    if (mark) {
        mark += sizeof negative_mark - 1;
        mark += mark < end && *mark == ' ';
        TSR_TRY(tsr_meta_put(&r->m.value[TSR_OPT_NEGATIVE_PROMPT], mark,
                             trimmed(mark, (size_t)(end - mark)), r->err));
    }
    if (strstr(r->m.value[TSR_OPT_PROMPT], "<lora:"))
        TSR_WARN(r->log, "the picture's prompt names a LoRA, which is not there yet");
    return TSR_OK;
}

static tsr_status take_all(reader *r, const char *text)
{
    size_t n = trimmed(text, strlen(text));
    const char *settings = last_line(text, n);
    char *line = NULL;
    tsr_status st;

    if (!settings)
        TSR_FAIL(r->err, TSR_E_MODEL,
                 "the picture's \"parameters\" do not end in a line of settings (Steps: ...)");
    TSR_TRY(tsr_meta_put(&line, settings, (size_t)(text + n - settings), r->err));
    st = take_prompts(r, text, trimmed(text, (size_t)(settings - text)));
    if (st == TSR_OK)
        st = take_settings(r, line);
    tsr_free(line);
    TSR_TRY(st);
    TSR_TRY(resolve_sampler(r));
    return r->rng_given ? TSR_OK : put(r, TSR_OPT_RNG, "torch-cuda");
}

tsr_status tsr_meta_from_a1111(tsr_meta *m, const char *text, const tsr_log *log, tsr_err *err)
{
    reader r = {.log = log, .err = err};
    tsr_status st = take_all(&r, text);

    tsr_free(r.sampler);
    tsr_free(r.schedule);
    if (st == TSR_OK)
        *m = r.m;
    else
        tsr_meta_free(&r.m);
    return st;
}
