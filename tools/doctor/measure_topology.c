/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Topology files of the libraries and of hwloc, element by element (they come cut, and
 * with a log's prefix), and the tools of other vendors.
 */
#include "measure.h"

#include "facts.h"

#include <ctype.h>
#include <string.h>

/* The value of an attribute in the element that begins at @p at. */
static struct dr_span attribute(const char *at, const char *name)
{
    const char *end = strpbrk(at + 1, "<>");
    const size_t length = strlen(name);

    for (const char *p = strstr(at, name); p != NULL && (end == NULL || p < end);
            p = strstr(p + 1, name))
        if (p > at && (p[-1] == ' ' || p[-1] == '\t') && p[length] == '=' &&
                (p[length + 1] == '"' || p[length + 1] == '\''))
            return (struct dr_span){ p + length + 2,
                strcspn(p + length + 2, p[length + 1] == '"' ? "\"" : "'") };
    return (struct dr_span){ "", 0 };
}

static const char *other_vendor(uint64_t vendor)
{
    return vendor == 0x1d94 ? "1d94" : vendor == 0x1ed5 ? "1ed5" : NULL;
}

/* Classes of GPUs and accelerators, of 16 bits. */
static bool is_gpu_class(uint64_t class)
{
    return class >> 8 == 0x03 || class >> 8 == 0x12 || class == 0x0b40;
}

static void see_vendor(struct doctor *d, const char *vendor, uint32_t line)
{
    dr_known(d, line);
    if (vendor == NULL || d->measure->line_vendor != DR_NONE)
        return;
    d->measure->vendor = vendor;
    d->measure->line_vendor = line;
}

static void see_direct(struct doctor *d, uint32_t line)
{
    dr_known(d, line);
    if (d->measure->line_direct != DR_NONE)
        return;
    d->measure->line_direct = line;
    d->measure->machine_direct = d->lines[line].machine;
}

/* ---- a library's topology file as a matrix of links ---- */

/* Most links of a file: each GPU to each other, and to some switches. */
#define LINKS_MAX (DR_MATRIX_MAX * DR_MATRIX_MAX)

struct link {
    uint32_t from;           /* index of a GPU                 */
    struct dr_span to, kind; /* the target's address, the cell */
};

/* What was read of the file that is open; a <system> opens one. */
struct file {
    bool open, broken;
    struct dr_span bus; /* of the last <pci> */
    struct dr_span gpus[DR_MATRIX_MAX];
    struct dr_span switched[DR_MATRIX_MAX]; /* their links to switches, as a cell */
    uint32_t lines[DR_MATRIX_MAX];
    uint32_t num_gpus, num_links, room_links;
    struct link *links;
};

static void see_gpu(struct file *f, uint32_t line)
{
    if (f->num_gpus == DR_MATRIX_MAX || f->bus.length == 0) {
        f->broken = true;
        return;
    }
    f->lines[f->num_gpus] = line;
    f->gpus[f->num_gpus++] = f->bus;
}

static void see_link(struct doctor *d, struct file *f, const char *at, bool to_switch)
{
    const struct dr_span count = attribute(at, "count");
    struct dr_span kind = { "XGMI", 4 };

    if (f->num_gpus == 0 || f->num_links == LINKS_MAX) {
        f->broken = true;
        return;
    }
    if (dr_begins(at, "<nvlink ")) {
        kind.at = dr_printf(d, "NV%.*s", (int)count.length, count.at);
        kind.length = strlen(kind.at);
    }
    if (to_switch)
        f->switched[f->num_gpus - 1] = kind;
    *DR_PUSH(d, f->links, f->num_links, f->room_links) =
            (struct link){ .from = f->num_gpus - 1,
                .to = attribute(at, "target"),
                .kind = kind };
}

static bool same(struct dr_span a, struct dr_span b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

/* A file that is whole and has a link between GPUs. */
static void end_file(struct doctor *d, struct file *f, uint32_t line)
{
    struct dr_measure *m = d->measure;
    struct dr_matrix *x;

    f->open = false;
    if (f->broken || f->num_gpus < 2 || f->num_links == 0 ||
            m->num_matrices >= DR_MATRICES_MAX)
        return;
    x = DR_PUSH(d, m->matrices, m->num_matrices, m->room_matrices);
    x->kind = DR_MATRIX_LINKS;
    x->machine = d->lines[line].machine;
    x->line_columns = f->lines[0];
    x->size = f->num_gpus;
    x->names = dr_alloc(d, x->size * sizeof(*x->names));
    x->cells = dr_alloc(d, x->size * sizeof(*x->cells));
    x->lines = dr_alloc(d, x->size * sizeof(*x->lines));
    for (uint32_t i = 0; i < x->size; i++) {
        x->names[i] = f->gpus[i];
        x->lines[i] = f->lines[i];
        x->cells[i] = dr_alloc(d, x->size * sizeof(**x->cells));
        for (uint32_t k = 0; k < x->size; k++)
            x->cells[i][k] = i == k ? (struct dr_span){ "X", 1 }
                    : f->switched[i].length > 0 && f->switched[k].length > 0
                    ? f->switched[i]
                    : (struct dr_span){ "PCIE", 4 };
    }
    for (uint32_t i = 0; i < f->num_links; i++)
        for (uint32_t k = 0; k < x->size; k++)
            if (same(f->links[i].to, f->gpus[k]))
                x->cells[f->links[i].from][k] = f->links[i].kind;
}

static void read_element(struct doctor *d, struct file *f, uint32_t line,
        const char *at)
{
    struct dr_span found[DR_CAPTURES_MAX];
    uint64_t vendor = 0, class = 0;

    if (dr_begins(at, "<pci ")) {
        f->bus = attribute(at, "busid");
        if (dr_span_hex(attribute(at, "vendor"), &vendor) &&
                dr_span_hex(attribute(at, "class"), &class) && is_gpu_class(class >> 8))
            see_vendor(d, other_vendor(vendor), line);
    } else if (dr_begins(at, "<object ")) {
        if (dr_scan(attribute(at, "pci_type").at, "^%x [%x:%x]", found) &&
                dr_span_hex(found[0], &class) && dr_span_hex(found[1], &vendor) &&
                is_gpu_class(class))
            see_vendor(d, other_vendor(vendor), line);
    } else if (dr_begins(at, "<nvlink ") || dr_begins(at, "<xgmi ")) {
        /* a link to the processor is none between GPUs */
        const bool gpu = !dr_span_hex(attribute(at, "tclass"), &class) ||
                is_gpu_class(class >> 8);

        if (gpu)
            see_direct(d, line);
        if (gpu || class >> 8 == 0x0680)
            see_link(d, f, at, !gpu);
    } else if (dr_begins(at, "<gpu ")) {
        dr_known(d, line);
        see_gpu(f, line);
    } else if (dr_begins(at, "<system ")) {
        dr_known(d, line);
        *f = (struct file){ .open = true };
    } else if (dr_begins(at, "</system>") && f->open) {
        end_file(d, f, line);
    }
}

/* What the tools of these vendors print, and no other's. */
static const struct {
    const char *pattern, *vendor;
} tools[] = {
    { "mthreads-gmi:%d", "1ed5" },
    { "MTT S%d", "1ed5" },
    { "^HCU Temp", "1d94" },
    { "^DCU Temp", "1d94" },
    { "HCU[%d] : ", "1d94" },
    { "DCU[%d] : ", "1d94" },
    { "between two HCUs", "1d94" },
    { "between two DCUs", "1d94" },
    { "HY-SMI Log", "1d94" },
    { "HYGON System Management", "1d94" },
};

void dr_read_topologies(struct doctor *d)
{
    struct file *f = dr_alloc(d, sizeof(*f));

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *l = &d->lines[i];

        if (i > 0 && d->lines[i - 1].source != l->source)
            f->open = false;
        if (l->flags & DR_COMMAND)
            continue;
        for (const char *at = strchr(l->text, '<'); at != NULL;
                at = strchr(at + 1, '<'))
            if (isalpha((unsigned char)at[1]) || at[1] == '/')
                read_element(d, f, i, at);
        if ((d->measure->signs[i] & DR_SIGN_VENDOR) == 0)
            continue;
        if (dr_has(l->text, "\"link_type\": \"XGMI\"") ||
                dr_scan(l->text, "Link type between DRM devices %*: \"XGMI\"", NULL))
            see_direct(d, i);
        for (size_t k = 0; k < sizeof(tools) / sizeof(*tools); k++)
            if (dr_scan(l->text + strspn(l->text, " \t"), tools[k].pattern, NULL))
                see_vendor(d, tools[k].vendor, i);
    }
    for (uint32_t i = 0; d->pci != NULL && i < d->pci->num_devices; i++) {
        const struct dr_pci_device *p = &d->pci->devices[i];

        if (dr_is_gpu(p) && p->vendor > 0 && other_vendor((uint64_t)p->vendor) != NULL)
            see_vendor(d, other_vendor((uint64_t)p->vendor), p->line);
    }
}
