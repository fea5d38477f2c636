/* memory_plan.c -- what the process will need, said before it runs and measured while it does.
 *
 * Peak resident set of a phase = base + state + its network's part of the arena. `base` is
 * everything else: code and libraries (a constant, measured), the heap as counted by base/alloc
 * (vocabularies, tapes, plans), and the threads' stacks. It is a sum of known parts and not a
 * reading of the resident set, so that the same run always has the same minimum budget; inside a
 * program that already uses more, the reading counts.
 *
 * The picture's own phase ("image") is the encoder's copies of it in the caller: the raw rows with
 * their filter bytes, the filtered ones, and the compressed file. With room enough the network's
 * part of the arena stays beside those copies; with less it is given back to the system first.
 * Where a picture is encoded to latents, that phase is what reading it took before the run.
 *
 * Every network is planned two or three times: without a limit (what is fastest needs), for its
 * least (the minimum budget, exactly), and, where the budget lies between, for what the budget
 * leaves. The tables of a plan are heap and part of its own need, so the last is repeated with a
 * little less until it fits. */
#include "pipeline/pipeline_internal.h"

#include <malloc.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/num.h"
#include "memory/budget.h"

/* Code, libraries, stdio and the kernel's own pages of a process without an arena; see
 * docs/memory.md for how it is measured. */
#define BASE_BYTES ((size_t)4 << 20)
#define THREAD_BYTES ((size_t)24 << 10) /* touched stack of a worker */
#define ROUND_BYTES ((size_t)64 << 10)

enum { MAX_TRIES = 8 };

/* The I/O thread is one more. */
static size_t base_bytes(const tsr_run *r)
{
    size_t threads = (size_t)tsr_pool_threads(r->ctx->pool) + 1;
    size_t known = BASE_BYTES + tsr_alloc_live() + threads * THREAD_BYTES;
    size_t state = r->arena.base ? r->state.bytes : 0; /* all that the arena holds while planning */
    size_t now;

    malloc_trim(0); /* what loading and planning gave back is not held against the budget */
    now = tsr_mem_resident();
    now -= tsr_min_size(now, state);
    return tsr_align_up(tsr_max_size(known, now), ROUND_BYTES);
}

/* Copies of the picture that a PNG encoder makes: filtered rows (two), raw rows, and the file at
 * its largest. */
static size_t image_bytes(const tsr_settings *s)
{
    size_t raw = 3 * (size_t)s->width * (size_t)s->height;

    if (s->task == TSR_TASK_ENCODE)
        return 0;
    return 4 * raw + 8 * (size_t)s->height + ((size_t)1 << 20);
}

static void fill_phase(tsr_phase_info *p, const tsr_net *net, size_t base, size_t state)
{
    const tsr_program *program = &net->program;

    p->state_bytes = state;
    if (!net->over && base + state + tsr_program_bytes(program) > p->predicted_bytes) {
        p->predicted_bytes = base + state + tsr_program_bytes(program);
        p->weight_bytes = program->layout.class_bytes[TSR_ITEM_WEIGHT];
        p->activation_bytes = program->layout.class_bytes[TSR_ITEM_ACTIVATION];
        p->work_bytes = program->layout.class_bytes[TSR_ITEM_WORK];
    }
}

/* Adds one picture's share of what the UNet does. */
static void add_unet(tsr_phase_info *p, const tsr_run *r)
{
    tsr_plan_cost all = tsr_run_unet_cost(r);
    double n = r->set.n_pictures;

    p->n_calls += r->nets.n_calls;
    p->flops += all.flops / n;
    p->predicted_seconds += all.seconds / n;
    p->streamed_bytes += (uint64_t)(all.bytes_streamed / n);
    p->spilled_bytes += (uint64_t)(all.bytes_spilled / n);
}

/* Adds what one picture does with a program: the prologue once, the loop once. */
static void add_work(tsr_phase_info *p, const tsr_program *program)
{
    const tsr_plan_cost *once = &program->plan.prologue, *call = &program->plan.loop;

    p->n_calls++;
    p->flops += tsr_program_flops(program, false) + tsr_program_flops(program, true);
    p->predicted_seconds += program->plan.load_seconds + once->seconds + call->seconds;
    p->streamed_bytes += (uint64_t)(once->bytes_streamed + call->bytes_streamed);
    p->spilled_bytes += (uint64_t)(once->bytes_spilled + call->bytes_spilled);
}

/* Phases of the plans as they are; returns the peak, with the network given back before the
 * picture. */
