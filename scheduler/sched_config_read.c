/* sched_config_read.c -- the fields of scheduler_config.json that a class knows.
 *
 * cfg->class_id is set; each field gets the file's value or the class's own default. Keys of other
 * classes are passed over; values that would change the computation and are not supported are
 * refused by name. A word of a neighbouring class (solver_type "bh2" in a DPM-Solver's file) means
 * the class's own default, as in the reference. Numbers that tables are made of are read as
 * doubles. */
#include "scheduler/scheduler_config.h"

#include <math.h>

#include "base/alloc.h"
#include "model/config_json.h"

static const int32_t any_steps[2] = {1, TSR_SCHED_MAX_TRAIN};

/* One of `choices` as in tsr_cfg_word, `absent` when it is not there (or null, where that is said).
 */
static tsr_status read_word(tsr_cfg *c, const char *key, const char *choices, int32_t absent,
                            bool null_is_absent, int32_t *index)
{
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    *index = absent;
    if (!item || (null_is_absent && cJSON_IsNull(item)))
        return TSR_OK;
    return tsr_cfg_word(c, key, choices, index);
}

/* A number in range; *out holds the default. */
static tsr_status read_number(tsr_cfg *c, const char *key, const double range[2], double *out)
{
    const cJSON *item;

    TSR_TRY(tsr_cfg_get(c, key, &item));
    if (!item || cJSON_IsNull(item))
        return TSR_OK;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= range[0] && item->valuedouble <= range[1]))
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s must be a number from %g to %g", c->name, key,
                 range[0], range[1]);
    *out = item->valuedouble;
    return TSR_OK;
}

static tsr_status read_trained_betas(tsr_cfg *c, tsr_sched_config *f)
{
    const cJSON *list, *item;
    int32_t n = 0;

    TSR_TRY(tsr_cfg_get(c, "trained_betas", &list));
    if (!list || cJSON_IsNull(list))
        return TSR_OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != f->n_train)
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s: trained_betas must be null or a list of num_train_timesteps (%d) numbers",
                 c->name, f->n_train);
    f->trained_betas = tsr_calloc((size_t)f->n_train, sizeof *f->trained_betas);
    if (!f->trained_betas)
        TSR_FAIL(c->err, TSR_E_OOM, "out of memory for %d trained_betas", f->n_train);
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 1))
            TSR_FAIL(c->err, TSR_E_MODEL, "%s: trained_betas[%d] must be a number from 0 to 1",
                     c->name, n);
        f->trained_betas[n++] = (float)item->valuedouble;
    }
    return TSR_OK;
}

static tsr_status read_training(tsr_cfg *c, tsr_sched_config *f)
{
    static const double unit[2] = {0, 1};
    const tsr_sched_class_info *info = tsr_sched_class_get(f->class_id);
    const char *schedules = "linear|scaled_linear|squaredcos_cap_v2";
    int32_t word;

    if (f->class_id == TSR_SCHED_DDPM)
        schedules = "linear|scaled_linear|squaredcos_cap_v2|laplace|sigmoid";
    else if (f->class_id == TSR_SCHED_HEUN)
        schedules = "linear|scaled_linear|squaredcos_cap_v2|exp";
    f->beta_start = info->beta_start;
    f->beta_end = info->beta_end;
    TSR_TRY(tsr_cfg_int(c, "num_train_timesteps", 1000, any_steps, &f->n_train));
    TSR_TRY(read_number(c, "beta_start", unit, &f->beta_start));
    TSR_TRY(read_number(c, "beta_end", unit, &f->beta_end));
    TSR_TRY(read_word(c, "beta_schedule", schedules, (int32_t)info->beta_schedule, false, &word));
    f->beta_schedule = f->class_id == TSR_SCHED_HEUN && word > TSR_BETAS_SQUAREDCOS
                           ? TSR_BETAS_EXP
                           : (tsr_beta_schedule)word;
    TSR_TRY(read_trained_betas(c, f));
    if (info->knows & TSR_KNOWS_ZERO_SNR)
        TSR_TRY(tsr_cfg_bool(c, "rescale_betas_zero_snr", false, &f->zero_snr));
    TSR_TRY(tsr_cfg_word(c, "prediction_type", "epsilon|v_prediction|sample", &word));
    f->prediction = (tsr_prediction)word;
    return TSR_OK;
}

