/* check_parts.c -- an op in the parts that a plan may cut it into. See check_internal.h.
 *
 * A round cuts the output's rows and entries at random into windows and runs them in a random
 * order, each on buffers that hold exactly the rows that it needs: between the entries and around
 * them are guards (NaN), so a read beside a row spoils the result and a write beside one is seen.
 * Convolutions and linear layers run once for each piece of channels, packed on its own;
 * group_norm on statistics that were filled strip by strip; attention, every other round, block of
 * keys by block of keys. Scratch is what the op likes or the least. In further rounds the output
 * has the place of an operand. */
#include "tests/support/check_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "kernels/cpu/cpu.h"

enum { MAX_PIECES = 4, MAX_DEPTH = 3 };

typedef struct parts {
    const check *c;
    check_placed *p;
    tsr_pool *pool;
    const unsigned char *want;
    uint64_t random;
    int32_t n_pieces, cuts[MAX_PIECES + 1]; /* output channels; 0: the op has no matrix */
    check_guarded pieces[MAX_PIECES];
    check_guarded stats; /* group_norm */
    bool blocks;         /* attention: keys in blocks */
    int32_t in_place;    /* the operand whose place the output takes; -1: none */
    bool whole;          /* run on the whole buffers, the output of all windows in one */
} parts;

static int32_t below(parts *t, int32_t n) /* 0 .. n-1 */
{
    t->random ^= t->random << 13;
    t->random ^= t->random >> 7;
    t->random ^= t->random << 17;
    return (int32_t)((t->random >> 33) % (uint64_t)n);
}

/* ------------------------------------------------------------ pieces of channels */

static check_guarded pack_piece(const parts *t, int32_t c0, int32_t c1)
{
    const tsr_backend *b = t->p->b;
    const tsr_op *op = t->p->call.op;
    const tsr_weight *w = t->p->call.wd[0];
    const float *rows = t->c->weight_data[op->w[0]];
    size_t begin = b->packed_offset(b, op, w, c0), row = check_row_elements(w);
    check_guarded piece = check_guarded_make(b->packed_offset(b, op, w, c1) - begin);

    for (int32_t first = c0; first < w->dims[0]; first += t->p->call.out.c) /* geglu: twice */
        b->pack(b, op, w, rows + (size_t)first * row, first, c1 - c0, c0, piece.data);
    CHECK_MSG(memcmp(piece.data, t->p->w[0].data + begin, piece.bytes) == 0 &&
                  check_guards_hold(&piece),
              "%s %s: the piece %d .. %d is packed otherwise", t->c->label, b->tier, c0, c1);
    return piece;
}

static void make_pieces(parts *t)
{
    const tsr_backend *b = t->p->b;
    const tsr_op *op = t->p->call.op;
    int32_t panel, panels, at = 0, co = t->p->call.out.c;

    if (op->kind != TSR_OP_CONV2D && op->kind != TSR_OP_LINEAR)
        return;
    panel = b->panel_channels(b, op, t->p->call.wd[0]);
    panels = tsr_div_up(co, panel);
    CHECK_MSG(b->packed_offset(b, op, t->p->call.wd[0], 0) == 0 &&
                  b->packed_offset(b, op, t->p->call.wd[0], co) <= t->p->w[0].bytes,
              "%s %s: packed offsets", t->c->label, b->tier);
    while (at < panels) {
        int32_t left = panels - at, n = t->n_pieces == MAX_PIECES - 1 ? left : 1 + below(t, left);
        t->cuts[t->n_pieces + 1] = tsr_min_i32((at + n) * panel, co);
        t->pieces[t->n_pieces] = pack_piece(t, at * panel, t->cuts[t->n_pieces + 1]);
        t->n_pieces++;
        at += n;
    }
}

/* ------------------------------------------------------------------- held rows */

/* Input rows under the taps of output rows h0 .. h1, and of the tiles that these are made in. */
static void conv_rows(const parts *t, const tsr_call *call, const tsr_window *w, int32_t rows[2])
{
    const tsr_op *op = call->op;
    const tsr_tensor *x = &call->in[0];
    int32_t up = op->u.conv.up_h ? op->u.conv.up_h : x->h;
    int32_t unit = t->p->b->row_unit(t->p->b, &t->c->tape, op);

    rows[0] = x->h;
    rows[1] = 0;
    for (int32_t y = w->h0 / unit * unit; y < tsr_div_up(w->h1, unit) * unit; y++) {
        for (int32_t r = 0; r < op->u.conv.r; r++) {
            int32_t from = y * op->u.conv.stride + r - op->u.conv.pad_top;
            if (from < 0 || from >= up)
                continue;
            from = tsr_cpu_nearest(from, x->h, up);
            rows[0] = tsr_min_i32(rows[0], from);
            rows[1] = tsr_max_i32(rows[1], from + 1);
        }
    }
}

