/* winograd_transform.h -- the three linear maps of Winograd's F(4,3), in one dimension.
 *
 *     y = A^T ((G g) . (B^T d)),   d: 6 inputs, g: 3 taps, y: 4 outputs
 *
 * (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, 2015: 36 products for 16
 * outputs of a 3x3 kernel in two dimensions, where the direct form takes 144.)
 *
 * Interpolation points 0, +-1/sqrt(2), +-sqrt(2), infinity: of the form +-c, +-1/c (Alam and
 * others, Winograd Convolution for Deep Neural Networks: Efficient Point Selection, 2022), so that
 * the matrices stay near one: the relative L2 error is 0.8e-6 against 1.6e-6 with the usual 0, +-1,
 * +-2 (128 channels, f32 sums, points tried in bench/NOTES.md). The squares 1/2 and 2 are exact.
 *
 * Every output of a map is one fixed expression of FMAs: same bits wherever a tile is computed. */
#ifndef TSR_KERNELS_CPU_WINOGRAD_TRANSFORM_H
#define TSR_KERNELS_CPU_WINOGRAD_TRANSFORM_H

enum {
    WINO_OUT = 4, /* outputs of a tile, a side */
    WINO_IN = 6,  /* inputs, and products, a side */
    WINO_N = WINO_IN * WINO_IN
};

static const float WINO_A = 0.70710678118654752f, WINO_B = 1.41421356237309505f; /* the points */

/* v = B^T d: v[i * step] from d[0..5] */
static inline __attribute__((always_inline)) void wino_map_input(const vec d[WINO_IN], vec *v,
                                                                 int32_t step)
{
    const vec two = vec_set(-2.0f), half = vec_set(-0.5f), s = vec_set(-2.5f);
    vec e1 = vec_fma(two, d[2], d[4]), o1 = vec_fma(two, d[1], d[3]);
    vec e2 = vec_fma(half, d[2], d[4]), o2 = vec_fma(half, d[1], d[3]);

    v[0] = vec_fma(s, d[2], vec_add(d[0], d[4]));
    v[step] = vec_fma(vec_set(WINO_A), o1, e1);
    v[2 * step] = vec_fma(vec_set(-WINO_A), o1, e1);
    v[3 * step] = vec_fma(vec_set(WINO_B), o2, e2);
    v[4 * step] = vec_fma(vec_set(-WINO_B), o2, e2);
    v[5 * step] = vec_fma(s, d[3], vec_add(d[1], d[5]));
}

/* u = G g: u[i * step] from three taps */
static inline __attribute__((always_inline)) void wino_map_weight(vec g0, vec g1, vec g2, vec *u,
                                                                  int32_t step)
{
    vec e1 = vec_fma(vec_set(-1.0f / 3), g2, vec_mul(vec_set(-2.0f / 3), g0));
    vec e2 = vec_fma(vec_set(1.0f / 3), g2, vec_mul(vec_set(1.0f / 6), g0));
    const vec o1 = vec_set(-2.0f / 3 * WINO_A), o2 = vec_set(WINO_B / 6);

    u[0] = g0;
    u[step] = vec_fma(o1, g1, e1);
    u[2 * step] = vec_sub(e1, vec_mul(o1, g1));
    u[3 * step] = vec_fma(o2, g1, e2);
    u[4 * step] = vec_sub(e2, vec_mul(o2, g1));
    u[5 * step] = g2;
}

/* y = A^T m: y[i * step] from m[0..5] */
static inline __attribute__((always_inline)) void wino_map_output(const vec m[WINO_IN], vec *y,
                                                                  int32_t step)
{
    vec s1 = vec_add(m[1], m[2]), d1 = vec_mul(vec_set(WINO_A), vec_sub(m[1], m[2]));
    vec s2 = vec_add(m[3], m[4]), d2 = vec_mul(vec_set(WINO_B), vec_sub(m[3], m[4]));
    const vec two = vec_set(2.0f), half = vec_set(0.5f);

    y[0] = vec_add(m[0], vec_add(s1, s2));
    y[step] = vec_add(d1, d2);
    y[2 * step] = vec_fma(half, s1, vec_mul(two, s2));
    y[3 * step] = vec_fma(half, d1, vec_fma(two, d2, m[5]));
}

#endif
