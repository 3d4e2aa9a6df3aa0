/* SPDX-License-Identifier: Apache-2.0 */
/* Domains of libvirt: /etc/libvirt/qemu/NAME.xml and `virsh dumpxml`. */
#include "rules.h"
#include "vm.h"
#include "xml.h"

#include <string.h>

#define CONTROLLERS_MAX 256
#define HOSTDEVS_MAX    64
#define DOMAINS_MAX     256

struct controller {
    bool is_pci;
    uint64_t index;
    char model[40];
};

struct hostdev {
    bool is_pci, has_guest, multifunction;
    uint64_t domain, bus, slot, function; /* on the host   */
    uint64_t guest_bus, guest_slot, guest_function;
    uint32_t line, line_guest;
};

struct domain {
    struct controller controllers[CONTROLLERS_MAX];
    struct hostdev hostdevs[HOSTDEVS_MAX];
    uint32_t num_controllers, num_hostdevs;
    bool in_hostdev, in_source, in_controller;
    const char *name, *machine;
    struct dr_vm_tokens *tokens; /* of <qemu:commandline> */
    uint32_t line_machine;
};

static uint64_t number(const char *value)
{
    const struct dr_span span = { value, strlen(value) };
    uint64_t out = 0;

    if (dr_begins(value, "0x"))
        (void)dr_span_hex(span, &out);
    else
        (void)dr_span_u64(span, &out);
    return out;
}

/* Names are short; the rest of a longer one is of no use. */
static void keep_name(char *out, size_t size, const char *name)
{
    const size_t length = strnlen(name, size - 1);

    memcpy(out, name, length);
    out[length] = 0;
}

static void begin_element(struct domain *o, const struct dr_xml *e)
{
    if (strcmp(e->name, "controller") == 0 && o->num_controllers < CONTROLLERS_MAX) {
        o->in_controller = true;
        o->controllers[o->num_controllers++] = (struct controller){ .is_pci = false };
    } else if (strcmp(e->name, "hostdev") == 0 && o->num_hostdevs < HOSTDEVS_MAX) {
        o->in_hostdev = true;
        o->hostdevs[o->num_hostdevs++] = (struct hostdev){ .line = e->line };
    } else if (strcmp(e->name, "source") == 0) {
        o->in_source = true;
    }
}

static void controller_attribute(struct domain *o, const struct dr_xml *e)
{
    struct controller *c = &o->controllers[o->num_controllers - 1];

    if (strcmp(e->name, "type") == 0)
        c->is_pci = strcmp(e->value, "pci") == 0;
    else if (strcmp(e->name, "index") == 0)
        c->index = number(e->value);
    else if (strcmp(e->name, "model") == 0)
        keep_name(c->model, sizeof(c->model), e->value);
}

/* An attribute of <address>: the host's inside <source>, else the guest's. */
static void address_attribute(struct domain *o, const struct dr_xml *e)
{
    struct hostdev *h = &o->hostdevs[o->num_hostdevs - 1];
    struct {
        const char *name;
        uint64_t *host, *guest;
    } const fields[] = { { "domain", &h->domain, NULL },
        { "bus", &h->bus, &h->guest_bus }, { "slot", &h->slot, &h->guest_slot },
        { "function", &h->function, &h->guest_function } };

    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        uint64_t *to = o->in_source ? fields[i].host : fields[i].guest;

        if (to != NULL && strcmp(e->name, fields[i].name) == 0)
            *to = number(e->value);
    }
    if (o->in_source)
        return;
    h->line_guest = e->line;
    h->has_guest = h->has_guest || strcmp(e->name, "bus") == 0;
    if (strcmp(e->name, "multifunction") == 0)
        h->multifunction = strcmp(e->value, "on") == 0;
}

/* The element that an attribute is of is the last one begun. */
struct visit {
    struct domain *domain;
    char element[40];
};

static void attribute(struct doctor *d, struct visit *v, const struct dr_xml *e)
{
    struct domain *o = v->domain;

    if (o->in_controller && strcmp(v->element, "controller") == 0) {
        controller_attribute(o, e);
    } else if (o->in_hostdev && strcmp(v->element, "hostdev") == 0) {
        if (strcmp(e->name, "type") == 0)
            o->hostdevs[o->num_hostdevs - 1].is_pci = strcmp(e->value, "pci") == 0;
    } else if (o->in_hostdev && strcmp(v->element, "address") == 0) {
        address_attribute(o, e);
    } else if (strcmp(v->element, "type") == 0 && strcmp(e->name, "machine") == 0) {
        o->machine = dr_copy(d, e->value, strlen(e->value));
        o->line_machine = e->line;
    } else if (strcmp(v->element, "arg") == 0 && strcmp(e->name, "value") == 0) {
        if (o->tokens == NULL)
            o->tokens = dr_vm_tokens_begin(d, DR_VM_LIBVIRT, o->name);
        dr_vm_token(d, o->tokens, e->value, e->line);
    }
}

