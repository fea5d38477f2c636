/* meta.h -- what a picture's texts say about how it was made, as options of gen.
 *
 * Both texts are read into the same thing: for each option the value as it would stand on the
 * command line, or NULL. Nothing is believed yet; tsr_meta_apply hands the values to
 * tsr_options_set, which checks them as if they had been typed. What a text says that gen cannot
 * do is a warning by name. */
#ifndef TSR_CLI_META_H
#define TSR_CLI_META_H

#include "base/log.h"
#include "cli/options.h"

typedef struct tsr_meta {
    char *value[TSR_OPT_COUNT];
    char *model, *model_hash; /* as written; NULL when not there */
    bool own_latents;         /* the start noise was given and not drawn */
} tsr_meta;

/* The JSON record of our own pictures. TSR_E_MODEL when it is no JSON object, lacks a prompt or
 * a seed, or has a value of the wrong type; keys that are not ours are skipped. */
tsr_status tsr_meta_from_record(tsr_meta *m, const char *json, size_t bytes, tsr_err *err);

/* A1111's "parameters": the prompt, "Negative prompt: ...", and a last line "Steps: 20, Sampler:
 * Euler a, ...". TSR_E_MODEL when there is no such line. */
tsr_status tsr_meta_from_a1111(tsr_meta *m, const char *text, const tsr_log *log, tsr_err *err);

/* Gives `o` every value that its command line did not. TSR_E_MODEL for one that is no valid value
 * of its option. */
tsr_status tsr_meta_apply(const tsr_meta *m, tsr_options *o, tsr_err *err);

/* Copies text[0..bytes) to be the option's value; a value that is there already stays. */
tsr_status tsr_meta_put(char **slot, const char *text, size_t bytes, tsr_err *err);
void tsr_meta_free(tsr_meta *m);

#endif
