/* SPDX-License-Identifier: Apache-2.0 */
/* See find.h. The policy is hipfire's (amd-hosts.md 2.2), made strict where it guessed. */
#include "find_internal.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Copies of one library in one process that are told apart; a third adds nothing. */
#define MAPPED_MAX 4

/* Write, or go on writing, the report's sentence. */
#define SAY(s, ...) \
    motet_find_say((s)->report->sentence, sizeof((s)->report->sentence), __VA_ARGS__)
#define ADD(s, ...) \
    motet_find_add((s)->report->sentence, sizeof((s)->report->sentence), __VA_ARGS__)

/* Does the report show every copy, also those that are not tried? */
static bool lists_all(const motet_find_search *s)
{
    return s->library->elsewhere != NULL;
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
    SAY(s,
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
        if (motet_find_identify(m.paths[0], &first) &&
                motet_find_identify(m.paths[i], &other) &&
                motet_find_same(first, other))
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
        SAY(s, "%s that this process has mapped cannot be used: %s: %s",
                s->library->what, c->path, c->detail);
    } else
        SAY(s, "%s: this process has it mapped", report->path);
    if (motet_find_is_set(&s->request->override)) {
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
        SAY(s, "%s: %s names it", report->path, override->variable);
    else
        SAY(s, "%s=%s; it is authoritative, nothing else was tried for %s",
                override->variable, s->last, s->library->what);
}

/*
 * Roots and their files.
 */

/* The variable that chooses a file. */
static const char *override_of(const motet_find_search *s)
{
    const char *variable = s->request->override.variable;

    return variable != NULL ? variable : s->library->override;
}

/* A copy that does not decide, and how it could. */
static void list_aside(motet_find_search *s, const char *path, motet_find_origin origin)
{
    motet_find_candidate *c = motet_find_list(s, path, origin, MOTET_FIND_NOT_TRIED);

    if (override_of(s) != NULL)
        motet_find_say(c->detail, sizeof(c->detail), "to use it set %s=%s",
                override_of(s), path);
}

static bool try_file(motet_find_search *s, const char *path, void *arg)
{
    motet_find_origin origin = *(motet_find_origin *)arg;

    if (!motet_find_is_new(s, path))
        return true;
    if (s->decided || s->report->outcome == MOTET_FIND_FOUND)
        list_aside(s, path, origin);
    else
        (void)motet_find_try(s, path, origin);
    return lists_all(s) || (s->report->outcome != MOTET_FIND_FOUND && !s->decided);
}

static void note_deciding(motet_find_search *s, const char *path)
{
    motet_find_say(s->report->root, sizeof(s->report->root), "%s", path);
}

/* Try the files of one root, which then decides. @p where is for the sentences. */
static void use_root(motet_find_search *s, const motet_find_root *r,
        motet_find_origin origin, const char *where)
{
    motet_find_report *report = s->report;

    note_deciding(s, r->path);
    report->outcome = MOTET_FIND_REFUSED;
    (void)motet_find_files(s, r->path, s->library->folders, s->library->names, try_file,
            &origin);
    if (report->outcome == MOTET_FIND_FOUND)
        SAY(s, "%s: in %s", report->path, where);
    else
        SAY(s,
                "%s decides, and its copy of %s cannot be used: %s; nothing else was "
                "tried",
                where, s->library->what, s->last);
}

/* "a, b or c" of a list of names. */
static void add_names(motet_find_search *s, const char *const *names)
{
    for (size_t i = 0; names[i] != NULL; i++) {
        const char *before = names[i + 1] == NULL ? " or " : ", ";

        ADD(s, "%s%s", i == 0 ? "" : before, names[i]);
    }
}

/* What to do where a root, or the machine, has none. */
static void add_hint(motet_find_search *s)
{
    if (lists_all(s) && override_of(s) != NULL)
        ADD(s, "; %s %s=/path/to/%s", s->library->hint, override_of(s),
                s->library->names[0]);
}

/* "WHERE has no A, B or C in its library folders". */
static void say_lacking(motet_find_search *s, const char *where)
{
    SAY(s, "%s has no ", where);
    add_names(s, s->library->names);
    ADD(s, " in its library folders");
}

static void refuse_configured(motet_find_search *s, const char *where, const char *path)
{
    motet_find_report *report = s->report;
    char text[128];
    struct stat st;

    report->outcome = MOTET_FIND_REFUSED;
    note_deciding(s, path);
    motet_find_list_expected(s, path, MOTET_FIND_CONFIGURED);
    if (stat(path, &st) != 0)
        SAY(s, "%s cannot be used: %s", where, strerror_r(errno, text, sizeof(text)));
    else if (!S_ISDIR(st.st_mode))
        SAY(s, "%s is not a folder", where);
    else
        say_lacking(s, where);
    ADD(s, "; it is authoritative, nothing else was tried for %s", s->library->what);
    add_hint(s);
}

/* The setting that configures a root, or NULL. */
static const motet_find_setting *configured(const motet_find_search *s)
{
    for (size_t i = 0; i < MOTET_FIND_SETTINGS_MAX; i++)
        if (motet_find_is_set(&s->request->roots[i]))
            return &s->request->roots[i];
    return NULL;
}

static void use_configured(motet_find_search *s, const motet_find_setting *setting)
{
    char path[MOTET_FIND_PATH_MAX], where[MOTET_FIND_PATH_MAX + 64];
    const motet_find_root *whole = NULL;

    motet_find_root_of(setting->value, path);
    motet_find_say(where, sizeof(where), "%s=%s", setting->variable, setting->value);
    motet_find_note_family(s, path, NULL);
    for (size_t i = 0; i < s->num_roots; i++) {
        if (s->roots[i].holds) {
            use_root(s, &s->roots[i], MOTET_FIND_CONFIGURED, where);
            return;
        }
        if (s->roots[i].whole && whole == NULL)
            whole = &s->roots[i];
    }
    refuse_configured(s, where, whole != NULL ? whole->path : path);
}

/*
 * Python environments and other places.
 */

static void use_python(motet_find_search *s)
{
    const motet_find_setting *python = &s->request->python;
    motet_find_report *report = s->report;
    motet_find_origin origin = MOTET_FIND_PYTHON;
    char path[MOTET_FIND_PATH_MAX];

    motet_find_environment_of(python->value, path);
    note_deciding(s, path);
    report->outcome = MOTET_FIND_REFUSED;
    motet_find_each_wheel(s, path, try_file, &origin);
    if (report->outcome == MOTET_FIND_FOUND)
        SAY(s, "%s: a wheel of the Python environment %s", report->path, path);
    else
        SAY(s, "%s: %s; it is authoritative, nothing else was tried for %s", path,
                s->last[0] != 0 ? s->last : "no wheel in it has the library",
                s->library->what);
}

/* A copy that lies elsewhere. @p arg: its origin. */
static bool visit_elsewhere(motet_find_search *s, const char *path, void *arg)
{
    if (s->library->stands_alone && s->report->outcome == MOTET_FIND_NONE &&
            !s->decided)
        return try_file(s, path, arg);
    if (motet_find_is_new(s, path))
        list_aside(s, path, *(motet_find_origin *)arg);
    return true;
}

static void look_into_folder(motet_find_search *s, const char *folder)
{
    motet_find_origin origin = MOTET_FIND_ELSEWHERE;

    (void)motet_find_files(s, folder, motet_find_itself, s->library->names,
            visit_elsewhere, &origin);
}

static void look_into_python(motet_find_search *s, const char *folder)
{
    motet_find_origin origin = MOTET_FIND_PYTHON;

    motet_find_each_wheel(s, folder, visit_elsewhere, &origin);
}

static void look_beside_bin(motet_find_search *s, const char *folder)
{
    char base[MOTET_FIND_PATH_MAX];
    char *slash;

    motet_find_say(base, sizeof(base), "%s", folder);
    slash = strrchr(base, '/');
    if (slash == NULL || strcmp(slash, "/bin") != 0)
        return;
    *slash = 0;
    look_into_python(s, base);
}

/*
 * What lies elsewhere: used, of a library that stands alone and was not found, or listed.
 * If it was used, the report says which one and why.
 */
static void look_elsewhere(motet_find_search *s)
{
    const motet_find_request *request = s->request;
    const char *prefix = request->prefix != NULL ? request->prefix : "";
    motet_find_origin python = MOTET_FIND_PYTHON, origin = MOTET_FIND_ELSEWHERE;

    motet_find_each_of(s, request->library_path, look_into_folder);
    motet_find_each_of(s, request->python_path, look_into_python);
    for (size_t i = 0; i < MOTET_FIND_PYTHONS_MAX; i++)
        if (motet_find_is_set(&request->pythons[i])) {
            static const char *const lib[] = { "lib", NULL };

            look_into_python(s, request->pythons[i].value);
            (void)motet_find_files(s, request->pythons[i].value, lib, s->library->names,
                    visit_elsewhere, &python);
        }
    motet_find_each_of(s, request->path, look_beside_bin);
    (void)motet_find_files(s, prefix, s->library->elsewhere, s->library->names,
            visit_elsewhere, &origin);
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
        size_t before = s->num_roots;

        motet_find_say(path, sizeof(path), "%s%s", prefix, install->selector);
        motet_find_note_family(s, path, install);
        motet_find_note_roots(s, prefix, install->versioned, install, false);
        if (s->num_roots == before && !lists_all(s))
            (void)motet_find_list(s, path, MOTET_FIND_INSTALLED, MOTET_FIND_ABSENT);
    }
}

