/* options.c -- argv to tsr_options, by the table in options_table.c.
 *
 * GNU's habits: `--name=value` and `--name value`, options and texts in any order, `--` ends the
 * options, `-` is a text (standard input), the last of two equal options counts. Names are not
 * abbreviated. One thing is stricter: `--prompt --steps` is a missing value and not a picture of
 * the word "--steps", for which `--prompt=--steps` is there.
 *
 * Order of work: the command word, then each argument in turn (an error ends it, so what is said is
 * about the first mistake), then what only the whole line shows: pairs that exclude each other,
 * the number of texts, a missing prompt. */
#include "cli/options_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "memory/budget.h"

static const tsr_option_id exclusions[][2] = {
    {TSR_OPT_PROMPT, TSR_OPT_PROMPT_FILE},
    {TSR_OPT_QUIET, TSR_OPT_VERBOSE},
    {TSR_OPT_SWEEP, TSR_OPT_BUDGET}, /* a sweep has its own */
    {TSR_OPT_PLOT, TSR_OPT_BUDGET},
};

/* --------------------------------------------------------- one value */

/* Decimal digits only, all of `text` up to `end`; false when there are none, or it overflows. */
static bool parse_u64(const char *text, const char *end, uint64_t *value)
{
    uint64_t v = 0;

    if (text == end)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
            return false;
    }
    *value = v;
    return true;
}

static bool parse_int(const tsr_option *opt, const char *text, const char *end, int32_t *value)
{
    uint64_t v;

    if (!parse_u64(text, end, &v) || (double)v < opt->min || (double)v > opt->max)
        return false;
    *value = (int32_t)v;
    return true;
}

/* Two numbers with `sep` between them. */
static bool parse_pair(const tsr_option *opt, const char *text, char sep, int32_t pair[2])
{
    const char *mid = strchr(text, sep);
    int32_t a, b;

    if (!mid || !parse_int(opt, text, mid, &a) ||
        !parse_int(opt, mid + 1, mid + 1 + strlen(mid + 1), &b))
        return false;
    pair[0] = a;
    pair[1] = b;
    return true;
}

