/* tokenizer_vocab.c -- tokens and their ids, compact.
 *
 * Tokens lie in one pool, zero-terminated, in the order of the file; `start` leads from an id to
 * the pool. While loading, an open-addressing table of ids leads from bytes to ids; it holds no
 * bytes itself, so it is rebuilt from the pool when it grows and is given back at the end. SD's
 * 49,408 tokens: pool 471 KB, starts 198 KB, table 262 KB.
 *
 * Ids come from a file: one that is larger than the file's size in bytes cannot be dense, so
 * `max_id` bounds the memory that a hostile vocabulary can ask for. */
#include "text/tokenizer_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/text_util.h"

enum { SMALLEST_INDEX = 1024 };

static uint32_t *probe(const tsr_vocab *v, uint64_t hash)
{
    return &v->index[(hash ^ hash >> 32) & (v->n_index - 1)];
}

static uint32_t *next_slot(const tsr_vocab *v, uint32_t *slot)
{
    return slot + 1 < v->index + v->n_index ? slot + 1 : v->index;
}

static bool is_token(const tsr_vocab *v, uint32_t id, const char *a, size_t a_len, const char *b,
                     size_t b_len)
{
    const char *token = v->pool + v->start[id];

    return strlen(token) == a_len + b_len && memcmp(token, a, a_len) == 0 &&
           memcmp(token + a_len, b, b_len) == 0;
}

/* The slot that holds a + b, or the empty one where it belongs. */
static uint32_t *find_slot(const tsr_vocab *v, const char *a, size_t a_len, const char *b,
                           size_t b_len)
{
    uint64_t hash = tsr_fnv1a64(b, b_len, tsr_fnv1a64(a, a_len, TSR_FNV_SEED));
    uint32_t *slot = probe(v, hash);

    while (*slot != TSR_NO_TOKEN && !is_token(v, *slot, a, a_len, b, b_len))
        slot = next_slot(v, slot);
    return slot;
}

uint32_t tsr_vocab_find(const tsr_vocab *v, const char *a, size_t a_len, const char *b,
                        size_t b_len)
{
    return v->n_index ? *find_slot(v, a, a_len, b, b_len) : TSR_NO_TOKEN;
}

/* Room for one more token in the index, at most 7/8 full. */
static bool grow_index(tsr_vocab *v)
{
    size_t n = v->n_index ? 2 * v->n_index : SMALLEST_INDEX;

    if (v->n_tokens < v->n_index / 8 * 7)
        return true;
    tsr_free(v->index); /* first: both at once would be the peak of the load */
    v->n_index = 0;
    v->index = tsr_malloc(n * sizeof v->index[0]);
    if (!v->index)
        return false;
    v->n_index = n;
    for (size_t i = 0; i < n; i++)
        v->index[i] = TSR_NO_TOKEN;
    for (size_t id = 0; id < v->n_ids; id++) {
        if (v->start[id] != TSR_NO_PLACE) {
            const char *token = v->pool + v->start[id];
            *find_slot(v, token, strlen(token), "", 0) = (uint32_t)id;
        }
    }
    return true;
}

/* Room in the pool and among the ids. */
static bool grow_tables(tsr_vocab *v, size_t bytes, size_t n_ids)
{
    if (!tsr_grow((void **)&v->pool, &v->pool_cap, v->pool_len + bytes, 1) ||
        !tsr_grow((void **)&v->start, &v->ids_cap, n_ids, sizeof v->start[0]))
        return false;
    for (; v->n_ids < n_ids; v->n_ids++)
        v->start[v->n_ids] = TSR_NO_PLACE;
    return true;
}

