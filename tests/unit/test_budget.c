/* test_budget.c -- memory figures from made-up and real systems; sizes as people write them. */
#include "memory/budget.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "tests/support/model_files.h"
#include "tests/support/test.h"

static const char *root;

static void mem_field__kernel_text__is_read_in_bytes(void)
{
    static const char text[] =
        "Name:\tgen\nVmPeak:\t    9000 kB\nVmHWM:\t    1234 kB\nVmRSS:\t  12 kB\n"
        "Huge:\t99999999999999999999 kB\nNoNumber:\nLast: 7 kB";

    CHECK(tsr_mem_field(text, "VmHWM") == 1234 * 1024);
    CHECK(tsr_mem_field(text, "VmRSS") == 12 * 1024);
    CHECK(tsr_mem_field(text, "Last") == 7 * 1024);
    CHECK(tsr_mem_field(text, "Vm") == 0 && tsr_mem_field(text, "Absent") == 0);
    CHECK(tsr_mem_field(text, "NoNumber") == 0 && tsr_mem_field(text, "Huge") == SIZE_MAX);
    CHECK(tsr_mem_field("", "VmRSS") == 0);
}

static void mem__this_process__is_seen_to_grow(void)
{
    enum { BYTES = 64 << 20 };
    size_t before = tsr_mem_resident();
    volatile char *block = malloc(BYTES);

    REQUIRE(block && before > 0);
    for (size_t i = 0; i < BYTES; i += 1024)
        block[i] = 1;
    CHECK(tsr_mem_resident() >= before + BYTES / 2);
    CHECK(tsr_mem_peak() >= before + BYTES / 2);
    free((void *)block);
    CHECK(tsr_mem_peak() >= before + BYTES / 2);
}

static void mem__all_figures__are_taken_without_the_heap(void)
{
    uint64_t before = tsr_alloc_count();

    CHECK(tsr_mem_resident() > 0 && tsr_mem_peak() > 0 && tsr_mem_available() > 0);
    CHECK(tsr_budget_default() > 0);
    CHECK(tsr_alloc_count() == before);
}

static void mem_cgroup__v2_limits__the_tightest_level_holds(void)
{
    static const char self[] = "0::/a/b\n";

    root = test_temp_dir();
    CHECK(tsr_mem_cgroup_free(root, self) == SIZE_MAX);
    CHECK(tsr_mem_cgroup_free(root, "") == SIZE_MAX);
    model_file_text(root, "a/b/memory.max", "max\n");
    model_file_text(root, "a/b/memory.current", "1000\n");
    CHECK(tsr_mem_cgroup_free(root, self) == SIZE_MAX);
    model_file_text(root, "a/memory.max", "5000000\n");
    model_file_text(root, "a/memory.current", "2000000\n");
    CHECK(tsr_mem_cgroup_free(root, self) == 3000000);
    model_file_text(root, "a/b/memory.high",
                    "1001000\n"); /* the soft limit throttles: as good as a limit */
    CHECK(tsr_mem_cgroup_free(root, self) == 1000000);
    model_file_text(root, "a/memory.stat",
                    "anon 5\ninactive_file 600000\n"); /* given back on demand */
    model_file_text(root, "a/b/memory.high", "max\n");
    CHECK(tsr_mem_cgroup_free(root, self) == 3600000);
    model_file_text(root, "a/memory.current", "6000000\n");
    model_file_text(root, "a/memory.stat", "inactive_file 0\n");
    CHECK(tsr_mem_cgroup_free(root, self) == 0);
    model_file_text(root, "a/memory.stat", "inactive_file 99999999999\n");
    CHECK(tsr_mem_cgroup_free(root, self) == 5000000);
}

static void mem_cgroup__v1_limits__are_found_at_the_mount_point(void)
{
    static const char self[] = "9:memory:/docker/0123\n0::/\n";

    root = test_temp_dir();
    model_file_text(root, "memory/memory.limit_in_bytes",
                    "9223372036854771712\n"); /* the kernel's "none" */
    model_file_text(root, "memory/memory.usage_in_bytes", "4096\n");
    CHECK(tsr_mem_cgroup_free(root, self) > (size_t)1 << 62);
    model_file_text(root, "memory/memory.limit_in_bytes", "268435456\n");
    CHECK(tsr_mem_cgroup_free(root, self) == 268435456 - 4096);
    model_file_text(root, "memory/memory.stat", "inactive_file 1\ntotal_inactive_file 4000\n");
    CHECK(tsr_mem_cgroup_free(root, self) == 268435456 - 96);
}

