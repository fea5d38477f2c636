/* test_out_path.c -- --out's patterns and the paths that come of them. */
#include "cli/out_path.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "tests/support/test.h"

static void out_path__patterns__become_paths(void)
{
    static const struct {
        const char *pattern;
        uint64_t seed;
        int32_t index, n;
        const char *want;
    } rows[] = {
        {NULL, 7, 0, 1, "out/7.png"},
        {"a.png", 7, 0, 1, "a.png"},
        {"a.PNG", 7, 0, 1, "a.PNG"},
        {"a.png", 7, 0, 2, "a-0.png"},
        {"d.x/a.png", 7, 11, 12, "d.x/a-11.png"},
        {"{seed}/{index}.png", UINT64_MAX, 3, 4, "18446744073709551615/3.png"},
        {"{seed}.png", 8, 1, 2, "8.png"},
        {"x{index}{index}.png", 8, 1, 2, "x11.png"},
        {"a}.png", 8, 0, 1, "a}.png"},
        {"a.png.png", 8, 1, 2, "a.png-1.png"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = NULL;
        CHECK(tsr_out_path_check(rows[i].pattern, NULL) == TSR_OK);
        CHECK(tsr_out_path_make(rows[i].pattern, rows[i].seed, rows[i].index, rows[i].n, &path,
                                NULL) == TSR_OK);
        CHECK_MSG(path && strcmp(path, rows[i].want) == 0, "%s is %s", rows[i].want, path);
        tsr_free(path);
    }
}

static void out_path__wrong_patterns__are_usage_errors(void)
{
    static const char *const rows[] = {"",       "a",         "a.jpg",      ".png",
                                       "d/.png", "png",       "a.png/",     "{sed}.png",
                                       "{}.png", "{seed.png", "{SEED}.png", "{{seed}}.png"};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_err err = {0};
        CHECK_MSG(tsr_out_path_check(rows[i], &err) == TSR_E_USAGE && strstr(err.msg, "--out"),
                  "\"%s\": %s", rows[i], err.msg);
    }
}

static void out_path__probe__leaves_nothing_but_directories(void)
{
    char *path = tsr_path_join(test_temp_dir(), "a/b/c.png");
    char *below = tsr_path_join("/proc/self/nothing", "c.png");
    char *dir = tsr_path_join(test_temp_dir(), "");
    tsr_err err = {0};

    CHECK(tsr_out_path_probe(path, NULL) == TSR_OK && !tsr_path_is_file(path));
    CHECK(tsr_out_path_probe(below, &err) == TSR_E_IO && *err.msg);
    CHECK(tsr_out_path_probe(dir, &err) == TSR_E_IO);
    tsr_free(path);
    tsr_free(below);
    tsr_free(dir);
}

int main(void)
{
    RUN(out_path__patterns__become_paths);
    RUN(out_path__wrong_patterns__are_usage_errors);
    RUN(out_path__probe__leaves_nothing_but_directories);
    return test_end();
}
