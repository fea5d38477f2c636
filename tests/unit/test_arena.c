/* test_arena.c -- the reservation: bounds, high water, poison, refusal. */
#include "memory/arena.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/budget.h"
#include "tests/support/test.h"

static void arena_use__inside__gives_addresses_and_notes_the_high_water(void)
{
    tsr_arena a;
    tsr_err err = {0};

    REQUIRE(tsr_arena_make(&a, 10000, &err) == TSR_OK);
    CHECK((uintptr_t)a.base % (uintptr_t)sysconf(_SC_PAGESIZE) == 0);
    CHECK(a.bytes == 10000 && a.high_water == 0);
    CHECK(tsr_arena_use(&a, 64, 100) == a.base + 64 && a.high_water == 164);
    CHECK(tsr_arena_use(&a, 0, 10) == a.base && a.high_water == 164);
    CHECK(tsr_arena_use(&a, 0, 10000) == a.base && a.high_water == 10000);
    CHECK(tsr_arena_use(&a, 10000, 0) == a.base + 10000);
    tsr_arena_free(&a);
    CHECK(!a.base && a.bytes == 0);
    tsr_arena_free(&a);
}

static void arena_use__outside__is_null(void)
{
    tsr_arena a, empty;
    tsr_err err = {0};

    REQUIRE(tsr_arena_make(&a, 4096, &err) == TSR_OK);
    CHECK(!tsr_arena_use(&a, 0, 4097) && !tsr_arena_use(&a, 4096, 1));
    CHECK(!tsr_arena_use(&a, SIZE_MAX, 2) && !tsr_arena_use(&a, 1, SIZE_MAX));
    CHECK(a.high_water == 0);
    tsr_arena_poison(&a, 4096, 1);
    tsr_arena_free(&a);
    REQUIRE(tsr_arena_make(&empty, 0, &err) == TSR_OK);
    CHECK(!empty.base && !tsr_arena_use(&empty, 0, 1));
    tsr_arena_free(&empty);
}

static void arena_poison__a_range__is_nan_in_every_type(void)
{
    tsr_arena a;
    tsr_err err = {0};
    uint16_t half;
    float f;
    double d;

    REQUIRE(tsr_arena_make(&a, 4096, &err) == TSR_OK);
    memset(a.base, 1, 4096);
    tsr_arena_poison(&a, 64, 64);
    CHECK(a.base[63] == 1 && a.base[128] == 1);
    for (size_t at = 64; at < 120; at++) {
        memcpy(&half, a.base + at, sizeof half);
        memcpy(&f, a.base + at, sizeof f);
        memcpy(&d, a.base + at, sizeof d);
        CHECK((half & 0x7C00) == 0x7C00 && (half & 0x3FF) && isnan(f) && isnan(d));
    }
    tsr_arena_free(&a);
}

static void arena_make__all_pages__are_resident_at_once(void)
{
    enum { BYTES = 32 << 20 };
    static unsigned char present[(BYTES >> 12) + 1];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t missing = 0;
    tsr_arena a;
    tsr_err err = {0};

    REQUIRE(page >= 4096 && tsr_arena_make(&a, BYTES, &err) == TSR_OK);
    REQUIRE(mincore(a.base, BYTES, present) == 0);
    for (size_t i = 0; i < BYTES / page; i++)
        missing += !(present[i] & 1);
    CHECK_MSG(missing == 0, "%zu pages", missing);
    tsr_arena_free(&a);
}

static void arena_resize__smaller_and_larger__keeps_the_beginning_and_gives_the_rest_back(void)
{
    enum { MIB = 1 << 20, KEEP = 5000 };
    tsr_arena a;
    tsr_err err = {0};
    size_t large, small, again;

    REQUIRE(tsr_arena_make(&a, 64 * MIB, &err) == TSR_OK);
    memset(a.base, 7, KEEP);
    large = tsr_mem_resident();
    CHECK(tsr_arena_use(&a, 0, a.bytes) && tsr_arena_resize(&a, 8 * MIB, KEEP, &err) == TSR_OK);
    small = tsr_mem_resident();
    CHECK(a.bytes == 8 * MIB && a.high_water == 8 * MIB && !tsr_arena_use(&a, 8 * MIB, 1));
    CHECK(a.base[0] == 7 && a.base[KEEP - 1] == 7);
    tsr_arena_release(&a, KEEP);
    CHECK(tsr_arena_resize(&a, 96 * MIB - 100, KEEP, &err) == TSR_OK);
    again = tsr_mem_resident();
    CHECK(a.base[0] == 7 && a.base[KEEP - 1] == 7 && tsr_arena_use(&a, 96 * MIB - 101, 1));
#ifdef TSR_SANITIZED
    (void)large, (void)small, (void)again; /* the sanitizer's own memory is in them */
#else
    CHECK_MSG(large >= small + 50 * MIB && again >= small + 80 * MIB, "%zu, %zu, %zu", large, small,
              again);
#endif
    CHECK(tsr_arena_resize(&a, (size_t)1 << 62, KEEP, &err) == TSR_E_OOM);
    CHECK(a.bytes == 96 * MIB - 100 && a.base[KEEP - 1] == 7);
    tsr_arena_free(&a);
}

static void arena_make__more_than_the_machine_maps__says_the_size(void)
{
    tsr_arena a = {0};
    tsr_err err = {0};

    CHECK(tsr_arena_make(&a, (size_t)1 << 62, &err) == TSR_E_OOM && !a.base);
    CHECK_MSG(strstr(err.msg, "4.00 EiB") && strstr(err.msg, "--budget"), "%s", err.msg);
    CHECK(tsr_arena_make(&a, SIZE_MAX, &err) == TSR_E_OOM && !a.base);
}

#ifndef TSR_SANITIZED
static int make_under_limit(void)
{
    struct rlimit limit = {(rlim_t)1 << 28, (rlim_t)1 << 28};
    tsr_arena a = {0};
    tsr_err err = {0};

    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    if (tsr_arena_make(&a, (size_t)1 << 29, &err) != TSR_E_OOM || !strstr(err.msg, "512 MiB"))
        return 3;
    return tsr_arena_make(&a, (size_t)1 << 20, &err) == TSR_OK ? 0 : 4;
}
#endif

static void arena_make__a_limited_address_space__is_a_clean_refusal(void)
{
#ifdef TSR_SANITIZED
    SKIP("sanitizers do not run in a limited address space");
#else
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(make_under_limit());
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_MSG(status == 0, "status %x", (unsigned)status);
#endif
}

int main(void)
{
    RUN(arena_use__inside__gives_addresses_and_notes_the_high_water);
    RUN(arena_use__outside__is_null);
    RUN(arena_poison__a_range__is_nan_in_every_type);
    RUN(arena_make__all_pages__are_resident_at_once);
    RUN(arena_resize__smaller_and_larger__keeps_the_beginning_and_gives_the_rest_back);
    RUN(arena_make__more_than_the_machine_maps__says_the_size);
    RUN(arena_make__a_limited_address_space__is_a_clean_refusal);
    return test_end();
}
