/* SPDX-License-Identifier: Apache-2.0 */
/* See find.h. The policy is hipfire's (amd-hosts.md 2.2), made strict where it guessed. */
#include "find_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Copies of one library in one process that are told apart; a third adds nothing. */
#define MAPPED_MAX 4

static const motet_find_install amd_installs[] = {
    { "/opt/rocm", "/opt/rocm-*", "ROCM_PATH" },
    { "/opt/dtk", "/opt/dtk-*", "DTK_ROOT" },
    { NULL, NULL, NULL },
};
static const char *const amd_folders[] = { "lib", "lib/*", "lib64", "lib64/*",
    "hip/lib", NULL };

const motet_find_library motet_find_hip = {
    .what = "AMD's HIP runtime",
    .stems = (const char *const[]){ "libamdhip64.so", "libgalaxyhip.so", NULL },
    .names = (const char *const[]){ "libamdhip64.so.7", "libamdhip64.so.6",
            "libamdhip64.so.5", "libgalaxyhip.so.5", NULL },
    .folders = amd_folders,
    .installs = amd_installs,
    .by_name = true,
    .hint = "install ROCm or Hygon's DTK, or set ROCM_PATH to where it is",
};

static bool is_set(const motet_find_setting *setting)
{
    return setting->value != NULL && setting->value[0] != 0;
}

static bool identify(const char *path, motet_find_file_id *id_out)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return false;
    id_out->device = st.st_dev;
    id_out->inode = st.st_ino;
    return true;
}

static bool same_file(motet_find_file_id a, motet_find_file_id b)
{
    return a.device == b.device && a.inode == b.inode;
}

/*
 * What is mapped already.
 */

typedef struct mapped {
    const motet_find_library *library;
    size_t num;
    char paths[MAPPED_MAX][MOTET_FIND_PATH_MAX];
} mapped;

static bool is_copy(const motet_find_library *library, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;

    for (const char *const *stem = library->stems; *stem != NULL; stem++) {
        size_t length = strlen(*stem);

        if (strncmp(name, *stem, length) == 0 &&
                (name[length] == 0 || name[length] == '.'))
            return true;
    }
    return false;
}

/* For dl_iterate_phdr(), under the linker's lock: copies names and nothing else. */
static int note_mapped(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    mapped *m = arg;

    (void)bytes;
    if (info->dlpi_name == NULL || !is_copy(m->library, info->dlpi_name))
        return 0;
    motet_find_say(m->paths[m->num], sizeof(m->paths[m->num]), "%s", info->dlpi_name);
    m->num++;
    return m->num == MAPPED_MAX;
}

static void refuse_two(motet_find_search *s, const char *a, const char *b)
{
    motet_find_report *report = s->report;

    report->outcome = MOTET_FIND_TWO;
    motet_find_say(report->sentence, sizeof(report->sentence),
            "this process has mapped two copies of %s, %s and %s: one process can use "
            "one, find out which of its libraries brings the second",
            s->library->what, a, b);
}

/* True if a mapped copy, or that there are two, ends the search. */
static bool use_mapped(motet_find_search *s)
{
    mapped m = { .library = s->library };
    motet_find_report *report = s->report;
    motet_find_candidate *c;
    motet_find_file_id first, other;

    dl_iterate_phdr(note_mapped, &m);
    if (m.num == 0)
        return false;
    for (size_t i = 1; i < m.num; i++) {
        if (identify(m.paths[0], &first) && identify(m.paths[i], &other) &&
                same_file(first, other))
            continue;
        for (size_t k = 0; k < m.num; k++)
            (void)motet_find_list(s, m.paths[k], MOTET_FIND_MAPPED,
                    MOTET_FIND_NOT_TRIED);
        refuse_two(s, m.paths[0], m.paths[i]);
        return true;
    }
    c = motet_find_list(s, m.paths[0], MOTET_FIND_MAPPED, MOTET_FIND_TAKEN);
    if (!motet_find_load(s, c, RTLD_NOLOAD)) {
        report->outcome = MOTET_FIND_REFUSED;
        motet_find_say(report->sentence, sizeof(report->sentence),
                "%s that this process has mapped cannot be used: %s: %s",
                s->library->what, c->path, c->detail);
    } else
        motet_find_say(report->sentence, sizeof(report->sentence),
                "%s: this process has it mapped", report->path);
    if (is_set(&s->request->override)) {
        c = motet_find_list(s, s->request->override.value, MOTET_FIND_OVERRIDE,
                MOTET_FIND_NOT_TRIED);
        motet_find_say(c->detail, sizeof(c->detail),
                "a process uses the copy that it has mapped");
    }
    return true;
}