static void visit(struct doctor *d, void *arg, const struct dr_xml *e)
{
    struct visit *v = arg;
    struct domain *o = v->domain;

    if (e->what == DR_XML_BEGIN) {
        keep_name(v->element, sizeof(v->element), e->name);
        begin_element(o, e);
    } else if (e->what == DR_XML_ATTRIBUTE) {
        attribute(d, v, e);
    } else if (e->what == DR_XML_TEXT) {
        if (e->depth == 1 && strcmp(e->name, "name") == 0)
            o->name = dr_copy(d, e->value, strlen(e->value));
    } else if (strcmp(e->name, "hostdev") == 0) {
        o->in_hostdev = false;
    } else if (strcmp(e->name, "source") == 0) {
        o->in_source = false;
    } else if (strcmp(e->name, "controller") == 0) {
        o->in_controller = false;
    }
}

/* ---- judging ---- */

static const struct controller *bus_of(const struct domain *o, uint64_t bus)
{
    for (uint32_t i = 0; i < o->num_controllers; i++)
        if (o->controllers[i].is_pci && o->controllers[i].index == bus)
            return &o->controllers[i];
    return NULL;
}

static void judge_guest(struct doctor *d, const struct domain *o,
        const struct hostdev *h, struct dr_vm_device *device)
{
    const struct controller *c = bus_of(o, h->guest_bus);
    const char *instead = "<address type='pci' bus='N' slot='0x00' function='0x0'/> "
                          "with N the index of a pcie-root-port of its own";

    if (h->multifunction)
        dr_vm_blame(d, device, DR_VM_MULTIFUNCTION,
                "its guest address has multifunction='on'",
                dr_printf(d,
                        "<address type='pci' domain='0x0000' bus='0x%02x' "
                        "slot='0x00' function='0x0'/>",
                        (unsigned)h->guest_bus),
                h->line_guest);
    if (c == NULL && h->guest_bus == 0)
        dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT, "its guest bus is 0, the root bus",
                instead, h->line_guest);
    else if (c == NULL)
        dr_vm_blame(d, device, DR_VM_UNDECIDED,
                dr_printf(d, "controller %u of its bus is not in the text",
                        (unsigned)h->guest_bus),
                "", h->line_guest);
    else if (strcmp(c->model, "pcie-root-port") != 0)
        dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT,
                dr_printf(d, "the controller of its bus %u is a %s",
                        (unsigned)h->guest_bus, c->model),
                instead, h->line_guest);
    else if (h->guest_slot != 0 || h->guest_function != 0)
        dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT,
                "its guest address is not slot 0, function 0", instead, h->line_guest);
}

static bool shares_port(const struct domain *o, const struct hostdev *h)
{
    for (uint32_t i = 0; i < o->num_hostdevs; i++)
        if (&o->hostdevs[i] != h && o->hostdevs[i].is_pci && o->hostdevs[i].has_guest &&
                o->hostdevs[i].guest_bus == h->guest_bus)
            return true;
    return false;
}

static void judge(struct doctor *d, const struct domain *o, uint32_t first)
{
    uint32_t definition = DR_NONE;

    for (uint32_t i = 0; i < o->num_hostdevs; i++) {
        const struct hostdev *h = &o->hostdevs[i];
        struct dr_vm_device *device;
        const char *host;

        if (!h->is_pci || h->function != 0)
            continue; /* its sound, or a virtual function */
        if (definition == DR_NONE) {
            definition = dr_vm_define(d, DR_VM_LIBVIRT, o->name, first);
            dr_vm_set_chipset(d, definition,
                    (struct dr_span){ o->machine, strlen(o->machine) },
                    o->line_machine);
        }
        host = dr_printf(d, "%04x:%02x:%02x.0", (unsigned)(h->domain & 0xffff),
                (unsigned)(h->bus & 0xff), (unsigned)(h->slot & 0x1f));
        device = dr_vm_pass(d, definition, host, host, h->line);
        if (h->has_guest)
            judge_guest(d, o, h, device);
        if (h->has_guest && device->fault == 0 && shares_port(o, h))
            dr_vm_blame(d, device, DR_VM_UNDECIDED,
                    "another passed function shares its root port, whose bits stay as "
                    "the first of them left them",
                    "", h->line_guest);
        if (!h->has_guest)
            dr_vm_blame(d, device, DR_VM_UNDECIDED, "it has no guest address yet", "",
                    h->line);
        if (o->machine[0] != 0 && !dr_vm_has_pcie(o->machine))
            dr_vm_blame(d, device, DR_VM_NO_ROOT_PORT,
                    dr_printf(d, "the machine is %s, not q35", o->machine),
                    "machine='q35'", o->line_machine);
    }
}

