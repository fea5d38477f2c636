/* arena.h -- the one reservation that a run computes in.
 *
 * Anonymous memory, without huge pages, touched page by page before the first step: a machine
 * that cannot give it refuses here and not at step 20. Debug builds fill it with NaN patterns. */
#ifndef TSR_MEMORY_ARENA_H
#define TSR_MEMORY_ARENA_H

#include <stddef.h>

#include "base/err.h"

enum { TSR_ARENA_POISON = 0xFF };

typedef struct tsr_arena {
    unsigned char *base; /* page-aligned; NULL when empty */
    size_t bytes;        /* reserved */
    size_t high_water;   /* highest end of anything placed in it so far (tsr_arena_use) */
} tsr_arena;

tsr_status tsr_arena_make(tsr_arena *a, size_t bytes, tsr_err *err); /* TSR_E_OOM */
/* Makes it larger or smaller; the first `keep` bytes keep their content, but may move. The rest is
 * touched as by tsr_arena_make. TSR_E_OOM: it is as it was. */
tsr_status tsr_arena_resize(tsr_arena *a, size_t bytes, size_t keep, tsr_err *err);
void tsr_arena_free(tsr_arena *a); /* accepts a zeroed one */
/* The address of [offset, offset+bytes); notes the high water. Outside the arena: NULL. */
void *tsr_arena_use(tsr_arena *a, size_t offset, size_t bytes);
void tsr_arena_poison(tsr_arena *a, size_t offset, size_t bytes); /* half, float and double NaNs */
/* Gives the whole pages from `offset` on back to the system; they read as zeros and come back when
 * they are touched. */
void tsr_arena_release(tsr_arena *a, size_t offset);

#endif
