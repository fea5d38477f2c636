/* tokenizer.h -- CLIP's byte-level BPE, id for id as transformers' CLIPTokenizer (v5, and v4
 * "fast").
 *
 * Text is NFC-normalised, runs of Unicode white space become one space, lower-cased code point by
 * code point, split by
 *   <|startoftext|>|<|endoftext|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+
 * then byte-level BPE with "</w>". vocab.json and merges.txt are the model's own, of any size, read
 * as streams into compact tables (about 28 bytes an entry). A pad token that is not the end token
 * is an added special token that splits the text (SD2's "!"); see shared/reference/README.md. */
#ifndef TSR_TEXT_TOKENIZER_H
#define TSR_TEXT_TOKENIZER_H

#include <stdint.h>

#include "base/folder.h"
#include "base/log.h"

typedef struct tsr_tokenizer tsr_tokenizer;

/* Reads vocab.json, merges.txt, tokenizer_config.json and special_tokens_map.json of `dir` (when
 * the first two are missing: tokenizer.json). TSR_E_MODEL by file name and line for anything
 * broken. */
tsr_status tsr_tokenizer_load(tsr_tokenizer **tok, const char *dir, const tsr_log *log,
                              tsr_err *err);
tsr_status tsr_tokenizer_load_from(tsr_tokenizer **tok, const tsr_folder *dir, const tsr_log *log,
                                   tsr_err *err);
void tsr_tokenizer_free(tsr_tokenizer *tok); /* accepts NULL */

/* Begin token, the text's tokens, end token: not cut, not padded. `ids` belongs to the tokenizer
 * until the next call. Invalid UTF-8 becomes U+FFFD. Errors: TSR_E_OOM, TSR_E_USAGE (text over 1
 * MiB). */
tsr_status tsr_tokenizer_encode(tsr_tokenizer *tok, const char *text, size_t bytes,
                                const int32_t **ids, int32_t *n_ids, tsr_err *err);
/* Where in the text of the last encode token `i` begins (0: begin token), for "these words were
 * lost". Never decreases with i; a letter and its combining marks are one place; the end token has
 * the text's length. */
size_t tsr_tokenizer_offset(const tsr_tokenizer *tok, int32_t i);

int32_t
tsr_tokenizer_max_length(const tsr_tokenizer *tok); /* model_max_length; 77 when absent or absurd */
int32_t tsr_tokenizer_bos(const tsr_tokenizer *tok);
int32_t tsr_tokenizer_eos(const tsr_tokenizer *tok);
int32_t tsr_tokenizer_pad(const tsr_tokenizer *tok);
int32_t tsr_tokenizer_size(const tsr_tokenizer *tok); /* largest id + 1 */
const char *tsr_tokenizer_token(const tsr_tokenizer *tok, int32_t id,
                                size_t *len); /* its bytes in vocab form, or NULL */

#endif
