/* test_packed.c -- packed checkpoints: the same pictures, bit for bit; no damage is computed with.
 */
#include "model/packed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "tests/support/micro_model.h"
#include "tests/support/packed_model.h"
#include "tests/support/test.h"

enum { SIDE = 20, FOOTER_BYTES = 80 };

static const tsr_cpu_tier tiers[] = {TSR_TIER_PORTABLE, TSR_TIER_AVX2, TSR_TIER_AVX512};
enum { N_TIERS = sizeof tiers / sizeof *tiers };

static const char *out_path(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", test_temp_dir(), name);
    return path;
}

/* A micro model in one file for the portable tier; NULL after failing the test. */
static const char *packed_micro(const micro_options *options)
{
    const char *dir = micro_model(options), *path = out_path("micro.tsr");
    char why[512];

    if (!dir)
        return NULL;
    if (packed_model_make(dir, path, TSR_TIER_PORTABLE, TSR_PRECISION_AUTO, why) != TSR_OK) {
        CHECK_MSG(false, "%s", why);
        return NULL;
    }
    return path;
}

/* ------------------------------------------------------------------ pictures */

/* In the same way they make a picture, or (`may_fail`) none. */
static void compare(const char *model, tsr_cpu_tier tier, tsr_precision precision, int32_t side,
                    bool may_fail)
{
    static small_picture plain, packed;
    const char *path = out_path("model.tsr");
    char why[512];

    CHECK_MSG(packed_model_make(model, path, tier, precision, why) == TSR_OK, "%s: %s", model, why);
    small_picture_make(&plain, model, tier, precision, side);
    small_picture_make(&packed, path, tier, TSR_PRECISION_AUTO, side);
    CHECK_MSG(packed.st == plain.st && (plain.st == TSR_OK || may_fail),
              "%s: status %d, plain %d: %s", model, packed.st, plain.st, packed.why);
    CHECK_MSG(plain.st != TSR_OK || small_picture_same(&plain, &packed),
              "%s, tier %s, precision %d: another picture", model, tsr_cpu_tier_name(tier),
              (int)precision);
    unlink(path);
}

static void convert__micro_models__same_pictures_in_every_tier(void)
{
    static const micro_options kinds[] = {
        {0}, {.xl = true}, {.unet_overflows = true}, {.vae_overflows = true}};

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const char *dir = micro_model(&kinds[k]);
        REQUIRE(dir);
        for (int i = 0; i < N_TIERS; i++) {
            if (!tsr_cpu_backend(tiers[i]))
                continue;
            compare(dir, tiers[i], TSR_PRECISION_FP16, SIDE, kinds[k].unet_overflows);
            compare(dir, tiers[i], TSR_PRECISION_FP32, SIDE, false);
        }
    }
}

static void convert__embedded_model__same_picture(void)
{
    if (!tsr_path_is_dir(TSR_TEST_DATA "/../../assets/model"))
        SKIP("assets/model");
    compare(TSR_TEST_DATA "/../../assets/model", TSR_TIER_AUTO, TSR_PRECISION_AUTO, 64, false);
}

/* The least budget that it plans: weights come from the file again and again, in pieces. */
static void convert__embedded_model_in_the_least_budget__same_picture(void)
{
    static const char model[] = TSR_TEST_DATA "/../../assets/model";
    static small_picture plain, packed, least;
    const char *path = out_path("least.tsr");
    char why[512];

    SKIP_IF_SANITIZED();
    if (!tsr_path_is_dir(model))
        SKIP("assets/model");
    CHECK_MSG(packed_model_make(model, path, TSR_TIER_AUTO, TSR_PRECISION_AUTO, why) == TSR_OK,
              "%s", why);
    small_picture_make_within(&plain, model, TSR_TIER_AUTO, 64, 0);
    small_picture_make_within(&packed, path, TSR_TIER_AUTO, 64, 0);
    small_picture_make_within(&least, path, TSR_TIER_AUTO, 64, packed.minimum_budget);
    CHECK_MSG(small_picture_same(&plain, &least), "%zu bytes: status %d \"%s\"",
              packed.minimum_budget, least.st, least.why);
    CHECK_MSG(least.bytes_streamed > packed.bytes_streamed, "%llu bytes streamed, with plenty %llu",
              (unsigned long long)least.bytes_streamed, (unsigned long long)packed.bytes_streamed);
}

