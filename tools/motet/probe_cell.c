/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of one cell: see probe.h. Each rank has a record in memory that it shares
 * with the command, where it writes what it does before it does it. At the end the command
 * reads them: who failed, who did not come back, and who only waited for those.
 */
#include "probe_cell.h"

#include "apart.h"
#include "cmd.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Reads of one process's output in a turn, as much as a pipe holds: it may be endless. */
#define READS 16
/* Steps of a cell that each take as long as the deadline allows, at most. */
#define SLOW_STEPS 8u
/* How long the others may go on once one has failed, how long a process may take after
 * SIGTERM, and after SIGKILL. */
#define PEER_GRACE_MS 3000u
#define TERM_GRACE_MS 1000u
#define KILL_GRACE_MS 2000u

static const char *const stages[] = {
    [PROBE_LOAD] = "load",
    [PROBE_SYMBOLS] = "symbols",
    [PROBE_DEVICE] = "device",
    [PROBE_INIT] = "init",
    [PROBE_LAUNCH] = "launch",
    [PROBE_SYNC] = "sync",
    [PROBE_LAST_ERROR] = "last error",
    [PROBE_VALUES] = "values",
    [PROBE_DESTROY] = "destroy",
    [PROBE_HANG] = "hang",
    [PROBE_WAITING] = "waiting",
    [PROBE_NOT_RUN] = "not run",
    [PROBE_DONE] = "done",
};

const char *probe_stage_name(enum probe_stage stage)
{
    return stages[stage];
}

/* -------------------------------------------------------------- in the cell */

/* Number of the seat's own barriers, of which each is waited for by all. */
static bool others_are_there(const struct probe_shared *s, int nranks, uint32_t turn)
{
    for (int r = 0; r < nranks; r++)
        if (atomic_load_explicit(&s->record[r].met, memory_order_acquire) < turn)
            return false;
    return true;
}

static bool one_is_lost(const struct probe_shared *s)
{
    return atomic_load_explicit(&s->lost, memory_order_acquire) != 0;
}

void probe_enter(struct probe_seat *seat, enum probe_stage stage, const char *fmt, ...)
{
    struct probe_record *own = &seat->shared->record[seat->rank];
    va_list args;

    va_start(args, fmt);
    vsnprintf(own->doing, sizeof(own->doing), fmt, args);
    va_end(args);
    own->stage = stage;
    atomic_fetch_add_explicit(&own->steps, 1, memory_order_release);
}

void probe_fail(struct probe_seat *seat, const char *fmt, ...)
{
    struct probe_record *own = &seat->shared->record[seat->rank];
    va_list args;

    if (own->failed)
        return;
    va_start(args, fmt);
    vsnprintf(own->message, sizeof(own->message), fmt, args);
    va_end(args);
    own->failed = true;
    atomic_store_explicit(&seat->shared->lost, 1, memory_order_release);
}

bool probe_failed(const struct probe_seat *seat)
{
    return seat->shared->record[seat->rank].failed;
}

void probe_blame_peer(struct probe_seat *seat)
{
    seat->shared->record[seat->rank].blames_peer = true;
}

void probe_finished(struct probe_seat *seat)
{
    seat->shared->record[seat->rank].finished = true;
}

void probe_took(struct probe_seat *seat, double ms)
{
    seat->shared->record[seat->rank].ms = ms;
}

bool probe_meet(struct probe_seat *seat)
{
    const struct timespec nap = { .tv_nsec = 200000 };
    struct probe_shared *s = seat->shared;
    struct probe_record *own = &s->record[seat->rank];
    uint32_t turn = atomic_fetch_add_explicit(&own->met, 1, memory_order_acq_rel) + 1;

    atomic_fetch_add_explicit(&own->steps, 1, memory_order_release);
    while (!others_are_there(s, seat->nranks, turn)) {
        if (one_is_lost(s)) {
            own->left = true;
            return false;
        }
        nanosleep(&nap, NULL);
    }
    return true;
}

bool probe_share(struct probe_seat *seat, void *data, size_t bytes)
{
    struct probe_shared *s = seat->shared;

    if (seat->rank == 0)
        memcpy(s->told, data, bytes);
    if (!probe_meet(seat))
        return false;
    if (seat->rank != 0)
        memcpy(data, s->told, bytes);
    return probe_meet(seat);
}

