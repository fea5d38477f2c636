/* test_component_files.c -- which safetensors files a component is opened from. */
#include "model/component.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/support/model_files.h"
#include "tests/support/test.h"

#define STEM "diffusion_pytorch_model"
#define U8_HEADER(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"
#define INDEX(map) "{\"metadata\":{\"total_size\":1},\"weight_map\":{" map "}}"

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

static void component_open__each_layout__is_found(void)
{
    static const char *const files[] = {STEM ".safetensors", STEM ".fp16.safetensors"};
    static const char *const indices[] = {STEM ".safetensors.index.json",
                                          STEM ".fp16.safetensors.index.json",
                                          STEM ".safetensors.index.fp16.json"};
    tsr_component c;

    for (size_t i = 0; i < 2; i++) {
        const char *dir = fresh();
        model_file_st(dir, files[i], U8_HEADER("x"), "\1", 1);
        CHECK_MSG(open_unet(&c, dir) == TSR_OK, "%s", err.msg);
        CHECK(c.n_tensors == 1 && c.n_files == 1 && tsr_component_find(&c, "x") == 0);
        tsr_component_close(&c);
    }
    for (size_t i = 0; i < 3; i++) {
        const char *dir = fresh();
        model_file_st(dir, "b-1.safetensors", U8_HEADER("x"), "\1", 1);
        model_file_st(dir, "a-2.safetensors", U8_HEADER("w"), "\2", 1);
        model_file_text(dir, indices[i],
                        INDEX("\"x\":\"b-1.safetensors\",\"w\":\"a-2.safetensors\""));
        CHECK_MSG(open_unet(&c, dir) == TSR_OK, "%s", err.msg);
        CHECK(c.n_tensors == 2 && c.n_files == 2);
        for (int32_t t = 0; t < c.n_tensors; t++) { /* sorted, each read from its own file */
            uint8_t byte = 0;
            CHECK(strcmp(tsr_component_tensor(&c, t)->name, t ? "x" : "w") == 0);
            CHECK(c.source.read(&c.source, t, 0, &byte, 1, &err) == TSR_OK);
            CHECK(byte == (t ? 1 : 2));
        }
        tsr_component_close(&c);
    }
}

static void component_open__plain_and_fp16__takes_the_plain(void)
{
    const char *dir = fresh();
    tsr_component c;

    model_file_st(dir, STEM ".fp16.safetensors", U8_HEADER("half"), "\1", 1);
    model_file_st(dir, STEM ".safetensors", U8_HEADER("plain"), "\1", 1);
    REQUIRE(open_unet(&c, dir) == TSR_OK);
    CHECK(tsr_component_find(&c, "plain") == 0 && tsr_component_find(&c, "half") == -1);
    tsr_component_close(&c);
    tsr_component_close(&c); /* twice is fine */
}

static void component_open__only_pickles__refused_unread(void)
{
    const char *dir = fresh();
    tsr_component c;

    model_file_text(dir, STEM ".bin", "would run code");
    CHECK(open_unet(&c, dir) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, STEM ".bin") && strstr(err.msg, "never opened") &&
                  strstr(err.msg, "convert"),
              "%s", err.msg);
}

static void component_open__nothing_there__says_what_was_looked_for(void)
{
    tsr_component c;

    CHECK(open_unet(&c, fresh()) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, STEM ".safetensors") && strstr(err.msg, "unet"), "%s", err.msg);
    CHECK(open_unet(&c, "/nowhere/unet") == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "/nowhere/unet"), "%s", err.msg);
}

static void component_open__bad_index__refused_with_the_reason(void)
{
    static const struct {
        const char *index, *reason;
    } rows[] = {
        {"", "JSON"},
        {"[]", "not a JSON object"},
        {"{}", "names no file"},
        {"{\"weight_map\":{}}", "names no file"},
        {"{\"weight_map\":[]}", "not an object"},
        {"{\"weight_map\":{\"x\":1}}", "file names"},
        {INDEX("\"x\":\"a.safetensors\",\"x\":"), "JSON"},
        {INDEX("\"x\":\"../a.safetensors\""), "plain name"},
        {INDEX("\"x\":\"/etc/a.safetensors\""), "plain name"},
        {INDEX("\"x\":\"sub\\\\a.safetensors\""), "plain name"},
        {INDEX("\"x\":\".a.safetensors\""), "plain name"},
        {INDEX("\"x\":\"a.safetensors\\u0000\""), "plain name"},
        {INDEX("\"x\":\"a.bin\""), "plain name"},
        {INDEX("\"x\":\"\""), "plain name"},
        {INDEX("\"x\":\"absent.safetensors\""), "absent.safetensors is missing"},
        {INDEX("\"y\":\"a.safetensors\""), "\"y\" should be in a.safetensors"},
        {INDEX("\"x\":\"a.safetensors\",\"y\":\"b.safetensors\""), "\"x\" is in"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *dir = fresh();
        tsr_component c;
        model_file_st(dir, "a.safetensors", U8_HEADER("x"), "\1", 1);
        model_file_st(dir, "b.safetensors",
                      "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                      "\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                      "\1\2", 2);
        model_file_text(dir, STEM ".safetensors.index.json", rows[i].index);
        CHECK_MSG(open_unet(&c, dir) == TSR_E_MODEL, "%s", rows[i].index);
        CHECK_MSG(strstr(err.msg, rows[i].reason), "%s: %s", rows[i].index, err.msg);
        CHECK_MSG(strstr(err.msg, dir), "no path: %s", err.msg);
    }
}

static void component_open__any_failing_allocation_or_read__clean_error(void)
{
    const char *dir = fresh();
    const char *index = INDEX("\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"");
    uint64_t n_failures = 0;

    model_file_st(dir, "a.safetensors", U8_HEADER("x"), "\1", 1);
    model_file_st(dir, "b.safetensors", U8_HEADER("y"), "\1", 1);
    model_file_text(dir, STEM ".safetensors.index.json", index);
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t n = 1;; n++) {
            tsr_component c;
            tsr_status st;
            (pass ? tsr_io_fail_at : tsr_alloc_fail_at)(n);
            st = open_unet(&c, dir);
            (pass ? tsr_io_fail_at : tsr_alloc_fail_at)(0);
            if (st == TSR_OK) {
                tsr_component_close(&c);
                break;
            }
            CHECK_MSG(st == (pass ? TSR_E_IO : TSR_E_OOM), "%s", err.msg);
            n_failures++;
        }
    CHECK(n_failures > 15);
}

int main(void)
{
    RUN(component_open__each_layout__is_found);
    RUN(component_open__plain_and_fp16__takes_the_plain);
    RUN(component_open__only_pickles__refused_unread);
    RUN(component_open__nothing_there__says_what_was_looked_for);
    RUN(component_open__bad_index__refused_with_the_reason);
    RUN(component_open__any_failing_allocation_or_read__clean_error);
    return test_end();
}
