/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the ranks of a test; see harness.h. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S      1000000000ull
#define NS_PER_US     1000ull
#define DEFAULT_S     60
#define MESSAGE_BYTES 3072
#define MAX_MESSAGES  6

const char *const multi_layout_names[MULTI_NUM_LAYOUTS] = { "processes", "threads",
    "mixed", "one thread" };

/** What a rank tells the parent. Written by the rank alone, read when it is over. */
struct slot {
    _Atomic int running, done, ready;
    _Atomic int failures;
    pthread_mutex_t lock; /* of the texts: threads of one rank may fail together */
    char message[MESSAGE_BYTES];
    char doing[256];
};

/** Shared by the parent and all ranks. */
struct multi_run_state {
    _Atomic uint64_t signal_ns;
    _Atomic uint32_t barrier_count, barrier_round;
    _Atomic uint32_t id_set[MULTI_IDS];
    ncclUniqueId id[MULTI_IDS];
    uint64_t deadline_ns;
    pid_t pid[MULTI_MAX_RANKS]; /* by process */
    int processes, nranks;
    struct slot slot[MULTI_MAX_RANKS];
};

/** What one thread of a child needs. */
struct job {
    multi_rank rank;
    const multi_spec *spec;
    pthread_t thread;
    ncclComm_t all[MULTI_MAX_RANKS];
};

