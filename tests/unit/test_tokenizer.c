/* test_tokenizer.c -- prompts to ids: the reference's own cases, offsets, odd and huge texts.
 *
 * CLIP's full vocabulary is in tests/data; where the reference data is here, every tokenizer
 * directory in it runs over the cases, too. Loading is tested in test_tokenizer_files.c. */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/json_pull.h"
#include "tests/support/test.h"

enum { MAX_IDS = 4096, CLIP_LENGTH = 77, MIB = 1 << 20 };

static const char *data_dir(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", TSR_TEST_DATA, name);
    return path;
}

static tsr_tokenizer *load(const char *dir)
{
    tsr_tokenizer *tok = NULL;
    tsr_err err = {0};
    tsr_status st = tsr_tokenizer_load(&tok, dir, NULL, &err);

    CHECK_MSG(st == TSR_OK, "%s: %s", dir, err.msg);
    return tok;
}

static tsr_tokenizer *load_clip(void)
{
    return load(data_dir("models/sd1-odd/tokenizer"));
}

/* ----------------------------------------------------------------- goldens */

typedef struct id_list {
    int32_t at[MAX_IDS];
    int32_t n; /* 0: not given */
} id_list;

/* One line of tokenizer.jsonl. */
typedef struct golden_case {
    char prompt[16384];
    size_t prompt_len;
    id_list ids, ids77, pad_bang;
} golden_case;

static bool read_ids(tsr_json *j, id_list *list)
{
    tsr_json_event e = tsr_json_next(j);
    uint64_t id;

    list->n = 0;
    if (e != TSR_JSON_ARRAY)
        return false;
    while ((e = tsr_json_next(j)) == TSR_JSON_NUMBER && list->n < MAX_IDS) {
        if (!tsr_json_u64(j, &id))
            return false;
        list->at[list->n++] = (int32_t)id;
    }
    return e == TSR_JSON_ARRAY_END;
}

static bool read_case(const char *line, size_t len, golden_case *c)
{
    tsr_json *j;
    bool ok = tsr_json_open_memory(&j, line, len, sizeof c->prompt - 1, NULL) == TSR_OK;

    c->ids.n = c->ids77.n = c->pad_bang.n = 0;
    ok = ok && tsr_json_next(j) == TSR_JSON_OBJECT;
    while (ok && tsr_json_next(j) == TSR_JSON_KEY) {
        const char *key = tsr_json_text(j, NULL);
        id_list *list = strcmp(key, "ids") == 0            ? &c->ids
                        : strcmp(key, "ids77") == 0        ? &c->ids77
                        : strcmp(key, "pad_bang_ids") == 0 ? &c->pad_bang
                                                           : NULL;
        if (list) {
            ok = read_ids(j, list);
        } else if (strcmp(key, "prompt") == 0) {
            const char *text;
            ok = tsr_json_next(j) == TSR_JSON_STRING;
            text = tsr_json_text(j, &c->prompt_len);
            memcpy(c->prompt, text, ok ? c->prompt_len : 0);
        } else {
            ok = tsr_json_skip(j);
        }
    }
    tsr_json_close(j);
    return ok && c->ids.n >= 2;
}

static bool check_ids(tsr_tokenizer *tok, const golden_case *c, const id_list *want, int32_t length)
{
    const int32_t *ids;
    int32_t n, shown;
    tsr_err err = {0};

    if (tsr_tokenizer_encode(tok, c->prompt, c->prompt_len, &ids, &n, &err) != TSR_OK)
        return false;
    shown = n < length ? n : length;
    if (shown != want->n)
        return false;
    for (int32_t i = 0; i < shown; i++) {
        bool cut_end = n > length && i == length - 1;
        if (want->at[i] != (cut_end ? tsr_tokenizer_eos(tok) : ids[i]))
            return false;
    }
    return true;
}

