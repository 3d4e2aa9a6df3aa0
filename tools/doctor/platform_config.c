/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the configuration of kernels, and which kernel runs. */
#include "platform.h"
#include "typed.h"

#include <ctype.h>
#include <string.h>

/* What the rules ask for. */
#define P2P_OPTION "CONFIG_HSA_AMD_P2P"
static const char *const options[] = { "CONFIG_PCI_P2PDMA", P2P_OPTION };

#define NUM_OPTIONS (sizeof(options) / sizeof(*options))

/* ---- the kernel that runs ---- */

static bool is_version(struct dr_span span)
{
    return span.length >= 3 && isdigit((unsigned char)span.at[0]) &&
            memchr(span.at, '.', span.length) != NULL;
}

static void read_version(struct doctor *d, uint32_t i)
{
    static const struct {
        const char *needle, *form;
        int which;
    } forms[] = { { "Linux version", "Linux version %w ", 0 },
        { "Linux ", "^Linux %w %w #", 1 },
        { "Kernel version", "Kernel version: %w", 0 },
        { "osrelease", "osrelease = %w", 0 } };
    const struct dr_line *l = &d->lines[i];
    struct dr_running *running;
    struct dr_span found[3] = { { "", 0 } };
    bool good = false;

    if (l->machine >= DR_MACHINES_LOOKED_AT || (l->flags & DR_COMMAND))
        return;
    running = &d->kernel->running[l->machine];
    if (running->version != NULL)
        return;
    for (size_t f = 0; !good && f < sizeof(forms) / sizeof(*forms); f++) {
        good = dr_has(l->text, forms[f].needle) &&
                dr_scan(l->text, forms[f].form, found) &&
                is_version(found[forms[f].which]);
        if (good)
            found[0] = found[forms[f].which];
    }
    if (!good && dr_has(dr_command(d, i), "uname -r"))
        good = dr_scan(l->text, "^%w%e", found) && is_version(found[0]);
    if (good) {
        running->version = dr_copy(d, found[0].at, found[0].length);
        running->version_line = i;
    }
}

/* ---- configurations ---- */

/* The kernel that a path or a command names: "" for the one that runs, NULL for none. */
static const char *version_in(struct doctor *d, const char *text)
{
    const char *at = strstr(text, "config-");
    struct dr_span found[2];
    size_t length;

    if (dr_has(text, "config.gz") || dr_has(text, "config-$(uname -r)") ||
            dr_has(text, "config-`uname -r`"))
        return "";
    if (dr_scan(text, "/modules/%w/config", found))
        return dr_copy(d, found[0].at, found[0].length);
    if (at == NULL)
        return NULL;
    at += strlen("config-");
    length = strcspn(at, " \t:;|\"'*)");
    return is_version((struct dr_span){ at, length }) ? dr_copy(d, at, length) : NULL;
}

static const char *version_of_line(struct doctor *d, uint32_t i)
{
    const struct dr_line *line = &d->lines[i];
    const char *at = strstr(line->text, "CONFIG_");
    const char *version = NULL;

    if (at != NULL && at > line->text + 2) /* grep of several files */
        version = version_in(d, dr_copy(d, line->text, (size_t)(at - line->text)));
    if (version == NULL)
        version = version_in(d, dr_command(d, i));
    if (version == NULL)
        version = version_in(d, d->sources[line->source].name);
    return version;
}

static void take_line(struct doctor *d, uint32_t i)
{
    struct dr_kernel *k = d->kernel;
    const char *text = d->lines[i].text;

    if (!dr_has(text, "CONFIG_") || (d->lines[i].flags & DR_COMMAND))
        return;
    if (dr_scan(text, "CONFIG_%w is not set", NULL) ||
            dr_scan(text, "CONFIG_%w=", NULL))
        dr_known(d, i);
    for (size_t o = 0; o < NUM_OPTIONS; o++) {
        const char *at = strstr(text, options[o]);
        const char *after = at != NULL ? at + strlen(options[o]) : "";
        struct dr_config_line *line;

        if ((!dr_begins(after, " is not set") && after[0] != '=') ||
                k->num_config == DR_RECORDS_MAX)
            continue;
        line = DR_PUSH(d, k->config, k->num_config, k->room_config);
        line->machine = d->lines[i].machine;
        line->line = i;
        line->name = options[o];
        line->set = after[0] == '=' && (after[1] == 'y' || after[1] == 'm');
        line->version = version_of_line(d, i);
    }
}

