/* space.h -- room on a disk, set aside before it is written. */
#ifndef TSR_BASE_SPACE_H
#define TSR_BASE_SPACE_H

#include <stddef.h>

/* Makes the open file `bytes` bytes long and sets the space aside (fallocate where the file system
 * can; else its free space is looked at). Returns 0 or an errno, and then in *most what would be
 * possible: ENOSPC: the free bytes; EFBIG: the largest file that this process may write (ulimit
 * -f; to write past it is a signal, no error). */
int tsr_space_reserve(int fd, size_t bytes, size_t *most);

/* In MiB, rounded up; for sentences. */
size_t tsr_space_mebibytes(size_t bytes);

#endif
