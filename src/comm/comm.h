/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator's life and its queue of operations.
 *
 * Handles are checked against the table of live communicators, never followed
 * blindly. A communicator that ends keeps its struct for a while in a small
 * graveyard, so that a call that races with an abort finds a stopped engine instead
 * of freed memory.
 *
 * Operations run one at a time for each communicator, in the order in which they
 * were given: each batch draws a ticket, and runs when the turn is its. A call
 * without a stream runs on the caller's thread.
 */
#ifndef MOTET_COMM_COMM_H
#define MOTET_COMM_COMM_H

#include "base/param.h"
#include "bootstrap/bootstrap.h"
#include "comm/config.h"
#include "device/device.h"
#include "device/stream.h"
#include "engine/engine.h"
#include "engine/gpu.h"
#include "trace/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/** Live made operators of one communicator, at most. */
#define MOTET_MADE_REDOPS        1024
#define MOTET_NUM_BUILTIN_REDOPS 5
/** Longest sentence that a communicator keeps for its owner. */
#define MOTET_COMM_ERROR_MAX (MOTET_ERROR_TRAIL_MAX + 256)

typedef enum motet_comm_state {
    MOTET_COMM_STARTING, /* being made, perhaps on another thread   */
    MOTET_COMM_READY,
    MOTET_COMM_BROKEN,    /* could not be made; start_result says why */
    MOTET_COMM_FINALIZED, /* flushed: takes no operations             */
    MOTET_COMM_ENDED      /* destroyed or aborted: in the graveyard   */
} motet_comm_state;

/** A made operator (PREMUL_SUM). */
typedef struct motet_made_redop {
    bool used;
    motet_type type;
    const void *scalar_ptr; /* read when an operation runs, or NULL */
    uint64_t scalar;
} motet_made_redop;

/** A registered buffer or window. */
typedef struct motet_registration {
    struct motet_registration *next;
    void *base;
    size_t bytes;
    int references;
    bool window;
    uint32_t number; /* of a window that others may have mapped, 0 = none */
} motet_registration;

typedef struct motet_batch motet_batch;

typedef struct motet_comm {
    struct motet_comm *next; /* in the table, or in the graveyard */
    _Atomic uint32_t state;  /* motet_comm_state                  */
    _Atomic uint32_t revoked;
    _Atomic uint32_t forked;   /* made before a fork, seen in the child */
    _Atomic uint32_t cancel;   /* ends whatever the creation waits for  */
    _Atomic uint32_t disposed; /* somebody has taken it upon himself to free it */
    _Atomic uint32_t told;     /* a poll of its state has reported its failure  */
    motet_result start_result;
    int rank, nranks, ordinal;
    uint64_t number; /* alike on all ranks */
    const motet_device_ops *device;
    motet_config config;
    uint64_t init_timeout_s;

    motet_arena *arena;
    motet_peer *peer;
    motet_engine engine;
    motet_gpu *gpu_device; /* NULL: a CPU rank                              */
    motet_gpu_engine *gpu; /* NULL: no kernel of ours runs                  */
    uint64_t gpu_process;  /* alike in the ranks of one process             */
    bool fp8_fnuz;         /* this rank's device takes fp8 for FNUZ, not OCP */
    int fp8_odd;           /* 1 + a rank whose device takes it for the other; 0: none */
    bool check_pointers;
    void *copies;               /* the copy path's stream, NULL before its first use */
    _Atomic uint32_t gpu_ready; /* the watcher may look at it                    */
    motet_recorder recorder;
    int life_line; /* write end of a pipe: closes when this process dies */
    motet_watch_item watch;
    int *watch_fd; /* two for each rank: pidfd, life line */
    bool watched;

    _Atomic uint64_t tickets, turn, waiting;
    _Atomic uint32_t running;              /* a thread is inside the engine */
    _Atomic uint64_t exchanges, exchanged; /* drawn, over: see exchange.c */
    _Atomic uint32_t exchanging;           /* begun and not over            */
    pthread_mutex_t lock;                  /* what follows, and waiting for turns */
    pthread_cond_t turned;
    motet_batch *free_batches;
    motet_host_stream *worker; /* runs batches of group calls that span communicators */
    motet_made_redop *redop;   /* MOTET_MADE_REDOPS, made with the first */
    uint32_t redop_seed;
    motet_registration *registrations;
    uint32_t windows_made; /* alike on all ranks: registering one is collective */
    char last_error[MOTET_COMM_ERROR_MAX];
    char start_error[MOTET_ERROR_TRAIL_MAX]; /* the trail behind start_result */
} motet_comm;

