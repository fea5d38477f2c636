/* tape.c -- values, weights and op records: the tape's storage and its rules of lifetime.
 *
 * Three growing arrays. Values and weights are numbered from 1 (slot 0 stays zero), ops from 0.
 * Every value is made by exactly one op, or by the caller (input), or shows rows of another one
 * (view); nothing is ever written twice. `first` and `last` of values and weights are op indices
 * and are kept up to date as ops are recorded; a view's use is also a use of its base. How the
 * loop section stretches these lifetimes is the program's business (program.c).
 *
 * Limits that kernels rely on, checked for every value: N*H*W, W*C and a weight's rows
 * are at most 2^30 (so that rounding up or doubling an index cannot wrap), bytes fit a ptrdiff_t.
 */
#include "kernels/tape_internal.h"

#include <string.h>

#include "base/alloc.h"

enum { MAX_COUNT = 1 << 30 };

static const char *const KIND_NAMES[TSR_OP_KINDS] = {
    [TSR_OP_CONV2D] = "conv2d",         [TSR_OP_LINEAR] = "linear",
    [TSR_OP_ATTENTION] = "attention",   [TSR_OP_GROUP_NORM] = "group_norm",
    [TSR_OP_LAYER_NORM] = "layer_norm", [TSR_OP_ADD] = "add",
    [TSR_OP_TIME_EMBED] = "time_embed", [TSR_OP_GATHER_ROW] = "gather_row",
    [TSR_OP_CONCAT] = "concat",         [TSR_OP_LATENT_IN] = "latent_in",
    [TSR_OP_LATENT_OUT] = "latent_out", [TSR_OP_IMAGE_IN] = "image_in",
    [TSR_OP_IMAGE_OUT] = "image_out",
};

const char *tsr_op_kind_name(tsr_op_kind k)
{
    return (unsigned)k < TSR_OP_KINDS ? KIND_NAMES[k] : "unknown op";
}

void tsr_tape_init(tsr_tape *t, tsr_dtype dtype, tsr_err *err)
{
    *t = (tsr_tape){
        .err = err, .dtype = dtype, .direct = dtype == TSR_F32, .n_values = 1, .n_weights = 1};
}

void tsr_tape_free(tsr_tape *t)
{
    if (!t)
        return;
    tsr_free(t->values);
    tsr_free(t->weights);
    tsr_free(t->ops);
    for (size_t i = 0; i < t->n_scopes; i++)
        tsr_free(t->scopes[i]);
    tsr_free(t->scopes);
    *t = (tsr_tape){0};
}

const tsr_value *tsr_tape_value(const tsr_tape *t, tsr_val v)
{
    return v > 0 && (size_t)v < t->n_values ? &t->values[v] : NULL;
}

size_t tsr_value_bytes(const tsr_value *v)
{
    return (size_t)v->n * (size_t)v->h * (size_t)v->w * (size_t)v->c * tsr_dtype_size(v->dtype);
}

static tsr_status out_of_memory(const tsr_tape *t)
{
    return tsr_err_set(t->err, TSR_E_OOM, "no memory for the table of the network's operations");
}

/* Makes room for n elements and zeroes slot 0 when the array is new. */
static tsr_status reserve(const tsr_tape *t, void **array, size_t *cap, size_t n, size_t size)
{
    bool fresh = *array == NULL;

    if (n > INT32_MAX || !tsr_grow(array, cap, n, size))
        return out_of_memory(t);
    if (fresh)
        memset(*array, 0, size);
    return TSR_OK;
}

static bool value_dtype(tsr_dtype d)
{
    return d == TSR_F16 || d == TSR_F32 || d == TSR_U8 || d == TSR_I32;
}

bool tsr_entries_join(tsr_entries *e, const tsr_entries *x)
{
    int32_t *const mine[] = {&e->steps, &e->prompts, &e->pictures};
    const int32_t theirs[] = {x->steps, x->prompts, x->pictures};

    for (int32_t i = 0; i < 3; i++)
        if (*mine[i] != theirs[i] && *mine[i] != 1 && theirs[i] != 1)
            return false;
    for (int32_t i = 0; i < 3; i++)
        *mine[i] = *mine[i] == 1 ? theirs[i] : *mine[i];
    return true;
}

