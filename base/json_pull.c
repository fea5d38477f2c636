/* json_pull.c -- a pull parser over a window of a file.
 *
 * One allocation holds the reader, a window of at most 64 KiB, and the text of one string. The
 * grammar is a small state machine: `state` says what may come next, a bit a level says
 * whether that level is an object. A string is copied in runs of plain bytes and checked as
 * UTF-8 when it is complete; text longer than `max_string` is an error, except inside of
 * tsr_json_skip, where it is checked piece by piece and dropped. Numbers are checked and handed
 * over as written.
 *
 * The input is hostile: nothing recurses, every count has a bound, and a document that ends early,
 * goes on after its end, or breaks a rule of RFC 8259 gives TSR_E_MODEL and the byte at which
 * it does. */
#include "base/json_pull.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/text_util.h"

enum { WINDOW_BYTES = 64 * 1024, LEAST_TEXT = 64, END_OF_TEXT = -1, READ_FAILED = -2 };

typedef enum json_state {
    WANT_VALUE,
    WANT_FIRST_ITEM, /* after '[': a value or ']' */
    WANT_FIRST_KEY,  /* after '{': a key or '}' */
    AFTER_VALUE,     /* ',' or the end of the level; at depth 0 the end of the document */
} json_state;

struct tsr_json {
    const tsr_file *file;        /* NULL: everything is in the window already */
    const unsigned char *window; /* [pos, len) has not been looked at yet */
    size_t pos, len;
    size_t window_at; /* offset of window[0] in the file */
    size_t unread;    /* bytes of the document after the window */
    unsigned char *own_window;
    char *text;
    size_t text_len, text_cap; /* text_cap leaves room for the final zero */
    bool dropping_text;        /* in tsr_json_skip */
    json_state state;
    int32_t depth;
    uint32_t objects; /* bit d: level d is an object */
    tsr_status status;
    tsr_err *err;
};

_Static_assert(TSR_JSON_DEPTH <= 32, "one bit a level");

/* ------------------------------------------------------------------- input */

static tsr_json_event fail(tsr_json *j, const char *what)
{
    if (j->status != TSR_OK) /* the first failure has its sentence already */
        return TSR_JSON_ERROR;
    j->status = tsr_err_set(j->err, TSR_E_MODEL, "%s is not valid JSON at byte %zu: %s",
                            j->file ? j->file->path : "the text", j->window_at + j->pos, what);
    return TSR_JSON_ERROR;
}

/* Moves the window on when it is used up: the next byte, or one of the negative constants. */
static int refill(tsr_json *j)
{
    size_t n = tsr_min_size(j->unread, WINDOW_BYTES);

    if (j->status != TSR_OK)
        return READ_FAILED;
    if (n == 0)
        return END_OF_TEXT;
    j->window_at += j->len;
    j->pos = j->len = 0;
    j->status = tsr_file_read(j->file, j->window_at, j->own_window, n, j->err);
    if (j->status != TSR_OK)
        return READ_FAILED;
    j->len = n;
    j->unread -= n;
    return j->window[0];
}

static inline int peek(tsr_json *j)
{
    return j->pos < j->len ? j->window[j->pos] : refill(j);
}

static int skip_space(tsr_json *j)
{
    int c = peek(j);

    while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        j->pos++;
        c = peek(j);
    }
    return c;
}

/* -------------------------------------------------------------------- text */

/* Bytes at the end of the text that may be the beginning of a longer character. */
static size_t unfinished_tail(const tsr_json *j)
{
    for (size_t back = 1; back <= 3 && back <= j->text_len; back++)
        if ((unsigned char)j->text[j->text_len - back] >= 0xC0)
            return back;
    return 0;
}

/* Makes room by dropping what was read of a string that nobody wants. */
static bool drop_text(tsr_json *j)
{
    size_t keep = unfinished_tail(j), n = j->text_len - keep;

    if (!tsr_utf8_valid(j->text, n))
        return fail(j, "a string is not UTF-8");
    memmove(j->text, j->text + n, keep);
    j->text_len = keep;
    return true;
}

static bool add_text(tsr_json *j, const void *bytes, size_t n)
{
    const char *from = bytes;

    while (n > j->text_cap - j->text_len) {
        size_t part = j->text_cap - j->text_len;
        if (!j->dropping_text)
            return fail(j, "a string or number is too long");
        memcpy(j->text + j->text_len, from, part);
        j->text_len += part;
        from += part;
        n -= part;
        if (!drop_text(j))
            return false;
    }
    memcpy(j->text + j->text_len, from, n);
    j->text_len += n;
    return true;
}

/* Four hexadecimal digits. */
static bool read_hex4(tsr_json *j, uint32_t *value)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++) {
        int c = peek(j);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return fail(j, "\\u needs four hexadecimal digits");
        v = v << 4 | (uint32_t)digit;
        j->pos++;
    }
    *value = v;
    return true;
}

