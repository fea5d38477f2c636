/* test_scheduler_steps.c -- properties of schedules that need no reference: every number of steps
 * is finite or refused, steps allocate nothing, a schedule can be begun again, state fits its
 * memory. */
#include "scheduler/scheduler_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tests/support/test.h"

enum { N = 6 };

static const char *const sd =
    "{\"_class_name\":\"DDIMScheduler\",\"beta_start\":0.00085,\"beta_end\":0.012,"
    "\"beta_schedule\":\"scaled_linear\",\"steps_offset\":1,\"clip_sample\":false,"
    "\"skip_prk_steps\":true,\"timestep_spacing\":\"%s\",%s\"set_alpha_to_one\":false}";

static tsr_sched_config *config(const char *name, const char *sigmas, const char *spacing,
                                const char *more)
{
    const tsr_sched_options opt = {.name = name, .sigmas = sigmas};
    tsr_sched_config *cfg = NULL;
    char json[512];

    snprintf(json, sizeof json, sd, spacing, more);
    (void)tsr_sched_config_make(&cfg, json, "s.json", &opt, NULL, NULL);
    return cfg;
}

/* Runs a schedule over x with noise from one seed; false when something is not finite. */
static bool run(tsr_sched *s, float *x)
{
    float in[N], out[N], noise[N];
    bool finite = true;
    tsr_rng rng;

    tsr_rng_seed(&rng, TSR_RNG_TORCH_CPU, 7);
    tsr_rng_normal(&rng, x, N);
    for (int32_t k = 0; k < N; k++)
        x[k] *= tsr_sched_init_noise_sigma(s);
    for (int32_t i = 0; i < tsr_sched_n_calls(s); i++) {
        tsr_sched_scale_input(s, i, x, in);
        for (int32_t k = 0; k < N; k++)
            out[k] = 0.3f * in[k] + 0.1f * sinf(3 * in[k] + tsr_sched_timesteps(s)[i] / 200);
        if (tsr_sched_needs_noise(s, i))
            tsr_rng_normal(&rng, noise, N);
        tsr_sched_step(s, i, out, noise, x);
    }
    for (int32_t k = 0; k < N; k++)
        finite = finite && isfinite(x[k]);
    return finite;
}

static const char *const spacings[] = {"linspace", "leading", "trailing"};
static const char *const tables[] = {"default", "karras", "exponential", "beta"};

/* Everything works that the class knows, but: lcm has 50 steps, and close to the training
 * schedule's length whole timesteps come twice, or beyond it. */
static void check_steps(const char *name, const char *table, const char *spacing, int32_t steps)
{
    tsr_sched_config *cfg = config(name, table, spacing, "");
    tsr_sched *s = NULL;
    tsr_err err = {0};
    float x[N];
    tsr_status st;
    bool few;

    if (!cfg)
        return; /* no such table */
    st = tsr_sched_make(&s, cfg, steps, N, NULL, &err);
    few = strcmp(name, "lcm") == 0 ? steps <= 50 : steps < 999;
    CHECK_MSG(st == TSR_OK || (!few && st == TSR_E_USAGE), "%s %s %s %d: %s", name, table, spacing,
              steps, err.msg);
    if (st == TSR_OK) {
        CHECK_MSG(run(s, x), "%s %s %s %d is not finite", name, table, spacing, steps);
        for (int32_t i = 0; i < tsr_sched_n_calls(s); i++)
            CHECK_MSG(tsr_sched_timesteps(s)[i] >= 0 && tsr_sched_timesteps(s)[i] <= 1000,
                      "%s %s %s %d: timestep %g", name, table, spacing, steps,
                      (double)tsr_sched_timesteps(s)[i]);
    }
    tsr_sched_free(s);
    tsr_sched_config_free(cfg);
}

