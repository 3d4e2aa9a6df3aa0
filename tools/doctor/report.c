/* SPDX-License-Identifier: Apache-2.0 */
/* The report for a person. See report.h. */
#include "report.h"

#include "join.h"
#include "pci.h"
#include "ways_out.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Narrower and wider terminals are written for as if they were these. */
enum { NARROWEST = 80, WIDEST = 100 };
/* Of very many lines the first ones are enough for a person; --json has all. */
enum { LINES_SHOWN = 6, QUOTE_MAX = 400 };

struct page {
    FILE *out;
    unsigned width;
    bool colour;
};

static struct page page_on(FILE *out, bool colour)
{
    struct page p = { out, WIDEST, colour };
    struct winsize size;

    if (fileno(out) >= 0 && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 &&
            size.ws_col > 0)
        p.width = size.ws_col < NARROWEST ? NARROWEST
                : size.ws_col > WIDEST    ? WIDEST
                                          : size.ws_col;
    return p;
}

/* ---- wrapping ---- */

/* Columns of @p length bytes: characters, near enough. */
static size_t columns(const char *text, size_t length)
{
    size_t count = 0;

    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Bytes of the next word. What stands in backticks is one word, to be copied, unless it is
 * too wide for a line. */
static size_t word(const char *text, size_t room)
{
    size_t n = 0;

    while (text[n] != 0 && text[n] != ' ') {
        const char *end = text[n] == '`' ? strchr(text + n + 1, '`') : NULL;

        if (end != NULL && columns(text, (size_t)(end - text) + 1) <= room)
            n = (size_t)(end - text);
        n++;
    }
    return n;
}

/* As many bytes of a word as fit into @p room columns, at least one character. */
static size_t piece(const char *text, size_t length, size_t room)
{
    size_t n = 0, used = 0;

    while (n < length && used < room) {
        n++;
        while (n < length && ((unsigned char)text[n] & 0xc0) == 0x80)
            n++;
        used++;
    }
    return n;
}

/* @p text after what stands in the line already (@p column), the next lines @p indent in. */
static void wrap(const struct page *p, const char *text, unsigned indent,
        unsigned column)
{
    const size_t room = p->width - indent;
    size_t at = column;
    bool first = true;

    while (*text != 0) {
        size_t blanks = strspn(text, " "), length;

        text += blanks;
        length = word(text, room);
        if (!first && at + blanks + columns(text, length) > p->width) {
            fprintf(p->out, "\n%*s", (int)indent, "");
            at = indent;
            blanks = 0;
        }
        if (length > 0 && columns(text, length) > p->width - at - blanks)
            length = piece(text, length, p->width - at - blanks);
        fprintf(p->out, "%*s", first ? 0 : (int)blanks, "");
        fwrite(text, 1, length, p->out);
        at += (first ? 0 : blanks) + columns(text, length);
        text += length;
        first = false;
        if (at >= p->width && *text != 0 && *text != ' ') {
            fprintf(p->out, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
    }
    fputc('\n', p->out);
}

static void paragraph(const struct page *p, unsigned indent, const char *text)
{
    fprintf(p->out, "%*s", (int)indent, "");
    wrap(p, text, indent, indent);
}

/* A point of a list; how far in its text begins. */
static unsigned item(const struct page *p, unsigned in, const char *mark,
        const char *text)
{
    const unsigned indent = in + (unsigned)strlen(mark) + 1;

    fprintf(p->out, "%*s%s ", (int)in, "", mark);
    wrap(p, text, indent, indent);
    return indent;
}

/* ---- colour ---- */

static void paint(const struct page *p, const char *code, const char *text)
{
    if (p->colour)
        fprintf(p->out, "\033[%sm%s\033[0m", code, text);
    else
        fputs(text, p->out);
}

static void heading(const struct page *p, const char *text)
{
    fputs("    ", p->out);
    paint(p, "1", text);
    fputs(":\n", p->out);
}

static void section(const struct page *p, const char *text)
{
    fputc('\n', p->out);
    paint(p, "1", text);
    fputc('\n', p->out);
}

/* ---- a finding ---- */

const char *doctor_summary(const struct dr_finding *f)
{
    return f->summary[0] != 0 ? f->summary : dr_codes[f->code].means;
}

/* FILE:LINE and the line itself, a very long one cut. */
static void quote(const struct page *p, const struct doctor *d, uint32_t number)
{
    const struct dr_line *line = &d->lines[number];
    const char *source = d->sources[line->source].name;
    char text[QUOTE_MAX + sizeof(" ...")];
    size_t length = line->length;

    if (length > QUOTE_MAX)
        length = piece(line->text, QUOTE_MAX - 4, QUOTE_MAX - 4);
    memcpy(text, line->text, length);
    memcpy(text + length, length < line->length ? " ..." : "",
            length < line->length ? sizeof(" ...") : 1);
    for (char *at = text; *at != 0; at++)
        if (*at == '\t')
            *at = ' ';
    fprintf(p->out, "      %s:%u:", source, line->number);
    if (text[0] == 0) {
        fputc('\n', p->out);
    } else if (8 + columns(source, strlen(source)) + columns(text, strlen(text)) >
            p->width) {
        fprintf(p->out, "\n%*s", 10, "");
        wrap(p, text + strspn(text, " "), 10, 10);
    } else {
        fprintf(p->out, " %s\n", text + strspn(text, " "));
    }
}

static void quotes(const struct page *p, const struct doctor *d, const char *title,
        const struct dr_list *list, size_t shown)
{
    if (list->count == 0)
        return;
    heading(p, title);
    for (size_t i = 0; i < list->count && i < shown; i++)
        quote(p, d, list->lines[i]);
    if (list->count > shown)
        fprintf(p->out, "      and %zu more\n", list->count - shown);
}

static bool same_words(const struct dr_list *a, const struct dr_list *b)
{
    bool same = a->count == b->count;

    for (size_t i = 0; same && i < a->count; i++)
        same = strcmp(a->words[i], b->words[i]) == 0;
    return same;
}

/* The finding's own steps, or the catalogue's. */
static void steps(const struct page *p, const struct dr_finding *f)
{
    const char *const *table = dr_codes[f->code].fix;
    size_t count = f->fix.count;
    char mark[24];

    while (f->fix.count == 0 && table[count] != NULL)
        count++;
    heading(p, "what to do");
    for (size_t i = 0; i < count; i++) {
        snprintf(mark, sizeof(mark), "%zu.", i + 1);
        item(p, 6, count > 1 ? mark : "-",
                f->fix.count > 0 ? f->fix.words[i] : table[i]);
    }
}

static void futile(const struct page *p, const struct dr_finding *f)
{
    const char *const *table = dr_codes[f->code].will_not_help;

    if (f->will_not_help.count == 0 && *table == NULL)
        return;
    heading(p, "what will not help");
    for (size_t i = 0; i < f->will_not_help.count; i++)
        item(p, 6, "-", f->will_not_help.words[i]);
    for (; *table != NULL; table++)
        item(p, 6, "-", *table);
}

/* What is to be done, unless the finding before it said the same. */
static void write_advice(const struct page *p, const struct dr_finding *f,
        const struct dr_finding *before)
{
    const bool again = before != NULL && before->code == f->code;

    if (again && same_words(&f->fix, &before->fix))
        paragraph(p, 4, "What to do: the same as above.");
    else
        steps(p, f);
    if (!again || !same_words(&f->will_not_help, &before->will_not_help))
        futile(p, f);
}

static void write_finding(const struct page *p, const struct doctor *d,
        const struct dr_finding *f, const struct dr_finding *before)
{
    static const char *const colours[] = { "1;31", "1;33", "1;35", "1;36", "1;32" };
    const struct dr_code_info *info = &dr_codes[f->code];
    const bool loud = info->severity <= DR_UNKNOWN;

    fputc('\n', p->out);
    paint(p, colours[info->severity], dr_severity_name(info->severity));
    fputs("  ", p->out);
    paint(p, "1", info->name);
    fprintf(p->out, "%s%s\n", f->subject[0] != 0 ? "  " : "", f->subject);
    paragraph(p, 4, doctor_summary(f));
    quotes(p, d, "why", &f->because, loud ? LINES_SHOWN : 1);
    if (loud)
        write_advice(p, f, before);
    else if (f->fix.count > 0)
        steps(p, f);
    quotes(p, d, "what follows from it", &f->consequences, 1);
}

/* ---- the rest ---- */

static const char *plural(uint32_t count)
{
    return count == 1 ? "" : "s";
}

/* "1 error, 2 warnings": what there is. */
static void write_count(const struct page *p, const struct doctor *d)
{
    static const char *const names[] = { "error", "warning", "open question", "note",
        "good answer" };
    uint32_t counts[5] = { 0 }, read = 0;
    const char *before = "";

    for (uint32_t i = 0; i < d->num_findings; i++)
        if (d->findings[i].code != DR_NO_FINDING)
            counts[dr_codes[d->findings[i].code].severity]++;
    for (uint32_t i = 0; i < d->num_sources; i++)
        read += d->sources[i].known;
    fprintf(p->out,
            "motet doctor, %s%u source%s read: ", d->live ? "this machine, " : "", read,
            plural(read));
    for (int i = 0; i < 5; i++) {
        if (counts[i] == 0)
            continue;
        fprintf(p->out, "%s%u %s%s", before, counts[i], names[i], plural(counts[i]));
        before = ", ";
    }
    if (before[0] == 0)
        fputs(d->num_findings > 0 ? "nothing to repair" : "nothing was recognised",
                p->out);
    fputc('\n', p->out);
}

static void detail(const struct page *p, unsigned in, const char *what,
        const char *text)
{
    const unsigned indent = in + (unsigned)strlen(what) + 2;

    fprintf(p->out, "%*s%s: ", (int)in, "", what);
    wrap(p, text, indent, indent);
}

static void write_ways_out(const struct page *p, const struct doctor *d)
{
    char mark[24];

    if (d->num_ways_out == 0)
        return;
    section(p, "Ways out, the best first");
    for (uint32_t i = 0; i < d->num_ways_out; i++) {
        const struct dr_way_out *w = &d->ways_out[i];
        unsigned in;

        snprintf(mark, sizeof(mark), "%u.", i + 1);
        in = item(p, 4, mark, w->what);
        detail(p, in, "cost", w->cost);
        detail(p, in, "verify", w->verify);
    }
}

static void write_unread(const struct page *p, const struct doctor *d)
{
    if (d->num_unread == 0)
        return;
    section(p, "Not read");
    for (uint32_t i = 0; i < d->num_unread; i++) {
        fprintf(p->out, "    %s: ", d->unread[i].source);
        wrap(p, d->unread[i].why, 8,
                6 +
                        (unsigned)columns(d->unread[i].source,
                                strlen(d->unread[i].source)));
    }
}

/* What another part writes, below a heading; nothing if it has nothing to say. */
static void write_part(const struct page *p, const struct doctor *d, const char *title,
        void (*write)(const struct doctor *d, FILE *out))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);

    if (memory == NULL)
        return;
    write(d, memory);
    fclose(memory);
    if (bytes > 0) {
        section(p, title);
        fwrite(text, 1, bytes, p->out);
    }
    free(text);
}

void doctor_report(struct doctor *d, FILE *out, bool colour)
{
    const struct page p = page_on(out, colour);

    write_count(&p, d);
    for (uint32_t i = 0; i < d->num_findings; i++)
        write_finding(&p, d, &d->findings[i], i > 0 ? &d->findings[i - 1] : NULL);
    write_part(&p, d, "Platform and library of each AMD GPU", dr_write_join);
    dr_draw_paths(d, out, colour);
    write_ways_out(&p, d);
    write_part(&p, d, "The model", dr_write_model);
    write_unread(&p, d);
}

/* ---- the catalogue ---- */

static void explain_list(const struct page *p, const char *title,
        const char *const *list, bool numbered)
{
    char mark[24];

    if (*list == NULL)
        return;
    section(p, title);
    for (int i = 0; list[i] != NULL; i++) {
        snprintf(mark, sizeof(mark), "%d.", i + 1);
        item(p, 4, numbered && list[1] != NULL ? mark : "-", list[i]);
    }
}

void doctor_explain(enum dr_code code, FILE *out)
{
    const struct dr_code_info *info = &dr_codes[code];
    const struct page p = page_on(out, false);

    fprintf(out, "%s (%s)\n", info->name, dr_severity_name(info->severity));
    paragraph(&p, 4, info->means);
    section(&p, "When");
    paragraph(&p, 4, info->when);
    explain_list(&p, "What to do", info->fix, true);
    explain_list(&p, "What will not help", info->will_not_help, false);
    explain_list(&p, "Not to be confused with", info->not_this, false);
    explain_list(&p, "Where the rule is from", info->sources, false);
}

void doctor_list(FILE *out)
{
    for (int i = 0; i < DR_NUM_CODES; i++)
        fprintf(out, "%-8s %-30s %s\n", dr_severity_name(dr_codes[i].severity),
                dr_codes[i].name, dr_codes[i].means);
}
