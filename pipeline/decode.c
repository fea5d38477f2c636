/* decode.c -- final latents to the picture: the VAE decoder, and the crop to the size asked for.
 *
 * A decoder that overflows in half precision is run again as a whole in float32 (never a window of
 * it); that plan was made and counted before the run began. */
#include "pipeline/pipeline_internal.h"

#include <string.h>

/* The decoder's input, which divides by the scaling factor itself. Where the config has statistics
 * of the latents the reference decodes x * std / factor + mean, channel by channel. */
static void fill_latents(const tsr_run *r, float *dst)
{
    const tsr_vae_config *cfg = &r->model->vae_cfg;
    const float *src = tsr_run_lane_latents(r, r->next_picture - r->batch_first); // [C,h,w]
    size_t plane = (size_t)r->set.latent_h * (size_t)r->set.latent_w;

    for (int32_t c = 0; c < r->set.latent_c; c++) {
        float scale = cfg->has_mean_std ? cfg->latents_std[c] : 1;
        float shift = cfg->has_mean_std ? cfg->latents_mean[c] * cfg->scaling_factor : 0;
        for (size_t i = 0; i < plane; i++)
            *dst++ = *src++ * scale + shift;
    }
}

/* The centre of the decoded picture. */
static void crop(const tsr_run *r, const uint8_t *src)
{
    const tsr_settings *s = &r->set;
    int32_t top = (s->net_height - s->height) / 2, left = (s->net_width - s->width) / 2;
    uint8_t *dst = tsr_run_state(r, r->state.rgb); // [height,width,3]
    size_t bytes = 3 * (size_t)s->width;

    src += 3 * ((size_t)top * (size_t)s->net_width + (size_t)left);
    for (int32_t y = 0; y < s->height; y++)
        memcpy(dst + (size_t)y * bytes, src + (size_t)y * 3 * (size_t)s->net_width, bytes);
}

typedef void (*fill_fn)(const tsr_run *r, float *dst);

static tsr_status run_once(tsr_run *r, int32_t i, fill_fn fill, bool *finite)
{
    tsr_program *p = &r->nets.vae[i].program;

    TSR_TRY(tsr_net_load(r, &r->nets.vae[i], TSR_RUN_DECODE));
    fill(r, tsr_program_data(p, r->nets.vae_in[i]));
    TSR_TRY(tsr_program_run_prologue(p));
    TSR_TRY(tsr_program_run_step(p, 0));
    *finite = p->watched_finite;
    return TSR_OK;
}

tsr_status tsr_vae_run(tsr_run *r, fill_fn fill, const void **out)
{
    const char *part = r->set.task == TSR_TASK_ENCODE ? "encoder" : "decoder", *layer;
    bool finite = false;
    int32_t used = 0;

    TSR_TRY(run_once(r, 0, fill, &finite));
    if (!finite && r->nets.n_vae > 1) {
        TSR_WARN(&r->ctx->log, "the %s overflowed in half precision; running it again in float32",
                 part);
        used = 1;
        TSR_TRY(run_once(r, 1, fill, &finite));
    }
    if (!finite) {
        layer = tsr_program_find_overflow(&r->nets.vae[used].program, true, 0);
        TSR_FAIL(&r->ctx->err, TSR_E_MODEL, "the %s overflowed at %s", part,
                 layer ? layer : "its input");
    }
    *out = tsr_program_data(&r->nets.vae[used].program, r->nets.vae_out[used]);
    return TSR_OK;
}

tsr_status tsr_decode_run(tsr_run *r)
{
    double start = tsr_now();
    const void *picture;

    TSR_TRY(tsr_run_progress(r, TSR_PHASE_DECODE, 0, 1, 0));
    TSR_TRY(tsr_vae_run(r, fill_latents, &picture));
    crop(r, picture);
    r->phases[TSR_RUN_DECODE].seconds += tsr_now() - start;
    /* Whoever wants to stop gets the picture all the same: it is whole. */
    (void)tsr_run_progress(r, TSR_PHASE_DECODE, 1, 1, tsr_now() - start);
    tsr_err_clear(&r->ctx->err);
    return TSR_OK;
}
