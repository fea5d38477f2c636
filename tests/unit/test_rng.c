/* test_rng.c -- the generators against torch's words and normals. */
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"
#include "tests/support/test.h"

enum { MOST_VALUES = 65536 };
static const double tolerance = 2e-6; /* torch's own kernels differ by that much */

static float drawn[MOST_VALUES];
static float wanted[MOST_VALUES];

/* The tensor of that name as floats in `wanted`; its number of elements, 0 when it is not there. */
static size_t load(const tsr_st *st, const char *name)
{
    const tsr_st_tensor *t = tsr_st_find(st, name);
    unsigned char *raw;
    size_t n;
    tsr_err err;

    if (!t)
        return 0;
    n = t->bytes / tsr_dtype_size(t->dtype);
    raw = malloc(t->bytes);
    if (!raw || n > MOST_VALUES ||
        tsr_file_read(&st->file, t->offset, raw, t->bytes, &err) != TSR_OK)
        n = 0;
    else
        tsr_to_f32(wanted, raw, t->dtype, n);
    free(raw);
    return n;
}

static void check_equal(const char *name, const float *got, size_t n)
{
    double worst = test_max_abs_diff(got, wanted, n);

    CHECK_MSG(worst <= tolerance, "%s: differs by %g", name, worst);
}

/* Calls `fn` for the small copy and, where it is, the whole reference. */
static void with_goldens(void (*fn)(const tsr_st *st))
{
    const char *dirs[] = {TSR_TEST_DATA, test_reference_dir()};

    for (int i = 0; i < 2; i++) {
        char path[4200];
        tsr_st st;
        tsr_err err = {0};
        if (!dirs[i])
            continue;
        snprintf(path, sizeof path, "%s/golden/rng.safetensors", dirs[i]);
        if (tsr_st_open(&st, path, &err) != TSR_OK) {
            CHECK_MSG(false, "%s", err.msg);
            continue;
        }
        fn(&st);
        tsr_st_close(&st);
    }
}

/* Elements of a shape as it is written in a case's name, "1x4x8x8". */
static size_t shape_size(const char *shape)
{
    size_t n = 1;

    for (char *end; *shape; shape = *end == 'x' ? end + 1 : end) {
        n *= strtoull(shape, &end, 10);
        if (*end != 'x' && *end != 0)
            return 0;
    }
    return n;
}

static void check_shapes(const tsr_st *st)
{
    int cases = 0;

    for (int32_t i = 0; i < st->n_tensors; i++) {
        const char *name = st->tensors[i].name;
        unsigned long long seed;
        char shape[64], part[64];
        size_t n, count;
        tsr_rng r;
        if (sscanf(name, "seed%llu.%63[0-9x].%63s", &seed, shape, part) != 3)
            continue;
        n = shape_size(shape);
        if (strcmp(part, "first64") != 0 && strcmp(part, "last32") != 0)
            continue;
        count = load(st, name);
        REQUIRE(count > 0 && n <= MOST_VALUES && count <= n);
        tsr_rng_seed(&r, TSR_RNG_TORCH_CPU, seed);
        tsr_rng_normal(&r, drawn, n);
        check_equal(name, strcmp(part, "first64") == 0 ? drawn : drawn + n - count, count);
        cases++;
    }
    CHECK_MSG(cases >= 100, "only %d cases", cases);
}

static void rng_cpu__every_seed_and_shape__gives_torchs_normals(void)
{
    with_goldens(check_shapes);
}

static const unsigned long long seeds[] = {0, 1, 42, 1234567890123, 4294967301};
enum { N_SEEDS = sizeof seeds / sizeof seeds[0] };