static void steps__any_number__is_finite_or_refused(void)
{
    for (const char *const *name = tsr_sched_names(); *name; name++) {
        for (int32_t t = 0; t < 4; t++) {
            for (int32_t p = 0; p < 3; p++) {
                for (int32_t n = 1; n <= 1000; n += test_long() || n < 20 ? 1 : n / 3)
                    check_steps(*name, tables[t], spacings[p], n);
                check_steps(*name, tables[t], spacings[p], 1000);
            }
        }
    }
}

/* numpy's arange makes 62 points of 61 trailing steps, the last at timestep -1. */
static void steps__trailing__are_as_many_as_asked(void)
{
    static const int32_t odd[] = {61, 103, 121, 122, 201, 999};

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        tsr_sched_config *cfg = config("ddim", NULL, "trailing", "");
        tsr_sched *s = NULL;

        REQUIRE(cfg && tsr_sched_make(&s, cfg, odd[i], N, NULL, NULL) == TSR_OK);
        CHECK(tsr_sched_n_calls(s) == odd[i] && tsr_sched_timesteps(s)[odd[i] - 1] >= 0);
        tsr_sched_free(s);
        tsr_sched_config_free(cfg);
    }
}

static void step__running__allocates_nothing_and_repeats(void)
{
    for (const char *const *name = tsr_sched_names(); *name; name++) {
        tsr_sched_config *cfg = config(*name, NULL, "leading", "\"thresholding\":true,");
        tsr_sched *s = NULL;
        float first[N], again[N];
        uint64_t allocations;

        REQUIRE(cfg && tsr_sched_make(&s, cfg, 9, N, NULL, NULL) == TSR_OK);
        allocations = tsr_alloc_count();
        CHECK_MSG(run(s, first), "%s is not finite", *name);
        tsr_sched_reset(s);
        CHECK_MSG(run(s, again), "%s is not finite", *name);
        CHECK_MSG(memcmp(first, again, sizeof first) == 0, "%s differs", *name);
        CHECK_MSG(tsr_alloc_count() == allocations, "%s allocates", *name);
        tsr_sched_free(s);
        tsr_sched_config_free(cfg);
    }
}

static void state__memory_of_the_caller__is_enough_and_gives_the_same(void)
{
    const float guard = 12345;

    for (const char *const *name = tsr_sched_names(); *name; name++) {
        tsr_sched_config *cfg = config(*name, NULL, "linspace", "\"thresholding\":true,");
        tsr_sched *own = NULL, *given = NULL;
        float a[N], b[N], *state;
        size_t n;

        REQUIRE(cfg);
        n = tsr_sched_state_bytes(cfg, N) / sizeof(float);
        state = malloc((n + 1) * sizeof *state);
        REQUIRE(state);
        for (size_t k = 0; k < n; k++)
            state[k] = NAN;
        state[n] = guard;
        REQUIRE(tsr_sched_make(&own, cfg, 11, N, NULL, NULL) == TSR_OK);
        REQUIRE(tsr_sched_make(&given, cfg, 11, N, state, NULL) == TSR_OK);
        CHECK_MSG(run(own, a) && run(given, b), "%s is not finite", *name);
        CHECK_MSG(memcmp(a, b, sizeof a) == 0 && state[n] == guard, "%s", *name);
        CHECK(tsr_sched_state_bytes(cfg, SIZE_MAX / 2) == SIZE_MAX || n == 0);
        tsr_sched_free(own);
        tsr_sched_free(given);
        tsr_sched_config_free(cfg);
        free(state);
    }
}

/* One quantile of eleven magnitudes by hand: rank 0.5 * 10 = 5 is the sixth smallest. */
static void threshold__half_of_the_values__are_clipped_at_the_median(void)
{
    enum { COUNT = 11 };
    float x0[COUNT] = {-9, 1, 2, 8, 3, 4, -5, 6, 7, 0.5f, 10}, sort[COUNT];
    const float limit = 5;
    tsr_sched s = {.n = COUNT, .cfg = {.threshold_ratio = 0.5f, .sample_max = 100}};
    const float was[COUNT] = {-9, 1, 2, 8, 3, 4, -5, 6, 7, 0.5f, 10};

    tsr_sched_threshold(&s, x0, sort);
    for (int32_t k = 0; k < COUNT; k++)
        CHECK(x0[k] == fminf(fmaxf(was[k], -limit), limit) / limit);
    for (int32_t k = 1; k < COUNT; k++)
        CHECK(sort[k - 1] <= sort[k]);
}

