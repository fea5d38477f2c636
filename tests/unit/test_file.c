/* test_file.c -- reading, paths, and output that is there whole or not at all. */
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "tests/support/test.h"

enum { PATH_BYTES = 5000 };

static char path[PATH_BYTES];

/* `name` in a new temporary directory. */
static const char *fresh_path(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", test_temp_dir(), name);
    return path;
}

static void put_file(const char *p, const char *text)
{
    FILE *f = fopen(p, "wb");

    CHECK(f);
    if (!f)
        return;
    fputs(text, f);
    fclose(f);
}

static bool file_has(const char *p, const char *text)
{
    char *got = NULL;
    tsr_err err;
    bool same = tsr_file_slurp(p, 1 << 20, &got, NULL, &err) == TSR_OK && strcmp(got, text) == 0;

    tsr_free(got);
    return same;
}

/* Entries of the directory that `p` is in. */
static int count_entries(const char *p)
{
    char dir[PATH_BYTES];
    DIR *d;
    int n = -2; /* . and .. */

    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(p, '/') - p), p);
    d = opendir(dir);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void file_read__any_range__is_exact(void)
{
    tsr_file f;
    tsr_err err = {0};
    char buf[8] = "......";
    int stdin_flags = fcntl(0, F_GETFD);

    put_file(fresh_path("data"), "0123456789");
    REQUIRE(tsr_file_open(&f, path, &err) == TSR_OK);
    CHECK(f.size == 10 && strcmp(f.path, path) == 0);
    CHECK(fcntl(f.fd, F_GETFD) & FD_CLOEXEC);
    CHECK(tsr_file_read(&f, 3, buf, 4, &err) == TSR_OK && memcmp(buf, "3456..", 6) == 0);
    CHECK(tsr_file_read(&f, 10, buf, 0, &err) == TSR_OK);
    CHECK(tsr_file_read(&f, 9, buf, 1, &err) == TSR_OK && buf[0] == '9');
    tsr_file_close(&f);
    CHECK(f.fd == -1 && !f.path);
    tsr_file_close(&f);
    f = (tsr_file){0};
    tsr_file_close(&f);
    CHECK(fcntl(0, F_GETFD) == stdin_flags); /* a zeroed struct holds descriptor 0: not its own */
    CHECK(tsr_file_read(&f, 0, buf, 1, &err) == TSR_E_INTERNAL);
}

static void file_read__past_the_end__says_file_and_byte(void)
{
    tsr_file f;
    tsr_err err = {0};
    char buf[8];

    put_file(fresh_path("short.bin"), "0123456789");
    REQUIRE(tsr_file_open(&f, path, &err) == TSR_OK);
    CHECK(tsr_file_read(&f, 5, buf, 8, &err) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, "short.bin") && strstr(err.msg, "byte 10"), "%s", err.msg);
    CHECK(tsr_file_read(&f, SIZE_MAX - 2, buf, 8, &err) == TSR_E_IO);
    CHECK(tsr_file_read(&f, (size_t)1 << 63, buf, 1, &err) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, "out of range"), "%s", err.msg);
    tsr_file_close(&f);
}

static void file_open__not_a_regular_file__is_refused(void)
{
    tsr_file f;
    tsr_err err = {0};

    CHECK(tsr_file_open(&f, fresh_path("missing"), &err) == TSR_E_IO && f.fd == -1);
    CHECK_MSG(strstr(err.msg, "missing") && strstr(err.msg, "No such file"), "%s", err.msg);
    CHECK(tsr_file_open(&f, "/", &err) == TSR_E_IO && strstr(err.msg, "directory"));
    CHECK(tsr_file_open(&f, "/dev/null", &err) == TSR_E_IO && strstr(err.msg, "regular"));
    REQUIRE(mkfifo(fresh_path("pipe"), 0600) == 0); /* with no writer: must not block */
    CHECK(tsr_file_open(&f, path, &err) == TSR_E_IO && strstr(err.msg, "regular"));
    tsr_file_close(&f);
}

static void file_slurp__a_text__is_zero_terminated_and_bounded(void)
{
    char *text = NULL;
    size_t len = 77;
    tsr_err err = {0};

    put_file(fresh_path("text"), "hello");
    CHECK(tsr_file_slurp(path, 5, &text, &len, &err) == TSR_OK);
    CHECK(text && strcmp(text, "hello") == 0 && len == 5);
    tsr_free(text);
    text = NULL;
    CHECK(tsr_file_slurp(path, 4, &text, &len, &err) == TSR_E_MODEL && !text);
    CHECK_MSG(strstr(err.msg, "5 bytes") && strstr(err.msg, path), "%s", err.msg);
    put_file(path, "");
    CHECK(tsr_file_slurp(path, 4, &text, &len, &err) == TSR_OK && text && *text == 0 && len == 0);
    tsr_free(text);
}

