/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See diff.h. Both sides become lists of facts, a key and a value each, which are sorted
 * and walked side by side. What is no setting and no device is compared line by line,
 * without what differs from run to run: stamps, process numbers, addresses.
 */
#include "diff.h"

#include "facts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Digits of a longer number are no fact of a line. */
#define LONG_NUMBER 4u

struct fact {
    const char *key, *value;
    const char *shown; /* of a line: as it stands; else NULL */
};

struct facts {
    struct doctor *d;
    struct fact *list;
    uint32_t num, room;
};

static void add(struct facts *f, const char *key, const char *value, const char *shown)
{
    struct fact *fact = DR_PUSH(f->d, f->list, f->num, f->room);

    fact->key = key;
    fact->value = value;
    fact->shown = shown;
}

/* ---- devices ---- */

/* "guest-03:00.0"-like: with the machine's name where there are several. */
static const char *device_name(struct facts *f, const struct dr_pci_device *p)
{
    const struct dr_machine *m = &f->d->machines[p->machine];

    if (p->machine == 0)
        return p->bdf;
    return dr_printf(f->d, "%s %s",
            m->name[0] != 0            ? m->name
                    : m->is_guest_file ? "guest"
                                       : "host",
            p->bdf);
}

static void add_number(struct facts *f, const char *name, const char *what,
        double value, bool known)
{
    if (known)
        add(f, dr_printf(f->d, "%s %s", name, what), dr_printf(f->d, "%g", value),
                NULL);
}

static void add_device(struct facts *f, const struct dr_pci_device *p)
{
    const char *name = device_name(f, p);
    const struct {
        const char *what;
        signed char bit;
    } bits[] = { { "AtomicOps routing", p->routing },
        { "32 bit completer", p->complete32 }, { "64 bit completer", p->complete64 },
        { "AtomicOps requester", p->requester },
        { "egress blocking", p->egress_blocked },
        { "ACS request redirect", p->acs_redirect_requests },
        { "ACS completion redirect", p->acs_redirect_completions } };

    add(f, dr_printf(f->d, "%s device", name),
            dr_printf(f->d, "%04x:%04x", (unsigned)p->vendor & 0xffff,
                    (unsigned)p->device & 0xffff),
            NULL);
    if (p->driver != NULL)
        add(f, dr_printf(f->d, "%s driver", name), p->driver, NULL);
    if (p->slot != NULL)
        add(f, dr_printf(f->d, "%s slot", name), p->slot, NULL);
    for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++)
        add_number(f, name, bits[i].what, bits[i].bit, bits[i].bit >= 0);
    add_number(f, name, "lanes", p->sta_width, p->sta_width > 0);
    add_number(f, name, "lanes it could have", p->cap_width, p->cap_width > 0);
    add_number(f, name, "GT/s", p->sta_speed, p->sta_speed > 0);
    add_number(f, name, "GT/s it could have", p->cap_speed, p->cap_speed > 0);
    add_number(f, name, "IOMMU group", p->iommu_group, p->iommu_group >= 0);
    add_number(f, name, "memory node", p->numa_node, p->numa_node >= 0);
    for (int i = 0; i < DR_REGIONS_MAX; i++)
        add_number(f, name, dr_printf(f->d, "bytes of region %d", i),
                (double)p->regions[i].bytes, p->regions[i].bytes > 0);
    if (p->parent != DR_NONE)
        add(f, dr_printf(f->d, "%s is below", name), f->d->pci->devices[p->parent].bdf,
                NULL);
}

/* ---- the run ---- */

