/* hashed_weights.c -- full-size model directories with pseudo-random weights, for tests.
 *
 *     hashed_weights --spec reference/full/sd15 --out DIR [--only vae] [--seed N]
 *
 * SPEC holds configs and tensors.json: {"seed": 0, "tokenizers": {"tokenizer": "path"},
 * "components":
 * {"unet": {"conv_in.weight": [320,4,3,3], ..}, ..}}. The configs are copied, tokenizers too (their
 * paths are relative to --tokenizers, which is SPEC/../.. when not given), and each component
 * becomes one fp16 safetensors file: names in byte order, no gaps, header padded to 8 bytes. The
 * bytes are those of the reference's hashed_weights.py. Element i of tensor `name` in `component`:
 *
 *     key = fnv1a64(component "/" name) + seed * GAMMA        (all mod 2^64; splitmix64)
 *     z = key + i + GAMMA;            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
 *     z = (z ^ (z >> 27)) * 0x94D049BB133111EB;               z = z ^ (z >> 31)
 *     u = ((z >> 40) - 2^23) * 2^-23                          exact, in [-1, 1)
 *
 *     norm weight (1-d *.weight)   1 + u * 0.125     token_embedding.weight     u * 0.5
 *     any other 1-d                u * 0.125         position_embedding.weight  u * 0.25
 *     the rest                     u * (float)sqrt(3 / fan_in), fan_in = product of dims but the
 *                                  first
 *
 * in float32, then rounded to half, to nearest even. Memory is one block of 4 MiB, whatever the
 * model. A weight takes 7 ns of one core (measured), SDXL's 3.5e9 take 12 s on two, plus the disk.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/json_pull.h"
#include "base/num.h"
#include "base/pool.h"
#include "base/text_util.h"

#define GAMMA 0x9E3779B97F4A7C15u

enum {
    MAX_NAME = 256,
    MAX_DIMS = 4,
    MAX_PATH = 4096,
    MAX_LINKS = 8,
    TASK = 1 << 15,       /* elements a task makes */
    BLOCK = 64 * TASK,    /* elements written at once */
    RUN_OF_FLOATS = 2048, /* elements that are converted at once */
    HEADER_ALIGN = 8
};

typedef struct spec_tensor {
    char component[64], name[MAX_NAME];
    int64_t dims[MAX_DIMS];
    int32_t n_dims;
} spec_tensor;

typedef struct tokenizer_link {
    char name[64], path[MAX_NAME];
} tokenizer_link;

typedef struct spec {
    spec_tensor *tensors;
    size_t n, cap;
    tokenizer_link links[MAX_LINKS];
    size_t n_links;
    uint64_t seed;
} spec;