/* What a library says goes to stdout or stderr as it likes: to @p out, both. */
static void set_up_process(int out)
{
    const struct rlimit none = { 0, 0 };
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (nothing >= 0)
        (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(out, STDERR_FILENO);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
}

/* A library's own deadlines fire before the cell's, so that it says in its own words who
 * did not come. What the user has set stays. */
static void set_up_environment(unsigned timeout_s)
{
    unsigned own_s = timeout_s * 3 / 5;
    char text[16];

    snprintf(text, sizeof(text), "%u", own_s);
    (void)setenv("NCCL_DEBUG", "WARN", 0);
    if (own_s == 0)
        return;
    (void)setenv("MOTET_OP_TIMEOUT_S", text, 0);
    (void)setenv("MOTET_INIT_TIMEOUT_S", text, 0);
}

static void run_seat(struct probe_shared *s, int rank, int nranks, int device,
        probe_body *body, void *arg)
{
    struct probe_record *own = &s->record[rank];
    struct probe_seat seat = { .shared = s,
        .rank = rank,
        .nranks = nranks,
        .device = device };

    body(&seat, arg);
    own->came_back = true;
    fflush(stdout);
    fflush(stderr);
    _exit(EXIT_FINE); /* without the destructors of what was loaded */
}

/* --------------------------------------------------------------- the command */

struct process {
    pid_t pid; /* 0 once it is gone */
    int out;   /* −1 once nothing more can come */
    int status;
    bool stopped, stuck; /* by us; although we did */
    struct probe_words words;
};

struct cell {
    const struct probe_options *options;
    struct probe_shared *shared;
    struct process process[PROBE_RANKS_MAX];
    int nranks, alive;
    uint64_t steps, step_ns; /* of all ranks, and when the last one began */
    uint64_t start_ns, limit_ns, term_ns, kill_ns; /* of all; 0: not set */
    bool hurried;                                  /* a rank is lost */
};

static pid_t fork_seat(struct cell *c, const struct probe_rank *at, probe_body *body,
        void *arg)
{
    struct process *p = &c->process[at - c->shared->ranks];
    pid_t parent = getpid();
    int ends[2];

    p->out = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    p->pid = fork();
    if (p->pid == 0) {
        (void)setpgid(0, 0); /* so that what it starts ends with it */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_PROBLEM); /* it was gone before the line above */
        set_up_process(ends[1]);
        set_up_environment(c->options->timeout_s);
        run_seat(c->shared, (int)(at - c->shared->ranks), c->nranks, at->device, body,
                arg);
    }
    close(ends[1]);
    if (p->pid < 0) {
        int reason = errno;

        close(ends[0]);
        errno = reason;
        return -1;
    }
    (void)setpgid(p->pid, p->pid); /* whoever comes first */
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    p->out = ends[0];
    return p->pid;
}

static void hear(struct process *p)
{
    char buf[4096];
    ssize_t n;

    for (int i = 0; i < READS && p->out >= 0; i++) {
        n = read(p->out, buf, sizeof(buf));
        if (n > 0) {
            probe_words_add(&p->words, buf, (size_t)n);
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(p->out);
            p->out = -1;
        }
        return;
    }
}

/* Read what they print, at most 10 ms. */
static void listen_to(struct cell *c)
{
    struct pollfd fds[PROBE_RANKS_MAX];

    for (int r = 0; r < c->nranks; r++)
        fds[r] = (struct pollfd){ .fd = c->process[r].out, .events = POLLIN };
    (void)poll(fds, (nfds_t)c->nranks, 10);
    for (int r = 0; r < c->nranks; r++)
        hear(&c->process[r]);
}

static void end_in(uint64_t *limit_ns, uint64_t ms)
{
    uint64_t then = motet_now_ns() + ms * MOTET_NS_PER_MS;

    if (then < *limit_ns)
        *limit_ns = then;
}

/* Its process group has its number for as long as it is not reaped: what it has started
 * ends first. */
static bool is_over(struct process *p)
{
    siginfo_t info = { .si_pid = 0 };

    if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
        return errno == ECHILD; /* gone, and nobody can tell how */
    if (info.si_pid != p->pid)
        return false;
    (void)kill(-p->pid, SIGKILL);
    return waitpid(p->pid, &p->status, WNOHANG) == p->pid;
}

static void reap(struct cell *c)
{
    for (int r = 0; r < c->nranks; r++) {
        struct process *p = &c->process[r];

        if (p->pid <= 0 || !is_over(p))
            continue;
        p->pid = 0;
        c->alive--;
        if (!c->shared->record[r].came_back)
            atomic_store_explicit(&c->shared->lost, 1, memory_order_release);
    }
}

static void signal_all(struct cell *c, int number)
{
    for (int r = 0; r < c->nranks; r++)
        if (c->process[r].pid > 0) {
            c->process[r].stopped = true;
            kill(-c->process[r].pid, number);
        }
}

/* One that a driver holds in the kernel outlives SIGKILL: it is left behind. */
static void leave_behind(struct cell *c)
{
    for (int r = 0; r < c->nranks; r++)
        c->process[r].stuck = c->process[r].pid > 0;
    c->alive = 0;
}

