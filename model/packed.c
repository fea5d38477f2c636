/* packed.c -- opens a packed checkpoint, as hostile input, and reads checked bytes from it.
 *
 * Magic and version first, then the footer (so a file that was cut anywhere has none), then the
 * table, through a cursor that knows its end. What the table says of a range is checked against
 * the file's size there, so a read needs to check the tensor's own bounds only. */
#include "model/packed_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

enum { CHUNK_BYTES = 8192, BITS = 32 };

#define AGAIN "convert the model again (gen convert MODEL OUT.tsr)"

static tsr_status damaged(const tsr_packed *p, tsr_err *err, const char *what)
{
    return tsr_err_set(err, TSR_E_MODEL, "%s is damaged (%s); " AGAIN, p->file.path, what);
}

static tsr_status no_memory(const tsr_packed *p, tsr_err *err)
{
    return tsr_err_set(err, TSR_E_OOM, "out of memory for the table of %s", p->file.path);
}

bool tsr_packed_is(const char *path)
{
    static const char end[] = ".tsr";
    char magic[TSR_PACKED_MAGIC_BYTES];
    size_t n = strlen(path);
    tsr_file f;
    bool is;

    if (!tsr_path_is_file(path))
        return false;
    if (n >= sizeof end && strcmp(path + n - (sizeof end - 1), end) == 0)
        return true; /* whatever is in it: a damaged one is told as such */
    if (tsr_file_open(&f, path, NULL) != TSR_OK)
        return false;
    is = f.size >= sizeof magic && tsr_file_read(&f, 0, magic, sizeof magic, NULL) == TSR_OK &&
         memcmp(magic, TSR_PACKED_MAGIC, sizeof magic) == 0;
    tsr_file_close(&f);
    return is;
}

/* ------------------------------------------------------------------ header and footer */

static tsr_status read_version(const tsr_packed *p, tsr_err *err)
{
    char magic[TSR_PACKED_MAGIC_BYTES];
    uint32_t version;

    if (p->file.size < TSR_PACKED_ALIGN + sizeof(tsr_packed_footer))
        return damaged(p, err, "it is truncated");
    TSR_TRY(tsr_file_read(&p->file, 0, magic, sizeof magic, err));
    if (memcmp(magic, TSR_PACKED_MAGIC, sizeof magic) != 0)
        return damaged(p, err, "it does not begin as a packed checkpoint");
    TSR_TRY(tsr_file_read(&p->file, sizeof magic, &version, sizeof version, err));
    if (version != TSR_PACKED_VERSION)
        TSR_FAIL(err, TSR_E_MODEL,
                 "%s is a packed checkpoint of version %u, this is version %d; " AGAIN,
                 p->file.path, (unsigned)version, TSR_PACKED_VERSION);
    return TSR_OK;
}

static tsr_status check_layout(const tsr_packed *p, const tsr_packed_footer *f,
                               const tsr_backend *b, tsr_err *err)
{
    if (f->layout == tsr_packed_layout(b))
        return TSR_OK;
    if (strcmp(f->tier, b->tier) == 0)
        TSR_FAIL(
            err, TSR_E_MODEL,
            "%s was packed by another version of this program, whose weights lie otherwise; " AGAIN,
            p->file.path);
    TSR_FAIL(err, TSR_E_MODEL,
             "%s is packed for the CPU tier %s and this run uses %s: give --cpu-tier %s, or " AGAIN,
             p->file.path, f->tier, b->tier, f->tier);
}

static tsr_status read_footer(tsr_packed *p, const tsr_backend *b, tsr_packed_footer *f,
                              tsr_err *err)
{
    size_t room = p->file.size - sizeof *f;

    TSR_TRY(tsr_file_read(&p->file, room, f, sizeof *f, err));
    if (f->sum != tsr_fnv1a64(f, offsetof(tsr_packed_footer, sum), TSR_FNV_SEED))
        return damaged(p, err, "its end is not there, or wrong");
    if (f->file_bytes != p->file.size || f->table_bytes > room - TSR_PACKED_ALIGN ||
        f->table_bytes > TSR_PACKED_MAX_TABLE || (f->dtype != TSR_F32 && f->dtype != TSR_F16) ||
        !memchr(f->tier, 0, sizeof f->tier))
        return damaged(p, err, "its end is wrong");
    p->dtype = (tsr_dtype)f->dtype;
    return check_layout(p, f, b, err);
}