tsr_status tsr_vocab_add(tsr_vocab *v, const char *token, size_t len, uint64_t id, size_t max_id,
                         const char *where, tsr_err *err)
{
    uint32_t *slot;

    if (len == 0 || len > TSR_TOKEN_MAX_BYTES || memchr(token, '\0', len))
        TSR_FAIL(err, TSR_E_MODEL,
                 "%s: the token of id %llu is empty, longer than %d bytes, or has a zero byte",
                 where, (unsigned long long)id, TSR_TOKEN_MAX_BYTES);
    if (id > max_id || id >= TSR_NO_TOKEN)
        TSR_FAIL(err, TSR_E_MODEL, "%s: the id %llu of token \"%.*s\" is out of range", where,
                 (unsigned long long)id, (int)len, token);
    if (v->pool_len + len + 1 >= TSR_NO_PLACE)
        TSR_FAIL(err, TSR_E_MODEL, "%s: the vocabulary is larger than 4 GiB", where);
    if (!grow_tables(v, len + 1, tsr_max_size(v->n_ids, (size_t)id + 1)) || !grow_index(v))
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the vocabulary %s", where);
    if (v->start[id] != TSR_NO_PLACE)
        TSR_FAIL(err, TSR_E_MODEL, "%s: the tokens \"%s\" and \"%.*s\" have the same id %llu",
                 where, v->pool + v->start[id], (int)len, token, (unsigned long long)id);
    slot = find_slot(v, token, len, "", 0);
    if (*slot != TSR_NO_TOKEN)
        TSR_FAIL(err, TSR_E_MODEL, "%s: the token \"%.*s\" has two ids, %u and %llu", where,
                 (int)len, token, (unsigned)*slot, (unsigned long long)id);
    v->start[id] = (uint32_t)v->pool_len;
    memcpy(v->pool + v->pool_len, token, len);
    v->pool[v->pool_len + len] = '\0';
    v->pool_len += len + 1;
    v->n_tokens++;
    *slot = (uint32_t)id;
    return TSR_OK;
}

tsr_status tsr_vocab_read(tsr_vocab *v, tsr_json *j, size_t max_id, const char *where, tsr_err *err)
{
    char token[TSR_TOKEN_MAX_BYTES + 1];
    tsr_json_event e = tsr_json_next(j);

    if (e != TSR_JSON_OBJECT && e != TSR_JSON_ERROR)
        TSR_FAIL(err, TSR_E_MODEL, "%s: the vocabulary is not an object {token: id}", where);
    while ((e = tsr_json_next(j)) == TSR_JSON_KEY) {
        uint64_t id;
        size_t len;
        const char *key = tsr_json_text(j, &len);
        memcpy(token, key, tsr_min_size(len, sizeof token));
        e = tsr_json_next(j);
        if (e == TSR_JSON_ERROR)
            return tsr_json_status(j);
        if (e != TSR_JSON_NUMBER || !tsr_json_u64(j, &id))
            TSR_FAIL(err, TSR_E_MODEL, "%s: the id of token \"%.*s\" is not a whole number", where,
                     (int)tsr_min_size(len, sizeof token), token);
        TSR_TRY(tsr_vocab_add(v, token, len, id, max_id, where, err));
    }
    return e == TSR_JSON_ERROR ? tsr_json_status(j) : TSR_OK;
}

/* Gives back the room that a growing array has too much; the old block stays when that fails. */
static void shrink(void **p, size_t *cap, size_t n, size_t size)
{
    void *exact = n > 0 && n < *cap ? tsr_realloc(*p, n * size) : NULL;

    if (exact) {
        *p = exact;
        *cap = n;
    }
}

void tsr_vocab_finish(tsr_vocab *v)
{
    void *pool = v->pool, *start = v->start;

    tsr_free(v->index);
    v->index = NULL;
    v->n_index = 0;
    shrink(&pool, &v->pool_cap, v->pool_len, 1);
    shrink(&start, &v->ids_cap, v->n_ids, sizeof v->start[0]);
    v->pool = pool;
    v->start = start;
}

void tsr_vocab_free(tsr_vocab *v)
{
    tsr_free(v->pool);
    tsr_free(v->start);
    tsr_free(v->index);
    *v = (tsr_vocab){0};
}
