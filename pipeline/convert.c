/* convert.c -- writes a packed checkpoint of an opened model.
 *
 * What a run needs is what the networks ask for: each is recorded once at a small size, in the
 * types that a run computes in (the VAE of a half precision model in float32 as well: a decoder
 * that overflows is done again in it), and the weights on these tapes are written in their order. A
 * tensor that was asked for and is no weight is a table that is read by rows: it stays raw.
 *
 * A weight is read, widened and packed a few panels of output channels at a time, so memory is
 * three buffers of about four mebibytes (or one panel), whatever the model. The space on the disk
 * is set aside before anything is written, and the file appears when it is whole. */
#include "pipeline/pipeline_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

enum { PIECE_BYTES = 4 << 20, MOST_PARTS = TSR_MAX_ENCODERS + 2, MOST_FORMS = 2 };

/* One tensor in all the forms that it gets. */
typedef struct item {
    tsr_weight w;
    tsr_op op;      /* that uses it: what the packing depends on */
    int32_t tensor; /* in the component */
    bool half, single;
} item;

typedef struct part {
    tsr_component *c;
    tsr_model_check_fn checks[2];
    tsr_dtype dtypes[MOST_FORMS]; /* of the tapes; the second may be TSR_DTYPE_NONE */
    item *items;                  /* [c->n_tensors] at most */
    int32_t n_items;
    int32_t *item_of; /* [c->n_tensors], plus 1; 0: none */
} part;

typedef struct conversion {
    tsr_model *m;
    tsr_err *err;
    const tsr_backend *b;
    const tsr_convert_desc *desc;
    tsr_dtype dtype;
    part parts[MOST_PARTS];
    int32_t n_parts;
    size_t bytes;                               /* that the file will have, about */
    size_t rows_bytes, raw_bytes, packed_bytes; /* of the buffers */
    float *rows;
    unsigned char *raw, *packed;
    tsr_packed_writer out;
} conversion;

/* ------------------------------------------------------------------ what there is */

static const char *const small_files[] = {
    "model_index.json",
    "scheduler/scheduler_config.json",
    "unet/config.json",
    "vae/config.json",
    "text_encoder/config.json",
    "text_encoder_2/config.json",
    "tokenizer/tokenizer_config.json",
    "tokenizer/special_tokens_map.json",
    "tokenizer/added_tokens.json",
    "tokenizer/vocab.json",
    "tokenizer/merges.txt",
    "tokenizer/tokenizer.json",
    "tokenizer_2/tokenizer_config.json",
    "tokenizer_2/special_tokens_map.json",
    "tokenizer_2/added_tokens.json",
    "tokenizer_2/vocab.json",
    "tokenizer_2/merges.txt",
    "tokenizer_2/tokenizer.json",
};
enum { N_SMALL_FILES = sizeof small_files / sizeof *small_files };

static void add_part(conversion *v, tsr_component *c, tsr_model_check_fn first,
                     tsr_model_check_fn second, tsr_dtype dtype)
{
    v->parts[v->n_parts++] = (part){.c = c, .checks = {first, second}, .dtypes = {dtype}};
}

static void list_parts(conversion *v)
{
    tsr_model *m = v->m;
    tsr_dtype vae = tsr_model_vae_dtype(m, v->dtype);

    add_part(v, &m->clip[0], tsr_model_check_text, NULL, v->dtype);
    if (m->n_encoders > 1)
        add_part(v, &m->clip[1], tsr_model_check_text_2, NULL, v->dtype);
    add_part(v, &m->unet, tsr_model_check_unet, NULL, v->dtype);
    add_part(v, &m->vae, tsr_model_check_decoder, tsr_model_check_encoder, vae);
    if (vae == TSR_F16)
        v->parts[v->n_parts - 1].dtypes[1] = TSR_F32;
}

/* The tensor's item, made when there is none. */
static item *item_for(part *p, int32_t tensor)
{
    if (!p->item_of[tensor]) {
        p->items[p->n_items++] = (item){.tensor = tensor};
        p->item_of[tensor] = p->n_items;
    }
    return &p->items[p->item_of[tensor] - 1];
}

