/* cuda_attention.cu -- attention with an online softmax, any head width.
 *
 *     out[q] = sum over j of exp(s_j - m) v_j / sum over j of exp(s_j - m),  s_j = scale * q . k_j
 *
 * Keys come in blocks of TSR_CUDA_KV_BLOCK, always from the first; after each block the running
 * maximum is raised and what was summed is multiplied by exp(old - new).
 *
 * Tensor cores (F16 or BF16): a block of four warps has 64 queries of one head, a warp 16. q lies
 * in shared memory from the beginning, so the output may take its place. Scores of 16 x 64 stay in
 * registers: the accumulators of q k^T become, rounded, the A fragments of p v. Heads wider than
 * 128 have blocks of two warps and are done in slices of 128 columns of v, one after the other,
 * each with the scores made again: the VAE's only head, of 512, is the case, once a picture. k
 * passes through shared memory in chunks of 64 columns, v as a block of [64, slice].
 *
 * Float (anything else, and heads wider than 512): a block of 128 threads has 16 queries of one
 * head, fewer where it is very wide; scores and output in shared memory.
 *
 * Carry: a record of float a query: [Dh] sums, maximum, sum. Written after the block's last key,
 * read before its first. Numerics are a function of the head's width alone.
 *
 * Roof: the tensor cores', less exp; bytes: k and v once for each 64 queries, from the cache.
 * Source: "Self-attention Does Not Need O(n^2) Memory" (Rabe and Staats, 2021); "FlashAttention-2"
 * (Dao, 2023). */
#include "kernels/cuda/elements.cuh"

enum { KEYS = TSR_CUDA_KV_BLOCK, CHUNK = 64, SLICE = 128, PAD = 8 };
enum { F_QUERIES = 16, F_THREADS = 128, F_OUT = 8192, MAX_WIDTH = 512 };

struct attention_args {
    tsr_tensor out, q, k, v;
    float *carry; // [N,Nh,queries,Dh+2] of the window
    int n0, h0;
    int q0, q_n;        /* the window's first query, and how many */
    int kv0, kv1, keys; /* of this call, and of all */
    int heads, dh, f_queries;
    float scale;
    bool causal, eights;
};

/* Token `i` of entry n: rows are dense. */
static __device__ inline size_t token_at(const tsr_tensor &t, int i)
{
    return static_cast<size_t>(i - t.row0 * t.w) * static_cast<size_t>(t.c);
}

static __device__ inline const unsigned char *entry_of(const tsr_tensor &t, int n)
{
    return static_cast<const unsigned char *>(t.data) + static_cast<size_t>(n) * t.entry_stride;
}

static __device__ inline float *record_of(const attention_args &g, int n, int head, int q)
{
    size_t at =
        (static_cast<size_t>(n - g.n0) * static_cast<size_t>(g.heads) + static_cast<size_t>(head)) *
            static_cast<size_t>(g.q_n) +
        static_cast<size_t>(q);

    return g.carry + at * static_cast<size_t>(g.dh + 2);
}

/* ------------------------------------------------------------------ tensor cores */

template <class T> struct attention_shared {
    T k[KEYS * (CHUNK + PAD)], v[KEYS * (SLICE + PAD)], q[8]; // q: [queries,q_pitch]
};

/* The head's width, whole chunks of it, and what keeps rows off the same banks. */
static __device__ inline int q_pitch(int dh)
{
    return (dh + CHUNK - 1) / CHUNK * CHUNK + PAD;
}

/* Tokens [first, first + rows) and columns [c0, c0 + width) of one head into shared memory; zeros
 * from token `last` on and beside the head. */
