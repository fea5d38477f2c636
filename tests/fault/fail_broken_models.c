/* fail_broken_models.c -- model directories that are broken in one place each.
 *
 * Every case is a copy of a good small model (files by links) with one file replaced. Opening it
 * must be TSR_E_MODEL with a sentence that has the file and the problem; tsr_model_inspect must go
 * on, list the same problem and count it. Under ASAN this also shows that nothing leaks half-way.
 */
#include "tessera.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "tests/support/model_files.h"
#include "tests/support/test.h"

#define GOOD TSR_TEST_DATA "/models/sd2-tiny"
#define UNET "unet/diffusion_pytorch_model.safetensors"
#define VAE "vae/diffusion_pytorch_model.safetensors"
#define TEXT "text_encoder/model.safetensors"

typedef enum how {
    REPLACE, /* the first occurrence of `from` by `to` of the same length (in a binary file) */
    EDIT,    /* the first occurrence of `from` by `to`, in a text file */
    CUT,     /* the first half only */
    WRITE,   /* the file is `to` */
    HEADER,  /* a safetensors file with the header `to` and 64 bytes of data */
    RENAME,  /* to the name `to` in the same folder */
    REMOVE
} how;

typedef struct broken {
    const char *file;
    how how;
    const char *from, *to;
    const char *named, *reason; /* parts of the sentence */
} broken;

#define U8(name, begin, end)                                                                       \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" begin "," end "]}"

static const broken cases[] = {
    /* tensor files */
    {UNET, CUT, NULL, NULL, UNET, "truncated"},
    {VAE, WRITE, NULL, "", VAE, "truncated"},
    {VAE, WRITE, NULL, "\1\1\1\1\1\1\1\x10{}", VAE, "too large"}, /* 2^60 bytes of header */
    {VAE, WRITE, NULL, "version https://git-lfs.github.com/spec/v1\n", VAE, "no safetensors file"},
    {VAE, HEADER, NULL, "{" U8("a", "0", "4") "," U8("b", "2", "6") "}", VAE, "overlap"},
    {VAE, HEADER, NULL, "{" U8("a", "0", "4") "," U8("a", "4", "8") "}", VAE, "two tensors named"},
    {VAE, HEADER, NULL, "{" U8("a", "-4", "0") "}", VAE, "data_offsets"},
    {VAE, HEADER, NULL, "{" U8("a", "0", "4.5") "}", VAE, "data_offsets"},
    {VAE, HEADER, NULL, "{\"\xFF\":1}", VAE, "UTF-8"},
    {VAE, HEADER, NULL, "{}", VAE, "is missing"},
    {UNET, REPLACE, "\"conv_in.weight\"", "\"conv_in.weigth\"", UNET, "conv_in.weight"},
    {UNET, REPLACE, "{\"dtype\":\"F16\",\"shape\":[8,4,3,3],\"data_offsets\":[16,592]}",
     "{\"dtype\":\"F16\",\"shape\":[4,8,3,3],\"data_offsets\":[16,592]}", UNET, "[8,4,3,3]"},
    {UNET, REPLACE, "{\"dtype\":\"F16\",\"shape\":[8,4,3,3],\"data_offsets\":[16,592]}",
     "{\"dtype\":\"I16\",\"shape\":[8,4,3,3],\"data_offsets\":[16,592]}", UNET, "integer type I16"},
    {TEXT, RENAME, NULL, "pytorch_model.bin", "text_encoder", "pickles"},
    {UNET, RENAME, NULL, "weights.safetensors", "unet", "no tensors of the unet"},
    /* configs */
    {"unet/config.json", EDIT, "\"silu\"", "\"gelu\"", "unet/config.json", "act_fn"},
    {"unet/config.json", EDIT, "1e-05", "NaN", "unet/config.json", "not valid JSON"},
    {"unet/config.json", EDIT, "1e-05", "1e999", "unet/config.json", "norm_eps"},
    {"unet/config.json", CUT, NULL, NULL, "unet/config.json", "not valid JSON"},
    {"unet/config.json", REMOVE, NULL, NULL, "unet/config.json", "is missing"},
    {"unet/config.json", EDIT, "\"in_channels\": 4", "\"in_channels\": 9", "unet/config.json",
     "inpainting"},
    {"unet/config.json", EDIT, "\"cross_attention_dim\": 16", "\"cross_attention_dim\": 24",
     "unet/config.json", "not of one model"},
    {"vae/config.json", EDIT, "\"latent_channels\": 4", "\"latent_channels\": 16",
     "vae/config.json", "not of one model"},
    {"text_encoder/config.json", EDIT, "\"gelu\"", "\"relu\"", "text_encoder/config.json",
     "hidden_act"},
    {"model_index.json", REMOVE, NULL, NULL, "model_index.json", "is missing"},
    {"model_index.json", EDIT, "StableDiffusionPipeline", "FluxPipeline", "model_index.json",
     "FluxPipeline"},
    {"model_index.json", EDIT, "\"AutoencoderKL\"", "\"AutoencoderTiny\"", "model_index.json",
     "AutoencoderTiny"},
    {"scheduler/scheduler_config.json", REMOVE, NULL, NULL, "scheduler_config.json", "missing"},
    {"tokenizer/vocab.json", REMOVE, NULL, NULL, "vocab.json", ""},
    {"tokenizer/merges.txt", WRITE, NULL, "#version: 0.2\n", "tokenizer", "merges is empty"},
};

