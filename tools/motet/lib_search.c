/* SPDX-License-Identifier: Apache-2.0 */
/* Which library, and what is known of every candidate: see lib.h. */
#include "lib.h"

#include "library.h"
#include "text.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Libraries that matter in a process, by the beginning of their file's name. */
static const char *const watched[] = { "libnccl.so", "librccl.so", "libmotet.so",
    "libamdhip64.so", "libgalaxyhip.so", "librocm_smi64.so", "libamd_smi.so" };

static const char *lookup(const char *variable, void *arg)
{
    (void)arg;
    return getenv(variable);
}

static bool is_set(const motet_find_setting *setting)
{
    return setting->value != NULL && setting->value[0] != 0;
}

/* For tests: what stands before /opt, /usr and /proc. */
static const char *host_root(void)
{
    const char *root = getenv("MOTET_HOST_ROOT");

    return root != NULL ? root : "";
}

/* The names that the client takes, or NULL. */
static const char *const *wanted_of(const struct lib_found *found)
{
    return found->client != NULL ? found->client->symbols : NULL;
}

static motet_find_verdict load(const char *name, char path_out[MOTET_FIND_PATH_MAX],
        char detail_out[MOTET_FIND_DETAIL_MAX], void *arg)
{
    struct lib_found *found = arg;
    struct lib_loaded loaded;
    size_t at = MOTET_FIND_CANDIDATES_MAX - 1; /* as in the report, if it is full */

    lib_load(name, wanted_of(found), found->timeout_s, &loaded);
    if (found->num_loaded < MOTET_FIND_CANDIDATES_MAX)
        at = found->num_loaded++;
    snprintf(found->load[at].name, MOTET_FIND_PATH_MAX, "%s", name);
    found->load[at].loaded = loaded;
    snprintf(path_out, MOTET_FIND_PATH_MAX, "%s", loaded.path);
    snprintf(detail_out, MOTET_FIND_DETAIL_MAX, "%s", text_plain(loaded.why));
    if (!found->vendor || !loaded.loads || !library_is_motet(loaded.path))
        return loaded.verdict;
    snprintf(detail_out, MOTET_FIND_DETAIL_MAX, "it is a build of motet");
    return MOTET_FIND_NOT_TRIED;
}

/*
 * Which kind of library this machine means.
 */

static bool configures(const motet_find_library *library,
        const motet_find_client *client)
{
    motet_find_request request;

    motet_find_ask(&request, library, client, lookup, NULL);
    for (size_t i = 0; i < MOTET_FIND_SETTINGS_MAX; i++)
        if (is_set(&request.roots[i]))
            return true;
    return false;
}

/* An override says it by the library's own variable, or by the file's name. */
static bool overrides(const motet_find_library *library,
        const motet_find_client *client)
{
    motet_find_request request;

    motet_find_ask(&request, library, client, lookup, NULL);
    if (!is_set(&request.override))
        return false;
    if (strcmp(request.override.variable, library->override) == 0)
        return true;
    return lib_begins(request.override.value, library->stems, SIZE_MAX);
}

static bool has_gpu(const motet_find_library *library)
{
    const char *device = library == &motet_find_rccl ? "dev/kfd" : "dev/nvidiactl";
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", host_root(), device);
    return access(path, F_OK) == 0;
}

/* The kind that something says, or NULL. */
static const motet_find_library *kind_said(const char *client)
{
    static const motet_find_library *const kinds[] = { &motet_find_rccl,
        &motet_find_nccl };
    const motet_find_client *rows[2] = { NULL };

    for (size_t i = 0; i < 2 && client != NULL; i++)
        rows[i] = motet_find_client_of(client, kinds[i]);
    for (size_t i = 0; i < 2; i++)
        if (client != NULL && rows[i] != NULL && rows[1 - i] == NULL)
            return kinds[i];
    for (size_t i = 0; i < 2; i++)
        if (overrides(kinds[i], rows[i]))
            return kinds[i];
    for (size_t i = 0; i < 2; i++)
        if (configures(kinds[i], rows[i]))
            return kinds[i];
    for (size_t i = 0; i < 2; i++)
        if (has_gpu(kinds[i]) && !has_gpu(kinds[1 - i]))
            return kinds[i];
    return NULL;
}

