/* io.h -- one thread that reads and writes ahead, in order.
 *
 * Jobs are executed one after the other in the order of submission; a ticket is the job's number.
 * Waiting for a ticket waits for all before it, too. The first failure sticks: later jobs are
 * skipped and every wait returns it. Submitting never allocates: the queue is a ring of
 * TSR_IO_JOBS, and a full one makes the submitter wait. All functions are the owner's, one thread's
 * at a time; jobs run on the I/O thread (stack 256 KiB) and never submit or wait themselves. */
#ifndef TSR_BASE_IO_H
#define TSR_BASE_IO_H

#include <stdint.h>

#include "base/err.h"

enum { TSR_IO_JOBS = 256 };

typedef struct tsr_io tsr_io;
/* Does the work of one job on the I/O thread; writes its sentence into err when it fails. */
typedef tsr_status (*tsr_io_fn)(void *arg, uint64_t a, uint64_t b, tsr_err *err);

tsr_status tsr_io_make(tsr_io **io, tsr_err *err);
void tsr_io_free(tsr_io *io); /* finishes what is queued; accepts NULL */
/* Queues fn(arg, a, b); returns its ticket (1, 2, ...). */
uint64_t tsr_io_submit(tsr_io *io, tsr_io_fn fn, void *arg, uint64_t a, uint64_t b);
/* Waits until the job is done. Adds the time that it had to wait to *seconds (may be NULL). */
tsr_status tsr_io_wait(tsr_io *io, uint64_t ticket, double *seconds, tsr_err *err);
uint64_t tsr_io_last(const tsr_io *io); /* ticket of the last submitted job; 0: none */
/* Waits for everything, returns a failure and forgets it: before the next phase or picture. */
tsr_status tsr_io_drain(tsr_io *io, tsr_err *err);

#endif
