/* file.h -- reading with pread, and writing a file so that it is there whole or not at all.
 *
 * Reads are positional, complete or failed (a short file is an error that names the file
 * and the offset), never mapped: what is read counts where it is put, nowhere else. */
#ifndef TSR_BASE_FILE_H
#define TSR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct tsr_file {
    int fd;      /* -1 when closed */
    size_t base; /* where it begins in the descriptor's file: see base/folder.h; else 0 */
    size_t size; /* at open */
    char *path;  /* owned copy, for messages */
} tsr_file;

/* TSR_E_IO when it cannot be opened, or is no regular file. Zero-initialise `f` first or not: it is
 * set. */
tsr_status tsr_file_open(tsr_file *f, const char *path, tsr_err *err);
void tsr_file_close(tsr_file *f); /* accepts a zeroed or closed one */

/* Exactly `bytes` from `offset`; TSR_E_IO on error or end of file. Safe from several threads. */
tsr_status tsr_file_read(const tsr_file *f, size_t offset, void *dst, size_t bytes, tsr_err *err);
/* Writes all of it at `offset` of a file that was opened for that (memory/spill). */
tsr_status tsr_file_write(const tsr_file *f, size_t offset, const void *data, size_t bytes,
                          tsr_err *err);

/* The whole file as a zero-terminated heap string; TSR_E_MODEL when longer than `max_bytes`.
 * *len may be NULL. Free with tsr_free. */
tsr_status tsr_file_text(const tsr_file *f, size_t max_bytes, char **text, size_t *len,
                         tsr_err *err);
/* The same of a file that is not open. */
tsr_status tsr_file_slurp(const char *path, size_t max_bytes, char **text, size_t *len,
                          tsr_err *err);

/* The beginning of a small file of the system (/proc, /sys) as a zero-terminated string that fits
 * into `buf`; false when there is none. No memory, no fault injection: what is not there is
 * unknown, which is no error. */
bool tsr_file_peek(const char *path, char *buf, size_t buf_bytes);

bool tsr_path_is_file(const char *path);
bool tsr_path_is_dir(const char *path);
/* Nothing has this name. False where that cannot be seen (permissions, a loop of links): opening it
 * then says why. */
bool tsr_path_is_absent(const char *path);
/* dir + "/" + name in a heap string (NULL when out of memory). */
char *tsr_path_join(const char *dir, const char *name);
/* mkdir -p of the directory that `path` is in. */
tsr_status tsr_make_parent_dirs(const char *path, tsr_err *err);

/* Atomic output: bytes go to a temporary file beside `path`, which replaces it at commit
 * (fsync, rename). tsr_out_abort, or an exit before commit, leaves `path` as it was; of the
 * temporary file a process that is killed leaves nothing either, but on file systems that know no
 * files without a name (NFS, FAT). A symbolic link stays one: what it points at is replaced, or
 * made. */
typedef struct tsr_out {
    int fd;
    size_t reserved, written;
    char *path, *tmp_path;
    bool unnamed; /* tmp_path is not there, yet */
} tsr_out;
tsr_status tsr_out_open(tsr_out *o, const char *path, tsr_err *err); /* makes parent directories */
/* Sets aside `bytes` for a large file, which may turn out smaller: TSR_E_IO says how much is free.
 */
tsr_status tsr_out_reserve(tsr_out *o, size_t bytes, tsr_err *err);
tsr_status tsr_out_write(tsr_out *o, const void *data, size_t bytes, tsr_err *err);
tsr_status tsr_out_commit(tsr_out *o, tsr_err *err); /* frees o, also on failure */
void tsr_out_abort(tsr_out *o);                      /* accepts a zeroed or finished one */

/* Tests: the nth read or write from now on (1 = next) fails once with EIO; 0 = off. */
void tsr_io_fail_at(uint64_t n);
/* Tests: no call of the system moves more than `most` bytes, as disks and networks may do; 0: off.
 */
void tsr_io_short(size_t most);
bool tsr_io_failed(void);

#endif
