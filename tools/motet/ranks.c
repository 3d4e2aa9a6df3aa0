/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks for smoke and bench: see ranks.h.
 *
 * The barrier (one for each team, one for all): a thread reads the generation, then adds
 * itself to `arrived`; the last one resets the count and steps the generation (release),
 * which the others wait for (acquire). So what was written before a barrier is seen after
 * it. A waiter spins, then yields, then sleeps, and leaves when somebody has failed; the
 * parent's stall limit is its deadline.
 */
#include "ranks.h"

#include "apart.h"
#include "cmd.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE_BYTES 1024
/* How long the others may take to notice a failure by themselves before they are killed. */
#define GRACE_MS 5000
/* How long what is killed may take to be gone; a driver can hold it in the kernel. */
#define GONE_MS 10000

struct barrier {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t generation;
};

struct team {
    struct barrier barrier;
    unsigned char broadcast[RANKS_BROADCAST_BYTES];
    uint64_t word[RANKS_MAX];
};

struct ranks_shared {
    const struct ranks_plan *plan; /* the same address in every forked process */
    struct team team[RANKS_TEAMS_MAX];
    struct barrier all;
    unsigned char told[RANKS_BROADCAST_BYTES];
    _Atomic uint32_t failed;   /* 1: somebody writes `message`; 2: it is there */
    _Atomic uint64_t moved_ns; /* when a barrier last completed */
    _Atomic uint32_t look;     /* 1: the parent is to look; 0: `look_code` is there */
    int look_code;
    int code;
    char message[MESSAGE_BYTES];
};

static int teams_of(const struct ranks_plan *plan)
{
    return plan->teams > 1 ? plan->teams : 1;
}

int ranks_of(const struct ranks_plan *plan)
{
    return plan->processes * plan->threads * plan->per_thread;
}

static bool has_failed(const struct ranks_shared *shared)
{
    return atomic_load_explicit(&shared->failed, memory_order_relaxed) != 0;
}

static void pause_a_while(unsigned turn)
{
    const struct timespec nap = { .tv_nsec = 100000 };

    if (turn < 2000)
        return;
    if (turn < 20000)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* Wait for @p all threads at @p b. */
static bool meet(struct ranks_shared *s, struct barrier *b, uint32_t all)
{
    uint32_t now = atomic_load_explicit(&b->generation, memory_order_acquire);

    if (has_failed(s))
        return false;
    if (atomic_fetch_add_explicit(&b->arrived, 1, memory_order_acq_rel) + 1 == all) {
        atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&s->moved_ns, motet_now_ns(), memory_order_relaxed);
        atomic_store_explicit(&b->generation, now + 1, memory_order_release);
        return true;
    }
    for (unsigned turn = 0;
            atomic_load_explicit(&b->generation, memory_order_acquire) == now; turn++) {
        if (has_failed(s))
            return false;
        pause_a_while(turn);
    }
    return true;
}

static uint32_t threads_of_team(const struct ranks_plan *plan)
{
    return (uint32_t)(plan->processes * plan->threads);
}

bool ranks_barrier(struct ranks *self)
{
    struct ranks_shared *s = self->shared;

    return meet(s, &s->team[self->team].barrier, threads_of_team(s->plan));
}

bool ranks_tell(struct ranks *self, int from, void *data, size_t bytes)
{
    struct ranks_shared *s = self->shared;
    int teams = teams_of(s->plan);
    uint32_t all = threads_of_team(s->plan) * (uint32_t)teams;

    if (teams == 1)
        return true;
    if (self->team == from && self->first == 0)
        memcpy(s->told, data, bytes);
    if (!meet(s, &s->all, all))
        return false;
    if (self->team != from || self->first != 0)
        memcpy(data, s->told, bytes);
    return meet(s, &s->all, all);
}

/* The first rank's thread waits for the parent. */
static int ask_parent(struct ranks_shared *s)
{
    atomic_store_explicit(&s->look, 1, memory_order_release);
    for (unsigned turn = 0; atomic_load_explicit(&s->look, memory_order_acquire) != 0;
            turn++) {
        if (has_failed(s))
            return EXIT_PROBLEM;
        pause_a_while(turn);
    }
    return s->look_code;
}

