/* budget_full_plans.c -- plans of the full-size networks, from their configs alone.
 *
 * SD1.5 and SDXL are recorded against an empty checkpoint (every tensor is a stand-in), so plans
 * are made and nothing is computed. What is claimed of every plan: it fits what it was given, live
 * parts never overlap, more memory is never slower, one byte under the minimum is refused, the
 * choice comes at once; and the memory that the design promises. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "kernels/program.h"
#include "tests/support/test.h"
#include "unet/unet.h"
#include "vae/vae.h"

#define MIB(x) ((size_t)(x) << 20)

typedef struct full_net {
    tsr_err err;
    tsr_component comp;
    tsr_buf problems;
    tsr_unet_config unet;
    tsr_vae_config vae;
    tsr_tape tape;
    tsr_pool *pool;
} full_net;

/* An empty checkpoint in a directory of its own. */
static const char *empty_checkpoint(void)
{
    static char dir[4096];
    static const char header[] = "\2\0\0\0\0\0\0\0{}";
    char path[4200];
    tsr_err err = {0};
    tsr_out o = {0};

    snprintf(dir, sizeof dir, "%s/empty", test_temp_dir());
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors", dir);
    if (tsr_out_open(&o, path, &err) != TSR_OK || tsr_out_write(&o, header, 10, &err) != TSR_OK ||
        tsr_out_commit(&o, &err) != TSR_OK)
        return NULL;
    return dir;
}

static bool net_open(full_net *n, const char *model, const char *part)
{
    char path[4200];
    tsr_status st;

    memset(n, 0, sizeof *n);
    snprintf(path, sizeof path, "%s/full/%s/%s/config.json", TSR_TEST_DATA, model, part);
    st = strcmp(part, "unet") == 0 ? tsr_unet_config_load(path, &n->unet, NULL, &n->err)
                                   : tsr_vae_config_load(path, &n->vae, NULL, &n->err);
    if (st == TSR_OK)
        st = tsr_component_open(&n->comp, empty_checkpoint(), part, "diffusion_pytorch_model",
                                &n->err);
    n->comp.problems = &n->problems;
    n->comp.headers_only = true;
    if (st == TSR_OK)
        st = tsr_pool_make(&n->pool, 2, &n->err);
    CHECK_MSG(st == TSR_OK, "%s", n->err.msg);
    return st == TSR_OK;
}

static void net_close(full_net *n)
{
    tsr_tape_free(&n->tape);
    tsr_component_close(&n->comp);
    tsr_buf_free(&n->problems);
    tsr_pool_free(n->pool);
}

/* Stand-ins are float32 in the file; checkpoints of these models are usually half. */
static void as_half_files(tsr_tape *t)
{
    for (size_t w = 1; w < t->n_weights; w++)
        t->weights[w].file_dtype = TSR_F16;
}

static bool open_unet(full_net *n, const char *model, int32_t latent)
{
    tsr_unet_shape s = {
        .pictures = 1, .prompts = 2, .h = latent, .w = latent, .s = 77, .n_steps = 20};
    tsr_unet_io io;
    tsr_status st;

    if (!net_open(n, model, "unet"))
        return false;
    tsr_tape_init(&n->tape, TSR_F16, &n->err);
    st = tsr_unet_build(&n->tape, &n->comp, &n->unet, &s, &io, NULL, 0);
    CHECK_MSG(st == TSR_OK, "%s", n->err.msg);
    as_half_files(&n->tape);
    return st == TSR_OK;
}

static bool open_decoder(full_net *n, const char *model, int32_t latent, tsr_dtype dtype)
{
    int32_t nhw[3] = {1, latent, latent};
    tsr_val in, out;
    tsr_status st;

    if (!net_open(n, model, "vae"))
        return false;
    tsr_tape_init(&n->tape, dtype, &n->err);
    st = tsr_vae_decode_build(&n->tape, &n->comp, &n->vae, nhw, true, &in, &out, NULL, 0);
    CHECK_MSG(st == TSR_OK, "%s", n->err.msg);
    as_half_files(&n->tape);
    return st == TSR_OK;
}

static double ms_since(const struct timespec *begin)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)(now.tv_sec - begin->tv_sec) * 1e3 +
           (double)(now.tv_nsec - begin->tv_nsec) / 1e6;
}

static tsr_status plan(full_net *n, tsr_program *p, tsr_plan_options opt, double *ms)
{
    struct timespec begin;
    tsr_status st;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    st =
        tsr_program_make(p, &n->tape, tsr_cpu_backend(tsr_cpu_best_tier()), n->pool, &opt, &n->err);
    *ms = ms_since(&begin);
    return st;
}

