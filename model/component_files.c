/* component_files.c -- finds and opens the safetensors files of one component.
 *
 * A folder may hold the tensors in one file or in shards with an index, in a plain and in an fp16
 * variant; the plain one is taken when both are there, since it is what the reference loads:
 *
 *     <stem>.safetensors           <stem>.safetensors.index.json
 *     <stem>.fp16.safetensors      <stem>.fp16.safetensors.index.json
 *                                  <stem>.safetensors.index.fp16.json   (older name)
 *
 * An index maps tensor names to shards ("weight_map"). It comes from the internet, so a shard is a
 * plain file name in the same folder and nothing else, and every tensor it lists must be where it
 * says. Pickles (.bin, .ckpt) run code when they are read: they are recognised, to say so, and
 * never opened. */
#include "model/component_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_pull.h"

static const char text_prefix[] = "text_model.";

enum { MAX_SHARDS = 256, MAX_INDEX_BYTES = 64 << 20, MAX_FILE_NAME = 255 };

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

static tsr_status out_of_memory(const tsr_component *c)
{
    return tsr_err_set(c->err, TSR_E_OOM, "out of memory for the tensor table of %s", c->name);
}

static tsr_status is_there(const tsr_component *c, const char *file_name, bool *there)
{
    char *path = tsr_path_join(c->dir, file_name);

    if (!path)
        return out_of_memory(c);
    *there = !tsr_path_is_absent(path);
    tsr_free(path);
    return TSR_OK;
}

static tsr_status open_file(tsr_component *c, size_t *cap, const char *file_name)
{
    char *path = tsr_path_join(c->dir, file_name);
    tsr_status st;

    if (!path || !tsr_grow((void **)&c->files, cap, (size_t)c->n_files + 1, sizeof *c->files)) {
        tsr_free(path);
        return out_of_memory(c);
    }
    st = tsr_st_open(&c->files[c->n_files], path, c->err);
    c->n_files += st == TSR_OK;
    tsr_free(path);
    return st;
}

/* ------------------------------------------------------------------ index */

/* A plain name of a safetensors file: no folders, no "..", not hidden. */
static bool good_shard_name(const char *s, size_t len)
{
    return len > 0 && len <= MAX_FILE_NAME && strlen(s) == len && s[0] != '.' &&
           !strpbrk(s, "/\\") && ends_with(s, ".safetensors");
}

static const char *file_name_of(const tsr_st *st)
{
    const char *slash = strrchr(st->file.path, '/');

    return slash ? slash + 1 : st->file.path;
}

/* The number of the open shard with this name, opening it when it is new. */
static tsr_status find_shard(tsr_component *c, size_t *cap, const char *shard, int32_t *index)
{
    bool there = false;

    for (int32_t i = c->n_files - 1; i >= 0; i--) /* neighbours are mostly in the same shard */
        if (strcmp(file_name_of(&c->files[i]), shard) == 0) {
            *index = i;
            return TSR_OK;
        }
    if (c->n_files == MAX_SHARDS)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: the index names more than %d files", c->dir, MAX_SHARDS);
    TSR_TRY(is_there(c, shard, &there));
    if (!there)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: %s is missing, which the index names", c->dir, shard);
    TSR_TRY(open_file(c, cap, shard));
    *index = c->n_files - 1;
    return TSR_OK;
}

/* The parser's own error when there is one (it names the file), else what was expected. */
static tsr_status index_broken(const tsr_component *c, const tsr_json *j, const tsr_file *f,
                               const char *what)
{
    tsr_status st = tsr_json_status(j);

    return st != TSR_OK ? st : tsr_err_set(c->err, TSR_E_MODEL, "%s: %s", f->path, what);
}

/* One entry, "tensor": "shard", whose key was just read. */
static tsr_status read_map_entry(tsr_component *c, size_t *cap, tsr_json *j, const tsr_file *f)
{
    char tensor[TSR_ST_MAX_NAME + 1];
    const char *shard;
    size_t len;
    int32_t i = 0;

    snprintf(tensor, sizeof tensor, "%s", tsr_json_text(j, NULL));
    if (tsr_json_next(j) != TSR_JSON_STRING)
        return index_broken(c, j, f, "weight_map must map tensor names to file names");
    shard = tsr_json_text(j, &len);
    if (!good_shard_name(shard, len))
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s: \"%s\" is not the plain name of a .safetensors file in this folder", f->path,
                 shard);
    TSR_TRY(find_shard(c, cap, shard, &i));
    if (!tsr_st_find(&c->files[i], tensor))
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: tensor \"%s\" should be in %s and is not", f->path,
                 tensor, shard);
    return TSR_OK;
}

