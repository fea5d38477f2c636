/* folder.c -- names to files; a range of a file is opened as a file of its own.
 *
 * Names are put together on the stack: asking whether a file is there cannot fail for lack of
 * memory, so nothing optional is ever taken to be missing because of that. */
#include "base/folder.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* sub/name, behind dir/ when that is not NULL; false when that is no possible path. */
static bool full_name(const tsr_folder *f, const char *dir, const char *name, char out[PATH_MAX])
{
    const char *sub = f->sub ? f->sub : "";
    size_t dir_len = dir ? strlen(dir) : 0;
    int n = snprintf(out, PATH_MAX, "%s%s%s%s%s", dir ? dir : "",
                     dir_len > 0 && dir[dir_len - 1] != '/' ? "/" : "", sub, *sub ? "/" : "", name);

    return n > 0 && n < PATH_MAX;
}

static const tsr_range *find_range(const tsr_folder *f, const char *name)
{
    char full[PATH_MAX];

    if (full_name(f, NULL, name, full))
        for (int32_t i = 0; i < f->n_ranges; i++)
            if (strcmp(f->ranges[i].name, full) == 0)
                return &f->ranges[i];
    return NULL;
}

bool tsr_folder_has(const tsr_folder *f, const char *name)
{
    char full[PATH_MAX];

    if (f->ranges)
        return find_range(f, name) != NULL;
    return full_name(f, f->path, name, full) && !tsr_path_is_absent(full);
}

static tsr_status open_range(const tsr_folder *f, const tsr_range *r, const char *full,
                             tsr_file *file, tsr_err *err)
{
    char *path;

    TSR_TRY(tsr_file_open(file, f->path, err));
    path = tsr_strdup(full);
    if (!path) {
        tsr_file_close(file);
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the file %s", full);
    }
    tsr_free(file->path);
    file->path = path;
    file->base = r->offset;
    file->size = r->bytes;
    return TSR_OK;
}

tsr_status tsr_folder_open(const tsr_folder *f, const char *name, tsr_file *file, tsr_err *err)
{
    char full[PATH_MAX];
    const tsr_range *r;

    *file = (tsr_file){.fd = -1};
    if (!full_name(f, f->path, name, full))
        TSR_FAIL(err, TSR_E_IO, "cannot open %s in %s: the name is too long", name, f->path);
    if (!f->ranges)
        return tsr_file_open(file, full, err);
    r = find_range(f, name);
    if (!r)
        TSR_FAIL(err, TSR_E_IO, "cannot open %s: it is not in this file", full);
    return open_range(f, r, full, file, err);
}

tsr_status tsr_folder_slurp(const tsr_folder *f, const char *name, size_t max_bytes, char **text,
                            size_t *len, tsr_err *err)
{
    tsr_file file;
    tsr_status st;

    if (!tsr_folder_has(f, name))
        TSR_FAIL(err, TSR_E_MODEL, "%s/%s%s%s is missing", f->path, f->sub ? f->sub : "",
                 f->sub ? "/" : "", name);
    TSR_TRY(tsr_folder_open(f, name, &file, err));
    st = tsr_file_text(&file, max_bytes, text, len, err);
    tsr_file_close(&file);
    return st;
}
