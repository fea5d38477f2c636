/* test_tokenizer_files.c -- what a tokenizer directory may hold, and what is refused.
 *
 * A vocabulary of a dozen tokens is written into a temporary directory, changed in one place a
 * case, and loaded. The last tests fail every allocation and every read once. */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text_util.h"
#include "tests/support/model_files.h"

static const char vocab_json[] =
    "{\"a\": 0, \"b\": 1, \"c\": 2, \"a</w>\": 3, \"b</w>\": 4, \"c</w>\": 5, \"ab\": 6,\n"
    " \"abc</w>\": 7, \"bc</w>\": 8, \"!\": 9, \"!</w>\": 10, \"\\u00e9</w>\": 11,\n"
    " \"<|startoftext|>\": 12, \"<|endoftext|>\": 13}\n";
static const char merges_txt[] = "#version: 0.2\na b\nab c</w>\nb c</w>\n";
static const char config_json[] =
    "{\"model_max_length\": 5, \"bos_token\": {\"content\": \"<|startoftext|>\", \"normalized\": "
    "true},\n \"eos_token\": \"<|endoftext|>\", \"unk_token\": \"<|endoftext|>\",\n"
    " \"pad_token\": null, \"chat_template\": {\"deep\": [[1, 2], {\"x\": null}]}}\n";

enum { MAX_IDS = 32, MAX_LINE = 512 };

static const char *micro_dir(const char *vocab, const char *merges, const char *config)
{
    const char *dir = test_temp_dir();

    if (vocab)
        model_file_text(dir, "vocab.json", vocab);
    if (merges)
        model_file_text(dir, "merges.txt", merges);
    if (config)
        model_file_text(dir, "tokenizer_config.json", config);
    return dir;
}

static tsr_tokenizer *load(const char *dir)
{
    tsr_tokenizer *tok = NULL;
    tsr_err err = {0};

    CHECK_MSG(tsr_tokenizer_load(&tok, dir, NULL, &err) == TSR_OK, "%s", err.msg);
    return tok;
}

/* Ids of the text between the begin and the end token, as decimal numbers. */
static const char *ids_of(tsr_tokenizer *tok, const char *text)
{
    static char out[512];
    const int32_t *ids;
    int32_t n;
    size_t len = 0;

    out[0] = '\0';
    if (!tok || tsr_tokenizer_encode(tok, text, strlen(text), &ids, &n, NULL) != TSR_OK)
        return "failed";
    CHECK(ids[0] == tsr_tokenizer_bos(tok) && ids[n - 1] == tsr_tokenizer_eos(tok));
    for (int32_t i = 1; i < n - 1 && i < MAX_IDS; i++)
        len += (size_t)snprintf(out + len, sizeof out - len, "%s%d", i > 1 ? " " : "", ids[i]);
    return out;
}

static void check_ids(tsr_tokenizer *tok, const char *text, const char *want)
{
    const char *got = ids_of(tok, text);

    CHECK_MSG(strcmp(got, want) == 0, "\"%s\" gives %s, expected %s", text, got, want);
}

/* ------------------------------------------------------------------ formats */

static void check_micro(tsr_tokenizer *tok)
{
    size_t len;
    const char *token = tsr_tokenizer_token(tok, 7, &len);

    check_ids(tok, "abc", "7");
    check_ids(tok, " BC\tab ", "8 0 4");
    check_ids(tok, "abcabc", "6 2 7"); /* the lowest rank first, not the longest token */
    check_ids(tok, "<|startoftext|>a<|ENDOFTEXT|>", "12 3 13 13 13 13 13 13 13 13 13 13 13 13 13");
    check_ids(tok, "", "");
    CHECK(token && len == 7 && strcmp(token, "abc</w>") == 0);
    CHECK(tsr_tokenizer_token(tok, -1, NULL) == NULL && tsr_tokenizer_token(tok, 14, NULL) == NULL);
    CHECK(tsr_tokenizer_size(tok) == 14);
    CHECK(tsr_tokenizer_pad(tok) == 13);
}