#ifndef TSR_ON_DEVICE
static bool open_encoder(full_net *n, const char *model, int32_t side, tsr_dtype dtype)
{
    int32_t nhw[3] = {1, side, side};
    tsr_val in, out;
    tsr_status st;

    if (!net_open(n, model, "vae"))
        return false;
    tsr_tape_init(&n->tape, dtype, &n->err);
    st = tsr_vae_encode_build(&n->tape, &n->comp, &n->vae, nhw, &in, &out, NULL, 0);
    CHECK_MSG(st == TSR_OK, "%s", n->err.msg);
    as_half_files(&n->tape);
    return st == TSR_OK;
}

/* Budgets from the minimum to plenty. */
static void check_sweep(full_net *n, const char *name)
{
    tsr_plan_options opt = {.budget_bytes = 1, .may_spill = true};
    size_t minimum, fastest;
    double ms, worst = 0, seconds = 0;
    tsr_program p;

    CHECK(plan(n, &p, opt, &ms) == TSR_E_BUDGET && n->err.msg[0]);
    minimum = p.minimum_bytes;
    fastest = p.fastest_bytes;
    REQUIRE(minimum > 0 && fastest >= minimum);
    opt.budget_bytes = minimum - 1;
    CHECK(plan(n, &p, opt, &ms) == TSR_E_BUDGET);
    for (int32_t i = 0; i <= 12; i++) {
        size_t extra = (fastest - minimum) / 4096 * (size_t)(1 << i);
        opt.budget_bytes = i ? minimum + extra : minimum;
        REQUIRE(plan(n, &p, opt, &ms) == TSR_OK);
        CHECK(tsr_program_bytes(&p) <= opt.budget_bytes);
        CHECK(p.minimum_bytes == minimum && p.fastest_bytes == fastest);
        CHECK_MSG(i == 0 || p.plan.seconds <= seconds, "%s: %.3f s in %zu MiB, less before", name,
                  p.plan.seconds, opt.budget_bytes >> 20);
        seconds = p.plan.seconds;
        worst = ms > worst ? ms : worst;
        test_note("%s: %6.1f MB: row %2d uses %6.1f, %7.2f s a step, streams %4.0f, spills %5.0f, "
                  "file %4.0f MB, %zu actions",
                  name, (double)opt.budget_bytes / 1e6, p.plan.candidate,
                  (double)tsr_program_bytes(&p) / 1e6, p.plan.loop.seconds,
                  p.plan.loop.bytes_streamed / 1e6, p.plan.loop.bytes_spilled / 1e6,
                  (double)p.spill_bytes / 1e6, p.plan.n_actions);
        tsr_program_free(&p);
    }
    test_note("%s: %zu ops, at most %.1f ms a plan", name, n->tape.n_ops, worst);
#if !defined(TSR_SANITIZED) && !defined(TSR_DEBUG)
    CHECK(worst < 300); /* 100 on a machine that is free */
#endif
}

/* A budget in 10^6 bytes for the arena, and the speed that the best plan of a plain checkpoint
 * keeps under it, whatever the tier. */
typedef struct promise {
    double megabytes, speed;
} promise;

static void check_promises(full_net *n, const char *name, const promise *list)
{
    tsr_plan_options opt = {.may_spill = true};
    double ms, best;
    tsr_program p;

    REQUIRE(plan(n, &p, opt, &ms) == TSR_OK);
    best = p.plan.loop.seconds;
    tsr_program_free(&p);
    for (; list->megabytes > 0; list++) {
        opt.budget_bytes = (size_t)(list->megabytes * 1e6);
        CHECK_MSG(plan(n, &p, opt, &ms) == TSR_OK, "%s: %s", name, n->err.msg);
        CHECK_MSG(best / p.plan.loop.seconds >= list->speed, "%s: %.3f of the speed in %.0f MB",
                  name, best / p.plan.loop.seconds, list->megabytes);
        tsr_program_free(&p);
    }
}

/* Room beside a streamed candidate is filled with weights. */
static void check_filled(full_net *n, size_t budget)
{
    tsr_plan_options opt = {.may_spill = true, .budget_bytes = budget};
    tsr_program p;
    double ms;

    REQUIRE(plan(n, &p, opt, &ms) == TSR_OK);
    CHECK(p.plan.loop.bytes_streamed > 0);
    CHECK_MSG(budget - tsr_program_bytes(&p) < 2 << 20, "%zu of %zu bytes are used",
              tsr_program_bytes(&p), budget);
    tsr_program_free(&p);
}

