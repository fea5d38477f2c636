/* sweep.h -- budget against time and size: what gen plan --sweep finds, as a table, as JSON and
 * drawn. */
#ifndef TSR_CLI_SWEEP_H
#define TSR_CLI_SWEEP_H

#include "base/text_util.h"
#include "cli/cli.h"

enum { TSR_SWEEP_ROWS = 16, TSR_SWEEP_PHASES = 4 };

typedef struct tsr_sweep_row {
    size_t budget, peak;   /* peak: predicted */
    int32_t width, height; /* smaller than asked for where that does not fit */
    double seconds;        /* predicted for a picture */
    double phase_seconds[TSR_SWEEP_PHASES];
    uint64_t streamed, spilled;
} tsr_sweep_row;

typedef struct tsr_sweep {
    tsr_sweep_row rows[TSR_SWEEP_ROWS]; /* budgets rise */
    int32_t n_rows;
    int32_t width, height, steps, n_threads; /* as asked for */
    size_t minimum, fastest;
    char phases[TSR_SWEEP_PHASES][16]; /* names; "" for one without any time */
    char scheduler[32], tier[32], precision[16];
} tsr_sweep;

/* Plans the run at about a dozen budgets. */
tsr_status tsr_sweep_make(tsr_cli *c, const tsr_run_desc *desc, tsr_sweep *s);
void tsr_sweep_json(const tsr_sweep *s, tsr_buf *out);
/* A drawing: budgets on x (logarithmic), seconds on y, the phases stacked. SVG 1.1 with a style
 * for light and for dark screens. */
void tsr_sweep_svg(const tsr_sweep *s, tsr_buf *out);

#endif
