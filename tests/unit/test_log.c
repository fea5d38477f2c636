/* test_log.c -- messages reach the callback as one clean line. */
#include "base/log.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/support/test.h"

typedef struct heard {
    int n;
    tsr_log_level level;
    char line[4096];
} heard;

static void hear(void *user, tsr_log_level level, const char *line)
{
    heard *h = user;

    h->n++;
    h->level = level;
    snprintf(h->line, sizeof h->line, "%s", line);
}

static void log__each_level__reaches_the_callback(void)
{
    heard h = {0};
    tsr_log log = {hear, &h};

    TSR_WARN(&log, "%d of %s", 3, "tensors");
    CHECK(h.n == 1 && h.level == TSR_LOG_WARNING && strcmp(h.line, "3 of tensors") == 0);
    TSR_INFO(&log, "x");
    CHECK(h.n == 2 && h.level == TSR_LOG_INFO);
    TSR_DETAIL(&log, "x");
    CHECK(h.n == 3 && h.level == TSR_LOG_DEBUG);
}

static void log__nobody_listens__drops_the_message(void)
{
    tsr_log silent = {0};

    TSR_WARN(NULL, "x");
    TSR_WARN(&silent, "x");
    CHECK(test_failures() == 0);
}

static void log__hostile_or_long_text__is_one_clean_line_without_the_heap(void)
{
    heard h = {0};
    tsr_log log = {hear, &h};
    char name[8000];
    uint64_t before = tsr_alloc_count();

    TSR_WARN(&log, "name %s", "a\nb\xFF");
    CHECK(strcmp(h.line, "name a?b?") == 0);
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    TSR_WARN(&log, "%s", name);
    CHECK(strlen(h.line) > 1000 && strlen(h.line) < 4000);
    CHECK(tsr_alloc_count() == before);
}

int main(void)
{
    RUN(log__each_level__reaches_the_callback);
    RUN(log__nobody_listens__drops_the_message);
    RUN(log__hostile_or_long_text__is_one_clean_line_without_the_heap);
    return test_end();
}
