/* config_json.c -- see config_json.h.
 *
 * A config is read twice: first by the strict pull parser, which bounds depth and refuses what is
 * not JSON or not UTF-8 (cJSON is lenient there), then by cJSON into a tree. The limits are small,
 * since published configs have about 2 KB. Fields are looked up by a walk over the whole object,
 * so that a key given twice is noticed: parsers differ in which one they take.
 *
 * cJSON's allocator hook is global to the process; it is set once, to the library's own heap, so
 * that allocation failures are clean here too. */
#include "model/config_json.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_pull.h"

enum { MAX_NUMBER_TEXT = 60, MAX_UNKNOWN_LINES = 16, VALUE_TEXT = 80 };

/* ------------------------------------------------------------------ open */

/* A zero byte would end the text too early. */
static tsr_status take_text(char *text, size_t len, const char *name, char **json, tsr_err *err)
{
    if (strlen(text) != len) {
        tsr_free(text);
        TSR_FAIL(err, TSR_E_MODEL, "%s is not valid JSON: it holds a zero byte", name);
    }
    *json = text;
    return TSR_OK;
}

tsr_status tsr_cfg_slurp(const char *path, char **json, tsr_err *err)
{
    char *text;
    size_t len;

    if (tsr_path_is_absent(path))
        TSR_FAIL(err, TSR_E_MODEL, "%s is missing", path);
    TSR_TRY(tsr_file_slurp(path, TSR_CFG_MAX_BYTES, &text, &len, err));
    return take_text(text, len, path, json, err);
}

tsr_status tsr_cfg_read(const tsr_folder *folder, const char *name, char **json, tsr_err *err)
{
    char *text;
    size_t len;

    TSR_TRY(tsr_folder_slurp(folder, name, TSR_CFG_MAX_BYTES, &text, &len, err));
    return take_text(text, len, name, json, err);
}

/* What cJSON would cut: a zero byte in a text ends it, and a number has a fixed buffer. */
static tsr_status check_event(const tsr_json *j, tsr_json_event e, const char *name, tsr_err *err)
{
    size_t len;
    const char *text = tsr_json_text(j, &len);

    if ((e == TSR_JSON_KEY || e == TSR_JSON_STRING) && strlen(text) != len)
        TSR_FAIL(err, TSR_E_MODEL, "%s: a text in it holds a zero byte", name);
    if (e == TSR_JSON_NUMBER && len > MAX_NUMBER_TEXT)
        TSR_FAIL(err, TSR_E_MODEL, "%s: a number in it has %zu digits", name, len);
    return TSR_OK;
}

static tsr_status check_json(const char *json, size_t len, const char *name, tsr_err *err)
{
    tsr_json *j = NULL;
    tsr_json_event e;
    tsr_status st = tsr_json_open_memory(&j, json, len, len, err);

    if (st != TSR_OK)
        return st;
    do {
        e = tsr_json_next(j);
        st = check_event(j, e, name, err);
    } while (st == TSR_OK && e != TSR_JSON_END && e != TSR_JSON_ERROR);
    if (e == TSR_JSON_ERROR)
        st = tsr_err_prefix(err, tsr_json_status(j), "%s", name);
    tsr_json_close(j);
    return st;
}

static void hook_cjson(void)
{
    cJSON_Hooks hooks = {tsr_malloc, tsr_free};

    cJSON_InitHooks(&hooks);
}

tsr_status tsr_cfg_open(tsr_cfg *c, const char *json, const char *name, const tsr_log *log,
                        tsr_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    size_t len = strlen(json);

    *c = (tsr_cfg){.name = name, .log = log, .err = err};
    if (len > TSR_CFG_MAX_BYTES)
        TSR_FAIL(err, TSR_E_MODEL, "%s: a config of %zu bytes is too large", name, len);
    TSR_TRY(check_json(json, len, name, err));
    (void)pthread_once(&once, hook_cjson);
    c->tree = cJSON_ParseWithLength(json, len);
    c->obj = c->tree;
    if (!c->tree)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for reading %s", name);
    if (!cJSON_IsObject(c->tree)) {
        tsr_cfg_close(c);
        TSR_FAIL(err, TSR_E_MODEL, "%s is not a JSON object", name);
    }
    return TSR_OK;
}

void tsr_cfg_close(tsr_cfg *c)
{
    cJSON_Delete(c->tree);
    *c = (tsr_cfg){0};
}

/* ------------------------------------------------------------------ fields */

static void value_text(const cJSON *v, char text[VALUE_TEXT])
{
    if (cJSON_IsString(v))
        snprintf(text, VALUE_TEXT, "\"%.60s\"", v->valuestring);
    else if (cJSON_IsNumber(v))
        snprintf(text, VALUE_TEXT, "%.9g", v->valuedouble);
    else
        snprintf(text, VALUE_TEXT, "%s",
                 cJSON_IsArray(v)    ? "a list"
                 : cJSON_IsObject(v) ? "an object"
                 : cJSON_IsTrue(v)   ? "true"
                 : cJSON_IsFalse(v)  ? "false"
                                     : "null");
}

