/* memory_device.c -- a run whose networks are on a device: two memories, two budgets.
 *
 * The device: what opening it took (as the driver told it), what libraries load when they run for
 * the first time, plus one arena for the networks, in the driver's pieces of 2 MiB. The budget
 * bounds that sum, and the driver is asked for it after each phase. What libraries load is not
 * known before they have run: with the arena reserved, each of their plans is run once, the driver
 * is asked, and where that was more than was planned with, all is planned again. So it is, once,
 * where others took what the plan was made for.
 *
 * The host: code, heap (with inputs and outputs of the networks, and where weights are packed), the
 * pinned slots, the state, what is spilled (pinned, too), and the copies of the picture's encoder.
 * --host-budget bounds that. */
#include "pipeline/pipeline_internal.h"

#include "base/num.h"
#include "memory/budget.h"

#define GRAIN ((size_t)2 << 20)

const tsr_device *tsr_run_device(const tsr_run *r)
{
    return r->ctx->backend->device;
}

size_t tsr_device_bytes(size_t bytes)
{
    return tsr_align_up(bytes, GRAIN);
}

size_t tsr_run_device_budget(const tsr_run *r)
{
    const size_t least = (size_t)64 << 20, most = (size_t)1 << 30;
    size_t held = 0, free_bytes = 0, margin;
    tsr_err ignored = {0};

    if (tsr_run_device(r)->measure(r->ctx->backend, &held, &free_bytes, &ignored) != TSR_OK)
        return 1; /* the next call to the device says why */
    margin = tsr_min_size(tsr_max_size(free_bytes / 16, least), most);
    return held + (free_bytes > margin ? free_bytes - margin : 0);
}

tsr_status tsr_run_plan_host(tsr_run *r)
{
    size_t budget = r->set.host_budget_bytes;
    char need[32], have[32];

    r->host_peak = tsr_run_host_base(r) + r->state.bytes + tsr_nets_spill(&r->nets) +
                   tsr_run_image_bytes(&r->set);
    if (budget == 0 || r->host_peak <= budget)
        return TSR_OK;
    TSR_FAIL(&r->ctx->err, TSR_E_BUDGET,
             "the run needs %s of host memory and --host-budget is %s; the smallest is %zu bytes",
             tsr_bytes_text(r->host_peak, need, sizeof need),
             tsr_bytes_text(budget, have, sizeof have), r->host_peak);
}

tsr_status tsr_run_reserve_device(tsr_run *r)
{
    const tsr_backend *b = r->ctx->backend;
    size_t bytes = tsr_nets_bytes(&r->nets), spill = tsr_nets_spill(&r->nets);
    void *memory = NULL;

    TSR_TRY(b->device->reserve(b, bytes, &memory, &r->ctx->err));
    r->device_arena = (tsr_arena){.base = memory, .bytes = bytes};
    if (spill > 0) {
        TSR_TRY(b->device->pin(b, spill, &memory, &r->ctx->err));
        r->spill.memory = memory;
    }
    return TSR_OK;
}

/* What the networks need of libraries is built and run once, on whatever the arena holds. */
static void try_out(tsr_program *p, void *arg)
{
    tsr_run *r = arg;

    tsr_program_bind(p, &r->device_arena, 0);
    if (r->tried == TSR_OK)
        r->tried = tsr_program_prepare(p, true);
}

tsr_status tsr_run_try_device(tsr_run *r, bool *grown)
{
    const tsr_backend *b = r->ctx->backend;
    size_t held = 0, free_bytes, known;

    r->tried = TSR_OK;
    tsr_nets_each(&r->nets, try_out, r);
    TSR_TRY(r->tried);
    TSR_TRY(b->device->finish(b, &r->ctx->err));
    TSR_TRY(b->device->measure(b, &held, &free_bytes, &r->ctx->err));
    r->device_arena.high_water = 0;
    known = r->base_bytes + tsr_device_bytes(r->device_arena.bytes);
    *grown = held > known;
    if (*grown)
        r->ctx->library_bytes += held - known;
    return TSR_OK;
}

void tsr_run_free_device(tsr_run *r)
{
    const tsr_backend *b = r->ctx->backend;

    if (r->spill.memory)
        b->device->unpin(b, r->spill.memory);
    if (r->device_arena.base)
        b->device->release(b, r->device_arena.base);
    r->spill.memory = NULL;
    r->device_arena = (tsr_arena){0};
}

void tsr_run_measure_device(tsr_run *r, int32_t phase)
{
    tsr_err ignored = {0};
    size_t held = 0, free_bytes;
    tsr_phase_info *p = &r->phases[phase];

    if (tsr_run_device(r)->measure(r->ctx->backend, &held, &free_bytes, &ignored) != TSR_OK)
        return; /* a device that fails here fails in the next phase, which says so */
    p->measured_bytes = tsr_max_size(p->measured_bytes, held);
    r->measured_peak = tsr_max_size(r->measured_peak, held);
    r->arena_high_water = tsr_max_size(r->arena_high_water, r->device_arena.high_water);
    r->device_arena.high_water = 0;
}
