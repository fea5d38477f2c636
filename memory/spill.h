/* spill.h -- the file that activations go to when the arena is too small.
 *
 * An unlinked temporary file: gone when the process is, whatever happens. Its space is planned like
 * the arena (offsets by lifetimes), so blocks are re-used: the first write of a fresh page costs
 * several times a rewrite. Full disk, read-only directory, or a directory in memory (tmpfs: a
 * warning, since it spends the memory that it should save) are told in one sentence. */
#ifndef TSR_MEMORY_SPILL_H
#define TSR_MEMORY_SPILL_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/log.h"

typedef struct tsr_spill {
    tsr_file file;                      /* size: what is set aside; path: its name in messages */
    unsigned char *memory;              /* a device's: host memory in the file's place; or NULL */
    uint64_t bytes_written, bytes_read; /* for the report; updated by the I/O thread */
} tsr_spill;

/* Makes the file in `dir` (NULL: $XDG_CACHE_HOME/tessera or ~/.cache/tessera, made if missing, else
 * /var/tmp) and sets aside `bytes` (fallocate where the file system can; else free space is
 * checked). TSR_E_IO with what would help. */
tsr_status tsr_spill_open(tsr_spill *s, const char *dir, size_t bytes, const tsr_log *log,
                          tsr_err *err);
void tsr_spill_close(tsr_spill *s); /* accepts a zeroed or closed one */
/* [offset, offset + bytes) within what was set aside. TSR_E_IO. */
tsr_status tsr_spill_write(tsr_spill *s, size_t offset, const void *data, size_t bytes,
                           tsr_err *err);
tsr_status tsr_spill_read(tsr_spill *s, size_t offset, void *data, size_t bytes, tsr_err *err);

#endif
