/* program_internal.h -- what the program's files share. Private to kernels/. */
#ifndef TSR_KERNELS_PROGRAM_INTERNAL_H
#define TSR_KERNELS_PROGRAM_INTERNAL_H

#include "base/num.h"
#include "kernels/program.h"

/* Debug builds prove the plan and overwrite dead values. */
#ifdef TSR_DEBUG
enum { TSR_PROGRAM_CHECKED = 1 };
#else
enum { TSR_PROGRAM_CHECKED = 0 };
#endif

/* Address of an item in the arena; NULL for item 0 and for an empty one. */
void *tsr_program_item(const tsr_program *p, int32_t item);

/* Reads output channels [c0,c1) of a weight and packs them at dst, which is their piece. The pool
 * helps when `pool` is not NULL. (program_load.c) */
tsr_status tsr_program_read_weight(tsr_program *p, int32_t w, const int32_t c[2], void *dst,
                                   tsr_pool *pool, uint64_t *bytes, tsr_err *err);

/* A place in the arena is overwritten with NaN patterns (debug builds). */
void tsr_program_poison(const tsr_program *p, size_t offset, size_t bytes);

/* program_device.c: of a backend whose memory is not the host's. */
tsr_status tsr_program_make_shadows(tsr_program *p);
void *tsr_program_shadow(const tsr_program *p, tsr_val v);
void tsr_program_send_inputs(tsr_program *p, bool loop);
void tsr_program_take_outputs(tsr_program *p, bool loop);
/* Channels [c0,c1) of weight w into their piece at dst, slot by slot. */
tsr_status tsr_program_send_weight(tsr_program *p, int32_t w, const int32_t c[2], void *dst,
                                   tsr_pool *pool, uint64_t *bytes, tsr_err *err);
/* Bytes at dst, on the device, from the spill at `at`; and back. Queued on the copy queue. */
tsr_status tsr_program_send_spilled(tsr_program *p, void *dst, size_t at, size_t bytes,
                                    tsr_err *err);
tsr_status tsr_program_take_spilled(tsr_program *p, const void *src, size_t at, size_t bytes,
                                    tsr_err *err);
/* What is recorded when job i is done, and when everything before it is computed. */
int32_t tsr_program_events(const tsr_program *p); /* how many there are */
int32_t tsr_program_job_done(int32_t i);
int32_t tsr_program_job_fence(int32_t i);

/* program_io.c: jobs [begin,end) are submitted, those up to `n` waited for, all finished. */
void tsr_program_submit(tsr_program *p, int32_t begin, int32_t end, int32_t step);
tsr_status tsr_program_wait(tsr_program *p, int32_t begin, int32_t n);
tsr_status tsr_program_drain(tsr_program *p, tsr_status st);

#endif