static void take_weights(part *p, const tsr_tape *t)
{
    for (size_t i = 1; i < t->n_weights; i++) {
        const tsr_weight *w = &t->weights[i];
        item *it;

        if (w->first < 0)
            continue;
        it = item_for(p, w->tensor);
        it->w = *w;
        it->op = t->ops[w->first];
        it->half = it->half || w->dtype == TSR_F16;
        it->single = it->single || w->dtype == TSR_F32;
    }
}

static tsr_status record(conversion *v, part *p, tsr_model_check_fn check, tsr_dtype dtype)
{
    tsr_tape t;
    tsr_status st;

    tsr_tape_init(&t, dtype, v->err);
    st = check(v->m, &t);
    if (st == TSR_OK)
        take_weights(p, &t);
    tsr_tape_free(&t);
    return st;
}

static tsr_status list_items(conversion *v, part *p)
{
    p->c->headers_only = false; /* a plan may have set it */
    p->items = tsr_calloc((size_t)p->c->n_tensors, sizeof *p->items);
    p->item_of = tsr_calloc((size_t)p->c->n_tensors, sizeof *p->item_of);
    if (!p->items || !p->item_of)
        TSR_FAIL(v->err, TSR_E_OOM, "no memory to list the tensors of the %s", p->c->name);
    for (int32_t d = 0; d < MOST_FORMS && p->dtypes[d]; d++)
        for (int32_t i = 0; i < 2 && p->checks[i]; i++)
            TSR_TRY(record(v, p, p->checks[i], p->dtypes[d]));
    for (int32_t i = 0; i < p->c->n_tensors; i++)
        if (p->c->used[i])
            (void)item_for(p, i);
    return TSR_OK;
}

/* ------------------------------------------------------------------ sizes */

static int32_t halves(const item *it)
{
    return it->w.kind == TSR_WEIGHT_MATRIX && it->op.kind == TSR_OP_LINEAR && it->op.u.linear.geglu
               ? 2
               : 1;
}

static int32_t channels(const item *it)
{
    return it->w.dims[0] / halves(it);
}

static size_t row_elements(const item *it)
{
    size_t n = 1;

    for (int32_t i = 1; i < it->w.n_dims; i++)
        n *= (size_t)it->w.dims[i];
    return n;
}

/* Output channels that are packed at once: whole panels. */
static int32_t piece_channels(const conversion *v, const item *it)
{
    size_t row = row_elements(it) * sizeof(float) * (size_t)halves(it);
    int32_t panel = v->b->panel_channels(v->b, &it->op, &it->w);
    size_t panels = tsr_max_size(1, PIECE_BYTES / (row * (size_t)panel));

    return (int32_t)tsr_min_size(panels * (size_t)panel, (size_t)channels(it));
}

/* Bytes that one sum covers: a panel, a whole vector, a row of a table. */
static size_t unit_bytes(const conversion *v, const part *p, const item *it)
{
    const tsr_st_tensor *t = p->c->tensors[it->tensor];
    int32_t panel;

    if (!it->half && !it->single)
        return t->bytes / (size_t)t->dims[0];
    if (it->w.kind == TSR_WEIGHT_VECTOR)
        return v->b->packed_bytes(v->b, &it->op, &it->w);
    panel = v->b->panel_channels(v->b, &it->op, &it->w);
    return v->b->packed_offset(v->b, &it->op, &it->w, tsr_min_i32(panel, channels(it)));
}

static void measure_form(conversion *v, const part *p, item *it, tsr_dtype dtype)
{
    size_t rows, packed;
    int32_t n;

    it->w.dtype = dtype;
    n = piece_channels(v, it);
    rows = row_elements(it) * (size_t)n * (size_t)halves(it);
    packed = v->b->packed_bytes(v->b, &it->op, &it->w);
    v->rows_bytes = tsr_max_size(v->rows_bytes, rows * sizeof(float));
    v->raw_bytes = tsr_max_size(v->raw_bytes, rows * tsr_dtype_size(it->w.file_dtype));
    v->packed_bytes = tsr_max_size(v->packed_bytes, v->b->packed_offset(v->b, &it->op, &it->w, n));
    v->packed_bytes = tsr_max_size(
        v->packed_bytes, packed - v->b->packed_offset(v->b, &it->op, &it->w, channels(it)));
    v->bytes += tsr_packed_form_space(packed, unit_bytes(v, p, it));
}

