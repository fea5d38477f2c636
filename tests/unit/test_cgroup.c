/* test_cgroup.c -- limits found in made-up control group trees, v1 and v2. */
#include "base/cgroup.h"

#include <string.h>

#include "base/file.h"
#include "tests/support/model_files.h"
#include "tests/support/test.h"

static const char *root;

static const char v1_self[] =
    "12:cpu,cpuacct:/slice/job\n5:memory:/slice/job\n1:name=systemd:/x\n0::/other\n";

static void cgroup_find__unified__is_the_line_without_controllers(void)
{
    tsr_cgroup g;

    CHECK(tsr_cgroup_find(&g, "memory", "/mnt", "0::/a/b\n"));
    CHECK(g.v2 && strcmp(g.dir, "/mnt/a/b") == 0);
    CHECK(tsr_cgroup_climb(&g) && strcmp(g.dir, "/mnt/a") == 0);
    CHECK(tsr_cgroup_climb(&g) && strcmp(g.dir, "/mnt") == 0);
    CHECK(!tsr_cgroup_climb(&g));
    CHECK(tsr_cgroup_find(&g, "memory", "/mnt", "0::/\n") && strcmp(g.dir, "/mnt") == 0);
    CHECK(!tsr_cgroup_climb(&g));
}

static void cgroup_find__own_hierarchy__wins_over_the_unified(void)
{
    tsr_cgroup g;

    CHECK(tsr_cgroup_find(&g, "memory", "/mnt", v1_self));
    CHECK(!g.v2 && strcmp(g.dir, "/mnt/memory/slice/job") == 0);
    CHECK(tsr_cgroup_find(&g, "cpu", "/mnt", v1_self) && strcmp(g.dir, "/mnt/cpu/slice/job") == 0);
    CHECK(tsr_cgroup_climb(&g) && tsr_cgroup_climb(&g) && strcmp(g.dir, "/mnt/cpu") == 0);
    CHECK(!tsr_cgroup_climb(&g));
    CHECK(tsr_cgroup_find(&g, "pids", "/mnt", v1_self) && g.v2); /* "pids" has none: the unified */
    CHECK(tsr_cgroup_find(&g, "memory", "/mnt", "0::/u\n5:memory:/m") && !g.v2);
}

static void cgroup_find__broken_texts__are_none(void)
{
    static const char *const texts[] = {"",         "\n",          "nonsense",
                                        "5:memory", "5\nmemory:/", "4:cpu:/x\n"};
    static char lengthy[6000] = "0::/";
    tsr_cgroup g;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        CHECK_MSG(!tsr_cgroup_find(&g, "memory", "/mnt", texts[i]), "%s", texts[i]);
    memset(lengthy + 4, 'x', sizeof lengthy - 5);
    CHECK(!tsr_cgroup_find(&g, "memory", "/mnt", lengthy));
}

static void cgroup_numbers__kernel_formats__are_read(void)
{
    tsr_cgroup g;
    uint64_t v[3] = {9, 9, 9};

    root = test_temp_dir();
    model_file_text(root, "a/two", "200000 100000\n");
    model_file_text(root, "a/max", "max 100000\n");
    model_file_text(root, "a/none", "-1\n");
    model_file_text(root, "a/odd", "12x 5\n");
    model_file_text(root, "a/empty", "");
    model_file_text(root, "a/stat", "inactive 1\ninactive_file 4096\nactive_file 7\n");
    REQUIRE(tsr_cgroup_find(&g, "memory", root, "0::/a\n"));
    CHECK(tsr_cgroup_numbers(&g, "two", v, 3) == 2 && v[0] == 200000 && v[1] == 100000 &&
          v[2] == 9);
    CHECK(tsr_cgroup_numbers(&g, "two", v, 1) == 1);
    CHECK(tsr_cgroup_numbers(&g, "max", v, 2) == 2 && v[0] == UINT64_MAX && v[1] == 100000);
    CHECK(tsr_cgroup_numbers(&g, "none", v, 2) == 1 && v[0] == UINT64_MAX);
    CHECK(tsr_cgroup_numbers(&g, "odd", v, 2) == 1 && v[0] == 12);
    CHECK(tsr_cgroup_numbers(&g, "empty", v, 2) == 0 && tsr_cgroup_numbers(&g, "gone", v, 2) == 0);
    CHECK(tsr_cgroup_field(&g, "stat", "inactive_file", &v[0]) && v[0] == 4096);
    CHECK(!tsr_cgroup_field(&g, "stat", "file", &v[0]) && !tsr_cgroup_field(&g, "gone", "x", v));
}

static void cgroup_cpus__quota_at_any_level__is_rounded_up(void)
{
    root = test_temp_dir();
    model_file_text(root, "a/b/cpu.max", "max 100000\n");
    CHECK(tsr_cgroup_cpus(root, "0::/a/b\n") == INT32_MAX);
    model_file_text(root, "a/cpu.max", "150000 100000\n");
    CHECK(tsr_cgroup_cpus(root, "0::/a/b\n") == 2);
    model_file_text(root, "a/b/cpu.max", "1000 100000\n");
    CHECK(tsr_cgroup_cpus(root, "0::/a/b\n") == 1);
    model_file_text(root, "a/b/cpu.max", "100000 0\n");
    CHECK(tsr_cgroup_cpus(root, "0::/a/b\n") == 2);
    CHECK(tsr_cgroup_cpus(root, "0::/elsewhere\n") == INT32_MAX);
    CHECK(tsr_cgroup_cpus(root, "") == INT32_MAX);
}

static void cgroup_cpus__v1__reads_quota_and_period(void)
{
    root = test_temp_dir();
    model_file_text(root, "cpu/slice/job/cpu.cfs_quota_us", "-1\n");
    model_file_text(root, "cpu/slice/job/cpu.cfs_period_us", "100000\n");
    CHECK(tsr_cgroup_cpus(root, v1_self) == INT32_MAX);
    model_file_text(root, "cpu/cpu.cfs_quota_us",
                    "400000\n"); /* the mount point of a container: its own group */
    model_file_text(root, "cpu/cpu.cfs_period_us", "100000\n");
    CHECK(tsr_cgroup_cpus(root, v1_self) == 4);
}

int main(void)
{
    RUN(cgroup_find__unified__is_the_line_without_controllers);
    RUN(cgroup_find__own_hierarchy__wins_over_the_unified);
    RUN(cgroup_find__broken_texts__are_none);
    RUN(cgroup_numbers__kernel_formats__are_read);
    RUN(cgroup_cpus__quota_at_any_level__is_rounded_up);
    RUN(cgroup_cpus__v1__reads_quota_and_period);
    return test_end();
}
