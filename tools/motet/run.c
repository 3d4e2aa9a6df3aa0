/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet run: watching over what was started.
 *
 * One loop polls the signal descriptor and the ranks' pipes. The first rank that fails
 * decides the exit status; the others then get SIGTERM, and SIGKILL after the grace
 * period. This process is a child subreaper: whatever the ranks leave behind becomes its
 * child, is ended the same way, and is waited for, so neither zombies nor orphans stay.
 * (Without -n nothing but CMD itself is ended: it may leave a daemon on purpose.)
 */
#include "run.h"

#include "cmd.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* After SIGKILL: how long ends and output may still take. */
#define DRAIN_NS (2 * MOTET_NS_PER_S)

struct run {
    struct run_options options;
    struct run_child *child;
    int nchildren, alive;
    bool ranks;   /* -n: own process groups, pipes, prefixes */
    bool orphans; /* processes of ranks may be left that are our children now */
    int code;     /* exit status so far */
    bool failed;
    int signal_fd;
    uint64_t timeout_ns; /* deadline of --timeout; 0 none */
    uint64_t kill_ns;    /* when SIGKILL follows SIGTERM; 0 not ending */
    uint64_t give_up_ns; /* after SIGKILL: when waiting ends; 0 not killed */
    bool closed[3];      /* nobody reads our stdout, stderr any more */
    struct run_maps maps;
    struct pollfd *polled; /* one for signals, two for each child */
};

static const int passed_on[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

/* -------------------------------------------------------------------- ending */

static bool is_rank(const struct run *r, pid_t pid)
{
    for (int i = 0; i < r->nchildren; i++)
        if (r->child[i].pid == pid)
            return true;
    return false;
}

/* Children that are no ranks: what ranks left behind. */
static void signal_orphans(const struct run *r, int number)
{
    char name[64];
    FILE *file;
    int pid;

    snprintf(name, sizeof(name), "/proc/self/task/%d/children", (int)getpid());
    file = fopen(name, "re");
    if (file == NULL)
        return;
    while (fscanf(file, "%d", &pid) == 1)
        if (!is_rank(r, pid))
            (void)kill(pid, number);
    fclose(file);
}

/* A group's number cannot be taken by another while its leader is not yet reaped. */
static void signal_all(const struct run *r, int number)
{
    for (int i = 0; i < r->nchildren; i++) {
        const struct run_child *c = &r->child[i];

        if (c->pid != 0)
            (void)kill(c->own_group ? -c->pid : c->pid, number);
    }
}

/* From now on: when SIGKILL follows. */
static void start_grace(struct run *r)
{
    if (r->kill_ns == 0)
        r->kill_ns = motet_now_ns() + (unsigned)r->options.grace_s * MOTET_NS_PER_S;
}

static void end_all(struct run *r)
{
    if (r->kill_ns != 0)
        return;
    signal_all(r, SIGTERM);
    if (r->ranks)
        signal_orphans(r, SIGTERM);
    start_grace(r);
}

static void fail(struct run *r, int code)
{
    if (!r->failed)
        r->code = code;
    r->failed = true;
    end_all(r);
}

static void check_deadlines(struct run *r)
{
    uint64_t now = motet_now_ns();

    if (r->timeout_ns != 0 && now >= r->timeout_ns) {
        r->timeout_ns = 0;
        cmd_error("run", EXIT_TIMEOUT, "%d s are over (--timeout); ending '%s'",
                r->options.timeout_s, r->options.cmd[0]);
        fail(r, EXIT_TIMEOUT);
    }
    if (r->kill_ns == 0 || now < r->kill_ns)
        return;
    signal_all(r, SIGKILL);
    if (r->ranks)
        signal_orphans(r, SIGKILL); /* again each time: their children come to us */
    if (r->give_up_ns == 0)
        r->give_up_ns = now + DRAIN_NS;
}

/* -------------------------------------------------------------------- reaping */

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void note_end(struct run *r, int rank, pid_t pid, int status)
{
    int code = code_of(status);

    if (!r->failed)
        r->code = code;
    if (code == 0 || r->failed)
        return;
    if (r->ranks && WIFSIGNALED(status))
        cmd_error("run", code, "rank %d (pid %d) was killed by signal %d (%s)%s", rank,
                (int)pid, WTERMSIG(status), strsignal(WTERMSIG(status)),
                r->alive > 0 ? "; ending the others" : "");
    else if (r->ranks)
        cmd_error("run", code, "rank %d (pid %d) failed with status %d%s", rank,
                (int)pid, code, r->alive > 0 ? "; ending the others" : "");
    fail(r, code);
}

/* Of those that ended together, the killed come first: the others saw them die. */
static void reap(struct run *r)
{
    struct {
        int rank, status;
        pid_t pid;
    } ended[RUN_RANKS_MAX];
    int status, n = 0;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < r->nchildren; i++)
            if (r->child[i].pid == pid) {
                ended[n].rank = i;
                ended[n].status = status;
                ended[n++].pid = pid;
                r->child[i].pid = 0;
                r->alive--;
                break;
            }
    r->orphans = r->ranks && !(pid < 0 && errno == ECHILD);
    for (int killed = 1; killed >= 0; killed--)
        for (int i = 0; i < n; i++)
            if (WIFSIGNALED(ended[i].status) == killed)
                note_end(r, ended[i].rank, ended[i].pid, ended[i].status);
}

