/* cuda_backend.c -- the backend's table: which kernel computes which op, and what it takes.
 *
 * Everything here queues work on the compute stream. What was recorded on a tape can be computed,
 * so a failure is the device's: it is kept and told by the device's `finish`. */
#include "base/num.h"
#include "kernels/cuda/cuda_internal.h"

static const tsr_cuda_run_fn RUN[TSR_OP_KINDS] = {
    [TSR_OP_CONV2D] = tsr_cuda_conv2d,         [TSR_OP_LINEAR] = tsr_cuda_linear,
    [TSR_OP_ATTENTION] = tsr_cuda_attention,   [TSR_OP_GROUP_NORM] = tsr_cuda_group_norm,
    [TSR_OP_LAYER_NORM] = tsr_cuda_layer_norm, [TSR_OP_ADD] = tsr_cuda_add,
    [TSR_OP_TIME_EMBED] = tsr_cuda_time_embed, [TSR_OP_GATHER_ROW] = tsr_cuda_gather_row,
    [TSR_OP_CONCAT] = tsr_cuda_concat,         [TSR_OP_LATENT_IN] = tsr_cuda_latent_in,
    [TSR_OP_LATENT_OUT] = tsr_cuda_latent_out, [TSR_OP_IMAGE_IN] = tsr_cuda_image_in,
    [TSR_OP_IMAGE_OUT] = tsr_cuda_image_out,
};

static const tsr_cuda_work_fn WORK[TSR_OP_KINDS] = {
    [TSR_OP_GROUP_NORM] = tsr_cuda_group_norm_work,
};

static size_t stats_bytes(const tsr_backend *b, const tsr_tape *t, const tsr_op *op)
{
    const tsr_value *out = &t->values[op->out];

    (void)b;
    if (op->kind != TSR_OP_GROUP_NORM)
        return 0;
    return tsr_align_up(tsr_cuda_norm_stats_bytes(out->n, out->h, op->u.norm.groups), 64);
}

static size_t carry_bytes(const tsr_backend *b, const tsr_tape *t, const tsr_op *op,
                          const tsr_window *window)
{
    (void)b;
    if (op->kind != TSR_OP_ATTENTION)
        return 0;
    return tsr_align_up(tsr_cuda_attention_carry(t, op, window), 64);
}

static size_t work_bytes(const tsr_backend *b, const tsr_tape *t, const tsr_op *op,
                         const tsr_window *window, int32_t n_threads)
{
    (void)n_threads;
    if (WORK[op->kind])
        return tsr_align_up(WORK[op->kind](t, op, window), 64);
    return tsr_align_up(tsr_cuda_library_work(tsr_cuda_of(b), t, op, window), 64);
}

static void run(const tsr_backend *b, const tsr_call *call)
{
    tsr_cuda *c = tsr_cuda_of(b);

    if (!tsr_cuda_library_run(c, call))
        tsr_cuda_ok(c, RUN[call->op->kind](call, c->queue[TSR_QUEUE_COMPUTE]), call->op->name);
}

static void norm_stats(const tsr_backend *b, const tsr_call *call)
{
    tsr_cuda *c = tsr_cuda_of(b);

    tsr_cuda_ok(c, tsr_cuda_norm_stats(call, c->queue[TSR_QUEUE_COMPUTE]), call->op->name);
}

static bool all_finite(const tsr_backend *b, const tsr_tensor *x, tsr_pool *pool)
{
    tsr_cuda *c = tsr_cuda_of(b);
    cudaStream_t s = c->queue[TSR_QUEUE_COMPUTE];
    static const char *const doing = "looking for numbers that are not finite";

    (void)pool;
    if (x->dtype != TSR_F16 && x->dtype != TSR_BF16 && x->dtype != TSR_F32)
        return true;
    *c->flag_up = 0;
    tsr_cuda_ok(c, cudaMemsetAsync(c->flag, 0, sizeof *c->flag, s), doing);
    tsr_cuda_ok(c, tsr_cuda_find_nonfinite(x, c->flag, s), doing);
    tsr_cuda_ok(c, cudaMemcpyAsync(c->flag_up, c->flag, sizeof *c->flag, cudaMemcpyDeviceToHost, s),
                doing);
    tsr_cuda_ok(c, cudaStreamSynchronize(s), doing);
    return *c->flag_up == 0;
}

void tsr_cuda_backend_fill(tsr_cuda *c)
{
    c->backend = (tsr_backend){.name = "cuda",
                               .tier = c->tier,
                               .packed_bytes = tsr_cuda_packed_bytes,
                               .panel_rows = tsr_cuda_panel_rows,
                               .pack = tsr_cuda_pack,
                               .packed_offset = tsr_cuda_packed_offset,
                               .panel_channels = tsr_cuda_panel_channels,
                               .stats_bytes = stats_bytes,
                               .norm_stats = norm_stats,
                               .kv_block = tsr_cuda_kv_block,
                               .carry_bytes = carry_bytes,
                               .work_bytes = work_bytes,
                               .run = run,
                               .all_finite = all_finite,
                               .method = tsr_cuda_method,
                               .in_place = tsr_cuda_in_place,
                               .device = &c->device,
                               .impl = c};
}
