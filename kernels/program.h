/* program.h -- a tape with a plan: made, loaded, run.
 *
 * tsr_program_make turns lifetimes into offsets (memory/planner) and decides placement and
 * windows of every op; it allocates its tables, and nothing after it does. Placement today is
 * "resident" for every weight and "whole" for every value; the tables are per weight, per
 * value and per op, so that streaming, spilling and windows fill them in without a new shape.
 *
 *   program = tape + backend --make--> places --bind(arena)--> --load--> --run(prologue)-->
 * --run(step)*
 */
#ifndef TSR_KERNELS_PROGRAM_H
#define TSR_KERNELS_PROGRAM_H

#include "base/log.h"
#include "kernels/backend.h"
#include "memory/arena.h"
#include "memory/planner.h"

typedef enum tsr_placement {
    TSR_PLACE_RESIDENT,
    TSR_PLACE_STREAMED,
    TSR_PLACE_SPILLED
} tsr_placement;

typedef struct tsr_place {
    tsr_placement placement;
    size_t offset, bytes; /* in the arena, relative to the program's base */
} tsr_place;

typedef struct tsr_program {
    tsr_tape *tape; /* not owned; outlives the program */
    const tsr_backend *backend;
    tsr_pool *pool;
    tsr_err *err;
    tsr_place *values;    /* [n_values], views have their base's */
    tsr_place *weights;   /* [n_weights] */
    tsr_place *work;      /* [n_ops] */
    int32_t *window_rows; /* [n_ops] output rows a window; 0: the whole op */
    size_t staging_offset,
        staging_bytes; /* where panels are read before they are packed (load only) */
    tsr_layout layout;
    uint64_t hash;    /* of every decision */
    tsr_arena *arena; /* set by bind */
    size_t arena_base;
    int32_t n_steps_run;
    uint64_t bytes_read;
} tsr_program;

/* Plans `t` for `b`. Errors: TSR_E_OOM, TSR_E_BUDGET (sizes overflow). */
tsr_status tsr_program_make(tsr_program *p, tsr_tape *t, const tsr_backend *b, tsr_pool *pool,
                            tsr_err *err);
void tsr_program_free(tsr_program *p);
size_t tsr_program_bytes(const tsr_program *p);            /* arena bytes it needs */
double tsr_program_flops(const tsr_program *p, bool loop); /* of one run of a section */

/* Says where in the arena it lives. Values' content is undefined afterwards. */
void tsr_program_bind(tsr_program *p, tsr_arena *arena, size_t base);
/* Reads and packs every weight, panel by panel through the staging place. TSR_E_IO, TSR_E_MODEL.
 * Staging lies where values will be: inputs are filled afterwards. Those that only the prologue
 * uses are gone after it, those that the loop uses stay. */
tsr_status tsr_program_load(tsr_program *p);
/* Address of a value (inputs to fill, outputs to read). */
void *tsr_program_data(const tsr_program *p, tsr_val v);
/* Runs the ops before the loop. */
tsr_status tsr_program_run_prologue(tsr_program *p);
/* Runs the loop section for step `step` (which step views select). */
tsr_status tsr_program_run_step(tsr_program *p, int32_t step);
/* True when every element of the value is finite. */
bool tsr_program_finite(const tsr_program *p, tsr_val v);
/* Runs a section again op by op and returns the name of the first op whose output is not finite;
 * NULL when all are. Inputs must still be in place. */
const char *tsr_program_find_overflow(tsr_program *p, bool loop, int32_t step);

#endif
