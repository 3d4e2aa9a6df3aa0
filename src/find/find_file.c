/* SPDX-License-Identifier: Apache-2.0 */
/* Folders and files: walked through, looked at, opened, listed in the report. See find.h. */
#include "find_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The candidate's row in the report, or one that is only counted. */
motet_find_candidate *motet_find_list(motet_find_search *s, const char *path,
        motet_find_origin origin, motet_find_verdict verdict)
{
    motet_find_report *report = s->report;
    motet_find_candidate *c = &s->spare;

    if (report->num_candidates < MOTET_FIND_CANDIDATES_MAX)
        c = &report->candidates[report->num_candidates++];
    else
        report->num_more++;
    motet_find_say(c->path, sizeof(c->path), "%s", path);
    c->origin = origin;
    c->verdict = verdict;
    c->detail[0] = 0;
    return c;
}

/*
 * Walking through folders.
 */

bool motet_find_identify(const char *path, motet_find_file_id *id_out)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return false;
    id_out->device = st.st_dev;
    id_out->inode = st.st_ino;
    return true;
}

bool motet_find_same(motet_find_file_id a, motet_find_file_id b)
{
    return a.device == b.device && a.inode == b.inode;
}

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

/* "BASE/part", which may be too long. */
static bool join(char out[MOTET_FIND_PATH_MAX], const char *base, const char *part,
        size_t length)
{
    int bytes = snprintf(out, MOTET_FIND_PATH_MAX, "%s/%.*s", base, (int)length, part);

    return bytes > 0 && bytes < MOTET_FIND_PATH_MAX;
}

bool motet_find_folders(motet_find_search *s, const char *base, const char *pattern,
        motet_find_visitor *visit, void *arg)
{
    char path[MOTET_FIND_PATH_MAX], part[64];
    struct dirent **entries;
    bool more = true;
    size_t length;
    int num;

    pattern += strspn(pattern, "/");
    length = strcspn(pattern, "/");
    if (length == 0)
        return !is_folder(base) || visit(s, base, arg);
    if (memchr(pattern, '*', length) == NULL)
        return !join(path, base, pattern, length) ||
                motet_find_folders(s, path, pattern + length, visit, arg);
    motet_find_say(part, sizeof(part), "%.*s", (int)length, pattern);
    num = scandir(base[0] != 0 ? base : "/", &entries, not_hidden, newest_first);
    for (int i = 0; i < num; i++) {
        const char *name = entries[i]->d_name;

        if (more && fnmatch(part, name, 0) == 0 && entries[i]->d_type != DT_REG &&
                join(path, base, name, strlen(name)) && is_folder(path))
            more = motet_find_folders(s, path, pattern + length, visit, arg);
        free(entries[i]);
    }
    if (num >= 0)
        free(entries);
    return more;
}

typedef struct file_walk {
    const char *const *names;
    motet_find_visitor *visit;
    void *arg;
} file_walk;

static bool visit_names(motet_find_search *s, const char *folder, void *arg)
{
    const file_walk *walk = arg;
    char path[MOTET_FIND_PATH_MAX];
    struct stat st;

    for (const char *const *name = walk->names; *name != NULL; name++)
        if (join(path, folder, *name, strlen(*name)) && lstat(path, &st) == 0 &&
                !walk->visit(s, path, walk->arg))
            return false;
    return true;
}

bool motet_find_files(motet_find_search *s, const char *base,
        const char *const *folders, const char *const *names, motet_find_visitor *visit,
        void *arg)
{
    file_walk walk = { names, visit, arg };

    for (; *folders != NULL; folders++)
        if (!motet_find_folders(s, base, *folders, visit_names, &walk))
            return false;
    return true;
}

/*
 * Roots: what they hold.
 */

static bool is_there(motet_find_search *s, const char *path, void *arg)
{
    (void)s;
    (void)path;
    *(bool *)arg = true;
    return false;
}

static bool has(motet_find_search *s, const char *base, const char *const *folders,
        const char *const *names)
{
    bool found = false;

    (void)motet_find_files(s, base, folders, names, is_there, &found);
    return found;
}

const char *const motet_find_itself[] = { "", NULL };
static const char *const bin[] = { "bin", NULL };

static bool is_whole(motet_find_search *s, const char *path)
{
    const motet_find_sdk *sdk = s->library->sdk;
    const char *const *folders = s->library->folders;

    return sdk != NULL && has(s, path, motet_find_itself, sdk->headers) &&
            has(s, path, folders, sdk->runtimes) && has(s, path, bin, sdk->compilers) &&
            has(s, path, folders, sdk->support);
}

