/* picture_read.h -- a picture from a file, as pixels. */
#ifndef TSR_CLI_PICTURE_READ_H
#define TSR_CLI_PICTURE_READ_H

#include "base/err.h"

enum { TSR_PICTURE_LEAST = 8, TSR_PICTURE_MOST = 16384 }; /* of a side */

/* Reads a PNG or JPEG file as *rgb [*height,*width,3] (free with tsr_free). Transparency
 * is left out, 16 bits a sample become 8, colour profiles are not applied. The file is hostile:
 * sides are bounded, and so is what unpacking may take. TSR_E_IO; TSR_E_MODEL with the path;
 * TSR_E_OOM. */
tsr_status tsr_picture_read(const char *path, uint8_t **rgb, int32_t *width, int32_t *height,
                            tsr_err *err);

#endif
