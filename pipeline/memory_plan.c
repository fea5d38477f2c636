/* memory_plan.c -- what the process will need, said before it runs and measured while it does.
 *
 * Peak resident set of a phase = base + state + its network's part of the arena. `base` is
 * everything else: code and libraries (a constant, measured), the heap as counted by base/alloc
 * (vocabularies, tapes, plans), and the threads' stacks. It is a sum of known parts and not a
 * reading of the resident set, so that the same run always has the same minimum budget; inside a
 * program that already uses more, the reading counts.
 *
 * The picture's own phase ("image") is the encoder's copies of it in the caller: the raw rows with
 * their filter bytes, the filtered ones, and the compressed file. Two plans differ in it: the
 * faster one keeps the network's part of the arena beside those copies, the smaller one gives it
 * back to the system first. */
#include "pipeline/pipeline_internal.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/num.h"
#include "memory/budget.h"

/* Code, libraries, stdio and the kernel's own pages of a process without an arena; see
 * docs/memory.md for how it is measured. */
#define BASE_BYTES ((size_t)4 << 20)
#define THREAD_BYTES ((size_t)64 << 10) /* touched stack of a worker */
#define ROUND_BYTES ((size_t)64 << 10)

static size_t base_bytes(const tsr_run *r)
{
    size_t threads = (size_t)tsr_pool_threads(r->ctx->pool);
    size_t known = BASE_BYTES + tsr_alloc_live() + threads * THREAD_BYTES;
    size_t now = tsr_mem_resident();

    return tsr_align_up(tsr_max_size(known, now), ROUND_BYTES);
}

/* Copies of the picture that a PNG encoder makes: filtered rows (two), raw rows, and the file at
 * its largest. */
static size_t image_bytes(const tsr_settings *s)
{
    size_t raw = 3 * (size_t)s->width * (size_t)s->height;

    return 4 * raw + 8 * (size_t)s->height + ((size_t)1 << 20);
}

static void fill_phase(tsr_phase_info *p, const char *name, const tsr_program *program, size_t base,
                       size_t state)
{
    p->name = name;
    p->state_bytes = state;
    if (program && base + state + tsr_program_bytes(program) > p->predicted_bytes) {
        p->predicted_bytes = base + state + tsr_program_bytes(program);
        p->weight_bytes = program->layout.class_bytes[TSR_ITEM_WEIGHT];
        p->activation_bytes = program->layout.class_bytes[TSR_ITEM_ACTIVATION];
        p->work_bytes = program->layout.class_bytes[TSR_ITEM_WORK];
    }
}

static double net_flops(const tsr_program *p, int32_t n_steps)
{
    return tsr_program_flops(p, false) + n_steps * tsr_program_flops(p, true);
}

/* Phases of the smaller plan; returns its peak. */
static size_t fill_phases(tsr_run *r)
{
    const tsr_nets *n = &r->nets;
    size_t base = r->base_bytes, state = r->state.bytes, peak = 0;
    tsr_phase_info *p = r->phases;

    for (int32_t i = 0; i < n->n_text; i++) {
        fill_phase(&p[TSR_RUN_TEXT], "text", &n->text[i].net.program, base, state);
        p[TSR_RUN_TEXT].flops += net_flops(&n->text[i].net.program, 1);
    }
    fill_phase(&p[TSR_RUN_DENOISE], "denoise", &n->unet.program, base, state);
    p[TSR_RUN_DENOISE].flops = net_flops(&n->unet.program, n->n_calls);
    for (int32_t i = 0; i < n->n_vae; i++)
        fill_phase(&p[TSR_RUN_DECODE], "decode", &n->vae[i].program, base, state);
    p[TSR_RUN_DECODE].flops = net_flops(&n->vae[0].program, 1);
    fill_phase(&p[TSR_RUN_IMAGE], "image", NULL, base, state);
    p[TSR_RUN_IMAGE].predicted_bytes = base + state + image_bytes(&r->set);
    p[TSR_RUN_IMAGE].work_bytes = image_bytes(&r->set);
    for (int32_t i = 0; i < TSR_MAX_PHASES; i++)
        peak = tsr_max_size(peak, p[i].predicted_bytes);
    return peak;
}

