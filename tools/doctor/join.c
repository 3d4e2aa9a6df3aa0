/* SPDX-License-Identifier: Apache-2.0 */
/* Platform and library joined. See join.h; the table of verdicts is amd-hosts.md §15. */
#include "join.h"

#include "access.h"
#include "pci_read.h"

#include <string.h>

/* One link of the chain: its answer and where it stands. */
struct link {
    const char *name;
    enum dr_answer answer;
    const char *note; /* what the answer is, beyond yes and no; "" if nothing */
    uint32_t line;
};

enum { PATH, REQUESTER, RUNTIME, IMAGE, REFUSAL, NUM_LINKS };

static struct link path_of(const struct doctor *d, uint32_t device)
{
    struct link link = { "path to the root port", DR_UNSURE, "not in the text",
        DR_NONE };
    struct dr_walk walk;

    dr_walk(d, device, &walk);
    link.answer = walk.answer;
    if (walk.num_faults > 0) {
        const struct dr_pci_device *port = &d->pci->devices[walk.fault[0]];

        link.note = walk.why[0];
        link.line = port->line_atomics;
    } else if (walk.answer != DR_UNSURE) {
        link.note = "every port";
        link.line = d->pci->devices[device].line_port;
    }
    return link;
}

static struct link requester_of(const struct doctor *d, uint32_t device)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const struct link link = { "ReqEn of the GPU",
        p->requester == 1           ? DR_YES
                : p->requester == 0 ? DR_NO
                                    : DR_UNSURE,
        p->requester < 0       ? "not in the text"
                : p->requester ? "ReqEn+"
                               : "ReqEn-",
        p->requester < 0 ? DR_NONE : p->line_requester };

    return link;
}

static struct link runtime_of(const struct doctor *d, uint32_t device)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const struct dr_kfd_link *kfd = dr_kfd_of(d, device);
    struct link link = { "HIP attribute or KFD link", DR_UNSURE, "not in the text",
        DR_NONE };

    if (p->hip_atomics >= 0) {
        link.answer = p->hip_atomics ? DR_YES : DR_NO;
        link.note = "hostNativeAtomicSupported";
        link.line = p->line_hip;
    } else if (kfd != NULL && kfd->flags >= 0) {
        link.answer = (kfd->flags & 12) == 0 ? DR_YES
                : (kfd->flags & 12) == 12    ? DR_NO
                                             : DR_UNSURE;
        link.note = "flags of the link to the processor";
        link.line = kfd->line;
    }
    return link;
}

/* The image that this GPU loads from the collective library: the one that fits best, else one
 * that is not read; or NULL. */
static const struct dr_image *image_of(const struct doctor *d, uint32_t device)
{
    const struct dr_access *a = d->access;
    const struct dr_image *unread = NULL, *loaded = NULL;
    const struct dr_kfd_node *node = dr_gpu_node(d, device);
    char target[DR_TARGET_MAX] = "";
    int best = 0;

    if (node != NULL)
        dr_gfx_name(node, target);
    for (uint32_t i = 0; i < a->num_images; i++) {
        const struct dr_image *m = &a->images[i];
        int fit = 0;

        if (!m->collective)
            continue;
        if (m->unreadable)
            unread = m;
        else if (node != NULL && m->target[0] != 0)
            fit = dr_target_fits(m->target, target);
        else
            fit = dr_has_target(d, m->target) != DR_NO;
        if (fit > best) {
            best = fit;
            loaded = m;
        }
    }
    return loaded != NULL ? loaded : unread;
}

/* Yes: it declares none. */
static struct link kernels_of(const struct doctor *d, uint32_t device)
{
    const struct dr_image *m = image_of(d, device);
    struct link link = { "image without hostcall", DR_UNSURE, "not in the text",
        DR_NONE };

    if (m == NULL)
        return link;
    link.line = m->line;
    if (m->unreadable) {
        link.note = "not readable";
        return link;
    }
    link.answer = m->declaring == 0 ? DR_YES : DR_NO;
    link.note = m->declaring == 0 ? "no kernel declares one" : "kernels declare one";
    return link;
}

