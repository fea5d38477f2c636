/* test_progress.c -- the progress line's text, and that files get none. */
#include "cli/progress.h"

#include <string.h>

#include "tests/support/test.h"

static void progress__denoising__says_speed_and_time_left(void)
{
    tsr_progress p = {.phase = TSR_PHASE_DENOISE,
                      .step = 12,
                      .n_steps = 25,
                      .picture = 1,
                      .n_pictures = 2,
                      .n_together = 1,
                      .seconds = 24,
                      .resident_bytes = (size_t)400 << 20,
                      .peak_bytes = (size_t)430 << 20};
    char text[200];

    CHECK_MSG(strcmp(tsr_progress_text(&p, text, sizeof text),
                     "denoise  2/2  step 12/25  0.5 it/s  0:26 left  400 MiB now, 430 MiB peak") ==
                  0,
              "%s", text);
    p.picture = 0; /* another picture comes after this one */
    tsr_progress_text(&p, text, sizeof text);
    CHECK_MSG(strstr(text, "1/2") && strstr(text, "1:16 left"), "%s", text);
    p.seconds = 24000;
    tsr_progress_text(&p, text, sizeof text);
    CHECK_MSG(strstr(text, "21:06:40 left"), "%s", text);
    CHECK(strlen(tsr_progress_text(&p, text, 20)) == 19);
}

static void progress__before_the_first_step__has_no_speed(void)
{
    tsr_progress p = {.phase = TSR_PHASE_DENOISE, .n_steps = 25, .n_pictures = 1};
    char text[200];

    tsr_progress_text(&p, text, sizeof text);
    CHECK_MSG(strstr(text, "step 0/25") && !strstr(text, "left"), "%s", text);
    p.phase = TSR_PHASE_DECODE;
    p.n_steps = 1;
    tsr_progress_text(&p, text, sizeof text);
    CHECK_MSG(strncmp(text, "decode   1/1  ", 14) == 0 && !strstr(text, "step"), "%s", text);
}

static void progress__to_a_file__shows_nothing(void)
{
    FILE *f = tmpfile();
    tsr_progress_line line;
    tsr_progress p = {.phase = TSR_PHASE_TEXT, .n_steps = 1, .n_pictures = 1};

    REQUIRE(f != NULL);
    tsr_progress_line_init(&line, f, true);
    tsr_progress_line_show(&line, &p);
    tsr_progress_line_wipe(&line);
    CHECK(ftell(f) == 0);
    fclose(f);
}

int main(void)
{
    RUN(progress__denoising__says_speed_and_time_left);
    RUN(progress__before_the_first_step__has_no_speed);
    RUN(progress__to_a_file__shows_nothing);
    return test_end();
}