static tsr_status read_x0(tsr_cfg *c, tsr_sched_config *f)
{
    static const float positive[2] = {1e-6f, 1e9f}, unit[2] = {0, 1};
    const tsr_sched_class_info *info = tsr_sched_class_get(f->class_id);

    if (info->knows & TSR_KNOWS_CLIP) {
        TSR_TRY(tsr_cfg_bool(c, "clip_sample", info->clip_sample, &f->clip_sample));
        TSR_TRY(tsr_cfg_float(c, "clip_sample_range", 1, positive, &f->clip_range));
    }
    if (info->knows & TSR_KNOWS_THRESHOLD) {
        TSR_TRY(tsr_cfg_bool(c, "thresholding", false, &f->thresholding));
        TSR_TRY(tsr_cfg_float(c, "dynamic_thresholding_ratio", 0.995f, unit, &f->threshold_ratio));
        TSR_TRY(tsr_cfg_float(c, "sample_max_value", 1, positive, &f->sample_max));
    }
    if (info->knows & TSR_KNOWS_ALPHA_ONE)
        TSR_TRY(tsr_cfg_bool(c, "set_alpha_to_one", info->alpha_one, &f->alpha_one));
    return TSR_OK;
}

/* The use_*_sigmas flags, which an option may overrule, and the tables' ends. */
static tsr_status read_tables(tsr_cfg *c, tsr_sched_config *f, bool overruled)
{
    static const double ends[2] = {1e-8, 1e8};
    bool karras, exponential, beta, lu = false;

    TSR_TRY(tsr_cfg_bool(c, "use_karras_sigmas", false, &karras));
    TSR_TRY(tsr_cfg_bool(c, "use_exponential_sigmas", false, &exponential));
    TSR_TRY(tsr_cfg_bool(c, "use_beta_sigmas", false, &beta));
    if (f->class_id == TSR_SCHED_DPMPP_2M)
        TSR_TRY(tsr_cfg_bool(c, "use_lu_lambdas", false, &lu));
    if (!overruled && karras + exponential + beta > 1)
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s: only one of use_karras_sigmas, use_exponential_sigmas and use_beta_sigmas "
                 "can be true",
                 c->name);
    f->sigmas = karras        ? TSR_SIGMAS_KARRAS
                : lu          ? TSR_SIGMAS_LU
                : exponential ? TSR_SIGMAS_EXPONENTIAL
                : beta        ? TSR_SIGMAS_BETA
                              : TSR_SIGMAS_DEFAULT;
    /* the reference applies these two wherever they stand, known to the class or not */
    TSR_TRY(read_number(c, "sigma_min", ends, &f->sigma_min));
    TSR_TRY(read_number(c, "sigma_max", ends, &f->sigma_max));
    if (f->sigma_min > 0 && f->sigma_max > 0 && f->sigma_min >= f->sigma_max)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: sigma_min %g must be below sigma_max %g", c->name,
                 f->sigma_min, f->sigma_max);
    return TSR_OK;
}

