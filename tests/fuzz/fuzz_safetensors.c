/* fuzz_safetensors.c -- safetensors files from hostile bytes.
 *
 * Input: a first byte, then the file. If the first byte is odd, what follows is only the JSON
 * header: it is given its true size and 64 bytes of data, so that mutations of the header's length
 * are not all caught by the size check. Whatever is accepted must keep what safetensors.h promises.
 */
#include "model/safetensors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DATA_BYTES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(int fd, const void *bytes, size_t n)
{
    if (write(fd, bytes, n) != (ssize_t)n)
        abort();
}

static void expect(bool ok)
{
    if (!ok)
        abort();
}

static void check(const tsr_st *st)
{
    size_t covered = 0;

    for (int32_t i = 0; i < st->n_tensors; i++) {
        const tsr_st_tensor *t = &st->tensors[i];
        size_t elements = 1;
        expect(t->offset <= st->file.size && t->bytes <= st->file.size - t->offset);
        expect(i == 0 || strcmp(st->tensors[i - 1].name, t->name) < 0);
        expect(tsr_st_find(st, t->name) == t);
        expect(t->n_dims >= 0 && t->n_dims <= TSR_ST_MAX_DIMS);
        for (int32_t d = 0; d < t->n_dims; d++) {
            expect(t->dims[d] >= 0);
            elements = t->bytes == 0 ? 0 : elements * (size_t)t->dims[d];
        }
        expect(t->bytes == elements * tsr_dtype_size(t->dtype));
        covered += t->bytes;
    }
    expect(covered + st->n_uncovered_bytes <= st->file.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t zeros[DATA_BYTES];
    char path[64];
    tsr_err err = {0};
    tsr_st st;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    expect(fd >= 0);
    if (size > 0 && data[0] % 2) {
        uint64_t header_bytes = size - 1;
        put(fd, &header_bytes, sizeof header_bytes);
        put(fd, data + 1, size - 1);
        put(fd, zeros, sizeof zeros);
    } else if (size > 0) {
        put(fd, data + 1, size - 1);
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tsr_st_open(&st, path, &err) == TSR_OK) {
        check(&st);
        tsr_st_close(&st);
    } else {
        expect(err.code == TSR_E_MODEL && err.msg[0]);
    }
    close(fd);
    return 0;
}
