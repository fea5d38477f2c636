/* test_safetensors.c -- the reader on good, odd and hostile files; the writer. */
#include "model/safetensors.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/support/model_files.h"
#include "tests/support/test.h"

static const char *dir; /* one temporary folder for all tests */

static const char *in_dir(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static tsr_status open_header(tsr_st *st, const char *header, size_t data_bytes, tsr_err *err)
{
    model_file_st(dir, "t.safetensors", header, NULL, data_bytes);
    return tsr_st_open(st, in_dir("t.safetensors"), err);
}

/* ------------------------------------------------------------------ good files */

static void safetensors__written_file__reads_back(void)
{
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[1] = {7};
    const tsr_st_out out[] = {{"z/\"latents\"\n", 2, {2, 3}, a}, {"a", 0, {0}, b}};
    tsr_err err = {0};
    tsr_st st;
    const tsr_st_tensor *t;
    float back[6];

    CHECK(tsr_st_write(in_dir("w.safetensors"), out, 2, &err) == TSR_OK);
    REQUIRE(tsr_st_open(&st, in_dir("w.safetensors"), &err) == TSR_OK);
    CHECK(st.n_tensors == 2 && st.n_uncovered_bytes == 0);
    CHECK(strcmp(st.tensors[0].name, "a") == 0); /* sorted */
    t = tsr_st_find(&st, "z/\"latents\"\n");
    REQUIRE(t != NULL);
    CHECK(t->dtype == TSR_F32 && t->n_dims == 2 && t->dims[0] == 2 && t->dims[1] == 3);
    CHECK(t->offset % 8 == 0 && t->bytes == sizeof a);
    CHECK(tsr_file_read(&st.file, t->offset, back, sizeof back, &err) == TSR_OK);
    CHECK(memcmp(back, a, sizeof a) == 0);
    CHECK(tsr_st_find(&st, "b") == NULL && tsr_st_find(&st, "") == NULL);
    tsr_st_close(&st);
    tsr_st_close(&st); /* twice is fine */
}

static void safetensors__every_dtype__read_by_name(void)
{
    static const struct {
        const char *name;
        tsr_dtype dtype;
        int bytes;
    } types[] = {{"F64", TSR_F64, 8},   {"F32", TSR_F32, 4}, {"F16", TSR_F16, 2},
                 {"BF16", TSR_BF16, 2}, {"I64", TSR_I64, 8}, {"I32", TSR_I32, 4},
                 {"I16", TSR_I16, 2},   {"I8", TSR_I8, 1},   {"U64", TSR_U64, 8},
                 {"U32", TSR_U32, 4},   {"U16", TSR_U16, 2}, {"U8", TSR_U8, 1},
                 {"BOOL", TSR_BOOL, 1}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[200];
        tsr_err err = {0};
        tsr_st st;
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}", types[i].name,
                 3 * types[i].bytes);
        CHECK_MSG(open_header(&st, header, 24, &err) == TSR_OK, "%s", err.msg);
        CHECK(st.n_tensors == 1 && st.tensors[0].dtype == types[i].dtype);
        tsr_st_close(&st);
    }
}

/* Legal, and found in published files: no tensors, no elements, gaps, bytes after the last tensor,
 * any order, padding, unknown keys, metadata of any length. */
static void safetensors__odd_but_legal_headers__accepted(void)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        int32_t n_tensors;
        size_t uncovered;
    } rows[] = {
        {"{}", 0, 0, 0},
        {"{}  \n ", 5, 0, 5},
        {"{\"__metadata__\":{}}", 0, 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\",\"x\":{\"deep\":[1,{}]}}}", 0, 0, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]}}", 0, 1, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,0,9223372036854775807],"
         "\"data_offsets\":[2,2]}}",
         2, 1, 2},
        {"{\"b\":{\"data_offsets\":[4,6],\"shape\":[1],\"dtype\":\"F16\"},"
         "\"a\":{\"dtype\":\"U8\",\"more\":[1,{\"x\":null}],\"shape\":[3],\"data_offsets\":[0,3]}}",
         10, 2, 5},
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
         "\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         8, 2, 0},
        {"{\"\\u00e9\\ud83d\\ude00\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         1, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_err err = {0};
        tsr_st st;
        tsr_status status = open_header(&st, rows[i].header, rows[i].data_bytes, &err);
        CHECK_MSG(status == TSR_OK, "%s: %s", rows[i].header, err.msg);
        CHECK_MSG(st.n_tensors == rows[i].n_tensors, "%s", rows[i].header);
        CHECK_MSG(st.n_uncovered_bytes == rows[i].uncovered, "%s", rows[i].header);
        tsr_st_close(&st);
    }
}

