/* sim.h -- what tests ask of the simulated device, and what it tells them.
 *
 * libtessera_cuda_sim.so is the plug-in, built against this simulation instead of the CUDA
 * libraries; gen and tests open it as they would open the plug-in. Tests find the table below by
 * dlsym(handle, "tsr_sim_control"). Everything is for the whole process. */
#ifndef TSR_TESTS_SIM_H
#define TSR_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sim_order_kind {
    SIM_ORDER_FORWARD,
    SIM_ORDER_BACKWARD,
    SIM_ORDER_RANDOM
} sim_order_kind;

/* In which order fibers run. */
typedef struct sim_order {
    sim_order_kind kind;
    uint64_t seed;
} sim_order;

/* When queued work is done. */
typedef enum sim_stream_kind {
    SIM_STREAMS_LATE,  /* only what is waited for, when it is waited for */
    SIM_STREAMS_EARLY, /* other streams first, as far as events allow */
    SIM_STREAMS_RANDOM
} sim_stream_kind;

typedef struct sim_options {
    size_t device_bytes;  /* memory of the device; 0: 8 GiB */
    size_t context_bytes; /* taken by the context; 0: 300 MiB */
    size_t others_bytes;  /* used by other processes */
    size_t library_bytes; /* taken when a library runs for the first time; 0: 16 MiB */
    bool no_engines;      /* cuDNN and cuBLASLt have nothing to propose */
    int32_t n_devices;    /* 0: one */
    int32_t capability;   /* 75, 80, ..; 0: 90 */
    int32_t driver;       /* as cudaDriverGetVersion tells it; 0: 13000; -1: no driver */
    sim_order order;
    sim_stream_kind streams;
    uint64_t stream_seed;
} sim_options;

typedef struct sim_figures {
    size_t used, peak;                     /* device bytes, context included */
    size_t pinned;                         /* host bytes */
    size_t n_allocations;                  /* of the device, live */
    size_t n_streams, n_events, n_handles; /* live */
    uint64_t n_calls;                      /* of the runtime and the libraries, that may fail */
    uint64_t n_launches, n_library_calls;
    uint64_t bytes_to_device, bytes_to_host;
} sim_figures;

typedef struct sim_control {
    void (*set)(const sim_options *o); /* nothing may be allocated */
    void (*figures)(sim_figures *f);
    /* The nth call from now on (1: the next) fails, once, as the call would; 0: off. */
    void (*fail_at)(uint64_t n);
    bool (*failed)(void); /* that has happened */
    /* From now on every call fails as a lost device does (or an ECC error), until set(). */
    void (*lose_device)(int32_t cuda_error);
    /* The first mistake that was seen (a kernel's, a descriptor's, an address'); "" when none. */
    const char *(*fault)(void);
    void (*clear_fault)(void);
} sim_control;

/* The only symbol beside the plug-in's own. */
const sim_control *tsr_sim_control(void);

#endif
