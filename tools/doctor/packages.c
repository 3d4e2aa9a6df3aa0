/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files, packages and symbols of libraries. */
#include "packages.h"

#include "facts.h"
#include "rules.h"

#include <ctype.h>
#include <string.h>

#define COPIES_MAX 512u
#define FOUND_MAX  256u
#define TRIED_MAX  16

/* What is carried from line to line. */
struct reading {
    struct dr_packages *p;
    const char *folder; /* that ls lists: "/opt/x/lib" or NULL         */
    uint32_t command;   /* to which it belongs                         */
    const char *trying; /* last file that the loader tries, LD_DEBUG   */
    uint32_t line_trying;
    struct { /* names that system calls look for            */
        const char *name;
        uint32_t line;
        bool hit;
    } opened[TRIED_MAX];
    uint32_t num_opened;
    const char *tried;   /* a list of tries without a hit, the name     */
    uint32_t line_tried; /* where it began, DR_NONE: no list            */
    bool tried_failed;
    bool tried_hit;
};

/* ---- names ---- */

bool dr_ends_path(char c)
{
    return c == 0 || isspace((unsigned char)c) || strchr("'\"`=()[]<>,;:|", c) != NULL;
}

bool dr_library_in(const char *text, struct dr_span *path, struct dr_span *name)
{
    const char *at = text;

    while ((at = strstr(at, "ccl.so")) != NULL) {
        const char *begin = at - 4, *end = at + 6;

        at = end;
        if (begin < text ||
                (!dr_begins(begin, "librccl.so") && !dr_begins(begin, "libnccl.so")))
            continue;
        while (*end == '.' && isdigit((unsigned char)end[1])) {
            end++;
            end += strspn(end, "0123456789");
        }
        if (isalnum((unsigned char)*end) || *end == '*' || *end == '-' || *end == '_' ||
                (*end == '.' && isalnum((unsigned char)end[1])))
            continue;
        if (begin > text && !dr_ends_path(begin[-1]) && begin[-1] != '/')
            continue;
        *name = (struct dr_span){ begin, (size_t)(end - begin) };
        while (begin > text && !dr_ends_path(begin[-1]))
            begin--;
        *path = (struct dr_span){ begin, (size_t)(end - begin) };
        return true;
    }
    return false;
}

/* The container or host that a line's command went to, "" if it is none. */
static const char *place_of(struct doctor *d, uint32_t line)
{
    static const char *const carriers[] = { "^ssh %w", "^docker exec %*",
        "^podman exec %*", "^kubectl exec %*", "^nerdctl exec %*", "^lxc-attach %*",
        "^pct exec %w", "^docker run %*", "^podman run %*", "^nerdctl run %*",
        "^apptainer exec %w", "^singularity exec %w" };
    static const char *const fans[] = { "pdsh ", "clush ", "pssh ", "parallel-ssh ",
        "dsh " };
    const char *command = dr_command(d, line), *text = d->lines[line].text;
    const size_t host = strcspn(text, ": \t/");
    struct dr_span who;

    if (dr_begins(command, "sudo "))
        command += strlen("sudo ");
    for (size_t i = 0; i < sizeof(carriers) / sizeof(*carriers); i++)
        if (dr_scan(command, carriers[i], &who)) {
            while (*who.at == '-') { /* options before the name */
                who.at += strcspn(who.at, " ");
                who.at += strspn(who.at, " ");
            }
            return dr_copy(d, who.at, strcspn(who.at, " "));
        }
    /* these put the host's name before what it answers */
    for (size_t i = 0; i < sizeof(fans) / sizeof(*fans); i++)
        if (dr_begins(command, fans[i]) && host > 0 && dr_begins(text + host, ": "))
            return dr_copy(d, text, host);
    return "";
}

bool dr_has_one(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (dr_has(text, *words))
            return true;
    return false;
}

/* ---- copies ---- */

static struct dr_copy_of_library *copy_at(struct doctor *d, struct reading *r,
        const char *path, uint32_t line)
{
    struct dr_packages *p = r->p;
    const char *place = place_of(d, line);
    struct dr_copy_of_library *c;

    for (uint32_t i = 0; i < p->num_copies; i++) {
        c = &p->copies[i];
        if (c->machine == d->lines[line].machine && strcmp(c->path, path) == 0 &&
                strcmp(c->place, place) == 0)
            return c;
    }
    if (p->num_copies >= COPIES_MAX)
        return NULL;
    c = DR_PUSH(d, p->copies, p->num_copies, p->room_copies);
    c->path = path;
    c->place = place;
    c->machine = d->lines[line].machine;
    c->line = line;
    c->line_origin = line;
    dr_known(d, line);
    return c;
}

