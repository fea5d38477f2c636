/* test_device.c -- a program on the simulated device: waits, failures, leaks, sentences.
 *
 * The network streams its weights and spills values, so that both queues have work. Mistakes are
 * planted: a device whose queues do not wait must give other bits in some order, else the orders of
 * sim_stream.c would prove nothing. */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_sim/open_sim.h"
#include "tests/support/toy_net.h"
#include "tests/support/test.h"

enum { ORDERS = 9, STEPS = 2 };

/* What is left out. */
typedef enum planted { NOTHING, COMPUTE_WAITS, COPY_FENCES } planted;

static planted missing;
static void (*real_await)(const tsr_backend *b, tsr_queue q, int32_t event);

static void await_some(const tsr_backend *b, tsr_queue q, int32_t event)
{
    if ((missing == COMPUTE_WAITS && q == TSR_QUEUE_COMPUTE) ||
        (missing == COPY_FENCES && q == TSR_QUEUE_COPY))
        return;
    real_await(b, q, event);
}

typedef struct rig {
    toy_net net;
    tsr_program p;
    tsr_pool *pool;
    tsr_io *io;
    tsr_backend *opened, b;
    tsr_device device;
    tsr_arena arena;
    tsr_spill spill;
} rig;

static void *zeroed(size_t bytes)
{
    return calloc(1, bytes ? bytes : 1);
}

static tsr_status rig_plan(rig *r, bool streamed)
{
    tsr_plan_options opt = {.offload = streamed ? TSR_OFFLOAD_STREAM : TSR_OFFLOAD_NONE,
                            .may_spill = true};

    TSR_TRY(tsr_pool_make(&r->pool, 1, &r->net.err));
    TSR_TRY(tsr_io_make(&r->io, &r->net.err));
    TSR_TRY(tsr_program_make(&r->p, &r->net.tape, &r->b, r->pool, &opt, &r->net.err));
    opt.budget_bytes = r->p.minimum_bytes;
    tsr_program_free(&r->p);
    return tsr_program_make(&r->p, &r->net.tape, &r->b, r->pool, streamed ? &opt : NULL,
                            &r->net.err);
}

static tsr_status rig_make(rig *r, const sim_options *o, bool streamed)
{
    static const tsr_plugin_host host = {zeroed, free};
    void *p = NULL;

    memset(r, 0, sizeof *r);
    sim_controls()->set(o);
    TSR_TRY(toy_net_record(&r->net, TSR_F16, TSR_F16, false));
    TSR_TRY(sim_plugin()->open(&host, 0, &r->opened, &r->net.err));
    r->b = *r->opened;
    r->device = *r->opened->device;
    real_await = r->device.await;
    r->device.await = await_some;
    r->b.device = &r->device;
    TSR_TRY(rig_plan(r, streamed));
    TSR_TRY(r->device.reserve(&r->b, tsr_program_bytes(&r->p), &p, &r->net.err));
    r->arena = (tsr_arena){.base = p, .bytes = tsr_program_bytes(&r->p)};
    TSR_TRY(r->device.pin(&r->b, r->p.spill_bytes + 1, &p, &r->net.err));
    r->spill.memory = p;
    tsr_program_bind(&r->p, &r->arena, 0);
    tsr_program_set_io(&r->p, r->io, &r->spill);
    return TSR_OK;
}

static void rig_free(rig *r)
{
    sim_figures f;

    tsr_io_free(r->io);
    if (r->spill.memory)
        r->device.unpin(&r->b, r->spill.memory);
    if (r->arena.base)
        r->device.release(&r->b, r->arena.base);
    tsr_program_free(&r->p);
    toy_net_free(&r->net);
    tsr_pool_free(r->pool);
    sim_plugin()->close(r->opened);
    sim_controls()->set(&(sim_options){0});
    sim_controls()->figures(&f);
    CHECK_MSG(f.n_allocations == 0 && f.pinned == 0 && f.n_streams == 0 && f.n_events == 0,
              "left: %zu allocations, %zu pinned bytes, %zu streams, %zu events", f.n_allocations,
              f.pinned, f.n_streams, f.n_events);
}

/* The image of the last step in a heap block, when all goes well. */
static tsr_status rig_run(rig *r, unsigned char **image, size_t *bytes)
{
    *bytes = tsr_value_bytes(tsr_tape_value(&r->net.tape, r->net.noise));
    TSR_TRY(tsr_program_load(&r->p));
    toy_net_fill_prologue(&r->net, &r->p);
    TSR_TRY(tsr_program_run_prologue(&r->p));
    for (int32_t i = 0; i < STEPS; i++) {
        toy_net_fill_step(&r->net, &r->p, i);
        TSR_TRY(tsr_program_run_step(&r->p, i));
    }
    *image = malloc(*bytes);
    memcpy(*image, tsr_program_data(&r->p, r->net.noise), *bytes);
    return TSR_OK;
}

static sim_options order(int i)
{
    return (sim_options){.order = {.kind = (sim_order_kind)(i % 3), .seed = (uint64_t)i},
                         .streams = (sim_stream_kind)(i / 3 % 3),
                         .stream_seed = (uint64_t)i};
}

