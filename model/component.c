/* component.c -- tensors by name: what a recording asks for, and what nobody asked for.
 *
 * Published checkpoints spell some names in more than one way. A name is looked for as it is, then
 * with the text encoders' prefix "text_model." added, then without it (transformers has saved both
 * ways), and attention layers of old VAEs are found under their first names:
 *
 *     mid_block.attentions.0.to_q    .query          ...to_v       .value
 *     mid_block.attentions.0.to_k    .key            ...to_out.0   .proj_attn
 *
 * A 1x1 convolution and a linear layer are the same matrix, so [Co,C] and [Co,C,1,1] are the same
 * shape. Everything else must match: nothing is silently zero, cut or broadcast.
 *
 * In collecting mode (c->problems set, for `gen info`) a problem becomes a line of that buffer and
 * a stand-in weight is registered, so that one recording finds all problems. The stand-in's tensor
 * number is -1, which tsr_component_read refuses. */
#include "model/component_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NAME = TSR_ST_MAX_NAME + 1,
    NEAR_NAMES = 64,       /* candidates before and after a name's place in the sorted table */
    NEAR_NAME_BYTES = 200, /* edit distances are quadratic: hostile names are left out */
    NEAREST_PROBLEMS = 32, /* in collecting mode, only the first so many get a suggestion */
    UNUSED_SHOWN = 3,
    STAND_IN = -1
};

const char *tsr_component_where(const tsr_component *c)
{
    return c->n_files == 1 ? c->files[0].file.path : c->dir;
}

const tsr_st_tensor *tsr_component_tensor(const tsr_component *c, int32_t i)
{
    return i >= 0 && i < c->n_tensors ? c->tensors[i] : NULL;
}

/* ------------------------------------------------------------------ find */

