/* meta.c -- a picture's values become options. */
#include "cli/meta.h"

#include <string.h>

#include "base/alloc.h"

tsr_status tsr_meta_put(char **slot, const char *text, size_t bytes, tsr_err *err)
{
    if (*slot)
        return TSR_OK;
    *slot = tsr_malloc(bytes + 1);
    if (!*slot)
        TSR_FAIL(err, TSR_E_OOM, "out of memory while reading the picture's settings");
    memcpy(*slot, text, bytes);
    (*slot)[bytes] = 0;
    return TSR_OK;
}

/* A size condition that only repeats the picture's size is left out: it is the default, and stays
 * right when the command line asks for another size. */
static bool repeats_size(const tsr_meta *m, tsr_option_id id)
{
    const char *pair = m->value[id], *w = m->value[TSR_OPT_WIDTH], *h = m->value[TSR_OPT_HEIGHT];
    size_t n;

    if ((id != TSR_OPT_ORIGINAL_SIZE && id != TSR_OPT_TARGET_SIZE) || !w || !h)
        return false;
    n = strlen(w);
    return strncmp(pair, w, n) == 0 && pair[n] == 'x' && strcmp(pair + n + 1, h) == 0;
}

tsr_status tsr_meta_apply(const tsr_meta *m, tsr_options *o, tsr_err *err)
{
    for (int i = 0; i < TSR_OPT_COUNT; i++) {
        tsr_option_id id = (tsr_option_id)i;
        tsr_status st;
        if (!m->value[id] || o->given[id] || repeats_size(m, id))
            continue;
        if (id == TSR_OPT_PROMPT && o->given[TSR_OPT_PROMPT_FILE])
            continue;
        st = tsr_options_set(o, id, m->value[id], err);
        if (st == TSR_E_USAGE)
            return tsr_err_prefix(err, TSR_E_MODEL, "the picture's settings");
        TSR_TRY(st);
    }
    return TSR_OK;
}

void tsr_meta_free(tsr_meta *m)
{
    for (int i = 0; i < TSR_OPT_COUNT; i++)
        tsr_free(m->value[i]);
    tsr_free(m->model);
    tsr_free(m->model_hash);
    *m = (tsr_meta){0};
}
