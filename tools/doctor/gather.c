/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a machine's files and writing them down as the common tools would. */
#include "gather.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

const char *dr_under(struct dr_gather *g, const char *path)
{
    return g->root[0] == 0 ? path : dr_printf(g->d, "%s%s", g->root, path);
}

char *dr_slurp(struct dr_gather *g, const char *path, size_t max, size_t *bytes)
{
    /* A pipe or a device that somebody put there must not stop us. */
    const int fd =
            open(dr_under(g, path), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    size_t room = 4096, used = 0;
    ssize_t got = 0;
    char *buf, *out;
    int reason;

    if (fd < 0)
        return NULL;
    buf = malloc(room);
    while (buf != NULL && used < max &&
            (got = read(fd, buf + used,
                     room - used < max - used ? room - used : max - used)) > 0) {
        used += (size_t)got;
        if (used == room) {
            char *more = realloc(buf, room *= 2);

            if (more == NULL)
                break;
            buf = more;
        }
    }
    reason = errno;
    close(fd);
    if (buf == NULL || (got < 0 && used == 0)) {
        free(buf);
        errno = reason;
        return NULL;
    }
    out = dr_copy(g->d, buf, used);
    free(buf);
    if (bytes != NULL)
        *bytes = used;
    return out;
}

const char *dr_word_of(struct dr_gather *g, const char *path)
{
    char *text = dr_slurp(g, path, 4096, NULL);
    size_t length;

    if (text == NULL)
        return "";
    length = strcspn(text, "\n");
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\r'))
        length--;
    text[length] = 0;
    return text;
}

const char *dr_link_of(struct dr_gather *g, const char *path)
{
    char target[PATH_MAX];
    const ssize_t length = readlink(dr_under(g, path), target, sizeof(target) - 1);
    const char *last;

    if (length <= 0)
        return "";
    target[length] = 0;
    last = strrchr(target, '/');
    last = last != NULL ? last + 1 : target;
    return dr_copy(g->d, last, strlen(last));
}

bool dr_is_there(struct dr_gather *g, const char *path)
{
    struct stat st;

    return stat(dr_under(g, path), &st) == 0;
}

static int by_version(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

struct dr_names dr_names_of(struct dr_gather *g, const char *path)
{
    DIR *dir = opendir(dr_under(g, path));
    struct dr_names out = { NULL, 0 };
    uint32_t room = 0;
    struct dirent *e;

    if (dir == NULL)
        return out;
    while (out.num < DR_NAMES_MAX && (e = readdir(dir)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            *DR_PUSH(g->d, out.name, out.num, room) =
                    dr_copy(g->d, e->d_name, strlen(e->d_name));
    if (out.num == DR_NAMES_MAX && readdir(dir) != NULL)
        doctor_unread(g->d, path, "entries after the first %u", DR_NAMES_MAX);
    closedir(dir);
    if (out.num > 0)
        qsort(out.name, out.num, sizeof(*out.name), by_version);
    return out;
}

void dr_prompt(struct dr_gather *g, const char *fmt, ...)
{
    va_list args;

    fprintf(g->out, "%s$ ", g->host);
    va_start(args, fmt);
    vfprintf(g->out, fmt, args);
    va_end(args);
    fputc('\n', g->out);
}

void dr_text(struct dr_gather *g, const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, g->out);
    if (bytes > 0 && text[bytes - 1] != '\n')
        fputc('\n', g->out);
}

bool dr_write_file_as(struct dr_gather *g, const char *path, const char *shown)
{
    size_t bytes = 0;
    const char *text = dr_slurp(g, path, DR_FILE_MAX, &bytes);

    if (text == NULL) {
        /* Attributes that a device does not have answer EINVAL and the like. */
        if (errno == EACCES || errno == EPERM)
            fprintf(g->out, "grep: %s: %s\n", shown, strerror(errno));
        return false;
    }
    for (const char *end = text + bytes; text < end;) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const size_t length = (size_t)((stop != NULL ? stop : end) - text);

        if (length > 0)
            fprintf(g->out, "%s:%.*s\n", shown, (int)length, text);
        text += length + 1;
    }
    return bytes > 0;
}

bool dr_write_file(struct dr_gather *g, const char *path)
{
    return dr_write_file_as(g, path, path);
}

bool dr_write_link(struct dr_gather *g, const char *path, const char *shown)
{
    const char *target = dr_link_of(g, path);

    if (target[0] == 0)
        return false;
    fprintf(g->out, "%s:%s\n", shown, target);
    return true;
}

bool dr_write_cat(struct dr_gather *g, const char *path)
{
    size_t bytes = 0;
    const char *text = dr_slurp(g, path, DR_FILE_MAX, &bytes);

    if (text == NULL && errno == ENOENT)
        return false;
    dr_prompt(g, "cat %s", path);
    if (text == NULL) {
        fprintf(g->out, "cat: %s: %s\n", path, strerror(errno));
        return false;
    }
    dr_text(g, text, bytes);
    return true;
}

static char kind_of(mode_t mode)
{
    static const struct {
        mode_t mode;
        char letter;
    } kinds[] = { { S_IFDIR, 'd' }, { S_IFLNK, 'l' }, { S_IFCHR, 'c' },
        { S_IFBLK, 'b' }, { S_IFIFO, 'p' }, { S_IFSOCK, 's' } };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if ((mode & S_IFMT) == kinds[i].mode)
            return kinds[i].letter;
    return '-';
}

void dr_write_ls(struct dr_gather *g, const char *path)
{
    char mode[] = "----------", when[32] = "", size[40], target[PATH_MAX];
    struct stat st;
    struct tm tm;
    ssize_t length;

    if (lstat(dr_under(g, path), &st) != 0) {
        fprintf(g->out, "ls: cannot access '%s': %s\n", path, strerror(errno));
        return;
    }
    mode[0] = kind_of(st.st_mode);
    for (int i = 0; i < 9; i++)
        if (st.st_mode & (1u << (8 - i)))
            mode[i + 1] = "rwx"[i % 3];
    if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
        snprintf(size, sizeof(size), "%u, %u", major(st.st_rdev), minor(st.st_rdev));
    else
        snprintf(size, sizeof(size), "%lld", (long long)st.st_size);
    if (gmtime_r(&st.st_mtime, &tm) != NULL)
        strftime(when, sizeof(when), "%b %e  %Y", &tm);
    fprintf(g->out, "%s %lu %u %u %s %s %s", mode, (unsigned long)st.st_nlink,
            (unsigned)st.st_uid, (unsigned)st.st_gid, size, when, path);
    length = S_ISLNK(st.st_mode) ? readlink(dr_under(g, path), target, sizeof(target))
                                 : 0;
    if (length > 0)
        fprintf(g->out, " -> %.*s", (int)length, target);
    fputc('\n', g->out);
}

int64_t dr_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
