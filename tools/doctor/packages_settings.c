/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what is said of collective libraries besides their files: installed wheels,
 * versions in the environment and of the library that answers, programs without one.
 */
#include "packages.h"

#include "facts.h"
#include "rules.h"

#include <ctype.h>
#include <string.h>

#define FOUND_MAX 256u
/* Answers of a command are short. */
#define SHORT_LINE 200u

/* What is carried from line to line. */
struct settings {
    struct dr_packages *p;
    uint32_t command; /* to which it belongs                        */
    uint32_t wheel;   /* index of the one that pip shows, or DR_NONE */
    bool some_symbols, option_on;
    bool about; /* the command is about a collective library   */
};

/* ---- packages ---- */

static void add_wheel(struct doctor *d, struct settings *r, uint64_t cuda,
        struct dr_span version, const char *place, uint32_t line)
{
    struct dr_packages *p = r->p;
    struct dr_wheel *w;

    if (cuda < 10 || cuda > 99 || p->num_wheels >= FOUND_MAX)
        return;
    w = DR_PUSH(d, p->wheels, p->num_wheels, p->room_wheels);
    w->cuda = (unsigned)cuda;
    w->version = version.length > 0 && isdigit((unsigned char)*version.at)
            ? dr_copy(d, version.at, version.length)
            : NULL;
    w->place = place;
    w->line = line;
    w->command = d->lines[line].command;
    w->source = d->lines[line].source;
    dr_known(d, line);
}

/* `pip list --format=json`, which may be one line. */
static void read_json(struct doctor *d, struct settings *r, uint32_t line)
{
    static const char key[] = "\"name\": \"nvidia-nccl-cu%d\"";
    const char *at = d->lines[line].text;
    struct dr_span f[2] = { 0 };
    uint64_t cuda;

    for (; dr_scan(at, key, f) && dr_span_u64(f[0], &cuda); at = f[0].at) {
        f[1].length = 0;
        if (dr_scan(f[0].at, "^%d\", \"version\": \"%*\"", f))
            add_wheel(d, r, cuda, f[1], "", line);
        else
            add_wheel(d, r, cuda, (struct dr_span){ 0 }, "", line);
    }
}

/* pip list, pip freeze, conda list, pip show, names of dist-info folders. */
static void read_wheel(struct doctor *d, struct settings *r, uint32_t line)
{
    static const char *const plans[] = { "requirements", "pyproject", ".lock", "setup.",
        "pip install", "pip download", "--dry-run", NULL };
    const char *text = d->lines[line].text, *command = dr_command(d, line), *at;
    struct dr_span f[2] = { 0 }, folder;
    uint64_t cuda;

    if (r->wheel != DR_NONE && dr_scan(text, "^Version: %w", f))
        r->p->wheels[r->wheel].version = dr_copy(d, f[0].at, f[0].length);
    if (r->wheel != DR_NONE && dr_scan(text, "^Location: %w", f))
        r->p->wheels[r->wheel].place = dr_copy(d, f[0].at, f[0].length);
    if (!dr_has(text, "nvidia") || dr_has_one(command, plans))
        return;
    if (dr_scan(text, "^Name: nvidia-nccl-cu%d%e", f) && dr_span_u64(f[0], &cuda)) {
        add_wheel(d, r, cuda, (struct dr_span){ 0 }, "", line);
        r->wheel = r->p->num_wheels - 1;
        return;
    }
    read_json(d, r, line);
    at = text + strspn(text, " \t-*");
    if ((dr_scan(at, "^nvidia-nccl-cu%d==%w", f) ||
                dr_scan(at, "^nvidia-nccl-cu%d %w", f) ||
                dr_scan(at, "^nvidia_nccl_cu%d==%w", f) ||
                dr_scan(at, "^nvidia_nccl_cu%d %w", f)) &&
            dr_span_u64(f[0], &cuda)) {
        add_wheel(d, r, cuda, f[1], "", line);
    } else if (dr_scan(text, "nvidia_nccl_cu%d-%*.dist-info", f) &&
            dr_span_u64(f[0], &cuda)) {
        folder.at = text;
        folder.length = (size_t)(f[0].at - text) - strlen("nvidia_nccl_cu");
        while (folder.length > 0 && dr_ends_path(folder.at[0]))
            folder.at++, folder.length--;
        add_wheel(d, r, cuda, f[1],
                memchr(folder.at, '/', folder.length) != NULL
                        ? dr_copy(d, folder.at, folder.length)
                        : "",
                line);
    }
}

