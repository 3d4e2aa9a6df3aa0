/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about the IOMMU and access control between GPUs. */
#include "platform.h"
#include "rules.h"

#include <string.h>

#define CARDS_MAX 64

/* ---- faults ---- */

void dr_rule_iommu(struct doctor *d)
{
    for (uint32_t i = 0; i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *k = &d->kernel->lines[i];
        struct dr_finding *f;

        if (k->kind != DR_K_IOMMU_FAULT || !dr_is_gpu_address(d, k->machine, k->bdf))
            continue;
        f = dr_found(d, DR_P2P_IOMMU_FAULT, "%s", k->bdf);
        dr_say(d, f,
                "The IOMMU stops what GPU %s writes or reads: the data does not "
                "arrive.",
                k->bdf);
        if (f->because.count < 4)
            dr_because(d, f, k->line);
        else if (f->consequences.count < 16)
            dr_consequence(d, f, k->line);
    }
}

/* ---- access control ---- */

/* Whether the way from @p bridge's side to some other card leads through it. */
static bool is_between(const struct doctor *d, uint32_t bridge, const uint32_t *cards,
        uint32_t count)
{
    const struct dr_pci_device *b = &d->pci->devices[bridge];

    for (uint32_t i = 0; i < count; i++) {
        const struct dr_pci_device *card = &d->pci->devices[cards[i]];
        uint32_t chain[DR_CHAIN_MAX];
        const uint32_t length = dr_chain(d, cards[i], chain);
        bool below = false;

        for (uint32_t c = 0; c < length; c++)
            below = below || chain[c] == bridge;
        /* without a chain the bus decides, if the bridge's buses are known */
        if (!below && (length > 0 || (b->secondary >= 0 && card->bdf[0] != 0)))
            return true;
    }
    return false;
}

static bool redirects(const struct dr_pci_device *bridge)
{
    return bridge->acs_redirect_requests == 1 || bridge->acs_redirect_completions == 1;
}

/* The bridges between the cards of a machine, each once. */
static uint32_t bridges_between(const struct doctor *d, uint32_t machine, uint32_t *out,
        uint32_t room, bool *complete)
{
    uint32_t cards[CARDS_MAX], count = 0;
    const uint32_t num_cards = dr_cards(d, machine, cards, CARDS_MAX);

    *complete = num_cards >= 2;
    for (uint32_t i = 0; num_cards >= 2 && i < num_cards; i++) {
        uint32_t chain[DR_CHAIN_MAX];
        const uint32_t length = dr_chain(d, cards[i], chain);

        *complete = *complete && length > 0;
        for (uint32_t c = 0; c < length; c++) {
            bool known = false;

            for (uint32_t k = 0; k < count; k++)
                known = known || out[k] == chain[c];
            if (!known && count < room && is_between(d, chain[c], cards, num_cards))
                out[count++] = chain[c];
        }
    }
    return count;
}

#define BRIDGES_MAX 256

/* Whether a redirecting bridge lies between two cards of @p machine. */
static bool acs_redirects(const struct doctor *d, uint32_t machine)
{
    uint32_t bridges[BRIDGES_MAX];
    bool complete;
    const uint32_t count = bridges_between(d, machine, bridges, BRIDGES_MAX, &complete);

    for (uint32_t i = 0; i < count; i++)
        if (redirects(&d->pci->devices[bridges[i]]))
            return true;
    for (uint32_t i = 0; i < d->kernel->num_lines; i++)
        if (d->kernel->lines[i].kind == DR_K_ACS_REDIRECT &&
                d->kernel->lines[i].machine == machine)
            return true;
    return false;
}

static void say_redirect(struct doctor *d, const char *list, const char *parameter,
        const uint32_t *lines, uint32_t count)
{
    struct dr_finding *f = dr_found(d, DR_ACS_REDIRECT, "%s", list);

    dr_say(d, f,
            "Access control is set to send what GPUs write to each other up to the "
            "IOMMU "
            "at %s.",
            list[0] != 0 ? list : "a bridge between the two cards");
    for (uint32_t i = 0; i < count && i < 16; i++)
        dr_because(d, f, lines[i]);
    if (parameter[0] == 0)
        return;
    dr_fix(d, f,
            "Until the next boot, for each of these bridges and for no others: "
            "`setpci -s BDF ECAP_ACS+6.w=0000` (%s). Note the old value first.",
            list);
    dr_fix(d, f,
            "For good: the firmware's ACS setting, or `pci=disable_acs_redir=%s` on "
            "the kernel command line.",
            parameter);
    dr_fix(d, f,
            "Then compare the bytes at their owner, not only the rate; first stop and "
            "mask the serving unit (`systemctl stop U && systemctl mask U`).");
}

