/* cuda_kernels.h -- the backend's own kernels: their entry points in C, one file an op family.
 *
 * Each entry queues the window of one op (tsr_call, kernels/backend.h) on a stream and returns what
 * the launch returned; nothing waits. Operands lie on the device: every pointer of the call, also
 * `stats`, `carry` and `work`. A kernel reads rows only where backend.h says that a window needs
 * them, may write in place where it says so, and computes any window with the bits of the whole op.
 *
 * Types: activations and outputs F32, F16 or BF16, each operand its own; image_in and image_out U8,
 * gather_row's index I32; vectors (w of kind VECTOR) F32. Matrices have the type of wd[0], are
 * rows of output channels, [Co][R][S][C], dense (cuda_pack.c), a geglu's with the two halves
 * taking turns in groups of TSR_CUDA_PANEL rows: a, b, a, b ...
 * Sums are float32 in an order of the op's shape alone; norm statistics are pairs (mean, M2) a row.
 *
 * Work: tsr_cuda_<op>_work gives the bytes that a window may use of call->work (64-byte aligned),
 * never more for a part of it. Entries without one use none.
 *
 * The file, its block mapping and its roof: the top of each .cu. */
#ifndef TSR_KERNELS_CUDA_KERNELS_H
#define TSR_KERNELS_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/backend.h"

enum { TSR_CUDA_PANEL = 8 };     /* output channels a panel of a packed matrix has */
enum { TSR_CUDA_KV_BLOCK = 64 }; /* keys a block of attention has */

typedef size_t (*tsr_cuda_work_fn)(const tsr_tape *t, const tsr_op *op, const tsr_window *w);
typedef cudaError_t (*tsr_cuda_run_fn)(const tsr_call *call, cudaStream_t stream);

/* cuda_plain.cu: one element, or 16 bytes, a thread */
cudaError_t tsr_cuda_add(const tsr_call *call, cudaStream_t stream);
cudaError_t tsr_cuda_concat(const tsr_call *call, cudaStream_t stream);
cudaError_t tsr_cuda_gather_row(const tsr_call *call, cudaStream_t stream);
cudaError_t tsr_cuda_time_embed(const tsr_call *call, cudaStream_t stream);

/* cuda_convert.cu */
cudaError_t tsr_cuda_latent_in(const tsr_call *call, cudaStream_t stream);
cudaError_t tsr_cuda_latent_out(const tsr_call *call, cudaStream_t stream);
cudaError_t tsr_cuda_image_in(const tsr_call *call, cudaStream_t stream);
cudaError_t tsr_cuda_image_out(const tsr_call *call, cudaStream_t stream);
/* *flag becomes 1 where an element of the rows that x holds is not finite (F16, BF16, F32). */
cudaError_t tsr_cuda_find_nonfinite(const tsr_tensor *x, uint32_t *flag, cudaStream_t stream);

/* cuda_norm.cu: group_norm, with statistics a row of the picture, and layer_norm. `stats` holds
 * [N][H][G] pairs, then [N][G] (mean, 1/sqrt(variance + eps)), which group_norm fills. Without
 * call->stats it takes the statistics itself, in call->work. */
size_t tsr_cuda_norm_stats_bytes(int32_t n, int32_t h, int32_t groups);
cudaError_t tsr_cuda_norm_stats(const tsr_call *call, cudaStream_t stream);
cudaError_t tsr_cuda_group_norm(const tsr_call *call, cudaStream_t stream);
size_t tsr_cuda_group_norm_work(const tsr_tape *t, const tsr_op *op, const tsr_window *w);
cudaError_t tsr_cuda_layer_norm(const tsr_call *call, cudaStream_t stream);

/* cuda_gemm.cu: convolutions and linear layers as one implicit matrix product, in tensor cores for
 * F16 and BF16: everything that tape.h says of both ops, any window, any shape. */
cudaError_t tsr_cuda_conv2d(const tsr_call *call, cudaStream_t stream);
cudaError_t tsr_cuda_linear(const tsr_call *call, cudaStream_t stream);

/* cuda_attention.cu: online softmax over blocks of TSR_CUDA_KV_BLOCK keys, any head width; `carry`
 * keeps maximum, sum and accumulator of a window's queries. */
size_t tsr_cuda_attention_carry(const tsr_tape *t, const tsr_op *op, const tsr_window *w);
cudaError_t tsr_cuda_attention(const tsr_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
