/* sim_fiber.c -- runs a kernel's blocks, one after the other, their threads as fibers.
 *
 * A worker is a stack in an endless loop: take a thread, run the kernel, give the thread back. A
 * thread that meets a barrier, or an instruction of its warp, keeps its worker and waits in it;
 * others go on, with further workers where needed. The scheduler runs on the caller's stack.
 *
 *   lane: fresh -> running -> at the warp's instruction -> running -> at a barrier -> ... -> done
 *
 * A warp's instruction is done here when all its lanes have come: their operands lie in their
 * records. A barrier opens when all threads of the block are at it. Everything else is a mistake of
 * the kernel, told in sim_fault. After a mistake the block is given up where it stands, and its
 * workers start anew.
 *
 * A switch saves what a call preserves and changes the stack: x86-64 only (ucontext asks the
 * kernel twice a switch, which is a hundred times slower). */
#include "tests/cuda_sim/sim_fiber.h"
#include "tests/cuda_sim/sim_tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif
#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define SIM_ASAN 0
#endif

enum { LANES = 32, MAX_THREADS = 1024, STACK_BYTES = 256 << 10, MAX_SHARED = 227 << 10 };
enum { GUARD = 1024, POISON = 0xFF };

typedef enum lane_state { FRESH, READY, AT_WARP, AT_BARRIER, DONE } lane_state;
typedef enum warp_kind {
    EXCHANGE,
    WARP_BARRIER,
    MMA_F16,
    MMA_BF16,
    LDMATRIX,
    LDMATRIX_T
} warp_kind;

typedef struct copy {
    void *dst;
    const void *src;
    bool valid;
    uint32_t group;
} copy;

typedef struct worker {
    void *sp;
    unsigned char *stack;
    size_t colour; /* tops of stacks are spread over the cache's sets */
    void *fake;    /* ASAN's, of the suspended fiber */
    struct worker *next;
} worker;

typedef struct lane {
    sim_thread id; /* first: sim_now points here */
    lane_state state;
    worker *worker;
    /* where it waits */
    warp_kind kind;
    const char *file;
    int line;
    const void *site;
    /* operands of the warp's instruction, and its results */
    uint64_t word, taken;
    int from;
    sim_operands *tile;
    /* copies that are under way */
    copy *copies;
    size_t n_copies, cap_copies;
    uint32_t group; /* that is being filled */
} lane;

typedef struct engine {
    lane lanes[MAX_THREADS];
    sim_operands tiles[MAX_THREADS]; /* of the lanes */
    int n;
    worker *idle, *all[MAX_THREADS];
    int n_workers;
    void *scheduler, *scheduler_fake;
    const void *scheduler_stack;
    size_t scheduler_bytes;
    unsigned char *shared; /* with guards */
    size_t shared_bytes;
    const sim_kernel *kernel;
    sim_order order;
    uint64_t random;
    bool failed;
    char *fault;
    size_t fault_bytes;
} engine;

static engine e;
sim_thread *sim_now;
uint3 sim_block;
dim3 sim_block_dim, sim_grid_dim;
void *sim_shared;

/* ------------------------------------------------------------------- switching */

void sim_switch(void **save, void *to);
__asm__(".text\n"
        ".hidden sim_switch\n"
        ".globl sim_switch\n"
        ".type sim_switch,@function\n"
        "sim_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp,(%rdi)\n"
        "    movq %rsi,%rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size sim_switch,.-sim_switch\n");

static void to_worker(worker *w)
{
#if SIM_ASAN
    __sanitizer_start_switch_fiber(&e.scheduler_fake, w->stack, STACK_BYTES);
#endif
    sim_switch(&e.scheduler, w->sp);
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(e.scheduler_fake, NULL, NULL);
#endif
}

static void to_scheduler(worker *w)
{
#if SIM_ASAN
    __sanitizer_start_switch_fiber(&w->fake, e.scheduler_stack, e.scheduler_bytes);
#endif
    sim_switch(&w->sp, e.scheduler);
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(w->fake, &e.scheduler_stack, &e.scheduler_bytes);
#endif
}

static void worker_main(void)
{
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(NULL, &e.scheduler_stack, &e.scheduler_bytes);
#endif
    for (;;) {
        lane *l = (lane *)(void *)sim_now;
        worker *w = l->worker;

        e.kernel->run(e.kernel->function, e.kernel->args);
        l->state = DONE;
        to_scheduler(w);
    }
}

