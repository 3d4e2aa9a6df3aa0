/* SPDX-License-Identifier: Apache-2.0 */
/* Rates across machines: what the ports carry, ports that carry less, GPUDirect RDMA. */
#include "facts.h"
#include "rates.h"

#include <math.h>
#include <string.h>

#define MIB (1u << 20)
/* Share of the line rate below which a port is at fault, if its sibling is not. */
#define BAD_SHARE  0.25
#define GOOD_SHARE 0.65

static const struct dr_net_port *port_named(const struct doctor *d, const char *name)
{
    for (uint32_t i = 0; name != NULL && i < d->measure->num_ports; i++) {
        const struct dr_net_port *p = &d->measure->ports[i];

        if (p->gbits > 0 && (strcmp(p->name, name) == 0 || strcmp(p->other, name) == 0))
            return p;
    }
    return NULL;
}

/* The rate that all ports have in common, 0 if they differ or none is known. */
static double common_rate(const struct doctor *d, uint32_t *line)
{
    double rate = 0;

    for (uint32_t i = 0; i < d->measure->num_ports; i++) {
        const struct dr_net_port *p = &d->measure->ports[i];

        if (p->gbits <= 0)
            continue;
        if (rate > 0 && fabs(rate - p->gbits) > 0.01 * rate)
            return 0;
        rate = p->gbits;
        *line = p->line_rate;
    }
    return rate;
}

double dr_network_rate(const struct doctor *d, const struct dr_rates *r, uint32_t *line)
{
    const struct dr_table *t = r->table;
    const struct dr_net_port *p = port_named(d, t->port);
    const uint32_t each = r->hosts > 0 ? (r->ranks + r->hosts - 1) / r->hosts : 1;
    unsigned used = t->num_adapters > 1 ? t->num_adapters : 1;
    double rate;

    if (p != NULL && t->num_adapters <= 1) {
        *line = p->line_rate;
        return p->gbits / 8;
    }
    rate = common_rate(d, line);
    if (used > each && each > 0)
        used = each;
    return rate / 8 * used;
}

/* ---- ports ---- */

/* The name of the interface; that of the RDMA device if no other is known. */
static const char *interface_of(const struct dr_net_port *p, const char *name)
{
    return p == NULL ? name : p->other[0] != 0 ? p->other : p->name;
}

/* "ens1f0 of mlx5_0". */
static const char *port_text(struct doctor *d, const char *name)
{
    const struct dr_net_port *p = port_named(d, name);

    return p != NULL && p->other[0] != 0 ? dr_printf(d, "%s of %s", p->other, p->name)
                                         : name;
}

static void degraded(struct doctor *d)
{
    const struct dr_measure *m = d->measure;
    const uint32_t count =
            m->num_tables < DR_TABLES_MAX ? m->num_tables : DR_TABLES_MAX;

    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++) {
            const struct dr_table *bad = &m->tables[i], *good = &m->tables[k];
            const double low = bad->plateau, high = good->plateau;
            uint32_t line_rate = DR_NONE;
            double rate_bad, rate_good;
            struct dr_rates r = { .hosts = 2, .ranks = 2 };
            struct dr_finding *f;

            if (bad->port == NULL || good->port == NULL ||
                    strcmp(bad->port, good->port) == 0 || bad->hosts == 1 ||
                    good->hosts == 1)
                continue;
            r.table = good;
            rate_good = dr_network_rate(d, &r, &line_rate);
            r.table = bad;
            rate_bad = dr_network_rate(d, &r, &line_rate);
            if (low <= 0 || rate_bad <= 0 || low >= BAD_SHARE * rate_bad ||
                    high < GOOD_SHARE * rate_good)
                continue;
            f = dr_found(d, DR_LINK_DEGRADED, "%s",
                    interface_of(port_named(d, bad->port), bad->port));
            dr_say(d, f,
                    "Port %s carries %.4g GB/s of the %.4g of its line, and port %s "
                    "%.4g: its cable, transceiver or error correction is at fault.",
                    port_text(d, bad->port), low, rate_bad, port_text(d, good->port),
                    high);
            dr_because(d, f, bad->line_plateau);
            dr_because(d, f, good->line_plateau);
            dr_because(d, f, line_rate);
        }
}

