/* budget.h -- what memory there is, and what this process uses.
 *
 * Figures come from /proc and the cgroup file system (v2 and v1), in bytes. */
#ifndef TSR_MEMORY_BUDGET_H
#define TSR_MEMORY_BUDGET_H

#include <stddef.h>

#include "base/err.h"

size_t tsr_mem_resident(void);  /* VmRSS now; 0 when unknown */
size_t tsr_mem_peak(void);      /* VmHWM; 0 when unknown */
size_t tsr_mem_available(void); /* the smaller of MemAvailable and what the cgroup still allows */
/* Default budget: resident + available less a margin (a sixteenth, at least 64 MiB, at most 1 GiB).
 */
size_t tsr_budget_default(void);
/* "512M", "1.5G", "1GiB", "300000000", "60%" (of what is free). K M G are powers of 1024.
 * TSR_E_USAGE with a sentence for anything else, for 0 and for overflow. */
tsr_status tsr_budget_parse(const char *text, size_t *bytes, tsr_err *err);
/* "1.61 GiB", "43.2 MiB", "512 B" into buf (at least 24 bytes); returns buf. */
char *tsr_bytes_text(size_t bytes, char *buf, size_t buf_bytes);

/* What the others are made of; tests give their own texts and folders (see base/cgroup.h). */
size_t tsr_mem_field(const char *text, const char *name); /* "VmRSS:  1234 kB" in bytes, or 0 */
size_t tsr_mem_cgroup_free(const char *root, const char *self); /* SIZE_MAX without a limit */

#endif
