/* SPDX-License-Identifier: Apache-2.0 */
/* A process of its own, with a deadline: see apart.h. */
#include "apart.h"

#include "cmd.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How long what is killed may take to be gone. */
#define KILL_S 2
/* Exit status of a body that returned: what it called may exit with 0 by itself. */
#define CAME_BACK 91

void *apart_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
            -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void apart_free(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}

/* Wait for @p pid for @p seconds at most, and end what it leaves behind while its number,
 * which is its group's, is still taken. Whether it is gone. */
static bool gone_within(pid_t pid, unsigned seconds, int *status)
{
    const struct timespec nap = { .tv_nsec = 2000000 };
    uint64_t limit = motet_now_ns() + seconds * MOTET_NS_PER_S;
    siginfo_t info = { .si_pid = 0 };

    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == 0) {
        if (motet_now_ns() > limit)
            return false;
        nanosleep(&nap, NULL);
    }
    if (info.si_pid == pid) {
        kill(-pid, SIGKILL);
        waitpid(pid, status, 0);
    }
    return true;
}

enum apart apart_run(void (*body)(void *shared), void *shared, unsigned seconds)
{
    int status;

    return apart_run_status(body, shared, seconds, &status);
}

enum apart apart_run_status(void (*body)(void *shared), void *shared, unsigned seconds,
        int *status_out)
{
    pid_t parent = getpid(), pid;
    int status = -1;

    fflush(stdout);
    fflush(stderr);
    pid = fork();
    if (pid < 0)
        return APART_FAILED;
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_PROBLEM); /* it was gone before the line above */
        body(shared);
        _exit(CAME_BACK);
    }
    setpgid(pid, pid); /* whichever of the two comes first */
    if (gone_within(pid, seconds, &status)) {
        *status_out = status;
        return WIFEXITED(status) && WEXITSTATUS(status) == CAME_BACK ? APART_FINE
                                                                     : APART_CRASHED;
    }
    /* A process that a driver holds in the kernel outlives even SIGKILL. */
    kill(-pid, SIGKILL);
    return gone_within(pid, KILL_S, &status) ? APART_LATE : APART_STUCK;
}
