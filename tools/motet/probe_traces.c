/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are killed leave traces behind, of which motet keeps the latest few: those of
 * a probe would drive out what somebody may still want to read. So they get a folder that
 * goes away afterwards. It is locked while it is in use: a command that was interrupted
 * leaves one that nobody holds, and the next one removes that.
 */
#include "probe_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRACE_DIR "MOTET_TRACE_DIR"
#define NAME      "motet-probe-"

/* The folder @p name in @p place, locked: the caller's. −1: none of ours, or in use. */
static int lock_folder(int place, const char *name)
{
    int fd = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 &&
            (fstat(fd, &st) != 0 || st.st_uid != geteuid() ||
                    flock(fd, LOCK_EX | LOCK_NB) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* With what is in it; closes @p fd. */
static void remove_folder(int place, const char *name, int fd)
{
    DIR *folder = fdopendir(fd);
    struct dirent *entry;

    if (folder == NULL) {
        close(fd);
        return;
    }
    while ((entry = readdir(folder)) != NULL)
        (void)unlinkat(fd, entry->d_name, 0);
    (void)unlinkat(place, name, AT_REMOVEDIR);
    closedir(folder);
}

static void sweep(const char *place)
{
    DIR *folder = opendir(place);
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int fd = strncmp(entry->d_name, NAME, strlen(NAME)) == 0
                ? lock_folder(dirfd(folder), entry->d_name)
                : -1;

        if (fd >= 0)
            remove_folder(dirfd(folder), entry->d_name, fd);
    }
    if (folder != NULL)
        closedir(folder);
}

void probe_traces_make(struct probe_traces *t)
{
    const char *place = getenv("XDG_RUNTIME_DIR");

    t->fd = -1;
    if (getenv(TRACE_DIR) != NULL)
        return; /* the user has chosen one */
    if (place == NULL || place[0] != '/')
        place = "/dev/shm";
    sweep(place);
    snprintf(t->path, sizeof(t->path), "%s/" NAME "XXXXXX", place);
    if (mkdtemp(t->path) == NULL)
        return;
    t->fd = lock_folder(AT_FDCWD, t->path);
    if (t->fd < 0 || setenv(TRACE_DIR, t->path, 1) != 0)
        (void)rmdir(t->path);
}

void probe_traces_remove(struct probe_traces *t)
{
    if (t->fd < 0)
        return;
    remove_folder(AT_FDCWD, t->path, t->fd);
    (void)unsetenv(TRACE_DIR);
}
