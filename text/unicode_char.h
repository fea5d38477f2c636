/* unicode_char.h -- what kind of character a code point is, and its lower case. */
#ifndef TSR_TEXT_UNICODE_CHAR_H
#define TSR_TEXT_UNICODE_CHAR_H

#include <stdint.h>

typedef enum tsr_char_class {
    TSR_CHAR_OTHER,
    TSR_CHAR_LETTER, /* \p{L} */
    TSR_CHAR_NUMBER, /* \p{N} */
    TSR_CHAR_SPACE   /* White_Space */
} tsr_char_class;

tsr_char_class tsr_unicode_class(uint32_t cp);
/* Lower case of one code point without its context; returns how many code points were written
 * (2 for U+0130, else 1). */
int32_t tsr_unicode_lower(uint32_t cp, uint32_t out[2]);

#endif
