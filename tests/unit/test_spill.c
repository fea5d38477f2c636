/* test_spill.c -- what is spilled comes back; places that cannot take it are told in a sentence. */
#include "memory/spill.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text_util.h"
#include "tests/support/test.h"

enum { BYTES = 1 << 20 };

static int32_t entries_of(const char *dir)
{
    DIR *d = opendir(dir);
    int32_t n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n - 2; /* . and .. */
}

static void keep_line(void *user, tsr_log_level level, const char *line)
{
    if (level == TSR_LOG_WARNING)
        tsr_buf_puts(user, line);
}

static void spill__written_in_any_order__is_read_back(void)
{
    static uint8_t out[BYTES], in[BYTES];
    tsr_spill s;
    tsr_err err = {0};
    const char *dir = test_temp_dir();

    for (size_t i = 0; i < BYTES; i++)
        out[i] = (uint8_t)(i * 7 + i / 251);
    REQUIRE(tsr_spill_open(&s, dir, BYTES, NULL, &err) == TSR_OK);
    CHECK(entries_of(dir) == 0); /* it has no name */
    CHECK(tsr_spill_write(&s, BYTES / 2, out + BYTES / 2, BYTES / 2, &err) == TSR_OK);
    CHECK(tsr_spill_write(&s, 0, out, BYTES / 2, &err) == TSR_OK);
    CHECK(tsr_spill_read(&s, 1000, in + 1000, BYTES - 1000, &err) == TSR_OK);
    CHECK(memcmp(in + 1000, out + 1000, BYTES - 1000) == 0);
    CHECK(tsr_spill_write(&s, 1000, out, 5, &err) == TSR_OK); /* again, over it */
    CHECK(tsr_spill_read(&s, 1000, in, 5, &err) == TSR_OK && memcmp(in, out, 5) == 0);
    CHECK(s.bytes_written == BYTES + 5 && s.bytes_read == BYTES - 1000 + 5);
    tsr_spill_close(&s);
    tsr_spill_close(&s);
    tsr_spill_close(&(tsr_spill){0});
}

static void spill__outside_of_what_was_set_aside__is_refused(void)
{
    uint8_t b[8] = {0};
    tsr_spill s;

    REQUIRE(tsr_spill_open(&s, test_temp_dir(), 100, NULL, NULL) == TSR_OK);
    CHECK(tsr_spill_write(&s, 96, b, 5, NULL) == TSR_E_INTERNAL);
    CHECK(tsr_spill_write(&s, SIZE_MAX, b, 5, NULL) == TSR_E_INTERNAL);
    CHECK(tsr_spill_read(&s, 101, b, 0, NULL) == TSR_E_INTERNAL);
    CHECK(tsr_spill_write(&s, 92, b, 8, NULL) == TSR_OK);
    tsr_spill_close(&s);
}

static void spill_open__space_is_set_aside__at_once(void)
{
    struct stat st;
    tsr_spill s;

    REQUIRE(tsr_spill_open(&s, test_temp_dir(), BYTES, NULL, NULL) == TSR_OK);
    CHECK(fstat(s.file.fd, &st) == 0 && st.st_size == BYTES);
    tsr_spill_close(&s);
    REQUIRE(tsr_spill_open(&s, test_temp_dir(), 0, NULL, NULL) == TSR_OK);
    tsr_spill_close(&s);
}

/* The status, and the sentence names the directory and the options. */
static void refused(const char *dir, size_t bytes, const char *part)
{
    tsr_spill s;
    tsr_err err = {0};

    CHECK(tsr_spill_open(&s, dir, bytes, NULL, &err) == TSR_E_IO);
    CHECK_MSG(strstr(err.msg, part) && strstr(err.msg, "--budget"), "\"%s\"", err.msg);
    tsr_spill_close(&s);
}

static void spill_open__places_that_do_not_work__say_so(void)
{
    char file[4096];

    snprintf(file, sizeof file, "%s/file", test_temp_dir());
    CHECK(mkdir(file, 0700) == 0);
    refused("/nowhere/at/all", 10, "/nowhere/at/all");
    refused("/proc", 10, "/proc");
    refused(file, (size_t)1 << 60, "no room for"); /* no disk has that */
    refused(file, SIZE_MAX, "no room for");
    if (geteuid() != 0) { /* root may write anywhere */
        CHECK(chmod(file, 0500) == 0);
        refused(file, 10, "Permission denied");
    }
    CHECK(rmdir(file) == 0);
}