static void files__vocab_and_merges__are_read(void)
{
    tsr_tokenizer *tok = load(micro_dir(vocab_json, merges_txt, config_json));

    REQUIRE(tok);
    check_micro(tok);
    CHECK(tsr_tokenizer_max_length(tok) == 5);
    tsr_tokenizer_free(tok);
}

static void files__merges_with_carriage_returns_and_no_version__are_read(void)
{
    tsr_tokenizer *tok = load(micro_dir(vocab_json, "a b\r\nab c</w>\r\n\r\nb c</w>", NULL));

    REQUIRE(tok);
    check_micro(tok);
    CHECK(tsr_tokenizer_max_length(tok) == 77);
    tsr_tokenizer_free(tok);
}

static void files__tokenizer_json_alone__is_read(void)
{
    static const char *const merges[] = {
        "[\"a b\", \"ab c</w>\", \"b c</w>\"]",
        "[[\"a\", \"b\"], [\"ab\", \"c</w>\"], [\"b\", \"c</w>\"]]",
    };

    for (int32_t i = 0; i < 4; i++) {
        const char *dir = test_temp_dir();
        char text[4096], first[1024], second[1024];
        tsr_tokenizer *tok;
        snprintf(first, sizeof first, "\"vocab\": %s", vocab_json);
        snprintf(second, sizeof second, "\"merges\": %s", merges[i % 2]);
        snprintf(text, sizeof text,
                 "{\"version\": \"1.0\", \"model\": {\"type\": \"BPE\", \"dropout\": null,\n"
                 "\"end_of_word_suffix\": \"</w>\", %s, %s}, \"added_tokens\": [{\"id\": 12,\n"
                 "\"content\": \"<|startoftext|>\", \"single_word\": false, \"special\": true}]}",
                 i / 2 ? second : first, i / 2 ? first : second);
        model_file_text(dir, "tokenizer.json", text);
        tok = load(dir);
        if (tok)
            check_micro(tok);
        tsr_tokenizer_free(tok);
    }
}

static void files__absent_byte_symbols__become_unknown_tokens(void)
{
    tsr_tokenizer *tok = load(micro_dir(vocab_json, merges_txt, NULL));

    REQUIRE(tok);
    check_ids(tok, "x", "13");
    check_ids(tok, "axb", "0 13 4");
    check_ids(tok, "\xc3\xa9", "13 13"); /* two bytes; the symbol U+00E9 stands for byte E9 */
    tsr_tokenizer_free(tok);
}

static void keep_line(void *user, tsr_log_level level, const char *line)
{
    CHECK(level == TSR_LOG_WARNING);
    snprintf(user, MAX_LINE, "%s", line);
}

static void files__merges_cut_short__are_a_warning(void)
{
    char line[MAX_LINE] = "";
    tsr_log log = {keep_line, line};
    tsr_tokenizer *tok = NULL;
    tsr_err err = {0};

    CHECK(tsr_tokenizer_load(&tok, micro_dir(vocab_json, merges_txt, NULL), &log, &err) == TSR_OK);
    CHECK_MSG(!strstr(line, "cut short"), "%s", line);
    tsr_tokenizer_free(tok);
    CHECK(tsr_tokenizer_load(&tok, micro_dir(vocab_json, "a b\n", NULL), &log, &err) == TSR_OK);
    CHECK_MSG(strstr(line, "no merge makes 2 of the vocabulary's 14 tokens"), "%s", line);
    tsr_tokenizer_free(tok);
}

