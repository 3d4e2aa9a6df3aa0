/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the kernel log, whatever program printed it, by what its lines say. */
#include "platform.h"

#include "rules.h"

#include <string.h>

/* What a captured text is, in the order of a pattern's captures. */
enum capture { NOTHING, BDF, PEER, TEXT, VALUE, SKIP };

static const struct pattern {
    const char *needle; /* looked for first: cheap */
    const char *text;
    enum dr_kernel_kind kind;
    enum capture captures[4];
} patterns[] = {
    { "Default domain", "iommu: Default domain type: Translated",
            DR_K_DOMAIN_TRANSLATED, { NOTHING } },
    { "Default domain", "iommu: Default domain type: Passthrough",
            DR_K_DOMAIN_PASSTHROUGH, { NOTHING } },
    { "IOMMU dis", "DMAR: IOMMU disabled", DR_K_IOMMU_OFF, { NOTHING } },
    { "IOMMU dis", "AMD-Vi: IOMMU disabled", DR_K_IOMMU_OFF, { NOTHING } },
    { "IOMMU dis", "AMD-Vi: AMD IOMMU disabled", DR_K_IOMMU_OFF, { NOTHING } },
    { "Unknown option", "AMD-Vi: Unknown option", DR_K_BAD_IOMMU_WORD, { NOTHING } },
    { "IO_PAGE_FAULT", "Event logged [IO_PAGE_FAULT device=%b", DR_K_IOMMU_FAULT,
            { BDF } },
    { "IO_PAGE_FAULT", "%b: AMD-Vi: Event logged [IO_PAGE_FAULT ", DR_K_IOMMU_FAULT,
            { BDF } },
    { "Request device", "DMAR:%*[DMA %*] Request device [%b", DR_K_IOMMU_FAULT,
            { SKIP, SKIP, BDF } },
    { "ACS redirect", "%b: ACS redirect is set between the client and provider (%b)",
            DR_K_ACS_REDIRECT, { BDF, PEER } },
    { "ACS redirect", "ACS redirect is set between the client and provider",
            DR_K_ACS_REDIRECT, { NOTHING } },
    { "ACS redirect",
            "to disable ACS redirect for this path, add the kernel parameter: "
            "pci=disable_acs_redir=%w",
            DR_K_ACS_PARAMETER, { TEXT } },
    { "whitelist", "ost bridge not in P2PDMA whitelist: %w", DR_K_BRIDGE_NOT_LISTED,
            { TEXT } },
    { "P2P access from",
            "%b: %*PCIe P2P access from peer device %b is not supported by the chipset",
            DR_K_PEER_NOT_SUPPORTED, { BDF, SKIP, PEER } },
    { "P2P access from",
            "P2P access from peer device %b is not supported by the chipset",
            DR_K_PEER_NOT_SUPPORTED, { PEER } },
    { "kbusCreate", "kbusCreateStaticBar1IOMMUMapping%*failed from %w to %w",
            DR_K_BAR1_MAP, { SKIP, TEXT, TEXT } },
    { "kbusCreate", "kbusCreateStaticBar1IOMMUMapping%*failed", DR_K_BAR1_MAP,
            { SKIP } },
    { "kbusCreate", "kbusCreateStaticBar1IOMMUMapping%*not aligned", DR_K_BAR1_MAP,
            { SKIP } },
    { "no space", "%b: BAR 0%*no space", DR_K_NO_SPACE, { BDF, SKIP } },
    { "DMA_BIT_MASK", "DMA_BIT_MASK(%d)", DR_K_DMA_MASK, { VALUE } },
    { "kernel conf", "Could not open kernel conf file", DR_K_NO_KERNEL_CONF,
            { NOTHING } },
    { "ACSCtl", "ACSCtl: %*", DR_K_ACS_CONTROL, { TEXT } },
    { "iommu group", "%b: Adding to iommu group %d", DR_K_GROUP, { BDF, VALUE } },
};

static const char *joined(struct doctor *d, const char *before, struct dr_span span)
{
    if (before == NULL)
        return dr_copy(d, span.at, span.length);
    return dr_printf(d, "%s and %.*s", before, (int)span.length, span.at);
}

