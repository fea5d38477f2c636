/* plan_plot.c -- a sweep as a drawing (see sweep.h).
 *
 *     y: seconds a picture, linear from 0      a bar a budget, its phases stacked,
 *     x: budget, logarithmic                   the total above it
 *
 * Bars left of the dashed line are pictures that were made smaller, paler, with their size. Text
 * is never the user's: all words come from the program. Colours are fixed for phases and come from
 * classes for the rest, which a dark screen (prefers-color-scheme) replaces. */
#include <math.h>
#include <stdio.h>

#include "cli/sweep.h"
#include "memory/budget.h"

enum { WIDTH = 920, HEIGHT = 500, LEFT = 74, RIGHT = 24, TOP = 92, BOTTOM = 64, Y_TICKS = 6 };

static const char style[] =
    "<style>\n"
    "text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:13px;fill:#333}\n"
    ".title{font-size:18px;font-weight:600;fill:#111}.small{font-size:11px;fill:#555}\n"
    ".back{fill:#fff}.axis{stroke:#444}.grid{stroke:#e3e3e3}.mark{stroke:#666;stroke-dasharray:5 "
    "4}\n"
    ".p0{fill:#54a24b}.p1{fill:#4c7fb8}.p2{fill:#ef8a2b}.p3{fill:#8e6bb0}.pale{opacity:.5}\n"
    "@media(prefers-color-scheme:dark){text{fill:#d6d6d6}.title{fill:#f2f2f2}.small{fill:#a8a8a8}"
    "\n.back{fill:#16181d}.axis{stroke:#aaa}.grid{stroke:#2f333b}.mark{stroke:#999}}\n"
    "</style>\n";

typedef struct plot {
    const tsr_sweep *s;
    tsr_buf *out;
    double x_low, x_high; /* log2 of MiB */
    double y_high, y_tick;
    double bar; /* width of a bar */
} plot;

static double log_mib(size_t bytes)
{
    return log2((double)bytes / (1 << 20));
}

static double x_of(const plot *p, double at)
{
    return LEFT + (at - p->x_low) / (p->x_high - p->x_low) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const plot *p, double seconds)
{
    return HEIGHT - BOTTOM - seconds / p->y_high * (HEIGHT - BOTTOM - TOP);
}

/* The smallest of 1, 2, 5 times a power of ten that is not below x. */
static double nice(double x)
{
    double unit = pow(10, floor(log10(x)));

    return x <= unit ? unit : x <= 2 * unit ? 2 * unit : x <= 5 * unit ? 5 * unit : 10 * unit;
}

static void set_scales(plot *p)
{
    const tsr_sweep *s = p->s;
    double most = 0, first = log_mib(s->rows[0].budget), last, gap;

    for (int32_t i = 0; i < s->n_rows; i++)
        most = fmax(most, s->rows[i].seconds);
    last = log_mib(s->rows[s->n_rows - 1].budget);
    gap = s->n_rows > 1 ? (last - first) / (s->n_rows - 1) : 1;
    for (int32_t i = 1; i < s->n_rows;
         i++) /* bars of two parts of the sweep are not as far apart */
        gap = fmin(gap, log_mib(s->rows[i].budget) - log_mib(s->rows[i - 1].budget));
    p->x_low = first - gap;
    p->x_high = last + gap;
    p->y_tick = nice(fmax(most, 1e-3) / Y_TICKS);
    p->y_high = p->y_tick * (floor(most * 1.04 / p->y_tick) + 1); /* room for the totals */
    p->bar = fmin(0.72 * gap / (p->x_high - p->x_low) * (WIDTH - LEFT - RIGHT), 60);
}

static void text(const plot *p, double x, double y, const char *attributes, const char *words)
{
    tsr_buf_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, attributes, words);
}

static void line(const plot *p, const char *class, double x0, double y0, double x1, double y1)
{
    tsr_buf_printf(p->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                   class, x0, y0, x1, y1);
}

static const char *seconds_text(double seconds, char buf[24])
{
    snprintf(buf, 24, seconds >= 100 ? "%.0f" : seconds >= 10 ? "%.1f" : "%.2f", seconds);
    return buf;
}

static void draw_y(const plot *p)
{
    char label[24];
    int32_t n = (int32_t)(p->y_high / p->y_tick + 0.5);

    for (int32_t i = 0; i <= n; i++) {
        double y = y_of(p, i * p->y_tick);
        line(p, i ? "grid" : "axis", LEFT, y, WIDTH - RIGHT, y);
        snprintf(label, sizeof label, "%g", i * p->y_tick);
        text(p, LEFT - 8, y + 4, "text-anchor=\"end\"", label);
    }
    tsr_buf_printf(p->out,
                   "<text transform=\"translate(20 %d) rotate(-90)\" "
                   "text-anchor=\"middle\">seconds a picture</text>\n",
                   (TOP + HEIGHT - BOTTOM) / 2);
}

