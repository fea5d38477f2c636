/* picture_read.c -- see picture_read.h.
 *
 * stb_image decodes; what it reads goes through base/file and what it allocates through base/alloc.
 * Its allocator has no argument of the caller's, so the bound of what one picture may take is one
 * static number: room for a few copies at 16 bits a sample and for the packed bytes, by the size
 * that the header says. A file that unpacks to more than that is refused. */
#include "cli/picture_read.h"

#include <stdbool.h>

#include "base/alloc.h"
#include "base/file.h"

/* Bytes that the picture being decoded may still ask for, and whether it wanted more, or got none;
 * only the program's own thread is here. */
static size_t room;
static bool too_much, no_memory;

static void *take(void *p, size_t bytes)
{
    too_much = too_much || bytes > room;
    if (too_much)
        return NULL;
    room -= bytes;
    p = p ? tsr_realloc(p, bytes) : tsr_malloc(bytes);
    no_memory = no_memory || !p;
    return p;
}

#define STBI_MALLOC(bytes) take(NULL, bytes)
#define STBI_REALLOC(p, bytes) take(p, bytes)
#define STBI_FREE(p) tsr_free(p)
#define STBI_MAX_DIMENSIONS TSR_PICTURE_MOST
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
/* For declarations of what is left out; told at the end of the file, so there is no going back. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image.h>

enum { ROOM_A_PIXEL = 64, ROOM_AT_LEAST = 4 << 20 };
#define MOST_FILE_BYTES ((size_t)1 << 30)

typedef struct source {
    tsr_file file;
    size_t at;
    tsr_err *err;
    tsr_status st; /* of the first read that failed */
} source;

static int read_some(void *user, char *data, int size)
{
    source *s = user;
    size_t left = s->file.size - s->at, n = (size_t)size < left ? (size_t)size : left;

    if (s->st == TSR_OK)
        s->st = tsr_file_read(&s->file, s->at, data, n, s->err);
    if (s->st != TSR_OK)
        return 0;
    s->at += n;
    return (int)n;
}

static void skip_some(void *user, int n)
{
    source *s = user;
    size_t left = s->file.size - s->at;

    if (n < 0)
        s->at -= (size_t) - (int64_t)n < s->at ? (size_t) - (int64_t)n : s->at;
    else
        s->at += (size_t)n < left ? (size_t)n : left;
}

static int at_end(void *user)
{
    const source *s = user;

    return s->st != TSR_OK || s->at >= s->file.size;
}

/* Why stb_image gave up: a read that failed, no memory, or the file itself. */
static tsr_status refuse(source *s, const char *what)
{
    const char *reason = stbi_failure_reason();

    TSR_TRY(s->st);
    if (too_much)
        reason = "it unpacks to more than its size says";
    else if (no_memory)
        TSR_FAIL(s->err, TSR_E_OOM, "out of memory for the picture %s", s->file.path);
    TSR_FAIL(s->err, TSR_E_MODEL, "%s %s (%s)", s->file.path, what, reason);
}

static tsr_status decode(source *s, uint8_t **rgb, int32_t *width, int32_t *height)
{
    const stbi_io_callbacks calls = {read_some, skip_some, at_end};
    int w, h;
    uint8_t *pixels;

    if (s->file.size > MOST_FILE_BYTES)
        TSR_FAIL(s->err, TSR_E_MODEL, "%s is larger than a picture may be (1 GiB)", s->file.path);
    too_much = no_memory = false;
    room = ROOM_AT_LEAST;
    if (!stbi_info_from_callbacks(&calls, s, &w, &h, NULL))
        return refuse(s, "is no PNG or JPEG picture");
    if (w < TSR_PICTURE_LEAST || h < TSR_PICTURE_LEAST || w > TSR_PICTURE_MOST ||
        h > TSR_PICTURE_MOST)
        TSR_FAIL(s->err, TSR_E_MODEL, "%s: a picture of %dx%d; width and height are %d to %d",
                 s->file.path, w, h, TSR_PICTURE_LEAST, TSR_PICTURE_MOST);
    s->at = 0;
    room = 4 * s->file.size + ROOM_A_PIXEL * (size_t)w * (size_t)h + ROOM_AT_LEAST;
    pixels = stbi_load_from_callbacks(&calls, s, &w, &h, NULL, 3);
    if (!pixels || s->st != TSR_OK) {
        tsr_free(pixels);
        return refuse(s, "is broken");
    }
    *rgb = pixels;
    *width = w;
    *height = h;
    return TSR_OK;
}

tsr_status tsr_picture_read(const char *path, uint8_t **rgb, int32_t *width, int32_t *height,
                            tsr_err *err)
{
    source s = {.err = err};
    tsr_status st;

    TSR_TRY(tsr_file_open(&s.file, path, err));
    st = decode(&s, rgb, width, height);
    tsr_file_close(&s.file);
    return st;
}