static size_t fill_phases(tsr_run *r)
{
    static const char *const names[TSR_MAX_PHASES] = {"text", "denoise", "decode", "image"};
    const tsr_nets *n = &r->nets;
    size_t base = r->base_bytes = base_bytes(r), state = r->state.bytes, peak = 0;
    tsr_phase_info *p = r->phases;
    bool encode = r->set.task == TSR_TASK_ENCODE;

    for (int32_t i = 0; i < TSR_MAX_PHASES; i++)
        p[i] = (tsr_phase_info){.name = names[i]};
    for (int32_t i = 0; i < n->n_text; i++) {
        fill_phase(&p[TSR_RUN_TEXT], &n->text[i].net, base, state);
        add_work(&p[TSR_RUN_TEXT], &n->text[i].net.program);
    }
    if (n->has_unet) {
        fill_phase(&p[TSR_RUN_DENOISE], &n->unet, base, state);
        add_unet(&p[TSR_RUN_DENOISE], r);
    }
    p[TSR_RUN_DECODE].name = encode ? "encode" : "decode";
    for (int32_t i = 0; i < n->n_vae; i++)
        fill_phase(&p[TSR_RUN_DECODE], &n->vae[i], base, state);
    add_work(&p[TSR_RUN_DECODE], &n->vae[0].program);
    p[TSR_RUN_IMAGE].state_bytes = state;
    p[TSR_RUN_IMAGE].work_bytes = image_bytes(&r->set);
    p[TSR_RUN_IMAGE].predicted_bytes = base + state + image_bytes(&r->set);
    /* What the caller needed to read the picture is over, and still counts as the peak. */
    if (encode)
        p[TSR_RUN_IMAGE].predicted_bytes = tsr_max_size(base, r->peak_before);
    for (int32_t i = 0; i < TSR_MAX_PHASES; i++)
        peak = tsr_max_size(peak, p[i].predicted_bytes);
    return peak;
}

/* The same with the network kept beside the picture's copies. */
static size_t kept_peak(const tsr_run *r)
{
    bool is_there = r->arena.base && !r->plan_is_due;
    size_t arena = is_there ? r->arena.bytes : r->state.bytes + tsr_nets_bytes(&r->nets);
    size_t peak = r->base_bytes + arena + image_bytes(&r->set);

    return r->set.task == TSR_TASK_ENCODE ? tsr_max_size(peak, r->peak_before) : peak;
}

/* A very long prompt can take more while it is tokenized than the run itself: what making this run
 * has taken already is part of its need. What the process took before is not held against it, nor
 * what the phases before have taken when the rest is planned again. */
static size_t peak_so_far(const tsr_run *r)
{
    size_t peak = r->arena.base ? 0 : tsr_mem_peak();

    return peak > r->peak_at_start ? tsr_align_up(peak, ROUND_BYTES) : 0;
}

/* Peak of the run with its plans as they are; fills the phases. */
static size_t plans_peak(tsr_run *r)
{
    return tsr_max_size(fill_phases(r), peak_so_far(r));
}

tsr_status tsr_run_plan_least(tsr_run *r)
{
    tsr_status st = tsr_nets_plan(&r->nets, r->ctx, &r->set, 1, false); /* tells the minimums */

    if (st != TSR_OK && st != TSR_E_BUDGET)
        return st;
    tsr_err_clear(&r->ctx->err);
    TSR_TRY(tsr_nets_plan(&r->nets, r->ctx, &r->set, 0, true));
    r->minimum_budget = r->predicted_peak = plans_peak(r);
    r->keep_network = false;
    return TSR_OK;
}

/* Plans for what the budget leaves; what was planned least is known to fit. */
static tsr_status plan_within(tsr_run *r)
{
    size_t budget = r->set.budget_bytes, limit = budget - r->base_bytes - r->state.bytes;

    for (int32_t i = 0; i < MAX_TRIES && limit >= tsr_nets_minimum(&r->nets); i++) {
        size_t peak, over;

        TSR_TRY(tsr_nets_plan(&r->nets, r->ctx, &r->set, limit, false));
        peak = plans_peak(r);
        if (peak <= budget) {
            r->predicted_peak = peak;
            return TSR_OK;
        }
        /* From what was taken, not from what was allowed: a plan seldom fills its limit. */
        over = tsr_max_size(peak - budget, ROUND_BYTES);
        if (over >= tsr_nets_bytes(&r->nets))
            break;
        limit = tsr_nets_bytes(&r->nets) - over;
    }
    return tsr_run_plan_least(r);
}

static tsr_status refuse(tsr_run *r)
{
    char need[32], have[32];

    TSR_FAIL(&r->ctx->err, TSR_E_BUDGET,
             "a picture of %dx%d needs %s and the budget is %s; the smallest budget is %zu bytes",
             r->set.width, r->set.height, tsr_bytes_text(r->minimum_budget, need, sizeof need),
             tsr_bytes_text(r->set.budget_bytes, have, sizeof have), r->minimum_budget);
}