/* A stack as if worker_main had just been called from sim_switch. */
static void start_anew(worker *w)
{
    unsigned char *end = w->stack + STACK_BYTES - w->colour;
    uint64_t *top = (uint64_t *)(void *)end;

#if SIM_ASAN
    __asan_unpoison_memory_region(w->stack, STACK_BYTES);
#endif
    *--top = 0; /* for the return address: worker_main never returns */
    *--top = (uint64_t)(uintptr_t)worker_main;
    for (int i = 0; i < 6; i++)
        *--top = 0;
    w->sp = top;
    w->fake = NULL;
}

static worker *take_worker(void)
{
    worker *w = e.idle;

    if (w) {
        e.idle = w->next;
        return w;
    }
    w = calloc(1, sizeof *w);
    if (w)
        w->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!w || w->stack == MAP_FAILED) {
        free(w);
        return NULL;
    }
    w->colour = (size_t)e.n_workers * 320 % 8192;
    start_anew(w);
    e.all[e.n_workers++] = w;
    return w;
}

static void give_worker(worker *w)
{
    w->next = e.idle;
    e.idle = w;
}

/* ---------------------------------------------------------------------- faults */

static void fail(const lane *l, const char *what)
{
    if (e.failed)
        return;
    e.failed = true;
    snprintf(e.fault, e.fault_bytes, "%s (block %u,%u,%u thread %u,%u,%u, %s:%d)", what,
             sim_block.x, sim_block.y, sim_block.z, l->id.thread.x, l->id.thread.y, l->id.thread.z,
             l->file ? l->file : "kernel", l->line);
}

static lane *current(void)
{
    return (lane *)(void *)sim_now;
}

/* The running lane waits; it comes back when the scheduler has made it ready. */
static void wait_in(lane *l, lane_state state)
{
    l->state = state;
    to_scheduler(l->worker);
}

void sim_misaligned(const void *p, size_t bytes)
{
    char what[96];
    lane *l = current();

    l->file = NULL;
    snprintf(what, sizeof what, "an access of %zu bytes at %p is not aligned", bytes, p);
    fail(l, what);
    wait_in(l, AT_BARRIER); /* never goes on: the block is given up */
}

/* ------------------------------------------------------------ what kernels call */

void sim_barrier(const char *file, int line)
{
    lane *l = current();

    l->file = file;
    l->line = line;
    wait_in(l, AT_BARRIER);
}

static void meet(lane *l, warp_kind kind, const char *file, int line, const void *site)
{
    l->kind = kind;
    l->file = file;
    l->line = line;
    l->site = site;
    wait_in(l, AT_WARP);
}

uint64_t sim_exchange(uint64_t mine, int from, const char *file, int line)
{
    lane *l = current();

    l->word = mine;
    l->from = from;
    meet(l, EXCHANGE, file, line, NULL);
    return l->taken;
}

void sim_warp_barrier(const char *file, int line)
{
    meet(current(), WARP_BARRIER, file, line, NULL);
}

void sim_mma(sim_tile kind, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    lane *l = current();

    memcpy(l->tile->a, a, sizeof l->tile->a);
    memcpy(l->tile->b, b, sizeof l->tile->b);
    memcpy(l->tile->d, d, sizeof l->tile->d);
    meet(l, kind == SIM_MMA_F16 ? MMA_F16 : MMA_BF16, NULL, 0, __builtin_return_address(0));
    memcpy(d, l->tile->d, sizeof l->tile->d);
}

void sim_ldmatrix(sim_tile kind, uint32_t *r, int n, const void *row)
{
    lane *l = current();

    l->tile->row = row;
    l->tile->n_matrices = n;
    if (l->id.lane < 8 * n && (uintptr_t)row % 16)
        sim_misaligned(row, 16);
    meet(l, kind == SIM_LDMATRIX ? LDMATRIX : LDMATRIX_T, NULL, 0, __builtin_return_address(0));
    memcpy(r, l->tile->r, (size_t)n * sizeof *r);
}

void sim_copy_async(void *dst, const void *src, bool valid)
{
    lane *l = current();

    if ((uintptr_t)dst % 16 || (valid && (uintptr_t)src % 16))
        sim_misaligned((uintptr_t)dst % 16 ? dst : src, 16);
    if (l->n_copies == l->cap_copies) {
        size_t cap = l->cap_copies ? 2 * l->cap_copies : 16;
        copy *more = realloc(l->copies, cap * sizeof *more);
        if (!more) {
            fail(l, "the simulation has no memory");
            wait_in(l, AT_BARRIER);
        }
        l->copies = more;
        l->cap_copies = cap;
    }
    memset(dst, POISON, 16);
    l->copies[l->n_copies++] = (copy){dst, src, valid, l->group};
}

