/* test_png.c -- pictures written, read back by another decoder, and broken files refused. */
#include "cli/png.h"

#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text_util.h"
#include "tests/support/test.h"

#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>

static const char signature[] = "\x89PNG\r\n\x1a\n";

static char *temp_path(const char *name)
{
    return tsr_path_join(test_temp_dir(), name);
}

/* --------------------------------------------------- files made by hand */

static void put_u32(tsr_buf *b, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        char c = (char)(unsigned char)(v >> (24 - 8 * i));
        tsr_buf_append(b, &c, 1);
    }
}

static void put_chunk(tsr_buf *b, const char *type, const void *data, size_t bytes)
{
    uint32_t crc = libdeflate_crc32(0, type, 4);

    put_u32(b, (uint32_t)bytes);
    tsr_buf_append(b, type, 4);
    if (bytes) {
        tsr_buf_append(b, data, bytes);
        crc = libdeflate_crc32(crc, data, bytes);
    }
    put_u32(b, crc);
}

static void put_start(tsr_buf *b)
{
    static const char ihdr[13] = {0, 0, 0, 4, 0, 0, 0, 4, 8, 2, 0, 0, 0};

    tsr_buf_append(b, signature, 8);
    put_chunk(b, "IHDR", ihdr, sizeof ihdr);
}

static void put_end(tsr_buf *b)
{
    put_chunk(b, "IEND", NULL, 0);
}

/* Writes b to a file, reads its texts, frees b. */
static tsr_status read_back(tsr_buf *b, tsr_png_meta *meta, tsr_err *err)
{
    char *path = temp_path("hand.png");
    FILE *f = fopen(path, "wb");
    tsr_status st;

    if (f) {
        fwrite(b->data, 1, b->len, f);
        fclose(f);
    }
    *meta = (tsr_png_meta){0};
    *err = (tsr_err){0};
    st = tsr_png_read_meta(path, meta, err);
    tsr_free(path);
    tsr_buf_free(b);
    return st;
}

/* ---------------------------------------------------------------- tests */

static uint32_t get_u32(const char *at)
{
    const unsigned char *p = (const unsigned char *)at;

    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Every chunk's checksum, and that IDAT is one whole zlib stream of the rows: lenient decoders look
 * at neither. */
static bool strictly_right(const char *path, int32_t width, int32_t height)
{
    size_t rows = ((size_t)width * 3 + 1) * (size_t)height, size = 0, used = 0, got = 0;
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    char *data = NULL, *unpacked = malloc(rows + 1);
    bool right = tsr_file_slurp(path, 1 << 24, &data, &size, NULL) == TSR_OK, pixels = false;

    for (size_t at = 8, n; right && at < size; at += n + 12) {
        n = get_u32(data + at);
        right = libdeflate_crc32(0, data + at + 4, n + 4) == get_u32(data + at + 8 + n);
        if (memcmp(data + at + 4, "IDAT", 4) == 0)
            pixels = libdeflate_zlib_decompress_ex(d, data + at + 8, n, unpacked, rows + 1, &used,
                                                   &got) == LIBDEFLATE_SUCCESS &&
                     used == n && got == rows;
    }
    libdeflate_free_decompressor(d);
    tsr_free(data);
    free(unpacked);
    return right && pixels;
}

static void png__written__another_decoder_reads_the_same_pixels(void)
{
    static const int32_t sizes[][2] = {{1, 1}, {3, 5}, {64, 48}, {257, 129}};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int32_t w = sizes[s][0], h = sizes[s][1];
        size_t bytes = (size_t)w * (size_t)h * 3;
        uint8_t *rgb = malloc(bytes), *back;
        const tsr_png_text text = {"parameters", "x"};
        char *path = temp_path("dir/of/pixels.png");
        int bw = 0, bh = 0, n = 0;
        uint32_t word = 1;
        for (size_t i = 0; i < bytes; i++) {
            word = word * 1664525u + 1013904223u;
            rgb[i] = (uint8_t)(i % 7 ? i / 3 : word >> 24);
        }
        CHECK(tsr_png_write(path, rgb, w, h, &text, 1, NULL) == TSR_OK);
        back = stbi_load(path, &bw, &bh, &n, 0);
        CHECK_MSG(back && bw == w && bh == h && n == 3, "%dx%d came back as %dx%d", w, h, bw, bh);
        CHECK(back && memcmp(back, rgb, bytes) == 0);
        CHECK(strictly_right(path, w, h));
        stbi_image_free(back);
        free(rgb);
        tsr_free(path);
    }
}

