/* run.c -- a run from its descriptor to its pictures.
 *
 *     make: resolve, tokenize, sampler, record and plan every network, check the budget, reserve
 *     next: text (once) -> denoise (once a batch) -> decode -> record, one picture a call, no
 *           allocation
 *
 * A run that only decodes, or encodes, has the VAE alone, and the same of everything else. */
#include "pipeline/pipeline_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "memory/budget.h"

#define SECONDS_BETWEEN                                                                            \
    0.25 /* that a caller who wants to stop waits at most, but for one action                      \
          */

double tsr_now(void)
{
    return tsr_clock_seconds();
}

void *tsr_run_state(const tsr_run *r, size_t offset)
{
    return r->arena.base + offset;
}

/* Tells the callback what is in r->said. */
static tsr_status say(tsr_run *r)
{
    if (!r->progress)
        return TSR_OK;
    r->said.resident_bytes = tsr_mem_resident();
    r->said.peak_bytes = tsr_mem_peak();
    r->said_at = tsr_now();
    if (!r->progress(r->progress_user, &r->said))
        TSR_FAIL(&r->ctx->err, TSR_E_CANCELLED, "stopped on request");
    return TSR_OK;
}

tsr_status tsr_run_progress(tsr_run *r, tsr_phase phase, int32_t step, int32_t n_steps,
                            double seconds)
{
    r->said = (tsr_progress){
        .phase = phase,
        .step = step,
        .n_steps = n_steps,
        .picture = r->next_picture,
        .n_together = phase == TSR_PHASE_DENOISE ? r->batch_end - r->batch_first : 1,
        .n_pictures = r->set.n_pictures,
        .seconds = seconds,
    };
    return say(r);
}

tsr_status tsr_run_beat(void *run)
{
    tsr_run *r = run;

    return r->progress && tsr_now() - r->said_at >= SECONDS_BETWEEN ? say(r) : TSR_OK;
}

/* The caller's start noise, or final latents, checked and copied. */
static tsr_status copy_latents(tsr_run *r, const tsr_run_desc *d)
{
    const tsr_settings *s = &r->set;
    const int32_t *shape = d->latents_shape;
    const char *what = s->task == TSR_TASK_DECODE ? "latents are" : "start noise is";
    size_t bytes = (size_t)s->n_pictures * tsr_latent_count(s) * sizeof(float);

    if (!d->latents || s->task == TSR_TASK_ENCODE)
        return TSR_OK;
    if (shape[0] != s->n_pictures || shape[1] != s->latent_c || shape[2] != s->latent_h ||
        shape[3] != s->latent_w)
        TSR_FAIL(&r->ctx->err, TSR_E_USAGE,
                 "the %s [%d,%d,%d,%d]; %d picture%s of %dx%d need%s [%d,%d,%d,%d]", what, shape[0],
                 shape[1], shape[2], shape[3], s->n_pictures, s->n_pictures == 1 ? "" : "s",
                 s->width, s->height, s->n_pictures == 1 ? "s" : "", s->n_pictures, s->latent_c,
                 s->latent_h, s->latent_w);
    r->given_latents = tsr_malloc(bytes);
    if (!r->given_latents)
        TSR_FAIL(&r->ctx->err, TSR_E_OOM, "no memory for the latents");
    memcpy(r->given_latents, d->latents, bytes);
    return TSR_OK;
}

static tsr_status add_hash(tsr_run *r, const tsr_component *c)
{
    uint64_t h;

    TSR_TRY(tsr_component_hash(c, &h, &r->ctx->err));
    r->model_hash = tsr_fnv1a64(&h, sizeof h, r->model_hash);
    return TSR_OK;
}

/* FNV over the parts' own hashes. Reads samples of the data, so a plan leaves it out. */
static tsr_status hash_model(tsr_run *r)
{
    tsr_model *m = r->model;

    r->model_hash = TSR_FNV_SEED;
    for (int32_t e = 0; e < m->n_encoders; e++)
        TSR_TRY(add_hash(r, &m->clip[e]));
    TSR_TRY(add_hash(r, &m->unet));
    TSR_TRY(add_hash(r, &m->vae));
    snprintf(r->model_hash_text, sizeof r->model_hash_text, "%016llx",
             (unsigned long long)r->model_hash);
    return TSR_OK;
}

