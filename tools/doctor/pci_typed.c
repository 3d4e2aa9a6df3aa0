/* SPDX-License-Identifier: Apache-2.0 */
/* Whose lines these are when only the command says it: `lspci -vv -s 03:00.0 | grep Atomic`,
 * also in a loop over several devices. */
#include "pci_read.h"
#include "typed.h"

#include <string.h>

/* Lines of the command's output that begin the next device's. */
static uint32_t count_starts(const struct doctor *d, uint32_t command)
{
    const uint32_t end = dr_output_end(d, command);
    uint32_t count = 0;

    for (uint32_t i = command + 1; i < end; i++)
        count += dr_has(d->lines[i].text, "AtomicOpsCap:");
    return count;
}

void dr_pci_read_command(struct dr_pci_reading *r)
{
    const char *words[DR_TYPED_MAX];
    uint32_t count;

    r->num_typed = r->next_typed = 0;
    if (!dr_has(r->text, "lspci"))
        return;
    count = dr_typed_words(r->d, r->text, "-s ", words, DR_TYPED_MAX);
    if (count == 0)
        count = dr_typed_words(r->d, r->text, "vs ", words, DR_TYPED_MAX);
    if (count == 0 || (count > 1 && count_starts(r->d, r->line) != count))
        return;
    for (uint32_t i = 0; i < count; i++)
        if (!dr_span_bdf((struct dr_span){ words[i], strlen(words[i]) }, r->typed[i]))
            return;
    r->num_typed = count;
}

void dr_pci_typed_device(struct dr_pci_reading *r)
{
    const bool begins = dr_has(r->text, "AtomicOpsCap:");

    if (r->num_typed == 0 ||
            (!begins && (r->num_typed > 1 || !dr_has(r->text, "AtomicOpsCtl:"))) ||
            (r->num_typed == 1 ? r->device != DR_NONE : r->next_typed == r->num_typed))
        return;
    (void)dr_pci_device(r->d, r->machine, r->typed[r->next_typed], r->line);
    r->device = dr_pci_find(r->d, r->machine, r->typed[r->next_typed]);
    r->next_typed += r->num_typed > 1;
}