/* ---- versions ---- */

/* "2.23.4" at the first place in @p text where three numbers stand. */
static const char *version_in(struct doctor *d, const char *text)
{
    struct dr_span f[3];

    if (!dr_scan(text, "%d.%d.%d", f))
        return NULL;
    return dr_copy(d, f[0].at, (size_t)(f[2].at + f[2].length - f[0].at));
}

static void read_variable(struct doctor *d, struct settings *r, uint32_t line)
{
    static const char *const names[] = { "NCCL_VERSION", "NV_LIBNCCL_PACKAGE_VERSION",
        "NV_LIBNCCL_PACKAGE" };
    const char *text = d->lines[line].text, *at;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        at = strstr(text, names[i]);
        if (at == NULL || r->p->line_variable != DR_NONE)
            continue;
        if (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_'))
            continue;
        at += strlen(names[i]);
        if (strchr("= :\"", *at) == NULL || *at == 0)
            continue;
        r->p->promised = version_in(d, at);
        if (r->p->promised == NULL)
            continue;
        r->p->line_variable = line;
        r->p->variable = names[i];
        dr_known(d, line);
    }
}

/* 22602 or "(2, 26, 2)", as the library in use answers. */
static void read_asked(struct doctor *d, struct settings *r, uint32_t line)
{
    const char *text = d->lines[line].text, *command = dr_command(d, line);
    const bool is_output = !(d->lines[line].flags & DR_COMMAND);
    struct dr_span f[3];
    uint64_t code;

    if (!is_output || r->p->line_asked != DR_NONE)
        return;
    if ((dr_has(command, "nccl.version") || dr_has(text, "nccl.version")) &&
            dr_scan(text, "(%d, %d, %d)", f)) {
        r->p->asked = dr_printf(d, "%.*s.%.*s.%.*s", (int)f[0].length, f[0].at,
                (int)f[1].length, f[1].at, (int)f[2].length, f[2].at);
    } else if (dr_scan(text, "using nccl==%d.%d.%d%>", f)) {
        r->p->asked = dr_copy(d, f[0].at, (size_t)(f[2].at + f[2].length - f[0].at));
    } else if ((dr_scan(text, "ncclGetVersion%*%<%d%>", f) &&
                       dr_span_u64(f[1], &code)) ||
            (dr_has(command, "ncclGetVersion") && dr_scan(text, "^%d%e", f) &&
                    dr_span_u64(f[0], &code))) {
        if (code < 20000 || code > 99999)
            return;
        r->p->asked = dr_printf(d, "%u.%u.%u", (unsigned)(code / 10000),
                (unsigned)(code / 100 % 100), (unsigned)(code % 100));
    } else {
        return;
    }
    r->p->line_asked = line;
    dr_known(d, line);
}

/* ---- programs without a library ---- */

/* Whether the command counts names of the library in a program: `nm -D x | grep -c nccl`. */
static bool counts_symbols(const char *command)
{
    static const char *const readers[] = { "nm ", "strings ", "readelf ", "objdump ",
        "ldd ", NULL };
    const char *grep = strstr(command, "grep");
    struct dr_span path, name;
    char file[512];
    size_t length;

    if (grep == NULL || (!dr_scan(grep, " -%*c", NULL) && !dr_has(grep, "wc -l")) ||
            !dr_has_one(command, readers) ||
            (!dr_has_any_case(grep, "nccl") && !dr_has_any_case(grep, "rccl")) ||
            dr_has(grep, "ncclC") || dr_has(grep, "ncclA") || dr_has(grep, "ncclR"))
        return false;
    length = (size_t)(grep - command);
    (void)snprintf(file, sizeof(file), "%.*s", (int)(length < 500 ? length : 500),
            command);
    return !dr_library_in(file, &path, &name);
}

