/* test_json_pull.c -- events, errors and bounds of the JSON reader. */
#include "base/json_pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text_util.h"
#include "tests/support/test.h"

enum { MOST_STRING = 1000 };

/* Appends an event as text: {}[] for the levels, k: keys, "strings", numbers, t f n. */
static void trace_event(tsr_buf *out, const tsr_json *j, tsr_json_event e)
{
    static const char *const marks[] = {
        [TSR_JSON_ERROR] = "!",      [TSR_JSON_END] = ".",    [TSR_JSON_OBJECT] = "{",
        [TSR_JSON_OBJECT_END] = "}", [TSR_JSON_ARRAY] = "[",  [TSR_JSON_ARRAY_END] = "]",
        [TSR_JSON_KEY] = "k",        [TSR_JSON_STRING] = "s", [TSR_JSON_NUMBER] = "#",
        [TSR_JSON_TRUE] = "t",       [TSR_JSON_FALSE] = "f",  [TSR_JSON_NULL] = "n",
    };
    size_t len;

    tsr_buf_puts(out, marks[e]);
    if (e == TSR_JSON_KEY || e == TSR_JSON_STRING || e == TSR_JSON_NUMBER) {
        const char *text = tsr_json_text(j, &len);
        CHECK(strlen(text) <= len && text[len] == 0);
        tsr_buf_append(out, text, len);
        tsr_buf_puts(out, " ");
    }
}

/* All events of a reader up to the end or an error; closes it. */
static tsr_buf trace_of(tsr_json *j)
{
    tsr_buf out = {0};
    tsr_json_event e;

    do {
        e = tsr_json_next(j);
        trace_event(&out, j, e);
    } while (e != TSR_JSON_ERROR && e != TSR_JSON_END);
    CHECK(tsr_json_next(j) == e); /* both are final */
    CHECK((tsr_json_status(j) == TSR_OK) == (e == TSR_JSON_END));
    tsr_json_close(j);
    return out;
}

static void check_trace(const char *text, size_t len, const char *want)
{
    tsr_json *j;
    tsr_err err = {0};
    tsr_buf got;
    char *exact = malloc(len + 1); /* so that ASAN sees a read past the end */

    REQUIRE(exact);
    memcpy(exact, text, len);
    exact = realloc(exact, len ? len : 1);
    REQUIRE(tsr_json_open_memory(&j, exact, len, MOST_STRING, &err) == TSR_OK);
    got = trace_of(j);
    CHECK_MSG(got.data && strcmp(got.data, want) == 0, "%s\n  gives %s, not %s (%s)", text,
              got.data, want, err.msg);
    tsr_buf_free(&got);
    free(exact);
}

static void json__good_documents__give_their_events(void)
{
    static const struct {
        const char *text, *events;
    } cases[] = {
        {"0", "#0 ."},
        {" true ", "t."},
        {"\t\r\n null\n", "n."},
        {"false", "f."},
        {"\"\"", "s ."},
        {"[]", "[]."},
        {"{}", "{}."},
        {"[ ]", "[]."},
        {"[1,-2.5e+10,0.0,1E5,-0]", "[#1 #-2.5e+10 #0.0 #1E5 #-0 ]."},
        {"{\"a\":1,\"b\":[true,{\"c\":null}],\"a\":\"x\"}", "{ka #1 kb [t{kc n}]ka sx }."},
        {"{ \"a\" : { } , \"b\" : [ ] }", "{ka {}kb []}."},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "s\"\\/\b\f\n\r\t ."},
        {"\"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\"", "sA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 ."},
        {"\"\xC3\xA9\xF0\x9F\x98\x80\x7F\"", "s\xC3\xA9\xF0\x9F\x98\x80\x7F ."},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_trace(cases[i].text, strlen(cases[i].text), cases[i].events);
}