/* Ranks need three bytes: with two, the last merge would come before the one in the middle. */
static void files__more_than_65536_merges__keep_their_order(void)
{
    enum { FIRST = 0x4E00, N = 257 };
    const char *dir = test_temp_dir();
    tsr_buf vocab = {0}, merges = {0};
    tsr_tokenizer *tok;
    int32_t id = 7;

    tsr_buf_puts(&vocab, "{\"<|startoftext|>\": 0, \"<|endoftext|>\": 1, \"a\": 2, \"b\": 3,"
                         " \"c</w>\": 4, \"ab\": 5, \"bc</w>\": 6");
    for (uint32_t i = 0; i < N; i++) {
        char x[4];
        size_t n = tsr_utf8_encode(FIRST + i, x);
        tsr_buf_printf(&vocab, ", \"%.*s\": %d", (int)n, x, id++);
    }
    for (uint32_t i = 0; i < N * N; i++) {
        char x[4], y[4];
        int n = (int)tsr_utf8_encode(FIRST + i / N, x), m = (int)tsr_utf8_encode(FIRST + i % N, y);
        if (i == 30000)
            tsr_buf_puts(&merges, "a b\n");
        tsr_buf_printf(&vocab, ", \"%.*s%.*s\": %d", n, x, m, y, id++);
        tsr_buf_printf(&merges, "%.*s %.*s\n", n, x, m, y);
    }
    tsr_buf_puts(&vocab, "}");
    tsr_buf_puts(&merges, "b c</w>\n");
    REQUIRE(tsr_buf_ok(&vocab) && tsr_buf_ok(&merges));
    model_file_text(dir, "vocab.json", vocab.data);
    model_file_text(dir, "merges.txt", merges.data);
    tok = load(dir);
    check_ids(tok, "abc", "5 4");
    check_ids(tok, "bc", "6");
    tsr_tokenizer_free(tok);
    tsr_buf_free(&vocab);
    tsr_buf_free(&merges);
}

static void files__max_length__is_taken_when_sane(void)
{
    static const struct {
        const char *text;
        int32_t want;
    } cases[] = {
        {"{\"model_max_length\": 77}", 77},
        {"{\"model_max_length\": 2}", 2},
        {"{\"model_max_length\": 1}", 77},
        {"{\"model_max_length\": -5}", 77},
        {"{\"model_max_length\": 1e30}", 77},
        {"{\"model_max_length\": 1000000000000000019884624838656}", 77},
        {"{\"model_max_length\": null}", 77},
        {"{}", 77},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_tokenizer *tok = load(micro_dir(vocab_json, merges_txt, cases[i].text));
        CHECK_MSG(tok && tsr_tokenizer_max_length(tok) == cases[i].want, "%s", cases[i].text);
        tsr_tokenizer_free(tok);
    }
}

/* ------------------------------------------------------------ special tokens */

