/* arena.c -- reserves, touches and poisons the run's memory.
 *
 * Anonymous pages, huge ones where the kernel has them (a step is 4 % faster: bench/NOTES.md). They
 * make nothing more resident: they lie within the mapping, and every page of it is written once
 * before the first step, so that what the plan counts on is resident from then on, and a limit
 * (RLIMIT_AS, overcommit) that forbids it shows at once.
 *
 * The poison is a byte of ones everywhere: 0xFFFF, 0xFFFFFFFF and 0xFFFFFFFFFFFFFFFF are NaN as
 * half, float and double at any alignment, so a value that is read before it was written, or after
 * its place was given away, becomes a NaN that spreads. Debug builds start with it. */
#include "memory/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/num.h"
#include "memory/budget.h"

#ifdef TSR_DEBUG
static const bool poison_at_start = true;
#else
static const bool poison_at_start = false;
#endif

enum { HUGE_PAGE = 2 << 20 };

static void touch_pages(unsigned char *base, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile unsigned char *p = base;

    for (size_t i = 0; i < bytes; i += page)
        p[i] = 0;
}

/* Fresh pages that begin at a multiple of HUGE_PAGE; NULL with errno. */
static unsigned char *map_aligned(size_t bytes)
{
    size_t end = tsr_align_up(bytes, (size_t)sysconf(_SC_PAGESIZE)), before, all;
    unsigned char *p;

    if (end < bytes || !tsr_add_size(end, HUGE_PAGE, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    before = tsr_align_up((uintptr_t)p, HUGE_PAGE) - (uintptr_t)p;
    if (before > 0)
        munmap(p, before);
    if (before + end < all)
        munmap(p + before + end, all - before - end);
    (void)madvise(p + before, end, MADV_HUGEPAGE); /* kernels without huge pages refuse */
    return p + before;
}

tsr_status tsr_arena_make(tsr_arena *a, size_t bytes, tsr_err *err)
{
    unsigned char *base;
    char size[32], why[96];

    if (bytes == 0) {
        *a = (tsr_arena){0};
        return TSR_OK;
    }
    base = map_aligned(bytes);
    if (!base)
        TSR_FAIL(err, TSR_E_OOM,
                 "the system does not give the %s that the plan needs (%s); a smaller --budget "
                 "makes a smaller plan",
                 tsr_bytes_text(bytes, size, sizeof size), strerror_r(errno, why, sizeof why));
    *a = (tsr_arena){.base = base, .bytes = bytes};
    if (poison_at_start)
        tsr_arena_poison(a, 0, bytes);
    else
        touch_pages(base, bytes);
    return TSR_OK;
}

tsr_status tsr_arena_resize(tsr_arena *a, size_t bytes, size_t keep, tsr_err *err)
{
    char size[32], why[96];
    size_t from;
    void *base = mremap(a->base, a->bytes, bytes, MREMAP_MAYMOVE);

    if (base == MAP_FAILED)
        TSR_FAIL(err, TSR_E_OOM, "the system does not give the %s that the plan needs (%s)",
                 tsr_bytes_text(bytes, size, sizeof size), strerror_r(errno, why, sizeof why));
    a->base = base;
    a->bytes = bytes;
    a->high_water = tsr_min_size(a->high_water, bytes);
    if (poison_at_start)
        tsr_arena_poison(a, keep, bytes - keep);
    from = tsr_align_up(keep, (size_t)sysconf(_SC_PAGESIZE));
    if (!poison_at_start && from < bytes)
        touch_pages(a->base + from, bytes - from);
    return TSR_OK;
}

void tsr_arena_free(tsr_arena *a)
{
    if (a->base)
        munmap(a->base, a->bytes);
    *a = (tsr_arena){0};
}

static bool is_inside(const tsr_arena *a, size_t offset, size_t bytes)
{
    size_t end;

    return a->base && tsr_add_size(offset, bytes, &end) && end <= a->bytes;
}

void *tsr_arena_use(tsr_arena *a, size_t offset, size_t bytes)
{
    if (!is_inside(a, offset, bytes))
        return NULL;
    a->high_water = tsr_max_size(a->high_water, offset + bytes);
    return a->base + offset;
}

void tsr_arena_poison(tsr_arena *a, size_t offset, size_t bytes)
{
    if (is_inside(a, offset, bytes))
        memset(a->base + offset, TSR_ARENA_POISON, bytes);
}

void tsr_arena_release(tsr_arena *a, size_t offset)
{
    size_t from = tsr_align_up(offset, (size_t)sysconf(_SC_PAGESIZE));

    if (a->base && from < a->bytes)
        (void)madvise(a->base + from, a->bytes - from, MADV_DONTNEED);
}
