/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about files, packages and symbols of libraries. */
#include "facts.h"
#include "packages.h"
#include "rules.h"

#include <string.h>

/* Files that a sentence lists. */
#define LISTED_MAX 8u
#define WHEEL_FILE "nvidia/nccl/lib/libnccl.so.2"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* The folder of a path, without a slash at its end. */
static struct dr_span folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return (struct dr_span){ path, slash != NULL ? (size_t)(slash - path) : 0 };
}

/* ---- not found ---- */

/* Where the library lies all the same: a file of that name, or another name of it. */
static const struct dr_copy_of_library *lies_at(const struct doctor *d,
        const struct dr_absent *a)
{
    const struct dr_packages *p = d->packages;
    const struct dr_copy_of_library *best = NULL;
    const char *name = base_name(a->name);

    for (uint32_t i = 0; i < p->num_copies; i++) {
        const struct dr_copy_of_library *c = &p->copies[i];

        if (c->machine != a->machine || strcmp(c->place, a->place) != 0 ||
                c->path[0] != '/' ||
                strncmp(base_name(c->path), name, strlen("librccl")) != 0)
            continue;
        if (strcmp(base_name(c->path), name) == 0)
            return c;
        if (best == NULL || (!c->link && best->link))
            best = c;
    }
    return best;
}

static void rule_absent(struct doctor *d, const struct dr_absent *a)
{
    const struct dr_copy_of_library *c = lies_at(d, a);
    struct dr_finding *f =
            dr_found(d, DR_LIB_NOT_FOUND, "%s", c != NULL ? c->path : a->name);
    struct dr_span folder;

    dr_because(d, f, a->line);
    if (c == NULL) {
        dr_say(d, f, "The loader finds no %s.", base_name(a->name));
        dr_fix(d, f,
                "Find the file (`find / -name '%s*' 2>/dev/null`) and put its folder "
                "into "
                "LD_LIBRARY_PATH, or into /etc/ld.so.conf.d followed by `ldconfig`.",
                base_name(a->name));
        dr_fix(d, f, "On Nix the library has a store path of its own: give that path.");
        return;
    }
    folder = folder_of(c->path);
    dr_say(d, f,
            "The loader finds no %s; it lies at %s, in a folder that is not searched.",
            base_name(a->name), c->path);
    dr_because(d, f, c->line);
    dr_fix(d, f,
            "Run with LD_LIBRARY_PATH=%.*s, or for every program: `echo %.*s > "
            "/etc/ld.so.conf.d/rccl.conf && ldconfig`.",
            (int)folder.length, folder.at, (int)folder.length, folder.at);
    if (strcmp(base_name(c->path), base_name(a->name)) != 0)
        dr_fix(d, f,
                "Check that a name %s is there as well: a package of another version "
                "may have been installed.",
                base_name(a->name));
}

/* ---- older than its caller ---- */

/* When a symbol came, by NCCL's releases. */
static const struct {
    const char *symbol, *version;
} since[] = { { "ncclCommAbort", "2.4" }, { "ncclCommGetAsyncError", "2.4" },
    { "ncclSend", "2.7" }, { "ncclRecv", "2.7" },
    { "ncclRedOpCreatePreMulSum", "2.11" }, { "ncclRedOpDestroy", "2.11" },
    { "ncclGetLastError", "2.13" }, { "ncclCommInitRankConfig", "2.14" },
    { "ncclCommFinalize", "2.14" }, { "ncclCommSplit", "2.18" },
    { "ncclMemAlloc", "2.19" }, { "ncclMemFree", "2.19" },
    { "ncclCommRegister", "2.19" }, { "ncclCommDeregister", "2.19" },
    { "ncclGroupSimulateEnd", "2.22" }, { "ncclCommInitRankScalable", "2.23" },
    { "ncclCommShrink", "2.27" }, { "ncclCommWindowRegister", "2.27" },
    { "ncclCommWindowDeregister", "2.27" }, { "ncclAlltoAll", "2.28" },
    { "ncclGather", "2.28" }, { "ncclScatter", "2.28" },
    { "ncclDevCommCreate", "2.28" }, { "ncclDevCommDestroy", "2.28" },
    { "ncclCommRevoke", "2.28" }, { "ncclCommGetUniqueId", "2.29" },
    { "ncclCommGrow", "2.29" }, { "ncclPutSignal", "2.29" },
    { "ncclCommSuspend", "2.29" }, { "ncclCommResume", "2.29" },
    { "ncclCommMemStats", "2.29" } };