static bool counts(const motet_find_root *r)
{
    return r->holds || r->whole;
}

static bool same_root(const motet_find_root *a, const motet_find_root *b)
{
    return motet_find_same(a->folder, b->folder) ||
            (a->holds && b->holds && motet_find_same(a->id, b->id));
}

/* What counts of an unversioned root's family, of the same vendor, selects. */
static const motet_find_root *selector_of(const motet_find_search *s,
        const motet_find_install *install)
{
    const motet_find_root *found = NULL;

    for (size_t i = 0; i < s->num_roots; i++) {
        const motet_find_root *r = &s->roots[i];

        if (!counts(r) || !r->selects || r->install != install)
            continue;
        if (r->holds)
            return r;
        if (found == NULL)
            found = r;
    }
    return found;
}

/* Roots that could each be meant: one of each real library. Returns how many there are. */
static size_t contenders(const motet_find_search *s,
        const motet_find_root *out[MOTET_FIND_ROOTS_MAX])
{
    size_t num = 0;

    for (size_t i = 0; i < s->num_roots; i++) {
        const motet_find_root *r = &s->roots[i], *selector = selector_of(s, r->install);
        bool known = !counts(r) || (selector != NULL && selector != r);

        for (size_t k = 0; k < num && !known; k++)
            known = same_root(out[k], r);
        if (!known)
            out[num++] = r;
    }
    return num;
}

