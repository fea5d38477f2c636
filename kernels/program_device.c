/* program_device.c -- a program whose arena is a device's memory.
 *
 * What the host fills and reads, inputs and outputs, has a shadow in host memory: inputs go up when
 * a section begins, outputs come down when it ends, both on the compute queue. Weights go up
 * through the backend's slots (pinned): the thread that reads them packs a few panels into a slot
 * and queues its copy; it is held up only by a slot that is still being copied, so reading, copying
 * and computing go on side by side. Spilled rows lie in pinned host memory, where there is some,
 * else in the spill file behind a slot.
 *
 * Who waits for what is the plan's business (plan_io.c) and the same as for the host's threads:
 * two events a job, numbered by it. */
#include "kernels/program_internal.h"

#include "base/alloc.h"

/* --------------------------------------------------------------------- shadows */

static bool has_shadow(const tsr_program *p, size_t v)
{
    const tsr_value *x = &p->tape->values[v];

    return p->plan.value_item[v] && (x->kind == TSR_VALUE_INPUT || x->is_output);
}

tsr_status tsr_program_make_shadows(tsr_program *p)
{
    const tsr_tape *t = p->tape;
    size_t bytes = 0;

    p->shadow_offsets = tsr_calloc(t->n_values, sizeof *p->shadow_offsets);
    if (!p->shadow_offsets)
        TSR_FAIL(p->err, TSR_E_OOM, "no memory for the tables of the plan");
    for (size_t v = 1; v < t->n_values; v++) {
        p->shadow_offsets[v] = SIZE_MAX;
        if (!has_shadow(p, v))
            continue;
        p->shadow_offsets[v] = bytes;
        bytes += tsr_align_up(tsr_value_bytes(&t->values[v]), TSR_PLAN_ALIGN);
    }
    p->staging_offset = bytes;
    p->shadow = tsr_calloc(1, bytes + p->plan.staging_bytes + 1);
    if (!p->shadow)
        TSR_FAIL(p->err, TSR_E_OOM, "no memory for inputs and outputs of the network");
    return TSR_OK;
}

void *tsr_program_shadow(const tsr_program *p, tsr_val v)
{
    return p->shadow_offsets[v] == SIZE_MAX ? NULL : p->shadow + p->shadow_offsets[v];
}

void tsr_program_send_inputs(tsr_program *p, bool loop)
{
    for (size_t v = 1; v < p->tape->n_values; v++) {
        const tsr_value *x = &p->tape->values[v];
        if (x->kind == TSR_VALUE_INPUT && has_shadow(p, v) &&
            (!loop || x->last >= p->tape->loop_begin))
            p->backend->device->upload(p->backend, TSR_QUEUE_COMPUTE,
                                       tsr_program_item(p, p->plan.value_item[v]),
                                       tsr_program_shadow(p, (tsr_val)v), tsr_value_bytes(x));
    }
}

void tsr_program_take_outputs(tsr_program *p, bool loop)
{
    for (size_t v = 1; v < p->tape->n_values; v++) {
        const tsr_value *x = &p->tape->values[v];
        if (x->kind != TSR_VALUE_INPUT && has_shadow(p, v) &&
            loop == (x->first >= p->tape->loop_begin))
            p->backend->device->download(
                p->backend, TSR_QUEUE_COMPUTE, tsr_program_shadow(p, (tsr_val)v),
                tsr_program_item(p, p->plan.value_item[v]), tsr_value_bytes(x));
    }
}

/* ------------------------------------------------------------------------ events */

int32_t tsr_program_job_done(int32_t i)
{
    return 2 * i + 1;
}

int32_t tsr_program_job_fence(int32_t i)
{
    return 2 * i + 2;
}

int32_t tsr_program_events(const tsr_program *p)
{
    return 2 * (int32_t)p->plan.n_jobs + 3;
}

/* ----------------------------------------------------------------------- weights */

enum { SLOT_EVENT = 0 }; /* of the thread that moves things */

static void *next_slot(const tsr_program *p, size_t *bytes, tsr_err *err)
{
    void *slot = p->backend->device->slot(p->backend, bytes);

    if (!slot)
        (void)p->backend->device->finish(p->backend, err); /* tells why */
    return slot;
}

