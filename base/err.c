/* err.c -- writes the sentence of a failure.
 *
 * The text is formatted into a local buffer first, because an argument may point into the
 * very struct that is written (a sentence quoted in a longer one). Names from hostile files
 * end up in terminals and logs, so control characters and broken UTF-8 are shown as '?'.
 * Nothing is allocated: this must work when memory is what ran out. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text_util.h"

tsr_status tsr_err_set(tsr_err *err, tsr_status code, const char *fmt, ...)
{
    char text[sizeof err->msg];
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    tsr_line_vformat(text, sizeof text, fmt, args);
    va_end(args);
    err->code = code;
    memcpy(err->msg, text, sizeof text);
    return code;
}

tsr_status tsr_err_prefix(tsr_err *err, tsr_status code, const char *fmt, ...)
{
    char prefix[sizeof err->msg];
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    tsr_line_vformat(prefix, sizeof prefix, fmt, args);
    va_end(args);
    return tsr_err_set(err, code, "%s: %s", prefix, err->msg);
}

void tsr_err_clear(tsr_err *err)
{
    if (err)
        *err = (tsr_err){.code = TSR_OK};
}
