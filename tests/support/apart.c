/* apart.c -- see apart.h. */
#include "tests/support/apart.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text_util.h"
#include "memory/budget.h"

static void run_once(const char *dir, const tsr_run_desc *d, int32_t threads, apart_figures *f)
{
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_picture pic;
    int32_t left = d->plan_only ? 0 : d->n_pictures ? d->n_pictures : 1;

    f->rgb_hash = TSR_FNV_SEED;
    f->st =
        tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = threads}, f->why, sizeof f->why);
    if (f->st == TSR_OK)
        f->st = tsr_model_open(ctx, dir, &model);
    if (f->st == TSR_OK)
        f->st = tsr_run_make(ctx, model, d, &run);
    for (; f->st == TSR_OK && left > 0; left--) {
        f->st = tsr_run_next(run, &pic);
        if (f->st == TSR_OK)
            f->rgb_hash =
                tsr_fnv1a64(pic.rgb, 3 * (size_t)pic.width * (size_t)pic.height, f->rgb_hash);
    }
    if (f->st == TSR_OK) {
        tsr_run_get_info(run, &f->info);
    } else if (ctx) {
        strncpy(f->why, tsr_context_error(ctx), sizeof f->why - 1);
    }
    f->peak = tsr_mem_peak();
}

bool run_apart(const char *model, const tsr_run_desc *d, int32_t threads, apart_figures *f)
{
    int ends[2], status;
    pid_t child;
    bool got;

    memset(f, 0, sizeof *f);
    if (pipe(ends) != 0 || (child = fork()) < 0)
        return false;
    if (child == 0) {
        tsr_alloc_large_apart(); /* as gen does */
        run_once(model, d, threads, f);
        _exit(write(ends[1], f, sizeof *f) == (ssize_t)sizeof *f ? 0 : 1);
    }
    close(ends[1]);
    got = read(ends[0], f, sizeof *f) == (ssize_t)sizeof *f;
    close(ends[0]);
    return waitpid(child, &status, 0) == child && got;
}
