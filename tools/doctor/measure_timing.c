/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates and times that a program prints in its own words, run once with peer access and
 * once without: lines that say the same but for their numbers are compared.
 */
#include "measure.h"

#include <ctype.h>
#include <string.h>

/* Most that are kept: they are compared each with each. */
#define TIMINGS_MAX 2048
#define LABEL_MAX   256

static const struct {
    const char *unit;
    double scale;
    bool is_time;
} units[] = {
    { "us", 1e-6, true },
    { "ms", 1e-3, true },
    { "s", 1, true },
    { "sec", 1, true },
    { "seconds", 1, true },
    { "GB/s", 1, false },
    { "MB/s", 1e-3, false },
    { "tok/s", 1, false },
    { "tokens/s", 1, false },
    { "it/s", 1, false },
    { "requests/s", 1, false },
    { "req/s", 1, false },
    { "samples/s", 1, false },
};

/* A number with a unit behind it; *after: behind both. */
static bool quantity(const char *at, double *value, bool *is_time, const char **after)
{
    struct dr_span number[DR_CAPTURES_MAX];
    const char *unit;
    size_t length = 0;

    unit = at + strspn(at, "0123456789.");
    unit += *unit == ' ';
    if (*unit == 0 || strchr("umsGMtir", *unit) == NULL || !dr_scan(at, "^%f", number))
        return false;
    unit = at + number[0].length;
    unit += strspn(unit, " ");
    while (isalpha((unsigned char)unit[length]) || unit[length] == '/')
        length++;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (strlen(units[i].unit) != length || memcmp(units[i].unit, unit, length) != 0)
            continue;
        *value = dr_span_double(number[0]) * units[i].scale;
        *is_time = units[i].is_time;
        *after = unit + length;
        return *value > 0;
    }
    return false;
}

/* Words that say whether peer access was on; they are no part of a label. */
static const struct {
    const char *words;
    enum dr_switch peer;
} switches[] = {
    { "NCCL_P2P_DISABLE=1", DR_SWITCH_OFF },
    { "NCCL_P2P_DISABLE=0", DR_SWITCH_ON },
    { "NCCL_P2P_LEVEL=LOC", DR_SWITCH_OFF },
    { "P2P disabled", DR_SWITCH_OFF },
    { "P2P enabled", DR_SWITCH_ON },
    { "P2P=off", DR_SWITCH_OFF },
    { "P2P=on", DR_SWITCH_ON },
    { "P2P off", DR_SWITCH_OFF },
    { "P2P on", DR_SWITCH_ON },
    { "without P2P", DR_SWITCH_OFF },
    { "with P2P", DR_SWITCH_ON },
    { "no P2P", DR_SWITCH_OFF },
    { "UCX_TLS=^rocm_ipc", DR_SWITCH_OFF },
    { "UCX_TLS=^cuda_ipc", DR_SWITCH_OFF },
    { "via P2P", DR_SWITCH_ON },
    { "via SHM", DR_SWITCH_OFF },
};

static const char *said(const char *text, enum dr_switch *peer, size_t *length)
{
    *length = 0;
    if (!dr_has_any_case(text, "P2P") && !dr_has(text, "via SHM") &&
            !dr_has(text, "UCX_TLS="))
        return NULL;
    for (size_t i = 0; i < sizeof(switches) / sizeof(*switches); i++) {
        const char *at = strcasestr(text, switches[i].words);

        if (at == NULL || isalnum((unsigned char)at[strlen(switches[i].words)]))
            continue;
        *peer = switches[i].peer;
        *length = strlen(switches[i].words);
        return at;
    }
    return NULL;
}

/* Letters of @p text without numbers, blanks, and what stands in [skip, skip + length). */
static size_t shape(const char *text, const char *skip, size_t length, char *out,
        size_t used)
{
    for (const char *at = text; *at != 0 && used + 1 < LABEL_MAX; at++) {
        if (skip != NULL && at == skip) {
            at += length - 1;
            continue;
        }
        if (isalpha((unsigned char)*at) || *at == '_' || *at == '/')
            out[used++] = *at;
    }
    out[used] = 0;
    return used;
}

/* A command without the variables before it. */
static const char *program(const char *typed)
{
    size_t at = 0, begin = 0;
    struct dr_span word;

    while (dr_word(typed, &at, &word)) {
        begin = (size_t)(word.at - typed);
        if (memchr(word.at, '=', word.length) == NULL && !dr_span_is(word, "env") &&
                !dr_span_is(word, "export"))
            break;
    }
    return typed + begin;
}

