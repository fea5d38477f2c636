/* log.h -- messages for people: warnings and details, never results.
 *
 * The library does not print. Whoever opens a context may give a callback; without one
 * messages are dropped. One message is one line without a newline. */
#ifndef TSR_BASE_LOG_H
#define TSR_BASE_LOG_H

#include "base/err.h"

typedef struct tsr_log {
    tsr_log_fn fn; /* from tessera.h; may be NULL */
    void *user;
} tsr_log;

void tsr_log_write(const tsr_log *log, tsr_log_level level, const char *fmt, ...) TSR_PRINTF(3, 4);

#define TSR_WARN(log, ...) tsr_log_write((log), TSR_LOG_WARNING, __VA_ARGS__)
#define TSR_INFO(log, ...) tsr_log_write((log), TSR_LOG_INFO, __VA_ARGS__)
#define TSR_DETAIL(log, ...) tsr_log_write((log), TSR_LOG_DEBUG, __VA_ARGS__)

#endif
