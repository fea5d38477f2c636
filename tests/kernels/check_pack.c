/* check_pack.c -- packed weights have the same bytes however they are packed: in odd pieces, from
 * floats or from halves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "tests/support/check.h"

/* Pieces that end inside vectors and panels give the bytes of one call, and the last panel is
 * filled up: of the NaN patterns that were there none is left. */
static void pack_pieces(const tsr_backend *b, const tsr_weight *w, bool geglu)
{
    static const int32_t pieces[] = {1, 3, 5, 8, 11, 16, 2, 7};
    tsr_op op = {.kind = w->n_dims == 2 ? TSR_OP_LINEAR : TSR_OP_CONV2D};
    size_t k = (size_t)w->dims[1] * (size_t)(w->n_dims == 4 ? w->dims[2] * w->dims[3] : 1);
    size_t bytes, n = (size_t)w->dims[0] * k, filled;
    float *rows = malloc(n * sizeof *rows), *values;
    unsigned char *whole, *parts;
    int32_t step, panel, halves = geglu ? 2 : 1;

    if (geglu)
        op.u.linear.geglu = true;
    bytes = b->packed_bytes(b, &op, w);
    panel = b->panel_rows(b, &op, w);
    filled = (size_t)(tsr_div_up(w->dims[0] / halves, panel) * panel * halves) * k;
    whole = malloc(bytes);
    parts = malloc(bytes);
    values = malloc(filled * sizeof *values);
    memset(whole, 0xFF, bytes);
    memset(parts, 0xFF, bytes);
    for (size_t i = 0; i < n; i++)
        rows[i] = (float)((int32_t)(i % 2039) - 1000);
    b->pack(b, &op, w, rows, 0, w->dims[0], 0, whole);
    for (int32_t r = 0, i = 0; r < w->dims[0]; r += step, i++) {
        step = tsr_min_i32(pieces[i % 8], w->dims[0] - r);
        b->pack(b, &op, w, rows + (size_t)r * k, r, step, 0, parts);
    }
    tsr_to_f32(values, whole, w->dtype, filled);
    CHECK_MSG(memcmp(whole, parts, bytes) == 0, "%s: [%d,%d] in pieces differs%s", b->tier,
              w->dims[0], w->dims[1], geglu ? " (geglu)" : "");
    CHECK_MSG(isfinite(test_max_abs_diff(values, values, filled)), "%s: [%d,%d] is not filled up%s",
              b->tier, w->dims[0], w->dims[1], geglu ? " (geglu)" : "");
    free(rows);
    free(values);
    free(whole);
    free(parts);
}

static void pack__pieces_inside_panels__same_bytes(void)
{
    for (int32_t tier = TSR_TIER_PORTABLE; tier <= TSR_TIER_AVX512FP16; tier++) {
        const tsr_backend *b = tsr_cpu_backend((tsr_cpu_tier)tier);

        for (int32_t co = 2; b && co < 80; co += 6) {
            tsr_weight w = {.n_dims = 4, .dims = {co, 5, 3, 3}, .dtype = TSR_F16};

            pack_pieces(b, &w, false);
            w = (tsr_weight){.n_dims = 2, .dims = {co, 33}, .dtype = TSR_F32};
            pack_pieces(b, &w, false);
            pack_pieces(b, &w, true);
        }
    }
}

/* Halves that are packed as the file has them give the bytes that their floats give: pieces of
 * whole panels, from an offset too; where rows are not taken, nothing is written. Returns whether
 * any were taken. */
static bool pack_raw(const tsr_backend *b, const tsr_weight *w, bool geglu)
{
    tsr_op op = {.kind = w->n_dims == 2 ? TSR_OP_LINEAR : TSR_OP_CONV2D};
    size_t k = (size_t)w->dims[1] * (size_t)(w->n_dims == 4 ? w->dims[2] * w->dims[3] : 1);
    size_t n = (size_t)w->dims[0] * k, bytes;
    uint16_t *raw = malloc(n * sizeof *raw);
    float *rows = malloc(n * sizeof *rows);
    unsigned char *want, *got;
    int32_t panel, co = w->dims[0] / (geglu ? 2 : 1), from, taken = 0;

    if (geglu)
        op.u.linear.geglu = true;
    bytes = b->packed_bytes(b, &op, w);
    panel = b->panel_channels(b, &op, w);
    want = malloc(bytes);
    got = malloc(bytes);
    memset(want, 0xFF, bytes);
    memset(got, 0xFF, bytes);
    for (size_t i = 0; i < n; i++) /* subnormals and both signs; no NaN */
        raw[i] = (uint16_t)(i * 40503 % 0x7C00 | (i & 8) << 12);
    tsr_to_f32(rows, raw, TSR_F16, n);
    from = co > panel ? panel : 0; /* a piece from its second panel on */
    for (int32_t half = 0; half < (geglu ? 2 : 1); half++) {
        int32_t r = half * co + from, count = co - from;

        b->pack(b, &op, w, rows + (size_t)r * k, r, count, from, want);
        if (b->pack_halves && b->pack_halves(b, &op, w, raw + (size_t)r * k, r, count, from, got))
            taken++;
        else
            b->pack(b, &op, w, rows + (size_t)r * k, r, count, from, got);
    }
    CHECK_MSG(memcmp(want, got, bytes) == 0, "%s: [%d,%d] as halves differs%s", b->tier, w->dims[0],
              w->dims[1], geglu ? " (geglu)" : "");
    free(raw);
    free(rows);
    free(want);
    free(got);
    return taken > 0;
}

static void pack_halves__any_weight__bytes_of_its_floats(void)
{
    for (int32_t tier = TSR_TIER_PORTABLE; tier <= TSR_TIER_AVX512FP16; tier++) {
        const tsr_backend *b = tsr_cpu_backend((tsr_cpu_tier)tier);
        bool taken = false;

        for (int32_t co = 8; b && co <= 128; co += 24) {
            tsr_weight conv = {.n_dims = 4, .dims = {co, 13, 3, 3}, .dtype = TSR_F16},
                       linear = {.n_dims = 2, .dims = {co, 77}, .dtype = TSR_F16},
                       geglu = {.n_dims = 2, .dims = {2 * co, 72}, .dtype = TSR_F16},
                       floats = {.n_dims = 2, .dims = {co, 9}, .dtype = TSR_F32};

            taken |= pack_raw(b, &conv, false);
            taken |= pack_raw(b, &linear, false);
            taken |= pack_raw(b, &geglu, true);
            CHECK(!pack_raw(b, &floats, false));
        }
        CHECK_MSG(!b || tier == TSR_TIER_PORTABLE || taken, "%s takes no halves", b->tier);
    }
}

int main(void)
{
    RUN(pack__pieces_inside_panels__same_bytes);
    RUN(pack_halves__any_weight__bytes_of_its_floats);
    return test_end();
}