static void plan__unets__fit_the_design(void)
{
    full_net n;

    if (open_unet(&n, "sd15", 64)) {
        check_sweep(&n, "sd15 512");
        check_filled(&n, 60000000);
        check_promises(&n, "sd15 512", (promise[]){{60, 0.87}, {44, 0.8}, {43, 0.8}, {0, 0}});
    }
    net_close(&n);
    if (open_unet(&n, "sdxl", 128)) {
        check_sweep(&n, "sdxl 1024");
        check_promises(&n, "sdxl 1024", (promise[]){{140, 0.9}, {108, 0.85}, {82, 0.8}, {0, 0}});
    }
    net_close(&n);
}

static void plan__decoders__fit_the_design(void)
{
    full_net n;

    if (open_decoder(&n, "sd15", 64, TSR_F16)) {
        check_sweep(&n, "decoder 512 fp16");
        check_promises(&n, "decoder 512 fp16", (promise[]){{39, 0.85}, {26, 0.8}, {0, 0}});
    }
    net_close(&n);
    if (open_decoder(&n, "sd15", 256, TSR_F16)) {
        check_sweep(&n, "decoder 2048 fp16");
        check_promises(&n, "decoder 2048 fp16", (promise[]){{165, 0.9}, {65, 0.8}, {0, 0}});
    }
    net_close(&n);
    if (open_decoder(&n, "sdxl", 128, TSR_F32)) {
        check_sweep(&n, "decoder 1024 fp32");
        check_promises(&n, "decoder 1024 fp32", (promise[]){{140, 0.8}, {60, 0.8}, {0, 0}});
    }
    net_close(&n);
    if (open_encoder(&n, "sd15", 1024, TSR_F16)) {
        check_sweep(&n, "encoder 1024 fp16");
        check_promises(&n, "encoder 1024 fp16", (promise[]){{60, 0.8}, {0, 0}});
    }
    net_close(&n);
}
#endif

#ifdef TSR_ON_DEVICE
/* What the driver and the libraries take of a card, as is assumed where nobody can be asked. */
#define CONTEXT_BYTES MIB(300)

/* Within `card` bytes, context included; `resident`: with every weight loaded once. */
static void check_card(full_net *n, const char *name, double card, bool resident)
{
    tsr_plan_options opt = {.may_spill = true, .budget_bytes = (size_t)card - CONTEXT_BYTES};
    tsr_program p;
    double ms;

    if (resident)
        opt.offload = TSR_OFFLOAD_NONE;
    if (plan(n, &p, opt, &ms) != TSR_OK) {
        CHECK_MSG(false, "%s in %.0f bytes: %s", name, card, n->err.msg);
        return;
    }
    CHECK_MSG(tsr_program_bytes(&p) <= opt.budget_bytes, "%s: %zu bytes", name,
              tsr_program_bytes(&p));
    CHECK_MSG(!resident || p.plan.loop.bytes_streamed + p.plan.loop.bytes_spilled == 0,
              "%s is not resident", name);
    test_note("%s: %zu MB of %.0f, context included; %.0f MB streamed a step", name,
              (tsr_program_bytes(&p) + CONTEXT_BYTES) / 1000000, card / 1e6,
              p.plan.loop.bytes_streamed / 1e6);
    tsr_program_free(&p);
}

static void plan__cards__have_room(void)
{
    full_net n;

    if (open_unet(&n, "sd15", 64))
        check_card(&n, "sd15 512", 1e9, false);
    net_close(&n);
    if (open_decoder(&n, "sd15", 64, TSR_F16))
        check_card(&n, "decoder 512 fp16", 1e9, false);
    net_close(&n);
    if (open_unet(&n, "sdxl", 128)) {
        check_card(&n, "sdxl 1024", 2e9, false);
        check_card(&n, "sdxl 1024", 8e9, true);
    }
    net_close(&n);
    if (open_decoder(&n, "sdxl", 128, TSR_F32)) {
        check_card(&n, "decoder 1024 fp32", 2e9, false);
        check_card(&n, "decoder 1024 fp32", 8e9, true);
    }
    net_close(&n);
}

int main(void)
{
    RUN(plan__cards__have_room);
    return test_end();
}
#else
int main(void)
{
    RUN(plan__unets__fit_the_design);
    RUN(plan__decoders__fit_the_design);
    return test_end();
}
#endif
