/* component_data.c -- the bytes of a component's tensors: reading, scanning, hashing.
 *
 * Every read goes through one function that knows the tensor's size, so no caller can leave the
 * tensor it asked for. Nothing here holds more than a buffer of fixed size, whatever the tensor.
 *
 * The scan for "fits half" needs the largest magnitude only, and magnitudes of IEEE numbers order
 * as their bits without the sign do, NaN above infinity above the rest: so it is an integer
 * maximum, which compilers vectorise, and one comparison at the end. */
#include "model/component_internal.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

enum { SCAN_BYTES = 256 << 10, ROW_BYTES = 4096, HASH_PLACES = 64, HASH_BYTES = 4096 };
enum { NOT_SCANNED, FITS_HALF, OVERFLOWS_HALF }; /* tsr_component.scanned */

/* The smallest float that rounds to infinity as a half: halfway from 65504 to 65536, to even. */
#define HALF_OVERFLOW 65520.0f

bool tsr_dtype_is_float(tsr_dtype d)
{
    return d == TSR_F32 || d == TSR_F16 || d == TSR_BF16 || d == TSR_F64;
}

tsr_status tsr_component_read(const tsr_source *s, int32_t tensor, size_t offset, void *dst,
                              size_t bytes, tsr_err *err)
{
    const tsr_component *c = (const tsr_component *)s; /* source is its first member */
    const tsr_st_tensor *t = tsr_component_tensor(c, tensor);

    if (!t || offset > t->bytes || bytes > t->bytes - offset)
        TSR_FAIL(err, TSR_E_INTERNAL, "%s: a read of %zu bytes at %zu of tensor %s is outside it",
                 c->name, bytes, offset, t ? t->name : "(none)");
    return tsr_file_read(&c->files[c->file_of[tensor]].file, t->offset + offset, dst, bytes, err);
}

tsr_status tsr_component_read_packed(const tsr_source *s, int32_t tensor, size_t offset, void *dst,
                                     size_t bytes, tsr_err *err)
{
    const tsr_component *c = (const tsr_component *)s;

    if (tensor < 0 || tensor / TSR_FORMS >= c->packed->n_tensors)
        TSR_FAIL(err, TSR_E_INTERNAL, "%s: a read of a tensor that is not there", c->name);
    return tsr_packed_read(c->packed, tensor / TSR_FORMS, (tsr_form)(tensor % TSR_FORMS), offset,
                           dst, bytes, err);
}

int32_t tsr_component_number(const tsr_component *c, int32_t i, tsr_dtype dtype)
{
    tsr_form form = dtype == TSR_F16   ? TSR_FORM_F16
                    : dtype == TSR_F32 ? TSR_FORM_F32
                                       : TSR_FORM_RAW;

    if (!c->packed || i < 0)
        return i;
    return c->packed->forms[c->file_of[i]][form].bytes
               ? c->file_of[i] * (int32_t)TSR_FORMS + (int32_t)form
               : -1;
}

/* ------------------------------------------------------------------ does it fit half? */

static uint64_t max_bits_16(const uint16_t *x, size_t n)
{
    uint16_t most = 0;

    for (size_t i = 0; i < n; i++) {
        uint16_t bits = x[i] & 0x7FFF;
        most = bits > most ? bits : most;
    }
    return most;
}

static uint64_t max_bits_32(const uint32_t *x, size_t n)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = x[i] & 0x7FFFFFFF;
        most = bits > most ? bits : most;
    }
    return most;
}

static uint64_t max_bits_64(const uint64_t *x, size_t n)
{
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t bits = x[i] & INT64_MAX;
        most = bits > most ? bits : most;
    }
    return most;
}

static uint64_t max_bits(const void *x, tsr_dtype d, size_t n)
{
    size_t size = tsr_dtype_size(d);

    return size == 2 ? max_bits_16(x, n) : size == 4 ? max_bits_32(x, n) : max_bits_64(x, n);
}

/* The value behind the largest bits, as float: rounding is monotone, so the largest stays so. */
static float magnitude(uint64_t bits, tsr_dtype d)
{
    uint16_t narrow = (uint16_t)bits;
    uint32_t single = (uint32_t)bits;
    float value;

    tsr_to_f32(&value,
               tsr_dtype_size(d) == 2   ? (const void *)&narrow
               : tsr_dtype_size(d) == 4 ? (const void *)&single
                                        : (const void *)&bits,
               d, 1);
    return value;
}

static tsr_status scan(tsr_component *c, int32_t i, void *buffer, float *most)
{
    const tsr_st_tensor *t = c->tensors[i];
    size_t size = tsr_dtype_size(t->dtype);
    uint64_t bits = 0;

    for (size_t at = 0; at < t->bytes; at += SCAN_BYTES) {
        size_t bytes = tsr_min_size(SCAN_BYTES, t->bytes - at);
        uint64_t here;
        TSR_TRY(tsr_component_read(&c->source, i, at, buffer, bytes, c->err));
        here = max_bits(buffer, t->dtype, bytes / size);
        bits = here > bits ? here : bits;
    }
    *most = magnitude(bits, t->dtype);
    if (!isfinite(*most))
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: tensor \"%s\" holds NaN or infinity",
                 tsr_component_where(c), t->name);
    return TSR_OK;
}

