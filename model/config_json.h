/* config_json.h -- typed, named access to the fields of a small JSON config.
 *
 *     tsr_cfg c;
 *     TSR_TRY_GOTO(tsr_cfg_open(&c, json, "unet/config.json", log, err));
 *     TSR_TRY_GOTO(tsr_cfg_int(&c, "in_channels", 4, (int32_t[]){1, 16384}, &u.in_channels));
 *     ...
 *     tsr_cfg_report_unknown(&c);
 *  done:
 *     tsr_cfg_close(&c);
 *
 * Every getter gives the default for an absent field and checks type and range; on failure it
 * writes a sentence with the file, the field, its value and what would be accepted (TSR_E_MODEL),
 * and the result is not to be used. */
#ifndef TSR_MODEL_CONFIG_JSON_H
#define TSR_MODEL_CONFIG_JSON_H

#include <cjson/cJSON.h>

#include "base/folder.h"
#include "base/log.h"

enum { TSR_CFG_MAX_FIELDS = 96, TSR_CFG_MAX_BYTES = 1 << 20 };

typedef struct tsr_cfg {
    cJSON *tree;      /* owned */
    const cJSON *obj; /* whose fields are read: the tree, or an object in it */
    const char *name; /* of the file, for messages; not owned */
    const tsr_log *log;
    tsr_err *err;
    const cJSON *seen[TSR_CFG_MAX_FIELDS]; /* fields that were asked for */
    int32_t n_seen;
} tsr_cfg;

/* The text of a config file, at most TSR_CFG_MAX_BYTES; free it with tsr_free. A file that is not
 * there is TSR_E_MODEL: a part of the model is missing. */
tsr_status tsr_cfg_slurp(const char *path, char **json, tsr_err *err);
/* The same of a file in a folder. */
tsr_status tsr_cfg_read(const tsr_folder *folder, const char *name, char **json, tsr_err *err);

/* Strict JSON whose top is an object. On failure there is nothing to close. */
tsr_status tsr_cfg_open(tsr_cfg *c, const char *json, const char *name, const tsr_log *log,
                        tsr_err *err);
void tsr_cfg_close(tsr_cfg *c); /* accepts a zeroed one */

/* The field, or NULL when it is absent. A field that is there twice is an error. */
tsr_status tsr_cfg_get(tsr_cfg *c, const char *key, const cJSON **item);

/* A whole number in range. */
tsr_status tsr_cfg_int(tsr_cfg *c, const char *key, int32_t absent, const int32_t range[2],
                       int32_t *out);
/* The same, and null gives `absent`, too. */
tsr_status tsr_cfg_int_or_null(tsr_cfg *c, const char *key, int32_t absent, const int32_t range[2],
                               int32_t *out);
/* One number for all n, or a list of n. */
tsr_status tsr_cfg_ints(tsr_cfg *c, const char *key, int32_t absent, const int32_t range[2],
                        int32_t n, int32_t *out);
/* A list of 1..max numbers. On entry *n and out[] hold the default, which an absent field leaves.
 */
tsr_status tsr_cfg_int_list(tsr_cfg *c, const char *key, const int32_t range[2], int32_t max,
                            int32_t *n, int32_t *out);
/* A finite number in range; null gives `absent`, too. */
tsr_status tsr_cfg_float(tsr_cfg *c, const char *key, float absent, const float range[2],
                         float *out);
/* null or absent: *n = 0; else exactly `count` finite numbers. */
tsr_status tsr_cfg_floats(tsr_cfg *c, const char *key, int32_t count, int32_t *n, float *out);
/* null is false, as in Python. */
tsr_status tsr_cfg_bool(tsr_cfg *c, const char *key, bool absent, bool *out);
/* One of the words in `choices` ("silu|swish"), the first when absent; *index says which. */
tsr_status tsr_cfg_word(tsr_cfg *c, const char *key, const char *choices, int32_t *index);
/* A list of 1..max words of `choices`; *n and out[] hold the default on entry. */
tsr_status tsr_cfg_word_list(tsr_cfg *c, const char *key, const char *choices, int32_t max,
                             int32_t *n, int32_t *out);
/* A text of less than `bytes` bytes; "" when absent or null. */
tsr_status tsr_cfg_text(tsr_cfg *c, const char *key, char *out, size_t bytes);

/* A field that changes the computation and has one supported value, which is also its default:
 * off (null or false), one of some words, or a number. */
typedef struct tsr_cfg_fixed {
    const char *key;
    enum { TSR_CFG_OFF, TSR_CFG_WORD, TSR_CFG_NUMBER } kind;
    const char *words;
    double number;
} tsr_cfg_fixed;
tsr_status tsr_cfg_check_fixed(tsr_cfg *c, const tsr_cfg_fixed *fields, size_t n);

/* A message for each field that nobody asked for, a warning where it is set to something, but those
 * that begin with '_' and those in `silent` ("dropout|..."), which change nothing here. */
void tsr_cfg_report_unknown(const tsr_cfg *c, const char *silent);

/* TSR_E_MODEL: "<file>: <key> <value> is not supported; <what>". */
tsr_status tsr_cfg_unsupported(const tsr_cfg *c, const char *key, const cJSON *item,
                               const char *what);

/* Place of `word` in "a|b|c", or -1. */
int32_t tsr_cfg_word_index(const char *choices, const char *word);

#endif
