/* out_path.c -- see out_path.h.
 *
 * A brace always begins a placeholder, so that a misspelt one is an error before the run and not
 * a file named "{sed}.png" after it. */
#include "cli/out_path.h"

#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/text_util.h"

static const char default_pattern[] = "out/{seed}.png";
static const char extension[] = ".png";

typedef enum placeholder { NO_PLACEHOLDER, SEED, INDEX, UNKNOWN } placeholder;

/* What begins at p; *n is its length. */
static placeholder placeholder_at(const char *p, size_t *n)
{
    *n = 1;
    if (*p != '{')
        return NO_PLACEHOLDER;
    if (strncmp(p, "{seed}", *n = strlen("{seed}")) == 0)
        return SEED;
    if (strncmp(p, "{index}", *n = strlen("{index}")) == 0)
        return INDEX;
    *n = strcspn(p, "}") + 1;
    return UNKNOWN;
}

tsr_status tsr_out_path_check(const char *pattern, tsr_err *err)
{
    size_t len, n;

    pattern = pattern ? pattern : default_pattern;
    len = strlen(pattern);
    if (len < sizeof extension || strcasecmp(pattern + len - 4, extension) != 0 ||
        pattern[len - 5] == '/')
        TSR_FAIL(err, TSR_E_USAGE, "--out \"%s\" does not end in .png, the one format there is",
                 pattern);
    for (const char *p = pattern; *p; p += n) {
        if (placeholder_at(p, &n) == UNKNOWN)
            TSR_FAIL(err, TSR_E_USAGE, "--out \"%s\": there are {seed} and {index}, but not %.*s",
                     pattern, (int)n, p);
    }
    return TSR_OK;
}

tsr_status tsr_out_path_make(const char *pattern, uint64_t seed, int32_t index, int32_t n_pictures,
                             char **path, tsr_err *err)
{
    tsr_buf b = {0};
    size_t len, n;
    bool distinct = n_pictures == 1;

    pattern = pattern ? pattern : default_pattern;
    len = strlen(pattern);
    for (const char *p = pattern; *p; p += n) {
        placeholder what = placeholder_at(p, &n);
        if (!distinct && p == pattern + len - strlen(extension))
            tsr_buf_printf(&b, "-%d", index);
        if (what == SEED)
            tsr_buf_printf(&b, "%llu", (unsigned long long)seed);
        else if (what == INDEX)
            tsr_buf_printf(&b, "%d", index);
        else
            tsr_buf_append(&b, p, n);
        distinct = distinct || what != NO_PLACEHOLDER;
    }
    if (!tsr_buf_ok(&b)) {
        tsr_buf_free(&b);
        TSR_FAIL(err, TSR_E_OOM, "out of memory for a file name");
    }
    *path = b.data;
    return TSR_OK;
}

tsr_status tsr_out_path_probe(const char *path, tsr_err *err)
{
    tsr_out out;

    TSR_TRY(tsr_out_open(&out, path, err));
    tsr_out_abort(&out);
    return TSR_OK;
}