static void add_run(struct facts *f)
{
    static const char *const ways[] = { [DR_VIA_P2P] = "peer to peer",
        [DR_VIA_SHM] = "host memory",
        [DR_VIA_NET] = "network",
        [DR_VIA_MIXED] = "mixed" };
    const enum dr_via via = dr_channels(f->d, NULL);
    const char *version = dr_run_version(f->d, NULL);
    const double plateau = dr_plateau(f->d, NULL);

    if (version != NULL)
        add(f, "library version", version, NULL);
    if (via != DR_VIA_NONE)
        add(f, "channels go by", ways[via], NULL);
    if (plateau > 0)
        add(f, "plateau, GB/s", dr_printf(f->d, "%.4g", plateau), NULL);
    if (dr_num_hosts(f->d) > 0)
        add(f, "hosts of the run", dr_printf(f->d, "%u", dr_num_hosts(f->d)), NULL);
    if (dr_stalled(f->d, NULL))
        add(f, "the run", "stands still", NULL);
}

/* ---- lines ---- */

static bool is_hexdump(const char *text)
{
    size_t digits = strspn(text, "0123456789abcdef");

    return digits >= 2 && digits <= 3 && text[digits] == ':' &&
            text[digits + 1] == ' ' && isxdigit((unsigned char)text[digits + 2]) &&
            isxdigit((unsigned char)text[digits + 3]) &&
            (text[digits + 4] == ' ' || text[digits + 4] == 0);
}

/* A line without what differs from run to run. */
static const char *normal(struct facts *f, const char *text)
{
    char *out = dr_alloc(f->d, strlen(text) + 1), *to = out;

    if (text[0] == '[' && (isdigit((unsigned char)text[1]) || text[1] == ' ')) {
        const char *end = strchr(text, ']');

        text = end != NULL ? end + 1 : text; /* a stamp */
    }
    while (*text == ' ' || *text == '\t')
        text++;
    while (*text != 0) {
        const size_t digits = strspn(text, "0123456789");
        const size_t hex = text[0] == '0' && text[1] == 'x'
                ? 2 + strspn(text + 2, "0123456789abcdefABCDEF")
                : 0;

        if (hex > 2 || digits >= LONG_NUMBER) {
            *to++ = '#';
            text += hex > 2 ? hex : digits;
        } else if (digits > 0) {
            memcpy(to, text, digits);
            to += digits;
            text += digits;
        } else {
            *to++ = *text++;
        }
    }
    *to = 0;
    return out;
}

/* Settings: PATH:VALUE, NAME=VALUE of a configuration, words of the command line. */
static bool add_setting(struct facts *f, const char *text, bool command_line)
{
    struct dr_span part[2];
    size_t at = 0;

    if (dr_scan(text, "^# CONFIG_%w is not set", part)) {
        add(f, dr_printf(f->d, "CONFIG_%.*s", (int)part[0].length, part[0].at),
                "not set", NULL);
        return true;
    }
    if (dr_begins(text, "CONFIG_") && strchr(text, '=') != NULL) {
        const size_t length = strcspn(text, "=");

        add(f, dr_copy(f->d, text, length), text + length + 1, NULL);
        return true;
    }
    if (command_line) {
        while (dr_word(text, &at, part)) {
            const char *equals = memchr(part[0].at, '=', part[0].length);
            const size_t key =
                    equals != NULL ? (size_t)(equals - part[0].at) : part[0].length;

            add(f, dr_printf(f->d, "kernel command line: %.*s", (int)key, part[0].at),
                    equals != NULL ? dr_copy(f->d, equals + 1, part[0].length - key - 1)
                                   : "there",
                    NULL);
        }
        return true;
    }
    if (dr_scan(text, "NCCL_%w set by environment to %w", part)) {
        add(f, dr_printf(f->d, "NCCL_%.*s", (int)part[0].length, part[0].at),
                dr_copy(f->d, part[1].at, part[1].length), NULL);
        return true;
    }
    return false;
}

/* "/sys/class/net/eth0/speed:10000": the path up to the last colon before a value; of a
 * file of several values, with the first word. */
static bool add_path(struct facts *f, const char *text)
{
    const char *colon = strrchr(text, '/');
    const char *space;

    colon = colon != NULL ? strchr(colon, ':') : NULL;
    if (text[0] != '/' || colon == NULL)
        return false;
    space = strchr(colon, ' ');
    if (space != NULL && dr_has(text, "/properties:"))
        add(f, dr_copy(f->d, text, (size_t)(space - text)), space + 1, NULL);
    else
        add(f, dr_copy(f->d, text, (size_t)(colon - text)), colon + 1, NULL);
    return true;
}