void sim_copy_commit(void)
{
    current()->group++;
}

void sim_copy_wait(int n)
{
    lane *l = current();
    size_t kept = 0;

    for (size_t i = 0; i < l->n_copies; i++) {
        const copy *c = &l->copies[i];
        if (c->group + (uint32_t)n >= l->group)
            l->copies[kept++] = *c;
        else if (c->valid)
            memcpy(c->dst, c->src, 16);
        else
            memset(c->dst, 0, 16);
    }
    l->n_copies = kept;
}

/* -------------------------------------------------------- a warp's instructions */

static bool same_place(const lane *a, const lane *b)
{
    return a->kind == b->kind && a->line == b->line && a->site == b->site &&
           (a->file == b->file || (a->file && b->file && strcmp(a->file, b->file) == 0));
}

static void do_warp(lane *w, int n)
{
    for (int i = 0; i < n; i++)
        if (w[i].state != AT_WARP || !same_place(&w[i], &w[0])) {
            fail(w[i].state == AT_WARP ? &w[i] : &w[0],
                 "the lanes of a warp are not at the same instruction");
            return;
        }
    if (n < LANES) {
        fail(&w[0], "an instruction of the warp in a warp that is not full");
        return;
    }
    switch (w[0].kind) {
    case EXCHANGE:
        for (int i = 0; i < LANES; i++)
            w[i].taken = w[w[i].from & (LANES - 1)].word;
        break;
    case MMA_F16:
    case MMA_BF16:
        sim_tile_mma(w[0].tile, w[0].kind == MMA_BF16);
        break;
    case LDMATRIX:
    case LDMATRIX_T:
        sim_tile_ldmatrix(w[0].tile, w[0].kind == LDMATRIX_T);
        break;
    case WARP_BARRIER:
        break;
    }
    for (int i = 0; i < LANES; i++)
        w[i].state = READY;
}

/* ------------------------------------------------------------------- scheduling */

static uint32_t below(uint32_t n)
{
    e.random ^= e.random << 13;
    e.random ^= e.random >> 7;
    e.random ^= e.random << 17;
    return (uint32_t)((e.random >> 33) % n);
}

static bool runnable(const lane *l)
{
    return l->state == FRESH || l->state == READY;
}

static void run_lane(lane *l)
{
    if (l->state == FRESH)
        l->worker = take_worker();
    if (!l->worker) {
        fail(l, "the simulation has no memory");
        return;
    }
    l->state = READY;
    sim_now = &l->id;
    to_worker(l->worker);
    if (l->state == DONE) {
        give_worker(l->worker);
        l->worker = NULL;
    }
}

/* Each lane as far as it goes alone. */
static void run_lanes(lane *w, int n)
{
    int first = e.order.kind == SIM_ORDER_RANDOM ? (int)below((uint32_t)n) : 0;

    for (int i = 0; i < n && !e.failed; i++) {
        int k = e.order.kind == SIM_ORDER_BACKWARD ? n - 1 - i : (first + i) % n;
        if (runnable(&w[k]))
            run_lane(&w[k]);
    }
}

/* A warp until it is at a barrier or done; at random, until its next instruction. */
static void run_warp(lane *w, int n)
{
    for (bool more = true; more && !e.failed;) {
        bool waits = false;
        run_lanes(w, n);
        for (int i = 0; i < n; i++)
            waits = waits || w[i].state == AT_WARP;
        if (waits && !e.failed)
            do_warp(w, n);
        more = waits && e.order.kind != SIM_ORDER_RANDOM;
    }
}

static int warp_lanes(int w)
{
    return e.n - w * LANES < LANES ? e.n - w * LANES : LANES;
}

static bool warp_runnable(int w)
{
    for (int i = 0; i < warp_lanes(w); i++)
        if (runnable(&e.lanes[w * LANES + i]))
            return true;
    return false;
}

/* The next warp that can run; -1: none. */
static int next_warp(void)
{
    int n = (e.n + LANES - 1) / LANES;
    int first = e.order.kind == SIM_ORDER_RANDOM ? (int)below((uint32_t)n) : 0;

    for (int i = 0; i < n; i++) {
        int w = e.order.kind == SIM_ORDER_BACKWARD ? n - 1 - i : (first + i) % n;
        if (warp_runnable(w))
            return w;
    }
    return -1;
}

