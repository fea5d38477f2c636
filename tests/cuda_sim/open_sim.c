/* open_sim.c -- see open_sim.h. */
#include "tests/cuda_sim/open_sim.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MOST_THREADS = 64 };

static void *symbol(const char *name)
{
    static void *handle;
    void *p;

    if (!handle)
        handle = dlopen(TSR_BINARY_DIR "/libtessera_cuda_sim.so", RTLD_NOW | RTLD_LOCAL);
    p = handle ? dlsym(handle, name) : NULL;
    if (!p) {
        fprintf(stderr, "the simulated device cannot be opened: %s\n", dlerror());
        exit(1);
    }
    return p;
}

const tsr_plugin *sim_plugin(void)
{
    tsr_plugin_get_fn get;
    void *p = symbol("tsr_plugin_get");

    memcpy(&get, &p, sizeof get);
    return get();
}

const sim_control *sim_controls(void)
{
    const sim_control *(*get)(void);
    void *p = symbol("tsr_sim_control");

    memcpy(&get, &p, sizeof get);
    return get();
}

static void *zeroed(size_t bytes)
{
    return tsr_calloc(1, bytes);
}

/* A backend belongs to one thread at a time, as a context does. */
const tsr_backend *sim_backend(void)
{
    static const tsr_plugin_host host = {zeroed, tsr_free};
    static tsr_backend *all[MOST_THREADS];
    static atomic_int n;
    static _Thread_local int mine = -1;
    tsr_err err = {0};

    if (mine >= 0)
        return all[mine];
    mine = atomic_fetch_add(&n, 1);
    if (mine >= MOST_THREADS || sim_plugin()->open(&host, 0, &all[mine], &err) != TSR_OK) {
        fprintf(stderr, "the simulated device cannot be opened: %s\n", err.msg);
        exit(1);
    }
    return all[mine];
}
