/* cuda_norm.cu -- group_norm over one or two inputs, with SiLU, and layer_norm.
 *
 * group_norm is three launches: statistics of the window's rows, their merging, the elements.
 *   1. A warp takes one group of one row of the picture: mean, then M2, the sum of squared
 * distances from it; lane i has elements i, i + 32 .. of [W][C / G]. Sums are of x - pivot, the
 * pivot being the group's first element: so a mean far above the deviation costs no digits.
 *   2. A warp merges the H pairs of a group in double (Chan, Golub and LeVeque, 1979).
 *   3. A thread has eight elements (16 bytes), or one: (x - mean) * rstd * gamma + beta.
 * The mean is two floats, high and low. layer_norm is one launch, a warp a token.
 *
 * Every order is a function of W, C, G and H alone: windows, entries and blocks change no bit.
 * Bytes moved: the input twice (the second time mostly from the cache), the output once. Roof: the
 * memory's rate. */
#include "kernels/cuda/elements.cuh"

struct pair {
    double mean, m2;
};
struct merged {
    float high, low, rstd, unused;
};

struct norm_args {
    tsr_tensor out, a, b;
    const float *gamma, *beta; // [C]
    pair *rows;                // [N,H,G]
    merged *whole;             // [N,G]
    int n0, h0, n_rows, h, groups;
    int entry0; /* that rows[0] and whole[0] belong to */
    float eps;
    bool silu;
};

size_t tsr_cuda_norm_stats_bytes(int32_t n, int32_t h, int32_t groups)
{
    return static_cast<size_t>(n) * static_cast<size_t>(groups) *
           (static_cast<size_t>(h) * sizeof(pair) + sizeof(merged));
}

size_t tsr_cuda_group_norm_work(const tsr_tape *t, const tsr_op *op, const tsr_window *w)
{
    return tsr_cuda_norm_stats_bytes(w->n1 - w->n0, t->values[op->out].h, op->u.norm.groups);
}

static norm_args args_of(const tsr_call *call, void *stats, int entry0, int entries)
{
    norm_args g = {};
    size_t n_rows = static_cast<size_t>(entries) * static_cast<size_t>(call->out.h) *
                    static_cast<size_t>(call->op->u.norm.groups);

    g.out = call->out;
    g.a = call->in[0];
    g.b = call->in[1];
    g.gamma = static_cast<const float *>(call->w[0]);
    g.beta = static_cast<const float *>(call->w[1]);
    g.rows = static_cast<pair *>(stats);
    g.whole = reinterpret_cast<merged *>(g.rows + n_rows);
    g.n0 = call->window.n0;
    g.h0 = call->window.h0;
    g.n_rows = call->window.h1 - call->window.h0;
    g.h = call->out.h;
    g.groups = call->op->u.norm.groups;
    g.entry0 = entry0;
    g.eps = call->op->u.norm.eps;
    g.silu = call->op->u.norm.silu;
    return g;
}

static __device__ inline float warp_sum(float v)
{
    for (int m = 16; m > 0; m /= 2)
        v += cu_shfl_xor(v, m);
    return v;
}

static __device__ inline double warp_sum(double v)
{
    for (int m = 16; m > 0; m /= 2)
        v += cu_shfl_xor(v, m);
    return v;
}

/* Element i of a group: [W][C / G], over both inputs. */
static __device__ inline float group_element(const norm_args &g, const unsigned char *ra,
                                             const unsigned char *rb, int c0, int cg, int i)
{
    int x = i / cg, c = c0 + i % cg;

    if (c < g.a.c)
        return cu_get(ra, g.a.dtype,
                      static_cast<size_t>(x) * static_cast<size_t>(g.a.c) + static_cast<size_t>(c));
    return cu_get(rb, g.b.dtype,
                  static_cast<size_t>(x) * static_cast<size_t>(g.b.c) +
                      static_cast<size_t>(c - g.a.c));
}