/* ---- the table (registry.c) ---- */

/** True if @p comm, any value, is live. Cheap when asked again about the same one. */
bool motet_comm_live(const motet_comm *comm);

/** Make an empty communicator and put it into the table. */
MOTET_MUST_USE motet_result motet_comm_new(motet_comm **out);

/** Take @p comm out of the table; its struct goes to the graveyard. */
void motet_comm_bury(motet_comm *comm);

/** Live communicators of this process. */
int motet_comm_count_live(void);

/* ---- creation (create.c, derive.c) ---- */

/** What a communicator is to be. */
typedef struct motet_comm_spec {
    motet_id id;
    int nranks, rank, ordinal;
    int thread; /* that made the call: its kernel thread id, 0 unknown */
    motet_device_choice choice;
    motet_config config;
    uint64_t timeout_s; /* for making it; 0: MOTET_INIT_TIMEOUT_S */
} motet_comm_spec;

/**
 * Do all that makes a communicator ready: meet, map, prove, watch. Blocks up to
 * spec->timeout_s. The state is left to motet_comm_started().
 */
MOTET_MUST_USE motet_result motet_comm_start(motet_comm *comm,
        const motet_comm_spec *spec);

/** Creation has ended with @p result: set the state, and keep the thread's trail if it failed. */
void motet_comm_started(motet_comm *comm, motet_result result);

typedef enum motet_derive_how {
    MOTET_SPLIT,
    MOTET_SHRINK,
    MOTET_GROW
} motet_derive_how;

/** What a communicator that is made from another is to be. */
typedef struct motet_derive {
    motet_derive_how how;
    motet_comm *parent; /* NULL once the exchange with its ranks is over        */
    uint64_t exchange;  /* its number                                           */
    int color, key;     /* SPLIT; color −1 takes part, and gets none              */
    bool *excluded;     /* SHRINK: parent's nranks flags; owned, freed by the job  */
    bool abort_first;   /* SHRINK: end what the parent runs                       */
    int nranks;         /* GROW: new size                                         */
    bool has_id;        /* GROW: `id` was given, or made by this rank             */
    motet_id id;
    motet_config config;
} motet_derive;

/**
 * Exchange with the parent's ranks, then start @p child (NULL where this rank gets
 * none). Collective over the parent, or over the survivors.
 */
MOTET_MUST_USE motet_result motet_comm_derive(motet_comm *child, motet_derive *derive);

/* ---- end (end.c) ---- */

/** Wait until everything given so far has run; takes no more. */
MOTET_MUST_USE motet_result motet_comm_finalize(motet_comm *comm);
/** Finalize if needed, then free everything. The handle is dead afterwards. */
MOTET_MUST_USE motet_result motet_comm_destroy(motet_comm *comm);
/** End all waits here and at the peers, then free everything. Any thread. */
MOTET_MUST_USE motet_result motet_comm_abort(motet_comm *comm);
/** End all waits; no operation runs any more, but it can be split, shrunk, grown, freed. */
MOTET_MUST_USE motet_result motet_comm_revoke(motet_comm *comm);
/** MOTET_OK, MOTET_IN_PROGRESS, or what broke it (with the trail). */
motet_result motet_comm_async(motet_comm *comm);
/** Release arenas, watch, recorder, life line; idempotent. @p clean: no post-mortem is wanted. */
void motet_comm_release(motet_comm *comm, bool clean);
/** Free a communicator that could not be made, unless an abort does. */
void motet_comm_discard(motet_comm *comm);
/** Wait until every batch that has a ticket has run. */
motet_result motet_comm_drain(motet_comm *comm);

/* ---- exchanges with the other ranks, out of band (exchange.c) ---- */

/**
 * Draw a number for an exchange of @p comm. Whoever has one calls begin and end once each,
 * whatever begin returns.
 * @retval MOTET_ERR_ARGUMENT the communicator is being ended.
 */
MOTET_MUST_USE motet_result motet_exchange_draw(motet_comm *comm, uint64_t *number_out);
/**
 * Wait until the exchanges before @p number are over.
 * @retval MOTET_ERR_ARGUMENT the communicator is being ended, and nothing may be said.
 */