/* Rates of a program's start say nothing of peer access; those of its work do. */
static bool is_of_work(const char *text)
{
    static const char *const work[] = { "reduce", "gather", "scatter", "broadcast",
        "alltoall", "all-to-all", "all_to_all", "collective", "sendrecv", "tok", "step",
        "iter", "copy", "bandwidth", "busbw", "GB/s", "latency", "throughput" };
    static const char *const start[] = { "load", "init", "compil", "warm", "startup",
        "captur", "download" };
    bool good = false;

    for (size_t i = 0; i < sizeof(start) / sizeof(*start); i++)
        if (dr_has_any_case(text, start[i]))
            return false;
    for (size_t i = 0; i < sizeof(work) / sizeof(*work) && !good; i++)
        good = dr_has_any_case(text, work[i]);
    return good;
}

struct reading {
    struct doctor *d;
    enum dr_switch session, run; /* by `export`, by the command or the log          */
    uint32_t test;               /* "# OSU MPI-ROCM Bandwidth Test v7.3", or DR_NONE */
    bool rows, rows_are_times;   /* its titles were seen                            */
};

/* Sizes below say more of the start of a copy than of its path. */
#define OSU_BYTES_MIN 65536

/* The two columns of the OSU benchmarks: false if the line is not theirs. */
static bool osu(struct reading *r, uint32_t line)
{
    struct doctor *d = r->d;
    struct dr_measure *m = d->measure;
    const char *text = d->lines[line].text;
    struct dr_span found[DR_CAPTURES_MAX];
    uint64_t bytes;

    if (dr_begins(text, "# OSU ")) {
        r->test = line;
        r->rows = false;
    } else if (r->test != DR_NONE && dr_begins(text, "# Size")) {
        r->rows_are_times = dr_has(text, "Latency");
        r->rows = r->rows_are_times || dr_has(text, "Bandwidth (MB/s)");
    } else if (r->test != DR_NONE && r->rows && dr_scan(text, "^%d %f", found) &&
            dr_span_u64(found[0], &bytes)) {
        struct dr_timing t = { .line = line,
            .peer = r->run,
            .is_time = r->rows_are_times };

        t.value = dr_span_double(found[1]) * (t.is_time ? 1e-6 : 1e-3);
        t.label = dr_printf(d, "%.100s, %llu bytes", d->lines[r->test].text,
                (unsigned long long)bytes);
        if (bytes >= OSU_BYTES_MIN && t.value > 0)
            *DR_PUSH(d, m->timings, m->num_timings, m->room_timings) = t;
    } else {
        return false;
    }
    dr_known(d, line);
    return true;
}

static void keep(struct reading *r, uint32_t line)
{
    struct doctor *d = r->d;
    struct dr_measure *m = d->measure;
    const char *text = d->lines[line].text, *after = NULL, *skip;
    char label[LABEL_MAX];
    struct dr_timing t = { .line = line, .peer = r->run };
    size_t length, used;
    bool good = false;

    for (const char *at = text; *at != 0 && !good; at++)
        if (isdigit((unsigned char)*at)) {
            good = quantity(at, &t.value, &t.is_time, &after);
            while (!good && (isalnum((unsigned char)at[1]) || at[1] == '.'))
                at++;
        }
    if (!good || dr_has(text, " INFO "))
        return;
    skip = said(text, &t.peer, &length);
    if ((skip == NULL && d->lines[line].command == DR_NONE) || !is_of_work(text))
        return;
    used = shape(text, skip, length, label, 0);
    (void)shape(program(dr_command(d, line)), NULL, 0, label, used);
    if (t.peer != DR_SWITCH_UNSAID)
        dr_known(d, line);
    t.label = dr_copy(d, label, strlen(label));
    *DR_PUSH(d, m->timings, m->num_timings, m->room_timings) = t;
}

void dr_read_timings(struct doctor *d)
{
    struct reading r = { .d = d, .test = DR_NONE };
    size_t length;

    for (uint32_t i = 0; i < d->num_lines && d->measure->num_timings < TIMINGS_MAX;
            i++) {
        const struct dr_line *l = &d->lines[i];

        if (i > 0 && d->lines[i - 1].source != l->source)
            r = (struct reading){ .d = d, .test = DR_NONE };
        if (l->flags & DR_COMMAND) {
            r.run = r.session;
            r.test = DR_NONE;
            (void)said(l->text, &r.run, &length);
            if (dr_has(l->text, "export "))
                r.session = r.run;
            if (dr_has(l->text, "unset "))
                r.session = r.run = DR_SWITCH_UNSAID;
        } else if (dr_has(l->text, "NCCL_P2P_DISABLE set by environment to 1")) {
            r.run = DR_SWITCH_OFF;
        } else if (!osu(&r, i)) {
            keep(&r, i);
        }
    }
}
