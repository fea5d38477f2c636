/* budget_entries.c -- entries that share: whatever is streamed, chained, spilled or in strips, the
 * entry of picture b with prompt p has the bits of a network with that picture and prompt alone;
 * also when only some of the pictures are computed.
 *
 * A small network: time and prompt before the loop; then what depends on the picture alone, a
 * self-attention over it, a cross-attention in which the prompt comes in, and a self-attention and
 * a joined input that mix both kinds of entries. */
#include <stdlib.h>
#include <string.h>

#include "kernels/plan_internal.h"
#include "kernels/program.h"
#include "tests/support/test.h"
#include "tests/support/toy_net.h"

enum { STEPS = 2, PROMPTS = 2, PICTURES = 3, H = 24, W = 10, C = 16, S = 5 };
enum { LATENT = 4 * H * W, CONTEXT = S * C };

typedef struct net {
    tsr_err err;
    tsr_tape tape;
    toy_source source;
    tsr_val times, context, latents, out;
    tsr_val shared, mixed; /* the last value of the picture alone, the first with the prompt */
    tsr_status st;
} net;

static void keep(net *n, tsr_status st)
{
    n->st = n->st == TSR_OK ? st : n->st;
}

static tsr_wt weight(net *n, tsr_weight_kind kind, int32_t n_dims, const int32_t *dims)
{
    return toy_weight(&n->source, &n->tape, kind, n_dims, dims, TSR_F16);
}

static tsr_val conv(net *n, tsr_conv_desc d, int32_t co)
{
    int32_t c = tsr_tape_value(&n->tape, d.x)->c + (d.x2 ? tsr_tape_value(&n->tape, d.x2)->c : 0);
    tsr_val out = 0;

    d.weight = weight(n, TSR_WEIGHT_MATRIX, 4, (int32_t[]){co, c, 3, 3});
    d.bias = weight(n, TSR_WEIGHT_VECTOR, 1, &co);
    d.pad_top = d.pad_left = d.pad_bottom = d.pad_right = 1;
    keep(n, tsr_op_conv2d(&n->tape, &d, &out));
    return out;
}

static tsr_val linear(net *n, tsr_val x, tsr_val residual)
{
    tsr_linear_desc d = {.x = x, .residual = residual};
    tsr_val out = 0;

    d.weight = weight(n, TSR_WEIGHT_MATRIX, 2, (int32_t[]){C, C});
    keep(n, tsr_op_linear(&n->tape, &d, &out));
    return out;
}

static tsr_val norm(net *n, tsr_val x, tsr_val x2)
{
    int32_t c = x2 ? 2 * C : C;
    tsr_group_norm_desc d = {.x = x, .x2 = x2, .groups = 4, .eps = 1e-5f, .silu = true};
    tsr_val out = 0;

    d.gamma = weight(n, TSR_WEIGHT_VECTOR, 1, &c);
    d.beta = weight(n, TSR_WEIGHT_VECTOR, 1, &c);
    keep(n, tsr_op_group_norm(&n->tape, &d, &out));
    return out;
}

/* x + attention of x over what `keys` has (0: x itself). */
static tsr_val attend(net *n, tsr_val x, tsr_val keys)
{
    tsr_val h = norm(n, x, 0), o = 0;
    tsr_attention_desc d = {.q = linear(n, h, 0), .n_heads = 2};

    d.k = linear(n, keys ? keys : h, 0);
    d.v = linear(n, keys ? keys : h, 0);
    keep(n, tsr_op_attention(&n->tape, &d, &o));
    return linear(n, o, x);
}

static void record(net *n, tsr_dtype dtype, int32_t prompts, int32_t pictures)
{
    tsr_tape *t = &n->tape;
    tsr_val rows = 0, row = 0, x = 0, skip;

    memset(n, 0, sizeof *n);
    toy_source_init(&n->source);
    tsr_tape_init(t, dtype, &n->err);
    t->scope = "entries";
    keep(n, tsr_tape_input_grid(t, &(tsr_entries){STEPS, 1, 1}, (int32_t[]){1, 1, C}, dtype,
                                "times", &n->times));
    keep(n, tsr_tape_input_grid(t, &(tsr_entries){1, prompts, 1}, (int32_t[]){S, 1, C}, dtype,
                                "context", &n->context));
    keep(n, tsr_op_add(t, &(tsr_add_desc){.x = n->times, .y = n->times}, &rows));
    tsr_tape_begin_loop(t);
    keep(n, tsr_tape_input(t, (int32_t[]){pictures, 4, H, W}, TSR_F32, "latents", &n->latents));
    keep(n, tsr_tape_step_view(t, rows, &row));
    keep(n, tsr_op_latent_in(t, n->latents, 1, &x));
    skip = conv(n, (tsr_conv_desc){.x = x, .add_channel = row}, C);
    n->shared = attend(n, skip, 0);
    n->mixed = attend(n, n->shared, n->context);
    x = attend(n, n->mixed, 0);
    x = conv(n, (tsr_conv_desc){.x = norm(n, x, skip), .residual = skip}, C);
    x = conv(n, (tsr_conv_desc){.x = x, .x2 = n->shared}, 4);
    keep(n, tsr_op_latent_out(t, x, &n->out));
    tsr_tape_output(t, n->out, "out");
}

