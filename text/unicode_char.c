/* unicode_char.c -- classes and lower case by binary search in the generated ranges.
 *
 * The lower case is the simple one of each code point alone, as the reference tokenizer has it:
 * the final sigma is not special, and only U+0130 becomes two code points. */
#include "text/unicode_char.h"

#include <stddef.h>

#include "text/unicode_tables.h"

tsr_char_class tsr_unicode_class(uint32_t cp)
{
    size_t lo = 0, hi = sizeof tsr_unicode_classes / sizeof tsr_unicode_classes[0];

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const tsr_unicode_range *r = &tsr_unicode_classes[mid];
        if (cp < r->first)
            hi = mid;
        else if (cp > r->first + r->more)
            lo = mid + 1;
        else
            return (tsr_char_class)r->value;
    }
    return TSR_CHAR_OTHER;
}

int32_t tsr_unicode_lower(uint32_t cp, uint32_t out[2])
{
    size_t lo = 0, hi = sizeof tsr_unicode_lower_runs / sizeof tsr_unicode_lower_runs[0];

    out[0] = cp;
    if (cp == 0x130) { /* I with a dot above: i, and a combining dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const tsr_unicode_lower_run *r = &tsr_unicode_lower_runs[mid];
        if (cp < r->first) {
            hi = mid;
        } else if (cp > r->first + (uint32_t)r->more * r->step) {
            lo = mid + 1;
        } else {
            if ((cp - r->first) % r->step == 0)
                out[0] = (uint32_t)((int32_t)cp + r->delta);
            break;
        }
    }
    return 1;
}