tsr_status tsr_component_fits_half(tsr_component *c, int32_t i, bool *fits)
{
    if (c->scanned[i] == NOT_SCANNED) {
        void *buffer = tsr_malloc(SCAN_BYTES);
        float most = 0;
        tsr_status st = buffer ? scan(c, i, buffer, &most)
                               : tsr_err_set(c->err, TSR_E_OOM, "out of memory to read %s",
                                             c->tensors[i]->name);
        tsr_free(buffer);
        TSR_TRY(st);
        c->scanned[i] = most < HALF_OVERFLOW ? FITS_HALF : OVERFLOWS_HALF;
    }
    *fits = c->scanned[i] == FITS_HALF;
    return TSR_OK;
}

/* ------------------------------------------------------------------ rows of a table */

static tsr_status read_row(const tsr_component *c, int32_t i, size_t row, size_t d, float *dst,
                           tsr_err *err)
{
    const tsr_st_tensor *t = c->tensors[i];
    size_t size = tsr_dtype_size(t->dtype);
    int32_t number = tsr_component_number(c, i, TSR_DTYPE_NONE);
    uint64_t raw[ROW_BYTES / sizeof(uint64_t)]; /* aligned for every type */

    for (size_t at = 0; at < d; at += ROW_BYTES / size) {
        size_t n = tsr_min_size(ROW_BYTES / size, d - at);
        TSR_TRY(c->source.read(&c->source, number, (row * d + at) * size, raw, n * size, err));
        tsr_to_f32(dst + at, raw, t->dtype, n);
        for (size_t k = 0; k < n; k++)
            if (!isfinite(dst[at + k]))
                TSR_FAIL(err, TSR_E_MODEL, "%s: tensor \"%s\" holds NaN or infinity in row %zu",
                         tsr_component_where(c), t->name, row);
    }
    return TSR_OK;
}

tsr_status tsr_component_read_rows(tsr_component *c, const char *tensor_name, const int32_t *ids,
                                   int32_t n_ids, int32_t d, float *dst, tsr_err *err)
{
    int32_t i = tsr_component_find(c, tensor_name);
    const tsr_st_tensor *t = tsr_component_tensor(c, i);

    if (!t)
        TSR_FAIL(err, TSR_E_MODEL, "%s: tensor \"%s\" is missing", tsr_component_where(c),
                 tensor_name);
    if (t->n_dims != 2 || t->dims[1] != d || !tsr_dtype_is_float(t->dtype))
        TSR_FAIL(err, TSR_E_MODEL, "%s: tensor \"%s\" is no table of rows of %d floats",
                 tsr_component_where(c), t->name, (int)d);
    c->used[i] = 1;
    for (int32_t k = 0; k < n_ids; k++) {
        if (ids[k] < 0 || ids[k] >= t->dims[0])
            TSR_FAIL(err, TSR_E_MODEL, "%s: tensor \"%s\" has %lld rows, row %d is asked for",
                     tsr_component_where(c), t->name, (long long)t->dims[0], (int)ids[k]);
        TSR_TRY(read_row(c, i, (size_t)ids[k], (size_t)d, dst + (size_t)k * (size_t)d, err));
    }
    return TSR_OK;
}

/* ------------------------------------------------------------------ hash */

static uint64_t hash_u64(uint64_t v, uint64_t h)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(v >> (8 * i));
    return tsr_fnv1a64(bytes, sizeof bytes, h);
}

static uint64_t hash_headers(const tsr_st *st, uint64_t h)
{
    h = hash_u64(st->file.size, h);
    for (int32_t i = 0; i < st->n_tensors; i++) {
        const tsr_st_tensor *t = &st->tensors[i];
        h = tsr_fnv1a64(t->name, strlen(t->name) + 1, h);
        h = tsr_fnv1a64(tsr_dtype_name(t->dtype), strlen(tsr_dtype_name(t->dtype)) + 1, h);
        h = hash_u64((uint64_t)t->n_dims, h);
        for (int32_t d = 0; d < t->n_dims; d++)
            h = hash_u64((uint64_t)t->dims[d], h);
        h = hash_u64(t->offset, h);
    }
    return h;
}

static tsr_status hash_samples(const tsr_st *st, uint64_t *h, tsr_err *err)
{
    uint8_t sample[HASH_BYTES];
    size_t bytes = tsr_min_size(sizeof sample, st->file.size);
    size_t gap = (st->file.size - bytes) / (HASH_PLACES - 1);

    for (size_t k = 0; k < HASH_PLACES; k++) {
        TSR_TRY(tsr_file_read(&st->file, k * gap, sample, bytes, err));
        *h = tsr_fnv1a64(sample, bytes, *h);
    }
    return TSR_OK;
}

tsr_status tsr_component_hash(const tsr_component *c, uint64_t *h, tsr_err *err)
{
    uint64_t sum = TSR_FNV_SEED;

    if (c->packed)
        sum = c->packed_hash;
    for (int32_t f = 0; f < c->n_files; f++) {
        sum = hash_headers(&c->files[f], sum);
        TSR_TRY(hash_samples(&c->files[f], &sum, err));
    }
    *h = sum;
    return TSR_OK;
}