/*
 * An override.
 */

static void use_override(motet_find_search *s)
{
    const motet_find_setting *override = &s->request->override;
    motet_find_report *report = s->report;
    bool taken = motet_find_try(s, override->value, MOTET_FIND_OVERRIDE)->verdict ==
            MOTET_FIND_TAKEN;

    report->outcome = taken ? MOTET_FIND_FOUND : MOTET_FIND_REFUSED;
    if (taken)
        motet_find_say(report->sentence, sizeof(report->sentence), "%s: %s names it",
                report->path, override->variable);
    else
        motet_find_say(report->sentence, sizeof(report->sentence),
                "%s=%s; it is authoritative, nothing else was tried for %s",
                override->variable, s->last, s->library->what);
}

/*
 * Roots and their folders.
 */

/* Compares two names as the lists of integers in them, then as text: 7.14 > 7.9 > 7. */
static int compare_versions(const char *a, const char *b)
{
    const char *x = a, *y = b;

    for (;;) {
        size_t m, n;
        int order;

        while (*x != 0 && !isdigit((unsigned char)*x))
            x++;
        while (*y != 0 && !isdigit((unsigned char)*y))
            y++;
        if (*x == 0 || *y == 0)
            break;
        x += strspn(x, "0");
        y += strspn(y, "0");
        m = strspn(x, "0123456789");
        n = strspn(y, "0123456789");
        if (m != n)
            return m < n ? -1 : 1;
        order = memcmp(x, y, m);
        if (order != 0)
            return order;
        x += m;
        y += n;
    }
    if (*x != *y)
        return *x == 0 ? -1 : 1;
    return strcmp(a, b);
}