/* The last channel of a part that begins at c and fits into `bytes`. */
static int32_t end_of_part(const tsr_program *p, const tsr_weight *w, int32_t c, int32_t end,
                           size_t bytes)
{
    const tsr_backend *b = p->backend;
    const tsr_op *op = &p->tape->ops[w->first];
    int32_t panel = b->panel_channels(b, op, w);
    size_t begin = b->packed_offset(b, op, w, c);
    size_t one = b->packed_offset(b, op, w, tsr_min_i32(c + panel, end)) - begin;
    size_t panels = one ? bytes / one : 0;

    panels = tsr_min_size(panels, (size_t)tsr_div_up(end - c, panel));
    return tsr_min_i32(c + (int32_t)panels * panel, end);
}

tsr_status tsr_program_send_weight(tsr_program *p, int32_t index, const int32_t c[2], void *dst,
                                   tsr_pool *pool, uint64_t *bytes, tsr_err *err)
{
    const tsr_backend *b = p->backend;
    const tsr_weight *w = &p->tape->weights[index];
    const tsr_op *op = &p->tape->ops[w->first];
    unsigned char *to = dst;

    for (int32_t part[2] = {c[0], c[0]}; part[0] < c[1]; part[0] = part[1]) {
        size_t slot_bytes, n;
        void *slot = next_slot(p, &slot_bytes, err);

        if (!slot)
            return TSR_E_DEVICE;
        part[1] = end_of_part(p, w, part[0], c[1], slot_bytes);
        if (part[1] <= part[0])
            TSR_FAIL(err, TSR_E_INTERNAL, "%s: a panel is larger than %zu bytes", w->name,
                     slot_bytes);
        TSR_TRY(tsr_program_read_weight(p, index, part, slot, pool, bytes, err));
        n = b->packed_offset(b, op, w, part[1]) - b->packed_offset(b, op, w, part[0]);
        b->device->upload(b, TSR_QUEUE_COPY, to, slot, n);
        to += n;
    }
    return TSR_OK;
}

/* ------------------------------------------------------------------------ spilling */

tsr_status tsr_program_send_spilled(tsr_program *p, void *dst, size_t at, size_t bytes,
                                    tsr_err *err)
{
    const tsr_device *d = p->backend->device;
    unsigned char *to = dst;

    if (p->spill->memory) {
        d->upload(p->backend, TSR_QUEUE_COPY, dst, p->spill->memory + at, bytes);
        return TSR_OK;
    }
    for (size_t n; bytes > 0; at += n, to += n, bytes -= n) {
        size_t slot_bytes;
        void *slot = next_slot(p, &slot_bytes, err);
        if (!slot)
            return TSR_E_DEVICE;
        n = tsr_min_size(bytes, slot_bytes);
        TSR_TRY(tsr_spill_read(p->spill, at, slot, n, err));
        d->upload(p->backend, TSR_QUEUE_COPY, to, slot, n);
    }
    return TSR_OK;
}

tsr_status tsr_program_take_spilled(tsr_program *p, const void *src, size_t at, size_t bytes,
                                    tsr_err *err)
{
    const tsr_device *d = p->backend->device;
    const unsigned char *from = src;

    if (p->spill->memory) {
        d->download(p->backend, TSR_QUEUE_COPY, p->spill->memory + at, src, bytes);
        return TSR_OK;
    }
    for (size_t n; bytes > 0; at += n, from += n, bytes -= n) {
        size_t slot_bytes;
        void *slot = next_slot(p, &slot_bytes, err);
        if (!slot)
            return TSR_E_DEVICE;
        n = tsr_min_size(bytes, slot_bytes);
        d->download(p->backend, TSR_QUEUE_COPY, slot, from, n);
        d->record(p->backend, TSR_QUEUE_COPY, SLOT_EVENT);
        d->wait(p->backend, SLOT_EVENT);
        TSR_TRY(tsr_spill_write(p->spill, at, slot, n, err));
    }
    return TSR_OK;
}
