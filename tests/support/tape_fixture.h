/* tape_fixture.h -- a tape with inputs and weights to record ops of. */
#ifndef TSR_TESTS_TAPE_FIXTURE_H
#define TSR_TESTS_TAPE_FIXTURE_H

#include <string.h>

#include "kernels/tape.h"
#include "tests/support/test.h"

typedef struct fixture {
    tsr_err err;
    tsr_tape t;
    tsr_val x;       /* [2,8,6,32] half */
    tsr_val tokens;  /* [2,48,1,32] half: the same as tokens */
    tsr_val single;  /* [2,8,6,32] float */
    tsr_val pixels;  /* [2,8,6,3] byte */
    tsr_val numbers; /* [2,1,1,1] int32 */
    tsr_wt conv;     /* [16,32,3,3] */
    tsr_wt matrix;   /* [16,32] */
    tsr_wt wide;     /* [16,64] */
    tsr_wt v16, v32;
    tsr_val out;
} fixture;

static inline tsr_wt weight(fixture *f, tsr_weight_kind kind, int32_t n_dims, const int32_t *dims)
{
    tsr_weight w = {.name = "unet.some.weight",
                    .n_dims = n_dims,
                    .file_dtype = TSR_F16,
                    .dtype = kind == TSR_WEIGHT_VECTOR ? TSR_F32 : TSR_F16,
                    .kind = kind};
    tsr_wt out = 0;

    memcpy(w.dims, dims, (size_t)n_dims * sizeof *dims);
    CHECK(tsr_tape_weight(&f->t, &w, &out) == TSR_OK);
    return out;
}

static inline tsr_val input(fixture *f, int32_t n, int32_t h, int32_t w, int32_t c, tsr_dtype dtype)
{
    int32_t shape[4] = {n, h, w, c};
    tsr_val out = 0;

    CHECK(tsr_tape_input(&f->t, shape, dtype, "x", &out) == TSR_OK);
    return out;
}

static inline tsr_val grid(fixture *f, tsr_entries entries, int32_t h)
{
    tsr_val out = 0;

    CHECK(tsr_tape_input_grid(&f->t, &entries, (int32_t[]){h, 1, 32}, TSR_F16, "grid", &out) ==
          TSR_OK);
    return out;
}

static inline void begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    tsr_tape_init(&f->t, TSR_F16, &f->err);
    f->t.scope = "mid_block.attn";
    f->x = input(f, 2, 8, 6, 32, TSR_F16);
    f->tokens = input(f, 2, 48, 1, 32, TSR_F16);
    f->single = input(f, 2, 8, 6, 32, TSR_F32);
    f->pixels = input(f, 2, 8, 6, 3, TSR_U8);
    f->numbers = input(f, 2, 1, 1, 1, TSR_I32);
    f->conv = weight(f, TSR_WEIGHT_MATRIX, 4, (int32_t[]){16, 32, 3, 3});
    f->matrix = weight(f, TSR_WEIGHT_MATRIX, 2, (int32_t[]){16, 32});
    f->wide = weight(f, TSR_WEIGHT_MATRIX, 2, (int32_t[]){16, 64});
    f->v16 = weight(f, TSR_WEIGHT_VECTOR, 1, (int32_t[]){16});
    f->v32 = weight(f, TSR_WEIGHT_VECTOR, 1, (int32_t[]){32});
}

static inline void end(fixture *f)
{
    tsr_tape_free(&f->t);
}

static inline bool is_shape(const fixture *f, tsr_val v, const int32_t s[4], tsr_dtype dtype)
{
    const tsr_value *x = tsr_tape_value(&f->t, v);

    return x && x->n == s[0] && x->h == s[1] && x->w == s[2] && x->c == s[3] && x->dtype == dtype;
}

#endif
