/* SPDX-License-Identifier: Apache-2.0 */
/* Run a function in a child with a given environment, and collect what it writes. */
#ifndef MOTET_TEST_CHILD_H
#define MOTET_TEST_CHILD_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct child_result {
    int status; /* what the function returned; 128 + signal; -1: no child */
    char out[16384], err[16384];
} child_result;

static inline void child_slurp(int fd, char *buf, size_t bytes)
{
    ssize_t n = pread(fd, buf, bytes - 1, 0);

    buf[n > 0 ? n : 0] = '\0';
    close(fd);
}

/* @p environment is NAME=VALUE strings ended by NULL; nothing else is set. */
static inline child_result child_run(int (*fn)(const void *arg), const void *arg,
        const char *const *environment)
{
    child_result result = { .status = -1 };
    int out = memfd_create("stdout", MFD_CLOEXEC), status;
    int err = memfd_create("stderr", MFD_CLOEXEC);
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        int rc;

        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        clearenv();
        for (size_t i = 0; environment != NULL && environment[i] != NULL; i++) {
            char *copy = strdup(environment[i]);

            putenv(copy);
        }
        rc = fn(arg);
        fflush(NULL);
        _exit(rc);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid > 0)
        result.status =
                WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    child_slurp(out, result.out, sizeof(result.out));
    child_slurp(err, result.err, sizeof(result.err));
    return result;
}

static inline size_t child_count(const char *text, const char *piece)
{
    size_t n = 0;

    for (; (text = strstr(text, piece)) != NULL; text += strlen(piece))
        n++;
    return n;
}

#endif