MOTET_MUST_USE motet_result motet_exchange_begin(motet_comm *comm, uint64_t number);
void motet_exchange_end(motet_comm *comm);
/** Wait for all that were drawn, unless the communicator is being ended. */
void motet_exchange_await_all(motet_comm *comm);

/**
 * Tell the other ranks @p bytes, and hear theirs (nranks × @p bytes, by rank). Collective;
 * fails as the communicator does.
 * @param cancel a word that ends it when it is not 0
 */
MOTET_MUST_USE motet_result motet_comm_say(motet_comm *comm, const void *mine,
        size_t bytes, void *all, uint64_t deadline_ns, const _Atomic uint32_t *cancel);

/** The same with a descriptor (−1: none) and up to MOTET_BLOB_MAX bytes. Collective. */
MOTET_MUST_USE motet_result motet_comm_meet(motet_comm *comm, const void *blob,
        size_t bytes, int fd, uint64_t deadline_ns, const _Atomic uint32_t *cancel,
        motet_roster *roster);

/* ---- operations (launch.c) ---- */

/** Run one operation now, on this thread: no group, no stream. */
MOTET_MUST_USE motet_result motet_comm_run(motet_comm *comm, const motet_op *op);

/** Streams that one communicator's operations in one group may name, at most. */
#define MOTET_GROUP_STREAMS 16

/** Operations of one communicator within one group call. */
struct motet_batch {
    motet_batch *next; /* of the group, or of the free list */
    motet_comm *comm;
    uint64_t ticket;
    _Atomic int holds; /* while it is launched: who still looks at it */
    motet_op *collective;
    int collectives, collective_room;
    motet_transfer *transfer;
    int transfers, transfer_room;
    const void *stream[MOTET_GROUP_STREAMS]; /* distinct, in order of appearance */
    int streams;
};

/** An empty batch of @p comm, from its pool. */
MOTET_MUST_USE motet_result motet_batch_get(motet_comm *comm, motet_batch **out);
MOTET_MUST_USE motet_result motet_batch_add(motet_batch *batch, const motet_op *op,
        const void *stream);
/** Give back to the pool without running. */
void motet_batch_drop(motet_batch *batch);
void motet_batch_free_all(motet_comm *comm);

/**
 * Launch the batches of one group, linked by `next`, one for each communicator. They
 * run at the same time; returns when those that name a stream that blocks have run.
 */
MOTET_MUST_USE motet_result motet_launch_group(motet_batch *batches);

/* ---- operators and registrations (redop.c, registration.c) ---- */

MOTET_MUST_USE motet_result motet_redop_make(motet_comm *comm, motet_type type,
        const void *scalar, bool immediate, int *handle_out);
MOTET_MUST_USE motet_result motet_redop_destroy(motet_comm *comm, int handle);
/** USAGE if @p op reduces fp8 and the ranks' devices, or device and host, take that for
 * numbers of two formats. */
MOTET_MUST_USE motet_result motet_comm_check_fp8(const motet_comm *comm,
        const motet_op *op);
/** The made operator @p handle of @p comm, or NULL. */
const motet_made_redop *motet_redop_find(motet_comm *comm, int handle);

/** A window: collective, inside an exchange of @p comm. */
MOTET_MUST_USE motet_result motet_register(motet_comm *comm, void *base, size_t bytes,
        bool window, motet_registration **out);
MOTET_MUST_USE motet_result motet_deregister(motet_comm *comm,
        motet_registration *handle, bool window);
/**
 * Let all ranks map each other's memory of a new window; collective. @p number_out is 0
 * if the window exists but nobody reads it in place (one rank, or too many windows).
 */
MOTET_MUST_USE motet_result motet_window_map(motet_comm *comm, void *base, size_t bytes,
        uint32_t *number_out);
void motet_window_unmap(motet_comm *comm, uint32_t number);

/** True if @p handle is a live registration of the wanted kind. */
bool motet_registration_live(motet_comm *comm, const motet_registration *handle,
        bool window);
void motet_registration_free_all(motet_comm *comm);

/* ---- fork (fork.c) ---- */

/** Install the handlers, once. */
void motet_fork_guard(void);

/**
 * Say what @p op would run as, and why: lines "name: value".
 * @param buf always terminated; as much as there is room for
 * @retval see motet_plan_make()
 */
MOTET_MUST_USE motet_result motet_comm_explain(const motet_comm *comm,
        const motet_op *op, char *buf, size_t bytes);

#endif
