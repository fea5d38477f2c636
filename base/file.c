/* file.c -- positional reads, atomic output, paths.
 *
 * A path that names a pipe, a device or a directory is refused before anything is read (opening
 * does not block on it). Output goes to a file of a random name in the directory of its
 * target, so that the final rename stays inside one file system and is atomic; the target keeps
 * its permissions, and a symbolic link keeps pointing at what is replaced, or made: it may dangle.
 * Where the file system can (O_TMPFILE) the file has no name until it is whole: nothing is left of
 * it, however the process ends. Interrupted and partial transfers are continued. The few
 * fault-injection atomics are globals for alloc.c's reason. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/space.h"
#include "base/text_util.h"

enum { MOST_AT_ONCE = 1 << 30 }; /* the kernel moves at most 2 GiB - 4 KiB in one call */

static _Atomic uint64_t n_transfers;
static _Atomic uint64_t failing_transfer; /* 0: none */
static _Atomic bool failure_happened;
static _Atomic size_t short_bytes; /* 0: as many as possible */

/* What one call is asked to move. */
static size_t piece(size_t rest)
{
    size_t most = atomic_load_explicit(&short_bytes, memory_order_relaxed);

    return tsr_min_size(rest, most ? most : MOST_AT_ONCE);
}

static bool transfer_fails(void)
{
    uint64_t transfer = atomic_fetch_add_explicit(&n_transfers, 1, memory_order_relaxed) + 1;

    if (transfer != atomic_load_explicit(&failing_transfer, memory_order_relaxed))
        return false;
    atomic_store(&failure_happened, true);
    return true;
}

void tsr_io_fail_at(uint64_t n)
{
    atomic_store(&failure_happened, false);
    atomic_store(&failing_transfer, n ? atomic_load(&n_transfers) + n : 0);
}

void tsr_io_short(size_t most)
{
    atomic_store(&short_bytes, most);
}

bool tsr_io_failed(void)
{
    return atomic_load(&failure_happened);
}

static tsr_status io_failed(tsr_err *err, const char *what, const char *path, int error)
{
    char text[96];

    return tsr_err_set(err, TSR_E_IO, "cannot %s %s: %s", what, path,
                       strerror_r(error, text, sizeof text));
}

static tsr_status no_memory(tsr_err *err, const char *path)
{
    return tsr_err_set(err, TSR_E_OOM, "out of memory for the file %s", path);
}

/* ------------------------------------------------------------------ input */

tsr_status tsr_file_open(tsr_file *f, const char *path, tsr_err *err)
{
    struct stat st;
    int fd, error = 0;

    *f = (tsr_file){.fd = -1};
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return io_failed(err, "open", path, errno);
    if (fstat(fd, &st) != 0)
        error = errno;
    else if (S_ISDIR(st.st_mode))
        error = EISDIR;
    if (error || !S_ISREG(st.st_mode)) {
        close(fd);
        if (error)
            return io_failed(err, "open", path, error);
        TSR_FAIL(err, TSR_E_IO, "cannot open %s: not a regular file", path);
    }
    f->path = tsr_strdup(path);
    if (!f->path) {
        close(fd);
        return no_memory(err, path);
    }
    f->fd = fd;
    f->size = (size_t)st.st_size;
    return TSR_OK;
}

void tsr_file_close(tsr_file *f)
{
    if (f->path && f->fd >= 0) /* a zeroed struct has no path, but the descriptor 0 */
        close(f->fd);
    tsr_free(f->path);
    *f = (tsr_file){.fd = -1};
}

