/* scheduler.h -- the samplers: timesteps, sigma tables, and the step from one latent to the next.
 *
 * A sampler works on plain float32 arrays of n elements on the host, exactly in the order of the
 * reference implementation (diffusers); latents are small (a 64x64x4 latent is 64 KiB), so they
 * never go through a backend.
 *
 *     tsr_sched_make(&s, cfg, n_steps, n, state, err);      everything is allocated here
 *     x = noise * tsr_sched_init_noise_sigma(s)
 *     for (i = 0; i < tsr_sched_n_calls(s); i++) {
 *         tsr_sched_scale_input(s, i, x, in);
 *         out = model(in, tsr_sched_timesteps(s)[i]);
 *         if (tsr_sched_needs_noise(s, i))
 *             draw noise[n];
 *         tsr_sched_step(s, i, out, noise, x);
 *     }
 *
 * Heun, dpm2 and PNDM's Runge-Kutta start call the model more than once a step. Noise is drawn
 * exactly when the reference draws it. x is updated in place.
 */
#ifndef TSR_SCHEDULER_SCHEDULER_H
#define TSR_SCHEDULER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "model/config.h"

typedef struct tsr_sched_config
    tsr_sched_config; /* every field that a diffusers scheduler class reads; scheduler_config.h */
typedef struct tsr_sched tsr_sched;

/* `json` is scheduler_config.json's text. `name` is NULL (the file's _class_name) or one of
 * cli.md's names; changing the class follows diffusers' from_config: the new class's defaults
 * overlaid by the file's keys that it knows, then what the name implies (dpmpp_2m_sde:
 * algorithm_type). sigmas: NULL or default|karras|exponential|beta; prediction: NULL or
 * epsilon|v_prediction|sample. eta is DDIM's. repair_sd: what StableDiffusionPipeline (SD1 and SD2,
 * not SDXL) does to its scheduler's config: steps_offset 1, clip_sample false. Unsupported values
 * are refused by name (TSR_E_MODEL for the file's, TSR_E_USAGE for the options'). */
typedef struct tsr_sched_options {
    const char *name, *sigmas, *prediction;
    float eta;
    bool repair_sd;
} tsr_sched_options;
tsr_status tsr_sched_config_make(tsr_sched_config **cfg, const char *json, const char *file_name,
                                 const tsr_sched_options *opt, const tsr_log *log, tsr_err *err);
void tsr_sched_config_free(tsr_sched_config *cfg);
const char *tsr_sched_config_name(const tsr_sched_config *cfg);       /* "euler" */
const char *tsr_sched_config_sigmas(const tsr_sched_config *cfg);     /* "karras" */
const char *tsr_sched_config_prediction(const tsr_sched_config *cfg); /* "epsilon" */

/* n_steps: num_inference_steps (TSR_E_USAGE where the class refuses it). n: elements of one latent.
 * `state` is memory of tsr_sched_state_bytes(cfg, n) for histories (in the arena), or NULL to
 * allocate it here. */
size_t tsr_sched_state_bytes(const tsr_sched_config *cfg, size_t n);
tsr_status tsr_sched_make(tsr_sched **s, const tsr_sched_config *cfg, int32_t n_steps, size_t n,
                          float *state, tsr_err *err);
void tsr_sched_free(tsr_sched *s);
void tsr_sched_reset(tsr_sched *s); /* before the next picture */

int32_t tsr_sched_n_calls(const tsr_sched *s);        /* model calls */
const float *tsr_sched_timesteps(const tsr_sched *s); /* [n_calls], as given to the model */
const float *
tsr_sched_sigmas(const tsr_sched *s,
                 int32_t *n); /* as the reference's .sigmas; NULL when the class has none */
float tsr_sched_init_noise_sigma(const tsr_sched *s);
void tsr_sched_scale_input(const tsr_sched *s, int32_t i, const float *x, float *in);
bool tsr_sched_needs_noise(const tsr_sched *s,
                           int32_t i); /* the reference draws noise in this step */
void tsr_sched_step(tsr_sched *s, int32_t i, const float *model_out, const float *noise, float *x);
/* LCM returns the denoised sample as the final latents; all others return x. (Nothing to do for the
 * caller.) */

/* All names, for messages and --help; NULL-terminated. */
const char *const *tsr_sched_names(void);

#endif
