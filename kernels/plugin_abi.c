/* plugin_abi.c -- what program and plug-in must agree on, as one number: the layout of what crosses
 * the border between them. Compiled into both. */
#include "kernels/plugin.h"

uint64_t tsr_plugin_abi(void)
{
    const size_t layout[] = {
        TSR_VERSION_MAJOR,          TSR_VERSION_MINOR,   TSR_VERSION_PATCH,
        sizeof(tsr_backend),        sizeof(tsr_device),  sizeof(tsr_call),
        sizeof(tsr_tensor),         sizeof(tsr_op),      sizeof(tsr_tape),
        sizeof(tsr_value),          sizeof(tsr_weight),  sizeof(tsr_err),
        sizeof(tsr_device_info),    sizeof(tsr_plugin),  sizeof(tsr_plugin_host),
        offsetof(tsr_call, window), offsetof(tsr_op, u), offsetof(tsr_call, work),
        offsetof(tsr_device, slot), TSR_OP_KINDS,        TSR_BOOL};
    uint64_t h = 0xCBF29CE484222325u;

    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        h = (h ^ layout[i]) * 0x100000001B3u;
    return h;
}
