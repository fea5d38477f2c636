/* test_tape.c -- what recording accepts, what it refuses and how it says so. */
#include <math.h>
#include <string.h>

#include "tests/support/tape_fixture.h"

/* The refusal has the code, a sentence with `words` in it, and left the tape as it was. */
static void check_refused(fixture *f, tsr_status st, tsr_status want, const char *words)
{
    CHECK_MSG(st == want, "status %d and not %d (%s)", st, want, f->err.msg);
    CHECK_MSG(strstr(f->err.msg, words) != NULL, "\"%s\" does not say \"%s\"", f->err.msg, words);
    CHECK(f->t.n_ops == 0 && f->t.n_values == 6 && f->out == 0);
    f->err = (tsr_err){0};
}

/* ------------------------------------------------------------------ shapes */

static void conv2d__stride_padding_resize__output_shape(void)
{
    fixture f;
    tsr_conv_desc same = {.pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1};
    tsr_conv_desc down = {.stride = 2, .pad_bottom = 1, .pad_right = 1};
    tsr_conv_desc up = same;

    begin(&f);
    same.x = down.x = up.x = f.x;
    same.weight = down.weight = up.weight = f.conv;
    same.bias = f.v16;
    up.up_h = 17;
    up.up_w = 12;
    up.out_dtype = TSR_F32;
    CHECK(tsr_op_conv2d(&f.t, &same, &f.out) == TSR_OK);
    CHECK(is_shape(&f, f.out, (int32_t[]){2, 8, 6, 16}, TSR_F16));
    CHECK(strcmp(f.t.ops[0].name, "unet.some.weight") == 0);
    CHECK(f.t.ops[0].u.conv.stride == 1 && f.t.ops[0].u.conv.r == 3);
    CHECK(tsr_op_conv2d(&f.t, &down, &f.out) == TSR_OK);
    CHECK(is_shape(&f, f.out, (int32_t[]){2, 4, 3, 16}, TSR_F16)); /* (8+1-3)/2+1 */
    same.stride = 2;
    CHECK(tsr_op_conv2d(&f.t, &same, &f.out) == TSR_OK);
    CHECK(is_shape(&f, f.out, (int32_t[]){2, 4, 3, 16}, TSR_F16)); /* (8+2-3)/2+1, cut */
    CHECK(tsr_op_conv2d(&f.t, &up, &f.out) == TSR_OK);
    CHECK(is_shape(&f, f.out, (int32_t[]){2, 17, 12, 16}, TSR_F32));
    end(&f);
}

static void linear__geglu_and_joined_inputs__output_shape(void)
{
    fixture f;

    begin(&f);
    CHECK(tsr_op_linear(&f.t, &(tsr_linear_desc){.x = f.x, .weight = f.matrix}, &f.out) == TSR_OK);
    CHECK(is_shape(&f, f.out, (int32_t[]){2, 8, 6, 16}, TSR_F16));
    CHECK(tsr_op_linear(&f.t,
                        &(tsr_linear_desc){.x = f.x, .x2 = f.x, .weight = f.wide, .geglu = true},
                        &f.out) == TSR_OK);
    CHECK(is_shape(&f, f.out, (int32_t[]){2, 8, 6, 8}, TSR_F16));
    end(&f);
}

static void residual__tokens_where_an_image_is__is_accepted(void)
{
    fixture f;
    tsr_wt square;
    tsr_val y;

    begin(&f);
    square = weight(&f, TSR_WEIGHT_MATRIX, 4, (int32_t[]){32, 32, 1, 1});
    CHECK(tsr_op_linear(&f.t, &(tsr_linear_desc){.x = f.tokens, .weight = square, .residual = f.x},
                        &y) == TSR_OK);
    CHECK(is_shape(&f, y, (int32_t[]){2, 48, 1, 32}, TSR_F16));
    CHECK(tsr_op_add(&f.t, &(tsr_add_desc){.x = f.x, .y = y}, &y) == TSR_OK);
    CHECK(is_shape(&f, y, (int32_t[]){2, 8, 6, 32}, TSR_F16));
    CHECK(tsr_op_attention(&f.t,
                           &(tsr_attention_desc){.q = f.x, .k = f.tokens, .v = y, .n_heads = 4},
                           &y) == TSR_OK);
    CHECK(is_shape(&f, y, (int32_t[]){2, 8, 6, 32}, TSR_F16));
    CHECK(f.t.ops[2].u.attention.scale == 1 / sqrtf(8));
    CHECK(strcmp(f.t.ops[2].name, "mid_block.attn") == 0);
    end(&f);
}

