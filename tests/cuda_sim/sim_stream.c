/* sim_stream.c -- streams and events: work that is done when it must be, or in another order.
 *
 * A stream is a list of what is to be done: kernels, copies, library calls, events to record,
 * events to wait for. Nothing is done before somebody waits for it. Then one piece after the other
 * is done, each time from a stream whose first piece need not wait:
 *
 *   late     from the stream that is waited for, or from the one that it waits for: a reader that
 *            forgot to wait for a copy finds what was there before
 *   early    from any other stream first: a copy that forgot to wait for a reader comes too soon
 *   random   from any
 *
 * Copies from pageable memory have read it when they return, copies to it are done; pinned memory
 * is read and written when the copy's turn comes. */
#include "tests/cuda_sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_STREAMS = 16 };

typedef enum piece_kind { WORK, RECORD, WAIT } piece_kind;

struct CUevent_st {
    uint64_t recorded, done;    /* how often */
    struct CUstream_st *stream; /* of the last record */
};

typedef struct piece {
    piece_kind kind;
    sim_work_fn fn;
    struct CUevent_st *event;
    uint64_t version;
    struct CUstream_st *from; /* WAIT: where that version is recorded */
    struct piece *next;
    _Alignas(16) unsigned char arg[];
} piece;

struct CUstream_st {
    piece *head, *tail;
    uint64_t queued, done;
};

static struct CUstream_st *streams[MAX_STREAMS];
static int n_streams;

bool sim_stream_known(cudaStream_t s)
{
    for (int i = 0; i < n_streams; i++)
        if (streams[i] == s)
            return true;
    return false;
}

/* -------------------------------------------------------------------- queueing */

static cudaError_t append(cudaStream_t s, piece_kind kind, const void *arg, size_t bytes,
                          piece **out)
{
    piece *p;

    if (!sim_stream_known(s))
        return sim_mistake(cudaErrorInvalidResourceHandle, "work for no stream");
    p = calloc(1, sizeof *p + bytes);
    if (!p)
        return cudaErrorMemoryAllocation;
    p->kind = kind;
    if (bytes)
        memcpy(p->arg, arg, bytes);
    if (s->tail)
        s->tail->next = p;
    else
        s->head = p;
    s->tail = p;
    s->queued++;
    *out = p;
    return cudaSuccess;
}

cudaError_t sim_queue(cudaStream_t s, sim_work_fn fn, const void *arg, size_t bytes)
{
    piece *p = NULL;
    cudaError_t e = append(s, WORK, arg, bytes, &p);

    if (e == cudaSuccess)
        p->fn = fn;
    return e;
}

/* ----------------------------------------------------------------------- doing */

static bool blocked(const struct CUstream_st *s)
{
    return s->head->kind == WAIT && s->head->event->done < s->head->version;
}

static bool can_go(const struct CUstream_st *s)
{
    return s->head && !blocked(s);
}

/* The stream that has to go on before s can. */
static struct CUstream_st *needed_by(struct CUstream_st *s)
{
    for (int i = 0; i <= n_streams; i++) {
        if (can_go(s))
            return s;
        if (!s->head)
            return NULL;
        s = s->head->from;
    }
    return NULL;
}

static struct CUstream_st *choose(struct CUstream_st *target)
{
    int first = 0;

    if (sim.o.streams == SIM_STREAMS_LATE)
        return needed_by(target);
    if (sim.o.streams == SIM_STREAMS_RANDOM)
        first = (int)sim_below((uint32_t)n_streams);
    for (int i = 0; i < n_streams; i++) {
        struct CUstream_st *s = streams[(first + i) % n_streams];
        if (can_go(s) && (s != target || sim.o.streams == SIM_STREAMS_RANDOM))
            return s;
    }
    return needed_by(target);
}

static void do_one(struct CUstream_st *s)
{
    piece *p = s->head;
    const char *wrong = NULL;

    if (p->kind == WORK && sim.sticky == cudaSuccess)
        wrong = p->fn(p->arg);
    else if (p->kind == RECORD)
        p->event->done = p->version;
    if (wrong)
        sim.sticky = sim_mistake(cudaErrorLaunchFailure, "%s", wrong);
    s->head = p->next;
    if (!s->head)
        s->tail = NULL;
    s->done++;
    free(p);
}

/* Does what is queued until `target` has done `count` pieces. */
static cudaError_t do_until(struct CUstream_st *target, uint64_t count)
{
    if (target->done >= count)
        return sim.sticky;
    sim_memory_open();
    while (target->done < count) {
        struct CUstream_st *s = choose(target);
        if (!s) {
            sim.sticky = sim_mistake(cudaErrorLaunchFailure, "streams wait for each other");
            break;
        }
        do_one(s);
    }
    if (!sim_memory_intact())
        sim.sticky =
            sim_mistake(cudaErrorIllegalAddress, "something was written beside device memory");
    sim_memory_close();
    return sim.sticky;
}

