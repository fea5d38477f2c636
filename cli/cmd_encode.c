/* cmd_encode.c -- gen encode: the latents of a picture, as gen decode takes them.
 *
 * The mean of the encoder's distribution, times the scaling factor. The picture is taken as it is:
 * a side that is no multiple of the VAE's factor gives its size over the factor, rounded down. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/latents_file.h"
#include "cli/out_path.h"
#include "cli/picture_read.h"
#include "memory/budget.h"

static tsr_status write_latents(tsr_cli *c, const tsr_picture *pic, double seconds)
{
    const int32_t *shape = pic->latents_shape;
    tsr_latents_out out;
    char peak[24];
    tsr_status st;

    TSR_TRY(tsr_latents_open(&out, c->opt.save_latents, 1, &c->err));
    st = tsr_latents_append(&out, pic->latents, shape, &c->err);
    if (st != TSR_OK) {
        tsr_latents_abort(&out);
        return st;
    }
    TSR_TRY(tsr_latents_close(&out, &c->err));
    if (!c->opt.quiet)
        printf("%s  [1,%d,%d,%d] of %dx%d  %.2f s  peak %s\n", c->opt.save_latents, shape[0],
               shape[1], shape[2], pic->width, pic->height, seconds,
               tsr_bytes_text(tsr_mem_peak(), peak, sizeof peak));
    return TSR_OK;
}

/* Latents are written even when the library says afterwards that it took too much memory. */
static tsr_status encode(tsr_cli *c, tsr_run *run)
{
    double start = tsr_clock_seconds();
    tsr_picture pic = {0};
    tsr_err second = c->err;
    tsr_status made = tsr_cli_library(c, tsr_run_next(run, &pic)), written = TSR_OK;

    tsr_progress_line_wipe(&c->line);
    if (pic.latents) {
        second = c->err;
        written = write_latents(c, &pic, tsr_clock_seconds() - start);
    }
    if (made != TSR_OK) {
        c->err = second;
        return made;
    }
    TSR_TRY(written);
    return c->opt.report ? tsr_cli_write_report(c, run) : TSR_OK;
}

static tsr_status run_encoder(tsr_cli *c, const tsr_run_desc *desc)
{
    tsr_run *run = NULL;
    tsr_status st;

    TSR_TRY(tsr_cli_open_model(c));
    TSR_TRY(tsr_cli_run_make(c, desc, &run));
    tsr_cli_catch_signals();
    st = encode(c, run);
    tsr_run_free(run);
    return st;
}

/* An output must not replace the picture, nor the other one. */
static tsr_status check_distinct(tsr_cli *c)
{
    const char *latents = c->opt.save_latents, *report = c->opt.report;

    if (!latents)
        TSR_FAIL(&c->err, TSR_E_USAGE, "where to write is missing: --save-latents F");
    if (strcmp(latents, c->opt.args[0]) == 0)
        TSR_FAIL(&c->err, TSR_E_USAGE, "--save-latents names the picture itself, %s", latents);
    if (report && (strcmp(report, latents) == 0 || strcmp(report, c->opt.args[0]) == 0))
        TSR_FAIL(&c->err, TSR_E_USAGE, "--report names the same file as another, %s", report);
    return TSR_OK;
}

tsr_status tsr_cli_encode(tsr_cli *c)
{
    const tsr_options *o = &c->opt;
    tsr_run_desc desc;
    uint8_t *rgb; // [height,width,3]
    tsr_status st;

    TSR_TRY(check_distinct(c));
    TSR_TRY(tsr_out_path_probe(o->save_latents, &c->err));
    if (o->report)
        TSR_TRY(tsr_out_path_probe(o->report, &c->err));
    TSR_TRY(tsr_cli_run_desc(c, &desc));
    TSR_TRY(tsr_picture_read(o->args[0], &rgb, &desc.width, &desc.height, &c->err));
    desc.task = TSR_TASK_ENCODE;
    desc.image = rgb;
    desc.progress = tsr_cli_on_progress;
    desc.progress_user = c;
    st = run_encoder(c, &desc);
    tsr_free(rgb);
    return st;
}
