/* prompts.c -- prompts to token ids of the encoders' fixed length.
 *
 * A prompt that is longer than the model's length keeps its first tokens and the end token; the
 * words that did not fit are named in a warning, so nobody wonders why they had no effect. */
#include "pipeline/pipeline_internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

enum { MAX_SHOWN = 200 }; /* bytes of the lost words that a warning shows */

static void warn_cut(tsr_run *r, int32_t encoder, const char *text, int32_t n_ids)
{
    tsr_tokenizer *tok = r->model->tokenizer[encoder];
    size_t at = tsr_tokenizer_offset(tok, r->set.context_s - 1);
    size_t len = strlen(text + at), shown = tsr_min_size(len, MAX_SHOWN);

    while (shown < len && shown > 0 && ((unsigned char)text[at + shown] & 0xC0) == 0x80)
        shown--; /* not in the middle of a character */
    TSR_WARN(
        &r->ctx->log,
        "a prompt has %d tokens and text encoder %d takes %d: these words are lost: \"%.*s%s\"",
        n_ids - 2, encoder + 1, r->set.context_s - 2, (int)shown, text + at,
        shown < len ? "..." : "");
}

static tsr_status tokenize_one(tsr_run *r, int32_t half, int32_t encoder, const char *text)
{
    tsr_tokenizer *tok = r->model->tokenizer[encoder];
    tsr_err *err = &r->ctx->err;
    int32_t s = r->set.context_s, n = 0, kept;
    const int32_t *ids;
    int32_t *dst = tsr_malloc((size_t)s * sizeof *dst);

    if (!dst)
        TSR_FAIL(err, TSR_E_OOM, "no memory for %d tokens", s);
    r->ids[half][encoder] = dst;
    TSR_TRY(tsr_tokenizer_encode(tok, text, strlen(text), &ids, &n, err));
    if (n > s)
        warn_cut(r, encoder, text, n);
    kept = tsr_min_i32(n, s);
    memcpy(dst, ids, (size_t)kept * sizeof *dst);
    if (n > s)
        dst[s - 1] = tsr_tokenizer_eos(tok);
    for (int32_t i = kept; i < s; i++)
        dst[i] = tsr_tokenizer_pad(tok);
    return TSR_OK;
}

tsr_status tsr_prompts_tokenize(tsr_run *r)
{
    if (r->set.context_s < 2)
        TSR_FAIL(&r->ctx->err, TSR_E_MODEL,
                 "the text encoder takes %d tokens; at least 2 are needed", r->set.context_s);
    for (int32_t e = 0; e < r->model->n_encoders; e++) {
        TSR_TRY(tokenize_one(r, 1, e, r->set.prompt[e]));
        if (r->set.cfg && !r->set.zero_negative)
            TSR_TRY(tokenize_one(r, 0, e, r->set.negative[e]));
    }
    return TSR_OK;
}
