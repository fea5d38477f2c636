/* elements.cuh -- elements of tensors, whatever their type, one or eight at a time.
 *
 * Types are looked at where an element is loaded: all threads take the same branch, and what these
 * kernels do is bound by memory. Eight elements are 16 bytes of half or bfloat16, 32 of float: such
 * accesses are whole and aligned where the number of channels is a multiple of eight, since values
 * begin at multiples of 64 bytes and rows are dense. */
#ifndef TSR_KERNELS_CUDA_ELEMENTS_CUH
#define TSR_KERNELS_CUDA_ELEMENTS_CUH

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/device.cuh"

struct cu_eight {
    float v[8];
};

static __device__ inline size_t cu_size(tsr_dtype d)
{
    return d == TSR_F32 || d == TSR_I32 ? 4 : d == TSR_U8 ? 1 : 2;
}

static __device__ inline float cu_get(const void *p, tsr_dtype d, size_t i)
{
    if (d == TSR_F32)
        return static_cast<const float *>(p)[i];
    if (d == TSR_F16)
        return __half2float(static_cast<const __half *>(p)[i]);
    return __bfloat162float(static_cast<const __nv_bfloat16 *>(p)[i]);
}

static __device__ inline void cu_put(void *p, tsr_dtype d, size_t i, float v)
{
    if (d == TSR_F32)
        static_cast<float *>(p)[i] = v;
    else if (d == TSR_F16)
        static_cast<__half *>(p)[i] = __float2half_rn(v);
    else
        static_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16_rn(v);
}

static __device__ inline float cu_bits_float(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* Two elements of a register. */
static __device__ inline float2 cu_unpack(uint32_t r, tsr_dtype d)
{
    float2 f;

    if (d == TSR_F16) {
        __half2_raw h;
        h.x = static_cast<unsigned short>(r & 0xFFFF);
        h.y = static_cast<unsigned short>(r >> 16);
        f = __half22float2(__half2(h));
    } else {
        f.x = cu_bits_float(r << 16);
        f.y = cu_bits_float(r & 0xFFFF0000u);
    }
    return f;
}

static __device__ inline uint32_t cu_pack(float low, float high, tsr_dtype d)
{
    if (d == TSR_F16)
        return static_cast<uint32_t>(__half_as_ushort(__float2half_rn(low))) |
               static_cast<uint32_t>(__half_as_ushort(__float2half_rn(high))) << 16;
    return static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(low))) |
           static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
}

/* Elements i .. i+7; i is a multiple of eight. */
static __device__ inline cu_eight cu_get8(const void *p, tsr_dtype d, size_t i)
{
    const unsigned char *at = static_cast<const unsigned char *>(p) + i * cu_size(d);
    cu_eight e;

    if (d == TSR_F32) {
        float4 a = cu_load<float4>(at), b = cu_load<float4>(at + 16);
        e = cu_eight{{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
        uint4 r = cu_load<uint4>(at);
        float2 a = cu_unpack(r.x, d), b = cu_unpack(r.y, d);
        float2 c = cu_unpack(r.z, d), f = cu_unpack(r.w, d);
        e = cu_eight{{a.x, a.y, b.x, b.y, c.x, c.y, f.x, f.y}};
    }
    return e;
}

static __device__ inline void cu_put8(void *p, tsr_dtype d, size_t i, const cu_eight &e)
{
    unsigned char *at = static_cast<unsigned char *>(p) + i * cu_size(d);

    if (d == TSR_F32) {
        cu_store(at, make_float4(e.v[0], e.v[1], e.v[2], e.v[3]));
        cu_store(at + 16, make_float4(e.v[4], e.v[5], e.v[6], e.v[7]));
    } else {
        cu_store(at, make_uint4(cu_pack(e.v[0], e.v[1], d), cu_pack(e.v[2], e.v[3], d),
                                cu_pack(e.v[4], e.v[5], d), cu_pack(e.v[6], e.v[7], d)));
    }
}

/* One or eight elements: the bodies of kernels are written once. */
template <int V> struct cu_some {
    float v[V];
};

template <int V>
static __device__ inline cu_some<V> cu_get_some(const void *p, tsr_dtype d, size_t i)
{
    cu_some<V> s;

    if constexpr (V == 8) {
        cu_eight e = cu_get8(p, d, i);
        for (int k = 0; k < V; k++)
            s.v[k] = e.v[k];
    } else {
        s.v[0] = cu_get(p, d, i);
    }
    return s;
}

template <int V>
static __device__ inline void cu_put_some(void *p, tsr_dtype d, size_t i, const cu_some<V> &s)
{
    if constexpr (V == 8) {
        cu_eight e;
        for (int k = 0; k < V; k++)
            e.v[k] = s.v[k];
        cu_put8(p, d, i, e);
    } else {
        cu_put(p, d, i, s.v[0]);
    }
}

/* Row y of entry n. */
static __device__ inline unsigned char *cu_row(const tsr_tensor &t, int n, int y)
{
    return static_cast<unsigned char *>(t.data) + static_cast<size_t>(n) * t.entry_stride +
           static_cast<size_t>(y - t.row0) * t.row_stride;
}

/* The activations of tape.h, as on the CPU. */
static __device__ inline float cu_silu(float x)
{
    return x / (1.0f + expf(-x));
}
static __device__ inline float cu_gelu(float x)
{
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}
static __device__ inline float cu_act(tsr_act act, float x)
{
    switch (act) {
    case TSR_ACT_SILU:
        return cu_silu(x);
    case TSR_ACT_GELU:
        return cu_gelu(x);
    case TSR_ACT_QUICK_GELU:
        return x / (1.0f + expf(-1.702f * x));
    case TSR_ACT_NONE:
        break;
    }
    return x;
}

/* On the host: whether all channels of the call's values come in eights. */
static inline bool cu_in_eights(const tsr_call *call)
{
    bool all = call->out.c % 8 == 0;

    for (int k = 0; k < 4; k++)
        all = all && (!call->in[k].data || call->in[k].c % 8 == 0);
    return all;
}

/* A thread for each `v` elements of the window's rows, which lie one behind the other: grid (parts,
 * 1, entries). */
enum { CU_BLOCK = 256 };
static inline dim3 cu_flat_grid(const tsr_window &w, const tsr_tensor &t, int v)
{
    size_t elements = static_cast<size_t>(w.h1 - w.h0) * static_cast<size_t>(t.w) *
                      static_cast<size_t>(t.c) / static_cast<size_t>(v);

    return dim3(static_cast<unsigned>((elements + CU_BLOCK - 1) / CU_BLOCK), 1,
                static_cast<unsigned>(w.n1 - w.n0));
}

/* The thread's first element. */
static __device__ inline size_t cu_flat_index(int v)
{
    return (static_cast<size_t>(blockIdx.x) * CU_BLOCK + threadIdx.x) * static_cast<size_t>(v);
}

/* Elements of `rows` rows. */
static __device__ inline size_t cu_elements(const tsr_tensor &t, int rows)
{
    return static_cast<size_t>(rows) * static_cast<size_t>(t.w) * static_cast<size_t>(t.c);
}

#endif
