/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the stand-in runtimes share: kernels, and cases that run in a process
 * of their own, since a stand-in reads its environment once.
 */
#ifndef MOTET_TEST_FAKE_RIG_H
#define MOTET_TEST_FAKE_RIG_H

#include "child.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define RIG_BLOCKS 64

/* Fails the case, which returns int: 0 is right. */
#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            return 1;                                                       \
        }                                                                   \
    } while (0)

/* The same if @p call does not return @p wanted, an error of the runtime. */
#define IS(wanted, call)                                                           \
    do {                                                                           \
        int got_ = (int)(call);                                                    \
        if (got_ != (int)(wanted)) {                                               \
            fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, got_); \
            return 1;                                                              \
        }                                                                          \
    } while (0)

typedef struct rig_case {
    const char *name;
    int (*run)(const void *);
    const char *const *environment;
} rig_case;

/* ---- kernels: spins end after a minute, and then the values are wrong ---- */

static inline int rig_expired(time_t begin)
{
    sched_yield();
    return time(NULL) - begin > 60;
}

typedef struct meet_args {
    uint32_t *mine;
    const uint32_t *theirs;
    uint32_t rounds;
} meet_args;

/* Counts up together with another kernel. */
static inline void rig_meet(const void *p, uint32_t block, uint32_t blocks)
{
    const meet_args *args = p;
    time_t begin = time(NULL);

    (void)blocks;
    for (uint32_t r = 1; block == 0 && r <= args->rounds; r++) {
        __atomic_store_n(args->mine, r, __ATOMIC_RELEASE);
        while (__atomic_load_n(args->theirs, __ATOMIC_ACQUIRE) < r)
            if (rig_expired(begin))
                return;
    }
}

typedef struct crowd_args {
    uint32_t *here; /* a word for each block */
    uint32_t *met;  /* the same */
} crowd_args;

/* Every block waits for all the others. */
static inline void rig_crowd(const void *p, uint32_t block, uint32_t blocks)
{
    const crowd_args *args = p;
    time_t begin = time(NULL);

    __atomic_store_n(&args->here[block], 1, __ATOMIC_RELEASE);
    for (uint32_t b = 0; b < blocks; b++)
        while (__atomic_load_n(&args->here[b], __ATOMIC_ACQUIRE) == 0)
            if (rig_expired(begin))
                return;
    args->met[block] = blocks;
}

typedef struct append_args {
    uint32_t *list; /* [0]: how many follow */
    uint32_t value;
} append_args;

/* Notes in which order things ran. */
static inline void rig_append(const void *p, uint32_t block, uint32_t blocks)
{
    const append_args *args = p;

    (void)blocks;
    if (block == 0)
        args->list[++args->list[0]] = args->value;
}

/* Waits until a word is not 0. */
static inline void rig_gate(const void *p, uint32_t block, uint32_t blocks)
{
    const uint32_t *word;
    time_t begin = time(NULL);

    (void)block;
    (void)blocks;
    memcpy(&word, p, sizeof(word));
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0)
        if (rig_expired(begin))
            return;
}

static inline int rig_run_case(const rig_case *c)
{
    child_result result = child_run(c->run, NULL, c->environment);

    if (result.status != 0)
        fprintf(stderr, "%s ended with %d\n%s", c->name, result.status, result.err);
    return result.status;
}

#endif
