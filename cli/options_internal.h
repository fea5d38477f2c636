/* options_internal.h -- the rows of the option table and of the command table. */
#ifndef TSR_CLI_OPTIONS_INTERNAL_H
#define TSR_CLI_OPTIONS_INTERNAL_H

#include "cli/options.h"

typedef enum tsr_option_kind {
    TSR_KIND_FLAG,    /* bool */
    TSR_KIND_TEXT,    /* char * */
    TSR_KIND_INT,     /* int32_t in min .. max */
    TSR_KIND_U64,     /* uint64_t, all of it */
    TSR_KIND_FLOAT,   /* float in min .. max, finite */
    TSR_KIND_SIZE,    /* int32_t[2], WxH, each in min .. max */
    TSR_KIND_POINT,   /* int32_t[2], X,Y, each in min .. max */
    TSR_KIND_BYTES,   /* size_t, tsr_budget_parse */
    TSR_KIND_CHOICE,  /* int32_t: place in `choices` */
    TSR_KIND_BACKEND, /* char *: auto, cpu, cuda[:N], cuda-sim */
    TSR_KIND_ROWS     /* char *: auto, or a number in min .. max */
} tsr_option_kind;

typedef struct tsr_option {
    const char *name;  /* with its dashes */
    const char *value; /* the word for its value in --help; NULL: a flag */
    tsr_option_kind kind;
    uint32_t commands; /* bit 1 << tsr_command */
    size_t offset;     /* of its member in tsr_options */
    double min, max;
    const char *const *choices; /* NULL-terminated */
    const char *ready;          /* NULL: all of it works. Else the values that do, separated by
                                   spaces; others are "not there yet" */
    const char *help;
} tsr_option;

typedef struct tsr_command_row {
    const char *name; /* "gen plan"; "gen" for making pictures */
    const char *args; /* what follows it in the usage line */
    bool ready;
    int32_t min_args, max_args;
    const char *missing; /* the sentence for too few arguments */
    const char *help;
} tsr_command_row;

extern const tsr_option tsr_option_table[TSR_OPT_COUNT];
extern const tsr_command_row tsr_command_table[TSR_COMMAND_COUNT];

#endif