/* Plain decimal numbers; strtof alone would also take hexadecimal, "inf", "nan" and blanks. */
static bool parse_float(const tsr_option *opt, const char *text, float *value)
{
    char *end;
    float v;

    if (!*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    v = strtof(text, &end);
    if (*end || !isfinite(v) || (double)v < opt->min || (double)v > opt->max)
        return false;
    *value = v;
    return true;
}

static bool valid_backend(const char *text)
{
    uint64_t device;

    if (strncmp(text, "cuda:", 5) == 0)
        return parse_u64(text + 5, text + strlen(text), &device) && device < 1024;
    return strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0 ||
           strcmp(text, "cuda-sim") == 0;
}

/* What a value of this kind must look like, for the sentence. */
static void describe(const tsr_option *opt, tsr_buf *b)
{
    switch (opt->kind) {
    case TSR_KIND_INT:
        tsr_buf_printf(b, "a number from %.0f to %.0f", opt->min, opt->max);
        break;
    case TSR_KIND_U64:
        tsr_buf_puts(b, "a number from 0 to 18446744073709551615");
        break;
    case TSR_KIND_FLOAT:
        tsr_buf_printf(b, "a number from %g to %g", opt->min, opt->max);
        break;
    case TSR_KIND_SIZE:
        tsr_buf_printf(b, "WxH, each from %.0f to %.0f", opt->min, opt->max);
        break;
    case TSR_KIND_POINT:
        tsr_buf_printf(b, "X,Y, each from %.0f to %.0f", opt->min, opt->max);
        break;
    case TSR_KIND_ROWS:
        tsr_buf_printf(b, "auto or a number from %.0f to %.0f", opt->min, opt->max);
        break;
    case TSR_KIND_BACKEND:
        tsr_buf_puts(b, "auto, cpu, cuda, cuda:N or cuda-sim");
        break;
    default:
        for (const char *const *c = opt->choices; c && *c; c++)
            tsr_buf_printf(b, "%s%s", c == opt->choices ? "one of " : " ", *c);
    }
}

static tsr_status bad_value(const tsr_option *opt, const char *value, tsr_err *err)
{
    tsr_buf want = {0};
    const char *near = NULL;
    tsr_status st;

    describe(opt, &want);
    if (opt->kind == TSR_KIND_CHOICE) {
        int32_t n = 0, i;
        while (opt->choices[n])
            n++;
        i = tsr_nearest_name(value, opt->choices, n);
        near = i >= 0 ? opt->choices[i] : NULL;
    }
    st = tsr_err_set(err, TSR_E_USAGE, "%s \"%s\" is not %s%s%s%s", opt->name, value,
                     tsr_buf_ok(&want) ? want.data : "valid", near ? "; did you mean " : "",
                     near ? near : "", near ? "?" : "");
    tsr_buf_free(&want);
    return st;
}

static tsr_status set_text(char **member, const char *value, tsr_err *err)
{
    char *copy = tsr_strdup(value);

    if (!copy)
        TSR_FAIL(err, TSR_E_OOM, "out of memory while reading the options");
    tsr_free(*member);
    *member = copy;
    return TSR_OK;
}

static bool parse_choice(const tsr_option *opt, const char *value, int32_t *place)
{
    for (int32_t i = 0; opt->choices[i]; i++) {
        if (strcmp(opt->choices[i], value) == 0) {
            *place = i;
            return true;
        }
    }
    return false;
}

static tsr_status set_value(tsr_options *o, const tsr_option *opt, const char *value, tsr_err *err)
{
    void *at = (char *)o + opt->offset;
    const char *end = value + strlen(value);
    int32_t rows;
    bool ok = true;

    switch (opt->kind) {
    case TSR_KIND_FLAG:
        *(bool *)at = true;
        break;
    case TSR_KIND_TEXT:
        return set_text(at, value, err);
    case TSR_KIND_INT:
        ok = parse_int(opt, value, end, at);
        break;
    case TSR_KIND_U64:
        ok = parse_u64(value, end, at);
        break;
    case TSR_KIND_FLOAT:
        ok = parse_float(opt, value, at);
        break;
    case TSR_KIND_SIZE:
        ok = parse_pair(opt, value, 'x', at);
        break;
    case TSR_KIND_POINT:
        ok = parse_pair(opt, value, ',', at);
        break;
    case TSR_KIND_CHOICE:
        ok = parse_choice(opt, value, at);
        break;
    case TSR_KIND_BYTES: {
        tsr_status st = tsr_budget_parse(value, at, err);
        return st == TSR_OK ? st : tsr_err_prefix(err, st, "%s", opt->name);
    }
    case TSR_KIND_BACKEND:
        ok = valid_backend(value);
        break;
    case TSR_KIND_ROWS:
        ok = strcmp(value, "auto") == 0 || parse_int(opt, value, end, &rows);
        break;
    }
    if (!ok)
        return bad_value(opt, value, err);
    if (opt->kind == TSR_KIND_BACKEND || opt->kind == TSR_KIND_ROWS)
        return set_text(at, value, err);
    return TSR_OK;
}

/* Is `value` one of the words of `list`? */
static bool in_list(const char *list, const char *value)
{
    size_t n = strlen(value);

    for (const char *p = list; *p; p += strspn(p, " ")) {
        size_t word = strcspn(p, " ");
        if (word == n && strncmp(p, value, n) == 0)
            return true;
        p += word;
    }
    return false;
}

tsr_status tsr_options_set(tsr_options *o, tsr_option_id id, const char *value, tsr_err *err)
{
    const tsr_option *opt = &tsr_option_table[id];

    if (opt->ready && !*opt->ready)
        TSR_FAIL(err, TSR_E_USAGE, "%s is not there yet", opt->name);
    TSR_TRY(set_value(o, opt, value ? value : "", err));
    if (opt->ready && !in_list(opt->ready, value ? value : ""))
        TSR_FAIL(err, TSR_E_USAGE, "%s %s is not there yet (so far: %s)", opt->name, value,
                 opt->ready);
    o->given[id] = true;
    if (id == TSR_OPT_CFG_SCALE)
        o->given[TSR_OPT_GUIDANCE] = true;
    return TSR_OK;
}

/* ---------------------------------------------------------- the line */

/* The option called name[0..n), dashes included, or TSR_OPT_COUNT. */
static tsr_option_id find_option(const char *name, size_t n)
{
    int id = 0;

    while (id < TSR_OPT_COUNT && (strlen(tsr_option_table[id].name) != n ||
                                  strncmp(tsr_option_table[id].name, name, n) != 0))
        id++;
    return (tsr_option_id)id;
}

static tsr_status unknown_option(tsr_command c, const char *name, size_t n, tsr_err *err)
{
    const char *names[TSR_OPT_COUNT];
    int32_t n_names = 0, near;
    char word[48];

    for (int i = 0; i < TSR_OPT_COUNT; i++) {
        if (tsr_option_table[i].commands >> c & 1)
            names[n_names++] = tsr_option_table[i].name;
    }
    n = tsr_min_size(n, sizeof word - 1);
    memcpy(word, name, n);
    word[n] = 0;
    near = tsr_nearest_name(word, names, n_names);
    if (near >= 0)
        TSR_FAIL(err, TSR_E_USAGE, "unknown option %s; did you mean %s?", word, names[near]);
    TSR_FAIL(err, TSR_E_USAGE, "unknown option %s; %s --help lists them", word,
             tsr_command_name(c));
}

static tsr_status wrong_command(tsr_command c, const tsr_option *opt, tsr_err *err)
{
    tsr_buf owners = {0};
    tsr_status st;

    for (int i = 0; i < TSR_COMMAND_COUNT; i++) {
        if (opt->commands >> i & 1)
            tsr_buf_printf(&owners, "%s%s", owners.len ? ", " : "",
                           tsr_command_name((tsr_command)i));
    }
    st = tsr_err_set(err, TSR_E_USAGE, "%s is no option of %s; it belongs to %s", opt->name,
                     tsr_command_name(c), tsr_buf_ok(&owners) ? owners.data : "another command");
    tsr_buf_free(&owners);
    return st;
}

/* Is this argument an option's name, so that it cannot be the value of the one before it? */
static bool is_option(const char *arg)
{
    return find_option(arg, strcspn(arg, "=")) < TSR_OPT_COUNT;
}

/* argv[*i] is "--name" or "--name=value"; moves *i on to the value when that is the next one. */
static tsr_status parse_option(tsr_options *o, int argc, char *const *argv, int *i, tsr_err *err)
{
    const char *name = argv[*i], *value = strchr(name, '=');
    size_t n = value ? (size_t)(value - name) : strlen(name);
    tsr_option_id id = find_option(name, n);
    const tsr_option *opt;

    if (id == TSR_OPT_COUNT)
        return unknown_option(o->command, name, n, err);
    opt = &tsr_option_table[id];
    if (!(opt->commands >> o->command & 1))
        return wrong_command(o->command, opt, err);
    if (opt->kind == TSR_KIND_FLAG) {
        if (value)
            TSR_FAIL(err, TSR_E_USAGE, "%s takes no value", opt->name);
        return tsr_options_set(o, id, NULL, err);
    }
    if (value)
        return tsr_options_set(o, id, value + 1, err);
    if (*i + 1 >= argc)
        TSR_FAIL(err, TSR_E_USAGE, "%s needs a value (%s)", opt->name, opt->value);
    if (is_option(argv[*i + 1]))
        TSR_FAIL(err, TSR_E_USAGE,
                 "%s needs a value (%s) before %s; write %s=%s if that is the value", opt->name,
                 opt->value, argv[*i + 1], opt->name, argv[*i + 1]);
    return tsr_options_set(o, id, argv[++*i], err);
}

static tsr_status parse_command(tsr_options *o, const char *word, tsr_err *err)
{
    const char *names[TSR_COMMAND_COUNT];
    int32_t near;

    for (int i = 0; i < TSR_COMMAND_COUNT; i++) {
        names[i] = i ? tsr_command_table[i].name + strlen("gen ") : "";
        if (i && strcmp(names[i], word) == 0) {
            o->command = (tsr_command)i;
            return TSR_OK;
        }
    }
    near = tsr_nearest_name(word, names + 1, TSR_COMMAND_COUNT - 1);
    if (near >= 0)
        TSR_FAIL(err, TSR_E_USAGE, "unknown command \"%s\"; did you mean gen %s?", word,
                 names[near + 1]);
    TSR_FAIL(err, TSR_E_USAGE, "unknown command \"%s\"; to make a picture write --prompt \"%s\"",
             word, word);
}

static tsr_status check_line(const tsr_options *o, tsr_err *err)
{
    const tsr_command_row *row = &tsr_command_table[o->command];
    bool prompt = o->given[TSR_OPT_PROMPT] || o->given[TSR_OPT_PROMPT_FILE];

    for (size_t i = 0; i < sizeof exclusions / sizeof exclusions[0]; i++) {
        if (o->given[exclusions[i][0]] && o->given[exclusions[i][1]])
            TSR_FAIL(err, TSR_E_USAGE, "%s and %s exclude each other",
                     tsr_option_name(exclusions[i][0]), tsr_option_name(exclusions[i][1]));
    }
    if (!row->ready)
        TSR_FAIL(err, TSR_E_USAGE, "%s is not there yet", row->name);
    if (o->n_args < row->min_args)
        TSR_FAIL(err, TSR_E_USAGE, "%s", row->missing);
    if (row->max_args >= 0 && o->n_args > row->max_args)
        TSR_FAIL(err, TSR_E_USAGE,
                 "unexpected argument \"%s\"; a command comes first, a text is quoted",
                 o->args[row->max_args]);
    if (o->command == TSR_COMMAND_MAKE && !prompt)
        TSR_FAIL(err, TSR_E_USAGE, "what to draw is missing: --prompt TEXT or --prompt-file F");
    return TSR_OK;
}

tsr_status tsr_options_parse(tsr_options *o, int argc, char *const *argv, tsr_err *err)
{
    bool options_over = false;
    int i = 1;

    memset(o, 0, sizeof *o);
    o->args = tsr_calloc((size_t)argc + 1, sizeof *o->args);
    if (!o->args)
        TSR_FAIL(err, TSR_E_OOM, "out of memory while reading the options");
    if (argc > 1 && argv[1][0] != '-')
        TSR_TRY(parse_command(o, argv[i++], err));
    for (; i < argc; i++) {
        const char *arg = argv[i];
        if (options_over || arg[0] != '-' || !arg[1]) {
            o->args[o->n_args++] = arg;
        } else if (strcmp(arg, "--") == 0) {
            options_over = true;
        } else if (arg[1] == '-') {
            TSR_TRY(parse_option(o, argc, argv, &i, err));
            if (o->help || o->version)
                return TSR_OK;
        } else if (strcmp(arg, "-h") == 0) {
            return tsr_options_set(o, TSR_OPT_HELP, NULL, err);
        } else {
            TSR_FAIL(err, TSR_E_USAGE, "unknown option %s; options begin with two dashes", arg);
        }
    }
    return check_line(o, err);
}

void tsr_options_free(tsr_options *o)
{
    for (int i = 0; i < TSR_OPT_COUNT; i++) {
        const tsr_option *opt = &tsr_option_table[i];
        if (opt->kind == TSR_KIND_TEXT || opt->kind == TSR_KIND_BACKEND ||
            opt->kind == TSR_KIND_ROWS)
            tsr_free(*(char **)((char *)o + opt->offset));
    }
    tsr_free(o->args);
    memset(o, 0, sizeof *o);
}

const char *tsr_options_choice(const tsr_options *o, tsr_option_id id)
{
    const tsr_option *opt = &tsr_option_table[id];
    int32_t place;

    if (!o->given[id])
        return NULL;
    memcpy(&place, (const char *)o + opt->offset, sizeof place);
    return opt->choices[place];
}