static void look_at_clock(struct cell *c)
{
    uint64_t now = motet_now_ns();

    if (c->kill_ns != 0 && now >= c->kill_ns + KILL_GRACE_MS * MOTET_NS_PER_MS) {
        leave_behind(c);
    } else if (c->kill_ns == 0 && c->term_ns != 0 &&
            now >= c->term_ns + TERM_GRACE_MS * MOTET_NS_PER_MS) {
        c->kill_ns = now;
        signal_all(c, SIGKILL);
    } else if (c->term_ns == 0 && now >= c->limit_ns) {
        c->term_ns = now;
        signal_all(c, SIGTERM);
    }
}

/* The deadline is that of a step: comparing values on a busy machine is no hang. Once a
 * rank is lost the others have some time to notice, and no more. */
static void move_limit(struct cell *c)
{
    uint64_t steps = 0, step_ns = c->options->timeout_s * MOTET_NS_PER_S;

    if (c->hurried)
        return;
    if (one_is_lost(c->shared)) {
        c->hurried = true;
        end_in(&c->limit_ns, PEER_GRACE_MS);
        return;
    }
    for (int r = 0; r < c->nranks; r++)
        steps +=
                atomic_load_explicit(&c->shared->record[r].steps, memory_order_acquire);
    if (steps == c->steps)
        return;
    c->steps = steps;
    c->step_ns = motet_now_ns();
    c->limit_ns = c->step_ns + step_ns;
    if (c->limit_ns > c->start_ns + SLOW_STEPS * step_ns)
        c->limit_ns = c->start_ns + SLOW_STEPS * step_ns;
    if (c->options->until_ns != 0 && c->limit_ns > c->options->until_ns + step_ns)
        c->limit_ns = c->options->until_ns + step_ns;
}

static void watch(struct cell *c)
{
    while (c->alive > 0) {
        listen_to(c);
        reap(c);
        move_limit(c);
        if (c->alive > 0)
            look_at_clock(c);
    }
    for (int r = 0; r < c->nranks; r++) {
        hear(&c->process[r]);
        if (c->process[r].out >= 0)
            close(c->process[r].out);
        probe_words_end(&c->process[r].words);
    }
}

/* ------------------------------------------------------------------- verdict */

enum fate { FATE_FINE, FATE_FAILED, FATE_DIED, FATE_BLAMES, FATE_LEFT, FATE_LATE };

static enum fate fate_of(const struct cell *c, int rank)
{
    const struct probe_record *r = &c->shared->record[rank];
    const struct process *p = &c->process[rank];

    if (r->failed)
        return r->blames_peer ? FATE_BLAMES : FATE_FAILED;
    if (r->came_back)
        return r->left && !r->finished ? FATE_LEFT : FATE_FINE;
    if (WIFSIGNALED(p->status) && WTERMSIG(p->status) != SIGTERM &&
            WTERMSIG(p->status) != SIGKILL)
        return FATE_DIED; /* just when it was to be stopped */
    return p->stopped ? FATE_LATE : FATE_DIED;
}

/* The rank that the others waited for: the first that failed or died by itself; without
 * one, of those that did not come back the one that got least far; without such either,
 * the first that blames another. −1: none. */
static int culprit_of(const struct cell *c)
{
    int late = -1, blames = -1;

    for (int r = 0; r < c->nranks; r++) {
        enum fate fate = fate_of(c, r);

        if (fate == FATE_FAILED || fate == FATE_DIED)
            return r;
        if (fate == FATE_LATE &&
                (late < 0 ||
                        c->shared->record[r].steps < c->shared->record[late].steps))
            late = r;
        if (fate == FATE_BLAMES && blames < 0)
            blames = r;
    }
    return late >= 0 ? late : blames;
}

/* "in launch: ncclAllReduce", where it was. */
static void say_where(const struct probe_record *r, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "in %s%s%s", stages[r->stage], r->doing[0] != 0 ? ": " : "",
            r->doing);
}

static void say_death(const struct process *p, const struct probe_record *r,
        struct probe_rank *out)
{
    char where[sizeof(r->doing) + 32];

    say_where(r, where, sizeof(where));
    out->stage = r->stage;
    if (WIFSIGNALED(p->status))
        snprintf(out->message, sizeof(out->message), "killed by signal %d (%s) %s",
                WTERMSIG(p->status), strsignal(WTERMSIG(p->status)), where);
    else
        snprintf(out->message, sizeof(out->message),
                "the process ended by itself with status %d %s", WEXITSTATUS(p->status),
                where);
}

