/* cmd_info.c -- gen info: what a checkpoint is, and what is wrong with it; what can be computed on.
 *
 * The library describes a checkpoint as JSON; --json passes it on, otherwise it is printed as
 * lines, whatever its keys are: a member a line, a list an item a line, an object inside of a list
 * on its line. A checkpoint with problems is exit code 4 after everything is printed. */
#include "cli/cli.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "memory/budget.h"

enum { LABEL_WIDTH = 18 };

/* ------------------------------------------------------- JSON as lines */

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The name of a member, with blanks for its underscores. */
static void put_label(tsr_buf *out, const char *key, int width)
{
    size_t start = out->len;

    tsr_buf_printf(out, "%-*s", width, key);
    for (size_t i = start; tsr_buf_ok(out) && i < out->len; i++)
        if (out->data[i] == '_')
            out->data[i] = ' ';
}

/* Strings come from the checkpoint's files: nothing in them may move the terminal's cursor. */
static void put_text(tsr_buf *out, const char *text)
{
    size_t start = out->len;

    tsr_buf_puts(out, text);
    for (size_t i = start; tsr_buf_ok(out) && i < out->len; i++)
        if ((unsigned char)out->data[i] < 0x20 || out->data[i] == 0x7F)
            out->data[i] = '?';
}

/* A value on one line. The library's own JSON is a few levels deep. */
static void put_value(tsr_buf *out, const cJSON *item)
{
    const char *key = item->string ? item->string : "";
    char text[24];

    if (cJSON_IsNumber(item) && ends_in(key, "bytes"))
        tsr_buf_puts(out, tsr_bytes_text((size_t)item->valuedouble, text, sizeof text));
    else if (cJSON_IsNumber(item))
        tsr_buf_printf(out, "%.10g", item->valuedouble);
    else if (cJSON_IsString(item))
        put_text(out, item->valuestring);
    else if (cJSON_IsBool(item))
        tsr_buf_puts(out, cJSON_IsTrue(item) ? "yes" : "no");
    else if (!item->child)
        tsr_buf_puts(out, "none");
    for (const cJSON *c = item->child; c; c = c->next) {
        bool named = c->string && strcmp(c->string, "name") != 0;
        tsr_buf_puts(out, c == item->child ? "" : ", ");
        put_label(out, named ? c->string : "", 0);
        tsr_buf_puts(out, !named ? "" : c->child ? ": " : " ");
        put_value(out, c);
    }
}

static void put_member(tsr_buf *out, const cJSON *item)
{
    bool list = cJSON_IsArray(item) && item->child;

    put_label(out, item->string, list ? 0 : LABEL_WIDTH);
    if (list) {
        for (const cJSON *c = item->child; c; c = c->next) {
            tsr_buf_puts(out, "\n  - ");
            put_value(out, c);
        }
    } else {
        put_value(out, item);
    }
    tsr_buf_puts(out, "\n");
}

static tsr_status print_lines(const char *json, tsr_err *err)
{
    cJSON *all = cJSON_Parse(json);
    tsr_buf out = {0};
    bool ok;

    if (!all)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the description of the model");
    for (const cJSON *item = all->child; item; item = item->next)
        put_member(&out, item);
    cJSON_Delete(all);
    ok = tsr_buf_ok(&out);
    if (ok && out.data)
        fputs(out.data, stdout);
    tsr_buf_free(&out);
    if (!ok)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the description of the model");
    return TSR_OK;
}

/* ------------------------------------------------------------- devices */

static void cpu_name(char *name, size_t bytes)
{
    char text[4096], *line, *end;

    snprintf(name, bytes, "unknown");
    if (!tsr_file_peek("/proc/cpuinfo", text, sizeof text))
        return;
    line = strstr(text, "model name");
    line = line ? strchr(line, ':') : NULL;
    if (!line)
        return;
    line += 1 + strspn(line + 1, " ");
    end = strchr(line, '\n');
    snprintf(name, bytes, "%.*s", end ? (int)(end - line) : (int)strlen(line), line);
}

/* NULL when the machine has not got the tier. */
static tsr_context *probe_tier(tsr_cpu_tier tier)
{
    tsr_context_desc desc = {.backend = TSR_BACKEND_CPU, .cpu_tier = tier, .n_threads = 1};
    tsr_context *ctx = NULL;
    char why[512];

    return tsr_context_make(&ctx, &desc, why, sizeof why) == TSR_OK ? ctx : NULL;
}