static bool note_held(motet_find_search *s, const char *path, void *arg)
{
    motet_find_root *r = arg;

    (void)s;
    r->holds = true;
    if (!motet_find_identify(path, &r->id))
        memset(&r->id, 0, sizeof(r->id)); /* a link to nowhere: trying it will say so */
    return false;
}

typedef struct root_kind {
    const motet_find_install *install; /* NULL: configured */
    bool selects;
} root_kind;

static bool note_root(motet_find_search *s, const char *path, void *arg)
{
    const root_kind *kind = arg;
    motet_find_root *r;

    if (s->num_roots == MOTET_FIND_ROOTS_MAX)
        return false;
    if (strlen(path) >= sizeof(r->path))
        return true;
    r = &s->roots[s->num_roots++];
    motet_find_say(r->path, sizeof(r->path), "%s", path);
    r->install = kind->install;
    r->selects = kind->selects;
    (void)motet_find_identify(path, &r->folder);
    r->whole = is_whole(s, path);
    (void)motet_find_files(s, path, s->library->folders, s->library->names, note_held,
            r);
    return true;
}

void motet_find_note_roots(motet_find_search *s, const char *base, const char *pattern,
        const motet_find_install *install, bool selects)
{
    root_kind kind = { install, selects };

    (void)motet_find_folders(s, base, pattern, note_root, &kind);
}

void motet_find_note_family(motet_find_search *s, const char *path,
        const motet_find_install *install)
{
    motet_find_note_roots(s, path, "", install, true);
    motet_find_note_roots(s, path, "core", install, true);
    motet_find_note_roots(s, path, "core-*", install, true);
}

bool motet_find_is_new(motet_find_search *s, const char *path)
{
    motet_find_file_id id;

    if (!motet_find_identify(path, &id))
        return true;
    for (size_t i = 0; i < s->num_seen; i++)
        if (motet_find_same(s->seen[i], id))
            return false;
    if (s->num_seen < MOTET_FIND_ROOTS_MAX)
        s->seen[s->num_seen++] = id;
    return true;
}

void motet_find_list_expected(motet_find_search *s, const char *path,
        motet_find_origin origin)
{
    static const char *const folders[] = { "lib", "lib64" };
    char folder[MOTET_FIND_PATH_MAX], file[MOTET_FIND_PATH_MAX];

    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
        for (const char *const *name = s->library->names; *name != NULL; name++) {
            bool fits = join(folder, path, folders[i], strlen(folders[i])) &&
                    join(file, folder, *name, strlen(*name));
            motet_find_candidate *c = motet_find_list(s, fits ? file : path, origin,
                    MOTET_FIND_UNREADABLE);

            if (fits)
                c->verdict = motet_find_look(c);
            else
                motet_find_say(c->detail, sizeof(c->detail),
                        "the paths of its files are longer than %d bytes",
                        MOTET_FIND_PATH_MAX - 1);
        }
}

void motet_find_root_of(const char *value, char path[MOTET_FIND_PATH_MAX])
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

