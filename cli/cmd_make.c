/* cmd_make.c -- pictures: gen --prompt, and what gen replay and gen decode come down to.
 *
 * Everything that can be wrong with the outputs is found before the first step: the file names, and
 * that files can be made there. Then one picture at a time is made, written whole, and told; an
 * interrupt or an error leaves the finished ones, and nothing half-written. Final latents that no
 * picture came of are kept (keep_latents.h): the steps are what took the time. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/keep_latents.h"
#include "cli/latents_file.h"
#include "cli/out_path.h"
#include "cli/png.h"
#include "memory/budget.h"

typedef struct outputs {
    tsr_latents_out latents;
    int32_t n_pictures, n_done;
    bool pending; /* a picture was begun and is not written */
} outputs;

/* Two outputs of one name: the later would replace the earlier without a word. */
static tsr_status check_distinct(tsr_cli *c, const tsr_run_info *info)
{
    const char *others[] = {c->opt.report, c->opt.save_latents};
    static const tsr_option_id ids[] = {TSR_OPT_REPORT, TSR_OPT_SAVE_LATENTS};
    tsr_status st = TSR_OK;

    if (others[0] && others[1] && strcmp(others[0], others[1]) == 0)
        TSR_FAIL(&c->err, TSR_E_USAGE, "--report and --save-latents name the same file %s",
                 others[0]);
    for (int32_t i = 0; i < 2; i++) {
        for (int32_t p = 0; others[i] && p < info->n_pictures && st == TSR_OK; p++) {
            char *path;
            TSR_TRY(tsr_out_path_make(c->opt.out, info->seed + (uint64_t)p, p, info->n_pictures,
                                      &path, &c->err));
            if (strcmp(path, others[i]) == 0)
                st = tsr_err_set(&c->err, TSR_E_USAGE, "--out and %s name the same file %s",
                                 tsr_option_name(ids[i]), path);
            tsr_free(path);
        }
    }
    return st;
}

static tsr_status open_outputs(tsr_cli *c, const tsr_run_info *info, outputs *out)
{
    const tsr_options *o = &c->opt;
    char *path;
    tsr_status st;

    TSR_TRY(check_distinct(c, info));
    TSR_TRY(tsr_out_path_make(o->out, info->seed, 0, info->n_pictures, &path, &c->err));
    st = tsr_out_path_probe(path, &c->err);
    tsr_free(path);
    TSR_TRY(st);
    if (o->report)
        TSR_TRY(tsr_out_path_probe(o->report, &c->err));
    if (o->save_latents)
        TSR_TRY(tsr_latents_open(&out->latents, o->save_latents, info->n_pictures, &c->err));
    return TSR_OK;
}

static tsr_status write_picture(tsr_cli *c, const tsr_picture *pic, double seconds, outputs *out,
                                tsr_err *err)
{
    const tsr_png_text texts[] = {{"parameters", pic->parameters}, {"tessera", pic->record}};
    int32_t skipped = pic->parameters ? 0 : 1; /* there was no prompt */
    char peak[24], seed[32] = "", *path;
    tsr_status st;

    TSR_TRY(tsr_out_path_make(c->opt.out, pic->seed, pic->index, out->n_pictures, &path, err));
    st = tsr_png_write(path, pic->rgb, pic->width, pic->height, texts + skipped, 2 - skipped, err);
    if (st == TSR_OK && c->opt.save_latents)
        st = tsr_latents_append(&out->latents, pic->latents, pic->latents_shape, err);
    if (st == TSR_OK && !c->opt.quiet) {
        tsr_progress_line_wipe(&c->line);
        if (pic->parameters)
            snprintf(seed, sizeof seed, "  seed %llu", (unsigned long long)pic->seed);
        printf("%s  %dx%d%s  %.2f s  peak %s\n", path, pic->width, pic->height, seed, seconds,
               tsr_bytes_text(tsr_mem_peak(), peak, sizeof peak));
        fflush(stdout);
    }
    tsr_free(path);
    return st;
}

