/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet status: which rank is where, live and after a crash. This file finds and
 * reads the recorder files; see status.h for the rest.
 */
#include "status.h"

#include "base/param.h"
#include "cmd.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
        "usage: motet status [--dir DIR]... [--all] [--json] [FILE]...\n"
        "\n"
        "Reads the flight recorder of every rank on this machine, or the files and\n"
        "folders given, and says which rank is where, who waits for whom, and which\n"
        "rank holds the others up. Works while a job runs, after it was killed, and\n"
        "on copies.\n"
        "\n"
        "  --dir DIR   read the files of DIR (default: $MOTET_TRACE_DIR, else\n"
        "              $XDG_RUNTIME_DIR and /dev/shm; for root every user's)\n"
        "  --all       show the last 16 operations of each rank\n"
        "  --json      one JSON document\n"
        "  --help      this text\n"
        "\n"
        "Exit status: 0 nothing is wrong; 1 a rank is dead, stopped, failed, or waits\n"
        "for more than 10 s; 2 nothing could be read, or it could not be decided;\n"
        "64 usage.\n";

/* Files that are collected from; more are counted as unread. */
#define FILES_MAX 4096

typedef struct collector {
    motet_trace_snapshot **snapshots;
    size_t count, capacity;
    status_unread *unread;
    size_t unread_count, unread_capacity;
    char places[512];
    bool named;
    bool no_memory;
} collector;

/* Makes room for one more element of @p size bytes. */
static bool make_room(void **array, size_t count, size_t *capacity, size_t size)
{
    size_t more = *capacity == 0 ? 16 : 2 * *capacity;
    void *grown;

    if (count < *capacity)
        return true;
    grown = realloc(*array, more * size);
    if (grown == NULL)
        return false;
    *array = grown;
    *capacity = more;
    return true;
}

static void add_unread(collector *c, const char *path, const char *reason)
{
    void *array = c->unread;

    if (!make_room(&array, c->unread_count, &c->unread_capacity, sizeof(*c->unread))) {
        c->no_memory = true;
        return;
    }
    c->unread = array;
    snprintf(c->unread[c->unread_count].path, sizeof(c->unread->path), "%.255s", path);
    snprintf(c->unread[c->unread_count].reason, sizeof(c->unread->reason), "%.383s",
            reason);
    c->unread_count++;
}

/* Why @p path could not be read, with the owner if it is a matter of rights. */
static void explain_unread(collector *c, const char *path, int error)
{
    struct stat status;
    char reason[384];

    if (error == EACCES && lstat(path, &status) == 0)
        snprintf(reason, sizeof(reason), "it belongs to user %u: %s",
                (unsigned)status.st_uid, strerror(error));
    else
        snprintf(reason, sizeof(reason), "%s", motet_error_trail());
    add_unread(c, path, reason);
}

/* @param found  the file was found in a folder, so it may be gone by now. */
static void read_file(collector *c, const char *path, bool found)
{
    motet_trace_snapshot *snapshot;
    motet_result result;
    void *array = c->snapshots;

    if (c->count == FILES_MAX) {
        add_unread(c, path, "too many files");
        return;
    }
    snapshot = malloc(sizeof(*snapshot));
    if (snapshot == NULL ||
            !make_room(&array, c->count, &c->capacity, sizeof(*c->snapshots))) {
        free(snapshot);
        c->no_memory = true;
        return;
    }
    c->snapshots = array;
    errno = 0;
    result = motet_trace_read(path, snapshot);
    if (result == MOTET_OK) {
        c->snapshots[c->count++] = snapshot;
        return;
    }
    if (!(found && errno == ENOENT))
        explain_unread(c, path, result == MOTET_ERR_SYSTEM ? errno : 0);
    free(snapshot);
}

static bool ends_in(const char *name, const char *tail)
{
    size_t n = strlen(name), t = strlen(tail);

    return n >= t && strcmp(name + n - t, tail) == 0;
}

/* Reads the files of a folder; copies may have any name that ends in .trace where the
 * folder was asked for. */
static void read_folder(collector *c, const char *dir, bool asked)
{
    size_t used = strlen(c->places);
    struct dirent *entry;
    DIR *stream = opendir(dir);

    snprintf(c->places + used, sizeof(c->places) - used, "%s'%s'",
            used == 0 ? "" : ", ", dir);
    if (stream == NULL) {
        char reason[128];

        snprintf(reason, sizeof(reason), "open the folder: %s", strerror(errno));
        if (asked)
            add_unread(c, dir, reason);
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        const char *name = entry->d_name;
        char path[4096];
        uint64_t comm;
        int32_t pid, rank;

        if (!motet_trace_name_parse(name, &pid, &comm, &rank) &&
                !(asked && name[0] != '.' && ends_in(name, ".trace")))
            continue;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path))
            read_file(c, path, true);
    }
    closedir(stream);
}

/* A FILE or folder of the command line. */
static void read_named(collector *c, const char *path)
{
    struct stat status;

    c->named = true;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        read_folder(c, path, true);
    else
        read_file(c, path, false);
}

/* The runtime folders of all users, which only root can read. */
static void read_runtime_folders(collector *c, const char *except)
{
    struct dirent *entry;
    DIR *stream = opendir("/run/user");

    if (stream == NULL)
        return;
    while ((entry = readdir(stream)) != NULL) {
        char dir[300];

        snprintf(dir, sizeof(dir), "/run/user/%s", entry->d_name);
        if (entry->d_name[0] != '.' && strcmp(dir, except) != 0)
            read_folder(c, dir, false);
    }
    closedir(stream);
}

