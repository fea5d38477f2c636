/* unicode_nfc.c -- Normalization Form C (Unicode Standard Annex 15).
 *
 * Three passes, each linear: decompose every code point all the way; sort every run of combining
 * marks by combining class, keeping the order of equals; compose each starter with the marks
 * behind it, and Hangul by its arithmetic. Runs of marks have no bound in hostile text, so they
 * are sorted by counting, not by insertion. */
#include "text/unicode_nfc.h"

#include <string.h>

#include "base/alloc.h"
#include "text/unicode_tables.h"

enum { N_CLASSES = 256 };

/* Hangul syllables are computed: (l * N_V + v) * N_T + t, t = 0 for none. */
enum {
    HANGUL_S = 0xAC00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    N_L = 19,
    N_V = 21,
    N_T = 28,
    N_S = N_L * N_V * N_T
};

bool tsr_ustring_push(tsr_ustring *s, uint32_t cp, uint32_t offset)
{
    if (!tsr_grow((void **)&s->at, &s->cap, s->len + 1, sizeof s->at[0]))
        return false;
    s->at[s->len++] = (tsr_uchar){cp, offset};
    return true;
}

void tsr_ustring_free(tsr_ustring *s)
{
    tsr_free(s->at);
    *s = (tsr_ustring){0};
}

static uint32_t combining_class(uint32_t cp)
{
    size_t lo = 0, hi = sizeof tsr_unicode_combining / sizeof tsr_unicode_combining[0];

    if (cp < tsr_unicode_combining[0].first)
        return 0;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const tsr_unicode_range *r = &tsr_unicode_combining[mid];
        if (cp < r->first)
            hi = mid;
        else if (cp > r->first + r->more)
            lo = mid + 1;
        else
            return r->value;
    }
    return 0;
}

static const tsr_unicode_decomposition *find_decomposition(uint32_t cp)
{
    size_t lo = 0, hi = sizeof tsr_unicode_decomposed / sizeof tsr_unicode_decomposed[0];

    if (cp < tsr_unicode_decomposed[0].cp)
        return NULL;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const tsr_unicode_decomposition *d = &tsr_unicode_decomposed[mid];
        if (cp < d->cp)
            hi = mid;
        else if (cp > d->cp)
            lo = mid + 1;
        else
            return d;
    }
    return NULL;
}

/* The code point that the pair composes to, or 0. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    size_t lo = 0, hi = sizeof tsr_unicode_composed / sizeof tsr_unicode_composed[0];
    uint64_t key = (uint64_t)a << 32 | b;

    if (a - HANGUL_L < N_L && b - HANGUL_V < N_V)
        return HANGUL_S + ((a - HANGUL_L) * N_V + (b - HANGUL_V)) * N_T;
    if (a - HANGUL_S < N_S && (a - HANGUL_S) % N_T == 0 && b - HANGUL_T - 1 < N_T - 1)
        return a + (b - HANGUL_T);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const tsr_unicode_decomposition *d = &tsr_unicode_decomposed[tsr_unicode_composed[mid]];
        uint64_t here = (uint64_t)d->a << 32 | d->b;
        if (key < here)
            hi = mid;
        else if (key > here)
            lo = mid + 1;
        else
            return d->cp;
    }
    return 0;
}

static bool decompose(tsr_ustring *out, uint32_t cp, uint32_t offset)
{
    uint32_t tail[4]; /* second halves; no canonical decomposition is deeper */
    size_t n_tail = 0;
    const tsr_unicode_decomposition *d;

    if (cp - HANGUL_S < N_S) {
        uint32_t s = cp - HANGUL_S, t = s % N_T;
        return tsr_ustring_push(out, HANGUL_L + s / (N_V * N_T), offset) &&
               tsr_ustring_push(out, HANGUL_V + s / N_T % N_V, offset) &&
               (t == 0 || tsr_ustring_push(out, HANGUL_T + t, offset));
    }
    while ((d = find_decomposition(cp)) != NULL) {
        if (d->b != 0)
            tail[n_tail++] = d->b;
        cp = d->a;
    }
    if (!tsr_ustring_push(out, cp, offset))
        return false;
    while (n_tail > 0) {
        if (!decompose(out, tail[--n_tail], offset))
            return false;
    }
    return true;
}

/* Sorts marks[0..n) by class, stable; scratch has room for n. */
static void sort_marks(tsr_uchar *marks, size_t n, tsr_uchar *scratch)
{
    size_t start[N_CLASSES + 1] = {0};

    for (size_t i = 0; i < n; i++)
        start[combining_class(marks[i].cp) + 1]++;
    for (size_t k = 1; k < N_CLASSES; k++)
        start[k] += start[k - 1];
    memcpy(scratch, marks, n * sizeof marks[0]);
    for (size_t i = 0; i < n; i++)
        marks[start[combining_class(scratch[i].cp)]++] = scratch[i];
}

/* Puts every run of marks in order and gives it its starter's offset. */
static bool reorder(tsr_uchar *s, size_t n)
{
    tsr_ustring scratch = {0};
    bool ok = true;

    for (size_t i = 0; ok && i < n;) {
        size_t first = i;
        uint32_t last_class = 0, c;
        bool sorted = true;

        while (i < n && (c = combining_class(s[i].cp)) != 0) {
            sorted = sorted && c >= last_class;
            last_class = c;
            s[i].offset = s[first > 0 ? first - 1 : 0].offset;
            i++;
        }
        if (!sorted) {
            ok = tsr_grow((void **)&scratch.at, &scratch.cap, i - first, sizeof s[0]);
            if (ok)
                sort_marks(s + first, i - first, scratch.at);
        }
        i += i < n; /* the starter that ended the run */
    }
    tsr_ustring_free(&scratch);
    return ok;
}

/* Composes in place; returns the new length. */
static size_t compose_all(tsr_uchar *s, size_t n)
{
    size_t len = 0, starter = SIZE_MAX;
    uint32_t last_class = 0; /* of the last code point kept behind the starter */

    for (size_t i = 0; i < n; i++) {
        uint32_t c = combining_class(s[i].cp), both = 0;

        /* blocked when a kept mark of the same or a higher class stands between */
        if (starter != SIZE_MAX && (starter + 1 == len || last_class < c))
            both = compose(s[starter].cp, s[i].cp);
        if (both != 0) {
            s[starter].cp = both;
            continue;
        }
        if (c == 0)
            starter = len;
        last_class = c;
        s[len++] = s[i];
    }
    return len;
}

bool tsr_unicode_nfc(tsr_ustring *out, const tsr_uchar *text, size_t n)
{
    size_t first = out->len;

    for (size_t i = 0; i < n; i++) {
        if (!decompose(out, text[i].cp, text[i].offset))
            return false;
    }
    if (out->len == first)
        return true;
    if (!reorder(out->at + first, out->len - first))
        return false;
    out->len = first + compose_all(out->at + first, out->len - first);
    return true;
}