static void plain_ops__valid_operands__output_shape(void)
{
    fixture f;
    tsr_val v, nchw, times;

    begin(&f);
    nchw = input(&f, 2, 4, 8, 6, TSR_F32); /* [n,c,h,w] */
    times = input(&f, 5, 1, 1, 6, TSR_F32);
    CHECK(tsr_op_latent_in(&f.t, nchw, 2, &v) == TSR_OK);
    CHECK(is_shape(&f, v, (int32_t[]){2, 8, 6, 4}, TSR_F16));
    CHECK(tsr_op_latent_out(&f.t, v, &v) == TSR_OK);
    CHECK(is_shape(&f, v, (int32_t[]){2, 4, 8, 6}, TSR_F32));
    CHECK(tsr_op_image_in(&f.t, f.pixels, &v) == TSR_OK);
    CHECK(is_shape(&f, v, (int32_t[]){2, 8, 6, 3}, TSR_F16));
    CHECK(tsr_op_image_out(&f.t, v, &v) == TSR_OK);
    CHECK(is_shape(&f, v, (int32_t[]){2, 8, 6, 3}, TSR_U8));
    CHECK(tsr_op_concat(&f.t, f.x, f.x, &v) == TSR_OK);
    CHECK(is_shape(&f, v, (int32_t[]){2, 8, 6, 64}, TSR_F16));
    CHECK(tsr_op_gather_row(&f.t, f.tokens, f.numbers, &v) == TSR_OK);
    CHECK(is_shape(&f, v, (int32_t[]){2, 1, 1, 32}, TSR_F16));
    CHECK(tsr_op_time_embed(&f.t, &(tsr_time_embed_desc){.x = times, .dim = 256}, &v) == TSR_OK);
    CHECK(is_shape(&f, v, (int32_t[]){5, 1, 1, 1536}, TSR_F32));
    end(&f);
}

/* ----------------------------------------------------------------- entries */

/* ---------------------------------------------------------------- refusals */

typedef struct conv_refusal {
    const char *words;
    tsr_conv_desc d;   /* x, weight and bias are filled in when 0 */
    int32_t weight[4]; /* 0: the fixture's */
    tsr_status status;
} conv_refusal;

static void conv2d__broken_descriptors__are_refused_by_name(void)
{
    static const conv_refusal cases[] = {
        {"32 input channels but gets 64", {.x2 = 1}, {0}, TSR_E_MODEL},
        {"stride 3", {.stride = 3}, {0}, TSR_E_MODEL},
        {"stride -1", {.stride = -1}, {0}, TSR_E_MODEL},
        {"padding", {.pad_top = -1}, {0}, TSR_E_MODEL},
        {"padding", {.pad_right = 3}, {0}, TSR_E_MODEL},
        {"resize", {.up_h = 8}, {0}, TSR_E_MODEL},
        {"resize", {.up_h = -8, .up_w = -8}, {0}, TSR_E_MODEL},
        {"kernel of at most 7", {0}, {16, 32, 9, 9}, TSR_E_MODEL},
        {"smaller than the 3x7 kernel", {.pad_top = 1}, {16, 32, 3, 7}, TSR_E_MODEL},
        {"residual", {.residual = 1}, {0}, TSR_E_MODEL},
        {"vector to add", {.add_channel = 1}, {0}, TSR_E_MODEL},
        {"has 16 elements", {0}, {24, 32, 3, 3}, TSR_E_MODEL},
        {"has type U8", {.x = 4}, {0}, TSR_E_MODEL},
        {"neither F16 nor F32", {.out_dtype = TSR_I32}, {0}, TSR_E_INTERNAL},
        {"no value of the tape", {.x = 77}, {0}, TSR_E_INTERNAL},
        {"no value of the tape", {.residual = -1}, {0}, TSR_E_INTERNAL},
        {"too large", {.up_h = 1 << 30, .up_w = 1 << 30}, {0}, TSR_E_MODEL},
        {"too large", {.up_h = INT32_MAX, .up_w = 1}, {16, 32, 1, 1}, TSR_E_MODEL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_conv_desc d = cases[i].d;
        fixture f;
        begin(&f);
        d.x = d.x ? d.x : f.x;
        d.bias = f.v16;
        d.weight = cases[i].weight[0] ? weight(&f, TSR_WEIGHT_MATRIX, 4, cases[i].weight) : f.conv;
        check_refused(&f, tsr_op_conv2d(&f.t, &d, &f.out), cases[i].status, cases[i].words);
        end(&f);
    }
}

static void linear__broken_descriptors__are_refused_by_name(void)
{
    fixture f;
    tsr_linear_desc good, d;
    tsr_wt odd;

    begin(&f);
    odd = weight(&f, TSR_WEIGHT_MATRIX, 2, (int32_t[]){15, 32});
    good = (tsr_linear_desc){.x = f.x, .weight = f.matrix, .bias = f.v16};
    d = good;
    d.weight = f.wide;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_MODEL,
                  "64 input channels but gets 32");
    d = good;
    d.weight = f.conv;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_MODEL, "[out,in]");
    d = good;
    d.weight = f.v16;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_INTERNAL, "weight is missing");
    d = good;
    d.weight = 0;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_INTERNAL, "mid_block.attn");
    d = good;
    d.weight = odd;
    d.bias = 0;
    d.geglu = true;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_MODEL, "two halves");
    d = good;
    d.bias = f.v32;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_MODEL, "has 32 elements");
    d = good;
    d.residual = f.x;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_MODEL, "residual [2,8,6,32]");
    d = good;
    d.pre = TSR_ACT_GELU;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_INTERNAL, "activation");
    d = good;
    d.geglu = true;
    d.act = TSR_ACT_SILU;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_INTERNAL, "GEGLU");
    d = good;
    d.weight = f.wide;
    d.x2 = f.single;
    check_refused(&f, tsr_op_linear(&f.t, &d, &f.out), TSR_E_MODEL, "cannot be joined");
    end(&f);
}