/* Nothing can run: the barrier opens, or the block is over. True: over. */
static bool open_barrier(void)
{
    int waiting = 0, at = -1;

    for (int i = 0; i < e.n; i++)
        if (e.lanes[i].state == AT_BARRIER) {
            waiting++;
            at = i;
        }
    if (waiting == 0)
        return true;
    for (int i = 0; i < e.n && !e.failed; i++) {
        const lane *l = &e.lanes[i];
        if (l->state == DONE)
            fail(&e.lanes[at], "a thread has ended while others are at a barrier");
        else if (l->line != e.lanes[at].line || strcmp(l->file, e.lanes[at].file) != 0)
            fail(l, "threads of a block are at different barriers");
    }
    for (int i = 0; i < e.n; i++)
        e.lanes[i].state = READY;
    return e.failed;
}

static void begin_block(void)
{
    for (int i = 0; i < e.n; i++) {
        lane *l = &e.lanes[i];
        unsigned x = (unsigned)i;
        l->id.thread.x = x % sim_block_dim.x;
        l->id.thread.y = x / sim_block_dim.x % sim_block_dim.y;
        l->id.thread.z = x / sim_block_dim.x / sim_block_dim.y;
        l->id.lane = i % LANES;
        l->tile = &e.tiles[i];
        l->state = FRESH;
        l->worker = NULL;
        l->n_copies = 0;
        l->group = 0;
        l->file = NULL;
    }
    memset(e.shared, POISON, e.shared_bytes + 2 * GUARD);
}

static void check_guards(void)
{
    for (size_t i = 0; i < GUARD; i++)
        if (e.shared[i] != POISON || e.shared[GUARD + e.shared_bytes + i] != POISON) {
            fail(&e.lanes[0], "something was written beside the block's shared memory");
            return;
        }
}

static void run_block(void)
{
    begin_block();
    for (;;) {
        int w = next_warp();
        if (w >= 0)
            run_warp(&e.lanes[w * LANES], warp_lanes(w));
        else if (open_barrier())
            break;
        if (e.failed)
            break;
    }
    if (!e.failed)
        check_guards();
}

/* After a fault: workers are in the middle of a kernel that will never go on. */
static void reset_workers(void)
{
    e.idle = NULL;
    for (int i = 0; i < e.n_workers; i++) {
        start_anew(e.all[i]);
        give_worker(e.all[i]);
    }
}

static bool valid_launch(const sim_kernel *k)
{
    size_t n = (size_t)k->block.x * k->block.y * k->block.z;

    return n > 0 && n <= MAX_THREADS && k->shared_bytes <= MAX_SHARED && k->grid.x > 0 &&
           k->grid.y > 0 && k->grid.z > 0 && k->grid.y <= 65535 && k->grid.z <= 65535 &&
           k->grid.x <= INT32_MAX;
}

bool sim_fiber_run(const sim_kernel *k, sim_order order, char *fault, size_t fault_bytes)
{
    if (!valid_launch(k)) {
        snprintf(fault, fault_bytes,
                 "a launch with a grid, block or shared memory that is refused");
        return false;
    }
    if (!e.shared)
        e.shared = aligned_alloc(1024, MAX_SHARED + 2 * GUARD);
    if (!e.shared)
        return false;
    e.kernel = k;
    e.order = order;
    e.random = order.seed * 2 + 0x9E3779B97F4A7C15u;
    e.n = (int)(k->block.x * k->block.y * k->block.z);
    e.shared_bytes = (k->shared_bytes + 15) & ~(size_t)15;
    e.failed = false;
    e.fault = fault;
    e.fault_bytes = fault_bytes;
    sim_block_dim = k->block;
    sim_grid_dim = k->grid;
    sim_shared = e.shared + GUARD;
    for (sim_block.z = 0; sim_block.z < k->grid.z && !e.failed; sim_block.z++)
        for (sim_block.y = 0; sim_block.y < k->grid.y && !e.failed; sim_block.y++)
            for (sim_block.x = 0; sim_block.x < k->grid.x && !e.failed; sim_block.x++)
                run_block();
    if (e.failed)
        reset_workers();
    return !e.failed;
}

void sim_fiber_free(void)
{
    for (int i = 0; i < e.n_workers; i++) {
        munmap(e.all[i]->stack, STACK_BYTES);
        free(e.all[i]);
    }
    for (int i = 0; i < MAX_THREADS; i++)
        free(e.lanes[i].copies);
    free(e.shared);
    memset(&e, 0, sizeof e);
}