/* ------------------------------------------------------------------ copies */

static void link_tree(const char *from, const char *to)
{
    DIR *d = opendir(from);
    const struct dirent *e;

    CHECK(d && (mkdir(to, 0700) == 0 || tsr_path_is_dir(to)));
    while (d && (e = readdir(d))) {
        char source[4096], target[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(source, sizeof source, "%s/%s", from, e->d_name);
        snprintf(target, sizeof target, "%s/%s", to, e->d_name);
        if (tsr_path_is_dir(source))
            link_tree(source, target);
        else
            CHECK(symlink(source, target) == 0);
    }
    if (d)
        closedir(d);
}

/* A longer or shorter text instead of another, in `bytes` bytes of memory. */
static char *replaced(const char *data, size_t *bytes, const char *from, const char *to)
{
    size_t n_from = strlen(from), n_to = strlen(to), before;
    const char *at = memmem(data, *bytes, from, n_from);
    char *out = malloc(*bytes + n_to);

    if (!at || !out) {
        CHECK_MSG(at != NULL, "%s is not in the good file", from);
        return out;
    }
    before = (size_t)(at - data);
    memcpy(out, data, before);
    memcpy(out + before, to, n_to);
    memcpy(out + before + n_to, at + n_from, *bytes - before - n_from);
    *bytes = *bytes - n_from + n_to;
    return out;
}

static void break_file(const char *dir, const broken *b)
{
    char path[4096], other[4096], *good = NULL, *bad = NULL;
    size_t bytes = 0;
    tsr_err err = {0};

    snprintf(path, sizeof path, "%s/%s", dir, b->file);
    CHECK(tsr_file_slurp(path, (size_t)64 << 20, &good, &bytes, &err) == TSR_OK);
    if (b->how == RENAME) {
        snprintf(other, sizeof other, "%.*s/%s", (int)(strrchr(path, '/') - path), path, b->to);
        CHECK(rename(path, other) == 0);
    } else {
        CHECK(unlink(path) == 0);
    }
    if (b->how == CUT)
        model_file_write(dir, b->file, good, bytes / 2);
    else if (b->how == WRITE)
        model_file_text(dir, b->file, b->to);
    else if (b->how == HEADER)
        model_file_st(dir, b->file, b->to, NULL, 64);
    else if (b->how == REPLACE || b->how == EDIT)
        bad = replaced(good, &bytes, b->from, b->to);
    if (bad)
        model_file_write(dir, b->file, bad, bytes);
    CHECK(b->how != REPLACE || strlen(b->from) == strlen(b->to));
    free(bad);
    tsr_free(good);
}

/* ------------------------------------------------------------------ checks */

static tsr_context *make_context(void)
{
    tsr_context *ctx = NULL;
    char why[256] = "";

    CHECK_MSG(tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 1}, why, sizeof why) ==
                  TSR_OK,
              "%s", why);
    return ctx;
}

static void check_refused(tsr_context *ctx, const char *dir, const broken *b)
{
    tsr_model *model = NULL;
    tsr_status st = tsr_model_open(ctx, dir, &model);
    const char *why = tsr_context_error(ctx);

    CHECK_MSG(st == TSR_E_MODEL, "%s (%s): status %d, %s", b->file, b->reason, (int)st, why);
    CHECK_MSG(model == NULL, "%s: a model came out", b->file);
    CHECK_MSG(strstr(why, b->named), "%s is not named: %s", b->named, why);
    CHECK_MSG(strstr(why, b->reason), "\"%s\" is not said: %s", b->reason, why);
    CHECK_MSG(!strchr(why, '\n'), "more than a line: %s", why);
}