static const char *variable_of(const motet_find_search *s, const motet_find_root *r)
{
    return s->request->selects != NULL ? s->request->selects : r->install->variable;
}

static void refuse_several(motet_find_search *s, const motet_find_root *const *roots,
        size_t num)
{
    motet_find_report *report = s->report;
    motet_find_candidate *c;

    report->outcome = MOTET_FIND_AMBIGUOUS;
    SAY(s, "%zu installs have %s%s, ", num, s->library->what,
            s->library->sdk != NULL ? " or its SDK" : "");
    for (size_t i = 0; i < num; i++) {
        const char *between = i + 1 < num ? ", " : " and ";

        if (report->num_ambiguous < MOTET_FIND_AMBIGUOUS_MAX)
            motet_find_say(report->ambiguous[report->num_ambiguous++],
                    MOTET_FIND_PATH_MAX, "%s", roots[i]->path);
        if (!lists_all(s)) {
            c = motet_find_list(s, roots[i]->path, MOTET_FIND_INSTALLED,
                    MOTET_FIND_NOT_TRIED);
            motet_find_say(c->detail, sizeof(c->detail), "to use it set %s=%s",
                    variable_of(s, roots[i]), roots[i]->path);
        }
        ADD(s, "%s%s", i == 0 ? "" : between, roots[i]->path);
    }
    ADD(s, ", and nothing selects one: set %s=%s", variable_of(s, roots[0]),
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
        } else if (chosen != NULL && r != chosen && !same_root(r, chosen)) {
            c = motet_find_list(s, r->path, MOTET_FIND_INSTALLED, MOTET_FIND_NOT_TRIED);
            motet_find_say(c->detail, sizeof(c->detail),
                    "%s selects; to use it set %s=%s", chosen->path,
                    r->install->variable, r->path);
        }
    }
}

/* A root without the library decides all the same: another copy could mix two installs. */
static void lack_in_root(motet_find_search *s, const motet_find_root *r)
{
    note_deciding(s, r->path);
    motet_find_list_expected(s, r->path, MOTET_FIND_INSTALLED);
    say_lacking(s, r->path);
    add_hint(s);
}

static void use_or_lack(motet_find_search *s, const motet_find_root *r)
{
    if (r->holds)
        use_root(s, r, MOTET_FIND_INSTALLED, r->path);
    else
        lack_in_root(s, r);
}

/* True if an SDK outside the usual folders, or a folder of theirs, ends the search. */
static bool use_sdk(motet_find_search *s)
{
    if (s->library->sdk == NULL)
        return false;
    motet_find_note_sdks(s);
    for (size_t i = 0; i < s->num_roots; i++)
        if (counts(&s->roots[i])) {
            use_or_lack(s, &s->roots[i]);
            return true;
        }
    if (s->num_roots > 0)
        lack_in_root(s, &s->roots[0]);
    return s->num_roots > 0;
}

/* True if an install, or that there are several, ends the search. */
static bool use_installs(motet_find_search *s)
{
    const motet_find_root *roots[MOTET_FIND_ROOTS_MAX];
    size_t num;

    note_installs(s);
    num = contenders(s, roots);
    if (num == 0 && use_sdk(s))
        return true;
    if (num > 1)
        refuse_several(s, roots, num);
    else if (num == 1)
        use_or_lack(s, roots[0]);
    if (!lists_all(s))
        list_others(s, num == 1 ? roots[0] : NULL);
    return num > 0;
}