static void say_late(const struct cell *c, int rank, int culprit,
        struct probe_rank *out)
{
    const struct probe_record *r = &c->shared->record[rank];
    char where[sizeof(r->doing) + 32];

    say_where(r, where, sizeof(where));
    if (fate_of(c, culprit) == FATE_LATE &&
            r->steps == c->shared->record[culprit].steps) {
        out->stage = PROBE_HANG;
        snprintf(out->message, sizeof(out->message),
                "did not come back within %.0f s %s",
                (double)(c->term_ns - c->step_ns) / 1e9, where);
    } else {
        out->stage = PROBE_WAITING;
        snprintf(out->message, sizeof(out->message), "waited for rank %d %s", culprit,
                where);
    }
    if (c->process[rank].stuck)
        snprintf(out->message + strlen(out->message),
                sizeof(out->message) - strlen(out->message),
                "; process %d cannot be ended: the kernel holds it",
                (int)c->process[rank].pid);
}

/* What it printed, behind what is known: a warning always, @p any other last line only if
 * nothing better is known. */
static void add_words(const struct process *p, bool any, struct probe_rank *out)
{
    const char *line = p->words.warning[0] != 0 ? p->words.warning
            : any                               ? p->words.last
                                                : "";
    size_t at = strlen(out->message);

    if (line[0] != 0 && strstr(out->message, line) == NULL)
        snprintf(out->message + at, sizeof(out->message) - at, "; it printed: %s",
                line);
}

static void judge_rank(const struct cell *c, int rank, int culprit,
        struct probe_rank *out)
{
    const struct probe_record *r = &c->shared->record[rank];
    enum fate fate = fate_of(c, rank);

    /* What it was asked it has done, and then another one kept it from leaving. */
    if (fate == FATE_LATE && r->finished && fate_of(c, culprit) != FATE_LATE)
        fate = FATE_FINE;
    out->ok = fate == FATE_FINE;
    out->ms = out->ok ? r->ms : -1;
    out->stuck = c->process[rank].stuck;
    out->stage = PROBE_DONE;
    out->message[0] = 0;
    switch (fate) {
    case FATE_FINE: return;
    case FATE_FAILED:
        out->stage = r->stage;
        snprintf(out->message, sizeof(out->message), "%s", r->message);
        break;
    case FATE_DIED: say_death(&c->process[rank], r, out); break;
    case FATE_BLAMES:
        out->stage = culprit != rank ? PROBE_WAITING : r->stage;
        if (culprit != rank)
            snprintf(out->message, sizeof(out->message), "waited for rank %d: %s",
                    culprit, r->message);
        else
            snprintf(out->message, sizeof(out->message), "%s", r->message);
        break;
    case FATE_LEFT:
        out->stage = PROBE_WAITING;
        snprintf(out->message, sizeof(out->message), "waited for rank %d after %s",
                culprit, stages[r->stage]);
        break;
    case FATE_LATE: say_late(c, rank, culprit, out); break;
    }
    add_words(&c->process[rank], fate == FATE_DIED, out);
    probe_words_clean(out->message);
}

void probe_not_run(struct probe_rank *ranks, int nranks, const char *fmt, ...)
{
    for (int r = 0; r < nranks; r++) {
        va_list args;

        ranks[r].ok = false;
        ranks[r].ms = -1;
        ranks[r].stage = PROBE_NOT_RUN;
        va_start(args, fmt);
        vsnprintf(ranks[r].message, sizeof(ranks[r].message), fmt, args);
        va_end(args);
    }
}

void probe_cell(const struct probe_options *options, probe_body *body, void *arg,
        struct probe_rank *ranks, int nranks)
{
    struct cell c = { .options = options, .nranks = nranks };
    bool started = true;

    fflush(stdout);
    fflush(stderr);
    c.shared = apart_memory(sizeof(*c.shared));
    if (c.shared == NULL) {
        probe_not_run(ranks, nranks, "no memory: %s", strerror(errno));
        return;
    }
    c.shared->ranks = ranks;
    c.start_ns = c.step_ns = motet_now_ns();
    c.limit_ns = c.start_ns + options->timeout_s * MOTET_NS_PER_S;
    for (int r = 0; r < nranks && started; r++) {
        c.shared->record[r].ms = -1;
        started = fork_seat(&c, &ranks[r], body, arg) > 0;
        c.alive += started;
    }
    if (!started) {
        probe_not_run(ranks, nranks, "start a process: %s", strerror(errno));
        signal_all(&c, SIGKILL);
    }
    watch(&c);
    for (int r = 0; r < nranks && started; r++)
        judge_rank(&c, r, culprit_of(&c), &ranks[r]);
    apart_free(c.shared, sizeof(*c.shared));
}
