/* component.h -- one part of a checkpoint (unet, vae, text_encoder): its tensors by name.
 *
 * Opens the safetensors file(s) of a component directory: <stem>.safetensors,
 * <stem>.fp16.safetensors, or the shards of <stem>.safetensors.index.json; keeps a table of
 * names and knows which tensors were asked for, so that what is missing and what nobody used can
 * be told with the nearest name. It is the tsr_source that executors read weights from.
 *
 * A component of a packed checkpoint (model/packed.h) has the same face: its weights are packed for
 * the backend already. */
#ifndef TSR_MODEL_COMPONENT_H
#define TSR_MODEL_COMPONENT_H

#include "base/log.h"
#include "base/text_util.h"
#include "kernels/tape.h"
#include "model/packed.h"
#include "model/safetensors.h"

typedef struct tsr_component {
    tsr_source source; /* first: the tape's weights point here */
    char *name;        /* "unet" */
    char *dir;
    tsr_st *files;
    int32_t n_files;
    /* all files' tensors, sorted by name */
    const tsr_st_tensor **tensors;
    int32_t *file_of; /* [n_tensors]; of a packed one: the tensor's number there */
    uint8_t *used;    /* [n_tensors] asked for by a recording */
    uint8_t *scanned; /* [n_tensors] what tsr_component_fits_half found: 0 not scanned */
    int32_t n_tensors;
    const char *prefix;       /* "text_model.", which names may have or lack; NULL: none such */
    bool headers_only;        /* a plan: no data is read, tensors are taken to fit half precision */
    const tsr_packed *packed; /* NULL: safetensors. Not owned */
    uint64_t packed_hash;
    /* collecting mode (gen info): problems are listed and recording goes on */
    tsr_buf *problems; /* NULL: a problem is an error */
    int32_t n_problems;
    tsr_err *err;
} tsr_component;

/* `stem` is "diffusion_pytorch_model" or "model". TSR_E_MODEL when no file is there (names what was
 * looked for, and says so when only .bin / .ckpt pickles are there: they are never read). */
tsr_status tsr_component_open(tsr_component *c, const char *dir, const char *name, const char *stem,
                              tsr_err *err);
/* The part `name` of a packed checkpoint, which stays open as long. TSR_E_MODEL when it is not
 * there. */
tsr_status tsr_component_open_packed(tsr_component *c, const tsr_packed *p, const char *name,
                                     tsr_err *err);
void tsr_component_close(tsr_component *c);

/* Number of the tensor, or -1. Does not mark it used. */
int32_t tsr_component_find(const tsr_component *c, const char *tensor_name);
const tsr_st_tensor *tsr_component_tensor(const tsr_component *c, int32_t i);

/* Whether every value of a float tensor stays finite when it is rounded to half. Reads the tensor
 * once, through a small buffer; later calls know. NaN or infinity in it is TSR_E_MODEL. */
tsr_status tsr_component_fits_half(tsr_component *c, int32_t i, bool *fits);

/* Registers tensor `scope.leaf` (scope may be "") on the tape as a weight with the given shape;
 * dims past n_dims ignored. A matrix is computed in the tape's dtype (F32 kept when a value would
 * overflow half: decided by tsr_component_fits_half, cached); a vector is F32. A missing tensor or
 * another shape is TSR_E_MODEL, by name, with the nearest one. [Co,C] and [Co,C,1,1] are the same
 * shape. */
tsr_status tsr_component_weight(tsr_component *c, tsr_tape *t, tsr_weight_kind kind,
                                const char *scope, const char *leaf, int32_t n_dims,
                                const int32_t *dims, tsr_wt *out);
/* The same for a tensor that may be missing: *out = 0 then. */
tsr_status tsr_component_weight_optional(tsr_component *c, tsr_tape *t, tsr_weight_kind kind,
                                         const char *scope, const char *leaf, int32_t n_dims,
                                         const int32_t *dims, tsr_wt *out);

/* The same checks for a tensor that is read another way (the token table): nothing is registered,
 * it counts as used. */
tsr_status tsr_component_expect(tsr_component *c, const char *scope, const char *leaf,
                                int32_t n_dims, const int32_t *dims);

/* Rows of a [V,D] table as float32: only the asked ones are read. ids must be < V. No allocation.
 */
tsr_status tsr_component_read_rows(tsr_component *c, const char *tensor_name, const int32_t *ids,
                                   int32_t n_ids, int32_t d, float *dst, tsr_err *err);

/* One warning with the number of tensors that no recording asked for, the first few names and the
 * nearest name that was asked for (position_ids and the like are known and silent); and one for
 * bytes of a file that no tensor covers. Call it when everything was recorded. */
void tsr_component_report_unused(const tsr_component *c, const tsr_log *log);
/* FNV-1a over the headers (names, dtypes, shapes, offsets) and sizes of its files, and sampled
 * data: 4 KiB from each of 64 evenly spread places of each file. A packed one has its source's. */
tsr_status tsr_component_hash(const tsr_component *c, uint64_t *h, tsr_err *err);

#endif
