/* meta_record.c -- the "tessera" record of a picture, read as a stream.
 *
 * The record is one flat JSON object (pipeline/record.c writes it). It comes from a file, so it
 * goes through the strict pull parser: no depth, no duplicate surprises (of two equal keys the
 * first counts), and numbers keep their own digits, which a 64-bit seed needs. */
#include "cli/meta.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json_pull.h"

enum { MAX_STRING = 1 << 20 };

typedef enum record_type { RECORD_TEXT, RECORD_NUMBER, RECORD_SIZE, RECORD_POINT } record_type;

static const struct record_key {
    const char *name;
    record_type type;
    tsr_option_id id;
} record_keys[] = {
    {"prompt", RECORD_TEXT, TSR_OPT_PROMPT},
    {"negative_prompt", RECORD_TEXT, TSR_OPT_NEGATIVE_PROMPT},
    {"prompt_2", RECORD_TEXT, TSR_OPT_PROMPT_2},
    {"negative_prompt_2", RECORD_TEXT, TSR_OPT_NEGATIVE_PROMPT_2},
    {"width", RECORD_NUMBER, TSR_OPT_WIDTH},
    {"height", RECORD_NUMBER, TSR_OPT_HEIGHT},
    {"frames", RECORD_NUMBER, TSR_OPT_FRAMES},
    {"steps", RECORD_NUMBER, TSR_OPT_STEPS},
    {"guidance", RECORD_NUMBER, TSR_OPT_GUIDANCE},
    {"guidance_rescale", RECORD_NUMBER, TSR_OPT_GUIDANCE_RESCALE},
    {"scheduler", RECORD_TEXT, TSR_OPT_SCHEDULER},
    {"sigmas", RECORD_TEXT, TSR_OPT_SIGMAS},
    {"prediction_type", RECORD_TEXT, TSR_OPT_PREDICTION_TYPE},
    {"eta", RECORD_NUMBER, TSR_OPT_ETA},
    {"clip_skip", RECORD_NUMBER, TSR_OPT_CLIP_SKIP},
    {"seed", RECORD_NUMBER, TSR_OPT_SEED},
    {"rng", RECORD_TEXT, TSR_OPT_RNG},
    {"precision", RECORD_TEXT, TSR_OPT_PRECISION},
    {"tier", RECORD_TEXT, TSR_OPT_CPU_TIER},
    {"original_size", RECORD_SIZE, TSR_OPT_ORIGINAL_SIZE},
    {"crop", RECORD_POINT, TSR_OPT_CROP},
    {"target_size", RECORD_SIZE, TSR_OPT_TARGET_SIZE},
};

static const struct record_key *find_key(const char *name)
{
    for (size_t i = 0; i < sizeof record_keys / sizeof *record_keys; i++)
        if (strcmp(record_keys[i].name, name) == 0)
            return &record_keys[i];
    return NULL;
}

static tsr_status wrong_type(tsr_json *j, const char *name, tsr_err *err)
{
    TSR_TRY(tsr_json_status(j)); /* it has its own sentence */
    TSR_FAIL(err, TSR_E_MODEL, "the picture's record: \"%s\" is not what it should be", name);
}

static tsr_status take_text(tsr_json *j, const char *name, char **slot, tsr_err *err)
{
    size_t len;
    const char *text = tsr_json_text(j, &len);

    if (strlen(text) != len) /* a zero byte inside: it would be cut there without a word */
        return wrong_type(j, name, err);
    return tsr_meta_put(slot, text, len, err);
}

