/* SPDX-License-Identifier: Apache-2.0 */
/* Line rate, error correction and errors of network ports: ibstat, ethtool, sysfs. */
#include "measure.h"

#include <string.h>

static struct dr_net_port *port(struct doctor *d, uint32_t machine, struct dr_span name)
{
    struct dr_measure *m = d->measure;
    struct dr_net_port *p;

    while (name.length > 0 && strchr("'\":,", name.at[name.length - 1]) != NULL)
        name.length--;
    for (uint32_t i = 0; i < m->num_ports; i++)
        if (m->ports[i].machine == machine &&
                (dr_span_is(name, m->ports[i].name) ||
                        dr_span_is(name, m->ports[i].other)))
            return &m->ports[i];
    p = DR_PUSH(d, m->ports, m->num_ports, m->room_ports);
    p->name = dr_copy(d, name.at, name.length);
    p->other = "";
    p->machine = machine;
    p->line_rate = p->line_fec = p->line_errors = DR_NONE;
    return p;
}

/* Most ports that are kept: a list longer than that is no machine's. */
#define PORTS_MAX 1024

/* ---- which port the next lines are of ---- */

static const char *const heads[] = { "^CA '%w'", "^Infiniband device '%w'",
    "^InfiniBand device '%w'",
    "^Settings for %w:", "^FEC parameters for %w:", "^hca_id: %w", "^Device: %w%e" };

/* "ethtool -S ens1f0 | grep symbol": the device of a command. */
static bool of_command(const char *typed, struct dr_span *name)
{
    static const char *const tools[] = { "ethtool", "mlxlink", "ibstat", "ibstatus",
        "ibv_devinfo", "perfquery" };
    size_t at = 0;
    struct dr_span word;
    bool tool = false;

    while (dr_word(typed, &at, &word)) {
        if (word.at[0] == '|' || word.at[0] == ';' || word.at[0] == '>')
            break;
        for (size_t i = 0; i < sizeof(tools) / sizeof(*tools); i++)
            tool = tool || dr_span_is(word, tools[i]);
        if (!tool || word.at[0] == '-' || dr_span_is(word, "sudo"))
            continue;
        *name = word;
    }
    for (size_t i = 0; i < sizeof(tools) / sizeof(*tools); i++)
        tool = tool && !dr_span_is(*name, tools[i]);
    return tool && name->length > 0;
}

/* ---- what a line says ---- */

enum what { RATE_GBITS, RATE_MBITS, FEC_NONE, SYMBOL_ERRORS };

static const struct {
    const char *pattern;
    enum what what;
    bool named; /* the first capture is the port, the last the value */
} says[] = {
    { "/sys/class/net/%w/speed:%d", RATE_MBITS, true },
    { "/sys/class/infiniband/%w/ports/%*/rate:%f Gb/sec", RATE_GBITS, true },
    { "/sys/class/infiniband/%w/ports/%*/symbol_error:%d", SYMBOL_ERRORS, true },
    { "<net name=\"%w\" %*speed=\"%d\"", RATE_MBITS, true },
    { "^Rate: %f%e", RATE_GBITS, false },
    { "^rate: %f Gb/sec", RATE_GBITS, false },
    { "^Speed: %dMb/s", RATE_MBITS, false },
    { "^Speed : %dG", RATE_GBITS, false },
    { "active_speed: %f Gbps", RATE_GBITS, false },
    { "CK_%dG", RATE_GBITS, false },
    { "BS_%dG", RATE_GBITS, false },
    { "^Active FEC encoding: None", FEC_NONE, false },
    { "^Active FEC encodings: None", FEC_NONE, false },
    { "^Active FEC encoding: Off", FEC_NONE, false },
    { "symbol_err%*: %d", SYMBOL_ERRORS, false },
    { "SymbolErrorCounter:%*..%d%e", SYMBOL_ERRORS, false },
    { "Symbol Errors : %d", SYMBOL_ERRORS, false },
};

static void take(struct doctor *d, uint32_t line, enum what what, struct dr_span name,
        struct dr_span value)
{
    struct dr_net_port *p = port(d, d->lines[line].machine, name);
    const double number = dr_span_double(value);