uint64_t multi_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void multi_sleep_us(unsigned us)
{
    struct timespec t = { .tv_sec = us / 1000000,
        .tv_nsec = (long)(us % 1000000) * 1000 };

    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static int process_of(const multi_run_state *run, int rank)
{
    for (int p = 0; p < run->processes; p++)
        if (rank < (p + 1) * run->nranks / run->processes)
            return p;
    return run->processes - 1;
}

pid_t multi_pid(const multi_rank *rank, int of_rank)
{
    return rank->run->pid[process_of(rank->run, of_rank)];
}

/* ---- what a rank reports ---- */

static void append_message(struct slot *slot, const char *fmt, va_list args)
{
    pthread_mutex_lock(&slot->lock);
    if (atomic_fetch_add_explicit(&slot->failures, 1, memory_order_acq_rel) <
            MAX_MESSAGES) {
        size_t used = strlen(slot->message);

        if (used > 0 && used + 6 < MESSAGE_BYTES) {
            memcpy(slot->message + used, "\n      ", 8);
            used += 7;
        }
        (void)vsnprintf(slot->message + used, MESSAGE_BYTES - used, fmt, args);
    }
    pthread_mutex_unlock(&slot->lock);
}

void multi_fail(multi_rank *rank, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    append_message(&rank->run->slot[rank->rank], fmt, args);
    va_end(args);
}

bool multi_failed(const multi_rank *rank)
{
    return atomic_load_explicit(&rank->run->slot[rank->rank].failures,
                   memory_order_acquire) != 0;
}

bool multi_expect(multi_rank *rank, ncclResult_t got, ncclResult_t want,
        const char *fmt, ...)
{
    char what[512];
    va_list args;

    if (got == want)
        return true;
    va_start(args, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    multi_fail(rank, "%s: got %d (%s), expected %d; last error: %s", what, (int)got,
            ncclGetErrorString(got), (int)want, ncclGetLastError(NULL));
    return false;
}

bool multi_ok(multi_rank *rank, ncclResult_t got, const char *what)
{
    return multi_expect(rank, got, ncclSuccess, "%s", what);
}

bool multi_check(multi_rank *rank, bool holds, const char *fmt, ...)
{
    va_list args;

    if (holds)
        return true;
    va_start(args, fmt);
    append_message(&rank->run->slot[rank->rank], fmt, args);
    va_end(args);
    return false;
}

void multi_doing(multi_rank *rank, const char *fmt, ...)
{
    struct slot *slot = &rank->run->slot[rank->rank];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(slot->doing, sizeof(slot->doing), fmt, args);
    va_end(args);
}

/* ---- meeting points ---- */

/** A rank that failed and ended, or −1: nobody need wait for it. */
static int lost_rank(const multi_run_state *run)
{
    for (int r = 0; r < run->nranks; r++)
        if (atomic_load_explicit(&run->slot[r].done, memory_order_acquire) != 0 &&
                atomic_load_explicit(&run->slot[r].failures, memory_order_acquire) != 0)
            return r;
    return -1;
}

/** Wait until @p word is no longer @p unlike; until the deadline, or a rank is lost. */
static bool wait_word(multi_rank *rank, const _Atomic uint32_t *word, uint32_t unlike,
        const char *what)
{
    while (atomic_load_explicit(word, memory_order_acquire) == unlike) {
        int lost = lost_rank(rank->run);

        if (lost >= 0 || multi_now_ns() > rank->run->deadline_ns) {
            multi_fail(rank, "waited for %s until %s", what,
                    lost >= 0 ? "another rank failed" : "the deadline");
            return false;
        }
        multi_sleep_us(100);
    }
    return true;
}

bool multi_barrier(multi_rank *rank)
{
    multi_run_state *run = rank->run;
    uint32_t round = atomic_load_explicit(&run->barrier_round, memory_order_acquire);
    uint32_t arrived =
            atomic_fetch_add_explicit(&run->barrier_count, 1, memory_order_acq_rel) + 1;

    if (arrived == (uint32_t)run->nranks) {
        atomic_store_explicit(&run->barrier_count, 0, memory_order_relaxed);
        atomic_store_explicit(&run->barrier_round, round + 1, memory_order_release);
        return true;
    }
    return wait_word(rank, &run->barrier_round, round, "the other ranks at a barrier");
}

void multi_ready(multi_rank *rank)
{
    atomic_store_explicit(&rank->run->slot[rank->rank].ready, 1, memory_order_release);
}

void multi_vanish(multi_rank *rank)
{
    atomic_store_explicit(&rank->run->slot[rank->rank].done, 1, memory_order_release);
    _exit(0);
}

uint64_t multi_signal_ns(const multi_rank *rank)
{
    return atomic_load_explicit(&rank->run->signal_ns, memory_order_acquire);
}

bool multi_id(multi_rank *rank, int slot, ncclUniqueId *out)
{
    multi_run_state *run = rank->run;

    if (rank->rank == 0) {
        if (atomic_load_explicit(&run->id_set[slot], memory_order_acquire) == 0 &&
                !multi_ok(rank, ncclGetUniqueId(&run->id[slot]), "ncclGetUniqueId"))
            return false;
        atomic_store_explicit(&run->id_set[slot], 1, memory_order_release);
    } else if (!wait_word(rank, &run->id_set[slot], 0, "rank 0's unique id")) {
        return false;
    }
    *out = run->id[slot];
    return true;
}

bool multi_comm(multi_rank *rank, int slot, ncclComm_t *out)
{
    ncclUniqueId id;

    return multi_id(rank, slot, &id) &&
            multi_ok(rank, ncclCommInitRank(out, rank->nranks, id, rank->rank),
                    "ncclCommInitRank");
}

/* ---- the child's side ---- */

static bool make_comms(struct job *job)
{
    multi_rank *rank = &job->rank;

    if (!job->spec->init)
        return true;
    if (job->spec->layout == MULTI_ONE_THREAD)
        return multi_ok(rank, ncclCommInitAll(rank->comms, rank->nranks, NULL),
                "ncclCommInitAll");
    if (!multi_comm(rank, 0, &rank->comm))
        return false;
    job->all[0] = rank->comm;
    return true;
}

static void drop_comms(struct job *job)
{
    multi_rank *rank = &job->rank;
    int n = job->spec->layout == MULTI_ONE_THREAD ? rank->nranks : 1;

    if (!job->spec->init)
        return;
    for (int i = 0; i < n; i++)
        (void)multi_ok(rank,
                multi_failed(rank) ? ncclCommAbort(rank->comms[i])
                                   : ncclCommDestroy(rank->comms[i]),
                "take the communicator down");
}

static void *run_rank(void *arg)
{
    struct job *job = arg;
    struct slot *slot = &job->rank.run->slot[job->rank.rank];

    atomic_store_explicit(&slot->running, 1, memory_order_release);
    multi_doing(&job->rank, "making its communicator");
    if (make_comms(job)) {
        multi_doing(&job->rank, "in its body");
        job->spec->body(&job->rank);
        if (multi_failed(&job->rank))
            multi_doing(&job->rank, "taking its communicator down after a failure");
        drop_comms(job);
    }
    atomic_store_explicit(&slot->done, 1, memory_order_release);
    return NULL;
}

static void set_environment(const multi_spec *spec)
{
    char name[256];

    for (const char *const *e = spec->environment; e != NULL && *e != NULL; e++) {
        const char *equals = strchr(*e, '=');

        (void)snprintf(name, sizeof(name), "%.*s",
                equals == NULL ? (int)strlen(*e) : (int)(equals - *e), *e);
        if (equals == NULL)
            (void)unsetenv(name);
        else
            (void)setenv(name, equals + 1, 1);
    }
}

static void redirect_stderr(const char *path)
{
    int fd = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

    if (fd >= 0) {
        (void)dup2(fd, STDERR_FILENO);
        (void)close(fd);
    }
}

/** Everything a child process does. Ends by exit(), so that leak checkers run. */
static void child_main(const multi_spec *spec, multi_run_state *run, void *shared,
        int process)
{
    static struct job jobs[MULTI_MAX_RANKS];
    int first = process * run->nranks / run->processes;
    int last = (process + 1) * run->nranks / run->processes;
    int failures = 0;

    set_environment(spec);
    redirect_stderr(spec->stderr_path);
    if (spec->layout == MULTI_ONE_THREAD)
        last = first + 1;
    for (int r = first; r < last; r++) {
        struct job *job = &jobs[r];

        *job = (struct job){ .spec = spec };
        job->rank = (multi_rank){ .rank = r,
            .nranks = run->nranks,
            .arg = spec->arg,
            .shared = shared,
            .run = run,
            .comms = job->all };
    }
    /* The first rank runs on the process's own thread. */
    for (int r = first + 1; r < last; r++)
        if (pthread_create(&jobs[r].thread, NULL, run_rank, &jobs[r]) != 0)
            _exit(70);
    run_rank(&jobs[first]);
    for (int r = first + 1; r < last; r++)
        (void)pthread_join(jobs[r].thread, NULL);
    for (int r = first; r < last; r++)
        failures += atomic_load_explicit(&run->slot[r].failures, memory_order_acquire);
    exit(failures == 0 ? 0 : 1);
}

/* ---- the parent's side ---- */

struct family {
    const multi_spec *spec;
    multi_run_state *run;
    struct pollfd fd[MULTI_MAX_RANKS]; /* pidfds; −1 once reaped */
    int status[MULTI_MAX_RANKS];
    uint64_t ready_ns;
    bool signalled, continued, expired;
};

static int count_processes(const multi_spec *spec)
{
    switch (spec->layout) {
    case MULTI_PROCESSES: return spec->nranks;
    case MULTI_MIXED: return spec->nranks < 2 ? 1 : 2;
    default: return 1;
    }
}

static bool all_ready(const struct family *f)
{
    for (int r = 0; r < f->run->nranks; r++)
        if (atomic_load_explicit(&f->run->slot[r].ready, memory_order_acquire) == 0)
            return false;
    return true;
}

/** Send the spec's signal when its moment has come. */
static void signal_victim(struct family *f)
{
    const multi_spec *spec = f->spec;
    uint64_t now = multi_now_ns();
    pid_t pid = f->run->pid[process_of(f->run, spec->victim)];

    if (spec->signal == 0)
        return;
    if (f->ready_ns == 0 && all_ready(f))
        f->ready_ns = now;
    if (f->ready_ns == 0)
        return;
    if (!f->signalled && now >= f->ready_ns + spec->signal_after_us * NS_PER_US) {
        f->signalled = true;
        atomic_store_explicit(&f->run->signal_ns, multi_now_ns(), memory_order_release);
        (void)kill(pid, spec->signal);
    }
    if (f->signalled && !f->continued && spec->continue_after_us != 0 &&
            now >= f->ready_ns +
                            (spec->signal_after_us +
                                    (uint64_t)spec->continue_after_us) *
                                    NS_PER_US) {
        f->continued = true;
        (void)kill(pid, SIGCONT);
    }
}

/** Reap what ended; returns how many processes are left. */
static int reap(struct family *f)
{
    int left = 0;

    for (int p = 0; p < f->run->processes; p++) {
        if (f->fd[p].fd < 0)
            continue;
        if (waitpid(f->run->pid[p], &f->status[p], WNOHANG) == f->run->pid[p]) {
            (void)close(f->fd[p].fd);
            f->fd[p].fd = -1;
        } else {
            left++;
        }
    }
    return left;
}

static void kill_all(struct family *f)
{
    f->expired = true;
    for (int p = 0; p < f->run->processes; p++)
        if (f->fd[p].fd >= 0)
            (void)kill(f->run->pid[p], SIGKILL);
}

static void watch(struct family *f)
{
    while (reap(f) > 0) {
        int pause_ms = f->spec->signal != 0 && !f->continued ? 1 : 20;

        (void)poll(f->fd, (nfds_t)f->run->processes, pause_ms);
        signal_victim(f);
        if (!f->expired && multi_now_ns() > f->run->deadline_ns + NS_PER_S)
            kill_all(f);
    }
}

/** How process @p p ended badly, or "" if it did not. */
static void describe_end(const struct family *f, int p, char *buf, size_t bytes)
{
    int status = f->status[p];

    buf[0] = '\0';
    if (f->expired && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        (void)snprintf(buf, bytes, "had not ended at the deadline");
    else if (WIFSIGNALED(status))
        (void)snprintf(buf, bytes, "was killed by signal %d (%s)", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) > 1)
        (void)snprintf(buf, bytes, "exited with status %d", WEXITSTATUS(status));
}

static bool is_victim(const struct family *f, int p)
{
    return f->signalled && f->spec->signal == SIGKILL &&
            p == process_of(f->run, f->spec->victim) && WIFSIGNALED(f->status[p]) &&
            WTERMSIG(f->status[p]) == SIGKILL && !f->expired;
}

/** Print what went wrong; returns how many ranks failed. */
static int report(const struct family *f)
{
    int failed = 0;

    for (int r = 0; r < f->run->nranks; r++) {
        const struct slot *slot = &f->run->slot[r];
        int p = process_of(f->run, r);
        char end[128];

        if (f->spec->layout == MULTI_ONE_THREAD && r > 0)
            break;
        describe_end(f, p, end, sizeof(end));
        if (is_victim(f, p) || (end[0] == '\0' && slot->failures == 0 && slot->done))
            continue;
        failed++;
        printf("FAIL  %s (%d ranks, %s): rank %d, pid %d", f->spec->name,
                f->run->nranks, multi_layout_names[f->spec->layout], r,
                (int)f->run->pid[p]);
        if (end[0] != '\0')
            printf(" %s%s%s", end, slot->done ? "" : " while ",
                    slot->done ? "" : slot->doing);
        if (slot->message[0] != '\0')
            printf("\n      %s", slot->message);
        printf("\n");
    }
    return failed;
}

static bool start(struct family *f, void *shared)
{
    for (int p = 0; p < f->run->processes; p++) {
        f->fd[p] = (struct pollfd){ .fd = -1, .events = POLLIN };
    }
    for (int p = 0; p < f->run->processes; p++) {
        pid_t parent = getpid();
        pid_t pid = fork();

        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(71);
            child_main(f->spec, f->run, shared, p);
        }
        if (pid < 0) {
            printf("FAIL  %s: fork: %s\n", f->spec->name, strerror(errno));
            kill_all(f);
            return false;
        }
        f->run->pid[p] = pid;
        f->fd[p].fd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (f->fd[p].fd < 0) {
            printf("FAIL  %s: pidfd_open: %s\n", f->spec->name, strerror(errno));
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, NULL, 0);
            kill_all(f);
            return false;
        }
    }
    return true;
}