static void file_slurp__every_failing_call__is_a_clean_error(void)
{
    tsr_err err = {0};
    char *text = NULL;
    size_t live;

    put_file(fresh_path("text"), "hello");
    live = tsr_alloc_live();
    tsr_io_fail_at(1);
    CHECK(tsr_file_slurp(path, 9, &text, NULL, &err) == TSR_E_IO && tsr_io_failed() && !text);
    CHECK_MSG(strstr(err.msg, path), "%s", err.msg);
    tsr_io_fail_at(0);
    for (uint64_t n = 1; n <= 2; n++) {
        tsr_alloc_fail_at(n);
        CHECK(tsr_file_slurp(path, 9, &text, NULL, &err) == TSR_E_OOM && tsr_alloc_failed());
    }
    tsr_alloc_fail_at(0);
    CHECK(!text && tsr_alloc_live() == live);
}

static void file_peek__system_files__are_read_without_the_heap(void)
{
    char text[256], few[4];
    uint64_t before = tsr_alloc_count();

    tsr_io_fail_at(1);
    CHECK(tsr_file_peek("/proc/self/status", text, sizeof text) && strncmp(text, "Name:", 5) == 0);
    CHECK(tsr_file_peek("/proc/self/status", few, sizeof few) && strcmp(few, "Nam") == 0);
    CHECK(!tsr_file_peek("/proc/self/nothing", text, sizeof text));
    CHECK(!tsr_io_failed() && tsr_alloc_count() == before);
    tsr_io_fail_at(0);
}

static void path__kinds_and_joins__are_right(void)
{
    char *joined = tsr_path_join("a/b", "c");

    put_file(fresh_path("f"), "");
    CHECK(tsr_path_is_file(path) && !tsr_path_is_dir(path));
    CHECK(tsr_path_is_dir("/") && !tsr_path_is_file("/"));
    CHECK(!tsr_path_is_file("/missing") && !tsr_path_is_dir("/missing"));
    CHECK(tsr_path_is_absent("/missing") && !tsr_path_is_absent("/") && !tsr_path_is_absent(path));
    CHECK(joined && strcmp(joined, "a/b/c") == 0);
    tsr_free(joined);
    joined = tsr_path_join("a/", "c");
    CHECK(joined && strcmp(joined, "a/c") == 0);
    tsr_free(joined);
    joined = tsr_path_join("", "c");
    CHECK(joined && strcmp(joined, "c") == 0);
    tsr_free(joined);
    tsr_alloc_fail_at(1);
    CHECK(!tsr_path_join("a", "c"));
    tsr_alloc_fail_at(0);
}

static void path_make_parents__missing_levels__are_made(void)
{
    tsr_err err = {0};
    char dir[PATH_BYTES];

    fresh_path("a/b//c/file.png");
    snprintf(dir, sizeof dir, "%.*s", (int)(strstr(path, "/file.png") - path), path);
    CHECK(tsr_make_parent_dirs(path, &err) == TSR_OK);
    CHECK(tsr_path_is_dir(dir));
    CHECK(tsr_make_parent_dirs(path, &err) == TSR_OK);
    CHECK(tsr_make_parent_dirs("plain-name", &err) == TSR_OK);
    CHECK(tsr_make_parent_dirs("/", &err) == TSR_OK && tsr_make_parent_dirs("", &err) == TSR_OK);
    put_file(fresh_path("file"), "");
    strcat(path, "/x/y");
    CHECK(tsr_make_parent_dirs(path, &err) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, "/file"), "%s", err.msg);
}

static void out__committed__replaces_the_file_and_keeps_its_mode(void)
{
    tsr_out o;
    tsr_err err = {0};
    struct stat st;

    put_file(fresh_path("picture.png"), "old");
    REQUIRE(chmod(path, 0640) == 0);
    REQUIRE(tsr_out_open(&o, path, &err) == TSR_OK);
    CHECK(tsr_out_write(&o, "new ", 4, &err) == TSR_OK);
    CHECK(file_has(path, "old"));
    CHECK(tsr_out_write(&o, "text", 4, &err) == TSR_OK);
    CHECK(tsr_out_write(&o, NULL, 0, &err) == TSR_OK);
    CHECK(tsr_out_commit(&o, &err) == TSR_OK);
    CHECK(file_has(path, "new text"));
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0640);
    CHECK(count_entries(path) == 1);
    tsr_out_abort(&o); /* finished: nothing */
    CHECK(file_has(path, "new text"));
    CHECK(tsr_out_write(&o, "x", 1, &err) == TSR_E_INTERNAL);
    CHECK(tsr_out_commit(&o, &err) == TSR_E_INTERNAL);
}