static void add_plan_hash(tsr_program *p, void *arg)
{
    uint64_t *h = arg;

    *h = tsr_fnv1a64(&p->hash, sizeof p->hash, *h);
}

static void hash_plan(tsr_run *r)
{
    uint64_t h = TSR_FNV_SEED;

    tsr_nets_each(&r->nets, add_plan_hash, &h);
    r->plan_hash = tsr_fnv1a64(&r->state.bytes, sizeof r->state.bytes, h);
    snprintf(r->plan_hash_text, sizeof r->plan_hash_text, "%016llx",
             (unsigned long long)r->plan_hash);
}

/* A plan reads no tensor data, so it cannot see whether a float32 tensor is too large for half. */
static void plan_from_headers(tsr_model *m, bool headers_only)
{
    for (int32_t e = 0; e < m->n_encoders; e++)
        m->clip[e].headers_only = headers_only;
    m->unet.headers_only = m->vae.headers_only = headers_only;
}

/* What was given has a size: it cannot be made smaller. A plan takes the ladder as its run would,
 * but is refused nothing. */
static tsr_status plan_or_degrade(tsr_run *r)
{
    tsr_status st = tsr_run_plan_memory(r);
    bool small = r->minimum_budget > r->set.budget_bytes;

    if (!small || (st != TSR_OK && st != TSR_E_BUDGET) || r->given_latents || r->image)
        return st;
    if (r->set.strict)
        return st == TSR_OK ? st : tsr_run_say_largest(r);
    return tsr_run_degrade(r);
}

/* The device's arena, with its libraries ready. Planned again, once, where the memory is not there
 * (others were faster) or where libraries have loaded more than was known. */
static tsr_status reserve_device(tsr_run *r)
{
    bool grown = false;
    tsr_status st = tsr_run_reserve_device(r);

    if (st == TSR_OK)
        st = tsr_run_try_device(r, &grown);
    if ((st == TSR_OK && !grown) || (st != TSR_OK && st != TSR_E_OOM))
        return st;
    if (!grown)
        TSR_WARN(&r->ctx->log, "%s; planning again for what is left", r->ctx->err.msg);
    tsr_err_clear(&r->ctx->err);
    tsr_run_free_device(r);
    TSR_TRY(plan_or_degrade(r));
    hash_plan(r);
    TSR_TRY(tsr_run_reserve_device(r));
    return tsr_run_try_device(r, &grown);
}

/* The arena. A machine that has not got it says so here, not by killing the process at step 20. */
static tsr_status reserve(tsr_run *r)
{
    size_t bytes = r->state.bytes + tsr_nets_bytes(&r->nets), free_bytes = tsr_mem_available();
    char need[32], have[32];

    if (tsr_run_device(r)) {
        TSR_TRY(reserve_device(r));
        return tsr_arena_make(&r->arena, r->state.bytes, &r->ctx->err);
    }
    if (free_bytes > 0 && bytes > free_bytes)
        TSR_FAIL(&r->ctx->err, TSR_E_OOM,
                 "the run needs %s of memory and only %s are free; close something, or give a "
                 "smaller --budget",
                 tsr_bytes_text(bytes, need, sizeof need),
                 tsr_bytes_text(free_bytes, have, sizeof have));
    if (tsr_nets_spill(&r->nets) > 0)
        TSR_TRY(tsr_spill_open(&r->spill, r->set.spill_dir, tsr_nets_spill(&r->nets), &r->ctx->log,
                               &r->ctx->err));
    return tsr_arena_make(&r->arena, bytes, &r->ctx->err);
}

