/* log.c -- formats one line and hands it to whoever listens.
 *
 * On the stack, so that a message in the middle of a run costs no memory; a longer line is cut. */
#include "base/log.h"

#include <stdarg.h>

#include "base/text_util.h"

void tsr_log_write(const tsr_log *log, tsr_log_level level, const char *fmt, ...)
{
    char line[2048];
    va_list args;

    if (!log || !log->fn)
        return;
    va_start(args, fmt);
    tsr_line_vformat(line, sizeof line, fmt, args);
    va_end(args);
    log->fn(log->user, level, line);
}
