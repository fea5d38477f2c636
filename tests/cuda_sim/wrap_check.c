/* wrap_check.c -- lets every kernel check run on the simulated device.
 *
 * A check program linked with this file and `--wrap=tsr_cpu_backend` gets, in the place of the tier
 * avx2, a backend that computes each call on the simulated device: every operand is copied there
 * with its guards, into memory of its own, and everything that the kernel may have written is
 * copied back, guards included. So a check sees the same as on the CPU, and the device's red zones
 * lie around what the guards do not cover. The order of fibers changes from call to call.
 *
 * With SIM_ENGINES 0 the libraries propose nothing, so that the own kernels are checked; with 1
 * the libraries' side is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_sim/open_sim.h"

enum { GUARD = 64, MAX_COPIES = 12 };

const tsr_backend *__real_tsr_cpu_backend(tsr_cpu_tier tier);
const tsr_backend *__wrap_tsr_cpu_backend(tsr_cpu_tier tier);

typedef struct mirror {
    unsigned char *host, *device; /* with a guard on each side */
    size_t bytes;
} mirror;

typedef struct mirrors {
    const tsr_backend *d;
    mirror all[MAX_COPIES];
    int32_t n;
} mirrors;

static void must(tsr_status st, const tsr_err *err)
{
    if (st == TSR_OK)
        return;
    fprintf(stderr, "the simulated device: %s (%s)\n", err->msg, sim_controls()->fault());
    exit(1);
}

/* The device's address of `bytes` bytes at p; the same for the same p. */
static void *send(mirrors *m, const void *p, size_t bytes)
{
    mirror *x = &m->all[m->n];
    tsr_err err = {0};
    void *device;

    if (!p || !bytes)
        return NULL;
    for (int32_t i = 0; i < m->n; i++)
        if ((const unsigned char *)p >= m->all[i].host + GUARD &&
            (const unsigned char *)p + bytes <= m->all[i].host + GUARD + m->all[i].bytes)
            return m->all[i].device + ((const unsigned char *)p - m->all[i].host);
    x->host = (unsigned char *)(uintptr_t)p - GUARD;
    x->bytes = bytes;
    must(m->d->device->reserve(m->d, bytes + 2 * GUARD, &device, &err), &err);
    x->device = device;
    m->d->device->upload(m->d, TSR_QUEUE_COMPUTE, x->device, x->host, bytes + 2 * GUARD);
    m->n++;
    return x->device + GUARD;
}

static size_t tensor_bytes(const tsr_tensor *t)
{
    return t->data ? (size_t)(t->n - 1) * t->entry_stride + (size_t)t->n_rows * t->row_stride : 0;
}

static void take_back(mirrors *m)
{
    tsr_err err = {0};

    for (int32_t i = 0; i < m->n; i++)
        m->d->device->download(m->d, TSR_QUEUE_COMPUTE, m->all[i].host, m->all[i].device,
                               m->all[i].bytes + 2 * GUARD);
    must(m->d->device->finish(m->d, &err), &err);
    for (int32_t i = 0; i < m->n; i++)
        m->d->device->release(m->d, m->all[i].device);
    must(m->d->device->finish(m->d, &err), &err);
}

/* Other orders with every call. */
static void shuffle(void)
{
    static uint64_t calls;
    sim_options o = {.order = {.kind = (sim_order_kind)(calls % 3), .seed = calls},
                     .no_engines = !SIM_ENGINES};

    calls++;
    sim_controls()->set(&o);
}

static size_t weight_bytes(const tsr_backend *d, const tsr_call *c, int32_t k)
{
    const tsr_weight *w = c->wd[k];
    int32_t c1 = c->window.c1;

    if (!w)
        return 0;
    if (k == 0 && c1)
        return d->packed_offset(d, c->op, w, c1) - d->packed_offset(d, c->op, w, c->window.c0);
    return d->packed_bytes(d, c->op, w);
}

