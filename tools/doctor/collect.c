/* SPDX-License-Identifier: Apache-2.0 */
/* The collector: what is gathered, in which order, and how a capture is written. */
#include "collect.h"

#include "gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* The captures. PCI comes before what depends on which GPUs there are. */
static const struct part {
    const char *name;
    void (*gather)(struct dr_gather *g);
    bool of_gpus; /* says which GPUs there are, or of their way to host memory */
} parts[] = {
    { "system.txt", dr_gather_system, true },
    { "pci.txt", dr_gather_pci, true },
    { "config-space.txt", dr_gather_config_space, true },
    { "kfd.txt", dr_gather_kfd, true },
    { "slots.txt", dr_gather_slots, false },
    { "dmesg.txt", dr_gather_kernel_log, true },
    { "access.txt", dr_gather_access, false },
    { "network.txt", dr_gather_network, false },
    { "runtimes.txt", dr_gather_runtimes, false },
    { "vfio.txt", dr_gather_vfio, false },
    { "libraries.txt", dr_gather_libraries, false },
    { "probes.txt", dr_gather_probes, false },
    { NULL, dr_gather_vms, false },
};

bool dr_gather_live(const struct dr_gather *g)
{
    return g->root[0] == 0;
}

void dr_capture(struct doctor *d, struct dr_captures *captures, const char *name,
        const char *text, size_t bytes)
{
    struct dr_capture *c = DR_PUSH(d, captures->list, captures->num, captures->room);

    c->name = dr_copy(d, name, strlen(name));
    c->text = dr_copy(d, text, bytes);
    c->bytes = bytes;
}

void dr_begin_capture(struct dr_gather *g)
{
    g->text = NULL;
    g->bytes = 0;
    g->out = open_memstream(&g->text, &g->bytes);
    if (g->out == NULL) {
        fprintf(stderr, "motet doctor: %s\n", strerror(errno));
        exit(2);
    }
}

void dr_end_capture(struct dr_gather *g, const char *name)
{
    if (fclose(g->out) == 0 && g->bytes > 0)
        dr_capture(g->d, g->captures, name, g->text, g->bytes);
    free(g->text);
    g->out = NULL;
}

const char *dr_host_name(struct doctor *d, const char *root)
{
    struct dr_gather g = { .d = d, .root = root };
    const char *name = dr_word_of(&g, "/proc/sys/kernel/hostname");
    const size_t length = strcspn(name, ".");
    struct utsname u;

    if (length > 0)
        return dr_copy(d, name, length);
    if (root[0] == 0 && uname(&u) == 0)
        return dr_copy(d, u.nodename, strcspn(u.nodename, "."));
    return "this";
}

void dr_collect(struct doctor *d, const char *root, struct dr_captures *out)
{
    struct dr_gather g = { .d = d, .captures = out, .root = root };

    g.host = dr_host_name(d, root);
    out->host = g.host;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        if (out->only_gpus && !parts[i].of_gpus)
            continue;
        if (parts[i].name == NULL) {
            parts[i].gather(&g);
            continue;
        }
        dr_begin_capture(&g);
        parts[i].gather(&g);
        dr_end_capture(&g, parts[i].name);
    }
}

void dr_add_captures(struct doctor *d, const struct dr_captures *captures)
{
    d->live = true;
    for (uint32_t i = 0; i < captures->num; i++) {
        const struct dr_capture *c = &captures->list[i];

        doctor_add(d, c->name, c->text, c->bytes);
        /* Nobody has to recognise what we wrote ourselves. */
        d->sources[d->num_sources - 1].known = true;
    }
}

bool dr_gathered(const struct dr_gather *g, unsigned vendor, const char *driver)
{
    for (uint32_t i = 0; i < g->num_gpus; i++)
        if ((vendor == 0 || g->gpus[i].vendor == vendor) &&
                (driver == NULL || strcmp(g->gpus[i].driver, driver) == 0))
            return true;
    return false;
}
