/* test_alloc.c -- the heap's counter, planned failure, and growth. */
#include "base/alloc.h"

#include <string.h>

#include "tests/support/test.h"

static void alloc_count__every_kind_of_call__counts_one(void)
{
    uint64_t before = tsr_alloc_count();
    void *a = tsr_malloc(10), *b = tsr_calloc(3, 4);
    char *c = tsr_strdup("text");

    a = tsr_realloc(a, 100);
    CHECK(tsr_alloc_count() == before + 4);
    CHECK(a && b && c && strcmp(c, "text") == 0);
    CHECK(b && memcmp(b, "\0\0\0\0\0\0\0\0\0\0\0\0", 12) == 0);
    tsr_free(a);
    tsr_free(b);
    tsr_free(c);
    tsr_free(NULL);
    CHECK(tsr_alloc_count() == before + 4);
}

static void alloc_live__blocks_made_and_freed__come_back_to_the_start(void)
{
    size_t before = tsr_alloc_live();
    void *a = tsr_malloc(1000), *b = tsr_calloc(10, 100);

    CHECK(tsr_alloc_live() >= before + 2000);
    a = tsr_realloc(a, 5000);
    CHECK(tsr_alloc_live() >= before + 6000);
    tsr_free(a);
    tsr_free(b);
    CHECK(tsr_alloc_live() == before);
}

static void alloc_fail_at__the_third__fails_once_and_says_so(void)
{
    void *p[5];

    tsr_alloc_fail_at(3);
    for (int i = 0; i < 5; i++) {
        CHECK(tsr_alloc_failed() == (i > 2));
        p[i] = tsr_malloc(8);
    }
    for (int i = 0; i < 5; i++) {
        CHECK((p[i] == NULL) == (i == 2));
        tsr_free(p[i]);
    }
    tsr_alloc_fail_at(0);
    CHECK(!tsr_alloc_failed());
    p[0] = tsr_malloc(1);
    CHECK(p[0]);
    tsr_free(p[0]);
}

static void alloc_fail_at__each_kind__fails_without_side_effects(void)
{
    char *kept = tsr_strdup("kept");

    tsr_alloc_fail_at(1);
    CHECK(!tsr_calloc(1, 1) && tsr_alloc_failed());
    tsr_alloc_fail_at(1);
    CHECK(!tsr_strdup("x") && tsr_alloc_failed());
    tsr_alloc_fail_at(1);
    CHECK(!tsr_realloc(kept, 1000) && tsr_alloc_failed());
    CHECK(kept && strcmp(kept, "kept") == 0);
    tsr_alloc_fail_at(0);
    tsr_free(kept);
}

static void alloc__zero_bytes__is_no_failure(void)
{
    void *a = tsr_malloc(0), *b = tsr_calloc(0, 8);

    CHECK(a && b);
    a = tsr_realloc(a, 0);
    CHECK(a);
    tsr_free(a);
    tsr_free(b);
}

static void alloc_calloc__a_product_that_wraps__is_refused(void)
{
    CHECK(!tsr_calloc(SIZE_MAX / 2, 4));
}

static void alloc_grow__many_small_needs__keeps_content_and_grows_by_half(void)
{
    int32_t *v = NULL;
    size_t cap = 0;
    uint64_t before = tsr_alloc_count();

    for (int32_t i = 0; i < 1000; i++) {
        REQUIRE(tsr_grow((void **)&v, &cap, (size_t)i + 1, sizeof *v));
        REQUIRE(cap > (size_t)i);
        v[i] = i;
    }
    for (int32_t i = 0; i < 1000; i++)
        CHECK(v[i] == i);
    CHECK(tsr_alloc_count() - before < 20);
    tsr_free(v);
}

static void alloc_grow__failure_or_overflow__changes_nothing(void)
{
    char *v = NULL, *was;
    size_t cap = 0, cap_was;

    REQUIRE(tsr_grow((void **)&v, &cap, 4, 1));
    was = v;
    cap_was = cap;
    tsr_alloc_fail_at(1);
    CHECK(!tsr_grow((void **)&v, &cap, 1000, 1));
    tsr_alloc_fail_at(0);
    CHECK(!tsr_grow((void **)&v, &cap, SIZE_MAX / 2, 8));
    CHECK(v == was && cap == cap_was);
    CHECK(tsr_grow((void **)&v, &cap, cap_was, 1) && v == was); /* there is room already */
    tsr_free(v);
}

int main(void)
{
    RUN(alloc_count__every_kind_of_call__counts_one);
    RUN(alloc_live__blocks_made_and_freed__come_back_to_the_start);
    RUN(alloc_fail_at__the_third__fails_once_and_says_so);
    RUN(alloc_fail_at__each_kind__fails_without_side_effects);
    RUN(alloc__zero_bytes__is_no_failure);
    RUN(alloc_calloc__a_product_that_wraps__is_refused);
    RUN(alloc_grow__many_small_needs__keeps_content_and_grows_by_half);
    RUN(alloc_grow__failure_or_overflow__changes_nothing);
    return test_end();
}
