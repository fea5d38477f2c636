/* budget.c -- reads the system's memory figures, and sizes as people write them.
 *
 * What is free is MemAvailable (the kernel's estimate of what can be had without swapping), or less
 * where a control group sets a limit: at every level limit - usage, where file pages that are not
 * in use (inactive_file) do not count as usage, since the kernel gives them back first. Everything
 * is read into buffers on the stack: the progress line asks in the middle of a run, in which
 * nothing may be allocated. Numbers are parsed and printed without the C library's floats, which
 * follow the locale. */
#include "memory/budget.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/num.h"
#include "base/text_util.h"

/* ----------------------------------------------------------------- figures */

size_t tsr_mem_field(const char *text, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = text; line && *line; line = tsr_next_line(line)) {
        if (strncmp(line, name, len) == 0 && line[len] == ':') {
            uintmax_t kib = strtoumax(line + len + 1, NULL, 10);
            return kib <= SIZE_MAX / 1024 ? (size_t)kib * 1024 : SIZE_MAX;
        }
    }
    return 0;
}

static size_t field_of_file(const char *path, const char *name)
{
    char text[8192];

    return tsr_file_peek(path, text, sizeof text) ? tsr_mem_field(text, name) : 0;
}

size_t tsr_mem_resident(void)
{
    return field_of_file("/proc/self/status", "VmRSS");
}

/* Kernels from 6.2 on keep the high water with per-CPU counters and may note it a little low (0.2
 * MiB on 2 CPUs): the figure is exact while the process is at its peak. */
size_t tsr_mem_peak(void)
{
    return field_of_file("/proc/self/status", "VmHWM");
}

/* What one group still allows; UINT64_MAX without a limit. */
static uint64_t free_in_group(const tsr_cgroup *g)
{
    uint64_t limit = UINT64_MAX, high = UINT64_MAX, used = 0, idle = 0;

    if (tsr_cgroup_numbers(g, g->v2 ? "memory.max" : "memory.limit_in_bytes", &limit, 1) != 1)
        return UINT64_MAX;
    if (g->v2 && tsr_cgroup_numbers(g, "memory.high", &high, 1) == 1 && high < limit)
        limit = high;
    if (limit == UINT64_MAX)
        return UINT64_MAX;
    (void)tsr_cgroup_numbers(g, g->v2 ? "memory.current" : "memory.usage_in_bytes", &used, 1);
    (void)tsr_cgroup_field(g, "memory.stat", g->v2 ? "inactive_file" : "total_inactive_file",
                           &idle);
    used -= idle < used ? idle : used;
    return used < limit ? limit - used : 0;
}

size_t tsr_mem_cgroup_free(const char *root, const char *self)
{
    tsr_cgroup g;
    uint64_t least = UINT64_MAX, here;

    if (!tsr_cgroup_find(&g, "memory", root, self))
        return SIZE_MAX;
    do {
        here = free_in_group(&g);
        least = here < least ? here : least;
    } while (tsr_cgroup_climb(&g));
    return least < SIZE_MAX ? (size_t)least : SIZE_MAX;
}

size_t tsr_mem_available(void)
{
    size_t system = field_of_file("/proc/meminfo", "MemAvailable");
    long pages = sysconf(_SC_AVPHYS_PAGES);

    if (system == 0 && pages > 0) /* kernels before 3.14 */
        system = (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
    return tsr_min_size(system, tsr_mem_cgroup_free(NULL, NULL));
}

/* ---------------------------------------------------------------- budgets */

static size_t free_for_us(void)
{
    size_t sum = SIZE_MAX;

    (void)tsr_add_size(tsr_mem_resident(), tsr_mem_available(), &sum);
    return sum;
}

size_t tsr_budget_default(void)
{
    const size_t least = (size_t)64 << 20, most = (size_t)1 << 30;
    size_t free_bytes = free_for_us();
    size_t margin = tsr_min_size(tsr_max_size(free_bytes / 16, least), most);

    return free_bytes > margin ? free_bytes - margin : 1; /* 0 would mean "the default" */
}

/* Reads "12" or "12.5" as a whole part and a fraction below 1; NULL when it is neither. */
static const char *parse_decimal(const char *s, uint64_t *whole, double *fraction)
{
    double scale = 1;

    *whole = 0;
    *fraction = 0;
    if (*s < '0' || *s > '9')
        return NULL;
    for (; *s >= '0' && *s <= '9'; s++)
        if (__builtin_mul_overflow(*whole, 10, whole) ||
            __builtin_add_overflow(*whole, (uint64_t)(*s - '0'), whole))
            return NULL;
    if (*s != '.')
        return s;
    if (s[1] < '0' || s[1] > '9')
        return NULL;
    for (s++; *s >= '0' && *s <= '9'; s++) {
        scale /= 10;
        *fraction += scale * (*s - '0');
    }
    return s;
}

/* "", "B", "K", "KB", "KiB" ... in any case; 0 for anything else. */
static uint64_t unit_bytes(const char *s)
{
    static const char letters[] = "KMGT";
    const char *letter = isalpha((unsigned char)*s) ? strchr(letters, *s & ~0x20) : NULL;

    if (!letter)
        return *s == 0 || strcasecmp(s, "b") == 0 ? 1 : 0;
    s++;
    if (*s && strcasecmp(s, "b") != 0 && strcasecmp(s, "ib") != 0)
        return 0;
    return (uint64_t)1 << (10 * (letter - letters + 1));
}

tsr_status tsr_budget_parse(const char *text, size_t *bytes, tsr_err *err)
{
    uint64_t whole, unit, value;
    double fraction;
    const char *rest = parse_decimal(text, &whole, &fraction);
    bool percent = rest && strcmp(rest, "%") == 0;

    if (percent) {
        double share = ((double)whole + fraction) / 100;
        if (share > 1)
            TSR_FAIL(err, TSR_E_USAGE, "a budget of %s: there is no more than 100%%", text);
        value = (uint64_t)((double)free_for_us() * share);
    } else {
        unit = rest ? unit_bytes(rest) : 0;
        if (unit == 0 || (unit == 1 && fraction > 0))
            TSR_FAIL(err, TSR_E_USAGE,
                     "\"%s\" is not a size: write it like 512M, 1.5G, 300000000 or 60%%", text);
        if (__builtin_mul_overflow(whole, unit, &value) ||
            __builtin_add_overflow(value, (uint64_t)(fraction * (double)unit), &value) ||
            value > SIZE_MAX)
            TSR_FAIL(err, TSR_E_USAGE, "a budget of %s is more than this machine can count", text);
    }
    if (value == 0)
        TSR_FAIL(err, TSR_E_USAGE, "a budget of %s is nothing: leave it out for the default", text);
    *bytes = (size_t)value;
    return TSR_OK;
}

char *tsr_bytes_text(size_t bytes, char *buf, size_t buf_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    unsigned long long hundredths;

    while (value >= 1023.5 && unit < 6) { /* what would print as 1024 */
        value /= 1024;
        unit++;
    }
    hundredths = (unsigned long long)llround(value * 100);
    if (unit == 0)
        snprintf(buf, buf_bytes, "%zu B", bytes);
    else if (hundredths < 1000)
        snprintf(buf, buf_bytes, "%llu.%02llu %s", hundredths / 100, hundredths % 100, units[unit]);
    else if (hundredths < 9995)
        snprintf(buf, buf_bytes, "%llu.%llu %s", (hundredths + 5) / 100, (hundredths + 5) / 10 % 10,
                 units[unit]);
    else
        snprintf(buf, buf_bytes, "%llu %s", (hundredths + 50) / 100, units[unit]);
    return buf;
}
