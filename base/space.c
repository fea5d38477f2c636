/* space.c -- see space.h. */
#include "base/space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/num.h"

static size_t free_bytes(int fd)
{
    struct statvfs v;
    size_t bytes;

    if (fstatvfs(fd, &v) != 0 || !tsr_mul_size((size_t)v.f_bavail, (size_t)v.f_frsize, &bytes))
        return SIZE_MAX;
    return bytes;
}

static int set_length(int fd, size_t bytes)
{
    int error;

    do
        error = fallocate(fd, 0, 0, (off_t)bytes) != 0 ? errno : 0;
    while (error == EINTR);
    if (error == EOPNOTSUPP || error == ENOSYS)
        error = bytes > free_bytes(fd) ? ENOSPC : ftruncate(fd, (off_t)bytes) != 0 ? errno : 0;
    return error;
}

int tsr_space_reserve(int fd, size_t bytes, size_t *most)
{
    struct rlimit limit;
    int error;

    if (bytes == 0)
        return 0;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
        *most = (size_t)limit.rlim_cur;
        return EFBIG;
    }
    error = bytes > (size_t)INT64_MAX ? ENOSPC : set_length(fd, bytes);
    if (error == EDQUOT || error == EFBIG) /* EFBIG: more than the file system has anyway */
        error = ENOSPC;
    *most = free_bytes(fd);
    return error;
}

size_t tsr_space_mebibytes(size_t bytes)
{
    return (bytes >> 20) + ((bytes & 0xFFFFF) != 0);
}
