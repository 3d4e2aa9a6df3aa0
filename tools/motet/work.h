/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective on one thread's ranks: buffers, filling them, issuing, waiting,
 * checking. What smoke and bench have in common.
 */
#ifndef MOTET_TOOLS_WORK_H
#define MOTET_TOOLS_WORK_H

#include "collective.h"
#include "ranks.h"

/** Bytes behind an output buffer's end that must stay as they were. */
#define WORK_GUARD 64

/** Buffers of one thread's ranks. */
struct buffers {
    const struct library *lib; /* whose ncclMemAlloc made them; NULL: malloc */
    int count;
    size_t bytes; /* each, without guard and offset */
    size_t offset;
    void **base; /* send and recv of each rank, alternating */
};

/** Allocate for @p self's ranks. 0, or an exit code after ranks_fail(). */
int buffers_alloc(struct buffers *b, struct ranks *self, const struct library *lib,
        size_t bytes, size_t offset_bytes);
void buffers_free(struct buffers *b);

/** Registration of the buffers with every communicator. */
struct registration {
    int kind; /* 0 none, 1 ncclCommRegister, 2 ncclCommWindowRegister */
    union {
        void *buffer;        /* kind 1 */
        ncclWindow_t window; /* kind 2 */
    } *handle;               /* one for each of b->base */
};

int registration_make(struct registration *r, struct ranks *self,
        const struct library *lib, const ncclComm_t *comms, const struct buffers *b);
void registration_drop(struct registration *r, const struct ranks *self,
        const struct library *lib, const ncclComm_t *comms);

struct work {
    struct ranks *ranks;
    const struct library *lib;
    ncclComm_t *comms;       /* of this thread's ranks, as are the next two        */
    MOTET_STREAM_T *streams; /* NULL pointers: calls return with their results     */
    ncclRedOp_t *ops;        /* made by work_set_op()                              */
    const struct collective *collective;
    struct layout layout;
    struct check check; /* holds type and operator */
    int root;
    bool in_place;
    const struct buffers *buffers;
};

/** Communicators, streams (if asked for) and room for operators, for one library. */
int work_open(struct work *w, struct ranks *self, const struct library *lib,
        ncclConfig_t *config, bool streams);
void work_close(struct work *w);

/** Choose type and operator; makes mulsum's operators. 0, or an exit code. */
int work_set_op(struct work *w, motet_type type, motet_redop redop);
/** Give mulsum's operators back. */
void work_drop_op(struct work *w);

/** Fill inputs, poison outputs and guards of this thread's ranks. */
void work_prepare(struct work *w);

/** Issue @p times calls as one group. 0, or an exit code after ranks_fail(). */
int work_issue(struct work *w, int times);

/** Wait for the streams. 0, or an exit code after ranks_fail(). */
int work_wait(struct work *w);

/**
 * Wrong elements on this thread's ranks after one round, with damaged guards and inputs
 * counted too. @p digests gets, for each rank, a number of its output's bits.
 */
size_t work_wrong(const struct work *w, uint64_t *digests);

#endif