static void convert__reference_models__same_pictures(void)
{
    static const char *const names[] = {"sd1-tiny", "sd1-odd", "sd2-tiny", "sdxl-tiny"};

    if (!test_reference_dir())
        SKIP("no reference data on this machine");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char dir[4096];
        snprintf(dir, sizeof dir, "%s/models/%s", test_reference_dir(), names[i]);
        compare(dir, TSR_TIER_AUTO, TSR_PRECISION_FP16, 32, false);
    }
}

static void run__another_precision__refused_by_name(void)
{
    static small_picture p;
    const char *path = packed_micro(&(micro_options){0});

    REQUIRE(path);
    small_picture_make(&p, path, TSR_TIER_PORTABLE, TSR_PRECISION_FP32, SIDE);
    CHECK_MSG(p.st == TSR_E_USAGE && strstr(p.why, "packed for fp16"), "%d \"%s\"", p.st, p.why);
}

static void open__another_tier__refused_by_name(void)
{
    static small_picture p;
    const char *path = packed_micro(&(micro_options){0});

    REQUIRE(path);
    if (!tsr_cpu_backend(TSR_TIER_AVX2))
        SKIP("a second tier on this machine");
    small_picture_make(&p, path, TSR_TIER_AVX2, TSR_PRECISION_AUTO, SIDE);
    CHECK_MSG(p.st == TSR_E_MODEL && strstr(p.why, "portable") && strstr(p.why, "avx2") &&
                  strstr(p.why, "convert"),
              "%d \"%s\"", p.st, p.why);
}

static void convert__packed_one__refused(void)
{
    const char *path = packed_micro(&(micro_options){0});
    char why[512], copy[4200];

    REQUIRE(path);
    snprintf(copy, sizeof copy, "%s.again", path);
    CHECK(packed_model_make(path, copy, TSR_TIER_PORTABLE, TSR_PRECISION_AUTO, why) == TSR_E_USAGE);
    CHECK_MSG(strstr(why, "packed already"), "\"%s\"", why);
}

/* ------------------------------------------------------------------ damage */

/* Turns bits of one byte; again: as it was. */
static void flip(const char *path, size_t at, uint8_t bits)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t b = 0;

    CHECK(fd >= 0 && pread(fd, &b, 1, (off_t)at) == 1);
    b ^= bits;
    CHECK(pwrite(fd, &b, 1, (off_t)at) == 1);
    close(fd);
}

static tsr_status try_open(const char *path, tsr_err *err)
{
    tsr_packed p;
    tsr_status st;

    tsr_err_clear(err);
    st = tsr_packed_open(&p, path, tsr_cpu_backend(TSR_TIER_PORTABLE), err);
    if (st == TSR_OK)
        tsr_packed_close(&p);
    return st;
}

static void flip_and_open(const char *path, size_t at, uint8_t bits)
{
    tsr_err err;

    flip(path, at, bits);
    CHECK_MSG(try_open(path, &err) == TSR_E_MODEL && strstr(err.msg, path) &&
                  strstr(err.msg, "gen convert"),
              "byte %zu: %d \"%s\"", at, err.code, err.msg);
    flip(path, at, bits);
}

static size_t file_size(const char *path)
{
    tsr_file f;
    size_t n;

    if (tsr_file_open(&f, path, NULL) != TSR_OK)
        return 0;
    n = f.size;
    tsr_file_close(&f);
    return n;
}