/* A terminal sends its signals to the whole foreground group; a CMD that shares ours has
 * had it already. */
static void pass_on(struct run *r, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;

    if (number == SIGINT && r->kill_ns != 0 && r->ranks) {
        r->kill_ns = 1; /* asked twice: no grace */
        return;
    }
    if (r->ranks || info->ssi_code != SI_KERNEL)
        signal_all(r, number);
    if (r->ranks && (number == SIGINT || number == SIGTERM || number == SIGHUP))
        start_grace(r);
}

static void take_signals(struct run *r)
{
    struct signalfd_siginfo info;

    while (read(r->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            reap(r);
        else
            pass_on(r, &info);
    }
}

/* --------------------------------------------------------------------- output */

/* Write whole, without going deaf: signals and deadlines are served while the reader is
 * slow. POLLOUT promises room for PIPE_BUF bytes. */
static bool put(void *arg, int fd, const char *data, size_t bytes)
{
    struct run *r = arg;

    while (bytes > 0 && !r->closed[fd]) {
        struct pollfd wait[2] = { { .fd = fd, .events = POLLOUT },
            { .fd = r->signal_fd, .events = POLLIN } };
        ssize_t n;

        (void)poll(wait, 2, 200);
        if ((wait[1].revents & POLLIN) != 0)
            take_signals(r);
        check_deadlines(r);
        if (r->give_up_ns != 0 && motet_now_ns() >= r->give_up_ns)
            return false;
        if (wait[0].revents == 0)
            continue;
        n = write(fd, data, bytes < PIPE_BUF ? bytes : PIPE_BUF);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            r->closed[fd] = true;
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return !r->closed[fd];
}

/* Closing our end makes the writer see SIGPIPE, as it would without us. */
static void close_stream(struct run *r, struct run_stream *s)
{
    close(s->fd);
    run_stream_end(s, put, r);
}

static void take_output(struct run *r, struct run_stream *s)
{
    char data[16384];
    ssize_t n = read(s->fd, data, sizeof(data));

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0 || !run_stream_feed(s, data, (size_t)n, put, r))
        close_stream(r, s);
}

/* ----------------------------------------------------------------- supervising */

static int wait_ms(const struct run *r)
{
    uint64_t now = motet_now_ns(), next = now + MOTET_NS_PER_S;
    uint64_t ms;

    if (r->kill_ns != 0)
        next = r->give_up_ns != 0 ? now + 20 * MOTET_NS_PER_MS : r->kill_ns;
    if (r->timeout_ns != 0 && r->timeout_ns < next)
        next = r->timeout_ns;
    if (r->maps.found != NULL && r->maps.next_ns < next)
        next = r->maps.next_ns;
    ms = next <= now ? 1 : (next - now) / MOTET_NS_PER_MS + 1;
    return ms > 1000 ? 1000 : (int)ms;
}

static bool streams_open(const struct run *r)
{
    for (int i = 0; i < r->nchildren; i++)
        if (r->child[i].stream[0].fd >= 0 || r->child[i].stream[1].fd >= 0)
            return true;
    return false;
}

static void poll_once(struct run *r)
{
    int n = 1;

    r->polled[0] = (struct pollfd){ .fd = r->signal_fd, .events = POLLIN };
    for (int i = 0; i < r->nchildren; i++)
        for (int k = 0; k < 2; k++)
            r->polled[n++] =
                    (struct pollfd){ .fd = r->child[i].stream[k].fd, .events = POLLIN };
    (void)poll(r->polled, (nfds_t)n, wait_ms(r));
    if ((r->polled[0].revents & POLLIN) != 0)
        take_signals(r);
    for (int i = 1; i < n; i++) {
        struct run_stream *s = &r->child[(i - 1) / 2].stream[(i - 1) % 2];

        if (r->polled[i].revents != 0 && s->fd >= 0)
            take_output(r, s);
    }
}

static void supervise(struct run *r)
{
    reap(r); /* ends before the descriptor existed sent no signal to it */
    while (r->alive > 0 || r->orphans || streams_open(r)) {
        if (r->alive == 0 && !r->ranks)
            break;
        if (r->alive == 0 && r->orphans)
            end_all(r);
        poll_once(r);
        check_deadlines(r);
        if (r->maps.found != NULL)
            run_maps_scan(&r->maps, motet_now_ns());
        if (r->give_up_ns != 0) {
            reap(r);
            if (motet_now_ns() >= r->give_up_ns)
                break;
        }
    }
    for (int i = 0; i < r->nchildren; i++)
        for (int k = 0; k < 2; k++)
            if (r->child[i].stream[k].fd >= 0)
                close_stream(r, &r->child[i].stream[k]);
}

static int block_signals(struct run *r)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof(passed_on) / sizeof(*passed_on); i++)
        sigaddset(&set, passed_on[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -1;
    signal(SIGPIPE, SIG_IGN);
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signal_fd < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------- starting */

static int start_all(struct run *r, const struct run_group *group)
{
    int n = r->ranks ? r->options.n : 1;

    r->child = calloc((size_t)n, sizeof(*r->child));
    r->polled = calloc(2 * (size_t)n + 1, sizeof(*r->polled));
    if (r->child == NULL || r->polled == NULL)
        return cmd_error("run", EXIT_PROBLEM, "no memory for %d ranks", n);
    for (int i = 0; i < n; i++) {
        int code = run_spawn(&r->options, group, i, r->ranks, &r->child[i]);

        r->nchildren++;
        if (code != EXIT_FINE) {
            fail(r, code);
            break;
        }
        r->alive++;
    }
    return EXIT_FINE;
}

static int run_and_watch(struct run *r, const struct run_group *group,
        const char *dropin)
{
    int code;

    if (block_signals(r) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return cmd_error("run", EXIT_PROBLEM, "watch over children: %s",
                strerror(errno));
    if (r->options.timeout_s > 0)
        r->timeout_ns = motet_deadline_after_s((uint64_t)r->options.timeout_s);
    if (dropin != NULL && run_maps_start(&r->maps, dropin) != 0)
        return cmd_error("run", EXIT_PROBLEM, "no memory");
    code = start_all(r, group);
    if (code == EXIT_FINE) {
        supervise(r);
        code = r->code;
    }
    if (dropin != NULL)
        run_maps_report(&r->maps);
    close(r->signal_fd);
    free(r->child);
    free(r->polled);
    return code;
}

static const char *environment(const char *name, void *arg)
{
    (void)arg;
    return getenv(name);
}

/* Ranks of another launcher. −1: go on; otherwise the exit code. */
static int take_launcher(const struct run_options *o)
{
    struct run_launcher l;

    run_launcher_find(environment, NULL, &l);
    if (l.name == NULL && o->as == NULL)
        return cmd_usage_error("run",
                "say -n N or --as, or start it by Slurm, PMIx, Open MPI, MPICH or "
                "torchrun");
    if (l.name == NULL)
        return -1;
    if (l.why_not[0] != 0)
        return o->as != NULL ? -1 : cmd_error("run", EXIT_USAGE, "%s", l.why_not);
    /* with --as, one rank of one is how a job script starts a program that makes its own */
    if (o->as != NULL && l.size == 1)
        return -1;
    if (run_environment_of_launcher(&l) != 0)
        return cmd_error("run", EXIT_PROBLEM, "set the environment: %s",
                strerror(errno));
    return o->as != NULL || o->timeout_s > 0 ? -1 : run_exec(o);
}

static int prepare_preload(const struct run_options *o, char dropin[PATH_MAX])
{
    char why[PATH_MAX + 256];
    int code;

    if (!run_preload_find(o, dropin, why, sizeof(why)))
        return cmd_error("run", EXIT_USAGE, "%s", why);
    code = run_preload_refuse(o, dropin);
    if (code >= 0)
        return code;
    if (run_preload_environment(o->as, dropin) != 0)
        return cmd_error("run", EXIT_PROBLEM, "set the environment: %s",
                strerror(errno));
    return -1;
}

int cmd_run(int argc, char **argv)
{
    struct run r = { .signal_fd = -1 };
    struct run_group group;
    char dropin[PATH_MAX];
    int code = run_read_options(argc, argv, &r.options);

    if (code < 0 && r.options.as != NULL)
        code = prepare_preload(&r.options, dropin);
    if (code < 0 && r.options.n == 0)
        code = take_launcher(&r.options);
    if (code >= 0)
        return code;
    r.ranks = r.options.n > 0;
    if (r.ranks && run_group_make(&r.options, &group) != 0)
        return cmd_error("run", EXIT_PROBLEM, "choose an id: %s", strerror(errno));
    return run_and_watch(&r, r.ranks ? &group : NULL,
            r.options.as != NULL ? dropin : NULL);
}
