/* tokenizer_split.c -- text to words: special tokens, normalisation, the split pattern.
 *
 * 1. Bytes to code points, each with its place in the text; broken UTF-8 becomes U+FFFD.
 * 2. Special tokens that are looked for in raw text cut it into pieces; the longest match at the
 *    leftmost place wins.
 * 3. Each piece: NFC, every run of white space to one space, lower case code point by code point.
 * 4. The other special tokens, themselves normalised, cut what came out into pieces.
 * 5. Each piece is split by the pattern of tokenizer.h; what no alternative takes is white space
 *    and makes no token. Words go to the BPE as they are found.
 *
 * Long texts are worked on in chunks that end before a space, where no step looks across: memory
 * is a matter of the longest word, not of the text.
 *
 * A literal <|startoftext|> that gets as far as the pattern is one match of it, but then a
 * second, GPT-2's pattern is applied: it becomes the three words "<|", "startoftext", "|>".
 *
 * Source: the normaliser and pre-tokenizer of transformers' CLIPTokenizer. Everything is linear in
 * the text, but the special tokens: a place is compared with each that begins with its code point.
 */
#include "text/tokenizer_internal.h"

#include <string.h>

#include "base/text_util.h"
#include "text/unicode_char.h"

enum { REPLACEMENT = 0xFFFD, CHUNK_BYTES = 4096 };

/* --------------------------------------------------------------- normalisation */

/* Code points of text[first..end). */
static bool decode(tsr_ustring *out, const char *text, size_t first, size_t end)
{
    out->len = 0;
    for (size_t i = first; i < end;) {
        uint32_t cp;
        size_t n = tsr_utf8_decode(text + i, end - i, &cp);
        if (n == 0) {
            n = 1;
            cp = REPLACEMENT;
        }
        if (!tsr_ustring_push(out, cp, (uint32_t)i))
            return false;
        i += n;
    }
    return true;
}

static bool normalise(tsr_ustring *out, tsr_ustring *composed, const tsr_uchar *text, size_t n)
{
    bool in_space = false;

    out->len = composed->len = 0;
    if (!tsr_unicode_nfc(composed, text, n))
        return false;
    for (size_t i = 0; i < composed->len; i++) {
        uint32_t low[2], cp = composed->at[i].cp, offset = composed->at[i].offset;
        bool space = tsr_unicode_class(cp) == TSR_CHAR_SPACE;
        int32_t n_low = tsr_unicode_lower(space ? ' ' : cp, low);
        if (!(space && in_space) && (!tsr_ustring_push(out, low[0], offset) ||
                                     (n_low == 2 && !tsr_ustring_push(out, low[1], offset))))
            return false;
        in_space = space;
    }
    return true;
}

bool tsr_added_token_make(tsr_added_token *a, const char *text, int32_t id, bool normalized)
{
    tsr_ustring raw = {0}, composed = {0};
    bool ok;

    *a = (tsr_added_token){.id = id, .normalized = normalized};
    if (!normalized)
        return decode(&a->text, text, 0, strlen(text));
    ok = decode(&raw, text, 0, strlen(text)) && normalise(&a->text, &composed, raw.at, raw.len);
    tsr_ustring_free(&raw);
    tsr_ustring_free(&composed);
    return ok;
}

/* -------------------------------------------------------------- special tokens */

static bool starts_with(const tsr_uchar *s, size_t n, const tsr_ustring *token)
{
    if (token->len > n || token->len == 0)
        return false;
    for (size_t i = 0; i < token->len; i++) {
        if (s[i].cp != token->at[i].cp)
            return false;
    }
    return true;
}

/* The longest special token of the kind that s begins with, or NULL. */
static const tsr_added_token *added_at(const tsr_tokenizer *tok, const tsr_uchar *s, size_t n,
                                       bool normalized)
{
    const tsr_added_token *best = NULL;

    for (size_t i = 0; i < tok->n_added; i++) {
        const tsr_added_token *a = &tok->added[i];
        if (a->normalized == normalized && (!best || a->text.len > best->text.len) &&
            starts_with(s, n, &a->text))
            best = a;
    }
    return best;
}