    dr_known(d, line);
    switch (what) {
    case RATE_GBITS:
    case RATE_MBITS:
        if (number > 0) {
            p->gbits = what == RATE_MBITS ? number / 1000 : number;
            p->line_rate = line;
        }
        break;
    case FEC_NONE: p->line_fec = line; break;
    case SYMBOL_ERRORS:
        if (number > 0)
            p->line_errors = line;
        break;
    }
}

/* Both names are of one port; what was said of either is said of it. */
static void join(struct doctor *d, uint32_t machine, struct dr_span device,
        struct dr_span interface)
{
    struct dr_measure *m = d->measure;
    struct dr_net_port *p = port(d, machine, device);

    for (uint32_t i = 0; i < m->num_ports; i++) {
        struct dr_net_port *q = &m->ports[i];

        if (q == p || q->machine != machine || q->other[0] != 0 ||
                !dr_span_is(interface, q->name))
            continue;
        if (p->gbits <= 0) {
            p->gbits = q->gbits;
            p->line_rate = q->line_rate;
        }
        p->line_fec = p->line_fec == DR_NONE ? q->line_fec : p->line_fec;
        p->line_errors = p->line_errors == DR_NONE ? q->line_errors : p->line_errors;
        *q = m->ports[--m->num_ports];
        p = port(d, machine, device);
        break;
    }
    p->other = dr_copy(d, interface.at, interface.length);
}

/* "mlx5_0 port 1 ==> ens1f0 (Up)", "link mlx5_0/1 state ACTIVE … netdev ens1f0". */
static bool two_names(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span found[DR_CAPTURES_MAX];
    const char *slash;
    size_t other;

    if (dr_scan(text, "^%w port %d ==> %w (", found)) {
        other = 2;
    } else if (dr_scan(text, "^link %w state %*netdev %w", found)) {
        slash = memchr(found[0].at, '/', found[0].length);
        if (slash != NULL)
            found[0].length = (size_t)(slash - found[0].at);
        other = 2;
    } else {
        return false;
    }
    join(d, d->lines[line].machine, found[0], found[other]);
    return true;
}

/* "cat /sys/class/net/ens1f0/speed": the number alone. */
static bool by_path(struct doctor *d, uint32_t line)
{
    struct dr_span name, found[DR_CAPTURES_MAX];
    const char *at;

    if (!dr_scan(d->lines[line].text, "^%d%e", found))
        return false;
    at = strstr(dr_command(d, line), "/sys/class/net/");
    if (at == NULL)
        return false;
    name.at = at + strlen("/sys/class/net/");
    name.length = strcspn(name.at, "/ ");
    if (!dr_begins(name.at + name.length, "/speed") || name.at[0] == '*')
        return false;
    take(d, line, RATE_MBITS, name, found[0]);
    return true;
}

static void read_line(struct doctor *d, uint32_t line, struct dr_span *name)
{
    const char *text = d->lines[line].text;
    struct dr_span found[DR_CAPTURES_MAX];

    text += strspn(text, " \t");
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
        if (dr_scan(text, heads[i], found)) {
            *name = found[0];
            if (name->length > 1 && name->at[name->length - 1] == ':')
                name->length--;
            return;
        }
    if (two_names(d, line) || by_path(d, line))
        return;
    for (size_t i = 0; i < sizeof(says) / sizeof(*says); i++) {
        const bool any = strstr(says[i].pattern, "%*") != NULL;

        found[0] = found[1] = found[2] = (struct dr_span){ "", 0 };
        if (!dr_scan(text, says[i].pattern, found))
            continue;
        if (says[i].named)
            take(d, line, says[i].what, found[0], found[any ? 2 : 1]);
        else if (name->length > 0)
            take(d, line, says[i].what, *name, found[any ? 1 : 0]);
        return;
    }
}

void dr_read_ports(struct doctor *d)
{
    struct dr_span name = { "", 0 };

    for (uint32_t i = 0; i < d->num_lines && d->measure->num_ports < PORTS_MAX; i++) {
        const struct dr_line *l = &d->lines[i];

        if ((l->flags & DR_COMMAND) || (i > 0 && d->lines[i - 1].source != l->source))
            name = (struct dr_span){ "", 0 };
        if ((l->flags & DR_COMMAND) == 0) {
            if ((d->measure->signs[i] & DR_SIGN_PORT) != 0)
                read_line(d, i, &name);
            else
                (void)by_path(d, i);
        } else
            (void)of_command(dr_command(d, i), &name);
    }
}