int ranks_look(struct ranks *self)
{
    struct ranks_shared *s = self->shared;
    int code = -1;
    bool told;

    if (s->plan->look == NULL)
        return EXIT_FINE;
    if (self->first == 0 && self->team == 0)
        code = ask_parent(s);
    told = teams_of(s->plan) > 1 ? ranks_tell(self, 0, &code, sizeof(code))
                                 : ranks_broadcast(self, &code, sizeof(code));
    if (!told)
        return EXIT_PROBLEM;
    return code < 0 ? EXIT_FINE
                    : ranks_fail(self, code, "stopped before the next stage");
}

int ranks_bind(struct ranks *self, int i)
{
    const struct backend_choice *place = self->shared->plan->place;
    int devices = place->facts.devices, rank = self->first + i;
    const char *bad;

    if (devices == 0)
        return EXIT_FINE;
    bad = self->backend->bind(rank % devices);
    if (bad != NULL)
        return ranks_fail(self, EXIT_PROBLEM, "rank %d: take device %d: %s", rank,
                rank % devices, bad);
    return EXIT_FINE;
}

bool ranks_gather_words(struct ranks *self, const uint64_t *mine, uint64_t *all)
{
    struct team *team = &self->shared->team[self->team];

    memcpy(&team->word[self->first], mine, (size_t)self->count * sizeof(*mine));
    if (!ranks_barrier(self))
        return false;
    memcpy(all, team->word, (size_t)self->nranks * sizeof(*all));
    return ranks_barrier(self);
}

bool ranks_gather(struct ranks *self, const double *mine, double *all)
{
    uint64_t mine_words[RANKS_MAX], words[RANKS_MAX];

    memcpy(mine_words, mine, (size_t)self->count * sizeof(*mine));
    if (!ranks_gather_words(self, mine_words, words))
        return false;
    memcpy(all, words, (size_t)self->nranks * sizeof(*all));
    return true;
}

bool ranks_broadcast(struct ranks *self, void *data, size_t bytes)
{
    struct team *team = &self->shared->team[self->team];

    if (self->first == 0)
        memcpy(team->broadcast, data, bytes);
    if (!ranks_barrier(self))
        return false;
    if (self->first != 0)
        memcpy(data, team->broadcast, bytes);
    return ranks_barrier(self);
}

int ranks_fail(struct ranks *self, int code, const char *fmt, ...)
{
    struct ranks_shared *s = self->shared;
    uint32_t nobody = 0;
    size_t at = 0;
    va_list args;

    if (!atomic_compare_exchange_strong_explicit(&s->failed, &nobody, 1,
                memory_order_acq_rel, memory_order_relaxed))
        return code;
    if (self->team > 0)
        at = (size_t)snprintf(s->message, sizeof(s->message), "the other library: ");
    va_start(args, fmt);
    vsnprintf(s->message + at, sizeof(s->message) - at, fmt, args);
    va_end(args);
    s->code = code;
    atomic_store_explicit(&s->failed, 2, memory_order_release);
    return code;
}

void ranks_alone(struct ranks *out, const struct backend *backend, int rank, int nranks)
{
    static struct backend_choice
            place; /* no devices: ranks_bind() leaves all as it is */
    static struct ranks_plan plan = { .processes = 1, .threads = 1, .per_thread = 1 };
    static struct ranks_shared shared;

    place.backend = backend;
    plan.place = &place;
    shared.plan = &plan;
    *out = (struct ranks){ .shared = &shared,
        .backend = backend,
        .first = rank,
        .count = 1,
        .nranks = nranks };
}

const char *ranks_said(const struct ranks *self)
{
    return self->shared->message;
}

/* ------------------------------------------------------------- one process */

struct thread_start {
    struct ranks self;
    int (*body)(struct ranks *self, void *arg);
    void *arg;
    pthread_t thread;
    int code;
};

