/* cuda_pack.c -- weights as the device reads them, made on the host.
 *
 * A matrix is rows of output channels, [Co][R][S][C]: what cuDNN calls an NHWC filter and cuBLASLt
 * a row-major matrix. It is dense, so any eight channels are a piece of their own that begins at a
 * multiple of 16 bytes. GEGLU's two halves take turns in groups of eight rows (a, b, a, b, ...), so
 * that a piece has both and one tile of a product has what belongs together. Vectors are float32.
 */
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

size_t tsr_cuda_packed_bytes(const tsr_backend *b, const tsr_op *op, const tsr_weight *w)
{
    (void)b;
    (void)op;
    return tsr_align_up((size_t)w->dims[0] * fan_in(w) * tsr_dtype_size(w->dtype), 64);
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
    return (size_t)c * (size_t)halves(op, w) * fan_in(w) * tsr_dtype_size(w->dtype);
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

void tsr_cuda_pack(const tsr_backend *b, const tsr_op *op, const tsr_weight *w, const float *rows,
                   int32_t row0, int32_t n_rows, int32_t c0, void *dst)
{
    size_t row = fan_in(w), bytes = row * tsr_dtype_size(w->dtype);
    unsigned char *to = dst;

    if (is_vector(w)) {
        memcpy(to + (size_t)(row0 - c0) * bytes, rows, (size_t)n_rows * bytes);
        return;
    }
    for (int32_t r = row0; r < row0 + n_rows; r++, rows += row) {
        size_t at = packed_row(w, halves(op, w), r) * bytes;
        pack_row(w, rows, to + (at - tsr_cuda_packed_offset(b, op, w, c0)));
    }
}