tsr_status tsr_cfg_unsupported(const tsr_cfg *c, const char *key, const cJSON *item,
                               const char *what)
{
    char text[VALUE_TEXT];

    value_text(item, text);
    return tsr_err_set(c->err, TSR_E_MODEL, "%s: %s %s is not supported; %s", c->name, key, text,
                       what);
}

static tsr_status TSR_PRINTF(4, 5)
    wrong(const tsr_cfg *c, const char *key, const cJSON *item, const char *fmt, ...)
{
    char text[VALUE_TEXT], wanted[sizeof c->err->msg];
    va_list args;

    va_start(args, fmt);
    vsnprintf(wanted, sizeof wanted, fmt, args);
    va_end(args);
    value_text(item, text);
    return tsr_err_set(c->err, TSR_E_MODEL, "%s: %s is %s; it must be %s", c->name, key, text,
                       wanted);
}

tsr_status tsr_cfg_get(tsr_cfg *c, const char *key, const cJSON **item)
{
    const cJSON *found = NULL;

    for (const cJSON *i = c->obj->child; i; i = i->next) {
        if (strcmp(i->string, key) != 0)
            continue;
        if (found)
            TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s is there twice", c->name, key);
        found = i;
    }
    if (found && c->n_seen < TSR_CFG_MAX_FIELDS)
        c->seen[c->n_seen++] = found;
    *item = found;
    return TSR_OK;
}

static bool whole_number(const cJSON *v, const int32_t range[2], int32_t *out)
{
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= range[0] && v->valuedouble <= range[1]) ||
        v->valuedouble != floor(v->valuedouble))
        return false;
    *out = (int32_t)v->valuedouble;
    return true;
}

static tsr_status read_int(const tsr_cfg *c, const char *key, const cJSON *item,
                           const int32_t range[2], int32_t *out)
{
    if (whole_number(item, range, out))
        return TSR_OK;
    return wrong(c, key, item, "a whole number from %d to %d", (int)range[0], (int)range[1]);
}

tsr_status tsr_cfg_int(tsr_cfg *c, const char *key, int32_t absent, const int32_t range[2],
                       int32_t *out)
{
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    if (item)
        return read_int(c, key, item, range, out);
    *out = absent;
    return TSR_OK;
}

tsr_status tsr_cfg_int_or_null(tsr_cfg *c, const char *key, int32_t absent, const int32_t range[2],
                               int32_t *out)
{
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    if (item && !cJSON_IsNull(item))
        return read_int(c, key, item, range, out);
    *out = absent;
    return TSR_OK;
}

tsr_status tsr_cfg_ints(tsr_cfg *c, const char *key, int32_t absent, const int32_t range[2],
                        int32_t n, int32_t *out)
{
    const cJSON *item;
    int32_t all = absent;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    if (cJSON_IsArray(item)) {
        if (cJSON_GetArraySize(item) != n)
            TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s has %d entries, it needs %d", c->name, key,
                     cJSON_GetArraySize(item), (int)n);
        return tsr_cfg_int_list(c, key, range, n, &n, out);
    }
    if (item)
        TSR_TRY(read_int(c, key, item, range, &all));
    for (int32_t i = 0; i < n; i++)
        out[i] = all;
    return TSR_OK;
}

/* A list of 1..max items, or NULL when absent. */
static tsr_status get_list(tsr_cfg *c, const char *key, int32_t max, const cJSON **list)
{
    TSR_TRY(tsr_cfg_get(c, key, list));
    if (!*list)
        return TSR_OK;
    if (!cJSON_IsArray(*list))
        return wrong(c, key, *list, "a list");
    if (cJSON_GetArraySize(*list) < 1 || cJSON_GetArraySize(*list) > max)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s has %d entries; it must have 1 to %d", c->name, key,
                 cJSON_GetArraySize(*list), (int)max);
    return TSR_OK;
}

tsr_status tsr_cfg_int_list(tsr_cfg *c, const char *key, const int32_t range[2], int32_t max,
                            int32_t *n, int32_t *out)
{
    const cJSON *list, *item;
    int32_t i = 0;

    TSR_TRY(get_list(c, key, max, &list));
    if (!list)
        return TSR_OK;
    for (item = list->child; item; item = item->next)
        TSR_TRY(read_int(c, key, item, range, &out[i++]));
    *n = i;
    return TSR_OK;
}

tsr_status tsr_cfg_float(tsr_cfg *c, const char *key, float absent, const float range[2],
                         float *out)
{
    const cJSON *item;
    float value = absent;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    if (item && !cJSON_IsNull(item)) {
        value = cJSON_IsNumber(item) ? (float)item->valuedouble : NAN;
        if (!(value >= range[0] && value <= range[1])) /* also when it is NaN */
            return wrong(c, key, item, "a number from %g to %g", (double)range[0],
                         (double)range[1]);
    }
    *out = value;
    return TSR_OK;
}