/* Each found with transformers' own tokenizer. */
static void files__special_tokens__follow_the_configs(void)
{
    static const struct {
        const char *config, *map, *text, *want;
    } cases[] = {
        /* an object that is normalized is found in any case, a string only as it stands */
        {"{\"eos_token\": {\"content\": \"<|endoftext|>\", \"normalized\": true},\n"
         " \"unk_token\": {\"content\": \"<|endoftext|>\", \"normalized\": true},\n"
         " \"pad_token\": {\"content\": \"<|endoftext|>\", \"normalized\": true}}",
         NULL, "a<|EndOfText|>a", "3 13 3"},
        /* the last role with the same token decides */
        {"{\"eos_token\": {\"content\": \"<|endoftext|>\", \"normalized\": true},\n"
         " \"pad_token\": \"c\"}",
         NULL, "a<|endoftext|>cb", "3 13 2 4"},
        /* the map counts more than the config */
        {"{\"pad_token\": \"a\"}", "{\"pad_token\": \"!\"}", "a!!bc", "3 9 9 8"},
        /* but not where the config has a list of added tokens */
        {"{\"pad_token\": \"a\", \"added_tokens_decoder\": {}}", "{\"pad_token\": \"!\"}", "ab!",
         "0 4 10"},
        /* the list's own flags stay */
        {"{\"pad_token\": \"ab\", \"added_tokens_decoder\": {\"6\": {\"content\": \"ab\",\n"
         " \"normalized\": true, \"special\": true}}}",
         NULL, "cABa", "5 6 3"},
        /* new tokens get the next ids, in order; the longest match wins */
        {"{\"added_tokens_decoder\": {\"20\": {\"content\": \"<cat>\"},\n"
         " \"15\": {\"content\": \"<cat\", \"normalized\": false}}}",
         NULL, "a<cat><cat<CAT>", "3 15 14 13 2 0 13 13"},
        {"{\"additional_special_tokens\": [\"<x>\", {\"content\": \"bc\"}]}", NULL, "abc<x>",
         "3 15 14"},
        /* a token with a space in it, which long texts must not be cut at */
        {"{\"additional_special_tokens\": [{\"content\": \"A  B\", \"normalized\": true}]}", NULL,
         "xa \n b", "13 14"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *dir = micro_dir(vocab_json, merges_txt, cases[i].config);
        tsr_tokenizer *tok;
        if (cases[i].map)
            model_file_text(dir, "special_tokens_map.json", cases[i].map);
        tok = load(dir);
        check_ids(tok, cases[i].text, cases[i].want);
        tsr_tokenizer_free(tok);
    }
}

static void files__added_tokens_json__adds_tokens(void)
{
    const char *dir = micro_dir(vocab_json, merges_txt, NULL);
    tsr_tokenizer *tok;

    model_file_text(dir, "added_tokens.json", "{\"<Dog>\": 15, \"<Cat>\": 14}");
    tok = load(dir);
    REQUIRE(tok);
    check_ids(tok, "a<cat>b<DOG>", "3 14 4 15");
    CHECK(tsr_tokenizer_size(tok) == 16);
    tsr_tokenizer_free(tok);
}

/* A special token with a space, across the place where a long text would be cut. */
static void files__token_with_a_space__is_found_in_long_texts(void)
{
    enum { BYTES = 20000 };
    tsr_tokenizer *tok =
        load(micro_dir(vocab_json, merges_txt, "{\"additional_special_tokens\": [\"a b\"]}"));
    char *text = malloc(BYTES);
    const int32_t *ids;
    int32_t n;

    REQUIRE(tok && text);
    for (int32_t i = 0; i < BYTES; i++)
        text[i] = "a b"[i % 3];
    CHECK(tsr_tokenizer_encode(tok, text, BYTES / 3 * 3, &ids, &n, NULL) == TSR_OK);
    CHECK(n == BYTES / 3 + 2);
    for (int32_t i = 1; i < n - 1; i++)
        CHECK(ids[i] == 14);
    free(text);
    tsr_tokenizer_free(tok);
}

/* ------------------------------------------------------------------- broken */

typedef struct broken_case {
    const char *name; /* of the file that is put in the place of the good one */
    const char *text; /* NULL: missing */
    const char *says; /* part of the message */
} broken_case;

#define BPE "{\"model\": {\"type\": \"BPE\", "

static const broken_case broken[] = {
    {"vocab.json", NULL, "neither vocab.json and merges.txt nor tokenizer.json"},
    {"vocab.json", "", "vocab.json"},
    {"vocab.json", "[]", "not an object"},
    {"vocab.json", "{\"a\": 0,}", "not valid JSON"},
    {"vocab.json", "{\"a\": 0} x", "vocab.json"},
    {"vocab.json", "{\"a\": 0, \"a\": 1}", "\"a\" has two ids"},
    {"vocab.json", "{\"a\": 0, \"b\": 0}", "\"a\" and \"b\" have the same id 0"},
    {"vocab.json", "{\"a\": -1}", "not a whole number"},
    {"vocab.json", "{\"a\": 1.5}", "not a whole number"},
    {"vocab.json", "{\"a\": \"0\"}", "not a whole number"},
    {"vocab.json", "{\"a\": 16777215}", "out of range"},
    {"vocab.json", "{\"a\": 99999999999999999999}", "not a whole number"},
    {"vocab.json", "{\"a\": 4294967296}", "out of range"},
    {"vocab.json", "{\"a\": 1000}", "out of range"}, /* the file has 11 bytes */
    {"vocab.json", "{\"\": 0}", "empty"},
    {"vocab.json", "{\"a\\u0000b\": 0}", "zero byte"},
    {"vocab.json", "{\"\xff\": 0}", "not valid JSON"},
    {"vocab.json", "{\"<|startoftext|>\": 0}", "cannot merge"},
    {"merges.txt", NULL, "neither"},
    {"merges.txt", "", "merges is empty, but 3 tokens"},
    {"merges.txt", "a\n", "merges.txt line 1: not two tokens"},
    {"merges.txt", "#version: 0.2\na b\na b c\n", "line 3: not two tokens"},
    {"merges.txt", "a b\n#version: 0.2\n", "line 2"},
    {"merges.txt", "a  b\n", "not two tokens"},
    {"merges.txt", " b\n", "not two tokens"},
    {"merges.txt", "a b\na x\n", "line 2: \"a\" and \"x\" cannot merge: the second"},
    {"merges.txt", "x a\n", "the first is not in the vocabulary"},
    {"merges.txt", "\n\nb a\n", "line 3: \"b\" and \"a\" cannot merge: what they make"},
    {"merges.txt", "a b\na b\n", "line 2: the merge \"a\" \"b\" is there already"},
    {"tokenizer_config.json", "[]", "not a JSON object"},
    {"tokenizer_config.json", "{\"model_max_length\": \"long\"}", "model_max_length"},
    {"tokenizer_config.json", "{\"bos_token\": 5}", "neither a string nor an object"},
    {"tokenizer_config.json", "{\"bos_token\": \"\"}", "empty"},
    {"tokenizer_config.json", "{\"bos_token\": \"x\\u0000\"}", "zero byte"},
    {"tokenizer_config.json", "{\"bos_token\": \"nowhere\"}", "\"nowhere\" is not in the vocab"},
    {"tokenizer_config.json", "{\"bos_token\": {}}", "has no content"},
    {"tokenizer_config.json", "{\"bos_token\": {\"content\": 1}}", "wrong type"},
    {"tokenizer_config.json", "{\"bos_token\": {\"content\": \"a\", \"single_word\": true}}",
     "single_word"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": []}", "not an object"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": \"a\"}}", "no token id"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"-1\": \"a\"}}", "no token id"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": null}}", "null"},
    {"tokenizer_config.json", "{\"additional_special_tokens\": 1}", "not an array"},
    {"tokenizer_config.json", "{\"bos_token\": \"a\"", "not valid JSON"},
    {"special_tokens_map.json", "{\"eos_token\": [}", "special_tokens_map.json"},
    {"added_tokens.json", "{\"x\": -4}", "out of range"},
};

static const broken_case broken_tokenizer_json[] = {
    {NULL, "{}", "has no model.vocab"},
    {NULL, "[]", "not an object"},
    {NULL, "{\"model\": 1}", "model is not an object"},
    {NULL, "{\"model\": {\"type\": \"Unigram\"}}", "no tokenizer of CLIP"},
    {NULL, BPE "\"end_of_word_suffix\": \"\"}}", "end_of_word_suffix"},
    {NULL, BPE "\"vocab\": {\"a\": 0}}}", "has no model.vocab or no model.merges"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": {}}}", "not an array"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}", "merge 1: not two tokens"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}", "merge 1: not two tokens"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"a\", \"a\"]]}}", "not two tokens"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": [1]}}", "merge 1: not two tokens"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"b\"]]}}", "cannot merge"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": []}, \"added_tokens\": {}}", "not an array"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": []}}", "not in the vocabulary"},
    {NULL, BPE "\"vocab\": {\"a\": 0}, \"merges\": []", "not valid JSON"},
};

