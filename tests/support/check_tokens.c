/* check_tokens.c -- see check_tokens.h. */
#include "tests/support/check_tokens.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void expect(bool ok)
{
    if (!ok)
        abort();
}

void check_tokens(tsr_tokenizer *tok, const char *text, size_t bytes)
{
    const int32_t *ids;
    int32_t n, m, *first;
    size_t at = 0;
    tsr_err err = {0};

    expect(tsr_tokenizer_encode(tok, text, bytes, &ids, &n, &err) == TSR_OK);
    expect(n >= 2 && ids[0] == tsr_tokenizer_bos(tok) && ids[n - 1] == tsr_tokenizer_eos(tok));
    expect(tsr_tokenizer_offset(tok, 0) == 0 && tsr_tokenizer_offset(tok, n - 1) == bytes);
    for (int32_t i = 0; i < n; i++) {
        size_t len;
        expect(ids[i] >= 0 && ids[i] < tsr_tokenizer_size(tok));
        expect(tsr_tokenizer_token(tok, ids[i], &len) && len > 0);
        expect(tsr_tokenizer_offset(tok, i) >= at);
        at = tsr_tokenizer_offset(tok, i);
        expect(i == n - 1 || at < bytes || (i == 0 && bytes == 0));
    }
    first = malloc((size_t)n * sizeof *first);
    expect(first != NULL);
    memcpy(first, ids, (size_t)n * sizeof *first);
    expect(tsr_tokenizer_encode(tok, text, bytes, &ids, &m, &err) == TSR_OK);
    expect(m == n && memcmp(first, ids, (size_t)n * sizeof *first) == 0);
    free(first);
}
