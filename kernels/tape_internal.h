/* tape_internal.h -- what the files that record ops share: operands looked up and checked, and
 * the one place where an op and its output are appended. Private to kernels/. */
#ifndef TSR_KERNELS_TAPE_INTERNAL_H
#define TSR_KERNELS_TAPE_INTERNAL_H

#include "base/num.h"
#include "kernels/tape.h"

/* The shape and dtype of an op's output. */
typedef struct tsr_shape {
    tsr_entries entries;
    int64_t h, w, c;
    tsr_dtype dtype;
} tsr_shape;

/* Entries that no axis tells apart. */
static inline tsr_entries tsr_entries_plain(int32_t n)
{
    return (tsr_entries){1, 1, n};
}
/* *e becomes the entries of what depends on both; false, and *e as it was, when an axis has two
 * lengths. */
bool tsr_entries_join(tsr_entries *e, const tsr_entries *x);

/* The name that messages about an op use: its weight's, else the tape's scope, else its kind. */
const char *tsr_tape_op_name(const tsr_tape *t, tsr_op_kind kind, tsr_wt weight);

/* Value `v` as a float operand (F16 or F32). An index out of range is TSR_E_INTERNAL, another dtype
 * TSR_E_MODEL; `role` is "input", "residual", ... */
tsr_status tsr_tape_float_operand(const tsr_tape *t, const char *op_name, const char *role,
                                  tsr_val v, const tsr_value **out);
/* The pair (x, x2) that is joined by channels: of *joined the channels are the sum, the entries
 * those of both, the rest x's. x2 may be 0. */
tsr_status tsr_tape_joined_operand(const tsr_tape *t, const char *op_name, tsr_val x, tsr_val x2,
                                   tsr_shape *joined);
/* A residual: the same positions and channels as `want` (tokens and images are alike), whose
 * entries it joins. */
tsr_status tsr_tape_residual_operand(const tsr_tape *t, const char *op_name, tsr_val v,
                                     tsr_shape *want);
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
