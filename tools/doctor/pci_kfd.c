/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KFD's topology as text: PATH:NAME VALUE of grep, or the path (in a command, alone on a
 * line, or as head prints it) and then NAME VALUE lines.
 */
#include "pci_read.h"

#include <string.h>

/* More nodes, or links of one, than any machine has. */
#define NODES_MAX 128

/* ---- records ---- */

static struct dr_kfd_node *node(struct dr_pci_reading *r, int number)
{
    struct dr_pci *pci = r->d->pci;
    struct dr_kfd_node *n;

    for (uint32_t i = 0; i < pci->num_nodes; i++)
        if (pci->nodes[i].machine == r->machine && pci->nodes[i].number == number)
            return &pci->nodes[i];
    n = DR_PUSH(r->d, pci->nodes, pci->num_nodes, pci->room_nodes);
    *n = (struct dr_kfd_node){ .machine = r->machine,
        .number = number,
        .cpu_cores = -1,
        .simds = -1,
        .gfx_version = -1,
        .location = -1,
        .domain = -1,
        .device = DR_NONE,
        .line = r->line };
    return n;
}

/* The link in place @p place of node @p number. */
static struct dr_kfd_link *link_of(struct dr_pci_reading *r, int number, int place)
{
    struct dr_pci *pci = r->d->pci;
    struct dr_kfd_link *l;

    for (uint32_t i = pci->num_links; i-- > 0;) /* the last is the likeliest */
        if (pci->links[i].machine == r->machine && pci->links[i].node == number &&
                pci->links[i].place == place)
            return &pci->links[i];
    l = DR_PUSH(r->d, pci->links, pci->num_links, pci->room_links);
    *l = (struct dr_kfd_link){ .machine = r->machine,
        .node = number,
        .place = place,
        .from = number,
        .to = -1,
        .type = -1,
        .flags = -1,
        .line = r->line };
    return l;
}

/* ---- lines ---- */

static bool node_property(struct dr_pci_reading *r, int number, struct dr_span name,
        uint64_t value)
{
    struct dr_kfd_node *n = node(r, number);

    if (dr_span_is(name, "cpu_cores_count"))
        n->cpu_cores = (int)(value & 0xffff);
    else if (dr_span_is(name, "simd_count"))
        n->simds = (int)(value & 0xffff);
    else if (dr_span_is(name, "gfx_target_version"))
        n->gfx_version = (int64_t)(value & 0xffffffff);
    else if (dr_span_is(name, "location_id"))
        n->location = (int64_t)(value & 0xffffffff);
    else if (dr_span_is(name, "domain"))
        n->domain = (int64_t)(value & 0xffffff);
    else if (dr_span_is(name, "device_id"))
        n->device_id = (int)(value & 0xffff);
    return true;
}

static bool link_property(struct dr_pci_reading *r, int number, int place,
        struct dr_span name, uint64_t value)
{
    struct dr_kfd_link *l = link_of(r, number, place);

    if (dr_span_is(name, "type"))
        l->type = (int)(value & 0xff);
    else if (dr_span_is(name, "node_from"))
        l->from = (int)(value & 0xffff);
    else if (dr_span_is(name, "node_to"))
        l->to = (int)(value & 0xffff);
    else if (dr_span_is(name, "flags")) {
        l->flags = (int64_t)(value & 0xffffffff);
        l->line = r->line;
    }
    return true;
}

/* "…/nodes/1/io_links/0/properties" or "…/nodes/1/properties": the numbers, -1: none. */
static bool numbers(const char *path, int *number, int *place)
{
    struct dr_span part[2];
    uint64_t first, second;

    *place = -1;
    if (!dr_scan(path, "nodes/%d/%w", part) || !dr_span_u64(part[0], &first) ||
            first >= NODES_MAX)
        return false;
    *number = (int)first;
    if (dr_scan(path, "nodes/%d/io_links/%d/properties", part) &&
            dr_span_u64(part[1], &second) && second < NODES_MAX)
        *place = (int)second;
    else if (!dr_scan(path, "nodes/%d/properties", NULL))
        return false;
    return true;
}

static bool property(struct dr_pci_reading *r, const char *path, const char *text)
{
    struct dr_span part[2];
    int number, place;
    uint64_t value;

    while (*text == ' ' || *text == '\t')
        text++;
    if (!dr_scan(text, "^%w %d%e", part) || !dr_span_u64(part[1], &value) ||
            !numbers(path, &number, &place))
        return false;
    return place >= 0 ? link_property(r, number, place, part[0], value)
                      : node_property(r, number, part[0], value);
}

