/* rng.c -- torch's generators: mt19937 with both normal paths, and Philox4x32-10.
 *
 * mt19937 (Matsumoto and Nishimura 1998, constants of the 2002 initialisation), seeded with
 * the low 32 bits as torch does. Normals are Box-Muller:
 *   n >= 16  r = sqrt(-2 ln(1 - u[j])), x[j] = r cos(2 pi u[j+8]), x[j+8] = r sin(2 pi u[j+8])
 *            in every group of 16 float32 uniforms of 24 bits
 *   n < 16   r = sqrt(-2 log1p(-u2)), r cos(2 pi u1) now and r sin(2 pi u1) next time, in
 *            doubles of 53 bits
 * Philox4x32-10 (Salmon et al. 2011) as curand lays it out: key = seed, counter words 0-1 =
 * offset/4 + call, words 2-3 = thread; the four words of a call make four normals, and thread k of
 * T writes elements k, k+T, k+2T, k+3T, then the same of its next call.
 *
 * Everything transcendental is computed in double and rounded once to float32: that is within 2e-6
 * of each of torch's kernels and depends least on the C library. Which words are drawn, and in
 * which order, is what makes a seed the same picture everywhere: change nothing there. */
#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/num.h"

enum { MT_WORDS = 624, MT_SHIFT = 397, GROUP = 16 };

static const double two_pi = 6.283185307179586476925;

/* ---------------------------------------------------------------- mt19937 */

void tsr_rng_seed(tsr_rng *r, tsr_rng_kind kind, uint64_t seed)
{
    *r = (tsr_rng){.kind = kind, .seed = seed, .mt_index = MT_WORDS};
    r->mt[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT_WORDS; i++)
        r->mt[i] = 1812433253u * (r->mt[i - 1] ^ r->mt[i - 1] >> 30) + i;
}

static void mt_next_block(uint32_t *mt)
{
    for (int32_t k = 0; k < MT_WORDS; k++) {
        uint32_t next = mt[k + 1 < MT_WORDS ? k + 1 : 0];
        uint32_t far = mt[k + MT_SHIFT < MT_WORDS ? k + MT_SHIFT : k + MT_SHIFT - MT_WORDS];
        uint32_t y = (mt[k] & 0x80000000u) | (next & 0x7FFFFFFFu);
        mt[k] = far ^ y >> 1 ^ (y & 1 ? 0x9908B0DFu : 0);
    }
}

uint32_t tsr_rng_u32(tsr_rng *r)
{
    uint32_t y;

    if (r->mt_index == MT_WORDS) {
        mt_next_block(r->mt);
        r->mt_index = 0;
    }
    y = r->mt[r->mt_index++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
}

void tsr_rng_uniform(tsr_rng *r, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (float)(tsr_rng_u32(r) & 0xFFFFFFu) * 0x1p-24f;
}

/* 53 bits of two words, the first one the high half. */
static double uniform_double(tsr_rng *r)
{
    uint64_t high = tsr_rng_u32(r);

    return (double)((high << 32 | tsr_rng_u32(r)) & 0x1FFFFFFFFFFFFFu) * 0x1p-53;
}

static double normal_double(tsr_rng *r)
{
    double u1, u2, radius;

    if (r->has_next) {
        r->has_next = false;
        return r->next;
    }
    u1 = uniform_double(r);
    u2 = uniform_double(r);
    radius = sqrt(-2.0 * log1p(-u2));
    r->next = radius * sin(two_pi * u1);
    r->has_next = true;
    return radius * cos(two_pi * u1);
}

/* Sixteen uniforms to sixteen normals, in place. */
static void box_muller_group(float *x)
{
    for (int32_t j = 0; j < GROUP / 2; j++) {
        double radius = sqrt(-2.0 * log(1.0 - (double)x[j]));
        double angle = two_pi * (double)x[j + GROUP / 2];
        x[j] = (float)(radius * cos(angle));
        x[j + GROUP / 2] = (float)(radius * sin(angle));
    }
}

static void mt_normal(tsr_rng *r, float *dst, size_t n)
{
    if (n < GROUP) {
        for (size_t i = 0; i < n; i++)
            dst[i] = (float)normal_double(r);
        return;
    }
    tsr_rng_uniform(r, dst, n);
    for (size_t i = 0; i + GROUP <= n; i += GROUP)
        box_muller_group(dst + i);
    if (n % GROUP != 0) { /* the last sixteen are drawn again */
        tsr_rng_uniform(r, dst + n - GROUP, GROUP);
        box_muller_group(dst + n - GROUP);
    }
}

/* ----------------------------------------------------------------- Philox */

static void philox4x32_10(uint64_t key, uint64_t call, uint64_t thread, uint32_t w[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    w[0] = (uint32_t)call;
    w[1] = (uint32_t)(call >> 32);
    w[2] = (uint32_t)thread;
    w[3] = (uint32_t)(thread >> 32);
    for (int32_t round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)w[0] * 0xD2511F53u, p1 = (uint64_t)w[2] * 0xCD9E8D57u;
        w[0] = (uint32_t)(p1 >> 32) ^ w[1] ^ k0;
        w[1] = (uint32_t)p1;
        w[2] = (uint32_t)(p0 >> 32) ^ w[3] ^ k1;
        w[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Normal 0..3 of a call: sine, then cosine, of words 0 and 1, then of words 2 and 3. */
static float philox_normal(const uint32_t w[4], int32_t slot)
{
    const float two_pi_f = 6.2831855f;
    float u = (float)w[slot & 2] * 0x1p-32f + 0x1p-33f;
    float v = (float)w[(slot & 2) + 1] * (0x1p-32f * two_pi_f) + 0x1p-33f * two_pi_f;
    double s = sqrt(-2.0 * log((double)u));

    return (float)(s * (slot & 1 ? cos((double)v) : sin((double)v)));
}

static void philox_normals(tsr_rng *r, float *dst, size_t n)
{
    size_t threads = r->philox_threads ? r->philox_threads : n;

    for (size_t first = 0; first < n; r->philox_offset += 4) {
        size_t most = tsr_min_size(threads, n - first);
        for (size_t k = 0; k < most; k++) {
            uint32_t w[4];
            philox4x32_10(r->seed, r->philox_offset / 4, k, w);
            for (int32_t slot = 0; slot < 4 && first + (size_t)slot * threads + k < n; slot++)
                dst[first + (size_t)slot * threads + k] = philox_normal(w, slot);
        }
        first += tsr_min_size(4 * threads, n - first);
    }
}

void tsr_rng_normal(tsr_rng *r, float *dst, size_t n)
{
    if (r->kind == TSR_RNG_TORCH_CUDA)
        philox_normals(r, dst, n);
    else
        mt_normal(r, dst, n);
}