static void taken(struct doctor *d, struct reading *r, struct dr_span path,
        enum dr_origin origin, uint32_t line)
{
    struct dr_copy_of_library *c =
            copy_at(d, r, dr_copy(d, path.at, path.length), line);

    if (c != NULL && origin > c->origin) {
        c->origin = origin;
        c->line_origin = line;
    }
}

/* "-rw-r--r-- 1 root root 413906720 Jul 15 10:01 librccl.so.1.0" */
static bool is_long_listing(const char *text)
{
    return strchr("-l", text[0]) != NULL && text[0] != 0 &&
            strspn(text + 1, "rwxsStT-") >= 9;
}

/* The folder that `ls` was given, if it was one. */
static const char *listed_folder(struct doctor *d, const char *command)
{
    struct dr_span word, only = { 0 };
    size_t at = 0;
    int count = 0;

    while (dr_word(command, &at, &word)) {
        if (*word.at == '|' || *word.at == ';' || *word.at == '&' || *word.at == '2')
            break;
        if (*word.at != '-' && !dr_span_is(word, "ls") && !dr_span_is(word, "sudo")) {
            only = word;
            count++;
        }
    }
    while (only.length > 1 && only.at[only.length - 1] == '/')
        only.length--;
    return count == 1 && *only.at == '/' && memchr(only.at, '*', only.length) == NULL
            ? dr_copy(d, only.at, only.length)
            : NULL;
}

static void read_listing(struct doctor *d, struct reading *r, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span path, name;
    struct dr_copy_of_library *c;
    const char *full;

    if (!dr_library_in(text, &path, &name))
        return;
    full = dr_copy(d, path.at, path.length);
    if (memchr(path.at, '/', path.length) == NULL) {
        const char *folder =
                r->folder != NULL ? r->folder : listed_folder(d, dr_command(d, line));

        if (folder != NULL)
            full = dr_printf(d, "%s/%s", folder, full);
    }
    c = copy_at(d, r, full, line);
    if (c == NULL)
        return;
    c->regular = c->regular || text[0] == '-';
    c->link = c->link || text[0] == 'l';
}

/* A version that strings of a file tell, on a line with its path or after a command that
 * names one file. */
static void read_version(struct doctor *d, struct reading *r, uint32_t line)
{
    const char *text = d->lines[line].text, *command = dr_command(d, line);
    struct dr_span version, path, name;
    struct dr_copy_of_library *c;

    if (!dr_scan(text, "CCL version %w", &version) ||
            !isdigit((unsigned char)*version.at) || !dr_has(command, "strings"))
        return;
    if (!dr_library_in(text, &path, &name) && !dr_library_in(command, &path, &name))
        return;
    c = copy_at(d, r, dr_copy(d, path.at, path.length), line);
    if (c != NULL && c->version == NULL)
        c->version = dr_copy(d, version.at, version.length);
}

/* Lines of commands that list files: they exist. */
static void read_existing(struct doctor *d, struct reading *r, uint32_t line)
{
    static const char *const listers[] = { "find ", "locate ", "ls ", "sha256sum",
        "md5sum", "file ", "stat ", "du ", "strings ", "for ", "dpkg -L", "dpkg -S",
        "rpm -q", "whereis", "motet hostcall", "ldconfig -p", "fd ", NULL };
    const char *text = d->lines[line].text, *command = dr_command(d, line);
    struct dr_span path, name;
    struct dr_copy_of_library *c;
    bool alone,
            maps = dr_has(command, "/maps") || dr_has(command, "lsof") ||
            dr_has(command, "pmap");

    if (!dr_library_in(text, &path, &name) || *path.at != '/' ||
            dr_has(text, "No such file") || dr_has(text, "annot "))
        return;
    alone = path.at[path.length] == 0 &&
            (path.at == text || (path.at[-1] == ' ' && *place_of(d, line) != 0));
    if (maps &&
            (alone || dr_has(text, " r-xp ") || dr_has(text, " r--p ") ||
                    dr_has(text, " REG "))) {
        taken(d, r, path, DR_BY_MAPS, line);
        c = copy_at(d, r, dr_copy(d, path.at, path.length), line);
        if (c != NULL)
            c->regular = true;
        return;
    }
    if (!(alone && *command == 0) && !dr_has_one(command, listers))
        return;
    c = copy_at(d, r, dr_copy(d, path.at, path.length), line);
    if (c == NULL)
        return;
    if ((alone && dr_has(command, "-type f")) || dr_has(text, ": ELF 64-bit") ||
            dr_has(text, ", regular file"))
        c->regular = true;
    if (dr_has(text, ": symbolic link"))
        c->link = true;
}

/* ---- loaders ---- */

static void absent(struct doctor *d, struct reading *r, const char *name, uint32_t line)
{
    struct dr_packages *p = r->p;
    struct dr_absent *a;

    dr_trouble(d, line);
    if (p->num_absent >= FOUND_MAX)
        return;
    a = DR_PUSH(d, p->absent, p->num_absent, p->room_absent);
    a->name = name;
    a->line = line;
    a->place = place_of(d, line);
    a->machine = d->lines[line].machine;
}

