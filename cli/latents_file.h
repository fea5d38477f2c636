/* latents_file.h -- start noise from, and final latents to, a safetensors file. */
#ifndef TSR_CLI_LATENTS_FILE_H
#define TSR_CLI_LATENTS_FILE_H

#include "base/file.h"

/* Reads tensor "latents" [N,C,h,w] (F32, F16 or BF16; [C,h,w] is one picture) as float32 into
 * *data (free with tsr_free). TSR_E_IO, TSR_E_MODEL with the path, TSR_E_OOM. */
tsr_status tsr_latents_read(const char *path, float **data, int32_t shape[4], tsr_err *err);

/* As many zeros as there are values in the file, which are not read: what a plan counts. */
tsr_status tsr_latents_blank(const char *path, float **data, int32_t shape[4], tsr_err *err);

/* Writes pictures' latents one by one to a file that appears when it is closed. */
typedef struct tsr_latents_out {
    tsr_out out;
    int32_t shape[4]; /* n_pictures planned, C, h, w */
    int32_t n_written;
} tsr_latents_out;

tsr_status tsr_latents_open(tsr_latents_out *l, const char *path, int32_t n_pictures, tsr_err *err);
/* latents [C,h,w], the same shape each time. */
tsr_status tsr_latents_append(tsr_latents_out *l, const float *latents, const int32_t shape[3],
                              tsr_err *err);
/* The same of [N,C,h,w]. */
tsr_status tsr_latents_append_all(tsr_latents_out *l, const float *latents, const int32_t shape[4],
                                  tsr_err *err);
/* Says in the header how many there are, and puts the file in its place; none written, none made.
 */
tsr_status tsr_latents_close(tsr_latents_out *l, tsr_err *err);
void tsr_latents_abort(tsr_latents_out *l); /* accepts a zeroed or closed one */

#endif