static tsr_status read_index(tsr_component *c, tsr_json *j, const tsr_file *f)
{
    size_t cap = 0;
    tsr_json_event e;

    if (tsr_json_next(j) != TSR_JSON_OBJECT)
        return index_broken(c, j, f, "the index is not a JSON object");
    while ((e = tsr_json_next(j)) == TSR_JSON_KEY) {
        if (strcmp(tsr_json_text(j, NULL), "weight_map") != 0) {
            if (!tsr_json_skip(j))
                return index_broken(c, j, f, "not JSON");
            continue;
        }
        if (tsr_json_next(j) != TSR_JSON_OBJECT)
            return index_broken(c, j, f, "weight_map is not an object");
        while ((e = tsr_json_next(j)) == TSR_JSON_KEY)
            TSR_TRY(read_map_entry(c, &cap, j, f));
        if (e != TSR_JSON_OBJECT_END)
            return index_broken(c, j, f, "not JSON");
    }
    if (e != TSR_JSON_OBJECT_END || tsr_json_next(j) != TSR_JSON_END)
        return index_broken(c, j, f, "not JSON");
    if (c->n_files == 0)
        return index_broken(c, j, f, "the index names no file");
    return TSR_OK;
}

static tsr_status open_shards(tsr_component *c, const char *index_name)
{
    char *path = tsr_path_join(c->dir, index_name);
    tsr_file f = {.fd = -1};
    tsr_json *j = NULL;
    tsr_status st;

    if (!path)
        return out_of_memory(c);
    st = tsr_file_open(&f, path, c->err);
    if (st == TSR_OK && f.size > MAX_INDEX_BYTES)
        st = tsr_err_set(c->err, TSR_E_MODEL, "%s: an index of %zu bytes is too large", path,
                         f.size);
    if (st == TSR_OK)
        st = tsr_json_open_file(&j, &f, 0, f.size, TSR_ST_MAX_NAME, c->err);
    if (st == TSR_OK)
        st = read_index(c, j, &f);
    tsr_json_close(j);
    tsr_file_close(&f);
    tsr_free(path);
    return st;
}

/* ------------------------------------------------------------------ which files */

/* Name of a pickled checkpoint in the folder, into name[MAX_FILE_NAME + 1]; false when none. */
static bool find_pickle(const char *dir, char *name)
{
    static const char *const ends[] = {".bin", ".ckpt", ".pt", ".pth", ".pkl"};
    DIR *d = opendir(dir);
    const struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d)))
        for (size_t i = 0; i < sizeof ends / sizeof *ends && !found; i++)
            if (ends_with(e->d_name, ends[i])) {
                snprintf(name, MAX_FILE_NAME + 1, "%s", e->d_name);
                found = true;
            }
    if (d)
        closedir(d);
    return found;
}

static tsr_status nothing_there(const tsr_component *c, const char *stem)
{
    char pickle[MAX_FILE_NAME + 1];

    if (!tsr_path_is_dir(c->dir))
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: the folder of the model's %s is missing", c->dir,
                 c->name);
    if (find_pickle(c->dir, pickle))
        TSR_FAIL(c->err, TSR_E_MODEL,
                 "%s has only %s: pickles can run code when they are read, so they are never "
                 "opened; convert it to %s.safetensors (in Python: diffusers' "
                 "save_pretrained(..., safe_serialization=True))",
                 c->dir, pickle, stem);
    TSR_FAIL(c->err, TSR_E_MODEL,
             "%s: no tensors of the %s; looked for %s.safetensors, %s.fp16.safetensors and their "
             "index files",
             c->dir, c->name, stem, stem);
}

static tsr_status open_files(tsr_component *c, const char *stem)
{
    static const char *const ends[] = {".safetensors", ".safetensors.index.json",
                                       ".fp16.safetensors", ".fp16.safetensors.index.json",
                                       ".safetensors.index.fp16.json"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char name[MAX_FILE_NAME + 1];
        size_t cap = 0;
        bool there = false;
        snprintf(name, sizeof name, "%s%s", stem, ends[i]);
        TSR_TRY(is_there(c, name, &there));
        if (there)
            return ends_with(name, ".json") ? open_shards(c, name) : open_file(c, &cap, name);
    }
    return nothing_there(c, stem);
}

/* ------------------------------------------------------------------ one table */