static void check_broken(const char *dir, const char *what, const char *says)
{
    tsr_tokenizer *tok = NULL;
    tsr_err err = {0};
    tsr_status st = tsr_tokenizer_load(&tok, dir, NULL, &err);

    CHECK_MSG(st == TSR_E_MODEL && err.code == st && tok == NULL, "%s: status %d", what, (int)st);
    CHECK_MSG(strstr(err.msg, says) != NULL, "%s: says \"%s\"", what, err.msg);
    tsr_tokenizer_free(tok);
}

static void files__broken_ones__are_refused_by_name(void)
{
    size_t live = tsr_alloc_live();

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        const broken_case *c = &broken[i];
        bool vocab = strcmp(c->name, "vocab.json") == 0,
             merges = strcmp(c->name, "merges.txt") == 0;
        const char *dir = micro_dir(vocab ? NULL : vocab_json, merges ? NULL : merges_txt, NULL);
        if (c->text)
            model_file_text(dir, c->name, c->text);
        check_broken(dir, c->text ? c->text : c->name, c->says);
    }
    for (size_t i = 0; i < sizeof broken_tokenizer_json / sizeof *broken_tokenizer_json; i++) {
        const broken_case *c = &broken_tokenizer_json[i];
        const char *dir = test_temp_dir();
        model_file_text(dir, "tokenizer.json", c->text);
        check_broken(dir, c->text, c->says);
    }
    CHECK(tsr_alloc_live() == live);
}

