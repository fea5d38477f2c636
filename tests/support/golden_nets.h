/* golden_nets.h -- one forward of a UNet or an autoencoder, for golden tests. */
#ifndef TSR_TESTS_GOLDEN_NETS_H
#define TSR_TESTS_GOLDEN_NETS_H

#include "tests/support/golden.h"
#include "unet/unet.h"
#include "vae/vae.h"

/* How to run: the same for all nets. */
typedef struct golden_job {
    tsr_dtype dtype; /* TSR_F32 or TSR_F16 */
    bool upcast; /* float though the run asked for halves: convolutions by Winograd all the same */
    tsr_cpu_tier tier;
    int32_t n_threads;
    int32_t window_rows; /* 0: whole ops */
    tsr_tap *taps;
    int32_t n_taps;
} golden_job;
const char *golden_precision(const golden_job *job); /* "fp32" */
/* The machine's best tier, two threads. */
golden_job golden_job_best(tsr_dtype dtype);
/* Fails unless a and b have the same bits. Both may be NULL, which fails, too. */
void golden_check_bits(const char *what, const golden_job *job, const float *a, const float *b,
                       size_t n);

/* A net as a function of how it is run and what it is given: the output's *n values, for free. */
typedef struct golden_forward {
    float *(*run)(void *net, golden_job job, const void *in, size_t *n);
    void *net;
} golden_forward;
/* `in_a` run as `a` and `in_b` run as `b` have the same bits. */
void golden_check_same(const golden_forward *f, golden_job a, const void *in_a, golden_job b,
                       const void *in_b, const char *what);
/* Neither windows of four rows nor one thread change a bit. */
void golden_check_windows_threads(const golden_forward *f, golden_job job, const void *in);
/* A batch has the bits of its `n` entries alone, which lie `entry_bytes` apart. */
void golden_check_entries(const golden_forward *f, golden_job job, const void *in,
                          const void *entries, size_t entry_bytes, int32_t n, const char *what);

/* The small reference models one by one; NULL after the last. */
const char *golden_model(int32_t i);

/* A component with its config; `dir` is the component's own folder. */
typedef struct golden_unet {
    tsr_component comp;
    tsr_unet_config cfg;
    tsr_err err;
} golden_unet;
bool golden_unet_open(golden_unet *u, const char *dir);
void golden_unet_close(golden_unet *u);

typedef struct golden_vae {
    tsr_component comp;
    tsr_vae_config cfg;
    tsr_err err;
} golden_vae;
bool golden_vae_open(golden_vae *v, const char *dir);
void golden_vae_close(golden_vae *v);

/* Inputs of one UNet forward; the arrays are the golden's. */
typedef struct golden_unet_in {
    int32_t n, latent_n, h, w, s; /* entries; pictures, n / latent_n prompts each */
    bool same_prompts;            /* of all pictures: the first ones of the context */
    const float *sample;          /* [latent_n,C,h,w] */
    const float *context;         /* [n,s,D] */
    const float *text_embeds;     /* [n,Dp] or NULL */
    const float *time_ids;        /* [n,6] or NULL */
    const float *timesteps;       /* [n] */
    const float *guidance;        /* [time_cond_proj_dim], for networks that have it */
    int32_t n_steps, step;        /* the forward is step `step` of a run of n_steps */
    size_t sample_size, context_size, text_size; /* elements of one entry */
} golden_unet_in;
/* Tensors "<name>.sample" ...; the context is `context` when that is not NULL. */
bool golden_unet_inputs(golden *g, const char *name, const golden_tensor *context,
                        golden_unet_in *in);
golden_unet_in golden_unet_entry(const golden_unet_in *in, int32_t i); /* entry i alone */

/* Builds, plans and runs; *out is the value to read. `net` is left for the caller to free, also
 * on failure. */
bool golden_unet_forward(golden_net *net, golden_unet *u, const golden_job *job,
                         const golden_unet_in *in, tsr_val *out);
/* The same, and all else: the output as a heap array of *n floats; NULL on failure. */
float *golden_unet_once(golden_unet *u, golden_job job, const golden_unet_in *in, size_t *n);
/* latents [n,L,h,w] as given to the decoder (already divided by the scaling factor). */
bool golden_vae_decode(golden_net *net, golden_vae *v, const golden_job *job,
                       const golden_tensor *latents, bool as_image, tsr_val *out);
bool golden_vae_encode(golden_net *net, golden_vae *v, const golden_job *job,
                       const golden_tensor *image, tsr_val *moments);

/* Taps for all tensors "<name>.block.<module>" of `g`; the caller frees the array with free. */
tsr_tap *golden_taps_make(const golden *g, const char *name, int32_t *n_taps);
/* Compares every tap with its golden; all must have been recorded. */
void golden_taps_compare(golden_net *net, golden *g, const char *model, const char *name,
                         const golden_job *job, double tolerance);

#endif
