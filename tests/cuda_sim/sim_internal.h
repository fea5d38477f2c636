/* sim_internal.h -- what the files of the simulation share: one device, under one lock.
 *
 * sim_runtime.c: calls that ask and set, errors, faults. sim_memory.c: what is allocated where.
 * sim_stream.c: what is queued, and in which order it is done. Libraries queue their work with
 * sim_queue, as kernels and copies are queued. */
#ifndef TSR_TESTS_SIM_INTERNAL_H
#define TSR_TESTS_SIM_INTERNAL_H

#include <pthread.h>

#include "tests/cuda_sim/sim_fiber.h"

typedef struct sim_state {
    sim_options o;
    sim_figures f;
    uint64_t fail_in; /* calls until one fails; 0: none */
    bool has_failed;
    cudaError_t lost;   /* every call fails so */
    cudaError_t sticky; /* of a kernel that went wrong: likewise, until the process ends */
    bool is_open;       /* the context is there */
    bool libraries_loaded;
    uint64_t random;
    char fault[512];
} sim_state;

extern sim_state sim;
extern pthread_mutex_t sim_lock;

/* Every entry that may fail begins with one of these, and returns what it gives when it is not
 * cudaSuccess; the lock is then free. On success it is held: end with sim_leave. */
cudaError_t sim_enter(cudaError_t on_fault);
cudaError_t sim_leave(cudaError_t e);
/* For what gives something back: the lock is held whatever it returns, and the thing goes. */
cudaError_t sim_enter_release(void);
/* The first mistake is kept; returns `e`. */
cudaError_t sim_mistake(cudaError_t e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
uint32_t sim_below(uint32_t n);

/* sim_memory.c */
typedef enum sim_place { SIM_PAGEABLE, SIM_PINNED, SIM_DEVICE } sim_place;
/* Where [p, p + bytes) lies; *whole: in one piece of memory that is allocated. */
sim_place sim_place_of(const void *p, size_t bytes, bool *whole);
void sim_memory_open(void); /* device memory can be used: what is queued is being done */
void sim_memory_close(void);
bool sim_memory_intact(void); /* no red zone was written */
bool sim_memory_empty(void);
size_t sim_memory_free_bytes(void);

/* sim_stream.c */
/* Copies `bytes` of arg; fn(arg) is called when the stream comes here. It returns NULL, or what was
 * wrong. */
typedef const char *(*sim_work_fn)(void *arg);
cudaError_t sim_queue(cudaStream_t s, sim_work_fn fn, const void *arg, size_t bytes);
cudaError_t sim_drain_all(void);
bool sim_stream_known(cudaStream_t s);

#endif