/* The tiers that the machine has, as ["portable","avx2"] or as words. */
static void put_tiers(tsr_buf *out, bool json)
{
    const char *separator = "";

    for (int t = TSR_TIER_PORTABLE; t <= TSR_TIER_AVX512FP16; t++) {
        tsr_context *ctx = probe_tier((tsr_cpu_tier)t);
        if (!ctx)
            continue;
        tsr_buf_puts(out, separator);
        if (json)
            tsr_buf_json_string(out, tsr_context_tier(ctx));
        else
            tsr_buf_puts(out, tsr_context_tier(ctx));
        separator = json ? "," : " ";
        tsr_context_free(ctx);
    }
}

enum { MOST_DEVICES = 64 };

/* The CUDA devices, as a list of objects or a line each; why there are none. */
static void put_cuda(tsr_buf *out, bool json)
{
    tsr_device_info list[MOST_DEVICES];
    char why[512] = "", total[24];
    int32_t n = 0;

    if (tsr_list_devices(list, MOST_DEVICES, &n, why, sizeof why) != TSR_OK && !json)
        tsr_buf_printf(out, "cuda      %s\n", why);
    if (json)
        tsr_buf_puts(out, ",\"cuda\":[");
    for (int32_t i = 0; i < n && i < MOST_DEVICES; i++) {
        const tsr_device_info *d = &list[i];
        if (json) {
            tsr_buf_printf(out, "%s{\"index\":%d,\"name\":", i ? "," : "", d->index);
            tsr_buf_json_string(out, d->name);
            tsr_buf_printf(out, ",\"capability\":%d,\"memory_bytes\":%zu,\"usable\":%s}",
                           d->capability, d->total_bytes, d->why_not[0] ? "false" : "true");
        } else {
            tsr_buf_printf(out, "cuda:%-4d %s, sm_%d, %s%s%s\n", d->index, d->name, d->capability,
                           tsr_bytes_text(d->total_bytes, total, sizeof total),
                           d->why_not[0] ? "; not usable: " : "", d->why_not);
        }
    }
    if (json)
        tsr_buf_puts(out, "]}\n");
}

static void put_devices(tsr_buf *out, const tsr_context *ctx, bool json)
{
    char name[128], free_text[24];
    size_t available = tsr_mem_available();

    cpu_name(name, sizeof name);
    if (json) {
        tsr_buf_puts(out, "{\"cpu\":{\"name\":");
        tsr_buf_json_string(out, name);
        tsr_buf_puts(out, ",\"tiers\":[");
        put_tiers(out, true);
        tsr_buf_printf(out, "],\"tier\":\"%s\",\"threads\":%d,\"memory_available_bytes\":%zu}",
                       tsr_context_tier(ctx), tsr_context_threads(ctx), available);
    } else {
        tsr_buf_printf(out, "cpu       %s\ntiers     ", name);
        put_tiers(out, false);
        tsr_buf_printf(out, " (in use: %s)\nthreads   %d\nmemory    %s available\n",
                       tsr_context_tier(ctx), tsr_context_threads(ctx),
                       tsr_bytes_text(available, free_text, sizeof free_text));
    }
    put_cuda(out, json);
}

static tsr_status print_devices(tsr_cli *c)
{
    tsr_buf out = {0};
    bool ok;

    TSR_TRY(tsr_cli_open_context(c));
    put_devices(&out, c->ctx, c->opt.json);
    ok = tsr_buf_ok(&out);
    if (ok)
        fputs(out.data, stdout);
    tsr_buf_free(&out);
    if (!ok)
        TSR_FAIL(&c->err, TSR_E_OOM, "out of memory");
    return TSR_OK;
}

/* --------------------------------------------------------------- command */

static tsr_status print_model(tsr_cli *c, const char *path)
{
    char *json;
    int32_t problems;
    tsr_status st;

    TSR_TRY(tsr_cli_library(c, tsr_model_inspect(c->ctx, path, &json, &problems)));
    if (c->opt.json) {
        fputs(json, stdout);
        st = TSR_OK;
    } else {
        st = print_lines(json, &c->err);
    }
    tsr_string_free(json);
    if (st == TSR_OK && problems > 0)
        st = tsr_err_set(&c->err, TSR_E_MODEL, "%s has %d problem%s", path, problems,
                         problems == 1 ? "" : "s");
    return st;
}

tsr_status tsr_cli_info(tsr_cli *c)
{
    const char *asked = c->opt.n_args > 0 ? c->opt.args[0] : c->opt.model;
    char *path;
    tsr_status st;

    if (c->opt.devices)
        return print_devices(c);
    TSR_TRY(tsr_cli_open_context(c));
    TSR_TRY(tsr_cli_find_model(asked, &path, &c->err));
    st = print_model(c, path);
    tsr_free(path);
    return st;
}
