/* check_internal.h -- what the files of check.h share. */
#ifndef TSR_TESTS_CHECK_INTERNAL_H
#define TSR_TESTS_CHECK_INTERNAL_H

#include "tests/support/check.h"

enum { CHECK_GUARD = 64, CHECK_GUARD_BYTE = 0xFF, CHECK_MAX_THREADS = 3 };

/* Memory with CHECK_GUARD bytes before and behind it, everything CHECK_GUARD_BYTE at first: as
 * halves and floats these are NaN. */
typedef struct check_guarded {
    unsigned char *data; /* 64-byte aligned */
    size_t bytes;
} check_guarded;

check_guarded check_guarded_make(size_t bytes);
void check_guarded_free(check_guarded *g);
bool check_guards_hold(const check_guarded *g);

/* The check's op on one tier; all values whole. */
typedef struct check_placed {
    const tsr_backend *b;
    tsr_call call; /* window, scratch and pool are set by check_run_window */
    check_guarded out, in[4], w[2];
} check_placed;

void check_place(const check *c, const tsr_backend *b, check_placed *p);
void check_unplace(check_placed *p);
void check_store(void *dst, tsr_dtype dtype, const float *src, size_t n);
size_t check_row_elements(const tsr_weight *w);
/* One window with scratch of exactly the size that the backend asks for. */
void check_run_window(const check *c, check_placed *p, tsr_pool *pool, tsr_window window);

/* What plans do to an op: random windows of rows and entries on buffers that hold only the rows in
 * use, pieces of output channels, the output in an input's place, pooled statistics, key blocks.
 * The bits must be `want`, those of the whole op. */
void check_parts(const check *c, check_placed *p, tsr_pool *pools[], const unsigned char *want);

#endif
