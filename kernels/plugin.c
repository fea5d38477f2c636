/* plugin.c -- finds and opens a backend's shared object.
 *
 * Beside the running program, in ../lib/tessera from there, then where the system looks. What is
 * not there, does not load (a library that it needs is missing) or is of another build is told in
 * one sentence. */
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* <program's directory><below><name>, when such a file can be read. */
static bool beside(char *path, size_t bytes, const char *below, const char *name)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;
    int len;

    if (n <= 0)
        return false;
    self[n] = 0;
    slash = strrchr(self, '/');
    if (!slash)
        return false;
    slash[1] = 0;
    len = snprintf(path, bytes, "%s%s%s", self, below, name);
    return len > 0 && (size_t)len < bytes && access(path, R_OK) == 0;
}

static void *open_object(const char *name, bool *found)
{
    static const char *const places[] = {"", "../lib/tessera/"};
    char path[PATH_MAX + 64];

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (beside(path, sizeof path, places[i], name)) {
            *found = true;
            return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        }
    *found = false;
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

tsr_status tsr_plugin_open(const char *name, void **handle, const tsr_plugin **plugin, tsr_err *err)
{
    tsr_plugin_get_fn get;
    bool found;
    void *object = open_object(name, &found), *symbol;

    if (!object) {
        const char *why = dlerror();
        if (!found)
            TSR_FAIL(err, TSR_E_DEVICE, "CUDA is not used: %s is not installed beside the program",
                     name);
        TSR_FAIL(err, TSR_E_DEVICE, "CUDA is not used: %s cannot be loaded: %s", name,
                 why ? why : "no reason is given");
    }
    symbol = dlsym(object, "tsr_plugin_get");
    if (symbol) {
        memcpy(&get, &symbol, sizeof get);
        *plugin = get();
    }
    if (!symbol || (*plugin)->abi() != tsr_plugin_abi()) {
        dlclose(object);
        TSR_FAIL(err, TSR_E_DEVICE, "CUDA is not used: %s is of another build than this program",
                 name);
    }
    *handle = object;
    return TSR_OK;
}

void tsr_plugin_close(void *handle)
{
    if (handle)
        dlclose(handle);
}
