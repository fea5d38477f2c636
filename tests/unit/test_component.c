/* test_component.c -- tensors by name, the dtype decision, reading, what is unused. */
#include "model/component.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/support/model_files.h"
#include "tests/support/test.h"

#define STEM "diffusion_pytorch_model"

static tsr_err err; /* of the last call, cleared by fresh() */

static const char *fresh(void)
{
    tsr_err_clear(&err);
    return test_temp_dir();
}

static tsr_status open_unet(tsr_component *c, const char *dir)
{
    return tsr_component_open(c, dir, "unet", STEM, &err);
}

/* One tensor with `n` values of two, four or eight bytes. */
static void write_tensor(const char *dir, const char *file, const char *name, const char *dtype,
                         const char *shape, const void *data, size_t bytes)
{
    char header[400];

    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%zu]}}", name, dtype,
             shape, bytes);
    model_file_st(dir, file, header, data, bytes);
}

/* ------------------------------------------------------------------ names */

static void component_find__text_model_prefix__added_or_dropped(void)
{
    static const struct {
        const char *in_file, *asked, *stem;
        bool found;
    } rows[] = {
        {"text_model.a.weight", "text_model.a.weight", "model", true},
        {"text_model.a.weight", "a.weight", "model", true},
        {"a.weight", "text_model.a.weight", "model", true},
        {"a.weight", "a.weight", "model", true},
        {"a.weight", "text_model.b.weight", "model", false},
        {"text_model.a.weight", "a.weight", STEM, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *dir = fresh();
        char file[100];
        tsr_component c;
        snprintf(file, sizeof file, "%s.safetensors", rows[i].stem);
        write_tensor(dir, file, rows[i].in_file, "F32", "[1]", NULL, 4);
        REQUIRE(tsr_component_open(&c, dir, "text_encoder", rows[i].stem, &err) == TSR_OK);
        CHECK_MSG((tsr_component_find(&c, rows[i].asked) == 0) == rows[i].found, "row %zu", i);
        tsr_component_close(&c);
    }
}

static void component_find__old_vae_attention_names__are_aliases(void)
{
    static const char *const names[][2] = {
        {"decoder.mid_block.attentions.0.query.weight",
         "decoder.mid_block.attentions.0.to_q.weight"},
        {"decoder.mid_block.attentions.0.key.bias", "decoder.mid_block.attentions.0.to_k.bias"},
        {"encoder.mid_block.attentions.0.value.weight",
         "encoder.mid_block.attentions.0.to_v.weight"},
        {"encoder.mid_block.attentions.0.proj_attn.weight",
         "encoder.mid_block.attentions.0.to_out.0.weight"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *dir = fresh();
        tsr_component c;
        write_tensor(dir, STEM ".safetensors", names[i][0], "F32", "[1]", NULL, 4);
        REQUIRE(tsr_component_open(&c, dir, "vae", STEM, &err) == TSR_OK);
        CHECK_MSG(tsr_component_find(&c, names[i][1]) == 0, "%s", names[i][1]);
        CHECK(tsr_component_find(&c, "decoder.down_blocks.0.attentions.0.to_q.weight") == -1);
        tsr_component_close(&c);
    }
}

/* ------------------------------------------------------------------ weights */

static void component_weight__shapes__match_or_say_both(void)
{
    static const struct {
        const char *shape;
        size_t bytes;
        int32_t n_dims, dims[4];
        bool ok;
    } rows[] = {
        {"[4,3,1,1]", 48, 4, {4, 3, 1, 1}, true},
        {"[4,3,1,1]", 48, 2, {4, 3}, true},
        {"[4,3]", 48, 4, {4, 3, 1, 1}, true},
        {"[4,3]", 48, 2, {4, 3}, true},
        {"[3,4]", 48, 2, {4, 3}, false},
        {"[12]", 48, 2, {4, 3}, false},
        {"[4,3,1,1,1]", 48, 4, {4, 3, 1, 1}, true},
        {"[4,3,2,1]", 96, 2, {4, 3}, false},
        {"[4,3]", 48, 4, {4, 3, 3, 3}, false},
        {"[]", 4, 2, {1, 1}, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *dir = fresh();
        tsr_component c;
        tsr_tape t;
        tsr_wt w = 0;
        tsr_status st;
        write_tensor(dir, STEM ".safetensors", "a.weight", "F32", rows[i].shape, NULL,
                     rows[i].bytes);
        REQUIRE(open_unet(&c, dir) == TSR_OK);
        tsr_tape_init(&t, TSR_F32, &err);
        st = tsr_component_weight(&c, &t, TSR_WEIGHT_MATRIX, "a", "weight", rows[i].n_dims,
                                  rows[i].dims, &w);
        CHECK_MSG(st == (rows[i].ok ? TSR_OK : TSR_E_MODEL), "row %zu: %s", i, err.msg);
        if (rows[i].ok) {
            CHECK(w > 0 && t.weights[w].n_dims == rows[i].n_dims && t.weights[w].tensor == 0);
            CHECK(t.weights[w].source == &c.source && strcmp(t.weights[w].name, "a.weight") == 0);
        } else {
            CHECK_MSG(strstr(err.msg, rows[i].shape) && strstr(err.msg, "a.weight"), "%s", err.msg);
        }
        tsr_tape_free(&t);
        tsr_component_close(&c);
    }
}

static void component_weight__missing__names_the_nearest(void)
{
    const char *dir = fresh();
    const int32_t dims[2] = {2, 2};
    tsr_component c;
    tsr_tape t;
    tsr_wt w = 7;

    write_tensor(dir, STEM ".safetensors", "down_blocks.0.resnets.0.conv_1.weight", "F32", "[2,2]",
                 NULL, 16);
    REQUIRE(open_unet(&c, dir) == TSR_OK);
    tsr_tape_init(&t, TSR_F32, &err);
    CHECK(tsr_component_weight(&c, &t, TSR_WEIGHT_MATRIX, "down_blocks.0.resnets.0", "conv1.weight",
                               2, dims, &w) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "\"down_blocks.0.resnets.0.conv1.weight\"") &&
                  strstr(err.msg, "nearest name there is "
                                  "\"down_blocks.0.resnets.0.conv_1.weight\"") &&
                  strstr(err.msg, "unet") && strstr(err.msg, STEM ".safetensors"),
              "%s", err.msg);
    CHECK(w == 7);
    CHECK(tsr_component_weight_optional(&c, &t, TSR_WEIGHT_MATRIX, "", "absent", 2, dims, &w) ==
          TSR_OK);
    CHECK(w == 0 && t.n_weights <= 1);
    tsr_tape_free(&t);
    tsr_component_close(&c);
}

static void component_weight__collecting__lists_all_and_goes_on(void)
{
    const char *dir = fresh();
    const int32_t dims[2] = {2, 2};
    tsr_buf problems = {0};
    tsr_component c;
    tsr_tape t;
    tsr_wt w = 0;
    char byte;

    write_tensor(dir, STEM ".safetensors", "there.weight", "F32", "[2,3]", NULL, 24);
    REQUIRE(open_unet(&c, dir) == TSR_OK);
    c.problems = &problems;
    tsr_tape_init(&t, TSR_F16, &err);
    CHECK(tsr_component_weight(&c, &t, TSR_WEIGHT_MATRIX, "absent", "weight", 2, dims, &w) ==
          TSR_OK);
    CHECK(w > 0 && t.weights[w].dims[1] == 2);
    CHECK(t.weights[w].source->read(t.weights[w].source, t.weights[w].tensor, 0, &byte, 1, &err) ==
          TSR_E_INTERNAL);
    CHECK(tsr_component_weight(&c, &t, TSR_WEIGHT_MATRIX, "there", "weight", 2, dims, &w) ==
          TSR_OK);
    CHECK(tsr_component_expect(&c, "", "table", 2, dims) == TSR_OK);
    CHECK(c.n_problems == 3);
    REQUIRE(tsr_buf_ok(&problems));
    CHECK_MSG(strstr(problems.data, "absent.weight") && strstr(problems.data, "[2,3]") &&
                  strstr(problems.data, "\"table\""),
              "%s", problems.data);
    tsr_buf_free(&problems);
    tsr_tape_free(&t);
    tsr_component_close(&c);
}

static void component_weight__integers__refused(void)
{
    const char *dir = fresh();
    const int32_t dims[2] = {2, 2};
    tsr_component c;
    tsr_tape t;
    tsr_wt w;

    write_tensor(dir, STEM ".safetensors", "w", "I8", "[2,2]", NULL, 4);
    REQUIRE(open_unet(&c, dir) == TSR_OK);
    tsr_tape_init(&t, TSR_F16, &err);
    CHECK(tsr_component_weight(&c, &t, TSR_WEIGHT_MATRIX, "", "w", 2, dims, &w) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "I8"), "%s", err.msg);
    tsr_tape_free(&t);
    tsr_component_close(&c);
}

/* The last element of a tensor that is longer than the scan's buffer decides. */
static tsr_status weight_of(const char *dtype, const void *last, size_t size, tsr_dtype tape,
                            tsr_weight_kind kind, tsr_dtype *got)
{
    enum { N = 300001 };
    const int32_t dims[2] = {N, 1};
    const char *dir = fresh();
    char shape[40], *data = calloc(N, size);
    tsr_component c;
    tsr_tape t;
    tsr_wt w = 0;
    tsr_status st;

    memcpy(data + (N - 1) * size, last, size);
    snprintf(shape, sizeof shape, kind == TSR_WEIGHT_MATRIX ? "[%d,1]" : "[%d]", N);
    write_tensor(dir, STEM ".safetensors", "w", dtype, shape, data, N * size);
    free(data);
    if (open_unet(&c, dir) != TSR_OK)
        return TSR_E_INTERNAL;
    tsr_tape_init(&t, tape, &err);
    st = tsr_component_weight(&c, &t, kind, "", "w", kind == TSR_WEIGHT_MATRIX ? 2 : 1, dims, &w);
    if (st == TSR_OK)
        *got = t.weights[w].dtype;
    tsr_tape_free(&t);
    tsr_component_close(&c);
    return st;
}

#define F32_WEIGHT(value, tape, kind) weight_of("F32", &(float){value}, 4, tape, kind, &got)

static void component_weight__values_decide_the_dtype(void)
{
    tsr_dtype got = TSR_DTYPE_NONE;

    /* 65520 is the first float that rounds to infinity as a half */
    CHECK(F32_WEIGHT(65519.996f, TSR_F16, TSR_WEIGHT_MATRIX) == TSR_OK && got == TSR_F16);
    CHECK(F32_WEIGHT(-65520.0f, TSR_F16, TSR_WEIGHT_MATRIX) == TSR_OK && got == TSR_F32);
    CHECK(F32_WEIGHT(1e-30f, TSR_F16, TSR_WEIGHT_MATRIX) == TSR_OK && got == TSR_F16);
    CHECK(F32_WEIGHT(1, TSR_F32, TSR_WEIGHT_MATRIX) == TSR_OK && got == TSR_F32);
    CHECK(F32_WEIGHT(1, TSR_F16, TSR_WEIGHT_VECTOR) == TSR_OK && got == TSR_F32);
    CHECK(weight_of("F16", &(uint16_t){0x7BFF}, 2, TSR_F16, TSR_WEIGHT_MATRIX, &got) == TSR_OK &&
          got == TSR_F16);
    CHECK(weight_of("BF16", &(uint16_t){0xC77F}, 2, TSR_F16, TSR_WEIGHT_MATRIX, &got) == TSR_OK &&
          got == TSR_F16); /* -65280 */
    CHECK(weight_of("BF16", &(uint16_t){0x4780}, 2, TSR_F16, TSR_WEIGHT_MATRIX, &got) == TSR_OK &&
          got == TSR_F32); /* 65536 */
    CHECK(weight_of("F64", &(double){-65504}, 8, TSR_F16, TSR_WEIGHT_MATRIX, &got) == TSR_OK &&
          got == TSR_F16);
    /* rounds to 65520 as a float first, as the loader does */
    CHECK(weight_of("F64", &(double){65519.9999}, 8, TSR_F16, TSR_WEIGHT_MATRIX, &got) == TSR_OK &&
          got == TSR_F32);
}

static void component_weight__not_finite__refused_by_name(void)
{
    tsr_dtype got = TSR_DTYPE_NONE;

    CHECK(F32_WEIGHT(NAN, TSR_F16, TSR_WEIGHT_MATRIX) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "\"w\" holds NaN"), "%s", err.msg);
    CHECK(F32_WEIGHT(-INFINITY, TSR_F16, TSR_WEIGHT_MATRIX) == TSR_E_MODEL);
    CHECK(weight_of("BF16", &(uint16_t){0xFF81}, 2, TSR_F16, TSR_WEIGHT_MATRIX, &got) ==
          TSR_E_MODEL);
    CHECK(weight_of("F64", &(double){1e300}, 8, TSR_F16, TSR_WEIGHT_MATRIX, &got) == TSR_E_MODEL);
}

