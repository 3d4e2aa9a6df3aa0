/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about probes without an end, memory windows and what the kernel was built with. */
#include "platform.h"
#include "rules.h"

#include <string.h>

#define NUM_OF(list) (sizeof(list) / sizeof(*(list)))

/* ---- a probe that did not return ---- */

static bool is_closed(const struct doctor *d, const struct dr_probe_record *r)
{
    for (uint32_t i = 0; i < d->kernel->num_probes; i++) {
        const struct dr_probe_record *other = &d->kernel->probes[i];

        if (!other->started && strcmp(other->probe, r->probe) == 0 &&
                strcmp(other->boot_id, r->boot_id) == 0 &&
                strcmp(other->pair[0], r->pair[0]) == 0 &&
                strcmp(other->pair[1], r->pair[1]) == 0)
            return true;
    }
    return false;
}

void dr_rule_probe_record(struct doctor *d)
{
    for (uint32_t i = 0; i < d->kernel->num_probes; i++) {
        const struct dr_probe_record *r = &d->kernel->probes[i];
        const char *now = dr_running(d, r->machine)->boot;
        struct dr_finding *f;

        if (!r->started || is_closed(d, r))
            continue;
        if (now == NULL) {
            dr_trouble(d, r->line);
            continue;
        }
        if (strcmp(now, r->boot_id) == 0)
            continue;
        f = dr_found(d, DR_PROBE_DID_NOT_RETURN, "%s and %s", r->pair[0], r->pair[1]);
        dr_say(d, f,
                "A %s probe of %s and %s was begun in an earlier boot and nothing "
                "closed "
                "its record: the machine went down inside it.",
                r->probe, r->pair[0], r->pair[1]);
        dr_because(d, f, r->line);
        dr_because(d, f, dr_running(d, r->machine)->boot_line);
    }
}

/* ---- windows ---- */

static void bar1_map(struct doctor *d)
{
    for (uint32_t i = 0; i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *k = &d->kernel->lines[i];
        struct dr_finding *f;

        if (k->kind != DR_K_BAR1_MAP)
            continue;
        f = dr_found(d, DR_P2P_BAR1_MAPPING_FAILED, "%s", "");
        if (f->because.count == 0)
            dr_say(d, f,
                    "The NVIDIA driver could not map one card's BAR1 for its peer%s%s; "
                    "the sizes are not the cause.",
                    k->text[0] != 0 ? ": " : "", k->text);
        if (f->because.count < 8)
            dr_because(d, f, k->line);
        else
            dr_consequence(d, f, k->line);
    }
}

/* Peer access is claimed: a matrix cell or a query says so. */
static bool is_peer_claimed(const struct doctor *d, uint32_t machine, uint32_t *line)
{
    static const char *const claims[] = { ") -> GPU%*: Yes", "CAN Access Peer",
        "CanAccessPeer(%d, %d) = 1", "CanAccessPeer(%d, %d) 1",
        "CanAccessPeer(%d,%d) = 1", "via P2P/" };
    struct dr_span found[4];

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if (d->lines[i].machine != machine || (d->lines[i].flags & DR_COMMAND) ||
                !(dr_has(text, "GPU") || dr_has(text, "ccess") ||
                        dr_has(text, "via P2P")))
            continue;
        for (size_t c = 0; c < NUM_OF(claims); c++)
            if (dr_scan(text, claims[c], found)) {
                *line = i;
                return true;
            }
        if ((dr_scan(text, "^GPU%d ", found) || dr_scan(text, "^ GPU%d ", found)) &&
                dr_scan(text, " X", NULL) && dr_scan(text, " OK%>", NULL)) {
            *line = i;
            return true;
        }
    }
    return false;
}

static void say_small(struct doctor *d, const char *name, uint64_t window,
        uint64_t memory, uint32_t line, uint32_t more)
{
    struct dr_finding *f = dr_found(d, DR_SMALL_BAR, "%s", name);

    if (memory > 0)
        dr_say(d, f, "%s shows a window of %llu MiB for %llu MiB of memory.", name,
                (unsigned long long)window, (unsigned long long)memory);
    else if (f->because.count == 0)
        dr_say(d, f, "%s shows a window of only %llu MiB.", name,
                (unsigned long long)window);
    dr_because(d, f, line);
    dr_because(d, f, more);
}

static void say_large(struct doctor *d, const char *name, uint32_t line, uint32_t more)
{
    struct dr_finding *f;

    if (dr_has_finding(d, DR_SMALL_BAR, name))
        return;
    f = dr_found(d, DR_LARGE_BAR_OK, "%s", name);
    dr_say(d, f, "The window of %s covers its memory.", name);
    dr_because(d, f, line);
    dr_because(d, f, more);
}

/* What the drivers or their tools say: memory and window side by side. A line that names
 * no card is told from the others by its place. */
