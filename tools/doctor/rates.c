/* SPDX-License-Identifier: Apache-2.0 */
/* The path that a table measured: its machines, links, and what they can carry. */
#include "rates.h"

#include "facts.h"

#include <string.h>

/* Share of a link's rate that a good collective reaches. */
#define GOOD_SHARE        0.65
#define GOOD_SHARE_NVLINK 0.5
#define NVLINK_GBPS       25.0
/* Eight GPUs of the MI300 class, all joined by XGMI. */
#define GOOD_MI300 280.0

static uint32_t hosts_of(const struct doctor *d, const struct dr_table *t)
{
    const uint32_t hosts = t->hosts;

    if (hosts > 0)
        return hosts;
    if (t->via_net > 0)
        return 2;
    if (dr_num_hosts(d) > 0)
        return dr_num_hosts(d);
    return t->gpus_of_each > 1 ? 1 : 0;
}

/* ---- direct links ---- */

/* NVLinks of each GPU of boards that are never without them. */
static const struct {
    const char *name;
    unsigned links;
} nvlink_boards[] = {
    { "V100-SXM", 6 },
    { "A100-SXM", 12 },
    { "A800-SXM", 8 },
    { "H100 80GB HBM3", 18 },
    { "H100-SXM", 18 },
    { "H800 SXM", 8 },
    { "NVIDIA H200", 18 },
    { "NVIDIA H20", 18 },
    { "NVIDIA B200", 36 },
    { "NVIDIA B300", 36 },
};

static bool all_named(const struct dr_table *t, const char *part)
{
    for (uint32_t i = 0; i < t->num_gpus; i++)
        if (!dr_has(t->gpus[i].name, part))
            return false;
    return t->num_gpus > 0;
}

static bool is_mi300(const struct dr_table *t)
{
    return all_named(t, "Instinct MI3");
}

static unsigned links_by_name(const struct dr_table *t)
{
    for (size_t i = 0; i < sizeof(nvlink_boards) / sizeof(*nvlink_boards); i++)
        if (all_named(t, nvlink_boards[i].name) && !dr_has(t->gpus[0].name, "NVL"))
            return nvlink_boards[i].links;
    return 0;
}

/* Column of the table's GPU number @p i, by the ordinal that it prints, if these differ. */
static uint32_t column_of(const struct dr_table *t, uint32_t i)
{
    if (t->num_gpus < 2 || t->gpus[0].ordinal == t->gpus[1].ordinal)
        return i;
    return t->gpus[i].ordinal;
}

/* Whether all of the table's GPUs have direct links; fewest NVLinks of a pair. */
static enum dr_answer by_matrix(const struct doctor *d, const struct dr_table *t,
        uint32_t ranks, uint64_t *links, uint32_t *line)
{
    enum dr_answer answer = DR_UNSURE;

    for (uint32_t i = 0; i < d->measure->num_matrices && answer == DR_UNSURE; i++) {
        const struct dr_matrix *m = &d->measure->matrices[i];

        if (m->kind != DR_MATRIX_LINKS || m->machine != t->machine)
            continue;
        for (uint32_t a = 0; a < ranks && a < m->size && answer != DR_NO; a++)
            for (uint32_t b = 0; b < ranks && b < m->size; b++) {
                const uint32_t row = column_of(t, a), column = column_of(t, b);
                uint64_t count;

                if (a == b || row >= m->size || column >= m->size ||
                        dr_cell(m, row, column).length == 0)
                    continue;
                answer = dr_is_direct(dr_cell(m, row, column), &count) ? DR_YES : DR_NO;
                *line = m->lines[row];
                if (answer == DR_NO)
                    break;
                if (*links == 0 || count < *links)
                    *links = count;
            }
    }
    return answer;
}

/* ---- slots ---- */

/* A slot that came up with fewer lanes than both ends have carries no good rate. */
static bool lost_lanes(const struct doctor *d, uint32_t device)
{
    const struct dr_pci_device *top = &d->pci->devices[dr_card_top(d, device)];
    int width = top->cap_width;

    if (top->parent != DR_NONE && d->pci->devices[top->parent].cap_width > 0 &&
            d->pci->devices[top->parent].cap_width < width)
        width = d->pci->devices[top->parent].cap_width;
    return top->sta_width > 0 && top->sta_width < width;
}

/* GB/s of one lane. */
static double lane(double gts)
{
    return gts >= 63    ? 7.88
            : gts >= 31 ? 3.94
            : gts >= 15 ? 1.97
            : gts >= 7  ? 0.985
            : gts >= 4  ? 0.5
                        : 0.25;
}

/* The slowest of the LnkCap and LnkSta lines that a loop of `lspci | grep` left without
 * their devices; 0 if there are none. */
