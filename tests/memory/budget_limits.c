/* budget_limits.c -- gen where the system limits its memory: a clear refusal or the correct
 * picture, never a kill.
 *
 * A control group with a limit where this machine allows one (root; v2 or v1), else, and in any
 * case, a limit on the address space. In a group gen's default budget is what the group leaves;
 * others in the group that take memory in the middle of a run make it plan again, or keep the
 * latents. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/gen_run.h"
#include "tests/support/limited.h"
#include "tests/support/test.h"

#define EMBEDDED TSR_SOURCE_DIR "/assets/model"
#define PICTURE "--prompt=a red fox", "--model", EMBEDDED, "--steps=2", "--threads=2"

enum { MIB = 1 << 20 };

static void setup(void)
{
    gen_setup(TSR_BINARY_DIR "/gen", test_temp_dir(), EMBEDDED);
    gen(PICTURE, "--seed=3", "--out=good.png", NULL);
    REQUIRE(gen_result.code == 0);
}

/* Exit code 0 with the picture (or, without --strict, a smaller one), or 3 with one sentence. */
static bool made_or_refused(size_t limit, bool strict)
{
    if (gen_result.code == 3) {
        CHECK_MSG(gen_one_sentence() && !gen_exists("b.png"), "%zu MiB: %s", limit / MIB,
                  gen_result.err);
        return false;
    }
    CHECK_MSG(gen_result.code == 0, "%zu MiB: exit code %d, %s", limit / MIB, gen_result.code,
              gen_result.err);
    if (gen_result.code == 0 && strict)
        CHECK_MSG(gen_same_pixels("good.png", "b.png"), "%zu MiB: another picture", limit / MIB);
    return gen_result.code == 0;
}

/* This process enters, too: children are born in their parent's group. */
static void gen_in(const limited_group *g, const char *const *args)
{
    char *argv[24] = {(char *)"gen"};
    pid_t pid;
    int n = 1;

    for (; args[n - 1] && n < 23; n++)
        argv[n] = (char *)args[n - 1];
    CHECK(limited_enter(g, 0));
    pid = gen_start(argv);
    CHECK(pid > 0);
    gen_finish(pid);
}

static bool leave(const limited_group *g)
{
    limited_group parent = *g;

    *strrchr(parent.dir, '/') = 0;
    return limited_enter(&parent, 0);
}

static void gen__in_a_control_group__is_made_or_refused(void)
{
    static const size_t limits[] = {8, 16, 48, 80, 90, 100, 120, 160, 400};
    limited_group g;
    int made = 0, refused = 0;

    SKIP_IF_SANITIZED();
    if (!limited_make(&g, (size_t)400 * MIB))
        SKIP("the right to make a control group with a limit (a limit on the address space is "
             "tested instead)");
    for (size_t i = 0; i < 2 * sizeof limits / sizeof *limits; i++) {
        size_t limit = limits[i / 2] * MIB;
        const char *const args[] = {PICTURE, "--seed=3", "--out=b.png",
                                    i % 2 ? "--strict" : "--no-progress", NULL};
        bool ok;

        CHECK(limited_set(&g, limit));
        gen_remove("b.png");
        gen_in(&g, args);
        ok = made_or_refused(limit, i % 2 == 1);
        made += ok;
        refused += !ok;
        CHECK(leave(&g)); /* the next limit may be below what this process has */
    }
    CHECK_MSG(limited_kills(&g) == 0, "the kernel killed %ld processes", limited_kills(&g));
    CHECK_MSG(made >= 4 && refused >= 4, "%d made, %d refused", made, refused);
    test_note("control group v%d: %d made, %d refused", g.v2 ? 2 : 1, made, refused);
    limited_remove(&g);
}

/* A budget that the group holds is a run: what the kernel charges besides it is little. */
static void gen__least_budget_in_a_group_a_little_larger__is_the_picture(void)
{
    static const char words[] = "the smallest budget is ";
    limited_group g;
    char budget[64];
    const char *at;
    size_t least;

    SKIP_IF_SANITIZED();
    gen(PICTURE, "--seed=3", "--strict", "--budget=1000000", NULL);
    at = strstr(gen_result.err, words);
    REQUIRE(at != NULL);
    least = (size_t)strtoull(at + strlen(words), NULL, 10);
    snprintf(budget, sizeof budget, "--budget=%zu", least);
    if (!limited_make(&g, least + 6 * MIB))
        SKIP("the right to make a control group with a limit");
    {
        const char *const args[] = {PICTURE, "--seed=3", "--out=b.png", "--strict", budget, NULL};

        gen_remove("b.png");
        gen_in(&g, args);
    }
    CHECK(leave(&g));
    CHECK_MSG(gen_result.code == 0 && gen_same_pixels("good.png", "b.png"), "%d, %s",
              gen_result.code, gen_result.err);
    CHECK(limited_kills(&g) == 0);
    limited_remove(&g);
}

/* ------------------------------------------------------------------ others in the group */

/* A child in the group that holds `bytes` until it is killed; it has them when this returns. */
static pid_t take_memory(const limited_group *g, size_t bytes)
{
    int ends[2];
    char c;
    pid_t pid;

    if (pipe(ends) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (!limited_enter(g, 0) || p == MAP_FAILED)
            _exit(1);
        memset(p, 1, bytes);
        if (write(ends[1], "x", 1) == 1)
            pause();
        _exit(0);
    }
    close(ends[1]);
    CHECK(read(ends[0], &c, 1) == 1);
    close(ends[0]);
    return pid;
}

