/* toy_net.c -- see toy_net.h. */
#include "tests/support/toy_net.h"

#include <string.h>

/* A number in [-1,1) from two indices. */
static float noise(uint64_t a, uint64_t b)
{
    uint64_t h = (a * 0x9E3779B97F4A7C15u) ^ ((b + 1) * 0xC2B2AE3D27D4EB4Fu);

    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    h ^= h >> 32;
    return (float)(h & 0xFFFF) / 32768 - 1;
}

static void put(void *dst, tsr_dtype dtype, size_t i, float v)
{
    double d = (double)v;

    if (dtype == TSR_F64)
        memcpy((double *)dst + i, &d, sizeof d);
    else if (dtype == TSR_I8)
        ((int8_t *)dst)[i] = (int8_t)(v * 127);
    else
        tsr_from_f32((unsigned char *)dst + i * tsr_dtype_size(dtype), dtype, &v, 1);
}

static tsr_status read_toy(const tsr_source *base, int32_t tensor, size_t offset, void *dst,
                           size_t bytes, tsr_err *err)
{
    toy_source *s = (toy_source *)(uintptr_t)base;
    size_t size = tsr_dtype_size(s->dtype[tensor]), first = offset / size, n = bytes / size;

    s->n_reads++;
    if (s->n_reads == s->fail_read)
        TSR_FAIL(err, TSR_E_IO, "the toy source fails at read %d", s->n_reads);
    if (tensor < s->last_tensor || (tensor == s->last_tensor && offset != s->last_end) ||
        offset + bytes > s->elements[tensor] * size || offset % size || bytes % size)
        s->in_order = false;
    s->last_tensor = tensor;
    s->last_end = offset + bytes;
    s->bytes += bytes;
    s->largest_read = bytes > s->largest_read ? bytes : s->largest_read;
    for (size_t i = 0; i < n; i++) {
        bool bad = s->bad_value != 0 && tensor == s->bad_tensor && first + i == s->bad_element;
        put(dst, s->dtype[tensor], i,
            bad ? s->bad_value : noise((uint64_t)tensor, first + i) * s->scale[tensor]);
    }
    return TSR_OK;
}

void toy_source_init(toy_source *s)
{
    memset(s, 0, sizeof *s);
    s->source.read = read_toy;
    s->in_order = true;
    s->last_tensor = -1;
}

tsr_wt toy_weight(toy_source *s, tsr_tape *t, tsr_weight_kind kind, int32_t n_dims,
                  const int32_t *dims, tsr_dtype file_dtype)
{
    static const char *const names[] = {"toy.0", "toy.1", "toy.2", "toy.3", "toy.4"};
    tsr_weight w = {.name = names[s->n_tensors % 5],
                    .source = &s->source,
                    .tensor = s->n_tensors,
                    .n_dims = n_dims,
                    .file_dtype = file_dtype,
                    .dtype = kind == TSR_WEIGHT_VECTOR ? TSR_F32 : t->dtype,
                    .kind = kind};
    size_t elements = 1;
    tsr_wt out = 0;

    for (int32_t i = 0; i < n_dims; i++) {
        w.dims[i] = dims[i];
        elements *= (size_t)dims[i];
    }
    if (s->n_tensors == TOY_WEIGHTS || tsr_tape_weight(t, &w, &out) != TSR_OK)
        return 0;
    s->dtype[s->n_tensors] = file_dtype;
    s->elements[s->n_tensors] = elements;
    s->scale[s->n_tensors] = kind == TSR_WEIGHT_VECTOR ? 1.0f : 0.25f;
    s->n_tensors++;
    return out;
}

/* Recording state: the first error sticks. */
typedef struct recorder {
    toy_net *n;
    tsr_dtype file_dtype;
    tsr_status st;
} recorder;

static void keep(recorder *r, tsr_status st)
{
    if (r->st == TSR_OK)
        r->st = st;
}

static tsr_wt matrix(recorder *r, int32_t co, int32_t c, int32_t k)
{
    return toy_weight(&r->n->source, &r->n->tape, TSR_WEIGHT_MATRIX, 4, (int32_t[]){co, c, k, k},
                      r->file_dtype);
}

static tsr_wt vector(recorder *r, int32_t c)
{
    return toy_weight(&r->n->source, &r->n->tape, TSR_WEIGHT_VECTOR, 1, (int32_t[]){c},
                      r->file_dtype);
}

static tsr_val input(recorder *r, int32_t n, int32_t h, int32_t w, int32_t c, tsr_dtype dtype)
{
    tsr_val v = 0;

    keep(r, tsr_tape_input(&r->n->tape, (int32_t[]){n, h, w, c}, dtype, "input", &v));
    return v;
}

