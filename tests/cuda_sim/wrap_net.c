/* wrap_net.c -- lets tests of whole networks run on the simulated device.
 *
 * A program linked with this file and `--wrap` of the functions below gets the CUDA backend in the
 * place of every tier, and arenas in the device's memory. The order of fibers and
 * streams changes with every arena. */

#include "memory/arena.h"
#include "tests/cuda_sim/open_sim.h"

const tsr_backend *__wrap_tsr_cpu_backend(tsr_cpu_tier tier);
tsr_status __wrap_tsr_arena_make(tsr_arena *a, size_t bytes, tsr_err *err);
void __wrap_tsr_arena_free(tsr_arena *a);

const tsr_backend *__wrap_tsr_cpu_backend(tsr_cpu_tier tier)
{
    (void)tier;
    return sim_backend();
}

tsr_status __wrap_tsr_arena_make(tsr_arena *a, size_t bytes, tsr_err *err)
{
    static uint64_t arenas;
    const tsr_backend *b = sim_backend();
    sim_options o = {.order = {.kind = (sim_order_kind)(arenas % 3), .seed = arenas},
                     .streams = (sim_stream_kind)(arenas / 3 % 3),
                     .stream_seed = arenas};
    void *base = NULL;

    arenas++;
    sim_controls()->set(&o);
    *a = (tsr_arena){0};
    TSR_TRY(b->device->reserve(b, bytes, &base, err));
    *a = (tsr_arena){.base = base, .bytes = bytes};
    return TSR_OK;
}

void __wrap_tsr_arena_free(tsr_arena *a)
{
    if (a->base)
        sim_backend()->device->release(sim_backend(), a->base);
    *a = (tsr_arena){0};
}
