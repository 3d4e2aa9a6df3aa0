/* SPDX-License-Identifier: Apache-2.0 */
/* Reads logs of collective libraries and captures of networks; answers of them. */
#include "job.h"
#include "lines.h"
#include "rules.h"

#include <ctype.h>
#include <string.h>

void dr_read_job(struct doctor *d)
{
    d->job = dr_alloc(d, sizeof(*d->job));
    d->job->stalled = DR_NONE;
    dr_read_log(d);
    dr_read_hosts(d);
    dr_read_interfaces(d);
    dr_read_reaches(d);
    dr_read_stalls(d);
    dr_read_failures(d);
}

uint32_t dr_num_hosts(const struct doctor *d)
{
    return d->job->num_machines;
}

bool dr_stalled(const struct doctor *d, uint32_t *line)
{
    if (d->job->stalled != DR_NONE && line != NULL)
        *line = d->job->stalled;
    return d->job->stalled != DR_NONE;
}

enum dr_via dr_channels(const struct doctor *d, uint32_t *line)
{
    const struct dr_job *job = d->job;
    enum dr_via via = DR_VIA_NONE;

    for (uint32_t i = 0; i < job->num_channels; i++)
        via = via == DR_VIA_NONE || via == job->channels[i].via ? job->channels[i].via
                                                                : DR_VIA_MIXED;
    if (via != DR_VIA_NONE && line != NULL)
        *line = job->channels[0].line;
    return via;
}

const char *dr_run_version(const struct doctor *d, uint32_t *line)
{
    if (d->job->num_versions == 0)
        return NULL;
    if (line != NULL)
        *line = d->job->versions[0].line;
    return d->job->versions[0].number;
}

/* The value in "NAME=value" of a command, or of a line that is nothing else. */
static const char *assigned(const struct dr_line *line, const char *name,
        size_t *length)
{
    const size_t size = strlen(name);
    const char *text = line->text;

    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name)) {
        const char *value = at + size + 1;

        if (at[size] != '=' ||
                (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_')))
            continue;
        if (!(line->flags & DR_COMMAND) && at != text && !dr_begins(text, "export "))
            continue;
        if (*value == '"' || *value == '\'') {
            *length = strcspn(value + 1, "\"'");
            return value + 1;
        }
        *length = strcspn(value, " \t;&|");
        return value;
    }
    return NULL;
}

/* The value that this line gives to a variable, or NULL. */
static const char *variable_at(struct doctor *d, uint32_t line, const char *name)
{
    const struct dr_line *l = &d->lines[line];
    const uint32_t log = d->job->log_of[line];
    struct dr_span got[2];
    const char *value;
    size_t length;

    if (!dr_has(l->text, name))
        return NULL;
    if (log != DR_NONE) {
        if (!dr_scan(d->job->log[log].message, "^%w set by environment to %w", got) ||
                !dr_span_is(got[0], name))
            return NULL;
        length = got[1].length;
        if (length > 0 && got[1].at[length - 1] == '.')
            length--;
        return dr_copy(d, got[1].at, length);
    }
    value = assigned(l, name, &length);
    return value != NULL ? dr_copy(d, value, length) : NULL;
}

static const char *const name_variables[] = { "NCCL_SOCKET_IFNAME",
    "NCCL_OOB_NET_IFNAME", "GLOO_SOCKET_IFNAME", "FLAGCX_SOCKET_IFNAME",
    "RCCL_SOCKET_IFNAME", "MCCL_SOCKET_IFNAME" };

const char *dr_interface_at(struct doctor *d, uint32_t line)
{
    if (!dr_has(d->lines[line].text, "_IFNAME"))
        return NULL;
    for (size_t i = 0; i < sizeof(name_variables) / sizeof(*name_variables); i++) {
        const char *value = variable_at(d, line, name_variables[i]);

        if (value != NULL && value[0] != 0)
            return value;
    }
    return NULL;
}

const char *dr_use_host(const struct doctor *d, const struct dr_use *u)
{
    return u->host == DR_NONE ? "" : d->job->hosts[u->host].name;
}

const char *dr_variable(struct doctor *d, const char *name, uint32_t *line)
{
    for (int pass = 0; pass < 2; pass++) /* what the library says it read, first */
        for (uint32_t i = 0; i < d->num_lines; i++) {
            const char *value = (d->job->log_of[i] != DR_NONE) == (pass == 0)
                    ? variable_at(d, i, name)
                    : NULL;

            if (value == NULL)
                continue;
            if (line != NULL)
                *line = i;
            return value;
        }
    return NULL;
}
