/* thread.c -- see thread.h. A thread inherits the signal mask: it is set around the call. */
#include "base/thread.h"

#include <signal.h>

enum { STACK_BYTES = 256 * 1024 };

int tsr_thread_start(pthread_t *thread, void *(*main)(void *arg), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int error = pthread_attr_init(&attr);

    if (error)
        return error;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attr, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}