/* Rows of operand k that the window needs. */
static void operand_rows(const parts *t, const tsr_call *call, int32_t k, int32_t rows[2])
{
    const tsr_tensor *x = &call->in[k];
    const tsr_window *w = &call->window;

    rows[0] = w->h0;
    rows[1] = w->h1;
    switch (call->op->kind) {
    case TSR_OP_CONV2D:
        if (k < 2)
            conv_rows(t, call, w, rows);
        if (k != 2)
            return;
        break;
    case TSR_OP_ATTENTION:
        if (k == 0)
            return;
        if (!call->carry)
            break;
        rows[0] = call->kv0 / x->w;
        rows[1] = tsr_div_up(call->kv1, x->w);
        return;
    case TSR_OP_LATENT_IN: /* NCHW: rows are channels */
    case TSR_OP_LATENT_OUT:
    case TSR_OP_GATHER_ROW:
    case TSR_OP_TIME_EMBED:
        break;
    default:
        return;
    }
    rows[0] = 0;
    rows[1] = x->h;
}

/* Rows [rows[0], rows[1]) of every entry of x in a buffer of their own; x becomes it. */
static check_guarded hold(tsr_tensor *x, const int32_t rows[2])
{
    size_t bytes = (size_t)(rows[1] - rows[0]) * x->row_stride;
    size_t stride = tsr_align_up(bytes, CHECK_GUARD) + CHECK_GUARD;
    check_guarded g = check_guarded_make((size_t)x->n * stride - CHECK_GUARD);

    for (int32_t n = 0; n < x->n; n++)
        memcpy(g.data + (size_t)n * stride,
               (unsigned char *)x->data + (size_t)n * x->entry_stride +
                   (size_t)(rows[0] - x->row0) * x->row_stride,
               bytes);
    x->data = g.data;
    x->entry_stride = stride;
    x->row0 = rows[0];
    x->n_rows = rows[1] - rows[0];
    return g;
}

/* ------------------------------------------------------------------- one window */

static void run_call(parts *t, tsr_call *call)
{
    const tsr_backend *b = t->p->b;
    int32_t threads = tsr_pool_threads(t->pool);
    tsr_window all = {.n1 = call->out.n, .h1 = call->out.h};
    bool least = below(t, 2);
    check_guarded work = check_guarded_make(
        (least ? b->least_work : b->work_bytes)(b, &t->c->tape, call->op, &call->window, threads));

    CHECK_MSG(work.bytes <= b->work_bytes(b, &t->c->tape, call->op, &all, threads),
              "%s %s: a part needs more scratch than the whole", t->c->label, b->tier);
    call->pool = t->pool;
    call->work = work.bytes ? work.data : NULL;
    call->work_bytes = work.bytes;
    b->run(b, call);
    CHECK_MSG(check_guards_hold(&work), "%s %s: wrote beside a window's scratch", t->c->label,
              b->tier);
    check_guarded_free(&work);
}

/* Piece by piece, beginning with any of them; the first and the last are next to each other. */
static void run_pieces(parts *t, tsr_call *call)
{
    int32_t first = below(t, t->n_pieces);

    for (int32_t i = 0; i < t->n_pieces; i++) {
        int32_t k = (first + i) % t->n_pieces;
        call->window.c0 = t->cuts[k];
        call->window.c1 = t->cuts[k + 1];
        call->w[0] = t->pieces[k].data;
        run_call(t, call);
    }
}

