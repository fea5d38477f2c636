/* cpu_avx512.c -- the AVX-512 tier (F, BW, DQ, VL): the shared bodies on vectors of 16 floats,
 * register tiles of 12x32. See tier_body.h. */
#include "kernels/cpu/vec_avx512.h"

enum { PACK_SCALED = 0 };
#include "kernels/cpu/tier_body.h"

void tsr_cpu_fill_avx512(tsr_cpu_table *t)
{
    t->name = "avx512";
    t->tier = TSR_TIER_AVX512;
    tier_fill(t);
}
