/* cuda_gemm.cu -- convolutions and linear layers as one implicit matrix product.
 *
 *     product[m][j] = sum over k of A[m][k] B[j][k]
 *
 * m: a pixel of the window (entries, rows, columns), j: a packed row of the weight, k: (r, s, c),
 * the weight's own order. A is never there: its elements are fetched where the tap lies, zeros
 * outside, through the nearest resize, from one input or two, with SiLU where asked. A block makes
 * a tile of 64 pixels by 64 packed rows; grid (tiles of rows, tiles of pixels).
 *
 *   tensor cores (F16 or BF16 activations and weights): four warps, each 32 x 32, K in steps of 32,
 *   two buffers; where channels come in eights and there is no SiLU the next step is on its way by
 *   cp.async while this one is multiplied, else a thread fetches element by element.
 *   float (anything else): 256 threads, each 4 x 4, K in steps of 16.
 *
 * Then the tile goes through shared memory as float, and each thread finishes outputs: bias,
 * activation or GEGLU (its halves take turns in groups of eight packed rows, so both are in the
 * tile), channel vector, residual.
 *
 * A sum's order is k's alone: pieces, windows and entries change no bit. Roof: the tensor cores',
 * for large tiles; libraries do better there (cuda_conv.c, cuda_matmul.c), this computes what they
 * do not. Bytes: A once for each 64 packed rows, mostly from the cache. */
#include "kernels/cuda/elements.cuh"

enum { TILE = 64, STEP = 32, PAD = 8, PITCH = STEP + PAD, OUT_PITCH = TILE + 4 };
enum { F_STEP = 16, F_PITCH = TILE + 4 };

struct gemm_args {
    tsr_tensor out, a, b, add, residual;
    const void *w;     // [columns][K]
    const float *bias; // [Co] or [2*Co], whole
    tsr_dtype w_dtype;
    int n0, h0, rows; /* of the window */
    int m_n, j_n, k_n;
    int c0, c1; /* output channels */
    int co;     /* of the whole op */
    int c, r, s, stride, pad_top, pad_left, up_h, up_w;
    tsr_act pre, act;
    bool geglu, eights;
};

/* A pixel of the window. */
struct pixel {
    int n, y, x;
};

static __device__ inline pixel pixel_of(const gemm_args &g, int m)
{
    pixel p;

    p.x = m % g.out.w;
    p.y = g.h0 + m / g.out.w % g.rows;
    p.n = g.n0 + m / g.out.w / g.rows;
    return p;
}

/* As torch: floor(i * (float)in / out). */
static __device__ inline int nearest(int i, int in, int out)
{
    int at = static_cast<int>(
        floorf(static_cast<float>(i) * (static_cast<float>(in) / static_cast<float>(out))));

    return at < in - 1 ? at : in - 1;
}

/* Where element (m, k) of A lies; NULL: it is a zero. */
struct source {
    const unsigned char *p;
    tsr_dtype dtype;
};

static __device__ inline source source_of(const gemm_args &g, pixel at, int k)
{
    int c = k % g.c, tap = k / g.c, h = g.up_h ? g.up_h : g.a.h, w = g.up_h ? g.up_w : g.a.w;
    int y = at.y * g.stride + tap / g.s - g.pad_top, x = at.x * g.stride + tap % g.s - g.pad_left;
    bool first = c < g.a.c;
    const tsr_tensor &t = first ? g.a : g.b;
    source s = {NULL, t.dtype};

    if (y < 0 || y >= h || x < 0 || x >= w)
        return s;
    if (g.up_h) {
        y = nearest(y, g.a.h, g.up_h);
        x = nearest(x, g.a.w, g.up_w);
    }
    s.p = cu_row(t, at.n, y) + (static_cast<size_t>(x) * static_cast<size_t>(t.c) +
                                static_cast<size_t>(first ? c : c - g.a.c)) *
                                   cu_size(t.dtype);
    return s;
}