static void by_pairs(struct doctor *d)
{
    unsigned unnamed = 0;

    for (uint32_t i = 0; i < d->kernel->num_windows; i++) {
        const struct dr_window *w = &d->kernel->windows[i];
        const uint32_t index = dr_pci_find(d, w->machine, w->bdf);
        const char *name = w->bdf;
        uint32_t claim = DR_NONE;

        if (w->memory == 0 || w->window == 0 ||
                (index != DR_NONE && dr_is_integrated(&d->pci->devices[index])))
            continue;
        if (w->bdf[0] == 0)
            name = dr_printf(d, "card %u of the kernel log", ++unnamed);
        if (w->window >= w->memory) {
            say_large(d, name, w->line_memory, w->line_window);
        } else if (!w->nvidia || is_peer_claimed(d, w->machine, &claim)) {
            say_small(d, name, w->window, w->memory, w->line_window, w->line_memory);
            dr_because(d, dr_found(d, DR_SMALL_BAR, "%s", name), claim);
        }
    }
}

static const struct dr_window *pair_of(const struct doctor *d,
        const struct dr_pci_device *p)
{
    for (uint32_t i = 0; i < d->kernel->num_windows; i++)
        if (d->kernel->windows[i].machine == p->machine &&
                strcmp(d->kernel->windows[i].bdf, p->bdf) == 0 &&
                d->kernel->windows[i].memory > 0 && d->kernel->windows[i].window > 0)
            return &d->kernel->windows[i];
    return NULL;
}

#define SMALL_WINDOW (UINT64_C(256) << 20)

/* Only the window is known: the size that every firmware starts with is too small for any
 * card that computes, a larger one was asked for. */
static void by_region(struct doctor *d, const struct dr_pci_device *p)
{
    const struct dr_region *r = &p->regions[0];

    if (r->bytes == 0)
        return;
    if (r->bytes <= SMALL_WINDOW)
        say_small(d, p->bdf, r->bytes >> 20, 0, r->line, DR_NONE);
    else if (pair_of(d, p) == NULL)
        say_large(d, p->bdf, r->line, DR_NONE);
    for (uint32_t i = 0; r->bytes <= SMALL_WINDOW && i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *k = &d->kernel->lines[i];

        if (k->kind == DR_K_NO_SPACE && k->machine == p->machine &&
                strcmp(k->bdf, p->bdf) == 0)
            dr_because(d, dr_found(d, DR_SMALL_BAR, "%s", p->bdf), k->line);
    }
}

/* ---- windows beyond what the peer can address ---- */

static bool is_wide(const struct doctor *d, const struct dr_pci_device *p)
{
    static const char *const names[] = { "MI210", "MI250", "MI300", "MI308", "MI325",
        "MI350", "MI355", "Aldebaran", "MI200", "Aqua Vanjaram" };
    static const int ids[] = { 0x7408, 0x740c, 0x740f, 0x74a0, 0x74a1, 0x74a2, 0x74a5,
        0x74a8, 0x74a9, 0x74b5, 0x74b9, 0x75a0, 0x75a3, 0x75b0, 0x75b3 };

    for (size_t i = 0; i < NUM_OF(ids); i++)
        if (p->device == ids[i])
            return true;
    for (uint32_t i = 0; i < d->pci->num_nodes; i++) {
        const struct dr_kfd_node *n = &d->pci->nodes[i];

        if (n->device != DR_NONE && &d->pci->devices[n->device] == p &&
                (n->gfx_version == 90010 || n->gfx_version / 100 == 904 ||
                        n->gfx_version / 100 == 905))
            return true;
    }
    for (size_t i = 0; i < NUM_OF(names); i++)
        if (dr_has_any_case(p->name, names[i]))
            return true;
    return false;
}

static unsigned mask_bits(const struct doctor *d, const struct dr_pci_device *p,
        uint32_t *line)
{
    for (uint32_t i = 0; i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *k = &d->kernel->lines[i];

        if (k->kind == DR_K_DMA_MASK && k->machine == p->machine && k->value >= 32 &&
                k->value < 64) {
            *line = k->line;
            return (unsigned)k->value;
        }
    }
    return is_wide(d, p) ? 48 : 44;
}

static void above_mask(struct doctor *d, const uint32_t *cards, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct dr_pci_device *p = &d->pci->devices[cards[i]];
        const struct dr_region *r = &p->regions[0];

        for (uint32_t k = 0; k < count; k++) {
            const struct dr_pci_device *peer = &d->pci->devices[cards[k]];
            uint32_t line = DR_NONE;
            const unsigned bits = mask_bits(d, peer, &line);
            struct dr_finding *f;

            if (k == i || r->bytes == 0 || r->address + r->bytes <= UINT64_C(1) << bits)
                continue;
            f = dr_found(d, DR_P2P_BAR_ABOVE_DMA_MASK, "%s", p->bdf);
            dr_say(d, f,
                    "The window of %s ends at 0x%llx, beyond the %u bits that its peer "
                    "%s can address.",
                    p->bdf, (unsigned long long)(r->address + r->bytes), bits,
                    peer->bdf);
            dr_because(d, f, r->line);
            dr_because(d, f, line);
            break;
        }
    }
}