static __global__ void stats_kernel(const norm_args g)
{
    int y = g.h0 + static_cast<int>(blockIdx.y), n = g.n0 + static_cast<int>(blockIdx.z);
    int lane = static_cast<int>(threadIdx.x % 32);
    int group = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
    int c = g.a.c + (g.b.data ? g.b.c : 0), cg = c / g.groups, count = g.a.w * cg;
    const unsigned char *ra, *rb;
    float pivot, mean = 0, m2 = 0;

    if (group >= g.groups)
        return;
    ra = cu_row(g.a, n, y);
    rb = g.b.data ? cu_row(g.b, n, y) : NULL;
    pivot = group_element(g, ra, rb, group * cg, cg, 0);
    for (int i = lane; i < count; i += 32)
        mean += group_element(g, ra, rb, group * cg, cg, i) - pivot;
    mean = warp_sum(mean) / static_cast<float>(count);
    for (int i = lane; i < count; i += 32) {
        float d = group_element(g, ra, rb, group * cg, cg, i) - pivot - mean;
        m2 += d * d;
    }
    m2 = warp_sum(m2);
    if (lane == 0) {
        pair *p = g.rows +
                  (static_cast<size_t>(n - g.entry0) * static_cast<size_t>(g.h) +
                   static_cast<size_t>(y)) *
                      static_cast<size_t>(g.groups) +
                  group;
        p->mean = static_cast<double>(pivot) + static_cast<double>(mean);
        p->m2 = static_cast<double>(m2);
    }
}

static __global__ void merge_kernel(const norm_args g)
{
    int n = g.n0 - g.entry0 + static_cast<int>(blockIdx.y);
    int group = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
    int c = g.a.c + (g.b.data ? g.b.c : 0);
    double count = static_cast<double>(g.a.w) * (c / g.groups), mean = 0, m2 = 0;
    const pair *rows =
        g.rows + static_cast<size_t>(n) * static_cast<size_t>(g.h) * static_cast<size_t>(g.groups) +
        group;

    for (int y = lane; y < g.h; y += 32)
        mean += rows[static_cast<size_t>(y) * static_cast<size_t>(g.groups)].mean;
    mean = warp_sum(mean) / g.h;
    for (int y = lane; y < g.h; y += 32) {
        pair p = rows[static_cast<size_t>(y) * static_cast<size_t>(g.groups)];
        m2 += p.m2 + count * (p.mean - mean) * (p.mean - mean);
    }
    m2 = warp_sum(m2);
    if (lane == 0) {
        merged m;
        m.high = static_cast<float>(mean);
        m.low = static_cast<float>(mean - static_cast<double>(m.high));
        m.rstd = static_cast<float>(1 / sqrt(m2 / (count * g.h) + static_cast<double>(g.eps)));
        m.unused = 0;
        g.whole[static_cast<size_t>(n) * static_cast<size_t>(g.groups) +
                static_cast<size_t>(group)] = m;
    }
}

template <int V> static __global__ void group_norm_kernel(const norm_args g)
{
    int n = g.n0 + static_cast<int>(blockIdx.z), cg = g.out.c / g.groups;
    size_t i = cu_flat_index(V), c = static_cast<size_t>(g.out.c), ca = static_cast<size_t>(g.a.c);
    size_t pixel = i / c, ch = i % c;
    const merged *whole =
        g.whole + static_cast<size_t>(n - g.entry0) * static_cast<size_t>(g.groups);
    cu_some<V> v;

    if (i >= cu_elements(g.out, g.n_rows))
        return;
    if (ch < ca)
        v = cu_get_some<V>(cu_row(g.a, n, g.h0), g.a.dtype, pixel * ca + ch);
    else
        v = cu_get_some<V>(cu_row(g.b, n, g.h0), g.b.dtype, pixel * (c - ca) + ch - ca);
    for (int k = 0; k < V; k++) {
        size_t at = ch + static_cast<size_t>(k);
        merged m = whole[at / static_cast<size_t>(cg)];
        float f = (v.v[k] - m.high - m.low) * m.rstd * g.gamma[at] + g.beta[at];
        v.v[k] = g.silu ? cu_silu(f) : f;
    }
    cu_put_some<V>(cu_row(g.out, n, g.h0), g.out.dtype, i, v);
}

enum { STAT_WARPS = 8 };

static cudaError_t launch_stats(const norm_args &g, int rows, int entries, cudaStream_t stream)
{
    dim3 grid(static_cast<unsigned>((g.groups + STAT_WARPS - 1) / STAT_WARPS),
              static_cast<unsigned>(rows), static_cast<unsigned>(entries));

    return cu_launch(stats_kernel, grid, dim3(32 * STAT_WARPS), 0, stream, g);
}