static void measure_item(conversion *v, const part *p, item *it)
{
    if (it->half)
        measure_form(v, p, it, TSR_F16);
    if (it->single)
        measure_form(v, p, it, TSR_F32);
    if (!it->half && !it->single)
        v->bytes += tsr_packed_form_space(p->c->tensors[it->tensor]->bytes, unit_bytes(v, p, it));
    v->bytes += strlen(p->c->tensors[it->tensor]->name) + 256; /* in the table */
}

static tsr_status measure_files(conversion *v)
{
    for (int32_t i = 0; i < N_SMALL_FILES; i++) {
        tsr_file f;
        if (!tsr_folder_has(&v->m->folder, small_files[i]))
            continue;
        TSR_TRY(tsr_folder_open(&v->m->folder, small_files[i], &f, v->err));
        v->bytes += tsr_packed_form_space(f.size, f.size + 1);
        tsr_file_close(&f);
    }
    return TSR_OK;
}

static tsr_status make_buffers(conversion *v)
{
    v->raw_bytes = tsr_max_size(v->raw_bytes, PIECE_BYTES); /* raw tables are copied through it */
    v->rows = tsr_malloc(v->rows_bytes);
    v->raw = tsr_malloc(v->raw_bytes);
    v->packed = tsr_malloc(v->packed_bytes);
    if (!v->rows || !v->raw || !v->packed)
        TSR_FAIL(v->err, TSR_E_OOM, "no memory for %zu MiB of buffers",
                 (v->rows_bytes + v->raw_bytes + v->packed_bytes) >> 20);
    return TSR_OK;
}

static tsr_status prepare(conversion *v)
{
    list_parts(v);
    for (int32_t k = 0; k < v->n_parts; k++) {
        part *p = &v->parts[k];
        TSR_TRY(list_items(v, p));
        for (int32_t i = 0; i < p->n_items; i++)
            measure_item(v, p, &p->items[i]);
    }
    TSR_TRY(measure_files(v));
    return make_buffers(v);
}

/* ------------------------------------------------------------------ writing */

static tsr_status put(conversion *v, const void *data, size_t bytes)
{
    const tsr_convert_desc *d = v->desc;

    TSR_TRY(tsr_packed_put(&v->out, data, bytes));
    if (d->progress && !d->progress(d->progress_user, v->out.at, v->bytes))
        TSR_FAIL(v->err, TSR_E_CANCELLED, "stopped on request");
    return TSR_OK;
}

/* Output channels [c0,c1) of a weight, packed into v->packed. */
static tsr_status pack_piece(conversion *v, const item *it, int32_t c0, int32_t c1)
{
    const tsr_weight *w = &it->w;
    size_t row = row_elements(it), count = row * (size_t)(c1 - c0);
    size_t size = tsr_dtype_size(w->file_dtype);

    for (int32_t h = 0; h < halves(it); h++) {
        int32_t row0 = h * channels(it) + c0;
        TSR_TRY(w->source->read(w->source, w->tensor, (size_t)row0 * row * size, v->raw,
                                count * size, v->err));
        tsr_to_f32(v->rows, v->raw, w->file_dtype, count);
        v->b->pack(v->b, &it->op, w, v->rows, row0, c1 - c0, c0, v->packed);
    }
    return TSR_OK;
}

static tsr_status write_packed(conversion *v, const part *p, item *it, tsr_dtype dtype)
{
    int32_t n = piece_channels(v, it), all = channels(it);
    size_t begin = 0, end, bytes;

    it->w.dtype = dtype;
    bytes = v->b->packed_bytes(v->b, &it->op, &it->w);
    TSR_TRY(tsr_packed_begin_form(&v->out, dtype == TSR_F16 ? TSR_FORM_F16 : TSR_FORM_F32,
                                  unit_bytes(v, p, it)));
    for (int32_t c0 = 0; c0 < all; c0 += n, begin = end) {
        int32_t c1 = tsr_min_i32(c0 + n, all);
        TSR_TRY(pack_piece(v, it, c0, c1));
        end = v->b->packed_offset(v->b, &it->op, &it->w, c1);
        TSR_TRY(put(v, v->packed, end - begin));
    }
    memset(v->packed, 0, bytes - begin); /* up to its alignment */
    TSR_TRY(put(v, v->packed, bytes - begin));
    return tsr_packed_end_form(&v->out);
}

