/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about peer access as it was tested: refused, broken, or slower than the host. */
#include "facts.h"
#include "rates.h"
#include "rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lines of one kind that are quoted. */
#define QUOTED_MAX 6
/* Broken pairs that are named. */
#define BROKEN_MAX 64

/* ---- what the driver grants ---- */

/* `nvidia-smi topo -p2p` for reads or writes. */
static bool is_peer_matrix(const struct doctor *d, const struct dr_matrix *m)
{
    const char *typed = dr_command(d, m->line_columns);
    const char *at = strstr(typed, "-p2p");

    if (m->kind != DR_MATRIX_GRANTS)
        return false;
    /* n: NVLink only, a: atomics; neither says whether memory can be reached */
    return at == NULL ||
            (!dr_scan(at, "^-p2p n%>", NULL) && !dr_scan(at, "^-p2p a%>", NULL));
}

static bool refuses(struct dr_span cell)
{
    static const char *const words[] = { "NS", "CNS", "GNS", "TNS" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (dr_span_is(cell, words[i]))
            return true;
    return false;
}

static bool denies(struct dr_span cell)
{
    return refuses(cell) || dr_span_is(cell, "0") || dr_span_is(cell, "False") ||
            dr_span_is(cell, "DISABLED");
}

static bool grants(struct dr_span cell)
{
    return dr_span_is(cell, "OK") || dr_span_is(cell, "1") ||
            dr_span_is(cell, "True") || dr_span_is(cell, "ENABLED");
}

bool dr_no_peer_access(const struct doctor *d, uint32_t machine, uint32_t *line)
{
    bool none = false;

    for (uint32_t i = 0; i < d->measure->num_pairs; i++) {
        const struct dr_pair_test *p = &d->measure->pairs[i];

        if (p->machine != machine)
            continue;
        if (p->what == DR_PAIR_GRANTED)
            return false;
        if (p->what == DR_PAIR_DENIED) {
            none = true;
            *line = p->line;
        }
    }
    for (uint32_t i = 0; i < d->measure->num_matrices; i++) {
        const struct dr_matrix *m = &d->measure->matrices[i];

        if (m->machine != machine || !is_peer_matrix(d, m))
            continue;
        for (uint32_t k = 0; k < m->size * m->size; k++) {
            const struct dr_span cell = dr_cell(m, k / m->size, k % m->size);

            if (k / m->size == k % m->size || cell.length == 0)
                continue;
            if (grants(cell))
                return false;
            if (denies(cell)) {
                none = true;
                *line = m->lines[k / m->size];
            }
        }
    }
    return none;
}

static void refused_by_matrix(struct doctor *d, const struct dr_matrix *m)
{
    struct dr_span worst = { "", 0 };
    uint32_t refused = 0, pairs = 0, row = 0, column = 0;
    struct dr_finding *f;

    for (uint32_t k = 0; k < m->size * m->size; k++) {
        const uint32_t i = k / m->size, j = k % m->size;
        const struct dr_span cell = dr_cell(m, i, j);

        if (i == j || cell.length == 0)
            continue;
        pairs++;
        if (!refuses(cell))
            continue;
        if (refused++ == 0) {
            worst = cell;
            row = i;
            column = j;
        }
    }
    if (refused == 0)
        return;
    f = dr_found(d, DR_P2P_NOT_SUPPORTED_BY_DRIVER, "%s", "");
    dr_say(d, f,
            "The driver offers no peer access on %u of %u directed pairs, for example "
            "%.*s to %.*s: %.*s.",
            refused, pairs, (int)m->names[row].length, m->names[row].at,
            (int)m->names[column].length, m->names[column].at, (int)worst.length,
            worst.at);
    dr_because(d, f, m->lines[row]);
}

/* "Device=0 CANNOT Access Peer Device=1" for every pair. */
static void refused_by_test(struct doctor *d)
{
    struct dr_finding *f = NULL;
    uint32_t count = 0, first = DR_NONE;

    for (uint32_t i = 0; i < d->measure->num_pairs; i++) {
        const struct dr_pair_test *p = &d->measure->pairs[i];

        if (p->what == DR_PAIR_GRANTED)
            return;
        if (p->what != DR_PAIR_DENIED || !dr_has(d->lines[p->line].text, "CANNOT"))
            continue;
        count++;
        if (first == DR_NONE)
            first = p->line;
    }
    if (count == 0)
        return;
    f = dr_found(d, DR_P2P_NOT_SUPPORTED_BY_DRIVER, "%s", "");
    dr_say(d, f,
            "The runtime grants no pair of GPUs peer access: all %u that were asked "
            "are refused.",
            count);
    dr_because(d, f, first);
}

/* ---- granted, and broken ---- */

/* The line that grants the pair, or any if the check names none; DR_NONE. */
static uint32_t granted(const struct doctor *d, const struct dr_pair_test *broken)
{
    for (uint32_t i = 0; i < d->measure->num_pairs; i++) {
        const struct dr_pair_test *p = &d->measure->pairs[i];

        if (p->machine == broken->machine && p->what == DR_PAIR_GRANTED &&
                (p->from < 0 || broken->from < 0 ||
                        (p->from == broken->from && p->to == broken->to) ||
                        (p->from == broken->to && p->to == broken->from)))
            return p->line;
    }
    for (uint32_t i = 0; i < d->measure->num_matrices; i++) {
        const struct dr_matrix *m = &d->measure->matrices[i];
        const uint32_t from = (uint32_t)broken->from, to = (uint32_t)broken->to;
        const bool named = broken->from >= 0 && from < m->size && to < m->size;

        if (m->machine != broken->machine || !is_peer_matrix(d, m))
            continue;
        for (uint32_t k = 0; k < m->size * m->size; k++) {
            const uint32_t row = k / m->size, column = k % m->size;

            if (row != column && grants(dr_cell(m, row, column)) &&
                    (!named || (row == from && column == to)))
                return m->lines[row];
        }
    }
    return DR_NONE;
}

static void broken_pair(struct doctor *d, const struct dr_pair_test *p)
{
    const uint32_t grant = granted(d, p);
    const char *pair =
            p->from >= 0 ? dr_printf(d, "GPU%d -> GPU%d", p->from, p->to) : "";
    struct dr_finding *f;

    if (grant == DR_NONE) {
        dr_trouble(d, p->line);
        return;
    }
    f = dr_found(d, DR_P2P_GRANTED_BUT_BROKEN, "%s", pair);
    if (f->because.count >= QUOTED_MAX)
        return;
    if (f->because.count == 0)
        dr_say(d, f,
                "Peer access %s is granted, and the owner of the memory does not see "
                "the "
                "data: "
                "\"%.160s\".",
                pair[0] != 0 ? dr_printf(d, "from GPU %d to GPU %d", p->from, p->to)
                             : "between the GPUs",
                d->lines[p->line].text + strspn(d->lines[p->line].text, " \t"));
    dr_because(d, f, p->line);
    dr_because(d, f, grant);
}

/* A matrix of compared copies, PASS or FAIL, beside one of access. */
static void broken_matrix(struct doctor *d, const struct dr_matrix *m)
{
    for (uint32_t k = 0; k < m->size * m->size; k++) {
        const uint32_t row = k / m->size, column = k % m->size;
        const struct dr_pair_test p = { .what = DR_PAIR_BROKEN,
            .from = (int)row,
            .to = (int)column,
            .machine = m->machine,
            .line = m->lines[row] };

        if (row != column && dr_span_is(dr_cell(m, row, column), "FAIL"))
            broken_pair(d, &p);
    }
}

/* ---- slower than the host ---- */

static void found_slower(struct doctor *d, const char *subject, const char *what,
        double with, double without, const char *unit, uint32_t line_with,
        uint32_t line_without)
{
    struct dr_finding *f = dr_found(d, DR_P2P_SLOWER_THAN_HOST, "%s", subject);

    dr_say(d, f, "%s: %.4g %s with peer access, %.4g %s without it.", what, with, unit,
            without, unit);
    dr_because(d, f, line_with);
    dr_because(d, f, line_without);
}

static double cell_value(const struct dr_matrix *m, uint32_t k)
{
    return k / m->size == k % m->size
            ? 0
            : dr_span_double(dr_cell(m, k / m->size, k % m->size));
}

static void compare_matrices(struct doctor *d, const struct dr_matrix *on,
        const struct dr_matrix *off)
{
    uint32_t slow = 0, pairs = 0, worst = 0;
    double ratio = 1;

    for (uint32_t k = 0; k < on->size * on->size; k++) {
        const double with = cell_value(on, k), without = cell_value(off, k);

        if (with <= 0 || without <= 0)
            continue;
        pairs++;
        slow += with < 0.5 * without;
        if (with / without < ratio) {
            ratio = with / without;
            worst = k;
        }
    }
    if (slow == 0)
        return;
    found_slower(d, "",
            dr_printf(d,
                    "%u of %u directed pairs are slower with peer access, most of all "
                    "device %.*s with device %.*s",
                    slow, pairs, (int)on->names[worst / on->size].length,
                    on->names[worst / on->size].at,
                    (int)on->names[worst % on->size].length,
                    on->names[worst % on->size].at),
            cell_value(on, worst), cell_value(off, worst), "GB/s",
            on->lines[worst / on->size], off->lines[worst / on->size]);
}

static void matrices(struct doctor *d)
{
    const struct dr_measure *m = d->measure;

    for (uint32_t i = 0; i + 1 < m->num_matrices; i++)
        for (uint32_t k = i + 1; k < m->num_matrices; k++) {
            const struct dr_matrix *a = &m->matrices[i], *b = &m->matrices[k];

            if (a->kind != DR_MATRIX_RATE || b->kind != DR_MATRIX_RATE ||
                    a->machine != b->machine || a->size != b->size ||
                    a->both_ways != b->both_ways)
                continue;
            if (a->peer == DR_SWITCH_ON && b->peer == DR_SWITCH_OFF)
                compare_matrices(d, a, b);
            else if (a->peer == DR_SWITCH_OFF && b->peer == DR_SWITCH_ON)
                compare_matrices(d, b, a);
        }
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median over the common sizes of time with peer access / time without it; 0 if none. */
static double time_ratio(struct doctor *d, const struct dr_table *on,
        const struct dr_table *off)
{
    double *ratios = dr_alloc(d, (on->num_rows + 1) * sizeof(*ratios));
    uint32_t count = 0;

    for (uint32_t i = 0, k = 0; i < on->num_rows; i++) {
        while (k < off->num_rows && off->rows[k].bytes < on->rows[i].bytes)
            k++;
        if (k < off->num_rows && off->rows[k].bytes == on->rows[i].bytes &&
                off->rows[k].time_us[0] > 0)
            ratios[count++] = on->rows[i].time_us[0] / off->rows[k].time_us[0];
    }
    if (count == 0)
        return 0;
    qsort(ratios, count, sizeof(*ratios), compare_numbers);
    return ratios[count / 2];
}

static void compare_tables(struct doctor *d, const struct dr_table *on,
        const struct dr_table *off)
{
    if (on->num_rows == 0 || off->num_rows == 0 ||
            strcmp(on->operation, off->operation) != 0 ||
            dr_table_ranks(on) != dr_table_ranks(off) || on->hosts > 1 ||
            on->machine != off->machine)
        return;
    if ((on->rows[on->num_rows - 1].bytes == off->rows[off->num_rows - 1].bytes &&
                on->plateau < 0.5 * off->plateau) ||
            time_ratio(d, on, off) > 2)
        found_slower(d, "",
                dr_printf(d, "%s of %u GPUs, large sizes",
                        on->operation[0] != 0 ? on->operation : "The collective",
                        dr_table_ranks(on)),
                on->plateau, off->plateau, "GB/s", on->line_plateau, off->line_plateau);
}

static void tables(struct doctor *d)
{
    const struct dr_measure *m = d->measure;
    const uint32_t count =
            m->num_tables < DR_TABLES_MAX ? m->num_tables : DR_TABLES_MAX;

    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++)
            if (m->tables[i].peer != DR_SWITCH_OFF &&
                    m->tables[k].peer == DR_SWITCH_OFF)
                compare_tables(d, &m->tables[i], &m->tables[k]);
}

static void timings(struct doctor *d)
{
    const struct dr_measure *m = d->measure;

    for (uint32_t i = 0; i < m->num_timings; i++)
        for (uint32_t k = 0; m->timings[i].peer == DR_SWITCH_OFF && k < m->num_timings;
                k++) {
            const struct dr_timing *off = &m->timings[i], *on = &m->timings[k];
            const double ratio = on->value / off->value;

            if (on->peer == DR_SWITCH_OFF || on->is_time != off->is_time ||
                    strcmp(on->label, off->label) != 0 ||
                    (on->is_time ? ratio <= 2 : ratio >= 0.5))
                continue;
            found_slower(d, "", "The same work in the same program", on->value,
                    off->value, on->is_time ? "s" : "in its own unit", on->line,
                    off->line);
            return;
        }
}

void dr_rule_peer_tests(struct doctor *d)
{
    uint32_t broken = 0;

    for (uint32_t i = 0; i < d->measure->num_matrices; i++) {
        const struct dr_matrix *m = &d->measure->matrices[i];

        if (is_peer_matrix(d, m))
            refused_by_matrix(d, m);
        else if (m->kind == DR_MATRIX_CHECK)
            broken_matrix(d, m);
    }
    refused_by_test(d);
    for (uint32_t i = 0; i < d->measure->num_pairs && broken < BROKEN_MAX; i++)
        if (d->measure->pairs[i].what == DR_PAIR_BROKEN) {
            broken_pair(d, &d->measure->pairs[i]);
            broken++;
        }
    matrices(d);
    tables(d);
    timings(d);
}
