/* check_tokens.h -- what must hold for every text and every tokenizer that could be loaded. */
#ifndef TSR_TESTS_CHECK_TOKENS_H
#define TSR_TESTS_CHECK_TOKENS_H

#include <stddef.h>

#include "text/tokenizer.h"

/* Encodes the text and aborts when something does not hold: ids in range, begin and end token at
 * their ends, offsets that never go back nor leave the text, the same again on a second call. */
void check_tokens(tsr_tokenizer *tok, const char *text, size_t bytes);

#endif
