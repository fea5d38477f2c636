/* program_load.c -- weights from their source into their places, a few panels at a time.
 *
 * Reading is sequential, in the order of the tape, about a mebibyte a read: raw bytes go to
 * the staging place, where tasks widen them to float32, check that they are numbers that the
 * computing type can hold, and let the backend pack them (halves as they are, where it can). A task
 * has whole panels, so tasks write disjoint parts of the packed weight. A file of float32 is read
 * straight into the float32 half of the staging place; a weight that its file has packed already
 * goes straight to its place.
 *
 * Resident weights are loaded by all threads before the run; a streamed piece of channels by the
 * I/O thread alone, through the same staging place, while the others compute. A piece of a GEGLU
 * weight has the rows of both halves. */
#include "kernels/program_internal.h"

#include <stdatomic.h>
#include <string.h>

enum { READ_TARGET = 1 << 20 };   /* staging bytes that one read aims at */
enum { TASK_ELEMENTS = 1 << 14 }; /* about 20 us of work: less is not worth a wake-up */

tsr_panels tsr_plan_panels(const tsr_tape *t, const tsr_backend *b, const tsr_weight *w)
{
    const tsr_op *op = &t->ops[w->first];
    tsr_panels s = {.n_rows = w->dims[0], .row_elements = 1};
    size_t file_size = w->file_dtype == TSR_F32 ? 0 : tsr_dtype_size(w->file_dtype);
    size_t row_bytes, panels;

    for (int32_t i = 1; i < w->n_dims; i++)
        s.row_elements *= (size_t)w->dims[i];
    s.panel_rows = b->panel_rows(b, op, w);
    row_bytes = s.row_elements * (file_size + sizeof(float));
    panels = tsr_max_size(1, READ_TARGET / (row_bytes * (size_t)s.panel_rows));
    panels = tsr_min_size(panels, (size_t)tsr_div_up(s.n_rows, s.panel_rows));
    s.rows_a_read = tsr_min_i32((int32_t)panels * s.panel_rows, s.n_rows);
    s.raw_bytes = tsr_align_up(s.row_elements * (size_t)s.rows_a_read * file_size, TSR_PLAN_ALIGN);
    s.staging_bytes = s.raw_bytes + s.row_elements * (size_t)s.rows_a_read * sizeof(float);
    return s;
}

/* Magnitudes, as bits, that a float32 must stay below. */
enum { F32_LIMIT = 0x7F800000, F16_LIMIT = 0x477FF000 /* 65520: rounds to infinity */ };

