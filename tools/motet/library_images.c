/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which code for GPUs a library of motet carries. Each has an index in clear text, a line
 * an image (cmake/embed.cmake), so that a file is looked into without being loaded.
 */
#include "library.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What each line begins with, behind the end of another. */
static const char mark[] = "\nmotet image ";
#define MARK_BYTES (sizeof(mark) - 1)
#define LINE_BYTES ((size_t)192)

/* A word of at most room − 1 printable bytes, and what ends it; false if it is none. */
static bool take_word(const char **at, char *word, size_t room, char end)
{
    size_t length = 0;

    while ((*at)[length] > ' ' && (*at)[length] <= '~')
        length++;
    if (length == 0 || length >= room || (*at)[length] != end)
        return false;
    memcpy(word, *at, length);
    word[length] = 0;
    *at += length + 1;
    return true;
}

static bool take_bytes(const char **at, uint64_t *value, char end)
{
    char word[20], *rest;

    if (!take_word(at, word, sizeof(word), end) || word[0] < '0' || word[0] > '9')
        return false;
    *value = strtoull(word, &rest, 10); /* 19 digits fit */
    return *rest == 0;
}

static bool parse_line(const char *line, struct library_image *image)
{
    return take_word(&line, image->name, sizeof(image->name), ' ') &&
            take_word(&line, image->vendor, sizeof(image->vendor), ' ') &&
            take_word(&line, image->target, sizeof(image->target), ' ') &&
            take_bytes(&line, &image->bytes, ' ') &&
            take_bytes(&line, &image->raw_bytes, '\n');
}

size_t library_images_in(const void *data, size_t bytes,
        struct library_image images[LIBRARY_IMAGES_MAX])
{
    const char *at = data, *end = at + bytes;
    size_t num = 0;

    while (num < LIBRARY_IMAGES_MAX &&
            (at = memmem(at, (size_t)(end - at), mark, MARK_BYTES)) != NULL) {
        char line[LINE_BYTES + 1];
        size_t length;

        at += MARK_BYTES; /* the end of this line may begin the next */
        length = (size_t)(end - at) < LINE_BYTES ? (size_t)(end - at) : LINE_BYTES;
        memcpy(line, at, length);
        line[length] = 0;
        if (parse_line(line, &images[num]))
            num++;
    }
    return num;
}

void *library_map(const char *path, size_t *bytes_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), reason;
    void *map = MAP_FAILED;
    struct stat st;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        if (S_ISREG(st.st_mode) && st.st_size > 0)
            map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    reason = errno;
    close(fd);
    errno = reason;
    if (map == MAP_FAILED)
        return NULL;
    *bytes_out = (size_t)st.st_size;
    return map;
}

int library_images(const char *path, struct library_image images[LIBRARY_IMAGES_MAX],
        size_t *num_out)
{
    size_t bytes;
    void *map = library_map(path, &bytes);

    if (map == NULL)
        return -1;
    *num_out = library_images_in(map, bytes, images);
    munmap(map, bytes);
    return 0;
}
