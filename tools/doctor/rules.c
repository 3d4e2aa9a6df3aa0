/* SPDX-License-Identifier: Apache-2.0 */
/* The judgement: every reader, every rule, and what only all of them together decide. */
#include "rules.h"

#include "facts.h"
#include "finding.h"
#include "ways_out.h"

#include <string.h>

static void (*const readers[])(struct doctor *d) = { dr_read_pci, dr_read_platform,
    dr_read_job, dr_read_vm, dr_read_watch, dr_read_measure, dr_read_access,
    dr_read_packages };

/* Files of one unnamed machine belong to the only one that a prompt names. */
static void name_the_machine(struct doctor *d)
{
    uint32_t named = DR_NONE, count = 0;

    for (uint32_t i = 0; i < d->num_machines; i++) {
        const struct dr_machine *m = &d->machines[i];

        if (m->name[0] != 0 && !m->is_guest_file && !m->is_host_file) {
            named = i;
            count++;
        }
    }
    if (count != 1)
        return;
    d->machines[0].name = d->machines[named].name;
    for (uint32_t i = 0; i < d->num_lines; i++)
        if (d->lines[i].machine == named)
            d->lines[i].machine = 0;
}

static bool is_fault(const struct dr_finding *f)
{
    return !f->dropped && dr_codes[f->code].severity <= DR_WARN;
}

static bool any_fault(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_findings; i++)
        if (is_fault(&d->findings[i]))
            return true;
    return false;
}

static bool anything_known(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_sources; i++)
        if (d->sources[i].known)
            return true;
    return false;
}

/* Found by doctor_judge(), when all others were. */
void dr_rule_none(struct doctor *d)
{
    (void)d;
}

static void last_word(struct doctor *d)
{
    struct dr_finding *f;
    bool open = any_fault(d);

    if (!open && d->num_troubles > 0) {
        const char *peer = dr_missing_peer(d);

        f = dr_found(d, DR_UNDETERMINED, "%s", peer != NULL ? peer : "");
        if (peer != NULL) {
            dr_say(d, f, "A peer left, %s, and the text does not show how it ended.",
                    peer);
            dr_fix(d, f, "Get the last lines and the exit status of %s.", peer);
        }
        for (uint32_t i = 0; i < d->num_troubles && i < 4; i++)
            dr_because(d, f, d->troubles[i]);
    }
    for (uint32_t i = 0; i < d->num_findings; i++)
        open = open ||
                (!d->findings[i].dropped &&
                        dr_codes[d->findings[i].code].severity <= DR_UNKNOWN);
    if (!open && anything_known(d))
        (void)dr_found(d, DR_NO_FINDING, "%s", "");
}

void doctor_judge(struct doctor *d)
{
    name_the_machine(d);
    for (size_t i = 0; i < sizeof(readers) / sizeof(*readers); i++)
        readers[i](d);
    for (int code = 0; code < DR_NUM_CODES; code++) {
        bool done = false;

        for (int earlier = 0; earlier < code; earlier++)
            done = done || dr_codes[earlier].rule == dr_codes[code].rule;
        if (!done)
            dr_codes[code].rule(d);
    }
    dr_overrule(d);
    last_word(d);
    dr_put_in_order(d);
    dr_ways_out(d);
    for (uint32_t i = 0; i < d->num_sources; i++)
        if (!d->sources[i].known && !d->sources[i].binary && d->sources[i].count > 0)
            doctor_unread(d, d->sources[i].name, "nothing in it was recognised");
}

int doctor_status(const struct doctor *d)
{
    bool unknown = !anything_known(d);

    if (any_fault(d))
        return 1;
    for (uint32_t i = 0; i < d->num_findings; i++)
        unknown = unknown || dr_codes[d->findings[i].code].severity == DR_UNKNOWN;
    return unknown ? 2 : 0;
}
