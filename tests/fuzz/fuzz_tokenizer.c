/* fuzz_tokenizer.c -- a tokenizer directory from hostile bytes, and a text for what it accepts.
 *
 * Input: the files in the order of `names` and then the text, with a byte 0xFF between them; an
 * empty part leaves its file out. */
#include "tests/support/check_tokens.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEPARATOR = 0xFF };

static const char *const names[] = {
    "vocab.json",        "merges.txt",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.json"};
enum { N_NAMES = sizeof names / sizeof *names };

static char dir[64];

static void expect(bool ok)
{
    if (!ok)
        abort();
}

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void remove_files(void)
{
    for (int32_t i = 0; i < N_NAMES; i++)
        (void)unlink(path_of(names[i]));
}

static void remove_dir(void)
{
    remove_files();
    (void)rmdir(dir);
}

static void make_dir(void)
{
    if (dir[0])
        return;
    snprintf(dir, sizeof dir, "/tmp/tessera-fuzz-XXXXXX");
    expect(mkdtemp(dir) != NULL && atexit(remove_dir) == 0);
}

static void write_file(const char *name, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path_of(name), "wb");

    expect(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* Writes the files; returns the part of the input that is the text. */
static const uint8_t *write_parts(const uint8_t *data, size_t *size)
{
    for (int32_t i = 0; i < N_NAMES; i++) {
        const uint8_t *end = *size ? memchr(data, SEPARATOR, *size) : NULL;
        size_t part = end ? (size_t)(end - data) : *size;
        if (part > 0)
            write_file(names[i], data, part);
        part += end != NULL;
        data += part;
        *size -= part;
    }
    return data;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t live = tsr_alloc_live();
    tsr_tokenizer *tok = NULL;
    tsr_err err = {0};
    const uint8_t *text;

    make_dir();
    remove_files();
    text = write_parts(data, &size);
    if (tsr_tokenizer_load(&tok, dir, NULL, &err) == TSR_OK)
        check_tokens(tok, (const char *)text, size);
    else
        expect(err.code == TSR_E_MODEL && err.msg[0] && !tok);
    tsr_tokenizer_free(tok);
    expect(tsr_alloc_live() == live);
    return 0;
}
