/* safetensors.c -- the header of a safetensors file: parsed as a stream, checked as hostile input.
 *
 *     bytes 0..7      header size, u64 little-endian
 *     8..8+size-1     JSON: { "name": { "dtype": "F16", "shape": [2,3], "data_offsets": [a,b] },
 * ..,
 *                             "__metadata__": { "key": "text" } }
 *     8+size..        data; a and b count from here
 *
 * The header is read event by event (base/json_pull), so memory is one record and one name a
 * tensor, however the JSON is padded. Then two sorts: by offset, to find overlaps between
 * neighbours; by name, to find duplicates and for bsearch afterwards. O(n log n) in all.
 *
 * Tolerated, since published files have it: bytes that no tensor covers (counted), offsets that
 * are not aligned, tensors in any order, unknown keys beside the three, tensors without elements.
 * Source: the format's description in huggingface/safetensors. Whoever trusts offset and bytes
 * later (component.c) relies on every check here. */
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_pull.h"
#include "base/num.h"
#include "base/text_util.h"

enum { PREFIX_BYTES = 8 };

typedef struct parser {
    tsr_st *st;
    tsr_json *json;
    tsr_err *err;
    size_t data_offset, data_bytes;
    size_t cap_tensors;
    size_t names_len, names_cap; /* the pool: names one after the other, zero-terminated */
    const char *name;            /* of the tensor being parsed: in the pool, for messages */
} parser;

/* Parts of one entry; bits of `seen`. */
enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

#define BROKEN(p, ...) return tsr_err_set((p)->err, TSR_E_MODEL, __VA_ARGS__)

static const char *path_of(const parser *p)
{
    return p->st->file.path;
}

/* The parser's own error when there is one (it names the file), else what was expected. */
static tsr_status unexpected(const parser *p, const char *wanted)
{
    tsr_status st = tsr_json_status(p->json);

    if (st != TSR_OK)
        return st;
    return tsr_err_set(p->err, TSR_E_MODEL, "%s: the header of tensor \"%s\" is broken: %s",
                       path_of(p), p->name, wanted);
}

static tsr_status parse_dtype(parser *p, tsr_st_tensor *t)
{
    const char *text;

    if (tsr_json_next(p->json) != TSR_JSON_STRING)
        return unexpected(p, "dtype is not a text");
    text = tsr_json_text(p->json, NULL);
    for (tsr_dtype d = TSR_F32; d <= TSR_BOOL; d++)
        if (strcmp(text, tsr_dtype_name(d)) == 0) {
            t->dtype = d;
            return TSR_OK;
        }
    BROKEN(p,
           "%s: tensor \"%s\" has dtype %s, which is not supported; convert the file to F16, BF16 "
           "or F32",
           path_of(p), p->name, text);
}

/* [1, 2, 3] into values[max]; each a non-negative whole number. */
static tsr_status parse_numbers(parser *p, const char *what, uint64_t *values, int32_t max,
                                int32_t *n)
{
    int32_t count = 0;
    tsr_json_event e;

    if (tsr_json_next(p->json) != TSR_JSON_ARRAY)
        return unexpected(p, what);
    while ((e = tsr_json_next(p->json)) != TSR_JSON_ARRAY_END) {
        uint64_t v;
        if (e != TSR_JSON_NUMBER || !tsr_json_u64(p->json, &v) || v > INT64_MAX)
            return unexpected(p, what);
        if (count == max)
            BROKEN(p, "%s: tensor \"%s\": %s, but it has more than %d", path_of(p), p->name, what,
                   (int)max);
        values[count++] = v;
    }
    *n = count;
    return TSR_OK;
}

static tsr_status parse_shape(parser *p, tsr_st_tensor *t)
{
    uint64_t dims[TSR_ST_MAX_DIMS];

    TSR_TRY(parse_numbers(p, "shape must be a list of at most 8 non-negative whole numbers", dims,
                          TSR_ST_MAX_DIMS, &t->n_dims));
    for (int32_t i = 0; i < t->n_dims; i++)
        t->dims[i] = (int64_t)dims[i];
    return TSR_OK;
}