static void fill(void *dst, tsr_dtype dtype, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        float v = (float)((seed * 7919u + (uint32_t)i * 104729u) % 2003u) / 1001.0f - 1;
        tsr_from_f32((unsigned char *)dst + i * tsr_dtype_size(dtype), dtype, &v, 1);
    }
}

/* How to run. */
typedef struct way {
    const char *name;
    tsr_knobs knobs;
    tsr_cpu_tier tier;
    tsr_dtype dtype;
    int32_t n_pictures; /* computed */
} way;

static tsr_status run_steps(net *n, tsr_program *p, int32_t prompt, int32_t picture, float *got)
{
    size_t bytes = tsr_value_bytes(tsr_tape_value(&n->tape, n->out));
    int32_t prompts = tsr_tape_value(&n->tape, n->context)->n,
            pictures = tsr_tape_value(&n->tape, n->latents)->n;
    unsigned char *context;

    TSR_TRY(tsr_program_load(p));
    fill(tsr_program_data(p, n->times), n->tape.dtype, STEPS * C, 5);
    context = tsr_program_data(p, n->context);
    for (int32_t i = 0; i < prompts; i++)
        fill(context + (size_t)i * CONTEXT * tsr_dtype_size(n->tape.dtype), n->tape.dtype, CONTEXT,
             100 + (uint32_t)(prompt + i));
    TSR_TRY(tsr_program_run_prologue(p));
    for (int32_t s = 0; s < STEPS; s++) {
        float *x = tsr_program_data(p, n->latents);
        for (int32_t i = 0; i < pictures; i++)
            fill(x + (size_t)i * LATENT, TSR_F32, LATENT, (uint32_t)(1000 + 10 * s + picture + i));
        TSR_TRY(tsr_program_run_step(p, s));
        memcpy((unsigned char *)got + (size_t)s * bytes, tsr_program_data(p, n->out), bytes);
    }
    CHECK(tsr_program_finite(p, n->out));
    return TSR_OK;
}

/* [STEPS,prompts,pictures,LATENT], from the given prompt and picture on. */
static bool run(const way *w, int32_t prompt, int32_t prompts, int32_t picture, int32_t pictures,
                float *got)
{
    tsr_plan_options opt = {.may_spill = true, .knobs = &w->knobs};
    tsr_program p = {0};
    tsr_arena arena = {0};
    tsr_pool *pool = NULL;
    tsr_io *io = NULL;
    tsr_spill spill = {0};
    tsr_log log = {0};
    net n;
    tsr_status st;

    record(&n, w->dtype, prompts, pictures);
    st = n.st;
    TSR_TRY_GOTO(st);
    TSR_TRY_GOTO(tsr_pool_make(&pool, 2, &n.err));
    TSR_TRY_GOTO(tsr_program_make(&p, &n.tape, tsr_cpu_backend(w->tier), pool, &opt, &n.err));
    TSR_TRY_GOTO(tsr_arena_make(&arena, tsr_program_bytes(&p), &n.err));
    if (p.spill_bytes)
        TSR_TRY_GOTO(tsr_spill_open(&spill, test_temp_dir(), p.spill_bytes, &log, &n.err));
    TSR_TRY_GOTO(tsr_io_make(&io, &n.err));
    tsr_program_bind(&p, &arena, 0);
    tsr_program_set_io(&p, io, p.spill_bytes ? &spill : NULL);
    tsr_program_set_pictures(&p, pictures == 1 ? 0 : w->n_pictures);
    TSR_TRY_GOTO(run_steps(&n, &p, prompt, picture, got));
    CHECK(!w->knobs.strip_keys || p.bytes_spilled > 0);
done:
    CHECK_MSG(st == TSR_OK, "%s: %s", w->name, n.err.msg);
    tsr_io_free(io);
    tsr_spill_close(&spill);
    tsr_program_free(&p);
    tsr_arena_free(&arena);
    tsr_pool_free(pool);
    tsr_tape_free(&n.tape);
    return st == TSR_OK;
}

