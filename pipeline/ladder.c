/* ladder.c -- when nothing exact fits: a smaller picture, said aloud.
 *
 * The rungs are sizes in multiples of the VAE's factor with the nearest aspect ratio, from the
 * asked one down to a quarter of each side or 64 pixels. The largest that fits is found by
 * bisection: the need grows with the size. Below the last rung, and with --strict, the run is
 * refused with its minimum. */
#include "pipeline/pipeline_internal.h"

#include <stdio.h>

#include "base/num.h"
#include "memory/budget.h"

enum { LEAST_SIDE = 64, PARTS = 4, LARGEST_SEARCHED = 4096 };

typedef struct tsr_rung {
    int32_t width, height;
} tsr_rung;

/* The rung whose longer side has `n` latents. */
static tsr_rung rung_at(const tsr_settings *s, int32_t factor, int32_t n)
{
    int32_t longer = tsr_max_i32(s->asked_width, s->asked_height);
    int64_t w = ((int64_t)n * s->asked_width + longer / 2) / longer;
    int64_t h = ((int64_t)n * s->asked_height + longer / 2) / longer;

    return (tsr_rung){(int32_t)(w < 1 ? 1 : w) * factor, (int32_t)(h < 1 ? 1 : h) * factor};
}

static tsr_status record_at(tsr_run *r, tsr_rung rung)
{
    tsr_settings *s = &r->set;

    tsr_settings_set_size(s, r->model, rung.width, rung.height);
    s->batch = 1;
    tsr_nets_free(&r->nets);
    TSR_TRY(tsr_run_make_lanes(r, 1));
    TSR_TRY(tsr_nets_record(&r->nets, r->ctx, r->model, s, tsr_sched_n_calls(r->lanes[0].sched)));
    tsr_state_layout(&r->state, r->model, s);
    return TSR_OK;
}

/* Whether the smallest plans of a rung fit. *fits is false, too, for a size that cannot be planned
 * at all. */
static tsr_status try_rung(tsr_run *r, tsr_rung rung, bool *fits)
{
    tsr_status st = record_at(r, rung);

    if (st == TSR_OK)
        st = tsr_run_plan_least(r);
    *fits = st == TSR_OK && r->minimum_budget <= r->set.budget_bytes;
    return st == TSR_E_BUDGET ? TSR_OK : st;
}

/* The largest rung in [low, high] that fits, low - 1 when none does. */
static tsr_status search(tsr_run *r, int32_t low, int32_t high, int32_t *found)
{
    int32_t factor = r->model->vae_cfg.factor;

    *found = low - 1;
    while (low <= high) {
        int32_t mid = low + (high - low) / 2;
        bool fits;

        TSR_TRY(try_rung(r, rung_at(&r->set, factor, mid), &fits));
        if (fits) {
            *found = mid;
            low = mid + 1;
        } else {
            high = mid - 1;
        }
    }
    return TSR_OK;
}

/* Rungs smaller than this are too small to be what was meant. */
static int32_t last_rung(const tsr_settings *s, int32_t factor)
{
    int32_t longer = tsr_max_i32(s->asked_width, s->asked_height);
    int32_t shorter = tsr_min_i32(s->asked_width, s->asked_height);
    int32_t quarter = tsr_div_up(longer, PARTS);
    int32_t small = (int32_t)((int64_t)LEAST_SIDE * longer / shorter); /* the shorter side has 64 */

    return tsr_max_i32(1, tsr_div_up(tsr_max_i32(quarter, small), factor));
}

tsr_status tsr_run_degrade(tsr_run *r)
{
    tsr_settings *s = &r->set;
    tsr_err refused = r->ctx->err;
    size_t minimum = r->minimum_budget;
    int32_t factor = r->model->vae_cfg.factor,
            longer = tsr_max_i32(s->asked_width, s->asked_height);
    int32_t found, least = last_rung(s, factor), high = tsr_div_up(longer, factor) - 1;
    char need[32];
    tsr_rung rung;

    TSR_TRY(search(r, least, high, &found));
    if (found < least && r->plan_only) { /* the least of what was asked for */
        TSR_TRY(record_at(r, (tsr_rung){s->asked_width, s->asked_height}));
        return tsr_run_plan_memory(r);
    }
    if (found < least) {
        r->ctx->err = refused;
        return TSR_E_BUDGET;
    }
    rung = rung_at(s, factor, found);
    TSR_TRY(record_at(r, rung));
    TSR_TRY(tsr_run_plan_memory(r));
    r->kept_by_budget = minimum;
    TSR_WARN(&r->ctx->log, "made smaller to fit the budget: %dx%d instead of %dx%d, which needs %s",
             s->width, s->height, s->asked_width, s->asked_height,
             tsr_bytes_text(minimum, need, sizeof need));
    return TSR_OK;
}

tsr_status tsr_run_say_largest(tsr_run *r)
{
    tsr_settings *s = &r->set;
    tsr_err refused = r->ctx->err;
    int32_t factor = r->model->vae_cfg.factor,
            longer = tsr_max_i32(s->asked_width, s->asked_height);
    int32_t found;
    tsr_rung rung;

    TSR_TRY(search(r, 1, tsr_div_up(longer, factor) - 1, &found));
    rung = rung_at(s, factor, found);
    r->ctx->err = refused;
    if (found > 0)
        TSR_FAIL(&r->ctx->err, TSR_E_BUDGET, "%s; the largest picture that fits is %dx%d",
                 refused.msg, rung.width, rung.height);
    return TSR_E_BUDGET;
}

/* Doubles the size while it fits, then searches between the last two. Planning a picture takes
 * longer the larger it is (0.6 s at 2048x2048), so the search ends at LARGEST_SEARCHED. */
tsr_status tsr_run_largest(tsr_run *r, int32_t *width, int32_t *height)
{
    tsr_settings *s = &r->set;
    tsr_rung asked = {s->width, s->height}, rung;
    int32_t factor = r->model->vae_cfg.factor, most = LARGEST_SEARCHED / factor, low, high, found;
    bool fits = true;

    if (s->task != TSR_TASK_PICTURE) { /* what was given has its size */
        *width = r->minimum_budget <= s->budget_bytes ? s->width : 0;
        *height = *width ? s->height : 0;
        return TSR_OK;
    }
    low = tsr_max_i32(1, tsr_max_i32(s->width, s->height) / factor);
    TSR_TRY(try_rung(r, rung_at(s, factor, low), &fits));
    if (!fits) {
        TSR_TRY(search(r, 1, low - 1, &found));
    } else {
        for (high = low; fits && high < most;) {
            low = high;
            high = tsr_min_i32(2 * high, most);
            TSR_TRY(try_rung(r, rung_at(s, factor, high), &fits));
        }
        found = fits ? high : low;
        if (!fits)
            TSR_TRY(search(r, low + 1, high - 1, &found));
    }
    rung = rung_at(s, factor, found);
    *width = found > 0 ? rung.width : 0;
    *height = found > 0 ? rung.height : 0;
    tsr_err_clear(&r->ctx->err);
    r->peak_at_start = tsr_max_size(r->peak_at_start, tsr_mem_peak()); /* the search is no run */
    TSR_TRY(record_at(r, asked));
    return tsr_run_plan_memory(r);
}
