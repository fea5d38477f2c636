/* roof.h -- what a machine can do at most: the roofline that ops are compared with.
 *
 * An op of F operations that moves B bytes takes at least max(F / flops, B / bytes) seconds
 * (Williams, Waterman and Patterson, Roofline, 2009). Bytes are counted once and as if from memory,
 * so an op whose operands are still in a cache may be above it. */
#ifndef TSR_KERNELS_ROOF_H
#define TSR_KERNELS_ROOF_H

#include "kernels/backend.h"

typedef struct tsr_roof_rates {
    double flops; /* multiply-adds in registers, counted twice, a second; 0: unknown */
    double bytes; /* read from memory a second */
} tsr_roof_rates;

/* Half a second, `n_threads` of the pool's threads. TSR_E_OOM: 128 MiB are read. */
tsr_status tsr_roof_measure(const tsr_backend *b, tsr_pool *pool, int32_t n_threads,
                            tsr_roof_rates *rates, tsr_err *err);

#endif