/* All prompts of the file; a tokenizer that pads with "!" has ids of its own. */
static void check_goldens(const char *jsonl, const char *dir)
{
    static golden_case c;
    tsr_tokenizer *tok = load(dir);
    bool bang = tok && tsr_tokenizer_pad(tok) == 0;
    char *text = NULL, *line;
    int32_t n_cases = 0, n_wrong = 0;

    REQUIRE(tok && tsr_file_slurp(jsonl, 1 << 24, &text, NULL, NULL) == TSR_OK);
    for (line = text; *line;) {
        char *end = strchr(line, '\n');
        const id_list *want = &c.ids;
        bool good;
        CHECK(end && read_case(line, (size_t)(end - line), &c));
        if (bang && c.pad_bang.n > 0)
            want = &c.pad_bang;
        good = check_ids(tok, &c, want, MAX_IDS);
        if (c.ids77.n > 0 && want == &c.ids)
            good = good && check_ids(tok, &c, &c.ids77, CLIP_LENGTH);
        CHECK_MSG(good, "wrong ids for \"%.200s\"", c.prompt);
        n_wrong += !good;
        n_cases++;
        line = end ? end + 1 : "";
    }
    test_note("%d prompts, %d with wrong ids, pad %d", n_cases, n_wrong,
              (int)tsr_tokenizer_pad(tok));
    CHECK(n_cases == 315);
    tsr_free(text);
    tsr_tokenizer_free(tok);
}

static void tokenizer__all_golden_prompts__have_the_references_ids(void)
{
    char jsonl[4096];

    snprintf(jsonl, sizeof jsonl, "%s/golden/tokenizer.jsonl", TSR_TEST_DATA);
    check_goldens(jsonl, data_dir("models/sd1-odd/tokenizer"));
    check_goldens(jsonl, data_dir("models/sd2-tiny/tokenizer"));
}

static void tokenizer__every_reference_directory__has_the_references_ids(void)
{
    static const char *const dirs[] = {"sd1-tiny/tokenizer", "sd1-odd/tokenizer",
                                       "sd2-tiny/tokenizer", "sdxl-tiny/tokenizer",
                                       "sdxl-tiny/tokenizer_2"};
    const char *root = test_reference_dir();
    char jsonl[4200], dir[4200];

    if (!root)
        SKIP("the reference data");
    snprintf(jsonl, sizeof jsonl, "%s/golden/tokenizer.jsonl", root);
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        snprintf(dir, sizeof dir, "%s/models/%s", root, dirs[i]);
        check_goldens(jsonl, dir);
    }
}

static void tokenizer__a_small_vocabulary__is_read(void)
{
    static const int32_t want[] = {4094, 320, 746, 256, 162, 245, 98, 3798, 361, 4095};
    static const char text[] = "a Cat! \u65e5\u672c";
    tsr_tokenizer *tok = load(TSR_SOURCE_DIR "/tests/data/tokenizer/emoji");
    const int32_t *ids;
    int32_t n;

    REQUIRE(tok);
    CHECK(tsr_tokenizer_max_length(tok) == 32 && tsr_tokenizer_size(tok) == 4096);
    CHECK(tsr_tokenizer_bos(tok) == 4094 && tsr_tokenizer_eos(tok) == 4095);
    CHECK(tsr_tokenizer_encode(tok, text, sizeof text - 1, &ids, &n, NULL) == TSR_OK);
    CHECK(n == 10 && memcmp(ids, want, sizeof want) == 0);
    tsr_tokenizer_free(tok);
}

/* ----------------------------------------------------------------- offsets */

