/* norm_stats.c -- where group_norm's row statistics lie, and how they are merged. See
 * norm_stats.h. Layout: rows, whole, merged, one after the other. */
#include "kernels/cpu/norm_stats.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

static size_t rows_count(int32_t n, int32_t h, int32_t groups)
{
    return (size_t)n * (size_t)h * (size_t)groups;
}

size_t tsr_norm_stats_bytes(int32_t n, int32_t h, int32_t groups)
{
    return tsr_align_up(rows_count(n, h, groups) * sizeof(tsr_moments) +
                            rows_count(n, 1, groups) * sizeof(tsr_group_moments) +
                            (size_t)n * sizeof(int32_t),
                        64);
}

tsr_norm_stats tsr_norm_stats_of(const tsr_call *call, void *scratch)
{
    const tsr_window *w = &call->window;
    tsr_norm_stats s = {.h = call->out.h, .groups = call->op->u.norm.groups};
    int32_t n = call->stats ? call->out.n : w->n1 - w->n0;

    s.n0 = call->stats ? 0 : w->n0;
    s.rows = call->stats ? call->stats : scratch;
    s.whole = (tsr_group_moments *)(void *)(s.rows + rows_count(n, s.h, s.groups));
    s.merged = (int32_t *)(void *)(s.whole + rows_count(n, 1, s.groups));
    return s;
}

void tsr_norm_stats_begin(const tsr_norm_stats *s, const tsr_window *w)
{
    memset(s->merged + (w->n0 - s->n0), 0, (size_t)(w->n1 - w->n0) * sizeof *s->merged);
}

/* Group g of entry n over all its rows of `count` elements each. */
static tsr_group_moments merge_group(const tsr_norm_stats *s, int32_t n, int32_t g, double count,
                                     double eps)
{
    tsr_moments all = {0, 0};
    tsr_group_moments whole;

    for (int32_t y = 0; y < s->h; y++) {
        const tsr_moments *row = tsr_norm_row(s, n, y) + g;
        double d = row->mean - all.mean;

        all.mean += d / (y + 1);
        all.m2 += row->m2 + d * d * count * y / (y + 1);
    }
    whole.mean = all.mean;
    whole.rstd = 1 / sqrt(fmax(all.m2, 0) / (count * s->h) + eps);
    if (all.m2 != all.m2) /* fmax drops a NaN */
        whole.rstd = all.m2;
    return whole;
}

void tsr_norm_stats_merge(const tsr_norm_stats *s, const tsr_call *call)
{
    double count = (double)call->out.w * (call->out.c / s->groups);

    for (int32_t n = call->window.n0; n < call->window.n1; n++) {
        for (int32_t g = 0; g < s->groups && !s->merged[n - s->n0]; g++)
            tsr_norm_whole(s, n)[g] = merge_group(s, n, g, count, (double)call->op->u.norm.eps);
        s->merged[n - s->n0] = 1;
    }
}