/* [a,b] as "axb" or "a,b". */
static tsr_status take_pair(tsr_json *j, const struct record_key *k, char **slot, tsr_err *err)
{
    tsr_buf b = {0};
    tsr_status st = TSR_OK;

    for (int i = 0; i < 2 && st == TSR_OK; i++) {
        size_t len;
        if (tsr_json_next(j) != TSR_JSON_NUMBER)
            st = wrong_type(j, k->name, err);
        else
            tsr_buf_printf(&b, "%s%s", i ? (k->type == RECORD_SIZE ? "x" : ",") : "",
                           tsr_json_text(j, &len));
    }
    if (st == TSR_OK && tsr_json_next(j) != TSR_JSON_ARRAY_END)
        st = wrong_type(j, k->name, err);
    if (st == TSR_OK && !tsr_buf_ok(&b))
        st = tsr_err_set(err, TSR_E_OOM, "out of memory while reading the picture's record");
    if (st == TSR_OK)
        st = tsr_meta_put(slot, b.data, b.len, err);
    tsr_buf_free(&b);
    return st;
}

/* The value of a key that is an option. */
static tsr_status take_value(tsr_json *j, const struct record_key *k, tsr_meta *m, tsr_err *err)
{
    tsr_json_event want = k->type == RECORD_TEXT     ? TSR_JSON_STRING
                          : k->type == RECORD_NUMBER ? TSR_JSON_NUMBER
                                                     : TSR_JSON_ARRAY;

    if (tsr_json_next(j) != want)
        return wrong_type(j, k->name, err);
    if (want == TSR_JSON_ARRAY)
        return take_pair(j, k, &m->value[k->id], err);
    return take_text(j, k->name, &m->value[k->id], err);
}

static tsr_status take_member(tsr_json *j, tsr_meta *m, tsr_err *err)
{
    size_t len;
    const char *name = tsr_json_text(j, &len);
    const struct record_key *k = find_key(name);

    if (k)
        return take_value(j, k, m, err);
    if (strcmp(name, "model") == 0 || strcmp(name, "model_hash") == 0) {
        bool hash = strcmp(name, "model_hash") == 0;
        if (tsr_json_next(j) != TSR_JSON_STRING)
            return wrong_type(j, hash ? "model_hash" : "model", err);
        return take_text(j, "model", hash ? &m->model_hash : &m->model, err);
    }
    if (strcmp(name, "own_latents") == 0) {
        tsr_json_event e = tsr_json_next(j);
        m->own_latents = e == TSR_JSON_TRUE;
        return e == TSR_JSON_TRUE || e == TSR_JSON_FALSE ? TSR_OK
                                                         : wrong_type(j, "own_latents", err);
    }
    return tsr_json_skip(j) ? TSR_OK : tsr_json_status(j);
}

static tsr_status take_record(tsr_json *j, tsr_meta *m, tsr_err *err)
{
    tsr_json_event e = tsr_json_next(j);

    if (e != TSR_JSON_OBJECT)
        return wrong_type(j, "tessera", err);
    while ((e = tsr_json_next(j)) == TSR_JSON_KEY)
        TSR_TRY(take_member(j, m, err));
    if (e == TSR_JSON_ERROR || tsr_json_next(j) != TSR_JSON_END)
        return tsr_json_status(j);
    if (!m->value[TSR_OPT_PROMPT] || !m->value[TSR_OPT_SEED])
        TSR_FAIL(err, TSR_E_MODEL, "the picture's record has no prompt or no seed");
    return TSR_OK;
}

tsr_status tsr_meta_from_record(tsr_meta *m, const char *json, size_t bytes, tsr_err *err)
{
    tsr_meta read = {0};
    tsr_json *j = NULL;
    tsr_status st = tsr_json_open_memory(&j, json, bytes, MAX_STRING, err);

    if (st == TSR_OK)
        st = take_record(j, &read, err);
    tsr_json_close(j);
    if (st != TSR_OK) {
        tsr_meta_free(&read);
        return st;
    }
    /* Sigmas that have no option come from the model's own config and come from it again. */
    if (read.value[TSR_OPT_SIGMAS] && strcmp(read.value[TSR_OPT_SIGMAS], "lu") == 0) {
        tsr_free(read.value[TSR_OPT_SIGMAS]);
        read.value[TSR_OPT_SIGMAS] = NULL;
    }
    *m = read;
    return st;
}