const motet_find_library *lib_kind(void)
{
    const motet_find_library *said = kind_said(NULL);

    return said != NULL ? said : &motet_find_rccl;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    if (stat(a, &x) != 0 || stat(b, &y) != 0)
        return strcmp(a, b) == 0;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* In place of loading: the first HIP runtime of the search is the one. */
static motet_find_verdict take_first(const char *name,
        char path_out[MOTET_FIND_PATH_MAX], char detail_out[MOTET_FIND_DETAIL_MAX],
        void *arg)
{
    (void)detail_out;
    (void)arg;
    snprintf(path_out, MOTET_FIND_PATH_MAX, "%s", name);
    return MOTET_FIND_TAKEN;
}

/* The HIP runtime that a program takes which looks for it as for RCCL. */
static void find_hip(struct lib_found *found, const motet_find_request *rccl)
{
    motet_find_report *report = calloc(1, sizeof(*report));
    motet_find_request request = { .library = &motet_find_hip,
        .prefix = rccl->prefix,
        .load = take_first };

    memcpy(request.roots, rccl->roots, sizeof(request.roots));
    if (report != NULL && motet_find_open(&request, report) &&
            strchr(report->path, '/') != NULL)
        snprintf(found->hip, sizeof(found->hip), "%s", report->path);
    free(report);
}

/* A Python by its name alone is the first on PATH. */
static const char *python_of(const char *name, char path[PATH_MAX])
{
    const char *list = getenv("PATH");

    while (name != NULL && strchr(name, '/') == NULL && list != NULL && *list != 0) {
        int length = (int)strcspn(list, ":");

        snprintf(path, PATH_MAX, "%.*s/%s", length, list, name);
        if (length > 0 && access(path, X_OK) == 0)
            return path;
        list += length;
        list += *list == ':';
    }
    return name;
}

static void search_kind(struct lib_found *found, const struct lib_wish *wish,
        const motet_find_library *library)
{
    motet_find_request request;
    char python[PATH_MAX];

    found->vendor = wish->vendor;
    found->timeout_s = wish->timeout_s != 0 ? wish->timeout_s : LIB_TIMEOUT_S;
    found->library = library;
    found->client =
            wish->client != NULL ? motet_find_client_of(wish->client, library) : NULL;
    motet_find_ask(&request, library, found->client, lookup, NULL);
    request.python =
            (motet_find_setting){ "--python", python_of(wish->python, python) };
    request.by_name = wish->by_name;
    request.prefix = host_root();
    request.load = load;
    request.load_arg = found;
    (void)motet_find_open(&request, &found->report);
    if (library == &motet_find_rccl)
        find_hip(found, &request);
}

/* Without a word about the kind: AMD's, unless only NVIDIA's is there. */
static void search_kinds(struct lib_found *found, const struct lib_wish *wish)
{
    const motet_find_library *said =
            wish->library != NULL ? wish->library : kind_said(wish->client);
    struct lib_found *other;

    search_kind(found, wish, said != NULL ? said : &motet_find_rccl);
    if (said != NULL || found->report.outcome == MOTET_FIND_FOUND ||
            found->report.outcome == MOTET_FIND_AMBIGUOUS)
        return;
    other = calloc(1, sizeof(*other));
    if (other == NULL)
        return;
    search_kind(other, wish, &motet_find_nccl);
    if (other->report.outcome == MOTET_FIND_FOUND)
        *found = *other;
    free(other);
}

/*
 * What is known of the candidates.
 */

static void judge_poison(struct lib_found *found, struct lib_facts *f)
{
    const char *hip = f->loaded.hip[0];
    char text[3 * PATH_MAX];

    for (size_t i = 0; i < f->needed.num; i++)
        if (strncmp(f->needed.name[i], "librocm_smi64", 13) == 0) {
            snprintf(text, sizeof(text),
                    "needs %s: where it starts before amdsmi, amdsmi and with it torch "
                    "see no GPU",
                    f->needed.name[i]);
            lib_names_add(&f->poison, text);
        }
    if (f->loaded.hip[1][0] != 0) {
        snprintf(text, sizeof(text),
                "brings two HIP runtimes, %s and %s: a process can use one", hip,
                f->loaded.hip[1]);
        lib_names_add(&f->poison, text);
    }
    if (hip[0] != 0 && found->hip[0] != 0 && !same_file(hip, found->hip)) {
        snprintf(text, sizeof(text),
                "brings the HIP runtime %s, and a program with the same root takes %s",
                hip, found->hip);
        lib_names_add(&f->poison, text);
    }
    for (size_t i = 0; i < found->mapped.num && hip[0] != 0; i++) {
        const char *mapped = found->mapped.name[i];

        if (lib_is_hip(mapped) && !same_file(mapped, hip)) {
            snprintf(text, sizeof(text),
                    "brings the HIP runtime %s, and the process has %s mapped", hip,
                    mapped);
            lib_names_add(&f->poison, text);
        }
    }
}

/* What the file asks for, and what it lacks: by the linker's word if it was loaded. */
static void list_names(const struct lib_found *found, struct lib_facts *f,
        const char *path)
{
    const char *const *wanted = wanted_of(found);
    bool asked = f->was_loaded && f->loaded.loads;
    bool read = lib_elf_read(path, asked ? NULL : wanted, &f->needed, &f->missing,
            f->unread, sizeof(f->unread));

    f->unknown = !asked && !read;
    for (size_t i = 0;
            asked && wanted != NULL && wanted[i] != NULL && i < LIB_NAMES_MAX; i++)
        if (f->loaded.lacks[i])
            lib_names_add(&f->missing, wanted[i]);
}

static void gather(struct lib_found *found, size_t at)
{
    const motet_find_candidate *c = &found->report.candidates[at];
    struct lib_facts *f = &found->facts[at];
    const char *path = c->path;
    struct stat st;

    f->tried = c->verdict != MOTET_FIND_NOT_TRIED;
    for (size_t i = 0; i < found->num_loaded; i++)
        if (strcmp(found->load[i].name, c->path) == 0) {
            f->loaded = found->load[i].loaded;
            (void)text_plain(f->loaded.why);
            f->was_loaded = true;
        }
    if (c->verdict == MOTET_FIND_TAKEN) {
        path = found->report.path;
        found->chosen = f;
        found->motet = library_is_motet(path);
    }
    f->exists = strchr(path, '/') != NULL && stat(path, &st) == 0;
    if (!f->exists || realpath(path, f->real) == NULL)
        f->real[0] = 0;
    if (f->exists && S_ISREG(st.st_mode))
        list_names(found, f, path);
    else
        f->unknown = true;
    judge_poison(found, f);
}

/*
 * What a process has mapped.
 */

static void read_mapped(struct lib_found *found, pid_t pid)
{
    char name[PATH_MAX], *line = NULL;
    size_t room = 0;
    FILE *file;

    snprintf(name, sizeof(name), "%s/proc/%d/maps", host_root(), (int)pid);
    file = fopen(name, "re");
    if (file == NULL) {
        snprintf(found->mapped_why, sizeof(found->mapped_why), "process %d: %s",
                (int)pid, errno == ENOENT ? "there is none" : strerror(errno));
        return;
    }
    while (getline(&line, &room, file) > 0) {
        char *path = strchr(line, '/');
        bool known = path == NULL;

        if (path != NULL)
            path[strcspn(path, "\n")] = 0;
        for (size_t i = 0; i < found->mapped.num && !known; i++)
            known = strcmp(found->mapped.name[i], path) == 0;
        if (!known && lib_begins(path, watched, sizeof(watched) / sizeof(*watched)))
            lib_names_add(&found->mapped, path);
    }
    free(line);
    fclose(file);
}

struct lib_found *lib_search(const struct lib_wish *wish)
{
    struct lib_found *found = calloc(1, sizeof(*found));

    if (found == NULL)
        return NULL;
    search_kinds(found, wish);
    found->pid = wish->pid;
    if (found->pid != 0)
        read_mapped(found, found->pid);
    for (size_t i = 0; i < found->report.num_candidates; i++)
        gather(found, i);
    return found;
}

void lib_found_free(struct lib_found *found)
{
    for (size_t i = 0; i < found->report.num_candidates; i++) {
        lib_names_clear(&found->facts[i].missing);
        lib_names_clear(&found->facts[i].needed);
        lib_names_clear(&found->facts[i].poison);
    }
    lib_names_clear(&found->mapped);
    free(found);
}