/* CPU seconds of a running process; a text of 10 ms is over long before this, and 100 steps take
 * two seconds. */
#define IN_THE_STEPS 0.5

static void wait_for_steps(pid_t pid)
{
    struct timespec used = {0};
    clockid_t clock;

    for (int i = 0; i < 200000; i++) {
        if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0 ||
            (double)used.tv_sec + 1e-9 * (double)used.tv_nsec > IN_THE_STEPS)
            return;
        usleep(1000);
    }
}

/* gen that is stopped in its steps, with as much of its group taken as leaves `left` of default
 * budget. The margin is 64 MiB. */
static void run_while_taken(const limited_group *g, size_t limit, size_t left)
{
    char *argv[] = {(char *)"gen",         (char *)"--prompt=a red fox",
                    (char *)"--model",     (char *)EMBEDDED,
                    (char *)"--steps=100", (char *)"--threads=2",
                    (char *)"--out=t.png", NULL};
    pid_t pid, other;

    CHECK(limited_enter(g, 0));
    pid = gen_start(argv);
    CHECK(leave(g));
    wait_for_steps(pid);
    kill(pid, SIGSTOP);
    other = take_memory(g, limit - 64 * MIB - left);
    kill(pid, SIGCONT);
    gen_finish(pid);
    kill(other, SIGKILL);
    (void)waitpid(other, NULL, 0);
}

static const char *same_seed(void)
{
    static char option[64];
    const char *at = strstr(gen_result.err, "gen: seed ");

    snprintf(option, sizeof option, "--seed=%llu", at ? strtoull(at + 10, NULL, 10) : 0);
    return option;
}

static void gen__others_take_memory__plans_again_or_keeps_the_latents(void)
{
    enum { LIMIT = 400 };
    limited_group g;

    SKIP_IF_SANITIZED();
    if (!limited_make(&g, (size_t)LIMIT * MIB))
        SKIP("the right to make a control group with a limit");
    run_while_taken(&g, (size_t)LIMIT * MIB, (size_t)16 * MIB);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.err, "planned again"), "%d, %s",
              gen_result.code, gen_result.err);
    gen("--prompt=a red fox", "--model", EMBEDDED, "--steps=100", same_seed(), "--out=u.png", NULL);
    CHECK_MSG(gen_same_pixels("t.png", "u.png"), "planned again, it is another picture");
    gen_remove("t.png");
    run_while_taken(&g, (size_t)LIMIT * MIB, 0);
    CHECK_MSG(gen_result.code == 3 && strstr(gen_result.err, "others have taken memory") &&
                  strstr(gen_result.err, "gen decode t.latents.safetensors") &&
                  !gen_exists("t.png"),
              "%d, %s", gen_result.code, gen_result.err);
    gen("--prompt=a red fox", "--model", EMBEDDED, "--steps=100", same_seed(), "--out=u.png", NULL);
    gen("decode", "t.latents.safetensors", "--model", EMBEDDED, "--out=v.png", NULL);
    CHECK_MSG(gen_result.code == 0 && gen_same_pixels("u.png", "v.png"), "%d, %s", gen_result.code,
              gen_result.err);
    CHECK(limited_kills(&g) == 0);
    limited_remove(&g);
}

/* ------------------------------------------------------------------ rlimits */

static void gen__in_a_limited_address_space__is_made_or_refused(void)
{
    static const size_t limits[] = {8, 12, 16, 24, 32, 64, 400};
    static const struct {
        int resource;
        const char *name;
    } kinds[] = {{RLIMIT_AS, "RLIMIT_AS"}, {RLIMIT_DATA, "RLIMIT_DATA"}};

#ifdef TSR_SANITIZED
    SKIP("sanitizers do not run in a limited address space");
#endif
    for (size_t k = 0; k < 2; k++) {
        int made = 0, refused = 0;

        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            struct rlimit before, now;
            bool ok;

            gen_remove("b.png");
            CHECK(getrlimit((__rlimit_resource_t)kinds[k].resource, &before) == 0);
            now = before;
            now.rlim_cur = limits[i] * MIB;
            CHECK(setrlimit((__rlimit_resource_t)kinds[k].resource, &now) == 0);
            gen(PICTURE, "--seed=3", "--strict", "--out=b.png", NULL);
            CHECK(setrlimit((__rlimit_resource_t)kinds[k].resource, &before) == 0);
            ok = made_or_refused(limits[i] * MIB, true);
            made += ok;
            refused += !ok;
        }
        test_note("%s: %d made, %d refused", kinds[k].name, made, refused);
        CHECK_MSG(made >= 1 && refused >= 1, "%s: %d made, %d refused", kinds[k].name, made,
                  refused);
    }
}

int main(void)
{
    RUN(setup);
    RUN(gen__in_a_control_group__is_made_or_refused);
    RUN(gen__least_budget_in_a_group_a_little_larger__is_the_picture);
    RUN(gen__others_take_memory__plans_again_or_keeps_the_latents);
    RUN(gen__in_a_limited_address_space__is_made_or_refused);
    return test_end();
}
