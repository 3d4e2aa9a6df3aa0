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

/**
 * Buffers of one thread's ranks: for each rank a number of sets, each of one to send from
 * and one to receive into. Calls take the sets in turn.
 */
struct buffers {
    const struct backend *backend;
    const struct library *lib; /* whose ncclMemAlloc made them; NULL: the backend */
    int ranks, sets, count;    /* count: of all */
    size_t bytes;              /* each, without guard and offset */
    size_t offset;
    void **base;              /* set by set, in it rank by rank: send, recv */
    unsigned char *mirror[2]; /* host copies of a send and a recv; NULL: none needed */
};

/**
 * Allocate for @p self's ranks. @p lib NULL: not by ncclMemAlloc. 0, or an exit code after
 * ranks_fail().
 */
int buffers_alloc(struct buffers *b, struct ranks *self, const struct library *lib,
        int sets, size_t bytes, size_t offset_bytes);
void buffers_free(struct buffers *b);

/** Registration of the buffers with every communicator. */
struct registration {
    int kind;  /* 0 none, 1 ncclCommRegister, 2 ncclCommWindowRegister */
    int count; /* of handles */
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
    ncclComm_t *comms; /* of this thread's ranks, as are the next two        */
    void **streams;    /* NULL pointers: calls return with their results     */
    ncclRedOp_t *ops;  /* made by work_set_op()                              */
    const struct collective *collective;
    struct layout layout;
    struct check check; /* holds type and operator */
    int root;
    bool in_place;
    const struct buffers *buffers;
    unsigned turn;       /* the next call takes set turn % sets        */
    ncclResult_t result; /* of the call that work_issue() failed with  */
};

/** Communicators, streams (if asked for, or if the backend needs them) and room for
 * operators, for one library. */
int work_open(struct work *w, struct ranks *self, const struct library *lib,
        ncclConfig_t *config, bool streams);
void work_close(struct work *w);

/**
 * Whether the library refuses to reduce @p type, fp8 that devices read as @p fp8 says: each
 * in another way, or FNUZ on the copy path, where the host reduces and has OCP only. Alike
 * on all ranks of a library.
 */
bool work_has_no_sum(const struct work *w, motet_type type, enum backend_fp8 fp8);

/** Choose type and operator; makes mulsum's operators. 0, or an exit code. */
int work_set_op(struct work *w, motet_type type, motet_redop redop);
/** Give mulsum's operators back. */
void work_drop_op(struct work *w);

/** Fill inputs, poison outputs and guards of this thread's ranks, in every set; the next
 * call takes set 0. 0, or an exit code after ranks_fail(). */
int work_prepare(struct work *w);

/** Issue @p times calls as one group. 0, or an exit code after ranks_fail(). */
int work_issue(struct work *w, int times);

/** Wait for the streams. 0, or an exit code after ranks_fail(). */
int work_wait(struct work *w);

/**
 * Count wrong elements on this thread's ranks when every set has been used, with damaged
 * guards and inputs counted too. @p digests gets, for each rank, a number of its outputs'
 * bits. 0, or an exit code after ranks_fail().
 */
int work_wrong(const struct work *w, uint64_t *wrong_out, uint64_t *digests);

/**
 * work_wrong() summed over all ranks, and one more for each whose output should be alike
 * and is not. Collective. 0, or an exit code.
 */
int work_wrong_of_all(const struct work *w, uint64_t *out);

#endif