static __device__ inline float element_of(const gemm_args &g, pixel at, int k)
{
    source s = source_of(g, at, k);
    float v = s.p ? cu_get(s.p, s.dtype, 0) : 0.0f;

    return g.pre == TSR_ACT_SILU ? cu_silu(v) : v;
}

/* ---------------------------------------------------------------- what is finished */

struct tile_place {
    int m0, j0;
};

static __device__ inline void finish_one(const gemm_args &g, pixel at, int c, float v)
{
    size_t i = static_cast<size_t>(at.x) * static_cast<size_t>(g.out.c) + static_cast<size_t>(c);

    if (g.add.data)
        v += cu_get(cu_row(g.add, g.add.n == 1 ? 0 : at.n, 0), g.add.dtype, static_cast<size_t>(c));
    if (g.residual.data)
        v += cu_get(cu_row(g.residual, at.n, at.y), g.residual.dtype, i);
    cu_put(cu_row(g.out, at.n, at.y), g.out.dtype, i, v);
}

/* out channels of the tile from `tile` [TILE][OUT_PITCH]. */
static __device__ inline void finish_tile(const gemm_args &g, const float *tile, tile_place t)
{
    int width = g.geglu ? TILE / 2 : TILE;

    for (int i = static_cast<int>(threadIdx.x); i < TILE * width;
         i += static_cast<int>(blockDim.x)) {
        int m = i / width, local = i % width, c, j = local;
        pixel at;
        float v;

        if (t.m0 + m >= g.m_n)
            continue;
        at = pixel_of(g, t.m0 + m);
        if (!g.geglu) {
            c = g.c0 + t.j0 + j;
            if (c >= g.c1)
                continue;
            v = tile[m * OUT_PITCH + j] + (g.bias ? g.bias[c] : 0.0f);
            finish_one(g, at, c, cu_act(g.act, v));
        } else {
            int panel = local / TSR_CUDA_PANEL, lane = local % TSR_CUDA_PANEL, left, b;
            c = g.c0 + t.j0 / 2 + local;
            if (c >= g.c1)
                continue;
            left = g.co - (c - lane); /* the last panel of all may be narrower */
            j = 2 * TSR_CUDA_PANEL * panel + lane;
            b = j + (left < TSR_CUDA_PANEL ? left : TSR_CUDA_PANEL);
            v = tile[m * OUT_PITCH + j] + (g.bias ? g.bias[c] : 0.0f);
            v *= cu_gelu(tile[m * OUT_PITCH + b] + (g.bias ? g.bias[g.co + c] : 0.0f));
            finish_one(g, at, c, v);
        }
    }
}

/* ------------------------------------------------------------------ tensor cores */

template <class T> struct tiles {
    T a[2][TILE * PITCH], b[2][TILE * PITCH];
};

/* Eight elements of A or B, element by element. */
template <class T>
static __device__ inline void fetch_slow(const gemm_args &g, T *dst, bool is_a, pixel at,
                                         bool inside, int row, int k)
{
    for (int i = 0; i < 8; i++) {
        float v = 0;
        if (inside && k + i < g.k_n)
            v = is_a ? element_of(g, at, k + i)
                     : cu_float(static_cast<const T *>(
                           g.w)[static_cast<size_t>(row) * static_cast<size_t>(g.k_n) +
                                static_cast<size_t>(k + i)]);
        dst[i] = cu_element<T>::of(v);
    }
}

