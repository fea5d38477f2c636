/* safetensors_write.c -- writes float32 tensors as a safetensors file, whole or not at all.
 *
 * The header is padded with spaces to a multiple of 8 bytes, so that the data is aligned when the
 * file is mapped; tensors lie in the order given, without gaps. Readers accept any order. */
#include "model/safetensors.h"

#include "base/num.h"
#include "base/text_util.h"

enum { ALIGN = 8 };

static size_t data_bytes(const tsr_st_out *t)
{
    size_t bytes = sizeof(float);

    for (int32_t i = 0; i < t->n_dims; i++)
        bytes *= (size_t)t->dims[i]; /* the caller has this much in memory: it cannot wrap */
    return bytes;
}

static void append_header(tsr_buf *b, const tsr_st_out *tensors, int32_t n)
{
    size_t offset = 0;

    tsr_buf_puts(b, "{");
    for (int32_t i = 0; i < n; i++) {
        size_t bytes = data_bytes(&tensors[i]);
        tsr_buf_puts(b, i > 0 ? "," : "");
        tsr_buf_json_string(b, tensors[i].name);
        tsr_buf_puts(b, ":{\"dtype\":\"F32\",\"shape\":[");
        for (int32_t d = 0; d < tensors[i].n_dims; d++)
            tsr_buf_printf(b, "%s%lld", d > 0 ? "," : "", (long long)tensors[i].dims[d]);
        tsr_buf_printf(b, "],\"data_offsets\":[%zu,%zu]}", offset, offset + bytes);
        offset += bytes;
    }
    tsr_buf_puts(b, "}");
    while (tsr_buf_ok(b) && b->len % ALIGN != 0)
        tsr_buf_puts(b, " ");
}

tsr_status tsr_st_write(const char *path, const tsr_st_out *tensors, int32_t n, tsr_err *err)
{
    tsr_buf header = {0};
    tsr_out out = {.fd = -1};
    uint8_t prefix[8];
    tsr_status st;

    append_header(&header, tensors, n);
    if (!tsr_buf_ok(&header)) {
        st = tsr_err_set(err, TSR_E_OOM, "out of memory for the header of %s", path);
        goto done;
    }
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)(header.len >> (8 * i));
    TSR_TRY_GOTO(tsr_out_open(&out, path, err));
    TSR_TRY_GOTO(tsr_out_write(&out, prefix, sizeof prefix, err));
    TSR_TRY_GOTO(tsr_out_write(&out, header.data, header.len, err));
    for (int32_t i = 0; i < n; i++)
        TSR_TRY_GOTO(tsr_out_write(&out, tensors[i].data, data_bytes(&tensors[i]), err));
    st = tsr_out_commit(&out, err);
done:
    tsr_out_abort(&out); /* nothing to do after a commit */
    tsr_buf_free(&header);
    return st;
}
