/* replan.c -- between two phases: is there still the memory that the rest of the run was planned
 * for?
 *
 * Only under the default budget, which is what is free: a budget that was given stays. The figure
 * is read again before each phase (this process's resident set, and what the system and its control
 * group still allow, less the margin). While the rest of the run, as it is planned, stays below it,
 * nothing happens: what others took was not needed. Otherwise
 *
 *     1. the network's part of the arena goes back to the system, so that it counts as free;
 *     2. the networks that will run again are planned for what there is now: no choice of a plan
 *        changes a bit, so the picture is the one that it would have been;
 *     3. the arena gets the new size, the state at its beginning stays, and the spill file is made
 *        if it is needed now, or larger.
 *
 * If nothing fits, that is TSR_E_BUDGET, and the state still has the finished latents. Nothing is
 * given up here: the size of a picture is settled when its latents are drawn. */
#include "pipeline/pipeline_internal.h"

#include <string.h>

#include "base/num.h"
#include "memory/budget.h"

size_t tsr_run_ask_budget(const tsr_run *r)
{
    if (tsr_run_device(r))
        return tsr_run_device_budget(r);
    return r->default_budget ? r->default_budget(r->default_budget_user) : tsr_budget_default();
}

/* What will not run again does not count. */
static void end_phases(tsr_run *r, int32_t phase)
{
    tsr_nets *n = &r->nets;

    for (int32_t i = 0; i < n->n_text; i++)
        n->text[i].net.over = r->text_done;
    n->unet.over = phase > TSR_RUN_DENOISE && r->batch_end == r->set.n_pictures;
}

static tsr_status refuse(tsr_run *r, int32_t phase, size_t need)
{
    char least[32], have[32];

    TSR_FAIL(&r->ctx->err, TSR_E_BUDGET,
             "others have taken memory since the run began: the phase %s needs %s at least, and %s "
             "are left",
             r->phases[phase].name, tsr_bytes_text(need, least, sizeof least),
             tsr_bytes_text(r->set.budget_bytes, have, sizeof have));
}

/* The new plans' predictions with the measurements so far. What has run keeps its own where that is
 * more: it was the peak. */
static void merge_phases(tsr_run *r, const tsr_phase_info *before, int32_t phase)
{
    bool last = r->next_picture + 1 == r->set.n_pictures;

    for (int32_t i = 0; i < TSR_MAX_PHASES; i++) {
        tsr_phase_info *p = &r->phases[i];
        size_t ran = before[i].measured_bytes ? before[i].predicted_bytes : 0;

        if (i == TSR_RUN_TEXT || (last && i < phase)) {
            *p = before[i];
            continue;
        }
        p->predicted_bytes = tsr_max_size(p->predicted_bytes, ran);
        p->measured_bytes = before[i].measured_bytes;
        p->seconds = before[i].seconds;
    }
}

/* Plans what is left for what there is now. */
static tsr_status plan_rest(tsr_run *r, int32_t phase)
{
    tsr_phase_info before[TSR_MAX_PHASES];
    size_t peak = r->predicted_peak, minimum = r->minimum_budget, fastest = r->fastest_budget;
    size_t need;
    tsr_status st;

    memcpy(before, r->phases, sizeof before);
    st = tsr_run_plan_memory(r);
    need = r->minimum_budget;
    merge_phases(r, before, phase);
    r->predicted_peak = tsr_max_size(peak, r->predicted_peak);
    r->minimum_budget = minimum; /* of the whole run */
    r->fastest_budget = fastest;
    return st == TSR_E_BUDGET ? refuse(r, phase, need) : st;
}

static tsr_status make_room(tsr_run *r)
{
    size_t spill = tsr_nets_spill(&r->nets);

    if (spill > 0 && (!r->spill.file.path || spill > r->spill.file.size)) {
        tsr_spill_close(&r->spill);
        TSR_TRY(tsr_spill_open(&r->spill, r->set.spill_dir, spill, &r->ctx->log, &r->ctx->err));
    }
    return tsr_arena_resize(&r->arena, r->state.bytes + tsr_nets_bytes(&r->nets), r->state.bytes,
                            &r->ctx->err);
}

tsr_status tsr_run_replan(tsr_run *r, int32_t phase)
{
    char from[32], to[32];
    size_t planned = tsr_run_footprint(r);

    if (tsr_run_device(r)) /* what is reserved there nobody takes */
        return TSR_OK;
    if (r->set.budget_given || (!r->plan_is_due && tsr_run_ask_budget(r) >= planned))
        return TSR_OK;
    r->plan_is_due = true;
    tsr_nets_unload(&r->nets);
    tsr_arena_release(&r->arena, r->state.bytes);
    end_phases(r, phase);
    TSR_TRY(plan_rest(r, phase));
    TSR_TRY(make_room(r));
    r->plan_is_due = false;
    r->times_replanned++;
    TSR_WARN(&r->ctx->log,
             "others have taken memory: the rest of the run is planned again, within %s instead of "
             "%s; the picture is the same, and may take longer",
             tsr_bytes_text(r->set.budget_bytes, to, sizeof to),
             tsr_bytes_text(planned, from, sizeof from));
    return TSR_OK;
}
