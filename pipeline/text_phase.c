/* text_phase.c -- prompts to the UNet's context, once a run.
 *
 * context [entries,S,D]: the encoders' hidden states side by side (SDXL: 768 + 1280 columns), the
 * negative prompt's entry first. pooled [entries,P]: the last encoder's pooled output (SDXL). */
#include "pipeline/pipeline_internal.h"

#include <string.h>

/* Copies rows of `width` elements of the net's entry i into columns [column, column + width) of the
 * context's entry. */
static void put_hidden(tsr_run *r, const tsr_text_net *t, int32_t i, int32_t entry, int32_t column)
{
    const tsr_settings *s = &r->set;
    size_t element = tsr_dtype_size(s->dtype), rows = (size_t)s->context_s;
    size_t width = (size_t)r->model->clip_cfg[t->encoder].width * element;
    size_t pitch = (size_t)s->context_d * element;
    const char *src = tsr_program_data(&t->net.program, t->io.hidden); // [N,S,1,width]
    char *dst = tsr_run_state(r, r->state.context);                    // [entries,S,D]

    src += (size_t)i * rows * width;
    dst += (size_t)entry * rows * pitch + (size_t)column * element;
    for (size_t row = 0; row < rows; row++)
        memcpy(dst + row * pitch, src + row * width, width);
}

static void put_pooled(tsr_run *r, const tsr_text_net *t, int32_t i, int32_t entry)
{
    size_t bytes = (size_t)r->set.pooled_d * tsr_dtype_size(r->set.dtype);
    const char *src = tsr_program_data(&t->net.program, t->io.pooled); // [N,1,1,P]
    char *dst = tsr_run_state(r, r->state.pooled);                     // [entries,P]

    memcpy(dst + (size_t)entry * bytes, src + (size_t)i * bytes, bytes);
}

/* The embeddings of the net's prompts, and the rows to pool. */
static tsr_status put_prompts(tsr_run *r, const tsr_text_net *t)
{
    const tsr_settings *s = &r->set;
    const tsr_clip_config *cfg = &r->model->clip_cfg[t->encoder];
    const tsr_program *p = &t->net.program;
    size_t bytes = (size_t)s->context_s * (size_t)cfg->width * tsr_dtype_size(s->dtype);

    for (int32_t i = 0; i < t->n_halves; i++) {
        const int32_t *ids = r->ids[t->half + i][t->encoder];
        char *embeds = tsr_program_data(p, t->io.embeds); // [N,S,1,width]

        TSR_TRY(tsr_clip_read_embeds(&r->model->clip[t->encoder], cfg, ids, s->context_s, s->dtype,
                                     embeds + (size_t)i * bytes, tsr_run_state(r, r->state.row),
                                     &r->ctx->err));
        if (t->io.eot)
            ((int32_t *)tsr_program_data(p, t->io.eot))[i] = tsr_clip_eot(cfg, ids, s->context_s);
    }
    return TSR_OK;
}

static tsr_status encode(tsr_run *r, tsr_text_net *t, int32_t column)
{
    tsr_program *p = &t->net.program;
    const char *layer;

    TSR_TRY(tsr_net_load(r, &t->net, TSR_RUN_TEXT));
    TSR_TRY(put_prompts(r, t));
    TSR_TRY(tsr_program_run_prologue(p));
    TSR_TRY(tsr_program_run_step(p, 0));
    if (!tsr_program_finite(p, t->io.hidden)) {
        layer = tsr_program_find_overflow(p, true, 0);
        TSR_FAIL(&r->ctx->err, TSR_E_MODEL, "the text encoder overflowed at %s; %s",
                 layer ? layer : "its output",
                 r->set.dtype == TSR_F16 ? "use --precision fp32" : "its weights are of no use");
    }
    for (int32_t i = 0; i < t->n_halves; i++) {
        int32_t entry = r->set.cfg ? t->half + i : 0;

        put_hidden(r, t, i, entry, column);
        if (t->io.pooled)
            put_pooled(r, t, i, entry);
    }
    return TSR_OK;
}

tsr_status tsr_text_run(tsr_run *r)
{
    const tsr_settings *s = &r->set;
    tsr_nets *n = &r->nets;
    double start = tsr_now();
    int32_t column = 0;
    size_t element = tsr_dtype_size(s->dtype);

    TSR_TRY(tsr_run_progress(r, TSR_PHASE_TEXT, 0, n->n_text, 0));
    /* Entry 0 stays zero for SDXL without a negative prompt. */
    memset(tsr_run_state(r, r->state.context), 0,
           (size_t)s->entries * (size_t)s->context_s * (size_t)s->context_d * element);
    memset(tsr_run_state(r, r->state.pooled), 0,
           (size_t)s->entries * (size_t)s->pooled_d * element);
    for (int32_t i = 0; i < n->n_text; i++) {
        tsr_text_net *t = &n->text[i];

        TSR_TRY(encode(r, t, column));
        if (i + 1 == n->n_text || t[1].encoder != t->encoder) /* else the negative's comes next */
            column += r->model->clip_cfg[t->encoder].width;
        TSR_TRY(tsr_run_progress(r, TSR_PHASE_TEXT, i + 1, n->n_text, tsr_now() - start));
    }
    r->phases[TSR_RUN_TEXT].seconds += tsr_now() - start;
    return TSR_OK;
}