static void budget_default__this_machine__leaves_a_margin(void)
{
    size_t sum = tsr_mem_resident() + tsr_mem_available();
    size_t budget = tsr_budget_default(), slack = (size_t)256 << 20; /* others come and go */

    CHECK(budget + ((size_t)64 << 20) <= sum + slack);
    CHECK(budget + ((size_t)1 << 30) + slack >= sum);
}

static void budget_parse__sizes__are_powers_of_1024(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"1", 1},
        {"300000000", 300000000},
        {"512B", 512},
        {"1K", 1024},
        {"2k", 2048},
        {"3KB", 3072},
        {"4KiB", 4096},
        {"5kib", 5120},
        {"512M", (uint64_t)512 << 20},
        {"512MB", (uint64_t)512 << 20},
        {"512MiB", (uint64_t)512 << 20},
        {"1.5G", (uint64_t)3 << 29},
        {"0.5GiB", (uint64_t)1 << 29},
        {"2T", (uint64_t)2 << 40},
        {"0.001K", 1},
        {"1.61G", 1728724336},
        {"18446744073709551615", UINT64_MAX},
        {"16777215T", (uint64_t)16777215 << 40},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bytes = 0;
        tsr_err err = {0};
        tsr_status st = tsr_budget_parse(cases[i].text, &bytes, &err);
        CHECK_MSG(st == TSR_OK && bytes == cases[i].bytes, "%s: %zu %s", cases[i].text, bytes,
                  err.msg);
    }
}

static void budget_parse__anything_else__is_a_usage_error_with_the_text(void)
{
    static const char *const bad[] = {
        "",          " ",
        "M",         "-1",
        "+1",        "0",
        "0M",        "0.0G",
        "0%",        "1.5",
        "1.5B",      "1.",
        "1.M",       ".5G",
        "1 M",       " 1M",
        "1M ",       "1 ",
        "1MM",       "1MiBs",
        "1Mi",       "1E",
        "1e9",       "0x10",
        "1,5G",      "nan",
        "inf",       "12%%",
        "101%",      "-5%",
        "1.5.5G",    "18446744073709551616",
        "16777216T", "99999999999999999999999G",
        "1\xC3\xA9", "1K%",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t bytes = 42;
        tsr_err err = {0};
        CHECK_MSG(tsr_budget_parse(bad[i], &bytes, &err) == TSR_E_USAGE, "\"%s\" is %zu", bad[i],
                  bytes);
        CHECK_MSG(bytes == 42 && strstr(err.msg, bad[i]), "%s", err.msg);
    }
}

static void budget_parse__a_percentage__is_of_what_is_free(void)
{
    size_t half = 0, all = 0, little = 0;
    tsr_err err;
    double sum = (double)(tsr_mem_resident() + tsr_mem_available());

    REQUIRE(tsr_budget_parse("50%", &half, &err) == TSR_OK);
    REQUIRE(tsr_budget_parse("100%", &all, &err) == TSR_OK);
    REQUIRE(tsr_budget_parse("12.5%", &little, &err) == TSR_OK);
    CHECK((double)half > 0.4 * sum && (double)half < 0.6 * sum);
    CHECK((double)all > 0.9 * sum && (double)all < 1.1 * sum);
    CHECK((double)little > 0.1 * sum && (double)little < 0.15 * sum);
}

static void bytes_text__any_size__has_three_digits_and_a_unit(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {512, "512 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1536, "1.50 KiB"},
        {10234, "9.99 KiB"},
        {10239, "10.0 KiB"},
        {102300, "99.9 KiB"},
        {102399, "100 KiB"},
        {45298483, "43.2 MiB"},
        {1047527424, "999 MiB"},
        {1073741823, "1.00 GiB"},
        {1728724336, "1.61 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buf[24];
        CHECK(tsr_bytes_text(cases[i].bytes, buf, sizeof buf) == buf);
        CHECK_MSG(strcmp(buf, cases[i].text) == 0, "%s, not %s", buf, cases[i].text);
    }
}

int main(void)
{
    RUN(mem_field__kernel_text__is_read_in_bytes);
    RUN(mem__this_process__is_seen_to_grow);
    RUN(mem__all_figures__are_taken_without_the_heap);
    RUN(mem_cgroup__v2_limits__the_tightest_level_holds);
    RUN(mem_cgroup__v1_limits__are_found_at_the_mount_point);
    RUN(budget_default__this_machine__leaves_a_margin);
    RUN(budget_parse__sizes__are_powers_of_1024);
    RUN(budget_parse__anything_else__is_a_usage_error_with_the_text);
    RUN(budget_parse__a_percentage__is_of_what_is_free);
    RUN(bytes_text__any_size__has_three_digits_and_a_unit);
    return test_end();
}
