/* out_path.h -- where the picture with a certain seed and index goes (--out). */
#ifndef TSR_CLI_OUT_PATH_H
#define TSR_CLI_OUT_PATH_H

#include "base/err.h"

/* Is `pattern` (NULL: the default) one that can be used? It ends in .png, and what stands in
 * braces is {seed} or {index}. TSR_E_USAGE otherwise. */
tsr_status tsr_out_path_check(const char *pattern, tsr_err *err);

/* The path of picture `index` of `n_pictures`, in *path (free with tsr_free). Two pictures of a
 * run never get the same one: without a brace "-<index>" is put before the extension. */
tsr_status tsr_out_path_make(const char *pattern, uint64_t seed, int32_t index, int32_t n_pictures,
                             char **path, tsr_err *err);

/* Can a file be written there? Makes the directories, and a temporary file that goes again. */
tsr_status tsr_out_path_probe(const char *path, tsr_err *err);

#endif
