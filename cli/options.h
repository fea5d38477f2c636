/* options.h -- gen's command line as one table.
 *
 * Every option is one row of a table (options_table.c): its name, the word for its value, what
 * kind of value that is, its range or its choices, the commands that it belongs to, where the
 * value goes in tsr_options, and its line of help. Parsing, `--help`, range checks, "did you
 * mean" and "not there yet" all read that table, and nothing else knows an option's name.
 * Values of a picture's metadata (gen replay) go in through tsr_options_set as well, so what a
 * file says is checked exactly as what a user types. */
#ifndef TSR_CLI_OPTIONS_H
#define TSR_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text_util.h"

typedef enum tsr_command {
    TSR_COMMAND_MAKE, /* no command word: make pictures */
    TSR_COMMAND_PLAN,
    TSR_COMMAND_INFO,
    TSR_COMMAND_TOKENIZE,
    TSR_COMMAND_BATCH,
    TSR_COMMAND_DECODE,
    TSR_COMMAND_ENCODE,
    TSR_COMMAND_CONVERT,
    TSR_COMMAND_BENCH,
    TSR_COMMAND_REPLAY,
    TSR_COMMAND_COUNT
} tsr_command;

/* In the order of the table and of --help. */
typedef enum tsr_option_id {
    TSR_OPT_MODEL,
    TSR_OPT_PROMPT,
    TSR_OPT_PROMPT_FILE,
    TSR_OPT_NEGATIVE_PROMPT,
    TSR_OPT_PROMPT_2,
    TSR_OPT_NEGATIVE_PROMPT_2,
    TSR_OPT_WIDTH,
    TSR_OPT_HEIGHT,
    TSR_OPT_ORIGINAL_SIZE,
    TSR_OPT_CROP,
    TSR_OPT_TARGET_SIZE,
    TSR_OPT_FRAMES,
    TSR_OPT_STEPS,
    TSR_OPT_GUIDANCE,
    TSR_OPT_CFG_SCALE,
    TSR_OPT_GUIDANCE_RESCALE,
    TSR_OPT_SCHEDULER,
    TSR_OPT_SIGMAS,
    TSR_OPT_PREDICTION_TYPE,
    TSR_OPT_ETA,
    TSR_OPT_CLIP_SKIP,
    TSR_OPT_SEED,
    TSR_OPT_RNG,
    TSR_OPT_NUM,
    TSR_OPT_OUT,
    TSR_OPT_LATENTS,
    TSR_OPT_SAVE_LATENTS,
    TSR_OPT_INIT_IMAGE,
    TSR_OPT_STRENGTH,
    TSR_OPT_MASK,
    TSR_OPT_VAE,
    TSR_OPT_BACKEND,
    TSR_OPT_THREADS,
    TSR_OPT_CPU_TIER,
    TSR_OPT_PRECISION,
    TSR_OPT_BUDGET,
    TSR_OPT_HOST_BUDGET,
    TSR_OPT_STRICT,
    TSR_OPT_OFFLOAD,
    TSR_OPT_TILE,
    TSR_OPT_SPILL_DIR,
    TSR_OPT_JSON,
    TSR_OPT_SWEEP,
    TSR_OPT_PLOT,
    TSR_OPT_DEVICES,
    TSR_OPT_OPS,
    TSR_OPT_REPORT,
    TSR_OPT_QUIET,
    TSR_OPT_VERBOSE,
    TSR_OPT_NO_PROGRESS,
    TSR_OPT_HELP,
    TSR_OPT_VERSION,
    TSR_OPT_COUNT
} tsr_option_id;

/* Zero means: not given. Texts are owned heap copies. A choice holds its place in the row's list,
 * which is the order of the public enum where there is one. */
typedef struct tsr_options {
    tsr_command command;
    bool given[TSR_OPT_COUNT];
    const char **args; /* what is not an option, after the command; pointers into argv */
    int32_t n_args;

    char *model, *prompt, *prompt_file, *negative_prompt, *prompt_2, *negative_prompt_2;
    int32_t width, height;
    int32_t original_size[2], crop[2], target_size[2];
    int32_t frames, steps, clip_skip, num, threads;
    float guidance, guidance_rescale, eta, strength;
    int32_t scheduler, sigmas, prediction_type, rng, cpu_tier, precision, offload;
    uint64_t seed;
    char *out, *latents, *save_latents, *init_image, *mask, *vae;
    char *backend, *tile, *spill_dir, *plot, *report;
    size_t budget, host_budget;
    bool strict, json, sweep, devices, ops, quiet, verbose, no_progress, help, version;
} tsr_options;

/* Reads argv[1..]. Stops with TSR_OK at --help or --version. Everything wrong is TSR_E_USAGE with
 * a sentence that names it; free `o` in any case. */
tsr_status tsr_options_parse(tsr_options *o, int argc, char *const *argv, tsr_err *err);
/* Gives one option a value, as `--name=value` would (NULL: a flag). */
tsr_status tsr_options_set(tsr_options *o, tsr_option_id id, const char *value, tsr_err *err);
void tsr_options_free(tsr_options *o);

/* "--steps", with the dashes. */
const char *tsr_option_name(tsr_option_id id);
/* The word of a choice option's value; NULL when it was not given. */
const char *tsr_options_choice(const tsr_options *o, tsr_option_id id);
/* "gen plan"; "gen" for making pictures. */
const char *tsr_command_name(tsr_command c);

/* The text of `gen [COMMAND] --help`, and the short one of `gen` alone. */
void tsr_options_help(tsr_command c, tsr_buf *out);
void tsr_options_usage(tsr_buf *out);

#endif
