/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks that join: see join_ranks.h. */
#include "join_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ranks are forked while a service's thread runs, and start threads of their own:
 * ThreadSanitizer allows that only when told. Without it nobody calls this. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

uint64_t test_now_ms(void)
{
    return motet_now_ns() / MOTET_NS_PER_MS;
}

void test_sleep_ms(uint64_t ms)
{
    struct timespec t = { .tv_sec = (time_t)(ms / 1000),
        .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static const char *look_up(const char *name, void *arg)
{
    for (const char *const *pair = arg; *pair != NULL; pair += 2)
        if (strcmp(pair[0], name) == 0)
            return pair[1];
    return strcmp(name, "XDG_RUNTIME_DIR") == 0 ? test_folder : NULL;
}

char test_folder[64];

int test_folder_make(void **state)
{
    (void)state;
    snprintf(test_folder, sizeof(test_folder), "/tmp/join-test-XXXXXX");
    return mkdtemp(test_folder) != NULL ? 0 : -1;
}

int test_folder_remove(void **state)
{
    (void)state;
    return rmdir(test_folder);
}

const motet_params *test_params(const char *const *pairs)
{
    static _Thread_local motet_params params;

    if (motet_params_load(look_up, (void *)(uintptr_t)pairs, &params) != MOTET_OK)
        abort(); /* also outside of a cmocka test: a bug of the test itself */
    return &params;
}

group *group_plan(int nranks)
{
    group *g = calloc(1, sizeof(*g));

    assert_non_null(g);
    assert_true(nranks <= GROUP_MAX);
    g->nranks = nranks;
    g->shared = mmap(NULL, sizeof(*g->shared), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(g->shared != MAP_FAILED);
    g->outcome = g->shared->outcome;
    for (int i = 0; i < nranks; i++) {
        g->plan[i].rank = i;
        g->plan[i].nranks = nranks;
    }
    return g;
}

void group_free(group *g)
{
    motet_id_cancel(&g->id); /* one that waits for latecomers need not */
    munmap(g->shared, sizeof(*g->shared));
    free(g);
}

void group_make_id(group *g)
{
    static const char *const none[] = { NULL };

    assert_int_equal(motet_id_create(test_params(none), &g->id), MOTET_OK);
}

/* What rank r hands over: 3 descriptors, or r % 4; descriptor k holds "r.k". */
static int brings(const group *g, int rank)
{
    return g->three_fds ? MOTET_JOIN_FDS : rank % (MOTET_JOIN_FDS + 1);
}

static int make_fds(const group *g, int rank, int fds[MOTET_JOIN_FDS])
{
    int n = brings(g, rank);

    for (int k = 0; k < n; k++) {
        fds[k] = memfd_create("rank", MFD_CLOEXEC);
        dprintf(fds[k], "%d.%d", rank, k);
    }
    return n;
}

static bool entry_right(const motet_roster *roster, const group *g, int r, int self)
{
    const motet_roster_entry *entry = &roster->rank[r];
    int brought = brings(g, r);
    char want[32], got[32] = "";

    snprintf(want, sizeof(want), "blob of %d", r);
    if (entry->blob_bytes != strlen(want) ||
            memcmp(entry->blob, want, entry->blob_bytes) != 0 ||
            entry->pid != g->outcome[r].pid || entry->host[0] == '\0')
        return false;
    for (int k = 0; k < MOTET_JOIN_FDS; k++) {
        if (r == self || k >= brought) {
            if (entry->fds[k] != -1)
                return false;
            continue;
        }
        snprintf(want, sizeof(want), "%d.%d", r, k);
        memset(got, 0, sizeof(got));
        if (pread(entry->fds[k], got, sizeof(got) - 1, 0) < 0 || strcmp(got, want) != 0)
            return false;
    }
    return true;
}

static bool roster_right(const motet_roster *roster, const group *g,
        const rank_plan *plan)
{
    if (roster->nranks != plan->nranks)
        return false;
    for (int r = 0; r < roster->nranks; r++)
        if (!entry_right(roster, g, r, plan->rank))
            return false;
    return true;
}

typedef struct canceller {
    _Atomic uint32_t *flag;
    uint64_t after_ms;
} canceller;

static void *cancel_main(void *arg)
{
    canceller *c = arg;

    test_sleep_ms(c->after_ms);
    atomic_store(c->flag, 1);
    return NULL;
}

static void join_with(group *g, int i, const motet_join_args *args)
{
    const rank_plan *plan = &g->plan[i];
    rank_outcome *outcome = &g->outcome[i];
    const char *env[9];
    int n = 0;
    motet_roster roster;
    motet_id id = g->id;

    if (plan->hostid != NULL) {
        env[n++] = "NCCL_HOSTID";
        env[n++] = plan->hostid;
    }
    if (plan->comm_id != NULL) {
        env[n++] = "NCCL_COMM_ID";
        env[n++] = plan->comm_id;
    }
    env[n] = NULL;
    const motet_params *params = test_params(env);
    uint64_t start_ms;

    outcome->result = MOTET_OK;
    if (plan->comm_id != NULL)
        outcome->result = motet_id_create(params, &id);
    start_ms = test_now_ms();
    if (outcome->result == MOTET_OK)
        outcome->result = motet_bootstrap_join(params, &id, args, &roster);
    outcome->took_ms = test_now_ms() - start_ms;
    if (outcome->result == MOTET_OK) {
        outcome->values_right = roster_right(&roster, g, plan);
        motet_roster_release(&roster);
    } else {
        snprintf(outcome->trail, sizeof(outcome->trail), "%s", motet_error_trail());
    }
    outcome->done = true;
}

static void run_rank(group *g, int i)
{
    const rank_plan *plan = &g->plan[i];
    _Atomic uint32_t flag = 0;
    canceller c = { &flag, plan->cancel_ms };
    pthread_t thread;
    char blob[32];
    motet_join_args args = { .rank = plan->rank,
        .nranks = plan->nranks,
        .settings =
                plan->settings != NULL ? plan->settings : "path=shared\nchunk=16384\n",
        .blob = blob,
        .cancel = &flag };

    g->outcome[i].pid = getpid();
    if (plan->absent)
        return;
    test_sleep_ms(plan->delay_ms);
    snprintf(blob, sizeof(blob), "blob of %d", plan->rank);
    args.blob_bytes = strlen(blob);
    args.nfds = make_fds(g, plan->rank, args.fds);
    args.deadline_ns = motet_now_ns() +
            (plan->deadline_ms != 0 ? plan->deadline_ms : 20000) * MOTET_NS_PER_MS;
    if (plan->cancel_ms != 0)
        pthread_create(&thread, NULL, cancel_main, &c);
    join_with(g, i, &args);
    if (plan->cancel_ms != 0)
        pthread_join(thread, NULL);
    for (int k = 0; k < args.nfds; k++)
        close(args.fds[k]);
}

typedef struct seat {
    group *g;
    int i;
} seat;

static void *rank_main(void *arg)
{
    seat *s = arg;

    run_rank(s->g, s->i);
    return NULL;
}

void group_run_threads(group *g)
{
    pthread_t thread[GROUP_MAX];
    seat seats[GROUP_MAX];

    for (int i = 0; i < g->nranks; i++) {
        seats[i] = (seat){ g, i };
        assert_int_equal(pthread_create(&thread[i], NULL, rank_main, &seats[i]), 0);
    }
    for (int i = 0; i < g->nranks; i++)
        pthread_join(thread[i], NULL);
}

bool test_run_ip(const char *const args[])
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        execvp("ip", (char *const *)(uintptr_t)args);
        _exit(127);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
            WEXITSTATUS(status) == 0;
}

static bool enter_network(const rank_plan *plan)
{
    int fd = open(plan->net_path, O_RDONLY | O_CLOEXEC), rc;

    if (fd < 0)
        return false;
    rc = setns(fd, CLONE_NEWNET);
    close(fd);
    return rc == 0;
}

/* In the child. False: not allowed here. */
static bool leave_namespaces(const rank_plan *plan)
{
    if (plan->net_path != NULL && !enter_network(plan))
        return false;
    if (plan->unshare_flags == 0)
        return true;
    if (unshare(plan->unshare_flags) != 0)
        return false;
    if ((plan->unshare_flags & CLONE_NEWNS) != 0 &&
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return false;
    if (plan->own_tmp && mount("none", "/tmp", "tmpfs", 0, NULL) != 0)
        return false;
    return plan->uts == NULL || sethostname(plan->uts, strlen(plan->uts)) == 0;
}

static pid_t spawn_rank(group *g, int i)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid != 0)
        return pid;
    while (atomic_load(&g->shared->ready) == 0)
        test_sleep_ms(1);
    g->id = g->shared->id;
    if (leave_namespaces(&g->plan[i]))
        run_rank(g, i);
    else
        snprintf(g->outcome[i].trail, sizeof(g->outcome[i].trail), "no namespaces");
    _exit(0);
}

/* Let this process open @p more descriptors than it has now; the limit before. */
static struct rlimit limit_fds(int more)
{
    struct rlimit before, tight;
    int next = dup(STDERR_FILENO);

    close(next);
    getrlimit(RLIMIT_NOFILE, &before);
    tight = before;
    tight.rlim_cur = (rlim_t)(next + more);
    setrlimit(RLIMIT_NOFILE, &tight);
    return before;
}

void group_run_processes(group *g)
{
    pid_t pid[GROUP_MAX];
    struct rlimit before;

    wait_for_one_thread();
    for (int i = 0; i < g->nranks; i++)
        pid[i] = spawn_rank(g, i);
    if (g->plan[0].comm_id == NULL)
        group_make_id(g);
    getrlimit(RLIMIT_NOFILE, &before);
    if (g->root_fds != 0)
        before = limit_fds(g->root_fds);
    g->shared->id = g->id;
    atomic_store(&g->shared->ready, 1);
    for (int i = 0; i < g->nranks; i++) {
        if (!g->plan[i].dies)
            continue;
        test_sleep_ms(
                150); /* it has joined and waits by then, or has not: both are fine */
        kill(pid[i], SIGKILL);
    }
    for (int i = 0; i < g->nranks; i++)
        waitpid(pid[i], NULL, 0);
    setrlimit(RLIMIT_NOFILE, &before);
}

void group_run(group *g)
{
    if (g->processes) {
        group_run_processes(g);
        return;
    }
    group_make_id(g);
    group_run_threads(g);
}

void group_again(group *g)
{
    memset(g->shared, 0, sizeof(*g->shared));
}

void group_check_success(const group *g)
{
    for (int i = 0; i < g->nranks; i++) {
        const rank_outcome *outcome = &g->outcome[i];

        if (!outcome->done || outcome->result != MOTET_OK || !outcome->values_right)
            fail_msg("rank %d: done %d, result %d, values right %d: %s", i,
                    outcome->done, outcome->result, outcome->values_right,
                    outcome->trail);
    }
}

void rank_check_failure(const group *g, int i, motet_result result, const char *part)
{
    const rank_outcome *outcome = &g->outcome[i];

    if (!outcome->done || outcome->result != result ||
            strstr(outcome->trail, part) == NULL)
        fail_msg("rank %d: done %d, result %d (not %d), '%s' without '%s'", i,
                outcome->done, outcome->result, result, outcome->trail, part);
}

void group_check_failure(const group *g, motet_result result, const char *part)
{
    const char *sentence = NULL;

    for (int i = 0; i < g->nranks; i++) {
        if (g->plan[i].absent || g->plan[i].dies)
            continue;
        rank_check_failure(g, i, result, part);
        if (sentence == NULL)
            sentence = g->outcome[i].trail;
        assert_string_equal(g->outcome[i].trail, sentence);
    }
}

void check_no_service(uint64_t within_ms)
{
    uint64_t until_ms = test_now_ms() + within_ms;

    while (motet_bootstrap_services() != 0) {
        if (test_now_ms() > until_ms)
            fail_msg("%d services after %llu ms", motet_bootstrap_services(),
                    (unsigned long long)within_ms);
        test_sleep_ms(5);
    }
}

static int count_entries(const char *folder, const char *prefix)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' &&
                strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            n++;
    closedir(dir);
    return n;
}

