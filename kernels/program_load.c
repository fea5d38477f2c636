/* program_load.c -- weights from their source into their places, a few panels at a time.
 *
 * Reading is sequential, in the order of the tape, about a mebibyte a read: raw bytes go to
 * the staging place, where tasks widen them to float32, check that they are numbers that the
 * computing type can hold, and let the backend pack them. A task has whole panels, so tasks write
 * disjoint parts of the packed weight. A file of float32 is read straight into the
 * float32 half of the staging place. */
#include "kernels/program_internal.h"

#include <stdatomic.h>
#include <string.h>

enum { TASK_ELEMENTS = 1 << 14 }; /* about 20 us of work: less is not worth a wake-up */

/* Magnitudes, as bits, that a float32 must stay below. */
enum { F32_LIMIT = 0x7F800000, F16_LIMIT = 0x477FF000 /* 65520: rounds to infinity */ };

typedef struct load_job {
    const tsr_program *p;
    const tsr_weight *w;
    const tsr_op *op;
    tsr_panels panels;
    int32_t row0, n_rows;     /* of this read */
    int32_t rows_a_task;      /* whole panels */
    const unsigned char *raw; // [n_rows,row_elements] in the file's type; NULL: already widened
    float *rows;              // [n_rows,row_elements]
    void *packed;
    atomic_bool broken;
} load_job;

static uint32_t largest_magnitude(const float *x, size_t n)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        u &= 0x7FFFFFFF;
        most = u > most ? u : most;
    }
    return most;
}

static void pack_rows(void *arg, int32_t task, int32_t thread)
{
    load_job *job = arg;
    const tsr_backend *b = job->p->backend;
    int32_t row = task * job->rows_a_task;
    int32_t n = tsr_min_i32(job->rows_a_task, job->n_rows - row);
    size_t skip = (size_t)row * job->panels.row_elements;
    size_t count = (size_t)n * job->panels.row_elements;
    uint32_t limit = job->w->dtype == TSR_F16 ? F16_LIMIT : F32_LIMIT;

    (void)thread;
    if (job->raw)
        tsr_to_f32(job->rows + skip, job->raw + skip * tsr_dtype_size(job->w->file_dtype),
                   job->w->file_dtype, count);
    if (largest_magnitude(job->rows + skip, count) >= limit)
        atomic_store_explicit(&job->broken, true, memory_order_relaxed);
    b->pack(b, job->op, job->w, job->rows + skip, job->row0 + row, n, 0, job->packed);
}

/* One read and its packing. */
static tsr_status load_panels(tsr_program *p, load_job *job, unsigned char *staging)
{
    const tsr_weight *w = job->w;
    size_t size = tsr_dtype_size(w->file_dtype), row = job->panels.row_elements * size;
    size_t bytes = row * (size_t)job->n_rows;
    bool widened = job->panels.raw_bytes == 0;

    job->rows = (float *)(staging + job->panels.raw_bytes);
    job->raw = widened ? NULL : staging;
    TSR_TRY(w->source->read(w->source, w->tensor, row * (size_t)job->row0,
                            widened ? (void *)job->rows : staging, bytes, p->err));
    p->bytes_read += bytes;
    tsr_pool_run(p->pool, tsr_div_up(job->n_rows, job->rows_a_task), pack_rows, job);
    if (atomic_load_explicit(&job->broken, memory_order_relaxed))
        TSR_FAIL(p->err, TSR_E_MODEL,
                 "%s: the tensor has values that are no numbers or too large "
                 "for %s",
                 w->name, tsr_dtype_name(w->dtype));
    return TSR_OK;
}

/* A weight that its file has packed already. */
static tsr_status load_packed(tsr_program *p, const tsr_weight *w, const tsr_place *place)
{
    size_t bytes = p->backend->packed_bytes(p->backend, &p->tape->ops[w->first], w);

    TSR_TRY(w->source->read(w->source, w->tensor, 0, tsr_program_at(p, place->offset, place->bytes),
                            bytes, p->err));
    p->bytes_read += bytes;
    return TSR_OK;
}

static tsr_status load_weight(tsr_program *p, size_t index)
{
    const tsr_weight *w = &p->tape->weights[index];
    const tsr_place *place = &p->weights[index];
    load_job job = {.p = p, .w = w};
    size_t panel_elements, panels;

    if (w->first < 0)
        return TSR_OK;
    if (!w->source)
        TSR_FAIL(p->err, TSR_E_INTERNAL, "%s: the tensor has no source", w->name);
    if (w->source->packed)
        return load_packed(p, w, place);
    job.op = &p->tape->ops[w->first];
    job.panels = tsr_program_panels(p, w);
    job.packed = tsr_program_at(p, place->offset, place->bytes);
    panel_elements = job.panels.row_elements * (size_t)job.panels.panel_rows;
    panels = tsr_max_size(1, TASK_ELEMENTS / panel_elements);
    job.rows_a_task =
        (int32_t)tsr_min_size(panels * (size_t)job.panels.panel_rows, (size_t)INT32_MAX / 2);
    atomic_init(&job.broken, false);
    for (job.row0 = 0; job.row0 < w->dims[0]; job.row0 += job.n_rows) {
        job.n_rows = tsr_min_i32(job.panels.rows_a_read, w->dims[0] - job.row0);
        TSR_TRY(
            load_panels(p, &job, tsr_program_at(p, p->staging_offset, job.panels.staging_bytes)));
    }
    return TSR_OK;
}

tsr_status tsr_program_load(tsr_program *p)
{
    if (!p->arena)
        TSR_FAIL(p->err, TSR_E_INTERNAL, "weights are loaded before the program has memory");
    for (size_t i = 1; i < p->tape->n_weights; i++)
        TSR_TRY(load_weight(p, i));
    return TSR_OK;
}
