/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proxmox: /etc/pve/qemu-server/ID.conf, as the file, as `qm config`, `qm pending`, a grep
 * or pvesh print it, and the mappings of /etc/pve/mapping/pci.cfg.
 */
#include "rules.h"
#include "vm.h"

#include <ctype.h>
#include <string.h>

/* What one source brings from line to line. */
struct context {
    const char *id; /* of the VM that is printed, "" if nothing says                  */
    uint32_t definition, command, line_chipset, keys;
    struct dr_span chipset; /* met before there was a definition                      */
    bool skip;              /* in a snapshot's section, or in what is only pending    */
};

/* ---- hostpci ---- */

#define FUNCTIONS_MAX 16
#define MAPPINGS_MAX  1024u

struct hostpci {
    struct dr_span address[FUNCTIONS_MAX]; /* as they are written, functions or slots */
    struct dr_span mapping, rest;          /* other options, with their commas        */
    uint32_t count;
    bool pcie, mediated, broken;
};

static struct dr_span next_part(const char **at, const char *end, char separator)
{
    struct dr_span part = { *at, 0 };

    while (*at < end && **at != separator)
        ++*at;
    part.length = (size_t)(*at - part.at);
    if (*at < end)
        ++*at;
    return part;
}

static bool has_key(struct dr_span part, const char *key, struct dr_span *value)
{
    const size_t length = strlen(key);

    if (part.length <= length || memcmp(part.at, key, length) != 0 ||
            part.at[length] != '=')
        return false;
    *value = (struct dr_span){ part.at + length + 1, part.length - length - 1 };
    return true;
}

static void read_addresses(struct hostpci *h, struct dr_span list)
{
    const char *at = list.at, *end = list.at + list.length;

    while (at < end && h->count < FUNCTIONS_MAX)
        h->address[h->count++] = next_part(&at, end, ';');
}

/* "0000:43:00.0;0000:43:00.1,pcie=1,…" */
static struct hostpci parse(struct dr_span value)
{
    struct hostpci h = { .count = 0 };
    const char *at = value.at, *end = value.at + value.length;
    bool first = true;

    while (at < end) {
        const struct dr_span part = next_part(&at, end, ',');
        struct dr_span found = { NULL, 0 };

        if (first && memchr(part.at, '=', part.length) == NULL)
            read_addresses(&h, part);
        else if (has_key(part, "host", &found))
            read_addresses(&h, found);
        else if (has_key(part, "mapping", &found))
            h.mapping = found;
        else if (has_key(part, "pcie", &found))
            h.pcie = dr_span_is(found, "1") || dr_span_is(found, "on") ||
                    dr_span_is(found, "yes") || dr_span_is(found, "true");
        else if (has_key(part, "mdev", &found) || has_key(part, "legacy-igd", &found))
            h.mediated = h.mediated || !dr_span_is(found, "0");
        else if (memchr(part.at, '=', part.length) == NULL)
            h.broken = true; /* cut */
        first = false;
    }
    return h;
}

/* Blanks, frames of a table, quotes and commas around a value. */
static struct dr_span trimmed(struct dr_span value)
{
    static const char around[] = " \t\"',|\xe2\x94\x82";

    while (value.length > 0 && strchr(around, *value.at) != NULL)
        value.at++, value.length--;
    while (value.length > 0 && strchr(around, value.at[value.length - 1]) != NULL)
        value.length--;
    return value;
}

/* "0000:43:00.0", "43:00": 1 a function, 0 a slot, -1 neither. Its number is the last. */
static int is_function(struct doctor *d, struct dr_span address)
{
    const char *text = dr_copy(d, address.at, address.length);

    if (dr_scan(text, "^%b%e", NULL))
        return 1;
    return dr_scan(dr_printf(d, "%s.0", text), "^%b%e", NULL) ? 0 : -1;
}

/* Whether addresses name more than one function, or the whole slot; NULL if not. */
static const char *more_than_one(struct doctor *d, const struct dr_span *address,
        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_function(d, address[i]) == 0)
            return dr_printf(d, "%.*s names the whole slot, all its functions",
                    (int)address[i].length, address[i].at);
    return count > 1 ? "it joins several functions" : NULL;
}

/* The part of the address before the function, with a domain. */
static const char *slot_of(struct doctor *d, struct dr_span address)
{
    const bool dot = address.length > 2 && address.at[address.length - 2] == '.';
    const size_t length = address.length - (dot ? 2 : 0);
    const bool domain =
            memchr(address.at, ':', length) != memrchr(address.at, ':', length);

    return dr_printf(d, "%s%.*s", domain ? "" : "0000:", (int)length, address.at);
}

