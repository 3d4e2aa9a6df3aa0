/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines of QEMU: in scripts, in ps, in libvirt's logs, from `qm showcmd` and from
 * /proc/PID/cmdline, a token at a time. Only -device and -machine matter.
 */
#include "rules.h"
#include "vm.h"

#include <ctype.h>
#include <string.h>

/* Devices of one command line that are looked at. */
#define DEVICES_MAX 1024u

/* One -device: "driver,key=value,…" or {"driver":"…","key":…}. */
struct device {
    struct dr_span driver, id, host, bus, addr, multifunction;
    uint32_t line;
};

struct dr_vm_tokens {
    enum dr_vm_kind kind;
    const char *id;
    struct device *devices;
    uint32_t count, room;
    uint32_t first, line_machine;
    const char *pending; /* the option whose value comes next */
    struct dr_span machine;
};

/* ---- one option ---- */

static struct dr_span *member(struct device *dev, struct dr_span key)
{
    struct {
        const char *name;
        struct dr_span *to;
    } const members[] = { { "driver", &dev->driver }, { "id", &dev->id },
        { "host", &dev->host }, { "sysfsdev", &dev->host }, { "bus", &dev->bus },
        { "addr", &dev->addr }, { "multifunction", &dev->multifunction } };

    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
        if (dr_span_is(key, members[i].name))
            return members[i].to;
    return NULL;
}

static void read_plain(struct device *dev, const char *text)
{
    dev->driver = (struct dr_span){ text, strcspn(text, ",") };
    if (dr_begins(text, "driver="))
        dev->driver.length = 0;
    for (text += dev->driver.length; *text != 0;) {
        const size_t key = strcspn(text + (*text == ','), "=,");
        const char *at = text + (*text == ',');
        const size_t value = at[key] == '=' ? strcspn(at + key + 1, ",") : 0;
        struct dr_span *to = member(dev, (struct dr_span){ at, key });

        if (to != NULL)
            *to = (struct dr_span){ at + key + 1, value };
        text = at + key + (at[key] == '=') + value;
        if (text == at)
            break;
    }
}

static void read_json(struct device *dev, const char *text)
{
    while ((text = strchr(text, '"')) != NULL) {
        const size_t key = strcspn(text + 1, "\"");
        struct dr_span *to = member(dev, (struct dr_span){ text + 1, key });
        struct dr_span value;

        text += 1 + key;
        if (*text == 0)
            return;
        text += 1 + strspn(text + 1, " ");
        if (*text != ':')
            continue;
        text += 1 + strspn(text + 1, " ");
        if (*text == '"') {
            value = (struct dr_span){ text + 1, strcspn(text + 1, "\"") };
            text += 1 + value.length + (text[1 + value.length] != 0);
        } else {
            value = (struct dr_span){ text, strcspn(text, ",}") };
        }
        if (to != NULL)
            *to = value;
    }
}

/* ---- tokens ---- */

struct dr_vm_tokens *dr_vm_tokens_begin(struct doctor *d, enum dr_vm_kind kind,
        const char *id)
{
    struct dr_vm_tokens *t = dr_alloc(d, sizeof(*t));

    t->kind = kind;
    t->id = id;
    t->first = DR_NONE;
    return t;
}

static void add_device(struct doctor *d, struct dr_vm_tokens *t, const char *text,
        uint32_t line)
{
    struct device dev = { .line = line };

    if (text[0] == '{')
        read_json(&dev, text);
    else
        read_plain(&dev, text);
    if (dev.driver.length > 0 && t->count < DEVICES_MAX)
        *DR_PUSH(d, t->devices, t->count, t->room) = dev;
}

void dr_vm_token(struct doctor *d, struct dr_vm_tokens *t, const char *token,
        uint32_t line)
{
    struct dr_span out[1];
    const char *option = token[0] == '-' && token[1] == '-' ? token + 1 : token;

    if (t->first == DR_NONE)
        t->first = line;
    if (t->pending != NULL) {
        const char *text = dr_copy(d, token, strlen(token));

        if (strcmp(t->pending, "device") == 0) {
            add_device(d, t, text, line);
        } else if (strcmp(t->pending, "machine") == 0) {
            t->machine = (struct dr_span){ text, strlen(text) };
            t->line_machine = line;
        } else if (t->id[0] == 0) {
            t->id = dr_copy(d, text, strcspn(text, ","));
            if (dr_begins(t->id, "guest="))
                t->id += strlen("guest=");
        }
        t->pending = NULL;
    } else if (strcmp(option, "-device") == 0) {
        t->pending = "device";
    } else if (strcmp(option, "-machine") == 0 || strcmp(option, "-M") == 0) {
        t->pending = "machine";
    } else if (strcmp(option, "-id") == 0 || strcmp(option, "-name") == 0) {
        t->pending = "name";
    } else if (dr_scan(option, "^-machine=%w", out)) {
        t->machine =
                (struct dr_span){ dr_copy(d, out[0].at, out[0].length), out[0].length };
        t->line_machine = line;
    }
}

