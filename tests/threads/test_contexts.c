/* test_contexts.c -- the same bits, whoever computes them: again, with other thread counts, in
 * batches or alone, and in two contexts at once. Runs under TSAN too. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tessera.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

enum { SIDE = 20, PICTURES = 2 }; /* 20: no multiple of anything that the kernels like */

typedef struct job {
    const char *model;
    int32_t threads;
    tsr_cpu_tier tier;
    uint64_t seed;
    int32_t pictures;
    tsr_precision precision;
    bool ok;
    char why[512];
    uint8_t rgb[PICTURES][3 * SIDE * SIDE];
    float latents[PICTURES][4096];
    size_t latent_bytes;
} job;

static void work(job *j)
{
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_run_desc d = {.prompt = "a red fox",
                      .negative_prompt = "blurry",
                      .width = SIDE,
                      .height = SIDE,
                      .steps = 3,
                      .seed = j->seed,
                      .seed_given = true,
                      .n_pictures = j->pictures,
                      .precision = j->precision};
    tsr_picture pic;

    j->ok =
        tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = j->threads, .cpu_tier = j->tier},
                         j->why, sizeof j->why) == TSR_OK &&
        tsr_model_open(ctx, j->model, &model) == TSR_OK &&
        tsr_run_make(ctx, model, &d, &run) == TSR_OK;
    for (int32_t i = 0; j->ok && i < j->pictures; i++) {
        j->ok = tsr_run_next(run, &pic) == TSR_OK;
        if (!j->ok)
            break;
        memcpy(j->rgb[i], pic.rgb, sizeof j->rgb[i]);
        j->latent_bytes = sizeof(float) * (size_t)pic.latents_shape[0] *
                          (size_t)pic.latents_shape[1] * (size_t)pic.latents_shape[2];
        memcpy(j->latents[i], pic.latents, j->latent_bytes);
    }
    if (!j->ok && ctx)
        strncpy(j->why, tsr_context_error(ctx), sizeof j->why - 1);
    tsr_run_free(run);
    tsr_model_free(model);
    tsr_context_free(ctx);
}

static void *thread_main(void *arg)
{
    work(arg);
    return NULL;
}

static job *new_job(const char *model, int32_t threads, uint64_t seed)
{
    job *j = calloc(1, sizeof *j);

    *j = (job){.model = model, .threads = threads, .seed = seed, .pictures = 1};
    return j;
}

static bool same(const job *a, int32_t i, const job *b, int32_t k)
{
    return a->latent_bytes == b->latent_bytes &&
           memcmp(a->latents[i], b->latents[k], a->latent_bytes) == 0 &&
           memcmp(a->rgb[i], b->rgb[k], sizeof a->rgb[i]) == 0;
}

static void check_model(const char *model)
{
    job *once = new_job(model, 1, 7), *again = new_job(model, 1, 7), *two = new_job(model, 2, 7),
        *three = new_job(model, 3, 7), *next = new_job(model, 1, 8), *batch = new_job(model, 2, 7);

    batch->pictures = 2;
    for (job **j = (job *[]){once, again, two, three, next, batch, NULL}; *j; j++) {
        work(*j);
        CHECK_MSG((*j)->ok, "%s", (*j)->why);
    }
    CHECK(same(once, 0, again, 0));
    CHECK(same(once, 0, two, 0));
    CHECK(same(once, 0, three, 0));
    CHECK(same(once, 0, batch, 0));
    CHECK(same(next, 0, batch, 1)); /* picture i of a set is drawn as if made alone from seed + i */
    CHECK(!same(once, 0, next, 0));
    for (job **j = (job *[]){once, again, two, three, next, batch, NULL}; *j; j++)
        free(*j);
}

static void run__same_seed__same_bits(void)
{
    const char *model = micro_model(&(micro_options){0}),
               *xl = micro_model(&(micro_options){.xl = true});

    REQUIRE(model && xl);
    check_model(model);
    check_model(xl);
}

static void contexts__two_at_once__same_bits_as_one_after_the_other(void)
{
    const char *model = micro_model(&(micro_options){0});
    job *alone[2], *beside[2];
    pthread_t threads[2];

    REQUIRE(model != NULL);
    for (int32_t i = 0; i < 2; i++) {
        alone[i] = new_job(model, 2, (uint64_t)i);
        beside[i] = new_job(model, 2, (uint64_t)i);
        work(alone[i]);
        CHECK_MSG(alone[i]->ok, "%s", alone[i]->why);
    }
    for (int32_t i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, thread_main, beside[i]) == 0);
    for (int32_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_MSG(beside[i]->ok, "%s", beside[i]->why);
        CHECK(same(alone[i], 0, beside[i], 0));
        free(alone[i]);
        free(beside[i]);
    }
}

int main(void)
{
    RUN(run__same_seed__same_bits);
    RUN(contexts__two_at_once__same_bits_as_one_after_the_other);
    return test_end();
}