/* The other options, as they were. */
static const char *others(struct doctor *d, struct dr_span value)
{
    const char *at = value.at, *end = value.at + value.length;
    const char *out = "";

    while (at < end) {
        const struct dr_span part = next_part(&at, end, ',');
        struct dr_span ignored;

        if (part.at != value.at && !has_key(part, "pcie", &ignored) &&
                !has_key(part, "host", &ignored) && !has_key(part, "mapping", &ignored))
            out = dr_printf(d, "%s,%.*s", out, (int)part.length, part.at);
    }
    return out;
}

static const struct dr_vm_mapping *mapping_of(const struct doctor *d,
        struct dr_span name)
{
    for (uint32_t i = 0; i < d->vm->num_mappings; i++)
        if (dr_span_is(name, d->vm->mappings[i].name))
            return &d->vm->mappings[i];
    return NULL;
}

/* A mapping has a path for each node or card; one that names a slot is enough. */
static void pass_mapping(struct doctor *d, uint32_t definition, const char *label,
        const struct hostpci *h, struct dr_span value, uint32_t line)
{
    const struct dr_vm_mapping *m = mapping_of(d, h->mapping);
    const char *name = dr_copy(d, h->mapping.at, h->mapping.length);
    struct dr_vm_device *device =
            dr_vm_pass(d, definition, label, m != NULL ? m->path : "", line);
    const char *line_new =
            dr_printf(d, "%s: mapping=%s,pcie=1%s", label, name, others(d, value));

    device->mapping = name;
    if (m == NULL)
        dr_vm_blame(d, device, DR_VM_UNDECIDED,
                dr_printf(d, "mapping %s is not in the text", name), "", line);
    for (uint32_t i = 0; m != NULL && i < d->vm->num_mappings; i++) {
        struct hostpci path = { .count = 0 };
        const char *why;

        m = &d->vm->mappings[i];
        if (!dr_span_is(h->mapping, m->name))
            continue;
        read_addresses(&path, (struct dr_span){ m->path, strlen(m->path) });
        why = more_than_one(d, path.address, path.count);
        if (why != NULL)
            dr_vm_blame(d, device, DR_VM_MULTIFUNCTION, why,
                    dr_printf(d, "in /etc/pve/mapping/pci.cfg, %s: path=%s.0", name,
                            slot_of(d, path.address[0])),
                    m->line);
    }
    if (!h->pcie && !h->broken)
        dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT, "pcie=1 is missing", line_new, line);
}

static void pass_addresses(struct doctor *d, uint32_t definition, const char *label,
        const struct hostpci *h, struct dr_span value, uint32_t line)
{
    const struct dr_span *first = &h->address[0];
    const char *why = more_than_one(d, h->address, h->count);
    const char *line_new = dr_printf(d, "%s: %s.0,pcie=1%s", label, slot_of(d, *first),
            others(d, value));
    struct dr_vm_device *device;

    /* its sound, passed by itself, is no GPU */
    if (why == NULL && first->at[first->length - 1] != '0')
        return;
    device = dr_vm_pass(d, definition, label, dr_copy(d, first->at, first->length),
            line);
    if (why != NULL)
        dr_vm_blame(d, device, DR_VM_MULTIFUNCTION, why, line_new, line);
    if (!h->pcie && !h->broken)
        dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT, "pcie=1 is missing", line_new, line);
    if (h->broken)
        dr_vm_blame(d, device, DR_VM_UNDECIDED, "the line is cut", "", line);
}

static void read_hostpci(struct doctor *d, struct context *c, const char *label,
        struct dr_span value, uint32_t line)
{
    struct hostpci h;

    value = trimmed(value);
    h = parse(value);
    if (h.mediated || (h.count == 0 && h.mapping.length == 0))
        return;
    for (uint32_t i = 0; i < h.count; i++)
        if (is_function(d, h.address[i]) < 0)
            return;
    if (c->definition == DR_NONE)
        c->definition = dr_vm_define(d, DR_VM_PROXMOX, c->id, line);
    if (h.mapping.length > 0)
        pass_mapping(d, c->definition, label, &h, value, line);
    else
        pass_addresses(d, c->definition, label, &h, value, line);
}

/* ---- lines ---- */

