/* report.c -- a run as numbers: for programs (tsr_run_get_info) and as JSON with the keys of
 * cli.md. */
#include "pipeline/pipeline_internal.h"

#include <stdio.h>

#include "base/num.h"
#include "memory/budget.h"

void tsr_run_get_info(const tsr_run *r, tsr_run_info *info)
{
    const tsr_settings *s = &r->set;

    *info = (tsr_run_info){
        .width = s->width,
        .height = s->height,
        .frames = 1,
        .steps = s->steps,
        .n_pictures = s->n_pictures,
        .batch = s->batch,
        .seed = s->seed,
        .guidance = s->guidance,
        .scheduler = tsr_sched_config_name(s->sched_cfg),
        .sigmas = tsr_sched_config_sigmas(s->sched_cfg),
        .precision = tsr_dtype_precision(s->dtype),
        .model_hash = r->model_hash_text,
        .plan_hash = r->plan_hash_text,
        .budget_bytes = s->budget_bytes,
        .predicted_peak_bytes = r->predicted_peak,
        .measured_peak_bytes = r->measured_peak,
        .arena_bytes = r->arena.base ? tsr_max_size(r->arena.bytes, r->arena_high_water)
                                     : r->state.bytes + tsr_nets_bytes(&r->nets),
        .times_replanned = r->times_replanned,
        .arena_high_water_bytes = r->arena_high_water,
        .minimum_budget_bytes = r->kept_by_budget ? r->kept_by_budget : r->minimum_budget,
        .fastest_budget_bytes = r->fastest_budget,
        .seconds_total = r->seconds_total,
        .steps_per_second = r->denoise_seconds > 0 ? r->denoise_calls / r->denoise_seconds : 0,
        .allocations_while_running = r->allocations,
        .bytes_streamed = r->bytes_streamed,
        .bytes_spilled = r->bytes_spilled,
        .io_core_seconds = r->io_core_seconds,
        .n_phases = TSR_MAX_PHASES,
        .phases = r->phases,
    };
}

static void write_phases(tsr_buf *b, const tsr_run *r, bool measured)
{
    const char *comma = "";

    tsr_buf_puts(b, "  \"phases\": [");
    for (int32_t i = 0; i < TSR_MAX_PHASES; i++) {
        const tsr_phase_info *p = &r->phases[i];
        if (!p->predicted_bytes) /* the task has it not */
            continue;
        tsr_buf_printf(
            b,
            "%s\n    {\"name\": \"%s\", \"predicted_bytes\": %zu, \"weight_bytes\": %zu, "
            "\"activation_bytes\": %zu, \"work_bytes\": %zu, \"state_bytes\": %zu, \"gflop\": "
            "%.3f, "
            "\"predicted_seconds\": %.3f, \"calls\": %d, \"streamed_bytes\": %llu, "
            "\"spilled_bytes\": %llu",
            comma, p->name, p->predicted_bytes, p->weight_bytes, p->activation_bytes, p->work_bytes,
            p->state_bytes, 1e-9 * p->flops, p->predicted_seconds, p->n_calls,
            (unsigned long long)p->streamed_bytes, (unsigned long long)p->spilled_bytes);
        comma = ",";
        if (measured)
            tsr_buf_printf(b,
                           ", \"measured_bytes\": %zu, \"seconds\": %.6f, "
                           "\"seconds_waiting_for_weights\": %.6f",
                           p->measured_bytes, p->seconds, p->seconds_waiting_for_weights);
        tsr_buf_puts(b, "}");
    }
    tsr_buf_puts(b, "\n  ]");
}

