/* limited.c -- see limited.h.
 *
 * v2 may give "memory" to groups below only where the parent hands it down and has no processes of
 * its own, as in many containers it has not; v1 has no such rule. */
#include "tests/support/limited.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"

static bool write_file(const char *dir, const char *name, const char *text)
{
    char path[1200];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text);
}

bool limited_set(const limited_group *g, size_t bytes)
{
    char number[32];

    snprintf(number, sizeof number, "%zu", bytes);
    return write_file(g->dir, g->v2 ? "memory.max" : "memory.limit_in_bytes", number);
}

bool limited_make(limited_group *g, size_t bytes)
{
    tsr_cgroup own;

    if (!tsr_cgroup_find(&own, "memory", NULL, NULL))
        return false;
    g->v2 = own.v2;
    snprintf(g->dir, sizeof g->dir, "%s/tessera-test-%d", own.dir, (int)getpid());
    if (mkdir(g->dir, 0755) != 0)
        return false;
    if (limited_set(g, bytes))
        return true;
    limited_remove(g);
    return false;
}

bool limited_enter(const limited_group *g, pid_t pid)
{
    char number[32];

    snprintf(number, sizeof number, "%d", (int)pid);
    return write_file(g->dir, "cgroup.procs", number);
}

long limited_kills(const limited_group *g)
{
    char path[1200], text[512];
    const char *at;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/%s", g->dir, g->v2 ? "memory.events" : "memory.oom_control");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    at = strstr(text, "oom_kill ");
    return at ? strtol(at + 9, NULL, 10) : 0;
}

void limited_remove(limited_group *g)
{
    for (int i = 0; i < 100 && rmdir(g->dir) != 0; i++)
        usleep(10000); /* the last process is still leaving */
}
