/* text_util.c -- UTF-8, formatted lines, a growing buffer, lines, near names, a hash.
 *
 * UTF-8 is judged by the strict definition (Unicode 3.9, table 3-7): shortest form, no surrogates,
 * nothing above U+10FFFF. Names are compared by Levenshtein distance over bytes, row by row on the
 * stack; names longer than a row are never near. */
#include "base/text_util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

size_t tsr_utf8_decode(const char *s, size_t len, uint32_t *cp)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *u = (const unsigned char *)s;
    size_t n;
    uint32_t c;

    if (len == 0)
        return 0;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    n = u[0] >= 0xF8 ? 0 : u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : u[0] >= 0xC0 ? 2 : 0;
    if (n == 0 || n > len)
        return 0;
    c = u[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (u[i] & 0x3Fu);
    }
    if (c < smallest[n] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *cp = c;
    return n;
}

size_t tsr_utf8_encode(uint32_t cp, char out[4])
{
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (size_t i = n; i-- > 1; cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(lead[n] | cp);
    return n;
}

bool tsr_utf8_valid(const char *s, size_t len)
{
    uint32_t cp;

    for (size_t i = 0, n; i < len; i += n) {
        n = tsr_utf8_decode(s + i, len - i, &cp);
        if (n == 0)
            return false;
    }
    return true;
}

static bool is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x2028 || cp == 0x2029;
}

/* In place: what is shown is never longer than what it stands for. */
static void make_printable(char *s, size_t len)
{
    size_t to = 0;
    uint32_t cp;

    for (size_t from = 0, n; from < len; from += n) {
        n = tsr_utf8_decode(s + from, len - from, &cp);
        if (n == 0 || is_control(cp)) {
            s[to++] = '?';
            n += n == 0;
            continue;
        }
        memmove(s + to, s + from, n);
        to += n;
    }
    s[to] = 0;
}

/* Bytes of a character at the end of s[0..len) that was cut in the middle. */
static size_t cut_tail(const char *s, size_t len)
{
    uint32_t cp;

    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)s[len - back];
        if (c >= 0xC0)
            return tsr_utf8_decode(s + len - back, back, &cp) ? 0 : back;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

void tsr_line_vformat(char *buf, size_t buf_bytes, const char *fmt, va_list args)
{
    int n = vsnprintf(buf, buf_bytes, fmt, args);
    size_t len;

    if (n < 0)
        buf[0] = 0;
    len = strlen(buf);
    if (n >= 0 && (size_t)n >= buf_bytes)
        len -= cut_tail(buf, len);
    make_printable(buf, len);
}

void tsr_buf_append(tsr_buf *b, const char *s, size_t n)
{
    size_t need;

    if (b->failed)
        return;
    if (!tsr_add_size(b->len, n, &need) || !tsr_add_size(need, 1, &need) ||
        !tsr_grow((void **)&b->data, &b->cap, need, 1)) {
        b->failed = true;
        return;
    }
    memcpy(b->data + b->len, s, n);
    b->len += n;
    b->data[b->len] = 0;
}

void tsr_buf_puts(tsr_buf *b, const char *s)
{
    tsr_buf_append(b, s, strlen(s));
}

void tsr_buf_printf(tsr_buf *b, const char *fmt, ...)
{
    va_list args;
    int n;

    if (b->failed)
        return;
    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !tsr_grow((void **)&b->data, &b->cap, b->len + (size_t)n + 1, 1)) {
        b->failed = true;
        return;
    }
    va_start(args, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    va_end(args);
    b->len += (size_t)n;
}

void tsr_buf_json_string(tsr_buf *b, const char *s)
{
    static const char short_names[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* byte, letter */
    size_t len = strlen(s);
    uint32_t cp;

    tsr_buf_append(b, "\"", 1);
    for (size_t i = 0, n; i < len; i += n) {
        const char *known = NULL;
        n = tsr_utf8_decode(s + i, len - i, &cp);
        for (const char *k = short_names; *k && !known; k += 2)
            known = *k == s[i] ? k : NULL;
        if (known)
            tsr_buf_printf(b, "\\%c", known[1]);
        else if (n == 0)
            tsr_buf_puts(b, "\xEF\xBF\xBD");
        else if (cp < 0x20)
            tsr_buf_printf(b, "\\u%04x", (unsigned)cp);
        else
            tsr_buf_append(b, s + i, n);
        n += n == 0;
    }
    tsr_buf_append(b, "\"", 1);
}

bool tsr_buf_ok(const tsr_buf *b)
{
    return !b->failed;
}

void tsr_buf_free(tsr_buf *b)
{
    tsr_free(b->data);
    *b = (tsr_buf){0};
}

enum { LONGEST_NAME = 255 };

/* Levenshtein distance, or anything above `limit` when it is above. */
static size_t edit_distance(const char *a, size_t a_len, const char *b, size_t b_len, size_t limit)
{
    uint16_t row[LONGEST_NAME + 1];

    if ((a_len > b_len ? a_len - b_len : b_len - a_len) > limit)
        return limit + 1;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = (uint16_t)j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0], least = i;
        row[0] = (uint16_t)i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t up = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = tsr_min_size(best, tsr_min_size(up, row[j - 1]) + 1);
            diagonal = up;
            row[j] = (uint16_t)best;
            least = tsr_min_size(least, best);
        }
        if (least > limit)
            return limit + 1;
    }
    return row[b_len];
}

int32_t tsr_nearest_name(const char *name, const char *const *names, int32_t n_names)
{
    size_t len = strlen(name);
    size_t limit = tsr_max_size(2, len / 3);
    int32_t nearest = -1;

    if (len > LONGEST_NAME)
        return -1;
    for (int32_t i = 0; i < n_names; i++) {
        size_t other = strlen(names[i]), distance;
        if (other > LONGEST_NAME)
            continue;
        distance = edit_distance(name, len, names[i], other, limit);
        if (distance > limit)
            continue;
        nearest = i;
        if (distance == 0)
            break;
        limit = distance - 1; /* only something nearer replaces it */
    }
    return nearest;
}

const char *tsr_next_line(const char *text)
{
    const char *newline = strchr(text, '\n');

    return newline ? newline + 1 : NULL;
}

uint64_t tsr_fnv1a64(const void *data, size_t n, uint64_t h)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}
