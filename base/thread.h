/* thread.h -- a thread of the library's own. */
#ifndef TSR_BASE_THREAD_H
#define TSR_BASE_THREAD_H

#include <pthread.h>

/* Starts main(arg) on a small stack (256 KiB) with all signals blocked: they are the business of
 * the caller's threads. Returns 0 or an errno. */
int tsr_thread_start(pthread_t *thread, void *(*main)(void *arg), void *arg);

#endif
