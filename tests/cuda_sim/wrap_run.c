/* wrap_run.c -- lets tests of whole runs use the simulated device.
 *
 * A program linked with this file and `--wrap=tsr_context_make` gets cuda-sim wherever it asks for
 * no backend. The order of fibers and streams changes with every context. */
#include "tests/cuda_sim/open_sim.h"

tsr_status __real_tsr_context_make(tsr_context **ctx, const tsr_context_desc *desc, char *why,
                                   size_t why_bytes);
tsr_status __wrap_tsr_context_make(tsr_context **ctx, const tsr_context_desc *desc, char *why,
                                   size_t why_bytes);

tsr_status __wrap_tsr_context_make(tsr_context **ctx, const tsr_context_desc *desc, char *why,
                                   size_t why_bytes)
{
    static uint64_t contexts;
    tsr_context_desc d = *desc;
    sim_options o = {.order = {.kind = (sim_order_kind)(contexts % 3), .seed = contexts},
                     .streams = (sim_stream_kind)(contexts / 3 % 3),
                     .stream_seed = contexts};

    contexts++;
    sim_controls()->set(&o);
    if (d.backend == TSR_BACKEND_AUTO && d.cpu_tier == TSR_TIER_AUTO)
        d.backend = TSR_BACKEND_CUDA_SIM;
    return __real_tsr_context_make(ctx, &d, why, why_bytes);
}
