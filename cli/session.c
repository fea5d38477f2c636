/* session.c -- what every command begins with: the context, the model, the descriptor of a run;
 * and signals and standard input, which the program has once. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/latents_file.h"

enum { MAX_TEXT = 1 << 20 };

/* --------------------------------------------------------------- signals */

/* A handler has no other way to say that it ran. */
static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* One that the caller ignores (nohup, a job in the background) stays ignored. */
static void catch_signal(int signal)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, old;

    sigemptyset(&action.sa_mask);
    if (sigaction(signal, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(signal, &action, NULL);
}

void tsr_cli_catch_signals(void)
{
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    catch_signal(SIGHUP);           /* the terminal was closed */
    (void)signal(SIGPIPE, SIG_IGN); /* a reader of our lines that went away stops no picture */
}

bool tsr_cli_interrupted(void)
{
    return interrupted != 0;
}

bool tsr_cli_on_progress(void *user, const tsr_progress *p)
{
    tsr_cli *c = user;

    tsr_progress_line_show(&c->line, p);
    return !tsr_cli_interrupted();
}

/* ------------------------------------------------------- context and model */

tsr_status tsr_cli_open_context(tsr_cli *c)
{
    const char *backend = c->opt.backend ? c->opt.backend : "auto";
    tsr_context_desc desc = {
        .cpu_tier = (tsr_cpu_tier)c->opt.cpu_tier,
        .n_threads = c->opt.threads,
        .log = c->log.fn,
        .log_user = c->log.user,
    };
    char why[sizeof c->err.msg] = "";
    tsr_status st;

    if (strcmp(backend, "cuda-sim") == 0)
        desc.backend = TSR_BACKEND_CUDA_SIM;
    else if (strcmp(backend, "cpu") == 0)
        desc.backend = TSR_BACKEND_CPU;
    else if (strcmp(backend, "auto") != 0)
        desc.backend = TSR_BACKEND_CUDA;
    if (strncmp(backend, "cuda:", 5) == 0)
        desc.device =
            (int32_t)strtol(backend + 5, NULL, 10); /* the options' check has bounded it */
    st = tsr_context_make(&c->ctx, &desc, why, sizeof why);
    return st == TSR_OK ? st : tsr_err_set(&c->err, st, "%s", why);
}

/* `dir` + `below`, if a model is there; NULL in *path otherwise. */
static tsr_status try_model(const char *dir, const char *below, char **path, tsr_err *err)
{
    char *model = tsr_path_join(dir, below);
    char *index = model ? tsr_path_join(model, "model_index.json") : NULL;
    bool oom = !index;

    if (index && tsr_path_is_file(index)) {
        *path = model;
        model = NULL;
    }
    tsr_free(index);
    tsr_free(model);
    if (oom)
        TSR_FAIL(err, TSR_E_OOM, "out of memory while looking for the model");
    return TSR_OK;
}

/* Beside the binary, in the source tree that it was built in, in the prefix that it was installed
 * to. */
static tsr_status find_embedded(char **path, tsr_err *err)
{
    static const char *const places[] = {"assets/model", "../assets/model", "../../assets/model",
                                         "../share/tessera/model"};
    char dir[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    char *slash;

    if (n <= 0)
        TSR_FAIL(err, TSR_E_IO, "cannot find the program's own place (/proc/self/exe): %s",
                 strerror(errno));
    dir[n] = 0;
    slash = strrchr(dir, '/');
    if (slash)
        *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places && !*path; i++)
        TSR_TRY(try_model(dir, places[i], path, err));
    if (!*path)
        TSR_FAIL(err, TSR_E_MODEL,
                 "the embedded model is not there (looked for assets/model and "
                 "../share/tessera/model from %s); give a diffusers directory with --model",
                 dir);
    return TSR_OK;
}

tsr_status tsr_cli_find_model(const char *asked, char **path, tsr_err *err)
{
    char *found = NULL;

    if (!asked) {
        TSR_TRY(find_embedded(&found, err));
    } else {
        found = tsr_strdup(asked);
        if (!found)
            TSR_FAIL(err, TSR_E_OOM, "out of memory while looking for the model");
    }
    *path = found;
    return TSR_OK;
}

tsr_status tsr_cli_open_model(tsr_cli *c)
{
    char *path;
    tsr_status st;

    if (!c->ctx)
        TSR_TRY(tsr_cli_open_context(c));
    TSR_TRY(tsr_cli_find_model(
        c->opt.command == TSR_COMMAND_CONVERT ? c->opt.args[0] : c->opt.model, &path, &c->err));
    TSR_INFO(&c->log, "model %s", path);
    st = tsr_cli_library(c, tsr_model_open(c->ctx, path, &c->model));
    tsr_free(path);
    return st;
}

/* -------------------------------------------------------------- texts, run */

tsr_status tsr_cli_read_stdin(tsr_buf *text, bool line, bool *more, tsr_err *err)
{
    int ch;

    tsr_buf_puts(text, "");
    while ((ch = getc(stdin)) != EOF && !(line && ch == '\n')) {
        char letter = (char)(unsigned char)ch;
        if (text->len >= MAX_TEXT)
            TSR_FAIL(err, TSR_E_MODEL, "standard input: the text is longer than 1 MiB");
        tsr_buf_append(text, &letter, 1);
    }
    if (ferror(stdin))
        TSR_FAIL(err, TSR_E_IO, "cannot read standard input");
    if (!tsr_buf_ok(text))
        TSR_FAIL(err, TSR_E_OOM, "out of memory while reading standard input");
    *more = ch != EOF || text->len > 0;
    return TSR_OK;
}

/* --prompt-file into the prompt, without the line feeds at its end. */
static tsr_status read_prompt(tsr_cli *c)
{
    const char *path = c->opt.prompt_file;
    tsr_buf text = {0};
    bool more;
    tsr_status st;

    if (strcmp(path, "-") == 0)
        st = tsr_cli_read_stdin(&text, false, &more, &c->err);
    else
        st = tsr_file_slurp(path, MAX_TEXT, &text.data, &text.len, &c->err);
    if (st == TSR_OK && strlen(text.data) != text.len)
        st =
            tsr_err_set(&c->err, TSR_E_MODEL, "--prompt-file %s: the prompt has a zero byte", path);
    while (st == TSR_OK && text.len > 0 && strchr("\r\n", text.data[text.len - 1]))
        text.data[--text.len] = 0;
    if (st == TSR_OK)
        st = tsr_options_set(&c->opt, TSR_OPT_PROMPT, text.data, &c->err);
    tsr_buf_free(&text);
    return st;
}

/* Rows of --tile; 0 for auto. The table has checked that it is one of the two. */
static int32_t tile_rows(const tsr_options *o)
{
    return o->tile ? (int32_t)strtol(o->tile, NULL, 10) : 0;
}

tsr_status tsr_cli_run_desc(tsr_cli *c, tsr_run_desc *desc)
{
    tsr_options *o = &c->opt;

    if (o->given[TSR_OPT_PROMPT_FILE])
        TSR_TRY(read_prompt(c));
    *desc = (tsr_run_desc){
        .prompt = o->prompt,
        .negative_prompt = o->negative_prompt,
        .prompt_2 = o->prompt_2,
        .negative_prompt_2 = o->negative_prompt_2,
        .width = o->width,
        .height = o->height,
        .steps = o->steps,
        .guidance = o->guidance,
        .guidance_rescale = o->guidance_rescale,
        .scheduler = tsr_options_choice(o, TSR_OPT_SCHEDULER),
        .sigmas = tsr_options_choice(o, TSR_OPT_SIGMAS),
        .prediction_type = tsr_options_choice(o, TSR_OPT_PREDICTION_TYPE),
        .eta = o->eta,
        .clip_skip = o->clip_skip,
        .seed = o->seed,
        .seed_given = o->given[TSR_OPT_SEED],
        .rng = (tsr_rng_kind)o->rng,
        .n_pictures = o->num ? o->num : 1,
        .precision = (tsr_precision)o->precision,
        .original_width = o->original_size[0],
        .original_height = o->original_size[1],
        .crop_x = o->crop[0],
        .crop_y = o->crop[1],
        .target_width = o->target_size[0],
        .target_height = o->target_size[1],
        .budget_bytes = o->budget,
        .host_budget_bytes = o->host_budget,
        .offload = (tsr_offload)o->offload,
        .tile_rows = tile_rows(o),
        .spill_dir = o->spill_dir,
        .strict = o->strict,
    };
    if (o->given[TSR_OPT_GUIDANCE] && desc->guidance <= 0)
        desc->guidance = 1; /* 0 turns it off as well, but means "the default" in the descriptor */
    return TSR_OK;
}

tsr_status tsr_cli_run_make(tsr_cli *c, const tsr_run_desc *desc, tsr_run **run)
{
    tsr_run_desc d = *desc;
    float *latents = NULL;
    tsr_status st;

    if (c->opt.latents)
        TSR_TRY((d.plan_only ? tsr_latents_blank : tsr_latents_read)(c->opt.latents, &latents,
                                                                     d.latents_shape, &c->err));
    d.latents = latents;
    st = tsr_cli_library(c, tsr_run_make(c->ctx, c->model, &d, run));
    tsr_free(latents); /* the run has its copy */
    return st;
}