static void json__broken_documents__are_refused(void)
{
    static const char *const broken[] = {
        "",
        " ",
        "[",
        "{",
        "]",
        "}",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\" 1}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1]",
        "1 2",
        "[] []",
        "{}x",
        "nul",
        "nulL",
        "truefalse",
        "True",
        "01",
        "-",
        "-a",
        "+1",
        "1.",
        ".5",
        "1.e5",
        "1e",
        "1e+",
        "0x10",
        "--1",
        "1-",
        "1.5.5",
        "NaN",
        "Infinity",
        "-Infinity",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\",
        "\"\\u\"",
        "\"\\u12\"",
        "\"\\u12G4\"",
        "\"\\uD800\"",
        "\"\\uD800x\"",
        "\"\\uD800\\n\"",
        "\"\\uD800\\u0041\"",
        "\"\\uDC00\"",
        "\"\\uD83D\\uD83D\"",
        "\"\\uDE00\\uD83D\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\x01\"",
        "\"\xC0\x80\"",
        "\"\xFF\"",
        "\"\xED\xA0\x80\"",
        "\"\xE2\x82\"",
        "\"\xC3\\u0041\"",
        "// c\n1",
        "/* c */ 1",
        "1 // c",
        "[1,/**/2]",
        "\xEF\xBB\xBF{}",
        "\v1",
        "1\f",
        ("\xC2\xA0"
         "1"),
        "{\"a\":1,\"b\"",
        "{\"\xFF\":1}",
        "[\"a\":1]",
        "{\"a\":1:2}",
        "{{}}",
        "[nulltrue]",
    };

    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        tsr_json *j;
        tsr_err err = {0};
        tsr_buf got;
        REQUIRE(tsr_json_open_memory(&j, broken[i], strlen(broken[i]), MOST_STRING, &err) ==
                TSR_OK);
        got = trace_of(j);
        CHECK_MSG(got.len > 0 && got.data[got.len - 1] == '!', "accepted: %s as %s", broken[i],
                  got.data);
        CHECK_MSG(err.code == TSR_E_MODEL && strstr(err.msg, "not valid JSON at byte"), "%s: %s",
                  broken[i], err.msg);
        tsr_buf_free(&got);
    }
}

static void json__zero_bytes__are_text_only_when_escaped(void)
{
    tsr_json *j;
    size_t len;

    REQUIRE(tsr_json_open_memory(&j, "\"a\\u0000b\"", 10, MOST_STRING, NULL) == TSR_OK);
    CHECK(tsr_json_next(j) == TSR_JSON_STRING);
    CHECK(memcmp(tsr_json_text(j, &len), "a\0b", 4) == 0 && len == 3);
    tsr_json_close(j);
    check_trace("\"a\0b\"", 5, "!");
    check_trace("1\0", 2, "#1 !");
    check_trace("\0", 1, "!");
}

static void json__error__says_where(void)
{
    static const struct {
        const char *text, *where;
    } cases[] = {
        {"[1,]", "at byte 3:"},  {"{\"key\" 1}", "at byte 7:"},
        {"", "at byte 0:"},      {"nulx", "at byte 3:"},
        {"[1] 2", "at byte 4:"}, {"\"\\uDC00\\uDC00\"", "half of a surrogate pair"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tsr_json *j;
        tsr_err err = {0};
        REQUIRE(tsr_json_open_memory(&j, cases[i].text, strlen(cases[i].text), 10, &err) == TSR_OK);
        while (tsr_json_next(j) != TSR_JSON_ERROR)
            ;
        CHECK_MSG(strstr(err.msg, cases[i].where), "%s: %s", cases[i].text, err.msg);
        CHECK(tsr_json_status(j) == TSR_E_MODEL);
        tsr_json_close(j);
    }
}

static void json__depth__is_bounded(void)
{
    for (int too_deep = 0; too_deep < 2; too_deep++) {
        char text[2 * TSR_JSON_DEPTH + 8], want[2 * TSR_JSON_DEPTH + 8];
        size_t depth = (size_t)TSR_JSON_DEPTH + (size_t)too_deep;
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = 0;
        snprintf(want, sizeof want, too_deep ? "%.*s!" : "%.*s.",
                 too_deep ? TSR_JSON_DEPTH : 2 * TSR_JSON_DEPTH, text);
        check_trace(text, 2 * depth, want);
    }
}

static void json__string_length__is_bounded(void)
{
    for (size_t len = MOST_STRING - 1; len <= MOST_STRING + 1; len++) {
        char text[MOST_STRING + 4], want[MOST_STRING + 8];
        snprintf(text, sizeof text, "\"%0*d\"", (int)len, 0);
        if (len <= MOST_STRING)
            snprintf(want, sizeof want, "s%0*d .", (int)len, 0);
        else
            snprintf(want, sizeof want, "!");
        check_trace(text, len + 2, want);
        memset(text, '1', len);
        if (len <= MOST_STRING)
            snprintf(want, sizeof want, "#%.*s .", (int)len, text);
        check_trace(text, len, want);
    }
}

static void json_u64__numbers__are_whole_and_fit(void)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t value;
    } cases[] = {
        {"0", true, 0},
        {"18446744073709551615", true, UINT64_MAX},
        {"18446744073709551616", false, 0},
        {"99999999999999999999999", false, 0},
        {"-0", false, 0},
        {"-1", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"4096", true, 4096},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tsr_json *j;
        uint64_t value = 7;
        REQUIRE(tsr_json_open_memory(&j, cases[i].text, strlen(cases[i].text), 10, NULL) == TSR_OK);
        CHECK(tsr_json_next(j) == TSR_JSON_NUMBER);
        CHECK_MSG(tsr_json_u64(j, &value) == cases[i].good, "%s", cases[i].text);
        CHECK(value == (cases[i].good ? cases[i].value : 7));
        tsr_json_close(j);
    }
}