/* ---- what a search did not print ---- */

/* Whether one of the words of grep's pattern finds @p name as it stands in a file. */
static bool pattern_covers(const char *command, const char *name)
{
    const char *at = strstr(command, "grep");
    const bool whole = dr_has(command, "[= ]") || dr_has(command, "=y") ||
            dr_has(command, "=[ym]");

    while (at != NULL && *at != 0) {
        const size_t length = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        const size_t skip = length >= 7 && dr_begins(at, "CONFIG_") ? 7 : 0;

        if (length - skip >= 3) {
            char word[64];
            const char *found;

            (void)snprintf(word, sizeof(word), "%.*s", (int)(length - skip), at + skip);
            found = strstr(name, word);
            if (found != NULL && (!whole || strcmp(found, word) == 0))
                return true;
        }
        at += length > 0 ? length : 1;
    }
    return false;
}

/* A whole configuration names every option that its kernel knows. */
#define WHOLE_FILE 500

/* Lines of a configuration without the option that AMD's driver needs; @p typed is the
 * command that printed them, "" for a file. An option that others rule out is not printed
 * at all, and those of a driver stand together. */
static void take_lines(struct doctor *d, uint32_t line, uint32_t first, uint32_t end,
        const char *typed, const char *version)
{
    struct dr_kernel *k = d->kernel;
    uint32_t rows = 0, after_driver = 0;
    bool driver = false;

    for (uint32_t i = first; i < end; i++) {
        const char *text = d->lines[i].text;

        if (dr_has(text, P2P_OPTION) || dr_has(text, "No such file") ||
                dr_has(text, "cannot open") || dr_has(text, "ermission denied"))
            return;
        after_driver += driver && dr_has(text, "CONFIG_");
        driver = driver || dr_has(text, "CONFIG_HSA_AMD=");
        rows += dr_has(text, "CONFIG_");
    }
    if (dr_has(typed, "grep") ? pattern_covers(typed, P2P_OPTION)
                              : rows > WHOLE_FILE || after_driver > 0)
        *DR_PUSH(d, k->searches, k->num_searches, k->room_searches) =
                (struct dr_config_search){ d->lines[line].machine, line, version,
                    P2P_OPTION };
}

static bool holds_commands(const struct doctor *d, const struct dr_source *s)
{
    for (uint32_t i = s->first; i < s->first + s->count; i++)
        if (d->lines[i].flags & DR_COMMAND)
            return true;
    return false;
}

/* "# Linux/x86 6.12.1-arch1 Kernel Configuration", or the name of the file. */
static void take_file(struct doctor *d, const struct dr_source *s)
{
    const char *version = version_in(d, s->name);
    struct dr_span found[2];

    if (s->count < 3 || holds_commands(d, s))
        return;
    for (uint32_t i = s->first;
            version == NULL && i < s->first + 5 && i < s->first + s->count; i++)
        if (dr_scan(d->lines[i].text, "Linux/%w %w Kernel Configuration", found))
            version = dr_copy(d, found[1].at, found[1].length);
    if (version != NULL)
        take_lines(d, s->first, s->first, s->first + s->count, "", version);
}

void dr_read_config(struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *version;

        read_version(d, i);
        take_line(d, i);
        if (!(d->lines[i].flags & DR_COMMAND) || !dr_has(d->lines[i].text, "config"))
            continue;
        version = version_in(d, d->lines[i].text);
        if (version != NULL)
            take_lines(d, i, i + 1, dr_output_end(d, i), d->lines[i].text, version);
    }
    for (uint32_t i = 0; i < d->num_sources; i++)
        take_file(d, &d->sources[i]);
}