/* The kernel names the bridges itself, joined with ';'. */
static void by_kernel_line(struct doctor *d, uint32_t machine)
{
    const char *parameter = "";
    uint32_t lines[4], count = 0;

    for (uint32_t i = 0; i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *k = &d->kernel->lines[i];

        if (k->machine != machine ||
                (k->kind != DR_K_ACS_REDIRECT && k->kind != DR_K_ACS_PARAMETER))
            continue;
        if (k->kind == DR_K_ACS_PARAMETER)
            parameter = k->text;
        if (count < 4)
            lines[count++] = k->line;
    }
    if (count > 0) {
        char *list = dr_copy(d, parameter, strlen(parameter));

        for (char *at = list; *at != 0; at++)
            if (*at == ';')
                *at = ' ';
        say_redirect(d, list, parameter, lines, count);
    }
}

/* No chain is known, but every bridge that was printed is off. */
static bool all_are_off(const struct doctor *d, uint32_t machine, uint32_t *line)
{
    uint32_t shown = 0;

    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_pci_device *p = &d->pci->devices[i];

        if (p->machine != machine)
            continue;
        if (p->acs_redirect_requests < 0) {
            if (p->class >> 8 == 0x06 && (p->class & 0xff) == 0x04)
                return false;
            continue;
        }
        if (redirects(p))
            return false;
        *line = p->line_acs;
        shown++;
    }
    return shown > 0;
}

/* `lspci -vvv | grep ACSCtl` prints the signs of all bridges and none of their names. */
static bool nameless_are_off(const struct doctor *d, uint32_t machine, uint32_t *line)
{
    bool any = false;

    if (d->kernel->per_kind[DR_K_ACS_CONTROL] >= DR_RECORDS_MAX ||
            dr_count_gpus(d, machine) < 2)
        return false;
    for (uint32_t i = 0; i < d->pci->num_devices; i++)
        if (d->pci->devices[i].machine == machine &&
                d->pci->devices[i].class >> 8 == 0x06)
            return false; /* then it is known whose they are, or some are not shown */
    for (uint32_t i = 0; i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *k = &d->kernel->lines[i];

        if (k->kind != DR_K_ACS_CONTROL || k->machine != machine)
            continue;
        if (dr_has(dr_command(d, k->line), " -s") || !dr_has(k->text, "ReqRedir-") ||
                !dr_has(k->text, "CmpltRedir-"))
            return false;
        *line = k->line;
        any = true;
    }
    return any;
}

/* Ports that could redirect: the single downstream port of a card leads to nothing else,
 * and upstream ports have no such control. */
static bool can_redirect(const struct doctor *d, const struct dr_pci_device *p)
{
    (void)d;
    return p->port != DR_UPSTREAM_PORT && !dr_has(p->name, "Navi 10 XL Downstream");
}

static void registers(struct doctor *d, uint32_t machine)
{
    uint32_t bridges[BRIDGES_MAX], lines[BRIDGES_MAX], cards[CARDS_MAX], num_bad = 0;
    bool complete, off, any = false;
    const uint32_t count = bridges_between(d, machine, bridges, BRIDGES_MAX, &complete);
    const char *list = "", *parameter = "";
    uint32_t line = DR_NONE;

    off = complete;
    for (uint32_t i = 0; i < count; i++) {
        const struct dr_pci_device *p = &d->pci->devices[bridges[i]];

        if (redirects(p)) {
            list = dr_printf(d, "%s%s%s", list, num_bad > 0 ? ", " : "", p->bdf);
            parameter =
                    dr_printf(d, "%s%s%s", parameter, num_bad > 0 ? ";" : "", p->bdf);
            lines[num_bad++] = p->line_acs;
        } else if (p->acs_redirect_requests == 0) {
            line = p->line_acs;
            any = true;
        } else if (can_redirect(d, p)) {
            off = false;
        }
    }
    if (num_bad > 0) {
        say_redirect(d, list, parameter, lines, num_bad);
    } else if ((off && any) ||
            (!complete && dr_cards(d, machine, cards, CARDS_MAX) >= 2 &&
                    all_are_off(d, machine, &line)) ||
            nameless_are_off(d, machine, &line)) {
        struct dr_finding *f = dr_found(d, DR_ACS_OK, "%s", d->machines[machine].name);

        dr_say(d, f, "No bridge between the GPUs redirects requests or completions.");
        dr_because(d, f, line);
    }
}

