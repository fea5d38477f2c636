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

enum { H = 48, SEES = 18, COLUMNS = 64, MAX_C = 16, MAX_FACTOR = 32 };
enum { ROW = 3 * COLUMNS, STRAY = ROW / 3 }; /* values of a row, grey levels that may stray there */

static int32_t windows[] = {1, 8, 20, 37, 64, 0, 0}; // the last two: half the rows, all

/* Of the model that is looked at: channels and width of its latents, pixels a latent, rows. */
static int32_t channels, w, factor, rows;

static float latents[MAX_C * H * COLUMNS]; // [1,channels,H,w]
static uint8_t picture[H * MAX_FACTOR * COLUMNS * 3];

/* Flat: one value a channel. Gradient: it rises down the rows. */
static void fill_latents(float slope)
{
    static const float level[4] = {0.9f, -0.4f, 0.3f, -1.1f};

    for (int32_t i = 0; i < channels * H * w; i++)
        latents[i] = level[i / (H * w) % 4] + slope * ((float)(i / w % H) / H - 0.5f);
}

static tsr_run_desc desc_of(void)
{
    return (tsr_run_desc){
        .task = TSR_TASK_DECODE, .latents = latents, .latents_shape = {1, channels, H, w}};
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

    CHECK_MSG(ok && pic.width == COLUMNS && pic.height == rows, "%s: %s", model_dir,
              ctx ? tsr_context_error(ctx) : why);
    if (ok) {
        memcpy(picture, pic.rgb, (size_t)rows * ROW);
        *hash = tsr_fnv1a64(pic.rgb, (size_t)rows * ROW, TSR_FNV_SEED);
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
    for (int32_t y = SEES * factor + 1; y < (H - SEES) * factor - 1; y++) {
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
        /* Upsampled latents have a texture of `factor` rows: smaller windows have no elsewhere. */
        CHECK_MSG(windows[i] <= factor || meet <= elsewhere + STRAY,
                  "%s, windows of %d rows: %d where they meet, %d elsewhere", name, windows[i],
                  meet, elsewhere);
    }
    if (!flat)
        return;
    for (int32_t i = rows / 2 * ROW; i < rows * ROW; i++)
        picture[i] = (uint8_t)(picture[i] < 255 ? picture[i] + 1 : 254);
    measure(rows / 2, &meet, &elsewhere);
    CHECK_MSG(meet >= ROW - STRAY && elsewhere <= STRAY,
              "a seam of one grey level is not seen: %d, %d", meet, elsewhere);
}

/* In windows of these rows, with plenty of memory and with the least. */
static void check_window(const char *model, int32_t window, uint64_t hash)
{
    tsr_run_desc d = desc_of();
    apart_figures f;

    d.tile_rows = window;
    REQUIRE(run_apart(model, &d, 2, &f));
    CHECK_MSG(f.st == TSR_OK && f.rgb_hash == hash, "%s, windows of %d rows: another picture, %s",
              model, window, f.why);
#ifndef TSR_SANITIZED
    d.budget_bytes = f.info.minimum_budget_bytes;
    REQUIRE(run_apart(model, &d, 2, &f));
    CHECK_MSG(f.st == TSR_OK && f.rgb_hash == hash,
              "%s, windows of %d rows in %zu bytes: another picture, %s", model, window,
              d.budget_bytes, f.why);
    CHECK_MSG(f.peak <= d.budget_bytes, "%s took %zu of %zu bytes", model, f.peak, d.budget_bytes);
#endif
}

static void check_model(const char *model, int32_t latent_channels, int32_t pixels_a_latent)
{
    channels = latent_channels;
    factor = pixels_a_latent;
    w = COLUMNS / factor;
    rows = H * factor;
    windows[sizeof windows / sizeof *windows - 2] = rows / 2;
    windows[sizeof windows / sizeof *windows - 1] = rows;
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
    check_model(TSR_TEST_DATA "/models/sd1-small", 4, 8);
}

static void decode__embedded_model__has_no_seam_at_any_window(void)
{
    check_model(TSR_SOURCE_DIR "/assets/model", 16, 32);
}

int main(void)
{
    RUN(decode__reference_model__has_no_seam_at_any_window);
    RUN(decode__embedded_model__has_no_seam_at_any_window);
    return test_end();
}