static void safetensors__long_metadata__skipped(void)
{
    static char header[300000];
    size_t n = (size_t)snprintf(header, sizeof header, "{\"__metadata__\":{\"thumbnail\":\"");
    tsr_err err = {0};
    tsr_st st;

    memset(header + n, 'A', 200000);
    snprintf(header + n + 200000, sizeof header - n - 200000,
             "\"},\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
    CHECK_MSG(open_header(&st, header, 1, &err) == TSR_OK, "%s", err.msg);
    CHECK(st.n_tensors == 1);
    tsr_st_close(&st);
}

static void safetensors__many_tensors_in_any_order__all_found(void)
{
    enum { N = 20000 };
    char *header = malloc(N * 80);
    size_t len = 0, k = 0;
    tsr_err err = {0};
    tsr_st st;

    for (size_t i = 0; i < N; i++, k = (k + 7919) % N)
        len += (size_t)sprintf(
            header + len, "%c\"t.%zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
            i ? ',' : '{', k, k, k + 1);
    sprintf(header + len, "}");
    CHECK_MSG(open_header(&st, header, N, &err) == TSR_OK, "%s", err.msg);
    CHECK(st.n_tensors == N && st.n_uncovered_bytes == 0);
    for (size_t i = 0; i < N; i += 997) {
        char name[32];
        const tsr_st_tensor *t;
        snprintf(name, sizeof name, "t.%zu", i);
        t = tsr_st_find(&st, name);
        CHECK(t && t->offset == 8 + strlen(header) + i);
    }
    tsr_st_close(&st);
    free(header);
}

/* ------------------------------------------------------------------ hostile files */

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void safetensors__broken_header__refused_with_the_reason(void)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *reason; /* part of the sentence */
    } rows[] = {
        /* the file's frame */
        {"", 0, "JSON"},
        {"[]", 0, "not a JSON object"},
        {"\"x\"", 0, "not a JSON object"},
        {"{", 0, "JSON"},
        {"{} {}", 0, "JSON"},
        {"{\"x\":", 0, "JSON"},
        {"{\"x\":[]}", 0, "not an object"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}", 4, "JSON"},
        /* one tensor */
        {"{\"x\":{}}", 0, "missing"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "missing"},
        {"{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "twice"},
        {ONE("\"F8_E4M3\"", "[4]", "[0,4]"), 4, "F8_E4M3"},
        {ONE("\"I4\"", "[8]", "[0,4]"), 4, "I4"},
        {ONE("\"f32\"", "[1]", "[0,4]"), 4, "f32"},
        {ONE("\"NONE\"", "[1]", "[0,4]"), 4, "NONE"},
        {ONE("3", "[1]", "[0,4]"), 4, "dtype"},
        {ONE("\"F32\"", "1", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[-1]", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[1.0]", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[1e0]", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[\"1\"]", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[[1]]", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[9223372036854775808]", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[18446744073709551617]", "[0,4]"), 4, "shape"},
        {ONE("\"F32\"", "[1]", "[0]"), 4, "data_offsets"},
        {ONE("\"F32\"", "[1]", "[0,4,4]"), 4, "data_offsets"},
        {ONE("\"F32\"", "[1]", "[-4,0]"), 4, "data_offsets"},
        {ONE("\"F32\"", "[1]", "[0,4.5]"), 4, "data_offsets"},
        {ONE("\"F32\"", "[1]", "[4,0]"), 4, "ends before"},
        {ONE("\"F32\"", "[1]", "[0,4]"), 3, "truncated"},
        {ONE("\"F32\"", "[1]", "[9223372036854775800,9223372036854775804]"), 4, "outside"},
        {ONE("\"F32\"", "[2]", "[0,4]"), 8, "shape and dtype"},
        {ONE("\"F32\"", "[0]", "[0,4]"), 4, "shape and dtype"},
        {ONE("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 4, "shape and dtype"},
        {ONE("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 4, "shape and dtype"},
        /* two tensors */
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
         8, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
         "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[5,5]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[6,7]}}",
         8, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         2, "two tensors"},
        /* text */
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "empty"},
        {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "zero byte"},
        {"{\"\xFF\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "UTF-8"},
        {"{\"\xC0\x80\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "UTF-8"},
        {"{\"__metadata__\":{\"a\":\"\xED\xA0\x80\"}}", 0, "UTF-8"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_err err = {0};
        tsr_st st;
        tsr_status status = open_header(&st, rows[i].header, rows[i].data_bytes, &err);
        CHECK_MSG(status == TSR_E_MODEL, "%s: status %d", rows[i].header, (int)status);
        CHECK_MSG(strstr(err.msg, rows[i].reason), "%s: %s", rows[i].header, err.msg);
        CHECK_MSG(strstr(err.msg, "t.safetensors"), "no path: %s", err.msg);
        CHECK(st.tensors == NULL && st.names == NULL); /* nothing left to close */
    }
}

static void safetensors__deep_json__refused(void)
{
    char header[600] = "{\"__metadata__\":";
    size_t n = strlen(header);
    tsr_err err = {0};
    tsr_st st;

    memset(header + n, '[', 250);
    memset(header + n + 250, ']', 250);
    header[n + 500] = '}';
    CHECK(open_header(&st, header, 0, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "deep"), "%s", err.msg);
}

static void safetensors__long_name__refused(void)
{
    char header[TSR_ST_MAX_NAME + 200] = "{\"";
    tsr_err err = {0};
    tsr_st st;

    memset(header + 2, 'n', TSR_ST_MAX_NAME + 1);
    strcat(header, "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
    CHECK(open_header(&st, header, 1, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "too long"), "%s", err.msg);
}

static void safetensors__too_many_tensors__refused(void)
{
    char *header = malloc((size_t)(TSR_ST_MAX_TENSORS + 1) * 70);
    size_t len = 0;
    tsr_err err = {0};
    tsr_st st;

    for (int i = 0; i <= TSR_ST_MAX_TENSORS; i++)
        len += (size_t)sprintf(header + len,
                               "%c\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                               i ? ',' : '{', i);
    sprintf(header + len, "}");
    CHECK(open_header(&st, header, 0, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "more than 100000"), "%s", err.msg);
    free(header);
}

/* Sizes that a reader must not believe: nothing may be allocated for them. */
static void safetensors__absurd_header_size__refused(void)
{
    static const uint64_t sizes[] = {1,
                                     9,
                                     TSR_ST_MAX_HEADER,
                                     TSR_ST_MAX_HEADER + 1,
                                     (uint64_t)1 << 60,
                                     INT64_MAX,
                                     UINT64_MAX - 7,
                                     UINT64_MAX};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tsr_err err = {0};
        tsr_st st;
        model_file_write(dir, "t.safetensors", &sizes[i], 8);
        CHECK(tsr_st_open(&st, in_dir("t.safetensors"), &err) == TSR_E_MODEL);
        CHECK_MSG(strstr(err.msg, "truncated") || strstr(err.msg, "too large"), "%s", err.msg);
    }
}

static void safetensors__cut_at_any_byte__refused(void)
{
    static const char header[] = ONE("\"F32\"", "[2]", "[0,8]");
    uint8_t file[8 + sizeof header + 8] = {sizeof header - 1};

    memcpy(file + 8, header, sizeof header - 1);
    for (size_t n = 0; n < 8 + sizeof header - 1 + 8; n++) {
        tsr_err err = {0};
        tsr_st st;
        model_file_write(dir, "t.safetensors", file, n);
        CHECK_MSG(tsr_st_open(&st, in_dir("t.safetensors"), &err) == TSR_E_MODEL, "at %zu", n);
    }
}

static void safetensors__no_regular_file__io_error(void)
{
    tsr_err err = {0};
    tsr_st st;

    CHECK(tsr_st_open(&st, in_dir("absent.safetensors"), &err) == TSR_E_IO);
    CHECK(tsr_st_open(&st, dir, &err) == TSR_E_IO);
    CHECK(tsr_st_open(&st, "/dev/zero", &err) == TSR_E_IO);
}

/* ------------------------------------------------------------------ faults */

static void safetensors__any_failing_allocation_or_read__clean_error(void)
{
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}";
    uint64_t n_allocs = 0, n_reads = 0;

    model_file_st(dir, "t.safetensors", header, NULL, 2);
    for (uint64_t n = 1;; n++) {
        tsr_err err = {0};
        tsr_st st;
        tsr_status status;
        tsr_alloc_fail_at(n);
        status = tsr_st_open(&st, in_dir("t.safetensors"), &err);
        tsr_alloc_fail_at(0);
        if (status == TSR_OK) {
            tsr_st_close(&st);
            break;
        }
        CHECK(status == TSR_E_OOM && err.msg[0]);
        n_allocs = n;
    }
    for (uint64_t n = 1;; n++) {
        tsr_err err = {0};
        tsr_st st;
        tsr_status status;
        tsr_io_fail_at(n);
        status = tsr_st_open(&st, in_dir("t.safetensors"), &err);
        tsr_io_fail_at(0);
        if (status == TSR_OK) {
            tsr_st_close(&st);
            break;
        }
        CHECK(status == TSR_E_IO && err.msg[0]);
        n_reads = n;
    }
    CHECK(n_allocs >= 3 && n_reads == 2);
}

static void safetensors__failed_write__keeps_the_old_file(void)
{
    const float one = 1, two = 2;
    tsr_st_out out = {"x", 1, {1}, &one};
    uint64_t n_failures = 0;

    tsr_err err = {0};
    CHECK(tsr_st_write(in_dir("keep.safetensors"), &out, 1, &err) == TSR_OK);
    out.data = &two;
    for (uint64_t n = 1;; n++) {
        tsr_st st;
        float x = 0;
        tsr_status status;
        tsr_io_fail_at(n);
        status = tsr_st_write(in_dir("keep.safetensors"), &out, 1, &err);
        tsr_io_fail_at(0);
        REQUIRE(tsr_st_open(&st, in_dir("keep.safetensors"), &err) == TSR_OK);
        CHECK(tsr_file_read(&st.file, st.tensors[0].offset, &x, 4, &err) == TSR_OK);
        tsr_st_close(&st);
        if (status == TSR_OK) {
            CHECK(x == two);
            break;
        }
        CHECK(status == TSR_E_IO && x == one);
        n_failures = n;
    }
    CHECK(n_failures >= 3);
}

/* ------------------------------------------------------------------ the reference's files */

static int open_all_in(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d))) {
        char sub[4096];
        size_t len = strlen(e->d_name);
        tsr_err err = {0};
        tsr_st st;
        if (e->d_name[0] == '.')
            continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (len < 12 || strcmp(e->d_name + len - 12, ".safetensors") != 0) {
            n += open_all_in(sub);
            continue;
        }
        CHECK_MSG(tsr_st_open(&st, sub, &err) == TSR_OK, "%s", err.msg);
        CHECK_MSG(st.n_tensors > 0 && st.n_uncovered_bytes == 0, "%s", sub);
        tsr_st_close(&st);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

static void safetensors__reference_files__all_open(void)
{
    if (!test_reference_dir())
        SKIP("no reference data on this machine");
    CHECK(open_all_in(test_reference_dir()) > 40);
}

int main(void)
{
    dir = test_temp_dir();
    RUN(safetensors__written_file__reads_back);
    RUN(safetensors__every_dtype__read_by_name);
    RUN(safetensors__odd_but_legal_headers__accepted);
    RUN(safetensors__long_metadata__skipped);
    RUN(safetensors__many_tensors_in_any_order__all_found);
    RUN(safetensors__broken_header__refused_with_the_reason);
    RUN(safetensors__deep_json__refused);
    RUN(safetensors__long_name__refused);
    RUN(safetensors__too_many_tensors__refused);
    RUN(safetensors__absurd_header_size__refused);
    RUN(safetensors__cut_at_any_byte__refused);
    RUN(safetensors__no_regular_file__io_error);
    RUN(safetensors__any_failing_allocation_or_read__clean_error);
    RUN(safetensors__failed_write__keeps_the_old_file);
    RUN(safetensors__reference_files__all_open);
    return test_end();
}
