/* fuzz_packed.c -- packed checkpoints from hostile bytes.
 *
 * Input: a first byte, then the file. If the first byte is odd, what follows is only the table: it
 * is put behind a page of data and gets a magic and a footer with true sizes and sums, so that
 * mutations of the table are not all caught by its sum. Whatever is accepted must keep what
 * packed.h promises, and reading from it must be clean.
 */
#include "model/packed.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/packed_internal.h"

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

/* Two pages: the magic, then zeros. The table behind them may point anywhere into them. */
static void put_around(int fd, const uint8_t *table, size_t bytes, const tsr_backend *b)
{
    static const uint8_t zeros[2 * TSR_PACKED_ALIGN];
    uint32_t version = TSR_PACKED_VERSION;
    tsr_packed_footer f = {.file_bytes = sizeof zeros + bytes + sizeof f,
                           .table_bytes = bytes,
                           .table_sum = tsr_fnv1a64(table, bytes, TSR_FNV_SEED),
                           .layout = tsr_packed_layout(b),
                           .dtype = TSR_F16};

    f.sum = tsr_fnv1a64(&f, offsetof(tsr_packed_footer, sum), TSR_FNV_SEED);
    put(fd, zeros, sizeof zeros);
    put(fd, table, bytes);
    put(fd, &f, sizeof f);
    expect(pwrite(fd, TSR_PACKED_MAGIC, TSR_PACKED_MAGIC_BYTES, 0) == TSR_PACKED_MAGIC_BYTES);
    expect(pwrite(fd, &version, sizeof version, TSR_PACKED_MAGIC_BYTES) == sizeof version);
}

static void read_form(const tsr_packed *p, int32_t i, tsr_form form)
{
    const tsr_packed_form *f = &p->forms[i][form];
    uint8_t some[64];
    size_t n = f->bytes < sizeof some ? f->bytes : sizeof some;
    tsr_err err = {0};

    expect(f->offset >= TSR_PACKED_ALIGN && f->offset + f->bytes <= p->file.size);
    expect(tsr_packed_read(p, i, form, f->bytes - n, some, n, &err) == TSR_OK ||
           err.code == TSR_E_MODEL);
    expect(tsr_packed_read(p, i, form, f->bytes, some, 1, &err) == TSR_E_MODEL);
}

static void check(const tsr_packed *p)
{
    int32_t n = 0;

    for (int32_t i = 0; i < p->n_files; i++)
        expect(p->files[i].name[0] && p->files[i].offset + p->files[i].bytes <= p->file.size);
    for (int32_t i = 0; i < p->n_parts; i++) {
        expect(p->parts[i].first == n && p->parts[i].n_tensors >= 0);
        n += p->parts[i].n_tensors;
    }
    expect(n == p->n_tensors);
    for (int32_t i = 0; i < n; i++)
        for (int form = 0; form < TSR_FORMS; form++)
            if (p->forms[i][form].bytes)
                read_form(p, i, (tsr_form)form);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tsr_backend *b = tsr_cpu_backend(TSR_TIER_PORTABLE);
    char path[64];
    tsr_err err = {0};
    tsr_packed p;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    expect(fd >= 0);
    if (size > 0 && data[0] % 2)
        put_around(fd, data + 1, size - 1, b);
    else if (size > 0)
        put(fd, data + 1, size - 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (tsr_packed_open(&p, path, b, &err) == TSR_OK) {
        check(&p);
        tsr_packed_close(&p);
    } else {
        expect(err.code == TSR_E_MODEL && err.msg[0]);
    }
    close(fd);
    return 0;
}
