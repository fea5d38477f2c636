/* test_unicode.c -- classes, lower case and NFC, against known characters and against themselves.
 */
#include "text/unicode_char.h"
#include "text/unicode_nfc.h"

#include <string.h>

#include "base/alloc.h"
#include "tests/support/test.h"

enum { LAST_CODE_POINT = 0x10FFFF, MAX_CHARS = 8 };

static void unicode__class__is_the_categorys(void)
{
    static const struct {
        uint32_t first, last;
        tsr_char_class kind;
    } cases[] = {
        {'a', 'z', TSR_CHAR_LETTER},
        {'0', '9', TSR_CHAR_NUMBER},
        {'!', '/', TSR_CHAR_OTHER},
        {0x09, 0x0D, TSR_CHAR_SPACE},
        {0x0E, 0x1F, TSR_CHAR_OTHER}, /* the separators are no white space */
        {0x85, 0x85, TSR_CHAR_SPACE},
        {0xA0, 0xA0, TSR_CHAR_SPACE},
        {0xAA, 0xAA, TSR_CHAR_LETTER},
        {0xB2, 0xB3, TSR_CHAR_NUMBER},
        {0x300, 0x36F, TSR_CHAR_OTHER}, /* marks */
        {0x2000, 0x200A, TSR_CHAR_SPACE},
        {0x200B, 0x200D, TSR_CHAR_OTHER},
        {0x3000, 0x3000, TSR_CHAR_SPACE},
        {0x4E00, 0x9FFF, TSR_CHAR_LETTER},
        {0xAC00, 0xD7A3, TSR_CHAR_LETTER},
        {0xD800, 0xF8FF, TSR_CHAR_OTHER},
        {0x105C0, 0x105F3, TSR_CHAR_LETTER}, /* new in Unicode 16 */
        {0x16EA0, 0x16EB8, TSR_CHAR_OTHER},  /* new in Unicode 17 */
        {0x1D7CE, 0x1D7FF, TSR_CHAR_NUMBER},
        {0x1F600, 0x1F64F, TSR_CHAR_OTHER},
        {LAST_CODE_POINT, LAST_CODE_POINT, TSR_CHAR_OTHER},
        {0x110000, 0x110000, TSR_CHAR_OTHER},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t cp = cases[i].first; cp <= cases[i].last; cp++)
            CHECK_MSG(tsr_unicode_class(cp) == cases[i].kind, "U+%04X is %d", (unsigned)cp,
                      (int)tsr_unicode_class(cp));
    }
}

static void unicode__lower__is_the_simple_one(void)
{
    static const uint32_t cases[][2] = {
        {'A', 'a'},         {'z', 'z'},         {'@', '@'},         {0xC0, 0xE0},
        {0xD7, 0xD7},       {0xDF, 0xDF},       {0x100, 0x101},     {0x101, 0x101},
        {0x178, 0xFF},      {0x1C4, 0x1C6},     {0x1C5, 0x1C6},     {0x3A3, 0x3C3},
        {0x410, 0x430},     {0x1E9E, 0xDF},     {0x2126, 0x3C9},    {0x212A, 'k'},
        {0x2160, 0x2170},   {0x1C89, 0x1C8A},   {0xA7DC, 0x19B},    {0x10400, 0x10428},
        {0x10D50, 0x10D70}, {0x16EA0, 0x16EBB}, {0x1E900, 0x1E922}, {0x110000, 0x110000},
    };
    uint32_t out[2];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(tsr_unicode_lower(cases[i][0], out) == 1);
        CHECK_MSG(out[0] == cases[i][1], "U+%04X lowers to U+%04X", (unsigned)cases[i][0],
                  (unsigned)out[0]);
    }
    CHECK(tsr_unicode_lower(0x130, out) == 2 && out[0] == 'i' && out[1] == 0x307);
}

/* --------------------------------------------------------------------- NFC */

static tsr_ustring chars(const uint32_t *cps)
{
    tsr_ustring s = {0};

    for (uint32_t i = 0; cps[i]; i++)
        CHECK(tsr_ustring_push(&s, cps[i], i));
    return s;
}

static bool same(const tsr_ustring *a, const uint32_t *cps)
{
    for (size_t i = 0; i < a->len; i++) {
        if (a->at[i].cp != cps[i])
            return false;
    }
    return cps[a->len] == 0;
}

