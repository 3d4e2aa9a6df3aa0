/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/history.h"

#include "trace/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/** Looks at a lock that somebody else holds, a millisecond apart: enough for all ranks of
 *  a host to write to a slow disk, one after the other. */
#define LOCK_TRIES 2000

static const char *const kind_words[MOTET_HISTORY_NUM_KINDS] = {
    [MOTET_HISTORY_VETO] = "veto",
    [MOTET_HISTORY_TOUCH] = "touch",
    [MOTET_HISTORY_TOUCHED] = "touched",
};

/* ---- lines ---- */

static bool is_graphic(char c)
{
    return c > ' ' && c < 0x7f;
}

void motet_history_set(motet_history_line *line, int index, const char *text)
{
    char *word = line->word[index];
    size_t n = 0;

    for (; text[n] != '\0' && n + 1 < MOTET_HISTORY_WORD; n++)
        word[n] = is_graphic(text[n]) ? text[n] : '_';
    if (n == 0)
        word[n++] = '-';
    word[n] = '\0';
}

void motet_history_set_pair(motet_history_line *line, const char *one,
        const char *other)
{
    bool in_order = strcmp(one, other) <= 0;

    motet_history_set(line, MOTET_HISTORY_A, in_order ? one : other);
    motet_history_set(line, MOTET_HISTORY_B, in_order ? other : one);
}

motet_history_line motet_history_begin(motet_history_kind kind, const char *driver,
        const char *build)
{
    motet_history_line line = { .kind = kind };
    motet_trace_process self = { 0 };
    struct utsname host = { 0 };
    char text[64];

    for (int i = 0; i < MOTET_HISTORY_NUM_WORDS; i++)
        motet_history_set(&line, i, "");
    motet_trace_boot_id(text, sizeof(text));
    motet_history_set(&line, MOTET_HISTORY_BOOT, text);
    motet_history_set(&line, MOTET_HISTORY_DRIVER, driver);
    motet_history_set(&line, MOTET_HISTORY_BUILD, build);
    if (kind == MOTET_HISTORY_VETO)
        return line;
    (void)uname(&host);
    motet_history_set(&line, MOTET_HISTORY_HOST, host.nodename);
    snprintf(text, sizeof(text), "%d", (int)getpid());
    motet_history_set(&line, MOTET_HISTORY_PID, text);
    (void)motet_trace_process_read(getpid(), &self);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)self.start);
    motet_history_set(&line, MOTET_HISTORY_START, text);
    return line;
}

/* The next word of @p text from *at on, which ends at a blank or at the end. */
static bool take_word(const char *text, size_t bytes, size_t *at,
        char out[MOTET_HISTORY_WORD])
{
    size_t n = 0;

    while (*at + n < bytes && is_graphic(text[*at + n]))
        n++;
    if (n == 0 || n >= MOTET_HISTORY_WORD)
        return false;
    memcpy(out, text + *at, n);
    out[n] = '\0';
    *at += n;
    return true;
}

bool motet_history_parse(const char *text, size_t bytes, motet_history_line *out)
{
    motet_history_line line = { .kind = MOTET_HISTORY_VETO };
    char word[MOTET_HISTORY_WORD];
    size_t at = 0;

    if (!take_word(text, bytes, &at, word))
        return false;
    while (line.kind < MOTET_HISTORY_NUM_KINDS &&
            strcmp(word, kind_words[line.kind]) != 0)
        line.kind++;
    if (line.kind == MOTET_HISTORY_NUM_KINDS)
        return false;
    for (int i = 0; i < MOTET_HISTORY_NUM_WORDS; i++)
        if (at >= bytes || text[at++] != ' ' ||
                !take_word(text, bytes, &at, line.word[i]))
            return false;
    if (at != bytes)
        return false;
    *out = line;
    return true;
}

