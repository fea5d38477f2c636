/* packed_sum.c -- the sums of packed checkpoints, and the fingerprint of a backend's packing.
 *
 * FNV-1a is a byte at a time (0.8 GB/s): too slow for gigabytes. Here four lanes take a 64-bit word
 * each: lane = rotate(lane ^ word, 29) * prime. Every step is a bijection of the lane, so one
 * damaged word always changes the sum; lanes do not wait for each other, so it runs at the
 * memory's speed. Not cryptographic: it finds damage, not intent.
 *
 * The fingerprint packs a few small weights with everything that the packing depends on: a
 * convolution, a linear layer, a GEGLU one, in both types, with row counts that end inside of a
 * panel. A packing that looks at more than that must be sampled here, too. */
#include "model/packed_internal.h"

#include <string.h>

#include "base/num.h"

#define PRIME 0x9E3779B185EBCA87u

enum { LANES = 4, WORD = 8, STRIDE = LANES * WORD };

static inline uint64_t step(uint64_t lane, uint64_t word)
{
    lane ^= word;
    return (lane << 29 | lane >> 35) * PRIME;
}

static void add_strides(tsr_sum *s, const uint8_t *data, size_t n)
{
    uint64_t lane[LANES], word;

    memcpy(lane, s->lane, sizeof lane);
    for (; n > 0; n--, data += STRIDE)
        for (int i = 0; i < LANES; i++) {
            memcpy(&word, data + i * WORD, WORD);
            lane[i] = step(lane[i], word);
        }
    memcpy(s->lane, lane, sizeof lane);
}

void tsr_sum_begin(tsr_sum *s)
{
    *s = (tsr_sum){.lane = {TSR_FNV_SEED, PRIME, ~TSR_FNV_SEED, ~PRIME}};
}

void tsr_sum_add(tsr_sum *s, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    size_t held = s->bytes % STRIDE, n;

    s->bytes += bytes;
    if (held > 0) {
        n = tsr_min_size(bytes, STRIDE - held);
        memcpy(s->rest + held, from, n);
        from += n;
        bytes -= n;
        if (held + n < STRIDE)
            return;
        add_strides(s, s->rest, 1);
    }
    add_strides(s, from, bytes / STRIDE);
    memcpy(s->rest, from + bytes / STRIDE * STRIDE, bytes % STRIDE);
}

uint64_t tsr_sum_end(const tsr_sum *s)
{
    uint64_t h = tsr_fnv1a64(s->rest, s->bytes % STRIDE, s->bytes);

    for (int i = 0; i < LANES; i++)
        h = step(h, s->lane[i]);
    return h ^ h >> 32;
}

/* ------------------------------------------------------------------ layout */

enum { SAMPLE_ROWS = 38, SAMPLE_CHANNELS = 5, SAMPLE_BYTES = 1 << 16 };
enum { SAMPLE_FLOATS = SAMPLE_ROWS * SAMPLE_CHANNELS * 9 };

static uint64_t hash_sample(const tsr_backend *b, const tsr_op *op, const tsr_weight *w, uint64_t h)
{
    float rows[SAMPLE_FLOATS];
    unsigned char packed[SAMPLE_BYTES];
    size_t bytes = b->packed_bytes(b, op, w);
    uint64_t size = bytes;

    for (int i = 0; i < SAMPLE_FLOATS; i++)
        rows[i] = 1.0f + (float)i / 64; /* whole in a half for 6 bits below the point, up to 32 */
    h = tsr_fnv1a64(&size, sizeof size, h);
    if (bytes > sizeof packed)
        return h;
    memset(packed, 0, bytes);
    b->pack(b, op, w, rows, 0, w->dims[0], 0, packed);
    return tsr_fnv1a64(packed, bytes, h);
}

uint64_t tsr_packed_layout(const tsr_backend *b)
{
    static const tsr_op ops[] = {
        {.kind = TSR_OP_CONV2D, .u.conv = {.r = 3, .s = 3, .stride = 1, .pad_top = 1}},
        {.kind = TSR_OP_LINEAR},
        {.kind = TSR_OP_LINEAR, .u.linear.geglu = true},
    };
    uint64_t h = TSR_FNV_SEED;

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (tsr_dtype d = TSR_F32; d <= TSR_F16; d++) {
            tsr_weight w = {.n_dims = ops[i].kind == TSR_OP_CONV2D ? 4 : 2,
                            .dims = {SAMPLE_ROWS, SAMPLE_CHANNELS, 3, 3},
                            .file_dtype = TSR_F32,
                            .dtype = d,
                            .kind = TSR_WEIGHT_MATRIX};
            h = hash_sample(b, &ops[i], &w, h);
        }
    return h;
}