static void attention__broken_descriptors__are_refused_by_scope(void)
{
    fixture f;
    tsr_val other, short_keys;
    tsr_attention_desc d;

    begin(&f);
    d = (tsr_attention_desc){.q = f.x, .k = f.x, .v = f.x, .n_heads = 5};
    check_refused(&f, tsr_op_attention(&f.t, &d, &f.out), TSR_E_MODEL, "5 attention heads");
    d.n_heads = 0;
    check_refused(&f, tsr_op_attention(&f.t, &d, &f.out), TSR_E_MODEL, "mid_block.attn");
    d.n_heads = 4;
    d.k = f.single;
    check_refused(&f, tsr_op_attention(&f.t, &d, &f.out), TSR_E_MODEL, "do not go together");
    d.k = f.x;
    d.scale = -1;
    check_refused(&f, tsr_op_attention(&f.t, &d, &f.out), TSR_E_MODEL, "scale");
    d.scale = NAN;
    check_refused(&f, tsr_op_attention(&f.t, &d, &f.out), TSR_E_MODEL, "scale");
    d.scale = 0;
    d.v = 0;
    check_refused(&f, tsr_op_attention(&f.t, &d, &f.out), TSR_E_INTERNAL, "attention value");
    short_keys = input(&f, 2, 7, 1, 32, TSR_F16);
    other = input(&f, 3, 48, 1, 32, TSR_F16);
    d = (tsr_attention_desc){.q = f.x, .k = short_keys, .v = f.x, .n_heads = 4};
    CHECK(tsr_op_attention(&f.t, &d, &f.out) == TSR_E_MODEL);
    d.v = short_keys;
    d.causal = true;
    CHECK(tsr_op_attention(&f.t, &d, &f.out) == TSR_E_MODEL);
    d = (tsr_attention_desc){.q = f.x, .k = other, .v = other, .n_heads = 4};
    CHECK(tsr_op_attention(&f.t, &d, &f.out) == TSR_E_MODEL);
    CHECK(f.t.n_ops == 0);
    end(&f);
}