typedef bool (*piece_fn)(tsr_tokenizer *tok, const tsr_uchar *s, size_t n);

/* Pushes the special tokens of the kind in s[0..n), and gives what lies between, if anything, to
 * `piece`. */
static bool cut_at_added(tsr_tokenizer *tok, const tsr_uchar *s, size_t n, bool normalized,
                         piece_fn piece)
{
    size_t first = 0, i = 0;

    while (i < n) {
        const tsr_added_token *a = added_at(tok, s + i, n - i, normalized);
        if (!a) {
            i++;
            continue;
        }
        if ((i > first && !piece(tok, s + first, i - first)) ||
            !tsr_tokenizer_push(tok, (uint32_t)a->id, s[i].offset))
            return false;
        i += a->text.len;
        first = i;
    }
    return first == n || piece(tok, s + first, n - first);
}

/* -------------------------------------------------------------------- pattern */

static size_t run_length(const tsr_uchar *s, size_t n, tsr_char_class kind)
{
    size_t i = 0;

    while (i < n && tsr_unicode_class(s[i].cp) == kind)
        i++;
    return i;
}

/* Length of `literal` (ASCII) if s begins with it, else 0. */
static size_t literal_at(const tsr_uchar *s, size_t n, const char *literal)
{
    size_t i = 0;

    for (; literal[i]; i++) {
        if (i == n || s[i].cp != (unsigned char)literal[i])
            return 0;
    }
    return i;
}

/* Length of the first of the pattern's literals that s begins with, else 0. */
static size_t contraction_at(const tsr_uchar *s, size_t n)
{
    static const char *const literals[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    size_t len = 0;

    if (s[0].cp != '\'')
        return 0;
    for (size_t i = 0; len == 0 && i < sizeof literals / sizeof literals[0]; i++)
        len = literal_at(s, n, literals[i]);
    return len;
}

static bool split_words(tsr_tokenizer *tok, const tsr_uchar *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        tsr_char_class kind = tsr_unicode_class(s[i].cp);
        len = kind == TSR_CHAR_OTHER ? literal_at(s + i, n - i, "<|startoftext|>") : 0;
        if (len == 0 && kind == TSR_CHAR_OTHER)
            len = literal_at(s + i, n - i, "<|endoftext|>");
        if (len > 0) {
            if (!tsr_tokenizer_bpe(tok, s + i, 2) || !tsr_tokenizer_bpe(tok, s + i + 2, len - 4) ||
                !tsr_tokenizer_bpe(tok, s + i + len - 2, 2))
                return false;
            continue;
        }
        len = contraction_at(s + i, n - i);
        if (len == 0)
            len = kind == TSR_CHAR_NUMBER ? 1 : run_length(s + i, n - i, kind);
        if (kind != TSR_CHAR_SPACE && !tsr_tokenizer_bpe(tok, s + i, len))
            return false;
    }
    return true;
}

static bool split_raw_piece(tsr_tokenizer *tok, const tsr_uchar *s, size_t n)
{
    return normalise(&tok->normal, &tok->composed, s, n) &&
           cut_at_added(tok, tok->normal.at, tok->normal.len, true, split_words);
}

/* White space in a special token could be where a chunk ends. */
static bool can_cut(const tsr_tokenizer *tok)
{
    for (size_t i = 0; i < tok->n_added; i++) {
        const tsr_ustring *t = &tok->added[i].text;
        for (size_t k = 0; k < t->len; k++) {
            if (tsr_unicode_class(t->at[k].cp) == TSR_CHAR_SPACE)
                return false;
        }
    }
    return true;
}

bool tsr_tokenizer_split(tsr_tokenizer *tok, const char *text, size_t bytes)
{
    bool cut = can_cut(tok);

    for (size_t first = 0, end; first < bytes; first = end) {
        end = cut && bytes - first > CHUNK_BYTES ? first + CHUNK_BYTES : bytes;
        while (end < bytes && text[end] != ' ' && text[end] != '\n')
            end++;
        if (!decode(&tok->raw, text, first, end) ||
            !cut_at_added(tok, tok->raw.at, tok->raw.len, false, split_raw_piece))
            return false;
    }
    return true;
}
