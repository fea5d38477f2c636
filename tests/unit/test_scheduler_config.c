/* test_scheduler_config.c -- scheduler_config.json and the options: what is taken from where, and
 * what is refused by name. */
#include "scheduler/scheduler_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/support/test.h"

static const char *const sd15 =
    "{\"_class_name\": \"PNDMScheduler\", \"_diffusers_version\": \"0.6.0\","
    " \"beta_end\": 0.012, \"beta_schedule\": \"scaled_linear\", \"beta_start\": 0.00085,"
    " \"num_train_timesteps\": 1000, \"set_alpha_to_one\": false, \"skip_prk_steps\": true,"
    " \"steps_offset\": 1, \"trained_betas\": null, \"clip_sample\": false}";

static tsr_sched_config *read_config(const char *json, const tsr_sched_options *opt)
{
    tsr_sched_config *cfg = NULL;
    tsr_err err = {0};
    const tsr_status st = tsr_sched_config_make(&cfg, json, "s.json", opt, NULL, &err);

    CHECK_MSG(st == TSR_OK, "%s", err.msg);
    return cfg;
}

/* Config and schedule must fail like this, with all of `words` ("a|b") in the sentence. */
static void check_refused(const char *json, const tsr_sched_options *opt, int32_t steps,
                          tsr_status want, const char *words)
{
    tsr_sched_config *cfg = NULL;
    tsr_sched *s = NULL;
    tsr_err err = {0};
    tsr_status st = tsr_sched_config_make(&cfg, json, "s.json", opt, NULL, &err);
    char list[256], *save = NULL;

    if (st == TSR_OK)
        st = tsr_sched_make(&s, cfg, steps, 4, NULL, &err);
    CHECK_MSG(st == want, "%.80s: status %d, not %d (%s)", json, (int)st, (int)want, err.msg);
    snprintf(list, sizeof list, "%s", words);
    for (char *w = strtok_r(list, "|", &save); w; w = strtok_r(NULL, "|", &save))
        CHECK_MSG(strstr(err.msg, w), "%.80s: \"%s\" is not in \"%s\"", json, w, err.msg);
    tsr_sched_free(s);
    tsr_sched_config_free(cfg);
}

static void config__class_of_the_file__is_taken(void)
{
    tsr_sched_config *cfg = read_config(sd15, NULL);

    REQUIRE(cfg);
    CHECK(strcmp(tsr_sched_config_name(cfg), "pndm") == 0);
    CHECK(strcmp(tsr_sched_config_sigmas(cfg), "default") == 0);
    CHECK(strcmp(tsr_sched_config_prediction(cfg), "epsilon") == 0);
    CHECK(cfg->skip_prk && !cfg->alpha_one && cfg->steps_offset == 1);
    CHECK(cfg->spacing == TSR_SPACING_LEADING && cfg->beta_start == 0.00085);
    tsr_sched_config_free(cfg);
}

/* from_config: the new class keeps the file's keys that it knows, its own defaults for the rest. */
static void config__changed_class__keeps_known_keys(void)
{
    tsr_sched_config *cfg = read_config(sd15, &(tsr_sched_options){.name = "euler"});

    REQUIRE(cfg);
    CHECK(cfg->class_id == TSR_SCHED_EULER && cfg->steps_offset == 1);
    CHECK(cfg->spacing == TSR_SPACING_LINSPACE); /* not in the file: Euler's own */
    CHECK(cfg->beta_schedule == TSR_BETAS_SCALED_LINEAR && cfg->beta_end == 0.012);
    tsr_sched_config_free(cfg);

    cfg = read_config(sd15, &(tsr_sched_options){.name = "ddim"});
    REQUIRE(cfg);
    CHECK(!cfg->alpha_one && !cfg->clip_sample && cfg->spacing == TSR_SPACING_LEADING);
    tsr_sched_config_free(cfg);

    cfg = read_config("{\"_class_name\":\"PNDMScheduler\"}", &(tsr_sched_options){.name = "lcm"});
    REQUIRE(cfg);
    CHECK(cfg->beta_schedule == TSR_BETAS_SCALED_LINEAR && cfg->beta_start == 0.00085);
    CHECK(cfg->original_steps == 50 && cfg->timestep_scaling == 10 && cfg->alpha_one);
    tsr_sched_config_free(cfg);

    /* a class that is not known here is no obstacle when another is asked for */
    cfg = read_config("{\"_class_name\":\"DPMSolverSDEScheduler\"}",
                      &(tsr_sched_options){.name = "heun"});
    REQUIRE(cfg);
    CHECK(cfg->class_id == TSR_SCHED_HEUN && cfg->beta_end == 0.012);
    tsr_sched_config_free(cfg);
}

