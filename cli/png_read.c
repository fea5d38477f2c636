/* png_read.c -- the texts of a PNG file, as hostile input.
 *
 * One walk over the chunks: eight bytes of head are read, then the body only of IHDR and of text
 * chunks; pixels are stepped over. Every length is checked against the file before it is used, a
 * text chunk is at most TSR_PNG_MAX_TEXT bytes, packed texts grow to that and no further, and the
 * number of chunks is bounded by the file's size (12 bytes each at least). CRCs are checked of
 * what is read. Chunks of other kinds, and texts under other keywords, are nobody's business. */
#include "cli/png.h"

#include <libdeflate.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text_util.h"

enum { SIGNATURE = 8, HEAD = 8, CRC = 4, IHDR = 13, MAX_SIDE = 1 << 24 };

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* ------------------------------------------------------ one text chunk */

/* Latin-1 to UTF-8, zero-terminated; NULL when out of memory. A zero byte ends the text. */
static char *from_latin1(const char *text, size_t len)
{
    tsr_buf b = {0};

    tsr_buf_puts(&b, "");
    for (size_t i = 0; i < len && text[i]; i++) {
        char utf8[4];
        tsr_buf_append(&b, utf8, tsr_utf8_encode((unsigned char)text[i], utf8));
    }
    if (!tsr_buf_ok(&b))
        tsr_buf_free(&b);
    return b.data;
}

static char *copy_text(const char *text, size_t len)
{
    char *copy = tsr_malloc(len + 1);

    if (copy) {
        memcpy(copy, text, len);
        copy[len] = 0;
    }
    return copy;
}

/* A zlib stream of unknown size into a new string: twice the room until it fits. */
static tsr_status unpack(const char *data, size_t bytes, char **text, size_t *len, tsr_err *err)
{
    enum libdeflate_result result = LIBDEFLATE_INSUFFICIENT_SPACE;
    struct libdeflate_decompressor *d;

    libdeflate_set_memory_allocator(tsr_malloc, tsr_free);
    d = libdeflate_alloc_decompressor();
    *text = NULL;
    for (size_t room = 16384; d && room <= TSR_PNG_MAX_TEXT; room *= 2) {
        tsr_free(*text);
        *text = tsr_malloc(room + 1);
        if (!*text)
            break;
        result = libdeflate_zlib_decompress(d, data, bytes, *text, room, len);
        if (result != LIBDEFLATE_INSUFFICIENT_SPACE)
            break;
    }
    libdeflate_free_decompressor(d);
    if (!d || !*text)
        TSR_FAIL(err, TSR_E_OOM, "out of memory while unpacking a text");
    if (result == LIBDEFLATE_SUCCESS) {
        (*text)[*len] = 0;
        return TSR_OK;
    }
    tsr_free(*text);
    *text = NULL;
    TSR_FAIL(err, TSR_E_MODEL, "%s",
             result == LIBDEFLATE_INSUFFICIENT_SPACE ? "a packed text is too long"
                                                     : "a packed text cannot be unpacked");
}

/* The parts of a text chunk's body after its keyword. */
typedef struct text_body {
    const char *data;
    size_t bytes;
    bool packed, latin1;
} text_body;

/* iTXt: flag method language 0 translated-keyword 0 text. */
static bool split_itxt(text_body *t)
{
    const char *end = t->data + t->bytes, *p;

    if (t->bytes < 2 || (unsigned char)t->data[0] > 1 || t->data[1] != 0)
        return false;
    t->packed = t->data[0] == 1;
    p = t->data + 2;
    for (int i = 0; i < 2; i++) {
        p = memchr(p, 0, (size_t)(end - p));
        if (!p)
            return false;
        p++;
    }
    t->data = p;
    t->bytes = (size_t)(end - p);
    return true;
}

static bool split_text(const char *type, text_body *t)
{
    if (memcmp(type, "iTXt", 4) == 0)
        return split_itxt(t);
    t->latin1 = true;
    if (memcmp(type, "zTXt", 4) != 0)
        return true;
    if (t->bytes < 1 || t->data[0] != 0)
        return false;
    t->packed = true;
    t->data++;
    t->bytes--;
    return true;
}

static tsr_status decode_text(const text_body *t, char **out, tsr_err *err)
{
    char *unpacked = NULL, *text;
    const char *data = t->data;
    size_t bytes = t->bytes;

    if (t->packed) {
        TSR_TRY(unpack(t->data, t->bytes, &unpacked, &bytes, err));
        data = unpacked;
    }
    text = t->latin1 ? from_latin1(data, bytes) : copy_text(data, bytes);
    tsr_free(unpacked);
    if (!text)
        TSR_FAIL(err, TSR_E_OOM, "out of memory while reading a text");
    *out = text;
    return TSR_OK;
}

/* Takes a text chunk's body when its keyword is one of ours and was not seen before. */
static tsr_status take_text(const char *type, const char *body, size_t bytes, tsr_png_meta *meta,
                            tsr_err *err)
{
    const char *end = memchr(body, 0, bytes);
    text_body t = {0};
    char **to;

    if (!end)
        return TSR_OK;
    if (strcmp(body, "tessera") == 0)
        to = &meta->record;
    else if (strcmp(body, "parameters") == 0)
        to = &meta->parameters;
    else
        return TSR_OK;
    if (*to)
        return TSR_OK;
    t.data = end + 1;
    t.bytes = bytes - (size_t)(end + 1 - body);
    if (!split_text(type, &t))
        TSR_FAIL(err, TSR_E_MODEL, "the %.4s chunk \"%s\" is broken", type, body);
    return decode_text(&t, to, err);
}