static _Noreturn void TSR_PRINTF(1, 2) die(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fprintf(stderr, "hashed_weights: ");
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void TSR_PRINTF(2, 3) path_to(char path[MAX_PATH], const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(path, MAX_PATH, fmt, args);
    va_end(args);
    if (n < 0 || n >= MAX_PATH)
        die("a path is too long");
}

/* ------------------------------------------------------------------ tensors.json */

static void want(bool ok)
{
    if (!ok)
        die("tensors.json is not what is described at the top of hashed_weights.c");
}

static void copy_text(const tsr_json *j, char *to, size_t bytes)
{
    int n = snprintf(to, bytes, "%s", tsr_json_text(j, NULL));

    want(n >= 0 && (size_t)n < bytes);
}

static void read_shape(tsr_json *j, spec_tensor *t)
{
    uint64_t v;

    want(tsr_json_next(j) == TSR_JSON_ARRAY);
    while (tsr_json_next(j) == TSR_JSON_NUMBER) {
        want(t->n_dims < MAX_DIMS && tsr_json_u64(j, &v) && v > 0 && v <= INT32_MAX);
        t->dims[t->n_dims++] = (int64_t)v;
    }
    want(t->n_dims > 0);
}

static void read_components(tsr_json *j, spec *s)
{
    spec_tensor t = {0};

    want(tsr_json_next(j) == TSR_JSON_OBJECT);
    while (tsr_json_next(j) == TSR_JSON_KEY) {
        copy_text(j, t.component, sizeof t.component);
        want(tsr_json_next(j) == TSR_JSON_OBJECT);
        while (tsr_json_next(j) == TSR_JSON_KEY) {
            copy_text(j, t.name, sizeof t.name);
            t.n_dims = 0;
            read_shape(j, &t);
            if (!tsr_grow((void **)&s->tensors, &s->cap, s->n + 1, sizeof t))
                die("out of memory");
            s->tensors[s->n++] = t;
        }
    }
}

static void read_tokenizers(tsr_json *j, spec *s)
{
    want(tsr_json_next(j) == TSR_JSON_OBJECT);
    while (tsr_json_next(j) == TSR_JSON_KEY) {
        want(s->n_links < MAX_LINKS);
        copy_text(j, s->links[s->n_links].name, sizeof s->links->name);
        want(tsr_json_next(j) == TSR_JSON_STRING);
        copy_text(j, s->links[s->n_links++].path, sizeof s->links->path);
    }
}

/* By component, then in the order that Python's sorted() gives. */
static int by_name(const void *a, const void *b)
{
    const spec_tensor *x = a, *y = b;
    int c = strcmp(x->component, y->component);

    return c ? c : strcmp(x->name, y->name);
}

static void read_spec(spec *s, const char *dir)
{
    char path[MAX_PATH];
    tsr_err err = {0};
    tsr_file f;
    tsr_json *j;

    path_to(path, "%s/tensors.json", dir);
    if (tsr_file_open(&f, path, &err) != TSR_OK ||
        tsr_json_open_file(&j, &f, 0, f.size, MAX_NAME, &err) != TSR_OK)
        die("%s", err.msg);
    want(tsr_json_next(j) == TSR_JSON_OBJECT);
    while (tsr_json_next(j) == TSR_JSON_KEY) {
        const char *key = tsr_json_text(j, NULL);
        if (strcmp(key, "components") == 0)
            read_components(j, s);
        else if (strcmp(key, "tokenizers") == 0)
            read_tokenizers(j, s);
        else if (strcmp(key, "seed") == 0)
            want(tsr_json_next(j) == TSR_JSON_NUMBER && tsr_json_u64(j, &s->seed));
        else
            want(tsr_json_skip(j));
    }
    if (tsr_json_status(j) != TSR_OK)
        die("%s", err.msg);
    tsr_json_close(j);
    tsr_file_close(&f);
    want(s->n > 0);
    qsort(s->tensors, s->n, sizeof *s->tensors, by_name);
}

/* ------------------------------------------------------------------ values */

typedef struct fill {
    uint64_t key; /* of the tensor, GAMMA added */
    uint64_t start, count;
    float offset, scale;
    uint16_t *out; /* [count] */
} fill;

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

static uint64_t count_elements(const spec_tensor *t)
{
    uint64_t n = 1;

    for (int32_t i = 0; i < t->n_dims; i++)
        n *= (uint64_t)t->dims[i];
    return n;
}

static void set_rule(fill *f, const spec_tensor *t)
{
    f->offset = 0;
    if (t->n_dims == 1) {
        f->offset = ends_with(t->name, ".weight") ? 1.0f : 0.0f;
        f->scale = 0.125f;
    } else if (ends_with(t->name, "token_embedding.weight")) {
        f->scale = 0.5f;
    } else if (ends_with(t->name, "position_embedding.weight")) {
        f->scale = 0.25f;
    } else {
        f->scale = (float)sqrt(3.0 / (double)(count_elements(t) / (uint64_t)t->dims[0]));
    }
}

static void fill_floats(const fill *f, uint64_t at, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t z = f->key + at + i;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        float u = (float)((int32_t)(z >> 40) - (1 << 23)) * 0x1p-23f;
        out[i] = u * f->scale + f->offset; /* two roundings: built with -ffp-contract=off */
    }
}

