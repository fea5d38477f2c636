/* open_sim.c -- see open_sim.h. */
#include "tests/cuda_sim/open_sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

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

const tsr_backend *sim_backend(void)
{
    static const tsr_plugin_host host = {zeroed, tsr_free};
    static tsr_backend *b;
    tsr_err err = {0};

    if (!b && sim_plugin()->open(&host, 0, &b, &err) != TSR_OK) {
        fprintf(stderr, "the simulated device cannot be opened: %s\n", err.msg);
        exit(1);
    }
    return b;
}
