/* scheduler_config.c -- scheduler_config.json and the options, resolved into one struct.
 *
 * Order, as diffusers' from_config has it: the class (the file's, or the one that was asked for),
 * its own defaults overlaid by the file's keys that it knows (sched_config_read.c), then what was
 * asked for by option, then what the combination may not be. diffusers writes -Infinity into these
 * files, which is not JSON; it is respelled first. */
#include "scheduler/scheduler_config.h"

#include <string.h>

#include "base/alloc.h"
#include "base/text_util.h"
#include "model/config_json.h"

static const char *const prediction_words = "epsilon|v_prediction|sample";
static const char *const prediction_names[] = {"epsilon", "v_prediction", "sample"};
static const char *const sigma_words = "default|karras|exponential|beta|lu";
static const char *const sigma_names[] = {"default", "karras", "exponential", "beta", "lu"};

/* -Infinity, Infinity -> -1e999, 1e999 outside strings, in place: strtod makes them infinite. */
static void spell_infinity(char *json)
{
    bool in_string = false;

    for (char *p = json; *p; p++) {
        if (in_string && *p == '\\' && p[1])
            p++;
        else if (*p == '"')
            in_string = !in_string;
        else if (!in_string && strncmp(p, "Infinity", 8) == 0)
            memcpy(p, "1e999   ", 8);
    }
}

static tsr_status choose_class(tsr_cfg *c, tsr_sched_config *f, const char *name, bool *sde)
{
    const cJSON *item;
    tsr_buf known = {0};

    *sde = false;
    TSR_TRY(tsr_cfg_get(c, "_class_name", &item));
    if (name && tsr_sched_class_by_name(name, &f->class_id, sde))
        return TSR_OK;
    if (name) {
        const char *const *all = tsr_sched_names();
        int32_t n = 0, near;

        while (all[n])
            n++;
        near = tsr_nearest_name(name, all, n);
        TSR_FAIL(c->err, TSR_E_USAGE, "scheduler \"%s\" is not known%s%s", name,
                 near >= 0 ? "; did you mean " : "", near >= 0 ? all[near] : "");
    }
    if (item && cJSON_IsString(item) && tsr_sched_class_find(item->valuestring, &f->class_id))
        return TSR_OK;
    for (int32_t i = 0; i < TSR_SCHED_N_CLASSES; i++)
        tsr_buf_printf(&known, "%s%s", i ? ", " : "",
                       tsr_sched_class_get((tsr_sched_class)i)->class_name);
    (void)tsr_err_set(c->err, TSR_E_MODEL, "%s: _class_name %s%s is not supported; known are %s",
                      c->name, item && cJSON_IsString(item) ? "" : "is missing or",
                      item && cJSON_IsString(item) ? item->valuestring : "",
                      tsr_buf_ok(&known) ? known.data : "those of gen --help");
    tsr_buf_free(&known);
    return TSR_E_MODEL;
}

static tsr_status apply_sigmas(tsr_sched_config *f, const char *asked, tsr_err *err)
{
    const tsr_sched_class_info *info = tsr_sched_class_get(f->class_id);
    int32_t i;

    if (!asked)
        return TSR_OK;
    i = tsr_cfg_word_index(sigma_words, asked);
    if (i < 0)
        TSR_FAIL(err, TSR_E_USAGE,
                 "sigmas \"%s\" is not known; there are default, karras, exponential and beta",
                 asked);
    if (i > 0 && (!(info->knows & TSR_KNOWS_TABLES) ||
                  (i == TSR_SIGMAS_LU && f->class_id != TSR_SCHED_DPMPP_2M)))
        TSR_FAIL(err, TSR_E_USAGE,
                 "sigmas \"%s\" does not go with scheduler %s, which has no such "
                 "table",
                 asked, info->name);
    f->sigmas = (tsr_sigma_table)i;
    return TSR_OK;
}

static tsr_status apply_prediction(tsr_sched_config *f, const char *asked, const char *file_name,
                                   tsr_err *err)
{
    const tsr_sched_class_info *info = tsr_sched_class_get(f->class_id);

    if (asked) {
        const int32_t i = tsr_cfg_word_index(prediction_words, asked);

        if (i < 0)
            TSR_FAIL(err, TSR_E_USAGE,
                     "prediction type \"%s\" is not known; there are epsilon, v_prediction and "
                     "sample",
                     asked);
        f->prediction = (tsr_prediction)i;
    }
    if (f->prediction != TSR_PREDICT_SAMPLE || (info->knows & TSR_KNOWS_SAMPLE))
        return TSR_OK;
    if (asked)
        TSR_FAIL(err, TSR_E_USAGE, "prediction type \"sample\" does not go with scheduler %s",
                 info->name);
    TSR_FAIL(err, TSR_E_MODEL, "%s: %s does not support prediction_type \"sample\"", file_name,
             info->class_name);
}