static tsr_status parse_offsets(parser *p, tsr_st_tensor *t)
{
    uint64_t ends[2];
    int32_t n = 0;

    TSR_TRY(parse_numbers(p, "data_offsets must be two non-negative whole numbers", ends, 2, &n));
    if (n != 2)
        return unexpected(p, "data_offsets must be two non-negative whole numbers");
    if (ends[0] > ends[1])
        BROKEN(p, "%s: tensor \"%s\" ends before it begins", path_of(p), p->name);
    if (ends[1] > p->data_bytes)
        BROKEN(p,
               "%s: tensor \"%s\" lies outside the file (it ends at byte %llu of %zu); the file is "
               "truncated",
               path_of(p), p->name, (unsigned long long)ends[1], p->data_bytes);
    t->offset = p->data_offset + (size_t)ends[0];
    t->bytes = (size_t)(ends[1] - ends[0]);
    return TSR_OK;
}

static tsr_status parse_field(parser *p, tsr_st_tensor *t, unsigned *seen)
{
    const char *key = tsr_json_text(p->json, NULL);
    unsigned field = strcmp(key, "dtype") == 0          ? HAS_DTYPE
                     : strcmp(key, "shape") == 0        ? HAS_SHAPE
                     : strcmp(key, "data_offsets") == 0 ? HAS_OFFSETS
                                                        : 0;

    if (*seen & field)
        return unexpected(p, "a key is there twice");
    *seen |= field;
    switch (field) {
    case HAS_DTYPE:
        return parse_dtype(p, t);
    case HAS_SHAPE:
        return parse_shape(p, t);
    case HAS_OFFSETS:
        return parse_offsets(p, t);
    default:
        return tsr_json_skip(p->json) ? TSR_OK : unexpected(p, "not JSON");
    }
}

static tsr_status check_size(const parser *p, const tsr_st_tensor *t)
{
    size_t bytes = tsr_dtype_size(t->dtype);
    bool fits = true;

    for (int32_t i = 0; i < t->n_dims; i++) /* a zero anywhere makes it 0, also after an overflow */
        if (t->dims[i] == 0)
            bytes = 0;
    for (int32_t i = 0; i < t->n_dims && bytes > 0 && fits; i++)
        fits = tsr_mul_size(bytes, (size_t)t->dims[i], &bytes);
    if (!fits || bytes != t->bytes)
        BROKEN(p, "%s: tensor \"%s\" has %zu bytes, which is not what its shape and dtype need",
               path_of(p), p->name, t->bytes);
    return TSR_OK;
}

/* The key just read goes into the pool. Pointers are set when the pool has stopped moving. */
static tsr_status pool_name(parser *p)
{
    size_t len;
    const char *text = tsr_json_text(p->json, &len);

    if (len == 0 || strlen(text) != len)
        BROKEN(p, "%s: a tensor's name is empty or holds a zero byte", path_of(p));
    if (!tsr_grow((void **)&p->st->names, &p->names_cap, p->names_len + len + 1, 1))
        TSR_FAIL(p->err, TSR_E_OOM, "out of memory for the tensor names of %s", path_of(p));
    p->name = p->st->names + p->names_len;
    memcpy(p->st->names + p->names_len, text, len + 1);
    p->names_len += len + 1;
    return TSR_OK;
}

static tsr_status parse_tensor(parser *p)
{
    tsr_st_tensor t = {0};
    unsigned seen = 0;
    tsr_json_event e;

    TSR_TRY(pool_name(p));
    if (tsr_json_next(p->json) != TSR_JSON_OBJECT)
        return unexpected(p, "its entry is not an object");
    while ((e = tsr_json_next(p->json)) == TSR_JSON_KEY)
        TSR_TRY(parse_field(p, &t, &seen));
    if (e != TSR_JSON_OBJECT_END)
        return unexpected(p, "not JSON");
    if (seen != HAS_ALL)
        return unexpected(p, "dtype, shape or data_offsets is missing");
    TSR_TRY(check_size(p, &t));
    if (p->st->n_tensors == TSR_ST_MAX_TENSORS)
        BROKEN(p, "%s has more than %d tensors", path_of(p), TSR_ST_MAX_TENSORS);
    if (!tsr_grow((void **)&p->st->tensors, &p->cap_tensors, (size_t)p->st->n_tensors + 1,
                  sizeof t))
        TSR_FAIL(p->err, TSR_E_OOM, "out of memory for the tensor table of %s", path_of(p));
    p->st->tensors[p->st->n_tensors++] = t;
    return TSR_OK;
}