/* Whether what is not printed has its default: the output of a whole configuration. */
static void end_context(struct doctor *d, struct context *c, uint32_t line)
{
    struct dr_vm_definition *def;
    const char *typed = dr_command(d, line);

    if (c->definition == DR_NONE)
        return;
    def = &d->vm->definitions[c->definition];
    if (c->line_chipset != DR_NONE)
        dr_vm_set_chipset(d, c->definition, c->chipset, c->line_chipset);
    def->keys += c->keys;
    def->whole = def->whole ||
            (strchr(typed, '|') == NULL && !dr_has(typed, "grep")
                            ? c->keys >= 5
                            : dr_has(typed, "machine"));
}

/* "…/104.conf:hostpci0: …" of a grep: past the file's name, whose VM it is. */
static const char *past_file(struct doctor *d, struct context *c, const char *text,
        uint32_t line)
{
    struct dr_span out[2];
    const char *slash;
    const char *id;

    if (!dr_has(text, ".conf:") || !dr_scan(text, "^%*.conf:%*", out))
        return text;
    slash = memrchr(out[0].at, '/', out[0].length);
    id = slash != NULL
            ? dr_copy(d, slash + 1, (size_t)(out[0].at + out[0].length - slash - 1))
            : dr_copy(d, out[0].at, out[0].length);
    if (strspn(id, "0123456789") != strlen(id) || id[0] == 0)
        return text;
    if (strcmp(id, c->id) != 0) {
        end_context(d, c, line);
        *c = (struct context){ .id = id,
            .definition = DR_NONE,
            .command = c->command,
            .line_chipset = DR_NONE };
    }
    return out[1].at;
}

static void chipset(struct doctor *d, struct context *c, struct dr_span value,
        uint32_t line)
{
    c->chipset = trimmed(value);
    c->line_chipset = line;
    if (c->definition != DR_NONE)
        dr_vm_set_chipset(d, c->definition, c->chipset, line);
}

/* "args: -device vfio-pci,…": QEMU's own words on a VM of Proxmox. */
static void arguments(struct doctor *d, struct context *c, const char *text,
        uint32_t line)
{
    struct dr_vm_tokens *t;

    if (!dr_has(text, "vfio-pci"))
        return;
    t = dr_vm_tokens_begin(d, DR_VM_PROXMOX, c->id);
    dr_vm_token_line(d, t, text, line);
    dr_vm_tokens_end(d, t);
}

/* "hostpci0: V", "cur hostpci0: V", "-hostpci0 V", "\"hostpci0\":\"V\"", "│ hostpci0 │ V │" */
static bool is_hostpci(struct doctor *d, const char *text, const char **label,
        struct dr_span *value)
{
    static const char *const patterns[] = { "^hostpci%d: %*", "^cur hostpci%d: %*",
        "\"hostpci%d\":\"%w", "\"hostpci%d\" : \"%w", "\"hostpci%d\": \"%w",
        "^\xe2\x94\x82 hostpci%d %* %*", "^| hostpci%d | %*", " -hostpci%d %w",
        " --hostpci%d %w", " --hostpci%d=%w", " -hostpci%d=%w" };
    struct dr_span out[3];

    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        if (!dr_scan(text, patterns[i], out))
            continue;
        *label = dr_printf(d, "hostpci%.*s", (int)out[0].length, out[0].at);
        *value = out[i == 5 ? 2 : 1];
        /* JSON goes on behind the value */
        if (memchr(value->at, '"', value->length) != NULL)
            value->length =
                    (size_t)((const char *)memchr(value->at, '"', value->length) -
                            value->at);
        return true;
    }
    return false;
}

static void begin_context(struct doctor *d, struct context *c, uint32_t line)
{
    static const char *const patterns[] = { "qm config %d", "qm pending %d",
        "qm set %d", "qemu-server/%d.conf", "qemu/%d/config", "%<%d.conf%>" };
    const struct dr_source *s = &d->sources[d->lines[line].source];
    const char *typed = dr_command(d, line);
    const char *file = strrchr(s->name, '/');
    struct dr_span out[1];

    *c = (struct context){ .id = "",
        .definition = DR_NONE,
        .command = d->lines[line].command,
        .line_chipset = DR_NONE };
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        if (dr_scan(typed, patterns[i], out)) {
            c->id = dr_copy(d, out[0].at, out[0].length);
            return;
        }
    if (typed[0] == 0 && dr_scan(file != NULL ? file + 1 : s->name, "^%d.conf%e", out))
        c->id = dr_copy(d, out[0].at, out[0].length);
}

