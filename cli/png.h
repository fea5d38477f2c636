/* png.h -- pictures as PNG files with text chunks, written and read back.
 *
 * A PNG is an 8-byte signature and chunks: u32 big-endian length, 4 letters of type, that many
 * bytes, u32 CRC-32 over type and bytes. Texts stand in tEXt (Latin-1) or iTXt (UTF-8) chunks
 * under a keyword: "parameters" is what A1111 and its kin read, "tessera" the JSON record that
 * gen replay reads. Source: the PNG specification, third edition (W3C), sections 5 and 11.3. */
#ifndef TSR_CLI_PNG_H
#define TSR_CLI_PNG_H

#include "base/err.h"

typedef struct tsr_png_text {
    const char *keyword; /* 1..79 Latin-1 letters */
    const char *text;    /* UTF-8 */
} tsr_png_text;

/* Writes rgb [height,width,3] to `path`, whole or not at all, with its texts before the pixels.
 * Heap beside `rgb`: the filtered rows and their compressed form, at the most 2 * 3 * width *
 * height bytes and about 1 MiB. Errors: TSR_E_IO, TSR_E_OOM. */
tsr_status tsr_png_write(const char *path, const uint8_t *rgb, int32_t width, int32_t height,
                         const tsr_png_text *texts, int32_t n_texts, tsr_err *err);

/* The texts of a picture that gen replay understands, as UTF-8; NULL for one that is not there. */
typedef struct tsr_png_meta {
    char *record;     /* keyword "tessera" */
    char *parameters; /* keyword "parameters" */
    int32_t width, height;
} tsr_png_meta;

enum { TSR_PNG_MAX_TEXT = 4 << 20 }; /* a longer text, packed or not, is refused */

/* Reads them from tEXt, zTXt and iTXt chunks; of two with the same keyword the first counts. The
 * file is hostile: everything is bounded, CRCs of what is used are checked, pixels are not read.
 * TSR_E_IO when it cannot be read, TSR_E_MODEL (with the path) when it is no PNG or broken. */
tsr_status tsr_png_read_meta(const char *path, tsr_png_meta *meta, tsr_err *err);
void tsr_png_meta_free(tsr_png_meta *meta);

#endif