/* One token as a shell takes it, its quotes off; false at the end. */
static bool next_token(const char *text, size_t *at, char *out, size_t size)
{
    size_t used = 0;
    char quote = 0;

    while (text[*at] == ' ' || text[*at] == '\t' || text[*at] == '(' ||
            text[*at] == ')' || (text[*at] == '\\' && text[*at + 1] == 0))
        ++*at;
    if (text[*at] == 0)
        return false;
    for (; text[*at] != 0; ++*at) {
        const char c = text[*at];

        if (quote != 0 ? c == quote : c == '\'' || c == '"') {
            quote = quote != 0 ? 0 : c;
            continue;
        }
        if (quote == 0 && (c == ' ' || c == '\t' || c == ')'))
            break;
        /* JSON without quotes around it has blanks that belong to it nowhere */
        if (used + 1 < size)
            out[used++] = c;
    }
    out[used] = 0;
    return true;
}

void dr_vm_token_line(struct doctor *d, struct dr_vm_tokens *t, const char *text,
        uint32_t line)
{
    const size_t size = strlen(text) + 1;
    char *token = dr_alloc(d, size);
    size_t at = 0;

    while (next_token(text, &at, token, size))
        dr_vm_token(d, t, token, line);
}

/* ---- judging ---- */

static const struct device *by_id(const struct dr_vm_tokens *t, struct dr_span id)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (id.length > 0 && t->devices[i].id.length == id.length &&
                memcmp(t->devices[i].id.at, id.at, id.length) == 0)
            return &t->devices[i];
    return NULL;
}

/* "00.0", "0x0", "0", "01.0": slot 0, function 0? Left out it is. */
static bool is_first_function(struct dr_span addr)
{
    const char *dot;
    uint64_t slot = 0, function = 0;
    struct dr_span first = addr;

    if (addr.length == 0)
        return true;
    dot = memchr(addr.at, '.', addr.length);
    if (dot != NULL) {
        first.length = (size_t)(dot - addr.at);
        if (!dr_span_hex((struct dr_span){ dot + 1, addr.length - first.length - 1 },
                    &function))
            return true;
    }
    return !dr_span_hex(first, &slot) || (slot == 0 && function == 0);
}

static bool is_on(struct dr_span value)
{
    return dr_span_is(value, "on") || dr_span_is(value, "true") ||
            dr_span_is(value, "yes") || dr_span_is(value, "y");
}

static bool is_root_port(struct dr_span driver)
{
    return dr_span_is(driver, "pcie-root-port") || dr_span_is(driver, "ioh3420");
}

/* Why a device on @p bus is not below a root port; NULL if it is, or if @p undecided. */
static const char *bus_fault(struct doctor *d, const struct dr_vm_tokens *t,
        const struct device *dev, bool *undecided)
{
    const struct device *port = by_id(t, dev->bus);
    const char *bus =
            dr_copy(d, dev->bus.at != NULL ? dev->bus.at : "", dev->bus.length);

    *undecided = false;
    if (bus[0] == 0)
        return "it has no bus=, so it sits on the root bus";
    if (port != NULL)
        return is_root_port(port->driver)
                ? NULL
                : dr_printf(d, "%s is a %.*s, not a root port", bus,
                          (int)port->driver.length, port->driver.at);
    if (dr_has(bus, "pcie-port") || dr_has(bus, "root-port"))
        return NULL; /* defined by a -readconfig of Proxmox's */
    if (dr_scan(bus, "^pcie.%d%e", NULL))
        return dr_printf(d, "bus=%s is the root bus", bus);
    if (dr_scan(bus, "^pci.%d%e", NULL) && strchr(bus, '$') == NULL &&
            t->kind != DR_VM_LIBVIRT)
        return dr_printf(d, "bus=%s is a conventional bus", bus);
    *undecided = true;
    return NULL;
}

/* Another passed function on the port of @p dev: its completer bits stay as the first of
 * them leaves them. */
static bool shares_port(const struct dr_vm_tokens *t, const struct device *dev)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const struct device *other = &t->devices[i];

        if (other != dev && dr_span_is(other->driver, "vfio-pci") &&
                other->bus.length == dev->bus.length && dev->bus.length > 0 &&
                memcmp(other->bus.at, dev->bus.at, dev->bus.length) == 0)
            return true;
    }
    return false;
}

static const char *as_written(struct doctor *d, const struct device *dev)
{
    const char *host =
            dr_copy(d, dev->host.at != NULL ? dev->host.at : "", dev->host.length);
    const char *slash = strrchr(host, '/');

    return slash != NULL ? slash + 1 : host;
}

