/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of ranks that join one rendezvous, as threads or as processes, each with
 * its own oddity. What came out of each join lies in shared memory, so that a test
 * reads it in the same way for both.
 */
#ifndef MOTET_TEST_JOIN_RANKS_H
#define MOTET_TEST_JOIN_RANKS_H

#include "bootstrap/bootstrap.h"

#include <stdbool.h>

#define GROUP_MAX MOTET_MAX_RANKS

/** How one rank joins. Zeros: as it should. */
typedef struct rank_plan {
    int rank, nranks;     /**< set by group_plan()                                    */
    const char *settings; /**< NULL: the same as everybody                            */
    const char *hostid;   /**< NCCL_HOSTID                                            */
    const char *comm_id;  /**< NCCL_COMM_ID                                           */
    uint64_t delay_ms;    /**< before it joins                                        */
    uint64_t deadline_ms; /**< 0: 20 s                                                */
    uint64_t cancel_ms;   /**< cancelled after so long, 0: never                      */
    bool absent;          /**< never joins                                            */
    bool dies;            /**< processes: killed before others; threads: cannot       */
    int unshare_flags;    /**< processes: namespaces to leave before                  */
    const char *uts;      /**< processes, with CLONE_NEWUTS: host name                */
    bool own_tmp;         /**< processes, with CLONE_NEWNS: an empty /tmp             */
    const char
            *net_path; /**< processes: network namespace to enter before             */
} rank_plan;

typedef struct rank_outcome {
    motet_result result;
    char trail[1024];
    uint64_t took_ms;
    bool done;         /**< the join returned                                      */
    bool values_right; /**< every entry's blob and descriptors were the right ones */
    pid_t pid;
} rank_outcome;

/** What processes share. */
typedef struct group_shared {
    _Atomic int ready; /**< the id is there: go */
    motet_id id;
    rank_outcome outcome[GROUP_MAX];
} group_shared;

typedef struct group {
    int nranks;
    motet_id id;
    rank_plan plan[GROUP_MAX];
    bool processes; /**< how group_run() runs them              */
    bool three_fds; /**< every rank brings the most descriptors */
    int root_fds;   /**< processes: how many more the root may open, 0 = any */
    group_shared *shared;
    rank_outcome *outcome; /**< shared->outcome */
} group;

/** A folder of this test's own: XDG_RUNTIME_DIR of all its ranks. Other tests use /tmp. */
extern char test_folder[64];
int test_folder_make(void **state);
int test_folder_remove(void **state);

/**
 * Parameters as from an environment of NAME, VALUE pairs ended by NULL, and
 * XDG_RUNTIME_DIR if it is not among them.
 */
const motet_params *test_params(const char *const *pairs);

group *group_plan(int nranks);
void group_free(group *g);

/** Make g->id in this process. */
void group_make_id(group *g);

/** Threads that join g->id. */
void group_run_threads(group *g);

/**
 * Processes that join. They are forked first and the id is made then, here, unless
 * all have a fixed address: a child of a process with threads may not allocate.
 */
void group_run_processes(group *g);

/** Make an id and run the group, as g->processes says. */
void group_run(group *g);

/** Forget the outcomes, for another run. */
void group_again(group *g);

/** Wait until this process has one thread (and the sanitizer's own): before a fork whose child allocates. */
void wait_for_one_thread(void);

/** Every rank that is not absent succeeded and got the right things. */
void group_check_success(const group *g);

/** Every rank that joins failed with @p result, all with one sentence that holds @p part. */
void group_check_failure(const group *g, motet_result result, const char *part);

/** One rank's failure. */
void rank_check_failure(const group *g, int i, motet_result result, const char *part);

/** Set-up and tear-down of a test: nothing may be left of it. */
int join_before_each(void **state);
int join_after_each(void **state);
extern int fds_before, files_before;

#define JOIN_CASE(fn) \
    cmocka_unit_test_setup_teardown(fn, join_before_each, join_after_each)

/** Wait until no service is left in this process; fail the test after @p within_ms. */
void check_no_service(uint64_t within_ms);

/** Open descriptors of this process, below 1024. Allocates nothing. */
int count_fds(void);

/** Socket files in the test's folder. */
int count_socket_files(void);

/** Run `ip` with @p args, "ip" first and NULL last; true if it exits 0. */
bool test_run_ip(const char *const args[]);

uint64_t test_now_ms(void);
void test_sleep_ms(uint64_t ms);

#endif
