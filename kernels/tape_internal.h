/* tape_internal.h -- what the files that record ops share: operands looked up and checked, and
 * the one place where an op and its output are appended. Private to kernels/. */
#ifndef TSR_KERNELS_TAPE_INTERNAL_H
#define TSR_KERNELS_TAPE_INTERNAL_H

#include "base/num.h"
#include "kernels/tape.h"

/* The shape and dtype of an op's output. */
typedef struct tsr_shape {
    int64_t n, h, w, c;
    tsr_dtype dtype;
} tsr_shape;

/* The name that messages about an op use: its weight's, else the tape's scope, else its kind. */
const char *tsr_tape_op_name(const tsr_tape *t, tsr_op_kind kind, tsr_wt weight);

/* Value `v` as a float operand (F16 or F32). An index out of range is TSR_E_INTERNAL, another dtype
 * TSR_E_MODEL; `role` is "input", "residual", ... */
tsr_status tsr_tape_float_operand(const tsr_tape *t, const char *op_name, const char *role,
                                  tsr_val v, const tsr_value **out);
/* The pair (x, x2) that is joined by channels: *c is the sum. x2 may be 0 (*b is NULL then). */
tsr_status tsr_tape_joined_operand(const tsr_tape *t, const char *op_name, tsr_val x, tsr_val x2,
                                   const tsr_value **a, int32_t *c);
/* A residual: the same entries, positions and channels as `want` (tokens and images are alike). */
tsr_status tsr_tape_residual_operand(const tsr_tape *t, const char *op_name, tsr_val v,
                                     const tsr_shape *want);
/* Weight `w` of the given kind. */
tsr_status tsr_tape_weight_operand(const tsr_tape *t, const char *op_name, tsr_wt w,
                                   tsr_weight_kind kind, const tsr_weight **out);
/* Vector weight of exactly `c` elements; `w` may be 0 where `optional`. */
tsr_status tsr_tape_vector_operand(const tsr_tape *t, const char *op_name, tsr_wt w, int32_t c,
                                   bool optional);

/* Appends `op` (its `out` is set here) and the value it makes, and notes the use of every operand.
 * The tape is unchanged on failure. */
tsr_status tsr_tape_append(tsr_tape *t, tsr_op *op, const tsr_shape *shape, tsr_val *out);

#endif
