/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plot of time over size, both axes logarithmic, as an SVG file: one panel for each
 * collective, way of calling, type, operator and root, with a line for each placement and library. No
 * script, no font file; readable on a light and on a dark page.
 */
#include "bench.h"

#include "text.h"

#include <math.h>
#include <string.h>

#define PANEL_WIDTH  720
#define PANEL_HEIGHT 380
#define LEFT         70
#define RIGHT        20
#define TOP          46
#define BOTTOM       58

/* The rows of one panel, and the frame of its axes. */
struct panel {
    const struct bench_row *rows;
    size_t nrows;
    double x0, x1; /* log2 of bytes */
    double y0, y1; /* log10 of µs   */
    int top;       /* of the panel, on the page */
};

static const struct {
    const char *class, *label;
    int half;
    bool other;
} lines[] = {
    { "a", "out of place", 0, false },
    { "a d", "in place", 1, false },
    { "b", "vs, out of place", 0, true },
    { "b d", "vs, in place", 1, true },
};

#define NLINES (sizeof(lines) / sizeof(*lines))

static bool same_panel(const struct bench_row *a, const struct bench_row *b)
{
    return a->collective == b->collective && a->type == b->type &&
            a->redop == b->redop && a->root == b->root && a->timing == b->timing;
}

static double time_of(const struct bench_row *row, size_t line)
{
    const struct bench_half *h = &row->half[lines[line].half];

    if (!h->measured)
        return 0;
    return lines[line].other ? h->other_us : h->time_us;
}

static bool drawn(const struct bench_row *row, size_t line)
{
    return row->bytes > 0 && time_of(row, line) > 0;
}

/* The axes end at whole powers around the data. False if there is nothing to draw. */
static bool frame(struct panel *p)
{
    p->x0 = p->y0 = INFINITY;
    p->x1 = p->y1 = -INFINITY;
    for (size_t i = 0; i < p->nrows; i++)
        for (size_t line = 0; line < NLINES; line++) {
            double x, y;

            if (!drawn(&p->rows[i], line))
                continue;
            x = log2((double)p->rows[i].bytes);
            y = log10(time_of(&p->rows[i], line));
            p->x0 = fmin(p->x0, x);
            p->x1 = fmax(p->x1, x);
            p->y0 = fmin(p->y0, floor(y));
            p->y1 = fmax(p->y1, ceil(y));
        }
    if (!isfinite(p->x0))
        return false;
    if (p->x1 - p->x0 < 1)
        p->x1 = p->x0 + 1;
    if (p->y1 - p->y0 < 1)
        p->y1 = p->y0 + 1;
    return true;
}

static double at_x(const struct panel *p, double log_bytes)
{
    return LEFT + (log_bytes - p->x0) / (p->x1 - p->x0) * (PANEL_WIDTH - LEFT - RIGHT);
}

