/* tokenizer.c -- CLIP's tokenizer: loading, encoding, and what it knows about its tokens.
 *
 * Resident for SD's 49,408 tokens: 1.37 MB of tables (tokenizer_vocab.c, tokenizer_merges.c), and
 * 0.26 MB more while loading. Ids and offsets stay until the next call, 8 bytes a token; what else
 * a prompt costs is given back before encode returns: 24 bytes a code point of a chunk (see
 * tokenizer_split.c) and about 32 bytes a byte of its longest word. */
#include "text/tokenizer_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/text_util.h"

/* --------------------------------------------------------------------- loading */

/* The character that stands for a byte in vocabularies: itself where Latin-1 prints it, else the
 * next one from U+0100 on. */
static void map_bytes(uint32_t symbol[256])
{
    uint32_t next = 0x100;

    for (uint32_t b = 0; b < 256; b++) {
        bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        symbol[b] = prints ? b : next++;
    }
}

/* Ids of the 256 byte symbols, inside and at the end of words. Returns how many there are. */
static size_t find_byte_ids(tsr_tokenizer *tok, const tsr_log *log)
{
    static const char *const suffix[2] = {"", "</w>"};
    uint32_t symbol[256], unknown = (uint32_t)tok->role[TSR_ROLE_UNK];
    int32_t n_missing = 0;

    map_bytes(symbol);
    for (int32_t end = 0; end < 2; end++) {
        for (int32_t b = 0; b < 256; b++) {
            char utf8[4];
            size_t n = tsr_utf8_encode(symbol[b], utf8);
            uint32_t id = tsr_vocab_find(&tok->vocab, utf8, n, suffix[end], strlen(suffix[end]));
            n_missing += id == TSR_NO_TOKEN;
            tok->byte_id[end][b] = id == TSR_NO_TOKEN ? unknown : id;
        }
    }
    if (n_missing > 0)
        TSR_WARN(log, "the vocabulary lacks %d of 512 byte symbols; text with them becomes %s",
                 (int)n_missing, tsr_tokenizer_token(tok, tok->role[TSR_ROLE_UNK], NULL));
    return (size_t)(512 - n_missing);
}

/* A token is a byte symbol, an added one, or the product of a merge. A list of merges that was cut
 * short gives other ids without any error, so the tokens that nothing makes are counted. */
static tsr_status check_reach(const tsr_tokenizer *tok, size_t n_symbols, const tsr_log *log,
                              tsr_err *err)
{
    size_t all = tok->vocab.n_tokens, made = n_symbols + tok->n_added + tok->merges.n;

    if (all <= made)
        return TSR_OK;
    if (tok->merges.n == 0)
        TSR_FAIL(err, TSR_E_MODEL,
                 "the list of merges is empty, but %zu tokens of the vocabulary need one",
                 all - made);
    TSR_WARN(log,
             "no merge makes %zu of the vocabulary's %zu tokens: the merges are cut short, or of "
             "another vocabulary",
             all - made, all);
    return TSR_OK;
}

/* Makes `spec` a token that is looked for, over one with the same text. */
static tsr_status place_added(tsr_tokenizer *tok, const tsr_added_spec *spec, tsr_err *err)
{
    size_t len = strlen(spec->text), i = 0, next_id = tok->vocab.n_ids;
    uint32_t id = tsr_vocab_find(&tok->vocab, spec->text, len, "", 0);

    if (id == TSR_NO_TOKEN) {
        id = (uint32_t)next_id;
        TSR_TRY(
            tsr_vocab_add(&tok->vocab, spec->text, len, next_id, next_id, "the added tokens", err));
    }
    while (i < tok->n_added && tok->added[i].id != (int32_t)id)
        i++;
    tsr_ustring_free(&tok->added[i].text);
    tok->n_added = i == tok->n_added ? i + 1 : tok->n_added;
    if (!tsr_added_token_make(&tok->added[i], spec->text, (int32_t)id, spec->normalized))
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the special tokens");
    return TSR_OK;
}

/* Given numbers first and in order, then the tokens that have none. */
static void sort_added(tsr_specials *s)
{
    for (size_t i = 1; i < s->n_added; i++) {
        tsr_added_spec spec = s->added[i];
        size_t j = i;
        for (; j > 0 && (uint64_t)s->added[j - 1].id > (uint64_t)spec.id; j--)
            s->added[j] = s->added[j - 1];
        s->added[j] = spec;
    }
}

/* Finds the role's id; its own way of being looked for counts unless it is among the first
 * `n_numbered` added tokens. */
static tsr_status place_role(tsr_tokenizer *tok, tsr_token_role role, const tsr_added_spec *given,
                             size_t n_numbered, tsr_err *err)
{
    char clip_bos[] = "<|startoftext|>", clip_eos[] = "<|endoftext|>";
    tsr_added_spec spec = *given;
    uint32_t id;

    if (!spec.text)
        spec.text = role == TSR_ROLE_BOS ? clip_bos : clip_eos;
    id = tsr_vocab_find(&tok->vocab, spec.text, strlen(spec.text), "", 0);
    if (id == TSR_NO_TOKEN)
        TSR_FAIL(err, TSR_E_MODEL, "the special token \"%s\" is not in the vocabulary", spec.text);
    tok->role[role] = (int32_t)id;
    for (size_t i = 0; i < n_numbered; i++) {
        if (tok->added[i].id == (int32_t)id)
            return TSR_OK;
    }
    return place_added(tok, &spec, err);
}

