/* cli.h -- gen's one run through the program: options, messages, context, model, and the commands.
 *
 * A command is a function of tsr_cli that returns a status; its sentence is in cli->err. Results go
 * to standard output, everything else to standard error. tsr_cli_main maps the status to the exit
 * code and frees what was opened. */
#ifndef TSR_CLI_CLI_H
#define TSR_CLI_CLI_H

#include "base/log.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "tessera.h"

typedef struct tsr_cli {
    tsr_options opt;
    tsr_err err;
    tsr_log log; /* warnings and details of the cli and of the library */
    tsr_progress_line line;
    tsr_context *ctx;
    tsr_model *model;
} tsr_cli;

/* The whole program; returns the exit code. */
int tsr_cli_main(int argc, char **argv);
int tsr_cli_exit_code(tsr_status st);

/* The commands. */
tsr_status tsr_cli_make(tsr_cli *c);
tsr_status tsr_cli_plan(tsr_cli *c);
tsr_status tsr_cli_info(tsr_cli *c);
tsr_status tsr_cli_tokenize(tsr_cli *c);
tsr_status tsr_cli_decode(tsr_cli *c);
tsr_status tsr_cli_encode(tsr_cli *c);
tsr_status tsr_cli_convert(tsr_cli *c);
tsr_status tsr_cli_bench(tsr_cli *c);
tsr_status tsr_cli_replay(tsr_cli *c);
/* gen bench --ops, with the descriptor that gen bench has filled in. */
tsr_status tsr_cli_bench_ops(tsr_cli *c, const tsr_run_desc *asked);

/* Opens the context, and the model as well: what the commands begin with. The model is --model,
 * the embedded one, or what gen convert is given. */
tsr_status tsr_cli_open_context(tsr_cli *c);
tsr_status tsr_cli_open_model(tsr_cli *c);
/* Where the model is (free with tsr_free). TSR_E_MODEL when the embedded one is nowhere. */
tsr_status tsr_cli_find_model(const char *asked, char **path, tsr_err *err);
/* Forwards a failure of a function of tessera.h with the context's sentence. */
tsr_status tsr_cli_library(tsr_cli *c, tsr_status st);

/* Options to a run's descriptor, --prompt-file read; strings stay the options'. */
tsr_status tsr_cli_run_desc(tsr_cli *c, tsr_run_desc *desc);
/* tsr_run_make, with what is in --latents; a plan counts it without reading it. */
tsr_status tsr_cli_run_make(tsr_cli *c, const tsr_run_desc *desc, tsr_run **run);
/* Makes and writes the pictures of `desc`. `model_hash` (NULL: any) is the hash that the model
 * should have: another is a warning. */
tsr_status tsr_cli_make_pictures(tsr_cli *c, const tsr_run_desc *desc, const char *model_hash);
/* --report of a finished run. */
tsr_status tsr_cli_write_report(tsr_cli *c, const tsr_run *run);

/* From now on SIGINT and SIGTERM only set a flag (a second one kills), and a closed pipe is an
 * error of writing; has a signal come? */
void tsr_cli_catch_signals(void);
bool tsr_cli_interrupted(void);

/* A run's progress callback, `user` is the tsr_cli: shows the line, stops after a signal. */
bool tsr_cli_on_progress(void *user, const tsr_progress *p);

/* Standard input to its end, or (`line`) to the end of a line, which is left out. *more is false
 * when nothing was left. TSR_E_MODEL when it is longer than a text may be. */
tsr_status tsr_cli_read_stdin(tsr_buf *text, bool line, bool *more, tsr_err *err);
/* Writes text to a file, whole or not at all. */
tsr_status tsr_cli_write_text(const char *path, const char *text, tsr_err *err);

#endif