/* Every picture and prompt of a grid against the same alone, which keeps everything. */
static void check_way(const way *w)
{
    way plain = {.name = "alone", .knobs = {.all_resident = true}, w->tier, w->dtype, 0};
    float *grid = calloc(STEPS * PROMPTS * PICTURES * LATENT, sizeof *grid);
    float *one = calloc(STEPS * LATENT, sizeof *one);
    int32_t n = w->n_pictures ? w->n_pictures : PICTURES;

    plain.knobs.window_bytes = plain.knobs.hold_bytes = plain.knobs.piece_bytes =
        plain.knobs.ahead_bytes = plain.knobs.strip_above = plain.knobs.strip_bytes = SIZE_MAX;
    if (grid && one && run(w, 0, PROMPTS, 0, PICTURES, grid)) {
        for (int32_t i = 0; i < PROMPTS * n; i++) {
            int32_t p = i / n, b = i % n;
            bool same = run(&plain, p, 1, b, 1, one);
            for (int32_t s = 0; s < STEPS && same; s++)
                same = memcmp(grid + (size_t)((s * PROMPTS + p) * PICTURES + b) * LATENT,
                              one + (size_t)s * LATENT, LATENT * sizeof *one) == 0;
            CHECK_MSG(same, "%s, %s, %s: prompt %d, picture %d of %d has other bits", w->name,
                      tsr_cpu_tier_name(w->tier), tsr_dtype_name(w->dtype), p, b, n);
        }
    }
    free(grid);
    free(one);
}

static void entries__any_plan__have_the_bits_of_one_alone(void)
{
    static const tsr_knobs off = {.window_bytes = SIZE_MAX,
                                  .hold_bytes = SIZE_MAX,
                                  .piece_bytes = SIZE_MAX,
                                  .ahead_bytes = SIZE_MAX,
                                  .strip_above = SIZE_MAX,
                                  .strip_bytes = SIZE_MAX};
    way ways[] = {{.name = "resident", off},
                  {.name = "streamed in windows", off},
                  {.name = "spilled", off},
                  {.name = "in strips", off},
                  {.name = "in strips, two of three pictures", off},
                  {.name = "resident, one of three pictures", off}};

    ways[0].knobs.all_resident = ways[5].knobs.all_resident = true;
    ways[1].knobs.window_bytes = 4096;
    ways[1].knobs.piece_bytes = 512;
    ways[2].knobs.gap_ops = 2;
    ways[2].knobs.spill_prologue = true;
    ways[3].knobs.window_bytes = 8192;
    ways[3].knobs.strip_above = ways[3].knobs.strip_bytes = 4096;
    ways[3].knobs.strip_keys = true;
    ways[4].knobs = ways[3].knobs;
    ways[4].n_pictures = 2;
    ways[5].n_pictures = 1;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ways[i].tier = i % 2 ? TSR_TIER_PORTABLE : tsr_cpu_best_tier();
        ways[i].dtype = TSR_F16;
        check_way(&ways[i]);
        ways[i].tier = i % 2 ? tsr_cpu_best_tier() : TSR_TIER_PORTABLE;
        ways[i].dtype = TSR_F32;
        check_way(&ways[i]);
    }
}

static void entries__of_the_tape__are_those_that_it_depends_on(void)
{
    net one, grid;
    double alone, shared = 0, mixed = 0, together;

    record(&one, TSR_F16, 1, 1);
    record(&grid, TSR_F16, PROMPTS, PICTURES);
    CHECK(one.st == TSR_OK && grid.st == TSR_OK && one.tape.n_ops == grid.tape.n_ops);
    CHECK(tsr_tape_value(&grid.tape, grid.shared)->n == PICTURES);
    CHECK(tsr_tape_value(&grid.tape, grid.mixed)->n == PROMPTS * PICTURES);
    for (size_t i = 0; i < grid.tape.n_ops && one.tape.n_ops == grid.tape.n_ops; i++) {
        const tsr_value *x = tsr_tape_value(&grid.tape, grid.tape.ops[i].out);
        alone = tsr_op_flops(&one.tape, &one.tape.ops[i]);
        together = tsr_op_flops(&grid.tape, &grid.tape.ops[i]);
        CHECK(together == alone * x->n || x->entries.steps > 1);
        shared += x->entries.prompts == 1 ? together : 0;
        mixed += x->entries.prompts > 1 ? together : 0;
    }
    CHECK(shared > 0 && mixed > 0);
    tsr_tape_free(&one.tape);
    tsr_tape_free(&grid.tape);
}

int main(void)
{
    RUN(entries__of_the_tape__are_those_that_it_depends_on);
    RUN(entries__any_plan__have_the_bits_of_one_alone);
    return test_end();
}
