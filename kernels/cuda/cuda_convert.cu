/* cuda_convert.cu -- the network's ends: NCHW float latents and 8-bit pictures; finding numbers
 * that are not finite.
 *
 * One element a thread; an NCHW tensor is a value whose (h, w, c) hold (C, H, W). These move a few
 * hundred kilobytes a step. Roundings as portable_convert.c has them. */
#include "kernels/cuda/elements.cuh"

struct convert_args {
    tsr_tensor out, in;
    int n0, h0, n_rows;
    float scale;
};

static convert_args args_of(const tsr_call *call)
{
    convert_args a = {};

    a.out = call->out;
    a.in = call->in[0];
    a.n0 = call->window.n0;
    a.h0 = call->window.h0;
    a.n_rows = call->window.h1 - call->window.h0;
    a.scale = call->op->u.convert.scale;
    return a;
}

typedef void (*convert_kernel)(convert_args);

/* A thread for each element of the window's rows. */
static cudaError_t launch(convert_kernel kernel, const tsr_call *call, cudaStream_t stream)
{
    return cu_launch(kernel, cu_flat_grid(call->window, call->out, 1), dim3(CU_BLOCK), 0, stream,
                     args_of(call));
}

struct place {
    int n, y, x, c;
    bool inside;
};

static __device__ inline place place_of(const convert_args &g)
{
    size_t i = cu_flat_index(1), pixel = i / static_cast<size_t>(g.out.c);
    place p;

    p.n = g.n0 + static_cast<int>(blockIdx.z);
    p.y = g.h0 + static_cast<int>(pixel / static_cast<size_t>(g.out.w));
    p.x = static_cast<int>(pixel % static_cast<size_t>(g.out.w));
    p.c = static_cast<int>(i % static_cast<size_t>(g.out.c));
    p.inside = i < cu_elements(g.out, g.n_rows);
    return p;
}

static __device__ inline size_t at(const tsr_tensor &t, int x, int c)
{
    return static_cast<size_t>(x) * static_cast<size_t>(t.c) + static_cast<size_t>(c);
}

static __global__ void latent_in_kernel(const convert_args g)
{
    place p = place_of(g);

    if (p.inside)
        cu_put(cu_row(g.out, p.n, p.y), g.out.dtype, at(g.out, p.x, p.c),
               g.scale * cu_get(cu_row(g.in, p.n % g.in.n, p.c), g.in.dtype, at(g.in, p.y, p.x)));
}

/* A row of the output value is one channel's plane. */
static __global__ void latent_out_kernel(const convert_args g)
{
    place p = place_of(g);

    if (p.inside)
        cu_put(cu_row(g.out, p.n, p.y), g.out.dtype, at(g.out, p.x, p.c),
               cu_get(cu_row(g.in, p.n, p.x), g.in.dtype, at(g.in, p.c, p.y)));
}

static __global__ void image_in_kernel(const convert_args g)
{
    place p = place_of(g);

    if (p.inside)
        cu_put(cu_row(g.out, p.n, p.y), g.out.dtype, at(g.out, p.x, p.c),
               static_cast<float>(cu_row(g.in, p.n, p.y)[at(g.in, p.x, p.c)]) / 127.5f - 1.0f);
}

/* v as the value's type holds it. */
static __device__ inline float rounded(tsr_dtype d, float v)
{
    if (d == TSR_F16)
        return __half2float(__float2half_rn(v));
    return d == TSR_BF16 ? __bfloat162float(__float2bfloat16_rn(v)) : v;
}

static __global__ void image_out_kernel(const convert_args g)
{
    place p = place_of(g);
    float v;

    if (!p.inside)
        return;
    v = rounded(g.in.dtype, cu_get(cu_row(g.in, p.n, p.y), g.in.dtype, at(g.in, p.x, p.c)) / 2);
    v = rounded(g.in.dtype, v + 0.5f);
    v = fminf(fmaxf(v, 0), 1); /* NaN becomes 0 */
    cu_row(g.out, p.n, p.y)[at(g.out, p.x, p.c)] = static_cast<unsigned char>(rintf(v * 255));
}

cudaError_t tsr_cuda_latent_in(const tsr_call *call, cudaStream_t stream)
{
    return launch(latent_in_kernel, call, stream);
}
cudaError_t tsr_cuda_latent_out(const tsr_call *call, cudaStream_t stream)
{
    return launch(latent_out_kernel, call, stream);
}
cudaError_t tsr_cuda_image_in(const tsr_call *call, cudaStream_t stream)
{
    return launch(image_in_kernel, call, stream);
}
cudaError_t tsr_cuda_image_out(const tsr_call *call, cudaStream_t stream)
{
    return launch(image_out_kernel, call, stream);
}

struct finite_args {
    tsr_tensor x;
    uint32_t *flag;
};

static __global__ void find_nonfinite_kernel(const finite_args g)
{
    size_t i = cu_flat_index(1);

    if (i < cu_elements(g.x, g.x.n_rows) &&
        !isfinite(cu_get(cu_row(g.x, static_cast<int>(blockIdx.z), g.x.row0), g.x.dtype, i)))
        atomicOr(g.flag, 1u);
}

cudaError_t tsr_cuda_find_nonfinite(const tsr_tensor *x, uint32_t *flag, cudaStream_t stream)
{
    tsr_window w = {0, x->n, 0, x->n_rows, 0, 0};
    finite_args a = {*x, flag};

    return cu_launch(find_nonfinite_kernel, cu_flat_grid(w, *x, 1), dim3(CU_BLOCK), 0, stream, a);
}
