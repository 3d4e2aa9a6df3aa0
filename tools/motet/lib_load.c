/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library is loaded in a child, which leads a process group of its own and answers
 * through a shared page: its constructors may crash, exit, print, start processes or never
 * return.
 */
#include "lib.h"

#include "apart.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* How far the child has come. */
enum stage { OPENING, ASKING, DONE };

struct page {
    const char *name;
    const char *const *wanted;
    _Atomic(int) stage;
    _Atomic(pid_t) group;
    struct lib_loaded said;
};

static void say(struct lib_loaded *out, motet_find_verdict verdict, const char *text)
{
    out->verdict = verdict;
    snprintf(out->why, sizeof(out->why), "%s", text);
}

bool lib_begins(const char *path, const char *const *stems, size_t num)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;

    for (size_t i = 0; i < num && stems[i] != NULL; i++)
        if (strncmp(name, stems[i], strlen(stems[i])) == 0)
            return true;
    return false;
}

bool lib_is_hip(const char *path)
{
    return lib_begins(path, motet_find_hip.stems, SIZE_MAX);
}

static int note_hip(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    struct lib_loaded *out = arg;
    int at = out->hip[0][0] != 0;

    (void)bytes;
    if (lib_is_hip(info->dlpi_name))
        snprintf(out->hip[at], sizeof(out->hip[at]), "%s", info->dlpi_name);
    return 0;
}

static void ask_version(void *handle, struct lib_loaded *out)
{
    void *symbol = dlsym(handle, "ncclGetVersion");
    int (*get_version)(int *) = NULL;
    int result;

    if (symbol == NULL)
        return;
    memcpy(&get_version, &symbol, sizeof(symbol));
    result = get_version(&out->version);
    out->has_version = result == 0;
    if (result != 0)
        snprintf(out->why, sizeof(out->why), "ncclGetVersion returns %d", result);
}

/* A name may come from a library that this one needs: the linker knows. */
static void ask_names(void *handle, const char *const *wanted, struct lib_loaded *out)
{
    for (size_t i = 0; wanted != NULL && wanted[i] != NULL && i < LIB_NAMES_MAX; i++)
        out->lacks[i] = dlsym(handle, wanted[i]) == NULL;
}

static void load_here(const char *name, struct page *page)
{
    struct lib_loaded *out = &page->said;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    struct link_map *map = NULL;

    if (handle == NULL) {
        const char *text = dlerror();

        say(out, MOTET_FIND_NOT_LOADED,
                text != NULL ? text : "the linker gives no reason");
    } else {
        bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != 0;

        out->loads = true;
        say(out, MOTET_FIND_TAKEN, "");
        snprintf(out->path, sizeof(out->path), "%s", known ? map->l_name : name);
        dl_iterate_phdr(note_hip, out);
        ask_names(handle, page->wanted, out);
        page->stage = ASKING;
        ask_version(handle, out);
    }
    page->stage = DONE;
}

/* As a fresh program would be, that nobody hears. */
static void prepare(void)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGPIPE,
        SIGINT, SIGTERM };
    const struct rlimit no_core = { 0, 0 };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        (void)signal(signals[i], SIG_DFL);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        (void)dup2(null, fd);
}

/* In the child. */
static void load_page(void *shared)
{
    struct page *page = shared;

    prepare();
    if (setpgid(0, 0) == 0)
        page->group = getpid();
    load_here(page->name, page);
}

/* What a child that did not come to its end died of. */
static void say_death(struct lib_loaded *out, enum apart end, unsigned timeout_s,
        int status, bool opened)
{
    const char *what = opened ? "ncclGetVersion" : "loading it";

    if (end != APART_CRASHED)
        snprintf(out->why, sizeof(out->why), "%s did not come back within %u s", what,
                timeout_s);
    else if (WIFSIGNALED(status))
        snprintf(out->why, sizeof(out->why), "%s ends the process: signal %d (%s)",
                what, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out->why, sizeof(out->why), "%s ends the process with exit status %d",
                what, WEXITSTATUS(status));
    out->verdict = opened ? MOTET_FIND_TAKEN : MOTET_FIND_FATAL;
    out->loads = opened;
    out->has_version = false;
}

void lib_load(const char *name, const char *const *wanted, unsigned timeout_s,
        struct lib_loaded *out)
{
    struct page *page = apart_memory(sizeof(*page));
    enum apart end = APART_FAILED;
    int status = 0;

    memset(out, 0, sizeof(*out));
    if (page != NULL) {
        page->name = name;
        page->wanted = wanted;
        end = apart_run_status(load_page, page, timeout_s, &status);
        if (page->group > 0)
            (void)kill(-page->group, SIGKILL); /* what a constructor started */
        *out = page->said;
    }
    if (end == APART_FAILED)
        say(out, MOTET_FIND_NOT_LOADED, "no process to load it in");
    else if (page->stage != DONE)
        say_death(out, end, timeout_s, status, page->stage == ASKING);
    apart_free(page, sizeof(*page));
}