static bool take(struct doctor *d, uint32_t i, const struct pattern *p)
{
    struct dr_span found[DR_CAPTURES_MAX];
    struct dr_kernel_line line = { .kind = p->kind,
        .machine = d->lines[i].machine,
        .line = i };

    if (d->kernel->per_kind[p->kind] >= DR_RECORDS_MAX ||
            !dr_scan(d->lines[i].text, p->text, found))
        return false;
    for (int c = 0; c < 4; c++) {
        bool good = true;

        switch (p->captures[c]) {
        case BDF: good = dr_span_bdf(found[c], line.bdf); break;
        case PEER: good = dr_span_bdf(found[c], line.peer); break;
        case VALUE: good = dr_span_u64(found[c], &line.value); break;
        case TEXT: line.text = joined(d, line.text, found[c]); break;
        case NOTHING:
        case SKIP: break;
        }
        if (!good)
            return false;
    }
    if (line.text == NULL)
        line.text = "";
    d->kernel->per_kind[p->kind]++;
    *DR_PUSH(d, d->kernel->lines, d->kernel->num_lines, d->kernel->room_lines) = line;
    return true;
}

/* Kernel 5.16 on writes "[0x03:0x00.0]" where all others write "[03:00.0]". */
static bool take_hex_device(struct doctor *d, uint32_t i)
{
    struct dr_span part[5];
    uint64_t bus, device, function;
    struct dr_kernel_line *line;

    if (d->kernel->per_kind[DR_K_IOMMU_FAULT] >= DR_RECORDS_MAX ||
            !dr_has(d->lines[i].text, "Request device [0x") ||
            !dr_scan(d->lines[i].text, "DMAR:%*[DMA %*Request device [%x:%x.%x]",
                    part) ||
            !dr_span_hex(part[2], &bus) || !dr_span_hex(part[3], &device) ||
            !dr_span_hex(part[4], &function) || bus > 255 || device > 31 ||
            function > 7)
        return false;
    line = DR_PUSH(d, d->kernel->lines, d->kernel->num_lines, d->kernel->room_lines);
    line->kind = DR_K_IOMMU_FAULT;
    line->machine = d->lines[i].machine;
    line->line = i;
    line->text = "";
    (void)snprintf(line->bdf, sizeof(line->bdf), "0000:%02x:%02x.%x", (unsigned)bus,
            (unsigned)device, (unsigned)function);
    return true;
}

/* What is said while all is well: enough to know a kernel log by. */
static const char *const usual[] = { "Linux version %d.",
    "Kernel command line: ", "pci %b: ", "pcieport %b: ", "amdgpu %b: ", "nvidia %b: ",
    "AMD-Vi: ", "DMAR: ", "[drm] ", "kfd kfd: ", "NVRM: ", "iommu: " };

/* Lines of a source among which one of these is looked for. */
#define USUAL_LINES 2000

/* What breaks or stands still, whatever broke it. */
static const struct {
    const char *needle, *text;
} broken[] = { { "Xid", "NVRM: Xid (" }, { "timeout", "amdgpu: ring %* timeout" },
    { "timeout", "*ERROR* ring %* timeout" }, { "GPU reset", "GPU reset begin" },
    { "fallen off", "fallen off the bus" },
    { "blocked for", "blocked for more than %d seconds" },
    { "Kernel panic", "Kernel panic - not syncing" },
    { "soft lockup", "soft lockup - CPU" }, { "hard LOCKUP", "hard LOCKUP" },
    { "AER: ", "AER: Uncorrect%* (Fatal)" },
    { "(Fatal)", "Uncorrected (Fatal) error" } };

static bool is_usual(const char *text)
{
    for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++)
        if (dr_scan(text, usual[i], NULL))
            return true;
    return false;
}

static bool is_broken(const char *text)
{
    for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++)
        if (dr_has(text, broken[i].needle) && dr_scan(text, broken[i].text, NULL))
            return true;
    return false;
}

static bool is_fact(struct doctor *d, uint32_t i)
{
    const char *needle = "";
    bool found = false;

    for (size_t p = 0; p < sizeof(patterns) / sizeof(*patterns); p++) {
        if (strcmp(patterns[p].needle, needle) != 0) {
            needle = patterns[p].needle;
            found = dr_has(d->lines[i].text, needle);
        }
        if (found && take(d, i, &patterns[p]))
            return true;
    }
    return take_hex_device(d, i);
}

void dr_read_kernel_log(struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *line = &d->lines[i];
        const struct dr_source *source = &d->sources[line->source];

        if (line->flags & (DR_COMMAND | DR_REMARK))
            continue;
        if (is_fact(d, i) ||
                (!source->known && i - source->first < USUAL_LINES &&
                        is_usual(line->text)))
            dr_known(d, i);
        if (is_broken(line->text))
            dr_trouble(d, i);
    }
}