/* ------------------------------------------------------------------ table */

typedef struct cursor {
    tsr_packed *p;
    const unsigned char *at, *end;
    size_t data_end; /* of the file's part before the table */
    char *name;      /* the next free byte of the pool */
    size_t cap_tensors, cap_forms, n_units;
    bool broken; /* sticks; what is read then is 0 or "" */
} cursor;

static uint64_t take(cursor *c, size_t bytes)
{
    uint64_t v = 0;

    if ((size_t)(c->end - c->at) < bytes) {
        c->broken = true;
        return 0;
    }
    memcpy(&v, c->at, bytes);
    c->at += bytes;
    return v;
}

static const char *take_text(cursor *c)
{
    size_t n = (size_t)take(c, sizeof(uint16_t));
    char *text = c->name;

    if (c->broken || n == 0 || n > TSR_ST_MAX_NAME || n > (size_t)(c->end - c->at) ||
        memchr(c->at, 0, n) || !tsr_utf8_valid((const char *)c->at, n)) {
        c->broken = true;
        return "";
    }
    memcpy(text, c->at, n);
    text[n] = 0;
    c->at += n;
    c->name += n + 1;
    return text;
}

/* Offset and bytes of a range of the file's data. */
static void take_range(cursor *c, size_t *offset, size_t *bytes)
{
    *offset = (size_t)take(c, sizeof(uint64_t));
    *bytes = (size_t)take(c, sizeof(uint64_t));
    if (*offset < TSR_PACKED_ALIGN || *offset > c->data_end || *bytes > c->data_end - *offset)
        c->broken = true;
}

static void take_form(cursor *c, tsr_packed_form forms[TSR_FORMS])
{
    size_t which = (size_t)take(c, 1), units;
    tsr_packed_form f = {.first_unit = c->n_units};

    take_range(c, &f.offset, &f.bytes);
    f.unit_bytes = (size_t)take(c, sizeof(uint64_t));
    if (c->broken || which >= TSR_FORMS || forms[which].bytes || f.bytes == 0 ||
        f.unit_bytes == 0) {
        c->broken = true;
        return;
    }
    units = (f.bytes - 1) / f.unit_bytes + 1;
    if (units > (c->data_end - f.offset - f.bytes) / sizeof(uint64_t)) {
        c->broken = true;
        return;
    }
    c->n_units += units;
    forms[which] = f;
}

/* Dimensions, and the bytes that the source had: their product. */
static void take_shape(cursor *c, tsr_st_tensor *t)
{
    bool fits = true;

    t->bytes = tsr_dtype_size(t->dtype);
    for (int32_t i = 0; i < t->n_dims; i++) {
        t->dims[i] = (int64_t)take(c, sizeof(uint64_t));
        fits = fits && t->dims[i] > 0 && tsr_mul_size(t->bytes, (size_t)t->dims[i], &t->bytes);
    }
    c->broken = c->broken || !fits;
}

/* Raw tables are read by rows of the shape: their size must be the shape's. */
static tsr_status take_tensor(cursor *c, tsr_err *err)
{
    tsr_packed *p = c->p;
    size_t n = (size_t)p->n_tensors + 1;
    tsr_st_tensor t = {.name = take_text(c)};
    tsr_packed_form forms[TSR_FORMS] = {{0}};
    int32_t n_forms;

    t.dtype = (tsr_dtype)take(c, 1);
    t.n_dims = (int32_t)take(c, 1);
    n_forms = (int32_t)take(c, 1);
    if (c->broken || t.dtype < TSR_F32 || t.dtype > TSR_BOOL || t.n_dims > TSR_ST_MAX_DIMS ||
        p->n_tensors == TSR_ST_MAX_TENSORS)
        return damaged(p, err, "its table is wrong");
    take_shape(c, &t);
    for (int32_t i = 0; i < n_forms && !c->broken; i++)
        take_form(c, forms);
    if (c->broken || (forms[TSR_FORM_RAW].bytes && forms[TSR_FORM_RAW].bytes != t.bytes))
        return damaged(p, err, "its table is wrong");
    if (!tsr_grow((void **)&p->tensors, &c->cap_tensors, n, sizeof *p->tensors) ||
        !tsr_grow((void **)&p->forms, &c->cap_forms, n, sizeof *p->forms))
        return no_memory(p, err);
    p->tensors[n - 1] = t;
    memcpy(p->forms[n - 1], forms, sizeof forms);
    p->n_tensors++;
    return TSR_OK;
}

