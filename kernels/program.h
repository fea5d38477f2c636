/* program.h -- a tape with a plan: made, loaded, run.
 *
 * tsr_program_make asks the planner (plan.h) for the fastest plan that fits, and allocates the
 * tables of the run; nothing after it allocates.
 *
 *   program = tape + backend + options --make--> plan --bind(arena)--> --set_io--> --load-->
 * --run(prologue)--> --run(step)*
 *
 * Resident weights are loaded once; what is streamed or spilled is read and written by the I/O
 * thread while the compute threads go on, and waiting for it is counted. A failed read or write is
 * the status of the run_ call in which it was noticed; nothing is in flight when that returns.
 *
 * On a device the arena is the device's memory. Actions are queued there, and so is what the I/O
 * thread moves; what one thread would wait for, a queue waits for (program_device.c). */
#ifndef TSR_KERNELS_PROGRAM_H
#define TSR_KERNELS_PROGRAM_H

#include "base/io.h"
#include "base/log.h"
#include "kernels/plan.h"
#include "memory/arena.h"
#include "memory/spill.h"

/* Seconds in the backend, when somebody asks (tsr_program_time_ops). */
typedef struct tsr_op_clock {
    double *seconds;           /* [n_ops] of all runs together; NULL: nobody asks */
    double section_seconds[2]; /* of the prologue and of the loop, waiting and all */
    int32_t n_runs[2];
} tsr_op_clock;

typedef struct tsr_program {
    tsr_tape *tape; /* not owned; outlives the program */
    const tsr_backend *backend;
    tsr_pool *pool;
    tsr_err *err;
    tsr_plan plan;
    tsr_layout layout;    /* of the plan */
    size_t minimum_bytes; /* arena bytes of the smallest plan, and of the fastest one: set by */
    size_t fastest_bytes; /* tsr_program_make, also when it fails with TSR_E_BUDGET */
    size_t spill_bytes;   /* what it needs of the spill file */
    uint64_t hash;        /* of every decision */
    tsr_io *io;           /* NULL: the caller's thread reads and writes, when it is due */
    tsr_spill *spill;
    uint64_t *tickets; /* [n_jobs] of the running section */
    tsr_status io_status;
    unsigned char *shadow;  /* on a device: inputs and outputs as the host sees them, and staging */
    size_t *shadow_offsets; /* [n_values]; of a value without one: SIZE_MAX */
    size_t staging_offset;
    tsr_arena *arena; /* set by bind */
    size_t arena_base;
    int32_t n_steps_run;
    bool is_prepared;   /* the device has what its libraries need for every call */
    int32_t n_pictures; /* along the tape's axis of pictures so many are computed; 0: all */
    tsr_val watched;    /* whether its windows are finite is noted as they are made; 0: none */
    bool watched_finite;
    uint64_t bytes_read;     /* of resident weights */
    uint64_t bytes_streamed; /* weights read while running */
    uint64_t bytes_spilled;  /* written and read */
    double io_core_seconds;  /* of processor time that reading, packing and writing took */
    double seconds_waiting;
    /* Asked between two actions; a failure ends the section. NULL: nobody is */
    tsr_status (*between)(void *user);
    void *between_user;
    tsr_op_clock clock;
} tsr_program;

/* Plans `t` for `b`; opt NULL: no limit. Errors: TSR_E_OOM; TSR_E_BUDGET: it does not fit, or sizes
 * overflow. A failed program needs no tsr_program_free. */
tsr_status tsr_program_make(tsr_program *p, tsr_tape *t, const tsr_backend *b, tsr_pool *pool,
                            const tsr_plan_options *opt, tsr_err *err);
void tsr_program_free(tsr_program *p);
size_t tsr_program_bytes(const tsr_program *p);            /* arena bytes it needs */
double tsr_program_flops(const tsr_program *p, bool loop); /* of one run of a section */

/* Says where in the arena it lives. Values' content is undefined afterwards. */
void tsr_program_bind(tsr_program *p, tsr_arena *arena, size_t base);
/* Who reads and writes while it runs. `spill` may be NULL when spill_bytes is 0. */
void tsr_program_set_io(tsr_program *p, tsr_io *io, tsr_spill *spill);
/* Reads and packs the resident weights, panel by panel through the staging place. TSR_E_IO,
 * TSR_E_MODEL. Staging lies where values will be: inputs are filled afterwards. */
tsr_status tsr_program_load(tsr_program *p);
/* Address of a value on the host (inputs to fill, outputs to read); NULL when it is never whole, or
 * is neither and lies on a device. Inputs are read when a section begins, outputs are there when
 * the section that makes them has ended. */
void *tsr_program_data(const tsr_program *p, tsr_val v);
/* Runs the ops before the loop. TSR_E_IO and TSR_E_MODEL where weights are streamed. */
tsr_status tsr_program_run_prologue(tsr_program *p);
/* Runs the loop section for step `step` (which step views select). */
tsr_status tsr_program_run_step(tsr_program *p, int32_t step);
/* From now on only the first `n` pictures are computed, of as many as were recorded. */
void tsr_program_set_pictures(tsr_program *p, int32_t n);
/* On a device: what its libraries need is built for every call; `run`: and run once, before
 * anything is loaded, so that the device tells what they take. A run that needs more builds it
 * itself. */
tsr_status tsr_program_prepare(tsr_program *p, bool run);
/* True when every element of the value is finite (of the pictures that are computed): an output. */
bool tsr_program_finite(const tsr_program *p, tsr_val v);
/* Notes, window by window in every later run, whether `v` is finite (see watched_finite): for a
 * value that is never whole. */
void tsr_program_watch(tsr_program *p, tsr_val v);
/* From now on the time of every op is added up in `seconds`: [n_ops] zeros, the caller's. */
void tsr_program_time_ops(tsr_program *p, double *seconds);
/* Runs a section again op by op; *name is the first op whose output is not finite, NULL when all
 * are. Inputs must still be in place. */
const char *tsr_program_find_overflow(tsr_program *p, bool loop, int32_t step);

#endif
