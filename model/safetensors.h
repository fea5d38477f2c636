/* safetensors.h -- reads the header of a safetensors file, as hostile input.
 *
 * Layout: u64 little-endian header size, JSON header, data. The header is parsed as a stream;
 * names, dtypes, shapes and offsets are checked against each other and the file's size: a tensor
 * that is out of the file, overlaps another, has a size that does not follow from its shape, a
 * duplicate name, a negative or fractional number, or broken UTF-8 is an error. Bytes that no
 * tensor covers are tolerated and reported in n_uncovered_bytes. Tensor data is never read here. */
#ifndef TSR_MODEL_SAFETENSORS_H
#define TSR_MODEL_SAFETENSORS_H

#include "base/file.h"
#include "base/half.h"

enum { TSR_ST_MAX_DIMS = 8, TSR_ST_MAX_TENSORS = 100000, TSR_ST_MAX_NAME = 1024 };
#define TSR_ST_MAX_HEADER ((size_t)100 << 20)

typedef struct tsr_st_tensor {
    const char *name; /* in the file's name pool */
    tsr_dtype dtype;
    int32_t n_dims;
    int64_t dims[TSR_ST_MAX_DIMS];
    size_t offset, bytes; /* absolute in the file */
} tsr_st_tensor;

typedef struct tsr_st {
    tsr_file file;
    tsr_st_tensor *tensors; /* sorted by name (strcmp) */
    int32_t n_tensors;
    char *names; /* pool */
    size_t n_uncovered_bytes;
} tsr_st;

/* TSR_E_IO when it cannot be read, TSR_E_MODEL (with the path) when it is broken. */
tsr_status tsr_st_open(tsr_st *st, const char *path, tsr_err *err);
void tsr_st_close(tsr_st *st);
const tsr_st_tensor *tsr_st_find(const tsr_st *st, const char *name);

/* Writes a safetensors file atomically: n float32 tensors (used for latents). */
typedef struct tsr_st_out {
    const char *name;
    int32_t n_dims;
    int64_t dims[TSR_ST_MAX_DIMS];
    const float *data;
} tsr_st_out;
tsr_status tsr_st_write(const char *path, const tsr_st_out *tensors, int32_t n, tsr_err *err);

#endif