/* Values from scipy.stats.beta.ppf. */
static void beta_ppf__known_values__are_met(void)
{
    static const struct {
        double p, a, b, x;
    } cases[] = {
        {0.001, 0.6, 0.6, 1.8558738517451997e-05}, {0.0199, 0.6, 0.6, 0.0027102605786741034},
        {0.1, 0.6, 0.6, 0.039584405588780854},     {0.25, 0.6, 0.6, 0.17568037865269501},
        {0.4, 0.6, 0.6, 0.36270099075321433},      {0.6, 0.6, 0.6, 0.63729900924678562},
        {0.75, 0.6, 0.6, 0.82431962134730496},     {0.999, 0.6, 0.6, 0.99998144126148258},
        {0.3, 2.0, 5.0, 0.18180347131894917},      {0.9, 2.0, 5.0, 0.51031630655149163},
        {0.05, 1.0, 1.0, 0.050000000000000003},    {0.7, 0.5, 3.0, 0.17653813800341481},
        {1e-06, 0.6, 0.6, 1.8558824624053046e-10},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double x = tsr_sched_beta_ppf(cases[i].p, cases[i].a, cases[i].b);

        CHECK_MSG(fabs(x - cases[i].x) <= 1e-12 * cases[i].x, "ppf(%g, %g, %g) is %.17g",
                  cases[i].p, cases[i].a, cases[i].b, x);
    }
    CHECK(tsr_sched_beta_ppf(0, 0.6, 0.6) == 0 && tsr_sched_beta_ppf(1, 0.6, 0.6) == 1);
    CHECK(fabs(tsr_sched_beta_ppf(0.5, 0.6, 0.6) - 0.5) < 1e-15);
}

/* Values of numpy.log of float32 arrays where it is not the correctly rounded logarithm. */
static void logf__numpys_values__are_met(void)
{
    static const struct {
        float x, y;
    } cases[] = {
        {0x1.95957c0000000p-1f, -0x1.dd2d6c0000000p-3f},
        {0x1.c0858e0000000p-2f, -0x1.a6a9e00000000p-1f},
        {0x1.9e6efc0000000p-1f, -0x1.b0f8ca0000000p-3f},
        {0x1.5679c40000000p+0f, 0x1.2a01f80000000p-2f},
        {0x1.4be32e0000000p-1f, -0x1.bbeef80000000p-2f},
        {0x1.098b580000000p-5f, -0x1.b6edca0000000p+1f},
        {0x1.284e180000000p+1f, 0x1.adc0800000000p-1f},
        {0x1.77cfc20000000p+1f, 0x1.13ba0a0000000p+0f},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_MSG(tsr_sched_logf(cases[i].x) == cases[i].y, "log %a is %a", (double)cases[i].x,
                  (double)tsr_sched_logf(cases[i].x));
    CHECK(tsr_sched_logf(1) == 0 && isinf(tsr_sched_logf(0)) && isnan(tsr_sched_logf(-1)));
    CHECK(fabsf(tsr_sched_logf(1e-40f) - -92.1034f) < 1e-4f);
}

int main(void)
{
    RUN(steps__any_number__is_finite_or_refused);
    RUN(steps__trailing__are_as_many_as_asked);
    RUN(step__running__allocates_nothing_and_repeats);
    RUN(state__memory_of_the_caller__is_enough_and_gives_the_same);
    RUN(threshold__half_of_the_values__are_clipped_at_the_median);
    RUN(beta_ppf__known_values__are_met);
    RUN(logf__numpys_values__are_met);
    return test_end();
}
