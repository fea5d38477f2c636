/* sim_library.c -- arrays in device memory, and what the simulated libraries compute: plain loops
 * over floats, each sum in one order. */
#include "tests/cuda_sim/sim_library.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

cudaError_t sim_load_library(void)
{
    if (sim.libraries_loaded)
        return cudaSuccess;
    if (sim.o.library_bytes > sim_memory_free_bytes())
        return cudaErrorMemoryAllocation;
    sim.libraries_loaded = true;
    sim.f.used += sim.o.library_bytes;
    sim.f.peak = sim.f.used > sim.f.peak ? sim.f.used : sim.f.peak;
    return cudaSuccess;
}

size_t sim_array_bytes(const sim_array *a)
{
    int64_t last = 0;

    for (int i = 0; i < 4; i++)
        last += (a->dims[i] - 1) * a->strides[i];
    return (size_t)(last + 1) * tsr_dtype_size(a->dtype);
}

const char *sim_array_wrong(const sim_array *a, size_t alignment)
{
    bool whole;

    if ((uintptr_t)a->data % alignment)
        return "is not aligned as it was declared";
    if (sim_place_of(a->data, sim_array_bytes(a), &whole) != SIM_DEVICE)
        return "is not in the device's memory";
    return whole ? NULL : "reaches beyond the memory that it lies in";
}

bool sim_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

static size_t offset(const sim_array *a, const int64_t at[4])
{
    int64_t n = 0;

    for (int i = 0; i < 4; i++)
        n += (a->dims[i] == 1 ? 0 : at[i]) * a->strides[i];
    return (size_t)n * tsr_dtype_size(a->dtype);
}

float sim_array_get(const sim_array *a, const int64_t at[4])
{
    float v;

    tsr_to_f32(&v, a->data + offset(a, at), a->dtype, 1);
    return v;
}

void sim_array_put(const sim_array *a, const int64_t at[4], float v)
{
    tsr_from_f32(a->data + offset(a, at), a->dtype, &v, 1);
}

float *sim_array_floats(const sim_array *a)
{
    const int64_t *d = a->dims;
    float *out = malloc((size_t)(d[0] * d[1] * d[2] * d[3]) * sizeof *out), *to = out;
    int64_t at[4];

    for (at[0] = 0; out && at[0] < d[0]; at[0]++)
        for (at[1] = 0; at[1] < d[1]; at[1]++)
            for (at[2] = 0; at[2] < d[2]; at[2]++, to += d[3]) {
                at[3] = 0;
                if (a->strides[3] == 1)
                    tsr_to_f32(to, a->data + offset(a, at), a->dtype, (size_t)d[3]);
                for (; a->strides[3] != 1 && at[3] < d[3]; at[3]++)
                    to[at[3]] = sim_array_get(a, at);
            }
    return out;
}

/* The same array with its axes in another order. */
static sim_array turned(const sim_array *a, int i, int j, int k, int l)
{
    const int order[4] = {i, j, k, l};
    sim_array t = *a;

    for (int x = 0; x < 4; x++) {
        t.dims[x] = a->dims[order[x]];
        t.strides[x] = a->strides[order[x]];
    }
    return t;
}

/* ------------------------------------------------------------------- convolutions */

/* Sums of one output pixel, all channels. */
static void one_pixel(const sim_conv *v, const float *x, const float *w, const int64_t at[4],
                      float *sums)
{
    int64_t c_n = v->x.dims[1], h = v->x.dims[2], width = v->x.dims[3], co = v->w.dims[0];

    memset(sums, 0, (size_t)co * sizeof *sums);
    for (int64_t r = 0; r < v->w.dims[2]; r++)
        for (int64_t s = 0; s < v->w.dims[3]; s++) {
            int64_t y = at[2] * v->stride[0] + r - v->before[0];
            int64_t z = at[3] * v->stride[1] + s - v->before[1];
            const float *pixel = x + ((at[0] * h + y) * width + z) * c_n;
            const float *tap = w + (r * v->w.dims[3] + s) * c_n * co;
            for (int64_t c = 0; y >= 0 && y < h && z >= 0 && z < width && c < c_n; c++, tap += co)
                for (int64_t k = 0; k < co; k++)
                    sums[k] += pixel[c] * tap[k];
        }
}

const char *sim_compute_conv(void *conv)
{
    const sim_conv *v = conv;
    sim_array nhwc = turned(&v->x, 0, 2, 3, 1), rsck = turned(&v->w, 2, 3, 1, 0);
    float *x = sim_array_floats(&nhwc), *w = sim_array_floats(&rsck);
    float *sums = malloc((size_t)v->w.dims[0] * sizeof *sums);
    int64_t at[4];

    for (at[0] = 0; x && w && sums && at[0] < v->y.dims[0]; at[0]++)
        for (at[2] = 0; at[2] < v->y.dims[2]; at[2]++)
            for (at[3] = 0; at[3] < v->y.dims[3]; at[3]++) {
                one_pixel(v, x, w, at, sums);
                for (at[1] = 0; at[1] < v->y.dims[1]; at[1]++) {
                    for (int32_t i = 0; i < v->n_sums; i++)
                        sums[at[1]] += sim_array_get(&v->sums[i], at);
                    sim_array_put(&v->y, at, sums[at[1]]);
                }
            }
    free(x);
    free(w);
    free(sums);
    return NULL;
}

/* ---------------------------------------------------------------------- attention */

/* One query of one head: out [D], scores [S]. */
static void one_query(const sim_sdpa *a, const float *q, const float *k, const float *v,
                      float *scores, float *out)
{
    int64_t keys = a->k.dims[2], d = a->q.dims[3];
    float most = -INFINITY, sum = 0;

    for (int64_t j = 0; j < keys; j++) {
        float s = 0;
        for (int64_t i = 0; i < d; i++)
            s += q[i] * k[j * d + i];
        scores[j] = s * a->scale;
        most = fmaxf(most, scores[j]);
    }
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t j = 0; j < keys; j++) {
        float p = expf(scores[j] - most);
        sum += p;
        for (int64_t i = 0; i < d; i++)
            out[i] += p * v[j * d + i];
    }
    for (int64_t i = 0; i < d; i++)
        out[i] /= sum;
}

const char *sim_compute_sdpa(void *sdpa)
{
    const sim_sdpa *a = sdpa;
    int64_t heads = a->q.dims[1], s = a->q.dims[2], keys = a->k.dims[2], d = a->q.dims[3];
    float *q = sim_array_floats(&a->q), *k = sim_array_floats(&a->k), *v = sim_array_floats(&a->v);
    float *scores = malloc((size_t)keys * sizeof *scores), *out = malloc((size_t)d * sizeof *out);
    int64_t at[4];

    for (at[0] = 0; q && k && v && scores && out && at[0] < a->q.dims[0]; at[0]++)
        for (at[1] = 0; at[1] < heads; at[1]++)
            for (at[2] = 0; at[2] < s; at[2]++) {
                int64_t head = at[0] * heads + at[1];
                one_query(a, q + (head * s + at[2]) * d, k + head * keys * d, v + head * keys * d,
                          scores, out);
                for (at[3] = 0; at[3] < d; at[3]++)
                    sim_array_put(&a->o, at, out[at[3]]);
            }
    free(q);
    free(k);
    free(v);
    free(scores);
    free(out);
    return NULL;
}