/* K step `step` of both tiles into buffer `to`. A thread has two groups of eight of each. */
template <class T>
static __device__ inline void fetch(const gemm_args &g, tiles<T> *s, tile_place t, int step, int to)
{
    for (int i = 0; i < 2; i++) {
        int group = static_cast<int>(threadIdx.x) + i * 128, row = group / 4, k8 = group % 4 * 8;
        int k = step * STEP + k8, m = t.m0 + row, j = t.j0 + row;
        bool a_in = m < g.m_n, b_in = j < g.j_n;
        pixel at = pixel_of(g, a_in ? m : 0);
        T *a = s->a[to] + row * PITCH + k8, *b = s->b[to] + row * PITCH + k8;

        if (g.eights) {
            source src = source_of(g, at, k < g.k_n ? k : 0);
            const T *w = static_cast<const T *>(g.w) +
                         static_cast<size_t>(b_in ? j : 0) * static_cast<size_t>(g.k_n);
            cu_copy_async(a, src.p ? src.p : static_cast<const unsigned char *>(g.w),
                          a_in && k < g.k_n && src.p);
            cu_copy_async(b, w + (k < g.k_n ? k : 0), b_in && k < g.k_n);
        } else {
            fetch_slow<T>(g, a, true, at, a_in, m, k);
            fetch_slow<T>(g, b, false, at, b_in, j, k);
        }
    }
    cu_copy_commit();
}

static __device__ inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2], __half)
{
    cu_mma_f16(d, a, b);
}
static __device__ inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2],
                                  __nv_bfloat16)
{
    cu_mma_bf16(d, a, b);
}

/* The warp's 32 x 32 of one K step. */
template <class T>
static __device__ inline void multiply(const T *a, const T *b, int lane, float d[2][4][4])
{
    for (int k = 0; k < STEP; k += 16) {
        uint32_t fa[2][4], fb[4][2];
        for (int i = 0; i < 2; i++)
            cu_ldmatrix_x4(fa[i], a + (16 * i + lane % 16) * PITCH + k + lane / 16 * 8);
        for (int i = 0; i < 4; i++)
            cu_ldmatrix_x2(fb[i], b + (8 * i + lane % 8) * PITCH + k + lane / 8 % 2 * 8);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                mma(d[i][j], fa[i], fb[j], T());
    }
}

template <class T> static __global__ void __launch_bounds__(128) gemm_tile_kernel(const gemm_args g)
{
    tiles<T> *s = cu_shared<tiles<T>>();
    float *out = cu_shared<float>(); // [TILE,OUT_PITCH], when the products are done
    tile_place t = {static_cast<int>(blockIdx.y) * TILE, static_cast<int>(blockIdx.x) * TILE};
    int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    int wm = warp / 2 * 32, wj = warp % 2 * 32, steps = (g.k_n + STEP - 1) / STEP;
    float d[2][4][4] = {};

    fetch<T>(g, s, t, 0, 0);
    for (int i = 0; i < steps; i++) {
        if (i + 1 < steps) {
            fetch<T>(g, s, t, i + 1, (i + 1) % 2);
            cu_copy_wait<1>();
        } else {
            cu_copy_wait<0>();
        }
        __syncthreads();
        if (t.m0 + wm < g.m_n && t.j0 + wj < g.j_n) /* the warp has something to do */
            multiply<T>(s->a[i % 2] + wm * PITCH, s->b[i % 2] + wj * PITCH, lane, d);
        __syncthreads(); /* before the buffer is filled again */
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++)
                out[(wm + 16 * i + lane / 4 + k / 2 * 8) * OUT_PITCH + wj + 8 * j + lane % 4 * 2 +
                    k % 2] = d[i][j][k];
    __syncthreads();
    finish_tile(g, out, t);
}

/* -------------------------------------------------------------------------- float */

struct float_tiles {
    float a[F_STEP][F_PITCH], b[F_STEP][F_PITCH]; /* k outermost */
};