/* The fastest number of pictures together may turn out not to fit with all that goes with it; one
 * alone is known to. */
static tsr_status plan_batch_within(tsr_run *r)
{
    TSR_TRY(tsr_run_choose_batch(r, r->set.budget_bytes));
    TSR_TRY(plan_within(r));
    if (r->set.batch == 1 || r->predicted_peak <= r->set.budget_bytes)
        return TSR_OK;
    TSR_TRY(tsr_run_set_batch(r, 1));
    return plan_within(r);
}

/* Planned again, a run keeps its batch, or what fits at all: its state is in the arena. */
static tsr_status plan_least(tsr_run *r)
{
    bool again = r->arena.base != NULL;

    if (!again)
        TSR_TRY(tsr_run_set_batch(r, 1));
    TSR_TRY(tsr_run_plan_least(r));
    if (r->set.batch == 1 || r->minimum_budget <= r->set.budget_bytes || r->nets.unet.over)
        return TSR_OK;
    TSR_TRY(tsr_run_set_batch(r, 1));
    return tsr_run_plan_least(r);
}

tsr_status tsr_run_plan_memory(tsr_run *r)
{
    bool again = r->arena.base != NULL;
    size_t minimum;

    if (!r->set.budget_given)
        r->set.budget_bytes = tsr_run_ask_budget(r);
    TSR_TRY(plan_least(r));
    minimum = r->minimum_budget;
    if (minimum > r->set.budget_bytes && !r->plan_only)
        return refuse(r);
    if (!again)
        TSR_TRY(tsr_run_choose_batch(r, 0));
    TSR_TRY(tsr_nets_plan(&r->nets, r->ctx, &r->set, 0, false));
    r->predicted_peak = plans_peak(r);
    r->fastest_budget = kept_peak(r);
    if (minimum > r->set.budget_bytes)
        TSR_TRY(plan_least(r));
    else if (r->predicted_peak > r->set.budget_bytes)
        TSR_TRY(again ? plan_within(r) : plan_batch_within(r));
    r->minimum_budget = minimum; /* of one picture at a time */
    if (r->set.budget_given && !r->plan_only && peak_so_far(r) > r->set.budget_bytes) {
        r->minimum_budget = peak_so_far(r);
        return refuse(r);
    }
    r->keep_network = kept_peak(r) <= r->set.budget_bytes;
    if (r->keep_network) {
        r->predicted_peak = kept_peak(r);
        r->phases[TSR_RUN_IMAGE].predicted_bytes = r->predicted_peak;
    }
    return TSR_OK;
}

size_t tsr_run_footprint(const tsr_run *r)
{
    size_t image = r->base_bytes + r->state.bytes + image_bytes(&r->set);

    return r->keep_network ? kept_peak(r) : tsr_max_size(r->base_bytes + r->arena.bytes, image);
}

/* Before the picture is handed out: the network's memory goes back to the system where the plan
 * says so. */
void tsr_run_release_network(tsr_run *r)
{
    if (r->keep_network && (r->set.budget_given || tsr_run_ask_budget(r) >= kept_peak(r)))
        return;
    tsr_nets_unload(&r->nets);
    tsr_arena_release(&r->arena, r->state.bytes);
}

/* What the phase has used: everything outside the arena as it is now, and the arena as far as the
 * phase went. */
void tsr_run_measure(tsr_run *r, int32_t phase)
{
    size_t now = tsr_mem_resident(), outside = now > r->arena.bytes ? now - r->arena.bytes : 0;
    size_t used = outside + tsr_max_size(r->arena.high_water, r->state.bytes);

    r->phases[phase].measured_bytes = tsr_max_size(r->phases[phase].measured_bytes, used);
    r->measured_peak = tsr_max_size(r->measured_peak, tsr_mem_peak());
    r->arena_high_water = tsr_max_size(r->arena_high_water, r->arena.high_water);
    r->arena.high_water = r->state.bytes; /* the next phase starts from here */
}

tsr_status tsr_run_check_budget(tsr_run *r)
{
    char peak[32], budget[32];

    if (!r->set.budget_given || r->measured_peak <= r->set.budget_bytes ||
        r->measured_peak <= r->peak_at_start || TSR_SANITIZED)
        return TSR_OK;
    TSR_FAIL(&r->ctx->err, TSR_E_INTERNAL,
             "measured %s of memory, above the budget of %s: a bug, please report it",
             tsr_bytes_text(r->measured_peak, peak, sizeof peak),
             tsr_bytes_text(r->set.budget_bytes, budget, sizeof budget));
}
