/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about how the GPUs of a machine are joined, and whose they are. */
#include "facts.h"
#include "measure.h"
#include "rules.h"

#include <stdio.h>
#include <string.h>

/* How near two devices are: the less the nearer, 0 if the cell does not say. */
static unsigned distance(const struct dr_matrix *m, struct dr_span cell)
{
    static const char *const links[] = { "PIX", "PXB", "PHB", "NODE", "PCIE", "PCI",
        "SYS", "SOC" };
    uint64_t number;

    if (cell.length == 0)
        return 0;
    if (m->kind == DR_MATRIX_LINKS) {
        if (dr_is_direct(cell, &number))
            return 1;
        for (unsigned i = 0; i < sizeof(links) / sizeof(*links); i++)
            if (dr_span_is(cell, links[i]))
                return i + 2;
        return 0;
    }
    return dr_span_u64(cell, &number) && number < 100000 ? (unsigned)number + 1 : 0;
}

static unsigned pair_distance(const struct dr_matrix *m, uint32_t a, uint32_t b)
{
    const unsigned there = distance(m, dr_cell(m, a, b));

    return there != 0 ? there : distance(m, dr_cell(m, b, a));
}

/* All pairs have the same words; so NV1 and NV2 differ though both are direct. */
static bool is_uniform(const struct dr_matrix *m, struct dr_span *first, uint32_t *line)
{
    uint32_t pairs = 0;

    for (uint32_t a = 0; a < m->size; a++)
        for (uint32_t b = 0; b < m->size; b++) {
            const struct dr_span cell = dr_cell(m, a, b);

            if (a == b || m->names[a].length == 0 || m->names[b].length == 0)
                continue;
            if (distance(m, cell) == 0)
                return false;
            if (pairs++ == 0)
                *first = cell;
            else if (cell.length != first->length ||
                    memcmp(cell.at, first->at, cell.length) != 0)
                return false;
            *line = m->lines[a];
        }
    return pairs > 0;
}

/* Groups of devices that are nearer to one another than @p limit; false if nearness does
 * not divide them. */
static bool groups_at(const struct dr_matrix *m, unsigned limit,
        uint32_t group[DR_MATRIX_MAX], uint32_t *count)
{
    bool any_two = false;

    *count = 0;
    for (uint32_t a = 0; a < m->size; a++) {
        group[a] = DR_NONE;
        if (m->names[a].length == 0)
            continue;
        for (uint32_t b = 0; b < a && group[a] == DR_NONE; b++)
            if (m->names[b].length > 0 && pair_distance(m, a, b) <= limit) {
                group[a] = group[b];
                any_two = true;
            }
        if (group[a] == DR_NONE)
            group[a] = (*count)++;
    }
    for (uint32_t a = 0; a < m->size; a++)
        for (uint32_t b = 0; b < a; b++) {
            if (group[a] == DR_NONE || group[b] == DR_NONE)
                continue;
            if (pair_distance(m, a, b) == 0 ||
                    (group[a] == group[b]) != (pair_distance(m, a, b) <= limit))
                return false;
        }
    return any_two && *count >= 2;
}

static bool is_split(const struct dr_matrix *m, uint32_t group[DR_MATRIX_MAX],
        uint32_t *count)
{
    unsigned limits[8], num = 0;

    for (uint32_t a = 0; a < m->size; a++)
        for (uint32_t b = 0; b < a; b++) {
            const unsigned at = m->names[a].length > 0 && m->names[b].length > 0
                    ? pair_distance(m, a, b)
                    : 0;
            bool seen = at == 0;

            for (unsigned i = 0; i < num && !seen; i++)
                seen = limits[i] == at;
            if (!seen && num < sizeof(limits) / sizeof(*limits))
                limits[num++] = at;
        }
    for (unsigned i = 0; i < num; i++)
        if (groups_at(m, limits[i], group, count))
            return true;
    return false;
}

/* "GPU0 GPU1 GPU4 GPU5 | GPU2 GPU3". */
static const char *groups_text(struct doctor *d, const struct dr_matrix *m,
        const uint32_t group[DR_MATRIX_MAX], uint32_t count)
{
    const char *text = "";

    for (uint32_t g = 0; g < count; g++) {
        const char *gap = g > 0 ? " | " : "";

        for (uint32_t a = 0; a < m->size; a++) {
            if (group[a] != g)
                continue;
            text = dr_printf(d, "%s%s%.*s", text, gap, (int)m->names[a].length,
                    m->names[a].at);
            gap = " ";
        }
    }
    return text;
}

/* Whether a matrix of link types of the same machine stands in the text: it decides. */
static bool has_links(const struct doctor *d, uint32_t machine)
{
    for (uint32_t i = 0; i < d->measure->num_matrices; i++)
        if (d->measure->matrices[i].machine == machine &&
                d->measure->matrices[i].kind == DR_MATRIX_LINKS &&
                dr_is_complete(&d->measure->matrices[i]))
            return true;
    return false;
}

static void topology(struct doctor *d, const struct dr_matrix *m)
{
    uint32_t group[DR_MATRIX_MAX], count = 0, line = DR_NONE, devices = 0;
    struct dr_span cell = { "", 0 };
    struct dr_finding *f;

    for (uint32_t a = 0; a < m->size; a++)
        devices += m->names[a].length > 0;
    if (is_split(m, group, &count)) {
        f = dr_found(d, DR_TOPO_SPLIT, "%s", "");
        dr_say(d, f, "The GPUs form %u groups that a slower link joins: %s.", count,
                groups_text(d, m, group, count));
        for (uint32_t a = 0; a < m->size && a < 8; a++)
            if (m->cells[a] != NULL)
                dr_because(d, f, m->lines[a]);
    } else if (is_uniform(m, &cell, &line)) {
        f = dr_found(d, DR_TOPO_UNIFORM, "%s", "");
        dr_say(d, f, "All pairs of the %u GPUs are joined alike (%.*s).", devices,
                (int)cell.length, cell.at);
        dr_because(d, f, line);
    }
}

static void other_vendor(struct doctor *d)
{
    const struct dr_measure *m = d->measure;
    struct dr_finding *f;

    if (m->line_vendor == DR_NONE)
        return;
    f = dr_found(d, DR_VENDOR_OTHER, "%s", m->vendor);
    dr_say(d, f,
            "The accelerators are of PCI vendor 0x%s (%s): no rule for AMD or NVIDIA "
            "devices applies to them.",
            m->vendor,
            strcmp(m->vendor, "1d94") == 0
                    ? "Hygon; like HIP, its tool is hy-smi"
                    : "Moore Threads; its tool is mthreads-gmi, its "
                      "library mccl");
    dr_because(d, f, m->line_vendor);
}

void dr_rule_topology(struct doctor *d)
{
    for (uint32_t i = 0; i < d->measure->num_matrices; i++) {
        const struct dr_matrix *m = &d->measure->matrices[i];
        const bool decides = m->kind == DR_MATRIX_LINKS ||
                ((m->kind == DR_MATRIX_WEIGHT || m->kind == DR_MATRIX_HOPS) &&
                        !has_links(d, m->machine));

        if (decides && dr_is_complete(m))
            topology(d, m);
    }
    other_vendor(d);
}