cudaError_t sim_drain_all(void)
{
    cudaError_t e = sim.sticky;

    for (int i = 0; i < n_streams; i++)
        e = do_until(streams[i], streams[i]->queued);
    return e;
}

/* --------------------------------------------------------------------- streams */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    cudaError_t e = sim_enter(cudaErrorMemoryAllocation);
    struct CUstream_st *s;

    if (e != cudaSuccess)
        return e;
    if (flags != cudaStreamNonBlocking)
        return sim_leave(
            sim_mistake(cudaErrorInvalidValue, "streams here are cudaStreamNonBlocking"));
    s = n_streams < MAX_STREAMS ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return sim_leave(cudaErrorMemoryAllocation);
    streams[n_streams++] = s;
    sim.f.n_streams++;
    *out = s;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    cudaError_t e = sim_enter_release(), drained = sim_drain_all();

    e = e == cudaSuccess ? drained : e;
    if (!sim_stream_known(s))
        return sim_leave(sim_mistake(cudaErrorInvalidResourceHandle, "no stream to destroy"));
    for (int i = 0; i < n_streams; i++)
        if (streams[i] == s)
            streams[i] = streams[--n_streams];
    free(s);
    sim.f.n_streams--;
    return sim_leave(e);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    cudaError_t e = sim_enter(cudaErrorLaunchFailure);

    if (e != cudaSuccess)
        return e;
    if (!sim_stream_known(s))
        return sim_leave(sim_mistake(cudaErrorInvalidResourceHandle, "no stream to wait for"));
    return sim_leave(do_until(s, s->queued));
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t e = sim_enter(cudaErrorLaunchFailure);

    return e == cudaSuccess ? sim_leave(sim_drain_all()) : e;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned int flags)
{
    cudaError_t e = sim_enter(cudaErrorInvalidResourceHandle);
    piece *p = NULL;

    if (e != cudaSuccess)
        return e;
    if (flags != 0 || !event)
        return sim_leave(sim_mistake(cudaErrorInvalidValue, "cudaStreamWaitEvent: flags or event"));
    if (event->done < event->recorded && (e = append(s, WAIT, NULL, 0, &p)) == cudaSuccess) {
        p->event = event;
        p->version = event->recorded;
        p->from = event->stream;
    }
    return sim_leave(e);
}

/* ---------------------------------------------------------------------- events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    cudaError_t e = sim_enter(cudaErrorMemoryAllocation);

    if (e != cudaSuccess)
        return e;
    (void)flags;
    *out = calloc(1, sizeof **out);
    sim.f.n_events += *out != NULL;
    return sim_leave(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t e = sim_enter_release(),
                drained = sim_drain_all(); /* what is queued points to it */

    free(event);
    sim.f.n_events--;
    return sim_leave(e == cudaSuccess ? drained : e);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
    cudaError_t e = sim_enter(cudaErrorInvalidResourceHandle);
    piece *p = NULL;

    if (e != cudaSuccess)
        return e;
    e = append(s, RECORD, NULL, 0, &p);
    if (e == cudaSuccess) {
        p->event = event;
        p->version = ++event->recorded;
        event->stream = s;
    }
    return sim_leave(e);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t e = sim_enter(cudaErrorLaunchFailure);

    if (e != cudaSuccess)
        return e;
    while (e == cudaSuccess && event->done < event->recorded)
        e = do_until(event->stream, event->stream->done + 1);
    return sim_leave(e == cudaSuccess ? sim.sticky : e);
}

/* ---------------------------------------------------------- copies and launches */

typedef struct copy {
    void *dst;
    const void *src;
    void *staged; /* from pageable memory */
    size_t bytes;
    int value; /* of a fill; -1: a copy */
} copy;

static const char *do_copy(void *arg)
{
    const copy *c = arg;

    if (c->value >= 0)
        memset(c->dst, c->value, c->bytes);
    else
        memcpy(c->dst, c->staged ? c->staged : c->src, c->bytes);
    free(c->staged);
    return NULL;
}