static void *map_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
            0);

    return p == MAP_FAILED ? NULL : p;
}

static void prepare(multi_run_state *run, const multi_spec *spec)
{
    pthread_mutexattr_t shared;

    run->nranks = spec->nranks;
    run->processes = count_processes(spec);
    run->deadline_ns = multi_now_ns() +
            (spec->deadline_s == 0 ? DEFAULT_S : spec->deadline_s) * NS_PER_S;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    for (int r = 0; r < spec->nranks; r++)
        pthread_mutex_init(&run->slot[r].lock, &shared);
    pthread_mutexattr_destroy(&shared);
}

int multi_run(const multi_spec *spec)
{
    size_t shared_bytes = spec->shared_bytes == 0 ? 1 : spec->shared_bytes;
    multi_run_state *run = map_shared(sizeof(*run));
    void *shared = map_shared(shared_bytes);
    struct family family = { .spec = spec, .run = run };
    int failed = 1;

    if (run == NULL || shared == NULL) {
        printf("FAIL  %s: mmap: %s\n", spec->name, strerror(errno));
        goto out;
    }
    prepare(run, spec);
    (void)fflush(NULL);
    failed = start(&family, shared) ? 0 : 1;
    watch(&family);
    failed += report(&family);
    if (failed == 0 && spec->after != NULL)
        failed = spec->after(spec, shared);
out:
    (void)fflush(NULL);
    if (run != NULL)
        (void)munmap(run, sizeof(*run));
    if (shared != NULL)
        (void)munmap(shared, shared_bytes);
    return failed;
}

/* ---- small helpers of many tests ---- */

int multi_count_entries(const char *folder)
{
    char path[64];
    DIR *dir;
    int n = 0;

    (void)snprintf(path, sizeof(path), "/proc/self/%s", folder);
    dir = opendir(path);
    if (dir == NULL)
        return -1;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

void multi_read_file(const char *path, char *buf, size_t bytes)
{
    FILE *f = fopen(path, "r");
    size_t n = 0;

    if (f != NULL) {
        n = fread(buf, 1, bytes - 1, f);
        (void)fclose(f);
    }
    buf[n] = '\0';
}

bool multi_temp_folder(char *buf, size_t bytes)
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(buf, bytes, "%s/motet-test-XXXXXX", base == NULL ? "/tmp" : base);
    return mkdtemp(buf) != NULL;
}

void multi_remove_folder(const char *path)
{
    char file[512];
    DIR *dir = opendir(path);

    if (dir == NULL)
        return;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        (void)snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            (void)unlink(file);
    }
    (void)closedir(dir);
    (void)rmdir(path);
}
