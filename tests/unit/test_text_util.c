/* test_text_util.c -- UTF-8, buffers, near names, the hash. */
#include "base/text_util.h"

#include <string.h>

#include "base/alloc.h"
#include "tests/support/test.h"

static void utf8__every_code_point__encodes_and_decodes(void)
{
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char s[4];
        uint32_t back = 0;
        size_t n = tsr_utf8_encode(cp, s);
        bool surrogate = cp >= 0xD800 && cp <= 0xDFFF;
        if (n != (cp < 0x80      ? 1u
                  : cp < 0x800   ? 2u
                  : cp < 0x10000 ? 3u
                                 : 4u) ||
            tsr_utf8_decode(s, n, &back) != (surrogate ? 0 : n) || (!surrogate && back != cp))
            CHECK_MSG(false, "U+%04X", cp);
        if (n > 1 && tsr_utf8_decode(s, n - 1, &back) != 0)
            CHECK_MSG(false, "U+%04X cut off", cp);
    }
}

static void utf8__broken_sequences__are_refused(void)
{
    static const char *const broken[] = {
        "\x80",             /* continuation alone */
        "\xC0\xAF",         /* overlong */
        "\xC1\xBF",         /* overlong */
        "\xE0\x9F\xBF",     /* overlong */
        "\xF0\x8F\xBF\xBF", /* overlong */
        "\xED\xA0\x80",     /* U+D800 */
        "\xED\xBF\xBF",     /* U+DFFF */
        "\xF4\x90\x80\x80", /* U+110000 */
        "\xF8\x88\x80\x80\x80",
        "\xFE",
        "\xFF",
        "\xC3(",
        "\xE2\x82(",
        "\xF0\x9F\x98(",
    };
    uint32_t cp = 77;

    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        CHECK_MSG(tsr_utf8_decode(broken[i], strlen(broken[i]), &cp) == 0, "case %zu", i);
    CHECK(cp == 77);
    CHECK(tsr_utf8_decode("a", 0, &cp) == 0);
    CHECK(tsr_utf8_valid("", 0));
    CHECK(tsr_utf8_valid("a\0\xC3\xA9", 4));
    CHECK(!tsr_utf8_valid("good\xC3", 5));
}

static void buf__appends__make_one_string(void)
{
    tsr_buf b = {0};

    tsr_buf_append(&b, "abc", 2);
    tsr_buf_puts(&b, "-");
    tsr_buf_printf(&b, "%d%s", 12, "x");
    tsr_buf_printf(&b, "%s", "");
    tsr_buf_append(&b, "\0z", 2);
    CHECK(tsr_buf_ok(&b) && b.len == 8);
    CHECK(b.data && memcmp(b.data, "ab-12x\0z", 9) == 0);
    tsr_buf_free(&b);
    CHECK(!b.data && b.len == 0 && b.cap == 0);
}

static void buf__a_failed_allocation__sticks(void)
{
    tsr_buf b = {0};

    tsr_buf_puts(&b, "start");
    tsr_alloc_fail_at(1);
    tsr_buf_printf(&b, "%200d", 1);
    tsr_alloc_fail_at(0);
    tsr_buf_puts(&b, "more");
    tsr_buf_printf(&b, "%d", 1);
    CHECK(!tsr_buf_ok(&b));
    CHECK(b.data && strcmp(b.data, "start") == 0);
    tsr_buf_free(&b);
}

static void buf_json_string__special_characters__are_escaped(void)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", "\"\""},
        {"a\"b\\c/", "\"a\\\"b\\\\c/\""},
        {"\b\f\n\r\t", "\"\\b\\f\\n\\r\\t\""},
        {"\x01\x1F\x7F", "\"\\u0001\\u001f\x7F\""},
        {"\xC3\xA9\xF0\x9F\x98\x80", "\"\xC3\xA9\xF0\x9F\x98\x80\""},
        {"x\xFFy\xE2\x82", "\"x\xEF\xBF\xBDy\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tsr_buf b = {0};
        tsr_buf_json_string(&b, cases[i].in);
        CHECK_MSG(b.data && strcmp(b.data, cases[i].out) == 0, "case %zu: %s", i, b.data);
        tsr_buf_free(&b);
    }
}

static void nearest_name__typing_slips__find_the_name(void)
{
    static const char *const names[] = {"--width",    "--height",    "--steps", "--seed",
                                        "--strength", "--scheduler", "--num"};
    static const struct {
        const char *name;
        int32_t want;
    } cases[] = {
        {"--hieght", 1}, {"--heigth", 1}, {"--sede", 3},        {"--step", 2}, {"--sheduler", 5},
        {"--width", 0},  {"--nmu", 6},    {"--controlnet", -1}, {"", -1},      {"--strenght", 4},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t got = tsr_nearest_name(cases[i].name, names, 7);
        CHECK_MSG(got == cases[i].want, "%s: %d", cases[i].name, (int)got);
    }
}

static void nearest_name__limit__is_two_or_a_third(void)
{
    static const char *const abc[] = {"abc"}, *const nine[] = {"abcdefghi"};

    CHECK(tsr_nearest_name("xyc", abc, 1) == 0);        /* distance 2 */
    CHECK(tsr_nearest_name("xyz", abc, 1) == -1);       /* 3 */
    CHECK(tsr_nearest_name("abcdefXYZ", nine, 1) == 0); /* 3 of 9 */
    CHECK(tsr_nearest_name("abcdeWXYZ", nine, 1) == -1);
    CHECK(tsr_nearest_name("abc", NULL, 0) == -1);
}

static void nearest_name__names_without_end__are_never_near(void)
{
    static char lengthy[100001];
    const char *names[] = {lengthy, "short"};

    memset(lengthy, 'x', sizeof lengthy - 1);
    CHECK(tsr_nearest_name(lengthy, names, 2) == -1);
    CHECK(tsr_nearest_name("shirt", names, 2) == 1);
}

static void fnv1a64__published_vectors__agree(void)
{
    CHECK(tsr_fnv1a64("", 0, TSR_FNV_SEED) == 0xCBF29CE484222325u);
    CHECK(tsr_fnv1a64("a", 1, TSR_FNV_SEED) == 0xAF63DC4C8601EC8Cu);
    CHECK(tsr_fnv1a64("foobar", 6, TSR_FNV_SEED) == 0x85944171F73967E8u);
    CHECK(tsr_fnv1a64("bar", 3, tsr_fnv1a64("foo", 3, TSR_FNV_SEED)) == 0x85944171F73967E8u);
}

int main(void)
{
    RUN(utf8__every_code_point__encodes_and_decodes);
    RUN(utf8__broken_sequences__are_refused);
    RUN(buf__appends__make_one_string);
    RUN(buf__a_failed_allocation__sticks);
    RUN(buf_json_string__special_characters__are_escaped);
    RUN(nearest_name__typing_slips__find_the_name);
    RUN(nearest_name__limit__is_two_or_a_third);
    RUN(nearest_name__names_without_end__are_never_near);
    RUN(fnv1a64__published_vectors__agree);
    return test_end();
}
