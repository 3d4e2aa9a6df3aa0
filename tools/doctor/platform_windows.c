/* SPDX-License-Identifier: Apache-2.0 */
/* Reads how much of a card's memory its window shows. */
#include "platform.h"

#include <string.h>

/* Cards whose windows are kept. */
#define WINDOWS_MAX 256

static struct dr_window *window_of(struct doctor *d, uint32_t machine, const char *bdf,
        bool nvidia)
{
    struct dr_kernel *k = d->kernel;
    struct dr_window *w;

    for (uint32_t i = 0; bdf[0] != 0 && i < k->num_windows; i++)
        if (k->windows[i].machine == machine && strcmp(k->windows[i].bdf, bdf) == 0)
            return &k->windows[i];
    if (k->num_windows == WINDOWS_MAX)
        return &k->windows[WINDOWS_MAX - 1];
    w = DR_PUSH(d, k->windows, k->num_windows, k->room_windows);
    w->machine = machine;
    w->nvidia = nvidia;
    memcpy(w->bdf, bdf, DR_BDF_MAX);
    w->line_memory = w->line_window = DR_NONE;
    return w;
}

/* ---- the kernel log ---- */

/* Where reading stands in one source. */
struct reading {
    uint32_t source;
    char bdf[DR_BDF_MAX]; /* that the driver spoke of last        */
    bool section;         /* nvidia-smi: which number comes next: */
    bool window_next;
};

/* "[drm] Detected VRAM RAM=12272M, BAR=256M" names the card in newer kernels only; the
 * lines of its driver before it do. */
static void vram(struct doctor *d, uint32_t i, struct reading *r)
{
    const char *text = d->lines[i].text;
    struct dr_span found[3];
    struct dr_window *w;
    uint64_t memory, window;

    if (dr_scan(text, "amdgpu %b: ", found) || dr_scan(text, "radeon %b: ", found))
        (void)dr_span_bdf(found[0], r->bdf);
    if (!dr_scan(text, "Detected VRAM RAM=%dM, BAR=%dM", found) ||
            !dr_span_u64(found[0], &memory) || !dr_span_u64(found[1], &window))
        return;
    w = window_of(d, d->lines[i].machine, r->bdf, false);
    w->memory = memory;
    w->window = window;
    w->line_memory = w->line_window = i;
    dr_known(d, i);
    r->bdf[0] = 0;
}

/* Where the kernel put a window: the latest place counts. lspci knows better. */
static void base(struct doctor *d, uint32_t i)
{
    static const char *const forms[] = { "%b: BAR 0 [mem %x-%x%*]",
        "%b: BAR 0: assigned [mem %x-%x", "%b: reg 0x10: [mem %x-%x",
        "%b: reg 10: [mem %x-%x" };
    struct dr_span found[4];
    struct dr_pci_device *device;
    char bdf[DR_BDF_MAX];
    uint64_t first, last;
    uint32_t index;

    if (!dr_has(d->lines[i].text, "[mem 0x"))
        return;
    for (size_t f = 0; f < sizeof(forms) / sizeof(*forms); f++) {
        if (!dr_scan(d->lines[i].text, forms[f], found) ||
                !dr_span_bdf(found[0], bdf) || !dr_span_hex(found[1], &first) ||
                !dr_span_hex(found[2], &last) || last <= first ||
                dr_has(d->lines[i].text, "releasing"))
            continue;
        index = dr_pci_find(d, d->lines[i].machine, bdf);
        if (index == DR_NONE)
            return;
        device = &d->pci->devices[index];
        if (device->regions[0].bytes == 0 ||
                dr_has(d->lines[device->regions[0].line].text, "[mem 0x"))
            device->regions[0] = (struct dr_region){ first, last - first + 1, i };
        return;
    }
}

/* ---- nvidia-smi -q ---- */

static void smi(struct doctor *d, uint32_t i, struct reading *r)
{
    const char *text = d->lines[i].text;
    struct dr_span found[4];
    struct dr_window *w;
    uint64_t part[4], value;

    if (dr_scan(text, "^GPU %x:%x:%x.%x", found)) {
        for (int k = 0; k < 4; k++)
            if (!dr_span_hex(found[k], &part[k]))
                return;
        (void)snprintf(r->bdf, sizeof(r->bdf), "%04x:%02x:%02x.%x",
                (unsigned)(part[0] & 0xffff), (unsigned)(part[1] & 0xff),
                (unsigned)(part[2] & 31), (unsigned)(part[3] & 7));
        dr_known(d, i);
    } else if (dr_has(text, " Memory Usage") || dr_has(text, "Protected Memory")) {
        r->window_next = dr_has(text, "BAR1 Memory Usage");
        r->section = r->window_next || dr_has(text, "FB Memory Usage");
    } else if (r->section && r->bdf[0] != 0 &&
            dr_scan(text, "^ Total : %d MiB", found) && dr_span_u64(found[0], &value)) {
        w = window_of(d, d->lines[i].machine, r->bdf, true);
        *(r->window_next ? &w->window : &w->memory) = value;
        *(r->window_next ? &w->line_window : &w->line_memory) = i;
        r->section = false;
    }
}

void dr_read_windows(struct doctor *d)
{
    struct reading log = { .source = DR_NONE }, tool = { .source = DR_NONE };

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *line = &d->lines[i];

        if (line->source != log.source || (line->flags & DR_COMMAND)) {
            log = (struct reading){ .source = line->source };
            tool = log;
        }
        if (line->flags & (DR_COMMAND | DR_REMARK))
            continue;
        vram(d, i, &log);
        base(d, i);
        smi(d, i, &tool);
    }
}
