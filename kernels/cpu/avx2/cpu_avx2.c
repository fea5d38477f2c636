/* cpu_avx2.c -- the AVX2 + FMA + F16C tier: the shared bodies on vectors of 8 floats, register
 * tiles of 6x16. See tier_body.h. */
#include "kernels/cpu/vec_avx2.h"

enum { PACK_SCALED = 0 };
#include "kernels/cpu/tier_body.h"

void tsr_cpu_fill_avx2(tsr_cpu_table *t)
{
    t->name = "avx2";
    t->tier = TSR_TIER_AVX2;
    tier_fill(t);
}
