/* test_latents_file.c -- latents through safetensors files. */
#include "cli/latents_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "model/safetensors.h"
#include "tests/support/test.h"

static char *temp_path(const char *name)
{
    return tsr_path_join(test_temp_dir(), name);
}

static void latents__written_one_by_one__come_back_as_one_tensor(void)
{
    char *path = temp_path("l.safetensors");
    const int32_t shape[3] = {2, 1, 3};
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {-1, 0.5f, 1e-30f, 7, 8, 9};
    tsr_latents_out out;
    float *data = NULL; // [2,2,1,3]
    int32_t got[4];

    REQUIRE(tsr_latents_open(&out, path, 2, NULL) == TSR_OK);
    CHECK(tsr_latents_append(&out, a, shape, NULL) == TSR_OK);
    CHECK(tsr_latents_append(&out, b, shape, NULL) == TSR_OK);
    CHECK(!tsr_path_is_file(path)); /* not before it is whole */
    CHECK(tsr_latents_close(&out, NULL) == TSR_OK);
    REQUIRE(tsr_latents_read(path, &data, got, NULL) == TSR_OK);
    CHECK(got[0] == 2 && got[1] == 2 && got[2] == 1 && got[3] == 3);
    CHECK(memcmp(data, a, sizeof a) == 0 && memcmp(data + 6, b, sizeof b) == 0);
    tsr_free(data);
    tsr_free(path);
}

static void latents__ended_early__hold_what_was_finished(void)
{
    char *path = temp_path("l.safetensors"), *none = temp_path("none.safetensors");
    const int32_t shape[3] = {1, 2, 2};
    const float a[4] = {1, 2, 3, 4};
    tsr_latents_out out;
    float *data = NULL; // [1,1,2,2]
    int32_t got[4];

    REQUIRE(tsr_latents_open(&out, path, 100000, NULL) == TSR_OK);
    CHECK(tsr_latents_append(&out, a, shape, NULL) == TSR_OK);
    CHECK(tsr_latents_close(&out, NULL) == TSR_OK);
    REQUIRE(tsr_latents_read(path, &data, got, NULL) == TSR_OK);
    CHECK(got[0] == 1 && got[1] == 1 && data[3] == 4);
    tsr_free(data);
    REQUIRE(tsr_latents_open(&out, none, 2, NULL) == TSR_OK);
    CHECK(tsr_latents_close(&out, NULL) == TSR_OK);
    CHECK(!tsr_path_is_file(none));
    tsr_free(path);
    tsr_free(none);
}

/* A safetensors file with one tensor. */
static char *make_file(const char *name, const char *dtype, const char *shape, const void *data,
                       size_t bytes)
{
    char *path = temp_path("made.safetensors"), header[256];
    int n = snprintf(header, sizeof header,
                     "{\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[0,%zu]}}", name,
                     dtype, shape, bytes);
    uint8_t prefix[8] = {(uint8_t)n};
    FILE *f = fopen(path, "wb");

    if (f) {
        fwrite(prefix, 1, sizeof prefix, f);
        fwrite(header, 1, (size_t)n, f);
        fwrite(data, 1, bytes, f);
        fclose(f);
    }
    return path;
}

static void latents__of_narrow_types__are_widened(void)
{
    const uint16_t half[4] = {tsr_f32_to_f16(1), tsr_f32_to_f16(-2), tsr_f32_to_f16(0.5f), 0};
    const uint16_t brain[4] = {tsr_f32_to_bf16(1), tsr_f32_to_bf16(-2), tsr_f32_to_bf16(0.5f), 0};
    const void *sources[] = {half, brain};
    static const char *const types[] = {"F16", "BF16"};

    for (int i = 0; i < 2; i++) {
        char *path = make_file("latents", types[i], "1,2,2", sources[i], sizeof half);
        float *data = NULL; // [1,1,2,2]
        int32_t shape[4];
        CHECK(tsr_latents_read(path, &data, shape, NULL) == TSR_OK);
        CHECK(data && shape[0] == 1 && shape[1] == 1 && shape[3] == 2);
        CHECK(data && data[0] == 1 && data[1] == -2 && data[2] == 0.5f && data[3] == 0);
        tsr_free(data);
        tsr_free(path);
    }
}

static void latents__of_another_kind__are_refused_by_name(void)
{
    const float data[4] = {1, 2, 3, 4}, bad[4] = {1, NAN, 3, 4};
    static const struct {
        const char *name, *dtype, *shape, *want;
        bool not_finite;
    } rows[] = {
        {"noise", "F32", "1,1,2,2", "no tensor \"latents\"", false},
        {"latents", "I32", "1,1,2,2", "latents are I32", false},
        {"latents", "F32", "2,2", "not shaped [N,C,h,w]", false},
        {"latents", "F32", "1,1,1,2,2", "not shaped [N,C,h,w]", false},
        {"latents", "F32", "1,1,2,2", "value 1 of the latents is not finite", true},
        {"latents", "F32", "1,1,2,3", "made.safetensors", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = make_file(rows[i].name, rows[i].dtype, rows[i].shape,
                               rows[i].not_finite ? bad : data, sizeof data);
        float *got = NULL;
        int32_t shape[4];
        tsr_err err = {0};
        CHECK(tsr_latents_read(path, &got, shape, &err) == TSR_E_MODEL);
        CHECK_MSG(strstr(err.msg, rows[i].want), "row %zu: \"%s\"", i, err.msg);
        tsr_free(path);
    }
}

int main(void)
{
    RUN(latents__written_one_by_one__come_back_as_one_tensor);
    RUN(latents__ended_early__hold_what_was_finished);
    RUN(latents__of_narrow_types__are_widened);
    RUN(latents__of_another_kind__are_refused_by_name);
    return test_end();
}