static void tokenizer__offsets__lead_back_to_the_text(void)
{
    /* e + accent is one composed character; the wide space is three bytes; I with dot is two */
    static const char text[] = "  A  Cafe\u0301\u3000\u0130X, don't 42\xff<|endoftext|>z ";
    static const size_t want[] = {0, 2, 5, 14, 14, 16, 17, 19, 22, 25, 26, 27, 28, 41, 43};
    tsr_tokenizer *tok = load_clip();
    const int32_t *ids;
    int32_t n;

    REQUIRE(tok);
    CHECK(tsr_tokenizer_encode(tok, text, sizeof text - 1, &ids, &n, NULL) == TSR_OK);
    for (int32_t i = 0; i < n; i++) {
        size_t len = 0, at = tsr_tokenizer_offset(tok, i);
        const char *token = tsr_tokenizer_token(tok, ids[i], &len);
        REQUIRE(token && strlen(token) == len);
        CHECK_MSG(i == n - 1 || at <= tsr_tokenizer_offset(tok, i + 1), "token %d goes back", i);
        if (n == (int32_t)(sizeof want / sizeof *want))
            CHECK_MSG(at == want[i], "token %d, %s, is at %zu, expected %zu", i, token, at,
                      want[i]);
    }
    CHECK_MSG(n == (int32_t)(sizeof want / sizeof *want), "%d tokens", n);
    CHECK(tsr_tokenizer_offset(tok, -1) == 0 && tsr_tokenizer_offset(tok, n) == 0);
    tsr_tokenizer_free(tok);
}

static void tokenizer__words_past_the_length__are_found_by_offset(void)
{
    char text[4096];
    size_t len = 0, kept = 0;
    tsr_tokenizer *tok = load_clip();
    const int32_t *ids;
    int32_t n;

    REQUIRE(tok);
    for (int32_t i = 0; i < 100; i++) { /* one token each */
        if (i == CLIP_LENGTH - 2)
            kept = len;
        len += (size_t)sprintf(text + len, "%s ", i % 2 ? "cat" : "dog");
    }
    CHECK(tsr_tokenizer_encode(tok, text, len, &ids, &n, NULL) == TSR_OK);
    CHECK(n == 102);
    CHECK(tsr_tokenizer_offset(tok, CLIP_LENGTH - 1) == kept);
    CHECK(tsr_tokenizer_offset(tok, n - 1) == len);
    tsr_tokenizer_free(tok);
}

/* --------------------------------------------------------------- odd texts */

static int32_t encode(tsr_tokenizer *tok, const char *text, size_t bytes, int32_t *out, int32_t max)
{
    const int32_t *ids;
    int32_t n = 0;
    tsr_err err = {0};

    CHECK_MSG(tsr_tokenizer_encode(tok, text, bytes, &ids, &n, &err) == TSR_OK, "%s", err.msg);
    CHECK(n >= 2);
    memcpy(out, ids, (size_t)(n < max ? n : max) * sizeof *ids);
    return n;
}

static void tokenizer__broken_utf8__is_the_replacement_character(void)
{
    static const struct {
        const char *broken, *same;
    } cases[] = {
        {"a\xff z", "a\ufffd z"},
        {"\xc3", "\ufffd"},                               /* cut off */
        {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},           /* a surrogate */
        {"\xc0\xaf", "\ufffd\ufffd"},                     /* overlong */
        {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"}, /* past the last code point */
    };
    tsr_tokenizer *tok = load_clip();

    REQUIRE(tok);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t a[64], b[64];
        int32_t n = encode(tok, cases[i].broken, strlen(cases[i].broken), a, 64);
        int32_t m = encode(tok, cases[i].same, strlen(cases[i].same), b, 64);
        CHECK_MSG(n == m && memcmp(a, b, (size_t)n * sizeof *a) == 0, "case %zu", i);
    }
    CHECK(encode(tok, "a\0b", 3, (int32_t[8]){0}, 8) == 5); /* a zero byte is a character */
    tsr_tokenizer_free(tok);
}

