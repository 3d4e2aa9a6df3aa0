/* SPDX-License-Identifier: Apache-2.0 */
/* See input.h. Below a folder no link is followed and nothing but plain files is opened. */
#include "input.h"

#include "archive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void add_open(struct doctor *d, const char *name, FILE *in)
{
    if (!dr_add_file(d, name, in))
        doctor_unread(d, name, "%s", strerror(errno));
}

/* Descriptor @p fd, which is closed. */
static void add_descriptor(struct doctor *d, const char *name, int fd)
{
    FILE *in = fdopen(fd, "r");

    if (in == NULL) {
        doctor_unread(d, name, "%s", strerror(errno));
        close(fd);
        return;
    }
    add_open(d, name, in);
    fclose(in);
}

struct walk {
    struct doctor *d;
    uint32_t files;
};

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_entry(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static void walk(struct walk *w, int folder, const char *shown, int depth);

static void walk_entry(struct walk *w, int folder, const char *name, const char *shown,
        int depth)
{
    int fd;
    struct stat st;

    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
        doctor_unread(w->d, shown, S_ISLNK(st.st_mode) ? "a link" : "no plain file");
        return;
    }
    if (S_ISREG(st.st_mode) && w->files++ >= DR_FOLDER_FILES)
        return;
    fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        doctor_unread(w->d, shown, "%s", strerror(errno));
    else if (S_ISREG(st.st_mode))
        add_descriptor(w->d, shown, fd);
    else
        walk(w, fd, shown, depth + 1);
}

/* The folder that @p folder is, which is closed. */
static void walk(struct walk *w, int folder, const char *shown, int depth)
{
    struct dirent **names = NULL;
    int count;

    if (depth > DR_FOLDER_DEPTH) {
        doctor_unread(w->d, shown, "folders are not looked into that deep");
        close(folder);
        return;
    }
    count = scandirat(folder, ".", &names, is_entry, by_name);
    if (count < 0)
        doctor_unread(w->d, shown, "%s", strerror(errno));
    for (int i = 0; i < count; i++) {
        walk_entry(w, folder, names[i]->d_name,
                shown[0] == 0 ? names[i]->d_name
                              : dr_printf(w->d, "%s/%s", shown, names[i]->d_name),
                depth);
        free(names[i]);
    }
    free(names);
    close(folder);
}

static void read_folder(struct doctor *d, const char *path)
{
    struct walk w = { .d = d };
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);

    if (fd < 0) {
        doctor_unread(d, path, "%s", strerror(errno));
        return;
    }
    walk(&w, fd, "", 0);
    if (w.files > DR_FOLDER_FILES)
        doctor_unread(d, path, "files after the first %u", DR_FOLDER_FILES);
}

void dr_read_path(struct doctor *d, const char *path)
{
    const char *name = strrchr(path, '/');
    struct stat st;
    FILE *in;

    if (strcmp(path, "-") == 0) {
        add_open(d, "standard input", stdin);
        return;
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        read_folder(d, path);
        return;
    }
    in = fopen(path, "re");
    if (in == NULL) {
        doctor_unread(d, path, "%s", strerror(errno));
        return;
    }
    add_open(d, name != NULL && name[1] != 0 ? name + 1 : path, in);
    fclose(in);
}
