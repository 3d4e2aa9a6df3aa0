/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around a search: the request that a client means, the report as text. */
#include "find_internal.h"
#include "find_tables.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const motet_find_client *motet_find_client_of(const char *name,
        const motet_find_library *library)
{
    for (const motet_find_client *c = motet_find_clients; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0 && (library == NULL || c->library == library))
            return c;
    return NULL;
}

static motet_find_setting look_up(const char *variable, motet_find_lookup *lookup,
        void *arg)
{
    return (motet_find_setting){ variable,
        variable != NULL ? lookup(variable, arg) : NULL };
}

void motet_find_ask(motet_find_request *request, const motet_find_library *library,
        const motet_find_client *client, motet_find_lookup *lookup, void *arg)
{
    static const char *const pythons[MOTET_FIND_PYTHONS_MAX] = { "VIRTUAL_ENV",
        "CONDA_PREFIX", "HOME" };
    const char *const *variables = library->variables;

    *request = (motet_find_request){ .library = library };
    request->override = look_up(library->override, lookup, arg);
    if (client != NULL && client->override != NULL &&
            !motet_find_is_set(&request->override))
        request->override = look_up(client->override, lookup, arg);
    if (client != NULL && client->variables != NULL) {
        variables = client->variables;
        request->selects = variables[0];
    }
    for (size_t i = 0;
            variables != NULL && i < MOTET_FIND_SETTINGS_MAX && variables[i] != NULL;
            i++)
        request->roots[i] = look_up(variables[i], lookup, arg);
    for (size_t i = 0; i < MOTET_FIND_PYTHONS_MAX; i++)
        request->pythons[i] = look_up(pythons[i], lookup, arg);
    request->python_path = lookup("PYTHONPATH", arg);
    request->path = lookup("PATH", arg);
    request->library_path = lookup("LD_LIBRARY_PATH", arg);
}

/*
 * Texts.
 */

void motet_find_say(char *buf, size_t bytes, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (vsnprintf(buf, bytes, fmt, args) < 0)
        buf[0] = 0;
    va_end(args);
}

void motet_find_add(char *buf, size_t bytes, const char *fmt, ...)
{
    size_t used = strlen(buf);
    va_list args;

    va_start(args, fmt);
    if (vsnprintf(buf + used, bytes - used, fmt, args) < 0)
        buf[used] = 0;
    va_end(args);
}

const char *motet_find_origin_name(motet_find_origin origin)
{
    switch (origin) {
    case MOTET_FIND_MAPPED: return "mapped";
    case MOTET_FIND_OVERRIDE: return "override";
    case MOTET_FIND_CONFIGURED: return "configured root";
    case MOTET_FIND_INSTALLED: return "install";
    case MOTET_FIND_LINKER: return "linker's search";
    case MOTET_FIND_PYTHON: return "Python environment";
    case MOTET_FIND_ELSEWHERE: return "elsewhere";
    }
    return "unknown";
}

const char *motet_find_verdict_name(motet_find_verdict verdict)
{
    switch (verdict) {
    case MOTET_FIND_TAKEN: return "taken";
    case MOTET_FIND_ABSENT: return "absent";
    case MOTET_FIND_UNREADABLE: return "not readable";
    case MOTET_FIND_WRONG_FILE: return "wrong kind of file";
    case MOTET_FIND_NOT_LOADED: return "does not load";
    case MOTET_FIND_LACKS: return "incomplete";
    case MOTET_FIND_FATAL: return "ends the process";
    case MOTET_FIND_NOT_TRIED: return "not tried";
    }
    return "unknown";
}

/* snprintf() at @p used of @p buf, which counts on when the buffer is full. */
__attribute__((format(printf, 4, 5))) static size_t put(char *buf, size_t bytes,
        size_t used, const char *fmt, ...)
{
    bool room = used < bytes;
    va_list args;
    int more;

    va_start(args, fmt);
    more = vsnprintf(room ? buf + used : NULL, room ? bytes - used : 0, fmt, args);
    va_end(args);
    return used + (more > 0 ? (size_t)more : 0);
}

size_t motet_find_text(const motet_find_report *report, char *buf, size_t bytes)
{
    size_t used = put(buf, bytes, 0, "%s\n", report->sentence);

    for (size_t i = 0; i < report->num_candidates; i++) {
        const motet_find_candidate *c = &report->candidates[i];

        used = put(buf, bytes, used, "  %s (%s): %s%s%s\n", c->path,
                motet_find_origin_name(c->origin), motet_find_verdict_name(c->verdict),
                c->detail[0] != 0 ? ": " : "", c->detail);
    }
    if (report->num_more > 0)
        used = put(buf, bytes, used, "  and %zu more\n", report->num_more);
    return used;
}

const char *motet_find_version(int code, char *buf, size_t bytes)
{
    int major = code >= 10000 ? 10000 : 1000;

    motet_find_say(buf, bytes, "%d.%d.%d", code / major, code % major / 100,
            code % 100);
    return buf;
}
