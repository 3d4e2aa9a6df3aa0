/* SPDX-License-Identifier: Apache-2.0 */
/* See deadline.h. */
#include "deadline.h"

#include "gather.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

_Noreturn static void child(int fd, void (*question)(FILE *out, const void *about),
        const void *about)
{
    const int null = open("/dev/null", O_RDWR);
    FILE *out = fdopen(fd, "w");

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    if (out != NULL) {
        question(out, about);
        fflush(out);
    }
    _exit(0); /* a library's destructors are none of our business */
}

/* What the child writes until it ends or the time is up; false: the time was up. */
static bool hear(int fd, int ms, char *text)
{
    const int64_t end = dr_now_ms() + ms;
    size_t used = 0;

    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        const int64_t left = end - dr_now_ms();
        ssize_t got;

        if (left <= 0 || used == DR_ANSWER_MAX)
            return used == DR_ANSWER_MAX;
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        got = read(fd, text + used, DR_ANSWER_MAX - used);
        if (got <= 0)
            return true;
        used += (size_t)got;
    }
}

/* One that waits inside the kernel cannot be killed; it is left and not waited for. */
static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    for (int i = 0; i < 20 && waitpid(pid, NULL, WNOHANG) == 0; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

char *dr_ask_in_child(struct doctor *d, int ms,
        void (*question)(FILE *out, const void *about), const void *about,
        bool *in_time)
{
    char *text = dr_alloc(d, DR_ANSWER_MAX + 1);
    int ends[2];
    pid_t pid;

    *in_time = false;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return text;
    pid = fork();
    if (pid == 0)
        child(ends[1], question, about);
    close(ends[1]);
    *in_time = pid > 0 && hear(ends[0], ms, text);
    close(ends[0]);
    if (pid > 0)
        end_child(pid);
    return text;
}
