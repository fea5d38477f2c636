/* norm_stats.h -- group_norm's statistics, shared by all tiers.
 *
 * A row of an entry has for every group the mean and M2 (sum of squared distances from it) of its
 * elements: each tier computes these in its own way, each row on its own. Here they are kept and
 * merged, from the top row down in double (Chan, Golub and LeVeque, Updating formulae and a
 * pairwise algorithm for computing sample variances, 1979): one order, whatever windows filled
 * them.
 *
 * Rows are in call->stats, of every entry of the image, or, where that is NULL, in the kernel's own
 * scratch, of the window's entries. An entry is merged by the first window that is applied and the
 * result kept beside the rows: strips do not merge thousands of rows again each time. */
#ifndef TSR_KERNELS_CPU_NORM_STATS_H
#define TSR_KERNELS_CPU_NORM_STATS_H

#include "kernels/backend.h"

typedef struct tsr_moments {
    double mean, m2;
} tsr_moments;

typedef struct tsr_group_moments {
    double mean, rstd; /* rstd = 1 / sqrt(M2 / count + eps) */
} tsr_group_moments;

typedef struct tsr_norm_stats {
    int32_t n0, h, groups;    /* n0: the entry of rows[0] */
    tsr_moments *rows;        // [N,H,G]
    tsr_group_moments *whole; // [N,G]
    int32_t *merged;          // [N] whether `whole` is filled
} tsr_norm_stats;

size_t tsr_norm_stats_bytes(int32_t n, int32_t h, int32_t groups); /* 64-byte multiple */
/* `scratch` has room for the window's entries; NULL and not looked at when call->stats is set. */
tsr_norm_stats tsr_norm_stats_of(const tsr_call *call, void *scratch);
/* Rows of the window's entries will be written: what was merged of them is void. */
void tsr_norm_stats_begin(const tsr_norm_stats *s, const tsr_window *w);
/* Fills `whole` of the window's entries; all their rows are there. */
void tsr_norm_stats_merge(const tsr_norm_stats *s, const tsr_call *call);

/* The groups of entry n and row y. */
static inline tsr_moments *tsr_norm_row(const tsr_norm_stats *s, int32_t n, int32_t y)
{
    return s->rows + ((size_t)(n - s->n0) * (size_t)s->h + (size_t)y) * (size_t)s->groups;
}
static inline tsr_group_moments *tsr_norm_whole(const tsr_norm_stats *s, int32_t n)
{
    return s->whole + (size_t)(n - s->n0) * (size_t)s->groups;
}

#endif