static void set_path(struct dr_pci_reading *r, const char *text)
{
    const char *at = strstr(text, "nodes/");
    size_t length = at != NULL ? strcspn(at, " :;|'\"") : 0;

    r->kfd_path[0] = 0;
    if (length > 0 && length < sizeof(r->kfd_path) && !memchr(at, '*', length) &&
            !memchr(at, '$', length)) {
        memcpy(r->kfd_path, at, length);
        r->kfd_path[length] = 0;
    }
}

static bool refused(struct dr_pci_reading *r)
{
    int number, place;

    if (!dr_has(r->text, "Operation not permitted") ||
            !numbers(r->text, &number, &place) || place < 0)
        return false;
    (void)node(r, number);
    link_of(r, number, place)->refused = true;
    return true;
}

bool dr_pci_read_kfd(struct dr_pci_reading *r)
{
    struct dr_span part[2];

    if (r->d->lines[r->line].flags & DR_COMMAND) {
        if (dr_has(r->text, "kfd/topology/nodes/"))
            set_path(r, r->text);
        return false;
    }
    if (dr_has(r->text, "nodes/") && dr_has(r->text, "properties")) {
        if (refused(r))
            return true;
        if (dr_scan(r->text, "nodes/%*/properties:%*", part))
            return property(r, strstr(r->text, "nodes/"), part[1].at);
        set_path(r, r->text);
        return r->kfd_path[0] != 0;
    }
    return r->kfd_path[0] != 0 && property(r, r->kfd_path, r->text);
}

/* ---- when all is read ---- */

const struct dr_kfd_node *dr_kfd_node(const struct doctor *d, uint32_t machine,
        int number)
{
    for (uint32_t i = 0; i < d->pci->num_nodes; i++)
        if (d->pci->nodes[i].machine == machine && d->pci->nodes[i].number == number)
            return &d->pci->nodes[i];
    return NULL;
}

const struct dr_kfd_node *dr_gpu_node(const struct doctor *d, uint32_t device)
{
    for (uint32_t i = 0; i < d->pci->num_nodes; i++)
        if (d->pci->nodes[i].device == device && d->pci->nodes[i].gfx_version > 0)
            return &d->pci->nodes[i];
    return NULL;
}

void dr_gfx_name(const struct dr_kfd_node *node, char target[DR_TARGET_MAX])
{
    snprintf(target, DR_TARGET_MAX, "gfx%u%x%x", (unsigned)(node->gfx_version / 10000),
            (unsigned)(node->gfx_version / 100 % 100),
            (unsigned)(node->gfx_version % 100));
}

static bool is_gpu_node(const struct dr_kfd_node *n)
{
    return n->simds > 0 || n->gfx_version > 0;
}

/* Links between processors are no matter; what a link from a processor says is that the
 * card itself completes. */
bool dr_is_host_link(const struct doctor *d, const struct dr_kfd_link *link)
{
    const struct dr_kfd_node *from = dr_kfd_node(d, link->machine, link->from);
    const struct dr_kfd_node *to = dr_kfd_node(d, link->machine, link->to);

    return link->type == 2 && from != NULL && to != NULL && is_gpu_node(from) &&
            from->cpu_cores <= 0 && to->cpu_cores > 0;
}

bool dr_is_bare_no(const struct dr_kfd_link *link)
{
    return link->type < 0 && link->to < 0 && (link->flags & 12) == 12;
}

const struct dr_kfd_link *dr_kfd_of(const struct doctor *d, uint32_t device)
{
    for (uint32_t i = 0; i < d->pci->num_links; i++) {
        const struct dr_kfd_link *l = &d->pci->links[i];
        const struct dr_kfd_node *from = dr_kfd_node(d, l->machine, l->from);

        if (from != NULL && from->device == device && l->flags >= 0 &&
                (dr_is_host_link(d, l) || dr_is_bare_no(l)))
            return l;
    }
    return NULL;
}

void dr_pci_finish_kfd(struct doctor *d)
{
    for (uint32_t i = 0; i < d->pci->num_nodes; i++) {
        struct dr_kfd_node *n = &d->pci->nodes[i];
        struct dr_pci_device *p;
        char bdf[32];

        if (!is_gpu_node(n))
            continue;
        if (n->location <= 0) {
            n->device = dr_only_amd_gpu(d, n->machine, n->device_id);
            continue;
        }
        snprintf(bdf, sizeof(bdf), "%04x:%02x:%02x.%x",
                n->domain > 0 ? (unsigned)n->domain : 0,
                (unsigned)(n->location >> 8 & 0xff), (unsigned)(n->location >> 3 & 31),
                (unsigned)(n->location & 7));
        if (strlen(bdf) >= DR_BDF_MAX)
            continue;
        p = dr_pci_device(d, n->machine, bdf, n->line);
        dr_pci_set_ids(p, 0x1002, n->device_id > 0 ? n->device_id : -1, 0x0380);
        n->device = dr_pci_find(d, n->machine, bdf);
    }
}