static int32_t channels(const recorder *r, tsr_val v)
{
    return v ? r->n->tape.values[v].c : 0;
}

static tsr_val conv(recorder *r, int32_t co, int32_t k, tsr_conv_desc d)
{
    tsr_val out = 0;

    d.weight = matrix(r, co, channels(r, d.x) + channels(r, d.x2), k);
    d.bias = vector(r, co);
    d.pad_top = d.pad_left = d.pad_bottom = d.pad_right = k / 2;
    keep(r, tsr_op_conv2d(&r->n->tape, &d, &out));
    return out;
}

static tsr_val linear(recorder *r, int32_t co, tsr_linear_desc d)
{
    int32_t rows = d.geglu ? 2 * co : co;
    tsr_val out = 0;

    d.weight = matrix(r, rows, channels(r, d.x) + channels(r, d.x2), 1);
    d.bias = vector(r, rows);
    keep(r, tsr_op_linear(&r->n->tape, &d, &out));
    return out;
}

static tsr_val group_norm(recorder *r, tsr_val x, tsr_val x2)
{
    tsr_group_norm_desc d = {.x = x, .x2 = x2, .groups = 4, .eps = 1e-5f, .silu = true};
    tsr_val out = 0;

    d.gamma = vector(r, channels(r, x) + channels(r, x2));
    d.beta = vector(r, channels(r, x) + channels(r, x2));
    keep(r, tsr_op_group_norm(&r->n->tape, &d, &out));
    return out;
}

static tsr_val layer_norm(recorder *r, tsr_val x)
{
    tsr_layer_norm_desc d = {.x = x, .eps = 1e-5f};
    tsr_val out = 0;

    d.gamma = vector(r, channels(r, x));
    d.beta = vector(r, channels(r, x));
    keep(r, tsr_op_layer_norm(&r->n->tape, &d, &out));
    return out;
}

static tsr_val attention(recorder *r, tsr_val q, tsr_val k, tsr_val v, bool causal)
{
    tsr_attention_desc d = {.q = q, .k = k, .v = v, .n_heads = 2, .causal = causal};
    tsr_val out = 0;

    keep(r, tsr_op_attention(&r->n->tape, &d, &out));
    return out;
}

static tsr_val add(recorder *r, tsr_val x, tsr_val y)
{
    tsr_val out = 0;

    keep(r, tsr_op_add(&r->n->tape, &(tsr_add_desc){.x = x, .y = y}, &out));
    return out;
}

/* out: keys and values of the context, an embedding for each step, one row of the context. */
static void record_prologue(recorder *r, tsr_val out[4])
{
    toy_net *n = r->n;
    tsr_tape *t = &n->tape;
    tsr_add_desc positions = {0};
    tsr_val x, e;

    n->context = input(r, 2, 5, 1, 24, t->dtype);
    keep(r, tsr_tape_input_grid(t, &(tsr_entries){TOY_STEPS, 1, 1}, (int32_t[]){1, 1, 1}, TSR_F32,
                                "times", &n->times));
    n->rows = input(r, 2, 1, 1, 1, TSR_I32);
    positions.x = n->context;
    positions.table =
        toy_weight(&n->source, t, TSR_WEIGHT_VECTOR, 2, (int32_t[]){7, 24}, r->file_dtype);
    keep(r, tsr_op_add(t, &positions, &x));
    x = linear(r, 16, (tsr_linear_desc){.x = x, .act = TSR_ACT_GELU});
    x = add(r, attention(r, x, x, x, true), x);
    out[0] = linear(r, 16, (tsr_linear_desc){.x = x});
    out[1] = linear(r, 16, (tsr_linear_desc){.x = x});
    keep(r, tsr_op_gather_row(t, x, n->rows, &out[3]));
    keep(r, tsr_op_time_embed(t, &(tsr_time_embed_desc){.x = n->times, .dim = 16}, &e));
    e = linear(r, 16, (tsr_linear_desc){.x = e, .act = TSR_ACT_SILU});
    out[2] = linear(r, 16, (tsr_linear_desc){.x = e, .pre = TSR_ACT_SILU, .out_dtype = t->dtype});
}

static tsr_val record_transformer(recorder *r, tsr_val x, tsr_val k, tsr_val v)
{
    tsr_val q = linear(r, 16, (tsr_linear_desc){.x = layer_norm(r, x)});

    x = linear(r, 16, (tsr_linear_desc){.x = attention(r, q, q, q, false), .residual = x});
    q = linear(r, 16, (tsr_linear_desc){.x = layer_norm(r, x)});
    x = linear(r, 16, (tsr_linear_desc){.x = attention(r, q, k, v, false), .residual = x});
    q = linear(r, 24, (tsr_linear_desc){.x = layer_norm(r, x), .geglu = true});
    return linear(r, 16, (tsr_linear_desc){.x = q, .residual = x});
}