/* The folder that @p path lies in, by its name: a link stands where it stands. */
static void go_up(char path[MOTET_FIND_PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t length = slash != NULL ? (size_t)(slash - path) : 0;

    while (length > 0 && path[length - 1] == '/')
        length--;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        motet_find_add(path, MOTET_FIND_PATH_MAX, "/..");
    else if (slash == NULL)
        motet_find_say(path, MOTET_FIND_PATH_MAX, ".");
    else
        path[length] = 0;
}

void motet_find_environment_of(const char *value, char path[MOTET_FIND_PATH_MAX])
{
    struct stat st;
    bool file = stat(value, &st) == 0 && S_ISREG(st.st_mode);

    motet_find_say(path, MOTET_FIND_PATH_MAX, "%s", value);
    for (int up = 0; up < 2 && file; up++)
        go_up(path);
}

void motet_find_each_wheel(motet_find_search *s, const char *base,
        motet_find_visitor *visit, void *arg)
{
    static const char *const packages[] = { "", "lib/python3*/*-packages/",
        "lib64/python3*/*-packages/", "local/lib/python3*/*-packages/",
        ".local/lib/python3*/*-packages/" };
    char pattern[128];

    for (size_t i = 0; i < sizeof(packages) / sizeof(*packages); i++)
        for (const char *const *wheel = s->library->wheels;
                wheel != NULL && *wheel != NULL; wheel++) {
            const char *const folders[] = { pattern, NULL };

            motet_find_say(pattern, sizeof(pattern), "%s%s", packages[i], *wheel);
            (void)motet_find_files(s, base, folders, s->library->names, visit, arg);
        }
}

void motet_find_each_of(motet_find_search *s, const char *list,
        motet_find_path_visitor *visit)
{
    char folder[MOTET_FIND_PATH_MAX];

    while (list != NULL && *list != 0) {
        size_t length = strcspn(list, ":");

        if (length > 0 && length < sizeof(folder)) {
            motet_find_say(folder, sizeof(folder), "%.*s", (int)length, list);
            visit(s, folder);
        }
        list += length;
        list += *list == ':';
    }
}

/* ROOT of ROOT/bin/tool or ROOT/lib/llvm/bin/tool; false if @p path has another form. */
static bool root_of_tool(char *path)
{
    static const char *const tails[] = { "/lib/llvm/bin", "/bin" };

    *strrchr(path, '/') = 0;
    for (size_t i = 0; i < sizeof(tails) / sizeof(*tails); i++) {
        size_t length = strlen(path), tail = strlen(tails[i]);

        if (length > tail && strcmp(path + length - tail, tails[i]) == 0) {
            path[length - tail] = 0;
            return true;
        }
    }
    return false;
}

/* A tool on PATH shows its root: the one that PATH names, and the one of the real file. */
static bool note_tool(motet_find_search *s, const char *path, void *arg)
{
    char root[MOTET_FIND_PATH_MAX], *real = realpath(path, NULL);

    (void)arg;
    motet_find_say(root, sizeof(root), "%s", path);
    if (root_of_tool(root))
        motet_find_note_roots(s, root, "", NULL, true);
    if (real != NULL && root_of_tool(real))
        motet_find_note_roots(s, real, "", NULL, true);
    free(real);
    return true;
}

static void note_tools(motet_find_search *s, const char *folder)
{
    (void)motet_find_files(s, folder, motet_find_itself, s->library->sdk->tools,
            note_tool, NULL);
}

/* /usr and /usr/local count if something of the SDK is in them. */
static void note_system(motet_find_search *s)
{
    const motet_find_sdk *sdk = s->library->sdk;
    const char *prefix = s->request->prefix != NULL ? s->request->prefix : "";
    char path[MOTET_FIND_PATH_MAX];

    for (const char *const *system = sdk->system; *system != NULL; system++) {
        motet_find_say(path, sizeof(path), "%s%s", prefix, *system);
        if (is_whole(s, path) || has(s, path, bin, sdk->tools) ||
                has(s, path, s->library->folders, sdk->runtimes))
            motet_find_note_roots(s, path, "", NULL, true);
    }
}

/* The SDKs outside the usual folders. */
void motet_find_note_sdks(motet_find_search *s)
{
    motet_find_each_of(s, s->request->path, note_tools);
    note_system(s);
}

/*
 * Files, before they are opened as libraries.
 */

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#define OWN_MACHINE EM_NONE /* the linker checks it */
#endif
#define OWN_CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)

/* What the first bytes of an open file say; @p c gets the reason. */
static motet_find_verdict look_at_header(int fd, motet_find_candidate *c)
{
    Elf64_Ehdr header; /* type and machine lie at the same place in both classes */
    ssize_t bytes = pread(fd, &header, sizeof(header), 0);
    char text[128];

    if (bytes < 0) {
        motet_find_say(c->detail, sizeof(c->detail), "cannot be read: %s",
                strerror_r(errno, text, sizeof(text)));
        return MOTET_FIND_UNREADABLE;
    }
    if ((size_t)bytes < sizeof(header) ||
            memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        motet_find_say(c->detail, sizeof(c->detail), "not an ELF file");
        return MOTET_FIND_WRONG_FILE;
    }
    if (header.e_ident[EI_CLASS] != OWN_CLASS) {
        motet_find_say(c->detail, sizeof(c->detail), "%s-bit, this process is %d-bit",
                header.e_ident[EI_CLASS] == ELFCLASS32 ? "32" : "64",
                OWN_CLASS == ELFCLASS64 ? 64 : 32);
        return MOTET_FIND_WRONG_FILE;
    }
    if (OWN_MACHINE != EM_NONE && header.e_machine != OWN_MACHINE) {
        motet_find_say(c->detail, sizeof(c->detail),
                "for ELF machine %u, this process is %u", (unsigned)header.e_machine,
                (unsigned)OWN_MACHINE);
        return MOTET_FIND_WRONG_FILE;
    }
    if (header.e_type != ET_DYN) {
        motet_find_say(c->detail, sizeof(c->detail), "ELF, but no shared object");
        return MOTET_FIND_WRONG_FILE;
    }
    return MOTET_FIND_TAKEN;
}

motet_find_verdict motet_find_look(motet_find_candidate *c)
{
    motet_find_verdict verdict;
    char text[128];
    struct stat st;
    int fd;

    if (stat(c->path, &st) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return MOTET_FIND_ABSENT;
        motet_find_say(c->detail, sizeof(c->detail), "%s",
                strerror_r(errno, text, sizeof(text)));
        return MOTET_FIND_UNREADABLE;
    }
    if (!S_ISREG(st.st_mode)) {
        motet_find_say(c->detail, sizeof(c->detail), "%s, need a file",
                S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
        return MOTET_FIND_UNREADABLE;
    }
    fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        motet_find_say(c->detail, sizeof(c->detail),
                "%s (mode %04o, owner %u, group %u)",
                strerror_r(errno, text, sizeof(text)), (unsigned)st.st_mode & 07777u,
                (unsigned)st.st_uid, (unsigned)st.st_gid);
        return MOTET_FIND_UNREADABLE;
    }
    verdict = look_at_header(fd, c);
    close(fd);
    return verdict;
}

/* The first symbol that a loaded copy lacks, or NULL. */
static const char *lacking(const motet_find_search *s, void *handle)
{
    const char *const *name = s->request->symbols;

    for (; name != NULL && *name != NULL; name++)
        if (dlsym(handle, *name) == NULL)
            return *name;
    return NULL;
}

static void take(motet_find_search *s, motet_find_candidate *c)
{
    c->verdict = MOTET_FIND_TAKEN;
    s->report->outcome = MOTET_FIND_FOUND;
    s->report->origin = c->origin;
}

static void take_handle(motet_find_search *s, motet_find_candidate *c, void *handle)
{
    motet_find_report *report = s->report;
    struct link_map *map = NULL;

    take(s, c);
    report->handle = handle;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL ||
            map->l_name[0] == 0)
        motet_find_say(report->path, sizeof(report->path), "%s", c->path);
    else
        motet_find_say(report->path, sizeof(report->path), "%s", map->l_name);
}