/* Where jobs of this environment record. All of the default folders are read: the job
 * may have run without XDG_RUNTIME_DIR. */
static motet_result read_default_folders(collector *c)
{
    static motet_params params;
    const char *own, *runtime;

    MOTET_TRY(motet_params_from_environment(&params), "read the parameters");
    own = motet_param_text(&params, MOTET_P_TRACE_DIR);
    runtime = motet_param_text(&params, MOTET_P_XDG_RUNTIME_DIR);
    if (own[0] != '\0') {
        read_folder(c, own, true);
        return MOTET_OK;
    }
    if (runtime[0] == '/')
        read_folder(c, runtime, false);
    if (strcmp(runtime, "/dev/shm") != 0)
        read_folder(c, "/dev/shm", false);
    if (geteuid() == 0)
        read_runtime_folders(c, runtime);
    return MOTET_OK;
}

/* ---- who lives ---- */

static void classify(const collector *c, status_rank *ranks, uint64_t now_ns)
{
    char boot_id[40];

    motet_trace_boot_id(boot_id, sizeof(boot_id));
    for (size_t i = 0; i < c->count; i++) {
        motet_trace_process process;
        bool exists = motet_trace_process_read(c->snapshots[i]->file.pid, &process);

        ranks[i].snapshot = c->snapshots[i];
        status_classify(&ranks[i], now_ns, boot_id, exists ? &process : NULL);
    }
}

static bool may_beat_elsewhere(const status_rank *rank, uint64_t now_ns)
{
    return rank->process == STATUS_DEAD &&
            status_since(now_ns, rank->snapshot->file.heartbeat_ns) < STATUS_SILENT_NS;
}

/* A pid that does not exist here may be one of another pid namespace: its heart beats.
 * A process that has just died looks the same until a beat is missed, so wait for one
 * and look again. */
static void look_for_heartbeats(const collector *c, status_rank *ranks, uint64_t now_ns)
{
    const struct timespec two_beats = { .tv_nsec = 600 * 1000 * 1000 };
    motet_trace_snapshot *again;
    bool any = false;

    for (size_t i = 0; i < c->count; i++)
        any = any || may_beat_elsewhere(&ranks[i], now_ns);
    again = any ? malloc(sizeof(*again)) : NULL;
    if (again == NULL)
        return;
    nanosleep(&two_beats, NULL);
    for (size_t i = 0; i < c->count; i++) {
        motet_trace_snapshot *snapshot = ranks[i].snapshot;

        if (!may_beat_elsewhere(&ranks[i], now_ns) ||
                motet_trace_read(snapshot->path, again) != MOTET_OK ||
                again->file.heartbeat_ns <= snapshot->file.heartbeat_ns)
            continue;
        *snapshot = *again;
        snapshot->alive = true;
        ranks[i].process = STATUS_ELSEWHERE;
        ranks[i].now_ns = motet_now_ns();
    }
    free(again);
}

static int report(const collector *c, bool all, bool json)
{
    status_rank *ranks = calloc(c->count + 1, sizeof(*ranks));
    status_report r = { .unread = c->unread,
        .unread_count = c->unread_count,
        .places = c->places,
        .named = c->named,
        .now_ns = motet_now_ns() };
    status_group *groups = NULL;
    int code = EXIT_UNDECIDED;

    if (ranks == NULL || c->no_memory) {
        code = cmd_error("status", EXIT_UNDECIDED, "no memory for %zu files", c->count);
        goto out;
    }
    classify(c, ranks, r.now_ns);
    look_for_heartbeats(c, ranks, r.now_ns);
    groups = status_judge(ranks, c->count, &r.group_count);
    if (groups == NULL && c->count > 0) {
        code = cmd_error("status", EXIT_UNDECIDED, "no memory for %zu files", c->count);
        goto out;
    }
    r.groups = groups;
    code = status_exit(&r);
    if (json)
        (void)status_print_json(stdout, &r, all);
    else
        status_print(stdout, &r, all);
    if (fflush(stdout) != 0 || ferror(stdout))
        code = cmd_error("status", EXIT_UNDECIDED, "write the report: %s",
                strerror(errno));
out:
    free(groups);
    free(ranks);
    return code;
}

static void release(collector *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->snapshots[i]);
    free(c->snapshots);
    free(c->unread);
}

int cmd_status(int argc, char **argv)
{
    static const struct option options[] = {
        { "dir", required_argument, NULL, 'd' },
        { "all", no_argument, NULL, 'a' },
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    collector c = { .count = 0 };
    bool all = false, json = false;
    int code = EXIT_FINE, option;

    while (code == EXIT_FINE &&
            (option = getopt_long(argc, argv, ":ah", options, NULL)) != -1) {
        switch (option) {
        case 'd': read_named(&c, optarg); break;
        case 'a': all = true; break;
        case 'j': json = true; break;
        case 'h': release(&c); return cmd_help(help);
        default: code = cmd_bad_option("status", option, argv); break;
        }
    }
    for (int i = optind; code == EXIT_FINE && i < argc; i++)
        read_named(&c, argv[i]);
    if (code == EXIT_FINE && !c.named && read_default_folders(&c) != MOTET_OK)
        code = cmd_error("status", EXIT_USAGE, "%s", motet_error_trail());
    if (code == EXIT_FINE)
        code = report(&c, all, json);
    release(&c);
    return code;
}