size_t motet_history_format(const motet_history_line *line,
        char buf[MOTET_HISTORY_LINE + 1])
{
    size_t n =
            (size_t)snprintf(buf, MOTET_HISTORY_LINE + 1, "%s", kind_words[line->kind]);

    for (int i = 0; i < MOTET_HISTORY_NUM_WORDS; i++)
        n += (size_t)snprintf(buf + n, MOTET_HISTORY_LINE + 1 - n, " %s",
                line->word[i]);
    n += (size_t)snprintf(buf + n, MOTET_HISTORY_LINE + 1 - n, "\n");
    return n;
}

motet_result motet_history_read(const char *text, size_t bytes, motet_history *out)
{
    motet_history all = { .line = calloc(MOTET_HISTORY_LINES, sizeof(*all.line)) };

    if (all.line == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "history of %d lines",
                MOTET_HISTORY_LINES);
    for (size_t at = 0, length; at < bytes; at += length + 1) {
        const char *end = memchr(text + at, '\n', bytes - at);
        motet_history_line line;

        length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        if (!motet_history_parse(text + at, length, &line))
            continue;
        if (all.count == MOTET_HISTORY_LINES)
            memmove(all.line, all.line + 1, (size_t)--all.count * sizeof(*all.line));
        all.line[all.count++] = line;
    }
    *out = all;
    return MOTET_OK;
}

void motet_history_free(motet_history *history)
{
    free(history->line);
    *history = (motet_history){ 0 };
}

/* ---- what lines say ---- */

static bool same_words(const motet_history_line *x, const motet_history_line *y,
        int first, int end)
{
    for (int i = first; i < end; i++)
        if (strcmp(x->word[i], y->word[i]) != 0)
            return false;
    return true;
}

static bool same_software(const motet_history_line *x, const motet_history_line *y)
{
    return same_words(x, y, MOTET_HISTORY_DRIVER, MOTET_HISTORY_A);
}

static bool same_boot(const motet_history_line *x, const motet_history_line *y)
{
    return same_words(x, y, MOTET_HISTORY_BOOT, MOTET_HISTORY_DRIVER);
}

static bool same_touch(const motet_history_line *x, const motet_history_line *y)
{
    return x->kind != MOTET_HISTORY_VETO && same_software(x, y) &&
            same_words(x, y, MOTET_HISTORY_A, MOTET_HISTORY_PATH);
}

bool motet_history_fits(const motet_history_line *line, const motet_history_line *now)
{
    return same_words(line, now, MOTET_HISTORY_BOOT, MOTET_HISTORY_PATH);
}

/* Has a touch of this boot a process that may still end it? */
static bool is_under_way(const motet_history_line *touch)
{
    motet_trace_process process;
    int32_t pid = (int32_t)strtol(touch->word[MOTET_HISTORY_PID], NULL, 10);

    return motet_trace_process_read(pid, &process) &&
            process.start == strtoull(touch->word[MOTET_HISTORY_START], NULL, 10) &&
            strchr("ZXx", process.state) == NULL;
}

/* Does a later line say that touch @p i came back? Whoever touched the same pair in the
 * same boot has seen as much. */
static bool came_back(const motet_history *history, int i)
{
    for (int k = i + 1; k < history->count; k++)
        if (history->line[k].kind == MOTET_HISTORY_TOUCHED &&
                same_touch(&history->line[k], &history->line[i]) &&
                same_boot(&history->line[k], &history->line[i]))
            return true;
    return false;
}

bool motet_history_hung(const motet_history *history, const motet_history_line *now)
{
    for (int i = 0; i < history->count; i++) {
        const motet_history_line *line = &history->line[i];

        if (line->kind != MOTET_HISTORY_TOUCH || !same_touch(line, now) ||
                strcmp(line->word[MOTET_HISTORY_HOST], now->word[MOTET_HISTORY_HOST]) !=
                        0)
            continue;
        if (!came_back(history, i) && !(same_boot(line, now) && is_under_way(line)))
            return true;
    }
    return false;
}