static void out__a_new_file__has_the_mode_of_the_umask(void)
{
    tsr_out o;
    tsr_err err = {0};
    struct stat st;
    mode_t before = umask(027);

    REQUIRE(tsr_out_open(&o, fresh_path("new/dir/x.png"), &err) == TSR_OK);
    umask(before);
    CHECK(tsr_out_commit(&o, &err) == TSR_OK);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0640 && st.st_size == 0);
}

static void out__aborted__leaves_everything_as_it_was(void)
{
    tsr_out o, zeroed = {0};
    tsr_err err = {0};

    put_file(fresh_path("kept"), "old");
    REQUIRE(tsr_out_open(&o, path, &err) == TSR_OK);
    CHECK(tsr_out_write(&o, "new", 3, &err) == TSR_OK);
    CHECK(count_entries(path) == (o.unnamed ? 1 : 2));
    tsr_out_abort(&o);
    tsr_out_abort(&o);
    tsr_out_abort(&zeroed);
    CHECK(file_has(path, "old") && count_entries(path) == 1);
}

static void out__impossible_targets__are_refused(void)
{
    tsr_out o;
    tsr_err err = {0};
    struct stat st;

    CHECK(tsr_out_open(&o, "/", &err) == TSR_E_IO);
    CHECK(tsr_out_open(&o, "", &err) == TSR_E_IO);
    CHECK(tsr_out_open(&o, "/dev/null", &err) == TSR_E_IO && strstr(err.msg, "regular"));
    CHECK(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    REQUIRE(mkdir(fresh_path("dir"), 0777) == 0);
    CHECK(tsr_out_open(&o, path, &err) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, path) && strstr(err.msg, "directory"), "%s", err.msg);
    CHECK(count_entries(path) == 1);
    tsr_out_abort(&o);
}

static void out__a_symbolic_link__stays_and_its_target_is_replaced(void)
{
    tsr_out o;
    tsr_err err = {0};
    char link[PATH_BYTES + 8];
    struct stat st;

    put_file(fresh_path("target"), "old");
    snprintf(link, sizeof link, "%s.link", path);
    REQUIRE(symlink("target", link) == 0);
    REQUIRE(tsr_out_open(&o, link, &err) == TSR_OK);
    CHECK(tsr_out_write(&o, "new", 3, &err) == TSR_OK);
    CHECK(tsr_out_commit(&o, &err) == TSR_OK);
    CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(file_has(path, "new"));
}

/* Of a process that is killed nothing is left, where the file system has files without a name. */
static void out__killed_before_the_commit__leaves_nothing(void)
{
    tsr_out o;
    tsr_err err = {0};
    int status = 0;
    pid_t child;

    put_file(fresh_path("kept"), "old");
    REQUIRE(tsr_out_open(&o, path, &err) == TSR_OK);
    tsr_out_abort(&o);
    child = fork();
    if (child == 0) {
        bool ok = tsr_out_open(&o, path, &err) == TSR_OK &&
                  tsr_out_write(&o, "new", 3, &err) == TSR_OK && o.unnamed;
        raise(ok ? SIGKILL : SIGTERM);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    if (WTERMSIG(status) != SIGKILL)
        SKIP("a file system with files without a name (O_TMPFILE)");
    CHECK(file_has(path, "old") && count_entries(path) == 1);
}

static void out__a_dangling_link__stays_and_its_target_is_made(void)
{
    static const char *const rows[][2] = {{"a.link", "target"}, {"b.link", "a.link"}};
    tsr_out o;
    tsr_err err = {0};
    char link[PATH_BYTES + 8], target[PATH_BYTES + 8];
    struct stat st;

    for (size_t i = 0; i < 2; i++) { /* b.link -> a.link -> target; the target is taken away */
        put_file(fresh_path("target"), "gone");
        snprintf(target, sizeof target, "%s", path);
        unlink(target);
        for (size_t k = 0; k <= i; k++) {
            snprintf(link, sizeof link, "%.*s%s", (int)(strrchr(target, '/') + 1 - target), target,
                     rows[k][0]);
            REQUIRE(symlink(rows[k][1], link) == 0);
        }
        REQUIRE(tsr_out_open(&o, link, &err) == TSR_OK);
        CHECK(tsr_out_write(&o, "new", 3, &err) == TSR_OK && tsr_out_commit(&o, &err) == TSR_OK);
        CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
        CHECK(lstat(target, &st) == 0 && S_ISREG(st.st_mode) && file_has(target, "new"));
    }
    REQUIRE(symlink("loop", fresh_path("loop")) == 0);
    CHECK(tsr_out_open(&o, path, &err) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, path) && lstat(path, &st) == 0 && S_ISLNK(st.st_mode), "%s", err.msg);
    tsr_out_abort(&o);
    REQUIRE(symlink("no/such/folder/x", fresh_path("far")) == 0);
    CHECK(tsr_out_open(&o, path, &err) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, "no/such/folder/x"), "%s", err.msg);
    tsr_out_abort(&o);
}

