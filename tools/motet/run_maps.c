/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which libraries with the NCCL ABI do the processes of a run map? LD_PRELOAD answers
 * every request for libnccl.so.2 or librccl.so.1 by name, but not one by another path.
 * /proc/PID/maps of all descendants is read now and then, often at first; a process that
 * lives for less than that is missed, which is why the report speaks of what was seen.
 */
#include "run.h"

#include "base/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_INTERVAL_NS (10 * MOTET_NS_PER_MS)
#define LAST_INTERVAL_NS  (2 * MOTET_NS_PER_S)
/* Descendants looked at in one scan, and how deep their tree may be. */
#define PROCESSES_MAX 4096
#define DEPTH_MAX     64

int run_maps_start(struct run_maps *m, const char *dropin)
{
    struct stat st;

    memset(m, 0, sizeof(*m));
    snprintf(m->dropin, sizeof(m->dropin), "%s", dropin);
    if (stat(dropin, &st) == 0) {
        m->device = st.st_dev;
        m->inode = st.st_ino;
    }
    m->found = calloc(RUN_FOREIGN_MAX, sizeof(*m->found));
    m->interval_ns = FIRST_INTERVAL_NS;
    return m->found == NULL ? -1 : 0;
}

const char *run_maps_library(char *line)
{
    char *path = strchr(line, '/'), *name, *end;

    if (path == NULL)
        return NULL;
    path[strcspn(path, "\n")] = 0;
    end = strstr(path, " (deleted)");
    if (end != NULL)
        *end = 0;
    name = strrchr(path, '/') + 1;
    if (strncmp(name, "libnccl.so", 10) != 0 && strncmp(name, "librccl.so", 10) != 0)
        return NULL;
    return path;
}

/* The drop-in itself, by whatever path it was mapped. */
static bool is_dropin(const struct run_maps *m, const char *path)
{
    struct stat st;

    if (strcmp(path, m->dropin) == 0)
        return true;
    return stat(path, &st) == 0 && st.st_dev == m->device && st.st_ino == m->inode;
}

static void add_foreign(struct run_maps *m, pid_t pid, const char *path)
{
    struct run_foreign *f;
    char name[64];
    FILE *file;

    for (int i = 0; i < m->nfound; i++)
        if (m->found[i].pid == pid && strcmp(m->found[i].path, path) == 0)
            return;
    if (m->nfound == RUN_FOREIGN_MAX) {
        m->more++;
        return;
    }
    f = &m->found[m->nfound++];
    f->pid = pid;
    snprintf(f->path, sizeof(f->path), "%s", path);
    snprintf(f->command, sizeof(f->command), "?");
    snprintf(name, sizeof(name), "/proc/%d/comm", (int)pid);
    file = fopen(name, "re");
    if (file == NULL)
        return;
    if (fgets(f->command, sizeof(f->command), file) != NULL)
        f->command[strcspn(f->command, "\n")] = 0;
    fclose(file);
}

static void scan_process(struct run_maps *m, pid_t pid)
{
    char name[64], *line = NULL;
    size_t room = 0;
    FILE *file;

    snprintf(name, sizeof(name), "/proc/%d/maps", (int)pid);
    file = fopen(name, "re");
    if (file == NULL)
        return; /* it has ended, or is another user's */
    while (getline(&line, &room, file) > 0) {
        const char *path = run_maps_library(line);

        if (path != NULL && !is_dropin(m, path))
            add_foreign(m, pid, path);
    }
    free(line);
    fclose(file);
}

/* The children that one thread of a process has started. */
static void scan_children(struct run_maps *m, const char *children, int depth,
        int *left);

static void scan_descendants(struct run_maps *m, pid_t pid, int depth, int *left)
{
    char name[64], children[400];
    struct dirent *entry;
    DIR *tasks;

    if (depth > DEPTH_MAX)
        return;
    snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
    tasks = opendir(name);
    if (tasks == NULL)
        return;
    while ((entry = readdir(tasks)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(children, sizeof(children), "%s/%s/children", name, entry->d_name);
        scan_children(m, children, depth, left);
    }
    closedir(tasks);
}

static void scan_children(struct run_maps *m, const char *children, int depth,
        int *left)
{
    FILE *file = fopen(children, "re");
    int pid;

    if (file == NULL)
        return;
    while (*left > 0 && fscanf(file, "%d", &pid) == 1) {
        (*left)--;
        scan_process(m, pid);
        scan_descendants(m, pid, depth + 1, left);
    }
    fclose(file);
}

void run_maps_scan(struct run_maps *m, uint64_t now_ns)
{
    int left = PROCESSES_MAX;

    if (m->found == NULL || now_ns < m->next_ns)
        return;
    scan_descendants(m, getpid(), 0, &left);
    m->next_ns = now_ns + m->interval_ns;
    m->interval_ns += m->interval_ns / 4;
    if (m->interval_ns > LAST_INTERVAL_NS)
        m->interval_ns = LAST_INTERVAL_NS;
}

void run_maps_report(struct run_maps *m)
{
    for (int i = 0; i < m->nfound; i++)
        fprintf(stderr,
                "motet run: %s (pid %d) mapped %s: what it calls there is not motet\n",
                m->found[i].command, (int)m->found[i].pid, m->found[i].path);
    if (m->more > 0)
        fprintf(stderr, "motet run: and %d more\n", m->more);
    free(m->found);
    m->found = NULL;
}
