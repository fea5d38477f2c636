/* tokenizer_merges.c -- the merge list of the BPE, as one hash table.
 *
 * merges.txt has a pair of tokens a line, most frequent first; a first line "#version..." is
 * skipped, as are blank lines. A pair's rank is its place in the list, its product the token that
 * both make together. Parts and product must be in the vocabulary.
 *
 * An entry is three 24-bit ids with the 24-bit rank spread over their high bytes: 12 bytes. The
 * file is read twice, to count and to fill, so that the table is made once at its size, 6/7 full:
 * growing would hold two tables at its peak. SD's 48,894 merges: 685 KB. Linear probing; a miss
 * reads 25 neighbours at this load, five cache lines. */
#include "text/tokenizer_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

enum { MASK = 0xFFFFFF, LINE_BYTES = 8192 };

/* ----------------------------------------------------------------------- table */

static size_t first_slot(const tsr_merges *m, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 24 | right) * 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio */

    return (size_t)(((key >> 32) * m->n_slots) >> 32);
}

/* The slot of the pair, or the empty one where it belongs. There is always an empty one. */
static uint32_t *find_slot(const tsr_merges *m, uint32_t left, uint32_t right)
{
    size_t i = first_slot(m, left, right);

    while ((m->slots[i][0] & MASK) != TSR_NO_TOKEN &&
           ((m->slots[i][0] & MASK) != left || (m->slots[i][1] & MASK) != right))
        i = i + 1 < m->n_slots ? i + 1 : 0;
    return m->slots[i];
}

bool tsr_merges_find(const tsr_merges *m, uint32_t left, uint32_t right, uint32_t *rank,
                     uint32_t *product)
{
    const uint32_t *slot = find_slot(m, left, right);

    if ((slot[0] & MASK) == TSR_NO_TOKEN)
        return false;
    *product = slot[2] & MASK;
    *rank = slot[0] >> 24 | (slot[1] >> 24) << 8 | (slot[2] >> 24) << 16;
    return true;
}

static tsr_status make_table(tsr_merges *m, size_t n, const char *where, tsr_err *err)
{
    tsr_merges_free(m);
    if (n >= TSR_NO_TOKEN)
        TSR_FAIL(err, TSR_E_MODEL, "%s: more than 16 million merges", where);
    m->n_slots = n + n / 6 + 1;
    m->slots = tsr_malloc(m->n_slots * sizeof m->slots[0]);
    if (!m->slots)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the merges of %s", where);
    memset(m->slots, 0xFF, m->n_slots * sizeof m->slots[0]);
    return TSR_OK;
}

void tsr_merges_free(tsr_merges *m)
{
    tsr_free(m->slots);
    *m = (tsr_merges){0};
}

/* One pair of tokens as a file has it, and where that is, for messages: "<path> line 7". */
typedef struct pair {
    const char *a, *b;
    size_t a_len, b_len;
    const char *path, *unit;
    size_t number;
} pair;

static tsr_status add_pair(tsr_merges *m, const tsr_vocab *v, const pair *p, tsr_err *err)
{
    uint32_t left = tsr_vocab_find(v, p->a, p->a_len, "", 0);
    uint32_t right = tsr_vocab_find(v, p->b, p->b_len, "", 0);
    uint32_t product = tsr_vocab_find(v, p->a, p->a_len, p->b, p->b_len), *slot;
    uint32_t rank = (uint32_t)m->n;

    if (left == TSR_NO_TOKEN || right == TSR_NO_TOKEN || product == TSR_NO_TOKEN)
        TSR_FAIL(err, TSR_E_MODEL,
                 "%s %s %zu: \"%.*s\" and \"%.*s\" cannot merge: %s is not in the vocabulary",
                 p->path, p->unit, p->number, (int)p->a_len, p->a, (int)p->b_len, p->b,
                 left == TSR_NO_TOKEN    ? "the first"
                 : right == TSR_NO_TOKEN ? "the second"
                                         : "what they make");
    slot = find_slot(m, left, right);
    if ((slot[0] & MASK) != TSR_NO_TOKEN)
        TSR_FAIL(err, TSR_E_MODEL, "%s %s %zu: the merge \"%.*s\" \"%.*s\" is there already",
                 p->path, p->unit, p->number, (int)p->a_len, p->a, (int)p->b_len, p->b);
    slot[0] = left | (rank & 0xFF) << 24;
    slot[1] = right | (rank >> 8 & 0xFF) << 24;
    slot[2] = product | (rank >> 16) << 24;
    m->n++;
    return TSR_OK;
}

/* Splits "a b" at its one space. */
static bool split_pair(pair *p, const char *text, size_t len)
{
    const char *space = memchr(text, ' ', len);

    if (!space || memchr(space + 1, ' ', (size_t)(text + len - space) - 1))
        return false;
    p->a = text;
    p->a_len = (size_t)(space - text);
    p->b = space + 1;
    p->b_len = len - p->a_len - 1;
    return p->a_len > 0 && p->b_len > 0;
}

/* ------------------------------------------------------------------ merges.txt */

typedef struct line_reader {
    const tsr_file *file;
    size_t file_pos; /* of the byte after the buffer's end */
    size_t pos, len; /* [pos, len) of the buffer is unread */
    size_t number;   /* of the last line */
    char buffer[LINE_BYTES];
} line_reader;