static void component_fits_half__asked_twice__reads_once(void)
{
    const char *dir = fresh();
    tsr_component c;
    bool fits = false;

    write_tensor(dir, STEM ".safetensors", "w", "F32", "[2,2]", NULL, 16);
    REQUIRE(open_unet(&c, dir) == TSR_OK);
    CHECK(tsr_component_fits_half(&c, 0, &fits) == TSR_OK && fits);
    tsr_io_fail_at(1);
    CHECK(tsr_component_fits_half(&c, 0, &fits) == TSR_OK && fits);
    CHECK(!tsr_io_failed());
    tsr_io_fail_at(0);
    tsr_component_close(&c);
}

/* ------------------------------------------------------------------ data */

static void component_read__outside_the_tensor__refused(void)
{
    const char *dir = fresh();
    tsr_component c;
    char buffer[16];

    write_tensor(dir, STEM ".safetensors", "w", "F32", "[2]", "12345678", 8);
    REQUIRE(open_unet(&c, dir) == TSR_OK);
    CHECK(c.source.read(&c.source, 0, 4, buffer, 4, &err) == TSR_OK && !memcmp(buffer, "5678", 4));
    CHECK(c.source.read(&c.source, 0, 8, buffer, 0, &err) == TSR_OK);
    CHECK(c.source.read(&c.source, 0, 4, buffer, 5, &err) == TSR_E_INTERNAL);
    CHECK(c.source.read(&c.source, 0, 9, buffer, 0, &err) == TSR_E_INTERNAL);
    CHECK(c.source.read(&c.source, 0, SIZE_MAX, buffer, 2, &err) == TSR_E_INTERNAL);
    CHECK(c.source.read(&c.source, 1, 0, buffer, 0, &err) == TSR_E_INTERNAL);
    CHECK(c.source.read(&c.source, -1, 0, buffer, 0, &err) == TSR_E_INTERNAL);
    tsr_component_close(&c);
}