bool motet_history_touched(const motet_history *history, const motet_history_line *now)
{
    for (int i = 0; i < history->count; i++)
        if (history->line[i].kind == MOTET_HISTORY_TOUCHED &&
                same_touch(&history->line[i], now) && same_boot(&history->line[i], now))
            return true;
    return false;
}

/* ---- the file ---- */

void motet_history_dir(const motet_params *params, char *buf, size_t bytes)
{
    const char *own = motet_param_text(params, MOTET_P_STATE_DIR);
    const char *xdg = motet_param_text(params, MOTET_P_XDG_STATE_HOME);
    const char *home = motet_param_text(params, MOTET_P_HOME);
    int used = 0;

    buf[0] = '\0';
    if (own[0] != '\0')
        used = snprintf(buf, bytes, "%s", own);
    else if (xdg[0] == '/')
        used = snprintf(buf, bytes, "%s/motet", xdg);
    else if (home[0] == '/')
        used = snprintf(buf, bytes, "%s/.local/state/motet", home);
    if (used < 0 || (size_t)used >= bytes)
        buf[0] = '\0';
}

/* The last three parts of the path as far as they are missing: ~ itself is there. */
static void make_folder(const char *dir)
{
    char path[PATH_MAX];
    size_t ends[3], found = 0;

    if ((size_t)snprintf(path, sizeof(path), "%s", dir) >= sizeof(path))
        return;
    for (size_t i = strlen(path); i > 1 && found < 3; i--)
        if (path[i] == '\0' || path[i] == '/')
            ends[found++] = i;
    while (found > 0) {
        char kept = path[ends[--found]];

        path[ends[found]] = '\0';
        (void)mkdir(path, 0700); /* what matters is whether the file can be made */
        path[ends[found]] = kept;
    }
}

static motet_result lock(int fd, int how, const char *path)
{
    struct timespec nap = { .tv_nsec = 1000000 };

    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, how | LOCK_NB) == 0)
            return MOTET_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return motet_fail_errno(MOTET_ERR_SYSTEM, "lock '%s'", path);
        nanosleep(&nap, NULL);
    }
    return motet_fail(MOTET_ERR_SYSTEM, "'%s' stays locked by another process", path);
}

/* Open and lock. *fd_out is −1 if there is no such file and none was to be made. */
static motet_result open_file(const char *dir, bool writes, char path[PATH_MAX],
        int *fd_out)
{
    const int flags = writes ? O_RDWR | O_APPEND | O_CREAT : O_RDONLY;
    struct stat status;
    motet_result result = MOTET_OK;
    int fd;

    *fd_out = -1;
    if ((size_t)snprintf(path, PATH_MAX, "%s/paths", dir) >= PATH_MAX)
        return motet_fail(MOTET_ERR_ARGUMENT, "'%s' is too long for a folder", dir);
    fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT && !writes)
        return MOTET_OK;
    if (fd < 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "open '%s'", path);
    if (fstat(fd, &status) != 0)
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "look at '%s'", path);
    else if (!S_ISREG(status.st_mode) || status.st_uid != geteuid())
        result = motet_fail(MOTET_ERR_SYSTEM,
                "'%s' is no file of this user's, and is left alone", path);
    if (result == MOTET_OK)
        result = lock(fd, writes ? LOCK_EX : LOCK_SH, path);
    if (result != MOTET_OK)
        close(fd);
    else
        *fd_out = fd;
    return result;
}

/* All of a file, or its first MOTET_HISTORY_BYTES. */
static motet_result read_file(int fd, const char *path, char *text, size_t *bytes_out)
{
    size_t used = 0;
    ssize_t n;

    while ((n = pread(fd, text + used, MOTET_HISTORY_BYTES - used, (off_t)used)) > 0)
        used += (size_t)n;
    if (n < 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "read '%s'", path);
    *bytes_out = used;
    return MOTET_OK;
}