/* Direction and places agree, and nothing reaches beyond a piece of memory. */
static bool places_fit(const copy *c, enum cudaMemcpyKind kind, sim_place *host)
{
    bool dst_whole, src_whole;
    sim_place dst = sim_place_of(c->dst, c->bytes, &dst_whole);
    sim_place src = sim_place_of(c->src, c->bytes, &src_whole);

    *host = kind == cudaMemcpyHostToDevice ? src : dst;
    if (!dst_whole || !src_whole)
        return false;
    if (kind == cudaMemcpyDeviceToDevice)
        return dst == SIM_DEVICE && src == SIM_DEVICE;
    if (kind == cudaMemcpyHostToDevice)
        return dst == SIM_DEVICE && src != SIM_DEVICE;
    return kind == cudaMemcpyDeviceToHost && dst != SIM_DEVICE && src == SIM_DEVICE;
}

static cudaError_t queue_copy(copy *c, enum cudaMemcpyKind kind, cudaStream_t s)
{
    sim_place host;
    cudaError_t e;

    if (!places_fit(c, kind, &host))
        return sim_mistake(cudaErrorInvalidValue,
                           "a copy of %zu bytes of kind %d from %p to %p is not inside of memory "
                           "of that kind",
                           c->bytes, (int)kind, c->src, c->dst);
    if (kind == cudaMemcpyHostToDevice) {
        sim.f.bytes_to_device += c->bytes;
        if (host == SIM_PAGEABLE) {
            c->staged = malloc(c->bytes);
            if (!c->staged)
                return cudaErrorMemoryAllocation;
            memcpy(c->staged, c->src, c->bytes);
        }
    }
    e = sim_queue(s, do_copy, c, sizeof *c);
    if (kind == cudaMemcpyDeviceToHost) {
        sim.f.bytes_to_host += c->bytes;
        if (e == cudaSuccess && host == SIM_PAGEABLE)
            e = do_until(s, s->queued);
    }
    return e;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    cudaError_t e = sim_enter(cudaErrorLaunchFailure);
    copy c = {.dst = dst, .src = src, .bytes = count, .value = -1};

    if (e != cudaSuccess)
        return e;
    return sim_leave(count ? queue_copy(&c, kind, s) : cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t count, cudaStream_t s)
{
    cudaError_t e = sim_enter(cudaErrorLaunchFailure);
    copy c = {.dst = p, .bytes = count, .value = value & 0xFF};
    bool whole;

    if (e != cudaSuccess)
        return e;
    if (sim_place_of(p, count, &whole) != SIM_DEVICE || !whole)
        return sim_leave(
            sim_mistake(cudaErrorInvalidValue, "cudaMemsetAsync outside of device memory"));
    return sim_leave(sim_queue(s, do_copy, &c, sizeof c));
}

typedef struct launch {
    sim_kernel k;
    _Alignas(16) unsigned char function[16];
    _Alignas(16) unsigned char args[4080]; /* CUDA's own limit is 4 KiB and more */
} launch;

static const char *do_launch(void *arg)
{
    static char why[400];
    launch *l = arg;

    l->k.function = l->function;
    l->k.args = l->args;
    return sim_fiber_run(&l->k, sim.o.order, why, sizeof why) ? NULL : why;
}

/* A word that is an address of the host's heap, stack or code: the device could not follow it. They
 * lie high; two sizes side by side look like a lower address, and a small number with whatever is
 * in the padding behind it has a small lower half. */
static bool is_host_address(uint64_t word)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bool whole;

    if (word < (uint64_t)5 << 44 || word >> 47 || (uint32_t)word < 1u << 16)
        return false;
    if (sim_place_of((void *)(uintptr_t)word, 1, &whole) != SIM_PAGEABLE)
        return false;
    return msync((void *)(uintptr_t)(word / page * page), page, MS_ASYNC) == 0;
}

cudaError_t sim_launch(sim_run_fn run, const void *kernel, dim3 grid, dim3 block,
                       size_t shared_bytes, cudaStream_t stream, const void *args,
                       size_t args_bytes)
{
    cudaError_t e = sim_enter(cudaErrorLaunchFailure);
    launch l = {.k = {.run = run, .grid = grid, .block = block, .shared_bytes = shared_bytes}};

    if (e != cudaSuccess)
        return e;
    if (args_bytes > sizeof l.args)
        return sim_leave(sim_mistake(cudaErrorInvalidValue, "a kernel's arguments are too large"));
    for (size_t at = 0; at + 8 <= args_bytes; at += 8) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)args + at, sizeof word);
        if (is_host_address(word))
            return sim_leave(sim_mistake(cudaErrorIllegalAddress,
                                         "a kernel is given an address of the host (argument byte "
                                         "%zu)",
                                         at));
    }
    memcpy(l.function, kernel, sizeof(void (*)(void)));
    memcpy(l.args, args, args_bytes);
    sim.f.n_launches++;
    return sim_leave(sim_queue(stream, do_launch, &l,
                               sizeof l - sizeof l.args + ((args_bytes + 15) & ~(size_t)15)));
}