typedef struct load_job {
    tsr_program *p;
    const tsr_weight *w;
    const tsr_op *op;
    tsr_panels panels;
    int32_t c0;               /* first channel of the piece */
    int32_t row0, n_rows;     /* of this read */
    int32_t rows_a_task;      /* whole panels */
    const unsigned char *raw; // [n_rows,row_elements] in the file's type; NULL: already widened
    float *rows;              // [n_rows,row_elements]
    void *packed;
    tsr_pool *pool;  /* NULL: alone */
    uint64_t *bytes; /* counted here */
    tsr_err *err;
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

static bool halves_are_finite(const uint16_t *x, size_t n)
{
    enum { EXPONENT = 0x7C00 };
    uint16_t most = 0;

    for (size_t i = 0; i < n; i++) {
        uint16_t e = x[i] & EXPONENT;
        most = e > most ? e : most;
    }
    return most < EXPONENT;
}

/* Halves that stay halves need not be widened. False: they do. */
static bool pack_halves(load_job *job, const void *raw, int32_t row, int32_t n)
{
    const tsr_backend *b = job->p->backend;
    size_t count = (size_t)n * job->panels.row_elements;

    if (job->w->file_dtype != TSR_F16 || job->w->dtype != TSR_F16 || !b->pack_halves)
        return false;
    if (!halves_are_finite(raw, count))
        atomic_store_explicit(&job->broken, true, memory_order_relaxed);
    return b->pack_halves(b, job->op, job->w, raw, job->row0 + row, n, job->c0, job->packed);
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
    const unsigned char *raw =
        job->raw ? job->raw + skip * tsr_dtype_size(job->w->file_dtype) : NULL;

    (void)thread;
    if (raw && pack_halves(job, raw, row, n))
        return;
    if (raw)
        tsr_to_f32(job->rows + skip, raw, job->w->file_dtype, count);
    if (largest_magnitude(job->rows + skip, count) >= limit)
        atomic_store_explicit(&job->broken, true, memory_order_relaxed);
    b->pack(b, job->op, job->w, job->rows + skip, job->row0 + row, n, job->c0, job->packed);
}

/* One read and its packing. */
static tsr_status load_panels(load_job *job, unsigned char *staging)
{
    const tsr_weight *w = job->w;
    size_t size = tsr_dtype_size(w->file_dtype), row = job->panels.row_elements * size;
    size_t bytes = row * (size_t)job->n_rows;
    bool widened = job->panels.raw_bytes == 0;
    int32_t n_tasks = tsr_div_up(job->n_rows, job->rows_a_task);

    job->rows = (float *)(void *)(staging + job->panels.raw_bytes);
    job->raw = widened ? NULL : staging;
    TSR_TRY(w->source->read(w->source, w->tensor, row * (size_t)job->row0,
                            widened ? (void *)job->rows : staging, bytes, job->err));
    *job->bytes += bytes;
    if (job->pool)
        tsr_pool_run(job->pool, n_tasks, pack_rows, job);
    for (int32_t i = 0; !job->pool && i < n_tasks; i++)
        pack_rows(job, i, 0);
    if (atomic_load_explicit(&job->broken, memory_order_relaxed))
        TSR_FAIL(job->err, TSR_E_MODEL,
                 "%s: the tensor has values that are no numbers or too large "
                 "for %s",
                 w->name, tsr_dtype_name(w->dtype));
    return TSR_OK;
}

/* File rows [begin,end). */
static tsr_status load_rows(load_job *job, int32_t begin, int32_t end)
{
    const tsr_program *p = job->p;
    const tsr_item *staging = &p->plan.items[p->plan.staging_item];

    for (job->row0 = begin; job->row0 < end; job->row0 += job->n_rows) {
        job->n_rows = tsr_min_i32(job->panels.rows_a_read, end - job->row0);
        TSR_TRY(load_panels(job, p->arena->base + p->arena_base + staging->offset));
    }
    return TSR_OK;
}

/* Channels that the file has packed already. */
static tsr_status load_packed(const load_job *job, const int32_t c[2], bool all)
{
    const tsr_weight *w = job->w;
    const tsr_backend *b = job->p->backend;
    size_t begin = all ? 0 : b->packed_offset(b, job->op, w, c[0]);
    size_t end = all ? b->packed_bytes(b, job->op, w) : b->packed_offset(b, job->op, w, c[1]);

    TSR_TRY(w->source->read(w->source, w->tensor, begin, job->packed, end - begin, job->err));
    *job->bytes += end - begin;
    return TSR_OK;
}

tsr_status tsr_program_read_weight(tsr_program *p, int32_t index, const int32_t c[2], void *dst,
                                   tsr_pool *pool, uint64_t *bytes, tsr_err *err)
{
    const tsr_weight *w = &p->tape->weights[index];
    load_job job = {
        .p = p, .w = w, .pool = pool, .packed = dst, .c0 = c[0], .bytes = bytes, .err = err};
    bool geglu, all;
    int32_t channels;
    size_t panels;

    if (!w->source)
        TSR_FAIL(err, TSR_E_INTERNAL, "%s: the tensor has no source", w->name);
    job.op = &p->tape->ops[w->first];
    geglu = w->kind == TSR_WEIGHT_MATRIX && job.op->kind == TSR_OP_LINEAR && job.op->u.linear.geglu;
    channels = geglu ? w->dims[0] / 2 : w->dims[0];
    all = c[0] == 0 && c[1] == channels;
    if (w->source->packed)
        return load_packed(&job, c, all);
    job.panels = tsr_plan_panels(p->tape, p->backend, w);
    panels = TASK_ELEMENTS / (job.panels.row_elements * (size_t)job.panels.panel_rows);
    job.rows_a_task = (int32_t)tsr_min_size(tsr_max_size(1, panels) * (size_t)job.panels.panel_rows,
                                            (size_t)INT32_MAX / 2);
    atomic_init(&job.broken, false);
    if (all)
        return load_rows(&job, 0, w->dims[0]);
    TSR_TRY(load_rows(&job, c[0], c[1]));
    return geglu ? load_rows(&job, channels + c[0], channels + c[1]) : TSR_OK;
}

tsr_status tsr_program_load(tsr_program *p)
{
    if (!p->arena)
        TSR_FAIL(p->err, TSR_E_INTERNAL, "weights are loaded before the program has memory");
    (void)tsr_program_item(p, p->plan.staging_item);
    for (size_t i = 1; i < p->tape->n_weights; i++) {
        const tsr_weight *w = &p->tape->weights[i];
        int32_t item = p->plan.weight_item[i];
        bool geglu;

        if (!item)
            continue;
        geglu = p->tape->ops[w->first].kind == TSR_OP_LINEAR && w->kind == TSR_WEIGHT_MATRIX &&
                p->tape->ops[w->first].u.linear.geglu;
        TSR_TRY(tsr_program_read_weight(
            p, (int32_t)i, (int32_t[]){0, geglu ? w->dims[0] / 2 : w->dims[0]},
            tsr_program_item(p, item), p->pool, &p->bytes_read, p->err));
    }
    return TSR_OK;
}