static tsr_status write_raw(conversion *v, const part *p, const item *it)
{
    const tsr_component *c = p->c;
    size_t bytes = c->tensors[it->tensor]->bytes;

    TSR_TRY(tsr_packed_begin_form(&v->out, TSR_FORM_RAW, unit_bytes(v, p, it)));
    for (size_t at = 0; at < bytes; at += v->raw_bytes) {
        size_t n = tsr_min_size(v->raw_bytes, bytes - at);
        TSR_TRY(c->source.read(&c->source, it->tensor, at, v->raw, n, v->err));
        TSR_TRY(put(v, v->raw, n));
    }
    return tsr_packed_end_form(&v->out);
}

static tsr_status write_item(conversion *v, const part *p, item *it)
{
    bool fits, packed = it->half || it->single;

    /* NaN and infinity are refused by name here and not when a picture is made. */
    TSR_TRY(tsr_component_fits_half(p->c, it->tensor, &fits));
    tsr_packed_begin_tensor(&v->out, p->c->tensors[it->tensor],
                            packed ? (uint8_t)(it->half + it->single) : 1);
    if (it->half)
        TSR_TRY(write_packed(v, p, it, TSR_F16));
    if (it->single)
        TSR_TRY(write_packed(v, p, it, TSR_F32));
    return packed ? TSR_OK : write_raw(v, p, it);
}

static tsr_status write_files(conversion *v)
{
    for (int32_t i = 0; i < N_SMALL_FILES; i++) {
        tsr_file f;
        tsr_status st;
        if (!tsr_folder_has(&v->m->folder, small_files[i]))
            continue;
        TSR_TRY(tsr_folder_open(&v->m->folder, small_files[i], &f, v->err));
        st = tsr_packed_add_file(&v->out, small_files[i], &f);
        tsr_file_close(&f);
        TSR_TRY(st);
    }
    return TSR_OK;
}

static tsr_status write_all(conversion *v, const char *path)
{
    TSR_TRY(tsr_packed_begin(&v->out, path, v->bytes, v->err));
    TSR_TRY(write_files(v));
    for (int32_t k = 0; k < v->n_parts; k++) {
        part *p = &v->parts[k];
        uint64_t hash;
        TSR_TRY(tsr_component_hash(p->c, &hash, v->err));
        tsr_packed_begin_part(&v->out, p->c->name, hash, (uint32_t)p->n_items);
        for (int32_t i = 0; i < p->n_items; i++)
            TSR_TRY(write_item(v, p, &p->items[i]));
    }
    return tsr_packed_finish(&v->out, v->dtype, v->b);
}

tsr_status tsr_model_convert(tsr_model *m, const char *path, const tsr_convert_desc *desc)
{
    conversion v = {
        .m = m, .err = &m->ctx->err, .b = m->ctx->backend, .desc = desc, .dtype = TSR_F16};
    tsr_status st;

    tsr_err_clear(v.err);
    if (m->is_packed)
        TSR_FAIL(v.err, TSR_E_USAGE, "%s is packed already; convert the model that it was made of",
                 m->path);
    if (desc->precision == TSR_PRECISION_BF16)
        TSR_FAIL(v.err, TSR_E_USAGE, "bf16 is not there on this backend; use fp16 or fp32");
    if (desc->precision == TSR_PRECISION_FP32)
        v.dtype = TSR_F32;
    st = prepare(&v);
    if (st == TSR_OK)
        st = write_all(&v, path);
    tsr_packed_abort(&v.out);
    for (int32_t k = 0; k < v.n_parts; k++) {
        tsr_free(v.parts[k].items);
        tsr_free(v.parts[k].item_of);
    }
    tsr_free(v.rows);
    tsr_free(v.raw);
    tsr_free(v.packed);
    return st;
}
