/* tokenizer_special.c -- special tokens as transformers' configs give them.
 *
 * tokenizer_config.json names the four roles and may have "added_tokens_decoder", {id: token}.
 * Without it special_tokens_map.json, added_tokens.json and the "added_tokens" of tokenizer.json
 * count too, each over the one before. A token is a string or an object with "content"; its
 * "normalized" says in which text it is looked for. (lstrip and rstrip would only swallow white
 * space, which makes no token.) Whatever number a token is given here, it has the vocabulary's id;
 * tokens that are not in the vocabulary get the next free ids, in the order of those numbers.
 *
 * Source: transformers 5 (TokenizersBackend and its loader), by reading and by trial. */
#include "text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { DEFAULT_LENGTH = 77, LEAST_LENGTH = 2, MOST_LENGTH = 1 << 20 };

static const char *const role_keys[TSR_ROLES] = {
    [TSR_ROLE_BOS] = "bos_token",
    [TSR_ROLE_EOS] = "eos_token",
    [TSR_ROLE_UNK] = "unk_token",
    [TSR_ROLE_PAD] = "pad_token",
};

/* One file while it is read. */
typedef struct reader {
    tsr_json *json;
    const char *path;
    tsr_err *err;
} reader;

static tsr_status broken(const reader *r, const char *what)
{
    TSR_TRY(tsr_json_status(r->json));
    return tsr_err_set(r->err, TSR_E_MODEL, "%s: %s", r->path, what);
}

static tsr_status no_memory(const reader *r)
{
    return tsr_err_set(r->err, TSR_E_OOM, "out of memory for the special tokens of %s", r->path);
}

static bool key_is(const reader *r, const char *name)
{
    return strcmp(tsr_json_text(r->json, NULL), name) == 0;
}

/* ---------------------------------------------------------------- one token */

static tsr_status take_text(tsr_added_spec *t, const reader *r)
{
    size_t len;
    const char *text = tsr_json_text(r->json, &len);

    if (len == 0 || len > TSR_TOKEN_MAX_BYTES || strlen(text) != len)
        return broken(r, "a special token is empty, too long, or has a zero byte");
    tsr_free(t->text);
    t->text = tsr_strdup(text);
    return t->text ? TSR_OK : no_memory(r);
}

typedef enum token_field { CONTENT, ID, NORMALIZED, SPECIAL, SINGLE_WORD, N_FIELDS } token_field;

static token_field field_of_key(const reader *r)
{
    static const char *const names[N_FIELDS] = {"content", "id", "normalized", "special",
                                                "single_word"};
    int32_t i = 0;

    while (i < N_FIELDS && !key_is(r, names[i]))
        i++;
    return (token_field)i;
}

/* The fields of a token object. */
static tsr_status read_token_object(tsr_added_spec *t, const reader *r)
{
    tsr_json_event e;
    uint64_t id;

    while ((e = tsr_json_next(r->json)) == TSR_JSON_KEY) {
        token_field field = field_of_key(r);
        if (field == N_FIELDS) {
            if (!tsr_json_skip(r->json))
                return tsr_json_status(r->json);
            continue;
        }
        e = tsr_json_next(r->json);
        if (field == CONTENT && e == TSR_JSON_STRING)
            TSR_TRY(take_text(t, r));
        else if (field == ID && e == TSR_JSON_NUMBER && tsr_json_u64(r->json, &id) &&
                 id < TSR_NO_TOKEN)
            t->id = (int64_t)id;
        else if (field == CONTENT || field == ID || (e != TSR_JSON_TRUE && e != TSR_JSON_FALSE))
            return broken(r, "a special token's content, id or flag has the wrong type");
        else if (field == NORMALIZED)
            t->normalized = e == TSR_JSON_TRUE;
        else if (field == SINGLE_WORD && e == TSR_JSON_TRUE)
            return broken(r, "a special token with single_word true is not supported");
    }
    return e == TSR_JSON_OBJECT_END && t->text ? TSR_OK
                                               : broken(r, "a special token has no content");
}