static void component_read_rows__asked_rows__as_float(void)
{
    enum { V = 5, D = 3000 }; /* a row is longer than the buffer */
    const char *dir = fresh();
    uint16_t *table = malloc(V * D * sizeof *table);
    float *rows = malloc(2 * D * sizeof *rows);
    uint64_t allocs;
    tsr_component c;

    for (int i = 0; i < V * D; i++)
        table[i] = tsr_f32_to_f16((float)(i % 2048));
    write_tensor(dir, "model.safetensors", "e.weight", "F16", "[5,3000]", table, V * D * 2);
    REQUIRE(tsr_component_open(&c, dir, "text_encoder", "model", &err) == TSR_OK);
    allocs = tsr_alloc_count();
    CHECK(tsr_component_read_rows(&c, "e.weight", (int32_t[]){4, 1}, 2, D, rows, &err) == TSR_OK);
    CHECK(tsr_alloc_count() == allocs);
    for (int i = 0; i < D; i++)
        CHECK(rows[i] == (float)((4 * D + i) % 2048) && rows[D + i] == (float)((D + i) % 2048));
    CHECK(c.used[0]);
    CHECK(tsr_component_read_rows(&c, "e.weight", (int32_t[]){5}, 1, D, rows, &err) == TSR_E_MODEL);
    CHECK(tsr_component_read_rows(&c, "e.weight", (int32_t[]){-1}, 1, D, rows, &err) ==
          TSR_E_MODEL);
    CHECK(tsr_component_read_rows(&c, "e.weight", (int32_t[]){0}, 1, 7, rows, &err) == TSR_E_MODEL);
    CHECK(tsr_component_read_rows(&c, "absent", (int32_t[]){0}, 1, D, rows, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "absent"), "%s", err.msg);
    tsr_component_close(&c);
    free(table);
    free(rows);
}

