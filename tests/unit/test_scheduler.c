/* test_scheduler.c -- every sampler against the reference: timesteps, sigmas, noise, trajectories.
 *
 * A case is <label>.<...>.<steps> in golden/<file>.json (config) and .safetensors (results). The
 * "model" is f(x, t) = 0.3 x + 0.1 sin(3 x + t / 200). Whole timesteps must be equal; those of
 * Karras and exponential tables may differ in their last two bits, since the reference takes square
 * roots from a library that does not round them correctly. */
#include "scheduler/scheduler.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "tests/support/golden.h"

enum { MOST_LABELS = 64, MOST_ELEMENTS = 256, MOST_CALLS = 128 };
static const double x_tolerance = 1e-5, sigma_tolerance = 1e-6, t_tolerance = 1.3e-4;

typedef struct worst {
    char label[64];
    int32_t n_cases;
    double t, sigma, x;
} worst;

typedef struct suite {
    golden g;
    cJSON *index;
    worst worst[MOST_LABELS];
    int32_t n_labels;
} suite;

static worst *worst_of(suite *s, const char *name)
{
    char label[64];

    snprintf(label, sizeof label, "%.*s", (int)strcspn(name, "."), name);
    for (int32_t i = 0; i < s->n_labels; i++) {
        if (strcmp(s->worst[i].label, label) == 0)
            return &s->worst[i];
    }
    snprintf(s->worst[s->n_labels].label, sizeof label, "%s", label);
    return &s->worst[s->n_labels++];
}

static double relative(const float *a, const float *b, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)b[i]));
    return test_max_abs_diff(a, b, n) / (most > 0 ? most : 1);
}

static void model(const float *x, float t, size_t n, float *out)
{
    for (size_t k = 0; k < n; k++)
        out[k] = 0.3f * x[k] + 0.1f * sinf(3 * x[k] + t / 200);
}

static void check_timesteps(const char *name, const tsr_sched *s, const golden_tensor *want,
                            worst *w)
{
    const float *t = tsr_sched_timesteps(s);

    for (size_t i = 0; i < want->n; i++) {
        const double d = fabs((double)t[i] - (double)want->data[i]);

        w->t = fmax(w->t, d);
        CHECK_MSG(d == 0 || (d <= t_tolerance && want->data[i] != rintf(want->data[i])),
                  "%s: timestep %zu is %.9g, not %.9g", name, i, (double)t[i],
                  (double)want->data[i]);
    }
}

static void check_sigmas(const char *name, const tsr_sched *s, const golden_tensor *want, worst *w)
{
    int32_t n;
    const float *sigmas = tsr_sched_sigmas(s, &n);
    double e;

    CHECK_MSG(sigmas && (size_t)n == want->n, "%s: %d sigmas, not %zu", name, n, want->n);
    if (!sigmas || (size_t)n != want->n)
        return;
    e = relative(sigmas, want->data, want->n);
    w->sigma = fmax(w->sigma, e);
    CHECK_MSG(e <= sigma_tolerance, "%s: sigmas differ by %.2g", name, e);
}

/* Runs the schedule and compares the last latent, or the whole way where the file has it. */
static void check_run(suite *u, const char *name, tsr_sched *s, int32_t noise_used, worst *w)
{
    const golden_tensor *start = golden_need(&u->g, "start");
    const golden_tensor *noise = golden_need(&u->g, "noise");
    const golden_tensor *want = golden_find(&u->g, "%s.trajectory", name);
    static float way[MOST_CALLS + 1][MOST_ELEMENTS], in[MOST_ELEMENTS], out[MOST_ELEMENTS];
    static float got[(MOST_CALLS + 1) * MOST_ELEMENTS];
    const int32_t n_calls = tsr_sched_n_calls(s);
    int32_t used = 0, first;
    size_t n;
    double e;

    want = want ? want : golden_need(&u->g, "%s.final", name);
    REQUIRE(start && noise && want && start->n <= MOST_ELEMENTS && n_calls <= MOST_CALLS);
    n = start->n;
    for (size_t k = 0; k < n; k++)
        way[0][k] = start->data[k] * tsr_sched_init_noise_sigma(s);
    for (int32_t i = 0; i < n_calls; i++) {
        const float *z = noise->data + (size_t)used * n;
        float *x = way[i + 1];

        memcpy(x, way[i], n * sizeof *x);
        tsr_sched_scale_input(s, i, x, in);
        model(in, tsr_sched_timesteps(s)[i], n, out);
        used += tsr_sched_needs_noise(s, i);
        tsr_sched_step(s, i, out, tsr_sched_needs_noise(s, i) ? z : NULL, x);
    }
    CHECK_MSG(used == noise_used, "%s: drew %d times, not %d", name, used, noise_used);
    first = want->n == n ? n_calls : 0;
    for (int32_t i = first; i <= n_calls; i++)
        memcpy(got + (size_t)(i - first) * n, way[i], n * sizeof *got);
    REQUIRE(want->n == (size_t)(n_calls + 1 - first) * n);
    e = relative(got, want->data, want->n);
    w->x = fmax(w->x, e);
    CHECK_MSG(e <= x_tolerance, "%s: latents differ by %.2g", name, e);
}

/* The config's text with its class in it; free with cJSON_free. */
static char *config_text(const cJSON *c)
{
    cJSON *config = cJSON_Duplicate(cJSON_GetObjectItem(c, "config"), true);
    char *text;

    cJSON_AddStringToObject(config, "_class_name", cJSON_GetObjectItem(c, "class")->valuestring);
    text = cJSON_PrintUnformatted(config);
    cJSON_Delete(config);
    return text;
}

