/* golden_text.c -- the text encoders against the reference's, and against themselves.
 *
 * Goldens: all outputs that pipelines take from every model in tests/data, and in the whole
 * reference data where it is here: last hidden state, the layer before it, clip skip, pooled and
 * projected outputs, the output of every layer, what the reference's pipelines hand to the UNet.
 * Then what must not change a bit: batch, windows, threads, what else is asked for. */
#include "tests/support/golden_clip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double FP32_LIMIT = 2e-5, FP16_LIMIT = 2e-3;
static const char *const MODELS[] = {"sd1-tiny", "sd1-odd", "sd2-tiny", "sdxl-tiny"};
static const char *const SUFFIXES[] = {"", "_2"};
enum { N_MODELS = sizeof MODELS / sizeof *MODELS, MAX_LAYERS = 8 };

/* One encoder of one model with its goldens; "<tensor><suffix>" are its own. */
typedef struct fixture {
    const char *model, *suffix;
    golden g;
    golden_clip clip;
    const golden_tensor *ids; // [N,77]
    int32_t column;           /* of its share of the pipeline's embeddings */
} fixture;

static bool part_path(char *path, size_t bytes, const char *root, const char *model,
                      const char *suffix)
{
    snprintf(path, bytes, "models/%s/text_encoder%s/config.json", model, suffix);
    return golden_has(root, path);
}

static bool fixture_open(fixture *f, const char *root, const char *model, const char *suffix)
{
    char name[64], dir[4096];

    memset(f, 0, sizeof *f);
    f->model = model;
    f->suffix = suffix;
    snprintf(name, sizeof name, "text-%s", model);
    snprintf(dir, sizeof dir, "%s/models/%s/text_encoder%s", root, model, suffix);
    if (!golden_open(&f->g, root, name) || !golden_clip_open(&f->clip, dir))
        return false;
    f->ids = golden_need(&f->g, "input_ids%s", suffix);
    if (*suffix) {
        const golden_tensor *first = golden_need(&f->g, "last_hidden_state");
        f->column = first ? first->dims[2] : 0;
    }
    return f->ids != NULL;
}

static void fixture_close(fixture *f)
{
    golden_clip_close(&f->clip);
    golden_close(&f->g);
}

static golden_job best(tsr_dtype dtype)
{
    return (golden_job){.dtype = dtype, .tier = tsr_cpu_best_tier(), .n_threads = 2};
}

static tsr_clip_shape all_prompts(const fixture *f)
{
    return (tsr_clip_shape){.n = f->ids->dims[0], .s = f->ids->dims[1]};
}

/* ----------------------------------------------------------------- goldens */

/* Compares value `v` of the run with `want`, or its first elements when want is the first prompt
 * only. */
static void compare(fixture *f, golden_net *net, const golden_job *job, tsr_val v,
                    const char *tensor, const golden_tensor *want)
{
    char what[128];
    size_t n;
    float *got = golden_net_get(net, v, &n);

    snprintf(what, sizeof what, "text %s %s", f->model, tensor);
    if (want && n > want->n && n % want->n == 0)
        n = want->n;
    golden_compare(what, golden_precision(job), tsr_cpu_tier_name(job->tier), got, n, want,
                   job->dtype == TSR_F32 ? FP32_LIMIT : FP16_LIMIT);
    free(got);
}

static void compare_golden(fixture *f, golden_net *net, const golden_job *job, tsr_val v,
                           const char *tensor)
{
    char name[64];

    snprintf(name, sizeof name, "%s%s", tensor, f->suffix);
    compare(f, net, job, v, name, golden_need(&f->g, "%s", name));
}

