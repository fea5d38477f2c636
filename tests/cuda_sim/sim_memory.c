/* sim_memory.c -- the simulated device's memory, and pinned memory.
 *
 * The device's memory is one range of addresses. While the host runs it cannot be touched (a host
 * that follows a device's pointer gets a signal, as it would); while queued work is done it is
 * open. Every allocation takes whole pieces of 2 MiB from the device's account, as the driver does,
 * so that memory ends exactly where the limit is; its bytes begin as NaNs, red zones lie around it.
 */
#include "tests/cuda_sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_PIECES = 4096, RED = 4096, POISON = 0xFF, RED_BYTE = 0xA5 };
#define RANGE_BYTES ((size_t)1 << 38)
#define GRAIN ((size_t)2 << 20)

typedef struct piece {
    unsigned char *p;
    size_t bytes;
    bool pinned;
} piece;

static unsigned char *range;
static size_t range_used;
static piece pieces[MAX_PIECES];
static size_t n_pieces;

static size_t whole_grains(size_t bytes)
{
    return (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

static size_t page_up(size_t bytes)
{
    return (bytes + RED - 1) / RED * RED;
}

sim_place sim_place_of(const void *p, size_t bytes, bool *whole)
{
    const unsigned char *b = p;
    bool device = range && b >= range && b < range + RANGE_BYTES;

    *whole = !device;
    for (size_t i = 0; i < n_pieces; i++) {
        const piece *x = &pieces[i];
        if (b < x->p || b >= x->p + x->bytes)
            continue;
        *whole = bytes <= (size_t)(x->p + x->bytes - b);
        return x->pinned ? SIM_PINNED : SIM_DEVICE;
    }
    return device ? SIM_DEVICE : SIM_PAGEABLE;
}

static void protect(int how)
{
    if (range_used)
        mprotect(range, range_used, how);
}

void sim_memory_open(void)
{
    protect(PROT_READ | PROT_WRITE);
}

void sim_memory_close(void)
{
    protect(PROT_NONE);
}

size_t sim_memory_free_bytes(void)
{
    size_t used = sim.f.used + sim.o.others_bytes;

    return used < sim.o.device_bytes ? sim.o.device_bytes - used : 0;
}

bool sim_memory_empty(void)
{
    return n_pieces == 0;
}

static bool red_zone_holds(const unsigned char *p)
{
    for (size_t i = 0; i < RED; i++)
        if (p[i] != RED_BYTE)
            return false;
    return true;
}

/* Memory is open. */
bool sim_memory_intact(void)
{
    for (size_t i = 0; i < n_pieces; i++) {
        const piece *x = &pieces[i];
        size_t end = page_up(x->bytes);
        if (x->pinned)
            continue;
        if (!red_zone_holds(x->p - RED) || !red_zone_holds(x->p + end))
            return false;
        for (size_t k = x->bytes; k < end; k++)
            if (x->p[k] != RED_BYTE)
                return false;
    }
    return true;
}

static bool have_range(void)
{
    void *p;

    if (range)
        return true;
    p = mmap(NULL, RANGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    range = p == MAP_FAILED ? NULL : p;
    return range != NULL;
}

static cudaError_t device_piece(void **out, size_t bytes)
{
    size_t all = page_up(bytes) + 2 * RED;
    unsigned char *p;

    if (whole_grains(bytes) > sim_memory_free_bytes())
        return cudaErrorMemoryAllocation;
    if (n_pieces == MAX_PIECES || !have_range() || all > RANGE_BYTES - range_used)
        return sim_mistake(cudaErrorMemoryAllocation, "the simulation is out of addresses");
    p = range + range_used;
    range_used += all;
    sim_memory_open();
    memset(p, RED_BYTE, all);
    memset(p + RED, POISON, bytes);
    sim_memory_close();
    pieces[n_pieces++] = (piece){p + RED, bytes, false};
    sim.f.used += whole_grains(bytes);
    sim.f.peak = sim.f.used > sim.f.peak ? sim.f.used : sim.f.peak;
    sim.f.n_allocations++;
    *out = p + RED;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    cudaError_t e = sim_enter(cudaErrorMemoryAllocation);

    if (e != cudaSuccess)
        return e;
    return sim_leave(bytes ? device_piece(p, bytes) : cudaErrorInvalidValue);
}

static piece *find(const void *p, bool pinned)
{
    for (size_t i = 0; i < n_pieces; i++)
        if (pieces[i].p == p && pieces[i].pinned == pinned)
            return &pieces[i];
    return NULL;
}

/* Addresses behind the last piece are free again. */
static void forget(piece *x)
{
    size_t used = 0;

    *x = pieces[--n_pieces];
    for (size_t i = 0; i < n_pieces; i++) {
        const piece *k = &pieces[i];
        if (!k->pinned && (size_t)(k->p - range) + page_up(k->bytes) + RED > used)
            used = (size_t)(k->p - range) + page_up(k->bytes) + RED;
    }
    if (used < range_used) {
        mprotect(range + used, range_used - used, PROT_NONE);
        madvise(range + used, range_used - used, MADV_DONTNEED);
        range_used = used;
    }
}

cudaError_t cudaFree(void *p)
{
    cudaError_t e = sim_enter_release(), drained = sim_drain_all();
    piece *x;

    e = e == cudaSuccess ? drained : e;
    if (!p)
        return sim_leave(e);
    x = find(p, false);
    if (!x)
        return sim_leave(sim_mistake(cudaErrorInvalidValue, "cudaFree of no device memory"));
    sim_memory_open();
    if (!sim_memory_intact())
        e = sim_mistake(cudaErrorIllegalAddress, "something was written beside device memory");
    sim_memory_close();
    sim.f.used -= whole_grains(x->bytes);
    sim.f.n_allocations--;
    forget(x);
    return sim_leave(e);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned int flags)
{
    cudaError_t e = sim_enter(cudaErrorMemoryAllocation);
    void *host;

    (void)flags;
    if (e != cudaSuccess)
        return e;
    host = n_pieces < MAX_PIECES ? aligned_alloc(RED, page_up(bytes)) : NULL;
    if (!host)
        return sim_leave(cudaErrorMemoryAllocation);
    memset(host, POISON, bytes);
    pieces[n_pieces++] = (piece){host, bytes, true};
    sim.f.pinned += bytes;
    *p = host;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaFreeHost(void *p)
{
    cudaError_t e = sim_enter_release(), drained = sim_drain_all();
    piece *x;

    e = e == cudaSuccess ? drained : e;
    if (!p)
        return sim_leave(e);
    x = find(p, true);
    if (!x)
        return sim_leave(sim_mistake(cudaErrorInvalidValue, "cudaFreeHost of no pinned memory"));
    sim.f.pinned -= x->bytes;
    free(x->p);
    forget(x);
    return sim_leave(e);
}
