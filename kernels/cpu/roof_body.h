/* roof_body.h -- multiply-adds that never leave the registers: what no kernel of the tier can beat.
 *
 * ROOF_CHAINS chains hide the latency (4 or 5 cycles on 2 pipes need 10). Values stay near 1. */
#ifndef TSR_KERNELS_CPU_ROOF_BODY_H
#define TSR_KERNELS_CPU_ROOF_BODY_H

enum { ROOF_CHAINS = 12 };

static double roof_fma(int32_t rounds)
{
    vec sum[ROOF_CHAINS], x = vec_set(0.999f), y = vec_set(1e-3f);
    volatile float sink;

    for (int32_t i = 0; i < ROOF_CHAINS; i++)
        sum[i] = vec_set((float)i);
    for (int32_t k = 0; k < rounds; k++)
#pragma GCC unroll 12
        for (int32_t i = 0; i < ROOF_CHAINS; i++)
            sum[i] = vec_fma(sum[i], x, y);
    for (int32_t i = 1; i < ROOF_CHAINS; i++)
        sum[0] = vec_add(sum[0], sum[i]);
    sink = vec_sum(sum[0]); /* or nothing above is computed */
    (void)sink;
    return 2.0 * ROOF_CHAINS * VEC_N * rounds;
}

#endif