/* After "\u": one code point, of two halves where the first is a high surrogate. */
static bool read_unicode(tsr_json *j, uint32_t *cp)
{
    uint32_t low;

    if (!read_hex4(j, cp))
        return false;
    if (*cp < 0xD800 || *cp > 0xDFFF)
        return true;
    for (const char *c = "\\u"; *c; c++, j->pos++)
        if (*cp > 0xDBFF || peek(j) != *c)
            return fail(j, "half of a surrogate pair");
    if (!read_hex4(j, &low))
        return false;
    if (low < 0xDC00 || low > 0xDFFF)
        return fail(j, "half of a surrogate pair");
    *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* After a backslash. */
static bool read_escape(tsr_json *j)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    int c = peek(j);
    const char *letter = c > 0 ? strchr(letters, c) : NULL;
    char utf8[4];
    uint32_t cp;

    if (letter) {
        j->pos++;
        return add_text(j, &bytes[letter - letters], 1);
    }
    if (c != 'u')
        return fail(j, "unknown escape");
    j->pos++;
    return read_unicode(j, &cp) && add_text(j, utf8, tsr_utf8_encode(cp, utf8));
}

/* Bytes of the window that stand for themselves. */
static size_t plain_run(const tsr_json *j)
{
    size_t end = j->pos;

    while (end < j->len && j->window[end] >= 0x20 && j->window[end] != '"' &&
           j->window[end] != '\\')
        end++;
    return end - j->pos;
}

/* At the opening quote; leaves the unescaped text. */
static bool read_string(tsr_json *j)
{
    j->pos++;
    j->text_len = 0;
    for (;;) {
        int c = peek(j);
        if (c == '"')
            break;
        if (c < 0x20)
            return fail(j, c == END_OF_TEXT ? "it ends within a string"
                                            : "a control character in a string");
        if (c == '\\') {
            j->pos++;
            if (!read_escape(j))
                return false;
        } else {
            size_t n = plain_run(j);
            if (!add_text(j, j->window + j->pos, n))
                return false;
            j->pos += n;
        }
    }
    if (!tsr_utf8_valid(j->text, j->text_len))
        return fail(j, "a string is not UTF-8");
    j->pos++;
    j->text[j->text_len] = 0;
    return true;
}

/* Copies digits; false when there is none. */
static bool read_digits(tsr_json *j)
{
    bool any = false;

    for (int c = peek(j); c >= '0' && c <= '9'; c = peek(j), any = true) {
        char digit = (char)c;
        if (!add_text(j, &digit, 1))
            return false;
        j->pos++;
    }
    return any || fail(j, "a digit is missing");
}

/* Copies the next byte if it is one of `set`. */
static bool read_one_of(tsr_json *j, const char *set)
{
    int c = peek(j);
    char byte = (char)c;

    if (c <= 0 || !strchr(set, c) || !add_text(j, &byte, 1))
        return false;
    j->pos++;
    return true;
}

static tsr_json_event read_number(tsr_json *j)
{
    j->text_len = 0;
    (void)read_one_of(j, "-");
    if (!read_one_of(j, "0") && !read_digits(j)) /* nothing but the number zero starts with 0 */
        return TSR_JSON_ERROR;
    if (read_one_of(j, ".") && !read_digits(j))
        return TSR_JSON_ERROR;
    if (read_one_of(j, "eE")) {
        (void)read_one_of(j, "+-");
        if (!read_digits(j))
            return TSR_JSON_ERROR;
    }
    j->text[j->text_len] = 0;
    j->state = AFTER_VALUE;
    return j->status == TSR_OK ? TSR_JSON_NUMBER : TSR_JSON_ERROR;
}

static tsr_json_event read_word(tsr_json *j, const char *word, tsr_json_event event)
{
    for (; *word; word++, j->pos++)
        if (peek(j) != *word)
            return fail(j, "not a value");
    j->state = AFTER_VALUE;
    return event;
}

/* ----------------------------------------------------------------- grammar */

static bool in_object(const tsr_json *j)
{
    return j->depth > 0 && (j->objects >> (j->depth - 1) & 1);
}

static tsr_json_event open_level(tsr_json *j, bool object)
{
    uint32_t bit;

    if (j->depth == TSR_JSON_DEPTH)
        return fail(j, "nested too deep");
    bit = (uint32_t)1 << j->depth;
    j->objects = object ? j->objects | bit : j->objects & ~bit;
    j->depth++;
    j->pos++;
    j->state = object ? WANT_FIRST_KEY : WANT_FIRST_ITEM;
    return object ? TSR_JSON_OBJECT : TSR_JSON_ARRAY;
}