/* ------------------------------------------------------------- the walk */

typedef struct chunk {
    char type[5];
    size_t offset, bytes; /* of its body */
} chunk;

static tsr_status read_head(const tsr_file *f, size_t at, chunk *c, tsr_err *err)
{
    uint8_t head[HEAD];
    size_t left = f->size - at; /* at <= size, always */

    if (left < HEAD + CRC)
        TSR_FAIL(err, TSR_E_MODEL, "ends in the middle of a chunk");
    TSR_TRY(tsr_file_read(f, at, head, HEAD, err));
    memcpy(c->type, head + 4, 4);
    c->type[4] = 0;
    c->offset = at + HEAD;
    c->bytes = get_u32(head);
    for (int i = 0; i < 4; i++) {
        char letter = (char)(c->type[i] | 0x20);
        if (letter < 'a' || letter > 'z')
            TSR_FAIL(err, TSR_E_MODEL, "has a chunk whose type is no word at byte %zu", at);
    }
    if (c->bytes > left - HEAD - CRC)
        TSR_FAIL(err, TSR_E_MODEL, "the %s chunk at byte %zu is longer than the file", c->type, at);
    return TSR_OK;
}

/* The chunk's body, zero-terminated, its CRC checked. */
static tsr_status read_body(const tsr_file *f, const chunk *c, char **body, tsr_err *err)
{
    char *b = tsr_malloc(c->bytes + CRC + 1);
    tsr_status st;
    uint32_t crc;

    if (!b)
        TSR_FAIL(err, TSR_E_OOM, "out of memory while reading a chunk");
    st = tsr_file_read(f, c->offset, b, c->bytes + CRC, err);
    crc = libdeflate_crc32(libdeflate_crc32(0, c->type, 4), b, c->bytes);
    if (st == TSR_OK && crc != get_u32((const uint8_t *)b + c->bytes))
        st = tsr_err_set(err, TSR_E_MODEL, "the %s chunk at byte %zu is damaged (checksum)",
                         c->type, c->offset - HEAD);
    if (st != TSR_OK) {
        tsr_free(b);
        return st;
    }
    b[c->bytes] = 0;
    *body = b;
    return TSR_OK;
}

static tsr_status read_text(const tsr_file *f, const chunk *c, tsr_png_meta *meta, tsr_err *err)
{
    char *body;
    tsr_status st;

    if (c->bytes > TSR_PNG_MAX_TEXT)
        TSR_FAIL(err, TSR_E_MODEL, "the %s chunk at byte %zu is too long to be a text", c->type,
                 c->offset - HEAD);
    TSR_TRY(read_body(f, c, &body, err));
    st = take_text(c->type, body, c->bytes, meta, err);
    tsr_free(body);
    return st;
}

static tsr_status read_start(const tsr_file *f, tsr_png_meta *meta, tsr_err *err)
{
    uint8_t signature[SIGNATURE];
    chunk c;
    char *ihdr;
    uint32_t width, height;

    if (f->size < SIGNATURE)
        TSR_FAIL(err, TSR_E_MODEL, "is no PNG file");
    TSR_TRY(tsr_file_read(f, 0, signature, SIGNATURE, err));
    if (memcmp(signature, "\x89PNG\r\n\x1a\n", SIGNATURE) != 0)
        TSR_FAIL(err, TSR_E_MODEL, "is no PNG file");
    TSR_TRY(read_head(f, SIGNATURE, &c, err));
    if (strcmp(c.type, "IHDR") != 0 || c.bytes != IHDR)
        TSR_FAIL(err, TSR_E_MODEL, "does not begin with an IHDR chunk");
    TSR_TRY(read_body(f, &c, &ihdr, err));
    width = get_u32((const uint8_t *)ihdr);
    height = get_u32((const uint8_t *)ihdr + 4);
    tsr_free(ihdr);
    if (!width || !height || width > MAX_SIDE || height > MAX_SIDE)
        TSR_FAIL(err, TSR_E_MODEL, "says that the picture is %u by %u", width, height);
    meta->width = (int32_t)width;
    meta->height = (int32_t)height;
    return TSR_OK;
}

static tsr_status walk(const tsr_file *f, tsr_png_meta *meta, tsr_err *err)
{
    chunk c = {0};
    size_t at = SIGNATURE + HEAD + IHDR + CRC;

    TSR_TRY(read_start(f, meta, err));
    while (strcmp(c.type, "IEND") != 0) {
        TSR_TRY(read_head(f, at, &c, err));
        if (strcmp(c.type, "tEXt") == 0 || strcmp(c.type, "zTXt") == 0 ||
            strcmp(c.type, "iTXt") == 0)
            TSR_TRY(read_text(f, &c, meta, err));
        at = c.offset + c.bytes + CRC;
    }
    return TSR_OK;
}

tsr_status tsr_png_read_meta(const char *path, tsr_png_meta *meta, tsr_err *err)
{
    tsr_png_meta m = {0};
    tsr_file f;
    tsr_status st;

    TSR_TRY(tsr_file_open(&f, path, err));
    st = walk(&f, &m, err);
    if (st == TSR_E_MODEL)
        st = tsr_err_prefix(err, st, "%s", path);
    tsr_file_close(&f);
    if (st == TSR_OK)
        *meta = m;
    else
        tsr_png_meta_free(&m);
    return st;
}

void tsr_png_meta_free(tsr_png_meta *meta)
{
    tsr_free(meta->record);
    tsr_free(meta->parameters);
    *meta = (tsr_png_meta){0};
}