/* The main thread, and one that ThreadSanitizer or an emulator runs for itself. */
#if defined(__SANITIZE_THREAD__) || defined(MOTET_EMULATED)
#define THREADS_OF_NOBODY 2
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREADS_OF_NOBODY 2
#endif
#endif
#ifndef THREADS_OF_NOBODY
#define THREADS_OF_NOBODY 1
#endif

void wait_for_one_thread(void)
{
    uint64_t until_ms = test_now_ms() + 7000;

    while (count_entries("/proc/self/task", "") > THREADS_OF_NOBODY) {
        if (test_now_ms() > until_ms)
            fail_msg("there are still threads after 7 s");
        test_sleep_ms(1);
    }
}

int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return n;
}

int count_socket_files(void)
{
    return count_entries(test_folder, "motet-");
}

/* Nothing may be left after any test: descriptors, services, socket files. */
int fds_before, files_before;

int join_before_each(void **state)
{
    (void)state;
    wait_for_one_thread(); /* some tests fork */
    fds_before = count_fds();
    files_before = count_socket_files();
    return 0;
}

int join_after_each(void **state)
{
    (void)state;
    check_no_service(1000);
    assert_int_equal(count_fds(), fds_before);
    assert_int_equal(count_socket_files(), files_before);
    return 0;
}