/* Their number; 0 when an axis is empty or there are more than a value may have. */
static int64_t count_entries(const tsr_entries *e)
{
    int64_t n;

    if (e->steps < 1 || e->prompts < 1 || e->pictures < 1)
        return 0;
    n = (int64_t)e->steps * e->prompts;
    n = n <= MAX_COUNT ? n * e->pictures : n;
    return n <= MAX_COUNT ? n : 0;
}

/* The limits above; sizes come from files and options. */
static tsr_status check_shape(const tsr_tape *t, const char *name, const tsr_shape *s)
{
    int64_t n = count_entries(&s->entries);
    size_t bytes = 0;
    bool ok = n >= 1 && s->h >= 1 && s->w >= 1 && s->c >= 1 && s->h <= INT32_MAX &&
              s->w <= INT32_MAX && s->c <= INT32_MAX;

    if (!ok)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the shape [%lld,%lld,%lld,%lld] is empty or too large",
                 name, (long long)n, (long long)s->h, (long long)s->w, (long long)s->c);
    ok = s->h * s->w <= MAX_COUNT && s->h * s->w * n <= MAX_COUNT && s->w * s->c <= MAX_COUNT &&
         tsr_mul_size((size_t)(n * s->h * s->w), (size_t)s->c, &bytes) &&
         tsr_mul_size(bytes, tsr_dtype_size(s->dtype), &bytes) && bytes <= PTRDIFF_MAX;
    if (!ok)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the shape [%lld,%lld,%lld,%lld] is too large", name,
                 (long long)n, (long long)s->h, (long long)s->w, (long long)s->c);
    return TSR_OK;
}

/* Appends a value for which there is room. */
static tsr_val push_value(tsr_tape *t, const tsr_shape *s, tsr_value_kind kind, const char *name)
{
    tsr_val v = (tsr_val)t->n_values++;
    int32_t now = kind == TSR_VALUE_INPUT ? 0 : (int32_t)t->n_ops;

    t->values[v] = (tsr_value){.n = (int32_t)count_entries(&s->entries),
                               .h = (int32_t)s->h,
                               .w = (int32_t)s->w,
                               .c = (int32_t)s->c,
                               .entries = s->entries,
                               .dtype = s->dtype,
                               .kind = kind,
                               .first = now,
                               .last = now,
                               .name = name};
    return v;
}

static tsr_status reserve_value(tsr_tape *t)
{
    return reserve(t, (void **)&t->values, &t->cap_values, t->n_values + 1, sizeof *t->values);
}

tsr_status tsr_tape_input(tsr_tape *t, const int32_t shape[4], tsr_dtype dtype, const char *name,
                          tsr_val *out)
{
    tsr_entries plain = tsr_entries_plain(shape[0]);

    return tsr_tape_input_grid(t, &plain, shape + 1, dtype, name, out);
}

tsr_status tsr_tape_input_grid(tsr_tape *t, const tsr_entries *entries, const int32_t hwc[3],
                               tsr_dtype dtype, const char *name, tsr_val *out)
{
    tsr_shape s = {*entries, hwc[0], hwc[1], hwc[2], dtype};

    if (!value_dtype(dtype))
        TSR_FAIL(t->err, TSR_E_INTERNAL, "input %s: %s is no type of an activation",
                 name ? name : "", tsr_dtype_name(dtype));
    TSR_TRY(check_shape(t, name ? name : "input", &s));
    TSR_TRY(reserve_value(t));
    *out = push_value(t, &s, TSR_VALUE_INPUT, name);
    return TSR_OK;
}

void tsr_tape_output(tsr_tape *t, tsr_val v, const char *name)
{
    if (!tsr_tape_value(t, v))
        return;
    t->values[v].is_output = true;
    if (name)
        t->values[v].name = name;
    if (t->values[v].kind == TSR_VALUE_VIEW)
        t->values[t->values[v].base].is_output = true;
}

void tsr_tape_begin_loop(tsr_tape *t)
{
    t->loop_begin = (int32_t)t->n_ops;
}

tsr_status tsr_tape_set_scope(tsr_tape *t, const char *name)
{
    char *copy;

    if (!tsr_grow((void **)&t->scopes, &t->cap_scopes, t->n_scopes + 1, sizeof *t->scopes))
        return out_of_memory(t);
    copy = tsr_strdup(name);
    if (!copy)
        return out_of_memory(t);
    t->scopes[t->n_scopes++] = copy;
    t->scope = copy;
    return TSR_OK;
}

