/* cpu_avx512fp16.c -- the AVX512-FP16 tier: the AVX-512 tier, but linear layers with weights in
 * half are summed up in halves, chunk by chunk, on register tiles of 12x64. See gemm_half_tile.h.
 */
#include "kernels/cpu/vec_avx512fp16.h"

enum { PACK_SCALED = 1 };
#include "kernels/cpu/tier_body.h"
#include "kernels/cpu/gemm_half_body.h"

void tsr_cpu_fill_avx512fp16(tsr_cpu_table *t)
{
    t->name = "avx512fp16";
    t->tier = TSR_TIER_AVX512FP16;
    tier_fill(t);
    t->run[TSR_OP_LINEAR] = linear_half_run;
}