/* The value of event `e` as a token, put over *t; null leaves it as it is. */
static tsr_status read_token(tsr_added_spec *t, const reader *r, tsr_json_event e)
{
    tsr_added_spec fresh = {.id = -1};
    tsr_status st;

    if (e == TSR_JSON_NULL)
        return TSR_OK;
    st = e == TSR_JSON_STRING   ? take_text(&fresh, r)
         : e == TSR_JSON_OBJECT ? read_token_object(&fresh, r)
                                : broken(r, "a special token is neither a string nor an object");
    if (st != TSR_OK) {
        tsr_free(fresh.text);
        return st;
    }
    tsr_free(t->text);
    *t = fresh;
    return TSR_OK;
}

/* ----------------------------------------------------------------- the list */

static tsr_status append(tsr_specials *s, const reader *r, tsr_added_spec **t)
{
    if (s->n_added == TSR_ADDED_MAX_TOKENS)
        return broken(r, "more than 1024 added tokens");
    if (!tsr_grow((void **)&s->added, &s->added_cap, s->n_added + 1, sizeof s->added[0]))
        return no_memory(r);
    *t = &s->added[s->n_added++];
    **t = (tsr_added_spec){.id = -1};
    return TSR_OK;
}

/* Appends the value of event `e`. */
static tsr_status append_token(tsr_specials *s, const reader *r, tsr_json_event e,
                               tsr_added_spec **t)
{
    TSR_TRY(append(s, r, t));
    TSR_TRY(read_token(*t, r, e));
    return (*t)->text ? TSR_OK : broken(r, "an added token is null");
}

/* The next value: an array of tokens. */
static tsr_status read_list(tsr_specials *s, const reader *r)
{
    tsr_json_event e = tsr_json_next(r->json);
    tsr_added_spec *t = NULL;

    if (e != TSR_JSON_ARRAY)
        return e == TSR_JSON_NULL ? TSR_OK : broken(r, "the added tokens are not an array");
    while ((e = tsr_json_next(r->json)) != TSR_JSON_ARRAY_END)
        TSR_TRY(append_token(s, r, e, &t));
    return TSR_OK;
}

/* The next value: {"49408": token, ...}. */
static tsr_status read_decoder(tsr_specials *s, const reader *r)
{
    tsr_json_event e = tsr_json_next(r->json);
    tsr_added_spec *t = NULL;

    if (e != TSR_JSON_OBJECT)
        return broken(r, "added_tokens_decoder is not an object");
    while ((e = tsr_json_next(r->json)) == TSR_JSON_KEY) {
        char *end;
        unsigned long id = strtoul(tsr_json_text(r->json, NULL), &end, 10);
        if (*end != '\0' || id >= TSR_NO_TOKEN)
            return broken(r, "a key of added_tokens_decoder is no token id");
        TSR_TRY(append_token(s, r, tsr_json_next(r->json), &t));
        t->id = (int64_t)id;
    }
    return tsr_json_status(r->json);
}

/* -------------------------------------------------------------------- files */

static tsr_status read_max_length(tsr_specials *s, const reader *r)
{
    tsr_json_event e = tsr_json_next(r->json);
    uint64_t n;

    if (e != TSR_JSON_NUMBER && e != TSR_JSON_NULL)
        return broken(r, "model_max_length is not a number");
    if (e == TSR_JSON_NUMBER && tsr_json_u64(r->json, &n) && n >= LEAST_LENGTH && n <= MOST_LENGTH)
        s->max_length = (int32_t)n;
    return TSR_OK;
}