static tsr_status run_fill(tsr_run *r, const tsr_run_desc *d)
{
    tsr_context *ctx = r->ctx;

    plan_from_headers(r->model, d->plan_only);
    TSR_TRY(tsr_settings_resolve(&r->set, ctx, r->model, d));
    TSR_TRY(copy_latents(r, d));
    if (r->set.task == TSR_TASK_PICTURE) {
        TSR_TRY(tsr_prompts_tokenize(r));
        TSR_TRY(tsr_run_make_lanes(r, 1));
    }
    TSR_TRY(tsr_nets_record(&r->nets, ctx, r->model, &r->set,
                            r->lanes ? tsr_sched_n_calls(r->lanes[0].sched) : 0));
    tsr_state_layout(&r->state, r->model, &r->set);
    /* A plan has the thread and the room for a hash, too: it needs what the run needs, to the byte.
     */
    TSR_TRY(tsr_io_make(&r->io, &ctx->err));
    memset(r->model_hash_text, '0', 16);
    if (!d->plan_only)
        TSR_TRY(hash_model(r));
    TSR_TRY(tsr_record_reserve(r));
    TSR_TRY(plan_or_degrade(r));
    hash_plan(r);
    if (d->plan_only)
        return TSR_OK;
    TSR_TRY(tsr_run_time_ops(r));
    return reserve(r);
}

tsr_status tsr_run_make(tsr_context *ctx, tsr_model *model, const tsr_run_desc *desc, tsr_run **out)
{
    tsr_run *r;
    tsr_status st;

    tsr_err_clear(&ctx->err);
    r = tsr_calloc(1, sizeof *r);
    if (!r)
        TSR_FAIL(&ctx->err, TSR_E_OOM, "no memory for a run");
    r->ctx = ctx;
    r->model = model;
    r->progress = desc->progress;
    r->progress_user = desc->progress_user;
    r->default_budget = desc->default_budget;
    r->default_budget_user = desc->default_budget_user;
    r->plan_only = desc->plan_only;
    r->time_ops = desc->time_ops;
    r->peak_at_start = tsr_mem_peak();
    r->image = desc->task == TSR_TASK_ENCODE ? desc->image : NULL;
    r->peak_before = tsr_mem_peak();
    st = run_fill(r, desc);
    if (st != TSR_OK) {
        tsr_run_free(r);
        return st;
    }
    *out = r;
    return TSR_OK;
}

void tsr_run_free(tsr_run *r)
{
    if (!r)
        return;
    tsr_io_free(r->io); /* before what it reads into */
    tsr_run_free_device(r);
    tsr_spill_close(&r->spill);
    tsr_nets_free(&r->nets);
    tsr_run_free_lanes(r);
    tsr_settings_free(&r->set);
    tsr_arena_free(&r->arena);
    for (int32_t e = 0; e < TSR_MAX_ENCODERS; e++) {
        tsr_free(r->ids[0][e]);
        tsr_free(r->ids[1][e]);
    }
    tsr_free(r->given_latents);
    tsr_free(r->op_seconds);
    tsr_free(r->ops);
    tsr_free(r->op_texts);
    tsr_buf_free(&r->record);
    tsr_buf_free(&r->parameters);
    tsr_free(r);
}

/* Is there still the memory that the phase was planned for? If not, it is planned again. */
static tsr_status before_phase(tsr_run *r, int32_t phase)
{
    uint64_t allocations = tsr_alloc_count();
    int32_t times = r->times_replanned;
    tsr_status st = tsr_run_replan(r, phase);

    r->planning_allocations += tsr_alloc_count() - allocations;
    if (r->times_replanned != times)
        hash_plan(r);
    return st;
}

/* Prompt, or what was given, to final latents, of a whole batch where a batch begins; each phase is
 * measured when it is over. */
static tsr_status make_latents(tsr_run *r, int32_t picture)
{
    size_t n = tsr_latent_count(&r->set);
    int32_t end;
    tsr_status st;

    if (r->set.task == TSR_TASK_DECODE) {
        memcpy(tsr_run_lane_latents(r, 0), r->given_latents + (size_t)picture * n,
               n * sizeof *r->given_latents);
        r->batch_first = picture;
        return TSR_OK;
    }
    if (picture < r->batch_end)
        return TSR_OK;
    if (!r->text_done) {
        TSR_TRY(tsr_text_run(r));
        tsr_run_measure(r, TSR_RUN_TEXT);
        r->text_done = true;
    }
    TSR_TRY(before_phase(r, TSR_RUN_DENOISE));
    end = picture + tsr_batch_size(r->set.n_pictures, picture, r->set.batch);
    st = tsr_denoise_run(r, picture, end);
    if (st != TSR_OK)
        r->batch_end = picture; /* nothing of it is finished */
    TSR_TRY(st);
    tsr_run_measure(r, TSR_RUN_DENOISE);
    return TSR_OK;
}

