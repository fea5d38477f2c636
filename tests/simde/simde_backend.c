/* simde_backend.c -- lets every kernel check run the AVX-512 tiers on a machine without AVX-512.
 *
 * A check program linked with this file and `--wrap=tsr_cpu_backend` gets, for the tiers avx512 and
 * avx512fp16, the portable backend with its table replaced by the one that cmake/simd.cmake
 * compiles through SIMDe; the portable tier stays itself (the checks compare with it), avx2 is
 * absent. */
#include "kernels/cpu/cpu.h"

void tsr_cpu_fill_avx512_simde(tsr_cpu_table *t);
void tsr_cpu_fill_avx512fp16_simde(tsr_cpu_table *t);
const tsr_backend *__real_tsr_cpu_backend(tsr_cpu_tier tier);
const tsr_backend *__wrap_tsr_cpu_backend(tsr_cpu_tier tier);

typedef struct simde_tier {
    tsr_cpu_table table;
    tsr_backend backend;
} simde_tier;

const tsr_backend *__wrap_tsr_cpu_backend(tsr_cpu_tier tier)
{
    static simde_tier tiers[2];
    const tsr_backend *portable = __real_tsr_cpu_backend(TSR_TIER_PORTABLE);
    bool halves = tier == TSR_TIER_AVX512FP16;
    simde_tier *s = &tiers[halves];

    if (tier == TSR_TIER_PORTABLE)
        return portable;
    if (tier != TSR_TIER_AVX512 && !halves)
        return NULL;
    if (!s->backend.impl) { /* checks ask from one thread */
        tsr_cpu_fill_portable(&s->table);
        tsr_cpu_fill_avx512_simde(&s->table);
        if (halves)
            tsr_cpu_fill_avx512fp16_simde(&s->table);
        s->backend = *portable;
        s->backend.tier = halves ? "avx512fp16 by SIMDe" : "avx512 by SIMDe";
        s->backend.impl = &s->table;
    }
    return &s->backend;
}