/* One picture, written even when the library says afterwards that it took too much memory. */
static tsr_status make_picture(tsr_cli *c, tsr_run *run, outputs *out)
{
    tsr_picture pic = {0};
    tsr_err second = {0};
    double start = tsr_clock_seconds();
    tsr_status made, written;

    out->pending = true; /* after a signal, too: the library stops at once, and may have latents */
    made = tsr_cli_library(c, tsr_run_next(run, &pic));
    if (!pic.rgb)
        return made;
    written = write_picture(c, &pic, tsr_clock_seconds() - start, out,
                            made == TSR_OK ? &c->err : &second);
    out->n_done += written == TSR_OK;
    out->pending = written != TSR_OK;
    return made == TSR_OK ? written : made;
}

tsr_status tsr_cli_write_report(tsr_cli *c, const tsr_run *run)
{
    char *json;
    tsr_status st;

    TSR_TRY(tsr_cli_library(c, tsr_run_report(run, true, &json)));
    st = tsr_cli_write_text(c->opt.report, json, &c->err);
    tsr_string_free(json);
    return st;
}

/* Latents that no picture came of: appended to --save-latents where that is given. */
static bool append_latents(const tsr_cli *c, const tsr_kept *kept, outputs *out)
{
    return c->opt.save_latents &&
           tsr_latents_append_all(&out->latents, kept->latents, kept->shape, NULL) == TSR_OK;
}

/* After the last picture, or the one that failed: st is how that ended. */
static tsr_status close_outputs(tsr_cli *c, const tsr_run *run, outputs *out, tsr_status st)
{
    tsr_err second = {0};
    tsr_kept kept = {.index = out->n_done};
    bool keep = out->pending && c->opt.command != TSR_COMMAND_DECODE &&
                tsr_run_latents(run, &kept.latents, kept.shape);
    bool appended = keep && append_latents(c, &kept, out);
    tsr_status closed = tsr_latents_close(&out->latents, st == TSR_OK ? &c->err : &second);

    if (st == TSR_OK)
        st = closed;
    if (st == TSR_E_CANCELLED)
        (void)tsr_err_set(&c->err, st, "interrupted; %d of %d pictures are finished", out->n_done,
                          out->n_pictures);
    if (keep)
        tsr_keep_latents(c, run, &kept, appended && closed == TSR_OK ? c->opt.save_latents : NULL);
    if (c->opt.report && st == TSR_OK)
        st = tsr_cli_write_report(c, run);
    return st;
}

static tsr_status make_all(tsr_cli *c, tsr_run *run, const char *model_hash)
{
    tsr_run_info info;
    outputs out = {0};
    tsr_status st;

    tsr_run_get_info(run, &info);
    out.n_pictures = info.n_pictures;
    if (model_hash && strcmp(model_hash, info.model_hash) != 0)
        TSR_WARN(&c->log,
                 "the picture was made with a model of hash %s, this one has %s: it will "
                 "not be the same",
                 model_hash, info.model_hash);
    if (c->opt.command != TSR_COMMAND_DECODE && !c->opt.given[TSR_OPT_SEED] && !c->opt.quiet)
        fprintf(stderr, "gen: seed %llu\n", (unsigned long long)info.seed);
    tsr_cli_catch_signals();
    st = open_outputs(c, &info, &out);
    for (int32_t i = 0; i < info.n_pictures && st == TSR_OK; i++)
        st = make_picture(c, run, &out);
    return close_outputs(c, run, &out, st);
}

tsr_status tsr_cli_make_pictures(tsr_cli *c, const tsr_run_desc *desc, const char *model_hash)
{
    tsr_run_desc d = *desc;
    tsr_run *run = NULL;
    tsr_status st;

    d.progress = tsr_cli_on_progress;
    d.progress_user = c;
    TSR_TRY(tsr_out_path_check(c->opt.out, &c->err));
    TSR_TRY(tsr_cli_run_make(c, &d, &run));
    st = make_all(c, run, model_hash);
    tsr_run_free(run);
    return st;
}

tsr_status tsr_cli_make(tsr_cli *c)
{
    tsr_run_desc desc;

    TSR_TRY(tsr_out_path_check(c->opt.out, &c->err)); /* before anything is opened */
    TSR_TRY(tsr_cli_run_desc(c, &desc));
    TSR_TRY(tsr_cli_open_model(c));
    return tsr_cli_make_pictures(c, &desc, NULL);
}
