/* golden_clip.h -- one forward of a text encoder, for golden tests. */
#ifndef TSR_TESTS_GOLDEN_CLIP_H
#define TSR_TESTS_GOLDEN_CLIP_H

#include "tests/support/golden_nets.h"
#include "text/clip.h"

typedef struct golden_clip {
    tsr_component comp;
    tsr_clip_config cfg;
    tsr_err err;
} golden_clip;
bool golden_clip_open(golden_clip *c, const char *dir); /* the component's own folder */
void golden_clip_close(golden_clip *c);

/* Builds, plans and runs on ids [n,s], the floats of a golden tensor. `net` is left for the caller
 * to free, also on failure. */
bool golden_clip_forward(golden_net *net, golden_clip *c, const golden_job *job,
                         const tsr_clip_shape *shape, const float *ids, tsr_clip_io *io);

#endif