static void *run_thread(void *arg)
{
    struct thread_start *start = arg;

    start->code = start->body(&start->self, start->arg);
    return NULL;
}

/* All threads of a forked process. Thread 0 is the process's first one. */
static int run_process(struct ranks_shared *shared, int team, int process,
        int (*body)(struct ranks *self, void *arg), void *arg)
{
    const struct ranks_plan *plan = shared->plan;
    struct thread_start *start = calloc((size_t)plan->threads, sizeof(*start));
    int worst = EXIT_FINE;

    if (start == NULL)
        return EXIT_PROBLEM;
    for (int t = plan->threads - 1; t >= 0; t--) {
        start[t].self = (struct ranks){ .shared = shared,
            .backend = plan->place->backend,
            .team = team,
            .process = process,
            .thread = t,
            .first = (process * plan->threads + t) * plan->per_thread,
            .count = plan->per_thread,
            .nranks = ranks_of(plan) };
        start[t].body = body;
        start[t].arg = arg;
        if (t == 0)
            run_thread(&start[0]);
        else if ((errno = pthread_create(&start[t].thread, NULL, run_thread,
                          &start[t])) != 0)
            return ranks_fail(&start[t].self, EXIT_PROBLEM, "start thread %d: %s", t,
                    strerror(errno));
    }
    for (int t = 1; t < plan->threads; t++)
        pthread_join(start[t].thread, NULL);
    for (int t = 0; t < plan->threads; t++)
        worst = start[t].code > worst ? start[t].code : worst;
    free(start);
    fflush(stdout);
    return worst;
}

/* -------------------------------------------------------------- the parent */

struct watch {
    struct ranks_shared *shared;
    pid_t *pid; /* 0 once it has ended */
    int processes, alive, worst;
    uint64_t kill_ns;     /* when the rest is killed; 0 = no reason yet */
    uint64_t leave_ns;    /* when what is left after that is left behind */
    bool stalled, killed; /* by us */
};

/* A sentence about what went wrong, to where the plan wants it. Returns @p code. */
__attribute__((format(printf, 3, 4))) static int say(const struct ranks_plan *plan,
        int code, const char *fmt, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (plan->end != NULL && plan->end->said[0] == 0)
        snprintf(plan->end->said, sizeof(plan->end->said), "%s", text);
    return plan->quiet ? code : cmd_error(plan->command, code, "%s", text);
}

static void kill_all(struct watch *w)
{
    if (!w->killed)
        w->leave_ns = motet_now_ns() + GONE_MS * MOTET_NS_PER_MS;
    w->killed = true;
    if (w->shared->plan->end != NULL)
        w->shared->plan->end->killed = true;
    for (int i = 0; i < w->processes; i++)
        if (w->pid[i] > 0)
            kill(w->pid[i], SIGKILL);
}

static void give_grace(struct watch *w)
{
    if (w->kill_ns == 0)
        w->kill_ns = motet_now_ns() + GRACE_MS * MOTET_NS_PER_MS;
}

/* "rank 3" or "ranks 4 to 7" of a process, and whose if there are two teams. */
static const char *ranks_text(const struct ranks_plan *plan, int number, char *buf,
        size_t bytes)
{
    int each = plan->threads * plan->per_thread, process = number % plan->processes;
    const char *whose = number >= plan->processes ? " of the other library" : "";

    if (each == 1)
        snprintf(buf, bytes, "rank %d%s", process, whose);
    else
        snprintf(buf, bytes, "ranks %d to %d%s", process * each,
                process * each + each - 1, whose);
    return buf;
}

static void note_end(struct watch *w, int process, int status)
{
    const struct ranks_plan *plan = w->shared->plan;
    char who[80];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_PROBLEM;

    /* whoever reads our output may leave, as `head` does: that needs no words */
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGPIPE && !w->killed)
        say(plan, code, "%s (pid %d) was killed by signal %d (%s)",
                ranks_text(plan, process, who, sizeof(who)), (int)w->pid[process],
                WTERMSIG(status), strsignal(WTERMSIG(status)));
    w->worst = code > w->worst ? code : w->worst;
    w->pid[process] = 0;
    w->alive--;
    if (code != EXIT_FINE)
        give_grace(w);
}

