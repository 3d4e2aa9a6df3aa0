/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a rank. The child leads a process group of its own, so that it can be ended
 * together with what it started, and is killed by the kernel if this command dies. Why
 * it could not be started comes back through a pipe that exec closes.
 */
#include "run.h"

#include "cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int code_of_exec(int error)
{
    return error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
}

static int apply_options(const struct run_options *o)
{
    int bad = 0;

    if (o->device != NULL)
        bad |= setenv("MOTET_DEVICE", o->device, 1);
    for (int i = 0; i < o->nenv; i++)
        bad |= putenv(o->env[i]);
    return bad;
}

/* Signals as a fresh program expects them. */
static void default_signals(void)
{
    sigset_t none;

    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Rank 0 reads what the command reads, unless it is a terminal, which a process group in
 * the background may not read; the others read nothing. */
static int redirect(int rank, const int out[2], const int err[2])
{
    int null;

    if (rank != 0 || isatty(STDIN_FILENO)) {
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0)
            return -1;
    }
    return dup2(out[1], STDOUT_FILENO) < 0 || dup2(err[1], STDERR_FILENO) < 0 ? -1 : 0;
}

struct start {
    const struct run_options *options;
    const struct run_group *group;
    int rank;
    bool pipes;
    int out[2], err[2], why[2];
};

/* In the child. Returns only if it failed, with errno. */
static void become_rank(const struct start *s, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_PROBLEM); /* the parent was gone before the line above */
    if (s->pipes && (setpgid(0, 0) != 0 || redirect(s->rank, s->out, s->err) != 0))
        return;
    if (s->group != NULL && run_environment_of_rank(s->group, s->rank) != 0)
        return;
    if (apply_options(s->options) != 0)
        return;
    default_signals();
    execvp(s->options->cmd[0], s->options->cmd);
}

static void close_both(int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static bool make_pipes(struct start *s)
{
    s->out[0] = s->out[1] = s->err[0] = s->err[1] = -1;
    if (pipe2(s->why, O_CLOEXEC) != 0)
        return false;
    return !s->pipes ||
            (pipe2(s->out, O_CLOEXEC) == 0 && pipe2(s->err, O_CLOEXEC) == 0);
}

/* The parent's side: what the child wrote before exec closed the pipe, if anything. */
static int read_reason(int fd)
{
    int error = 0;
    ssize_t n;

    do
        n = read(fd, &error, sizeof(error));
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(error) ? error : 0;
}

int run_spawn(const struct run_options *o, const struct run_group *group, int rank,
        bool pipes, struct run_child *child)
{
    struct start s = { .options = o, .group = group, .rank = rank, .pipes = pipes };
    pid_t parent = getpid(), pid;
    int error;

    memset(child, 0, sizeof(*child));
    child->stream[0].fd = child->stream[1].fd = -1;
    s.why[0] = s.why[1] = -1;
    pid = make_pipes(&s) ? fork() : -1;
    if (pid < 0) {
        error = errno;
        close_both(s.why);
        close_both(s.out);
        close_both(s.err);
        return cmd_error("run", EXIT_PROBLEM, "start rank %d: %s", rank,
                strerror(error));
    }
    if (pid == 0) {
        become_rank(&s, parent);
        error = errno;
        (void)!write(s.why[1], &error, sizeof(error));
        _exit(code_of_exec(error));
    }
    if (pipes)
        (void)setpgid(pid, pid); /* whoever comes first; EACCES after exec is fine */
    close(s.why[1]);
    error = read_reason(s.why[0]);
    close(s.why[0]);
    if (pipes) {
        close(s.out[1]);
        close(s.err[1]);
    }
    if (error != 0) {
        if (pipes) {
            close(s.out[0]);
            close(s.err[0]);
        }
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return cmd_error("run", code_of_exec(error), "run '%s': %s", o->cmd[0],
                strerror(error));
    }
    child->pid = pid;
    child->own_group = pipes;
    for (int i = 0; pipes && i < 2; i++)
        run_stream_start(&child->stream[i], i == 0 ? s.out[0] : s.err[0], i + 1, o->tag,
                rank, o->prefix);
    return EXIT_FINE;
}

int run_exec(const struct run_options *o)
{
    if (apply_options(o) != 0)
        return cmd_error("run", EXIT_PROBLEM, "set the environment: %s",
                strerror(errno));
    execvp(o->cmd[0], o->cmd);
    return cmd_error("run", code_of_exec(errno), "run '%s': %s", o->cmd[0],
            strerror(errno));
}