/* Ticks at powers of two, and between them where there are few. */
static void draw_x(const plot *p)
{
    double octaves = p->x_high - p->x_low;
    int parts = octaves > 3 ? 1 : octaves > 1.5 ? 2 : octaves > 0.6 ? 4 : 16;
    double y = HEIGHT - BOTTOM;
    char label[32];

    line(p, "axis", LEFT, TOP, LEFT, y);
    for (int octave = (int)floor(p->x_low); octave <= p->x_high; octave++) {
        for (int i = 0; i < parts; i++) {
            double mib = exp2(octave) * (1 + (double)i / parts), at = log2(mib);
            if (at < p->x_low || at > p->x_high)
                continue;
            line(p, "axis", x_of(p, at), y, x_of(p, at), y + 5);
            snprintf(label, sizeof label, mib < 1024 ? "%.4g MiB" : "%.4g GiB",
                     mib < 1024 ? mib : mib / 1024);
            text(p, x_of(p, at), y + 20, "text-anchor=\"middle\"", label);
        }
    }
    text(p, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 16, "text-anchor=\"middle\"",
         "budget: peak resident set of the process");
}

static void draw_bar(const plot *p, const tsr_sweep_row *r)
{
    const tsr_sweep *s = p->s;
    bool pale = r->width != s->width || r->height != s->height;
    double x = x_of(p, log_mib(r->budget)), sum = 0;
    char total[24], bytes[24], label[48];

    tsr_bytes_text(r->budget, bytes, sizeof bytes);
    tsr_buf_printf(p->out, "<g class=\"%s\">\n", pale ? "pale" : "full");
    for (int32_t i = 0; i < TSR_SWEEP_PHASES; i++) {
        double top = y_of(p, sum + r->phase_seconds[i]);
        if (r->phase_seconds[i] > 0)
            tsr_buf_printf(p->out,
                           "<rect class=\"p%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                           "height=\"%.1f\"><title>%s: %s %.2f s</title></rect>\n",
                           i, x - p->bar / 2, top, p->bar, y_of(p, sum) - top, bytes, s->phases[i],
                           r->phase_seconds[i]);
        sum += r->phase_seconds[i];
    }
    tsr_buf_puts(p->out, "</g>\n");
    text(p, x, y_of(p, sum) - 5, "class=\"small\" text-anchor=\"middle\"",
         seconds_text(r->seconds, total));
    if (pale) {
        snprintf(label, sizeof label, "%dx%d", r->width, r->height);
        tsr_buf_printf(p->out,
                       "<text class=\"small\" transform=\"translate(%.1f %.1f) rotate(-90)\">%s"
                       "</text>\n",
                       x + 4, y_of(p, sum) - 22, label);
    }
}

/* Between the pictures that were made smaller and the others. */
static void draw_minimum(const plot *p)
{
    const tsr_sweep *s = p->s;
    double x = x_of(p, log_mib(s->minimum)) - p->bar * 0.62;
    char bytes[24], label[96];

    snprintf(label, sizeof label, "%dx%d fits from %s", s->width, s->height,
             tsr_bytes_text(s->minimum, bytes, sizeof bytes));
    line(p, "mark", x, TOP - 12, x, HEIGHT - BOTTOM);
    text(p, x + 5, TOP - 4, "class=\"small\"", label);
}

static void draw_head(const plot *p)
{
    const tsr_sweep *s = p->s;
    char words[192], fastest[24];
    double x = LEFT;

    snprintf(words, sizeof words, "Budget against time: %dx%d, %d steps of %s", s->width, s->height,
             s->steps, s->scheduler);
    text(p, LEFT, 30, "class=\"title\"", words);
    snprintf(words, sizeof words,
             "predicted, %s, CPU tier %s, %d thread%s; more than %s changes nothing", s->precision,
             s->tier, s->n_threads, s->n_threads == 1 ? "" : "s",
             tsr_bytes_text(s->fastest, fastest, sizeof fastest));
    text(p, LEFT, 50, "", words);
    x = WIDTH - RIGHT;
    for (int32_t i = TSR_SWEEP_PHASES - 1; i >= 0; i--) {
        if (!*s->phases[i])
            continue;
        x -= 88;
        tsr_buf_printf(
            p->out, "<rect class=\"p%d\" x=\"%.1f\" y=\"63\" width=\"13\" height=\"13\"/>\n", i, x);
        text(p, x + 19, 74, "", s->phases[i]);
    }
}

void tsr_sweep_svg(const tsr_sweep *s, tsr_buf *out)
{
    plot p = {.s = s, .out = out};

    set_scales(&p);
    tsr_buf_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                   "height=\"%d\" role=\"img\">\n<title>Budget against predicted time</title>\n%s"
                   "<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n",
                   WIDTH, HEIGHT, WIDTH, HEIGHT, style, WIDTH, HEIGHT);
    draw_head(&p);
    draw_y(&p);
    draw_x(&p);
    for (int32_t i = 0; i < s->n_rows; i++)
        draw_bar(&p, &s->rows[i]);
    draw_minimum(&p);
    tsr_buf_puts(out, "</svg>\n");
}