/* In how many orders a streamed run has the bits of a resident one. */
static int right_orders(planted what)
{
    unsigned char *want = NULL;
    size_t bytes = 0;
    int right = 0;
    rig r;

    missing = NOTHING;
    CHECK(rig_make(&r, &(sim_options){0}, false) == TSR_OK && rig_run(&r, &want, &bytes) == TSR_OK);
    rig_free(&r);
    for (int i = 0; i < ORDERS; i++) {
        sim_options o = order(i);
        unsigned char *got = NULL;
        missing = what;
        CHECK_MSG(rig_make(&r, &o, true) == TSR_OK && rig_run(&r, &got, &bytes) == TSR_OK, "%s",
                  r.net.err.msg);
        CHECK(r.p.bytes_streamed > 0 && r.p.bytes_spilled > 0);
        right += got && want && memcmp(got, want, bytes) == 0;
        missing = NOTHING;
        rig_free(&r);
        free(got);
    }
    free(want);
    return right;
}

static void device__streamed_and_spilled__has_the_bits_in_every_order(void)
{
    CHECK(right_orders(NOTHING) == ORDERS);
}

static void device__compute_that_does_not_wait_for_copies__shows(void)
{
    CHECK(right_orders(COMPUTE_WAITS) < ORDERS);
}

static void device__copies_that_do_not_wait_for_compute__show(void)
{
    CHECK(right_orders(COPY_FENCES) < ORDERS);
}

/* -------------------------------------------------------------------- failures */

/* Fails call n of everything; false when there are fewer calls. */
static bool fail_call(uint64_t n)
{
    unsigned char *image = NULL;
    size_t bytes;
    tsr_status st;
    bool failed;
    rig r;

    sim_controls()->fail_at(n);
    st = rig_make(&r, &(sim_options){0}, true);
    if (st == TSR_OK)
        st = rig_run(&r, &image, &bytes);
    failed = sim_controls()->failed();
    sim_controls()->fail_at(0);
    CHECK_MSG(!failed || st == TSR_E_DEVICE || st == TSR_E_OOM, "call %d: status %d", (int)n,
              (int)st);
    CHECK_MSG(st == TSR_OK || r.net.err.msg[0], "call %d has no sentence", (int)n);
    rig_free(&r);
    free(image);
    return failed;
}

static void device__any_call_fails__is_told_and_nothing_leaks(void)
{
    uint64_t n = 1;

    while (fail_call(n))
        n += test_long() ? 1 : 1 + n / 16;
    CHECK(n > 100);
    test_note("%d calls", (int)n);
}

static void device__lost__is_one_sentence(void)
{
    static const struct {
        int32_t error;
        const char *says;
    } cases[] = {{214 /* cudaErrorECCUncorrectable */, "memory is damaged"},
                 {46 /* cudaErrorDevicesUnavailable */, "the device failed while"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *image = NULL;
        size_t bytes;
        rig r;
        REQUIRE(rig_make(&r, &(sim_options){0}, true) == TSR_OK);
        sim_controls()->lose_device(cases[i].error);
        CHECK(rig_run(&r, &image, &bytes) == TSR_E_DEVICE);
        CHECK_MSG(strstr(r.net.err.msg, cases[i].says) != NULL, "\"%s\"", r.net.err.msg);
        rig_free(&r);
    }
}

static void device__too_small__says_how_much_is_free(void)
{
    rig r;

    CHECK(
        rig_make(&r,
                 &(sim_options){.device_bytes = (size_t)306 << 20, .others_bytes = (size_t)4 << 20},
                 false) == TSR_E_OOM);
    CHECK_MSG(strstr(r.net.err.msg, "0 MiB are free") != NULL, "\"%s\"", r.net.err.msg);
    rig_free(&r);
}

static void open__machines_that_cannot__say_why(void)
{
    static const tsr_plugin_host host = {zeroed, free};
    static const struct {
        sim_options o;
        int32_t index;
        const char *says;
    } cases[] = {{{.driver = -1}, 0, "there is no NVIDIA driver"},
                 {{.driver = 12080}, 0, "driver is for CUDA 12.8"},
                 {{.capability = 70}, 0, "7.0 is below 7.5"},
                 {{.n_devices = 2}, 2, "the devices are 0 to 1"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_backend *b = NULL;
        tsr_err err = {0};
        sim_controls()->set(&cases[i].o);
        CHECK(sim_plugin()->open(&host, cases[i].index, &b, &err) == TSR_E_DEVICE && !b);
        CHECK_MSG(strstr(err.msg, cases[i].says) != NULL, "\"%s\"", err.msg);
    }
    sim_controls()->set(&(sim_options){0});
}

static void list__two_devices__have_names_and_sizes(void)
{
    tsr_device_info d[4];
    tsr_err err = {0};
    int32_t n = 0;

    sim_controls()->set(&(sim_options){.n_devices = 2, .capability = 86});
    CHECK(sim_plugin()->list(d, 4, &n, &err) == TSR_OK && n == 2);
    CHECK(d[1].index == 1 && d[1].capability == 86 && d[1].total_bytes == (size_t)8 << 30);
    CHECK(strcmp(d[1].name, "simulated device 1") == 0 && d[1].why_not[0] == 0);
    sim_controls()->set(&(sim_options){0});
}

int main(void)
{
    RUN(device__streamed_and_spilled__has_the_bits_in_every_order);
    RUN(device__compute_that_does_not_wait_for_copies__shows);
    RUN(device__copies_that_do_not_wait_for_compute__show);
    RUN(device__any_call_fails__is_told_and_nothing_leaks);
    RUN(device__lost__is_one_sentence);
    RUN(device__too_small__says_how_much_is_free);
    RUN(open__machines_that_cannot__say_why);
    RUN(list__two_devices__have_names_and_sizes);
    return test_end();
}