static void record_loop(recorder *r, const tsr_val prologue[4], bool tokens)
{
    toy_net *n = r->n;
    tsr_tape *t = &n->tape;
    tsr_val view = 0, x = 0, skip, picture, low, joined = 0;

    n->latents = input(r, 1, 4, 9, 7, TSR_F32);
    n->picture = input(r, 2, 9, 7, 3, TSR_U8);
    n->tokens = tokens ? input(r, 2, 63, 1, 16, t->dtype) : input(r, 2, 9, 7, 16, t->dtype);
    keep(r, tsr_tape_step_view(t, prologue[2], &view));
    keep(r, tsr_op_latent_in(t, n->latents, 0.5f, &x));
    keep(r, tsr_op_image_in(t, n->picture, &picture));
    keep(r, tsr_op_concat(t, x, picture, &x));
    x = conv(r, 16, 3, (tsr_conv_desc){.x = x, .add_channel = view});
    n->dead = group_norm(r, x, 0);
    skip = conv(r, 16, 3, (tsr_conv_desc){.x = n->dead, .residual = x, .add_channel = prologue[3]});
    low = conv(r, 16, 3, (tsr_conv_desc){.x = skip, .stride = 2});
    low = record_transformer(r, low, prologue[0], prologue[1]);
    x = conv(r, 16, 3, (tsr_conv_desc){.x = low, .up_h = 9, .up_w = 7});
    joined = group_norm(r, x, skip);
    x = conv(r, 16, 3, (tsr_conv_desc){.x = joined, .residual = n->tokens});
    x = add(r, x, n->tokens);
    x = conv(r, 16, 1, (tsr_conv_desc){.x = x, .x2 = skip, .residual = x});
    joined = conv(r, 4, 3, (tsr_conv_desc){.x = x});
    keep(r, tsr_op_latent_out(t, joined, &n->noise));
    joined = conv(r, 3, 3, (tsr_conv_desc){.x = x});
    keep(r, tsr_op_image_out(t, joined, &n->image));
    tsr_tape_output(t, n->noise, "noise");
    tsr_tape_output(t, n->image, "image");
}

tsr_status toy_net_record(toy_net *n, tsr_dtype dtype, tsr_dtype file_dtype, bool keep_all)
{
    recorder r = {.n = n, .file_dtype = file_dtype};
    tsr_val prologue[4];

    memset(n, 0, sizeof *n);
    toy_source_init(&n->source);
    tsr_tape_init(&n->tape, dtype, &n->err);
    n->tape.scope = "toy";
    record_prologue(&r, prologue);
    tsr_tape_begin_loop(&n->tape);
    record_loop(&r, prologue, !keep_all);
    for (size_t i = 1; keep_all && i < n->tape.n_values; i++)
        tsr_tape_output(&n->tape, (tsr_val)i, NULL);
    return r.st;
}

static void fill(const toy_net *n, const tsr_program *p, tsr_val v, uint64_t seed)
{
    const tsr_value *x = tsr_tape_value(&n->tape, v);
    size_t elements = tsr_value_bytes(x) / tsr_dtype_size(x->dtype);
    unsigned char *dst = tsr_program_data(p, v);

    for (size_t i = 0; i < elements; i++) {
        if (x->dtype == TSR_U8)
            dst[i] = (unsigned char)((noise(seed, i) + 1) * 127);
        else
            put(dst, x->dtype, i, noise(seed, i));
    }
}

void toy_net_fill_prologue(const toy_net *n, const tsr_program *p)
{
    const int32_t rows[2] = {4, 1};
    float times[TOY_STEPS] = {981, 500, 1};

    fill(n, p, n->context, 1001);
    memcpy(tsr_program_data(p, n->times), times, sizeof times);
    memcpy(tsr_program_data(p, n->rows), rows, sizeof rows);
}

void toy_net_fill_step(const toy_net *n, const tsr_program *p, int32_t step)
{
    fill(n, p, n->latents, 2000 + (uint64_t)step);
    fill(n, p, n->picture, 3000 + (uint64_t)step);
    fill(n, p, n->tokens, 4000 + (uint64_t)step);
}

void toy_net_free(toy_net *n)
{
    tsr_tape_free(&n->tape);
    memset(n, 0, sizeof *n);
}
