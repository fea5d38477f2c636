/* program_internal.h -- what the program's files share. Private to kernels/. */
#ifndef TSR_KERNELS_PROGRAM_INTERNAL_H
#define TSR_KERNELS_PROGRAM_INTERNAL_H

#include "base/num.h"
#include "kernels/program.h"

/* Debug builds prove the plan and overwrite dead values. */
#ifdef TSR_DEBUG
enum { TSR_PROGRAM_CHECKED = 1 };
#else
enum { TSR_PROGRAM_CHECKED = 0 };
#endif

/* Times of the plan: 0 is loading, op i is i + 1, the last op's is also the end. */
typedef struct tsr_lifetime {
    int32_t first, last;
} tsr_lifetime;

/* When value `v` (no view) must keep its content. */
tsr_lifetime tsr_program_value_life(const tsr_tape *t, tsr_val v);

/* How weight `w` is read: rows at a time, and where in the staging place. */
typedef struct tsr_panels {
    int32_t n_rows;      /* dims[0] */
    int32_t panel_rows;  /* the backend's */
    int32_t rows_a_read; /* a multiple of panel_rows */
    size_t row_elements;
    size_t raw_bytes;     /* of one read, in the file's type; 0: read in place as float32 */
    size_t staging_bytes; /* raw, then float32 */
} tsr_panels;
tsr_panels tsr_program_panels(const tsr_program *p, const tsr_weight *w);

/* Address of `bytes` bytes at `offset` of the program's part of the arena. */
void *tsr_program_at(const tsr_program *p, size_t offset, size_t bytes);

#endif
