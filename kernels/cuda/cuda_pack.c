/* cuda_pack.c -- weights as the device reads them, made on the host.
 *
 * A matrix is rows of output channels, [Co][R][S][C]: what cuDNN calls an NHWC filter and cuBLASLt
 * a row-major matrix. It is dense, so any eight channels are a piece of their own that begins at a
 * multiple of 16 bytes. GEGLU's two halves take turns in groups of eight rows (a, b, a, b, ...), so
 * that a piece has both and one tile of a product has what belongs together.
 *
 * Vectors are float32. A bias is there three times, [Co] float32, then F16, then BF16: own kernels
 * read the first, libraries want that of the matrix's type. A bias is always packed whole. */
#include <string.h>

#include "base/num.h"
#include "kernels/cuda/cuda_internal.h"

static size_t fan_in(const tsr_weight *w)
{
    size_t n = 1;

    for (int32_t i = 1; i < w->n_dims; i++)
        n *= (size_t)w->dims[i];
    return n;
}

static bool is_vector(const tsr_weight *w)
{
    return w->kind == TSR_WEIGHT_VECTOR;
}

static int32_t halves(const tsr_op *op, const tsr_weight *w)
{
    return !is_vector(w) && op->kind == TSR_OP_LINEAR && op->u.linear.geglu ? 2 : 1;
}

static bool is_bias(const tsr_op *op, const tsr_weight *w)
{
    return is_vector(w) && (op->kind == TSR_OP_CONV2D || op->kind == TSR_OP_LINEAR);
}

/* Bytes of a row, with what it has in other types. */
static size_t row_bytes(const tsr_op *op, const tsr_weight *w)
{
    size_t more = is_bias(op, w) ? 2 * tsr_dtype_size(TSR_F16) : 0;

    return fan_in(w) * tsr_dtype_size(w->dtype) + more;
}

const void *tsr_cuda_bias(const tsr_call *call, tsr_dtype dtype)
{
    size_t co = call->wd[1] ? (size_t)call->wd[1]->dims[0] : 0;
    size_t at = dtype == TSR_F32 ? 0 : dtype == TSR_F16 ? 4 * co : 6 * co;

    return call->w[1] ? (const unsigned char *)call->w[1] + at : NULL;
}

size_t tsr_cuda_packed_bytes(const tsr_backend *b, const tsr_op *op, const tsr_weight *w)
{
    (void)b;
    return tsr_align_up((size_t)w->dims[0] * row_bytes(op, w), 64);
}

int32_t tsr_cuda_panel_rows(const tsr_backend *b, const tsr_op *op, const tsr_weight *w)
{
    (void)b;
    (void)op;
    (void)w;
    return 1;
}

int32_t tsr_cuda_panel_channels(const tsr_backend *b, const tsr_op *op, const tsr_weight *w)
{
    (void)b;
    (void)op;
    return is_vector(w) ? 1 : TSR_CUDA_PANEL;
}

size_t tsr_cuda_packed_offset(const tsr_backend *b, const tsr_op *op, const tsr_weight *w,
                              int32_t c)
{
    (void)b;
    return (size_t)c * (size_t)halves(op, w) * row_bytes(op, w);
}

/* Place of a row of the file among the packed rows. */
static size_t packed_row(const tsr_weight *w, int32_t n_halves, int32_t row)
{
    int32_t co = w->dims[0] / n_halves, c = row % co, first = c / TSR_CUDA_PANEL * TSR_CUDA_PANEL;
    int32_t width = tsr_min_i32(TSR_CUDA_PANEL, co - first);

    return (size_t)(first * n_halves + row / co * width + c - first);
}

/* One row, from [C][taps] to [taps][C]. */
static void pack_row(const tsr_weight *w, const float *row, unsigned char *dst)
{
    size_t size = tsr_dtype_size(w->dtype), c_n = (size_t)w->dims[1], taps = fan_in(w) / c_n;

    if (taps == 1) {
        tsr_from_f32(dst, w->dtype, row, c_n);
        return;
    }
    for (size_t c = 0; c < c_n; c++)
        for (size_t tap = 0; tap < taps; tap++)
            tsr_from_f32(dst + (tap * c_n + c) * size, w->dtype, row++, 1);
}

/* A bias in the two other types, behind the first. */
static void pack_halves(const tsr_weight *w, const float *rows, int32_t row0, int32_t n_rows,
                        unsigned char *to)
{
    size_t co = (size_t)w->dims[0], at = (size_t)row0;

    tsr_from_f32(to + 4 * co + 2 * at, TSR_F16, rows, (size_t)n_rows);
    tsr_from_f32(to + 6 * co + 2 * at, TSR_BF16, rows, (size_t)n_rows);
}

void tsr_cuda_pack(const tsr_backend *b, const tsr_op *op, const tsr_weight *w, const float *rows,
                   int32_t row0, int32_t n_rows, int32_t c0, void *dst)
{
    size_t row = fan_in(w), bytes = row * tsr_dtype_size(w->dtype);
    unsigned char *to = dst;

    if (is_vector(w)) {
        memcpy(to + (size_t)(row0 - c0) * bytes, rows, (size_t)n_rows * bytes);
        if (is_bias(op, w))
            pack_halves(w, rows, row0, n_rows, to);
        return;
    }
    for (int32_t r = row0; r < row0 + n_rows; r++, rows += row) {
        size_t at = packed_row(w, halves(op, w), r) * bytes;
        pack_row(w, rows, to + (at - tsr_cuda_packed_offset(b, op, w, c0)));
    }
}