/* A name implies as little as it can, so that a picture's recorded name makes the same again. */
static void apply_name(tsr_sched_config *f, const char *name, bool sde)
{
    const bool is_sde = f->algorithm == TSR_ALG_SDE_DPM || f->algorithm == TSR_ALG_SDE_DPMPP;

    if (name && f->class_id == TSR_SCHED_DPMPP_2M && sde != is_sde)
        f->algorithm = sde ? TSR_ALG_SDE_DPMPP : TSR_ALG_DPMPP;
}

/* Combinations that diffusers refuses, or where it has no formula. */
static tsr_status check(const tsr_sched_config *f, const char *file_name, tsr_err *err)
{
    const bool dpm = f->class_id == TSR_SCHED_DPMPP_2S || f->class_id == TSR_SCHED_DPMPP_2M;

    if (dpm && !f->final_sigma_min &&
        (f->algorithm == TSR_ALG_DPM || f->algorithm == TSR_ALG_SDE_DPM))
        TSR_FAIL(err, TSR_E_MODEL,
                 "%s: algorithm_type without \"++\" needs final_sigmas_type \"sigma_min\"",
                 file_name);
    if (dpm && f->algorithm == TSR_ALG_SDE_DPM && f->solver_order == 3)
        TSR_FAIL(err, TSR_E_MODEL, "%s: algorithm_type \"sde-dpmsolver\" has no solver_order 3",
                 file_name);
    if (f->class_id == TSR_SCHED_DPMPP_2S && f->thresholding && f->algorithm == TSR_ALG_DPM)
        TSR_FAIL(err, TSR_E_MODEL,
                 "%s: thresholding does not go with algorithm_type \"dpmsolver\" in %s", file_name,
                 tsr_sched_class_get(f->class_id)->class_name);
    return TSR_OK;
}

/* ------------------------------------------------------------------ the face */

static tsr_status read_all(tsr_cfg *c, tsr_sched_config *f, const tsr_sched_options *opt)
{
    const tsr_sched_class_info *info;
    bool sde;

    TSR_TRY(choose_class(c, f, opt->name, &sde));
    info = tsr_sched_class_get(f->class_id);
    TSR_TRY(tsr_sched_config_read(f, c, opt->sigmas != NULL));
    TSR_TRY(apply_sigmas(f, opt->sigmas, c->err));
    TSR_TRY(apply_prediction(f, opt->prediction, c->name, c->err));
    apply_name(f, opt->name, sde);
    if (!(opt->eta >= 0 && opt->eta <= 1))
        TSR_FAIL(c->err, TSR_E_USAGE, "eta must be a number from 0 to 1");
    if (opt->eta > 0 && f->class_id != TSR_SCHED_DDIM)
        TSR_WARN(c->log, "eta is ddim's; scheduler %s has no use for it", tsr_sched_config_name(f));
    f->eta = f->class_id == TSR_SCHED_DDIM ? opt->eta : 0;
    if (opt->repair_sd) {
        f->steps_offset = (info->knows & TSR_KNOWS_SPACING) ? 1 : 0;
        f->clip_sample = false;
    }
    return check(f, c->name, c->err);
}

tsr_status tsr_sched_config_make(tsr_sched_config **cfg, const char *json, const char *file_name,
                                 const tsr_sched_options *opt, const tsr_log *log, tsr_err *err)
{
    static const tsr_sched_options none = {0};
    tsr_sched_config *f = NULL;
    char *text = NULL;
    tsr_cfg c = {0};
    tsr_status st = TSR_OK;

    text = tsr_strdup(json);
    f = tsr_calloc(1, sizeof *f);
    if (!text || !f) {
        st = tsr_err_set(err, TSR_E_OOM, "out of memory for the scheduler's config");
        goto done;
    }
    spell_infinity(text);
    TSR_TRY_GOTO(tsr_cfg_open(&c, text, file_name, log, err));
    TSR_TRY_GOTO(read_all(&c, f, opt ? opt : &none));
    *cfg = f;
    f = NULL;
done:
    tsr_cfg_close(&c);
    tsr_sched_config_free(f);
    tsr_free(text);
    return st;
}

void tsr_sched_config_free(tsr_sched_config *cfg)
{
    if (!cfg)
        return;
    tsr_free(cfg->trained_betas);
    tsr_free(cfg);
}

const char *tsr_sched_config_name(const tsr_sched_config *cfg)
{
    const bool sde = cfg->algorithm == TSR_ALG_SDE_DPM || cfg->algorithm == TSR_ALG_SDE_DPMPP;

    if (cfg->class_id == TSR_SCHED_DPMPP_2M && sde)
        return "dpmpp_2m_sde";
    return tsr_sched_class_get(cfg->class_id)->name;
}

const char *tsr_sched_config_sigmas(const tsr_sched_config *cfg)
{
    return sigma_names[cfg->sigmas];
}

const char *tsr_sched_config_prediction(const tsr_sched_config *cfg)
{
    return prediction_names[cfg->prediction];
}
