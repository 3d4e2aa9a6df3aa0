/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading configuration files. The parser copies one pair at a time into fixed
 * buffers and hands it on, so it needs no memory of its own and any bytes are
 * acceptable input: what is not a pair is skipped.
 */
#include "base/conf.h"

#include "base/param.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* Copy [from, to) without the blanks around it; false if it is empty (unless that is
 * allowed), does not fit, or holds a NUL. */
static bool copy_trimmed(const char *from, const char *to, bool empty_ok, char *buf,
        size_t bytes)
{
    size_t length;

    while (from < to && is_blank(*from))
        from++;
    while (to > from && is_blank(to[-1]))
        to--;
    length = (size_t)(to - from);
    if ((length == 0 && !empty_ok) || length >= bytes)
        return false;
    if (length > 0 && memchr(from, '\0', length) != NULL)
        return false;
    if (length > 0)
        memcpy(buf, from, length);
    buf[length] = '\0';
    return true;
}

static void parse_line(const char *line, const char *end,
        void (*found)(void *arg, const char *key, const char *value), void *arg)
{
    char key[MOTET_CONF_KEY_MAX], value[MOTET_CONF_VALUE_MAX];
    const char *equals;

    while (line < end && is_blank(*line))
        line++;
    if (line == end || *line == '#')
        return;
    equals = memchr(line, '=', (size_t)(end - line));
    if (equals == NULL)
        return;
    if (copy_trimmed(line, equals, false, key, sizeof(key)) &&
            copy_trimmed(equals + 1, end, true, value, sizeof(value)))
        found(arg, key, value);
}

void motet_conf_parse(const char *text, size_t bytes,
        void (*found)(void *arg, const char *key, const char *value), void *arg)
{
    const char *end = bytes > 0 ? text + bytes : text;

    for (const char *line = text; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline != NULL ? newline : end;

        parse_line(line, stop, found, arg);
        line = newline != NULL ? newline + 1 : end;
    }
}

static void keep(void *arg, const char *key, const char *value)
{
    motet_conf *conf = arg;
    motet_conf_pair pair;

    if (conf->count == MOTET_CONF_PAIRS_MAX || conf->result != MOTET_OK)
        return;
    pair.key = strdup(key);
    pair.value = strdup(value);
    if (pair.key == NULL || pair.value == NULL) {
        free(pair.key);
        free(pair.value);
        conf->result = MOTET_ERR_SYSTEM;
        conf->error = ENOMEM;
        return;
    }
    conf->pairs[conf->count++] = pair;
}

/* The whole file in a malloc()ed buffer, or NULL with errno. Only regular files: a
 * pipe could keep the caller waiting for ever. */
static char *read_file(const char *path, size_t *bytes_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int saved = 0;
    char *text = NULL;
    size_t bytes = 0;
    struct stat st;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) != 0)
        saved = errno;
    else if (!S_ISREG(st.st_mode))
        saved = EINVAL;
    else if (st.st_size > (off_t)MOTET_CONF_FILE_MAX)
        saved = EFBIG;
    else if ((text = malloc((size_t)st.st_size + 1)) == NULL)
        saved = ENOMEM;
    while (saved == 0 && bytes < (size_t)st.st_size) {
        ssize_t n = read(fd, text + bytes, (size_t)st.st_size - bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            saved = errno;
        if (n <= 0)
            break;
        bytes += (size_t)n;
    }
    (void)close(fd); /* only read from */
    if (saved != 0) {
        free(text);
        errno = saved;
        return NULL;
    }
    *bytes_out = bytes;
    return text;
}

void motet_conf_read(motet_conf *conf, const char *path)
{
    size_t bytes = 0;
    char *text;

    memset(conf, 0, sizeof(*conf));
    if (strlen(path) >= sizeof(conf->path)) {
        conf->result = MOTET_ERR_SYSTEM;
        conf->error = ENAMETOOLONG;
        return;
    }
    memcpy(conf->path, path, strlen(path) + 1);
    text = read_file(path, &bytes);
    if (text != NULL)
        conf->pairs = calloc(MOTET_CONF_PAIRS_MAX, sizeof(*conf->pairs));
    if (conf->pairs == NULL) {
        conf->error = errno;
        conf->result = conf->error == ENOENT || conf->error == ENOTDIR
                ? MOTET_OK
                : MOTET_ERR_SYSTEM;
    } else {
        motet_conf_parse(text, bytes, keep, conf);
    }
    free(text);
}

const char *motet_conf_get(const motet_conf *conf, const char *key)
{
    for (size_t i = 0; i < conf->count; i++) {
        if (strcmp(conf->pairs[i].key, key) == 0)
            return conf->pairs[i].value;
    }
    return NULL;
}

void motet_conf_clear(motet_conf *conf)
{
    for (size_t i = 0; i < conf->count; i++) {
        free(conf->pairs[i].key);
        free(conf->pairs[i].value);
    }
    free(conf->pairs);
    memset(conf, 0, sizeof(*conf));
}
