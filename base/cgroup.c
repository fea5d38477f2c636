/* cgroup.c -- finds and reads the process's control group.
 *
 * /proc/self/cgroup has a line "0::/path" for the unified hierarchy (v2), and lines
 * "4:memory:/path" where a controller has a hierarchy of its own (v1), which then is the one
 * that counts. The path is relative to the mount point (/sys/fs/cgroup, or its folder named as the
 * controller). In a container the path may be the host's, and then no such folder is there:
 * climbing ends at the mount point, which is the container's own group, so missing folders are just
 * passed. Nothing is allocated. Source: the kernel's cgroup-v1 and cgroup-v2 documents. */
#include "base/cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "base/text_util.h"

/* Is `name` one of the comma-separated words in [list, end)? */
static bool list_has(const char *list, const char *end, const char *name)
{
    size_t len = strlen(name);

    while (list < end) {
        size_t word = strcspn(list, ",:");
        if (word == len && memcmp(list, name, len) == 0)
            return true;
        list += word + 1;
    }
    return false;
}

/* Takes the group from one line "id:controllers:path"; false when the line is about others. */
static bool group_of_line(tsr_cgroup *g, const char *line, const char *controller, const char *root)
{
    const char *names = strchr(line, ':');
    const char *path = names ? strchr(names + 1, ':') : NULL;
    int path_len, root_len;

    if (!path || strcspn(line, "\n") < (size_t)(path - line))
        return false;
    g->v2 = path == names + 1;
    if (!g->v2 && !list_has(names + 1, path, controller))
        return false;
    path++;
    path_len = (int)strcspn(path, "\n");
    path_len -= path_len > 0 && path[path_len - 1] == '/'; /* the root group is "/" */
    root_len =
        snprintf(g->dir, sizeof g->dir, "%s%s%s", root, g->v2 ? "" : "/", g->v2 ? "" : controller);
    if (root_len < 0 || (size_t)root_len + (size_t)path_len >= sizeof g->dir)
        return false;
    g->root_len = (size_t)root_len;
    memcpy(g->dir + root_len, path, (size_t)path_len);
    g->dir[root_len + path_len] = 0;
    return true;
}

bool tsr_cgroup_find(tsr_cgroup *g, const char *controller, const char *root, const char *self)
{
    char text[8192];
    bool found = false;

    if (!self && !tsr_file_peek("/proc/self/cgroup", text, sizeof text))
        return false;
    for (const char *line = self ? self : text; line && *line; line = tsr_next_line(line)) {
        tsr_cgroup one;
        if (group_of_line(&one, line, controller, root ? root : "/sys/fs/cgroup") &&
            (!found || !one.v2)) {
            *g = one;
            found = true;
        }
    }
    return found;
}

bool tsr_cgroup_climb(tsr_cgroup *g)
{
    char *slash = strrchr(g->dir, '/');

    if (!slash || (size_t)(slash - g->dir) < g->root_len)
        return false;
    *slash = 0;
    return true;
}

static bool read_group_file(const tsr_cgroup *g, const char *file, char *buf, size_t buf_bytes)
{
    char path[sizeof g->dir + 64];
    int len = snprintf(path, sizeof path, "%s/%s", g->dir, file);

    return len > 0 && (size_t)len < sizeof path && tsr_file_peek(path, buf, buf_bytes);
}

int32_t tsr_cgroup_numbers(const tsr_cgroup *g, const char *file, uint64_t *numbers, int32_t n)
{
    char text[256], *at = text, *end;
    int32_t found = 0;

    if (!read_group_file(g, file, text, sizeof text))
        return 0;
    while (found < n) {
        at += strspn(at, " \n");
        if (strncmp(at, "max", 3) == 0 || *at == '-') {
            numbers[found++] = UINT64_MAX;
            at += strcspn(at, " \n");
            continue;
        }
        if (*at < '0' || *at > '9')
            break;
        numbers[found++] = strtoumax(at, &end, 10);
        at = end;
    }
    return found;
}

bool tsr_cgroup_field(const tsr_cgroup *g, const char *file, const char *name, uint64_t *number)
{
    char text[4096];
    size_t len = strlen(name);

    if (!read_group_file(g, file, text, sizeof text))
        return false;
    for (const char *line = text; line && *line; line = tsr_next_line(line)) {
        if (strncmp(line, name, len) == 0 && line[len] == ' ') {
            *number = strtoumax(line + len + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

/* CPU time a group may use, in whole CPUs, rounded up; INT32_MAX without a limit. */
static int32_t quota_of_group(const tsr_cgroup *g)
{
    uint64_t v[2] = {UINT64_MAX, 0}, cpus;

    if (g->v2) {
        if (tsr_cgroup_numbers(g, "cpu.max", v, 2) != 2)
            return INT32_MAX;
    } else if (tsr_cgroup_numbers(g, "cpu.cfs_quota_us", &v[0], 1) != 1 ||
               tsr_cgroup_numbers(g, "cpu.cfs_period_us", &v[1], 1) != 1) {
        return INT32_MAX;
    }
    if (v[0] == UINT64_MAX || v[1] == 0)
        return INT32_MAX;
    cpus = v[0] / v[1] + (v[0] % v[1] != 0);
    return cpus < INT32_MAX ? (int32_t)cpus : INT32_MAX;
}

int32_t tsr_cgroup_cpus(const char *root, const char *self)
{
    tsr_cgroup g;
    int32_t n = INT32_MAX;

    if (tsr_cgroup_find(&g, "cpu", root, self))
        do
            n = tsr_min_i32(n, quota_of_group(&g));
        while (tsr_cgroup_climb(&g));
    return tsr_max_i32(n, 1);
}
