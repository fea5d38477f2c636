/* check_graphs.c -- the graphs that the backend builds, shown to the real cuDNN. Needs no GPU:
 * cuDNN plans for a device that is described to it, here one of the H100's kind.
 *
 * Every shape of the models must be taken by an engine. One whose kernel is compiled on the spot
 * (convolutions with what is added to them, attention) comes as far as loading that: there is no
 * driver here. The toolkit's stub of a driver stands in, and says so. `--list` prints each case.
 * Nothing is computed. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_library.h"

static const char DEVICE[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"regsPerBlock\": 65536, \"multiProcessorCount\": 132, \"warpSize\": 32, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, "
    "\"memClockRateKHz\": 2619000, \"l2CacheSize\": 52428800, \"deviceName\": \"described\", "
    "\"deviceVer\": 900, \"driverVer\": 13000, \"deviceId\": 0, "
    "\"totalGlobalMem\": 85899345920, \"cudaDeviceId\": 0}";

/* Of running, which nothing here does. */
bool tsr_cuda_ok(tsr_cuda *c, cudaError_t e, const char *doing)
{
    (void)c;
    (void)doing;
    return e == cudaSuccess;
}

static int failed, passed;
static bool list;

static void describe(tsr_cuda *c)
{
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                                                   (cudnnBackendDescriptor_t *)&c->dnn_device);

    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(c->dnn_device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                     CUDNN_TYPE_CHAR, (int64_t)sizeof DEVICE, DEVICE);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(c->dnn_device);
    if (s != CUDNN_STATUS_SUCCESS) {
        printf("skip: this cuDNN does not take the device's description (%s)\n",
               cudnnGetErrorString(s));
        exit(0);
    }
}

static void verdict(const tsr_cuda_plan *p, tsr_status st, const tsr_err *err, const char *what)
{
    bool compiled = st == TSR_E_DEVICE && strstr(err->msg, "EXECUTION_FAILED_CUDA_DRIVER");
    char why[256] = "";

    if (p->is_own || st != TSR_OK)
        cudnnGetLastErrorString(why, sizeof why);
    compiled = compiled && strstr(why, "cuLibraryLoadData");
    if ((st != TSR_OK || p->is_own) && !compiled) {
        printf("FAIL %s: %s%s\n", what, err->msg, why);
        failed++;
        return;
    }
    passed++;
    if (list && compiled)
        printf("%s: compiled\n", what);
    else if (list)
        printf("%s: %zu bytes of scratch\n", what, p->work_bytes);
}

/* n, h, w, c, co, kernel, stride; rows of a window: 0 is all. */
typedef struct conv {
    int32_t n, h, w, c, co, r, stride, rows;
    const char *with; /* letters: bias, vector, residual, single precision */
} conv;

static const conv CONVS[] = {
    {2, 64, 64, 320, 320, 3, 1, 0, "bv"},    {2, 64, 64, 320, 320, 3, 1, 0, "br"},
    {2, 64, 64, 320, 320, 3, 2, 0, "b"},     {2, 32, 32, 640, 640, 3, 1, 0, "bv"},
    {2, 16, 16, 1280, 1280, 3, 1, 0, "br"},  {2, 8, 8, 2560, 1280, 3, 1, 0, "bv"},
    {2, 128, 128, 320, 320, 3, 1, 0, "br"},  {1, 64, 64, 512, 512, 3, 1, 0, "br"},
    {1, 512, 512, 128, 128, 3, 1, 32, "br"}, {1, 512, 512, 256, 128, 1, 1, 0, "b"},
    {1, 64, 64, 320, 320, 3, 1, 16, ""},     {1, 64, 64, 512, 512, 3, 1, 0, "bs"},
};