static void json_skip__any_value__is_passed_over(void)
{
    static const char text[] =
        "{\"a\":1,\"b\":{\"x\":[1,{\"y\":[]}]},\"c\":\"s\",\"d\":[[[]]],\"e\":5}";
    tsr_json *j;
    int keys = 0;

    REQUIRE(tsr_json_open_memory(&j, text, sizeof text - 1, MOST_STRING, NULL) == TSR_OK);
    CHECK(tsr_json_next(j) == TSR_JSON_OBJECT);
    while (tsr_json_next(j) == TSR_JSON_KEY) {
        CHECK(tsr_json_text(j, NULL)[0] == 'a' + keys);
        keys++;
        CHECK(tsr_json_skip(j));
    }
    CHECK(keys == 5 && tsr_json_next(j) == TSR_JSON_END);
    tsr_json_close(j);
}

static void json_skip__end_of_the_array_or_an_error__is_false(void)
{
    tsr_json *j;

    REQUIRE(tsr_json_open_memory(&j, "[1]", 3, MOST_STRING, NULL) == TSR_OK);
    CHECK(tsr_json_next(j) == TSR_JSON_ARRAY);
    CHECK(tsr_json_skip(j));
    CHECK(!tsr_json_skip(j) && tsr_json_status(j) == TSR_OK);
    CHECK(tsr_json_next(j) == TSR_JSON_END);
    tsr_json_close(j);
    REQUIRE(tsr_json_open_memory(&j, "[[1,x]]", 7, MOST_STRING, NULL) == TSR_OK);
    CHECK(tsr_json_next(j) == TSR_JSON_ARRAY);
    CHECK(!tsr_json_skip(j) && tsr_json_status(j) == TSR_E_MODEL);
    tsr_json_close(j);
}

/* A string far above max_string, of four-byte characters at every phase of the text buffer. */
static void json_skip__a_string_too_long__is_checked_and_dropped(void)
{
    enum { LONG = 5000 };
    static char text[LONG + 32];

    for (size_t lead = 0; lead < 4; lead++) {
        for (int broken = 0; broken < 2; broken++) {
            tsr_json *j;
            tsr_err err = {0};
            size_t len = (size_t)snprintf(text, sizeof text, "[\"%.*s", (int)lead, "abc");
            while (len < LONG)
                len += (size_t)snprintf(text + len, 5, "\xF0\x9F\x98\x80");
            if (broken)
                text[LONG / 2] = '\xFF';
            len += (size_t)snprintf(text + len, 16, "\",7]");
            REQUIRE(tsr_json_open_memory(&j, text, len, 64, &err) == TSR_OK);
            CHECK(tsr_json_next(j) == TSR_JSON_ARRAY);
            CHECK_MSG(tsr_json_skip(j) == !broken, "%s", err.msg);
            if (!broken)
                CHECK(tsr_json_next(j) == TSR_JSON_NUMBER &&
                      tsr_json_next(j) == TSR_JSON_ARRAY_END);
            tsr_json_close(j);
        }
    }
}

/* Writes `text` behind `before` bytes of padding and opens the file. */
static bool open_text_file(tsr_file *f, const char *text, size_t len, size_t before)
{
    char path[4200];
    FILE *out;
    tsr_err err;
    static int n;

    snprintf(path, sizeof path, "%s/%d.json", test_temp_dir(), n++);
    out = fopen(path, "wb");
    if (!out)
        return false;
    for (size_t i = 0; i < before; i++)
        fputc('#', out);
    fwrite(text, 1, len, out);
    fputs("trailing", out);
    fclose(out);
    return tsr_file_open(f, path, &err) == TSR_OK;
}

/* More than two windows of text, so that every kind of token crosses a border at some phase. */
static void json_file__documents_longer_than_the_window__read_as_in_memory(void)
{
    enum { ITEMS = 9000 };
    tsr_buf text = {0}, in_memory, in_file;
    tsr_json *j;
    tsr_file f;

    tsr_buf_puts(&text, "[");
    for (int i = 0; i < ITEMS; i++)
        tsr_buf_printf(&text,
                       "%s{\"k%d\":[-%d.5e-7,\"\\u00e9\xF0\x9F\x98\x80\\uD83D\\uDE00\",true,null]}",
                       i ? " , " : "", i, i);
    tsr_buf_puts(&text, "]");
    REQUIRE(tsr_buf_ok(&text) && text.len > 5 * 65536);
    REQUIRE(tsr_json_open_memory(&j, text.data, text.len, MOST_STRING, NULL) == TSR_OK);
    in_memory = trace_of(j);
    CHECK(in_memory.data[in_memory.len - 1] == '.');
    for (size_t before = 8; before < 12; before += 3) {
        REQUIRE(open_text_file(&f, text.data, text.len, before));
        REQUIRE(tsr_json_open_file(&j, &f, before, text.len, MOST_STRING, NULL) == TSR_OK);
        in_file = trace_of(j);
        CHECK(in_file.len == in_memory.len &&
              memcmp(in_file.data, in_memory.data, in_file.len) == 0);
        tsr_buf_free(&in_file);
        tsr_file_close(&f);
    }
    tsr_buf_free(&in_memory);
    tsr_buf_free(&text);
}

