/* vec_elems.h -- vectors of elements that are stored as f16 or f32 (include vec_<isa>.h first).
 *
 * `i` counts elements from p; n is how many of the VEC_N lanes exist (the rest loads as zero and
 * is not stored). */
#ifndef TSR_KERNELS_CPU_VEC_ELEMS_H
#define TSR_KERNELS_CPU_VEC_ELEMS_H

#include "kernels/backend.h"

static inline vec vec_load_as(tsr_dtype d, const void *p, size_t i, int32_t n)
{
    if (d == TSR_F16) {
        const uint16_t *h = (const uint16_t *)p + i;

        return n >= VEC_N ? vec_load_f16(h) : vec_load_f16_n(h, n);
    }
    return n >= VEC_N ? vec_load((const float *)p + i) : vec_load_n((const float *)p + i, n);
}

static inline void vec_store_as(tsr_dtype d, void *p, size_t i, vec v, int32_t n)
{
    if (d == TSR_F16) {
        uint16_t *h = (uint16_t *)p + i;

        if (n >= VEC_N)
            vec_store_f16(h, v);
        else
            vec_store_f16_n(h, v, n);
    } else if (n >= VEC_N) {
        vec_store((float *)p + i, v);
    } else {
        vec_store_n((float *)p + i, v, n);
    }
}

/* Address of position `t` = y * W + x of entry n. Rows are dense, so images and token sequences of
 * the same length share addresses. */
static inline void *tensor_at(const tsr_tensor *x, int32_t n, int64_t t)
{
    size_t size = x->dtype == TSR_F16 ? 2 : 4;

    return (char *)x->data + (size_t)n * x->entry_stride +
           (size_t)(t - (int64_t)x->row0 * x->w) * (size_t)x->c * size;
}

#endif
