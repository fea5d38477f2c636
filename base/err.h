/* err.h -- status codes and the one sentence that goes with them.
 *
 * Every function that can fail returns a tsr_status (declared in tessera.h) and writes
 * one sentence into a tsr_err: what failed, where, and what would help. The struct is
 * owned by the caller (usually the context); a NULL tsr_err is allowed and drops the
 * sentence. The first sentence of a failing call wins: a caller that only forwards a
 * status never overwrites it. */
#ifndef TSR_BASE_ERR_H
#define TSR_BASE_ERR_H

#include "tessera.h"

typedef struct tsr_err {
    tsr_status code;
    char msg[512]; /* UTF-8, one sentence, no newline; cut at the end if too long */
} tsr_err;

#if defined(__GNUC__)
#define TSR_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define TSR_PRINTF(a, b)
#endif

/* Writes the sentence and returns `code`, so that `return tsr_err_set(...)` works.
 * Control characters and broken UTF-8 that come from files are shown as '?'. */
tsr_status tsr_err_set(tsr_err *err, tsr_status code, const char *fmt, ...) TSR_PRINTF(3, 4);

/* Puts "prefix: " before the sentence that is already there (used to add a file name). */
tsr_status tsr_err_prefix(tsr_err *err, tsr_status code, const char *fmt, ...) TSR_PRINTF(3, 4);

void tsr_err_clear(tsr_err *err);

/* Forwards a failure to the caller. */
#define TSR_TRY(expr)                                                                              \
    do {                                                                                           \
        tsr_status tsr_try_ = (expr);                                                              \
        if (tsr_try_ != TSR_OK)                                                                    \
            return tsr_try_;                                                                       \
    } while (0)

/* The same for functions that clean up at `done` and return `st`. */
#define TSR_TRY_GOTO(expr)                                                                         \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (st != TSR_OK)                                                                          \
            goto done;                                                                             \
    } while (0)

/* Returns `code` itself, so that the compiler sees that the path fails. */
#define TSR_FAIL(err, code, ...) return (tsr_err_set((err), (code), __VA_ARGS__), (code))

#endif
