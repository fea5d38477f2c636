/* golden_sharing.c -- what a UNet computes once: for both halves of guidance what does not depend
 * on the prompt, for all pictures of a batch what depends on the prompt alone.
 *
 * First the tape: which values have how many entries, and the operations that this saves. Then the
 * bits: pictures and prompts together against each pair alone. Against the reference's forwards the
 * network is held in golden_unet.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/golden_nets.h"

enum { PROMPTS = 2, PICTURES = 3, STEPS = 4 };

/* A model of a root, recorded. */
typedef struct recorded {
    golden_unet unet;
    golden_net net;
    tsr_unet_io io;
    bool ok;
} recorded;

static void record(recorded *r, const char *dir, int32_t prompts, int32_t pictures)
{
    tsr_unet_shape shape = {
        .pictures = pictures, .prompts = prompts, .h = 8, .w = 8, .s = 7, .n_steps = STEPS};

    memset(r, 0, sizeof *r);
    golden_net_init(&r->net, TSR_F16);
    if (!golden_unet_open(&r->unet, dir))
        return;
    r->unet.comp.err = &r->net.err;
    r->ok = golden_ok(
        tsr_unet_build(&r->net.tape, &r->unet.comp, &r->unet.cfg, &shape, &r->io, NULL, 0),
        &r->net.err);
}

static void release(recorded *r)
{
    golden_net_free(&r->net);
    golden_unet_close(&r->unet);
}

static const tsr_value *made(const recorded *r, size_t op)
{
    return tsr_tape_value(&r->net.tape, r->net.tape.ops[op].out);
}

/* The first op of the loop whose output depends on the prompt. */
static size_t first_with_prompt(const recorded *r)
{
    size_t i = (size_t)r->net.tape.loop_begin;

    while (i < r->net.tape.n_ops && made(r, i)->entries.prompts == 1)
        i++;
    return i;
}

static double flops_of(const recorded *r, size_t begin, size_t end)
{
    double sum = 0;

    for (size_t i = begin; i < end; i++)
        sum += tsr_op_flops(&r->net.tape, &r->net.tape.ops[i]);
    return sum;
}

/* `first`: the op in which the prompt comes in. The prologue: the prompt's keys and values, one
 * entry a prompt; rows of time, `rows` a step. */
static void check_tape(const char *model, const char *first, int32_t rows)
{
    char dir[512];
    recorded one, half, grid;

    snprintf(dir, sizeof dir, TSR_TEST_DATA "/models/%s/unet", model);
    record(&one, dir, 1, 1);
    record(&half, dir, PROMPTS, 1);
    record(&grid, dir, PROMPTS, PICTURES);
    if (one.ok && half.ok && grid.ok) {
        size_t n = one.net.tape.n_ops, loop = (size_t)one.net.tape.loop_begin;
        size_t at = first_with_prompt(&grid);
        double prefix = flops_of(&one, loop, at);

        REQUIRE(grid.net.tape.n_ops == n && at < n);
        CHECK_MSG(strstr(grid.net.tape.ops[at].name, first), "%s: the prompt comes in at %s", model,
                  grid.net.tape.ops[at].name);
        for (size_t i = loop; i < n; i++)
            CHECK_MSG(made(&grid, i)->n == PICTURES * made(&grid, i)->entries.prompts &&
                          made(&half, i)->n == made(&grid, i)->entries.prompts,
                      "%s: %s has %d entries", model, grid.net.tape.ops[i].name, made(&grid, i)->n);
        for (size_t i = 0; i < loop; i++) {
            const char *name = grid.net.tape.ops[i].name;
            int32_t want = strstr(name, "attn2")           ? PROMPTS
                           : strstr(name, "time_emb_proj") ? rows * STEPS
                                                           : made(&grid, i)->n;
            CHECK_MSG(made(&grid, i)->n == want, "%s: %s has %d entries and not %d", model, name,
                      made(&grid, i)->n, want);
        }
        /* Shares behind the prefix, if there are any (norms of skips are not), save still more. */
        CHECK(flops_of(&half, loop, n) <= 2 * flops_of(&one, loop, n) - prefix);
        CHECK(flops_of(&half, loop, at) == prefix);
        CHECK(flops_of(&grid, loop, n) == PICTURES * flops_of(&half, loop, n));
        test_note("%s: %zu of %zu ops before %s, %.1f %% of a picture's step are shared", model,
                  at - loop, n - loop, grid.net.tape.ops[at].name,
                  100 * prefix / (2 * flops_of(&one, loop, n)));
    }
    release(&one);
    release(&half);
    release(&grid);
}

