/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads loops that print what is free or in use after each cycle, in words ("loop 3 gpu0
 * free 22687 MiB rss 634 MiB") or as a table with a head, and says what gets worse by
 * about the same with each. The first cycle pays for what is made once: it does not count.
 */
#include "watch.h"

#include "facts.h"
#include "rules.h"

#include <string.h>
#include <strings.h>

#define SERIES_MAX  16
#define COLUMNS_MAX 16
#define LEAKS_MAX   32u
#define LOOPS_MAX   16
#define LENGTH_MAX  1000 /* of a line */
/* Cycles after the first that must show it. */
#define CYCLES_MIN 3u

/* A value that each cycle prints, and the run of like changes that lasts to its end. */
struct series {
    char name[48];
    bool falls; /* it is the falling that is bad */
    double last, least, most, sum;
    uint32_t run;
};

struct loop {
    struct series series[SERIES_MAX];
    uint32_t num_series;
    uint64_t cycle, stride;
    uint32_t cycles, first, last; /* cycles read; lines */
    struct dr_span columns[COLUMNS_MAX];
    uint32_t num_columns; /* of a table; 0: words */
};

/* Words that count, and whether less of it is worse. */
static bool counts(struct dr_span word, bool *falls)
{
    static const struct {
        const char *part;
        bool falls;
    } parts[] = { { "free", true }, { "avail", true }, { "rss", false },
        { "fds", false }, { "fd", false }, { "descriptors", false }, { "used", false },
        { "allocated", false }, { "in_use", false } };
    char text[48];

    if (word.length == 0 || word.length >= sizeof(text))
        return false;
    memcpy(text, word.at, word.length);
    text[word.length] = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (dr_has_any_case(text, parts[i].part)) {
            *falls = parts[i].falls;
            return true;
        }
    return false;
}

static bool is_cycle_word(struct dr_span word)
{
    static const char *const words[] = { "loop", "iter", "iteration", "cycle", "round",
        "pass", "run", "rep", "repeat", "attempt", "reload", "restart", "reinit",
        "trial", "epoch", "after", "cycles", "iterations", "loops", "rounds" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (word.length == strlen(words[i]) &&
                strncasecmp(word.at, words[i], word.length) == 0)
            return true;
    return false;
}

/* ---- pieces of a line ---- */

/* Next run of bytes that are no separators; numbers and words apart. */
static bool piece(const char **at, struct dr_span *out, bool *is_number)
{
    struct dr_span number;

    *at += strspn(*at, " \t:=,;()[]|#'\"/");
    if (**at == 0)
        return false;
    *is_number = dr_scan(*at, "^%f", &number);
    if (*is_number) {
        *out = number;
    } else {
        out->at = *at;
        out->length = strcspn(*at, " \t:=,;()[]|#'\"/");
    }
    *at = out->at + out->length;
    return true;
}

/* "loop 3" near the beginning of the line. */
static bool cycle_of(const char *text, uint64_t *cycle)
{
    const char *at = text;
    struct dr_span p, before = { 0 };
    bool number;

    for (int i = 0; i < 12 && piece(&at, &p, &number); i++, before = p)
        if (number && is_cycle_word(before))
            return dr_span_u64(p, cycle);
    return false;
}

/* ---- series ---- */

static void add(struct loop *l, const char *name, size_t length, bool falls,
        double value)
{
    struct series *s = NULL;
    double change;

    for (uint32_t i = 0; i < l->num_series && s == NULL; i++)
        if (strlen(l->series[i].name) == length &&
                memcmp(l->series[i].name, name, length) == 0)
            s = &l->series[i];
    if (s == NULL) {
        if (l->cycles > 1 || l->num_series == SERIES_MAX || length >= sizeof(s->name))
            return;
        s = &l->series[l->num_series++];
        memset(s, 0, sizeof(*s));
        memcpy(s->name, name, length);
        s->falls = falls;
        s->last = value;
        return;
    }
    change = falls ? s->last - value : value - s->last;
    s->last = value;
    if (l->cycles <= 2) /* the first cycle's cost */
        return;
    if (change <= 0) {
        s->run = 0;
        return;
    }
    if (s->run == 0 || change < s->least)
        s->least = change;
    if (s->run == 0 || change > s->most)
        s->most = change;
    if (s->most > 2 * s->least) { /* not about the same: from here anew */
        s->run = 0;
        s->least = s->most = change;
    }
    s->sum = s->run == 0 ? change : s->sum + change;
    s->run++;
}

static void end_loop(struct doctor *d, struct loop *l)
{
    struct dr_watch *w = d->watch;

    for (uint32_t i = 0; i < l->num_series && w->num_growths < LEAKS_MAX; i++) {
        const struct series *s = &l->series[i];

        if (s->run < CYCLES_MIN)
            continue;
        *DR_PUSH(d, w->growths, w->num_growths, w->room_growths) =
                (struct dr_growth){ .name = dr_copy(d, s->name, strlen(s->name)),
                    .falls = s->falls,
                    .per_cycle = s->sum / s->run,
                    .cycles = s->run,
                    .first = l->first,
                    .last = l->last };
    }
    l->num_series = l->cycles = l->num_columns = 0;
}

/* The next cycle of the loop, or the first of another. */
static void begin_cycle(struct doctor *d, struct loop *l, uint64_t cycle, uint32_t line)
{
    const uint64_t stride = l->cycles > 1 ? l->stride : cycle - l->cycle;

    if (l->cycles > 0 &&
            (cycle <= l->cycle || cycle - l->cycle != stride ||
                    d->lines[line].source != d->lines[l->first].source)) {
        const uint32_t columns = l->num_columns;

        end_loop(d, l);
        l->num_columns = columns;
    }
    if (l->cycles++ == 0)
        l->first = line;
    l->stride = cycle - l->cycle;
    l->cycle = cycle;
    l->last = line;
}

/* Whether a word is no name of its own: a unit, or what says which GPU. */
static bool is_unit(struct dr_span word)
{
    static const char *const units[] = { "MiB", "MB", "GiB", "GB", "KiB", "kB", "KB",
        "B", "bytes", "memory", "mem", "M", "G", "k", "is", "of", "count", "open" };

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (dr_span_is(word, units[i]))
            return true;
    return false;
}

/* What has been read of a line on the way to a name and its number. */
struct words {
    struct dr_span owner, name; /* "gpu0", "free" */
    double value;               /* a number with its unit, before its name */
    bool falls, has_number, has_value;
};

static void add_named(struct loop *l, struct words *w, double value)
{
    char full[48];
    const int length = snprintf(full, sizeof(full), "%.*s%s%.*s", (int)w->owner.length,
            w->owner.length > 0 ? w->owner.at : "", w->owner.length > 0 ? " " : "",
            (int)w->name.length, w->name.at);

    if (length > 0 && (size_t)length < sizeof(full))
        add(l, full, (size_t)length, w->falls, value);
    *w = (struct words){ 0 };
}

/* Whether the word after a number has a number of its own: "3, free 22687". */
static bool is_assigned(struct dr_span number)
{
    const char *at = number.at + number.length;

    if (*at != ' ')
        return true;
    at += strspn(at, " ");
    at += strcspn(at, " \t:=,;()");
    at += strspn(at, " \t:=");
    return *at >= '0' && *at <= '9';
}

static void take_number(struct loop *l, struct words *w, struct dr_span p)
{
    if (w->name.length > 0) {
        add_named(l, w, dr_span_double(p));
        return;
    }
    if (is_cycle_word(w->owner))
        w->owner.length = 0;
    else if (w->owner.length > 0 && !w->has_number) /* "gpu 0" */
        w->owner.length = (size_t)(p.at + p.length - w->owner.at);
    else if (w->owner.length == 0) /* "23 fds" */
        w->has_value = !is_assigned(p);
    w->value = dr_span_double(p);
    w->has_number = true;
}

/* "gpu0 free 22687 MiB", "free=22687", "22687 MiB free": a name beside each number. */
static void read_words(struct doctor *d, struct loop *l, uint32_t line)
{
    const char *at = d->lines[line].text;
    struct words w = { 0 };
    struct dr_span p;
    bool number, falls;

    while (piece(&at, &p, &number)) {
        if (number) {
            take_number(l, &w, p);
        } else if (counts(p, &falls)) {
            w.name = p;
            w.falls = falls;
            if (w.has_value)
                add_named(l, &w, w.value);
        } else if (is_unit(p)) {
            w.has_value = w.has_number;
        } else {
            w.owner = p;
            w.name.length = 0;
            w.has_number = w.has_value = false;
        }
    }
}

/* ---- tables ---- */

/* The next cell of a row whose cells end with @p mark, blanks around it left out. */
static bool cell(const char **at, char mark, struct dr_span *out)
{
    do {
        *at += strspn(*at, " \t");
        out->at = *at;
        out->length = 0;
        while ((*at)[out->length] != 0 && (*at)[out->length] != mark)
            out->length++;
        *at += out->length + ((*at)[out->length] == mark);
        while (out->length > 0 && strchr(" \t", out->at[out->length - 1]) != NULL)
            out->length--;
    } while (out->length == 0 && **at != 0);
    return out->length > 0;
}

/* "| cycle | gpu0 free (MiB) | fds |": names of several words. */
static bool read_cells(struct loop *l, const char *text)
{
    const char mark = strchr(text, '|') != NULL ? '|' : ',';
    struct dr_span p;
    bool falls, any = false;
    uint32_t count = 0;

    if (strchr(text, mark) == NULL)
        return false;
    for (; count < COLUMNS_MAX && cell(&text, mark, &p); count++) {
        if (count == 0 && !is_cycle_word(p))
            return false;
        any = any || (count > 0 && counts(p, &falls));
        l->columns[count] = p;
    }
    if (!any || count < 2)
        return false;
    l->num_columns = count;
    return true;
}

/* "cycle free_MiB rss_MiB fds" */
static bool read_head(struct loop *l, const char *text)
{
    const char *at = text;
    struct dr_span p;
    bool number, falls, any = false;
    uint32_t count = 0;

    while (count < COLUMNS_MAX && piece(&at, &p, &number)) {
        if (number || (count == 0 && !is_cycle_word(p)))
            return false;
        if (is_unit(p))
            continue;
        any = any || counts(p, &falls);
        l->columns[count++] = p;
    }
    if (!any || count < 2)
        return false;
    l->num_columns = count;
    return true;
}

static bool read_row(struct doctor *d, struct loop *l, uint32_t line)
{
    const char *at = d->lines[line].text;
    struct dr_span p, value[COLUMNS_MAX];
    uint32_t count = 0;
    uint64_t cycle;
    bool number, falls;

    while (count < COLUMNS_MAX && piece(&at, &p, &number)) {
        if (!number && !is_unit(p))
            return false;
        if (number)
            value[count++] = p;
    }
    if (count != l->num_columns || !dr_span_u64(value[0], &cycle))
        return false;
    begin_cycle(d, l, cycle, line);
    for (uint32_t i = 1; i < count; i++)
        if (counts(l->columns[i], &falls))
            add(l, l->columns[i].at, l->columns[i].length, falls,
                    dr_span_double(value[i]));
    return true;
}

/* Lines of ranks that print their own loops are interleaved. */
static struct loop *loop_of(struct loop *loops, const char *text)
{
    uint64_t rank;

    return &loops[dr_line_rank(text, &rank) ? rank % LOOPS_MAX : 0];
}

static void end_loops(struct doctor *d, struct loop *loops)
{
    for (size_t i = 0; i < LOOPS_MAX; i++)
        end_loop(d, &loops[i]);
}

static bool may_count(const char *text)
{
    static const char *const parts[] = { "free", "rss", "fd", "avail", "used", "alloc",
        "in_use", "desc" };

    return dr_has_any_of(text, parts, sizeof(parts) / sizeof(*parts));
}

void dr_read_loops(struct doctor *d)
{
    struct loop loops[LOOPS_MAX] = { 0 };
    uint64_t cycle;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if (d->lines[i].flags & DR_COMMAND) {
            end_loops(d, loops);
            continue;
        }
        if ((loops[0].num_columns > 0 && read_row(d, &loops[0], i)) ||
                d->lines[i].length > LENGTH_MAX || !may_count(text))
            continue;
        if (cycle_of(text, &cycle)) {
            struct loop *l = loop_of(loops, text);

            l->num_columns = 0;
            begin_cycle(d, l, cycle, i);
            read_words(d, l, i);
            dr_known(d, i);
        } else {
            struct loop head = { 0 };

            if (read_cells(&head, text) || read_head(&head, text)) {
                end_loop(d, &loops[0]);
                loops[0] = head;
                dr_known(d, i);
            }
        }
    }
    end_loops(d, loops);
}
