/* golden.c -- see golden.h. */
#include "tests/support/golden.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

/* ------------------------------------------------------------------- files */

const char *golden_root(int32_t i)
{
    return i == 0 ? TSR_SOURCE_DIR "/tests/data" : test_reference_dir();
}

bool golden_ok(tsr_status st, const tsr_err *err)
{
    CHECK_MSG(st == TSR_OK, "%s: %s", tsr_status_name(st), err->msg);
    return st == TSR_OK;
}

bool golden_has(const char *root, const char *path)
{
    char full[4096];

    snprintf(full, sizeof full, "%s/%s", root, path);
    return tsr_path_is_file(full);
}

bool golden_open_file(golden *g, const char *path)
{
    tsr_err err = {0};

    memset(g, 0, sizeof *g);
    if (!golden_ok(tsr_st_open(&g->st, path, &err), &err))
        return false;
    g->loaded = calloc((size_t)g->st.n_tensors, sizeof *g->loaded);
    CHECK(g->loaded);
    return g->loaded;
}

bool golden_open(golden *g, const char *root, const char *name)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/golden/%s.safetensors", root, name);
    return golden_open_file(g, path);
}

void golden_close(golden *g)
{
    for (int32_t i = 0; g->loaded && i < g->st.n_tensors; i++)
        free(g->loaded[i].data);
    free(g->loaded);
    g->loaded = NULL;
    tsr_st_close(&g->st);
}

/* All elements of one tensor as float32, in file order; NULL after failing the test. */
static float *read_floats(const tsr_st *st, const tsr_st_tensor *t, size_t *n)
{
    tsr_err err = {0};
    void *raw = malloc(t->bytes + 1);
    float *x;

    *n = t->bytes / tsr_dtype_size(t->dtype);
    x = malloc(*n * sizeof *x + 1);
    if (raw && x && golden_ok(tsr_file_read(&st->file, t->offset, raw, t->bytes, &err), &err)) {
        tsr_to_f32(x, raw, t->dtype, *n);
        free(raw);
        return x;
    }
    free(raw);
    free(x);
    return NULL;
}

static const golden_tensor *find(golden *g, const char *name)
{
    const tsr_st_tensor *t = tsr_st_find(&g->st, name);
    golden_tensor *x;

    if (!t)
        return NULL;
    x = &g->loaded[t - g->st.tensors];
    if (!x->data) {
        x->data = read_floats(&g->st, t, &x->n);
        x->n_dims = t->n_dims;
        for (int32_t d = 0; d < t->n_dims; d++)
            x->dims[d] = (int32_t)t->dims[d];
    }
    return x->data ? x : NULL;
}

const golden_tensor *golden_find(golden *g, const char *fmt, ...)
{
    char name[TSR_ST_MAX_NAME];
    va_list args;

    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    return find(g, name);
}

const golden_tensor *golden_need(golden *g, const char *fmt, ...)
{
    char name[TSR_ST_MAX_NAME];
    va_list args;
    const golden_tensor *x;

    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    x = find(g, name);
    CHECK_MSG(x, "no golden tensor \"%s\"", name);
    return x;
}

bool golden_next_case(const golden *g, const char *suffix, int32_t *pos, char *name,
                      size_t name_bytes)
{
    size_t tail = strlen(suffix);

    while (*pos < g->st.n_tensors) {
        const char *s = g->st.tensors[(*pos)++].name;
        size_t len = strlen(s);
        if (len > tail && len - tail < name_bytes && strcmp(s + len - tail, suffix) == 0) {
            memcpy(name, s, len - tail);
            name[len - tail] = '\0';
            return true;
        }
    }
    return false;
}

bool golden_component(tsr_component *c, const char *root, const char *model, const char *part,
                      const char *stem, tsr_err *err)
{
    char dir[4096];

    snprintf(dir, sizeof dir, "%s/models/%s/%s", root, model, part);
    return golden_ok(tsr_component_open(c, dir, part, stem, err), err);
}

static void fail_unused(void *user, tsr_log_level level, const char *line)
{
    (void)user;
    CHECK_MSG(level != TSR_LOG_WARNING, "%s", line);
}

void golden_check_all_used(const tsr_component *c)
{
    tsr_log log = {.fn = fail_unused};

    tsr_component_report_unused(c, &log);
}

/* -------------------------------------------------------------- conversion */