/* The next line without its end; *text NULL at the end of the file. */
static tsr_status next_line(line_reader *r, const char **text, size_t *len, tsr_err *err)
{
    char *end = memchr(r->buffer + r->pos, '\n', r->len - r->pos);
    size_t room;

    if (!end && r->file_pos < r->file->size) {
        memmove(r->buffer, r->buffer + r->pos, r->len - r->pos);
        r->len -= r->pos;
        r->pos = 0;
        room = tsr_min_size(LINE_BYTES - r->len, r->file->size - r->file_pos);
        TSR_TRY(tsr_file_read(r->file, r->file_pos, r->buffer + r->len, room, err));
        r->len += room;
        r->file_pos += room;
        end = memchr(r->buffer, '\n', r->len);
        if (!end && r->len == LINE_BYTES)
            TSR_FAIL(err, TSR_E_MODEL, "%s line %zu: longer than %d bytes", r->file->path,
                     r->number + 1, LINE_BYTES - 1);
    }
    *text = r->pos < r->len ? r->buffer + r->pos : NULL;
    *len = end ? (size_t)(end - *text) : r->len - r->pos;
    r->pos = end ? (size_t)(end - r->buffer) + 1 : r->len;
    r->number++;
    if (*len > 0 && (*text)[*len - 1] == '\r')
        --*len;
    return TSR_OK;
}

/* The next line that is a merge. */
static tsr_status next_merge_line(line_reader *r, const char **text, size_t *len, tsr_err *err)
{
    static const char version[] = "#version";

    do
        TSR_TRY(next_line(r, text, len, err));
    while (*text && (*len == 0 || (r->number == 1 && *len >= sizeof version - 1 &&
                                   memcmp(*text, version, sizeof version - 1) == 0)));
    return TSR_OK;
}

tsr_status tsr_merges_read_text(tsr_merges *m, const tsr_vocab *v, const tsr_file *file,
                                tsr_err *err)
{
    line_reader r = {.file = file};
    const char *text;
    size_t len, n = 0;
    pair p = {.path = file->path, .unit = "line"};

    for (;; n++) {
        TSR_TRY(next_merge_line(&r, &text, &len, err));
        if (!text)
            break;
    }
    TSR_TRY(make_table(m, n, file->path, err));
    r.file_pos = r.pos = r.len = r.number = 0;
    while (m->n < n) {
        TSR_TRY(next_merge_line(&r, &text, &len, err));
        p.number = r.number;
        if (!text || !split_pair(&p, text, len))
            TSR_FAIL(err, TSR_E_MODEL, "%s line %zu: not two tokens with a space between",
                     file->path, r.number);
        TSR_TRY(add_pair(m, v, &p, err));
    }
    return TSR_OK;
}

/* -------------------------------------------------------------- tokenizer.json */

tsr_status tsr_merges_count_json(size_t *n, tsr_json *j, const char *where, tsr_err *err)
{
    tsr_json_event e = tsr_json_next(j);
    int32_t depth = 0;

    if (e != TSR_JSON_ARRAY && e != TSR_JSON_ERROR)
        TSR_FAIL(err, TSR_E_MODEL, "%s: the merges are not an array", where);
    for (*n = 0; e != TSR_JSON_ERROR; e = tsr_json_next(j)) {
        bool begins = e == TSR_JSON_ARRAY || e == TSR_JSON_OBJECT;
        bool ends = e == TSR_JSON_ARRAY_END || e == TSR_JSON_OBJECT_END;
        *n += depth == 1 && !ends;
        depth += begins - ends;
        if (depth == 0)
            return TSR_OK;
    }
    return tsr_json_status(j);
}

/* Copies the text of a string event of at most TSR_TOKEN_MAX_BYTES; false when it is none. */
static bool copy_part(char *dst, size_t *len, tsr_json *j, tsr_json_event e)
{
    const char *text;

    if (e != TSR_JSON_STRING)
        return false;
    text = tsr_json_text(j, len);
    if (*len > TSR_TOKEN_MAX_BYTES)
        return false;
    memcpy(dst, text, *len);
    return true;
}

tsr_status tsr_merges_read_json(tsr_merges *m, const tsr_vocab *v, size_t n, tsr_json *j,
                                const char *where, tsr_err *err)
{
    char a[TSR_TOKEN_MAX_BYTES], b[TSR_TOKEN_MAX_BYTES];
    pair p = {.path = where, .unit = "merge"};
    tsr_json_event e = tsr_json_next(j); /* the array: the counting pass has seen it */

    TSR_TRY(make_table(m, n, where, err));
    while ((e = tsr_json_next(j)) != TSR_JSON_ARRAY_END) {
        bool good;
        p.number++;
        if (e == TSR_JSON_ARRAY) {
            p.a = a;
            p.b = b;
            good = copy_part(a, &p.a_len, j, tsr_json_next(j)) &&
                   copy_part(b, &p.b_len, j, tsr_json_next(j)) &&
                   tsr_json_next(j) == TSR_JSON_ARRAY_END;
        } else {
            size_t len;
            const char *text = tsr_json_text(j, &len);
            good = e == TSR_JSON_STRING && split_pair(&p, text, len);
        }
        TSR_TRY(tsr_json_status(j));
        if (!good)
            TSR_FAIL(err, TSR_E_MODEL, "%s merge %zu: not two tokens", where, p.number);
        if (m->n == n)
            TSR_FAIL(err, TSR_E_MODEL, "%s: has changed while it was read", where);
        TSR_TRY(add_pair(m, v, &p, err));
    }
    return TSR_OK;
}