static void fill_task(void *arg, int32_t task, int32_t thread)
{
    const fill *f = arg;
    uint64_t begin = (uint64_t)task * TASK;
    uint64_t end = begin + TASK < f->count ? begin + TASK : f->count;
    float floats[RUN_OF_FLOATS];

    (void)thread;
    for (uint64_t i = begin; i < end; i += RUN_OF_FLOATS) {
        size_t n = (size_t)(end - i < RUN_OF_FLOATS ? end - i : RUN_OF_FLOATS);
        fill_floats(f, f->start + i, n, floats);
        tsr_from_f32(f->out + i, TSR_F16, floats, n);
    }
}

/* ------------------------------------------------------------------ files */

static void write_all(FILE *f, const void *data, size_t bytes, const char *path)
{
    if (fwrite(data, 1, bytes, f) != bytes)
        die("cannot write %s: %s", path, strerror(errno));
}

static FILE *create(const char *path)
{
    tsr_err err = {0};
    FILE *f;

    if (tsr_make_parent_dirs(path, &err) != TSR_OK)
        die("%s", err.msg);
    f = fopen(path, "wb");
    if (!f)
        die("cannot write %s: %s", path, strerror(errno));
    return f;
}

static void finish(FILE *f, const char *path)
{
    if (fclose(f) != 0)
        die("cannot write %s: %s", path, strerror(errno));
}

static void write_header(FILE *f, const char *path, const spec_tensor *t, size_t n)
{
    tsr_buf b = {0};
    uint64_t offset = 0;
    uint8_t prefix[8];

    tsr_buf_puts(&b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = 2 * count_elements(&t[i]);
        tsr_buf_puts(&b, ",");
        tsr_buf_json_string(&b, t[i].name);
        tsr_buf_puts(&b, ":{\"dtype\":\"F16\",\"shape\":[");
        for (int32_t d = 0; d < t[i].n_dims; d++)
            tsr_buf_printf(&b, "%s%" PRId64, d > 0 ? "," : "", t[i].dims[d]);
        tsr_buf_printf(&b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + bytes);
        offset += bytes;
    }
    tsr_buf_puts(&b, "}");
    while (tsr_buf_ok(&b) && b.len % HEADER_ALIGN != 0)
        tsr_buf_puts(&b, " ");
    if (!tsr_buf_ok(&b))
        die("out of memory");
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)(b.len >> (8 * i));
    write_all(f, prefix, sizeof prefix, path);
    write_all(f, b.data, b.len, path);
    tsr_buf_free(&b);
}

static void write_tensor(FILE *f, const char *path, const spec_tensor *t, uint64_t seed,
                         tsr_pool *pool, uint16_t *block)
{
    uint64_t total = count_elements(t);
    fill job = {.out = block};

    job.key = tsr_fnv1a64(t->component, strlen(t->component), TSR_FNV_SEED);
    job.key = tsr_fnv1a64("/", 1, job.key);
    job.key = tsr_fnv1a64(t->name, strlen(t->name), job.key);
    job.key += (seed + 1) * GAMMA;
    set_rule(&job, t);
    for (job.start = 0; job.start < total; job.start += BLOCK) {
        job.count = total - job.start < BLOCK ? total - job.start : BLOCK;
        tsr_pool_run(pool, (int32_t)((job.count + TASK - 1) / TASK), fill_task, &job);
        write_all(f, block, 2 * (size_t)job.count, path);
    }
}

/* The tensors t[0..n) of one component. */
static void write_component(const char *out, const spec_tensor *t, size_t n, uint64_t seed,
                            tsr_pool *pool)
{
    bool text = strncmp(t->component, "text_encoder", strlen("text_encoder")) == 0;
    uint16_t *block = tsr_malloc(BLOCK * sizeof *block);
    char path[MAX_PATH];
    FILE *f;

    if (!block)
        die("out of memory");
    path_to(path, "%s/%s/%s.safetensors", out, t->component,
            text ? "model" : "diffusion_pytorch_model");
    f = create(path);
    write_header(f, path, t, n);
    for (size_t i = 0; i < n; i++)
        write_tensor(f, path, &t[i], seed, pool, block);
    printf("%s %ld\n", path, ftell(f));
    finish(f, path);
    tsr_free(block);
}