static tsr_status read_schedule(tsr_cfg *c, tsr_sched_config *f, bool sigmas_asked)
{
    static const int32_t offsets[2] = {0, TSR_SCHED_MAX_TRAIN};
    static const double lambdas[2] = {-INFINITY, 1e6};
    const tsr_sched_class_info *info = tsr_sched_class_get(f->class_id);
    int32_t word = TSR_SPACING_LINSPACE;

    if (info->knows & TSR_KNOWS_SPACING) {
        TSR_TRY(read_word(c, "timestep_spacing", "linspace|leading|trailing",
                          (int32_t)info->spacing, false, &word));
        TSR_TRY(tsr_cfg_int(c, "steps_offset", 0, offsets, &f->steps_offset));
    }
    f->spacing = (tsr_spacing)word;
    if (info->knows & TSR_KNOWS_TABLES)
        TSR_TRY(read_tables(c, f, sigmas_asked));
    if (info->knows & TSR_KNOWS_FINAL_SIGMA) {
        TSR_TRY(tsr_cfg_word(c, "final_sigmas_type", "zero|sigma_min", &word));
        f->final_sigma_min = word == 1;
    }
    if (f->class_id == TSR_SCHED_EULER) {
        TSR_TRY(tsr_cfg_word(c, "interpolation_type", "linear|log_linear", &word));
        f->log_linear = word == 1;
        TSR_TRY(tsr_cfg_word(c, "timestep_type", "discrete|continuous", &word));
        f->continuous = word == 1;
    }
    f->lambda_min_clipped = -INFINITY;
    if (f->class_id == TSR_SCHED_DPMPP_2M || f->class_id == TSR_SCHED_DPMPP_2S)
        TSR_TRY(read_number(c, "lambda_min_clipped", lambdas, &f->lambda_min_clipped));
    return TSR_OK;
}

static tsr_status read_uncorrected(tsr_cfg *c, tsr_sched_config *f)
{
    static const int32_t steps[2] = {0, TSR_SCHED_MAX_TRAIN};
    const cJSON *list;

    TSR_TRY(tsr_cfg_get(c, "disable_corrector", &list));
    if (!list || (cJSON_IsArray(list) && cJSON_GetArraySize(list) == 0))
        return TSR_OK;
    return tsr_cfg_int_list(c, "disable_corrector", steps, TSR_SCHED_MAX_UNCORRECTED,
                            &f->n_uncorrected, f->uncorrected);
}

static tsr_status read_algorithm(tsr_cfg *c, tsr_sched_config *f)
{
    const bool deis = f->class_id == TSR_SCHED_DEIS;
    const char *words = "dpmsolver|dpmsolver++|sde-dpmsolver|sde-dpmsolver++|deis";
    int32_t word;

    TSR_TRY(read_word(c, "algorithm_type", words, TSR_ALG_DPMPP, false, &word));
    if ((deis && (word == TSR_ALG_SDE_DPM || word == TSR_ALG_SDE_DPMPP)) ||
        (f->class_id == TSR_SCHED_DPMPP_2S && word == TSR_ALG_SDE_DPM))
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s has no algorithm_type \"%s\"", c->name,
                 tsr_sched_class_get(f->class_id)->class_name,
                 word == TSR_ALG_SDE_DPM ? "sde-dpmsolver" : "sde-dpmsolver++");
    f->algorithm = word > TSR_ALG_SDE_DPMPP ? TSR_ALG_DPMPP : (tsr_sched_algorithm)word;
    return TSR_OK;
}

static tsr_status read_solver(tsr_cfg *c, tsr_sched_config *f)
{
    static const tsr_cfg_fixed fixed[] = {{.key = "use_flow_sigmas"},
                                          {.key = "use_dynamic_shifting"},
                                          {.key = "solver_p"},
                                          {.key = "shift_terminal"}};
    const tsr_sched_class_info *info = tsr_sched_class_get(f->class_id);
    const bool unipc = f->class_id == TSR_SCHED_UNIPC;
    const int32_t orders[2] = {1, unipc ? TSR_SCHED_MAX_ORDER : 3};
    int32_t word;

    TSR_TRY(tsr_cfg_check_fixed(c, fixed, unipc ? 4 : 2));
    TSR_TRY(tsr_cfg_int(c, "solver_order", 2, orders, &f->solver_order));
    TSR_TRY(read_word(c, "solver_type", "midpoint|heun|bh1|bh2|logrho", 0, false, &word));
    f->solver = word == 1 ? TSR_SOLVER_HEUN : TSR_SOLVER_MIDPOINT;
    f->bh1 = word == 2;
    TSR_TRY(tsr_cfg_bool(c, "lower_order_final", info->lower_order_final, &f->lower_order_final));
    if (f->class_id == TSR_SCHED_DPMPP_2M)
        TSR_TRY(tsr_cfg_bool(c, "euler_at_final", false, &f->euler_at_final));
    if (unipc) {
        TSR_TRY(tsr_cfg_bool(c, "predict_x0", true, &f->predict_x0));
        return read_uncorrected(c, f);
    }
    return read_algorithm(c, f);
}

