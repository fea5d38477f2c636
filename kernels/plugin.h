/* plugin.h -- a backend in a shared object, opened when it is asked for.
 *
 * The program itself links nothing of CUDA: libtessera_cuda.so has one symbol, tsr_plugin_get, that
 * gives the table below. Structs of backend.h cross this border, so both sides must be of one
 * build: `abi` is a hash of what they share, and another one is refused. The plug-in allocates
 * through the program, which so counts it. Finding and opening: kernels/plugin.c. */
#ifndef TSR_KERNELS_PLUGIN_H
#define TSR_KERNELS_PLUGIN_H

#include "base/log.h"
#include "kernels/backend.h"

typedef struct tsr_plugin_host {
    void *(*alloc)(size_t bytes); /* zeroed */
    void (*free)(void *p);
} tsr_plugin_host;

typedef struct tsr_plugin {
    uint64_t (*abi)(void); /* tsr_plugin_abi, as the plug-in was compiled */
    /* Fills up to `max`; *n is how many there are. TSR_E_DEVICE: no driver, or too old. */
    tsr_status (*list)(tsr_device_info *list, int32_t max, int32_t *n, tsr_err *err);
    /* A backend on device `index`. TSR_E_DEVICE with what is wrong. */
    tsr_status (*open)(const tsr_plugin_host *host, int32_t index, tsr_backend **b, tsr_err *err);
    void (*close)(tsr_backend *b); /* accepts NULL */
} tsr_plugin;

/* The plug-in's symbol. */
const tsr_plugin *tsr_plugin_get(void);
typedef const tsr_plugin *(*tsr_plugin_get_fn)(void);

/* Opens the shared object; *plugin lives until tsr_plugin_close. TSR_E_DEVICE says why CUDA is not
 * used. */
tsr_status tsr_plugin_open(const char *name, void **handle, const tsr_plugin **plugin,
                           tsr_err *err);
void tsr_plugin_close(void *handle); /* accepts NULL */

/* What both sides must agree on. */
uint64_t tsr_plugin_abi(void);

#endif