static void read_line(struct doctor *d, struct context *c, uint32_t line)
{
    const char *text = d->lines[line].text, *label;
    struct dr_span value, out[2];

    if (d->lines[line].flags & DR_REMARK)
        return;
    text = past_file(d, c, text, line);
    if (dr_scan(text, "^[%w]%e", NULL) && strchr(text, ' ') == NULL)
        c->skip = true;
    if (c->skip)
        return;
    if (dr_scan(text, "^%w: %*", out) && islower((unsigned char)text[0]) &&
            out[0].length < 24)
        c->keys++;
    if (dr_scan(text, "^machine: %*", out))
        chipset(d, c, out[0], line);
    else if (dr_has(text, "\"machine\"") &&
            (dr_scan(text, "\"machine\":\"%w", out) ||
                    dr_scan(text, "\"machine\" : \"%w", out) ||
                    dr_scan(text, "\"machine\": \"%w", out)) &&
            memchr(out[0].at, '"', out[0].length) != NULL)
        chipset(d, c,
                (struct dr_span){ out[0].at,
                        (size_t)((const char *)memchr(out[0].at, '"', out[0].length) -
                                out[0].at) },
                line);
    if (dr_begins(text, "args: "))
        arguments(d, c, text + 6, line);
    else if (dr_has(text, "hostpci") && is_hostpci(d, text, &label, &value))
        read_hostpci(d, c, label, value, line);
}

/* ---- pci.cfg ---- */

/* The word alone on its line above a "map": the mapping's name. */
static const char *mapping_name(struct doctor *d, uint32_t line)
{
    const struct dr_source *s = &d->sources[d->lines[line].source];

    for (uint32_t i = line; i > s->first && line - i < 24; i--) {
        const struct dr_line *above = &d->lines[i - 1];
        struct dr_span out[1];
        const char *text = above->text;

        if (dr_scan(text, "^pci: %w%e", out) ||
                (dr_scan(text, "^%w%e", out) && !isspace((unsigned char)text[0])))
            return dr_copy(d, out[0].at, out[0].length);
        if (above->flags & DR_COMMAND)
            break;
    }
    return NULL;
}

static void read_mapping(struct doctor *d, uint32_t line)
{
    struct dr_vm *vm = d->vm;
    const char *text = d->lines[line].text, *name;
    struct dr_vm_mapping *m;
    struct dr_span out[1];
    size_t at = 0, length;

    if (vm->num_mappings == MAPPINGS_MAX || !dr_word(text, &at, out) ||
            !dr_span_is(out[0], "map") || !dr_scan(text, "%<path=%w", out))
        return;
    name = mapping_name(d, line);
    if (name == NULL)
        return;
    length = strcspn(out[0].at, ", \t\"");
    m = DR_PUSH(d, vm->mappings, vm->num_mappings, vm->room_mappings);
    m->name = name;
    m->path = dr_copy(d, out[0].at, length < out[0].length ? length : out[0].length);
    m->line = line;
    dr_known(d, line);
}

/* A machine without PCI Express has no root ports. */
static void judge_chipsets(struct doctor *d)
{
    for (uint32_t i = 0; i < d->vm->num_devices; i++) {
        struct dr_vm_device *device = &d->vm->devices[i];
        const struct dr_vm_definition *def = &d->vm->definitions[device->definition];

        if (def->kind != DR_VM_PROXMOX)
            continue;
        if (def->chipset[0] != 0 && !dr_vm_has_pcie(def->chipset))
            dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT,
                    dr_printf(d, "the machine is %s, not q35", def->chipset),
                    "machine: q35", def->line_chipset);
        else if (def->chipset[0] == 0 && def->whole)
            dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT,
                    "without a machine: line it is i440fx, not q35", "machine: q35",
                    device->line);
        else if (def->chipset[0] == 0)
            dr_vm_blame(d, device, DR_VM_UNDECIDED, "", "", device->line);
    }
}

void dr_read_vm_proxmox(struct doctor *d)
{
    struct context c = { .id = "", .definition = DR_NONE, .line_chipset = DR_NONE };

    for (uint32_t i = 0; i < d->num_lines; i++)
        read_mapping(d, i);
    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (i == 0 || d->lines[i].source != d->lines[i - 1].source ||
                d->lines[i].command != c.command) {
            if (i > 0)
                end_context(d, &c, i - 1);
            begin_context(d, &c, i);
        }
        read_line(d, &c, i);
    }
    if (d->num_lines > 0)
        end_context(d, &c, d->num_lines - 1);
    judge_chipsets(d);
}