static void check_sequence(const tsr_st *st)
{
    /* "sequence_sizes" of rng.json: odd sizes keep the second normal of a pair for later. */
    static const size_t sizes[] = {3, 2, 16, 5, 17, 1, 1, 40};

    for (int s = 0; s < N_SEEDS; s++) {
        char name[64];
        size_t n, at = 0;
        tsr_rng r;
        snprintf(name, sizeof name, "seed%llu.sequence", seeds[s]);
        n = load(st, name);
        tsr_rng_seed(&r, TSR_RNG_TORCH_CPU, seeds[s]);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; at += sizes[i++])
            tsr_rng_normal(&r, drawn + at, sizes[i]);
        CHECK_MSG(n == at, "%s has %zu values, not %zu", name, n, at);
        check_equal(name, drawn, at);
    }
}

static void rng_cpu__draws_of_mixed_sizes__keep_the_second_normal(void)
{
    with_goldens(check_sequence);
}

static void check_words(const tsr_st *st)
{
    for (int s = 0; s < N_SEEDS; s++) {
        char name[64];
        const tsr_st_tensor *t;
        int64_t words[16];
        tsr_err err;
        tsr_rng r;
        snprintf(name, sizeof name, "seed%llu.u32", seeds[s]);
        t = tsr_st_find(st, name);
        REQUIRE(t && t->dtype == TSR_I64 && t->bytes == sizeof words);
        REQUIRE(tsr_file_read(&st->file, t->offset, words, sizeof words, &err) == TSR_OK);
        tsr_rng_seed(&r, TSR_RNG_TORCH_CPU, seeds[s]);
        for (int i = 0; i < 16; i++) { /* torch.randint(2**32): the low half of 64 bits */
            (void)tsr_rng_u32(&r);
            CHECK(tsr_rng_u32(&r) == (uint64_t)words[i]);
        }

        snprintf(name, sizeof name, "seed%llu.rand", seeds[s]);
        REQUIRE(load(st, name) == 64);
        tsr_rng_seed(&r, TSR_RNG_TORCH_CPU, seeds[s]);
        tsr_rng_uniform(&r, drawn, 64);
        CHECK(memcmp(drawn, wanted, 64 * sizeof *drawn) == 0);
    }
}

static void rng_cpu__words_and_uniforms__are_exact(void)
{
    with_goldens(check_words);
}

static void check_generator_list(const tsr_st *st)
{
    for (int s = 0; s < N_SEEDS; s++) {
        char name[64];
        snprintf(name, sizeof name, "seed%llu.generator_list.2x4x8x8", seeds[s]);
        REQUIRE(load(st, name) == 512);
        for (uint64_t i = 0; i < 2; i++) {
            tsr_rng r;
            tsr_rng_seed(&r, TSR_RNG_TORCH_CPU, seeds[s] + i);
            tsr_rng_normal(&r, drawn + 256 * i, 256);
        }
        check_equal(name, drawn, 512);
    }
}

static void rng_cpu__one_generator_a_picture__is_one_draw_each(void)
{
    with_goldens(check_generator_list);
}

static void rng_cpu__words_10000_of_the_standard_seed__is_the_published_one(void)
{
    tsr_rng r;
    uint32_t last = 0;

    tsr_rng_seed(&r, TSR_RNG_TORCH_CPU, 5489);
    for (int i = 0; i < 10000; i++)
        last = tsr_rng_u32(&r);
    CHECK(last == 4123659995u); /* ISO C++ 26.5.5 */
}

static void rng_cpu__seed_above_32_bits__uses_its_low_half(void)
{
    tsr_rng a, b;

    tsr_rng_seed(&a, TSR_RNG_TORCH_CPU, 7);
    tsr_rng_seed(&b, TSR_RNG_TORCH_CPU, 7 + ((uint64_t)9 << 32));
    CHECK(tsr_rng_u32(&a) == tsr_rng_u32(&b));
}

static void check_philox(const tsr_st *st)
{
    static const struct {
        const char *threads;
        size_t n, n_threads;
    } cases[] = {{"auto", 12, 0}, {"auto", 256, 0}, {"auto", 16384, 0}, {"1024", 16384, 1024}};

    for (int s = 0; s < N_SEEDS; s++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            char name[96];
            size_t n;
            tsr_rng r;
            snprintf(name, sizeof name, "philox.seed%llu.n%zu.threads%s.first64", seeds[s],
                     cases[i].n, cases[i].threads);
            n = load(st, name);
            CHECK_MSG(n > 0, "%s is not there", name);
            tsr_rng_seed(&r, TSR_RNG_TORCH_CUDA, seeds[s]);
            r.philox_threads = cases[i].n_threads;
            tsr_rng_normal(&r, drawn, cases[i].n);
            check_equal(name, drawn, n);
        }
    }
}