static tsr_status place_specials(tsr_tokenizer *tok, tsr_specials *s, tsr_err *err)
{
    size_t i = 0, n_numbered;

    tok->max_length = s->max_length;
    tok->added = tsr_calloc(s->n_added + TSR_ROLES, sizeof tok->added[0]);
    if (!tok->added)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the special tokens");
    sort_added(s);
    for (; i < s->n_added && s->added[i].id >= 0; i++)
        TSR_TRY(place_added(tok, &s->added[i], err));
    n_numbered = tok->n_added;
    for (int32_t role = 0; role < TSR_ROLES; role++)
        TSR_TRY(place_role(tok, (tsr_token_role)role, &s->roles[role], n_numbered, err));
    for (; i < s->n_added; i++)
        TSR_TRY(place_added(tok, &s->added[i], err));
    return TSR_OK;
}

tsr_status tsr_tokenizer_load_from(tsr_tokenizer **out, const tsr_folder *dir, const tsr_log *log,
                                   tsr_err *err)
{
    tsr_tokenizer *tok = tsr_calloc(1, sizeof *tok);
    tsr_specials specials = {0};
    tsr_status st;

    if (!tok)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the tokenizer of %s", dir->path);
    TSR_TRY_GOTO(tsr_specials_read_dir(&specials, dir, err));
    TSR_TRY_GOTO(tsr_tokenizer_read_files(tok, &specials, dir, err));
    st = place_specials(tok, &specials, err);
    if (st == TSR_OK)
        st = check_reach(tok, find_byte_ids(tok, log), log, err);
    if (st != TSR_OK) {
        st = tsr_err_prefix(err, st, "%s%s%s", dir->path, dir->sub ? "/" : "",
                            dir->sub ? dir->sub : "");
        goto done;
    }
    tsr_vocab_finish(&tok->vocab);
    *out = tok;
    tok = NULL;
done:
    tsr_specials_free(&specials);
    tsr_tokenizer_free(tok);
    return st;
}

tsr_status tsr_tokenizer_load(tsr_tokenizer **out, const char *dir, const tsr_log *log,
                              tsr_err *err)
{
    return tsr_tokenizer_load_from(out, &(tsr_folder){.path = dir}, log, err);
}

static void free_scratch(tsr_tokenizer *tok)
{
    tsr_ustring_free(&tok->raw);
    tsr_ustring_free(&tok->composed);
    tsr_ustring_free(&tok->normal);
    tsr_free(tok->symbols);
    tsr_free(tok->heap);
    tok->symbols = NULL;
    tok->heap = NULL;
    tok->symbols_cap = tok->heap_cap = 0;
}

void tsr_tokenizer_free(tsr_tokenizer *tok)
{
    if (!tok)
        return;
    free_scratch(tok);
    for (size_t i = 0; i < tok->n_added; i++)
        tsr_ustring_free(&tok->added[i].text);
    tsr_free(tok->added);
    tsr_free(tok->ids);
    tsr_free(tok->offsets);
    tsr_merges_free(&tok->merges);
    tsr_vocab_free(&tok->vocab);
    tsr_free(tok);
}

/* -------------------------------------------------------------------- encoding */

bool tsr_tokenizer_push(tsr_tokenizer *tok, uint32_t id, uint32_t offset)
{
    if (!tsr_grow((void **)&tok->ids, &tok->ids_cap, tok->n + 1, sizeof tok->ids[0]) ||
        !tsr_grow((void **)&tok->offsets, &tok->offsets_cap, tok->n + 1, sizeof tok->offsets[0]))
        return false;
    tok->ids[tok->n] = (int32_t)id;
    tok->offsets[tok->n++] = offset;
    return true;
}

tsr_status tsr_tokenizer_encode(tsr_tokenizer *tok, const char *text, size_t bytes,
                                const int32_t **ids, int32_t *n_ids, tsr_err *err)
{
    bool ok;

    tok->n = 0;
    if (bytes > TSR_PROMPT_MAX_BYTES)
        TSR_FAIL(err, TSR_E_USAGE, "the prompt has %zu bytes; at most 1 MiB is read", bytes);
    ok = tsr_tokenizer_push(tok, (uint32_t)tok->role[TSR_ROLE_BOS], 0) &&
         tsr_tokenizer_split(tok, text, bytes) &&
         tsr_tokenizer_push(tok, (uint32_t)tok->role[TSR_ROLE_EOS], (uint32_t)bytes);
    free_scratch(tok);
    if (!ok)
        TSR_FAIL(err, TSR_E_OOM, "out of memory for the tokens of a prompt of %zu bytes", bytes);
    *ids = tok->ids;
    *n_ids = (int32_t)tok->n;
    return TSR_OK;
}

size_t tsr_tokenizer_offset(const tsr_tokenizer *tok, int32_t i)
{
    return i >= 0 && (size_t)i < tok->n ? tok->offsets[i] : 0;
}

/* ----------------------------------------------------------------------- facts */

int32_t tsr_tokenizer_max_length(const tsr_tokenizer *tok)
{
    return tok->max_length;
}

int32_t tsr_tokenizer_bos(const tsr_tokenizer *tok)
{
    return tok->role[TSR_ROLE_BOS];
}

int32_t tsr_tokenizer_eos(const tsr_tokenizer *tok)
{
    return tok->role[TSR_ROLE_EOS];
}

int32_t tsr_tokenizer_pad(const tsr_tokenizer *tok)
{
    return tok->role[TSR_ROLE_PAD];
}

int32_t tsr_tokenizer_size(const tsr_tokenizer *tok)
{
    return (int32_t)tok->vocab.n_ids;
}

const char *tsr_tokenizer_token(const tsr_tokenizer *tok, int32_t id, size_t *len)
{
    const char *token;

    if (id < 0 || (size_t)id >= tok->vocab.n_ids || tok->vocab.start[id] == TSR_NO_PLACE)
        return NULL;
    token = tok->vocab.pool + tok->vocab.start[id];
    if (len)
        *len = strlen(token);
    return token;
}