static void read_unlinked(struct doctor *d, struct settings *r, uint32_t line)
{
    static const char *const off[] = { "NCCL:BOOL=OFF", "RCCL:BOOL=OFF", "NCCL=OFF",
        "RCCL=OFF", "USE_NCCL=0", "USE_RCCL=0", NULL };
    static const char *const off_rows[] = { "CCL : OFF%>", "CCL: OFF%>", "CCL OFF%>",
        "CCL support: no%>", "CCL support: OFF%>" };
    static const char *const on[] = { "NCCL:BOOL=ON", "RCCL:BOOL=ON", "NCCL=ON",
        "RCCL=ON", "USE_NCCL=1", "USE_RCCL=1", NULL };
    const char *text = d->lines[line].text;
    struct dr_span f[1];
    uint64_t count;

    bool is_off = dr_has_one(text, off);

    for (size_t i = 0; i < sizeof(off_rows) / sizeof(*off_rows) && !is_off; i++)
        is_off = dr_scan(text, off_rows[i], NULL);
    if (is_off && r->p->line_option_off == DR_NONE)
        r->p->line_option_off = line;
    r->option_on = r->option_on || dr_has_one(text, on) ||
            dr_scan(text, "CCL : ON%>", NULL) || dr_scan(text, "CCL: ON%>", NULL);
    if (d->lines[line].flags & DR_COMMAND || !dr_scan(text, "%<%d%e", f) ||
            !dr_span_u64(f[0], &count) || !counts_symbols(dr_command(d, line)))
        return;
    if (count > 0)
        r->some_symbols = true;
    else if (r->p->line_no_symbols == DR_NONE)
        r->p->line_no_symbols = line;
    dr_known(d, line);
}

/* "NCCL_P2P_DISABLE=1", "NCCL_DEBUG: INFO", "name: NCCL_DEBUG", "ENV NCCL_DEBUG INFO". */
static bool is_set(const char *text, const char *name, size_t length)
{
    const char *after = name + length;

    if (*after == '=')
        return true;
    after += *after == '"';
    if (after[0] == ':' && after[1] == ' ')
        return true;
    return ((size_t)(name - text) >= 4 && dr_begins(name - 4, "ENV ")) ||
            (*after == 0 && (size_t)(name - text) >= 6 &&
                    dr_begins(name - 6, "name: "));
}

/* A setting that the library would read. */
static void read_setting(struct doctor *d, struct settings *r, uint32_t line)
{
    static const char *const others[] = { "NCCL_VERSION", "NCCL_ROOT", "NCCL_HOME",
        "NCCL_LIB", "NCCL_INCLUDE", "NCCL_DIR", "NCCL_PATH" };
    const char *at = d->lines[line].text;

    while (r->p->line_setting == DR_NONE && (at = strstr(at, "CCL_")) != NULL) {
        const char *begin = at - 1;
        const size_t length = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        bool other = false;

        at += length;
        if (begin < d->lines[line].text || (*begin != 'N' && *begin != 'R') ||
                (begin > d->lines[line].text &&
                        (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')))
            continue;
        for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
            other = other || dr_begins(begin, others[i]);
        if (!other && is_set(d->lines[line].text, begin, (size_t)(at - begin)))
            r->p->line_setting = line;
    }
}

static void read_line(struct doctor *d, struct settings *r, uint32_t line)
{
    const struct dr_line *l = &d->lines[line];
    const char *text = l->text;

    if (l->command != r->command || (l->flags & DR_COMMAND)) {
        r->wheel = DR_NONE;
        r->command = l->command;
        r->about = dr_has_any_case(dr_command(d, line), "ccl");
    }
    if (!dr_has(text, "ccl") && !dr_has(text, "CCL") && r->wheel == DR_NONE &&
            !(r->about && l->length < SHORT_LINE))
        return;
    read_wheel(d, r, line);
    read_unlinked(d, r, line);
    if (dr_has(text, "VERSION") || dr_has(text, "NV_LIBNCCL"))
        read_variable(d, r, line);
    read_asked(d, r, line);
    if (dr_has(text, "CCL_"))
        read_setting(d, r, line);
}

void dr_read_settings(struct doctor *d)
{
    struct settings r = { .p = d->packages, .command = DR_NONE, .wheel = DR_NONE };

    r.p->line_variable = r.p->line_asked = r.p->line_no_symbols = r.p->line_option_off =
            r.p->line_setting = DR_NONE;
    for (uint32_t i = 0; i < d->num_lines; i++)
        read_line(d, &r, i);
    if (r.some_symbols)
        r.p->line_no_symbols = DR_NONE;
    if (r.option_on)
        r.p->line_option_off = DR_NONE;
}