static void unet__tape__has_what_the_prompt_does_not_change_once(void)
{
    check_tape("sd2-tiny", "down_blocks.0.attentions.0.transformer_blocks.0.attn2", 1);
    /* A first level without cross-attention is shared as a whole. */
    check_tape("sd1-odd", "down_blocks.1.attentions.0.transformer_blocks.0.attn2", 1);
    /* SDXL: the time embedding has text in it, so the first residual block has it, too. */
    check_tape("sdxl-tiny", "down_blocks.0.resnets.0.conv1", PROMPTS);
}

/* Three pictures with two prompts that they share, against six forwards of one entry. */
static void check_bits(const char *model, const char *name, golden_job job)
{
    char dir[512], file[128];
    golden g;
    golden_unet unet;
    golden_unet_in in, grid, one;
    float *sample, *all, *x;
    size_t n = 0, m = 0;

    snprintf(dir, sizeof dir, TSR_TEST_DATA "/models/%s/unet", model);
    snprintf(file, sizeof file, "unet-%s", model);
    REQUIRE(golden_open(&g, TSR_TEST_DATA, file) && golden_unet_open(&unet, dir) &&
            golden_unet_inputs(&g, name, NULL, &in) && in.n == PROMPTS);
    sample = malloc(PICTURES * in.sample_size * sizeof *sample);
    REQUIRE(sample != NULL);
    memcpy(sample, in.sample, 2 * in.sample_size * sizeof *sample);
    for (size_t i = 0; i < in.sample_size; i++)
        sample[2 * in.sample_size + i] = (sample[i] + sample[in.sample_size + i]) / 2;
    grid = in;
    grid.n = PROMPTS * PICTURES;
    grid.latent_n = PICTURES;
    grid.same_prompts = true;
    grid.sample = sample;
    grid.timesteps = (float[PROMPTS * PICTURES]){261, 261, 261, 261, 261, 261};
    all = golden_unet_once(&unet, job, &grid, &n);
    for (int32_t i = 0; i < grid.n; i++) {
        one = golden_unet_entry(&in, i / PICTURES); /* the prompt's */
        one.sample = sample + (size_t)(i % PICTURES) * in.sample_size;
        one.timesteps = grid.timesteps;
        x = golden_unet_once(&unet, job, &one, &m);
        CHECK(m * (size_t)grid.n == n);
        golden_check_bits("a picture and a prompt of six", &job, all ? all + (size_t)i * m : NULL,
                          x, m);
        free(x);
    }
    free(all);
    free(sample);
    golden_unet_close(&unet);
    golden_close(&g);
}

static void unet__pictures_and_prompts_together__have_the_bits_of_each_alone(void)
{
    static const char *const CASES[][2] = {
        {"sd1-odd", "b2_10x14_t1"}, {"sd2-tiny", "b2_12x20_t250"}, {"sdxl-tiny", "b2_16x24_t1"}};

    for (size_t i = 0; i < 3; i++) {
        golden_job job = golden_job_best(TSR_F16);
        check_bits(CASES[i][0], CASES[i][1], job);
        job.window_rows = 4;
        job.dtype = TSR_F32;
        check_bits(CASES[i][0], CASES[i][1], job);
    }
}

int main(void)
{
    RUN(unet__tape__has_what_the_prompt_does_not_change_once);
    RUN(unet__pictures_and_prompts_together__have_the_bits_of_each_alone);
    return test_end();
}
