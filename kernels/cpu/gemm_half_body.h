/* gemm_half_body.h -- linear layers with weights in half, summed up in halves.
 *
 * As gemm_body.h, whose rows, tasks, blocks of k and ends these are, but:
 *   1. a row's block, gathered in float, is scaled by the power of two of pack_scale_of and
 *      becomes halves in its own place;
 *   2. panels are used as they lie in memory, scaled the same way when they were packed (once for
 *      each output channel), two at a time on the tile of gemm_half_tile.h, which takes a row's
 *      scale back;
 *   3. after the last block an output channel's scale is taken back.
 *
 * Exactness: a row's scale depends on the values of the row's block alone, and blocks are cut by K
 * alone; a task's border, a window or a piece of channels does not enter. Infinities and NaN have
 * some scale and go through. Which layers are summed up so is a matter of type and op
 * (pack_is_scaled); the others take gemm_body.h's way. */
#ifndef TSR_KERNELS_CPU_GEMM_HALF_BODY_H
#define TSR_KERNELS_CPU_GEMM_HALF_BODY_H

#include "kernels/cpu/gemm_half_tile.h"

/* Row of n floats (and room for a vector) to scaled halves in its first half; returns what takes
 * the scale back. */
static float half_row(float *row, int32_t n)
{
    float s = pack_scale_of(row, (size_t)n);
    vec scale = vec_set(s);

    for (int32_t k = 0; k < n; k += VEC_N) /* writes only what was read */
        vec_store_as(TSR_F16, row, (size_t)k, vec_mul(vec_load(row + k), scale), n - k);
    return 1 / s;
}

/* Panels p and, where nv is 2, p + 1 of the window against all rows of the task. */
static void half_panel_product(const gemm *g, const float *a, const float *unscale, int32_t n_rows,
                               int32_t p, const int32_t nv, int32_t k0, int32_t k1, float *sums)
{
    const char *panel = (const char *)g->call->w[0] + (size_t)p * g->w.panel_bytes;
    size_t skip = g->w.head_bytes + (size_t)k0 * TILE_N * g->w.elem,
           next = (size_t)g->room_m * TILE_N;
    const uint16_t *b[2];

    b[0] = (const uint16_t *)(const void *)(panel + skip);
    b[1] = nv > 1 ? (const uint16_t *)(const void *)(panel + g->w.panel_bytes + skip) : b[0];
    for (int32_t i = 0; i < n_rows; i += TILE_M) {
        const uint16_t *rows = (const uint16_t *)(const void *)(a + (size_t)i * A_ROW);
        float *c[2] = {sums + (size_t)i * TILE_N, sums + (size_t)i * TILE_N + next};

        if (nv > 1)
            half_tile_run(2, rows, 2 * A_ROW, b, k1 - k0, unscale + i, c, k0 > 0);
        else
            half_tile_run(1, rows, 2 * A_ROW, b, k1 - k0, unscale + i, c, k0 > 0);
    }
}

/* The panel's columns without the scale of their weights; a panel begins with what takes it back.
 */
static void half_panel_unscale(const gemm *g, int32_t p, int32_t n_rows, float *sums)
{
    const float *head =
        (const float *)(const void *)((const char *)g->call->w[0] + (size_t)p * g->w.panel_bytes);
    vec s0 = vec_load(head), s1 = vec_load(head + VEC_N);

    for (int32_t i = 0; i < n_rows; i++, sums += TILE_N) {
        vec_store(sums, vec_mul(vec_load(sums), s0));
        vec_store(sums + VEC_N, vec_mul(vec_load(sums + VEC_N), s1));
    }
}

static void gemm_half_task(void *arg, int32_t task, int32_t thread)
{
    const gemm *g = arg;
    char *scratch = (char *)g->call->work + (size_t)thread * g->thread_bytes;
    float *a = (float *)(void *)scratch, *sums = (float *)(void *)(scratch + g->sums_at);
    float unscale[BLOCK_M];
    int32_t p0 = task / g->n_blocks_m * g->group_panels,
            p1 = tsr_min_i32(p0 + g->group_panels, g->n_panels), nv;
    gemm_rows rows;

    gemm_rows_set(g, task % g->n_blocks_m * g->block_m, &rows);
    for (int32_t k0 = 0; k0 < g->k; k0 += g->block_k) {
        int32_t k1 = tsr_min_i32(k0 + g->block_k, g->k);

        gemm_gather(g, &rows, k0, k1, a);
        for (int32_t i = 0; i < tsr_div_up(rows.count, TILE_M) * TILE_M; i++)
            unscale[i] = half_row(a + (size_t)i * A_ROW, k1 - k0);
        for (int32_t p = p0; p < p1; p += nv) {
            float *panel_sums = sums + (size_t)((p - p0) * g->room_m) * TILE_N;

            nv = tsr_min_i32(2, p1 - p);
            half_panel_product(g, a, unscale, rows.count, p, nv, k0, k1, panel_sums);
            for (int32_t v = 0; v < nv && k1 == g->k; v++) {
                float *done = panel_sums + (size_t)(v * g->room_m) * TILE_N;

                half_panel_unscale(g, p + v, rows.count, done);
                gemm_panel_end(g, &rows, p + v, done);
            }
        }
    }
}

static void linear_half_run(const tsr_cpu_table *t, const tsr_call *call)
{
    (void)t;
    linear_with(call, pack_is_scaled(call->op, call->wd[0]) ? gemm_half_task : gemm_task);
}

#endif