static tsr_status take_part(cursor *c, tsr_packed_part *part, tsr_err *err)
{
    uint64_t n;

    part->name = take_text(c);
    part->hash = take(c, sizeof part->hash);
    n = take(c, sizeof(uint32_t));
    part->first = c->p->n_tensors;
    if (c->broken)
        return damaged(c->p, err, "its table is wrong");
    for (part->n_tensors = 0; (uint64_t)part->n_tensors < n; part->n_tensors++)
        TSR_TRY(take_tensor(c, err));
    return TSR_OK;
}

/* A small file, which is read through to see that it is whole. */
static tsr_status take_file(cursor *c, tsr_range *r, tsr_err *err)
{
    tsr_packed *p = c->p;
    unsigned char chunk[CHUNK_BYTES];
    uint64_t wanted;
    tsr_sum sum;

    r->name = take_text(c);
    take_range(c, &r->offset, &r->bytes);
    wanted = take(c, sizeof wanted);
    if (c->broken)
        return damaged(p, err, "its table is wrong");
    tsr_sum_begin(&sum);
    for (size_t at = 0; at < r->bytes; at += sizeof chunk) {
        size_t n = tsr_min_size(sizeof chunk, r->bytes - at);
        TSR_TRY(tsr_file_read(&p->file, r->offset + at, chunk, n, err));
        tsr_sum_add(&sum, chunk, n);
    }
    if (tsr_sum_end(&sum) != wanted)
        TSR_FAIL(err, TSR_E_MODEL, "%s is damaged (in %s); " AGAIN, p->file.path, r->name);
    return TSR_OK;
}

static tsr_status take_table(cursor *c, tsr_err *err)
{
    tsr_packed *p = c->p;
    uint64_t n_files = take(c, sizeof(uint32_t)), n_parts = take(c, sizeof(uint32_t));

    if (c->broken || n_files > TSR_PACKED_MAX_FILES || n_parts > TSR_PACKED_MAX_PARTS)
        return damaged(p, err, "its table is wrong");
    p->files = tsr_calloc((size_t)n_files + 1, sizeof *p->files); /* never NULL, even if empty */
    p->parts = tsr_calloc((size_t)n_parts + 1, sizeof *p->parts);
    if (!p->files || !p->parts)
        return no_memory(p, err);
    for (; p->n_files < (int32_t)n_files; p->n_files++)
        TSR_TRY(take_file(c, &p->files[p->n_files], err));
    for (; p->n_parts < (int32_t)n_parts; p->n_parts++)
        TSR_TRY(take_part(c, &p->parts[p->n_parts], err));
    if (c->at != c->end)
        return damaged(p, err, "its table is wrong");
    p->checked = tsr_calloc(c->n_units / BITS + 1, sizeof *p->checked);
    return p->checked ? TSR_OK : no_memory(p, err);
}

static tsr_status read_table(tsr_packed *p, const tsr_packed_footer *f, tsr_err *err)
{
    size_t bytes = (size_t)f->table_bytes;
    cursor c = {.p = p, .data_end = p->file.size - sizeof *f - bytes};
    unsigned char *table = tsr_malloc(bytes + 1);
    tsr_status st;

    /* A name's length takes two bytes in the table, its end one byte in the pool. */
    p->names = tsr_malloc(bytes + 1);
    if (!table || !p->names) {
        st = no_memory(p, err);
        goto done;
    }
    TSR_TRY_GOTO(tsr_file_read(&p->file, c.data_end, table, bytes, err));
    if (tsr_fnv1a64(table, bytes, TSR_FNV_SEED) != f->table_sum) {
        st = damaged(p, err, "in its table");
        goto done;
    }
    c.at = table;
    c.end = table + bytes;
    c.name = p->names;
    st = take_table(&c, err);
done:
    tsr_free(table);
    return st;
}