/* Last hidden state, pooled output, every layer. */
static void check_last(fixture *f, golden_job job)
{
    char names[MAX_LAYERS][16];
    tsr_tap taps[MAX_LAYERS + 1] = {{.module = "embeddings"}};
    tsr_clip_shape shape = all_prompts(f);
    tsr_clip_io io;
    golden_net net = {0};

    shape.final_norm = shape.pooled = true;
    job.taps = taps;
    job.n_taps = f->clip.cfg.layers + 1;
    for (int32_t i = 0; i < f->clip.cfg.layers && i < MAX_LAYERS; i++) {
        snprintf(names[i], sizeof names[i], "layer%d", (int)i);
        taps[i + 1].module = names[i];
    }
    if (golden_clip_forward(&net, &f->clip, &job, &shape, f->ids->data, &io)) {
        compare_golden(f, &net, &job, io.hidden, "last_hidden_state");
        compare_golden(f, &net, &job, io.pooled,
                       f->clip.cfg.with_projection ? "text_embeds" : "pooled");
        for (int32_t i = 0; i < job.n_taps; i++)
            compare_golden(f, &net, &job, taps[i].value, taps[i].module);
    }
    golden_net_free(&net);
}

static void check_skipped(fixture *f, golden_job job, int32_t skip, bool final_norm,
                          const char *tensor)
{
    tsr_clip_shape shape = all_prompts(f);
    tsr_clip_io io;
    golden_net net = {0};

    shape.skip = skip;
    shape.final_norm = final_norm;
    if (golden_clip_forward(&net, &f->clip, &job, &shape, f->ids->data, &io)) {
        CHECK(io.eot == 0 && io.pooled == 0);
        compare_golden(f, &net, &job, io.hidden, tensor);
    }
    golden_net_free(&net);
}

/* Columns [column, column + d) of a golden [1,S,D]. */
static bool cut_columns(const golden_tensor *all, int32_t column, int32_t d, golden_tensor *out)
{
    int32_t width = all->dims[2];

    *out = (golden_tensor){.n = (size_t)(all->dims[1] * d)};
    out->data = malloc(out->n * sizeof *out->data);
    for (size_t i = 0; out->data && i < out->n; i++)
        out->data[i] = all->data[(int32_t)i / d * width + column + (int32_t)i % d];
    return out->data;
}

/* What the pipeline hands to the UNet for the first prompt: SD with the final norm, SDXL one layer
 * earlier and without. */
static void check_pipeline(fixture *f, golden_job job)
{
    bool is_xl = golden_find(&f->g, "last_hidden_state_2") != NULL;

    for (int32_t skip = 0; skip <= 2; skip++) {
        tsr_clip_shape shape = {.n = 1, .s = f->ids->dims[1], .final_norm = !is_xl};
        char name[64];
        const golden_tensor *all;
        golden_tensor want = {0};
        golden_net net = {0};
        tsr_clip_io io;

        snprintf(name, sizeof name, "pipe_prompt_embeds_skip%d", (int)skip);
        all = golden_find(&f->g, "%s", name);
        shape.skip = skip + is_xl;
        if (all && cut_columns(all, f->column, f->clip.cfg.width, &want) &&
            golden_clip_forward(&net, &f->clip, &job, &shape, f->ids->data, &io))
            compare(f, &net, &job, io.hidden, name, &want);
        golden_net_free(&net);
        free(want.data);
    }
}

static void check_encoder(fixture *f, golden_job job)
{
    check_last(f, job);
    check_skipped(f, job, 1, false, "hidden_penultimate");
    check_skipped(f, job, 2, true, "clip_skip2");
    check_pipeline(f, job);
}

/* Every encoder of every model of the root; returns how many. */
static int32_t check_root(const char *root, tsr_cpu_tier tier)
{
    int32_t n_encoders = 0;

    for (int32_t i = 0; i < 2 * N_MODELS; i++) {
        const char *model = MODELS[i / 2], *suffix = SUFFIXES[i % 2];
        char path[128];
        fixture f;
        golden_job job = {.tier = tier, .n_threads = 2};

        if (!part_path(path, sizeof path, root, model, suffix))
            continue;
        n_encoders++;
        if (fixture_open(&f, root, model, suffix)) {
            for (int32_t half = 0; half < 2; half++) {
                job.dtype = half ? TSR_F16 : TSR_F32;
                check_encoder(&f, job);
            }
            golden_check_all_used(&f.clip.comp);
        }
        fixture_close(&f);
    }
    return n_encoders;
}