/* The keys of tokenizer_config.json; special_tokens_map.json has some of them. */
static tsr_status read_config(tsr_specials *s, const reader *r)
{
    tsr_json_event e;

    while ((e = tsr_json_next(r->json)) == TSR_JSON_KEY) {
        tsr_added_spec *role = NULL;
        for (int32_t i = 0; i < TSR_ROLES; i++)
            role = key_is(r, role_keys[i]) ? &s->roles[i] : role;
        if (role) {
            TSR_TRY(read_token(role, r, tsr_json_next(r->json)));
        } else if (key_is(r, "added_tokens_decoder")) {
            s->has_decoder = true;
            TSR_TRY(read_decoder(s, r));
        } else if (key_is(r, "model_max_length")) {
            TSR_TRY(read_max_length(s, r));
        } else if (key_is(r, "additional_special_tokens")) {
            TSR_TRY(read_list(s, r));
        } else if (!tsr_json_skip(r->json)) {
            return tsr_json_status(r->json);
        }
    }
    return tsr_json_status(r->json);
}

/* added_tokens.json: {"<token>": id, ...}. */
static tsr_status read_added_ids(tsr_specials *s, const reader *r)
{
    tsr_json_event e;
    tsr_added_spec *t = NULL;
    uint64_t id;

    while ((e = tsr_json_next(r->json)) == TSR_JSON_KEY) {
        TSR_TRY(append(s, r, &t));
        TSR_TRY(take_text(t, r));
        if (tsr_json_next(r->json) != TSR_JSON_NUMBER || !tsr_json_u64(r->json, &id) ||
            id >= TSR_NO_TOKEN)
            return broken(r, "an added token's id is out of range");
        t->normalized = true;
        t->id = (int64_t)id;
    }
    return tsr_json_status(r->json);
}

typedef tsr_status (*read_fn)(tsr_specials *s, const reader *r);

/* Reads the object in the file `name` with `read`; a file that is not there is no error. */
static tsr_status read_file(tsr_specials *s, const tsr_folder *dir, const char *name, read_fn read,
                            tsr_err *err)
{
    reader r = {.err = err};
    tsr_file file;
    tsr_status st;

    if (!tsr_folder_has(dir, name))
        return TSR_OK;
    TSR_TRY(tsr_folder_open(dir, name, &file, err));
    r.path = file.path;
    TSR_TRY_GOTO(tsr_json_open_file(&r.json, &file, 0, file.size, TSR_TOKEN_MAX_BYTES, err));
    if (tsr_json_next(r.json) != TSR_JSON_OBJECT)
        TSR_TRY_GOTO(broken(&r, "not a JSON object"));
    TSR_TRY_GOTO(read(s, &r));
    if (tsr_json_next(r.json) != TSR_JSON_END)
        st = broken(&r, "something follows the JSON object");
done:
    tsr_json_close(r.json);
    tsr_file_close(&file);
    return st;
}

tsr_status tsr_specials_read_dir(tsr_specials *s, const tsr_folder *dir, tsr_err *err)
{
    s->max_length = DEFAULT_LENGTH;
    TSR_TRY(read_file(s, dir, "tokenizer_config.json", read_config, err));
    if (s->has_decoder)
        return TSR_OK;
    TSR_TRY(read_file(s, dir, "special_tokens_map.json", read_config, err));
    return read_file(s, dir, "added_tokens.json", read_added_ids, err);
}

tsr_status tsr_specials_read_added(tsr_specials *s, tsr_json *j, const char *where, tsr_err *err)
{
    reader r = {.json = j, .path = where, .err = err};

    if (s->has_decoder)
        return tsr_json_skip(j) ? TSR_OK : tsr_json_status(j);
    return read_list(s, &r);
}

void tsr_specials_free(tsr_specials *s)
{
    for (int32_t i = 0; i < TSR_ROLES; i++)
        tsr_free(s->roles[i].text);
    for (size_t i = 0; i < s->n_added; i++)
        tsr_free(s->added[i].text);
    tsr_free(s->added);
    *s = (tsr_specials){0};
}