static void files__lines_without_end__are_refused(void)
{
    enum { BYTES = 100000 };
    char *text = malloc(BYTES + 1);

    REQUIRE(text);
    memset(text, 'a', BYTES);
    text[BYTES] = '\0';
    check_broken(micro_dir(vocab_json, text, NULL), "a long line", "line 1: longer than");
    free(text);
}

/* ------------------------------------------------------------------- faults */

static tsr_status load_and_encode(const char *dir, tsr_err *err)
{
    static const char text[] = "abc a\xcc\x81\xcc\xa7 abcabcabc! <|endoftext|>bc";
    tsr_tokenizer *tok = NULL;
    const int32_t *ids;
    int32_t n;
    tsr_status st = tsr_tokenizer_load(&tok, dir, NULL, err);

    if (st == TSR_OK)
        st = tsr_tokenizer_encode(tok, text, sizeof text - 1, &ids, &n, err);
    tsr_tokenizer_free(tok);
    return st;
}

static const char *dir_with_everything(void)
{
    const char *dir = micro_dir(vocab_json, merges_txt,
                                "{\"additional_special_tokens\": [{\"content\": \"<A>\","
                                " \"normalized\": true}, \"!\"]}");

    model_file_text(dir, "special_tokens_map.json", "{\"pad_token\": {\"content\": \"!\"}}");
    model_file_text(dir, "added_tokens.json", "{\"<Dog>\": 15, \"<Cat>\": 14}");
    return dir;
}

static void files__every_failing_allocation__is_a_clean_error(void)
{
    const char *dir = dir_with_everything();
    size_t live = tsr_alloc_live();
    tsr_status st = TSR_E_OOM;
    uint64_t n = 0;

    while (st != TSR_OK && n < 1000 && test_failures() == 0) {
        tsr_err err = {0};
        tsr_alloc_fail_at(++n);
        st = load_and_encode(dir, &err);
        /* giving back what is too much may fail without harm */
        CHECK_MSG(!tsr_alloc_failed() || st == TSR_OK || (st == TSR_E_OOM && err.msg[0]),
                  "allocation %d: status %d", (int)n, (int)st);
        CHECK_MSG(tsr_alloc_live() == live, "allocation %d: a leak", (int)n);
        st = tsr_alloc_failed() ? TSR_E_OOM : st;
    }
    tsr_alloc_fail_at(0);
    CHECK(st == TSR_OK && n > 40);
}

static void files__every_failing_read__is_a_clean_error(void)
{
    const char *dir = dir_with_everything();
    size_t live = tsr_alloc_live();
    tsr_status st = TSR_E_IO;
    uint64_t n = 0;

    while (st != TSR_OK && n < 100 && test_failures() == 0) {
        tsr_err err = {0};
        tsr_io_fail_at(++n);
        st = load_and_encode(dir, &err);
        CHECK_MSG(tsr_io_failed() == (st == TSR_E_IO), "read %d: status %d", (int)n, (int)st);
        CHECK_MSG(tsr_alloc_live() == live, "read %d: a leak", (int)n);
    }
    tsr_io_fail_at(0);
    CHECK(st == TSR_OK && n > 5);
}

int main(void)
{
    RUN(files__vocab_and_merges__are_read);
    RUN(files__merges_with_carriage_returns_and_no_version__are_read);
    RUN(files__tokenizer_json_alone__is_read);
    RUN(files__absent_byte_symbols__become_unknown_tokens);
    RUN(files__merges_cut_short__are_a_warning);
    RUN(files__more_than_65536_merges__keep_their_order);
    RUN(files__max_length__is_taken_when_sane);
    RUN(files__special_tokens__follow_the_configs);
    RUN(files__added_tokens_json__adds_tokens);
    RUN(files__token_with_a_space__is_found_in_long_texts);
    RUN(files__broken_ones__are_refused_by_name);
    RUN(files__lines_without_end__are_refused);
    RUN(files__every_failing_allocation__is_a_clean_error);
    RUN(files__every_failing_read__is_a_clean_error);
    return test_end();
}