/* The last file that the loader tried is the one that it took. */
static void end_trying(struct doctor *d, struct reading *r)
{
    if (r->trying != NULL)
        taken(d, r, (struct dr_span){ r->trying, strlen(r->trying) }, DR_BY_LOADER,
                r->line_trying);
    r->trying = NULL;
}

static void read_loader(struct doctor *d, struct reading *r, uint32_t line)
{
    const char *text = d->lines[line].text, *at;
    struct dr_span path, name, f[1];

    if (dr_scan(text, "find library=%w", f))
        end_trying(d, r);
    if (!dr_library_in(text, &path, &name))
        return;
    if (dr_has(text, "trying file=") && *path.at == '/') {
        r->trying = dr_copy(d, path.at, path.length);
        r->line_trying = line;
    } else if (dr_has(text, "calling init: ") && *path.at == '/') {
        taken(d, r, path, DR_BY_LOADER, line);
        r->trying = NULL;
    } else if ((at = strstr(text, " => ")) != NULL && !dr_has(text, "(libc6")) {
        if (dr_begins(at, " => not found"))
            absent(d, r, dr_copy(d, name.at, name.length), line);
        else if (dr_library_in(at, &path, &name) && *path.at == '/')
            taken(d, r, path, DR_BY_LDD, line);
    } else if (dr_has_any_case(text, "ccl path ") && *path.at == '/') {
        taken(d, r, path, DR_BY_MAPS, line); /* what RCCL says of itself */
    }
    if ((at = strstr(text, "LD_PRELOAD=")) != NULL && dr_library_in(at, &path, &name) &&
            *path.at == '/')
        taken(d, r, path, DR_BY_PRELOAD, line);
}

/* "librccl.so.1: cannot open shared object file" and how others say it. */
static bool read_absent(struct doctor *d, struct reading *r, uint32_t line)
{
    static const char *const before[] = { "failed to load", "could not load",
        "unable to load", "cannot load", "can't load", "could not find",
        "unable to find", "failed to open", "dlopen failed", NULL };
    const char *text = d->lines[line].text, *at = text;
    struct dr_span path, name;
    bool said = false;

    for (size_t i = 0; before[i] != NULL && !said; i++)
        said = dr_has_any_case(text, before[i]);
    for (; dr_library_in(at, &path, &name); at = name.at + name.length) {
        const char *after = name.at + name.length;

        after += strspn(after, "'\"`)");
        if (dr_begins(after, ": cannot open shared object file") ||
                (dr_begins(after, " not found") && !dr_has(text, " => ")) ||
                dr_begins(after, ": not found") || said) {
            absent(d, r, dr_copy(d, path.at, path.length), line);
            return true;
        }
    }
    if (dr_has_any_case(text, "failed to load NCCL library") ||
            dr_has_any_case(text, "failed to load RCCL library")) {
        absent(d, r,
                dr_has_any_case(text, "failed to load RCCL") ? "librccl.so"
                                                             : "libnccl.so",
                line);
        return true;
    }
    return false;
}

/* openat(AT_FDCWD, "/x/librccl.so.1", O_RDONLY|O_CLOEXEC) = -1 ENOENT */
static void read_opened(struct doctor *d, struct reading *r, uint32_t line)
{
    const char *text = d->lines[line].text, *result = strrchr(text, '=');
    struct dr_span path, name;
    uint32_t i = 0;

    if (!dr_has(text, "open") || result == NULL || !dr_has(text, "(") ||
            !dr_library_in(text, &path, &name) ||
            (!dr_has(text, "O_RDONLY") && !dr_has(text, "ENOENT")))
        return;
    while (i < r->num_opened && !dr_span_is(name, r->opened[i].name))
        i++;
    if (i == TRIED_MAX)
        return;
    if (i == r->num_opened) {
        r->opened[i].name = dr_copy(d, name.at, name.length);
        r->opened[i].line = line;
        r->opened[i].hit = false;
        r->num_opened++;
    }
    if (!dr_begins(result, "= -"))
        r->opened[i].hit = true;
}

/* A list of the paths that a program tried, in one line or one each. */
static void end_tried(struct doctor *d, struct reading *r)
{
    if (r->line_tried != DR_NONE && r->tried != NULL && r->tried_failed &&
            !r->tried_hit)
        absent(d, r, r->tried, r->line_tried);
    r->line_tried = DR_NONE;
    r->tried = NULL;
    r->tried_failed = r->tried_hit = false;
}