/* Every name is accepted and given back, so that a picture's record makes the same again. */
static void config__every_name__comes_back(void)
{
    for (const char *const *name = tsr_sched_names(); *name; name++) {
        tsr_sched_config *cfg = read_config(sd15, &(tsr_sched_options){.name = *name});

        REQUIRE(cfg);
        CHECK_MSG(strcmp(tsr_sched_config_name(cfg), *name) == 0, "%s became %s", *name,
                  tsr_sched_config_name(cfg));
        tsr_sched_config_free(cfg);
    }
}

static void config__names_of_one_class__set_the_algorithm(void)
{
    static const struct {
        const char *algorithm, *final, *name, *want_name;
        tsr_sched_algorithm want;
    } cases[] = {
        {"dpmsolver++", "zero", NULL, "dpmpp_2m", TSR_ALG_DPMPP},
        {"dpmsolver++", "zero", "dpmpp_2m_sde", "dpmpp_2m_sde", TSR_ALG_SDE_DPMPP},
        {"sde-dpmsolver++", "zero", NULL, "dpmpp_2m_sde", TSR_ALG_SDE_DPMPP},
        {"sde-dpmsolver++", "zero", "dpmpp_2m", "dpmpp_2m", TSR_ALG_DPMPP},
        {"sde-dpmsolver", "sigma_min", NULL, "dpmpp_2m_sde", TSR_ALG_SDE_DPM},
        {"sde-dpmsolver", "sigma_min", "dpmpp_2m_sde", "dpmpp_2m_sde", TSR_ALG_SDE_DPM},
        {"dpmsolver", "sigma_min", "dpmpp_2m", "dpmpp_2m", TSR_ALG_DPM},
        {"deis", "zero", NULL, "dpmpp_2m", TSR_ALG_DPMPP},
        {"sde-dpmsolver++", "zero", "dpmpp_2s", "dpmpp_2s", TSR_ALG_SDE_DPMPP},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_sched_config *cfg;
        char json[256];

        snprintf(json, sizeof json,
                 "{\"_class_name\":\"DPMSolverMultistepScheduler\",\"algorithm_type\":\"%s\","
                 "\"final_sigmas_type\":\"%s\"}",
                 cases[i].algorithm, cases[i].final);
        cfg = read_config(json, &(tsr_sched_options){.name = cases[i].name});
        REQUIRE(cfg);
        CHECK_MSG(cfg->algorithm == cases[i].want, "case %zu", i);
        CHECK_MSG(strcmp(tsr_sched_config_name(cfg), cases[i].want_name) == 0, "case %zu", i);
        tsr_sched_config_free(cfg);
    }
}