static void json_file__errors__name_the_file_and_its_byte(void)
{
    tsr_file f;
    tsr_json *j;
    tsr_err err = {0};

    REQUIRE(open_text_file(&f, "[1,]", 4, 8));
    REQUIRE(tsr_json_open_file(&j, &f, 8, 4, 10, &err) == TSR_OK);
    while (tsr_json_next(j) != TSR_JSON_ERROR)
        ;
    CHECK_MSG(strstr(err.msg, f.path) && strstr(err.msg, "at byte 11:"), "%s", err.msg);
    tsr_json_close(j);
    /* more bytes than there are */
    REQUIRE(tsr_json_open_file(&j, &f, 8, 400, 10, &err) == TSR_OK);
    CHECK(tsr_json_next(j) == TSR_JSON_ERROR && tsr_json_status(j) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, f.path), "%s", err.msg);
    tsr_json_close(j);
    tsr_file_close(&f);
}

static void json_file__a_failing_read__is_an_io_error_at_every_read(void)
{
    tsr_file f;
    tsr_buf text = {0};
    int failures = 0;

    tsr_buf_printf(&text, "[\"%01000d\",%0*d1]", 0, 1, 2);
    for (int i = 0; i < 3; i++)
        tsr_buf_printf(&text, "%60000s", "");
    REQUIRE(open_text_file(&f, text.data, text.len, 0));
    for (uint64_t n = 1;; n++) {
        tsr_json *j;
        tsr_err err = {0};
        tsr_json_event e;
        REQUIRE(tsr_json_open_file(&j, &f, 0, text.len, MOST_STRING, &err) == TSR_OK);
        tsr_io_fail_at(n);
        do
            e = tsr_json_next(j);
        while (e != TSR_JSON_ERROR && e != TSR_JSON_END);
        CHECK(tsr_json_status(j) == (e == TSR_JSON_END ? TSR_OK : TSR_E_IO));
        tsr_json_close(j);
        if (!tsr_io_failed())
            break;
        CHECK(e == TSR_JSON_ERROR && err.code == TSR_E_IO);
        failures++;
    }
    tsr_io_fail_at(0);
    CHECK(failures == 3);
    tsr_file_close(&f);
    tsr_buf_free(&text);
}

static void json__memory__is_taken_once(void)
{
    static const char text[] = "{\"a\":[1,2,\"three\"]}";
    tsr_json *j;
    tsr_err err;
    uint64_t before = tsr_alloc_count();

    REQUIRE(tsr_json_open_memory(&j, text, sizeof text - 1, 100000, NULL) == TSR_OK);
    while (tsr_json_next(j) != TSR_JSON_END)
        REQUIRE(tsr_json_status(j) == TSR_OK);
    tsr_json_close(j);
    CHECK(tsr_alloc_count() == before + 1);
    tsr_alloc_fail_at(1);
    CHECK(tsr_json_open_memory(&j, text, sizeof text - 1, 100, &err) == TSR_E_OOM);
    tsr_alloc_fail_at(0);
    CHECK(tsr_json_open_memory(&j, text, sizeof text - 1, SIZE_MAX, &err) == TSR_E_OOM);
    tsr_json_close(NULL);
}

int main(void)
{
    RUN(json__good_documents__give_their_events);
    RUN(json__broken_documents__are_refused);
    RUN(json__zero_bytes__are_text_only_when_escaped);
    RUN(json__error__says_where);
    RUN(json__depth__is_bounded);
    RUN(json__string_length__is_bounded);
    RUN(json_u64__numbers__are_whole_and_fit);
    RUN(json_skip__any_value__is_passed_over);
    RUN(json_skip__end_of_the_array_or_an_error__is_false);
    RUN(json_skip__a_string_too_long__is_checked_and_dropped);
    RUN(json_file__documents_longer_than_the_window__read_as_in_memory);
    RUN(json_file__errors__name_the_file_and_its_byte);
    RUN(json_file__a_failing_read__is_an_io_error_at_every_read);
    RUN(json__memory__is_taken_once);
    return test_end();
}
