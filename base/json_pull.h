/* json_pull.h -- a strict pull parser for big or hostile JSON, in constant memory.
 *
 * vocab.json and safetensors headers come from the internet and can be many megabytes:
 * they are parsed event by event through a small window on the file, never as a tree.
 * (Small configs are cJSON's business.) Strict RFC 8259: no trailing commas, no comments,
 * valid UTF-8 only, depth at most TSR_JSON_DEPTH, strings at most `max_string` bytes.
 * After an error every further call returns TSR_JSON_ERROR and the tsr_err says where. */
#ifndef TSR_BASE_JSON_PULL_H
#define TSR_BASE_JSON_PULL_H

#include "base/file.h"

enum { TSR_JSON_DEPTH = 32 };

typedef enum tsr_json_event {
    TSR_JSON_ERROR = 0,
    TSR_JSON_END, /* the document is complete and only white space followed */
    TSR_JSON_OBJECT,
    TSR_JSON_OBJECT_END,
    TSR_JSON_ARRAY,
    TSR_JSON_ARRAY_END,
    TSR_JSON_KEY,    /* text: unescaped key */
    TSR_JSON_STRING, /* text: unescaped string */
    TSR_JSON_NUMBER, /* text: as written; see tsr_json_u64 */
    TSR_JSON_TRUE,
    TSR_JSON_FALSE,
    TSR_JSON_NULL
} tsr_json_event;

typedef struct tsr_json tsr_json;

/* Reads `bytes` bytes of `f` from `offset` (a safetensors header, or a whole file).
 * `f` stays the caller's and must outlive the reader. */
tsr_status tsr_json_open_file(tsr_json **j, const tsr_file *f, size_t offset, size_t bytes,
                              size_t max_string, tsr_err *err);
tsr_status tsr_json_open_memory(tsr_json **j, const char *text, size_t bytes, size_t max_string,
                                tsr_err *err);
void tsr_json_close(tsr_json *j);

tsr_json_event tsr_json_next(tsr_json *j);
/* Text of the last KEY, STRING or NUMBER: zero-terminated, valid until the next call. A string
 * may hold zero bytes (from \u0000): *len says its true length. */
const char *tsr_json_text(const tsr_json *j, size_t *len);
/* The last NUMBER as a non-negative integer; false when it has a sign, fraction, exponent, or
 * overflows. */
bool tsr_json_u64(const tsr_json *j, uint64_t *value);
/* After a KEY (or in an array): skips the next value, however deep. False on error. */
bool tsr_json_skip(tsr_json *j);
tsr_status tsr_json_status(const tsr_json *j); /* TSR_OK, or TSR_E_MODEL / TSR_E_IO after ERROR */

#endif