static void open__a_flipped_byte__found_wherever_it_is(void)
{
    const char *path = packed_micro(&(micro_options){0});
    uint64_t table;
    size_t size;
    tsr_packed p;
    tsr_err err;

    REQUIRE(path && tsr_packed_open(&p, path, tsr_cpu_backend(TSR_TIER_PORTABLE), &err) == TSR_OK);
    size = file_size(path);
    REQUIRE(tsr_file_read(&p.file, size - FOOTER_BYTES + 8, &table, 8, &err) == TSR_OK);
    for (size_t at = 0; at < 12; at++) /* magic and version */
        flip_and_open(path, at, 1);
    for (size_t at = size - FOOTER_BYTES; at < size; at++)
        flip_and_open(path, at, 0x80);
    for (size_t at = size - FOOTER_BYTES - table; at < size - FOOTER_BYTES; at += 5)
        flip_and_open(path, at, (uint8_t)(1 << at % 8));
    for (int32_t i = 0; i < p.n_files; i++)
        flip_and_open(path, p.files[i].offset + p.files[i].bytes / 2, 2);
    CHECK(try_open(path, &err) == TSR_OK);
    tsr_packed_close(&p);
}

static void open__cut_anywhere__refused(void)
{
    const char *path = packed_micro(&(micro_options){0});
    size_t size, step;
    tsr_err err;

    REQUIRE(path);
    size = file_size(path);
    for (size_t n = size - 1;; n -= step) {
        CHECK(truncate(path, (off_t)n) == 0);
        CHECK_MSG(try_open(path, &err) == TSR_E_MODEL && strstr(err.msg, "convert"), "%zu: \"%s\"",
                  n, err.msg);
        if (n == 0)
            break;
        step = size - n < 200 || n < 200 ? 1 : 1999;
        step = step < n ? step : n;
    }
}

static void open__another_version__says_both(void)
{
    const char *path = packed_micro(&(micro_options){0});
    tsr_err err;

    REQUIRE(path);
    flip(path, 8, 1 ^ 2);
    CHECK(try_open(path, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "version 2") && strstr(err.msg, "version 1"), "\"%s\"", err.msg);
}

static void open__no_packed_file__says_what_it_is_not(void)
{
    static small_picture p;
    const char *path = out_path("other.tsr");
    FILE *f = fopen(path, "wb");
    tsr_err err;

    REQUIRE(f);
    for (int i = 0; i < 10000; i++)
        fputs("no model\n", f);
    fclose(f);
    CHECK(tsr_packed_is(path)); /* by its name: what is wrong with it is told */
    CHECK(try_open(path, &err) == TSR_E_MODEL);
    small_picture_make(&p, path, TSR_TIER_PORTABLE, TSR_PRECISION_AUTO, SIDE);
    CHECK(p.st == TSR_E_MODEL);
    CHECK(!tsr_packed_is("/nowhere") && !tsr_packed_is(test_temp_dir()) &&
          !tsr_packed_is(TSR_TEST_DATA "/manifest.json"));
}

/* Every tensor, in each form: one bit anywhere in its data or its sums. */
static void read__a_flipped_bit__found_in_every_tensor(void)
{
    const char *path = packed_micro(&(micro_options){.xl = true});
    const tsr_backend *b = tsr_cpu_backend(TSR_TIER_PORTABLE);
    static uint8_t data[1 << 20];
    tsr_packed p, whole;
    tsr_err err;

    REQUIRE(path && tsr_packed_open(&whole, path, b, &err) == TSR_OK);
    for (int32_t i = 0; i < whole.n_tensors; i++)
        for (int form = 0; form < TSR_FORMS; form++) {
            const tsr_packed_form *f = &whole.forms[i][form];
            size_t at = f->offset + (size_t)(i * 37) % (f->bytes + 8);
            if (f->bytes == 0)
                continue;
            REQUIRE(f->bytes <= sizeof data);
            flip(path, at, (uint8_t)(1 << i % 8));
            REQUIRE(tsr_packed_open(&p, path, b, &err) == TSR_OK);
            tsr_err_clear(&err);
            CHECK(tsr_packed_read(&p, i, (tsr_form)form, 0, data, f->bytes, &err) == TSR_E_MODEL);
            CHECK_MSG(strstr(err.msg, "damaged") && strstr(err.msg, p.tensors[i].name), "\"%s\"",
                      err.msg);
            tsr_packed_close(&p);
            flip(path, at, (uint8_t)(1 << i % 8));
            CHECK(tsr_packed_read(&whole, i, (tsr_form)form, 0, data, f->bytes, &err) == TSR_OK);
        }
    tsr_packed_close(&whole);
}