static const char *came_with(const char *symbol)
{
    symbol += symbol[0] == 'p';
    for (size_t i = 0; i < sizeof(since) / sizeof(*since); i++)
        if (strcmp(since[i].symbol, symbol) == 0)
            return since[i].version;
    return NULL;
}

/* The copy that the loader took, as far as the text tells: the surest source, or the only
 * file there is. */
static const struct dr_copy_of_library *winner(const struct doctor *d, uint32_t machine,
        const char *place)
{
    const struct dr_packages *p = d->packages;
    const struct dr_copy_of_library *best = NULL, *only = NULL;
    uint32_t files = 0;

    for (uint32_t i = 0; i < p->num_copies; i++) {
        const struct dr_copy_of_library *c = &p->copies[i];

        if (c->machine != machine || strcmp(c->place, place) != 0)
            continue;
        if (c->origin > DR_BY_NOTHING && (best == NULL || c->origin > best->origin))
            best = c;
        if (!c->link) {
            files++;
            only = c;
        }
    }
    return best != NULL ? best : files == 1 ? only : NULL;
}

static bool two_wheels(const struct dr_packages *p, uint32_t *one, uint32_t *other)
{
    for (uint32_t i = 0; i < p->num_wheels; i++)
        for (uint32_t k = i + 1; k < p->num_wheels; k++) {
            const struct dr_wheel *a = &p->wheels[i], *b = &p->wheels[k];
            const bool same_place = a->place[0] != 0 && strcmp(a->place, b->place) == 0;
            const bool same_list = a->source == b->source && a->command == b->command &&
                    a->place[0] == 0 && b->place[0] == 0;

            if (a->cuda != b->cuda && (same_place || same_list)) {
                *one = i;
                *other = k;
                return true;
            }
        }
    return false;
}

static void rule_lacking(struct doctor *d, const struct dr_lacking *l)
{
    const struct dr_copy_of_library *c = l->library == NULL || l->library[0] != '/'
            ? winner(d, l->machine, l->place)
            : NULL;
    const char *file = c != NULL ? c->path : l->library != NULL ? l->library : NULL;
    const char *version = came_with(l->symbol);
    struct dr_finding *f;
    uint32_t one, other;

    if (file == NULL)
        file = two_wheels(d->packages, &one, &other) ? WHEEL_FILE : "libnccl.so.2";
    f = dr_found(d, DR_LIB_OLDER_THAN_CALLER, "%s", file);
    if (f->summary[0] == 0)
        dr_say(d, f, "%s%s%s%s%s lacks %s%s%s%s.", file,
                c != NULL && c->version != NULL ? ", version " : "",
                c != NULL && c->version != NULL ? c->version : "",
                c != NULL && c->version != NULL ? "," : "", "", l->symbol,
                version != NULL ? ", which came with NCCL " : "",
                version != NULL ? version : "",
                l->caller != NULL ? dr_printf(d, "; %s needs it", base_name(l->caller))
                                  : "");
    dr_because(d, f, l->line);
    if (c != NULL && c->origin > DR_BY_NOTHING) {
        dr_because(d, f, c->line_origin);
        dr_fix(d, f,
                "Take %.*s out of what puts it first (LD_LIBRARY_PATH, LD_PRELOAD, the "
                "loader's configuration), so that the library that the caller came "
                "with is "
                "found.",
                (int)folder_of(file).length, file);
    } else {
        dr_fix(d, f,
                "See which file is loaded: `LD_DEBUG=libs PROGRAM 2>&1 | grep nccl`; "
                "take "
                "its folder out of LD_LIBRARY_PATH, or remove the package that wrote "
                "it.");
    }
    if (version != NULL)
        dr_fix(d, f, "Or install a library of NCCL %s or newer there.", version);
}