/* DDPM's variance, and the DPM-Solvers' key of that name, where only "learned" means anything. */
static tsr_status read_variance(tsr_cfg *c, tsr_sched_config *f)
{
    const char *words =
        "fixed_small|fixed_small_log|fixed_large|fixed_large_log|learned|learned_range";
    const bool ddpm = f->class_id == TSR_SCHED_DDPM;
    int32_t word;

    TSR_TRY(read_word(c, "variance_type", words, TSR_VARIANCE_FIXED_SMALL, !ddpm, &word));
    if (word > 3)
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s: variance_type \"learned\" and \"learned_range\" are not supported: the "
                 "model's output would have to hold the variance, too",
                 c->name);
    if (word == 3 && ddpm)
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s: variance_type \"fixed_large_log\" is not supported: the reference takes the "
                 "root of a negative logarithm there",
                 c->name);
    f->variance = (tsr_sched_variance)(ddpm ? word : TSR_VARIANCE_FIXED_SMALL);
    return TSR_OK;
}

static tsr_status read_own(tsr_cfg *c, tsr_sched_config *f)
{
    static const float scalings[2] = {1e-6f, 1e6f};

    switch (f->class_id) {
    case TSR_SCHED_PNDM:
        return tsr_cfg_bool(c, "skip_prk_steps", false, &f->skip_prk);
    case TSR_SCHED_LCM:
        TSR_TRY(tsr_cfg_int(c, "original_inference_steps", 50, any_steps, &f->original_steps));
        return tsr_cfg_float(c, "timestep_scaling", 10, scalings, &f->timestep_scaling);
    case TSR_SCHED_DDPM:
    case TSR_SCHED_DPMPP_2S:
    case TSR_SCHED_DPMPP_2M:
        return read_variance(c, f);
    default:
        return TSR_OK;
    }
}

tsr_status tsr_sched_config_read(tsr_sched_config *f, tsr_cfg *c, bool sigmas_asked)
{
    TSR_TRY(read_training(c, f));
    TSR_TRY(read_x0(c, f));
    TSR_TRY(read_schedule(c, f, sigmas_asked));
    if (tsr_sched_class_get(f->class_id)->knows & TSR_KNOWS_SOLVER)
        TSR_TRY(read_solver(c, f));
    TSR_TRY(read_own(c, f));
    /* keys of other classes */
    tsr_cfg_report_unknown(
        c, "timestep_spacing|steps_offset|clip_sample|clip_sample_range|thresholding|"
           "dynamic_thresholding_ratio|sample_max_value|set_alpha_to_one|rescale_betas_zero_snr|"
           "skip_prk_steps|variance_type|use_karras_sigmas|use_exponential_sigmas|use_beta_sigmas|"
           "use_lu_lambdas|use_flow_sigmas|flow_shift|use_dynamic_shifting|time_shift_type|"
           "shift_terminal|sigma_min|sigma_max|final_sigmas_type|interpolation_type|timestep_type|"
           "solver_order|solver_type|solver_p|algorithm_type|lower_order_final|euler_at_final|"
           "lambda_min_clipped|predict_x0|disable_corrector|original_inference_steps|"
           "timestep_scaling");
    return TSR_OK;
}