static void run__a_damaged_tensor__no_picture(void)
{
    static small_picture pic;
    const char *path = packed_micro(&(micro_options){0});
    const tsr_packed_part *part;
    tsr_packed p;
    tsr_err err;

    REQUIRE(path && tsr_packed_open(&p, path, tsr_cpu_backend(TSR_TIER_PORTABLE), &err) == TSR_OK);
    part = tsr_packed_find_part(&p, "unet");
    REQUIRE(part && part->n_tensors > 10);
    flip(path, p.forms[part->first + 10][TSR_FORM_F16].offset + 3, 16);
    small_picture_make(&pic, path, TSR_TIER_PORTABLE, TSR_PRECISION_AUTO, SIDE);
    CHECK_MSG(pic.st == TSR_E_MODEL && strstr(pic.why, p.tensors[part->first + 10].name),
              "%d \"%s\"", pic.st, pic.why);
    tsr_packed_close(&p);
}

/* ------------------------------------------------------------------ reading and sums */

static void read__any_range__the_same_bytes(void)
{
    const char *path = packed_micro(&(micro_options){0});
    const tsr_backend *b = tsr_cpu_backend(TSR_TIER_PORTABLE);
    static uint8_t whole[1 << 20], part[1 << 20];
    int32_t n_cut = 0;
    tsr_packed p;
    tsr_err err;

    REQUIRE(path && tsr_packed_open(&p, path, b, &err) == TSR_OK);
    for (int32_t i = 0; i < p.n_tensors; i++) {
        const tsr_packed_form *f = &p.forms[i][TSR_FORM_F16];
        if (f->bytes < 100 || f->bytes > sizeof whole)
            continue;
        n_cut += f->unit_bytes < f->bytes;
        /* first a range that cuts units at both ends, which are then checked all the same */
        CHECK(tsr_packed_read(&p, i, TSR_FORM_F16, 33, part, 50, &err) == TSR_OK);
        CHECK(tsr_packed_read(&p, i, TSR_FORM_F16, 0, whole, f->bytes, &err) == TSR_OK);
        CHECK(memcmp(part, whole + 33, 50) == 0);
        CHECK(tsr_packed_read(&p, i, TSR_FORM_F16, f->bytes - 7, part, 7, &err) == TSR_OK);
        CHECK(memcmp(part, whole + f->bytes - 7, 7) == 0);
        CHECK(tsr_packed_read(&p, i, TSR_FORM_F16, f->bytes, part, 0, &err) == TSR_OK);
        CHECK(tsr_packed_read(&p, i, TSR_FORM_F16, f->bytes - 7, part, 8, &err) == TSR_E_MODEL);
        CHECK(tsr_packed_read(&p, i, TSR_FORM_F16, SIZE_MAX, part, 8, &err) == TSR_E_MODEL);
    }
    CHECK_MSG(n_cut > 0, "%d tensors with more than one unit", n_cut);
    tsr_packed_close(&p);
}

