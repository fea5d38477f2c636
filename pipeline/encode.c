/* encode.c -- a picture to its latents: the VAE encoder, and the mean of what it finds.
 *
 *     x = 2 * rgb / 255 - 1;  (mean, logvar) = encoder(x);  latents = mean * scaling_factor
 *
 * Where the config has statistics of the latents: (mean - latents_mean) / latents_std *
 * scaling_factor, the inverse of what the decoder does (decode.c). Nothing is drawn: the mean is
 * the most likely latent. An encoder that overflows in half precision is run again as a whole in
 * float32. Source: diffusers' image-to-image pipelines (prepare_latents), with the mode of the
 * distribution. */
#include "pipeline/pipeline_internal.h"

/* The encoder's input, plane by plane, in [-1,1]. */
static void fill_image(const tsr_run *r, float *dst)
{
    size_t n = (size_t)r->set.width * (size_t)r->set.height;

    for (size_t c = 0; c < 3; c++) // [3,H,W] from [H,W,3]
        for (size_t i = 0; i < n; i++)
            *dst++ = 2.0f * ((float)r->image[3 * i + c] / 255.0f) - 1.0f;
}

static void take_mean(tsr_run *r, const float *mean)
{
    const tsr_vae_config *cfg = &r->model->vae_cfg;
    float *dst = tsr_run_state(r, r->state.latents); // [C,h,w]
    size_t plane = (size_t)r->set.latent_h * (size_t)r->set.latent_w;

    for (int32_t c = 0; c < r->set.latent_c; c++) {
        float shift = cfg->has_mean_std ? cfg->latents_mean[c] : 0;
        float scale = cfg->scaling_factor / (cfg->has_mean_std ? cfg->latents_std[c] : 1);
        for (size_t i = 0; i < plane; i++)
            *dst++ = (*mean++ - shift) * scale;
    }
}

tsr_status tsr_encode_run(tsr_run *r)
{
    double start = tsr_now();
    const void *moments; // [2*C,h,w]: mean, then logvar

    TSR_TRY(tsr_run_progress(r, TSR_PHASE_ENCODE, 0, 1, 0));
    TSR_TRY(tsr_vae_run(r, fill_image, &moments));
    take_mean(r, moments);
    r->phases[TSR_RUN_DECODE].seconds += tsr_now() - start;
    /* Whoever wants to stop gets the latents all the same: they are whole. */
    (void)tsr_run_progress(r, TSR_PHASE_ENCODE, 1, 1, tsr_now() - start);
    tsr_err_clear(&r->ctx->err);
    return TSR_OK;
}