static void write_head(tsr_buf *b, const tsr_run *r, const tsr_run_info *i)
{
    static const char *const tasks[] = {"picture", "decode", "encode"};

    tsr_buf_printf(b, "{\n  \"width\": %d,\n  \"height\": %d,\n  \"frames\": %d,\n", i->width,
                   i->height, i->frames);
    tsr_buf_printf(b, "  \"task\": \"%s\",\n", tasks[r->set.task]);
    if (r->set.task == TSR_TASK_PICTURE)
        tsr_buf_printf(b,
                       "  \"seed\": %llu,\n  \"steps\": %d,\n  \"scheduler\": \"%s\",\n  "
                       "\"sigmas\": \"%s\",\n  \"guidance\": %.9g,\n",
                       (unsigned long long)i->seed, i->steps, i->scheduler, i->sigmas,
                       (double)i->guidance);
    tsr_buf_printf(b,
                   "  \"precision\": \"%s\",\n  \"backend\": \"%s\",\n  \"tier\": \"%s\",\n  "
                   "\"threads\": %d,\n",
                   i->precision, r->ctx->backend->name, r->ctx->backend->tier,
                   tsr_pool_threads(r->ctx->pool));
    if (r->plan_only)
        tsr_buf_puts(
            b, "  \"model_hash\": null,\n"); /* a hash of the content; a plan reads none of it */
    else
        tsr_buf_printf(b, "  \"model_hash\": \"%s\",\n", i->model_hash);
    tsr_buf_printf(b, "  \"plan_hash\": \"%s\",\n  \"pictures\": %d,\n  \"batch\": %d,\n",
                   i->plan_hash, i->n_pictures, i->batch);
    tsr_buf_printf(
        b, "  \"budget_bytes\": %zu,\n  \"predicted_peak_bytes\": %zu,\n  \"arena_bytes\": %zu,\n",
        i->budget_bytes, i->predicted_peak_bytes, i->arena_bytes);
    tsr_buf_printf(b, "  \"minimum_budget_bytes\": %zu,\n  \"fastest_budget_bytes\": %zu,\n",
                   i->minimum_budget_bytes, i->fastest_budget_bytes);
    if (tsr_run_device(r))
        tsr_buf_printf(b,
                       "  \"device\": \"%s\",\n  \"context_bytes\": %zu,\n  "
                       "\"predicted_host_peak_bytes\": %zu,\n",
                       tsr_run_device(r)->name, r->base_bytes, r->host_peak);
    tsr_buf_puts(b, "  \"degradations\": ");
    tsr_record_degradations(b, r);
    tsr_buf_puts(b, ",\n");
}

tsr_status tsr_run_report(const tsr_run *run, bool measured, char **json)
{
    tsr_run *r = (tsr_run *)run; /* errors go to its context; the run itself does not change */
    tsr_run_info i;
    tsr_buf b = {0};
    int32_t width = 0, height = 0;

    tsr_run_get_info(r, &i);
    write_head(&b, r, &i);
    if (measured) {
        tsr_buf_printf(&b,
                       "  \"measured_peak_bytes\": %zu,\n  \"arena_high_water_bytes\": %zu,\n"
                       "  \"allocations_while_running\": %llu,\n  \"times_replanned\": %d,\n",
                       tsr_run_device(r) ? r->measured_peak : tsr_mem_peak(),
                       i.arena_high_water_bytes, (unsigned long long)i.allocations_while_running,
                       i.times_replanned);
        tsr_buf_printf(&b,
                       "  \"seconds_total\": %.6f,\n  \"steps_per_second\": %.6f,\n  "
                       "\"bytes_streamed\": %llu,\n  \"bytes_spilled\": %llu,\n  "
                       "\"io_core_seconds\": %.6f,\n",
                       i.seconds_total, i.steps_per_second, (unsigned long long)i.bytes_streamed,
                       (unsigned long long)i.bytes_spilled, i.io_core_seconds);
        if (tsr_run_device(r))
            tsr_buf_printf(&b, "  \"measured_host_peak_bytes\": %zu,\n", tsr_mem_peak());
    } else {
        TSR_TRY(tsr_run_largest(r, &width, &height));
        tsr_buf_printf(
            &b, "  \"largest_width\": %d,\n  \"largest_height\": %d,\n  \"largest_frames\": 1,\n",
            width, height);
    }
    write_phases(&b, r, measured);
    tsr_buf_puts(&b, "\n}\n");
    if (!tsr_buf_ok(&b)) {
        tsr_buf_free(&b);
        TSR_FAIL(&r->ctx->err, TSR_E_OOM, "no memory for the report");
    }
    *json = b.data;
    return TSR_OK;
}