static motet_result load(int fd, const char *path, motet_history *out,
        size_t *bytes_out)
{
    char *text = malloc(MOTET_HISTORY_BYTES);
    motet_result result;

    if (text == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "%d bytes", MOTET_HISTORY_BYTES);
    result = read_file(fd, path, text, bytes_out);
    if (result == MOTET_OK)
        result = motet_history_read(text, *bytes_out, out);
    free(text);
    return result;
}

motet_result motet_history_load(const char *dir, motet_history *out)
{
    char path[PATH_MAX];
    size_t bytes;
    int fd;
    motet_result result;

    *out = (motet_history){ 0 };
    MOTET_TRY(open_file(dir, false, path, &fd), "history");
    if (fd < 0)
        return MOTET_OK;
    result = load(fd, path, out, &bytes);
    close(fd);
    return result;
}

static motet_result write_line(int fd, const char *path, const motet_history_line *line)
{
    char text[MOTET_HISTORY_LINE + 2];
    size_t n = motet_history_format(line, text + 1);
    off_t end = lseek(fd, 0, SEEK_END);
    char last = '\n';
    bool torn = end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n';

    text[0] = '\n'; /* whoever wrote before was cut short */
    if (write(fd, torn ? text : text + 1, torn ? n + 1 : n) !=
            (ssize_t)(torn ? n + 1 : n))
        return motet_fail_errno(MOTET_ERR_SYSTEM, "write '%s'", path);
    return MOTET_OK;
}

/* Does line @p i still count, for the driver and build of @p now? */
static bool counts(const motet_history *history, int i, const motet_history_line *now)
{
    const motet_history_line *line = &history->line[i];

    if (!same_software(line, now))
        return false;
    if (line->kind == MOTET_HISTORY_TOUCH)
        return !came_back(history, i);
    return same_boot(line, now);
}

/* In place: the lock is on this file. Cut short, it has forgotten something. */
static motet_result rewrite(int fd, const char *path, const motet_history *history,
        const motet_history_line *now)
{
    size_t left = MOTET_HISTORY_BYTES / 2;
    motet_result result = MOTET_OK;

    if (ftruncate(fd, 0) != 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "empty '%s'", path);
    for (int i = 0; i < history->count && result == MOTET_OK; i++) {
        char text[MOTET_HISTORY_LINE + 1];
        size_t n = motet_history_format(&history->line[i], text);

        if (!counts(history, i, now) || n > left)
            continue;
        left -= n;
        result = write_line(fd, path, &history->line[i]);
    }
    return result;
}

static bool is_there(const motet_history *history, const motet_history_line *line)
{
    for (int i = 0; i < history->count; i++)
        if (history->line[i].kind == line->kind &&
                same_words(&history->line[i], line, 0, MOTET_HISTORY_NUM_WORDS))
            return true;
    return false;
}

static motet_result add(int fd, const char *path, const motet_history_line *line)
{
    motet_history history;
    size_t bytes;
    motet_result result;

    MOTET_TRY(load(fd, path, &history, &bytes), "history");
    if (is_there(&history, line)) {
        motet_history_free(&history);
        return MOTET_OK;
    }
    result = bytes + MOTET_HISTORY_LINE > MOTET_HISTORY_BYTES ||
                    history.count == MOTET_HISTORY_LINES
            ? rewrite(fd, path, &history, line)
            : MOTET_OK;
    motet_history_free(&history);
    return result == MOTET_OK ? write_line(fd, path, line) : result;
}

motet_result motet_history_add(const char *dir, const motet_history_line *lines,
        int count, bool sync)
{
    char path[PATH_MAX];
    int fd;
    motet_result result;

    make_folder(dir);
    MOTET_TRY(open_file(dir, true, path, &fd), "history");
    result = MOTET_OK;
    for (int i = 0; i < count && result == MOTET_OK; i++)
        result = add(fd, path, &lines[i]);
    if (result == MOTET_OK && sync && fsync(fd) != 0)
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "write '%s' to the disk", path);
    close(fd);
    return result;
}
