/* cgroup.h -- the control group of this process: what a container allows it.
 *
 * A limit may be set at any level between the process's own group and the root, and the
 * tightest one holds; so a caller starts at tsr_cgroup_find and climbs. */
#ifndef TSR_BASE_CGROUP_H
#define TSR_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tsr_cgroup {
    bool v2;         /* the unified hierarchy; false: the controller's own (v1) */
    size_t root_len; /* of dir: the mount point */
    char dir[1024];  /* of the group that is looked at now */
} tsr_cgroup;

/* The process's group for "memory" or "cpu". `root` is /sys/fs/cgroup and `self` the text of
 * /proc/self/cgroup where they are not given (NULL); tests give their own. False: there is none. */
bool tsr_cgroup_find(tsr_cgroup *g, const char *controller, const char *root, const char *self);
bool tsr_cgroup_climb(tsr_cgroup *g); /* to the parent; false at the mount point */

/* The numbers at the beginning of one of the group's files, up to `n` of them, "max" as
 * UINT64_MAX and negative ones (v1's "none") too. Returns how many there are. */
int32_t tsr_cgroup_numbers(const tsr_cgroup *g, const char *file, uint64_t *numbers, int32_t n);
/* The number after a name at the beginning of a line ("inactive_file 4096"). */
bool tsr_cgroup_field(const tsr_cgroup *g, const char *file, const char *name, uint64_t *number);
/* CPUs that the process's groups allow, rounded up; INT32_MAX without a limit. */
int32_t tsr_cgroup_cpus(const char *root, const char *self);

#endif
