/* test.h -- the smallest harness that says what failed.
 *
 *     static void half__largest__rounds_to_even(void) { CHECK(x == y); CHECK_MSG(x < 2, "x is %d",
 * x); } int main(void) { RUN(half__largest__rounds_to_even); return test_end(); }
 *
 * A test fails when any CHECK in it fails; it goes on to its end. SKIP("what is missing") marks the
 * running test as skipped and returns. The run ends with "N passed, N failed, N skipped". */
#ifndef TSR_TESTS_TEST_H
#define TSR_TESTS_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TEST_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define TEST_PRINTF(a, b)
#endif

void test_begin(const char *name);
void test_finish(void);
void test_failed(const char *file, int line, const char *fmt, ...) TEST_PRINTF(3, 4);
void test_skipped(const char *why);
void test_note(const char *fmt, ...) TEST_PRINTF(1, 2); /* a line of the report */
int test_end(void);          /* prints the totals; 0 when nothing failed */
int32_t test_failures(void); /* of the running test so far */

#define RUN(fn)                                                                                    \
    do {                                                                                           \
        test_begin(#fn);                                                                           \
        fn();                                                                                      \
        test_finish();                                                                             \
    } while (0)
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_failed(__FILE__, __LINE__, "%s", #cond);                                          \
    } while (0)
#define CHECK_MSG(cond, ...)                                                                       \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_failed(__FILE__, __LINE__, __VA_ARGS__);                                          \
    } while (0)
/* For what the rest of the test needs. */
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            test_failed(__FILE__, __LINE__, "%s", #cond);                                          \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define SKIP(why)                                                                                  \
    do {                                                                                           \
        test_skipped(why);                                                                         \
        return;                                                                                    \
    } while (0)

#ifdef TSR_SANITIZED
static const bool test_sanitized = true;
#else
static const bool test_sanitized = false;
#endif
#define SKIP_IF_SANITIZED()                                                                        \
    do {                                                                                           \
        if (test_sanitized)                                                                        \
            SKIP("memory figures mean nothing under a sanitizer");                                 \
    } while (0)

/* ||a-b|| / ||b|| in double; infinity when a has a value that is not finite. */
double test_rel_l2(const float *a, const float *b, size_t n);
double test_max_abs_diff(const float *a, const float *b, size_t n);
/* TSR_REFERENCE_DIR when set, else <source>/../shared/reference when it is there, else NULL. */
const char *test_reference_dir(void);
/* True when TSR_LONG_TESTS is set to something but 0. */
bool test_long(void);
/* A fresh temporary directory, removed at test_end; heap string that lives until then. */
const char *test_temp_dir(void);

#endif