/* ---- two wheels ---- */

static void rule_wheels(struct doctor *d)
{
    const struct dr_packages *p = d->packages;
    const char *file = WHEEL_FILE;
    struct dr_finding *f;
    uint32_t one, other;

    if (!two_wheels(p, &one, &other))
        return;
    for (uint32_t i = 0; i < p->num_copies; i++)
        if (dr_has(p->copies[i].path, WHEEL_FILE))
            file = p->copies[i].path;
    f = dr_found(d, DR_LIB_TWO_WHEELS, "%s", file);
    dr_say(d, f,
            "nvidia-nccl-cu%u%s%s and nvidia-nccl-cu%u%s%s both own %s: the one "
            "written last "
            "is there.",
            p->wheels[one].cuda, p->wheels[one].version != NULL ? " " : "",
            p->wheels[one].version != NULL ? p->wheels[one].version : "",
            p->wheels[other].cuda, p->wheels[other].version != NULL ? " " : "",
            p->wheels[other].version != NULL ? p->wheels[other].version : "", file);
    dr_because(d, f, p->wheels[one].line);
    dr_because(d, f, p->wheels[other].line);
    dr_fix(d, f,
            "`pip uninstall -y nvidia-nccl-cu%u nvidia-nccl-cu%u`, then install only "
            "the one "
            "that torch asks for, with `--force-reinstall`.",
            p->wheels[one].cuda, p->wheels[other].cuda);
}

/* ---- several copies ---- */

/* Names with a full version, and files of wheels, are no links in practice. */
static bool looks_regular(const struct dr_copy_of_library *c)
{
    if (c->link || c->path[0] != '/' || dr_begins(c->path, "/proc/"))
        return false;
    return c->regular || dr_scan(base_name(c->path), ".so.%d.%d", NULL) ||
            dr_has(c->path, "/site-packages/") || dr_has(c->path, "/dist-packages/");
}

/* "/opt/rocm" is a link to a versioned folder, "/lib" one to "/usr/lib". */
static const char *real_end(const char *path)
{
    if (dr_begins(path, "/opt/rocm")) {
        const char *rest = strchr(path + strlen("/opt/rocm"), '/');

        return rest != NULL ? rest : path;
    }
    return dr_begins(path, "/usr/lib") ? path + strlen("/usr") : path;
}

static bool may_be_one(const struct dr_copy_of_library *a,
        const struct dr_copy_of_library *b)
{
    const struct dr_span x = folder_of(a->path), y = folder_of(b->path);

    if (a->regular && b->regular)
        return strcmp(a->path, b->path) == 0;
    if (x.length == y.length && memcmp(x.at, y.at, x.length) == 0)
        return true; /* names of one file, for all that is known */
    return strcmp(real_end(a->path), real_end(b->path)) == 0;
}

