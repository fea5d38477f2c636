/* tokenizer_bpe.c -- one word to ids by byte-pair merges.
 *
 * A word starts as one symbol a byte (its last byte's with "</w>"), and the pair with the lowest
 * rank merges, the leftmost of equals first, until no pair is in the list. Symbols are a linked
 * list in an array, candidates a binary heap of (rank, place); an entry whose pair has changed
 * since is recognised by its rank and dropped. O(n log n) for a word of n bytes, however long.
 *
 * Source: "Neural Machine Translation of Rare Words with Subword Units" (Sennrich et al., 2016),
 * over bytes as in GPT-2; the order of merges is that of the tokenizers library. */
#include "text/tokenizer_internal.h"

#include "base/alloc.h"
#include "base/text_util.h"

#define NO_SYMBOL UINT32_MAX

/* ------------------------------------------------------------------------ heap */

static bool heap_push(tsr_tokenizer *tok, uint64_t key)
{
    size_t i = tok->heap_len;

    if (!tsr_grow((void **)&tok->heap, &tok->heap_cap, i + 1, sizeof tok->heap[0]))
        return false;
    for (; i > 0 && tok->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        tok->heap[i] = tok->heap[(i - 1) / 2];
    tok->heap[i] = key;
    tok->heap_len++;
    return true;
}

static uint64_t heap_pop(tsr_tokenizer *tok)
{
    uint64_t *heap = tok->heap, top = heap[0], last = heap[--tok->heap_len];
    size_t n = tok->heap_len, i = 0, child;

    while ((child = 2 * i + 1) < n) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* --------------------------------------------------------------------- symbols */

/* One symbol a byte; *n of them. */
static bool fill_symbols(tsr_tokenizer *tok, const tsr_uchar *word, size_t n_chars, uint32_t *n)
{
    uint32_t count = 0;

    for (size_t i = 0; i < n_chars; i++) {
        char bytes[4];
        size_t n_bytes = tsr_utf8_encode(word[i].cp, bytes);
        if (!tsr_grow((void **)&tok->symbols, &tok->symbols_cap, count + n_bytes,
                      sizeof tok->symbols[0]))
            return false;
        for (size_t b = 0; b < n_bytes; b++, count++) {
            bool is_end = i + 1 == n_chars && b + 1 == n_bytes;
            tok->symbols[count] = (tsr_bpe_symbol){
                .id = tok->byte_id[is_end][(unsigned char)bytes[b]],
                .prev = count - 1, /* NO_SYMBOL for the first */
                .next = is_end ? NO_SYMBOL : count + 1,
                .offset = word[i].offset,
            };
        }
    }
    *n = count;
    return true;
}

/* Makes the pair that begins at `at` a candidate, if it is in the list. */
static bool add_candidate(tsr_tokenizer *tok, uint32_t at)
{
    const tsr_bpe_symbol *s = tok->symbols;
    uint32_t rank, product;

    if (at == NO_SYMBOL || s[at].next == NO_SYMBOL ||
        !tsr_merges_find(&tok->merges, s[at].id, s[s[at].next].id, &rank, &product))
        return true;
    return heap_push(tok, (uint64_t)rank << 32 | at);
}

/* Carries out a candidate, unless its pair is no longer there. */
static bool merge(tsr_tokenizer *tok, uint64_t candidate)
{
    tsr_bpe_symbol *s = tok->symbols;
    uint32_t at = (uint32_t)candidate, next = s[at].next, rank, product;

    if (s[at].id == TSR_NO_TOKEN || next == NO_SYMBOL ||
        !tsr_merges_find(&tok->merges, s[at].id, s[next].id, &rank, &product) ||
        rank != (uint32_t)(candidate >> 32))
        return true;
    s[at].id = product;
    s[at].next = s[next].next;
    s[next].id = TSR_NO_TOKEN;
    if (s[at].next != NO_SYMBOL)
        s[s[at].next].prev = at;
    return add_candidate(tok, s[at].prev) && add_candidate(tok, at);
}

bool tsr_tokenizer_bpe(tsr_tokenizer *tok, const tsr_uchar *word, size_t n_chars)
{
    uint32_t n;

    tok->heap_len = 0;
    if (!fill_symbols(tok, word, n_chars, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!add_candidate(tok, i))
            return false;
    }
    while (tok->heap_len > 0) {
        if (!merge(tok, heap_pop(tok)))
            return false;
    }
    for (uint32_t i = 0; i < n && i != NO_SYMBOL; i = tok->symbols[i].next) {
        if (!tsr_tokenizer_push(tok, tok->symbols[i].id, tok->symbols[i].offset))
            return false;
    }
    return true;
}
