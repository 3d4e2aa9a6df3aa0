/* SPDX-License-Identifier: Apache-2.0 */
/* One copy of a library: looked at, opened, and written into the report. See find.h. */
#include "find_internal.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void take(motet_find_search *s, motet_find_candidate *c, void *handle)
{
    motet_find_report *report = s->report;
    struct link_map *map = NULL;

    c->verdict = MOTET_FIND_TAKEN;
    report->outcome = MOTET_FIND_FOUND;
    report->handle = handle;
    report->origin = c->origin;
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
        take(s, c, handle);
        return true;
    }
    /* Its constructors have run, and it may stay mapped: the search ends here. */
    s->decided = true;
    c->verdict = MOTET_FIND_LACKS;
    motet_find_say(c->detail, sizeof(c->detail), "lacks symbol %s", text);
    dlclose(handle);
    return false;
}

const motet_find_candidate *motet_find_try(motet_find_search *s, const char *path,
        motet_find_origin origin)
{
    motet_find_candidate *c = motet_find_list(s, path, origin, MOTET_FIND_TAKEN);

    if (strchr(path, '/') != NULL)
        c->verdict = motet_find_look(c);
    if (c->verdict == MOTET_FIND_TAKEN && motet_find_load(s, c, RTLD_LOCAL))
        return c;
    motet_find_say(s->last, sizeof(s->last), "%s: %s", path,
            c->verdict == MOTET_FIND_ABSENT ? "no such file" : c->detail);
    return c;
}

/*
 * The report as text.
 */

const char *motet_find_origin_name(motet_find_origin origin)
{
    switch (origin) {
    case MOTET_FIND_MAPPED: return "mapped";
    case MOTET_FIND_OVERRIDE: return "override";
    case MOTET_FIND_CONFIGURED: return "configured root";
    case MOTET_FIND_INSTALLED: return "install";
    case MOTET_FIND_LINKER: return "linker's search";
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