typedef struct entry {
    const tsr_st_tensor *tensor;
    int32_t file;
} entry;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->tensor->name, ((const entry *)b)->tensor->name);
}

static tsr_status doubled(const tsr_component *c, const entry *a, const entry *b)
{
    if (c->packed)
        TSR_FAIL(c->err, TSR_E_MODEL, "%s: tensor \"%s\" of the %s is there twice", c->dir,
                 a->tensor->name, c->name);
    TSR_FAIL(c->err, TSR_E_MODEL, "%s: tensor \"%s\" is in %s and in %s", c->dir, a->tensor->name,
             file_name_of(&c->files[a->file]), file_name_of(&c->files[b->file]));
}

/* Fills the tables from the entries, which get sorted. */
static tsr_status fill_tables(tsr_component *c, entry *all, int32_t n)
{
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int32_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(all[i - 1].tensor->name, all[i].tensor->name) == 0)
            return doubled(c, &all[i - 1], &all[i]);
        c->tensors[i] = all[i].tensor;
        c->file_of[i] = all[i].file;
    }
    c->n_tensors = n;
    return TSR_OK;
}

static tsr_status make_tables(tsr_component *c, const tsr_packed_part *part)
{
    size_t n = part ? (size_t)part->n_tensors : 0;
    int32_t at = 0;
    entry *all;
    tsr_status st;

    for (int32_t f = 0; f < c->n_files; f++)
        n += (size_t)c->files[f].n_tensors;
    all = tsr_calloc(n, sizeof *all);
    c->tensors = tsr_calloc(n, sizeof *c->tensors);
    c->file_of = tsr_calloc(n, sizeof *c->file_of);
    c->used = tsr_calloc(n, 1);
    c->scanned = tsr_calloc(n, 1);
    if (!all || !c->tensors || !c->file_of || !c->used || !c->scanned) {
        tsr_free(all);
        return out_of_memory(c);
    }
    for (int32_t f = 0; f < c->n_files; f++)
        for (int32_t i = 0; i < c->files[f].n_tensors; i++)
            all[at++] = (entry){&c->files[f].tensors[i], f};
    for (int32_t i = 0; part && i < part->n_tensors; i++)
        all[at++] = (entry){&c->packed->tensors[part->first + i], part->first + i};
    st = fill_tables(c, all, at);
    tsr_free(all);
    return st;
}

tsr_status tsr_component_open(tsr_component *c, const char *dir, const char *name, const char *stem,
                              tsr_err *err)
{
    tsr_status st = TSR_OK;

    memset(c, 0, sizeof *c);
    c->source.read = tsr_component_read;
    c->err = err;
    c->prefix = strcmp(stem, "model") == 0 ? text_prefix : NULL; /* text encoders' stem */
    c->name = tsr_strdup(name);
    c->dir = tsr_strdup(dir);
    if (!c->name || !c->dir)
        st = tsr_err_set(err, TSR_E_OOM, "out of memory for the tensor table of %s", name);
    if (st == TSR_OK)
        st = open_files(c, stem);
    if (st == TSR_OK)
        st = make_tables(c, NULL);
    if (st != TSR_OK)
        tsr_component_close(c);
    return st;
}

tsr_status tsr_component_open_packed(tsr_component *c, const tsr_packed *p, const char *name,
                                     tsr_err *err)
{
    const tsr_packed_part *part = tsr_packed_find_part(p, name);
    tsr_status st;

    if (!part)
        TSR_FAIL(err, TSR_E_MODEL, "%s has no %s", p->file.path, name);
    *c = (tsr_component){.source = {tsr_component_read_packed, true}, .err = err, .packed = p};
    c->packed_hash = part->hash;
    c->prefix = strncmp(name, "text_encoder", strlen("text_encoder")) == 0 ? text_prefix : NULL;
    c->name = tsr_strdup(name);
    c->dir = tsr_strdup(p->file.path);
    st = c->name && c->dir
             ? make_tables(c, part)
             : tsr_err_set(err, TSR_E_OOM, "out of memory for the tensor table of %s", name);
    if (st != TSR_OK)
        tsr_component_close(c);
    return st;
}

void tsr_component_close(tsr_component *c)
{
    for (int32_t i = 0; i < c->n_files; i++)
        tsr_st_close(&c->files[i]);
    tsr_free(c->files);
    tsr_free(c->tensors);
    tsr_free(c->file_of);
    tsr_free(c->used);
    tsr_free(c->scanned);
    tsr_free(c->name);
    tsr_free(c->dir);
    memset(c, 0, sizeof *c);
}
