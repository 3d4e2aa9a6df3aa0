/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what probes of peer access leave on disk before they touch the hardware. */
#include "platform.h"

#include <ctype.h>
#include <string.h>

/* The text between quotes after @p key and a colon. */
static bool field(const char *object, const char *key, struct dr_span *out)
{
    char quoted[32];
    const char *at;

    (void)snprintf(quoted, sizeof(quoted), "\"%s\"", key);
    at = strstr(object, quoted);
    if (at == NULL)
        return false;
    at += strlen(quoted);
    at += strspn(at, " \t:");
    if (*at != '"')
        return false;
    out->at = at + 1;
    out->length = strcspn(out->at, "\"");
    return out->at[out->length] == '"';
}

static bool read_pair(const char *object, char pair[2][DR_BDF_MAX])
{
    const char *at = strstr(object, "\"pair\"");

    if (at == NULL)
        return false;
    at += strlen("\"pair\"");
    for (int i = 0; i < 2; i++) {
        size_t length;

        at += strcspn(at, "\"]");
        if (*at != '"')
            return false;
        length = strcspn(++at, "\"");
        if (!dr_span_bdf((struct dr_span){ at, length }, pair[i]))
            return false;
        at += length + (at[length] == '"');
    }
    return true;
}

/* Hexadecimal digits only: the journal prints the same number without dashes. */
static const char *boot(struct doctor *d, struct dr_span span)
{
    char *out = dr_alloc(d, span.length + 1);
    size_t used = 0;

    for (size_t i = 0; i < span.length; i++)
        if (span.at[i] != '-')
            out[used++] = (char)tolower((unsigned char)span.at[i]);
    return out;
}

/* Records that are kept; a probe leaves one for each pair. */
#define PROBES_MAX 512

static void read_record(struct doctor *d, uint32_t i)
{
    struct dr_kernel *k = d->kernel;
    const char *object = strchr(d->lines[i].text, '{');
    struct dr_span probe, boot_id, state;
    struct dr_probe_record new = { .line = i, .machine = d->lines[i].machine };

    if (object == NULL || k->num_probes == PROBES_MAX ||
            (d->lines[i].flags & DR_COMMAND) || !field(object, "probe", &probe) ||
            !field(object, "boot_id", &boot_id) || !field(object, "state", &state) ||
            !read_pair(object, new.pair))
        return;
    new.started = dr_span_is(state, "started");
    if (!new.started && !dr_span_is(state, "finished"))
        return;
    new.probe = dr_copy(d, probe.at, probe.length);
    new.boot_id = boot(d, boot_id);
    *DR_PUSH(d, k->probes, k->num_probes, k->room_probes) = new;
    dr_known(d, i);
}

/* The boot of the machine now, without dashes: the last that the text names. */
static void read_boot(struct doctor *d, uint32_t i)
{
    static const struct {
        const char *typed, *form;
    } forms[] = { { "random/boot_id", "^%w%e" }, { "", "random/boot_id:%w" },
        { "", "kernel.random.boot_id = %w" }, { "list-boots", "^ 0 %w" },
        { "list-boots", "^0 %w" } };
    const struct dr_line *l = &d->lines[i];
    const char *typed = dr_command(d, i);
    struct dr_span id[2];

    if (l->machine >= DR_MACHINES_LOOKED_AT || (l->flags & DR_COMMAND) ||
            !(dr_has(typed, "boot") || dr_has(l->text, "boot_id")))
        return;
    for (size_t f = 0; f < sizeof(forms) / sizeof(*forms); f++) {
        const char *number;

        if (!dr_has(typed, forms[f].typed) || !dr_scan(l->text, forms[f].form, id))
            continue;
        number = boot(d, id[0]);
        if (strlen(number) != 32 || strspn(number, "0123456789abcdef") != 32)
            continue;
        d->kernel->running[l->machine].boot = number;
        d->kernel->running[l->machine].boot_line = i;
        return;
    }
}

void dr_read_probe_records(struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        read_record(d, i);
        read_boot(d, i);
    }
}