static tsr_status parse_header(parser *p)
{
    tsr_json_event e;
    const char *next;

    p->name = "";
    if (tsr_json_next(p->json) != TSR_JSON_OBJECT)
        return unexpected(p, "it is not a JSON object");
    while ((e = tsr_json_next(p->json)) == TSR_JSON_KEY) {
        if (strcmp(tsr_json_text(p->json, NULL), "__metadata__") != 0)
            TSR_TRY(parse_tensor(p));
        else if (!tsr_json_skip(p->json))
            return unexpected(p, "not JSON");
    }
    if (e != TSR_JSON_OBJECT_END || tsr_json_next(p->json) != TSR_JSON_END)
        return unexpected(p, "not JSON");
    next = p->st->names;
    for (int32_t i = 0; i < p->st->n_tensors; i++) {
        p->st->tensors[i].name = next;
        next += strlen(next) + 1;
    }
    return TSR_OK;
}

static int by_offset(const void *a, const void *b)
{
    const tsr_st_tensor *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tsr_st_tensor *)a)->name, ((const tsr_st_tensor *)b)->name);
}

/* No two tensors share a byte; the rest is counted. Tensors without elements take no place. */
static tsr_status check_overlaps(parser *p)
{
    tsr_st *st = p->st;
    const tsr_st_tensor *last = NULL;
    size_t covered = 0;

    if (st->n_tensors > 0)
        qsort(st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, by_offset);
    for (int32_t i = 0; i < st->n_tensors; i++) {
        const tsr_st_tensor *t = &st->tensors[i];
        if (t->bytes == 0)
            continue;
        if (last && t->offset < last->offset + last->bytes)
            BROKEN(p, "%s: the data of tensors \"%s\" and \"%s\" overlap", path_of(p), last->name,
                   t->name);
        covered += t->bytes;
        last = t;
    }
    st->n_uncovered_bytes = p->data_bytes - covered;
    return TSR_OK;
}

static tsr_status check_duplicates(parser *p)
{
    tsr_st *st = p->st;

    if (st->n_tensors > 0)
        qsort(st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, by_name);
    for (int32_t i = 1; i < st->n_tensors; i++)
        if (strcmp(st->tensors[i - 1].name, st->tensors[i].name) == 0)
            BROKEN(p, "%s has two tensors named \"%s\"", path_of(p), st->tensors[i].name);
    return TSR_OK;
}

static tsr_status read_header_size(parser *p, size_t *header_bytes)
{
    const tsr_file *f = &p->st->file;
    uint8_t raw[PREFIX_BYTES];
    uint64_t n = 0;

    if (f->size < PREFIX_BYTES)
        BROKEN(p, "%s is truncated: a safetensors file has at least 8 bytes", f->path);
    TSR_TRY(tsr_file_read(f, 0, raw, sizeof raw, p->err));
    for (int i = PREFIX_BYTES - 1; i >= 0; i--)
        n = n << 8 | raw[i];
    if (n > TSR_ST_MAX_HEADER)
        BROKEN(p, "%s: a header of %llu bytes is too large; this is no safetensors file", f->path,
               (unsigned long long)n);
    if (n > f->size - PREFIX_BYTES)
        BROKEN(p, "%s is truncated: its header should have %llu bytes, the file has %zu", f->path,
               (unsigned long long)n, f->size);
    *header_bytes = (size_t)n;
    return TSR_OK;
}

tsr_status tsr_st_open(tsr_st *st, const char *path, tsr_err *err)
{
    parser p = {.st = st, .err = err};
    size_t header_bytes = 0;
    tsr_status status;

    memset(st, 0, sizeof *st);
    st->file.fd = -1;
    status = tsr_file_open(&st->file, path, err);
    if (status == TSR_OK)
        status = read_header_size(&p, &header_bytes);
    if (status == TSR_OK) {
        p.data_offset = PREFIX_BYTES + header_bytes;
        p.data_bytes = st->file.size - p.data_offset;
        status = tsr_json_open_file(&p.json, &st->file, PREFIX_BYTES, header_bytes, TSR_ST_MAX_NAME,
                                    err);
    }
    if (status == TSR_OK)
        status = parse_header(&p);
    if (status == TSR_OK)
        status = check_overlaps(&p);
    if (status == TSR_OK)
        status = check_duplicates(&p);
    tsr_json_close(p.json);
    if (status != TSR_OK)
        tsr_st_close(st);
    return status;
}

void tsr_st_close(tsr_st *st)
{
    tsr_file_close(&st->file);
    tsr_free(st->tensors);
    tsr_free(st->names);
    memset(st, 0, sizeof *st);
    st->file.fd = -1;
}

static int key_and_tensor(const void *key, const void *tensor)
{
    return strcmp(key, ((const tsr_st_tensor *)tensor)->name);
}

const tsr_st_tensor *tsr_st_find(const tsr_st *st, const char *name)
{
    if (st->n_tensors == 0)
        return NULL;
    return bsearch(name, st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, key_and_tensor);
}