static void unicode__nfc__composes_and_reorders(void)
{
    static const struct {
        uint32_t from[MAX_CHARS], to[MAX_CHARS];
    } cases[] = {
        {{'e', 0x301}, {0xE9}},
        {{0xE9}, {0xE9}},
        {{0x212B}, {0xC5}},                               /* a singleton, composed again */
        {{0x2126}, {0x3A9}},                              /* one that does not come back */
        {{0x958}, {0x915, 0x93C}},                        /* excluded from composition */
        {{'s', 0x323, 0x307}, {0x1E69}},                  /* in two steps */
        {{'s', 0x307, 0x323}, {0x1E69}},                  /* and out of order */
        {{'q', 0x307, 0x323}, {'q', 0x323, 0x307}},       /* ordered only */
        {{'a', 0x300, 0x301}, {0xE0, 0x301}},             /* the same class: blocked */
        {{'a', 0x313, 0x301}, {'a', 0x313, 0x301}},       /* also where it would compose */
        {{'a', 0x327, 0x300}, {0xE0, 0x327}},             /* past a lower class */
        {{0x301, 'a'}, {0x301, 'a'}},                     /* a mark with no starter */
        {{'a', 'b', 0x301}, {'a', 'b', 0x301}},           /* nothing composes */
        {{0x1112, 0x1161, 0x11AB}, {0xD55C}},             /* Hangul: L V T */
        {{0x1112, 0x1161}, {0xD558}},                     /* L V */
        {{0xD558, 0x11AB}, {0xD55C}},                     /* LV T */
        {{0xD55C, 0x11AB}, {0xD55C, 0x11AB}},             /* LVT T stays */
        {{0x1112, 0x11AB}, {0x1112, 0x11AB}},             /* L T stays */
        {{0xD558, 0x11A7}, {0xD558, 0x11A7}},             /* "no T" is no T */
        {{0x344}, {0x308, 0x301}},                        /* a mark of two marks */
        {{0x1F82}, {0x1F82}},                             /* three deep */
        {{0x0B47, 0x0B3E}, {0xB4B}},                      /* starter on starter */
        {{0x0B47, 0x300, 0x0B3E}, {0xB47, 0x300, 0xB3E}}, /* blocked by a mark between */
        {{0x1D15E}, {0x1D157, 0x1D165}},                  /* outside the first plane */
        {{'a', 0x1E130, 0x301}, {'a', 0x1E130, 0x301}},   /* a mark newer than Unicode 9 */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_ustring from = chars(cases[i].from), to = {0};
        CHECK(tsr_unicode_nfc(&to, from.at, from.len));
        CHECK_MSG(same(&to, cases[i].to), "case %zu: U+%04X is wrong", i,
                  (unsigned)cases[i].from[0]);
        tsr_ustring_free(&from);
        tsr_ustring_free(&to);
    }
}

static void unicode__nfc_of_nfc__is_itself(void)
{
    tsr_ustring once = {0}, twice = {0};

    for (uint32_t cp = 0; cp <= LAST_CODE_POINT; cp++) {
        tsr_uchar text[3] = {{'a', 0}, {cp, 1}, {0x301, 2}};
        once.len = twice.len = 0;
        REQUIRE(tsr_unicode_nfc(&once, text, 3) && tsr_unicode_nfc(&twice, once.at, once.len));
        CHECK_MSG(once.len == twice.len && once.len > 0 &&
                      memcmp(once.at, twice.at, once.len * sizeof once.at[0]) == 0,
                  "U+%04X", (unsigned)cp);
    }
    tsr_ustring_free(&once);
    tsr_ustring_free(&twice);
}

static void unicode__offsets__are_the_starters(void)
{
    static const uint32_t text[] = {0x301, 'x', 's', 0x307, 0x323, 'q', 0x307, 0x323, 'e', 0};
    static const uint32_t want[] = {0, 1, 2, 5, 5, 5, 8};
    tsr_ustring from = chars(text), to = {0};

    CHECK(tsr_unicode_nfc(&to, from.at, from.len));
    CHECK(to.len == 7);
    for (size_t i = 0; i < to.len && i < 7; i++)
        CHECK_MSG(to.at[i].offset == want[i], "%zu comes from %u", i, (unsigned)to.at[i].offset);
    tsr_ustring_free(&from);
    tsr_ustring_free(&to);
}

static void unicode__long_run_of_marks__is_sorted_stably(void)
{
    enum { N = 300000 };
    static const uint32_t marks[3] = {0x301, 0x323, 0x334}; /* classes 230, 220, 1 */
    tsr_ustring from = {0}, to = {0};

    CHECK(tsr_ustring_push(&from, 'q', 0));
    for (uint32_t i = 0; i < N; i++)
        REQUIRE(tsr_ustring_push(&from, marks[i % 3], 1));
    CHECK(tsr_unicode_nfc(&to, from.at, from.len));
    CHECK(to.len == N + 1);
    for (uint32_t i = 0; i < N && test_failures() == 0; i++)
        CHECK(to.at[i + 1].cp == marks[2 - i / (N / 3)] && to.at[i + 1].offset == 0);
    tsr_ustring_free(&from);
    tsr_ustring_free(&to);
}

static void unicode__failed_allocation__is_told(void)
{
    static const uint32_t text[] = {'s', 0x307, 0x323, 0xD55C, 0x1F82, 'a', 'b', 'c', 'd', 0};
    tsr_ustring from = chars(text), to = {0};
    bool ok = false;

    for (uint64_t n = 1; !ok && n < 20; n++) {
        tsr_alloc_fail_at(n);
        ok = tsr_unicode_nfc(&to, from.at, from.len);
        CHECK(ok == !tsr_alloc_failed());
        tsr_ustring_free(&to);
    }
    tsr_alloc_fail_at(0);
    CHECK(ok);
    tsr_ustring_free(&from);
}

int main(void)
{
    RUN(unicode__class__is_the_categorys);
    RUN(unicode__lower__is_the_simple_one);
    RUN(unicode__nfc__composes_and_reorders);
    RUN(unicode__nfc_of_nfc__is_itself);
    RUN(unicode__offsets__are_the_starters);
    RUN(unicode__long_run_of_marks__is_sorted_stably);
    RUN(unicode__failed_allocation__is_told);
    return test_end();
}