tsr_status tsr_cfg_floats(tsr_cfg *c, const char *key, int32_t count, int32_t *n, float *out)
{
    const cJSON *list, *item;
    int32_t i = 0;

    TSR_TRY(tsr_cfg_get(c, key, &list));
    *n = 0;
    if (!list || cJSON_IsNull(list))
        return TSR_OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != count)
        return wrong(c, key, list, "null or a list of %d numbers", (int)count);
    for (item = list->child; item; item = item->next) {
        float value = cJSON_IsNumber(item) ? (float)item->valuedouble : NAN;
        if (!isfinite(value))
            return wrong(c, key, item, "finite in every entry");
        out[i++] = value;
    }
    *n = i;
    return TSR_OK;
}

tsr_status tsr_cfg_bool(tsr_cfg *c, const char *key, bool absent, bool *out)
{
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    if (item && !cJSON_IsBool(item) && !cJSON_IsNull(item))
        return wrong(c, key, item, "true or false");
    *out = item ? cJSON_IsTrue(item) : absent;
    return TSR_OK;
}

int32_t tsr_cfg_word_index(const char *choices, const char *word)
{
    size_t n = strlen(word);

    for (int32_t i = 0; choices; i++) {
        const char *end = strchr(choices, '|');
        size_t len = end ? (size_t)(end - choices) : strlen(choices);
        if (len == n && memcmp(choices, word, n) == 0)
            return i;
        choices = end ? end + 1 : NULL;
    }
    return -1;
}

static tsr_status read_word(const tsr_cfg *c, const char *key, const cJSON *item,
                            const char *choices, int32_t *index)
{
    int32_t i = cJSON_IsString(item) ? tsr_cfg_word_index(choices, item->valuestring) : -1;
    char what[256];

    if (i < 0) {
        snprintf(what, sizeof what, "supported: %s", choices);
        return tsr_cfg_unsupported(c, key, item, what);
    }
    *index = i;
    return TSR_OK;
}

tsr_status tsr_cfg_word(tsr_cfg *c, const char *key, const char *choices, int32_t *index)
{
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    if (item)
        return read_word(c, key, item, choices, index);
    *index = 0;
    return TSR_OK;
}

tsr_status tsr_cfg_word_list(tsr_cfg *c, const char *key, const char *choices, int32_t max,
                             int32_t *n, int32_t *out)
{
    const cJSON *list, *item;
    int32_t i = 0;

    TSR_TRY(get_list(c, key, max, &list));
    if (!list)
        return TSR_OK;
    for (item = list->child; item; item = item->next)
        TSR_TRY(read_word(c, key, item, choices, &out[i++]));
    *n = i;
    return TSR_OK;
}

tsr_status tsr_cfg_text(tsr_cfg *c, const char *key, char *out, size_t bytes)
{
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    if (item && !cJSON_IsNull(item) &&
        (!cJSON_IsString(item) || strlen(item->valuestring) >= bytes))
        return wrong(c, key, item, "a text of less than %zu bytes", bytes);
    snprintf(out, bytes, "%s", cJSON_IsString(item) ? item->valuestring : "");
    return TSR_OK;
}

/* ------------------------------------------------------------------ the rest */

static tsr_status check_fixed(tsr_cfg *c, const tsr_cfg_fixed *f)
{
    const cJSON *item;
    char what[80];
    int32_t index;

    TSR_TRY(tsr_cfg_get(c, f->key, &item));
    if (!item)
        return TSR_OK;
    switch (f->kind) {
    case TSR_CFG_WORD:
        return read_word(c, f->key, item, f->words, &index);
    case TSR_CFG_NUMBER:
        if (cJSON_IsNumber(item) && item->valuedouble == f->number)
            return TSR_OK;
        snprintf(what, sizeof what, "supported: %g", f->number);
        return tsr_cfg_unsupported(c, f->key, item, what);
    case TSR_CFG_OFF:
    default:
        if (cJSON_IsNull(item) || cJSON_IsFalse(item))
            return TSR_OK;
        return tsr_cfg_unsupported(c, f->key, item, "supported: null, false");
    }
}

tsr_status tsr_cfg_check_fixed(tsr_cfg *c, const tsr_cfg_fixed *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        TSR_TRY(check_fixed(c, &fields[i]));
    return TSR_OK;
}

static bool was_seen(const tsr_cfg *c, const cJSON *item)
{
    for (int32_t i = 0; i < c->n_seen; i++)
        if (c->seen[i] == item)
            return true;
    return false;
}

/* What has this value does nothing in any version that has it. */
static bool is_off(const cJSON *i)
{
    return cJSON_IsNull(i) || cJSON_IsFalse(i) || (cJSON_IsArray(i) && !i->child);
}

void tsr_cfg_report_unknown(const tsr_cfg *c, const char *silent)
{
    int32_t n = 0;

    for (const cJSON *i = c->obj->child; i && n < MAX_UNKNOWN_LINES; i = i->next) {
        if (i->string[0] == '_' || was_seen(c, i) || tsr_cfg_word_index(silent, i->string) >= 0)
            continue;
        if (is_off(i))
            TSR_INFO(c->log, "%s: %s is not known here and ignored", c->name, i->string);
        else
            TSR_WARN(
                c->log,
                "%s: %s is not known here and ignored, but it is set: pictures may differ from "
                "those of the program that it was written for",
                c->name, i->string);
        n++;
    }
}
