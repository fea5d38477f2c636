/* cli.c -- from argv to an exit code: parse, run the command, say what went wrong, free. */
#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

typedef tsr_status (*command_fn)(tsr_cli *c);

static const command_fn commands[TSR_COMMAND_COUNT] = {
    [TSR_COMMAND_MAKE] = tsr_cli_make,       [TSR_COMMAND_PLAN] = tsr_cli_plan,
    [TSR_COMMAND_INFO] = tsr_cli_info,       [TSR_COMMAND_TOKENIZE] = tsr_cli_tokenize,
    [TSR_COMMAND_BENCH] = tsr_cli_bench,     [TSR_COMMAND_REPLAY] = tsr_cli_replay,
    [TSR_COMMAND_CONVERT] = tsr_cli_convert, [TSR_COMMAND_DECODE] = tsr_cli_decode,
    [TSR_COMMAND_ENCODE] = tsr_cli_encode,
};

int tsr_cli_exit_code(tsr_status st)
{
    switch (st) {
    case TSR_OK:
        return 0;
    case TSR_E_USAGE:
        return 2;
    case TSR_E_BUDGET:
    case TSR_E_OOM: /* memory that the plan counted on was refused */
        return 3;
    case TSR_E_MODEL:
        return 4;
    case TSR_E_IO:
        return 5;
    case TSR_E_DEVICE:
        return 6;
    case TSR_E_CANCELLED:
        return 130;
    case TSR_E_INTERNAL:
        break;
    }
    return 1;
}

/* The library's and our own messages. Runs inside of a run as well: no allocation. */
static void log_line(void *user, tsr_log_level level, const char *line)
{
    tsr_cli *c = user;

    if (level == TSR_LOG_WARNING ? c->opt.quiet : level == TSR_LOG_DEBUG || !c->opt.verbose)
        return;
    tsr_progress_line_wipe(&c->line);
    fprintf(stderr, "gen: %s%s\n", level == TSR_LOG_WARNING ? "warning: " : "", line);
}

tsr_status tsr_cli_library(tsr_cli *c, tsr_status st)
{
    if (st != TSR_OK)
        (void)tsr_err_set(&c->err, st, "%s", tsr_context_error(c->ctx));
    return st;
}

tsr_status tsr_cli_write_text(const char *path, const char *text, tsr_err *err)
{
    tsr_out out;
    tsr_status st;

    TSR_TRY(tsr_out_open(&out, path, err));
    st = tsr_out_write(&out, text, strlen(text), err);
    if (st == TSR_OK)
        return tsr_out_commit(&out, err);
    tsr_out_abort(&out);
    return st;
}

static tsr_status print_help(tsr_cli *c)
{
    tsr_buf text = {0};

    if (c->opt.version) {
        printf("gen (Tessera) %s\n", tsr_version());
        return TSR_OK;
    }
    tsr_options_help(c->opt.command, &text);
    if (!tsr_buf_ok(&text)) {
        tsr_buf_free(&text);
        TSR_FAIL(&c->err, TSR_E_OOM, "out of memory");
    }
    fputs(text.data, stdout);
    tsr_buf_free(&text);
    return TSR_OK;
}

static int print_usage(void)
{
    tsr_buf text = {0};

    tsr_options_usage(&text);
    if (tsr_buf_ok(&text))
        fputs(text.data, stderr);
    tsr_buf_free(&text);
    return tsr_cli_exit_code(TSR_E_USAGE);
}

static tsr_status run_command(tsr_cli *c)
{
    const tsr_options *o = &c->opt;
    tsr_status st;

    if (o->help || o->version)
        st = print_help(c);
    else
        st = commands[o->command](c);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (st == TSR_OK)
            st = tsr_err_set(&c->err, TSR_E_IO, "cannot write to standard output");
    }
    return st;
}

int tsr_cli_main(int argc, char **argv)
{
    tsr_cli c = {0};
    tsr_status st;

    if (argc < 2)
        return print_usage();
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error of writing */
    c.log = (tsr_log){log_line, &c};
    st = tsr_options_parse(&c.opt, argc, argv, &c.err);
    if (st == TSR_OK) {
        tsr_progress_line_init(&c.line, stderr, !c.opt.quiet && !c.opt.no_progress);
        st = run_command(&c);
    }
    tsr_progress_line_wipe(&c.line);
    if (st != TSR_OK)
        fprintf(stderr, "gen: error: %s\n", c.err.msg);
    tsr_model_free(c.model);
    tsr_context_free(c.ctx);
    tsr_options_free(&c.opt);
    return tsr_cli_exit_code(st);
}
