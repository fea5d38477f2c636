/* clip.h -- CLIP's text transformer, recorded on a tape.
 *
 * Source: "Learning Transferable Visual Models From Natural Language Supervision" (Radford et al.,
 * 2021) and transformers' CLIPTextModel / CLIPTextModelWithProjection, whose tensor names are used
 * (with or without the "text_model." prefix). */
#ifndef TSR_TEXT_CLIP_H
#define TSR_TEXT_CLIP_H

#include "model/blocks.h"
#include "model/config.h"

typedef struct tsr_clip_io {
    tsr_val embeds; /* in: token embeddings [N,S,1,D] in the tape's dtype: tsr_clip_read_embeds */
    tsr_val eot;    /* in: i32 [N,1,1,1] row of the pooled token; 0 when nothing is pooled */
    tsr_val hidden; /* out: [N,S,1,D]; which layer: `skip` below */
    tsr_val pooled; /* out: [N,1,1,D] after the final norm, projected [N,1,1,P] when
                       with_projection; 0 when nothing is pooled */
} tsr_clip_io;

typedef struct tsr_clip_shape {
    int32_t n, s;    /* entries, tokens (at most positions) */
    int32_t skip;    /* 0: output of the last layer; k: of the layer k before it */
    bool final_norm; /* apply the final LayerNorm to `hidden` (SD yes, SDXL no) */
    bool pooled;     /* also make `pooled` (always from the last layer, whatever skip) */
} tsr_clip_shape;

/* Errors: TSR_E_MODEL as tsr_component_weight has them; TSR_E_USAGE for a shape that the model
 * cannot have. *io is set. Modules that taps may name: "embeddings", "layer3". */
tsr_status tsr_clip_build(tsr_tape *t, tsr_component *c, const tsr_clip_config *cfg,
                          const tsr_clip_shape *shape, tsr_clip_io *io, tsr_tap *taps,
                          int32_t n_taps);
/* Reads only the rows of the token table that `ids` [N*S] uses, into dst [N*S,D] of dtype F16 or
 * F32. `row` is scratch of D floats. Ids at or above the table's size are TSR_E_MODEL. */
tsr_status tsr_clip_read_embeds(tsr_component *c, const tsr_clip_config *cfg, const int32_t *ids,
                                int32_t n_ids, tsr_dtype dtype, void *dst, float *row,
                                tsr_err *err);
/* Index of the pooled row in one sequence: first argmax when eos_token_id is 2, else first
 * eos_token_id (0 when none). */
int32_t tsr_clip_eot(const tsr_clip_config *cfg, const int32_t *ids, int32_t s);

#endif