static void out__a_name_of_255_bytes__is_possible(void)
{
    tsr_out o;
    tsr_err err = {0};
    char name[256];

    memset(name, 'n', 255);
    name[255] = 0;
    REQUIRE(tsr_out_open(&o, fresh_path(name), &err) == TSR_OK);
    CHECK(tsr_out_commit(&o, &err) == TSR_OK && tsr_path_is_file(path));
}

static void out__failing_writes_and_allocations__leave_no_trace(void)
{
    tsr_out o;
    tsr_err err = {0};
    size_t live;

    put_file(fresh_path("kept"), "old");
    live = tsr_alloc_live();
    for (uint64_t n = 1;; n++) {
        tsr_status st;
        tsr_alloc_fail_at(n);
        st = tsr_out_open(&o, path, &err);
        if (!tsr_alloc_failed()) {
            CHECK(n > 3 && st == TSR_OK);
            break;
        }
        CHECK(st == TSR_E_OOM && count_entries(path) == 1 && tsr_alloc_live() == live);
    }
    tsr_alloc_fail_at(0);
    tsr_io_fail_at(2);
    CHECK(tsr_out_write(&o, "a", 1, &err) == TSR_OK);
    CHECK(tsr_out_write(&o, "b", 1, &err) == TSR_E_IO && tsr_io_failed());
    CHECK_MSG(strstr(err.msg, "cannot write") && strstr(err.msg, path), "%s", err.msg);
    tsr_io_fail_at(0);
    tsr_out_abort(&o);
    CHECK(file_has(path, "old") && count_entries(path) == 1 && tsr_alloc_live() == live);
}

/* The kernel's own failure: a limit on the size of files (as a full disk). */
static void out__a_full_disk__is_an_error_and_keeps_the_old_file(void)
{
    static char block[8192];
    struct rlimit before, small;
    tsr_out o;
    tsr_err err = {0};

    put_file(fresh_path("kept"), "old");
    REQUIRE(tsr_out_open(&o, path, &err) == TSR_OK);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = before;
    small.rlim_cur = 4096;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(tsr_out_write(&o, block, sizeof block, &err) == TSR_E_IO);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_MSG(strstr(err.msg, "File too large"), "%s", err.msg);
    tsr_out_abort(&o);
    CHECK(file_has(path, "old") && count_entries(path) == 1);
}

static void out__a_target_that_became_a_directory__fails_at_commit(void)
{
    tsr_out o;
    tsr_err err = {0};

    REQUIRE(tsr_out_open(&o, fresh_path("x"), &err) == TSR_OK);
    REQUIRE(mkdir(path, 0777) == 0);
    CHECK(tsr_out_commit(&o, &err) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, path), "%s", err.msg);
    CHECK(count_entries(path) == 1 && !o.path && !o.tmp_path);
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    RUN(file_read__any_range__is_exact);
    RUN(file_read__past_the_end__says_file_and_byte);
    RUN(file_open__not_a_regular_file__is_refused);
    RUN(file_slurp__a_text__is_zero_terminated_and_bounded);
    RUN(file_slurp__every_failing_call__is_a_clean_error);
    RUN(file_peek__system_files__are_read_without_the_heap);
    RUN(path__kinds_and_joins__are_right);
    RUN(path_make_parents__missing_levels__are_made);
    RUN(out__committed__replaces_the_file_and_keeps_its_mode);
    RUN(out__a_new_file__has_the_mode_of_the_umask);
    RUN(out__aborted__leaves_everything_as_it_was);
    RUN(out__impossible_targets__are_refused);
    RUN(out__a_symbolic_link__stays_and_its_target_is_replaced);
    RUN(out__killed_before_the_commit__leaves_nothing);
    RUN(out__a_dangling_link__stays_and_its_target_is_made);
    RUN(out__a_name_of_255_bytes__is_possible);
    RUN(out__failing_writes_and_allocations__leave_no_trace);
    RUN(out__a_full_disk__is_an_error_and_keeps_the_old_file);
    RUN(out__a_target_that_became_a_directory__fails_at_commit);
    return test_end();
}