/*
 * The linker's own search, and nothing.
 */

static bool asks_linker(const motet_find_search *s)
{
    return s->library->by_name || s->request->by_name;
}

/* True if it found one that can, or one that cannot, be used. */
static bool use_linker(motet_find_search *s)
{
    motet_find_report *report = s->report;
    char refusal[MOTET_FIND_SENTENCE_MAX] = "", root[MOTET_FIND_PATH_MAX];

    memcpy(root, report->root, sizeof(root));
    report->root[0] = 0; /* what is taken or refused here comes from no root */
    for (const char *const *name = s->library->names; *name != NULL; name++) {
        motet_find_verdict verdict =
                motet_find_try(s, *name, MOTET_FIND_LINKER)->verdict;

        if (verdict == MOTET_FIND_TAKEN) {
            SAY(s, "%s: where the linker finds %s", report->path, *name);
            return true;
        }
        if (verdict != MOTET_FIND_ABSENT && verdict != MOTET_FIND_NOT_TRIED &&
                refusal[0] == 0)
            motet_find_say(refusal, sizeof(refusal), "%s", s->last);
        if (s->decided)
            break;
    }
    if (refusal[0] == 0) {
        memcpy(report->root, root, sizeof(root));
        return false;
    }
    report->outcome = MOTET_FIND_REFUSED;
    SAY(s, "the linker finds a copy of %s that cannot be used: %s", s->library->what,
            refusal);
    return true;
}

static void say_none(motet_find_search *s)
{
    const motet_find_install *install = s->library->installs;

    SAY(s, "%s was not found: no ", s->library->what);
    add_names(s, s->library->names);
    for (size_t i = 0; install[i].selector != NULL; i++)
        ADD(s, "%s%s, %s", i == 0 ? " in " : ", ", install[i].selector,
                install[i].versioned);
    if (asks_linker(s))
        ADD(s, ", nor where the linker looks");
    if (lists_all(s))
        add_hint(s);
    else
        ADD(s, "; %s", s->library->hint);
}

static bool is_too_long(const motet_find_setting *setting)
{
    return strlen(setting->value) >= MOTET_FIND_PATH_MAX;
}

/* The copies of a root that an override sets aside. */
static void list_configured(motet_find_search *s)
{
    const motet_find_setting *setting = configured(s);
    motet_find_origin origin = MOTET_FIND_CONFIGURED;
    char path[MOTET_FIND_PATH_MAX];

    if (setting == NULL || !lists_all(s) || is_too_long(setting))
        return;
    motet_find_root_of(setting->value, path);
    (void)motet_find_files(s, path, s->library->folders, s->library->names,
            visit_elsewhere, &origin);
}

/* The setting that decides, or NULL. */
static const motet_find_setting *deciding(const motet_find_search *s)
{
    if (motet_find_is_set(&s->request->override))
        return &s->request->override;
    if (motet_find_is_set(&s->request->python))
        return &s->request->python;
    return configured(s);
}

static void refuse_long(motet_find_search *s, const motet_find_setting *setting)
{
    s->report->outcome = MOTET_FIND_REFUSED;
    SAY(s,
            "%s is a path longer than %d bytes; it is authoritative, nothing else was "
            "tried for %s",
            setting->variable, MOTET_FIND_PATH_MAX - 1, s->library->what);
}

/* Who decides. True if that is final: nothing else may be used. */
static bool decide(motet_find_search *s)
{
    const motet_find_request *request = s->request;
    const motet_find_setting *setting = deciding(s);

    if (use_mapped(s))
        return true;
    if (setting != NULL && is_too_long(setting)) {
        refuse_long(s, setting);
    } else if (setting == &request->override) {
        use_override(s);
        list_configured(s);
    } else if (setting == &request->python) {
        use_python(s);
    } else if (setting != NULL) {
        use_configured(s, setting);
    } else if (!use_installs(s)) {
        return asks_linker(s) && use_linker(s);
    } else if (s->report->outcome == MOTET_FIND_NONE && request->by_name) {
        (void)use_linker(s);
    }
    return true;
}

static void look(motet_find_search *s)
{
    motet_find_report *report = s->report;
    bool final = decide(s);

    s->decided |= final;
    if (report->outcome == MOTET_FIND_FOUND)
        (void)motet_find_is_new(s, report->path);
    if (!final)
        s->last[0] = 0; /* what the linker did not find */
    if (lists_all(s) && report->outcome != MOTET_FIND_AMBIGUOUS)
        look_elsewhere(s);
    if (final)
        return;
    if (report->outcome == MOTET_FIND_FOUND)
        SAY(s, "%s: the first that loads, in the usual places", report->path);
    else if (s->last[0] != 0) {
        report->outcome = MOTET_FIND_REFUSED;
        SAY(s, "no copy of %s can be used: %s", s->library->what, s->last);
    } else
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
