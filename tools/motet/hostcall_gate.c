/* SPDX-License-Identifier: Apache-2.0 */
/* motet hostcall --gate: which kernels may declare a hostcall, and which do. */
#include "hostcall.h"

#include "cmd.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* A longer list of patterns is none. */
#define ALLOW_BYTES ((size_t)4 << 20)

/* The pattern on a line, without blanks and what follows a #; NULL if there is none. */
static const char *pattern_on(char *line)
{
    char *begin = line + strspn(line, " \t\r"), *end = begin;

    while (*end != 0 &&
            (*end != '#' || (end > begin && strchr(" \t", end[-1]) == NULL)))
        end++;
    while (end > begin && strchr(" \t\r", end[-1]) != NULL)
        end--;
    *end = 0;
    return end > begin ? begin : NULL;
}

bool hostcall_read_allow(const char *path, struct hostcall_allow *out)
{
    FILE *in = fopen(path, "re");
    char *text = calloc(1, ALLOW_BYTES + 1), *save = NULL;
    const char *why = NULL;
    size_t bytes = 0;

    *out = (struct hostcall_allow){ .text = text };
    if (in == NULL || text == NULL)
        why = strerror(errno);
    else if ((bytes = fread(text, 1, ALLOW_BYTES + 1, in)) > ALLOW_BYTES)
        why = "longer than 4 MiB, no list of patterns";
    else if (ferror(in))
        why = strerror(errno);
    else if (memchr(text, 0, bytes) != NULL)
        why = "not a text";
    if (in != NULL)
        (void)fclose(in);
    if (why != NULL) {
        hostcall_complain(path, "%s", why);
        return false;
    }
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
            line = strtok_r(NULL, "\n", &save)) {
        const char *pattern = pattern_on(line);

        if (pattern == NULL)
            continue;
        out->pattern = hostcall_more(out->pattern, &out->num, &out->room,
                sizeof(*out->pattern));
        out->pattern[out->num - 1] = pattern;
    }
    return true;
}

static bool is_allowed(const struct hostcall_allow *allow, const char *kernel)
{
    for (size_t i = 0; i < allow->num; i++)
        if (fnmatch(allow->pattern[i], kernel, 0) == 0)
            return true;
    return false;
}

static void refuse(struct hostcall_gate *gate, const char *path,
        const struct hostcall_image *m, const char *kernel)
{
    struct hostcall_offender *o;

    if (gate->num == HOSTCALL_OFFENDERS_MAX)
        return;
    gate->offenders = hostcall_more(gate->offenders, &gate->num, &gate->room,
            sizeof(*gate->offenders));
    o = &gate->offenders[gate->num - 1];
    o->path = hostcall_copy(path);
    o->target = hostcall_copy(m->text);
    o->kernel = hostcall_copy(kernel);
}

void hostcall_gate(struct hostcall_gate *gate, const struct hostcall_file *file)
{
    for (size_t i = 0; i < file->num; i++) {
        const struct hostcall_image *m = &file->images[i];
        const size_t unnamed = m->declaring - m->num_names;
        const char *between = m->text[0] != 0 ? ": " : "";

        for (size_t k = 0; k < m->num_names; k++) {
            if (is_allowed(&gate->allow, m->names[k])) {
                gate->allowed++;
                continue;
            }
            gate->refused++;
            refuse(gate, file->path, m, m->names[k]);
            hostcall_complain(file->path,
                    "%s%skernel %s declares a hostcall and is not allowed to", m->text,
                    between, m->names[k]);
        }
        gate->refused += unnamed;
        if (unnamed > 0)
            hostcall_complain(file->path,
                    "%s%s%zu further kernels declare a hostcall, too many to be held "
                    "against the list",
                    m->text, between, unnamed);
    }
}

void hostcall_gate_clear(struct hostcall_gate *gate)
{
    for (size_t i = 0; i < gate->num; i++) {
        free(gate->offenders[i].path);
        free(gate->offenders[i].target);
        free(gate->offenders[i].kernel);
    }
    free(gate->offenders);
    free(gate->allow.pattern);
    free(gate->allow.text);
    *gate = (struct hostcall_gate){ .num = 0 };
}
