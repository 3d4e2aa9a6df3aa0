/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file, mapped. Pages of one that becomes shorter while it is read are gone, and who
 * touches them gets SIGBUS: zeros take their place, so that the reader comes to its end,
 * and then it is said.
 */
#include "images_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What this thread reads at the moment: a library, and in it a kpack archive. */
struct mapping {
    void *data;
    size_t bytes;
    struct mapping *outer;
};
static _Thread_local struct mapping *volatile mappings;

static struct sigaction others; /* what SIGBUS did before */

static void put_zeros(int number, siginfo_t *info, void *context)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t at = (uintptr_t)info->si_addr & ~(page - 1);

    (void)number;
    (void)context;
    for (const struct mapping *m = mappings; m != NULL; m = m->outer) {
        const uintptr_t begin = (uintptr_t)m->data, end = begin + m->bytes;

        if (at >= begin && at < end &&
                mmap((void *)at, end - at, PROT_READ,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
            return;
    }
    (void)sigaction(SIGBUS, &others, NULL); /* not ours: it comes again */
}

static void watch(void)
{
    struct sigaction action = { .sa_sigaction = put_zeros, .sa_flags = SA_SIGINFO };

    (void)sigaction(SIGBUS, &action, &others);
}

/* The size of the regular file at @p fd; 0 with a sentence if that is none. */
static size_t size_of(int fd, char why[CODEOBJ_WHY_MAX])
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0)
        snprintf(why, CODEOBJ_WHY_MAX, "%s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        snprintf(why, CODEOBJ_WHY_MAX, "%s, need a file",
                S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
    else if (st.st_size == 0)
        snprintf(why, CODEOBJ_WHY_MAX, "an empty file");
    else
        return (size_t)st.st_size;
    return 0;
}

static void run(struct mapping *m,
        void (*body)(const struct images_span *span, void *arg), void *arg)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, watch);
    m->outer = mappings;
    mappings = m;
    body(&(struct images_span){ .data = m->data, .bytes = m->bytes, .mapped = true },
            arg);
    mappings = m->outer;
    munmap(m->data, m->bytes);
}

int images_with_file(const char *path,
        void (*body)(const struct images_span *span, void *arg), void *arg,
        char why[CODEOBJ_WHY_MAX])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct mapping m = { .bytes = size_of(fd, why) };
    int status = -1;
    struct stat st;

    if (m.bytes > 0) {
        m.data = mmap(NULL, m.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (m.data == MAP_FAILED)
            snprintf(why, CODEOBJ_WHY_MAX, "cannot be mapped: %s", strerror(errno));
        else {
            run(&m, body, arg);
            if (fstat(fd, &st) == 0 && (size_t)st.st_size >= m.bytes)
                status = 0;
            else
                snprintf(why, CODEOBJ_WHY_MAX, "it became shorter while it was read");
        }
    }
    if (fd >= 0)
        close(fd);
    return status;
}
