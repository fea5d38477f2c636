/* cuda_plain.cu -- add, concat, row gather, time embedding.
 *
 * A thread has eight elements (16 or 32 bytes an access) of a row where channels come in eights,
 * else one; blocks go over rows and entries. Bytes moved: each operand once. Roof:
 * the memory's rate.
 *
 * The time embedding follows torch's float32 steps one by one, as portable_plain.c says. */
#include "kernels/cuda/elements.cuh"

struct plain_args {
    tsr_tensor out, a, b;
    const float *table; // [T,C]
    int n0, h0, n_rows;
    int dim; /* time_embed */
    bool flip;
    float shift;
};

static plain_args args_of(const tsr_call *call)
{
    plain_args a = {};

    a.out = call->out;
    a.a = call->in[0];
    a.b = call->in[1];
    a.table = static_cast<const float *>(call->w[0]);
    a.n0 = call->window.n0;
    a.h0 = call->window.h0;
    a.n_rows = call->window.h1 - call->window.h0;
    return a;
}

template <int V> static __global__ void add_kernel(const plain_args g)
{
    int n = g.n0 + static_cast<int>(blockIdx.z);
    size_t i = cu_flat_index(V);
    cu_some<V> a, b;

    if (i >= cu_elements(g.out, g.n_rows))
        return;
    a = cu_get_some<V>(cu_row(g.a, n, g.h0), g.a.dtype, i);
    if (g.table)
        b = cu_get_some<V>(g.table, TSR_F32, cu_elements(g.out, g.h0) + i);
    else
        b = cu_get_some<V>(cu_row(g.b, n, g.h0), g.b.dtype, i);
    for (int k = 0; k < V; k++)
        a.v[k] += b.v[k];
    cu_put_some<V>(cu_row(g.out, n, g.h0), g.out.dtype, i, a);
}

template <int V> static __global__ void concat_kernel(const plain_args g)
{
    int n = g.n0 + static_cast<int>(blockIdx.z);
    size_t c = static_cast<size_t>(g.out.c), ca = static_cast<size_t>(g.a.c);
    size_t i = cu_flat_index(V), pixel = i / c, ch = i % c;
    cu_some<V> v;

    if (i >= cu_elements(g.out, g.n_rows))
        return;
    if (ch < ca)
        v = cu_get_some<V>(cu_row(g.a, n, g.h0), g.a.dtype, pixel * ca + ch);
    else
        v = cu_get_some<V>(cu_row(g.b, n, g.h0), g.b.dtype, pixel * (c - ca) + ch - ca);
    cu_put_some<V>(cu_row(g.out, n, g.h0), g.out.dtype, i, v);
}

static cudaError_t launch(void (*eights)(plain_args), void (*ones)(plain_args),
                          const tsr_call *call, cudaStream_t stream)
{
    int v = cu_in_eights(call) ? 8 : 1;

    return cu_launch(v == 8 ? eights : ones, cu_flat_grid(call->window, call->out, v),
                     dim3(CU_BLOCK), 0, stream, args_of(call));
}

cudaError_t tsr_cuda_add(const tsr_call *call, cudaStream_t stream)
{
    return launch(add_kernel<8>, add_kernel<1>, call, stream);
}

cudaError_t tsr_cuda_concat(const tsr_call *call, cudaStream_t stream)
{
    return launch(concat_kernel<8>, concat_kernel<1>, call, stream);
}

/* The row number is the caller's data: out of range it is brought into it. */
static __global__ void gather_row_kernel(const plain_args g)
{
    int n = g.n0 + static_cast<int>(blockIdx.z), last = g.a.h * g.a.w - 1;
    size_t i = cu_flat_index(1);
    int row = *reinterpret_cast<const int *>(cu_row(g.b, n, 0));

    if (i >= static_cast<size_t>(g.a.c))
        return;
    row = row < 0 ? 0 : row > last ? last : row;
    cu_put(cu_row(g.out, n, 0), g.out.dtype, i,
           cu_get(cu_row(g.a, n, 0), g.a.dtype,
                  static_cast<size_t>(row) * static_cast<size_t>(g.a.c) + i));
}

cudaError_t tsr_cuda_gather_row(const tsr_call *call, cudaStream_t stream)
{
    return cu_launch(gather_row_kernel, cu_flat_grid(call->window, call->out, 1), dim3(CU_BLOCK), 0,
                     stream, args_of(call));
}

/* Element i of [K*dim]: scalar i / dim, its sine or cosine i % dim. */
static __global__ void time_embed_kernel(const plain_args g)
{
    int n = g.n0 + static_cast<int>(blockIdx.z), sines = g.dim / 2;
    int i = static_cast<int>(cu_flat_index(1)), at = i % g.dim;
    bool first = at < sines;
    float time, angle, divisor = static_cast<float>(sines) - g.shift, v;
    float scale = static_cast<float>(-9.210340371976184); /* -ln 10000, as torch rounds it */

    if (i >= g.a.c * g.dim)
        return;
    time = cu_get(cu_row(g.a, n, 0), g.a.dtype, static_cast<size_t>(i / g.dim));
    angle = time * expf(scale * static_cast<float>(first ? at : at - sines) / divisor);
    v = first != g.flip ? sinf(angle) : cosf(angle);
    if (at == 2 * sines)
        v = 0;
    cu_put(cu_row(g.out, n, 0), g.out.dtype, static_cast<size_t>(i), v);
}

cudaError_t tsr_cuda_time_embed(const tsr_call *call, cudaStream_t stream)
{
    plain_args a = args_of(call);

    a.dim = call->op->u.time_embed.dim;
    a.flip = call->op->u.time_embed.flip_sin_to_cos;
    a.shift = call->op->u.time_embed.freq_shift;
    return cu_launch(time_embed_kernel, cu_flat_grid(call->window, call->out, 1), dim3(CU_BLOCK), 0,
                     stream, a);
}