static tsr_json_event close_level(tsr_json *j)
{
    tsr_json_event event = in_object(j) ? TSR_JSON_OBJECT_END : TSR_JSON_ARRAY_END;

    j->depth--;
    j->pos++;
    j->state = AFTER_VALUE;
    return event;
}

static tsr_json_event read_value(tsr_json *j, int c)
{
    switch (c) {
    case '{':
        return open_level(j, true);
    case '[':
        return open_level(j, false);
    case '"':
        if (!read_string(j))
            return TSR_JSON_ERROR;
        j->state = AFTER_VALUE;
        return TSR_JSON_STRING;
    case 't':
        return read_word(j, "true", TSR_JSON_TRUE);
    case 'f':
        return read_word(j, "false", TSR_JSON_FALSE);
    case 'n':
        return read_word(j, "null", TSR_JSON_NULL);
    case END_OF_TEXT:
        return fail(j, "it ends where a value should be");
    default:
        if (c == '-' || (c >= '0' && c <= '9'))
            return read_number(j);
        return fail(j, "not a value");
    }
}

static tsr_json_event read_key(tsr_json *j, int c)
{
    if (c != '"')
        return fail(j, "a key is missing");
    if (!read_string(j))
        return TSR_JSON_ERROR;
    if (skip_space(j) != ':')
        return fail(j, "':' is missing after a key");
    j->pos++;
    j->state = WANT_VALUE;
    return TSR_JSON_KEY;
}

tsr_json_event tsr_json_next(tsr_json *j)
{
    bool key = j->state == WANT_FIRST_KEY;
    int c;

    if (j->status != TSR_OK)
        return TSR_JSON_ERROR;
    c = skip_space(j);
    if (j->state == AFTER_VALUE && j->depth == 0)
        return c == END_OF_TEXT ? TSR_JSON_END : fail(j, "something follows the document");
    if (j->state == AFTER_VALUE && c == ',') {
        j->pos++;
        key = in_object(j);
        c = skip_space(j);
    } else if (j->state != WANT_VALUE) {
        if (c == (in_object(j) ? '}' : ']'))
            return close_level(j);
        if (j->state == AFTER_VALUE)
            return fail(j, in_object(j) ? "',' or '}' is missing" : "',' or ']' is missing");
    }
    return key ? read_key(j, c) : read_value(j, c);
}

bool tsr_json_skip(tsr_json *j)
{
    int32_t depth = j->depth;
    bool skipped;

    j->dropping_text = true;
    do {
        tsr_json_event e = tsr_json_next(j);
        skipped = e != TSR_JSON_ERROR && e != TSR_JSON_END && j->depth >= depth;
    } while (skipped && j->depth > depth);
    j->dropping_text = false;
    return skipped;
}

/* ----------------------------------------------------------------- results */

const char *tsr_json_text(const tsr_json *j, size_t *len)
{
    if (len)
        *len = j->text_len;
    return j->text;
}

bool tsr_json_u64(const tsr_json *j, uint64_t *value)
{
    uint64_t v = 0;

    for (size_t i = 0; i < j->text_len; i++) {
        char c = j->text[i];
        if (c < '0' || c > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(c - '0'), &v))
            return false;
    }
    if (j->text_len == 0)
        return false;
    *value = v;
    return true;
}

tsr_status tsr_json_status(const tsr_json *j)
{
    return j->status;
}

/* -------------------------------------------------------------- open, close */

static tsr_status make(tsr_json **out, size_t window_bytes, size_t max_string, tsr_err *err)
{
    size_t text_cap = tsr_max_size(max_string, LEAST_TEXT), bytes;
    tsr_json *j = NULL;

    if (tsr_add_size(sizeof *j + 1 + window_bytes, text_cap, &bytes))
        j = tsr_malloc(bytes);
    if (!j)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for reading JSON");
    *j = (tsr_json){.err = err, .text_cap = text_cap};
    j->own_window = (unsigned char *)(j + 1);
    j->window = j->own_window;
    j->text = (char *)(j->own_window + window_bytes);
    j->text[0] = 0;
    *out = j;
    return TSR_OK;
}

tsr_status tsr_json_open_file(tsr_json **j, const tsr_file *f, size_t offset, size_t bytes,
                              size_t max_string, tsr_err *err)
{
    TSR_TRY(make(j, tsr_min_size(bytes, WINDOW_BYTES), max_string, err));
    (*j)->file = f;
    (*j)->window_at = offset;
    (*j)->unread = bytes;
    return TSR_OK;
}

tsr_status tsr_json_open_memory(tsr_json **j, const char *text, size_t bytes, size_t max_string,
                                tsr_err *err)
{
    TSR_TRY(make(j, 0, max_string, err));
    (*j)->window = (const unsigned char *)text;
    (*j)->len = bytes;
    return TSR_OK;
}

void tsr_json_close(tsr_json *j)
{
    tsr_free(j);
}
