/* fuzz_prompt.c -- hostile texts for CLIP's own vocabulary, with the special tokens of SD1 and SD2,
 * and for the embedded model's. */
#include "tests/support/check_tokens.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_TOKENIZERS = 3, MOST_BYTES = 1 << 20 };

static tsr_tokenizer *tokenizers[N_TOKENIZERS];

static void free_tokenizers(void)
{
    for (int32_t i = 0; i < N_TOKENIZERS; i++)
        tsr_tokenizer_free(tokenizers[i]);
}

static void load_tokenizers(void)
{
    static const char *const dirs[N_TOKENIZERS] = {TSR_TEST_DATA "/models/sd1-odd/tokenizer",
                                                   TSR_TEST_DATA "/models/sd2-tiny/tokenizer",
                                                   TSR_SOURCE_DIR "/assets/model/tokenizer"};
    tsr_err err = {0};

    if (tokenizers[0])
        return;
    for (int32_t i = 0; i < N_TOKENIZERS; i++) {
        if (tsr_tokenizer_load(&tokenizers[i], dirs[i], NULL, &err) != TSR_OK) {
            fprintf(stderr, "%s\n", err.msg);
            abort();
        }
    }
    if (atexit(free_tokenizers) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    load_tokenizers();
    for (int32_t i = 0; i < N_TOKENIZERS && size <= MOST_BYTES; i++)
        check_tokens(tokenizers[i], (const char *)data, size);
    return 0;
}
