/* limited.h -- a control group of the test's own with a limit on memory, v2 or v1. */
#ifndef TSR_TESTS_LIMITED_H
#define TSR_TESTS_LIMITED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct limited_group {
    char dir[1100];
    bool v2;
} limited_group;

/* Makes the group below this process's own; false where that is not allowed. */
bool limited_make(limited_group *g, size_t bytes);
bool limited_set(const limited_group *g, size_t bytes);
bool limited_enter(const limited_group *g, pid_t pid); /* 0: this process */
/* How many processes the kernel has killed in it. */
long limited_kills(const limited_group *g);
void limited_remove(limited_group *g); /* when it is empty */

#endif
