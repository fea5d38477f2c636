/* unicode_nfc.h -- text as code points that remember where they came from, and NFC of it. */
#ifndef TSR_TEXT_UNICODE_NFC_H
#define TSR_TEXT_UNICODE_NFC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tsr_uchar {
    uint32_t cp;
    uint32_t offset; /* byte of the original text */
} tsr_uchar;

/* Zero-initialise; free `at` with tsr_free. */
typedef struct tsr_ustring {
    tsr_uchar *at;
    size_t len, cap;
} tsr_ustring;

bool tsr_ustring_push(tsr_ustring *s, uint32_t cp, uint32_t offset); /* false: out of memory */
void tsr_ustring_free(tsr_ustring *s);

/* Appends the NFC of text[0..n) to `out`; false when out of memory. A starter and the marks after
 * it all get the starter's offset, so offsets never decrease however the marks are sorted. */
bool tsr_unicode_nfc(tsr_ustring *out, const tsr_uchar *text, size_t n);

#endif
