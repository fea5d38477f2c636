/* test_io.c -- jobs in order, failures that stick, waits that are counted. Runs under TSAN too. */
#include "base/io.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "tests/support/test.h"

enum { MANY = 5 * TSR_IO_JOBS };

/* Written by jobs, read by the owner after a wait: TSAN sees a wait that orders nothing. */
typedef struct trace {
    uint64_t order[MANY];
    size_t n;
    uint64_t fail_at; /* 0: never */
    long pause_us;
} trace;

static tsr_status note(void *arg, uint64_t a, uint64_t b, tsr_err *err)
{
    trace *t = arg;

    if (t->pause_us)
        usleep((useconds_t)t->pause_us);
    if (a == t->fail_at)
        TSR_FAIL(err, TSR_E_IO, "job %d failed", (int)a);
    t->order[t->n++] = a + b;
    return TSR_OK;
}

static tsr_io *make_io(void)
{
    tsr_io *io = NULL;
    tsr_err err = {0};

    CHECK_MSG(tsr_io_make(&io, &err) == TSR_OK, "%s", err.msg);
    return io;
}

static void io_submit__more_than_the_ring_holds__in_order(void)
{
    static trace t;
    tsr_io *io = make_io();

    REQUIRE(io);
    CHECK(tsr_io_last(io) == 0);
    for (uint64_t i = 1; i <= MANY; i++) {
        CHECK(tsr_io_submit(io, note, &t, i, 7) == i);
        CHECK(tsr_io_last(io) == i);
    }
    CHECK(tsr_io_wait(io, MANY, NULL, NULL) == TSR_OK);
    CHECK(t.n == MANY);
    for (size_t i = 0; i < t.n; i++)
        CHECK(t.order[i] == i + 1 + 7);
    tsr_io_free(io);
}

static void io_wait__one_ticket__all_before_it_are_done(void)
{
    static trace t;
    tsr_io *io = make_io();

    REQUIRE(io);
    t.pause_us = 200;
    for (uint64_t i = 1; i <= 40; i++)
        tsr_io_submit(io, note, &t, i, 0);
    CHECK(tsr_io_wait(io, 10, NULL, NULL) == TSR_OK);
    CHECK(t.order[9] == 10);
    CHECK(tsr_io_wait(io, 3, NULL, NULL) == TSR_OK); /* an earlier one, later */
    CHECK(tsr_io_wait(io, 0, NULL, NULL) == TSR_OK); /* none at all */
    CHECK(tsr_io_wait(io, 40, NULL, NULL) == TSR_OK);
    CHECK(t.n == 40);
    tsr_io_free(io);
}

static void io_wait__slow_job__time_is_counted_and_only_then(void)
{
    static trace t;
    double seconds = 0;
    tsr_io *io = make_io();
    uint64_t ticket;

    REQUIRE(io);
    t.pause_us = 20000;
    ticket = tsr_io_submit(io, note, &t, 1, 0);
    CHECK(tsr_io_wait(io, ticket, &seconds, NULL) == TSR_OK);
    CHECK_MSG(seconds > 0.005, "%g s", seconds);
    seconds = 0;
    CHECK(tsr_io_wait(io, ticket, &seconds, NULL) == TSR_OK);
    CHECK(seconds == 0);
    tsr_io_free(io);
}

static void io_failure__later_jobs_and_waits__skipped_until_drained(void)
{
    static trace t;
    tsr_err err = {0};
    tsr_io *io = make_io();

    REQUIRE(io);
    t.fail_at = 5;
    for (uint64_t i = 1; i <= 2 * TSR_IO_JOBS; i++)
        tsr_io_submit(io, note, &t, i, 0);
    CHECK(tsr_io_wait(io, 2 * TSR_IO_JOBS, NULL, &err) == TSR_E_IO);
    CHECK(err.code == TSR_E_IO && strcmp(err.msg, "job 5 failed") == 0);
    CHECK(t.n == 4);
    tsr_err_clear(&err);
    tsr_io_submit(io, note, &t, 1, 0);
    CHECK(tsr_io_wait(io, 1, NULL, &err) == TSR_E_IO); /* sticks */
    CHECK(tsr_io_drain(io, &err) == TSR_E_IO);
    CHECK(t.n == 4);
    CHECK(tsr_io_drain(io, NULL) == TSR_OK);
    CHECK(tsr_io_wait(io, tsr_io_submit(io, note, &t, 9, 0), NULL, NULL) == TSR_OK);
    CHECK(t.n == 5 && t.order[4] == 9);
    tsr_io_free(io);
}

static void io_free__jobs_queued__finishes_them(void)
{
    static trace t;
    tsr_io *io = make_io();

    REQUIRE(io);
    t.pause_us = 100;
    for (uint64_t i = 1; i <= 100; i++)
        tsr_io_submit(io, note, &t, i, 0);
    tsr_io_free(io);
    CHECK(t.n == 100);
    tsr_io_free(make_io()); /* at once */
    tsr_io_free(NULL);
}

static void io_submit__a_thousand_jobs__no_allocation(void)
{
    static trace t;
    tsr_io *io = make_io();
    uint64_t before;

    REQUIRE(io);
    before = tsr_alloc_count();
    for (uint64_t i = 1; i <= 1000; i++)
        tsr_io_submit(io, note, &t, i, 0);
    CHECK(tsr_io_drain(io, NULL) == TSR_OK);
    CHECK(tsr_alloc_count() == before);
    tsr_io_free(io);
}

static double cpu_seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void io__nothing_to_do__burns_nothing(void)
{
    tsr_io *io = make_io();
    double before;

    REQUIRE(io);
    usleep(5000);
    before = cpu_seconds();
    usleep(50000);
    CHECK_MSG(cpu_seconds() - before < 0.01, "%g s", cpu_seconds() - before);
    tsr_io_free(io);
}

static void io_make__every_allocation_fails__no_leak(void)
{
    tsr_err err = {0};
    tsr_io *io = NULL;
    size_t live = tsr_alloc_live();

    tsr_alloc_fail_at(1);
    CHECK(tsr_io_make(&io, &err) == TSR_E_OOM && !io && err.msg[0]);
    tsr_alloc_fail_at(0);
    CHECK(tsr_alloc_live() == live);
}

int main(void)
{
    RUN(io_submit__more_than_the_ring_holds__in_order);
    RUN(io_wait__one_ticket__all_before_it_are_done);
    RUN(io_wait__slow_job__time_is_counted_and_only_then);
    RUN(io_failure__later_jobs_and_waits__skipped_until_drained);
    RUN(io_free__jobs_queued__finishes_them);
    RUN(io_submit__a_thousand_jobs__no_allocation);
    RUN(io__nothing_to_do__burns_nothing);
    RUN(io_make__every_allocation_fails__no_leak);
    return test_end();
}
