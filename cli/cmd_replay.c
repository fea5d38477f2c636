/* cmd_replay.c -- gen replay: a picture made again from what it says of itself.
 *
 * The JSON record counts where there is one; else A1111's text. Options on the command line
 * come before both. The record names the CPU tier, since tiers differ in the last bits; on a
 * machine without that tier the picture is made all the same, with a warning. */
#include "cli/cli.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "cli/meta.h"
#include "cli/out_path.h"
#include "cli/png.h"

static tsr_status read_settings(tsr_cli *c, const char *path, tsr_meta *m)
{
    tsr_png_meta png = {0};
    tsr_status st;

    TSR_TRY(tsr_png_read_meta(path, &png, &c->err));
    if (png.record)
        st = tsr_meta_from_record(m, png.record, strlen(png.record), &c->err);
    else if (png.parameters)
        st = tsr_meta_from_a1111(m, png.parameters, &c->log, &c->err);
    else
        st = tsr_err_set(&c->err, TSR_E_MODEL, "nothing in it says how the picture was made");
    tsr_png_meta_free(&png);
    return st == TSR_OK ? st : tsr_err_prefix(&c->err, st, "%s", path);
}

/* The tier of the record, if this machine has it. */
static tsr_status open_context(tsr_cli *c, bool own_tier)
{
    tsr_status st = tsr_cli_open_context(c);

    if (st == TSR_E_DEVICE && !own_tier && c->opt.cpu_tier != TSR_TIER_AUTO) {
        TSR_WARN(&c->log,
                 "the picture was made with the CPU tier %s, which is not here: the last "
                 "bits may differ",
                 tsr_options_choice(&c->opt, TSR_OPT_CPU_TIER));
        c->opt.cpu_tier = TSR_TIER_AUTO;
        st = tsr_cli_open_context(c);
    }
    return st;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The default path must not replace the picture that is read by one that may differ from it. */
static tsr_status keep_source(tsr_cli *c, const char *source)
{
    char *path;
    bool same;

    if (c->opt.out || !c->opt.given[TSR_OPT_SEED])
        return TSR_OK;
    TSR_TRY(tsr_out_path_make(NULL, c->opt.seed, 0, 1, &path, &c->err));
    same = same_file(path, source);
    tsr_free(path);
    return same ? tsr_options_set(&c->opt, TSR_OPT_OUT, "out/{seed}-replay.png", &c->err) : TSR_OK;
}

static tsr_status replay(tsr_cli *c, const char *path, const tsr_meta *m)
{
    bool own_tier = c->opt.given[TSR_OPT_CPU_TIER];
    tsr_run_desc desc;

    if (tsr_meta_apply(m, &c->opt, &c->err) != TSR_OK)
        return tsr_err_prefix(&c->err, c->err.code, "%s", path);
    if (m->own_latents && !c->opt.latents)
        TSR_FAIL(&c->err, TSR_E_USAGE,
                 "the picture began from the noise of a file; give that file with --latents");
    TSR_TRY(keep_source(c, path));
    TSR_TRY(tsr_cli_run_desc(c, &desc));
    TSR_TRY(open_context(c, own_tier));
    TSR_TRY(tsr_cli_open_model(c));
    if (m->model && !m->model_hash && !c->opt.model)
        TSR_WARN(&c->log, "the picture was made with the model \"%s\"; give that one with --model",
                 m->model);
    return tsr_cli_make_pictures(c, &desc, m->model_hash);
}

tsr_status tsr_cli_replay(tsr_cli *c)
{
    const char *path = c->opt.args[0];
    tsr_meta m = {0};
    tsr_status st;

    TSR_TRY(tsr_out_path_check(c->opt.out, &c->err));
    st = read_settings(c, path, &m);
    if (st == TSR_OK)
        st = replay(c, path, &m);
    tsr_meta_free(&m);
    return st;
}