static void text__small_encoders__match_the_reference(void)
{
    CHECK(check_root(golden_root(0), tsr_cpu_best_tier()) == 2);
}

static void text__portable_tier__matches_the_reference(void)
{
    CHECK(check_root(golden_root(0), TSR_TIER_PORTABLE) == 2);
}

static void text__all_encoders__match_the_reference(void)
{
    const char *root = golden_root(1);

    if (!root)
        SKIP("the reference data");
    CHECK(check_root(root, tsr_cpu_best_tier()) == 5);
}

/* --------------------------------------------------------------- same bits */

/* The hidden states (or the pooled output) of one run. */
static float *forward(fixture *f, golden_job job, tsr_clip_shape shape, const float *ids,
                      bool pooled, size_t *n)
{
    golden_net net = {0};
    tsr_clip_io io;
    float *x = NULL;

    *n = 0;
    if (golden_clip_forward(&net, &f->clip, &job, &shape, ids, &io))
        x = golden_net_get(&net, pooled ? io.pooled : io.hidden, n);
    golden_net_free(&net);
    return x;
}

/* Compares x with the part of `all` that begins at element `at`, and frees x. */
static void check_part(const char *what, float *x, size_t n, const float *all, size_t n_all,
                       size_t at)
{
    CHECK_MSG(x && all && n > 0 && at + n <= n_all && memcmp(x, all + at, n * sizeof *x) == 0,
              "%s: the bits differ", what);
    free(x);
}

static void check_same_bits(fixture *f, golden_job job)
{
    tsr_clip_shape shape = all_prompts(f), one, less;
    golden_job other = job;
    size_t n_all, n_pooled, n;
    float *all, *pooled, *x;

    shape.skip = 1;
    shape.final_norm = shape.pooled = true;
    all = forward(f, job, shape, f->ids->data, false, &n_all);
    pooled = forward(f, job, shape, f->ids->data, true, &n_pooled);
    one = shape;
    one.n = 1;
    for (int32_t i = 0; i < shape.n; i++) {
        const float *ids = f->ids->data + i * shape.s;
        x = forward(f, job, one, ids, false, &n);
        check_part("one prompt and the batch", x, n, all, n_all, (size_t)i * n);
        x = forward(f, job, one, ids, true, &n);
        check_part("pooled of one prompt and the batch", x, n, pooled, n_pooled, (size_t)i * n);
    }
    less = shape;
    less.pooled = false;
    x = forward(f, job, less, f->ids->data, false, &n);
    check_part("without the pooled output", x, n, all, n_all, 0);
    less = shape;
    less.skip = 0;
    x = forward(f, job, less, f->ids->data, true, &n);
    check_part("pooled without clip skip", x, n, pooled, n_pooled, 0);
    other.window_rows = 5;
    x = forward(f, other, shape, f->ids->data, false, &n);
    check_part("windows of five tokens", x, n, all, n_all, 0);
    other = job;
    other.n_threads = 1;
    x = forward(f, other, shape, f->ids->data, false, &n);
    check_part("one thread and two", x, n, all, n_all, 0);
    free(all);
    free(pooled);
}

static void text__batch_windows_threads_outputs__change_no_bit(void)
{
    for (int32_t i = 0; i < 4; i++) {
        fixture f;
        if (fixture_open(&f, golden_root(0), i / 2 ? "sd2-tiny" : "sd1-odd", ""))
            check_same_bits(&f, best(i % 2 ? TSR_F16 : TSR_F32));
        fixture_close(&f);
    }
}

