/* progress.h -- the line on the terminal that says how far a run is.
 *
 *     denoise  2/4  step 12/25  3.41 it/s  0:11 left  412 MiB now, 430 MiB peak
 *
 * Pictures that are denoised together are told together: 1-3/8. It is rewritten in place at most
 * ten times a second, cut to the terminal's width, and wiped before anything else is printed and at
 * the end. Without a terminal there is none. */
#ifndef TSR_CLI_PROGRESS_H
#define TSR_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include "tessera.h"

typedef struct tsr_progress_line {
    FILE *to;        /* NULL: no line is shown */
    int columns;     /* of the terminal */
    bool shown;      /* there is a line to wipe */
    double shown_at; /* seconds, monotonic */
} tsr_progress_line;

/* Shows lines on `to` if that is a terminal and `wanted`. */
void tsr_progress_line_init(tsr_progress_line *line, FILE *to, bool wanted);
void tsr_progress_line_show(tsr_progress_line *line, const tsr_progress *p);
/* Any text in its place, with the same patience. */
void tsr_progress_line_put(tsr_progress_line *line, const char *text);
void tsr_progress_line_wipe(tsr_progress_line *line);
/* The text alone, cut to `bytes`; returns buf. */
char *tsr_progress_text(const tsr_progress *p, char *buf, size_t bytes);

#endif
