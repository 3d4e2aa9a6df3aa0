/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about tables of rates: wrong values, good and bad rates, and what explains them. */
#include "rates.h"
#include "rules.h"

#include <math.h>
#include <string.h>

#define KIB16 16384u
#define MIB   (1u << 20)

/* ---- wrong values ---- */

static const struct dr_row *first_wrong(const struct dr_table *t, uint32_t *count)
{
    const struct dr_row *first = NULL;

    *count = 0;
    for (uint32_t i = 0; i < t->num_rows; i++) {
        const struct dr_row *row = &t->rows[i];

        if (!(row->wrong[0] > row->wrong_above) && !(row->wrong[1] > row->wrong_above))
            continue;
        first = first == NULL ? row : first;
        ++*count;
    }
    return first;
}

static bool wrong_results(struct doctor *d, const struct dr_table *t)
{
    uint32_t count = 0;
    const struct dr_row *row = first_wrong(t, &count);
    struct dr_finding *f;

    if (row == NULL && !t->failed)
        return false;
    f = dr_found(d, DR_WRONG_RESULTS, "%s", t->operation);
    if (row != NULL) {
        dr_say(d, f, "%s returns wrong data at %u of %u sizes, first at %llu bytes.",
                t->operation[0] != 0 ? t->operation : "The collective", count,
                t->num_rows, (unsigned long long)row->bytes);
        dr_because(d, f, row->line);
    } else {
        dr_say(d, f, "%s returns wrong data: the test counts values out of bounds.",
                t->operation[0] != 0 ? t->operation : "The collective");
    }
    if (t->failed)
        dr_because(d, f, t->line_bounds);
    return true;
}

/* ---- what the rows are against the path ---- */

static void good(struct doctor *d, const struct dr_rates *r)
{
    struct dr_finding *f = dr_found(d, DR_PERF_OK, "%s", r->table->operation);

    dr_say(d, f, "%.4g GB/s fits the path: %s.", r->plateau, r->expectation);
    dr_because(d, f, r->line_plateau);
    dr_because(d, f, r->line_expected);
}

static void staged(struct doctor *d, const struct dr_rates *r)
{
    struct dr_finding *f = dr_found(d,
            r->plateau < 3 ? DR_HOST_STAGED_SLOW : DR_HOST_STAGED, "%s", "");

    dr_say(d, f, "Data goes through host memory, at %.4g GB/s%s.", r->plateau,
            r->plateau < 3 ? ", which is slow even for that path" : "");
    dr_because(d, f, r->line_plateau);
    dr_because(d, f, r->line_staged);
}

/* All sizes up to 16 KiB cost about the same. */
static bool is_flat(const struct dr_table *t, double floor)
{
    for (uint32_t i = 0; i < t->num_rows; i++)
        for (int side = 0; side < 2; side++) {
            const double time = t->rows[i].time_us[side];

            if (t->rows[i].bytes > 0 && t->rows[i].bytes <= KIB16 && time > 0 &&
                    fabs(time - floor) > 0.25 * floor)
                return false;
        }
    return true;
}

static uint32_t first_row(const struct dr_table *t)
{
    return t->num_rows > 0 ? t->rows[0].line : DR_NONE;
}

/* Where automatic NUMA balancing is said to be on, or DR_NONE. */
static uint32_t numa_balancing(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if (dr_has(text, "NUMA auto balancing enabled") ||
                dr_scan(text, "kernel.numa_balancing = 1%e", NULL))
            return i;
    }
    return DR_NONE;
}

static void small_sizes(struct doctor *d, const struct dr_rates *r)
{
    const struct dr_table *t = r->table;
    struct dr_finding *f;

    if (r->floor_us > 0 && r->hosts == 1 && r->ranks >= 4 && r->direct &&
            r->floor_us >= 35 && r->good) {
        const uint32_t balancing = numa_balancing(d);

        f = dr_found(d, DR_HOST_JITTER_SUSPECT, "%s", t->operation);
        dr_say(d, f,
                "Small sizes take %.3g us though large ones reach %.4g GB/s: something "
                "on "
                "the host disturbs%s.",
                r->floor_us, r->plateau,
                balancing != DR_NONE ? ", and automatic NUMA balancing is on" : "");
        dr_because(d, f, first_row(t));
        dr_because(d, f, r->line_plateau);
        dr_because(d, f, balancing);
    }
    if (r->floor_us >= (r->hosts == 1 ? 20 : 100) && r->hosts > 0 &&
            is_flat(t, r->floor_us)) {
        f = dr_found(d, DR_SMALL_MSG_LATENCY, "%s", t->operation);
        dr_say(d, f,
                "Every size up to 16 KiB takes about %.3g us: many small collectives "
                "are "
                "bound by latency.",
                r->floor_us);
        dr_because(d, f, first_row(t));
    }
}

/* ---- one uplink for all ---- */

static bool flat_at_the_end(const struct dr_table *t, double plateau)
{
    double low = INFINITY, high = 0;
    uint64_t last = UINT64_MAX;
    uint32_t sizes = 0;

    for (uint32_t i = t->num_rows; i > 0 && sizes < 5; i--) {
        const struct dr_row *row = &t->rows[i - 1];
        const double bus = fmax(row->bus[0], row->bus[1]);

        if (row->bytes >= last)
            return false;
        last = row->bytes;
        low = fmin(low, bus);
        high = fmax(high, bus);
        sizes++;
    }
    return sizes == 5 && plateau < 6 && high <= 1.03 * low;
}

