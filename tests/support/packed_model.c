/* packed_model.c -- see packed_model.h. */
#include "tests/support/packed_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WHY_BYTES = 512 };

tsr_status packed_model_make(const char *from, const char *to, tsr_cpu_tier tier,
                             tsr_precision precision, char *why)
{
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_context_desc desc = {.n_threads = 1, .cpu_tier = tier};
    tsr_status st = tsr_context_make(&ctx, &desc, why, WHY_BYTES);

    if (st != TSR_OK)
        return st;
    st = tsr_model_open(ctx, from, &model);
    if (st == TSR_OK)
        st = tsr_model_convert(model, to, &(tsr_convert_desc){.precision = precision});
    snprintf(why, WHY_BYTES, "%s", tsr_context_error(ctx));
    tsr_model_free(model);
    tsr_context_free(ctx);
    return st;
}

static tsr_status make(small_picture *p, tsr_context *ctx, const char *path, tsr_run_desc *d)
{
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_run_info info;
    tsr_picture pic;
    tsr_status st = tsr_model_open(ctx, path, &model);

    if (st == TSR_OK)
        st = tsr_run_make(ctx, model, d, &run);
    if (st == TSR_OK)
        st = tsr_run_next(run, &pic);
    if (st == TSR_OK) {
        tsr_run_get_info(run, &info);
        p->minimum_budget = info.minimum_budget_bytes;
        p->bytes_streamed = info.bytes_streamed;
        snprintf(p->model_hash, sizeof p->model_hash, "%s", info.model_hash);
        p->latent_bytes = sizeof(float) * (size_t)pic.latents_shape[0] *
                          (size_t)pic.latents_shape[1] * (size_t)pic.latents_shape[2];
        memcpy(p->latents, pic.latents, p->latent_bytes);
        memcpy(p->rgb, pic.rgb, 3 * (size_t)pic.width * (size_t)pic.height);
    }
    snprintf(p->why, sizeof p->why, "%s", tsr_context_error(ctx));
    tsr_run_free(run);
    tsr_model_free(model);
    return st;
}

static void make_in_context(small_picture *p, const char *model, tsr_cpu_tier tier, tsr_run_desc *d,
                            int32_t side)
{
    tsr_context *ctx = NULL;

    memset(p, 0, sizeof *p);
    p->side = d->width = d->height = side;
    d->prompt = "fox";
    d->steps = 2;
    d->seed = 5;
    d->seed_given = true;
    p->st = tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 2, .cpu_tier = tier}, p->why,
                             sizeof p->why);
    if (p->st == TSR_OK)
        p->st = make(p, ctx, model, d);
    tsr_context_free(ctx);
}

void small_picture_make(small_picture *p, const char *model, tsr_cpu_tier tier,
                        tsr_precision precision, int32_t side)
{
    make_in_context(p, model, tier, &(tsr_run_desc){.precision = precision}, side);
}

void small_picture_make_within(small_picture *p, const char *model, tsr_cpu_tier tier, int32_t side,
                               size_t budget)
{
    small_picture *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child;

    if (shared == MAP_FAILED)
        abort();
    shared->st = TSR_E_INTERNAL;
    child = fork();
    if (child == 0) {
        make_in_context(shared, model, tier,
                        &(tsr_run_desc){.budget_bytes = budget, .strict = true}, side);
        _exit(0);
    }
    (void)waitpid(child, NULL, 0);
    *p = *shared;
    munmap(shared, sizeof *shared);
}

bool small_picture_same(const small_picture *a, const small_picture *b)
{
    return a->st == TSR_OK && b->st == TSR_OK && a->side == b->side &&
           a->latent_bytes == b->latent_bytes && strcmp(a->model_hash, b->model_hash) == 0 &&
           memcmp(a->latents, b->latents, a->latent_bytes) == 0 &&
           memcmp(a->rgb, b->rgb, 3 * (size_t)a->side * (size_t)a->side) == 0;
}