static void run_blocks(parts *t, tsr_call *call)
{
    const tsr_backend *b = t->p->b;
    int32_t block = b->kv_block(b, &t->c->tape, call->op), keys = call->in[1].h * call->in[1].w;
    check_guarded carry =
        check_guarded_make(b->carry_bytes(b, &t->c->tape, call->op, &call->window));
    tsr_call part = *call;

    part.carry = carry.data;
    for (part.kv0 = 0; part.kv0 < keys; part.kv0 = part.kv1) {
        check_guarded held[2];
        part.kv1 = tsr_min_i32(keys, part.kv0 + block * (1 + below(t, 2)));
        for (int32_t k = 1; k < 3; k++) {
            int32_t rows[2];
            part.in[k] = t->p->call.in[k];
            operand_rows(t, &part, k, rows);
            held[k - 1] = hold(&part.in[k], rows);
        }
        run_call(t, &part);
        for (int32_t k = 0; k < 2; k++)
            check_guarded_free(&held[k]);
    }
    CHECK_MSG(check_guards_hold(&carry), "%s %s: wrote beside the carry", t->c->label, b->tier);
    check_guarded_free(&carry);
}

static void run_any(parts *t, tsr_call *call)
{
    if (t->n_pieces)
        run_pieces(t, call);
    else if (call->op->kind == TSR_OP_ATTENTION && t->blocks)
        run_blocks(t, call);
    else
        run_call(t, call);
}

/* What the output's buffer must hold after the window: `before`, and the window's rows of want. */
static bool window_equals(const parts *t, const tsr_call *call, const check_guarded *out,
                          check_guarded *before)
{
    const tsr_tensor *whole = &t->p->call.out;

    for (int32_t n = call->window.n0; n < call->window.n1; n++)
        memcpy(before->data + (size_t)n * call->out.entry_stride,
               t->want + (size_t)n * whole->entry_stride +
                   (size_t)call->window.h0 * whole->row_stride,
               (size_t)(call->window.h1 - call->window.h0) * whole->row_stride);
    return memcmp(before->data, out->data, out->bytes) == 0 && check_guards_hold(out);
}

static void run_held(parts *t, tsr_window window)
{
    tsr_call call = t->p->call;
    const int32_t rows_out[2] = {window.h0, window.h1};
    check_guarded held[4] = {0}, copies[4] = {0}, out, before;

    call.window = window;
    call.stats = t->stats.data;
    for (int32_t k = 0; k < 4; k++) {
        int32_t rows[2];
        tsr_tensor twin = call.in[k];
        if (!twin.data || k == t->in_place)
            continue;
        operand_rows(t, &call, k, rows);
        copies[k] = hold(&twin, rows);
        held[k] = hold(&call.in[k], rows);
    }
    if (t->in_place >= 0)
        call.out.data = call.in[t->in_place].data;
    else /* nothing of the earlier windows: a kernel must not read its output */
        memset(t->p->out.data, CHECK_GUARD_BYTE, t->p->out.bytes);
    {
        tsr_tensor twin = call.out;
        before = hold(&twin, rows_out);
        out = hold(&call.out, rows_out);
    }
    if (t->in_place >= 0)
        call.in[t->in_place] = call.out;
    run_any(t, &call);
    CHECK_MSG(window_equals(t, &call, &out, &before),
              "%s %s: other bits in rows %d .. %d, entries %d .. %d (in place of %d, blocks %d)",
              t->c->label, t->p->b->tier, window.h0, window.h1, window.n0, window.n1, t->in_place,
              t->blocks);
    for (int32_t k = 0; k < 4; k++) {
        CHECK_MSG(!held[k].data || memcmp(held[k].data, copies[k].data, held[k].bytes) == 0,
                  "%s %s: rows of operand %d were written", t->c->label, t->p->b->tier, k);
        check_guarded_free(&held[k]);
        check_guarded_free(&copies[k]);
    }
    check_guarded_free(&out);
    check_guarded_free(&before);
}

static void run_whole(parts *t, tsr_window window)
{
    tsr_call call = t->p->call;

    call.window = window;
    call.stats = t->stats.data;
    if (t->in_place >= 0)
        call.in[t->in_place].data = call.out.data;
    run_any(t, &call);
}

/* ---------------------------------------------------------------------- a round */

typedef void (*window_fn)(parts *t, tsr_window window);

/* Cuts the window at random, up to `depth` times on the way to a part, and runs the parts. */
static void split(parts *t, tsr_window w, int32_t depth, window_fn fn)
{
    tsr_window a = w, b = w;

    if (depth > 0 && w.h1 - w.h0 > 1 && below(t, 4) > 0)
        a.h1 = b.h0 = w.h0 + 1 + below(t, w.h1 - w.h0 - 1);
    else if (depth > 0 && w.n1 - w.n0 > 1)
        a.n1 = b.n0 = w.n0 + 1 + below(t, w.n1 - w.n0 - 1);
    else {
        fn(t, w);
        return;
    }
    if (below(t, 2)) {
        split(t, b, depth - 1, fn);
        split(t, a, depth - 1, fn);
    } else {
        split(t, a, depth - 1, fn);
        split(t, b, depth - 1, fn);
    }
}

