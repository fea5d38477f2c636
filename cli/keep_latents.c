/* keep_latents.c -- see keep_latents.h.
 *
 * out/7.png is kept as out/7.latents.safetensors; where that is there already (of an earlier run)
 * as out/7.latents-2.safetensors, and so on: nothing is replaced. A picture that could not be
 * written may have a directory that cannot be written to: then the file goes to $TMPDIR or /tmp.
 *
 * The sentence has a fixed room. What failed is cut before the file's name is. */
#include "cli/keep_latents.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "cli/latents_file.h"
#include "cli/out_path.h"

enum { MOST_FILES = 10000 };

static bool is_free(const char *path)
{
    struct stat st;

    return lstat(path, &st) != 0;
}

/* A name of `dir` (NULL: the picture's own) that nothing has, from the picture's; NULL when out of
 * memory. */
static char *free_name(const char *picture, const char *dir)
{
    const char *slash = strrchr(picture, '/');
    int stem = (int)strlen(picture) - 4; /* .png: checked before the run */

    if (dir && slash) {
        stem -= (int)(slash + 1 - picture);
        picture = slash + 1;
    }
    for (int32_t i = 1; i < MOST_FILES; i++) {
        tsr_buf b = {0};

        if (dir)
            tsr_buf_printf(&b, "%s/", dir);
        tsr_buf_printf(&b, "%.*s.latents", stem, picture);
        if (i > 1)
            tsr_buf_printf(&b, "-%d", i);
        tsr_buf_puts(&b, ".safetensors");
        if (tsr_buf_ok(&b) && is_free(b.data))
            return b.data;
        tsr_buf_free(&b);
    }
    return NULL;
}

static tsr_status write_file(const tsr_kept *k, const char *path, tsr_err *err)
{
    tsr_latents_out out;
    tsr_status st;

    TSR_TRY(tsr_latents_open(&out, path, k->shape[0], err));
    st = tsr_latents_append_all(&out, k->latents, k->shape, err);
    if (st == TSR_OK)
        return tsr_latents_close(&out, err);
    tsr_latents_abort(&out);
    return st;
}

/* Beside the picture, or else in the directory for temporary files. */
static tsr_status write_somewhere(tsr_cli *c, const tsr_run_info *info, const tsr_kept *k,
                                  char **path, tsr_err *err)
{
    const char *tmp = getenv("TMPDIR"), *dirs[] = {NULL, tmp && *tmp ? tmp : "/tmp"};
    char *picture, *name;
    tsr_status st;

    TSR_TRY(tsr_out_path_make(c->opt.out, info->seed + (uint64_t)k->index, k->index,
                              info->n_pictures, &picture, err));
    for (int i = 0; i < 2; i++) {
        tsr_err_clear(err);
        name = free_name(picture, dirs[i]);
        st = name ? write_file(k, name, err)
                  : tsr_err_set(err, TSR_E_OOM, "there is no name for a file");
        if (st == TSR_OK) {
            *path = name;
            break;
        }
        tsr_free(name);
    }
    tsr_free(picture);
    return st;
}

/* How to go on; a size that was cut out of the decoder's is said. */
static void say_command(const tsr_cli *c, const tsr_run_info *info, const tsr_kept *k,
                        const char *path, tsr_buf *b)
{
    int32_t h = k->shape[2], w = k->shape[3];

    tsr_buf_printf(b, "; the finished latents are kept: \"gen decode %s", path);
    if (c->opt.model)
        tsr_buf_printf(b, " --model %s", c->opt.model);
    if (info->width % w || info->height % h || info->width / w != info->height / h)
        tsr_buf_printf(b, " --width %d --height %d", info->width, info->height);
    tsr_buf_puts(b, "\" makes the picture");
}

void tsr_keep_latents(tsr_cli *c, const tsr_run *run, const tsr_kept *kept, const char *path)
{
    tsr_err cause = c->err, second = {0};
    tsr_run_info info;
    tsr_buf more = {0};
    char *made = NULL;
    size_t room;

    tsr_run_get_info(run, &info);
    if (!path && write_somewhere(c, &info, kept, &made, &second) == TSR_OK)
        path = made;
    if (path)
        say_command(c, &info, kept, path, &more);
    else
        tsr_buf_printf(&more, "; the finished latents could not be kept: %s", second.msg);
    room = sizeof c->err.msg - 1;
    room -= tsr_buf_ok(&more) && more.len < room ? more.len : room;
    (void)tsr_err_set(&c->err, cause.code, "%.*s%s", (int)(room < 64 ? 64 : room), cause.msg,
                      tsr_buf_ok(&more) ? more.data : "");
    tsr_buf_free(&more);
    tsr_free(made);
}
