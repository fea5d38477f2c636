/* guidance.c -- classifier-free guidance on one latent.
 *
 * out = u + scale * (c - u); with `rescale` phi > 0 the result is pulled towards the standard
 * deviation of c: out * (phi * std(c) / std(out) + 1 - phi).
 * Sources: "Classifier-Free Diffusion Guidance" (Ho and Salimans, 2022); "Common Diffusion Noise
 * Schedules and Sample Steps are Flawed" (Lin et al., 2023), section 3.4, as diffusers does it:
 * unbiased standard deviations over the whole latent. Sums run in double, in index order. */
#include "pipeline/pipeline_internal.h"

#include <math.h>

static double std_dev(const float *x, size_t n)
{
    double mean = 0, sum = 0;

    for (size_t i = 0; i < n; i++)
        mean += (double)x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    return n > 1 ? sqrt(sum / (double)(n - 1)) : 0;
}

void tsr_guidance(float *out, const float *uncond, const float *cond, size_t n, float scale,
                  float rescale)
{
    float ratio;
    double s;

    for (size_t i = 0; i < n; i++)
        out[i] = uncond[i] + scale * (cond[i] - uncond[i]);
    if (rescale <= 0)
        return;
    s = std_dev(out, n);
    if (!(s > 0))
        return; /* a constant prediction has nothing to rescale */
    ratio = (float)(std_dev(cond, n) / s);
    for (size_t i = 0; i < n; i++)
        out[i] = rescale * (out[i] * ratio) + (1 - rescale) * out[i];
}
