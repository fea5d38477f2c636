/* half.h -- element types, and conversions between float32, IEEE half and bfloat16.
 *
 * Conversions to a narrower type round to nearest, ties to even; a float32 above the
 * largest half becomes infinity, NaN stays NaN (quiet). The scalar code is exact integer
 * code, the same bits on every machine; tiers have faster copies that a test compares. */
#ifndef TSR_BASE_HALF_H
#define TSR_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>

typedef enum tsr_dtype {
    TSR_DTYPE_NONE = 0,
    TSR_F32,
    TSR_F16,
    TSR_BF16,
    TSR_F64,
    TSR_I8,
    TSR_U8,
    TSR_I16,
    TSR_U16,
    TSR_I32,
    TSR_U32,
    TSR_I64,
    TSR_U64,
    TSR_BOOL
} tsr_dtype;

size_t tsr_dtype_size(tsr_dtype d);      /* bytes an element; 0 for NONE */
const char *tsr_dtype_name(tsr_dtype d); /* "F32", as in safetensors headers */

uint16_t tsr_f32_to_f16(float x);
float tsr_f16_to_f32(uint16_t h);
uint16_t tsr_f32_to_bf16(float x);
float tsr_bf16_to_f32(uint16_t h);

/* n elements of src type `d` (any float or integer type) to float32. src and dst do not overlap. */
void tsr_to_f32(float *dst, const void *src, tsr_dtype d, size_t n);
/* n float32 to dst type F32, F16 or BF16. */
void tsr_from_f32(void *dst, tsr_dtype d, const float *src, size_t n);

#endif