static double at_y(const struct panel *p, double log_us)
{
    return p->top + PANEL_HEIGHT - BOTTOM -
            (log_us - p->y0) / (p->y1 - p->y0) * (PANEL_HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *out, const struct panel *p)
{
    double bottom = at_y(p, p->y0), top = at_y(p, p->y1);
    double step = fmax(1, ceil((p->x1 - p->x0) / 12));
    char text[32];

    for (double y = p->y0; y <= p->y1; y++)
        fprintf(out,
                "<line class='g' x1='%d' y1='%.1f' x2='%d' y2='%.1f'/>"
                "<text class='e' x='%d' y='%.1f'>%g</text>\n",
                LEFT, at_y(p, y), PANEL_WIDTH - RIGHT, at_y(p, y), LEFT - 8,
                at_y(p, y) + 4, pow(10, y));
    for (double x = ceil(p->x0); x <= p->x1 + 1e-9; x += step)
        fprintf(out,
                "<line class='g' x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f'/>"
                "<text class='m' x='%.1f' y='%.1f'>%s</text>\n",
                at_x(p, x), bottom, at_x(p, x), top, at_x(p, x), bottom + 18,
                text_from_bytes((uint64_t)exp2(x), text, sizeof(text)));
    fprintf(out, "<text class='m' x='%d' y='%.1f'>message size</text>\n",
            (LEFT + PANEL_WIDTH - RIGHT) / 2, bottom + 38);
    fprintf(out,
            "<text class='m' transform='translate(18 %.1f) rotate(-90)'>time, "
            "µs</text>\n",
            (top + bottom) / 2);
}

static void draw_line(FILE *out, const struct panel *p, size_t line)
{
    fprintf(out, "<polyline class='%s' points='", lines[line].class);
    for (size_t i = 0; i < p->nrows; i++)
        if (drawn(&p->rows[i], line))
            fprintf(out, "%.1f,%.1f ", at_x(p, log2((double)p->rows[i].bytes)),
                    at_y(p, log10(time_of(&p->rows[i], line))));
    fprintf(out, "'/>\n");
}

static void draw_legend(FILE *out, const struct panel *p, size_t line, int place)
{
    int x = LEFT + 12 + place * 165, y = p->top + TOP - 12;

    fprintf(out,
            "<line class='%s' x1='%d' y1='%d' x2='%d' y2='%d'/>"
            "<text x='%d' y='%d'>%s</text>\n",
            lines[line].class, x, y - 4, x + 26, y - 4, x + 32, y, lines[line].label);
}

static void draw_panel(FILE *out, const struct panel *p, int nranks)
{
    const struct bench_row *row = p->rows;
    int place = 0;

    fprintf(out, "<text class='h' x='%d' y='%d'>%s, %s", LEFT, p->top + 18,
            row->collective->name, motet_type_table[row->type].name);
    if (row->collective->reduces)
        fprintf(out, ", %s", bench_redop_name(row));
    if (row->root >= 0)
        fprintf(out, ", root %d", row->root);
    fprintf(out, ", %s, %d ranks</text>\n", bench_timing_names[row->timing], nranks);
    draw_axes(out, p);
    for (size_t line = 0; line < NLINES; line++) {
        bool any = false;

        for (size_t i = 0; i < p->nrows && !any; i++)
            any = drawn(&p->rows[i], line);
        if (!any)
            continue;
        draw_line(out, p, line);
        draw_legend(out, p, line, place++);
    }
}

static const char style[] =
        "<style>svg{color:#222;background:#fff}"
        "text{font:12px system-ui,sans-serif;fill:currentColor}"
        ".h{font-weight:600;font-size:14px}.m{text-anchor:middle}.e{text-anchor:end}"
        ".g{stroke:currentColor;stroke-opacity:.15}"
        ".a,.b{fill:none;stroke-width:2}.a{stroke:#0b6fb8}.b{stroke:#d1620a}"
        ".d{stroke-dasharray:6 4}"
        "@media(prefers-color-scheme:dark){svg{color:#ddd;background:#16191d}}"
        "</style>\n";

bool bench_write_svg(const struct bench *b, int nranks)
{
    const struct bench_results *r = &b->results;
    size_t panels = 0;
    FILE *out = b->svg;

    for (size_t i = 0; i < r->nrows; i++)
        panels += i == 0 || !same_panel(&r->rows[i], &r->rows[i - 1]);
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%zu' "
            "viewBox='0 0 %d %zu'>\n%s",
            PANEL_WIDTH, panels * PANEL_HEIGHT, PANEL_WIDTH, panels * PANEL_HEIGHT,
            style);
    panels = 0;
    for (size_t i = 0; i < r->nrows;) {
        struct panel p = { .rows = &r->rows[i], .top = (int)(panels++ * PANEL_HEIGHT) };

        while (i < r->nrows && same_panel(p.rows, &r->rows[i])) {
            p.nrows++;
            i++;
        }
        if (frame(&p))
            draw_panel(out, &p, nranks);
    }
    fprintf(out, "</svg>\n");
    return fflush(out) == 0 && !ferror(out);
}
