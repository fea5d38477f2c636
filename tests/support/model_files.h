/* model_files.h -- writes small model files for tests, broken ones included.
 *
 * Every function fails the running test when it cannot write; paths are "<dir>/<name>". */
#ifndef TSR_TESTS_MODEL_FILES_H
#define TSR_TESTS_MODEL_FILES_H

#include "tests/support/test.h"

/* A file with these bytes; the folder is made. */
void model_file_write(const char *dir, const char *name, const void *data, size_t bytes);
void model_file_text(const char *dir, const char *name, const char *text);
/* A safetensors file: 8 bytes of size, the header as given, `data_bytes` bytes of `data` (zeros
 * when it is NULL). */
void model_file_st(const char *dir, const char *name, const char *header, const void *data,
                   size_t data_bytes);
/* A copy of the text with its only occurrence of `from` replaced by `to`; valid until the next call
 * but three. */
const char *model_file_replace(const char *text, const char *from, const char *to);

/* A Stable Diffusion directory of a few KB: configs that are valid, and for each part a file with
 * some float32 tensors named and shaped as the config says ("unet/conv_in.weight" ...). */
void model_dir_make(const char *dir);
extern const char *const model_index_json, *const model_unet_json, *const model_vae_json,
                                                                       *const model_clip_json;

#endif