tsr_status tsr_file_read(const tsr_file *f, size_t offset, void *dst, size_t bytes, tsr_err *err)
{
    unsigned char *to = dst;
    size_t done = 0, end;

    if (!f->path)
        TSR_FAIL(err, TSR_E_INTERNAL, "read from a closed file");
    if (!tsr_add_size(offset, bytes, &end) || (f->base > 0 && end > f->size) ||
        !tsr_add_size(end, f->base, &end) || end > (size_t)INT64_MAX)
        TSR_FAIL(err, TSR_E_IO, "cannot read %s: offset %zu is out of range", f->path, offset);
    if (transfer_fails())
        return io_failed(err, "read", f->path, EIO);
    while (done < bytes) {
        ssize_t n = pread(f->fd, to + done, piece(bytes - done), (off_t)(f->base + offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_failed(err, "read", f->path, errno);
        if (n == 0)
            TSR_FAIL(err, TSR_E_IO, "%s ends at byte %zu, but %zu bytes are needed from byte %zu",
                     f->path, offset + done, bytes, offset);
        done += (size_t)n;
    }
    return TSR_OK;
}

tsr_status tsr_file_write(const tsr_file *f, size_t offset, const void *data, size_t bytes,
                          tsr_err *err)
{
    const unsigned char *from = data;
    size_t done = 0, end;

    if (!f->path)
        TSR_FAIL(err, TSR_E_INTERNAL, "write to a closed file");
    if (!tsr_add_size(offset, bytes, &end) || end > (size_t)INT64_MAX)
        TSR_FAIL(err, TSR_E_IO, "cannot write %s: offset %zu is out of range", f->path, offset);
    if (transfer_fails())
        return io_failed(err, "write", f->path, EIO);
    while (done < bytes) {
        ssize_t n = pwrite(f->fd, from + done, piece(bytes - done), (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return io_failed(err, "write", f->path, n < 0 ? errno : EIO);
        done += (size_t)n;
    }
    return TSR_OK;
}

tsr_status tsr_file_text(const tsr_file *f, size_t max_bytes, char **text, size_t *len,
                         tsr_err *err)
{
    char *all;
    tsr_status st;

    if (f->size > max_bytes)
        TSR_FAIL(err, TSR_E_MODEL, "%s has %zu bytes, more than the %zu that are accepted", f->path,
                 f->size, max_bytes);
    all = tsr_malloc(f->size + 1);
    if (!all)
        return no_memory(err, f->path);
    st = tsr_file_read(f, 0, all, f->size, err);
    if (st != TSR_OK) {
        tsr_free(all);
        return st;
    }
    all[f->size] = 0;
    *text = all;
    if (len)
        *len = f->size;
    return TSR_OK;
}

tsr_status tsr_file_slurp(const char *path, size_t max_bytes, char **text, size_t *len,
                          tsr_err *err)
{
    tsr_file f;
    tsr_status st;

    TSR_TRY(tsr_file_open(&f, path, err));
    st = tsr_file_text(&f, max_bytes, text, len, err);
    tsr_file_close(&f);
    return st;
}

bool tsr_file_peek(const char *path, char *buf, size_t buf_bytes)
{
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return false;
    while (len < buf_bytes - 1) {
        ssize_t n = read(fd, buf + len, buf_bytes - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    buf[len] = 0;
    return len > 0;
}

/* ------------------------------------------------------------------ paths */

static bool path_has_type(const char *path, mode_t type)
{
    struct stat st;

    return stat(path, &st) == 0 && (st.st_mode & S_IFMT) == type;
}

bool tsr_path_is_file(const char *path)
{
    return path_has_type(path, S_IFREG);
}

bool tsr_path_is_dir(const char *path)
{
    return path_has_type(path, S_IFDIR);
}

bool tsr_path_is_absent(const char *path)
{
    struct stat st;

    return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

char *tsr_path_join(const char *dir, const char *name)
{
    tsr_buf b = {0};
    size_t len = strlen(dir);

    tsr_buf_append(&b, dir, len);
    if (len > 0 && dir[len - 1] != '/')
        tsr_buf_append(&b, "/", 1);
    tsr_buf_puts(&b, name);
    if (!tsr_buf_ok(&b))
        tsr_buf_free(&b);
    return b.data;
}

/* Makes the directory path[0..end) and reports under its own name. */
static tsr_status make_dir(char *path, size_t end, tsr_err *err)
{
    char kept = path[end];
    tsr_status st = TSR_OK;
    int error;

    path[end] = 0;
    error = mkdir(path, 0777) == 0 ? 0 : errno;
    if (error && !tsr_path_is_dir(path)) /* some systems say EROFS of one that is there */
        st = io_failed(err, "make the directory", path, error == EEXIST ? ENOTDIR : error);
    path[end] = kept;
    return st;
}

tsr_status tsr_make_parent_dirs(const char *path, tsr_err *err)
{
    char *copy = tsr_strdup(path);
    tsr_status st = TSR_OK;

    if (!copy)
        return no_memory(err, path);
    for (size_t i = 1; copy[i - 1] && copy[i] && st == TSR_OK; i++)
        if (copy[i] == '/' && copy[i - 1] != '/')
            st = make_dir(copy, i, err);
    tsr_free(copy);
    return st;
}

/* ----------------------------------------------------------------- output */

static size_t dir_length(const char *path) /* with its slash; 0 when there is none */
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Goes from link to link to what is none, or is not there; returns an errno. */
static int follow_links(char path[PATH_MAX])
{
    enum { MOST_LINKS = 40 };
    char link[PATH_MAX];

    for (int i = 0; i < MOST_LINKS; i++) {
        ssize_t n = readlink(path, link, sizeof link - 1);
        size_t dir = n > 0 && link[0] == '/' ? 0 : dir_length(path);

        if (n < 0)
            return errno == EINVAL || errno == ENOENT ? 0 : errno;
        if (dir + (size_t)n >= PATH_MAX)
            return ENAMETOOLONG;
        memcpy(path + dir, link, (size_t)n);
        path[dir + (size_t)n] = 0;
    }
    return ELOOP;
}

/* Where the bytes finally go: behind symbolic links. *mode is the existing file's, or 0. */
static tsr_status resolve_target(const char *path, char **target, mode_t *mode, tsr_err *err)
{
    char real[PATH_MAX];
    struct stat st;
    size_t dir = dir_length(path);

    *mode = 0;
    if (path[dir] == 0)
        TSR_FAIL(err, TSR_E_IO, "cannot write \"%s\": not the name of a file", path);
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return io_failed(err, "write", path, EISDIR);
        if (!S_ISREG(st.st_mode)) /* replacing /dev/null by a file would break the machine */
            TSR_FAIL(err, TSR_E_IO, "cannot write %s: not a regular file", path);
        if (!realpath(path, real))
            return io_failed(err, "write", path, errno);
        *mode = st.st_mode & 07777;
    } else {
        int error = strlen(path) < sizeof real ? 0 : ENAMETOOLONG;
        if (!error) {
            strcpy(real, path);
            error = follow_links(real);
        }
        if (error)
            return io_failed(err, "write", path, error);
    }
    *target = tsr_strdup(real);
    return *target ? TSR_OK : no_memory(err, path);
}

static uint64_t unlikely_number(const char *path, int attempt)
{
    struct timespec now;
    pid_t pid = getpid();
    uint64_t h = TSR_FNV_SEED;

    clock_gettime(CLOCK_REALTIME, &now);
    h = tsr_fnv1a64(&now.tv_sec, sizeof now.tv_sec, h);
    h = tsr_fnv1a64(&now.tv_nsec, sizeof now.tv_nsec, h);
    h = tsr_fnv1a64(&pid, sizeof pid, h);
    h = tsr_fnv1a64(&attempt, sizeof attempt, h);
    return tsr_fnv1a64(path, strlen(path), h);
}

#define OWN_DESCRIPTORS "/proc/self/fd"

/* A file without a name in the target's directory; -1 where there is no such thing, or no way to
 * name it later. */
static int open_unnamed(char *path)
{
    size_t dir = dir_length(path);
    char first = path[dir];
    int fd;

    if (!tsr_path_is_dir(OWN_DESCRIPTORS))
        return -1;
    path[dir] = 0;
    fd = open(dir ? path : ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    path[dir] = first;
    return fd;
}

static int name_file(const tsr_out *o)
{
    char own[sizeof OWN_DESCRIPTORS + 16];

    snprintf(own, sizeof own, OWN_DESCRIPTORS "/%d", o->fd);
    return linkat(AT_FDCWD, own, AT_FDCWD, o->tmp_path, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* Makes a new file beside o->path. open(2) applies the umask. */
static tsr_status open_temporary(tsr_out *o, mode_t mode, tsr_err *err)
{
    enum { ATTEMPTS = 64 };
    int error = EEXIST;

    o->fd = open_unnamed(o->path);
    o->unnamed = o->fd >= 0;
    for (int i = 0; i < ATTEMPTS && !o->tmp_path && (error == EEXIST || error == EINTR); i++) {
        tsr_buf name = {0};

        tsr_buf_append(&name, o->path, dir_length(o->path));
        tsr_buf_printf(&name, ".tessera-%016llx.tmp",
                       (unsigned long long)unlikely_number(o->path, i));
        if (!tsr_buf_ok(&name)) {
            tsr_buf_free(&name);
            return no_memory(err, o->path);
        }
        if (!o->unnamed)
            o->fd = open(name.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        error = errno;
        if (o->fd >= 0)
            o->tmp_path = name.data;
        else
            tsr_buf_free(&name);
    }
    if (o->fd < 0)
        return io_failed(err, "write", o->path, error);
    if (mode) /* a file system without permissions is no reason to lose the picture */
        (void)fchmod(o->fd, mode);
    return TSR_OK;
}

tsr_status tsr_out_open(tsr_out *o, const char *path, tsr_err *err)
{
    mode_t mode;
    tsr_status st;

    *o = (tsr_out){.fd = -1};
    TSR_TRY(tsr_make_parent_dirs(path, err));
    TSR_TRY(resolve_target(path, &o->path, &mode, err));
    st = open_temporary(o, mode, err);
    if (st != TSR_OK)
        tsr_out_abort(o);
    return st;
}

tsr_status tsr_out_reserve(tsr_out *o, size_t bytes, tsr_err *err)
{
    size_t most;
    int error = tsr_space_reserve(o->fd, bytes, &most);

    if (error == ENOSPC || error == EFBIG)
        TSR_FAIL(err, TSR_E_IO, "cannot write %s: it will have %zu MiB, and %zu MiB %s", o->path,
                 tsr_space_mebibytes(bytes), most >> 20,
                 error == ENOSPC ? "are free there" : "is the limit (ulimit -f)");
    if (error)
        return io_failed(err, "write", o->path, error);
    o->reserved = bytes;
    return TSR_OK;
}

tsr_status tsr_out_write(tsr_out *o, const void *data, size_t bytes, tsr_err *err)
{
    const unsigned char *from = data;
    size_t done = 0;

    if (!o->tmp_path)
        TSR_FAIL(err, TSR_E_INTERNAL, "write to a file that is not open");
    if (transfer_fails())
        return io_failed(err, "write", o->path, EIO);
    while (done < bytes) {
        ssize_t n = write(o->fd, from + done, piece(bytes - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return io_failed(err, "write", o->path, n < 0 ? errno : EIO);
        done += (size_t)n;
    }
    o->written += bytes;
    return TSR_OK;
}

/* Makes the rename durable. Best effort: the file itself is whole already. */
static void sync_directory(char *path)
{
    size_t dir = dir_length(path);
    int fd;

    path[dir] = 0;
    fd = open(dir ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

tsr_status tsr_out_commit(tsr_out *o, tsr_err *err)
{
    tsr_status st = TSR_OK;
    int error = 0;

    if (!o->tmp_path)
        TSR_FAIL(err, TSR_E_INTERNAL, "commit of a file that is not open");
    if (o->reserved > o->written && ftruncate(o->fd, (off_t)o->written) != 0)
        error = errno;
    if (!error && fsync(o->fd) != 0 && errno != EINVAL) /* EINVAL: the file system cannot */
        error = errno;
    if (!error && o->unnamed) {
        error = name_file(o);
        o->unnamed = error != 0;
    }
    if (close(o->fd) != 0 && !error)
        error = errno;
    o->fd = -1;
    if (!error && rename(o->tmp_path, o->path) != 0)
        error = errno;
    if (error) {
        st = io_failed(err, "write", o->path, error);
    } else {
        sync_directory(o->path);
        tsr_free(o->tmp_path);
        o->tmp_path = NULL; /* there is nothing left to remove */
    }
    tsr_out_abort(o);
    return st;
}

void tsr_out_abort(tsr_out *o)
{
    if (o->path && o->fd >= 0) /* a zeroed struct has no path, but the descriptor 0 */
        close(o->fd);
    if (o->tmp_path && !o->unnamed)
        unlink(o->tmp_path);
    tsr_free(o->tmp_path);
    tsr_free(o->path);
    *o = (tsr_out){.fd = -1};
}
