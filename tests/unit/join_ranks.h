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

#define GROUP_MAX 8

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
} rank_plan;

typedef struct rank_outcome {
    motet_result result;
    char trail[1024];
    uint64_t took_ms;
    bool done;         /**< the join returned                                      */
    bool values_right; /**< every entry's blob and descriptors were the right ones */
    pid_t pid;
} rank_outcome;

typedef struct group {
    int nranks;
    motet_id id;
    rank_plan plan[GROUP_MAX];
    rank_outcome *outcome; /**< GROUP_MAX of them, shared between processes */
} group;

/** Parameters as from an environment of NAME, VALUE pairs ended by NULL. */
const motet_params *test_params(const char *const *pairs);

group *group_plan(int nranks);
void group_free(group *g);

/** Make g->id in this process. */
void group_make_id(group *g);

void group_run_threads(group *g);
void group_run_processes(group *g);

/** Every rank that is not absent succeeded and got the right things. */
void group_check_success(const group *g);

/** Every rank that joins failed with @p result, all with one sentence that holds @p part. */
void group_check_failure(const group *g, motet_result result, const char *part);

/** One rank's failure. */
void rank_check_failure(const group *g, int i, motet_result result, const char *part);

/** Wait until no service is left in this process; fail the test after @p within_ms. */
void check_no_service(uint64_t within_ms);

/** Open descriptors of this process. */
int count_fds(void);

/** Files in /tmp that look like a rendezvous of ours. */
int count_socket_files(void);

uint64_t test_now_ms(void);
void test_sleep_ms(uint64_t ms);

#endif
