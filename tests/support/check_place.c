/* check_place.c -- a check's op in memory: operands, packed weights and output, each between
 * guards. See check_internal.h. */
#include "tests/support/check_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

check_guarded check_guarded_make(size_t bytes)
{
    check_guarded g = {NULL, bytes};
    unsigned char *p = aligned_alloc(64, tsr_align_up(bytes, 64) + 2 * CHECK_GUARD);

    memset(p, CHECK_GUARD_BYTE, tsr_align_up(bytes, 64) + 2 * CHECK_GUARD);
    g.data = p + CHECK_GUARD;
    return g;
}

void check_guarded_free(check_guarded *g)
{
    if (g->data)
        free(g->data - CHECK_GUARD);
    g->data = NULL;
}

bool check_guards_hold(const check_guarded *g)
{
    for (size_t i = 0; i < CHECK_GUARD; i++)
        if (g->data[-1 - (ptrdiff_t)i] != CHECK_GUARD_BYTE ||
            g->data[g->bytes + i] != CHECK_GUARD_BYTE)
            return false;
    return true;
}

static tsr_tensor tensor(const tsr_value *x, void *data)
{
    tsr_tensor t = {.data = data,
                    .n = x->n,
                    .h = x->h,
                    .w = x->w,
                    .c = x->c,
                    .n_rows = x->h,
                    .dtype = x->dtype};

    t.row_stride = (size_t)x->w * (size_t)x->c * tsr_dtype_size(x->dtype);
    t.entry_stride = t.row_stride * (size_t)x->h;
    return t;
}

void check_store(void *dst, tsr_dtype dtype, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (dtype == TSR_U8)
            ((uint8_t *)dst)[i] = (uint8_t)src[i];
        else if (dtype == TSR_I32)
            ((int32_t *)dst)[i] = (int32_t)src[i];
        else
            tsr_from_f32((unsigned char *)dst + i * tsr_dtype_size(dtype), dtype, src + i, 1);
    }
}

size_t check_row_elements(const tsr_weight *w)
{
    size_t n = 1;

    for (int32_t i = 1; i < w->n_dims; i++)
        n *= (size_t)w->dims[i];
    return n;
}

/* Packs in one call, then panel by panel from the last: the bytes must agree. */
static check_guarded pack_weight(const check *c, const tsr_backend *b, const tsr_op *op,
                                 tsr_wt index)
{
    const tsr_weight *w = &c->tape.weights[index];
    const float *rows = c->weight_data[index];
    size_t bytes = b->packed_bytes(b, op, w), row = check_row_elements(w);
    int32_t panel = b->panel_rows(b, op, w), n = w->dims[0];
    check_guarded whole = check_guarded_make(bytes), parts = check_guarded_make(bytes);

    CHECK_MSG(panel >= 1 && bytes % 64 == 0, "%s %s: panels of %d rows, %zu bytes", c->label,
              b->tier, panel, bytes);
    b->pack(b, op, w, rows, 0, n, 0, whole.data);
    for (int32_t r = (n - 1) / panel * panel; r >= 0; r -= panel)
        b->pack(b, op, w, rows + (size_t)r * row, r, tsr_min_i32(panel, n - r), 0, parts.data);
    CHECK_MSG(memcmp(whole.data, parts.data, bytes) == 0, "%s %s: packing by panels differs",
              c->label, b->tier);
    CHECK_MSG(check_guards_hold(&whole) && check_guards_hold(&parts),
              "%s %s: packing wrote beside the weight", c->label, b->tier);
    check_guarded_free(&parts);
    return whole;
}

void check_place(const check *c, const tsr_backend *b, check_placed *p)
{
    const tsr_op *op = &c->tape.ops[0];
    const tsr_value *out = &c->tape.values[op->out];

    memset(p, 0, sizeof *p);
    p->b = b;
    p->call.op = op;
    p->out = check_guarded_make(tsr_value_bytes(out));
    p->call.out = tensor(out, p->out.data);
    for (int32_t k = 0; k < 4; k++) {
        const tsr_value *x = &c->tape.values[op->in[k]];
        if (!op->in[k])
            continue;
        p->in[k] = check_guarded_make(tsr_value_bytes(x));
        p->call.in[k] = tensor(x, p->in[k].data);
        check_store(p->in[k].data, x->dtype, c->value_data[op->in[k]],
                    tsr_value_bytes(x) / tsr_dtype_size(x->dtype));
    }
    for (int32_t k = 0; k < 2; k++) {
        if (!op->w[k])
            continue;
        p->w[k] = pack_weight(c, b, op, op->w[k]);
        p->call.wd[k] = &c->tape.weights[op->w[k]];
        p->call.w[k] = p->w[k].data;
    }
}

void check_unplace(check_placed *p)
{
    check_guarded_free(&p->out);
    for (int32_t k = 0; k < 4; k++)
        check_guarded_free(&p->in[k]);
    for (int32_t k = 0; k < 2; k++)
        check_guarded_free(&p->w[k]);
}

void check_run_window(const check *c, check_placed *p, tsr_pool *pool, tsr_window window)
{
    check_guarded work = check_guarded_make(
        p->b->work_bytes(p->b, &c->tape, p->call.op, &window, tsr_pool_threads(pool)));

    p->call.window = window;
    p->call.pool = pool;
    p->call.work = work.bytes ? work.data : NULL;
    p->call.work_bytes = work.bytes;
    p->b->run(p->b, &p->call);
    CHECK_MSG(check_guards_hold(&work), "%s %s: wrote beside its scratch", c->label, p->b->tier);
    check_guarded_free(&work);
}