static __global__ void __launch_bounds__(256) gemm_float_kernel(const gemm_args g)
{
    float_tiles *s = cu_shared<float_tiles>();
    float *out = cu_shared<float>(); // [TILE,OUT_PITCH], when the products are done
    tile_place t = {static_cast<int>(blockIdx.y) * TILE, static_cast<int>(blockIdx.x) * TILE};
    int id = static_cast<int>(threadIdx.x), tm = id / 16 * 4, tj = id % 16 * 4;
    float d[4][4] = {};

    for (int k0 = 0; k0 < g.k_n; k0 += F_STEP) {
        for (int i = id; i < TILE * F_STEP; i += 256) {
            int row = i / F_STEP, k = i % F_STEP, m = t.m0 + row, j = t.j0 + row;
            bool in = k0 + k < g.k_n;
            s->a[k][row] = in && m < g.m_n ? element_of(g, pixel_of(g, m), k0 + k) : 0.0f;
            s->b[k][row] = in && j < g.j_n
                               ? cu_get(g.w, g.w_dtype,
                                        static_cast<size_t>(j) * static_cast<size_t>(g.k_n) +
                                            static_cast<size_t>(k0 + k))
                               : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < F_STEP; k++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    d[i][j] += s->a[k][tm + i] * s->b[k][tj + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            out[(tm + i) * OUT_PITCH + tj + j] = d[i][j];
    __syncthreads();
    finish_tile(g, out, t);
}

/* ------------------------------------------------------------------------ launches */

static gemm_args args_of(const tsr_call *call)
{
    const tsr_window &w = call->window;
    gemm_args g = {};
    int halves;

    g.out = call->out;
    g.a = call->in[0];
    g.b = call->in[1];
    g.residual = call->in[3];
    g.w = call->w[0];
    g.bias = static_cast<const float *>(call->w[1]);
    g.w_dtype = call->wd[0]->dtype;
    g.n0 = w.n0;
    g.h0 = w.h0;
    g.rows = w.h1 - w.h0;
    g.c0 = w.c0;
    g.c1 = w.c1 ? w.c1 : call->out.c;
    g.co = call->out.c;
    g.c = g.a.c + (g.b.data ? g.b.c : 0);
    g.r = g.s = g.stride = 1;
    g.geglu = call->op->kind == TSR_OP_LINEAR && call->op->u.linear.geglu;
    halves = g.geglu ? 2 : 1;
    g.m_n = (w.n1 - w.n0) * g.rows * g.out.w;
    g.j_n = (g.c1 - g.c0) * halves;
    return g;
}

static cudaError_t launch(gemm_args g, cudaStream_t stream)
{
    dim3 grid(static_cast<unsigned>((g.j_n + TILE - 1) / TILE),
              static_cast<unsigned>((g.m_n + TILE - 1) / TILE));
    size_t out_bytes = TILE * OUT_PITCH * sizeof(float);
    size_t bytes = sizeof(tiles<__half>) > out_bytes ? sizeof(tiles<__half>) : out_bytes;
    bool same = g.a.dtype == g.w_dtype && (!g.b.data || g.b.dtype == g.w_dtype);

    g.k_n = g.r * g.s * g.c;
    g.eights = g.pre == TSR_ACT_NONE && g.a.c % 8 == 0 && (!g.b.data || g.b.c % 8 == 0);
    if (same && g.w_dtype == TSR_F16)
        return cu_launch(gemm_tile_kernel<__half>, grid, dim3(128), bytes, stream, g);
    if (same && g.w_dtype == TSR_BF16)
        return cu_launch(gemm_tile_kernel<__nv_bfloat16>, grid, dim3(128), bytes, stream, g);
    return cu_launch(gemm_float_kernel, grid, dim3(256), out_bytes, stream, g);
}

cudaError_t tsr_cuda_conv2d(const tsr_call *call, cudaStream_t stream)
{
    gemm_args g = args_of(call);

    g.add = call->in[2];
    g.r = call->op->u.conv.r;
    g.s = call->op->u.conv.s;
    g.stride = call->op->u.conv.stride;
    g.pad_top = call->op->u.conv.pad_top;
    g.pad_left = call->op->u.conv.pad_left;
    g.up_h = call->op->u.conv.up_h;
    g.up_w = call->op->u.conv.up_w;
    return launch(g, stream);
}

cudaError_t tsr_cuda_linear(const tsr_call *call, cudaStream_t stream)
{
    gemm_args g = args_of(call);

    g.pre = call->op->u.linear.pre;
    g.act = call->op->u.linear.act;
    return launch(g, stream);
}
