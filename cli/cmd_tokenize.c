/* cmd_tokenize.c -- gen tokenize: the ids of texts, as the model's first tokenizer makes them.
 *
 * One line a text, its ids with blanks between them, begin and end token included; with --json one
 * JSON array a line. A text that is "-" stands for the lines of standard input. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static tsr_status print_ids(tsr_cli *c, const char *text, size_t bytes)
{
    const int32_t *ids;
    int32_t n;
    bool json = c->opt.json;

    TSR_TRY(tsr_cli_library(c, tsr_model_tokenize(c->model, 0, text, bytes, &ids, &n)));
    fputs(json ? "[" : "", stdout);
    for (int32_t i = 0; i < n; i++)
        printf("%s%d", i == 0 ? "" : json ? "," : " ", ids[i]);
    fputs(json ? "]\n" : "\n", stdout);
    return TSR_OK;
}

static tsr_status print_stdin(tsr_cli *c)
{
    tsr_buf line = {0};
    bool more = true;
    tsr_status st = TSR_OK;

    while (st == TSR_OK && more) {
        line.len = 0;
        st = tsr_cli_read_stdin(&line, true, &more, &c->err);
        if (st == TSR_OK && more)
            st = print_ids(c, line.data, line.len);
    }
    tsr_buf_free(&line);
    return st;
}

tsr_status tsr_cli_tokenize(tsr_cli *c)
{
    TSR_TRY(tsr_cli_open_model(c));
    for (int32_t i = 0; i < c->opt.n_args; i++) {
        const char *text = c->opt.args[i];
        if (strcmp(text, "-") == 0)
            TSR_TRY(print_stdin(c));
        else
            TSR_TRY(print_ids(c, text, strlen(text)));
    }
    return TSR_OK;
}