static void component_hash__any_change__another_hash(void)
{
    static const struct {
        const char *name, *dtype, *shape, *data;
    } rows[] = {{"w", "F32", "[2,2]", "0123456789abcdef"},
                {"v", "F32", "[2,2]", "0123456789abcdef"},
                {"w", "I32", "[2,2]", "0123456789abcdef"},
                {"w", "F32", "[4,1]", "0123456789abcdef"},
                {"w", "F32", "[2,2]", "0123456789abcdeg"}};
    uint64_t hashes[5], again;

    for (size_t i = 0; i < 5; i++) {
        const char *dir = fresh();
        tsr_component c;
        write_tensor(dir, STEM ".safetensors", rows[i].name, rows[i].dtype, rows[i].shape,
                     rows[i].data, 16);
        REQUIRE(open_unet(&c, dir) == TSR_OK);
        hashes[i] = again = TSR_FNV_SEED;
        CHECK(tsr_component_hash(&c, &hashes[i], &err) == TSR_OK);
        CHECK(tsr_component_hash(&c, &again, &err) == TSR_OK && again == hashes[i]);
        for (size_t k = 0; k < i; k++)
            CHECK_MSG(hashes[k] != hashes[i], "rows %zu and %zu", k, i);
        tsr_component_close(&c);
    }
}

/* ------------------------------------------------------------------ unused */

static int n_warnings;
static char last_warning[1024];