static int newest_first(const struct dirent **a, const struct dirent **b)
{
    return compare_versions((*b)->d_name, (*a)->d_name);
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Does something for one folder; false ends the walk. */
typedef bool folder_visitor(motet_find_search *s, const char *folder, void *arg);

/*
 * Visit each folder that @p pattern means, newest first: a path whose last part may have
 * a wildcard. Only that part is a pattern: the rest is a user's, with any characters.
 */
static bool each_folder(motet_find_search *s, const char *pattern,
        folder_visitor *visit, void *arg)
{
    const char *slash = strrchr(pattern, '/');
    char parent[MOTET_FIND_PATH_MAX], path[MOTET_FIND_PATH_MAX];
    struct dirent **entries;
    bool more = true;
    int num;

    if (slash == NULL || strchr(slash, '*') == NULL)
        return !is_folder(pattern) || visit(s, pattern, arg);
    motet_find_say(parent, sizeof(parent), "%.*s", (int)(slash - pattern), pattern);
    num = scandir(parent, &entries, not_hidden, newest_first);
    for (int i = 0; i < num; i++) {
        int bytes = snprintf(path, sizeof(path), "%s/%s", parent, entries[i]->d_name);

        if (more && bytes > 0 && (size_t)bytes < sizeof(path) &&
                fnmatch(slash + 1, entries[i]->d_name, 0) == 0 &&
                entries[i]->d_type != DT_REG && is_folder(path))
            more = visit(s, path, arg);
        free(entries[i]);
    }
    if (num >= 0)
        free(entries);
    return more;
}

/* Does something for one file of a root; false ends the walk. */
typedef bool file_visitor(motet_find_search *s, const char *path, void *arg);

typedef struct file_walk {
    file_visitor *visit;
    void *arg;
} file_walk;

static bool visit_names(motet_find_search *s, const char *folder, void *arg)
{
    const file_walk *walk = arg;
    char path[MOTET_FIND_PATH_MAX];
    struct stat st;

    for (const char *const *name = s->library->names; *name != NULL; name++) {
        int bytes = snprintf(path, sizeof(path), "%s/%s", folder, *name);

        if (bytes <= 0 || (size_t)bytes >= sizeof(path) || lstat(path, &st) != 0)
            continue;
        if (!walk->visit(s, path, walk->arg))
            return false;
    }
    return true;
}

/* Visit each file of @p path that has a wanted name, in the order of folders and names. */
static void each_file(motet_find_search *s, const char *path, file_visitor *visit,
        void *arg)
{
    char pattern[MOTET_FIND_PATH_MAX];
    file_walk walk = { visit, arg };

    for (const char *const *folder = s->library->folders; *folder != NULL; folder++) {
        int bytes = snprintf(pattern, sizeof(pattern), "%s/%s", path, *folder);

        if (bytes > 0 && (size_t)bytes < sizeof(pattern) &&
                !each_folder(s, pattern, visit_names, &walk))
            return;
    }
}

static bool note_held(motet_find_search *s, const char *path, void *arg)
{
    motet_find_root *r = arg;

    (void)s;
    r->holds = true;
    if (!identify(path, &r->id))
        memset(&r->id, 0, sizeof(r->id)); /* a link to nowhere: trying it will say so */
    return false;
}

typedef struct root_kind {
    const motet_find_install *install; /* NULL: configured */
    bool unversioned;
} root_kind;

static bool note_root(motet_find_search *s, const char *path, void *arg)
{
    const root_kind *kind = arg;
    motet_find_root *r;

    if (s->num_roots == MOTET_FIND_ROOTS_MAX)
        return false;
    r = &s->roots[s->num_roots++];
    motet_find_say(r->path, sizeof(r->path), "%s", path);
    r->install = kind->install;
    r->unversioned = kind->unversioned;
    each_file(s, path, note_held, r);
    return true;
}

/* @p path with what TheRock's packages put below it: a link "core" or versioned folders. */
static void note_family(motet_find_search *s, const char *path,
        const motet_find_install *install)
{
    root_kind selects = { install, true }, versioned = { install, false };
    char below[MOTET_FIND_PATH_MAX];

    if (is_folder(path))
        (void)note_root(s, path, &selects);
    motet_find_say(below, sizeof(below), "%s/core", path);
    (void)each_folder(s, below, note_root, &selects);
    motet_find_say(below, sizeof(below), "%s/core-*", path);
    (void)each_folder(s, below, note_root, &versioned);
}

static bool try_file(motet_find_search *s, const char *path, void *arg)
{
    motet_find_origin origin = *(motet_find_origin *)arg;
    motet_find_file_id id;

    if (identify(path, &id)) {
        for (size_t i = 0; i < s->num_tried; i++)
            if (same_file(s->tried[i], id))
                return true; /* lib64 is often a link to lib */
        if (s->num_tried < MOTET_FIND_ROOTS_MAX)
            s->tried[s->num_tried++] = id;
    }
    return motet_find_try(s, path, origin)->verdict != MOTET_FIND_TAKEN && !s->decided;
}

/* Try the files of one root, which then decides. @p where is for the sentences. */
static void use_root(motet_find_search *s, const motet_find_root *r,
        motet_find_origin origin, const char *where)
{
    motet_find_report *report = s->report;

    report->outcome = MOTET_FIND_REFUSED;
    each_file(s, r->path, try_file, &origin);
    if (report->outcome == MOTET_FIND_FOUND)
        motet_find_say(report->sentence, sizeof(report->sentence), "%s: in %s",
                report->path, where);
    else
        motet_find_say(report->sentence, sizeof(report->sentence),
                "%s decides, and its copy of %s cannot be used: %s; nothing else was "
                "tried",
                where, s->library->what, s->last);
}

/* The files that a root could have had: absent, or behind a folder that is not readable. */
static void list_expected(motet_find_search *s, const char *path,
        motet_find_origin origin)
{
    static const char *const folders[] = { "lib", "lib64" };
    char file[MOTET_FIND_PATH_MAX];

    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
        for (const char *const *name = s->library->names; *name != NULL; name++) {
            motet_find_candidate *c;

            motet_find_say(file, sizeof(file), "%s/%s/%s", path, folders[i], *name);
            c = motet_find_list(s, file, origin, MOTET_FIND_ABSENT);
            c->verdict = motet_find_look(c);
        }
}

/* "a, b or c" of a list of names. */
static void add_names(char *buf, size_t bytes, const char *const *names)
{
    for (size_t i = 0; names[i] != NULL; i++) {
        const char *before = names[i + 1] == NULL ? " or " : ", ";

        motet_find_add(buf, bytes, "%s%s", i == 0 ? "" : before, names[i]);
    }
}

static void refuse_configured(motet_find_search *s, const char *where, const char *path)
{
    motet_find_report *report = s->report;
    char text[128];
    struct stat st;

    report->outcome = MOTET_FIND_REFUSED;
    list_expected(s, path, MOTET_FIND_CONFIGURED);
    motet_find_say(report->sentence, sizeof(report->sentence), "%s ", where);
    if (stat(path, &st) != 0)
        motet_find_add(report->sentence, sizeof(report->sentence), "cannot be used: %s",
                strerror_r(errno, text, sizeof(text)));
    else if (!S_ISDIR(st.st_mode))
        motet_find_add(report->sentence, sizeof(report->sentence), "is not a folder");
    else {
        motet_find_add(report->sentence, sizeof(report->sentence), "has no ");
        add_names(report->sentence, sizeof(report->sentence), s->library->names);
        motet_find_add(report->sentence, sizeof(report->sentence),
                " in its library folders");
    }
    motet_find_add(report->sentence, sizeof(report->sentence),
            "; it is authoritative, nothing else was tried for %s", s->library->what);
}

/* The folder that a variable means: without slashes at its end, nor a last part "hip". */
static void root_of(const char *value, char path[MOTET_FIND_PATH_MAX])
{
    size_t length;

    motet_find_say(path, MOTET_FIND_PATH_MAX, "%s", value);
    for (int pass = 0; pass < 2; pass++) {
        length = strlen(path);
        while (length > 1 && path[length - 1] == '/')
            path[--length] = 0;
        if (pass == 0 && length > 4 && strcmp(path + length - 4, "/hip") == 0)
            path[length - 3] = 0;
    }
}

static void use_configured(motet_find_search *s, const motet_find_setting *setting)
{
    char path[MOTET_FIND_PATH_MAX], where[MOTET_FIND_PATH_MAX + 64];

    root_of(setting->value, path);
    motet_find_say(where, sizeof(where), "%s=%s", setting->variable, setting->value);
    note_family(s, path, NULL);
    for (size_t i = 0; i < s->num_roots; i++)
        if (s->roots[i].holds) {
            use_root(s, &s->roots[i], MOTET_FIND_CONFIGURED, where);
            return;
        }
    refuse_configured(s, where, path);
}

/*
 * The installs of this machine.
 */

static void note_installs(motet_find_search *s)
{
    const char *prefix = s->request->prefix != NULL ? s->request->prefix : "";
    const motet_find_install *install = s->library->installs;
    char path[MOTET_FIND_PATH_MAX];

    for (; install->selector != NULL; install++) {
        root_kind versioned = { install, false };
        size_t before = s->num_roots;

        motet_find_say(path, sizeof(path), "%s%s", prefix, install->selector);
        note_family(s, path, install);
        motet_find_say(path, sizeof(path), "%s%s", prefix, install->versioned);
        (void)each_folder(s, path, note_root, &versioned);
        if (s->num_roots == before) {
            motet_find_say(path, sizeof(path), "%s%s", prefix, install->selector);
            (void)motet_find_list(s, path, MOTET_FIND_INSTALLED, MOTET_FIND_ABSENT);
        }
    }
}

/* An unversioned root of the same vendor that holds the library selects. */
static const motet_find_root *selector_of(const motet_find_search *s,
        const motet_find_install *install)
{
    for (size_t i = 0; i < s->num_roots; i++)
        if (s->roots[i].holds && s->roots[i].unversioned &&
                s->roots[i].install == install)
            return &s->roots[i];
    return NULL;
}

/* Roots that could each be meant: one of each real library. Returns how many there are. */
static size_t contenders(const motet_find_search *s,
        const motet_find_root *out[MOTET_FIND_ROOTS_MAX])
{
    size_t num = 0;

    for (size_t i = 0; i < s->num_roots; i++) {
        const motet_find_root *r = &s->roots[i], *selector = selector_of(s, r->install);
        bool known = !r->holds || (selector != NULL && selector != r);

        for (size_t k = 0; k < num && !known; k++)
            known = same_file(out[k]->id, r->id);
        if (!known)
            out[num++] = r;
    }
    return num;
}

static void refuse_several(motet_find_search *s, const motet_find_root *const *roots,
        size_t num)
{
    motet_find_report *report = s->report;
    motet_find_candidate *c;

    report->outcome = MOTET_FIND_AMBIGUOUS;
    motet_find_say(report->sentence, sizeof(report->sentence), "%zu installs have %s, ",
            num, s->library->what);
    for (size_t i = 0; i < num; i++) {
        const char *between = i + 1 < num ? ", " : " and ";

        c = motet_find_list(s, roots[i]->path, MOTET_FIND_INSTALLED,
                MOTET_FIND_NOT_TRIED);
        motet_find_say(c->detail, sizeof(c->detail), "to use it set %s=%s",
                roots[i]->install->variable, roots[i]->path);
        motet_find_add(report->sentence, sizeof(report->sentence), "%s%s",
                i == 0 ? "" : between, roots[i]->path);
    }
    motet_find_add(report->sentence, sizeof(report->sentence),
            ", and nothing selects one: set %s=%s", roots[0]->install->variable,
            roots[0]->path);
}

/* What the chosen root leaves aside, and those that lack the library. */
static void list_others(motet_find_search *s, const motet_find_root *chosen)
{
    motet_find_candidate *c;

    for (size_t i = 0; i < s->num_roots; i++) {
        const motet_find_root *r = &s->roots[i];

        if (!r->holds) {
            c = motet_find_list(s, r->path, MOTET_FIND_INSTALLED, MOTET_FIND_ABSENT);
            motet_find_say(c->detail, sizeof(c->detail),
                    "a folder without the library");
        } else if (chosen != NULL && r != chosen && !same_file(r->id, chosen->id)) {
            c = motet_find_list(s, r->path, MOTET_FIND_INSTALLED, MOTET_FIND_NOT_TRIED);
            motet_find_say(c->detail, sizeof(c->detail),
                    "%s selects; to use it set %s=%s", chosen->path,
                    r->install->variable, r->path);
        }
    }
}

/* True if an install, or that there are several, ends the search. */
static bool use_installs(motet_find_search *s)
{
    const motet_find_root *roots[MOTET_FIND_ROOTS_MAX];
    size_t num;

    note_installs(s);
    num = contenders(s, roots);
    if (num > 1)
        refuse_several(s, roots, num);
    else if (num == 1)
        use_root(s, roots[0], MOTET_FIND_INSTALLED, roots[0]->path);
    list_others(s, num == 1 ? roots[0] : NULL);
    return num > 0;
}

/*
 * The linker's own search, and nothing.
 */

/* True if it found one that can, or one that cannot, be used. */
static bool use_linker(motet_find_search *s)
{
    motet_find_report *report = s->report;
    char refusal[MOTET_FIND_SENTENCE_MAX] = "";

    for (const char *const *name = s->library->names; *name != NULL; name++) {
        motet_find_verdict verdict =
                motet_find_try(s, *name, MOTET_FIND_LINKER)->verdict;

        if (verdict == MOTET_FIND_TAKEN) {
            motet_find_say(report->sentence, sizeof(report->sentence),
                    "%s: where the linker finds %s", report->path, *name);
            return true;
        }
        if (verdict != MOTET_FIND_ABSENT && refusal[0] == 0)
            motet_find_say(refusal, sizeof(refusal), "%s", s->last);
        if (s->decided)
            break;
    }
    if (refusal[0] == 0)
        return false;
    report->outcome = MOTET_FIND_REFUSED;
    motet_find_say(report->sentence, sizeof(report->sentence),
            "the linker finds a copy of %s that cannot be used: %s", s->library->what,
            refusal);
    return true;
}

static void say_none(motet_find_search *s)
{
    const motet_find_install *install = s->library->installs;
    char *sentence = s->report->sentence;
    size_t bytes = sizeof(s->report->sentence);

    motet_find_say(sentence, bytes, "%s was not found: no ", s->library->what);
    add_names(sentence, bytes, s->library->names);
    for (size_t i = 0; install[i].selector != NULL; i++)
        motet_find_add(sentence, bytes, "%s%s, %s", i == 0 ? " in " : ", ",
                install[i].selector, install[i].versioned);
    motet_find_add(sentence, bytes, "%s; %s",
            s->library->by_name ? ", nor where the linker looks" : "",
            s->library->hint);
}

static void look(motet_find_search *s)
{
    const motet_find_request *request = s->request;

    if (use_mapped(s))
        return;
    if (is_set(&request->override)) {
        use_override(s);
        return;
    }
    for (size_t i = 0; i < MOTET_FIND_SETTINGS_MAX; i++)
        if (is_set(&request->roots[i])) {
            use_configured(s, &request->roots[i]);
            return;
        }
    if (use_installs(s) || (s->library->by_name && use_linker(s)))
        return;
    say_none(s);
}

bool motet_find_open(const motet_find_request *request, motet_find_report *report)
{
    motet_find_search *s = calloc(1, sizeof(*s));

    memset(report, 0, sizeof(*report));
    if (s == NULL) {
        report->outcome = MOTET_FIND_REFUSED;
        motet_find_say(report->sentence, sizeof(report->sentence),
                "no memory to look for %s", request->library->what);
        return false;
    }
    report->outcome = MOTET_FIND_NONE;
    s->request = request;
    s->library = request->library;
    s->report = report;
    look(s);
    free(s);
    return report->outcome == MOTET_FIND_FOUND;
}
