/* fuzz_scheduler_config.c -- scheduler_config.json as hostile input: the first byte picks options
 * and steps, the rest is the file. Whatever is accepted must run to its end with finite latents. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/scheduler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N = 3 };

static void expect(bool ok)
{
    if (!ok)
        abort();
}

static void run(tsr_sched *s)
{
    float x[N] = {0.5f, -1.25f, 2}, in[N], out[N];
    const float noise[N] = {-0.75f, 0.25f, 1};
    int32_t n_sigmas;
    const float *sigmas = tsr_sched_sigmas(s, &n_sigmas);

    expect(tsr_sched_n_calls(s) >= 1 && isfinite(tsr_sched_init_noise_sigma(s)));
    expect(!sigmas || n_sigmas > 1);
    for (int32_t i = 0; i < tsr_sched_n_calls(s); i++) {
        expect(isfinite(tsr_sched_timesteps(s)[i]) && (!sigmas || isfinite(sigmas[i])));
        tsr_sched_scale_input(s, i, x, in);
        for (int32_t k = 0; k < N; k++)
            out[k] = 0.3f * in[k] + 0.1f;
        tsr_sched_step(s, i, out, tsr_sched_needs_noise(s, i) ? noise : NULL, x);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sigmas[] = {NULL, "karras", "exponential", "beta"};
    tsr_sched_options opt = {0};
    tsr_sched_config *cfg = NULL;
    tsr_sched *s = NULL;
    char *json;
    int32_t steps;

    if (size < 2 || !(json = malloc(size)))
        return 0;
    memcpy(json, data + 1, size - 1);
    json[size - 1] = '\0';
    opt.name = data[0] % 16 < 14 ? tsr_sched_names()[data[0] % 16] : NULL;
    opt.sigmas = sigmas[data[0] / 16 % 4];
    opt.repair_sd = data[0] >= 128;
    opt.eta = data[0] >= 192 ? 1 : 0;
    steps = 1 + data[0] % 13;
    if (tsr_sched_config_make(&cfg, json, "scheduler_config.json", &opt, NULL, NULL) == TSR_OK &&
        tsr_sched_make(&s, cfg, steps, N, NULL, NULL) == TSR_OK)
        run(s);
    tsr_sched_free(s);
    tsr_sched_config_free(cfg);
    free(json);
    return 0;
}