static void check_conv(tsr_cuda *c, const conv *s)
{
    int32_t oh = (s->h - 1) / s->stride + 1, rows = s->rows ? s->rows : oh;
    tsr_op op = {.kind = TSR_OP_CONV2D};
    tsr_dtype dtype = strchr(s->with, 's') ? TSR_F32 : TSR_F16;
    size_t size = tsr_dtype_size(dtype);
    tsr_tensor x = {.n = s->n, .h = s->h, .w = s->w, .c = s->c, .dtype = dtype};
    tsr_tensor y = {
        .n = s->n, .h = oh, .w = (s->w - 1) / s->stride + 1, .c = s->co, .dtype = dtype};
    tsr_call call = {.op = &op, .window = {0, s->n, 0, rows, 0, 0}};
    tsr_cuda_plan p = {0};
    tsr_err err = {0};
    char what[120];

    op.u.conv.r = op.u.conv.s = s->r;
    op.u.conv.stride = s->stride;
    op.u.conv.pad_top = op.u.conv.pad_left = s->r / 2;
    x.data = y.data = &op;
    x.row_stride = size * (size_t)x.w * (size_t)x.c;
    y.row_stride = size * (size_t)y.w * (size_t)y.c;
    x.entry_stride = x.row_stride * (size_t)x.h;
    y.entry_stride = y.row_stride * (size_t)y.h;
    call.in[0] = x;
    call.out = y;
    call.w[0] = &op;
    call.w[1] = strchr(s->with, 'b') ? &op : NULL;
    if (strchr(s->with, 'v'))
        call.in[2] = (tsr_tensor){.data = &op,
                                  .n = s->n,
                                  .h = 1,
                                  .w = 1,
                                  .c = s->co,
                                  .dtype = dtype,
                                  .entry_stride = size * (size_t)s->co};
    if (strchr(s->with, 'r'))
        call.in[3] = y;
    p.key = tsr_cuda_conv_key(&call);
    p.key.work_bytes = 8 << 20;
    snprintf(what, sizeof what,
             "conv %dx%d %dx%d, %d -> %d, %s, stride %d, %d rows%s%s%s, %d entries", s->r, s->r,
             s->h, s->w, s->c, s->co, tsr_dtype_name(dtype), s->stride, rows,
             strchr(s->with, 'b') ? ", bias" : "", strchr(s->with, 'v') ? ", vector" : "",
             strchr(s->with, 'r') ? ", residual" : "", s->n);
    verdict(&p, tsr_cuda_conv_build(c, &p, &err), &err, what);
    tsr_cuda_graph_free(&p);
}

/* n, queries, keys, heads, width */
static const int32_t HEADS[][5] = {
    {2, 4096, 4096, 8, 40},  {2, 4096, 77, 8, 40},  {2, 1024, 1024, 8, 80},
    {2, 256, 256, 8, 160},   {2, 64, 77, 8, 160},   {2, 4096, 4096, 10, 64},
    {2, 1024, 1024, 20, 64}, {2, 1024, 77, 20, 64}, {1, 512, 4096, 8, 40}};

static void check_heads(tsr_cuda *c, const int32_t s[5])
{
    tsr_op op = {.kind = TSR_OP_ATTENTION};
    int32_t width = s[3] * s[4];
    tsr_tensor q = {.n = s[0], .h = s[1], .w = 1, .c = width, .dtype = TSR_F16, .data = &op};
    tsr_tensor k;
    tsr_call call = {.op = &op, .window = {0, s[0], 0, s[1], 0, 0}};
    tsr_cuda_plan p = {0};
    tsr_err err = {0};
    char what[120];

    op.u.attention.n_heads = s[3];
    op.u.attention.scale = 1 / sqrtf((float)s[4]);
    q.row_stride = 2 * (size_t)width;
    k = q;
    k.h = s[2];
    q.entry_stride = q.row_stride * (size_t)q.h;
    k.entry_stride = k.row_stride * (size_t)k.h;
    call.in[0] = call.out = q;
    call.in[1] = call.in[2] = k;
    p.key = tsr_cuda_sdpa_key(&call);
    p.key.work_bytes = 8 << 20;
    snprintf(what, sizeof what, "attention %d queries, %d keys, %d heads of %d, %d entries", s[1],
             s[2], s[3], s[4], s[0]);
    verdict(&p, tsr_cuda_sdpa_build(c, &p, &err), &err, what);
    tsr_cuda_graph_free(&p);
}

int main(int argc, char **argv)
{
    static tsr_cuda c;

    dlopen(TSR_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL); /* cuDNN finds it by its name: libcuda.so.1 */
    list = argc > 1 && strcmp(argv[1], "--list") == 0;
    describe(&c);
    for (size_t i = 0; i < sizeof CONVS / sizeof *CONVS; i++)
        check_conv(&c, &CONVS[i]);
    for (size_t i = 0; i < sizeof HEADS / sizeof *HEADS; i++)
        check_heads(&c, HEADS[i]);
    (void)cudnnBackendDestroyDescriptor(c.dnn_device);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}
