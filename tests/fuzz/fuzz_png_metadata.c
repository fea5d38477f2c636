/* fuzz_png_metadata.c -- pictures from the internet: PNG chunks, A1111's text, our JSON record.
 *
 * The first byte says what the rest is: 'p' a PNG file as it is; 'c' chunks in short form (which
 * kind, two bytes of length, body) that are framed here with right checksums, so that the fuzzer
 * gets past them; 'a' the "parameters" text; 'r' the record. Whatever texts come out go on to the
 * options, as in gen replay. */
#include <libdeflate.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/meta.h"
#include "cli/png.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void apply(const tsr_meta *m)
{
    tsr_options o = {0};
    tsr_err err;

    (void)tsr_meta_apply(m, &o, &err);
    tsr_options_free(&o);
}

static void fuzz_record(const char *json, size_t size)
{
    tsr_meta m = {0};
    tsr_err err;

    if (tsr_meta_from_record(&m, json, size, &err) == TSR_OK)
        apply(&m);
    tsr_meta_free(&m);
}

static void fuzz_parameters(const char *text)
{
    tsr_meta m = {0};
    tsr_err err;

    if (tsr_meta_from_a1111(&m, text, NULL, &err) == TSR_OK)
        apply(&m);
    tsr_meta_free(&m);
}

static void fuzz_file(const void *data, size_t size)
{
    int fd = memfd_create("fuzz", 0);
    char path[64];
    tsr_png_meta meta = {0};
    tsr_err err;

    if (fd < 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size && tsr_png_read_meta(path, &meta, &err) == TSR_OK) {
        if (meta.record)
            fuzz_record(meta.record, strlen(meta.record));
        if (meta.parameters)
            fuzz_parameters(meta.parameters);
    }
    tsr_png_meta_free(&meta);
    close(fd);
}

static void put_u32(tsr_buf *b, uint32_t v)
{
    for (int i = 24; i >= 0; i -= 8) {
        char c = (char)(unsigned char)(v >> i);
        tsr_buf_append(b, &c, 1);
    }
}

static void put_chunk(tsr_buf *b, const char *type, const uint8_t *body, size_t bytes)
{
    uint32_t crc = libdeflate_crc32(0, type, 4);

    put_u32(b, (uint32_t)bytes);
    tsr_buf_append(b, type, 4);
    if (bytes) {
        tsr_buf_append(b, (const char *)body, bytes);
        crc = libdeflate_crc32(crc, body, bytes);
    }
    put_u32(b, crc);
}

static void fuzz_chunks(const uint8_t *data, size_t size)
{
    static const char *const types[] = {"tEXt", "zTXt", "iTXt", "IDAT", "IEND"};
    static const uint8_t ihdr[13] = {0, 0, 0, 1, 0, 0, 0, 1, 8, 2};
    tsr_buf b = {0};

    tsr_buf_append(&b, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(&b, "IHDR", ihdr, sizeof ihdr);
    while (size >= 3) {
        const char *type = types[data[0] % (sizeof types / sizeof *types)];
        size_t bytes = (size_t)data[1] << 8 | data[2];
        data += 3;
        size -= 3;
        bytes = bytes < size ? bytes : size;
        put_chunk(&b, type, data, bytes);
        data += bytes;
        size -= bytes;
    }
    put_chunk(&b, "IEND", NULL, 0);
    if (tsr_buf_ok(&b))
        fuzz_file(b.data, b.len);
    tsr_buf_free(&b);
}

static void fuzz_text(const uint8_t *data, size_t size)
{
    char *text = tsr_malloc(size + 1);

    if (!text)
        return;
    memcpy(text, data, size);
    text[size] = 0;
    fuzz_parameters(text);
    tsr_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'p')
        fuzz_file(data + 1, size - 1);
    else if (data[0] == 'c')
        fuzz_chunks(data + 1, size - 1);
    else if (data[0] == 'a')
        fuzz_text(data + 1, size - 1);
    else
        fuzz_record((const char *)data + 1, size - 1);
    return 0;
}