static void without_correction(struct doctor *d)
{
    const struct dr_measure *m = d->measure;

    for (uint32_t i = 0; i < m->num_ports; i++) {
        const struct dr_net_port *p = &m->ports[i];
        struct dr_finding *f;
        const char *device;

        if (p->line_fec == DR_NONE || p->line_errors == DR_NONE)
            continue;
        device = interface_of(p, "");
        f = dr_found(d, DR_LINK_DEGRADED, "%s", device);
        dr_say(d, f,
                "Port %s%s%s runs without forward error correction and counts symbol "
                "errors.",
                device, p->other[0] != 0 ? " of " : "",
                p->other[0] != 0 ? p->name : "");
        dr_because(d, f, p->line_fec);
        dr_because(d, f, p->line_errors);
        dr_fix(d, f,
                "Set the error correction that the cable asks for on both ends "
                "(`ethtool "
                "--set-fec %s encoding rs`), then reseat or replace the cable.",
                device);
    }
}

/* ---- GPUDirect RDMA ---- */

/* Sizes from 1 MiB on agree within 5 %. */
static bool agree(const struct dr_table *a, const struct dr_table *b)
{
    uint32_t common = 0;

    for (uint32_t i = 0, k = 0; i < a->num_rows; i++) {
        double x, y;

        while (k < b->num_rows && b->rows[k].bytes < a->rows[i].bytes)
            k++;
        if (a->rows[i].bytes < MIB || k == b->num_rows ||
                b->rows[k].bytes != a->rows[i].bytes)
            continue;
        x = fmax(a->rows[i].bus[0], a->rows[i].bus[1]);
        y = fmax(b->rows[k].bus[0], b->rows[k].bus[1]);
        if (!(fabs(x - y) <= 0.05 * fmax(x, y)))
            return false;
        common++;
    }
    return common > 0;
}

static struct dr_finding *gdr_not_used(struct doctor *d, uint32_t line, uint32_t proof)
{
    struct dr_finding *f = dr_found(d, DR_GDR_NOT_USED, "%s", "");

    dr_because(d, f, line);
    dr_because(d, f, proof);
    return f;
}

static void gdr_by_tables(struct doctor *d)
{
    const struct dr_measure *m = d->measure;
    const uint32_t count =
            m->num_tables < DR_TABLES_MAX ? m->num_tables : DR_TABLES_MAX;

    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++) {
            const struct dr_table *on = &m->tables[i], *off = &m->tables[k];
            struct dr_finding *f;

            if (on->gdr != DR_SWITCH_ON || off->gdr != DR_SWITCH_OFF ||
                    strcmp(on->operation, off->operation) != 0 || on->hosts == 1 ||
                    !agree(on, off))
                continue;
            f = gdr_not_used(d, on->line_gdr, on->line_plateau);
            dr_because(d, f, off->line_plateau);
            dr_say(d, f,
                    "GPUDirect RDMA was asked for and changes nothing: %.4g GB/s with "
                    "it, "
                    "%.4g without, and the same within 5 %% at all sizes from 1 MiB "
                    "on.",
                    on->plateau, off->plateau);
        }
}

/* Where GPUDirect RDMA is asked for, or DR_NONE. */
static uint32_t asked_for(struct doctor *d)
{
    static const char *const names[] = { "NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL",
        "NCCL_NET_GDR_READ" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        uint32_t line = DR_NONE;
        const char *value = dr_variable(d, names[i], &line);

        if (value != NULL && line != DR_NONE && !dr_begins(value, "0") &&
                !dr_begins(value, "LOC"))
            return line;
    }
    return DR_NONE;
}

static void gdr_by_channels(struct doctor *d)
{
    const uint32_t asked = asked_for(d);
    uint32_t channel = DR_NONE, refused = DR_NONE;
    struct dr_finding *f;

    for (uint32_t i = 0; asked != DR_NONE && i < d->num_lines; i++) {
        const char *text = d->lines[i].text, *via = strstr(text, "via NET/");

        if (dr_has(text, "GPU Direct RDMA Disabled") ||
                dr_has(text, "GPU Direct RDMA disabled"))
            refused = i;
        if (via == NULL || dr_begins(via, "via NET/Socket"))
            continue;
        if (dr_has(via, "/GDRDMA"))
            return;
        channel = i;
    }
    if (channel == DR_NONE)
        return;
    f = gdr_not_used(d, asked, channel);
    dr_because(d, f, refused);
    dr_say(d, f,
            "GPUDirect RDMA was asked for and no channel uses it: data is copied "
            "through the host%s.",
            refused != DR_NONE ? "; the library says that it is disabled" : "");
}

void dr_rule_network_rates(struct doctor *d)
{
    degraded(d);
    without_correction(d);
    gdr_by_tables(d);
    gdr_by_channels(d);
}
