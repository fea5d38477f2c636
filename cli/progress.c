/* progress.c -- see progress.h. Called from inside a run: nothing here allocates. */
#include "cli/progress.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "memory/budget.h"

enum { DEFAULT_COLUMNS = 80, MAX_COLUMNS = 200 };

#define SECONDS_BETWEEN 0.1

void tsr_progress_line_init(tsr_progress_line *line, FILE *to, bool wanted)
{
    struct winsize size;

    *line = (tsr_progress_line){0};
    if (!wanted || !isatty(fileno(to)))
        return;
    line->to = to;
    line->columns = DEFAULT_COLUMNS;
    if (ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        line->columns = size.ws_col;
}

/* "0:07", "12:30", "1:02:03" */
static void put_time(char *buf, size_t bytes, double seconds)
{
    long s = seconds < 0 ? 0 : seconds > 3.5e8 ? 350000000 : (long)(seconds + 0.5);

    if (s >= 3600)
        snprintf(buf, bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, bytes, "%ld:%02ld", s / 60, s % 60);
}

char *tsr_progress_text(const tsr_progress *p, char *buf, size_t bytes)
{
    static const char *const phases[] = {"load", "text", "denoise", "decode", "encode"};
    char now[24], peak[24], steps[128] = "", left[24], last[16] = "";
    int32_t together = p->n_together > 1 ? p->n_together : 1;
    double rest;

    if (p->step > 0 && p->seconds > 0 && p->phase == TSR_PHASE_DENOISE) {
        /* these pictures' steps, and those of the pictures after them at the same speed */
        rest = (double)(p->n_steps - p->step) +
               (double)(p->n_pictures - together - p->picture) / together * p->n_steps;
        put_time(left, sizeof left, rest * p->seconds / p->step);
        snprintf(steps, sizeof steps, "  step %d/%d  %.3g it/s  %s left", p->step, p->n_steps,
                 p->step / p->seconds, left);
    } else if (p->n_steps > 1) {
        snprintf(steps, sizeof steps, "  step %d/%d", p->step, p->n_steps);
    }
    if (together > 1)
        snprintf(last, sizeof last, "-%d", p->picture + together);
    snprintf(buf, bytes, "%-7s  %d%s/%d%s  %s now, %s peak",
             (unsigned)p->phase < sizeof phases / sizeof *phases ? phases[p->phase] : "",
             p->picture + 1, last, p->n_pictures, steps,
             tsr_bytes_text(p->resident_bytes, now, sizeof now),
             tsr_bytes_text(p->peak_bytes, peak, sizeof peak));
    return buf;
}

void tsr_progress_line_put(tsr_progress_line *line, const char *text)
{
    int room = line->columns > 0 ? line->columns - 1 : MAX_COLUMNS; /* one for the cursor */
    double now;

    if (!line->to)
        return;
    now = tsr_clock_seconds();
    if (line->shown && now - line->shown_at < SECONDS_BETWEEN)
        return;
    fprintf(line->to, "\r%.*s\033[K", room, text);
    fflush(line->to);
    line->shown = true;
    line->shown_at = now;
}

void tsr_progress_line_show(tsr_progress_line *line, const tsr_progress *p)
{
    char text[MAX_COLUMNS];

    tsr_progress_line_put(line, tsr_progress_text(p, text, sizeof text));
}

void tsr_progress_line_wipe(tsr_progress_line *line)
{
    if (!line->shown)
        return;
    fputs("\r\033[K", line->to);
    fflush(line->to);
    line->shown = false;
}