static void norms_and_add__broken_descriptors__are_refused_by_name(void)
{
    fixture f;
    tsr_wt table;

    begin(&f);
    table = weight(&f, TSR_WEIGHT_VECTOR, 2, (int32_t[]){47, 32});
#define GROUP(...) tsr_op_group_norm(&f.t, &(tsr_group_norm_desc){__VA_ARGS__}, &f.out)
    check_refused(&f, GROUP(.x = f.x, .gamma = f.v32, .beta = f.v32, .groups = 5, .eps = 1e-5f),
                  TSR_E_MODEL, "5 groups");
    check_refused(&f, GROUP(.x = f.x, .gamma = f.v32, .beta = f.v32, .eps = 1e-5f), TSR_E_MODEL,
                  "0 groups");
    check_refused(&f, GROUP(.x = f.x, .gamma = f.v32, .beta = f.v32, .groups = 4, .eps = NAN),
                  TSR_E_MODEL, "nan");
    check_refused(&f, GROUP(.x = f.x, .gamma = f.v16, .beta = f.v32, .groups = 4), TSR_E_MODEL,
                  "16 elements");
    check_refused(&f, GROUP(.x = f.x, .gamma = f.v32, .groups = 4), TSR_E_INTERNAL, "vector");
    check_refused(&f, GROUP(.x = f.pixels, .gamma = f.v32, .beta = f.v32, .groups = 4), TSR_E_MODEL,
                  "U8");
#undef GROUP
#define LAYER(...) tsr_op_layer_norm(&f.t, &(tsr_layer_norm_desc){__VA_ARGS__}, &f.out)
    check_refused(&f, LAYER(.x = f.x, .gamma = f.v16, .beta = f.v32), TSR_E_MODEL, "16 elements");
    check_refused(&f, LAYER(.x = f.x, .gamma = f.v32, .beta = f.v32, .eps = -1), TSR_E_MODEL,
                  "eps");
#undef LAYER
#define ADD(...) tsr_op_add(&f.t, &(tsr_add_desc){__VA_ARGS__}, &f.out)
    check_refused(&f, ADD(.x = f.x), TSR_E_INTERNAL, "value or a table");
    check_refused(&f, ADD(.x = f.x, .y = f.x, .table = table), TSR_E_INTERNAL, "value or a table");
    check_refused(&f, ADD(.x = f.x, .table = table), TSR_E_MODEL, "48 rows of 32");
    check_refused(&f, ADD(.x = f.x, .y = f.pixels), TSR_E_MODEL, "U8");
#undef ADD
    end(&f);
}

static void plain_ops__broken_operands__are_refused_by_scope(void)
{
    fixture f;
    tsr_time_embed_desc d;

    begin(&f);
    d = (tsr_time_embed_desc){.x = f.single, .dim = 64};
    check_refused(&f, tsr_op_time_embed(&f.t, &d, &f.out), TSR_E_INTERNAL, "[N,1,1,K]");
    check_refused(&f, tsr_op_gather_row(&f.t, f.tokens, f.tokens, &f.out), TSR_E_INTERNAL, "I32");
    check_refused(&f, tsr_op_concat(&f.t, f.x, f.tokens, &f.out), TSR_E_MODEL, "cannot be joined");
    check_refused(&f, tsr_op_concat(&f.t, f.x, 0, &f.out), TSR_E_INTERNAL, "second input");
    check_refused(&f, tsr_op_latent_in(&f.t, f.x, 1, &f.out), TSR_E_MODEL, "F16");
    check_refused(&f, tsr_op_latent_in(&f.t, f.single, INFINITY, &f.out), TSR_E_MODEL, "inf");
    check_refused(&f, tsr_op_latent_out(&f.t, f.pixels, &f.out), TSR_E_MODEL, "U8");
    check_refused(&f, tsr_op_image_in(&f.t, f.x, &f.out), TSR_E_INTERNAL, "U8");
    check_refused(&f, tsr_op_image_out(&f.t, f.x, &f.out), TSR_E_MODEL, "3 channels");
    end(&f);
}

static void time_embed__impossible_numbers__are_refused(void)
{
    static const tsr_time_embed_desc bad[] = {{.dim = 1},
                                              {.dim = 0},
                                              {.dim = -4},
                                              {.dim = 1 << 20},
                                              {.dim = 2, .freq_shift = 1},
                                              {.dim = 8, .freq_shift = NAN},
                                              {.dim = 8, .freq_shift = -1}};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tsr_time_embed_desc d = bad[i];
        fixture f;
        begin(&f);
        d.x = input(&f, 1, 1, 1, 1, TSR_F32);
        CHECK(tsr_op_time_embed(&f.t, &d, &f.out) == TSR_E_MODEL && f.t.n_ops == 0);
        end(&f);
    }
}