tsr_status tsr_tape_step_view(tsr_tape *t, tsr_val base, tsr_val *out)
{
    const tsr_value *b = tsr_tape_value(t, base);
    tsr_shape s;

    if (!b || b->kind == TSR_VALUE_VIEW)
        TSR_FAIL(t->err, TSR_E_INTERNAL, "a step view needs a value that is no view itself");
    s = (tsr_shape){b->entries, b->h, b->w, b->c, b->dtype};
    s.entries.steps = 1;
    TSR_TRY(reserve_value(t));
    *out = push_value(t, &s, TSR_VALUE_VIEW, t->values[base].name);
    t->values[*out].base = base;
    return TSR_OK;
}

tsr_status tsr_tape_weight(tsr_tape *t, const tsr_weight *w, tsr_wt *out)
{
    const char *name = w->name ? w->name : "weight";
    size_t count = 1, fan_in = 1, bytes;
    bool ok = w->n_dims >= 1 && w->n_dims <= 4;

    for (int32_t i = 0; ok && i < w->n_dims; i++) {
        ok = w->dims[i] >= 1 && tsr_mul_size(count, (size_t)w->dims[i], &count);
        if (ok && i > 0)
            ok = tsr_mul_size(fan_in, (size_t)w->dims[i], &fan_in);
    }
    ok = ok && fan_in <= MAX_COUNT && w->dims[0] <= MAX_COUNT && tsr_mul_size(count, 8, &bytes) &&
         bytes <= PTRDIFF_MAX;
    if (!ok)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the tensor's shape is empty or too large", name);
    if (tsr_dtype_size(w->file_dtype) == 0)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the tensor's type is unknown", name);
    ok = w->dtype == TSR_F32 || (w->dtype == TSR_F16 && w->kind == TSR_WEIGHT_MATRIX);
    if (!ok || (w->kind == TSR_WEIGHT_MATRIX && w->n_dims < 2))
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: the tensor cannot be computed with as %s", name,
                 tsr_dtype_name(w->dtype));
    TSR_TRY(
        reserve(t, (void **)&t->weights, &t->cap_weights, t->n_weights + 1, sizeof *t->weights));
    *out = (tsr_wt)t->n_weights++;
    t->weights[*out] = *w;
    t->weights[*out].name = name;
    t->weights[*out].first = t->weights[*out].last = -1;
    return TSR_OK;
}

const char *tsr_tape_op_name(const tsr_tape *t, tsr_op_kind kind, tsr_wt weight)
{
    if (weight > 0 && (size_t)weight < t->n_weights)
        return t->weights[weight].name;
    return t->scope ? t->scope : tsr_op_kind_name(kind);
}

tsr_status tsr_tape_float_operand(const tsr_tape *t, const char *op_name, const char *role,
                                  tsr_val v, const tsr_value **out)
{
    const tsr_value *x = tsr_tape_value(t, v);

    if (!x)
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: the %s is no value of the tape", op_name, role);
    if (x->dtype != TSR_F16 && x->dtype != TSR_F32)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the %s has type %s and not F16 or F32", op_name, role,
                 tsr_dtype_name(x->dtype));
    *out = x;
    return TSR_OK;
}

tsr_status tsr_tape_joined_operand(const tsr_tape *t, const char *op_name, tsr_val x, tsr_val x2,
                                   tsr_shape *joined)
{
    const tsr_value *p = NULL, *q = NULL;
    tsr_shape s;

    TSR_TRY(tsr_tape_float_operand(t, op_name, "input", x, &p));
    s = (tsr_shape){p->entries, p->h, p->w, p->c, p->dtype};
    if (x2) {
        TSR_TRY(tsr_tape_float_operand(t, op_name, "second input", x2, &q));
        if (!tsr_entries_join(&s.entries, &q->entries) || q->h != p->h || q->w != p->w ||
            q->dtype != p->dtype)
            TSR_FAIL(t->err, TSR_E_MODEL,
                     "%s: inputs [%d,%d,%d,%d] and [%d,%d,%d,%d] cannot be joined by channels",
                     op_name, p->n, p->h, p->w, p->c, q->n, q->h, q->w, q->c);
        s.c += q->c;
    }
    if (s.c * s.w > MAX_COUNT)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the input has too many channels (%lld)", op_name,
                 (long long)s.c);
    *joined = s;
    return TSR_OK;
}

