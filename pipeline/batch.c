/* batch.c -- how many pictures of a run go through the UNet together.
 *
 * In lockstep, step by step, every weight that is streamed is read once for all of them; what they
 * need more of is activations, latents and samplers. So where weights stream a batch is worth its
 * memory, and where everything is resident it hardly is. The UNet is recorded and planned for one
 * picture, for all, and for numbers between, and the cheapest is taken:
 *
 *     cost = seconds of the UNet for all pictures + FIRST_WEIGHT * seconds until the first is there
 *
 * with the planner's own model of time. A batch's pictures are even: 8 in batches of at most 3 are
 * 3, 3 and 2; the last one leaves the third picture's entries out (tsr_program_set_pictures). No
 * choice changes a bit of a picture. */
#include "pipeline/pipeline_internal.h"

#include "base/alloc.h"
#include "base/num.h"

static const int32_t BATCHES[] = {2, 3, 4, 6, 8, 12, 16};

/* Who waits for the first picture would rather not wait for all: a gain must be worth that. */
static const double FIRST_WEIGHT = 0.02;

float *tsr_run_lane_latents(const tsr_run *r, int32_t lane)
{
    return (float *)tsr_run_state(r, r->state.latents) + (size_t)lane * tsr_latent_count(&r->set);
}

void tsr_run_free_lanes(tsr_run *r)
{
    for (int32_t i = 0; i < r->n_lanes; i++)
        tsr_sched_free(r->lanes[i].sched);
    tsr_free(r->lanes);
    r->lanes = NULL;
    r->n_lanes = 0;
}

tsr_status tsr_run_make_lanes(tsr_run *r, int32_t n)
{
    const tsr_settings *s = &r->set;

    tsr_run_free_lanes(r);
    r->lanes = tsr_calloc((size_t)n, sizeof *r->lanes);
    if (!r->lanes)
        TSR_FAIL(&r->ctx->err, TSR_E_OOM, "no memory for the samplers of %d pictures", n);
    for (r->n_lanes = 0; r->n_lanes < n; r->n_lanes++)
        TSR_TRY(tsr_sched_make(&r->lanes[r->n_lanes].sched, s->sched_cfg, s->steps,
                               tsr_latent_count(s), NULL, &r->ctx->err));
    return TSR_OK;
}

int32_t tsr_batch_size(int32_t n_pictures, int32_t first, int32_t most)
{
    int32_t left = n_pictures - first;

    return tsr_div_up(left, tsr_div_up(left, most));
}

tsr_status tsr_run_set_batch(tsr_run *r, int32_t n)
{
    if (n == r->set.batch)
        return TSR_OK;
    r->set.batch = n;
    TSR_TRY(tsr_run_make_lanes(r, n));
    if (!r->arena
             .base) /* else fewer pictures have room enough, and the context stays where it is */
        tsr_state_layout(&r->state, r->model, &r->set);
    return tsr_nets_record_unet(&r->nets, r->ctx, r->model, &r->set);
}

/* Of one batch of `count` pictures: loading, the prologue, then every call. What is read does not
 * depend on how many pictures there are. */
static tsr_plan_cost batch_cost(const tsr_run *r, int32_t count)
{
    const tsr_program *p = &r->nets.unet.program;
    const tsr_plan_cost *once = &p->plan.prologue, *call = &p->plan.loop;
    double calls = r->nets.n_calls, share = (double)count / r->set.batch;
    tsr_plan_cost part = *call;

    part.compute_seconds *= share;
    part.seconds = tsr_plan_cost_seconds(&part, 0, tsr_pool_threads(r->ctx->pool));
    return (tsr_plan_cost){
        .seconds = p->plan.load_seconds + once->seconds + calls * part.seconds,
        .flops = tsr_program_flops(p, false) + calls * share * tsr_program_flops(p, true),
        .bytes_streamed = once->bytes_streamed + calls * call->bytes_streamed,
        .bytes_spilled = once->bytes_spilled + calls * call->bytes_spilled,
    };
}

tsr_plan_cost tsr_run_unet_cost(const tsr_run *r)
{
    const tsr_settings *s = &r->set;
    tsr_plan_cost all = {0};
    int32_t count;

    for (int32_t first = 0; first < s->n_pictures; first += count) {
        tsr_plan_cost one;

        count = tsr_batch_size(s->n_pictures, first, s->batch);
        one = batch_cost(r, count);
        all.seconds += one.seconds;
        all.flops += one.flops;
        all.bytes_streamed += one.bytes_streamed;
        all.bytes_spilled += one.bytes_spilled;
    }
    return all;
}

static double cost_of(const tsr_run *r)
{
    int32_t first = tsr_batch_size(r->set.n_pictures, 0, r->set.batch);

    return tsr_run_unet_cost(r).seconds + FIRST_WEIGHT * batch_cost(r, first).seconds;
}

/* Plans for `n` pictures together; *fits is false where they do not. */
static tsr_status try_batch(tsr_run *r, int32_t n, size_t budget, bool *fits, double *cost)
{
    size_t taken, limit = 0;
    tsr_status st;

    *fits = false;
    TSR_TRY(tsr_run_set_batch(r, n));
    taken = r->base_bytes + r->state.bytes;
    if (budget > 0 && taken >= budget)
        return TSR_OK;
    if (budget > 0)
        limit = budget - taken;
    st = tsr_nets_plan_unet(&r->nets, r->ctx, &r->set, limit);
    if (st == TSR_E_BUDGET) {
        tsr_err_clear(&r->ctx->err);
        return TSR_OK;
    }
    TSR_TRY(st);
    *fits = true;
    *cost = cost_of(r);
    return TSR_OK;
}

tsr_status tsr_run_choose_batch(tsr_run *r, size_t budget)
{
    int32_t pictures = r->set.n_pictures, best = 1, tried = 1;
    double least = 0, cost = 0;
    bool fits = true;

    if (pictures == 1 || !r->nets.has_unet)
        return TSR_OK;
    TSR_TRY(try_batch(r, 1, budget, &fits, &least));
    for (size_t i = 0; i < sizeof BATCHES / sizeof *BATCHES && fits; i++) {
        int32_t n = tsr_batch_size(pictures, 0, BATCHES[i]);
        if (n <= tried)
            continue;
        tried = n;
        TSR_TRY(try_batch(r, n, budget, &fits, &cost));
        if (!fits || cost >= least)
            continue;
        best = n;
        least = cost;
    }
    return tsr_run_set_batch(r, best);
}