static void config__options__overrule_the_file(void)
{
    const char *json = "{\"_class_name\":\"EulerDiscreteScheduler\",\"use_karras_sigmas\":true,"
                       "\"use_beta_sigmas\":true}";
    tsr_sched_config *cfg;

    cfg = read_config(json,
                      &(tsr_sched_options){.sigmas = "exponential", .prediction = "v_prediction"});
    REQUIRE(cfg);
    CHECK(cfg->sigmas == TSR_SIGMAS_EXPONENTIAL && cfg->prediction == TSR_PREDICT_V);
    tsr_sched_config_free(cfg);
    cfg = read_config(json, &(tsr_sched_options){.sigmas = "default"});
    REQUIRE(cfg);
    CHECK(cfg->sigmas == TSR_SIGMAS_DEFAULT);
    tsr_sched_config_free(cfg);
    cfg = read_config("{\"_class_name\":\"DDIMScheduler\"}",
                      &(tsr_sched_options){.repair_sd = true, .eta = 0.5f});
    REQUIRE(cfg);
    CHECK(cfg->steps_offset == 1 && !cfg->clip_sample && cfg->eta == 0.5f);
    tsr_sched_config_free(cfg);
    /* no table to ask for, and the default asked for */
    cfg = read_config("{\"_class_name\":\"DDIMScheduler\"}",
                      &(tsr_sched_options){.sigmas = "default"});
    tsr_sched_config_free(cfg);
}

static void config__infinity_and_nulls__are_read(void)
{
    tsr_sched_config *cfg = read_config(
        "{\"_class_name\":\"DPMSolverMultistepScheduler\",\"lambda_min_clipped\":-Infinity,"
        "\"x_-Infinity\":\"\\\"Infinity\",\"variance_type\":null,\"sigma_min\":null,"
        "\"trained_betas\":null,\"use_lu_lambdas\":true,\"solver_type\":\"bh2\"}",
        NULL);

    REQUIRE(cfg);
    CHECK(isinf(cfg->lambda_min_clipped) && cfg->sigmas == TSR_SIGMAS_LU);
    CHECK(cfg->solver == TSR_SOLVER_MIDPOINT);
    tsr_sched_config_free(cfg);
    cfg = read_config("{\"_class_name\":\"DPMSolverSinglestepScheduler\","
                      "\"lambda_min_clipped\":-5.1}",
                      NULL);
    REQUIRE(cfg);
    CHECK(cfg->lambda_min_clipped == -5.1);
    tsr_sched_config_free(cfg);
}