/* Whether the output that @p line belongs to is that line alone. */
static bool is_only_line(const struct doctor *d, uint32_t line)
{
    const uint32_t command = d->lines[line].command;

    return command != DR_NONE && line == command + 1 &&
            (line + 1 >= d->num_lines || d->lines[line + 1].command != command ||
                    d->lines[line + 1].length == 0);
}

static void add_line(struct facts *f, uint32_t i)
{
    const struct dr_line *line = &f->d->lines[i];
    const char *typed = dr_command(f->d, i);

    if (line->length == 0 || (line->flags & DR_COMMAND) || is_hexdump(line->text) ||
            dr_has(typed, "lspci") || dr_begins(line->text, "/sys/devices/pci"))
        return;
    if (add_setting(f, line->text,
                dr_has(typed, "/proc/cmdline") && i == line->command + 1) ||
            add_path(f, line->text))
        return;
    if (is_only_line(f->d, i))
        add(f, typed, line->text, NULL);
    else
        add(f, normal(f, line->text), "", line->text);
}

static int by_key(const void *a, const void *b)
{
    const struct fact *x = a, *y = b;
    const int order = strcmp(x->key, y->key);

    return order != 0 ? order : strcmp(x->value, y->value);
}

static struct facts facts_of(struct doctor *d)
{
    struct facts f = { .d = d };
    uint32_t kept = 0;

    for (uint32_t i = 0; d->pci != NULL && i < d->pci->num_devices; i++)
        add_device(&f, &d->pci->devices[i]);
    add_run(&f);
    for (uint32_t i = 0; i < d->num_lines; i++)
        add_line(&f, i);
    if (f.num > 0)
        qsort(f.list, f.num, sizeof(*f.list), by_key);
    for (uint32_t i = 0; i < f.num; i++) /* said twice is said once */
        if (kept == 0 || by_key(&f.list[kept - 1], &f.list[i]) != 0)
            f.list[kept++] = f.list[i];
    f.num = kept;
    return f;
}

/* ---- comparing ---- */

static void note(struct dr_diff *out, struct facts *f, const struct fact *before,
        const struct fact *after)
{
    const struct fact *any = before != NULL ? before : after;
    const bool line = any->shown != NULL;
    struct dr_change *c;

    if (line && out->num >= DR_DIFF_LINES) {
        out->more++;
        return;
    }
    c = DR_PUSH(f->d, out->changes, out->num, out->room);
    c->what = line ? "" : any->key;
    c->before = before == NULL ? NULL : line ? before->shown : before->value;
    c->after = after == NULL ? NULL : line ? after->shown : after->value;
}

void dr_compare(struct doctor *before, struct doctor *after, struct dr_diff *out)
{
    struct facts a = facts_of(before), b = facts_of(after);
    uint32_t i = 0, k = 0;

    for (int lines = 0; lines < 2; lines++)
        for (i = k = 0; i < a.num || k < b.num;) {
            const int order = i == a.num ? 1
                    : k == b.num         ? -1
                                         : strcmp(a.list[i].key, b.list[k].key);
            const struct fact *x = order <= 0 ? &a.list[i++] : NULL,
                              *y = order >= 0 ? &b.list[k++] : NULL;
            const struct fact *any = x != NULL ? x : y;

            /* settings and devices first, lines after them */
            if ((any->shown != NULL) == (lines == 1) &&
                    (x == NULL || y == NULL || strcmp(x->value, y->value) != 0))
                note(out, &b, x, y);
        }
}

bool dr_also_found(const struct doctor *other, const struct dr_finding *f)
{
    for (uint32_t i = 0; i < other->num_findings; i++) {
        const struct dr_finding *o = &other->findings[i];

        if (o->code == f->code && strcmp(o->subject, f->subject) == 0)
            return true;
    }
    return false;
}