cudaError_t tsr_cuda_norm_stats(const tsr_call *call, cudaStream_t stream)
{
    const tsr_window &w = call->window;

    return launch_stats(args_of(call, call->stats, 0, call->in[0].n), w.h1 - w.h0, w.n1 - w.n0,
                        stream);
}

cudaError_t tsr_cuda_group_norm(const tsr_call *call, cudaStream_t stream)
{
    const tsr_window &w = call->window;
    int entries = w.n1 - w.n0;
    norm_args g = call->stats ? args_of(call, call->stats, 0, call->out.n)
                              : args_of(call, call->work, w.n0, entries);
    cudaError_t e = cudaSuccess;

    if (!call->stats) {
        norm_args all = g;
        all.h0 = 0;
        e = launch_stats(all, g.h, entries, stream);
    }
    if (e == cudaSuccess)
        e = cu_launch(merge_kernel,
                      dim3(static_cast<unsigned>(g.groups), static_cast<unsigned>(entries)),
                      dim3(32), 0, stream, g);
    if (e != cudaSuccess)
        return e;
    if (cu_in_eights(call))
        return cu_launch(group_norm_kernel<8>, cu_flat_grid(w, call->out, 8), dim3(CU_BLOCK), 0,
                         stream, g);
    return cu_launch(group_norm_kernel<1>, cu_flat_grid(w, call->out, 1), dim3(CU_BLOCK), 0, stream,
                     g);
}

/* ------------------------------------------------------------------- layer_norm */

enum { LAYER_WARPS = 4 };

struct layer_args {
    tsr_tensor out, x;
    const float *gamma, *beta; // [C]
    int n0, h0, n_rows;
    float eps;
};

/* A warp a token. */
static __global__ void layer_norm_kernel(const layer_args g)
{
    int n = g.n0 + static_cast<int>(blockIdx.z), lane = static_cast<int>(threadIdx.x % 32),
        c = g.x.c;
    size_t token = static_cast<size_t>(blockIdx.x) * LAYER_WARPS + threadIdx.x / 32;
    size_t first = token * static_cast<size_t>(c);
    const unsigned char *in = cu_row(g.x, n, g.h0);
    float pivot, mean = 0, m2 = 0, rstd;

    if (first >= cu_elements(g.x, g.n_rows))
        return;
    pivot = cu_get(in, g.x.dtype, first);
    for (int i = lane; i < c; i += 32)
        mean += cu_get(in, g.x.dtype, first + static_cast<size_t>(i)) - pivot;
    mean = warp_sum(mean) / static_cast<float>(c);
    for (int i = lane; i < c; i += 32) {
        float d = cu_get(in, g.x.dtype, first + static_cast<size_t>(i)) - pivot - mean;
        m2 += d * d;
    }
    rstd = 1.0f / sqrtf(warp_sum(m2) / static_cast<float>(c) + g.eps);
    for (int i = lane; i < c; i += 32) {
        size_t at = first + static_cast<size_t>(i);
        float d = cu_get(in, g.x.dtype, at) - pivot - mean;
        cu_put(cu_row(g.out, n, g.h0), g.out.dtype, at, d * rstd * g.gamma[i] + g.beta[i]);
    }
}

cudaError_t tsr_cuda_layer_norm(const tsr_call *call, cudaStream_t stream)
{
    const tsr_window &w = call->window;
    size_t tokens = static_cast<size_t>(w.h1 - w.h0) * static_cast<size_t>(call->out.w);
    layer_args g = {};

    g.out = call->out;
    g.x = call->in[0];
    g.gamma = static_cast<const float *>(call->w[0]);
    g.beta = static_cast<const float *>(call->w[1]);
    g.n0 = w.n0;
    g.h0 = w.h0;
    g.n_rows = w.h1 - w.h0;
    g.eps = call->op->u.norm.eps;
    return cu_launch(layer_norm_kernel,
                     dim3(static_cast<unsigned>((tokens + LAYER_WARPS - 1) / LAYER_WARPS), 1,
                          static_cast<unsigned>(w.n1 - w.n0)),
                     dim3(32 * LAYER_WARPS), 0, stream, g);
}