#define CARDS_MAX 64

void dr_rule_bar(struct doctor *d)
{
    bar1_map(d);
    by_pairs(d);
    for (uint32_t m = 0; m < dr_looked_at(d); m++) {
        uint32_t cards[CARDS_MAX], amd[CARDS_MAX], num_amd = 0;
        const uint32_t count = dr_cards(d, m, cards, CARDS_MAX);

        for (uint32_t i = 0; i < count; i++)
            if (d->pci->devices[cards[i]].vendor == 0x1002)
                amd[num_amd++] = cards[i];
        for (uint32_t i = 0; i < num_amd; i++)
            by_region(d, &d->pci->devices[amd[i]]);
        if (num_amd >= 2 && dr_direct_links(d, m, NULL) != DR_YES)
            above_mask(d, amd, num_amd);
    }
}

/* ---- the kernel ---- */

static void not_listed(struct doctor *d)
{
    const char *id = NULL;

    for (uint32_t i = 0; id == NULL && i < d->kernel->num_lines; i++)
        if (d->kernel->lines[i].kind == DR_K_BRIDGE_NOT_LISTED)
            id = d->kernel->lines[i].text;
    for (uint32_t i = 0; i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *k = &d->kernel->lines[i];
        const char *subject = k->text;
        struct dr_finding *f;

        if (k->kind != DR_K_BRIDGE_NOT_LISTED && k->kind != DR_K_PEER_NOT_SUPPORTED)
            continue;
        if (k->kind == DR_K_PEER_NOT_SUPPORTED)
            subject = id != NULL ? id : "";
        f = dr_found(d, DR_P2P_HOST_BRIDGE_NOT_LISTED, "%s", subject);
        if (subject[0] != 0)
            dr_say(d, f,
                    "The kernel does not know host bridge %s as one that passes peer "
                    "traffic, and refuses it between the cards.",
                    subject);
        else if (f->because.count == 0)
            dr_say(d, f,
                    "The kernel refuses peer traffic with %s: the chipset is not on "
                    "its "
                    "list. `lspci -nns 00:00.0` prints the id of the host bridge.",
                    k->peer);
        if (f->because.count < 8)
            dr_because(d, f, k->line);
        else
            dr_consequence(d, f, k->line);
    }
}

/* Whether a configuration of @p version is that of the kernel that runs. */
static bool is_running(const struct doctor *d, uint32_t machine, const char *version)
{
    const char *runs = dr_running(d, machine)->version;

    return version != NULL &&
            (version[0] == 0 || (runs != NULL && strcmp(runs, version) == 0));
}

static void no_p2pdma(struct doctor *d, uint32_t machine, const char *option,
        uint32_t line, const char *version)
{
    const struct dr_kernel *k = d->kernel;
    const bool amd = dr_num_gpus(d, machine, 0x1002) > 0 || k->amd_line != DR_NONE;
    struct dr_finding *f;

    if (strcmp(option, "CONFIG_HSA_AMD_P2P") == 0 ? !amd
                                                  : !amd &&
                            dr_count_gpus(d, machine) == 0 && k->nvidia_line == DR_NONE)
        return;
    if (!is_running(d, machine, version))
        return;
    f = dr_found(d, DR_KERNEL_NO_P2PDMA, "%s", d->machines[machine].name);
    if (f->because.count == 0)
        dr_say(d, f, "The running kernel%s%s was built without %s.",
                version[0] != 0 ? " " : "", version, option);
    dr_because(d, f, line);
    if (version[0] != 0)
        dr_because(d, f, dr_running(d, machine)->version_line);
}

void dr_rule_kernel(struct doctor *d)
{
    const struct dr_kernel *k = d->kernel;

    not_listed(d);
    for (uint32_t i = 0; i < k->num_config; i++)
        if (!k->config[i].set)
            no_p2pdma(d, k->config[i].machine, k->config[i].name, k->config[i].line,
                    k->config[i].version);
    for (uint32_t i = 0; i < k->num_searches; i++)
        no_p2pdma(d, k->searches[i].machine, k->searches[i].name, k->searches[i].line,
                k->searches[i].version);
    for (uint32_t i = 0; i < k->num_lines; i++) {
        struct dr_finding *f;

        if (k->lines[i].kind != DR_K_NO_KERNEL_CONF)
            continue;
        f = dr_found(d, DR_DMABUF_KERNEL_CONF_MISSING, "%s", "");
        dr_say(d, f,
                "The library found no kernel configuration to decide about DMA-BUF by; "
                "nothing is known about the kernel from this.");
        if (f->because.count < 4)
            dr_because(d, f, k->lines[i].line);
    }
    dr_rule_domains(d);
}