static void reap(struct watch *w)
{
    for (int i = 0; i < w->processes; i++) {
        int status =
                W_EXITCODE(EXIT_PROBLEM, 0); /* of one that somebody else waited for */

        if (w->pid[i] > 0 && waitpid(w->pid[i], &status, WNOHANG) != 0)
            note_end(w, i, status);
    }
}

/* What outlives SIGKILL is held by the kernel, maybe for ever. */
static void leave_behind(struct watch *w)
{
    const struct ranks_plan *plan = w->shared->plan;
    char who[80];

    for (int i = 0; i < w->processes; i++)
        if (w->pid[i] > 0)
            say(plan, EXIT_PROBLEM,
                    "%s (pid %d) was killed and is not gone: the kernel holds it; it "
                    "is left behind",
                    ranks_text(plan, i, who, sizeof(who)), (int)w->pid[i]);
    if (plan->end != NULL)
        plan->end->left = true;
    w->worst = w->worst > EXIT_PROBLEM ? w->worst : EXIT_PROBLEM;
    w->alive = 0;
}

/* Nothing advances although nobody has failed: a hang, which the limit ends. */
static void look_for_stall(struct watch *w)
{
    const struct ranks_plan *plan = w->shared->plan;
    uint64_t moved = atomic_load_explicit(&w->shared->moved_ns, memory_order_relaxed);

    if (plan->stall_s == 0 || w->stalled || w->kill_ns != 0 ||
            motet_now_ns() < moved + plan->stall_s * MOTET_NS_PER_S)
        return;
    w->stalled = true;
    w->worst = EXIT_PROBLEM;
    w->kill_ns = motet_now_ns();
    say(plan, EXIT_PROBLEM,
            "no progress for %u s (limit of --timeout); the ranks are killed",
            plan->stall_s);
}

static void look_if_asked(struct ranks_shared *s)
{
    if (atomic_load_explicit(&s->look, memory_order_acquire) == 0)
        return;
    s->look_code = s->plan->look(s->plan->look_arg);
    atomic_store_explicit(&s->moved_ns, motet_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&s->look, 0, memory_order_release);
}

/* Children end quickly or run for long: look often at first, then every 20 ms. */
static void supervise(struct watch *w)
{
    struct timespec nap = { .tv_nsec = 1000000 };

    while (w->alive > 0) {
        reap(w);
        if (w->alive == 0)
            break;
        if (has_failed(w->shared))
            give_grace(w);
        look_if_asked(w->shared);
        look_for_stall(w);
        if (w->kill_ns != 0 && motet_now_ns() >= w->kill_ns)
            kill_all(w);
        if (w->killed && motet_now_ns() >= w->leave_ns)
            leave_behind(w);
        nanosleep(&nap, NULL);
        nap.tv_nsec = nap.tv_nsec < 20000000 ? nap.tv_nsec * 2 : nap.tv_nsec;
    }
}

static pid_t fork_one(struct ranks_shared *shared, int number,
        int (*body)(struct ranks *self, void *arg), void *arg)
{
    pid_t parent = getpid(), pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_PROBLEM); /* the parent was gone before the line above */
    exit(run_process(shared, number / shared->plan->processes,
            number % shared->plan->processes, body, arg));
}

