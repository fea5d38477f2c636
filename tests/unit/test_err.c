/* test_err.c -- status sentences. */
#include "base/err.h"

#include <string.h>

#include "tests/support/test.h"

static void err_set__a_sentence__is_kept_with_its_code(void)
{
    tsr_err err = {0};

    CHECK(tsr_err_set(&err, TSR_E_MODEL, "tensor %s has %d values", "conv_in", 7) == TSR_E_MODEL);
    CHECK(err.code == TSR_E_MODEL);
    CHECK(strcmp(err.msg, "tensor conv_in has 7 values") == 0);
    tsr_err_clear(&err);
    CHECK(err.code == TSR_OK && err.msg[0] == 0);
}

static void err_set__no_struct__still_returns_the_code(void)
{
    CHECK(tsr_err_set(NULL, TSR_E_IO, "%s", "x") == TSR_E_IO);
    CHECK(tsr_err_prefix(NULL, TSR_E_IO, "%s", "x") == TSR_E_IO);
    tsr_err_clear(NULL);
}

static void err_set__bytes_of_a_hostile_file__are_shown_as_question_marks(void)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80",
         "plain \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"a\nb\tc\x1B[31m\x7F", "a?b?c?[31m?"},
        {"\xC2\x9B"
         "31m",
         "?31m"},                     /* a control sequence of one character */
        {"\xE2\x80\xA8", "?"},        /* line separator */
        {"\xC0\x80\xFF", "???"},      /* overlong, no lead byte */
        {"\xED\xA0\x80x", "???x"},    /* surrogate */
        {"\xE2\x82", "??"},           /* cut off */
        {"\xF4\x90\x80\x80", "????"}, /* above U+10FFFF */
    };
    tsr_err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tsr_err_set(&err, TSR_E_MODEL, "%s", cases[i].in);
        CHECK_MSG(strcmp(err.msg, cases[i].out) == 0, "case %zu: \"%s\"", i, err.msg);
    }
}

static void err_set__a_text_too_long__is_cut_between_characters(void)
{
    char name[2001];
    struct {
        tsr_err err;
        char guard[8];
    } s;

    for (size_t lead = 0; lead < 4; lead++) {
        memset(s.guard, 'G', sizeof s.guard);
        memset(name, 'a', sizeof name);
        for (size_t i = lead; i + 4 < sizeof name; i += 4)
            memcpy(name + i, "\xF0\x9F\x98\x80", 4);
        name[sizeof name - 1] = 0;
        tsr_err_set(&s.err, TSR_E_MODEL, "%s", name);
        CHECK(strlen(s.err.msg) >= sizeof s.err.msg - 4);
        CHECK(strlen(s.err.msg) < sizeof s.err.msg);
        CHECK(strchr(s.err.msg, '?') == NULL);
        CHECK(memcmp(s.guard, "GGGGGGGG", 8) == 0);
    }
}

static void err_prefix__a_sentence__is_put_after_the_prefix(void)
{
    tsr_err err = {0};

    tsr_err_set(&err, TSR_E_IO, "it ends at byte %d", 12);
    CHECK(tsr_err_prefix(&err, TSR_E_MODEL, "file %s", "x.bin") == TSR_E_MODEL);
    CHECK(err.code == TSR_E_MODEL);
    CHECK(strcmp(err.msg, "file x.bin: it ends at byte 12") == 0);
}

static void err_set__its_own_message_as_argument__is_quoted_whole(void)
{
    tsr_err err = {0};

    tsr_err_set(&err, TSR_E_IO, "inner");
    tsr_err_set(&err, TSR_E_IO, "outer (%s)", err.msg);
    CHECK(strcmp(err.msg, "outer (inner)") == 0);
}

static tsr_status fails_third(int *calls, int n)
{
    for (int i = 0; i < n; i++) {
        (*calls)++;
        TSR_TRY(i == 2 ? TSR_E_IO : TSR_OK);
    }
    return TSR_OK;
}

static void err_try__a_failure__is_forwarded_at_once(void)
{
    int calls = 0;

    CHECK(fails_third(&calls, 2) == TSR_OK && calls == 2);
    calls = 0;
    CHECK(fails_third(&calls, 9) == TSR_E_IO && calls == 3);
}

int main(void)
{
    RUN(err_set__a_sentence__is_kept_with_its_code);
    RUN(err_set__no_struct__still_returns_the_code);
    RUN(err_set__bytes_of_a_hostile_file__are_shown_as_question_marks);
    RUN(err_set__a_text_too_long__is_cut_between_characters);
    RUN(err_prefix__a_sentence__is_put_after_the_prefix);
    RUN(err_set__its_own_message_as_argument__is_quoted_whole);
    RUN(err_try__a_failure__is_forwarded_at_once);
    return test_end();
}
