/* folder.h -- files by name: in a directory, or inside of one file that holds them all.
 *
 * A model's configs and tokenizers are in a diffusers directory or in a packed checkpoint
 * (model/packed.h). Whoever reads them asks a folder and does not know which. Names may have
 * slashes ("unet/config.json"). Nothing is owned: a folder is a view. */
#ifndef TSR_BASE_FOLDER_H
#define TSR_BASE_FOLDER_H

#include "base/file.h"

typedef struct tsr_range {
    const char *name;
    size_t offset, bytes;
} tsr_range;

typedef struct tsr_folder {
    const char *path;        /* of the directory, or of the file that has the ranges */
    const char *sub;         /* names are looked for below it; NULL: at the top */
    const tsr_range *ranges; /* NULL: a directory */
    int32_t n_ranges;
} tsr_folder;

bool tsr_folder_has(const tsr_folder *f, const char *name);
/* TSR_E_IO when it is not there. The file's path is "path/sub/name" in both cases. */
tsr_status tsr_folder_open(const tsr_folder *f, const char *name, tsr_file *file, tsr_err *err);
/* As tsr_file_slurp, but a file that is not there is TSR_E_MODEL: a part of the model is missing.
 */
tsr_status tsr_folder_slurp(const tsr_folder *f, const char *name, size_t max_bytes, char **text,
                            size_t *len, tsr_err *err);

#endif