tsr_status tsr_tape_residual_operand(const tsr_tape *t, const char *op_name, tsr_val v,
                                     tsr_shape *want)
{
    const tsr_value *r;

    if (!v)
        return TSR_OK;
    TSR_TRY(tsr_tape_float_operand(t, op_name, "residual", v, &r));
    if ((int64_t)r->h * r->w != want->h * want->w || r->c != want->c ||
        !tsr_entries_join(&want->entries, &r->entries))
        TSR_FAIL(t->err, TSR_E_MODEL,
                 "%s: the residual [%d,%d,%d,%d] has not the output's shape [%lld,%lld,%lld,%lld]",
                 op_name, r->n, r->h, r->w, r->c, (long long)count_entries(&want->entries),
                 (long long)want->h, (long long)want->w, (long long)want->c);
    return TSR_OK;
}

tsr_status tsr_tape_weight_operand(const tsr_tape *t, const char *op_name, tsr_wt w,
                                   tsr_weight_kind kind, const tsr_weight **out)
{
    if (w <= 0 || (size_t)w >= t->n_weights || t->weights[w].kind != kind)
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: the %s is missing or of another kind", op_name,
                 kind == TSR_WEIGHT_MATRIX ? "weight" : "vector");
    *out = &t->weights[w];
    return TSR_OK;
}

tsr_status tsr_tape_vector_operand(const tsr_tape *t, const char *op_name, tsr_wt w, int32_t c,
                                   bool optional)
{
    const tsr_weight *v = NULL;

    if (!w && optional)
        return TSR_OK;
    TSR_TRY(tsr_tape_weight_operand(t, op_name, w, TSR_WEIGHT_VECTOR, &v));
    if (v->n_dims != 1 || v->dims[0] != c)
        TSR_FAIL(t->err, TSR_E_MODEL, "%s: the tensor has %d elements where %s needs %d", v->name,
                 v->dims[0], op_name, c);
    return TSR_OK;
}

/* A matrix is packed once, for the first op that uses it: a second one must want it the same way.
 */
static tsr_status check_shared_weight(const tsr_tape *t, const tsr_op *op)
{
    const tsr_weight *w;
    const tsr_op *other;

    if (!op->w[0])
        return TSR_OK; /* a tape without weights has no table of them */
    w = &t->weights[op->w[0]];
    if (w->kind != TSR_WEIGHT_MATRIX || w->first < 0)
        return TSR_OK;
    other = &t->ops[w->first];
    if (other->kind != op->kind ||
        (op->kind == TSR_OP_LINEAR && other->u.linear.geglu != op->u.linear.geglu))
        TSR_FAIL(t->err, TSR_E_INTERNAL, "%s: two kinds of operations share one weight", op->name);
    return TSR_OK;
}

static void note_uses(tsr_tape *t, const tsr_op *op, int32_t now)
{
    for (int32_t i = 0; i < 4; i++) {
        tsr_value *v = &t->values[op->in[i]];
        if (!op->in[i])
            continue;
        v->last = now;
        if (v->kind == TSR_VALUE_VIEW)
            t->values[v->base].last = now;
    }
    for (int32_t i = 0; i < 2; i++) {
        tsr_weight *w = &t->weights[op->w[i]];
        if (!op->w[i])
            continue;
        w->first = w->first < 0 ? now : w->first;
        w->last = now;
    }
}

tsr_status tsr_tape_append(tsr_tape *t, tsr_op *op, const tsr_shape *shape, tsr_val *out)
{
    TSR_TRY(check_shape(t, op->name, shape));
    TSR_TRY(check_shared_weight(t, op));
    TSR_TRY(reserve(t, (void **)&t->ops, &t->cap_ops, t->n_ops + 1, sizeof *t->ops));
    TSR_TRY(reserve_value(t));
    op->out = push_value(t, shape, TSR_VALUE_TEMP, op->name);
    note_uses(t, op, (int32_t)t->n_ops);
    t->ops[t->n_ops++] = *op;
    *out = op->out;
    return TSR_OK;
}