static void spill_open__limit_on_file_sizes__refused_without_a_signal(void)
{
    struct rlimit before, small;

    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = before;
    small.rlim_cur = 1 << 16;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    refused(test_temp_dir(), BYTES, "ulimit");
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

static void spill_open__disk_too_small__no_room(void)
{
    char dir[4096];

    snprintf(dir, sizeof dir, "%s/small", test_temp_dir());
    CHECK(mkdir(dir, 0700) == 0);
    if (mount("none", dir, "tmpfs", 0, "size=256k") != 0) {
        CHECK(rmdir(dir) == 0);
        SKIP("the right to mount a small tmpfs");
    }
    refused(dir, BYTES, "no room for 1 MiB");
    CHECK(umount(dir) == 0 && rmdir(dir) == 0);
}

static void spill_open__directory_in_memory__warns(void)
{
    tsr_buf lines = {0};
    tsr_log log = {keep_line, &lines};
    tsr_spill s;

    if (!tsr_path_is_dir("/dev/shm"))
        SKIP("/dev/shm");
    if (tsr_spill_open(&s, "/dev/shm", 4096, &log, NULL) != TSR_OK)
        SKIP("the right to write to /dev/shm");
    tsr_spill_close(&s);
    CHECK(lines.data && strstr(lines.data, "/dev/shm is in memory"));
    tsr_buf_free(&lines);
}

static void spill_open__no_directory_given__cache_of_the_user(void)
{
    char cache[4096];
    tsr_spill s;
    tsr_err err = {0};
    const char *dir = test_temp_dir();

    CHECK(setenv("XDG_CACHE_HOME", dir, 1) == 0);
    REQUIRE(tsr_spill_open(&s, NULL, 10, NULL, &err) == TSR_OK);
    CHECK(strstr(s.file.path, dir) != NULL);
    tsr_spill_close(&s);
    snprintf(cache, sizeof cache, "%s/tessera", dir);
    CHECK(tsr_path_is_dir(cache));
    CHECK(unsetenv("XDG_CACHE_HOME") == 0 && setenv("HOME", dir, 1) == 0);
    REQUIRE(tsr_spill_open(&s, NULL, 10, NULL, &err) == TSR_OK);
    CHECK(strstr(s.file.path, "/.cache/tessera") != NULL);
    tsr_spill_close(&s);
    CHECK(setenv("HOME", "/proc", 1) == 0); /* cannot be made there */
    if (tsr_spill_open(&s, NULL, 10, NULL, &err) == TSR_OK)
        CHECK(strstr(s.file.path, "/var/tmp") != NULL);
    tsr_spill_close(&s);
}

static void spill__every_allocation_and_transfer_fails__no_leak(void)
{
    const char *dir = test_temp_dir();
    size_t live = tsr_alloc_live();
    uint8_t b[8] = {0};

    for (uint64_t n = 1; n < 10; n++) {
        tsr_spill s;
        tsr_status st;
        tsr_alloc_fail_at(n);
        st = tsr_spill_open(&s, dir, 10, NULL, NULL);
        CHECK(st == (tsr_alloc_failed() ? TSR_E_OOM : TSR_OK));
        tsr_spill_close(&s);
        CHECK(tsr_alloc_live() == live);
    }
    tsr_alloc_fail_at(0);
    for (uint64_t n = 1; n < 3; n++) {
        tsr_spill s;
        tsr_err err = {0};
        REQUIRE(tsr_spill_open(&s, dir, 10, NULL, NULL) == TSR_OK);
        tsr_io_fail_at(n);
        CHECK((tsr_spill_write(&s, 0, b, 8, &err) == TSR_OK) == (n != 1));
        CHECK((tsr_spill_read(&s, 0, b, 8, n == 1 ? NULL : &err) == TSR_OK) == (n != 2));
        CHECK_MSG(strstr(err.msg, "spill file in") && strstr(err.msg, "--spill-dir"), "\"%s\"",
                  err.msg);
        tsr_io_fail_at(0);
        tsr_spill_close(&s);
    }
}

int main(void)
{
    RUN(spill__written_in_any_order__is_read_back);
    RUN(spill__outside_of_what_was_set_aside__is_refused);
    RUN(spill_open__space_is_set_aside__at_once);
    RUN(spill_open__places_that_do_not_work__say_so);
    RUN(spill_open__limit_on_file_sizes__refused_without_a_signal);
    RUN(spill_open__disk_too_small__no_room);
    RUN(spill_open__directory_in_memory__warns);
    RUN(spill_open__no_directory_given__cache_of_the_user);
    RUN(spill__every_allocation_and_transfer_fails__no_leak);
    return test_end();
}