int ranks_run(const struct ranks_plan *plan, int (*body)(struct ranks *self, void *arg),
        void *arg)
{
    struct watch w = { .processes = plan->processes * teams_of(plan) };

    fflush(stdout);
    fflush(stderr);
    if (plan->end != NULL)
        *plan->end = (struct ranks_end){ 0 };
    w.pid = calloc((size_t)w.processes, sizeof(*w.pid));
    w.shared = apart_memory(sizeof(*w.shared));
    if (w.pid == NULL || w.shared == NULL) {
        apart_free(w.shared, sizeof(*w.shared));
        free(w.pid);
        return say(plan, EXIT_PROBLEM, "no memory for %d processes: %s", w.processes,
                strerror(errno));
    }
    w.shared->plan = plan;
    atomic_store_explicit(&w.shared->moved_ns, motet_now_ns(), memory_order_relaxed);
    for (int i = 0; i < w.processes; i++) {
        w.pid[i] = fork_one(w.shared, i, body, arg);
        if (w.pid[i] < 0) {
            w.worst =
                    say(plan, EXIT_PROBLEM, "start process %d: %s", i, strerror(errno));
            kill_all(&w);
            break;
        }
        w.alive++;
    }
    supervise(&w);
    if (atomic_load_explicit(&w.shared->failed, memory_order_acquire) == 2) {
        say(plan, w.shared->code, "%s", w.shared->message);
        w.worst = w.shared->code > w.worst ? w.shared->code : w.worst;
    }
    apart_free(w.shared, sizeof(*w.shared));
    free(w.pid);
    return w.worst;
}

/* ------------------------------------------------------------ communicators */

/* Thread 0 makes all, each thread takes its own: they are threads of one process. */
static int connect_all(struct ranks *self, const struct library *lib, ncclComm_t *comms)
{
    bool on_gpus = self->shared->plan->place->facts.devices > 0;
    ncclComm_t all[RANKS_MAX] = { NULL };
    int device[RANKS_MAX];

    for (int r = 0; r < self->nranks; r++)
        device[r] = r;
    if (self->first == 0) {
        ncclResult_t result =
                lib->comm_init_all(all, self->nranks, on_gpus ? device : NULL);

        if (result != ncclSuccess)
            return ranks_fail(self, EXIT_PROBLEM, "ncclCommInitAll(n=%d) of '%s': %s",
                    self->nranks, lib->path, library_error(lib, result));
    }
    if (!ranks_broadcast(self, all, (size_t)self->nranks * sizeof(*all)))
        return EXIT_PROBLEM;
    memcpy(comms, all + self->first, (size_t)self->count * sizeof(*all));
    return ranks_bind(self, 0);
}

int ranks_connect(struct ranks *self, const struct library *lib, ncclConfig_t *config,
        ncclComm_t *comms)
{
    ncclResult_t result = ncclSuccess, ended;
    ncclUniqueId id;

    if (self->shared->plan->init_all)
        return connect_all(self, lib, comms);
    memset(&id, 0, sizeof(id));
    if (self->first == 0 && (result = lib->get_unique_id(&id)) != ncclSuccess)
        return ranks_fail(self, EXIT_PROBLEM, "ncclGetUniqueId of '%s': %s", lib->path,
                library_error(lib, result));
    if (!ranks_broadcast(self, &id, sizeof(id)))
        return EXIT_PROBLEM;
    result = lib->group_start();
    for (int i = 0; i < self->count && result == ncclSuccess; i++) {
        if (ranks_bind(self, i) != EXIT_FINE)
            break;
        if (config != NULL && lib->comm_init_config != NULL)
            result = lib->comm_init_config(&comms[i], self->nranks, id, self->first + i,
                    config);
        else
            result = lib->comm_init_rank(&comms[i], self->nranks, id, self->first + i);
    }
    ended = lib->group_end();
    if (result == ncclSuccess)
        result = ended;
    if (result != ncclSuccess)
        return ranks_fail(self, EXIT_PROBLEM, "rank %d: ncclCommInitRank of '%s': %s",
                self->first, lib->path, library_error(lib, result));
    return ranks_barrier(self) ? EXIT_FINE : EXIT_PROBLEM;
}

void ranks_disconnect(struct ranks *self, const struct library *lib, ncclComm_t *comms)
{
    bool failed = has_failed(self->shared);

    for (int i = 0; i < self->count; i++) {
        if (comms[i] == NULL)
            continue;
        if (failed)
            (void)lib->comm_abort(comms[i]);
        else
            (void)lib->comm_destroy(comms[i]);
        comms[i] = NULL;
    }
}