/* The mask is causal: what comes later changes nothing before it, and shorter texts fit. */
static void text__later_tokens__change_no_earlier_row(void)
{
    enum { KEPT = 9 };
    fixture f;

    if (fixture_open(&f, golden_root(0), "sd2-tiny", "")) {
        tsr_clip_shape shape = {.n = 1, .s = 77, .final_norm = true}, shorter = shape;
        size_t n_all, n;
        float *all = forward(&f, best(TSR_F32), shape, f.ids->data, false, &n_all), *x;
        shorter.s = KEPT;
        x = forward(&f, best(TSR_F32), shorter, f.ids->data, false, &n);
        CHECK(n == (size_t)KEPT * (size_t)f.clip.cfg.width);
        check_part("the first tokens alone", x, n, all, n_all, 0);
        free(all);
    }
    fixture_close(&f);
}

/* ------------------------------------------------------------------ errors */

static tsr_status build(fixture *f, tsr_clip_shape shape)
{
    tsr_tape t;
    tsr_clip_io io;
    tsr_status st;

    tsr_tape_init(&t, TSR_F32, &f->clip.err);
    f->clip.comp.err = &f->clip.err;
    tsr_err_clear(&f->clip.err);
    st = tsr_clip_build(&t, &f->clip.comp, &f->clip.cfg, &shape, &io, NULL, 0);
    tsr_tape_free(&t);
    return st;
}

static void text__impossible_shapes_and_ids__are_refused(void)
{
    fixture f;

    if (fixture_open(&f, golden_root(0), "sd1-odd", "")) {
        int32_t layers = f.clip.cfg.layers, vocab = f.clip.cfg.vocab, negative = -1;
        float out[64], row[64];
        CHECK(build(&f, (tsr_clip_shape){.n = 1, .s = 77, .skip = layers}) == TSR_OK);
        CHECK(build(&f, (tsr_clip_shape){.n = 1, .s = 77, .skip = layers + 1}) == TSR_E_USAGE);
        CHECK(build(&f, (tsr_clip_shape){.n = 1, .s = 77, .skip = -1}) == TSR_E_USAGE);
        CHECK(build(&f, (tsr_clip_shape){.n = 1, .s = 78}) == TSR_E_USAGE);
        CHECK(f.clip.cfg.width <= 64);
        CHECK(tsr_clip_read_embeds(&f.clip.comp, &f.clip.cfg, &vocab, 1, TSR_F32, out, row, NULL) ==
              TSR_E_MODEL);
        CHECK(tsr_clip_read_embeds(&f.clip.comp, &f.clip.cfg, &negative, 1, TSR_F32, out, row,
                                   NULL) == TSR_E_MODEL);
        vocab--;
        CHECK(tsr_clip_read_embeds(&f.clip.comp, &f.clip.cfg, &vocab, 1, TSR_F32, out, row, NULL) ==
              TSR_OK);
    }
    fixture_close(&f);
}

static void text__pooled_row__is_the_end_tokens(void)
{
    static const int32_t ids[6] = {7, 3, 9, 9, 9, 0};
    tsr_clip_config cfg = {.eos_token_id = 2};

    CHECK(tsr_clip_eot(&cfg, ids, 6) == 2); /* the first of the largest */
    cfg.eos_token_id = 3;
    CHECK(tsr_clip_eot(&cfg, ids, 6) == 1);
    cfg.eos_token_id = 8; /* not there */
    CHECK(tsr_clip_eot(&cfg, ids, 6) == 0);
}

int main(void)
{
    RUN(text__small_encoders__match_the_reference);
    RUN(text__portable_tier__matches_the_reference);
    RUN(text__all_encoders__match_the_reference);
    RUN(text__batch_windows_threads_outputs__change_no_bit);
    RUN(text__later_tokens__change_no_earlier_row);
    RUN(text__impossible_shapes_and_ids__are_refused);
    RUN(text__pooled_row__is_the_end_tokens);
    return test_end();
}