static void check_inspected(tsr_context *ctx, const char *dir, const broken *b)
{
    char *json = NULL;
    int32_t n_problems = -1;
    tsr_status st = tsr_model_inspect(ctx, dir, &json, &n_problems);

    CHECK_MSG(st == TSR_OK, "%s: %s", b->file, tsr_context_error(ctx));
    CHECK_MSG(n_problems >= 1, "%s (%s): no problem is counted", b->file, b->reason);
    CHECK_MSG(json && strstr(json, b->reason), "\"%s\" is not in the list:\n%s", b->reason,
              json ? json : "");
    tsr_string_free(json);
}

static void broken_models__each__refused_and_explained(void)
{
    tsr_context *ctx = make_context();

    REQUIRE(ctx != NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *dir = test_temp_dir();
        link_tree(GOOD, dir);
        break_file(dir, &cases[i]);
        check_refused(ctx, dir, &cases[i]);
        check_inspected(ctx, dir, &cases[i]);
    }
    tsr_context_free(ctx);
}

static void broken_models__bad_shard_index__refused_and_explained(void)
{
    static const broken index = {"unet", REMOVE, NULL, NULL, "index.json", "plain name"};
    static const char text[] = "{\"weight_map\":{\"conv_in.weight\":\"../vae/x.safetensors\"}}";
    const char *dir = test_temp_dir();
    tsr_context *ctx = make_context();
    char path[4096];

    REQUIRE(ctx != NULL);
    link_tree(GOOD, dir);
    snprintf(path, sizeof path, "%s/" UNET, dir);
    CHECK(unlink(path) == 0);
    model_file_text(dir, UNET ".index.json", text);
    check_refused(ctx, dir, &index);
    check_inspected(ctx, dir, &index);
    tsr_context_free(ctx);
}

/* A loop of links stands for whatever is there and cannot be opened, also where root may read all:
 * it is neither missing nor, where the file is an optional one, left out. */
static void broken_models__files_that_cannot_be_opened__are_not_missing(void)
{
    static const char *const files[] = {"model_index.json",
                                        "unet/config.json",
                                        "scheduler/scheduler_config.json",
                                        "tokenizer/tokenizer_config.json",
                                        "tokenizer/vocab.json",
                                        VAE};
    tsr_context *ctx = make_context();

    REQUIRE(ctx != NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *dir = test_temp_dir();
        tsr_model *model = NULL;
        char path[4096];
        tsr_status st;

        link_tree(GOOD, dir);
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        CHECK(unlink(path) == 0 && symlink(path, path) == 0);
        st = tsr_model_open(ctx, dir, &model);
        CHECK_MSG(st == TSR_E_IO && strstr(tsr_context_error(ctx), "cannot open") &&
                      strstr(tsr_context_error(ctx), files[i]),
                  "%s: status %d, %s", files[i], (int)st, tsr_context_error(ctx));
        tsr_model_free(model);
    }
    tsr_context_free(ctx);
}

/* The copy by links is a good model: what is refused above is refused for its one change. */
static void broken_models__unbroken_copy__opens(void)
{
    const char *dir = test_temp_dir();
    tsr_context *ctx = make_context();
    tsr_model *model = NULL;
    char *json = NULL;
    int32_t n_problems = -1;

    REQUIRE(ctx != NULL);
    link_tree(GOOD, dir);
    CHECK_MSG(tsr_model_open(ctx, dir, &model) == TSR_OK, "%s", tsr_context_error(ctx));
    tsr_model_free(model);
    CHECK(tsr_model_inspect(ctx, dir, &json, &n_problems) == TSR_OK);
    CHECK_MSG(n_problems == 0, "%s", json ? json : "");
    tsr_string_free(json);
    tsr_context_free(ctx);
}

int main(void)
{
    RUN(broken_models__unbroken_copy__opens);
    RUN(broken_models__each__refused_and_explained);
    RUN(broken_models__bad_shard_index__refused_and_explained);
    RUN(broken_models__files_that_cannot_be_opened__are_not_missing);
    return test_end();
}