static void fill_stats(parts *t, tsr_window window)
{
    const tsr_backend *b = t->p->b;
    tsr_call call = t->p->call;
    check_guarded held[2] = {0}, work = check_guarded_make(b->work_bytes(
                                     b, &t->c->tape, call.op, &window, tsr_pool_threads(t->pool)));
    const int32_t rows[2] = {window.h0, window.h1};

    for (int32_t k = 0; k < 2; k++)
        if (call.in[k].data)
            held[k] = hold(&call.in[k], rows);
    call.window = window;
    call.stats = t->stats.data;
    call.pool = t->pool;
    call.work = work.data;
    call.work_bytes = work.bytes;
    call.out.data = NULL;
    b->norm_stats(b, &call);
    CHECK_MSG(check_guards_hold(&work) && check_guards_hold(&t->stats),
              "%s %s: wrote beside the statistics", t->c->label, b->tier);
    for (int32_t k = 0; k < 2; k++)
        check_guarded_free(&held[k]);
    check_guarded_free(&work);
}

static void run_round(parts *t)
{
    const check_placed *p = t->p;
    tsr_window all = {.n1 = p->call.out.n, .h1 = p->call.out.h};

    t->stats = (check_guarded){NULL, p->b->stats_bytes(p->b, &t->c->tape, p->call.op)};
    if (t->stats.bytes) {
        t->stats = check_guarded_make(t->stats.bytes);
        split(t, all, MAX_DEPTH, fill_stats);
    }
    memset(p->out.data, CHECK_GUARD_BYTE, p->out.bytes);
    if (t->whole && t->in_place >= 0)
        memcpy(p->out.data, p->in[t->in_place].data, p->out.bytes);
    split(t, all, MAX_DEPTH, t->whole ? run_whole : run_held);
    CHECK_MSG(!t->whole ||
                  (memcmp(p->out.data, t->want, p->out.bytes) == 0 && check_guards_hold(&p->out)),
              "%s %s: other bits in the place of operand %d", t->c->label, p->b->tier, t->in_place);
    check_guarded_free(&t->stats);
}

/* Whether the output may take the place of operand k: the op reads each element of it before it
 * writes it, and the layout is the same. */
static bool may_replace(const tsr_call *call, int32_t k)
{
    if (!call->in[k].data || call->in[k].dtype != call->out.dtype)
        return false;
    switch (call->op->kind) {
    case TSR_OP_CONV2D:
    case TSR_OP_LINEAR:
        return k == 3;
    case TSR_OP_ADD:
        return k < 2;
    case TSR_OP_GROUP_NORM:
        return k == 0 && !call->in[1].data;
    case TSR_OP_LAYER_NORM:
    case TSR_OP_ATTENTION: /* its query, in every case here a value of its own */
        return k == 0;
    default:
        return false;
    }
}

void check_parts(const check *c, check_placed *p, tsr_pool *pools[], const unsigned char *want)
{
    parts t = {.c = c,
               .p = p,
               .want = want,
               .random = 0x2545F4914F6CDD1Du,
               .in_place = -1,
               .whole = false};

    for (const char *s = c->label; *s; s++) /* other cuts for every case, the same for every run */
        t.random = (t.random ^ (unsigned char)*s) * 0x100000001B3u;
    make_pieces(&t);
    t.pool = pools[1];
    run_round(&t);
    t.blocks = true;
    if (p->call.op->kind == TSR_OP_ATTENTION)
        run_round(&t);
    for (t.in_place = 0; t.in_place < 4; t.in_place++) {
        if (!may_replace(&p->call, t.in_place) ||
            (p->b->in_place && !p->b->in_place(p->b, &c->tape, p->call.op)))
            continue;
        t.whole = false;
        t.pool = pools[0];
        run_round(&t);
        t.whole = true;
        t.pool = pools[2];
        run_round(&t);
    }
    for (int32_t i = 0; i < t.n_pieces; i++)
        check_guarded_free(&t.pieces[i]);
}
