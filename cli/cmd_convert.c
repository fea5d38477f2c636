/* cmd_convert.c -- gen convert MODEL OUT.tsr: the checkpoint in the packed layout.
 *
 * --precision says what runs of the file compute with, --cpu-tier for which instructions it is
 * packed (default: the machine's best). A signal stops it, and nothing is left behind. */
#include "cli/cli.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "memory/budget.h"

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    tsr_cli *c = user;
    char text[96], from[24], to[24];

    snprintf(text, sizeof text, "convert  %s of %s",
             tsr_bytes_text((size_t)done, from, sizeof from),
             tsr_bytes_text((size_t)total, to, sizeof to));
    tsr_progress_line_put(&c->line, text);
    return !tsr_cli_interrupted();
}

static tsr_status print_summary(tsr_cli *c, const char *path, double seconds)
{
    char bytes[24];
    tsr_file f;

    if (c->opt.quiet)
        return TSR_OK;
    TSR_TRY(tsr_file_open(&f, path, &c->err));
    printf("%s: %s in %.1f s, for the CPU tier %s\n", path,
           tsr_bytes_text(f.size, bytes, sizeof bytes), seconds, tsr_context_tier(c->ctx));
    tsr_file_close(&f);
    return TSR_OK;
}

tsr_status tsr_cli_convert(tsr_cli *c)
{
    const char *path = c->opt.args[1];
    tsr_convert_desc desc = {
        .precision = (tsr_precision)c->opt.precision, .progress = on_progress, .progress_user = c};
    double start = tsr_clock_seconds();

    tsr_cli_catch_signals();
    TSR_TRY(tsr_cli_open_model(c));
    TSR_TRY(tsr_cli_library(c, tsr_model_convert(c->model, path, &desc)));
    tsr_progress_line_wipe(&c->line);
    return print_summary(c, path, tsr_clock_seconds() - start);
}