/* Yes: nothing was refused, which only a run that ended well would show. */
static struct link refusal_of(const struct doctor *d, uint32_t device)
{
    const char *bdf = d->pci->devices[device].bdf;
    struct link link = { "launches accepted", DR_UNSURE, "no run in the text",
        DR_NONE };

    for (uint32_t i = 0; i < d->access->num_refusals; i++) {
        const struct dr_refusal *r = &d->access->refusals[i];

        if (!dr_has(r->device, bdf))
            continue;
        link.answer = DR_NO;
        link.note = "refused";
        link.line = r->line;
    }
    return link;
}

static void write_link(const struct doctor *d, FILE *out, const struct link *link)
{
    static const char *const words[] = { "unknown", "yes", "no" };

    fprintf(out, "    %-26s %-8s", link->name, words[link->answer]);
    if (link->note[0] != 0)
        fprintf(out, " %s", link->note);
    if (link->line != DR_NONE)
        fprintf(out, " (%s:%u)", d->sources[d->lines[link->line].source].name,
                d->lines[link->line].number);
    fputc('\n', out);
}

/* Kernels that every classic collective goes through. */
static bool declares_generic(const struct dr_image *m)
{
    return m->names[0] == 0 || dr_has(m->names, "Generic");
}

static void write_verdict(const struct doctor *d, FILE *out, uint32_t device,
        const struct link *links)
{
    uint32_t line;
    const enum dr_answer atomics = dr_gpu_atomics(d, device, &line);
    const struct dr_image *m = image_of(d, device);
    const char *path =
            m != NULL && m->path[0] != 0 ? m->path : "the collective library";

    if (links[REFUSAL].answer == DR_NO)
        fprintf(out, "    The first collective of %s fails here: it was refused.\n",
                path);
    else if (atomics == DR_YES)
        fprintf(out,
                "    The first collective of %s will not fail here for want of "
                "AtomicOps.\n",
                path);
    else if (links[IMAGE].answer == DR_YES)
        fprintf(out,
                "    The first collective of %s will not fail here: it asks for no "
                "hostcall.\n",
                path);
    else if (atomics == DR_NO && links[IMAGE].answer == DR_NO && declares_generic(m))
        fprintf(out, "    The first collective of %s will fail here.\n", path);
    else if (atomics == DR_NO && links[IMAGE].answer == DR_NO)
        fprintf(out,
                "    A collective of %s fails here only if it launches one of: %s\n",
                path, m->names);
    else if (atomics == DR_NO)
        fputs("    The first collective fails here if the library's image declares a "
              "hostcall: run `motet hostcall` on it.\n",
                out);
    else
        fputs("    Open: nothing in the text says whether this GPU has AtomicOps.\n",
                out);
}

/* Something is known of its way to host memory, or of what it loads. */
static bool worth_writing(const struct doctor *d, const struct link *links,
        uint32_t device)
{
    uint32_t line;

    for (int k = 0; k < NUM_LINKS; k++)
        if (links[k].answer != DR_UNSURE)
            return true;
    return dr_gpu_atomics(d, device, &line) != DR_UNSURE;
}

void dr_write_join(const struct doctor *d, FILE *out)
{
    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_pci_device *p = &d->pci->devices[i];
        struct link links[NUM_LINKS];

        if (p->vendor != 0x1002 || !dr_is_gpu(p))
            continue;
        links[PATH] = path_of(d, i);
        links[REQUESTER] = requester_of(d, i);
        links[RUNTIME] = runtime_of(d, i);
        links[IMAGE] = kernels_of(d, i);
        links[REFUSAL] = refusal_of(d, i);
        if (!worth_writing(d, links, i))
            continue;
        fprintf(out, "  %s %s\n", p->bdf, p->name);
        for (int k = 0; k < NUM_LINKS; k++)
            write_link(d, out, &links[k]);
        write_verdict(d, out, i, links);
    }
}
