/* simde_backend.c -- lets every kernel check run the AVX-512 tier on a machine without AVX-512.
 *
 * A check program linked with this file and `--wrap=tsr_cpu_backend` gets, for the tier avx512, the
 * portable backend with its table replaced by the one that cmake/simd.cmake compiles through
 * SIMDe; the portable tier stays itself (the checks compare with it), the others are absent. */
#include "kernels/cpu/cpu.h"

void tsr_cpu_fill_avx512_simde(tsr_cpu_table *t);
const tsr_backend *__real_tsr_cpu_backend(tsr_cpu_tier tier);
const tsr_backend *__wrap_tsr_cpu_backend(tsr_cpu_tier tier);

const tsr_backend *__wrap_tsr_cpu_backend(tsr_cpu_tier tier)
{
    static tsr_cpu_table table;
    static tsr_backend backend;
    const tsr_backend *portable = __real_tsr_cpu_backend(TSR_TIER_PORTABLE);

    if (tier == TSR_TIER_PORTABLE)
        return portable;
    if (tier != TSR_TIER_AVX512)
        return NULL;
    if (!backend.impl) { /* checks ask from one thread */
        tsr_cpu_fill_portable(&table);
        tsr_cpu_fill_avx512_simde(&table);
        backend = *portable;
        backend.tier = "avx512 by SIMDe";
        backend.impl = &table;
    }
    return &backend;
}
