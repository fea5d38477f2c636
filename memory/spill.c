/* spill.c -- a temporary file without a name, its space set aside before the first step.
 *
 * The file is unlinked as soon as it is open. Space is set aside with fallocate, so that a full
 * disk is found now and not in the middle of a picture; a file system that cannot do that gets its
 * free space looked at instead. The process's limit on file sizes is looked at as well: exceeding
 * it would be a signal, not an error. */
#include "memory/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/space.h"
#include "base/text_util.h"

/* f_type of the file systems whose files are in memory (linux/magic.h has them signed) */
enum { TMPFS = 0x01021994 };
#define RAMFS 0x858458F6u

#define WHAT_HELPS "give --spill-dir another directory, or a larger --budget"

/* dir/tessera-spill-XXXXXX, made, opened and unlinked. */
static tsr_status make_file(tsr_file *f, const char *dir, tsr_err *err)
{
    char *path = tsr_path_join(dir, "tessera-spill-XXXXXX");
    tsr_buf name = {0};
    int error;

    tsr_buf_printf(&name, "the spill file in %s (--spill-dir gives it another place)", dir);
    if (!path || !tsr_buf_ok(&name)) {
        tsr_free(path);
        tsr_buf_free(&name);
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the spill file");
    }
    f->fd = mkostemp(path, O_CLOEXEC);
    error = errno;
    if (f->fd >= 0)
        unlink(path);
    tsr_free(path);
    if (f->fd < 0) {
        char text[96];
        tsr_buf_free(&name);
        TSR_FAIL(err, TSR_E_IO, "cannot make a file to spill to in %s: %s; " WHAT_HELPS, dir,
                 strerror_r(error, text, sizeof text));
    }
    f->path = name.data;
    return TSR_OK;
}

static tsr_status set_aside(tsr_file *f, const char *dir, size_t bytes, tsr_err *err)
{
    size_t most, need = tsr_space_mebibytes(bytes);
    int error = tsr_space_reserve(f->fd, bytes, &most);
    char text[96];

    if (error == EFBIG)
        TSR_FAIL(err, TSR_E_IO,
                 "spilling needs a file of %zu MiB, and this process may write files of %zu MiB at "
                 "most (ulimit -f); raise the limit, or give a larger --budget",
                 need, most >> 20);
    if (error == ENOSPC)
        TSR_FAIL(err, TSR_E_IO,
                 "no room for %zu MiB of spilled activations in %s (%zu MiB are free); " WHAT_HELPS,
                 need, dir, most >> 20);
    if (error)
        TSR_FAIL(err, TSR_E_IO, "cannot set aside %zu MiB to spill to in %s: %s; " WHAT_HELPS, need,
                 dir, strerror_r(error, text, sizeof text));
    f->size = bytes;
    return TSR_OK;
}

static void warn_if_in_memory(const tsr_file *f, const char *dir, const tsr_log *log)
{
    struct statfs fs;

    if (fstatfs(f->fd, &fs) == 0 &&
        ((uint32_t)fs.f_type == (uint32_t)TMPFS || (uint32_t)fs.f_type == RAMFS))
        TSR_WARN(log,
                 "%s is in memory: activations that are spilled there spend the memory that they "
                 "should save; --spill-dir takes a directory on a disk",
                 dir);
}

static tsr_status open_in(tsr_spill *s, const char *dir, size_t bytes, const tsr_log *log,
                          tsr_err *err)
{
    tsr_status st;

    *s = (tsr_spill){.file.fd = -1};
    TSR_TRY(make_file(&s->file, dir, err));
    st = set_aside(&s->file, dir, bytes, err);
    if (st == TSR_OK)
        warn_if_in_memory(&s->file, dir, log);
    else
        tsr_spill_close(s);
    return st;
}

/* The user's cache directory for this program, made when it is missing; NULL when there is none. */
static char *cache_dir(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    tsr_buf dir = {0};

    if (base && base[0] == '/') /* others are to be ignored, says the specification */
        tsr_buf_printf(&dir, "%s/tessera/", base);
    else if (home && home[0] == '/')
        tsr_buf_printf(&dir, "%s/.cache/tessera/", home);
    if (!tsr_buf_ok(&dir) || !dir.data || tsr_make_parent_dirs(dir.data, NULL) != TSR_OK) {
        tsr_buf_free(&dir);
        return NULL;
    }
    dir.data[dir.len - 1] = 0; /* the slash that made the directory a parent */
    return dir.data;
}

tsr_status tsr_spill_open(tsr_spill *s, const char *dir, size_t bytes, const tsr_log *log,
                          tsr_err *err)
{
    char *cache;
    tsr_status st = TSR_E_IO;

    if (dir)
        return open_in(s, dir, bytes, log, err);
    cache = cache_dir();
    if (cache)
        st = open_in(s, cache, bytes, log, err);
    tsr_free(cache);
    return st == TSR_OK ? st : open_in(s, "/var/tmp", bytes, log, err);
}

void tsr_spill_close(tsr_spill *s) /* its memory is the device's who gave it */
{
    tsr_file_close(&s->file);
}

static tsr_status check_range(const tsr_spill *s, size_t offset, size_t bytes, tsr_err *err)
{
    if (offset > s->file.size || bytes > s->file.size - offset)
        TSR_FAIL(err, TSR_E_INTERNAL, "%zu bytes at %zu are outside of %zu spilled bytes", bytes,
                 offset, s->file.size);
    return TSR_OK;
}

tsr_status tsr_spill_write(tsr_spill *s, size_t offset, const void *data, size_t bytes,
                           tsr_err *err)
{
    TSR_TRY(check_range(s, offset, bytes, err));
    TSR_TRY(tsr_file_write(&s->file, offset, data, bytes, err));
    s->bytes_written += bytes;
    return TSR_OK;
}

tsr_status tsr_spill_read(tsr_spill *s, size_t offset, void *data, size_t bytes, tsr_err *err)
{
    TSR_TRY(check_range(s, offset, bytes, err));
    TSR_TRY(tsr_file_read(&s->file, offset, data, bytes, err));
    s->bytes_read += bytes;
    return TSR_OK;
}