/* Index of the first tensor whose name is not before `name`. */
static int32_t lower_bound(const tsr_component *c, const char *name)
{
    int32_t lo = 0, hi = c->n_tensors;

    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (strcmp(c->tensors[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int32_t find_exact(const tsr_component *c, const char *name)
{
    int32_t i = lower_bound(c, name);

    return i < c->n_tensors && strcmp(c->tensors[i]->name, name) == 0 ? i : -1;
}

/* The name that old VAE files use, into old[MAX_NAME]; false when the tensor has none. */
static bool old_attention_name(const char *name, char *old)
{
    static const char *const renamed[][2] = {{".to_q.", ".query."},
                                             {".to_k.", ".key."},
                                             {".to_v.", ".value."},
                                             {".to_out.0.", ".proj_attn."}};

    if (!strstr(name, "mid_block.attentions."))
        return false;
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        const char *at = strstr(name, renamed[i][0]);
        if (at) {
            snprintf(old, MAX_NAME, "%.*s%s%s", (int)(at - name), name, renamed[i][1],
                     at + strlen(renamed[i][0]));
            return true;
        }
    }
    return false;
}

int32_t tsr_component_find(const tsr_component *c, const char *tensor_name)
{
    char other[MAX_NAME];
    int32_t i = find_exact(c, tensor_name);

    if (i < 0 && c->prefix) {
        size_t n = strlen(c->prefix);
        snprintf(other, sizeof other, "%s%s", c->prefix, tensor_name);
        i = find_exact(c, other);
        if (i < 0 && strncmp(tensor_name, c->prefix, n) == 0)
            i = find_exact(c, tensor_name + n);
    }
    if (i < 0 && old_attention_name(tensor_name, other))
        i = find_exact(c, other);
    return i;
}

/* ------------------------------------------------------------------ problems */

/* An error, or in collecting mode a line of the list (then TSR_OK). */
static tsr_status TSR_PRINTF(2, 3) report(tsr_component *c, const char *fmt, ...)
{
    char line[sizeof c->err->msg];
    va_list args;

    va_start(args, fmt);
    tsr_line_vformat(line, sizeof line, fmt, args);
    va_end(args);
    if (!c->problems)
        return tsr_err_set(c->err, TSR_E_MODEL, "%s", line);
    tsr_buf_printf(c->problems, "%s\n", line);
    c->n_problems++;
    return TSR_OK;
}

/* The most similar name among the neighbours in the sorted table that were (or were not) asked for
 * yet; NULL when none is near. */
static const char *nearest(const tsr_component *c, const char *name, bool used)
{
    const char *near[2 * NEAR_NAMES];
    int32_t at = lower_bound(c, name), n = 0, found;

    if (strlen(name) > NEAR_NAME_BYTES)
        return NULL;
    for (int32_t i = at - NEAR_NAMES < 0 ? 0 : at - NEAR_NAMES;
         i < c->n_tensors && i < at + NEAR_NAMES; i++)
        if ((c->used[i] != 0) == used && strlen(c->tensors[i]->name) <= NEAR_NAME_BYTES)
            near[n++] = c->tensors[i]->name;
    found = tsr_nearest_name(name, near, n);
    return found < 0 ? NULL : near[found];
}

static tsr_status missing(tsr_component *c, const char *name)
{
    const char *near = c->n_problems < NEAREST_PROBLEMS ? nearest(c, name, false) : NULL;

    return report(c, "%s: tensor \"%s\" of the %s is missing%s%s%s", tsr_component_where(c), name,
                  c->name, near ? "; the nearest name there is \"" : "", near ? near : "",
                  near ? "\"" : "");
}

static void shape_text(char *text, size_t bytes, int32_t n_dims, const int64_t *dims)
{
    size_t len = (size_t)snprintf(text, bytes, "[");

    for (int32_t i = 0; i < n_dims && len < bytes; i++)
        len += (size_t)snprintf(text + len, bytes - len, "%s%lld", i > 0 ? "," : "",
                                (long long)dims[i]);
    if (len < bytes)
        snprintf(text + len, bytes - len, "]");
}

static tsr_status wrong_shape(tsr_component *c, const tsr_st_tensor *t, int32_t n_dims,
                              const int32_t *dims)
{
    char there[200], wanted[200]; /* eight numbers of 64 bits fit */
    int64_t wide[TSR_ST_MAX_DIMS];

    for (int32_t i = 0; i < n_dims; i++)
        wide[i] = dims[i];
    shape_text(there, sizeof there, t->n_dims, t->dims);
    shape_text(wanted, sizeof wanted, n_dims, wide);
    return report(c, "%s: tensor \"%s\" has shape %s, the config needs %s", tsr_component_where(c),
                  t->name, there, wanted);
}

/* ------------------------------------------------------------------ weights */

/* Equal, or equal but for ones after the second dimension. */
static bool same_shape(const tsr_st_tensor *t, int32_t n_dims, const int32_t *dims)
{
    int32_t n = t->n_dims > n_dims ? t->n_dims : n_dims;

    if (t->n_dims != n_dims && (t->n_dims < 2 || n_dims < 2))
        return false;
    for (int32_t i = 0; i < n; i++)
        if ((i < t->n_dims ? t->dims[i] : 1) != (i < n_dims ? dims[i] : 1))
            return false;
    return true;
}

/* The tensor `scope.leaf`, checked and marked as used. *index is -1 when it is an optional one that
 * is not there (*there says so), or when a problem was only noted. */
static tsr_status lookup(tsr_component *c, const char *scope, const char *leaf, int32_t n_dims,
                         const int32_t *dims, int32_t *index, bool *there)
{
    char name[MAX_NAME];
    int32_t i;
    const tsr_st_tensor *t;
    bool optional = there != NULL;

    snprintf(name, sizeof name, "%s%s%s", scope, *scope ? "." : "", leaf);
    i = tsr_component_find(c, name);
    *index = STAND_IN;
    if (optional)
        *there = i >= 0;
    if (i < 0)
        return optional ? TSR_OK : missing(c, name);
    t = c->tensors[i];
    c->used[i] = 1;
    if (!same_shape(t, n_dims, dims))
        return wrong_shape(c, t, n_dims, dims);
    if (!tsr_dtype_is_float(t->dtype))
        return report(c, "%s: tensor \"%s\" is a weight and has the integer type %s",
                      tsr_component_where(c), t->name, tsr_dtype_name(t->dtype));
    *index = i;
    return TSR_OK;
}

/* Vectors are float. A matrix has the tape's type, but stays float32 where half would overflow. */
static tsr_status choose_dtype(tsr_component *c, int32_t i, tsr_weight_kind kind, tsr_dtype tape,
                               tsr_dtype *dtype)
{
    bool fits = true;

    if (c->packed && i >= 0) { /* decided when it was packed */
        bool half = kind == TSR_WEIGHT_MATRIX && tape == TSR_F16;
        *dtype = half && tsr_component_number(c, i, TSR_F16) >= 0 ? TSR_F16 : TSR_F32;
        return TSR_OK;
    }
    if (kind == TSR_WEIGHT_MATRIX && tape == TSR_F16 && i >= 0 && c->tensors[i]->dtype != TSR_F16 &&
        !c->headers_only)
        TSR_TRY(tsr_component_fits_half(c, i, &fits));
    *dtype = kind == TSR_WEIGHT_VECTOR || !fits ? TSR_F32 : tape;
    return TSR_OK;
}

static tsr_status register_weight(tsr_component *c, tsr_tape *t, tsr_weight_kind kind, int32_t i,
                                  int32_t n_dims, const int32_t *dims, tsr_wt *out)
{
    const tsr_st_tensor *tensor = tsr_component_tensor(c, i);
    tsr_weight w = {.name = tensor ? tensor->name : "(a tensor that is not there)",
                    .source = &c->source,
                    .n_dims = n_dims,
                    .file_dtype = tensor ? tensor->dtype : TSR_F32,
                    .kind = kind};

    for (int32_t d = 0; d < n_dims; d++)
        w.dims[d] = dims[d];
    TSR_TRY(choose_dtype(c, i, kind, t->dtype, &w.dtype));
    w.tensor = tsr_component_number(c, i, w.dtype);
    if (w.tensor < 0 && i >= 0)
        TSR_TRY(report(c,
                       "%s: tensor \"%s\" is not packed for a run in %s; convert the model again "
                       "(gen convert MODEL OUT.tsr)",
                       tsr_component_where(c), w.name, t->dtype == TSR_F16 ? "fp16" : "fp32"));
    return tsr_tape_weight(t, &w, out);
}

tsr_status tsr_component_weight(tsr_component *c, tsr_tape *t, tsr_weight_kind kind,
                                const char *scope, const char *leaf, int32_t n_dims,
                                const int32_t *dims, tsr_wt *out)
{
    int32_t i;

    TSR_TRY(lookup(c, scope, leaf, n_dims, dims, &i, NULL));
    return register_weight(c, t, kind, i, n_dims, dims, out);
}

tsr_status tsr_component_weight_optional(tsr_component *c, tsr_tape *t, tsr_weight_kind kind,
                                         const char *scope, const char *leaf, int32_t n_dims,
                                         const int32_t *dims, tsr_wt *out)
{
    int32_t i;
    bool there;

    TSR_TRY(lookup(c, scope, leaf, n_dims, dims, &i, &there));
    if (there)
        return register_weight(c, t, kind, i, n_dims, dims, out);
    *out = 0;
    return TSR_OK;
}

tsr_status tsr_component_expect(tsr_component *c, const char *scope, const char *leaf,
                                int32_t n_dims, const int32_t *dims)
{
    int32_t i;

    return lookup(c, scope, leaf, n_dims, dims, &i, NULL);
}

/* ------------------------------------------------------------------ what nobody asked for */

/* Buffers and leftovers of training that published files hold beside the parameters. */
static bool is_known_extra(const char *name)
{
    static const char *const ends[] = {"position_ids", "num_batches_tracked", "logit_scale",
                                       "text_projection", "text_projection.weight"};
    static const char *const starts[] = {"visual_", "visual.", "vision_model.", "model_ema."};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n >= strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

static void report_unused_tensors(const tsr_component *c, const tsr_log *log)
{
    tsr_buf names = {0};
    const char *first = NULL, *near;
    int32_t n = 0;

    for (int32_t i = 0; i < c->n_tensors; i++) {
        const char *name = c->tensors[i]->name;
        if (c->used[i] || is_known_extra(name))
            continue;
        if (n < UNUSED_SHOWN)
            tsr_buf_printf(&names, "%s\"%s\"", n > 0 ? ", " : "", name);
        first = first ? first : name;
        n++;
    }
    near = first ? nearest(c, first, true) : NULL;
    if (n > 0)
        TSR_WARN(log, "%s: %d %s not used: %s%s%s%s%s", tsr_component_where(c), (int)n,
                 n == 1 ? "tensor is" : "tensors are", tsr_buf_ok(&names) ? names.data : first,
                 n > UNUSED_SHOWN ? ", ..." : "", near ? " (the nearest name that is used: \"" : "",
                 near ? near : "", near ? "\")" : "");
    tsr_buf_free(&names);
}

void tsr_component_report_unused(const tsr_component *c, const tsr_log *log)
{
    report_unused_tensors(c, log);
    for (int32_t f = 0; f < c->n_files; f++)
        if (c->files[f].n_uncovered_bytes > 0)
            TSR_WARN(log, "%s: %zu bytes belong to no tensor", c->files[f].file.path,
                     c->files[f].n_uncovered_bytes);
}
