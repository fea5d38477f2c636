/* alloc.c -- malloc with a counter and one planned failure.
 *
 * Every call takes a number from one process-wide counter; the call whose number was marked
 * by tsr_alloc_fail_at fails. Numbers never repeat, so a planned failure happens once by
 * itself, and the whole hook is one relaxed atomic add and one load. These four atomics and
 * those of file.c are the library's only globals: a test must reach allocations that are made
 * deep inside, without a handle threaded through every function. */
#include "base/alloc.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static _Atomic uint64_t n_calls;
static _Atomic size_t live_bytes;     /* as the allocator rounds them */
static _Atomic uint64_t failing_call; /* 0: none */
static _Atomic bool failure_happened;

static bool call_fails(void)
{
    uint64_t call = atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed) + 1;

    if (call != atomic_load_explicit(&failing_call, memory_order_relaxed))
        return false;
    atomic_store(&failure_happened, true);
    return true;
}

/* malloc(0) and realloc(p, 0) may return NULL, which is no failure: ask for a byte. */
static size_t at_least_one(size_t bytes)
{
    return bytes ? bytes : 1;
}

/* Counts a block that was just made; NULL counts nothing. */
static void *add_live(void *p)
{
    atomic_fetch_add_explicit(&live_bytes, malloc_usable_size(p), memory_order_relaxed);
    return p;
}

static void drop_live(size_t bytes)
{
    atomic_fetch_sub_explicit(&live_bytes, bytes, memory_order_relaxed);
}

void *tsr_malloc(size_t bytes)
{
    return call_fails() ? NULL : add_live(malloc(at_least_one(bytes)));
}

void *tsr_calloc(size_t count, size_t size)
{
    size_t bytes;

    if (call_fails() || !tsr_mul_size(count, size, &bytes))
        return NULL;
    return add_live(calloc(1, at_least_one(bytes)));
}

void *tsr_realloc(void *p, size_t bytes)
{
    size_t before = malloc_usable_size(p);
    bool fails = bytes > before && call_fails(); /* a block that shrinks has its memory already */
    void *grown = fails ? NULL : realloc(p, at_least_one(bytes));

    if (!grown)
        return NULL;
    drop_live(before);
    return add_live(grown);
}

void tsr_free(void *p)
{
    drop_live(malloc_usable_size(p));
    free(p);
}

char *tsr_strdup(const char *s)
{
    size_t bytes = strlen(s) + 1;
    char *copy = tsr_malloc(bytes);

    return copy ? memcpy(copy, s, bytes) : NULL;
}

bool tsr_grow(void **p, size_t *cap, size_t need, size_t size)
{
    enum { SMALLEST = 8 };
    void *old, *grown;
    size_t n = tsr_max_size(need, SMALLEST), half_more, bytes;

    if (need <= *cap)
        return true;
    if (tsr_add_size(*cap, *cap / 2, &half_more))
        n = tsr_max_size(n, half_more);
    if (!tsr_mul_size(n, size, &bytes))
        return false;
    /* `p` is the address of a pointer of any type: copied as bytes, not read as a void pointer. */
    memcpy(&old, p, sizeof old);
    grown = tsr_realloc(old, bytes);
    if (!grown)
        return false;
    memcpy(p, &grown, sizeof grown);
    *cap = n;
    return true;
}

void tsr_alloc_large_apart(void)
{
    enum { LARGE = 256 << 10 };

    (void)mallopt(M_MMAP_THRESHOLD, LARGE); /* where it is refused, more memory is measured */
}

size_t tsr_alloc_live(void)
{
    return atomic_load(&live_bytes);
}

uint64_t tsr_alloc_count(void)
{
    return atomic_load(&n_calls);
}

void tsr_alloc_fail_at(uint64_t n)
{
    atomic_store(&failure_happened, false);
    atomic_store(&failing_call, n ? atomic_load(&n_calls) + n : 0);
}

bool tsr_alloc_failed(void)
{
    return atomic_load(&failure_happened);
}