template <class T>
static __device__ inline void load_block(const attention_args &g, T *dst, int pitch, int rows,
                                         int width, const tsr_tensor &t, int n, int head, int first,
                                         int last, int c0)
{
    const T *src = reinterpret_cast<const T *>(entry_of(t, n));

    for (int i = static_cast<int>(threadIdx.x); i < rows * width / 8;
         i += static_cast<int>(blockDim.x)) {
        int row = i / (width / 8), c = c0 + i % (width / 8) * 8, token = first + row;
        bool in = token < last && c < g.dh;
        T *to = dst + row * pitch + c - c0;
        const T *from =
            src + (in ? token_at(t, token) + static_cast<size_t>(head) * static_cast<size_t>(g.dh) +
                            static_cast<size_t>(c)
                      : 0);
        if (g.eights)
            cu_copy_async(to, in ? from : static_cast<const T *>(t.data), in);
        else
            for (int k = 0; k < 8; k++)
                to[k] = in && c + k < g.dh ? from[k] : cu_element<T>::of(0.0f);
    }
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
static __device__ inline tsr_dtype type_of(__half)
{
    return TSR_F16;
}
static __device__ inline tsr_dtype type_of(__nv_bfloat16)
{
    return TSR_BF16;
}

/* What a lane keeps of its rows g and g + 8. */
struct softmax {
    float most[2], sum[2];
};

/* Scores of the warp's queries and the block's keys: s[j] are keys 8j .. 8j+7. */
template <class T>
static __device__ inline void scores_of(const attention_args &g, attention_shared<T> *s, int n,
                                        int head, int key0, float score[KEYS / 8][4])
{
    int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

    CU_UNROLL
    for (int j = 0; j < KEYS / 8; j++)
        for (int i = 0; i < 4; i++)
            score[j][i] = 0;
    for (int c0 = 0; c0 < g.dh; c0 += CHUNK) {
        __syncthreads(); /* what was there is read */
        load_block<T>(g, s->k, CHUNK + PAD, KEYS, CHUNK, g.k, n, head, key0, g.kv1, c0);
        cu_copy_commit();
        cu_copy_wait<0>();
        __syncthreads();
        for (int c = 0; c < CHUNK; c += 16) {
            uint32_t a[4];
            cu_ldmatrix_x4(a,
                           s->q + (16 * warp + lane % 16) * q_pitch(g.dh) + c0 + c + lane / 16 * 8);
            CU_UNROLL
            for (int j = 0; j < KEYS / 8; j++) {
                uint32_t b[2];
                cu_ldmatrix_x2(b, s->k + (8 * j + lane % 8) * (CHUNK + PAD) + c + lane / 8 % 2 * 8);
                mma(score[j], a, b, T());
            }
        }
    }
}

/* Scaled, masked, as exp(s - maximum); what the old sums are multiplied by. */
static __device__ inline void soften(const attention_args &g, int query, int key0,
                                     float score[KEYS / 8][4], softmax *m, float shrink[2])
{
    int lane = static_cast<int>(threadIdx.x) % 32;

    CU_UNROLL
    for (int r = 0; r < 2; r++) {
        float most = m->most[r], sum = 0;
        int last = g.causal ? query + 8 * r : g.keys - 1;
        last = last < g.kv1 - 1 ? last : g.kv1 - 1;
        CU_UNROLL
        for (int j = 0; j < KEYS / 8; j++)
            for (int i = 0; i < 2; i++) {
                float *x = &score[j][2 * r + i];
                bool seen = key0 + 8 * j + lane % 4 * 2 + i <= last;
                *x = seen ? *x * g.scale : -INFINITY;
                most = fmaxf(most, *x);
            }
        most = fmaxf(most, cu_shfl_xor(most, 1));
        most = fmaxf(most, cu_shfl_xor(most, 2));
        shrink[r] = most == -INFINITY ? 1.0f : expf(m->most[r] - most);
        CU_UNROLL
        for (int j = 0; j < KEYS / 8; j++)
            for (int i = 0; i < 2; i++) {
                float *x = &score[j][2 * r + i];
                *x = *x == -INFINITY ? 0.0f : expf(*x - most);
                sum += *x;
            }
        sum += cu_shfl_xor(sum, 1);
        sum += cu_shfl_xor(sum, 2);
        m->sum[r] = m->sum[r] * shrink[r] + sum;
        m->most[r] = most;
    }
}

/* acc = acc * shrink + p v, v a slice of the head. */
template <class T>
static __device__ inline void weigh(const T *v, float score[KEYS / 8][4], const float shrink[2],
                                    float acc[SLICE / 8][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32;
    tsr_dtype type = type_of(T());

    CU_UNROLL
    for (int j = 0; j < SLICE / 8; j++)
        for (int i = 0; i < 4; i++)
            acc[j][i] *= shrink[i / 2];
    CU_UNROLL
    for (int k = 0; k < KEYS / 16; k++) {
        const float *lo = score[2 * k], *hi = score[2 * k + 1];
        uint32_t a[4] = {cu_pack(lo[0], lo[1], type), cu_pack(lo[2], lo[3], type),
                         cu_pack(hi[0], hi[1], type), cu_pack(hi[2], hi[3], type)};
        CU_UNROLL
        for (int j = 0; j < SLICE / 8; j++) {
            uint32_t b[2];
            cu_ldmatrix_x2_trans(b, v + (16 * k + lane % 16) * (SLICE + PAD) + 8 * j);
            mma(acc[j], a, b, T());
        }
    }
}

/* The lane's part of a query's record, and back. */
static __device__ inline void carry_in(const attention_args &g, const float *record, int c0, int r,
                                       softmax *m, float acc[SLICE / 8][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32;

    m->most[r] = record[g.dh];
    m->sum[r] = record[g.dh + 1];
    CU_UNROLL
    for (int j = 0; j < SLICE / 8; j++)
        for (int i = 0; i < 2; i++) {
            int c = c0 + 8 * j + lane % 4 * 2 + i;
            acc[j][2 * r + i] = c < g.dh ? record[c] : 0.0f;
        }
}

/* The last slice also keeps what all slices began with. */
static __device__ inline void carry_out(const attention_args &g, float *record, int c0, int r,
                                        const softmax *m, float acc[SLICE / 8][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32;

    CU_UNROLL
    for (int j = 0; j < SLICE / 8; j++)
        for (int i = 0; i < 2; i++) {
            int c = c0 + 8 * j + lane % 4 * 2 + i;
            if (c < g.dh)
                record[c] = acc[j][2 * r + i];
        }
    if (c0 + SLICE >= g.dh && lane % 4 == 0) {
        record[g.dh] = m->most[r];
        record[g.dh + 1] = m->sum[r];
    }
}

static __device__ inline void write_out(const attention_args &g, int n, int head, int query, int c0,
                                        int r, const softmax *m, float acc[SLICE / 8][4])
{
    int lane = static_cast<int>(threadIdx.x) % 32;
    unsigned char *out =
        static_cast<unsigned char *>(g.out.data) + static_cast<size_t>(n) * g.out.entry_stride;
    size_t at = token_at(g.out, query) + static_cast<size_t>(head) * static_cast<size_t>(g.dh);

    CU_UNROLL
    for (int j = 0; j < SLICE / 8; j++)
        for (int i = 0; i < 2; i++) {
            int c = c0 + 8 * j + lane % 4 * 2 + i;
            if (c < g.dh)
                cu_put(out, g.out.dtype, at + static_cast<size_t>(c),
                       acc[j][2 * r + i] / m->sum[r]);
        }
}

/* One slice of the head: all keys of the call. */
template <class T>
static __device__ inline void attend(const attention_args &g, attention_shared<T> *s, int n,
                                     int head, int q0, int slice)
{
    int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    int mine = q0 + 16 * warp + lane / 4, end = g.kv1;
    int last = g.q0 + q0 + static_cast<int>(blockDim.x) / 2; /* behind the block's queries */
    float acc[SLICE / 8][4] = {};
    softmax m = {{-INFINITY, -INFINITY}, {0, 0}};

    if (g.causal && last < end)
        end = last; /* later keys are seen by no query of the block */
    CU_UNROLL
    for (int r = 0; r < 2 && g.kv0 > 0; r++)
        if (mine + 8 * r < g.q_n)
            carry_in(g, record_of(g, n, head, mine + 8 * r), slice, r, &m, acc);
    for (int key0 = g.kv0; key0 < end; key0 += KEYS) {
        float score[KEYS / 8][4], shrink[2];
        scores_of<T>(g, s, n, head, key0, score);
        load_block<T>(g, s->v, SLICE + PAD, KEYS, SLICE, g.v, n, head, key0, g.kv1, slice);
        cu_copy_commit();
        soften(g, g.q0 + mine, key0, score, &m, shrink);
        cu_copy_wait<0>();
        __syncthreads();
        weigh<T>(s->v, score, shrink, acc);
    }
    __syncwarp(); /* before the last slice of a record replaces what the others began with */
    CU_UNROLL
    for (int r = 0; r < 2; r++) {
        if (mine + 8 * r >= g.q_n)
            continue;
        if (g.kv1 == g.keys)
            write_out(g, n, head, g.q0 + mine + 8 * r, slice, r, &m, acc);
        else
            carry_out(g, record_of(g, n, head, mine + 8 * r), slice, r, &m, acc);
    }
}

/* Grid (queries, heads * entries). */
template <class T>
static __global__ void __launch_bounds__(128) attention_tile_kernel(const attention_args g)
{
    attention_shared<T> *s = cu_shared<attention_shared<T>>();
    int n = g.n0 + static_cast<int>(blockIdx.y) / g.heads,
        head = static_cast<int>(blockIdx.y) % g.heads;
    int queries = static_cast<int>(blockDim.x) / 2, q0 = static_cast<int>(blockIdx.x) * queries;

    load_block<T>(g, s->q, q_pitch(g.dh), queries, q_pitch(g.dh) - PAD, g.q, n, head, g.q0 + q0,
                  g.q0 + g.q_n, 0);
    cu_copy_commit();
    cu_copy_wait<0>();
    __syncthreads();
    for (int slice = 0; slice < g.dh; slice += SLICE)
        attend<T>(g, s, n, head, q0, slice);
}

/* -------------------------------------------------------------------------- float */

struct float_shared {
    float score[F_QUERIES][KEYS];
    float most[F_QUERIES], sum[F_QUERIES], shrink[F_QUERIES];
    float acc[1]; // [queries,Dh]
};

static __device__ inline float get_token(const attention_args &g, const tsr_tensor &t, int n,
                                         int head, int token, int c)
{
    return cu_get(entry_of(t, n), t.dtype,
                  token_at(t, token) + static_cast<size_t>(head) * static_cast<size_t>(g.dh) +
                      static_cast<size_t>(c));
}

static __device__ inline void float_block(const attention_args &g, float_shared *s, int n, int head,
                                          int q0, int key0)
{
    int id = static_cast<int>(threadIdx.x);

    for (int i = id; i < g.f_queries * KEYS; i += F_THREADS) {
        int q = i / KEYS, key = key0 + i % KEYS;
        bool seen = q0 + q < g.q_n && key < g.kv1 && (!g.causal || key <= g.q0 + q0 + q);
        float dot = 0;
        for (int c = 0; c < g.dh && seen; c++)
            dot +=
                get_token(g, g.q, n, head, g.q0 + q0 + q, c) * get_token(g, g.k, n, head, key, c);
        s->score[q][i % KEYS] = seen ? dot * g.scale : -INFINITY;
    }
    __syncthreads();
    if (id < g.f_queries) {
        float most = s->most[id], sum = 0;
        for (int j = 0; j < KEYS; j++)
            most = fmaxf(most, s->score[id][j]);
        s->shrink[id] = most == -INFINITY ? 1.0f : expf(s->most[id] - most);
        for (int j = 0; j < KEYS; j++) {
            float p = most == -INFINITY ? 0.0f : expf(s->score[id][j] - most);
            s->score[id][j] = p;
            sum += p;
        }
        s->sum[id] = s->sum[id] * s->shrink[id] + sum;
        s->most[id] = most;
    }
    __syncthreads();
    for (int i = id; i < g.f_queries * g.dh; i += F_THREADS) {
        int q = i / g.dh, c = i % g.dh, keys = g.kv1 - key0 < KEYS ? g.kv1 - key0 : KEYS;
        float v = s->acc[i] * s->shrink[q];
        for (int j = 0; j < keys; j++)
            v += s->score[q][j] * get_token(g, g.v, n, head, key0 + j, c);
        s->acc[i] = v;
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(F_THREADS) attention_float_kernel(const attention_args g)
{
    float_shared *s = cu_shared<float_shared>();
    int n = g.n0 + static_cast<int>(blockIdx.y) / g.heads,
        head = static_cast<int>(blockIdx.y) % g.heads;
    int q0 = static_cast<int>(blockIdx.x) * g.f_queries, id = static_cast<int>(threadIdx.x);

    for (int i = id; i < g.f_queries * (g.dh + 2); i += F_THREADS) {
        int q = i / (g.dh + 2), c = i % (g.dh + 2);
        bool from = g.kv0 > 0 && q0 + q < g.q_n;
        float v = from ? record_of(g, n, head, q0 + q)[c] : c == g.dh ? -INFINITY : 0.0f;
        if (c < g.dh)
            s->acc[q * g.dh + c] = v;
        else if (c == g.dh)
            s->most[q] = v;
        else
            s->sum[q] = v;
    }
    __syncthreads();
    for (int key0 = g.kv0; key0 < g.kv1; key0 += KEYS)
        float_block(g, s, n, head, q0, key0);
    for (int i = id; i < g.f_queries * g.dh; i += F_THREADS) {
        int q = i / g.dh, c = i % g.dh;
        if (q0 + q >= g.q_n)
            continue;
        if (g.kv1 == g.keys)
            cu_put(static_cast<unsigned char *>(g.out.data) +
                       static_cast<size_t>(n) * g.out.entry_stride,
                   g.out.dtype,
                   token_at(g.out, g.q0 + q0 + q) +
                       static_cast<size_t>(head) * static_cast<size_t>(g.dh) +
                       static_cast<size_t>(c),
                   s->acc[i] / s->sum[q]);
        else
            record_of(g, n, head, q0 + q)[c] = s->acc[i];
        if (g.kv1 < g.keys && c == 0) {
            record_of(g, n, head, q0 + q)[g.dh] = s->most[q];
            record_of(g, n, head, q0 + q)[g.dh + 1] = s->sum[q];
        }
    }
}

/* ------------------------------------------------------------------------ launches */

size_t tsr_cuda_attention_carry(const tsr_tape *t, const tsr_op *op, const tsr_window *w)
{
    const tsr_value *q = &t->values[op->in[0]];
    size_t queries = static_cast<size_t>(w->n1 - w->n0) * static_cast<size_t>(w->h1 - w->h0) *
                     static_cast<size_t>(q->w);

    return queries *
           (static_cast<size_t>(q->c) + 2 * static_cast<size_t>(op->u.attention.n_heads)) *
           sizeof(float);
}

static attention_args args_of(const tsr_call *call)
{
    const tsr_window &w = call->window;
    attention_args g = {};

    g.out = call->out;
    g.q = call->in[0];
    g.k = call->in[1];
    g.v = call->in[2];
    g.carry = static_cast<float *>(call->carry);
    g.n0 = w.n0;
    g.h0 = w.h0;
    g.q0 = w.h0 * g.q.w;
    g.q_n = (w.h1 - w.h0) * g.q.w;
    g.keys = g.k.h * g.k.w;
    g.kv0 = call->carry ? call->kv0 : 0;
    g.kv1 = call->carry ? call->kv1 : g.keys;
    g.heads = call->op->u.attention.n_heads;
    g.dh = g.q.c / g.heads;
    g.scale = call->op->u.attention.scale;
    g.causal = call->op->u.attention.causal;
    g.eights = g.dh % 8 == 0;
    g.f_queries = F_OUT / g.dh < 1 ? 1 : F_OUT / g.dh < F_QUERIES ? F_OUT / g.dh : F_QUERIES;
    return g;
}

cudaError_t tsr_cuda_attention(const tsr_call *call, cudaStream_t stream)
{
    attention_args g = args_of(call);
    bool same = g.q.dtype == g.k.dtype && g.q.dtype == g.v.dtype && g.dh <= MAX_WIDTH;
    unsigned heads = static_cast<unsigned>(g.heads * (call->window.n1 - call->window.n0));
    unsigned warps = g.dh > SLICE ? 2 : 4;
    unsigned blocks = (static_cast<unsigned>(g.q_n) + 16 * warps - 1) / (16 * warps);
    size_t q_bytes =
        16 * warps * sizeof(__half) * static_cast<size_t>((g.dh + CHUNK - 1) / CHUNK * CHUNK + PAD);
    dim3 grid(blocks, heads);

    if (same && g.q.dtype == TSR_F16)
        return cu_launch(attention_tile_kernel<__half>, grid, dim3(32 * warps),
                         sizeof(attention_shared<__half>) + q_bytes, stream, g);
    if (same && g.q.dtype == TSR_BF16)
        return cu_launch(attention_tile_kernel<__nv_bfloat16>, grid, dim3(32 * warps),
                         sizeof(attention_shared<__nv_bfloat16>) + q_bytes, stream, g);
    grid = dim3(static_cast<unsigned>((g.q_n + g.f_queries - 1) / g.f_queries), heads);
    return cu_launch(attention_float_kernel, grid, dim3(F_THREADS),
                     sizeof(float_shared) + sizeof(float) * static_cast<size_t>(g.f_queries) *
                                                static_cast<size_t>(g.dh),
                     stream, g);
}
