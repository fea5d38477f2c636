/* alloc.h -- the library's only way to the heap.
 *
 * Thin wrappers of malloc that count calls and can be told to fail, so that tests prove
 * two promises: no allocation after planning, and a clean error for every failing
 * allocation. The counters are process-wide atomics (the one piece of global state in the
 * library, see alloc.c); nothing reads them but tests and the report. */
#ifndef TSR_BASE_ALLOC_H
#define TSR_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *tsr_malloc(size_t bytes);              /* NULL when out of memory; bytes may be 0 */
void *tsr_calloc(size_t count, size_t size); /* zeroed; product checked for overflow */
void *tsr_realloc(void *p, size_t bytes);
void tsr_free(void *p); /* accepts NULL */
char *tsr_strdup(const char *s);

/* Makes *p hold at least `need` elements of `size` bytes (grows by half); false when out
 * of memory, *p and *cap are then unchanged. */
bool tsr_grow(void **p, size_t *cap, size_t need, size_t size);

/* For a program's start: blocks of 256 KiB and more get mappings of their own, always. glibc raises
 * that limit to the largest block freed so far; from then on tables of megabytes grow by copies on
 * the heap, and what is free among them still counts as the process's memory. */
void tsr_alloc_large_apart(void);

size_t tsr_alloc_live(void);    /* bytes allocated and not freed, with the allocator's rounding */
uint64_t tsr_alloc_count(void); /* allocations made so far in this process */
void tsr_alloc_fail_at(uint64_t n); /* the nth from now on (1 = next) fails, once; 0 = off */
bool tsr_alloc_failed(void);        /* has the planned failure happened? */

#endif
