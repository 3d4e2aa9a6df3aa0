/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of `lspci -t`, `-tv`, `-tvnn`:
 *
 *     -[0000:00]-+-01.1-[02-04]----00.0-[03-04]----00.0-[04]--+-00.0  Navi 21
 *                |                                            \-00.1  Audio
 *                \-1f.0  ISA
 *
 * A branch, '+' or '\', lists the devices of one bus, in its column on every line.
 */
#include "pci_read.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* What the part of a line that was read so far hangs on. */
struct twig {
    uint32_t bridge;
    int bus;
    char domain[8];
};

static bool two_hex(const char *at)
{
    return isxdigit((unsigned char)at[0]) && isxdigit((unsigned char)at[1]);
}

static int hex_byte(const char *at)
{
    uint64_t value = 0;

    (void)dr_span_hex((struct dr_span){ at, 2 }, &value);
    return (int)value;
}

/* "[0000:40]" begins a tree; characters it takes, 0 if it is not there. */
static size_t root(const char *at, struct twig *t)
{
    struct dr_span part[2];
    uint64_t bus;

    if (at[0] != '[' || !dr_scan(at, "^[%x:%x]", part) || part[0].length < 4 ||
            part[0].length > 6 || part[1].length != 2 || !dr_span_hex(part[1], &bus))
        return 0;
    t->bridge = DR_NONE;
    t->bus = (int)bus;
    memcpy(t->domain, part[0].at, part[0].length);
    t->domain[part[0].length] = 0;
    return part[0].length + 5;
}

/* "[02-04]" or "[05]" behind a bridge; characters it takes. */
static size_t buses(struct dr_pci_reading *r, const char *at, struct twig *t,
        uint32_t device)
{
    struct dr_pci_device *p = &r->d->pci->devices[device];
    int first, last;
    size_t length = 4;

    if (at[0] != '[' || !two_hex(at + 1) || (at[3] != ']' && at[3] != '-'))
        return 0;
    first = last = hex_byte(at + 1);
    if (at[3] == '-') {
        if (!two_hex(at + 4) || at[6] != ']')
            return 0;
        last = hex_byte(at + 4);
        length = 7;
    }
    if (p->secondary < 0) {
        p->secondary = first;
        p->subordinate = last;
        p->line_bus = r->line;
    }
    dr_pci_set_ids(p, -1, -1, 0x0604);
    t->bridge = device;
    t->bus = first;
    return length;
}

static void name_of(struct dr_pci_reading *r, uint32_t device, const char *name)
{
    struct dr_pci_device *p = &r->d->pci->devices[device];
    struct dr_span id[2];
    uint64_t vendor, number;

    if (p->name[0] == 0)
        p->name = name;
    for (const char *at = name; (at = strchr(at, '[')) != NULL; at++)
        if (dr_scan(at, "^[%x:%x]", id) && id[0].length == 4 && id[1].length == 4 &&
                dr_span_hex(id[0], &vendor) && dr_span_hex(id[1], &number))
            dr_pci_set_ids(p, (int)vendor, (int)number, -1);
    dr_pci_set_ids(p, dr_vendor_of_name(name), -1, -1);
    if (dr_scan(name, " Device %x%>", id) && dr_span_hex(id[0], &number) &&
            number < 65536)
        dr_pci_set_ids(p, -1, (int)number, -1);
}

static size_t device(struct dr_pci_reading *r, const char *at, const struct twig *t,
        uint32_t *out)
{
    char bdf[DR_BDF_MAX];
    struct dr_pci_device *p;

    if (!two_hex(at) || at[2] != '.' || at[3] < '0' || at[3] > '7' || t->bus < 0)
        return 0;
    snprintf(bdf, sizeof(bdf), "%s:%02x:%c%c.%c", t->domain, (unsigned)t->bus & 255,
            tolower((unsigned char)at[0]), tolower((unsigned char)at[1]), at[3]);
    p = dr_pci_device(r->d, r->machine, bdf, r->line);
    if (p->parent == DR_NONE)
        p->parent = t->bridge;
    *out = dr_pci_find(r->d, r->machine, bdf);
    return 4;
}

static void set_branch(struct dr_pci_reading *r, size_t column, const struct twig *t)
{
    if (column >= DR_TREE_COLUMNS)
        return;
    r->tree[column].bridge = t->bridge;
    r->tree[column].bus = t->bus;
    memcpy(r->tree[column].domain, t->domain, sizeof(t->domain));
    r->tree[column].set = true;
}

/* A branch that began on an earlier line. */
static bool on_branch(const struct dr_pci_reading *r, size_t column, struct twig *t)
{
    if (column >= DR_TREE_COLUMNS || !r->tree[column].set)
        return false;
    t->bridge = r->tree[column].bridge;
    t->bus = r->tree[column].bus;
    memcpy(t->domain, r->tree[column].domain, sizeof(t->domain));
    return true;
}

/* The rest of a line from @p at on, which hangs on @p t. */
static bool read_twigs(struct dr_pci_reading *r, size_t at, struct twig *t)
{
    const char *text = r->text;
    uint32_t last = DR_NONE;
    bool any = false;

    while (text[at] != 0) {
        size_t length = root(text + at, t);

        if (length == 0 && last != DR_NONE)
            length = buses(r, text + at, t, last);
        if (length == 0) {
            length = device(r, text + at, t, &last);
            if (length > 0 && (text[at + length] == ' ' || text[at + length] == 0)) {
                while (text[at + length] == ' ')
                    length++;
                name_of(r, last, text + at + length);
                return true;
            }
        }
        any = any || length > 0;
        if (length == 0 && (text[at] == '+' || text[at] == '\\'))
            set_branch(r, at, t);
        else if (length == 0 && text[at] != '-')
            return any;
        at += length > 0 ? length : 1;
    }
    return any;
}

bool dr_pci_read_tree(struct dr_pci_reading *r)
{
    const size_t lead = strspn(r->text, " |");
    const char *at = r->text + lead;
    struct twig t = { .bridge = DR_NONE, .bus = -1, .domain = "0000" };

    if ((at[0] == '-' && at[1] == '[') || (at[0] == '-' && at[1] == '+' && lead == 0)) {
        if (lead == 0)
            memset(r->tree, 0, sizeof(r->tree));
        r->in_tree = strchr(at, '[') != NULL && read_twigs(r, lead + 1, &t);
        return r->in_tree;
    }
    if (!r->in_tree || (at[0] != '+' && at[0] != '\\') || at[1] != '-')
        return false;
    if (!on_branch(r, lead, &t) && at[2] != '[')
        return false;
    return read_twigs(r, lead + 1, &t);
}