static void sum__in_any_pieces__the_same_and_every_bit_counts(void)
{
    uint8_t data[100];
    tsr_sum s;
    uint64_t whole;

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31);
    tsr_sum_begin(&s);
    tsr_sum_add(&s, data, sizeof data);
    whole = tsr_sum_end(&s);
    for (size_t a = 0; a <= sizeof data; a++)
        for (size_t b = a; b <= sizeof data; b++) {
            tsr_sum_begin(&s);
            tsr_sum_add(&s, data, a);
            tsr_sum_add(&s, data + a, b - a);
            tsr_sum_add(&s, data + b, sizeof data - b);
            CHECK(tsr_sum_end(&s) == whole);
        }
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        tsr_sum_begin(&s);
        tsr_sum_add(&s, data, sizeof data);
        CHECK(tsr_sum_end(&s) != whole);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void layout__tiers_that_pack_otherwise__other_fingerprints(void)
{
    uint64_t portable = tsr_packed_layout(tsr_cpu_backend(TSR_TIER_PORTABLE));

    CHECK(portable == tsr_packed_layout(tsr_cpu_backend(TSR_TIER_PORTABLE)));
    if (!tsr_cpu_backend(TSR_TIER_AVX2))
        SKIP("a second tier on this machine");
    CHECK(portable != tsr_packed_layout(tsr_cpu_backend(TSR_TIER_AVX2)));
}

/* ------------------------------------------------------------------ writing */

static bool stop_soon(void *user, uint64_t done, uint64_t total)
{
    int *calls = user;

    CHECK(done <= total);
    return ++*calls < 5;
}

static void convert__stopped__leaves_what_was_there(void)
{
    const char *dir = micro_model(&(micro_options){0}), *path = out_path("kept.tsr");
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    char *text = NULL, why[512];
    int calls = 0;
    FILE *f = fopen(path, "wb");

    REQUIRE(dir && f);
    fputs("kept", f);
    fclose(f);
    REQUIRE(tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 1}, why, sizeof why) == TSR_OK);
    REQUIRE(tsr_model_open(ctx, dir, &model) == TSR_OK);
    CHECK(tsr_model_convert(model, path,
                            &(tsr_convert_desc){.progress = stop_soon, .progress_user = &calls}) ==
          TSR_E_CANCELLED);
    CHECK(calls == 5 && tsr_file_slurp(path, 100, &text, NULL, NULL) == TSR_OK &&
          strcmp(text, "kept") == 0);
    tsr_free(text);
    tsr_model_free(model);
    tsr_context_free(ctx);
}

static void convert__no_room__says_how_much_it_needs(void)
{
    const char *dir = micro_model(&(micro_options){0}), *path = out_path("big.tsr");
    struct rlimit before, small;
    char why[512];

    REQUIRE(dir && getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = before;
    small.rlim_cur = 1 << 16;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(packed_model_make(dir, path, TSR_TIER_AUTO, TSR_PRECISION_AUTO, why) == TSR_E_IO);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_MSG(strstr(why, "MiB") && strstr(why, "ulimit"), "\"%s\"", why);
    CHECK(!tsr_path_is_file(path));
}

int main(void)
{
    /* first: children begin with what this process has resident */
    RUN(convert__embedded_model_in_the_least_budget__same_picture);
    RUN(sum__in_any_pieces__the_same_and_every_bit_counts);
    RUN(layout__tiers_that_pack_otherwise__other_fingerprints);
    RUN(convert__micro_models__same_pictures_in_every_tier);
    RUN(convert__embedded_model__same_picture);
    RUN(convert__reference_models__same_pictures);
    RUN(convert__packed_one__refused);
    RUN(convert__stopped__leaves_what_was_there);
    RUN(convert__no_room__says_how_much_it_needs);
    RUN(run__another_precision__refused_by_name);
    RUN(run__a_damaged_tensor__no_picture);
    RUN(open__another_tier__refused_by_name);
    RUN(open__another_version__says_both);
    RUN(open__a_flipped_byte__found_wherever_it_is);
    RUN(open__cut_anywhere__refused);
    RUN(open__no_packed_file__says_what_it_is_not);
    RUN(read__any_range__the_same_bytes);
    RUN(read__a_flipped_bit__found_in_every_tensor);
    return test_end();
}
