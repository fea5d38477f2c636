/* tokenizer_internal.h -- the parts of the tokenizer, private to text/.
 *
 *   tokenizer_vocab.c    token bytes <-> ids, in one pool
 *   tokenizer_merges.c   (left id, right id) -> rank and product, in one hash table
 *   tokenizer_special.c  begin, end, unknown, padding and other added tokens from the configs
 *   tokenizer_files.c    which files of the directory hold these
 *   tokenizer_split.c    text -> normalised words
 *   tokenizer_bpe.c      word -> ids */
#ifndef TSR_TEXT_TOKENIZER_INTERNAL_H
#define TSR_TEXT_TOKENIZER_INTERNAL_H

#include "base/json_pull.h"
#include "text/tokenizer.h"
#include "text/unicode_nfc.h"

#define TSR_NO_TOKEN 0xFFFFFFu /* ids and ranks are below */
#define TSR_NO_PLACE UINT32_MAX

enum { TSR_TOKEN_MAX_BYTES = 1024, TSR_ADDED_MAX_TOKENS = 1024, TSR_PROMPT_MAX_BYTES = 1 << 20 };

/* ------------------------------------------------------------------ vocabulary */

typedef struct tsr_vocab {
    char *pool; /* zero-terminated tokens one after the other */
    size_t pool_len, pool_cap;
    uint32_t *start; /* [n_ids] place in the pool, or TSR_NO_PLACE */
    size_t n_ids, ids_cap;
    uint32_t *index; /* [n_index] open addressing, ids; only while loading */
    size_t n_index, n_tokens;
} tsr_vocab;

/* `where` names the file in messages. Errors: TSR_E_OOM, TSR_E_MODEL for a token or an id that is
 * there already, an id above `max_id`, a token that is empty, too long or holds a zero byte. */
tsr_status tsr_vocab_add(tsr_vocab *v, const char *token, size_t len, uint64_t id, size_t max_id,
                         const char *where, tsr_err *err);
/* Id of the token a + b, or TSR_NO_TOKEN. Only while loading. */
uint32_t tsr_vocab_find(const tsr_vocab *v, const char *a, size_t a_len, const char *b,
                        size_t b_len);
/* Reads {"token": id, ...}; the reader stands on the key before it. */
tsr_status tsr_vocab_read(tsr_vocab *v, tsr_json *j, size_t max_id, const char *where,
                          tsr_err *err);
void tsr_vocab_finish(tsr_vocab *v); /* gives back what only loading needs */
void tsr_vocab_free(tsr_vocab *v);

/* ---------------------------------------------------------------------- merges */

typedef struct tsr_merges {
    uint32_t (*slots)[3]; /* low 24 bits: left, right, product; high bytes: the rank's three */
    size_t n_slots, n;
} tsr_merges;

/* Rank of the pair (its place in the list) and its product; false when it does not merge. */
bool tsr_merges_find(const tsr_merges *m, uint32_t left, uint32_t right, uint32_t *rank,
                     uint32_t *product);
/* Reads merges.txt. TSR_E_MODEL names the file and the line. */
tsr_status tsr_merges_read_text(tsr_merges *m, const tsr_vocab *v, const tsr_file *file,
                                tsr_err *err);
/* Reads ["a b", ...] or [["a", "b"], ...]; the reader stands on the key before it. The first
 * counts, the second fills in at most as many. */
tsr_status tsr_merges_count_json(size_t *n, tsr_json *j, const char *where, tsr_err *err);
tsr_status tsr_merges_read_json(tsr_merges *m, const tsr_vocab *v, size_t n, tsr_json *j,
                                const char *where, tsr_err *err);
void tsr_merges_free(tsr_merges *m);

/* -------------------------------------------------------------- special tokens */

typedef enum tsr_token_role {
    TSR_ROLE_BOS,
    TSR_ROLE_EOS,
    TSR_ROLE_UNK,
    TSR_ROLE_PAD,
    TSR_ROLES
} tsr_token_role;

/* A token that is found in the text as it stands. */
typedef struct tsr_added_spec {
    char *text;      /* owned */
    int64_t id;      /* as given, or -1; only its order counts, see tokenizer_special.c */
    bool normalized; /* looked for in the normalised text, not in the raw one */
} tsr_added_spec;

typedef struct tsr_specials {
    tsr_added_spec roles[TSR_ROLES]; /* text NULL: CLIP's own */
    tsr_added_spec *added;           /* [n_added] */
    size_t n_added, added_cap;
    bool has_decoder; /* tokenizer_config.json has added_tokens_decoder */
    int32_t max_length;
} tsr_specials;

/* tokenizer_config.json, special_tokens_map.json and added_tokens.json of `dir`, where there. */
tsr_status tsr_specials_read_dir(tsr_specials *s, const tsr_folder *dir, tsr_err *err);
/* The array "added_tokens" of tokenizer.json; the reader stands on its key. Comes after the
 * directory's other files. */
tsr_status tsr_specials_read_added(tsr_specials *s, tsr_json *j, const char *where, tsr_err *err);
void tsr_specials_free(tsr_specials *s);

/* ------------------------------------------------------------------- tokenizer */

/* A special token, ready to be looked for. */
typedef struct tsr_added_token {
    tsr_ustring text; /* normalised when `normalized` is */
    int32_t id;
    bool normalized;
} tsr_added_token;

/* One symbol of the word that is being merged: a list in text order. */
typedef struct tsr_bpe_symbol {
    uint32_t id; /* TSR_NO_TOKEN: merged into the one before */
    uint32_t prev, next;
    uint32_t offset;
} tsr_bpe_symbol;

struct tsr_tokenizer {
    tsr_vocab vocab;
    tsr_merges merges;
    uint32_t byte_id[2][256]; /* [1]: at the end of a word, with "</w>" */
    tsr_added_token *added;
    size_t n_added;
    int32_t role[TSR_ROLES]; /* ids */
    int32_t max_length;
    /* the last encode's result */
    int32_t *ids;
    uint32_t *offsets;
    size_t n, ids_cap, offsets_cap;
    /* scratch, empty between calls */
    tsr_ustring raw, composed, normal;
    tsr_bpe_symbol *symbols;
    uint64_t *heap;
    size_t symbols_cap, heap_len, heap_cap;
};

tsr_status tsr_tokenizer_read_files(tsr_tokenizer *tok, tsr_specials *s, const tsr_folder *dir,
                                    tsr_err *err);
/* The three below return false when out of memory. */
bool tsr_tokenizer_push(tsr_tokenizer *tok, uint32_t id, uint32_t offset);
bool tsr_tokenizer_split(tsr_tokenizer *tok, const char *text, size_t bytes);
bool tsr_tokenizer_bpe(tsr_tokenizer *tok, const tsr_uchar *word, size_t n);
/* Prepares the special token `text`; decoding and normalisation as for prompts. */
bool tsr_added_token_make(tsr_added_token *a, const char *text, int32_t id, bool normalized);

#endif
