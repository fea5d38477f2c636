/* text_util.h -- strings: UTF-8, a growing buffer, and the nearest of some names. */
#ifndef TSR_BASE_TEXT_UTIL_H
#define TSR_BASE_TEXT_UTIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* One code point from s[0..len); returns its length in bytes, 0 for broken UTF-8
 * (overlong, surrogate, above U+10FFFF, cut off). */
size_t tsr_utf8_decode(const char *s, size_t len, uint32_t *cp);
size_t tsr_utf8_encode(uint32_t cp, char out[4]); /* returns 1..4 */
bool tsr_utf8_valid(const char *s, size_t len);

/* vsnprintf for a line that people read: control characters and broken UTF-8 become '?', and a
 * line that is too long is cut between two characters. */
void tsr_line_vformat(char *buf, size_t buf_bytes, const char *fmt, va_list args) TSR_PRINTF(3, 0);

/* A heap string that grows. Errors stick: after an allocation failed every further append
 * does nothing, and tsr_buf_ok says so. */
typedef struct tsr_buf {
    char *data; /* always zero-terminated once something was appended; NULL before */
    size_t len, cap;
    bool failed;
} tsr_buf;
void tsr_buf_append(tsr_buf *b, const char *s, size_t n);
void tsr_buf_puts(tsr_buf *b, const char *s);
void tsr_buf_printf(tsr_buf *b, const char *fmt, ...) TSR_PRINTF(2, 3);
void tsr_buf_json_string(tsr_buf *b,
                         const char *s); /* quoted and escaped; broken UTF-8 becomes U+FFFD */
bool tsr_buf_ok(const tsr_buf *b);
void tsr_buf_free(tsr_buf *b);

/* The candidate with the smallest edit distance to `name`, or -1 when none is near
 * (distance above max(2, a third of the length)). */
int32_t tsr_nearest_name(const char *name, const char *const *names, int32_t n_names);

/* What follows the next newline; NULL when there is none. */
const char *tsr_next_line(const char *text);

uint64_t tsr_fnv1a64(const void *data, size_t n, uint64_t h); /* start with TSR_FNV_SEED */
#define TSR_FNV_SEED 0xCBF29CE484222325u

#endif