tsr_status tsr_run_plan_memory(tsr_run *r)
{
    size_t kept;
    char need[32], have[32];

    r->base_bytes = base_bytes(r);
    r->minimum_budget = fill_phases(r);
    kept = r->base_bytes + r->state.bytes + tsr_nets_bytes(&r->nets) + image_bytes(&r->set);
    r->fastest_budget = kept;
    if (!r->set.budget_given)
        r->set.budget_bytes = tsr_budget_default();
    r->keep_network = kept <= r->set.budget_bytes;
    if (r->keep_network)
        r->phases[TSR_RUN_IMAGE].predicted_bytes = kept;
    r->predicted_peak = r->keep_network ? kept : r->minimum_budget;
    if (r->predicted_peak <= r->set.budget_bytes || r->plan_only)
        return TSR_OK;
    TSR_FAIL(&r->ctx->err, TSR_E_BUDGET,
             "a picture of %dx%d needs %s and the budget is %s; the smallest budget is %zu bytes "
             "(or make the "
             "picture smaller)",
             r->set.width, r->set.height, tsr_bytes_text(r->minimum_budget, need, sizeof need),
             tsr_bytes_text(r->set.budget_bytes, have, sizeof have), r->minimum_budget);
}

/* Before the picture is handed out: the network's memory goes back to the system where the plan
 * says so. */
void tsr_run_release_network(tsr_run *r)
{
    if (r->keep_network)
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

    if (!r->set.budget_given || r->measured_peak <= r->set.budget_bytes || TSR_SANITIZED)
        return TSR_OK;
    TSR_FAIL(&r->ctx->err, TSR_E_INTERNAL,
             "measured %s of memory, above the budget of %s: a bug, please report it",
             tsr_bytes_text(r->measured_peak, peak, sizeof peak),
             tsr_bytes_text(r->set.budget_bytes, budget, sizeof budget));
}

/* Predicted peak of the same run at another size; 0 when it cannot be planned. */
static size_t peak_at(tsr_run *r, int32_t width, int32_t height)
{
    const tsr_vae_config *vae = &r->model->vae_cfg;
    tsr_settings s = r->set; /* shares the strings; only sizes change */
    tsr_nets nets = {0};
    tsr_state state;
    size_t bytes = 0;

    s.width = width;
    s.height = height;
    s.net_width = tsr_div_up(width, vae->factor) * vae->factor;
    s.net_height = tsr_div_up(height, vae->factor) * vae->factor;
    s.latent_w = s.net_width / vae->factor;
    s.latent_h = s.net_height / vae->factor;
    if (tsr_nets_make(&nets, r->ctx, r->model, &s, r->nets.n_calls) == TSR_OK) {
        tsr_state_layout(&state, r->model, &s);
        bytes = tsr_max_size(tsr_nets_bytes(&nets), image_bytes(&s)) + state.bytes + r->base_bytes +
                tsr_sched_state_bytes(s.sched_cfg, tsr_latent_count(&s));
    }
    tsr_nets_free(&nets);
    return bytes;
}

tsr_status tsr_run_largest(tsr_run *r, int32_t *width, int32_t *height)
{
    int32_t f = r->model->vae_cfg.factor, low = 0, high = TSR_MAX_SIZE / f;
    int32_t longer = tsr_max_i32(r->set.width, r->set.height);

    /* Bisection over the longer side in latents; the need grows with the size. */
    while (low < high) {
        int32_t mid = (low + high + 1) / 2;
        int32_t w = tsr_max_i32((int32_t)((int64_t)mid * r->set.width / longer), 1) * f;
        int32_t h = tsr_max_i32((int32_t)((int64_t)mid * r->set.height / longer), 1) * f;
        size_t bytes = peak_at(r, w, h);

        if (bytes > 0 && bytes <= r->set.budget_bytes) {
            low = mid;
            *width = w;
            *height = h;
        } else {
            high = mid - 1;
        }
    }
    if (low == 0)
        *width = *height = 0;
    return TSR_OK;
}