static tsr_status make_picture(tsr_run *r, int32_t picture)
{
    if (r->set.task == TSR_TASK_ENCODE) {
        TSR_TRY(tsr_encode_run(r));
    } else {
        if (!r->latents_are_next)
            TSR_TRY(make_latents(r, picture));
        r->latents_done = r->latents_are_next = true;
        TSR_TRY(before_phase(r, TSR_RUN_DECODE));
        TSR_TRY(tsr_decode_run(r));
        r->latents_are_next = false;
    }
    tsr_run_measure(r, TSR_RUN_DECODE);
    tsr_run_release_network(r);
    return TSR_OK;
}

static void add_traffic(tsr_program *p, void *arg)
{
    tsr_run *r = arg;

    r->bytes_streamed += p->bytes_streamed;
    r->bytes_spilled += p->bytes_spilled;
    r->io_core_seconds += p->io_core_seconds;
}

static void count_traffic(tsr_run *r)
{
    const tsr_nets *n = &r->nets;
    double text = 0;

    r->bytes_streamed = r->bytes_spilled = 0;
    r->io_core_seconds = 0;
    tsr_nets_each(&r->nets, add_traffic, r);
    for (int32_t i = 0; i < n->n_text; i++)
        text += n->text[i].net.program.seconds_waiting;
    r->phases[TSR_RUN_TEXT].seconds_waiting_for_weights = r->seconds_loading[TSR_RUN_TEXT] + text;
    r->phases[TSR_RUN_DENOISE].seconds_waiting_for_weights =
        r->seconds_loading[TSR_RUN_DENOISE] + n->unet.program.seconds_waiting;
    r->phases[TSR_RUN_DECODE].seconds_waiting_for_weights = r->seconds_loading[TSR_RUN_DECODE];
    for (int32_t i = 0; i < n->n_vae; i++)
        r->phases[TSR_RUN_DECODE].seconds_waiting_for_weights += n->vae[i].program.seconds_waiting;
}

tsr_status tsr_run_next(tsr_run *r, tsr_picture *pic)
{
    const tsr_settings *s = &r->set;
    uint64_t allocations = tsr_alloc_count();
    double start = tsr_now();
    int32_t i = r->next_picture;

    tsr_err_clear(&r->ctx->err);
    r->planning_allocations = 0;
    if (r->plan_only)
        TSR_FAIL(&r->ctx->err, TSR_E_USAGE, "this run was only planned");
    if (i >= s->n_pictures)
        TSR_FAIL(&r->ctx->err, TSR_E_USAGE, "all %d pictures of this run are made", s->n_pictures);
    TSR_TRY(make_picture(r, i));
    r->next_picture++;
    r->seconds_total += tsr_now() - start;
    r->allocations += tsr_alloc_count() - allocations - r->planning_allocations;
    count_traffic(r);
    tsr_record_write(r, i);
    *pic = (tsr_picture){
        .index = i,
        .seed = s->seed + (uint64_t)i,
        .width = s->width,
        .height = s->height,
        .rgb = s->task == TSR_TASK_ENCODE ? NULL : tsr_run_state(r, r->state.rgb),
        .latents = tsr_run_lane_latents(r, i - r->batch_first),
        .latents_shape = {s->latent_c, s->latent_h, s->latent_w},
        .parameters = s->task == TSR_TASK_PICTURE ? r->parameters.data : NULL,
        .record = s->task == TSR_TASK_ENCODE ? NULL : r->record.data,
    };
    return tsr_run_check_budget(r);
}

bool tsr_run_latents(const tsr_run *r, const float **latents, int32_t shape[4])
{
    int32_t first, n;

    if (!r->latents_done)
        return false;
    first = r->latents_are_next ? r->next_picture : r->next_picture - 1;
    n = tsr_max_i32(1, r->batch_end - first);
    *latents = tsr_run_lane_latents(r, first - r->batch_first);
    memcpy(shape, (int32_t[4]){n, r->set.latent_c, r->set.latent_h, r->set.latent_w},
           4 * sizeof *shape);
    return true;
}
