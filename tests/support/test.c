/* test.c -- see test.h. */
#include "tests/support/test.h"

#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TEMP_DIRS = 256 };

static struct {
    const char *name;
    int32_t failures;
    bool skipped;
    int passed, failed, skips;
    char *temp[MAX_TEMP_DIRS];
    int n_temp;
} run;

void test_begin(const char *name)
{
    run.name = name;
    run.failures = 0;
    run.skipped = false;
}

void test_finish(void)
{
    const char *verdict = run.failures ? "FAIL" : run.skipped ? "skip" : "ok";

    run.failed += run.failures != 0;
    run.skips += !run.failures && run.skipped;
    run.passed += !run.failures && !run.skipped;
    if (!run.skipped || run.failures)
        printf("%-4s %s\n", verdict, run.name);
    fflush(stdout);
}

void test_failed(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    const char *base = strrchr(file, '/');

    if (run.failures++ >= 20)
        return; /* the first twenty say enough */
    printf("     %s:%d: ", base ? base + 1 : file, line);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

void test_skipped(const char *why)
{
    run.skipped = true;
    printf("skip %s: %s\n", run.name, why);
}

void test_note(const char *fmt, ...)
{
    va_list args;

    printf("     ");
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

int32_t test_failures(void)
{
    return run.failures;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int test_end(void)
{
    for (int i = 0; i < run.n_temp; i++) {
        (void)nftw(run.temp[i], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        free(run.temp[i]);
    }
    printf("%d passed, %d failed, %d skipped\n", run.passed, run.failed, run.skips);
    return run.failed != 0;
}

double test_rel_l2(const float *a, const float *b, size_t n)
{
    double diff = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        if (!isfinite(a[i]))
            return INFINITY;
        diff += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

double test_max_abs_diff(const float *a, const float *b, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return INFINITY;
        most = d > most ? d : most;
    }
    return most;
}

const char *test_reference_dir(void)
{
    static char path[4096];
    const char *env = getenv("TSR_REFERENCE_DIR");
    struct stat st;

    snprintf(path, sizeof path, "%s", env && *env ? env : TSR_SOURCE_DIR "/../shared/reference");
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? path : NULL;
}

bool test_long(void)
{
    const char *env = getenv("TSR_LONG_TESTS");

    return env && *env && strcmp(env, "0") != 0;
}

const char *test_temp_dir(void)
{
    const char *base = getenv("TMPDIR");
    char path[4096];

    snprintf(path, sizeof path, "%s/tessera-test-XXXXXX", base && *base ? base : "/tmp");
    if (run.n_temp == MAX_TEMP_DIRS || !mkdtemp(path)) {
        fprintf(stderr, "no temporary directory\n");
        exit(1);
    }
    run.temp[run.n_temp] = strdup(path);
    return run.temp[run.n_temp++];
}