static void input__impossible_shapes__are_refused(void)
{
    static const int32_t shapes[][4] = {
        {0, 1, 1, 1},       {1, -1, 1, 1},       {1, 1 << 16, 1 << 16, 1}, {1, 1, 1 << 20, 1 << 20},
        {1 << 30, 4, 1, 1}, {1, 1, 1, INT32_MIN}};
    fixture f;

    begin(&f);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_refused(&f, tsr_tape_input(&f.t, shapes[i], TSR_F32, "latents", &f.out), TSR_E_MODEL,
                      "latents");
    check_refused(&f, tsr_tape_input(&f.t, (int32_t[]){1, 1, 1, 1}, TSR_F64, "t", &f.out),
                  TSR_E_INTERNAL, "F64");
    end(&f);
}

static void weight__impossible_tensors__are_refused(void)
{
    static const tsr_weight good = {
        .name = "w", .n_dims = 2, .dims = {4, 4}, .file_dtype = TSR_F16, .dtype = TSR_F16};
    fixture f;
    tsr_weight w;
    tsr_wt out = 0;

    begin(&f);
    CHECK(tsr_tape_weight(&f.t, &good, &out) == TSR_OK && out == (tsr_wt)f.t.n_weights - 1);
    CHECK(f.t.weights[out].first == -1 && f.t.weights[out].last == -1);
#define REFUSED(change, status)                                                                    \
    do {                                                                                           \
        w = good;                                                                                  \
        change;                                                                                    \
        CHECK(tsr_tape_weight(&f.t, &w, &out) == (status));                                        \
    } while (0)
    REFUSED(w.n_dims = 0, TSR_E_MODEL);
    REFUSED(w.n_dims = 5, TSR_E_MODEL);
    REFUSED(w.dims[1] = 0, TSR_E_MODEL);
    REFUSED(w.dims[0] = -4, TSR_E_MODEL);
    REFUSED(w.dims[1] = INT32_MAX, TSR_E_MODEL);
    REFUSED((w.n_dims = 4, w.dims[0] = w.dims[1] = w.dims[2] = w.dims[3] = 1 << 20), TSR_E_MODEL);
    REFUSED(w.file_dtype = TSR_DTYPE_NONE, TSR_E_MODEL);
    REFUSED(w.dtype = TSR_BF16, TSR_E_INTERNAL);
    REFUSED(w.kind = TSR_WEIGHT_VECTOR, TSR_E_INTERNAL); /* vectors are float32 */
    REFUSED(w.n_dims = 1, TSR_E_INTERNAL);
#undef REFUSED
    end(&f);
}

static void weight__two_kinds_of_ops__cannot_share_it(void)
{
    fixture f;
    tsr_wt w;
    tsr_val y = 0;

    begin(&f);
    w = weight(&f, TSR_WEIGHT_MATRIX, 4, (int32_t[]){16, 32, 1, 1});
    CHECK(tsr_op_linear(&f.t, &(tsr_linear_desc){.x = f.x, .weight = w}, &y) == TSR_OK);
    CHECK(tsr_op_linear(&f.t, &(tsr_linear_desc){.x = f.tokens, .weight = w}, &y) == TSR_OK);
    CHECK(tsr_op_conv2d(&f.t, &(tsr_conv_desc){.x = f.x, .weight = w}, &y) == TSR_E_INTERNAL);
    CHECK(tsr_op_linear(&f.t, &(tsr_linear_desc){.x = f.x, .weight = w, .geglu = true}, &y) ==
          TSR_E_INTERNAL);
    CHECK(f.t.n_ops == 2 && f.t.weights[w].first == 0 && f.t.weights[w].last == 1);
    end(&f);
}

int main(void)
{
    RUN(conv2d__stride_padding_resize__output_shape);
    RUN(linear__geglu_and_joined_inputs__output_shape);
    RUN(residual__tokens_where_an_image_is__is_accepted);
    RUN(plain_ops__valid_operands__output_shape);
    RUN(conv2d__broken_descriptors__are_refused_by_name);
    RUN(linear__broken_descriptors__are_refused_by_name);
    RUN(attention__broken_descriptors__are_refused_by_scope);
    RUN(norms_and_add__broken_descriptors__are_refused_by_name);
    RUN(plain_ops__broken_operands__are_refused_by_scope);
    RUN(time_embed__impossible_numbers__are_refused);
    RUN(input__impossible_shapes__are_refused);
    RUN(weight__impossible_tensors__are_refused);
    RUN(weight__two_kinds_of_ops__cannot_share_it);
    return test_end();
}