/* Long texts are cut into chunks at spaces: word by word the ids must be the same. */
static void tokenizer__long_text__has_its_words_ids(void)
{
    static const char *const words[] = {"castle", "ART", "caf\u00e9,", "!!", "\u732b", "don't"};
    enum { N_WORDS = 6, REPEATS = 1500 };
    tsr_tokenizer *tok = load_clip();
    char *text = malloc(N_WORDS * REPEATS * 12);
    int32_t *got = malloc(MIB), want[64], n = 0, n_want = 1;
    size_t len = 0;

    REQUIRE(tok && text && got);
    for (int32_t i = 0; i < N_WORDS * REPEATS; i++)
        len += (size_t)sprintf(text + len, "%s%s", words[i % N_WORDS], i % 7 ? " " : "\n ");
    n = encode(tok, text, len, got, MIB / 4);
    for (int32_t i = 0; i < N_WORDS * REPEATS; i++) {
        const char *word = words[i % N_WORDS];
        int32_t k = encode(tok, word, strlen(word), want, 64) - 2;
        CHECK(n_want + k < n && memcmp(got + n_want, want + 1, (size_t)k * sizeof *got) == 0);
        n_want += k;
    }
    CHECK(n == n_want + 1);
    free(text);
    free(got);
    tsr_tokenizer_free(tok);
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void tokenizer__a_mebibyte__is_not_quadratic(void)
{
    static const struct {
        const char *name, *unit;
    } cases[] = {
        {"one letter", "a"},
        {"one word", "qzjxkvbpygfwmucldrhsnioatecathouse"},
        {"words", "masterpiece best quality "},
        {"punctuation", "!?"},
        {"half of a special token", "<|endof"},
        {"marks out of order", "\xcc\x81\xcc\xa7\xcc\xb4"},
        {"broken bytes", "\xff"},
    };
    tsr_tokenizer *tok = load_clip();
    char *text = malloc(MIB + 1);
    const int32_t *ids;
    int32_t n;
    tsr_err err = {0};

    REQUIRE(tok && text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = strlen(cases[i].unit);
        double start = cpu_seconds();
        for (size_t k = 0; k < MIB; k++)
            text[k] = cases[i].unit[k % len];
        CHECK(tsr_tokenizer_encode(tok, text, MIB, &ids, &n, &err) == TSR_OK);
        test_note("1 MiB of %-24s %7d tokens, %.2f s", cases[i].name, n, cpu_seconds() - start);
        CHECK(cpu_seconds() - start < 30); /* about 1; quadratic would be hours */
    }
    CHECK(tsr_tokenizer_encode(tok, text, MIB + 1, &ids, &n, &err) == TSR_E_USAGE);
    free(text);
    tsr_tokenizer_free(tok);
}

static void tokenizer__clips_vocabulary__costs_less_than_1_4_megabytes(void)
{
    size_t before = tsr_alloc_live(), loaded, after;
    tsr_tokenizer *tok = load_clip();
    const int32_t *ids;
    int32_t n;

    REQUIRE(tok);
    loaded = tsr_alloc_live() - before;
    test_note("%d tokens: %zu bytes on the heap", (int)tsr_tokenizer_size(tok), loaded);
    CHECK(loaded < 1400000);
    CHECK(tsr_tokenizer_encode(tok, "a cat", 5, &ids, &n, NULL) == TSR_OK);
    after = tsr_alloc_live() - before;
    CHECK(after < loaded + 256); /* ids and offsets alone */
    tsr_tokenizer_free(tok);
    CHECK(tsr_alloc_live() == before);
}

int main(void)
{
    RUN(tokenizer__all_golden_prompts__have_the_references_ids);
    RUN(tokenizer__every_reference_directory__has_the_references_ids);
    RUN(tokenizer__a_small_vocabulary__is_read);
    RUN(tokenizer__offsets__lead_back_to_the_text);
    RUN(tokenizer__words_past_the_length__are_found_by_offset);
    RUN(tokenizer__broken_utf8__is_the_replacement_character);
    RUN(tokenizer__long_text__has_its_words_ids);
    RUN(tokenizer__a_mebibyte__is_not_quadratic);
    RUN(tokenizer__clips_vocabulary__costs_less_than_1_4_megabytes);
    return test_end();
}