/* Header of a safetensors file with st's tensors in their order, all of type `store`. */
static void make_header(tsr_buf *b, const tsr_st *st, tsr_dtype store)
{
    size_t at = 0;

    tsr_buf_puts(b, "{");
    for (int32_t i = 0; i < st->n_tensors; i++) {
        const tsr_st_tensor *t = &st->tensors[i];
        size_t bytes = t->bytes / tsr_dtype_size(t->dtype) * tsr_dtype_size(store);
        tsr_buf_puts(b, i ? "," : "");
        tsr_buf_json_string(b, t->name);
        tsr_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", tsr_dtype_name(store));
        for (int32_t d = 0; d < t->n_dims; d++)
            tsr_buf_printf(b, "%s%lld", d ? "," : "", (long long)t->dims[d]);
        tsr_buf_printf(b, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
        at += bytes;
    }
    tsr_buf_puts(b, "}");
}

static bool write_tensor(FILE *f, const tsr_st *st, const tsr_st_tensor *t, tsr_dtype round,
                         tsr_dtype store)
{
    size_t n, size = tsr_dtype_size(store);
    float *x = read_floats(st, t, &n);
    void *raw = x ? malloc(n * sizeof(float) + 1) : NULL;
    bool ok = false;

    if (raw) {
        tsr_from_f32(raw, round, x, n);
        tsr_to_f32(x, raw, round, n);
        tsr_from_f32(raw, store, x, n);
        ok = fwrite(raw, size, n, f) == n;
    }
    free(raw);
    free(x);
    return ok;
}

bool golden_convert(const char *src, const char *dst, tsr_dtype round, tsr_dtype store)
{
    tsr_st st = {0};
    tsr_err err = {0};
    tsr_buf header = {0};
    FILE *f = NULL;
    bool ok = golden_ok(tsr_st_open(&st, src, &err), &err);

    if (ok) {
        uint64_t bytes;
        make_header(&header, &st, store);
        bytes = header.len; /* little-endian machines only, as the library itself */
        f = fopen(dst, "wb");
        ok = tsr_buf_ok(&header) && f && fwrite(&bytes, 8, 1, f) == 1 &&
             fwrite(header.data, 1, header.len, f) == header.len;
    }
    for (int32_t i = 0; ok && i < st.n_tensors; i++)
        ok = write_tensor(f, &st, &st.tensors[i], round, store);
    if (f && fclose(f) != 0)
        ok = false;
    tsr_buf_free(&header);
    tsr_st_close(&st);
    CHECK_MSG(ok, "cannot write %s", dst);
    return ok;
}

/* ----------------------------------------------------------------- running */

void golden_net_init(golden_net *n, tsr_dtype dtype)
{
    memset(n, 0, sizeof *n);
    tsr_tape_init(&n->tape, dtype, &n->err);
}

bool golden_net_plan(golden_net *n, tsr_cpu_tier tier, int32_t n_threads, int32_t window_rows)
{
    tsr_program *p = &n->program;
    const tsr_backend *b = tsr_cpu_backend(tier);
    tsr_plan_options opt = {.tile_rows = window_rows};

    CHECK_MSG(b, "no backend for tier %s", tsr_cpu_tier_name(tier));
    if (!b || !golden_ok(tsr_pool_make(&n->pool, n_threads, &n->err), &n->err) ||
        !golden_ok(tsr_program_make(p, &n->tape, b, n->pool, &opt, &n->err), &n->err) ||
        !golden_ok(tsr_arena_make(&n->arena, tsr_program_bytes(p), &n->err), &n->err))
        return false;
    tsr_program_bind(p, &n->arena, 0);
    return golden_ok(tsr_program_load(p), &n->err);
}

bool golden_net_put(golden_net *n, tsr_val v, const float *x, size_t count)
{
    const tsr_value *val = tsr_tape_value(&n->tape, v);
    void *dst = tsr_program_data(&n->program, v);

    CHECK_MSG(tsr_value_bytes(val) == count * tsr_dtype_size(val->dtype),
              "input \"%s\" has %zu bytes, not %zu elements", val->name ? val->name : "",
              tsr_value_bytes(val), count);
    if (tsr_value_bytes(val) != count * tsr_dtype_size(val->dtype))
        return false;
    if (val->dtype == TSR_I32) {
        for (size_t i = 0; i < count; i++)
            ((int32_t *)dst)[i] = (int32_t)x[i];
    } else {
        tsr_from_f32(dst, val->dtype, x, count);
    }
    return true;
}

float *golden_net_get(golden_net *n, tsr_val v, size_t *count)
{
    const tsr_value *val = tsr_tape_value(&n->tape, v);
    float *x;

    *count = tsr_value_bytes(val) / tsr_dtype_size(val->dtype);
    x = malloc(*count * sizeof *x);
    CHECK(x);
    if (x)
        tsr_to_f32(x, tsr_program_data(&n->program, v), val->dtype, *count);
    return x;
}

float *golden_net_get_nchw(golden_net *n, tsr_val v, size_t *count)
{
    const tsr_value *val = tsr_tape_value(&n->tape, v);
    size_t c = (size_t)val->c, hw = (size_t)val->h * (size_t)val->w;
    float *nhwc = golden_net_get(n, v, count), *nchw = malloc(*count * sizeof *nchw);

    for (size_t i = 0; nhwc && nchw && i < *count; i++) {
        size_t entry = i / (hw * c), pixel = i / c % hw;
        nchw[(entry * c + i % c) * hw + pixel] = nhwc[i];
    }
    free(nhwc);
    return nchw;
}

bool golden_net_run(golden_net *n, bool prologue, int32_t step)
{
    return golden_ok(prologue ? tsr_program_run_prologue(&n->program)
                              : tsr_program_run_step(&n->program, step),
                     &n->err);
}

void golden_net_free(golden_net *n)
{
    tsr_program_free(&n->program);
    tsr_tape_free(&n->tape);
    tsr_arena_free(&n->arena);
    tsr_pool_free(n->pool);
    n->pool = NULL;
}

void golden_compare(const char *what, const char *precision, const char *tier, const float *got,
                    size_t n_got, const golden_tensor *want, double tolerance)
{
    double error;

    CHECK_MSG(got && want && n_got == want->n, "%s: %zu values, expected %zu", what, n_got,
              want ? want->n : 0);
    if (!got || !want || n_got != want->n)
        return;
    error = test_rel_l2(got, want->data, n_got);
    test_note("%-46s %s %-9s %.2e  <= %.0e", what, precision, tier, error, tolerance);
    CHECK_MSG(error <= tolerance, "%s %s %s: error %.3e is above %.0e", what, precision, tier,
              error, tolerance);
}