static void copy_file(const char *from, const char *to)
{
    enum { MOST = 64 << 20 };
    tsr_err err = {0};
    char *text;
    size_t len;
    FILE *f;

    if (tsr_file_slurp(from, MOST, &text, &len, &err) != TSR_OK)
        die("%s", err.msg);
    f = create(to);
    write_all(f, text, len, to);
    finish(f, to);
    tsr_free(text);
}

/* Everything below `from`, but tensors.json. */
static void copy_tree(const char *from, const char *to)
{
    DIR *d = opendir(from);
    const struct dirent *e;

    if (!d)
        die("cannot read %s: %s", from, strerror(errno));
    while ((e = readdir(d))) {
        char source[MAX_PATH], target[MAX_PATH];
        if (e->d_name[0] == '.' || strcmp(e->d_name, "tensors.json") == 0)
            continue;
        path_to(source, "%s/%s", from, e->d_name);
        path_to(target, "%s/%s", to, e->d_name);
        if (tsr_path_is_dir(source))
            copy_tree(source, target);
        else
            copy_file(source, target);
    }
    closedir(d);
}

/* ------------------------------------------------------------------ main */

typedef struct options {
    const char *spec, *out, *only, *tokenizers;
    const char *seed; /* NULL: the spec's */
} options;

static options parse_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"spec", required_argument, NULL, 's'}, {"out", required_argument, NULL, 'o'},
        {"only", required_argument, NULL, 'n'}, {"tokenizers", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 'd'}, {NULL, 0, NULL, 0}};
    options o = {0};
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        const char **to = c == 's'   ? &o.spec
                          : c == 'o' ? &o.out
                          : c == 'n' ? &o.only
                          : c == 't' ? &o.tokenizers
                          : c == 'd' ? &o.seed
                                     : NULL;
        if (!to)
            exit(2);
        *to = optarg;
    }
    if (!o.spec || !o.out || optind < argc) {
        fprintf(stderr, "usage: hashed_weights --spec DIR --out DIR [--only COMPONENT] [--seed N] "
                        "[--tokenizers DIR]\n");
        exit(2);
    }
    return o;
}

static void copy_tokenizers(const spec *s, const options *o)
{
    char root[MAX_PATH], from[MAX_PATH], to[MAX_PATH];

    path_to(root, "%s%s", o->tokenizers ? o->tokenizers : o->spec, o->tokenizers ? "" : "/../..");
    for (size_t i = 0; i < s->n_links; i++) {
        path_to(from, "%s/%s", root, s->links[i].path);
        path_to(to, "%s/%s", o->out, s->links[i].name);
        copy_tree(from, to);
    }
}

int main(int argc, char **argv)
{
    options o = parse_options(argc, argv);
    spec s = {0};
    tsr_err err = {0};
    tsr_pool *pool;

    read_spec(&s, o.spec);
    if (o.seed)
        s.seed = strtoull(o.seed, NULL, 10);
    if (tsr_pool_make(&pool, tsr_cpu_count(), &err) != TSR_OK)
        die("%s", err.msg);
    copy_tree(o.spec, o.out);
    copy_tokenizers(&s, &o);
    for (size_t i = 0, end; i < s.n; i = end) {
        for (end = i + 1;
             end < s.n && strcmp(s.tensors[i].component, s.tensors[end].component) == 0;)
            end++;
        if (!o.only || strcmp(o.only, s.tensors[i].component) == 0)
            write_component(o.out, &s.tensors[i], end - i, s.seed, pool);
    }
    tsr_pool_free(pool);
    tsr_free(s.tensors);
    return 0;
}