static void png__written__texts_come_back_and_stand_in_the_right_chunks(void)
{
    static const struct {
        const char *text, *type;
    } rows[] = {
        {"plain\nSteps: 3", "tEXt"},
        {"caf\xc3\xa9 \xc2\xa3", "tEXt"}, /* Latin-1 */
        {"\xe7\x8c\xab", "iTXt"},         /* not Latin-1 */
        {"tab\there", "iTXt"},            /* a control character */
        {"\xc2\x85", "iTXt"},             /* C1 control */
        {"", "tEXt"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint8_t rgb[3] = {1, 2, 3};
        const tsr_png_text texts[] = {{"parameters", rows[i].text}, {"tessera", "{}"}};
        char *path = temp_path("t.png"), *data = NULL;
        tsr_png_meta meta = {0};
        size_t len = 0;
        CHECK(tsr_png_write(path, rgb, 1, 1, texts, 2, NULL) == TSR_OK);
        CHECK(tsr_png_read_meta(path, &meta, NULL) == TSR_OK);
        CHECK_MSG(meta.parameters && strcmp(meta.parameters, rows[i].text) == 0, "row %zu", i);
        CHECK(meta.record && strcmp(meta.record, "{}") == 0);
        CHECK(meta.width == 1 && meta.height == 1);
        CHECK(tsr_file_slurp(path, 1 << 20, &data, &len, NULL) == TSR_OK);
        CHECK_MSG(data && memcmp(data + 33 + 4, rows[i].type, 4) == 0, "row %zu", i);
        tsr_free(data);
        tsr_png_meta_free(&meta);
        tsr_free(path);
    }
}

static void png__written_over_a_file__replaces_it_whole_or_not_at_all(void)
{
    const uint8_t rgb[3] = {1, 2, 3};
    char *path = temp_path("old.png"), *text = NULL;
    FILE *f = fopen(path, "wb");

    REQUIRE(f != NULL);
    fputs("old", f);
    fclose(f);
    for (uint64_t n = 1; n < 100; n++) { /* every write fails once */
        tsr_err err = {0};
        tsr_status st;
        tsr_io_fail_at(n);
        st = tsr_png_write(path, rgb, 1, 1, NULL, 0, &err);
        if (!tsr_io_failed()) {
            CHECK(st == TSR_OK && n > 3);
            break;
        }
        CHECK(st == TSR_E_IO && *err.msg);
        CHECK(tsr_file_slurp(path, 100, &text, NULL, NULL) == TSR_OK && strcmp(text, "old") == 0);
        tsr_free(text);
        text = NULL;
    }
    tsr_io_fail_at(0);
    tsr_free(path);
}

static void png__out_of_memory__is_a_clean_error(void)
{
    const uint8_t rgb[12] = {0};
    const tsr_png_text texts[] = {{"parameters", "a"}, {"tessera", "\xe7\x8c\xab"}};
    char *path = temp_path("oom.png");
    int harmless = 0; /* the name of the directory that is flushed: the file is there without */

    for (uint64_t n = 1; n < 1000; n++) {
        tsr_err err = {0};
        tsr_png_meta meta = {0};
        tsr_status st;
        tsr_alloc_fail_at(n);
        st = tsr_png_write(path, rgb, 2, 2, texts, 2, &err);
        if (st == TSR_OK)
            st = tsr_png_read_meta(path, &meta, &err);
        tsr_png_meta_free(&meta);
        if (!tsr_alloc_failed()) {
            CHECK(st == TSR_OK && n > 8);
            break;
        }
        harmless += st == TSR_OK;
        CHECK_MSG(st == TSR_OK || (st == TSR_E_OOM && *err.msg), "allocation %llu: status %d",
                  (unsigned long long)n, st);
    }
    CHECK_MSG(harmless <= 1, "%d failed allocations went by", harmless);
    tsr_alloc_fail_at(0);
    tsr_free(path);
}

static void png__packed_texts__are_unpacked(void)
{
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(6);
    char *big = calloc(1, 200001), body[4096] = "tessera\0\1\0en\0translated";
    size_t head = sizeof "tessera\0\1\0en\0translated", packed;
    tsr_png_meta meta;
    tsr_buf b = {0};
    tsr_err err;

    REQUIRE(c && big);
    memset(big, 'x', 200000);
    packed = libdeflate_zlib_compress(c, big, 200000, body + head, sizeof body - head);
    REQUIRE(packed > 0);
    put_start(&b);
    put_chunk(&b, "iTXt", body, head + packed);
    memmove(body + 12, body + head, packed);
    memcpy(body, "parameters\0\0", 12);
    put_chunk(&b, "zTXt", body, 12 + packed);
    put_end(&b);
    CHECK(read_back(&b, &meta, &err) == TSR_OK);
    CHECK(meta.record && strcmp(meta.record, big) == 0);
    CHECK(meta.parameters && strcmp(meta.parameters, big) == 0);
    tsr_png_meta_free(&meta);
    libdeflate_free_compressor(c);
    free(big);
}

static void png__a_packed_text_that_explodes__is_refused(void)
{
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(12);
    size_t big = (size_t)TSR_PNG_MAX_TEXT + 1, head = 13, packed;
    char *zeros = calloc(1, big), *body = calloc(1, 65536);
    tsr_png_meta meta;
    tsr_buf b = {0};
    tsr_err err;

    REQUIRE(c && zeros && body);
    memcpy(body, "tessera\0\1\0\0\0", head);
    packed = libdeflate_zlib_compress(c, zeros, big, body + 12, 65536 - 12);
    REQUIRE(packed > 0);
    put_start(&b);
    put_chunk(&b, "iTXt", body, 12 + packed);
    put_end(&b);
    CHECK(read_back(&b, &meta, &err) == TSR_E_MODEL);
    CHECK_MSG(strstr(err.msg, "too long"), "%s", err.msg);
    libdeflate_free_compressor(c);
    free(zeros);
    free(body);
}

static void png__two_texts_with_one_keyword__the_first_counts(void)
{
    tsr_png_meta meta;
    tsr_buf b = {0};
    tsr_err err;

    put_start(&b);
    put_chunk(&b, "tEXt", "parameters\0one", 14);
    put_chunk(&b, "tEXt", "parameters\0two", 14);
    put_chunk(&b, "tEXt", "Comment\0three", 13);
    put_chunk(&b, "tEXt", "nothing", 7);
    put_end(&b);
    CHECK(read_back(&b, &meta, &err) == TSR_OK);
    CHECK(meta.parameters && strcmp(meta.parameters, "one") == 0 && !meta.record);
    tsr_png_meta_free(&meta);
}

/* Each case gets a good start (or not), these bytes, and no end. */
static void png__broken_files__are_refused_with_a_sentence(void)
{
    static const struct {
        const char *bytes;
        size_t n;
        bool start;
        const char *want;
    } rows[] = {
        {"", 0, false, "is no PNG"},
        {"\x89PNG\r\n", 6, false, "is no PNG"},
        {"GIF89a--GIF89a--", 16, false, "is no PNG"},
        {"\x89PNG\r\n\x1a\n", 8, false, "middle of a chunk"},
        {"\x89PNG\r\n\x1a\n\0\0\0\0IEND\xae\x42\x60\x82", 20, false, "IHDR"},
        {"\x89PNG\r\n\x1a\n\0\0\0\xdIHDR\0\0\0\1\0\0\0\1\x8\2\0\0\0\0\0\0\0", 33, false,
         "checksum"},
        {"", 0, true, "middle of a chunk"},
        {"\0\0\0\4tEX", 7, true, "middle of a chunk"},
        {"\xff\xff\xff\xfftEXtabcd....", 16, true, "longer than the file"},
        {"\x7f\xff\xff\xffIDATabcd....", 16, true, "longer than the file"},
        {"\0\0\0\4tEXtabcd", 12, true, "longer than the file"},
        {"\0\0\0\4tEXtabcd....", 16, true, "checksum"},
        {"\0\0\0\0\1\2\3\4....", 12, true, "type is no word"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_buf b = {0};
        tsr_png_meta meta;
        tsr_err err;
        tsr_status st;
        tsr_buf_puts(&b, "");
        if (rows[i].start)
            put_start(&b);
        tsr_buf_append(&b, rows[i].bytes, rows[i].n);
        st = read_back(&b, &meta, &err);
        CHECK_MSG(st == TSR_E_MODEL, "row %zu: status %d", i, st);
        CHECK_MSG(strstr(err.msg, rows[i].want) && strstr(err.msg, "hand.png"), "row %zu: \"%s\"",
                  i, err.msg);
    }
}

static void png__broken_texts__are_refused_with_a_sentence(void)
{
    static const struct {
        const char *type, *body;
        size_t n;
    } rows[] = {
        {"iTXt", "tessera\0", 8},
        {"iTXt", "tessera\0\2\0\0\0x", 13},
        {"iTXt", "tessera\0\0\1\0\0x", 13},
        {"iTXt", "tessera\0\0\0abc", 13},
        {"iTXt", "tessera\0\0\0ab\0cd", 15},
        {"iTXt", "tessera\0\1\0\0\0notzlib", 19},
        {"zTXt", "tessera\0", 8},
        {"zTXt", "tessera\0\1abc", 12},
        {"zTXt", "tessera\0\0abc", 12},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_buf b = {0};
        tsr_png_meta meta;
        tsr_err err;
        tsr_status st;
        put_start(&b);
        put_chunk(&b, rows[i].type, rows[i].body, rows[i].n);
        put_end(&b);
        st = read_back(&b, &meta, &err);
        CHECK_MSG(st == TSR_E_MODEL && *err.msg, "row %zu: status %d", i, st);
        tsr_png_meta_free(&meta);
    }
}

static void png__a_missing_file__is_an_io_error(void)
{
    char *path = temp_path("nothing.png");
    tsr_png_meta meta = {0};
    tsr_err err = {0};

    CHECK(tsr_png_read_meta(path, &meta, &err) == TSR_E_IO && strstr(err.msg, "nothing.png"));
    tsr_free(path);
}

int main(void)
{
    RUN(png__written__another_decoder_reads_the_same_pixels);
    RUN(png__written__texts_come_back_and_stand_in_the_right_chunks);
    RUN(png__written_over_a_file__replaces_it_whole_or_not_at_all);
    RUN(png__out_of_memory__is_a_clean_error);
    RUN(png__packed_texts__are_unpacked);
    RUN(png__a_packed_text_that_explodes__is_refused);
    RUN(png__two_texts_with_one_keyword__the_first_counts);
    RUN(png__broken_files__are_refused_with_a_sentence);
    RUN(png__broken_texts__are_refused_with_a_sentence);
    RUN(png__a_missing_file__is_an_io_error);
    return test_end();
}
