/* options_help.c -- the names, and `gen --help` as it follows from the tables.
 *
 * A row is printed as "  --name VALUE   help", the help wrapped at 79 columns; what does not work
 * yet says so. `gen COMMAND --help` lists the options of that command only. */
#include "cli/options_internal.h"

#include <string.h>

enum { HELP_COLUMN = 26, HELP_WIDTH = 79 };

const char *tsr_command_name(tsr_command c)
{
    return tsr_command_table[c].name;
}

const char *tsr_option_name(tsr_option_id id)
{
    return tsr_option_table[id].name;
}

/* Words of `text`, wrapped; the line stands at HELP_COLUMN, and ends. */
static void wrap(tsr_buf *out, const char *text)
{
    size_t column = HELP_COLUMN;

    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            tsr_buf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            tsr_buf_append(out, " ", 1);
            column++;
        }
        tsr_buf_append(out, text, n);
        column += n;
        text += n + strspn(text + n, " ");
    }
    tsr_buf_append(out, "\n", 1);
}

/* The left column, and blanks up to the help; a long one gets a line of its own. */
static void help_label(tsr_buf *out, const char *name, const char *value)
{
    size_t n = 2 + strlen(name) + (value ? 1 + strlen(value) : 0);

    tsr_buf_printf(out, "  %s%s%s", name, value ? " " : "", value ? value : "");
    if (n + 2 > HELP_COLUMN)
        tsr_buf_printf(out, "\n%*s", HELP_COLUMN, "");
    else
        tsr_buf_printf(out, "%*s", (int)(HELP_COLUMN - n), "");
}

/* The row as `c` lists it: gen's own help has the options of all commands. */
static void option_help(tsr_buf *out, const tsr_option *opt, tsr_command c)
{
    tsr_buf text = {0};

    for (int i = 0; i < TSR_COMMAND_COUNT && !(opt->commands >> c & 1); i++)
        if (opt->commands >> i & 1)
            tsr_buf_printf(&text, "%s%s", text.len ? ", " : "",
                           tsr_command_name((tsr_command)i) + strlen("gen "));
    tsr_buf_printf(&text, "%s%s", text.len ? ": " : "", opt->help);
    for (const char *const *v = opt->choices; v && *v; v++)
        tsr_buf_printf(&text, "%s%s", v == opt->choices ? "; one of " : " ", *v);
    if (opt->ready)
        tsr_buf_printf(&text, "; %s%s", *opt->ready ? "so far only " : "not there yet", opt->ready);
    help_label(out, opt->name, opt->value);
    wrap(out, tsr_buf_ok(&text) ? text.data : opt->help);
    tsr_buf_free(&text);
}

static void command_help(tsr_buf *out, const tsr_command_row *row)
{
    tsr_buf text = {0};

    tsr_buf_printf(&text, "%s%s", row->help, row->ready ? "" : "; not there yet");
    help_label(out, row->name, NULL);
    wrap(out, tsr_buf_ok(&text) ? text.data : row->help);
    tsr_buf_free(&text);
}

void tsr_options_help(tsr_command c, tsr_buf *out)
{
    const tsr_command_row *row = &tsr_command_table[c];

    tsr_buf_printf(out, "Usage: %s %s\n", row->name, row->args);
    if (c == TSR_COMMAND_MAKE) {
        tsr_buf_puts(out, "       gen COMMAND ...\n\nCommands (gen COMMAND --help says more):\n");
        for (int i = 0; i < TSR_COMMAND_COUNT; i++)
            command_help(out, &tsr_command_table[i]);
    } else {
        tsr_buf_printf(out, "\n%s%s.\n", row->help, row->ready ? "" : "; not there yet");
    }
    tsr_buf_puts(out, "\nOptions:\n");
    for (int i = 0; i < TSR_OPT_COUNT; i++) {
        if (tsr_option_table[i].commands >> c & 1 || c == TSR_COMMAND_MAKE)
            option_help(out, &tsr_option_table[i], c);
    }
    if (c == TSR_COMMAND_MAKE)
        tsr_buf_puts(out, "\nSizes of memory take K M G (powers of 1024), or a percentage of what "
                          "is free.\nExit codes: 0 done, 1 internal, 2 usage, 3 budget, 4 model "
                          "or format,\n5 file I/O, 6 device, 130 interrupted.\n");
}

void tsr_options_usage(tsr_buf *out)
{
    tsr_buf_puts(
        out, "Usage: gen --prompt TEXT [options]\n"
             "       gen COMMAND ...   (plan info tokenize decode encode convert bench replay)\n"
             "gen --help lists everything; gen COMMAND --help says more.\n");
}
