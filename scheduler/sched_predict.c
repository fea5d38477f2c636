/* sched_predict.c -- from the model's output to x0, the picture without its noise.
 *
 * x = signal x0 + noise eps with signal^2 + noise^2 = 1. The model predicts eps, v = signal eps -
 * noise x0, or x0 itself. x0 is then thresholded (arXiv 2205.11487: clipped at a quantile of its
 * magnitudes and scaled back to one) or clipped to a range, or left as it is. */
#include "scheduler/scheduler_internal.h"

/* Heap sort: n log n whatever is in it, no recursion, no memory. */
static void sift(float *v, size_t root, size_t n)
{
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        const float top = v[root];

        if (child + 1 < n && v[child + 1] > v[child])
            child++;
        if (!(v[child] > top))
            return;
        v[root] = v[child];
        v[child] = top;
    }
}

static void sort_ascending(float *v, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(v, i, n);
    for (size_t i = n; i-- > 1;) {
        const float top = v[0];

        v[0] = v[i];
        v[i] = top;
        sift(v, 0, i);
    }
}

/* torch.quantile of sorted values: linear between two ranks, all in float32. */
static float quantile(const float *sorted, size_t n, float q)
{
    const float rank = q * (float)(n - 1);
    const size_t below = (size_t)rank, above = (size_t)ceilf(rank);
    const float w = rank - (float)below, a = sorted[below], b = sorted[above < n ? above : n - 1];

    return w < 0.5f ? a + w * (b - a) : b - (b - a) * (1 - w);
}

/* Keeps what is not a number, as torch does, so that it is found. */
static float clamp(float v, float limit)
{
    return v < -limit ? -limit : v > limit ? limit : v;
}

void tsr_sched_threshold(const tsr_sched *s, float *x0, float *sort)
{
    float limit;

    for (size_t k = 0; k < s->n; k++)
        sort[k] = fabsf(x0[k]);
    sort_ascending(sort, s->n);
    limit = quantile(sort, s->n, s->cfg.threshold_ratio);
    limit = limit < 1 ? 1 : limit;
    limit = limit > s->cfg.sample_max ? s->cfg.sample_max : limit;
    for (size_t k = 0; k < s->n; k++)
        x0[k] = clamp(x0[k], limit) / limit;
}

void tsr_sched_x0(const tsr_sched *s, tsr_sched_mix mix, const float *out, const float *x,
                  float *x0, float *sort)
{
    for (size_t k = 0; k < s->n; k++) {
        if (s->cfg.prediction == TSR_PREDICT_EPSILON)
            x0[k] = (x[k] - mix.noise * out[k]) / mix.signal;
        else if (s->cfg.prediction == TSR_PREDICT_V)
            x0[k] = mix.signal * x[k] - mix.noise * out[k];
        else
            x0[k] = out[k];
    }
    if (s->cfg.thresholding) {
        tsr_sched_threshold(s, x0, sort);
    } else if (s->cfg.clip_sample) {
        for (size_t k = 0; k < s->n; k++)
            x0[k] = clamp(x0[k], s->cfg.clip_range);
    }
}