static void rng_cuda__every_seed_and_size__gives_the_reference(void)
{
    with_goldens(check_philox);
}

static void rng_cuda__seed_0__gives_the_published_values(void)
{
    static const float published[] = {-0.9246624f, -0.4253439f, -2.6438458f, 0.1451839f};
    tsr_rng r;

    tsr_rng_seed(&r, TSR_RNG_TORCH_CUDA, 0);
    tsr_rng_normal(&r, drawn, 12);
    CHECK(test_max_abs_diff(drawn, published, 4) <= tolerance);
}

static void rng_cuda__draws__move_the_offset_on_by_four_words_a_call(void)
{
    static const struct {
        size_t n, threads, growth;
    } cases[] = {{0, 0, 0},      {1, 0, 4},      {65536, 0, 4},    {1024, 256, 4},
                 {1025, 256, 8}, {2048, 256, 8}, {16384, 1024, 16}};
    float second[8], again[8];
    tsr_rng r;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tsr_rng_seed(&r, TSR_RNG_TORCH_CUDA, 3);
        r.philox_threads = cases[i].threads;
        tsr_rng_normal(&r, drawn, cases[i].n);
        CHECK_MSG(r.philox_offset == cases[i].growth, "%zu of %zu threads: %llu", cases[i].n,
                  cases[i].threads, (unsigned long long)r.philox_offset);
    }
    tsr_rng_seed(&r, TSR_RNG_TORCH_CUDA, 3);
    tsr_rng_normal(&r, drawn, 8);
    tsr_rng_normal(&r, second, 8);
    CHECK(memcmp(drawn, second, sizeof second) != 0);
    tsr_rng_seed(&r, TSR_RNG_TORCH_CUDA, 3);
    r.philox_offset = 4;
    tsr_rng_normal(&r, again, 8);
    CHECK(memcmp(again, second, sizeof second) == 0);
}

/* Element k + j T + 4 T c is normal j of thread k's call c: what one large T gives at the
 * same thread and offset. */
static void rng_cuda__more_elements_than_four_a_thread__go_on_with_the_next_call(void)
{
    enum { T = 256, N = 4 * T * 2 + 100 };
    float small[T];
    tsr_rng r;

    tsr_rng_seed(&r, TSR_RNG_TORCH_CUDA, 11);
    r.philox_threads = T;
    tsr_rng_normal(&r, drawn, N);
    for (uint64_t call = 0; call < 3; call++) {
        size_t first = (size_t)call * 4 * T;
        tsr_rng_seed(&r, TSR_RNG_TORCH_CUDA, 11);
        r.philox_offset = 4 * call;
        tsr_rng_normal(&r, small, T);
        CHECK(memcmp(small, drawn + first, (N - first < T ? N - first : T) * sizeof *small) == 0);
    }
}

int main(void)
{
    RUN(rng_cpu__words_and_uniforms__are_exact);
    RUN(rng_cpu__words_10000_of_the_standard_seed__is_the_published_one);
    RUN(rng_cpu__seed_above_32_bits__uses_its_low_half);
    RUN(rng_cpu__every_seed_and_shape__gives_torchs_normals);
    RUN(rng_cpu__draws_of_mixed_sizes__keep_the_second_normal);
    RUN(rng_cpu__one_generator_a_picture__is_one_draw_each);
    RUN(rng_cuda__seed_0__gives_the_published_values);
    RUN(rng_cuda__every_seed_and_size__gives_the_reference);
    RUN(rng_cuda__draws__move_the_offset_on_by_four_words_a_call);
    RUN(rng_cuda__more_elements_than_four_a_thread__go_on_with_the_next_call);
    return test_end();
}