tsr_status tsr_packed_open(tsr_packed *p, const char *path, const tsr_backend *b, tsr_err *err)
{
    tsr_packed_footer footer;
    tsr_status st;

    *p = (tsr_packed){.file.fd = -1};
    TSR_TRY_GOTO(tsr_file_open(&p->file, path, err));
    TSR_TRY_GOTO(read_version(p, err));
    TSR_TRY_GOTO(read_footer(p, b, &footer, err));
    TSR_TRY_GOTO(read_table(p, &footer, err));
done:
    if (st != TSR_OK)
        tsr_packed_close(p);
    return st;
}

void tsr_packed_close(tsr_packed *p)
{
    tsr_file_close(&p->file);
    tsr_free(p->files);
    tsr_free(p->parts);
    tsr_free(p->tensors);
    tsr_free(p->forms);
    tsr_free(p->names);
    tsr_free(p->checked);
    *p = (tsr_packed){.file.fd = -1};
}

const tsr_packed_part *tsr_packed_find_part(const tsr_packed *p, const char *name)
{
    for (int32_t i = 0; i < p->n_parts; i++)
        if (strcmp(p->parts[i].name, name) == 0)
            return &p->parts[i];
    return NULL;
}

/* ------------------------------------------------------------------ reading */

static bool is_checked(const tsr_packed *p, size_t unit)
{
    return atomic_load_explicit(&p->checked[unit / BITS], memory_order_relaxed) >> unit % BITS & 1;
}

/* The sum of bytes that are in memory, or (`data` NULL) that are read for it. */
static tsr_status sum_unit(const tsr_packed *p, size_t offset, size_t bytes, const void *data,
                           uint64_t *sum, tsr_err *err)
{
    unsigned char chunk[CHUNK_BYTES];
    tsr_sum s;

    tsr_sum_begin(&s);
    if (data)
        tsr_sum_add(&s, data, bytes);
    for (size_t at = 0; !data && at < bytes; at += sizeof chunk) {
        size_t n = tsr_min_size(sizeof chunk, bytes - at);
        TSR_TRY(tsr_file_read(&p->file, offset + at, chunk, n, err));
        tsr_sum_add(&s, chunk, n);
    }
    *sum = tsr_sum_end(&s);
    return TSR_OK;
}

/* A unit that was not checked yet; `data` as in sum_unit. */
static tsr_status check_unit(const tsr_packed *p, int32_t tensor, const tsr_packed_form *f,
                             size_t unit, const void *data, tsr_err *err)
{
    size_t begin = unit * f->unit_bytes, bit = f->first_unit + unit;
    size_t bytes = tsr_min_size(f->unit_bytes, f->bytes - begin);
    uint64_t sum, wanted;

    TSR_TRY(sum_unit(p, f->offset + begin, bytes, data, &sum, err));
    TSR_TRY(tsr_file_read(&p->file, f->offset + f->bytes + unit * sizeof wanted, &wanted,
                          sizeof wanted, err));
    if (sum != wanted)
        TSR_FAIL(err, TSR_E_MODEL, "%s is damaged (in tensor \"%s\"); " AGAIN, p->file.path,
                 p->tensors[tensor].name);
    atomic_fetch_or_explicit(&p->checked[bit / BITS], (uint32_t)1 << bit % BITS,
                             memory_order_relaxed);
    return TSR_OK;
}

tsr_status tsr_packed_read(const tsr_packed *p, int32_t tensor, tsr_form form, size_t offset,
                           void *dst, size_t bytes, tsr_err *err)
{
    const tsr_packed_form *f = &p->forms[tensor][form];
    size_t end;

    if (!tsr_add_size(offset, bytes, &end) || end > f->bytes)
        TSR_FAIL(err, TSR_E_MODEL,
                 "%s: tensor \"%s\" is packed in %zu bytes, and %zu are needed at %zu; " AGAIN,
                 p->file.path, p->tensors[tensor].name, f->bytes, bytes, offset);
    if (bytes == 0)
        return TSR_OK;
    TSR_TRY(tsr_file_read(&p->file, f->offset + offset, dst, bytes, err));
    for (size_t unit = offset / f->unit_bytes; unit * f->unit_bytes < end; unit++) {
        size_t begin = unit * f->unit_bytes;
        bool whole = begin >= offset && tsr_min_size(begin + f->unit_bytes, f->bytes) <= end;

        if (!is_checked(p, f->first_unit + unit))
            TSR_TRY(check_unit(p, tensor, f, unit,
                               whole ? (const char *)dst + (begin - offset) : NULL, err));
    }
    return TSR_OK;
}
