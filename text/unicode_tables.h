/* unicode_tables.h -- the generated tables behind unicode_char.c and unicode_nfc.c (38 KB).
 *
 * All are sorted by code point and searched by halves. Which version of Unicode each one follows,
 * and why there are several, is told in tools/make_unicode_tables.py. */
#ifndef TSR_TEXT_UNICODE_TABLES_H
#define TSR_TEXT_UNICODE_TABLES_H

#include <stdint.h>

/* Code points first .. first + more have `value`. */
typedef struct tsr_unicode_range {
    uint32_t first;
    uint16_t more, value;
} tsr_unicode_range;

/* Code points first, first + step .. first + more * step lower to themselves plus delta. */
typedef struct tsr_unicode_lower_run {
    uint32_t first;
    uint16_t more, step;
    int32_t delta;
} tsr_unicode_lower_run;

/* One step of a canonical decomposition: into a and b, or a alone (b = 0). Hangul left out. */
typedef struct tsr_unicode_decomposition {
    uint32_t cp, a, b;
} tsr_unicode_decomposition;

extern const tsr_unicode_range tsr_unicode_classes[831];   /* value: tsr_char_class */
extern const tsr_unicode_range tsr_unicode_combining[333]; /* value: combining class, not 0 */
extern const tsr_unicode_lower_run tsr_unicode_lower_runs[185];
extern const tsr_unicode_decomposition tsr_unicode_decomposed[2060];
/* Indices into tsr_unicode_decomposed of the pairs that compose, sorted by (a, b). */
extern const uint16_t tsr_unicode_composed[940];

#endif