static void keep_warning(void *user, tsr_log_level level, const char *line)
{
    (void)user;
    if (level != TSR_LOG_WARNING)
        return;
    n_warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static void component_report_unused__one_line_and_known_extras_silent(void)
{
    static const char header[] =
        "{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
        "\"a.weigth\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]},"
        "\"text_model.embeddings.position_ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":["
        "8,"
        "16]},"
        "\"logit_scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]}}";
    const tsr_log log = {.fn = keep_warning};
    const char *dir = fresh();
    tsr_component c;

    n_warnings = 0;
    model_file_st(dir, "model.safetensors", header, NULL, 20);
    REQUIRE(tsr_component_open(&c, dir, "text_encoder", "model", &err) == TSR_OK);
    CHECK(tsr_component_expect(&c, "a", "weight", 2, (int32_t[]){1, 1}) == TSR_OK);
    tsr_component_report_unused(&c, &log);
    CHECK(n_warnings == 1);
    CHECK_MSG(strstr(last_warning, "1 tensor is not used: \"a.weigth\"") &&
                  strstr(last_warning, "\"a.weight\""),
              "%s", last_warning);
    CHECK(tsr_component_expect(&c, "a", "weigth", 2, (int32_t[]){1, 1}) == TSR_OK);
    tsr_component_report_unused(&c, &log);
    CHECK(n_warnings == 1);
    tsr_component_close(&c);
    model_file_st(dir, "model.safetensors", "{}", NULL, 3);
    REQUIRE(tsr_component_open(&c, dir, "text_encoder", "model", &err) == TSR_OK);
    tsr_component_report_unused(&c, &log);
    CHECK(n_warnings == 2);
    CHECK_MSG(strstr(last_warning, "3 bytes"), "%s", last_warning);
    tsr_component_close(&c);
}

static void component_report_unused__many__a_count_and_three_names(void)
{
    const char *dir = fresh();
    char header[4000] = "{";
    const tsr_log log = {.fn = keep_warning};
    tsr_component c;

    for (int i = 0; i < 40; i++)
        sprintf(header + strlen(header),
                "%s\"t.%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "",
                i + 10);
    strcat(header, "}");
    model_file_st(dir, STEM ".safetensors", header, NULL, 0);
    REQUIRE(open_unet(&c, dir) == TSR_OK);
    n_warnings = 0;
    tsr_component_report_unused(&c, &log);
    CHECK(n_warnings == 1);
    CHECK_MSG(strstr(last_warning, "40 tensors are not used: \"t.10\", \"t.11\", \"t.12\", ...") &&
                  strlen(last_warning) < 400,
              "%s", last_warning);
    tsr_component_close(&c);
}

static void component_open__reference_models__open_and_hash(void)
{
    static const char *const models[] = {"sd1-tiny", "sd1-odd", "sd2-tiny", "sdxl-tiny"};
    static const char *const parts[][2] = {
        {"unet", STEM}, {"vae", STEM}, {"text_encoder", "model"}};

    if (!test_reference_dir())
        SKIP("no reference data on this machine");
    for (size_t m = 0; m < 4; m++)
        for (size_t p = 0; p < 3; p++) {
            char dir[4096];
            uint64_t h = TSR_FNV_SEED;
            tsr_component c;
            snprintf(dir, sizeof dir, "%s/models/%s/%s", test_reference_dir(), models[m],
                     parts[p][0]);
            CHECK_MSG(tsr_component_open(&c, dir, parts[p][0], parts[p][1], &err) == TSR_OK, "%s",
                      err.msg);
            CHECK(c.n_tensors > 20 && tsr_component_hash(&c, &h, &err) == TSR_OK);
            tsr_component_close(&c);
        }
}

int main(void)
{
    RUN(component_find__text_model_prefix__added_or_dropped);
    RUN(component_find__old_vae_attention_names__are_aliases);
    RUN(component_weight__shapes__match_or_say_both);
    RUN(component_weight__missing__names_the_nearest);
    RUN(component_weight__collecting__lists_all_and_goes_on);
    RUN(component_weight__integers__refused);
    RUN(component_weight__values_decide_the_dtype);
    RUN(component_weight__not_finite__refused_by_name);
    RUN(component_fits_half__asked_twice__reads_once);
    RUN(component_read__outside_the_tensor__refused);
    RUN(component_read_rows__asked_rows__as_float);
    RUN(component_hash__any_change__another_hash);
    RUN(component_report_unused__one_line_and_known_extras_silent);
    RUN(component_report_unused__many__a_count_and_three_names);
    RUN(component_open__reference_models__open_and_hash);
    return test_end();
}