static void shared_uplink(struct doctor *d, const struct dr_rates *r)
{
    const struct dr_measure *m = d->measure;
    uint32_t line = DR_NONE;
    double pair = 0;
    struct dr_finding *f;

    if (r->ranks < 4 || r->direct || r->hosts != 1 || r->largest_bytes < MIB)
        return;
    for (uint32_t i = 0; i < m->num_tables && i < DR_TABLES_MAX; i++)
        if (dr_table_ranks(&m->tables[i]) == 2 && m->tables[i].hosts <= 1 &&
                m->tables[i].machine == r->table->machine && pair == 0)
            pair = m->tables[i].plateau, line = m->tables[i].line_plateau;
    if (!(pair > 0 && r->plateau <= 0.7 * pair) &&
            !flat_at_the_end(r->table, r->plateau))
        return;
    f = dr_found(d, DR_PCIE_SHARED_UPLINK, "%s", "");
    if (pair > 0)
        dr_say(d, f,
                "%u GPUs reach %.4g GB/s where a pair reaches %.4g: they share an "
                "uplink.",
                r->ranks, r->plateau, pair);
    else
        dr_say(d, f,
                "%u GPUs stop at %.4g GB/s, whatever the size: they share an uplink.",
                r->ranks, r->plateau);
    dr_because(d, f, r->line_plateau);
    dr_because(d, f, line);
}

/* ---- edited ---- */

/* Lines of the table were left out on the way to us. */
static bool is_filtered(const struct doctor *d, const struct dr_table *t)
{
    static const char *const filters[] = { "| tail", "|tail", "| grep", "|grep",
        "| head", "|head", "| sed", "| awk", "|awk" };
    const char *typed = dr_command(d, t->line_last);
    const uint32_t first = t->line_titles;

    for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++)
        if (dr_has(typed, filters[i]))
            return true;
    return t->broken || first == DR_NONE ||
            d->lines[t->line_average].number - d->lines[first].number !=
            t->line_average - first;
}

/* The size that the program would have measured, and that no row has; 0: none. */
static uint64_t missing_size(const struct dr_table *t)
{
    uint32_t steps = 0;

    if (t->line_parameters == DR_NONE || t->min_bytes == 0 || t->step == 0 ||
            (t->by_factor && t->step < 2))
        return 0;
    for (uint64_t size = t->min_bytes; size <= t->max_bytes && steps < 512; steps++) {
        /* counts are rounded down to a multiple of the ranks */
        const uint64_t rounding = 16 * (uint64_t)(dr_table_ranks(t) + 1);
        bool there = size < 8 * rounding;

        for (uint32_t i = 0; i < t->num_rows && !there; i++)
            there = t->rows[i].bytes <= size && size - t->rows[i].bytes < rounding;
        if (!there)
            return size;
        if (t->by_factor ? size > UINT64_MAX / t->step : size > UINT64_MAX - t->step)
            break;
        size = t->by_factor ? size * t->step : size + t->step;
    }
    return 0;
}

static void edited(struct doctor *d, const struct dr_table *t)
{
    double sum = 0, mean;
    uint32_t count = 0;
    uint64_t missing;
    struct dr_finding *f;

    if (t->average < 0 || t->num_rows == 0 || is_filtered(d, t))
        return;
    for (uint32_t i = 0; i < t->num_rows; i++)
        for (int side = 0; side < 2; side++)
            if (!isnan(t->rows[i].bus[side])) {
                sum += t->rows[i].bus[side];
                count++;
            }
    mean = count > 0 ? sum / count : 0;
    missing = missing_size(t);
    /* each value is printed with two digits after the point */
    if (missing == 0 && fabs(mean - t->average) <= fmax(0.01 * t->average, 0.006))
        return;
    f = dr_found(d, DR_TABLE_EDITED, "%s", t->operation);
    if (missing != 0)
        dr_say(d, f,
                "The table is not what the program printed: %llu bytes are missing "
                "between "
                "minBytes %llu and maxBytes %llu; the trailer says %.6g GB/s on "
                "average, the "
                "rows give %.6g.",
                (unsigned long long)missing, (unsigned long long)t->min_bytes,
                (unsigned long long)t->max_bytes, t->average, mean);
    else
        dr_say(d, f,
                "The table is not what the program printed: its trailer says %.6g GB/s "
                "on "
                "average, the rows give %.6g.",
                t->average, mean);
    dr_because(d, f, t->line_average);
    dr_because(d, f, missing != 0 ? t->line_parameters : first_row(t));
}

/* ---- all ---- */

static void one_table(struct doctor *d, const struct dr_table *t)
{
    struct dr_rates r;
    bool wrong;

    if (t->num_rows == 0 && !t->failed)
        return;
    wrong = wrong_results(d, t);
    if (t->num_rows == 0)
        return;
    dr_look_at_rates(d, t, &r);
    r.good = r.good && !wrong;
    edited(d, t);
    if (r.good)
        good(d, &r);
    else if (r.staged && !wrong && r.ranks != 1 && r.largest_bytes >= MIB)
        staged(d, &r);
    small_sizes(d, &r);
    shared_uplink(d, &r);
}

void dr_rule_rates(struct doctor *d)
{
    for (uint32_t i = 0; i < d->measure->num_tables && i < DR_TABLES_MAX; i++)
        one_table(d, &d->measure->tables[i]);
    dr_rule_network_rates(d);
}