static void read_tried(struct doctor *d, struct reading *r, uint32_t line)
{
    static const char *const misses[] = { "not found", "No such", "no such", "failed",
        "cannot", "could not", "missing", "ENOENT", "unable", NULL };
    static const char *const hits[] = { "loaded", "-> ok", ": ok", ": found", "opened",
        "success", NULL };
    const char *text = d->lines[line].text;
    const bool begins = dr_has_any_case(text, "tried") && !dr_has(text, "trying file=");
    struct dr_span path, name;
    const bool named = dr_library_in(text, &path, &name);

    if (r->line_tried != DR_NONE && !named && !begins)
        end_tried(d, r);
    if (begins &&
            (named || dr_has_any_case(text, "rccl") || dr_has_any_case(text, "nccl")))
        r->line_tried = line;
    if (r->line_tried == DR_NONE)
        return;
    if (named && r->tried == NULL)
        r->tried = dr_copy(d, name.at, name.length);
    r->tried_failed = r->tried_failed || dr_has_one(text, misses);
    r->tried_hit =
            r->tried_hit || (dr_has_one(text, hits) && !dr_has_one(text, misses));
}

/* ImportError: …/libtorch_cuda.so: undefined symbol: ncclCommSplit */
static void read_lacking(struct doctor *d, struct reading *r, uint32_t line)
{
    const char *text = d->lines[line].text, *at = strstr(text, "undefined symbol");
    struct dr_span symbol, path, name;
    struct dr_packages *p = r->p;
    struct dr_lacking *l;
    const char *begin;

    if (at == NULL || p->num_lacking >= FOUND_MAX)
        return;
    symbol.at = at + strlen("undefined symbol");
    symbol.at += strspn(symbol.at, ": '\"`");
    symbol.length = 0;
    while (isalnum((unsigned char)symbol.at[symbol.length]) ||
            symbol.at[symbol.length] == '_')
        symbol.length++;
    /* of plugins several versions are tried: "ncclNetPlugin_v10" */
    if ((!dr_begins(symbol.at, "nccl") && !dr_begins(symbol.at, "pnccl")) ||
            memmem(symbol.at, symbol.length, "_v", 2) != NULL)
        return;
    dr_trouble(d, line);
    l = DR_PUSH(d, p->lacking, p->num_lacking, p->room_lacking);
    l->symbol = dr_copy(d, symbol.at, symbol.length);
    l->line = line;
    l->place = place_of(d, line);
    l->machine = d->lines[line].machine;
    while (at > text && (at[-1] == ' ' || at[-1] == ':'))
        at--;
    for (begin = at; begin > text && !dr_ends_path(begin[-1]);)
        begin--;
    if (begin == at)
        return;
    if (dr_library_in(dr_copy(d, begin, (size_t)(at - begin)), &path, &name))
        l->library = dr_copy(d, begin, (size_t)(at - begin));
    else
        l->caller = dr_copy(d, begin, (size_t)(at - begin));
}

static void read_line(struct doctor *d, struct reading *r, uint32_t line)
{
    const struct dr_line *l = &d->lines[line];
    const char *text = l->text;

    if (l->command != r->command || (l->flags & DR_COMMAND)) {
        end_trying(d, r);
        r->folder = NULL;
        r->command = l->command;
    }
    if (l->length > 1 && text[l->length - 1] == ':' && text[0] == '/' &&
            strpbrk(text, " \t") == NULL)
        r->folder = dr_copy(d, text, l->length - 1);
    /* few lines speak of such a library: all others end here */
    if (!dr_has(text, "ccl") && !dr_has(text, "CCL") && r->line_tried == DR_NONE)
        return;
    if (dr_has(text, "ersion"))
        read_version(d, r, line);
    if (dr_has(text, "undefined symbol"))
        read_lacking(d, r, line);
    if (r->line_tried != DR_NONE || dr_has_any_case(text, "tried"))
        read_tried(d, r, line);
    if (dr_has(text, "ccl.so") || dr_has(text, "find library=") ||
            dr_has_any_case(text, "ccl library")) {
        read_loader(d, r, line);
        if (l->flags & DR_COMMAND)
            return;
        if (is_long_listing(text))
            read_listing(d, r, line);
        else if (r->tried != NULL || !read_absent(d, r, line))
            read_existing(d, r, line);
        read_opened(d, r, line);
    }
}

void dr_read_packages(struct doctor *d)
{
    struct reading r = { .command = DR_NONE, .line_tried = DR_NONE };

    r.p = d->packages = dr_alloc(d, sizeof(*d->packages));
    for (uint32_t i = 0; i < d->num_lines; i++)
        read_line(d, &r, i);
    end_trying(d, &r);
    end_tried(d, &r);
    for (uint32_t i = 0; i < r.num_opened; i++)
        if (!r.opened[i].hit)
            absent(d, &r, r.opened[i].name, r.opened[i].line);
    dr_read_settings(d);
}
