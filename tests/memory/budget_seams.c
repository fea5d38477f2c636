/* budget_seams.c -- a flat latent and a gradient, decoded with windows of any height: the same bits
 * as at once, and no seam where windows meet.
 *
 * Where a latent does not change from row to row, nor does the picture, farther from its top and
 * bottom than the decoder sees (18 latents): its second differences down the rows are zero there,
 * but for single values between two grey levels that fall on either side, as halves and Winograd's
 * tiles round them. A seam is a whole row that bends: the mean over a row tells them apart.
 * Over a gradient the mean is small, and no larger where windows meet than elsewhere. Pictures are
 * tall and narrow. */
#include <stdlib.h>
#include <string.h>

#include "base/text_util.h"
#include "tests/support/apart.h"
#include "tests/support/test.h"

enum { C = 4, H = 48, W = 8, FACTOR = 8, SEES = 18, ROWS = H * FACTOR, COLUMNS = W * FACTOR };
enum { ROW = 3 * COLUMNS, STRAY = ROW / 3 }; /* values of a row, grey levels that may stray there */
enum { FIRST = SEES * FACTOR + 1, LAST = (H - SEES) * FACTOR - 1 }; /* rows of the smooth inside */

static const int32_t windows[] = {1, 8, 20, 37, 64, ROWS / 2, ROWS};

static float latents[C * H * W]; // [1,C,H,W]
static uint8_t picture[ROWS * COLUMNS * 3];

/* Flat: one value a channel. Gradient: it rises down the rows. */
static void fill_latents(float slope)
{
    static const float level[C] = {0.9f, -0.4f, 0.3f, -1.1f};

    for (int32_t i = 0; i < C * H * W; i++)
        latents[i] = level[i / (H * W)] + slope * ((float)(i / W % H) / H - 0.5f);
}

static tsr_run_desc desc_of(void)
{
    return (tsr_run_desc){
        .task = TSR_TASK_DECODE, .latents = latents, .latents_shape = {1, C, H, W}};
}

static bool decode(const char *model_dir, uint64_t *hash)
{
    tsr_run_desc d = desc_of();
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_picture pic;
    char why[512] = "";
    bool ok =
        tsr_context_make(&ctx, &(tsr_context_desc){.n_threads = 2}, why, sizeof why) == TSR_OK &&
        tsr_model_open(ctx, model_dir, &model) == TSR_OK &&
        tsr_run_make(ctx, model, &d, &run) == TSR_OK && tsr_run_next(run, &pic) == TSR_OK;

    CHECK_MSG(ok && pic.width == COLUMNS && pic.height == ROWS, "%s: %s", model_dir,
              ctx ? tsr_context_error(ctx) : why);
    if (ok) {
        memcpy(picture, pic.rgb, sizeof picture);
        *hash = tsr_fnv1a64(pic.rgb, sizeof picture, TSR_FNV_SEED);
    }
    tsr_run_free(run);
    tsr_model_free(model);
    tsr_context_free(ctx);
    return ok;
}

/* The sum of the second differences down the columns at row y. */
static int32_t bend(int32_t y)
{
    int32_t sum = 0;

    for (int32_t i = y * ROW; i < (y + 1) * ROW; i++)
        sum += abs(picture[i - ROW] - 2 * picture[i] + picture[i + ROW]);
    return sum;
}

/* The largest bend where windows meet (the row before and the row after), and elsewhere. */
static void measure(int32_t window, int32_t *meet, int32_t *elsewhere)
{
    *meet = *elsewhere = 0;
    for (int32_t y = FIRST; y < LAST; y++) {
        bool border = y % window == 0 || (y + 1) % window == 0;
        int32_t *most = border ? meet : elsewhere;
        int32_t b = bend(y);
        *most = b > *most ? b : *most;
    }
}

static void check_seams(const char *name, bool flat)
{
    int32_t meet, elsewhere;

    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        measure(windows[i], &meet, &elsewhere);
        CHECK_MSG(!flat || (meet <= STRAY && elsewhere <= STRAY), "%s is not flat: %d, %d", name,
                  meet, elsewhere);
        /* Upsampled latents have a texture of FACTOR rows: smaller windows have no elsewhere. */
        CHECK_MSG(windows[i] <= FACTOR || meet <= elsewhere + STRAY,
                  "%s, windows of %d rows: %d where they meet, %d elsewhere", name, windows[i],
                  meet, elsewhere);
    }
    if (!flat)
        return;
    for (int32_t i = ROWS / 2 * ROW; i < ROWS * ROW; i++)
        picture[i] = (uint8_t)(picture[i] < 255 ? picture[i] + 1 : 254);
    measure(ROWS / 2, &meet, &elsewhere);
    CHECK_MSG(meet >= ROW - STRAY && elsewhere <= STRAY,
              "a seam of one grey level is not seen: %d, %d", meet, elsewhere);
}

/* In windows of these rows, with plenty of memory and with the least. */
static void check_window(const char *model, int32_t rows, uint64_t hash)
{
    tsr_run_desc d = desc_of();
    apart_figures f;

    d.tile_rows = rows;
    REQUIRE(run_apart(model, &d, 2, &f));
    CHECK_MSG(f.st == TSR_OK && f.rgb_hash == hash, "%s, windows of %d rows: another picture, %s",
              model, rows, f.why);
    d.budget_bytes = f.info.minimum_budget_bytes;
    REQUIRE(run_apart(model, &d, 2, &f));
    CHECK_MSG(f.st == TSR_OK && f.rgb_hash == hash,
              "%s, windows of %d rows in %zu bytes: another picture, %s", model, rows,
              d.budget_bytes, f.why);
#ifndef TSR_SANITIZED
    CHECK_MSG(f.peak <= d.budget_bytes, "%s took %zu of %zu bytes", model, f.peak, d.budget_bytes);
#endif
}

static void check_model(const char *model)
{
    for (int32_t k = 0; k < 2; k++) {
        uint64_t hash = 0;

        fill_latents(k ? 3.0f : 0);
        if (!decode(model, &hash))
            return;
        for (size_t i = 0; i < sizeof windows / sizeof *windows && test_failures() < 5; i++)
            check_window(model, windows[i], hash);
        check_window(model, 0, hash); /* the planner's choice */
        check_seams(k ? "the gradient" : "the flat latent", k == 0);
    }
}

static void decode__reference_model__has_no_seam_at_any_window(void)
{
    check_model(TSR_TEST_DATA "/models/sd1-small");
}

static void decode__embedded_model__has_no_seam_at_any_window(void)
{
    check_model(TSR_SOURCE_DIR "/assets/model");
}

int main(void)
{
    RUN(decode__reference_model__has_no_seam_at_any_window);
    RUN(decode__embedded_model__has_no_seam_at_any_window);
    return test_end();
}
