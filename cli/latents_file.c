/* latents_file.c -- see latents_file.h.
 *
 * Writing is streamed: the latents of a hundred pictures would otherwise be held in memory that no
 * plan knows of. The header says how many pictures are planned; when a run ends early the file's
 * header is written again, in the same number of bytes (JSON may be padded with blanks), with the
 * number that is there. */
#include "cli/latents_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/num.h"
#include "model/safetensors.h"

enum { LENGTH_BYTES = 8, HEADER_BYTES = 120 }; /* fixed; 128 together keep the data aligned */

/* The tensor's shape as [N,C,h,w], when it is one of latents. */
static bool latents_shape(const tsr_st_tensor *t, int32_t shape[4])
{
    int32_t extra = 4 - t->n_dims;

    if (t->n_dims < 3 || t->n_dims > 4)
        return false;
    shape[0] = 1;
    for (int32_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 1 || t->dims[i] > 1 << 20)
            return false;
        shape[i + extra] = (int32_t)t->dims[i];
    }
    return true;
}

static tsr_status make_blank(const tsr_st *st, const tsr_st_tensor *t, float **data, tsr_err *err)
{
    *data = tsr_calloc(t->bytes / tsr_dtype_size(t->dtype), sizeof **data);
    if (!*data)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the latents of %s", st->file.path);
    return TSR_OK;
}

static tsr_status read_tensor(const tsr_st *st, const tsr_st_tensor *t, float **data, tsr_err *err)
{
    size_t n = t->bytes / tsr_dtype_size(t->dtype);
    void *raw = tsr_malloc(t->bytes);
    float *values = NULL;
    tsr_status s = make_blank(st, t, &values, err);

    if (s == TSR_OK && !raw)
        s = tsr_err_set(err, TSR_E_OOM, "out of memory for the latents of %s", st->file.path);
    if (s == TSR_OK)
        s = tsr_file_read(&st->file, t->offset, raw, t->bytes, err);
    if (s == TSR_OK)
        tsr_to_f32(values, raw, t->dtype, n); // [N,C,h,w]
    for (size_t i = 0; s == TSR_OK && i < n; i++)
        if (!isfinite(values[i]))
            s = tsr_err_set(err, TSR_E_MODEL, "%s: value %zu of the latents is not finite",
                            st->file.path, i);
    tsr_free(raw);
    if (s == TSR_OK)
        *data = values;
    else
        tsr_free(values);
    return s;
}

typedef tsr_status (*take_fn)(const tsr_st *st, const tsr_st_tensor *t, float **data, tsr_err *err);

static tsr_status open_and_take(const char *path, take_fn take, float **data, int32_t shape[4],
                                tsr_err *err)
{
    tsr_st st;
    const tsr_st_tensor *t;
    int32_t dims[4];
    tsr_status s;

    TSR_TRY(tsr_st_open(&st, path, err));
    t = tsr_st_find(&st, "latents");
    if (!t)
        s = tsr_err_set(err, TSR_E_MODEL, "%s: there is no tensor \"latents\"", path);
    else if (t->dtype != TSR_F32 && t->dtype != TSR_F16 && t->dtype != TSR_BF16)
        s = tsr_err_set(err, TSR_E_MODEL, "%s: latents are %s; F32, F16 or BF16 is needed", path,
                        tsr_dtype_name(t->dtype));
    else if (!latents_shape(t, dims))
        s = tsr_err_set(err, TSR_E_MODEL, "%s: latents are not shaped [N,C,h,w]", path);
    else
        s = take(&st, t, data, err);
    if (s == TSR_OK)
        memcpy(shape, dims, sizeof dims);
    tsr_st_close(&st);
    return s;
}

tsr_status tsr_latents_read(const char *path, float **data, int32_t shape[4], tsr_err *err)
{
    return open_and_take(path, read_tensor, data, shape, err);
}

tsr_status tsr_latents_blank(const char *path, float **data, int32_t shape[4], tsr_err *err)
{
    return open_and_take(path, make_blank, data, shape, err);
}

/* ---------------------------------------------------------------- writing */

static size_t picture_bytes(const tsr_latents_out *l)
{
    return (size_t)l->shape[1] * (size_t)l->shape[2] * (size_t)l->shape[3] * sizeof(float);
}

/* Length and header for `n` pictures. */
static void make_header(const tsr_latents_out *l, int32_t n, char header[])
{
    char text[HEADER_BYTES + 1];
    int used = snprintf(text, sizeof text,
                        "{\"latents\":{\"dtype\":\"F32\",\"shape\":[%d,%d,%d,%d],\"data_offsets\":"
                        "[0,%zu]}}",
                        n, l->shape[1], l->shape[2], l->shape[3], (size_t)n * picture_bytes(l));

    memset(header, 0, LENGTH_BYTES);
    header[0] = HEADER_BYTES; /* u64 little-endian */
    memset(header + LENGTH_BYTES, ' ', HEADER_BYTES);
    memcpy(header + LENGTH_BYTES, text, (size_t)used);
}

tsr_status tsr_latents_open(tsr_latents_out *l, const char *path, int32_t n_pictures, tsr_err *err)
{
    *l = (tsr_latents_out){.shape = {n_pictures}};
    return tsr_out_open(&l->out, path, err);
}

tsr_status tsr_latents_append(tsr_latents_out *l, const float *latents, const int32_t shape[3],
                              tsr_err *err)
{
    char header[LENGTH_BYTES + HEADER_BYTES];

    if (l->n_written == 0) {
        memcpy(l->shape + 1, shape, 3 * sizeof *shape);
        make_header(l, l->shape[0], header);
        TSR_TRY(tsr_out_write(&l->out, header, sizeof header, err));
    }
    TSR_TRY(tsr_out_write(&l->out, latents, picture_bytes(l), err));
    l->n_written++;
    return TSR_OK;
}

tsr_status tsr_latents_append_all(tsr_latents_out *l, const float *latents, const int32_t shape[4],
                                  tsr_err *err)
{
    size_t n = (size_t)shape[1] * (size_t)shape[2] * (size_t)shape[3];

    for (int32_t i = 0; i < shape[0]; i++)
        TSR_TRY(tsr_latents_append(l, latents + (size_t)i * n, shape + 1, err));
    return TSR_OK;
}

tsr_status tsr_latents_close(tsr_latents_out *l, tsr_err *err)
{
    char header[LENGTH_BYTES + HEADER_BYTES];

    if (l->n_written == 0) {
        tsr_latents_abort(l);
        return TSR_OK;
    }
    if (l->n_written < l->shape[0]) {
        off_t end = (off_t)(sizeof header + (size_t)l->n_written * picture_bytes(l));

        make_header(l, l->n_written, header);
        if (pwrite(l->out.fd, header, sizeof header, 0) != (ssize_t)sizeof header ||
            ftruncate(l->out.fd, end) != 0) { /* behind it may be a part of the next */
            tsr_status st =
                tsr_err_set(err, TSR_E_IO, "cannot write %s: %s", l->out.path, strerror(errno));
            tsr_latents_abort(l);
            return st;
        }
    }
    return tsr_out_commit(&l->out, err);
}

void tsr_latents_abort(tsr_latents_out *l)
{
    tsr_out_abort(&l->out);
}
