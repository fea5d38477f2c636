/* packed_write.c -- writes a packed checkpoint from front to back; see packed.h.
 *
 * Nothing is held but the table and the sums of the form that is being written: eight bytes a
 * panel. Appends to the table stick when memory runs out, which tsr_packed_finish tells. */
#include "model/packed_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

static void put_bytes(tsr_buf *b, const void *data, size_t n)
{
    tsr_buf_append(b, data, n);
}
static void put_u8(tsr_buf *b, uint8_t v)
{
    put_bytes(b, &v, sizeof v);
}
static void put_u32(tsr_buf *b, uint32_t v)
{
    put_bytes(b, &v, sizeof v);
}
static void put_u64(tsr_buf *b, uint64_t v)
{
    put_bytes(b, &v, sizeof v);
}
static void put_text(tsr_buf *b, const char *s)
{
    uint16_t n = (uint16_t)strlen(s); /* names have at most TSR_ST_MAX_NAME bytes */

    put_bytes(b, &n, sizeof n);
    put_bytes(b, s, n);
}

static tsr_status write_bytes(tsr_packed_writer *w, const void *data, size_t bytes)
{
    TSR_TRY(tsr_out_write(&w->out, data, bytes, w->err));
    w->at += bytes;
    return TSR_OK;
}

static tsr_status align(tsr_packed_writer *w)
{
    static const unsigned char zeros[TSR_PACKED_ALIGN];

    return write_bytes(w, zeros, tsr_align_up(w->at, TSR_PACKED_ALIGN) - w->at);
}

tsr_status tsr_packed_begin(tsr_packed_writer *w, const char *path, size_t bytes, tsr_err *err)
{
    uint32_t version = TSR_PACKED_VERSION;

    *w = (tsr_packed_writer){.err = err};
    TSR_TRY(tsr_out_open(&w->out, path, err));
    TSR_TRY(tsr_out_reserve(&w->out, bytes, err));
    TSR_TRY(write_bytes(w, TSR_PACKED_MAGIC, TSR_PACKED_MAGIC_BYTES));
    return write_bytes(w, &version, sizeof version);
}

tsr_status tsr_packed_add_file(tsr_packed_writer *w, const char *name, const tsr_file *source)
{
    unsigned char buffer[TSR_PACKED_ALIGN];
    tsr_sum sum;

    TSR_TRY(align(w));
    put_text(&w->files, name);
    put_u64(&w->files, w->at);
    put_u64(&w->files, source->size);
    tsr_sum_begin(&sum);
    for (size_t at = 0; at < source->size; at += sizeof buffer) {
        size_t n = tsr_min_size(sizeof buffer, source->size - at);
        TSR_TRY(tsr_file_read(source, at, buffer, n, w->err));
        tsr_sum_add(&sum, buffer, n);
        TSR_TRY(write_bytes(w, buffer, n));
    }
    put_u64(&w->files, tsr_sum_end(&sum));
    w->n_files++;
    return TSR_OK;
}

void tsr_packed_begin_part(tsr_packed_writer *w, const char *name, uint64_t hash,
                           uint32_t n_tensors)
{
    put_text(&w->parts, name);
    put_u64(&w->parts, hash);
    put_u32(&w->parts, n_tensors);
    w->n_parts++;
}

void tsr_packed_begin_tensor(tsr_packed_writer *w, const tsr_st_tensor *t, uint8_t n_forms)
{
    put_text(&w->parts, t->name);
    put_u8(&w->parts, (uint8_t)t->dtype);
    put_u8(&w->parts, (uint8_t)t->n_dims);
    put_u8(&w->parts, n_forms);
    for (int32_t i = 0; i < t->n_dims; i++)
        put_u64(&w->parts, (uint64_t)t->dims[i]);
}

tsr_status tsr_packed_begin_form(tsr_packed_writer *w, tsr_form form, size_t unit_bytes)
{
    TSR_TRY(align(w));
    w->form = form;
    w->start = w->at;
    w->unit_bytes = unit_bytes;
    w->sums.len = 0;
    tsr_sum_begin(&w->sum);
    return TSR_OK;
}

static void end_unit(tsr_packed_writer *w)
{
    put_u64(&w->sums, tsr_sum_end(&w->sum));
    tsr_sum_begin(&w->sum);
}

tsr_status tsr_packed_put(tsr_packed_writer *w, const void *data, size_t bytes)
{
    const unsigned char *from = data;

    TSR_TRY(write_bytes(w, data, bytes));
    while (bytes > 0) {
        size_t n = tsr_min_size(bytes, w->unit_bytes - w->sum.bytes);
        tsr_sum_add(&w->sum, from, n);
        if (w->sum.bytes == w->unit_bytes)
            end_unit(w);
        from += n;
        bytes -= n;
    }
    return TSR_OK;
}

tsr_status tsr_packed_end_form(tsr_packed_writer *w)
{
    size_t bytes = w->at - w->start;

    if (w->sum.bytes > 0)
        end_unit(w);
    if (!tsr_buf_ok(&w->sums))
        TSR_FAIL(w->err, TSR_E_OOM, "out of memory for the sums of %s", w->out.path);
    put_u8(&w->parts, (uint8_t)w->form);
    put_u64(&w->parts, w->start);
    put_u64(&w->parts, bytes);
    put_u64(&w->parts, w->unit_bytes);
    return write_bytes(w, w->sums.data, w->sums.len);
}

size_t tsr_packed_form_space(size_t bytes, size_t unit_bytes)
{
    return bytes + (bytes / unit_bytes + 1) * sizeof(uint64_t) + TSR_PACKED_ALIGN;
}

tsr_status tsr_packed_finish(tsr_packed_writer *w, tsr_dtype dtype, const tsr_backend *b)
{
    tsr_packed_footer f = {.dtype = (uint32_t)dtype, .layout = tsr_packed_layout(b)};
    uint32_t counts[2] = {w->n_files, w->n_parts};

    if (!tsr_buf_ok(&w->files) || !tsr_buf_ok(&w->parts))
        TSR_FAIL(w->err, TSR_E_OOM, "out of memory for the table of %s", w->out.path);
    f.table_bytes = sizeof counts + w->files.len + w->parts.len;
    f.table_sum = tsr_fnv1a64(counts, sizeof counts, TSR_FNV_SEED);
    f.table_sum = tsr_fnv1a64(w->files.data, w->files.len, f.table_sum);
    f.table_sum = tsr_fnv1a64(w->parts.data, w->parts.len, f.table_sum);
    f.file_bytes = w->at + f.table_bytes + sizeof f;
    strncpy(f.tier, b->tier, sizeof f.tier - 1);
    f.sum = tsr_fnv1a64(&f, offsetof(tsr_packed_footer, sum), TSR_FNV_SEED);
    TSR_TRY(write_bytes(w, counts, sizeof counts));
    TSR_TRY(write_bytes(w, w->files.data, w->files.len));
    TSR_TRY(write_bytes(w, w->parts.data, w->parts.len));
    TSR_TRY(write_bytes(w, &f, sizeof f));
    return tsr_out_commit(&w->out, w->err);
}

void tsr_packed_abort(tsr_packed_writer *w)
{
    tsr_out_abort(&w->out);
    tsr_buf_free(&w->files);
    tsr_buf_free(&w->parts);
    tsr_buf_free(&w->sums);
}
