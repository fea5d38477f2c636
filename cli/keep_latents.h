/* keep_latents.h -- what the steps have made is not lost when the picture of it cannot be. */
#ifndef TSR_CLI_KEEP_LATENTS_H
#define TSR_CLI_KEEP_LATENTS_H

#include "cli/cli.h"

/* Final latents without pictures. */
typedef struct tsr_kept {
    const float *latents; // [N,C,h,w]
    int32_t shape[4];
    int32_t index; /* of the first one's picture */
} tsr_kept;

/* Adds to the sentence of the failure in c->err where the latents are, and how gen decode goes on
 * from there. `path` is the file that has them already; NULL: a new one is written beside the
 * picture that was to be. */
void tsr_keep_latents(tsr_cli *c, const tsr_run *run, const tsr_kept *kept, const char *path);

#endif
