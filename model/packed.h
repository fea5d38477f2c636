/* packed.h -- a packed checkpoint (.tsr): a whole model in one file, weights as one backend packs
 * them, so that streaming a weight is a plain read.
 *
 * Little-endian. It is written from front to back; what has data begins at a multiple of 4096.
 *
 *     0       magic "TESSERA\x1A", u32 version
 *     4096    the model's small files as they were (model_index.json, configs, tokenizers)
 *     ..      tensors, in the order in which the networks use them: data, then u64 sums, one for
 *             each unit of `unit_bytes` bytes (of a matrix: a panel; the last one may be shorter)
 *     ..      the table
 *     -80     footer, 80 bytes: u64 bytes of the file, u64 bytes of the table, u64 its FNV-1a, u64
 *             layout, u32 dtype that it was converted for (1 F32, 2 F16), 36 bytes tier's name,
 *             u64 FNV-1a of the 72 bytes before
 *
 *     table   u32 files, u32 parts; then
 *     file    text name, u64 offset, bytes, sum
 *     part    text name, u64 hash of the source's component, u32 tensors; then
 *     tensor  text name, u8 dtype in the source, u8 dims, u8 forms; u64 dims..; then
 *     form    u8 which, u64 offset, bytes, unit_bytes
 *     text    u16 length, bytes
 *
 * A tensor has forms: raw (the source's bytes: tables that are read row by row), and packed as half
 * or as float32 (vectors: plain float32). A decoder that may have to be done again in float32 has
 * both. `layout` is a fingerprint of the backend's packing: some small weights, packed and hashed.
 * A tier that packs the same may use the file, whatever its name; a change of the packing makes
 * files stale without anybody having to remember a number.
 *
 * Sums are 64 bits wide and no FNV: see packed_sum.c. The small files' are checked when the file is
 * opened, a unit's when it is read first (one bit a unit remembers): no byte is computed with
 * before it was checked, and a step that streams what was checked costs nothing. */
#ifndef TSR_MODEL_PACKED_H
#define TSR_MODEL_PACKED_H

#include <stdatomic.h>

#include "base/folder.h"
#include "base/text_util.h"
#include "kernels/backend.h"
#include "model/safetensors.h"

enum { TSR_PACKED_VERSION = 1, TSR_PACKED_MAX_FILES = 64, TSR_PACKED_MAX_PARTS = 8 };
typedef enum tsr_form { TSR_FORM_RAW, TSR_FORM_F16, TSR_FORM_F32, TSR_FORMS } tsr_form;

typedef struct tsr_packed_form {
    size_t offset, bytes; /* bytes 0: the tensor has no such form */
    size_t unit_bytes;
    size_t first_unit; /* place of its first unit in `checked` */
} tsr_packed_form;

typedef struct tsr_packed_part {
    const char *name;         /* "unet" */
    uint64_t hash;            /* tsr_component_hash of the source */
    int32_t first, n_tensors; /* in `tensors` */
} tsr_packed_part;

typedef struct tsr_packed {
    tsr_file file;
    tsr_dtype dtype;  /* what it was converted for */
    tsr_range *files; /* [n_files] */
    int32_t n_files;
    tsr_packed_part *parts; /* [n_parts] */
    int32_t n_parts;
    tsr_st_tensor *tensors; /* [n_tensors]; dtype and bytes as in the source, offset 0 */
    tsr_packed_form (*forms)[TSR_FORMS]; /* [n_tensors] */
    int32_t n_tensors;
    char *names;               /* pool */
    _Atomic uint32_t *checked; /* a bit a unit */
} tsr_packed;

/* True when the file begins as a packed checkpoint does. */
bool tsr_packed_is(const char *path);
/* Reads the header and the table, checks the small files. TSR_E_MODEL, with what would help, for a
 * file that is truncated, damaged, of another version, or packed for a tier that packs otherwise
 * than `b`; TSR_E_IO, TSR_E_OOM. */
tsr_status tsr_packed_open(tsr_packed *p, const char *path, const tsr_backend *b, tsr_err *err);
void tsr_packed_close(tsr_packed *p); /* accepts a zeroed one */
const tsr_packed_part *tsr_packed_find_part(const tsr_packed *p, const char *name);
/* `bytes` bytes at `offset` of a form, checked: TSR_E_MODEL when they are damaged or outside of it,
 * TSR_E_IO. Safe from several threads. */
tsr_status tsr_packed_read(const tsr_packed *p, int32_t tensor, tsr_form form, size_t offset,
                           void *dst, size_t bytes, tsr_err *err);

/* Fingerprint of a backend's packing. */
uint64_t tsr_packed_layout(const tsr_backend *b);

/* ------------------------------------------------------------------ sums */

typedef struct tsr_sum {
    uint64_t lane[4];
    uint8_t rest[32]; /* what does not fill the lanes yet */
    size_t bytes;
} tsr_sum;
void tsr_sum_begin(tsr_sum *s);
void tsr_sum_add(tsr_sum *s, const void *data, size_t bytes);
uint64_t tsr_sum_end(const tsr_sum *s);

/* ------------------------------------------------------------------ writing */

typedef struct tsr_packed_writer {
    tsr_out out;
    tsr_err *err;
    size_t at;            /* bytes so far */
    tsr_buf files, parts; /* the table's two halves */
    uint32_t n_files, n_parts;
    /* the form that is being written */
    tsr_form form;
    size_t start, unit_bytes;
    tsr_sum sum; /* of the unit */
    tsr_buf sums;
} tsr_packed_writer;

/* `bytes`: what the file will have at most; refused when the disk has less. The calls below come
 * in the order of the file; after a failure only tsr_packed_abort may follow. */
tsr_status tsr_packed_begin(tsr_packed_writer *w, const char *path, size_t bytes, tsr_err *err);
tsr_status tsr_packed_add_file(tsr_packed_writer *w, const char *name, const tsr_file *source);
void tsr_packed_begin_part(tsr_packed_writer *w, const char *name, uint64_t hash,
                           uint32_t n_tensors);
void tsr_packed_begin_tensor(tsr_packed_writer *w, const tsr_st_tensor *t, uint8_t n_forms);
tsr_status tsr_packed_begin_form(tsr_packed_writer *w, tsr_form form, size_t unit_bytes);
tsr_status tsr_packed_put(tsr_packed_writer *w, const void *data, size_t bytes);
tsr_status tsr_packed_end_form(tsr_packed_writer *w);
/* Writes table and footer; the file is there from then on. */
tsr_status tsr_packed_finish(tsr_packed_writer *w, tsr_dtype dtype, const tsr_backend *b);
void tsr_packed_abort(tsr_packed_writer *w); /* accepts a zeroed or finished one */
/* At most what a form with so many bytes and units takes in the file. */
size_t tsr_packed_form_space(size_t bytes, size_t unit_bytes);

#endif