static void rule_copies(struct doctor *d, uint32_t machine, const char *place)
{
    const struct dr_packages *p = d->packages;
    const struct dr_copy_of_library *files[LISTED_MAX], *mapped = NULL;
    char list[900];
    uint32_t count = 0;
    size_t used = 0;
    struct dr_finding *f;

    for (uint32_t i = 0; i < p->num_copies && count < LISTED_MAX; i++) {
        const struct dr_copy_of_library *c = &p->copies[i];
        bool fresh = c->machine == machine && strcmp(c->place, place) == 0 &&
                looks_regular(c);

        for (uint32_t k = 0; k < count && fresh; k++)
            fresh = !may_be_one(files[k], c);
        if (fresh)
            files[count++] = c;
    }
    if (count < 2)
        return;
    mapped = winner(d, machine, place);
    f = dr_found(d, DR_LIB_MULTIPLE_COPIES, "%s",
            mapped != NULL ? mapped->path : base_name(files[0]->path));
    for (uint32_t i = 0; i < count && used + 8 < sizeof(list); i++) {
        const int n = snprintf(list + used, sizeof(list) - used, "%s%s%s%s%s",
                i > 0 ? ", " : "", files[i]->path,
                files[i]->version != NULL ? " (" : "",
                files[i]->version != NULL ? files[i]->version : "",
                files[i]->version != NULL ? ")" : "");

        used += n > 0 ? (size_t)n : 0;
        dr_because(d, f, files[i]->line);
    }
    if (mapped != NULL) {
        dr_say(d, f, "The process uses %s; there are %u copies: %s.", mapped->path,
                count, list);
        dr_because(d, f, mapped->line_origin);
        dr_fix(d, f,
                "Change %s, the copy that is used; a change of another copy has no "
                "effect.",
                mapped->path);
    } else {
        dr_say(d, f,
                "There are %u copies, and the text does not say which one is used: %s.",
                count, list);
        dr_fix(d, f,
                "See which one the process maps: `grep -E 'lib(n|r)ccl' "
                "/proc/PID/maps`; "
                "change that one.");
    }
}

/* Whether copy @p i is the first of its machine or container. */
static bool is_first_of_place(const struct dr_packages *p, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (p->copies[k].machine == p->copies[i].machine &&
                strcmp(p->copies[k].place, p->copies[i].place) == 0)
            return false;
    return true;
}

/* ---- what only explains ---- */

static void rule_variable(struct doctor *d)
{
    const struct dr_packages *p = d->packages;
    uint32_t line = DR_NONE;
    const char *runs = dr_run_version(d, &line);
    struct dr_finding *f;
    struct dr_span a[3], b[3];

    if (p->line_variable == DR_NONE)
        return;
    if (runs == NULL) {
        runs = p->asked;
        line = p->line_asked;
    }
    if (runs == NULL || !dr_scan(runs, "^%d.%d.%d", a) ||
            !dr_scan(p->promised, "^%d.%d.%d", b))
        return;
    if ((size_t)(a[2].at + a[2].length - runs) == strlen(p->promised) &&
            dr_begins(runs, p->promised))
        return;
    f = dr_found(d, DR_LIB_IMAGE_ENV_MISLEADS, "%s", p->variable);
    dr_say(d, f, "%s names %s, the library that runs is %.*s.", p->variable,
            p->promised, (int)(a[2].at + a[2].length - runs), runs);
    dr_because(d, f, p->line_variable);
    dr_because(d, f, line);
}

static void rule_unlinked(struct doctor *d)
{
    const struct dr_packages *p = d->packages;
    struct dr_finding *f;

    if ((p->line_no_symbols == DR_NONE && p->line_option_off == DR_NONE) ||
            p->line_setting == DR_NONE || dr_run_version(d, NULL) != NULL)
        return;
    f = dr_found(d, DR_LIB_NOT_LINKED, "%s", "");
    dr_say(d, f,
            "The program contains no collective library: its NCCL_ and RCCL_ settings "
            "do "
            "nothing.");
    dr_because(d, f, p->line_no_symbols);
    dr_because(d, f, p->line_option_off);
    dr_because(d, f, p->line_setting);
}

void dr_rule_libraries(struct doctor *d)
{
    const struct dr_packages *p = d->packages;

    for (uint32_t i = 0; i < p->num_absent; i++)
        rule_absent(d, &p->absent[i]);
    for (uint32_t i = 0; i < p->num_lacking; i++)
        rule_lacking(d, &p->lacking[i]);
    rule_wheels(d);
    for (uint32_t i = 0; i < p->num_copies; i++)
        if (is_first_of_place(p, i))
            rule_copies(d, p->copies[i].machine, p->copies[i].place);
    rule_variable(d);
    rule_unlinked(d);
}
