/* apart.h -- a run in a process of its own, since a peak resident set cannot be taken back. */
#ifndef TSR_TESTS_APART_H
#define TSR_TESTS_APART_H

#include <stdbool.h>

#include "tessera.h"

typedef struct apart_figures {
    tsr_status st;
    char why[512];
    tsr_run_info info; /* its strings are of the child: not to be read */
    size_t peak;       /* VmHWM when it was done */
    uint64_t rgb_hash; /* of all pictures, one after the other */
} apart_figures;

/* Opens the model, makes the run and its pictures (unless the descriptor is plan_only) in a
 * child. False when there was no child, or it died without a word. */
bool run_apart(const char *model, const tsr_run_desc *d, int32_t threads, apart_figures *f);

#endif