static void config__what_is_wrong_in_the_file__is_refused_by_name(void)
{
    static const struct {
        const char *class_name, *keys, *words;
    } cases[] = {
        {"FlowMatchEulerDiscreteScheduler", "", "FlowMatchEulerDiscreteScheduler|DDIMScheduler"},
        {"KDPM2AncestralDiscreteScheduler", "", "KDPM2AncestralDiscreteScheduler|KDPM2Discrete"},
        {"EulerDiscreteScheduler", "\"use_karras_sigmas\":true,\"use_exponential_sigmas\":true",
         "use_karras_sigmas|use_exponential_sigmas"},
        {"EulerDiscreteScheduler", "\"num_train_timesteps\":0", "num_train_timesteps"},
        {"EulerDiscreteScheduler", "\"num_train_timesteps\":100001", "num_train_timesteps"},
        {"EulerDiscreteScheduler", "\"num_train_timesteps\":10.5", "num_train_timesteps"},
        {"EulerDiscreteScheduler", "\"beta_start\":-0.1", "beta_start"},
        {"EulerDiscreteScheduler", "\"beta_end\":1e300", "beta_end"},
        {"EulerDiscreteScheduler", "\"beta_schedule\":\"laplace\"", "beta_schedule|laplace"},
        {"EulerDiscreteScheduler", "\"sigma_min\":2,\"sigma_max\":1", "sigma_min|sigma_max"},
        {"EulerDiscreteScheduler", "\"sigma_min\":0", "sigma_min"},
        {"EulerDiscreteScheduler", "\"timestep_spacing\":\"sideways\"",
         "timestep_spacing|sideways"},
        {"EulerDiscreteScheduler", "\"timestep_spacing\":7", "timestep_spacing"},
        {"EulerDiscreteScheduler", "\"final_sigmas_type\":\"denoise_to_zero\"",
         "final_sigmas_type"},
        {"EulerDiscreteScheduler", "\"use_karras_sigmas\":\"yes\"", "use_karras_sigmas"},
        {"EulerDiscreteScheduler", "\"trained_betas\":[0.1]", "trained_betas|1000"},
        {"EulerDiscreteScheduler", "\"num_train_timesteps\":2,\"trained_betas\":[0.1,\"a\"]",
         "trained_betas[1]"},
        {"EulerDiscreteScheduler", "\"num_train_timesteps\":2,\"trained_betas\":[0.1,-2]",
         "trained_betas[1]"},
        {"DDPMScheduler", "\"variance_type\":\"learned_range\"", "variance_type|learned_range"},
        {"DDPMScheduler", "\"variance_type\":\"fixed_large_log\"", "variance_type|fixed_large_log"},
        {"PNDMScheduler", "\"prediction_type\":\"sample\"", "PNDMScheduler|prediction_type"},
        {"KDPM2DiscreteScheduler", "\"prediction_type\":\"sample\"", "prediction_type|sample"},
        {"DPMSolverMultistepScheduler", "\"prediction_type\":\"flow_prediction\"",
         "prediction_type|flow_prediction"},
        {"DPMSolverMultistepScheduler", "\"use_flow_sigmas\":true", "use_flow_sigmas"},
        {"DPMSolverMultistepScheduler", "\"use_dynamic_shifting\":true", "use_dynamic_shifting"},
        {"DPMSolverMultistepScheduler", "\"solver_order\":4", "solver_order"},
        {"DPMSolverMultistepScheduler", "\"algorithm_type\":\"dpmsolver\"",
         "algorithm_type|final_sigmas_type"},
        {"DPMSolverMultistepScheduler",
         "\"algorithm_type\":\"sde-dpmsolver\",\"final_sigmas_type\":\"sigma_min\","
         "\"solver_order\":3",
         "sde-dpmsolver|solver_order"},
        {"DPMSolverMultistepScheduler", "\"variance_type\":\"learned\"", "variance_type"},
        {"DPMSolverMultistepScheduler", "\"lambda_min_clipped\":NaN", "JSON"},
        {"DPMSolverMultistepScheduler", "\"lambda_min_clipped\":100", "lambda_min_clipped"},
        {"DPMSolverSinglestepScheduler", "\"algorithm_type\":\"sde-dpmsolver\"", "sde-dpmsolver"},
        {"DPMSolverSinglestepScheduler",
         "\"algorithm_type\":\"dpmsolver\",\"final_sigmas_type\":\"sigma_min\","
         "\"thresholding\":true",
         "thresholding"},
        {"DEISMultistepScheduler", "\"algorithm_type\":\"sde-dpmsolver++\"", "sde-dpmsolver++"},
        {"UniPCMultistepScheduler", "\"solver_p\":{}", "solver_p"},
        {"UniPCMultistepScheduler", "\"shift_terminal\":0.1", "shift_terminal"},
        {"UniPCMultistepScheduler", "\"disable_corrector\":[0.5]", "disable_corrector"},
        {"UniPCMultistepScheduler", "\"disable_corrector\":true", "disable_corrector"},
        {"LCMScheduler", "\"original_inference_steps\":2000", "original_inference_steps"},
        {"DDIMScheduler", "\"clip_sample\":false,\"clip_sample\":true", "clip_sample"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512];

        snprintf(json, sizeof json, "{\"_class_name\":\"%s\"%s%s}", cases[i].class_name,
                 *cases[i].keys ? "," : "", cases[i].keys);
        check_refused(json, NULL, 10, TSR_E_MODEL, cases[i].words);
    }
    check_refused("{\"_class_name\":\"EulerDiscreteScheduler\",\"beta_start\":1,\"beta_end\":1}",
                  NULL, 10, TSR_E_USAGE, "euler|not finite");
    check_refused("{}", NULL, 10, TSR_E_MODEL, "_class_name|missing");
    check_refused("[]", NULL, 10, TSR_E_MODEL, "s.json");
    check_refused("", NULL, 10, TSR_E_MODEL, "s.json");
    check_refused("{\"_class_name\":\"DDIMScheduler\"", NULL, 10, TSR_E_MODEL, "s.json");
}

