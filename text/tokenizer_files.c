/* tokenizer_files.c -- where a directory keeps its vocabulary and merges.
 *
 * Published checkpoints have vocab.json and merges.txt; what transformers 5 saves has both in
 * tokenizer.json instead: {"added_tokens": [...], "model": {"type": "BPE", "vocab": {...},
 * "merges": [...]}, ...}. That file is walked twice, since the order of its keys is free: for the
 * vocabulary and the number of merges, then for the merges. Nothing is kept but the tables. */
#include "text/tokenizer_internal.h"

#include <string.h>

#include "base/alloc.h"

enum { MAX_STRING = 2 * TSR_TOKEN_MAX_BYTES + 1 }; /* two tokens and a space */

/* One JSON file while it is read, and what it goes to. */
typedef struct walk {
    tsr_json *json;
    const char *path;
    tsr_err *err;
    tsr_tokenizer *tok;
    tsr_specials *specials;
    size_t max_id, n_merges;
    bool has_vocab, has_merges;
    bool second; /* of the two walks */
} walk;

typedef tsr_status (*walk_fn)(walk *w);

/* Opens the file and lets `fn` read all of it. */
static tsr_status walk_file(walk *w, walk_fn fn)
{
    tsr_file file;
    tsr_status st;

    TSR_TRY(tsr_file_open(&file, w->path, w->err));
    w->max_id = file.size; /* every id has an entry of more than a byte when they are dense */
    st = tsr_json_open_file(&w->json, &file, 0, file.size, MAX_STRING, w->err);
    if (st == TSR_OK) {
        st = fn(w);
        if (st == TSR_OK && tsr_json_next(w->json) != TSR_JSON_END) {
            st = tsr_json_status(w->json);
            if (st == TSR_OK)
                st = tsr_err_set(w->err, TSR_E_MODEL, "%s: goes on after its end", w->path);
        }
        tsr_json_close(w->json);
    }
    tsr_file_close(&file);
    return st;
}

static tsr_status walk_vocab(walk *w)
{
    return tsr_vocab_read(&w->tok->vocab, w->json, w->max_id, w->path, w->err);
}

/* The next value must be the string `want`. */
static tsr_status expect_string(walk *w, const char *key, const char *want)
{
    tsr_json_event e = tsr_json_next(w->json);

    TSR_TRY(tsr_json_status(w->json));
    if (e != TSR_JSON_STRING || strcmp(tsr_json_text(w->json, NULL), want) != 0)
        TSR_FAIL(w->err, TSR_E_MODEL, "%s: %s is not \"%s\": no tokenizer of CLIP", w->path, key,
                 want);
    return TSR_OK;
}

static tsr_status walk_model_key(walk *w)
{
    const char *key = tsr_json_text(w->json, NULL);

    if (strcmp(key, "type") == 0)
        return expect_string(w, "model.type", "BPE");
    if (strcmp(key, "end_of_word_suffix") == 0)
        return expect_string(w, "model.end_of_word_suffix", "</w>");
    if (strcmp(key, "vocab") == 0 && !w->second) {
        w->has_vocab = true;
        return walk_vocab(w);
    }
    if (strcmp(key, "merges") == 0) {
        w->has_merges = true;
        if (!w->second)
            return tsr_merges_count_json(&w->n_merges, w->json, w->path, w->err);
        return tsr_merges_read_json(&w->tok->merges, &w->tok->vocab, w->n_merges, w->json, w->path,
                                    w->err);
    }
    return tsr_json_skip(w->json) ? TSR_OK : tsr_json_status(w->json);
}

/* The next value must be an object: `fn` is called on each of its keys. */
static tsr_status walk_keys(walk *w, const char *what, walk_fn fn)
{
    tsr_json_event e = tsr_json_next(w->json);

    if (e != TSR_JSON_OBJECT && e != TSR_JSON_ERROR)
        TSR_FAIL(w->err, TSR_E_MODEL, "%s: %s is not an object", w->path, what);
    while ((e = tsr_json_next(w->json)) == TSR_JSON_KEY)
        TSR_TRY(fn(w));
    return tsr_json_status(w->json);
}

static tsr_status walk_top_key(walk *w)
{
    const char *key = tsr_json_text(w->json, NULL);

    if (strcmp(key, "model") == 0)
        return walk_keys(w, "model", walk_model_key);
    if (strcmp(key, "added_tokens") == 0 && !w->second)
        return tsr_specials_read_added(w->specials, w->json, w->path, w->err);
    return tsr_json_skip(w->json) ? TSR_OK : tsr_json_status(w->json);
}

static tsr_status walk_top(walk *w)
{
    return walk_keys(w, "the file", walk_top_key);
}

static tsr_status read_tokenizer_json(walk *w)
{
    TSR_TRY(walk_file(w, walk_top));
    if (!w->has_vocab || !w->has_merges)
        TSR_FAIL(w->err, TSR_E_MODEL, "%s: has no model.vocab or no model.merges", w->path);
    w->second = true;
    return walk_file(w, walk_top);
}

static tsr_status read_pair_of_files(walk *w, const char *merges)
{
    TSR_TRY(walk_file(w, walk_vocab));
    return tsr_merges_read_text(&w->tok->merges, &w->tok->vocab, merges, w->err);
}

tsr_status tsr_tokenizer_read_files(tsr_tokenizer *tok, tsr_specials *s, const char *dir,
                                    tsr_err *err)
{
    char *vocab = tsr_path_join(dir, "vocab.json"), *merges = tsr_path_join(dir, "merges.txt");
    char *both = tsr_path_join(dir, "tokenizer.json");
    walk w = {.tok = tok, .specials = s, .err = err};
    tsr_status st;

    if (!vocab || !merges || !both) {
        st = tsr_err_set(err, TSR_E_OOM, "out of memory for the file names of %s", dir);
    } else if (!tsr_path_is_absent(vocab) && !tsr_path_is_absent(merges)) {
        w.path = vocab;
        st = read_pair_of_files(&w, merges);
    } else if (!tsr_path_is_absent(both)) {
        w.path = both;
        st = read_tokenizer_json(&w);
    } else {
        st = tsr_err_set(err, TSR_E_MODEL,
                         "%s has no tokenizer: neither vocab.json and merges.txt nor "
                         "tokenizer.json are there",
                         dir);
    }
    tsr_free(vocab);
    tsr_free(merges);
    tsr_free(both);
    return st;
}