/*
 * Did the linker find no file of that name? glibc starts its sentence with whatever it
 * could not use: the name itself only if there is no such file, else a path or the name
 * of something that the file needs.
 */
static bool is_absence(const char *name, const char *text)
{
    size_t length = strlen(name);

    return strchr(name, '/') == NULL && strncmp(text, name, length) == 0 &&
            text[length] == ':';
}

/* Open @p c with @p flags beside RTLD_NOW. True if it is taken. */
bool motet_find_load(motet_find_search *s, motet_find_candidate *c, int flags)
{
    void *handle = dlopen(c->path, RTLD_NOW | flags);
    const char *text;

    if (handle == NULL) {
        text = dlerror();
        if (text == NULL)
            text = "the linker gives no reason";
        c->verdict =
                is_absence(c->path, text) ? MOTET_FIND_ABSENT : MOTET_FIND_NOT_LOADED;
        motet_find_say(c->detail, sizeof(c->detail), "%s", text);
        return false;
    }
    text = lacking(s, handle);
    if (text == NULL) {
        take_handle(s, c, handle);
        return true;
    }
    /* Its constructors have run, and it may stay mapped: the search ends here. */
    s->decided = true;
    c->verdict = MOTET_FIND_LACKS;
    motet_find_say(c->detail, sizeof(c->detail), "lacks symbol %s", text);
    dlclose(handle);
    return false;
}

/* What motet_find_load() does, by the request's loader. */
static bool load_elsewhere(motet_find_search *s, motet_find_candidate *c)
{
    const motet_find_request *request = s->request;

    c->verdict = request->load(c->path, s->report->path, c->detail, request->load_arg);
    if (c->verdict == MOTET_FIND_TAKEN) {
        take(s, c);
        return true;
    }
    s->report->path[0] = 0;
    s->decided = c->verdict == MOTET_FIND_FATAL || c->verdict == MOTET_FIND_LACKS;
    if (c->verdict == MOTET_FIND_NOT_LOADED && is_absence(c->path, c->detail))
        c->verdict = MOTET_FIND_ABSENT;
    return false;
}

const motet_find_candidate *motet_find_try(motet_find_search *s, const char *path,
        motet_find_origin origin)
{
    motet_find_candidate *c = motet_find_list(s, path, origin, MOTET_FIND_TAKEN);

    if (strchr(path, '/') != NULL)
        c->verdict = motet_find_look(c);
    if (c->verdict == MOTET_FIND_TAKEN &&
            (s->request->load != NULL ? load_elsewhere(s, c)
                                      : motet_find_load(s, c, RTLD_LOCAL))) {
        if (c != &s->spare)
            return c;
        /* The report shows the one that is used, also where it is full. */
        s->report->candidates[MOTET_FIND_CANDIDATES_MAX - 1] = *c;
        return &s->report->candidates[MOTET_FIND_CANDIDATES_MAX - 1];
    }
    motet_find_say(s->last, sizeof(s->last), "%s: %s", path,
            c->verdict == MOTET_FIND_ABSENT ? "no such file" : c->detail);
    return c;
}