static void pass(struct doctor *d, const struct dr_vm_tokens *t, uint32_t definition,
        const struct device *dev, uint32_t number)
{
    const char *host = as_written(d, dev), *instead;
    struct dr_vm_device *device;
    struct dr_span out[1];
    const char *fault;
    char bdf[DR_BDF_MAX] = "";
    bool undecided;

    if (dr_scan(host, "^%b%e", out)) {
        (void)dr_span_bdf(out[0], bdf);
        if (bdf[strlen(bdf) - 1] != '0')
            return; /* its sound, or a virtual function */
    } else if (dr_scan(host, "^%x-%x-%x-%x-%x%e", NULL)) {
        return; /* a mediated device, by its UUID */
    }
    device = dr_vm_pass(d, definition,
            bdf[0] != 0       ? bdf
                    : host[0] ? host
                              : dr_printf(d, "vfio-pci device %u", number),
            host, dev->line);
    instead = dr_printf(d,
            "-device pcie-root-port,id=rp%u,bus=pcie.0,chassis=%u "
            "-device vfio-pci,host=%s,bus=rp%u",
            number, number, bdf[0] != 0 ? bdf : host, number);
    if (is_on(dev->multifunction))
        dr_vm_blame(d, device, DR_VM_MULTIFUNCTION, "multifunction=on is set on it",
                instead, dev->line);
    fault = bus_fault(d, t, dev, &undecided);
    if (fault != NULL)
        dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT, fault, instead, dev->line);
    else if (!is_first_function(dev->addr))
        dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT,
                dr_printf(d, "addr=%.*s is not slot 0, function 0 of its port",
                        (int)dev->addr.length, dev->addr.at),
                instead, dev->line);
    if (device->fault == 0 && shares_port(t, dev))
        dr_vm_blame(d, device, DR_VM_UNDECIDED,
                "another passed function shares its root port, whose bits stay as the "
                "first of them left them",
                instead, dev->line);
    if (undecided)
        dr_vm_blame(d, device, DR_VM_UNDECIDED,
                dr_printf(d, "its bus %.*s is not defined in the text",
                        (int)dev->bus.length, dev->bus.at),
                "", dev->line);
}

void dr_vm_tokens_end(struct doctor *d, struct dr_vm_tokens *t)
{
    uint32_t definition = DR_NONE, number = 0;

    for (uint32_t i = 0; i < t->count; i++) {
        const struct device *dev = &t->devices[i];

        if (!dr_span_is(dev->driver, "vfio-pci") &&
                !dr_span_is(dev->driver, "vfio-pci-nohotplug"))
            continue;
        if (definition == DR_NONE) {
            definition = dr_vm_define(d, t->kind, t->id, t->first);
            if (t->machine.length > 0)
                dr_vm_set_chipset(d, definition, t->machine, t->line_machine);
        }
        pass(d, t, definition, dev, ++number);
    }
}

static void judge_chipset(struct doctor *d, uint32_t index)
{
    struct dr_vm_device *device = &d->vm->devices[index];
    const struct dr_vm_definition *def = &d->vm->definitions[device->definition];

    if (def->kind == DR_VM_QEMU && def->chipset[0] != 0 &&
            strchr(def->chipset, '$') == NULL && !dr_vm_has_pcie(def->chipset))
        dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT,
                dr_printf(d, "the machine is %s, not q35", def->chipset),
                "-machine q35", def->line_chipset);
}

/* ---- where command lines stand ---- */

static bool names_qemu(const char *text)
{
    return dr_has(text, "qemu-system-") ||
            (dr_has(text, "kvm") &&
                    (dr_scan(text, "%<qemu-kvm %*", NULL) || dr_has(text, "/kvm ") ||
                            dr_scan(text, "%<kvm -%*", NULL) ||
                            dr_scan(text, "/bin/kvm%e", NULL)));
}

static bool has_option(const char *text)
{
    return dr_has(text, "-device") || dr_has(text, "-machine") ||
            dr_has(text, " -M ") || dr_begins(text, "-M ");
}

/* A search for a process is none. */
static bool is_search(const char *text)
{
    return dr_has(text, "grep") || dr_has(text, "--version") || dr_has(text, "pidof");
}

void dr_read_vm_qemu(struct doctor *d)
{
    struct dr_vm_tokens *t = NULL;
    bool named = false;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *line = &d->lines[i];
        const bool starts = names_qemu(line->text) && !is_search(line->text);
        const bool leaves = t != NULL &&
                (line->source != d->lines[i - 1].source || (line->flags & DR_COMMAND) ||
                        (starts && named));

        if (leaves) {
            dr_vm_tokens_end(d, t);
            t = NULL;
        }
        if (t == NULL) {
            if ((!starts && !has_option(line->text)) || is_search(line->text) ||
                    (dr_has(line->text, "args: ") && !starts))
                continue;
            t = dr_vm_tokens_begin(d, DR_VM_QEMU, "");
            named = false;
        }
        named = named || starts;
        if ((line->flags & DR_REMARK) == 0)
            dr_vm_token_line(d, t, line->text, i);
    }
    if (t != NULL)
        dr_vm_tokens_end(d, t);
    for (uint32_t i = 0; i < d->vm->num_devices; i++)
        judge_chipset(d, i);
}