static double loose_links(const struct doctor *d, uint32_t machine, uint32_t *line)
{
    double speed = 0, slowest = 0;
    struct dr_span found[DR_CAPTURES_MAX];
    uint64_t width;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if ((d->measure->signs[i] & DR_SIGN_LANES) == 0 ||
                d->lines[i].machine != machine || !dr_has(dr_command(d, i), "grep"))
            continue;
        if (dr_scan(text, "LnkCap: %*Speed %fGT/s", found))
            speed = dr_span_double(found[1]);
        if (!dr_scan(text, "LnkSta: Speed %fGT/s%*Width x%d", found) ||
                !dr_span_u64(found[2], &width) || width == 0 || width > 32)
            continue;
        if (speed <= 0)
            speed = dr_span_double(found[0]);
        if (dr_has(text, ", Width") && dr_scan(text, "Width x%d (downgraded", NULL))
            return 0;
        if (slowest <= 0 || lane(speed) * (double)width < slowest) {
            slowest = lane(speed) * (double)width;
            *line = i;
        }
        speed = 0;
    }
    return slowest;
}

static double slot_rate(const struct doctor *d, const struct dr_table *t,
        uint32_t *line)
{
    double slowest = 0;

    for (uint32_t i = 0; i < t->num_gpus; i++) {
        const uint32_t device = dr_pci_find(d, t->machine, t->gpus[i].bdf);
        const double rate = device != DR_NONE ? dr_slot_rate(d, device) : 0;

        if (device != DR_NONE && lost_lanes(d, device))
            return 0;
        if (rate <= 0)
            return loose_links(d, t->machine, line);
        if (slowest <= 0 || rate < slowest) {
            slowest = rate;
            *line = d->pci->devices[device].line_link_sta;
        }
    }
    return slowest;
}

/* ---- all of it ---- */

static void on_one_host(struct doctor *d, struct dr_rates *r)
{
    const struct dr_table *t = r->table;
    uint64_t links = 0;
    uint32_t line = t->num_gpus > 0 ? t->gpus[0].line : DR_NONE;
    enum dr_answer direct = by_matrix(d, t, r->ranks, &links, &line);
    double rate = 0;

    if (links == 0)
        links = direct == DR_NO ? 0 : links_by_name(t);
    if (direct == DR_UNSURE &&
            (links > 0 || is_mi300(t) || all_named(t, "MI250") ||
                    dr_direct_links(d, t->machine, &line) == DR_YES))
        direct = DR_YES;
    r->direct = direct == DR_YES;
    if (r->direct && is_mi300(t) && r->ranks >= 8) {
        r->good = r->plateau >= GOOD_MI300;
        r->expectation = dr_printf(d,
                "eight GPUs joined by XGMI give %.0f GB/s or more", GOOD_MI300);
    } else if (r->direct && links > 0) {
        rate = NVLINK_GBPS * (double)links;
        r->good = r->plateau >= GOOD_SHARE_NVLINK * rate;
        r->expectation =
                dr_printf(d, "%u NVLinks carry %.4g GB/s", (unsigned)links, rate);
    } else if (!r->direct && !r->staged) {
        rate = slot_rate(d, t, &line);
        r->good = rate > 0 && r->plateau >= GOOD_SHARE * rate;
        r->expectation = dr_printf(d, "its slowest slot carries %.4g GB/s", rate);
    }
    r->line_expected = line;
}

static bool is_staged(const struct doctor *d, const struct dr_table *t, uint32_t *line)
{
    uint32_t with_rows = 0;

    *line = t->line_via;
    if (t->via_host + t->via_peer + t->via_net > 0)
        return t->via_host > 0 && t->via_peer == 0 && t->via_net == 0;
    *line = t->line_peer;
    if (t->peer == DR_SWITCH_OFF)
        return true;
    if (dr_no_peer_access(d, t->machine, line))
        return true;
    for (uint32_t i = 0; i < d->measure->num_tables; i++)
        with_rows += d->measure->tables[i].num_rows > 0;
    return with_rows == 1 && dr_channels(d, line) == DR_VIA_SHM;
}

void dr_look_at_rates(struct doctor *d, const struct dr_table *t, struct dr_rates *r)
{
    double rate;

    *r = (struct dr_rates){ .table = t,
        .expectation = "",
        .line_expected = DR_NONE,
        .line_plateau = DR_NONE,
        .line_staged = DR_NONE };
    r->plateau = t->plateau;
    r->line_plateau = t->line_plateau;
    r->floor_us = dr_table_floor(d, t);
    r->hosts = hosts_of(d, t);
    r->ranks = dr_table_ranks(t);
    for (uint32_t i = 0; i < t->num_rows; i++)
        if (t->rows[i].bytes > r->largest_bytes)
            r->largest_bytes = t->rows[i].bytes;
    if (r->hosts == 1) {
        r->staged = is_staged(d, t, &r->line_staged);
        on_one_host(d, r);
    } else if (r->hosts > 1) {
        rate = dr_network_rate(d, r, &r->line_expected);
        r->good = rate > 0 && r->plateau >= GOOD_SHARE * rate;
        r->expectation = dr_printf(d, "its network carries %.4g GB/s", rate);
    }
}