/* "<domain type='kvm'>", not the "<domain type='kvm'/>" of what a host can do. */
static bool begins_domain(const char *text)
{
    return dr_has(text, "<domain>") ||
            (dr_scan(text, "<domain type=", NULL) && !dr_has(text, "/>"));
}

/* ---- pieces of a domain ---- */

/* The value of an attribute on one line. */
static bool attribute_of(const char *text, const char *name, struct dr_span *value)
{
    const char *at = strstr(text, name);
    size_t length;

    if (at == NULL)
        return false;
    at += strlen(name);
    if (*at != '\'' && *at != '"')
        return false;
    length = strcspn(at + 1, "'\"");
    *value = (struct dr_span){ at + 1, length };
    return at[1 + length] != 0;
}

static void piece_of_controller(struct domain *o, const char *text)
{
    struct dr_span index, model;
    struct controller *c;

    if (!attribute_of(text, " index=", &index) ||
            !attribute_of(text, " model=", &model) ||
            o->num_controllers == CONTROLLERS_MAX)
        return;
    c = &o->controllers[o->num_controllers];
    *c = (struct controller){ .is_pci = true };
    if (!dr_span_u64(index, &c->index) || model.length >= sizeof(c->model))
        return;
    memcpy(c->model, model.at, model.length);
    o->num_controllers++;
}

/* One line of what a grep left of a domain; the line after what was read. */
static uint32_t piece(struct doctor *d, struct domain *o, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct visit v = { .domain = o, .element = "" };
    struct dr_span machine;

    if (dr_has(text, "<controller type='pci'")) {
        piece_of_controller(o, text);
    } else if (dr_has(text, "<type ") && attribute_of(text, " machine=", &machine)) {
        o->machine = dr_copy(d, machine.at, machine.length);
        o->line_machine = line;
    } else if (dr_has(text, "<hostdev ") && dr_has(text, "type='pci'") &&
            o->num_hostdevs < HOSTDEVS_MAX) {
        return dr_xml_walk(d, line, visit, &v);
    }
    return line + 1;
}

/* The domain that a command asks for, or NULL. */
static const char *dumped(struct doctor *d, uint32_t line)
{
    struct dr_span out[1];

    if ((d->lines[line].flags & DR_COMMAND) == 0 ||
            !dr_scan(dr_command(d, line), "dumpxml %w", out))
        return NULL;
    return dr_copy(d, out[0].at, out[0].length);
}

static void forget(struct domain *o, uint32_t line)
{
    memset(o, 0, sizeof(*o));
    o->name = o->machine = "";
    o->line_machine = line;
}

static uint32_t whole(struct doctor *d, struct domain *o, uint32_t line)
{
    struct visit v = { .domain = o, .element = "" };
    uint32_t end;

    forget(o, line);
    dr_known(d, line);
    end = dr_xml_walk(d, line, visit, &v);
    judge(d, o, line);
    if (o->tokens != NULL)
        dr_vm_tokens_end(d, o->tokens);
    forget(o, line);
    return end;
}

void dr_read_vm_libvirt(struct doctor *d)
{
    struct domain *o = dr_alloc(d, sizeof(*o));
    uint32_t first = 0, next, count = 0;

    forget(o, 0);
    for (uint32_t i = 0; i < d->num_lines; i = next) {
        const char *name = dumped(d, i);

        /* a controller belongs to what was printed of the same domain */
        if (d->lines[i].source != d->lines[first].source ||
                (name != NULL && strcmp(name, o->name) != 0)) {
            judge(d, o, first);
            if (o->num_hostdevs + o->num_controllers > 0)
                forget(o, i);
            o->name = name != NULL ? name : "";
            first = i;
        }
        next = i + 1;
        if (strchr(d->lines[i].text, '<') == NULL || count == DOMAINS_MAX)
            continue;
        if (begins_domain(d->lines[i].text)) {
            next = whole(d, o, i);
            count++;
        } else {
            next = piece(d, o, i);
            count += next > i + 1;
        }
        next = next > i ? next : i + 1;
    }
    judge(d, o, first);
}
