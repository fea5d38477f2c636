/* fail_alloc_read.c -- the nth allocation fails, the nth read or write fails, for every n, over one
 * small picture: always a clean error with a sentence, never a crash; under ASAN also never a leak.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/safetensors.h"
#include "tessera.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

enum { SIDE = 8 };

/* One picture from opening the model to the picture's bytes. */
static tsr_status make_picture(const char *model_dir, char *why, size_t why_bytes)
{
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_run_desc d = {
        .prompt = "fox", .width = SIDE, .height = SIDE, .steps = 1, .seed_given = true};
    tsr_picture pic;
    char *json = NULL;
    tsr_status st = tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 2}, why, why_bytes);

    if (st != TSR_OK)
        return st;
    st = tsr_model_open(ctx, model_dir, &model);
    if (st == TSR_OK)
        st = tsr_run_make(ctx, model, &d, &run);
    if (st == TSR_OK)
        st = tsr_run_next(run, &pic);
    if (st == TSR_OK)
        st = tsr_run_report(run, true, &json);
    strncpy(why, tsr_context_error(ctx), why_bytes - 1);
    tsr_string_free(json);
    tsr_run_free(run);
    tsr_model_free(model);
    tsr_context_free(ctx);
    return st;
}

static tsr_status inspect(const char *model_dir, char *why, size_t why_bytes)
{
    tsr_context *ctx = NULL;
    char *json = NULL;
    int32_t problems;
    tsr_status st = tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 1}, why, why_bytes);

    if (st != TSR_OK)
        return st;
    st = tsr_model_inspect(ctx, model_dir, &json, &problems);
    strncpy(why, tsr_context_error(ctx), why_bytes - 1);
    tsr_string_free(json);
    tsr_context_free(ctx);
    return st;
}

typedef tsr_status (*scene)(const char *dir, char *why, size_t why_bytes);

/* Every n in the plain build and in long runs. A sanitizer build, a hundred times slower, takes the
 * first DENSE and then every STRIDE-th: planning makes thousands of allocations in a few places. */
#ifdef TSR_SANITIZED
enum { DENSE = 600, STRIDE = 13 };
#else
enum { DENSE = 0, STRIDE = 1 };
#endif

static uint64_t next_call(uint64_t n)
{
    return n + (n > DENSE && !test_long() ? STRIDE : 1);
}

/* Fails the nth call for every n until the scene runs through without meeting the failure. */
static void sweep(scene play, const char *dir, void (*fail_at)(uint64_t), bool (*failed)(void),
                  bool may_survive)
{
    uint64_t n = 1;

    for (;; n = next_call(n)) {
        char why[512] = "";
        tsr_status st;

        fail_at(n);
        st = play(dir, why, sizeof why);
        if (!failed()) {
            CHECK_MSG(st == TSR_OK, "nothing failed, yet: %s", why);
            break;
        }
        /* The doctor lists a failed read as a problem, and goes on. */
        CHECK_MSG(may_survive || st != TSR_OK, "call %llu failed and nobody noticed",
                  (unsigned long long)n);
        CHECK_MSG(st == TSR_OK || why[0], "call %llu: status %s without a sentence",
                  (unsigned long long)n, tsr_status_name(st));
        CHECK_MSG(st != TSR_E_INTERNAL, "call %llu: %s", (unsigned long long)n, why);
        if (test_failures() > 10)
            break;
    }
    fail_at(0);
    test_note("%llu calls in all", (unsigned long long)(n - 1));
}

static void picture__any_allocation_fails__clean_error(void)
{
    const char *dir = micro_model(&(micro_options){0});

    REQUIRE(dir != NULL);
    sweep(make_picture, dir, tsr_alloc_fail_at, tsr_alloc_failed, false);
}

static void picture__any_read_fails__clean_error(void)
{
    const char *dir = micro_model(&(micro_options){.xl = true});

    REQUIRE(dir != NULL);
    sweep(make_picture, dir, tsr_io_fail_at, tsr_io_failed, false);
}

static void inspect__any_allocation_fails__no_crash(void)
{
    const char *dir = micro_model(&(micro_options){0});

    REQUIRE(dir != NULL);
    sweep(inspect, dir, tsr_alloc_fail_at, tsr_alloc_failed, true);
}

static void inspect__any_read_fails__no_crash(void)
{
    const char *dir = micro_model(&(micro_options){0});

    REQUIRE(dir != NULL);
    sweep(inspect, dir, tsr_io_fail_at, tsr_io_failed, true);
}

int main(void)
{
    RUN(picture__any_allocation_fails__clean_error);
    RUN(picture__any_read_fails__clean_error);
    RUN(inspect__any_allocation_fails__no_crash);
    RUN(inspect__any_read_fails__no_crash);
    return test_end();
}