void dr_rule_acs(struct doctor *d)
{
    for (uint32_t m = 0; m < dr_looked_at(d); m++) {
        registers(d, m);
        if (!dr_has_finding(d, DR_ACS_REDIRECT, NULL))
            by_kernel_line(d, m);
    }
}

/* ---- translation ---- */

/* Two islands of peers and a hang that went away with the IOMMU. */
static bool is_cured_by_iommu_off(const struct doctor *d, uint32_t machine,
        uint32_t *line)
{
    static const char *const off[] = { "iommu=off", "iommu off", "off the iommu",
        "disabled the iommu", "disabling the iommu", "disabling iommu",
        "iommu disabled", "without iommu", "without the iommu" };
    static const char *const cured[] = { "works", "work now", "fixed", "fixes", "cured",
        "no hang", "no more hang", "passes", "finishes", "completes", "gone", "solved",
        "runs", "resolved", " ok" };
    bool is_off, is_good;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (d->lines[i].machine != machine ||
                !dr_has_any_case(d->lines[i].text, "iommu"))
            continue;
        is_off = is_good = false;
        for (size_t w = 0; w < sizeof(off) / sizeof(*off); w++)
            is_off = is_off || dr_has_any_case(d->lines[i].text, off[w]);
        for (size_t w = 0; w < sizeof(cured) / sizeof(*cured); w++)
            is_good = is_good || dr_has_any_case(d->lines[i].text, cured[w]);
        if (is_off && is_good) {
            *line = i;
            return true;
        }
    }
    return false;
}

/* What else must be true: lines that show that peer writes do not get through. */
static bool is_hurt(struct doctor *d, uint32_t machine, uint32_t *line)
{
    const struct dr_finding *f = dr_finding_of(d, DR_P2P_IOMMU_FAULT);
    const enum dr_via via = dr_channels(d, NULL);
    const char *off = dr_variable(d, "NCCL_P2P_DISABLE", NULL);

    if (f == NULL)
        f = dr_finding_of(d, DR_P2P_GRANTED_BUT_BROKEN);
    if (f == NULL && acs_redirects(d, machine))
        f = dr_finding_of(d, DR_ACS_REDIRECT);
    if (f != NULL && f->because.count > 0) {
        *line = f->because.lines[0];
        return true;
    }
    return dr_stalled(d, line) && dr_num_hosts(d) <= 1 && via != DR_VIA_SHM &&
            via != DR_VIA_NET && (off == NULL || strcmp(off, "0") == 0);
}

static void say_translated(struct doctor *d, uint32_t machine, uint32_t line,
        uint32_t effect)
{
    struct dr_finding *f =
            dr_found(d, DR_P2P_IOMMU_TRANSLATED, "%s", d->machines[machine].name);

    dr_say(d, f,
            "The IOMMU translates what the GPUs write to each other, and these writes "
            "do "
            "not get through.");
    dr_because(d, f, line);
    dr_because(d, f, effect);
    for (uint32_t i = 0; i < d->kernel->num_lines; i++)
        if (d->kernel->lines[i].kind == DR_K_BAD_IOMMU_WORD &&
                d->kernel->lines[i].machine == machine)
            dr_will_not_help(d, f,
                    "`amd_iommu=pt`: the kernel knows no such option; the "
                    "word is `iommu=pt`.");
}

void dr_rule_domains(struct doctor *d)
{
    for (uint32_t m = 0; m < dr_looked_at(d); m++) {
        uint32_t line = DR_NONE, effect = DR_NONE;
        enum dr_answer translated = dr_iommu_translates(d, m, &line);
        const uint32_t gpus = dr_count_gpus(d, m);

        if (translated == DR_UNSURE && gpus >= 4 &&
                is_cured_by_iommu_off(d, m, &line) && dr_stalled(d, &effect)) {
            say_translated(d, m, line, effect);
        } else if (translated == DR_YES && gpus >= 2 &&
                dr_direct_links(d, m, NULL) != DR_YES && is_hurt(d, m, &effect)) {
            say_translated(d, m, line, effect);
        } else if (translated == DR_NO && gpus > 0) {
            struct dr_finding *f =
                    dr_found(d, DR_P2P_IOMMU_OK, "%s", d->machines[m].name);

            dr_say(d, f, "The IOMMU does not translate what the GPUs send.");
            dr_because(d, f, line);
        }
    }
}