static int32_t steps_of(const char *name)
{
    return (int32_t)strtol(strrchr(name, '.') + 1, NULL, 10);
}

/* TSR_OK when both the config and the schedule of n elements could be made. */
static tsr_status make(tsr_sched **s, const char *json, float eta, int32_t steps, size_t n,
                       tsr_err *err)
{
    const tsr_sched_options opt = {.eta = eta};
    tsr_sched_config *cfg = NULL;
    tsr_status st;

    TSR_TRY(tsr_sched_config_make(&cfg, json, "scheduler_config.json", &opt, NULL, err));
    st = tsr_sched_make(s, cfg, steps, n, NULL, err);
    tsr_sched_config_free(cfg);
    return st;
}

static void check_case(suite *u, const cJSON *c)
{
    const char *name = c->string;
    const cJSON *eta = cJSON_GetObjectItem(cJSON_GetObjectItem(c, "step"), "eta");
    const double init = cJSON_GetObjectItem(c, "init_noise_sigma")->valuedouble;
    const golden_tensor *t = golden_need(&u->g, "%s.timesteps", name);
    const golden_tensor *sigmas = golden_find(&u->g, "%s.sigmas", name);
    const golden_tensor *start = golden_need(&u->g, "start");
    worst *w = worst_of(u, name);
    tsr_sched *s = NULL;
    tsr_err err = {0};
    char *json = config_text(c);
    tsr_status st =
        start ? make(&s, json, eta ? (float)eta->valuedouble : 0, steps_of(name), start->n, &err)
              : TSR_E_INTERNAL;

    cJSON_free(json);
    CHECK_MSG(st == TSR_OK, "%s: %s", name, err.msg);
    if (st != TSR_OK)
        return;
    w->n_cases++;
    CHECK_MSG(t && (size_t)tsr_sched_n_calls(s) == t->n, "%s: %d calls", name,
              tsr_sched_n_calls(s));
    CHECK_MSG(fabs((double)tsr_sched_init_noise_sigma(s) - init) <= sigma_tolerance * init,
              "%s: init_noise_sigma is %.9g, not %.9g", name, (double)tsr_sched_init_noise_sigma(s),
              init);
    if (t && (size_t)tsr_sched_n_calls(s) == t->n) {
        check_timesteps(name, s, t, w);
        check_run(u, name, s, cJSON_GetObjectItem(c, "noise_used")->valueint, w);
    }
    if (sigmas)
        check_sigmas(name, s, sigmas, w);
    tsr_sched_free(s);
}

/* What the reference refuses, or cannot do: <label>.<spacing>.<prediction>.<steps>, to be tried
 * with the config of another case of that label. */
static void check_refused(const suite *u, const cJSON *skipped)
{
    const cJSON *c = cJSON_GetObjectItem(u->index, "cases")->child;
    const char *name = skipped->string;
    const size_t label = strcspn(name, ".");
    char spacing[32], prediction[32];
    tsr_sched *s = NULL;
    tsr_err err = {0};
    cJSON *copy, *config;
    char *json;

    while (c && strncmp(c->string, name, label + 1) != 0)
        c = c->next;
    REQUIRE(c && sscanf(name + label, ".%31[^.].%31[^.]", spacing, prediction) == 2);
    copy = cJSON_Duplicate(c, true);
    config = cJSON_GetObjectItem(copy, "config");
    cJSON_ReplaceItemInObject(config, "timestep_spacing", cJSON_CreateString(spacing));
    cJSON_ReplaceItemInObject(config, "prediction_type", cJSON_CreateString(prediction));
    json = config_text(copy);
    CHECK_MSG(make(&s, json, 0, steps_of(name), 4, &err) == TSR_E_USAGE && err.msg[0],
              "%s: not refused", name);
    tsr_sched_free(s);
    cJSON_free(json);
    cJSON_Delete(copy);
}

static void check_suite(const char *root, const char *file)
{
    static suite u;
    const cJSON *c;
    char path[4200], *text = NULL;
    tsr_err err = {0};

    memset(&u, 0, sizeof u);
    snprintf(path, sizeof path, "%s/golden/%s.json", root, file);
    if (!golden_ok(tsr_file_slurp(path, (size_t)1 << 24, &text, NULL, &err), &err))
        return;
    u.index = cJSON_Parse(text);
    tsr_free(text);
    REQUIRE(u.index && golden_open(&u.g, root, file));
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(u.index, "cases")) check_case(&u, c);
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(u.index, "skipped")) check_refused(&u, c);
    test_note("%-32s %5s %10s %10s %10s", file, "cases", "timesteps", "sigmas", "latents");
    for (int32_t i = 0; i < u.n_labels; i++)
        test_note("%-32s %5d %10.1e %10.1e %10.1e", u.worst[i].label, u.worst[i].n_cases,
                  u.worst[i].t, u.worst[i].sigma, u.worst[i].x);
    golden_close(&u.g);
    cJSON_Delete(u.index);
}

static void scheduler__reference_cases__are_reproduced(void)
{
    for (int32_t i = 0; i < GOLDEN_ROOTS; i++) {
        if (golden_root(i))
            check_suite(golden_root(i), "schedulers");
    }
}

static void scheduler__other_configs__are_reproduced(void)
{
    check_suite(golden_root(0), "schedulers-more");
}

int main(void)
{
    RUN(scheduler__reference_cases__are_reproduced);
    RUN(scheduler__other_configs__are_reproduced);
    return test_end();
}