static void config__what_is_wrong_in_the_options__is_usage(void)
{
    static const struct {
        tsr_sched_options opt;
        int32_t steps;
        const char *words;
    } cases[] = {
        {{.name = "eular"}, 10, "eular|euler"},
        {{.name = ""}, 10, "not known"},
        {{.name = "ddim", .sigmas = "karras"}, 10, "karras|ddim"},
        {{.name = "ddpm", .sigmas = "exponential"}, 10, "exponential|ddpm"},
        {{.name = "pndm", .sigmas = "beta"}, 10, "beta|pndm"},
        {{.name = "lcm", .sigmas = "karras"}, 10, "karras|lcm"},
        {{.name = "euler_a", .sigmas = "karras"}, 10, "karras|euler_a"},
        {{.name = "euler", .sigmas = "lu"}, 10, "lu|euler"},
        {{.name = "euler", .sigmas = "lcm"}, 10, "lcm|karras"},
        {{.name = "euler", .prediction = "noise"}, 10, "noise|epsilon"},
        {{.name = "pndm", .prediction = "sample"}, 10, "sample|pndm"},
        {{.name = "ddim", .eta = -1}, 10, "eta"},
        {{.name = "ddim", .eta = NAN}, 10, "eta"},
        {{.name = "ddim", .eta = 1.5f}, 10, "eta"},
        {{.name = "ddim"}, 0, "steps"},
        {{.name = "ddim"}, -5, "steps"},
        {{.name = "euler"}, 2000000, "steps"},
        {{.name = "ddim"}, 1001, "1000"},
        {{.name = "ddim"}, 1000, "timestep 1000"}, /* steps_offset 1 */
        {{.name = "lcm"}, 51, "50|original_inference_steps"},
        {{.name = "dpmpp_2m", .sigmas = "default"}, 100000, "not finite"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(sd15, &cases[i].opt, cases[i].steps, TSR_E_USAGE, cases[i].words);
}

static void config__every_failing_allocation__is_clean(void)
{
    const char *json = "{\"_class_name\":\"PNDMScheduler\",\"num_train_timesteps\":3,"
                       "\"trained_betas\":[0.1,0.2,0.3],\"skip_prk_steps\":true}";
    bool failed = true;

    for (uint64_t n = 1; failed && n < 200; n++) {
        tsr_sched_config *cfg = NULL;
        tsr_sched *s = NULL;
        tsr_err err = {0};
        tsr_status st;

        tsr_alloc_fail_at(n);
        st = tsr_sched_config_make(&cfg, json, "s.json", NULL, NULL, &err);
        if (st == TSR_OK)
            st = tsr_sched_make(&s, cfg, 2, 8, NULL, &err);
        failed = tsr_alloc_failed();
        tsr_alloc_fail_at(0);
        CHECK_MSG(st == (failed ? TSR_E_OOM : TSR_OK), "allocation %d: status %d %s", (int)n,
                  (int)st, err.msg);
        CHECK(!failed || !s);
        tsr_sched_free(s);
        tsr_sched_config_free(cfg);
    }
    CHECK(!failed);
}

int main(void)
{
    RUN(config__class_of_the_file__is_taken);
    RUN(config__changed_class__keeps_known_keys);
    RUN(config__every_name__comes_back);
    RUN(config__names_of_one_class__set_the_algorithm);
    RUN(config__options__overrule_the_file);
    RUN(config__infinity_and_nulls__are_read);
    RUN(config__what_is_wrong_in_the_file__is_refused_by_name);
    RUN(config__what_is_wrong_in_the_options__is_usage);
    RUN(config__every_failing_allocation__is_clean);
    return test_end();
}