/* A tape that has the call's values alone: the backend's questions are about shapes. */
static size_t stats_bytes(const tsr_backend *d, const tsr_call *c)
{
    tsr_value values[2] = {{0}};
    tsr_op op = *c->op;
    tsr_tape t = {.values = values, .n_values = 2};
    const tsr_tensor *like = c->out.n ? &c->out : &c->in[0];

    op.out = 1;
    values[1] = (tsr_value){.n = like->n, .h = like->h, .w = like->w, .c = like->c};
    return d->stats_bytes(d, &t, &op);
}

static size_t carry_bytes(const tsr_backend *d, const tsr_call *c)
{
    tsr_value values[2] = {{0}};
    tsr_op op = *c->op;
    tsr_tape t = {.values = values, .n_values = 2};

    op.out = op.in[0] = 1;
    values[1] = (tsr_value){.n = c->in[0].n, .h = c->in[0].h, .w = c->in[0].w, .c = c->in[0].c};
    return d->carry_bytes(d, &t, &op, &c->window);
}

static void on_device(const tsr_call *call, bool stats_only)
{
    const tsr_backend *d = sim_backend();
    mirrors m = {.d = d};
    tsr_call c = *call;
    tsr_err err = {0};

    shuffle();
    if (!stats_only)
        c.out.data = send(&m, call->out.data, tensor_bytes(&call->out));
    for (int32_t k = 0; k < 4; k++)
        c.in[k].data = send(&m, call->in[k].data, tensor_bytes(&call->in[k]));
    for (int32_t k = 0; k < 2; k++)
        c.w[k] = send(&m, call->w[k], weight_bytes(d, call, k));
    c.stats = send(&m, call->stats, call->stats ? stats_bytes(d, call) : 0);
    c.carry = send(&m, call->carry, call->carry ? carry_bytes(d, call) : 0);
    c.work = send(&m, call->work, call->work_bytes);
    c.pool = NULL;
    if (stats_only) {
        d->norm_stats(d, &c);
    } else {
        must(d->device->prepare(d, &c, false, &err), &err);
        d->run(d, &c);
    }
    take_back(&m);
}

static void run(const tsr_backend *b, const tsr_call *call)
{
    (void)b;
    on_device(call, false);
}

static void norm_stats(const tsr_backend *b, const tsr_call *call)
{
    (void)b;
    on_device(call, true);
}

static bool all_finite(const tsr_backend *b, const tsr_tensor *x, tsr_pool *pool)
{
    const tsr_backend *d = sim_backend();
    mirrors m = {.d = d};
    tsr_tensor copy = *x;
    bool finite;

    (void)b;
    copy.data = send(&m, x->data, tensor_bytes(x));
    finite = d->all_finite(d, &copy, pool);
    take_back(&m);
    return finite;
}

/* The checks allow more to a method than to the plain sum. */
static const char *no_method(const tsr_backend *b, const tsr_tape *t, const tsr_op *op)
{
    (void)b;
    (void)t;
    (void)op;
    return NULL;
}

static int32_t no_tiles(const tsr_backend *b, const tsr_tape *t, const tsr_op *op)
{
    (void)b;
    (void)t;
    (void)op;
    return 1;
}

const tsr_backend *__wrap_tsr_cpu_backend(tsr_cpu_tier tier)
{
    static tsr_backend shim;

    if (tier == TSR_TIER_PORTABLE)
        return __real_tsr_cpu_backend(tier);
    if (tier != TSR_TIER_AVX2)
        return NULL;
    if (!shim.name) {
        shim = *sim_backend();
        shim.tier = "cuda-sim";
        shim.run = run;
        shim.norm_stats = norm_stats;
        shim.all_finite = all_finite;
        shim.method = no_method;
        shim.row_unit = no_tiles;
        shim.least_work = shim.work_bytes;
        shim.in_place = SIM_ENGINES ? sim_backend()->in_place : NULL;
        shim.device = NULL;
    }
    return &shim;
}
