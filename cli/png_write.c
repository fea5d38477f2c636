/* png_write.c -- a picture to a PNG file.
 *
 * stb_image_write chooses each row's filter; the compressor that it is told to use is a hook into
 * libdeflate, which keeps the packed rows for us and tells stb to stop there. So the file's chunks
 * are framed here, where the texts have to go between IHDR and IDAT, no third copy of the picture
 * is made, and stb's own leak when its last allocation fails cannot happen. stb gives the hook no
 * user pointer: the packed rows travel in one thread-local variable that is empty outside
 * pack_rows.
 *
 * Order of chunks: IHDR, texts, IDAT, IEND. Readers that stop at IDAT find the texts. */
#include "cli/png.h"

#include <libdeflate.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text_util.h"

enum { PACK_LEVEL = 6 }; /* past 6 libdeflate takes twice the time for 1 % of the size */

typedef struct packed {
    unsigned char *data; /* zlib stream, tsr_malloc */
    size_t bytes;
} packed;

static _Thread_local packed packed_rows;

static unsigned char *pack_hook(unsigned char *data, int bytes, int *out_bytes, int level)
{
    struct libdeflate_compressor *c;
    size_t room;

    (void)out_bytes;
    (void)level;
    libdeflate_set_memory_allocator(tsr_malloc, tsr_free);
    c = libdeflate_alloc_compressor(PACK_LEVEL);
    if (!c)
        return NULL;
    room = libdeflate_zlib_compress_bound(c, (size_t)bytes);
    packed_rows.data = tsr_malloc(room);
    if (packed_rows.data)
        packed_rows.bytes =
            libdeflate_zlib_compress(c, data, (size_t)bytes, packed_rows.data, room);
    libdeflate_free_compressor(c);
    return NULL; /* all that was wanted: stb frees its rows and returns */
}

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBIW_MALLOC(bytes) tsr_malloc(bytes)
#define STBIW_REALLOC(p, bytes) tsr_realloc(p, bytes)
#define STBIW_FREE(p) tsr_free(p)
#define STBIW_ZLIB_COMPRESS pack_hook
#include <stb_image_write.h>

static packed pack_rows(const uint8_t *rgb, int32_t width, int32_t height)
{
    packed rows;
    int bytes;

    packed_rows = (packed){0};
    tsr_free(stbi_write_png_to_mem(rgb, width * 3, width, height, 3, &bytes)); /* NULL, always */
    rows = packed_rows;
    packed_rows = (packed){0};
    return rows;
}

static void put_u32(uint8_t out[4], uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(v >> (24 - 8 * i));
}

static tsr_status write_chunk(tsr_out *o, const char type[4], const void *data, size_t bytes,
                              tsr_err *err)
{
    uint8_t head[8], tail[4];
    uint32_t crc;

    if (bytes > INT32_MAX)
        TSR_FAIL(err, TSR_E_INTERNAL, "%s: a PNG chunk cannot hold %zu bytes", o->path, bytes);
    put_u32(head, (uint32_t)bytes);
    memcpy(head + 4, type, 4);
    crc = libdeflate_crc32(0, head + 4, 4);
    crc = bytes ? libdeflate_crc32(crc, data, bytes) : crc; /* NULL would ask for the start value */
    put_u32(tail, crc);
    TSR_TRY(tsr_out_write(o, head, sizeof head, err));
    if (bytes)
        TSR_TRY(tsr_out_write(o, data, bytes, err));
    return tsr_out_write(o, tail, sizeof tail, err);
}

/* UTF-8 to what tEXt may hold: line feeds and the printable letters of Latin-1. */
static bool to_latin1(const char *text, tsr_buf *out)
{
    size_t len = strlen(text), n;
    uint32_t cp;

    for (size_t i = 0; i < len; i += n) {
        char letter;
        n = tsr_utf8_decode(text + i, len - i, &cp);
        if (!n || cp > 0xFF || (cp < 0x20 && cp != '\n') || (cp >= 0x7F && cp < 0xA0))
            return false;
        letter = (char)(unsigned char)cp;
        tsr_buf_append(out, &letter, 1);
    }
    return true;
}

/* tEXt: keyword 0 text. iTXt: keyword 0, not packed (0), method 0, language 0, translation 0, text.
 */
static tsr_status write_text(tsr_out *o, const tsr_png_text *text, tsr_err *err)
{
    tsr_buf body = {0};
    const char *type = "tEXt";
    tsr_status st;

    tsr_buf_append(&body, text->keyword, strlen(text->keyword) + 1);
    if (!to_latin1(text->text, &body)) {
        type = "iTXt";
        tsr_buf_free(&body);
        tsr_buf_append(&body, text->keyword, strlen(text->keyword) + 1);
        tsr_buf_append(&body, "\0\0\0\0", 4);
        tsr_buf_puts(&body, text->text);
    }
    st = tsr_buf_ok(&body) ? write_chunk(o, type, body.data, body.len, err)
                           : tsr_err_set(err, TSR_E_OOM, "out of memory while writing %s", o->path);
    tsr_buf_free(&body);
    return st;
}

static tsr_status write_chunks(tsr_out *o, int32_t width, int32_t height, const packed *rows,
                               const tsr_png_text *texts, int32_t n_texts, tsr_err *err)
{
    uint8_t ihdr[13] = {[8] = 8, [9] = 2}; /* 8 bits, RGB, deflate, five filters, no interlace */

    put_u32(ihdr, (uint32_t)width);
    put_u32(ihdr + 4, (uint32_t)height);
    TSR_TRY(tsr_out_write(o, "\x89PNG\r\n\x1a\n", 8, err));
    TSR_TRY(write_chunk(o, "IHDR", ihdr, sizeof ihdr, err));
    for (int32_t i = 0; i < n_texts; i++)
        TSR_TRY(write_text(o, &texts[i], err));
    TSR_TRY(write_chunk(o, "IDAT", rows->data, rows->bytes, err));
    return write_chunk(o, "IEND", NULL, 0, err);
}

tsr_status tsr_png_write(const char *path, const uint8_t *rgb, int32_t width, int32_t height,
                         const tsr_png_text *texts, int32_t n_texts, tsr_err *err)
{
    tsr_out out = {.fd = -1};
    packed rows = {0};
    tsr_status st = tsr_out_open(&out, path, err);

    if (st != TSR_OK)
        return st;
    rows = pack_rows(rgb, width, height);
    if (!rows.bytes)
        st = tsr_err_set(err, TSR_E_OOM, "out of memory while packing the picture for %s", path);
    else
        st = write_chunks(&out, width, height, &rows, texts, n_texts, err);
    if (st == TSR_OK)
        st = tsr_out_commit(&out, err);
    else
        tsr_out_abort(&out);
    tsr_free(rows.data);
    return st;
}
