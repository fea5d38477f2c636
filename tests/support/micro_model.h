/* micro_model.h -- a complete diffusers directory of a few kilobytes, made on the spot.
 *
 * Real in shape (tokenizer, text encoder(s), UNet, VAE, scheduler; every tensor that the networks
 * ask for), with pseudo-random float32 weights: what tests of faults, threads and budgets need, in
 * milliseconds. */
#ifndef TSR_TESTS_MICRO_MODEL_H
#define TSR_TESTS_MICRO_MODEL_H

#include <stdbool.h>

typedef struct micro_options {
    bool xl;               /* two text encoders, text_time conditioning */
    bool unet_overflows;   /* finite in float32, not in half */
    bool vae_overflows;    /* likewise, in the decoder */
    bool text_overflows;   /* likewise, in the (first) text encoder */
    const char *scheduler; /* config text; NULL: Euler */
    const char *card;      /* the "tessera" object's text, or NULL */
} micro_options;

/* Path of the directory, a test_temp_dir(); NULL after failing the running test. */
const char *micro_model(const micro_options *options);

#endif
