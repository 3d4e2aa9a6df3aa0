/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: each rank of each communicator keeps its last operations in
 * a small mapped file that others can read live, after kill -9, and as a copy.
 *
 * One writer: the thread that runs the communicator's operations (the engine runs
 * one at a time). Readers may look at any moment: each record has a sequence word,
 * written last when it begins and again when it ends, and a reader that sees it
 * change drops the record. The hot path (begin, end) makes no system call, takes no
 * lock, allocates nothing, and reads only the coarse clock.
 *
 * Files: DIR/motet-PID-COMM-RANK.trace, 0600, O_NOFOLLOW, at most 64 KiB, where DIR
 * is MOTET_TRACE_DIR, else $XDG_RUNTIME_DIR, else /dev/shm. Removed at clean exit;
 * of dead processes the newest 16 stay, older ones are removed when one is created.
 * Without a writable tmpfs the recorder lives in memory only, said at INFO.
 */
#ifndef MOTET_TRACE_RECORDER_H
#define MOTET_TRACE_RECORDER_H

#include "base/clock.h"
#include "base/error.h"
#include "base/param.h"
#include "base/types.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MOTET_TRACE_MAGIC   0x6563617274746f6dull /* "mottrace" */
#define MOTET_TRACE_VERSION 2
/** Operations kept; a power of two. */
#define MOTET_TRACE_OPS  256
#define MOTET_TRACE_TEXT 512
#define MOTET_TRACE_NAME 64

typedef enum motet_trace_state {
    MOTET_TRACE_EMPTY = 0,
    MOTET_TRACE_RUNNING = 1, /* begun, not waiting as far as known            */
    MOTET_TRACE_WAITING = 2, /* has waited for `waits_for` since `wait_ns`    */
    MOTET_TRACE_DONE = 3,
    MOTET_TRACE_FAILED = 4
} motet_trace_state;

/** One operation, 64 bytes. All times are CLOCK_MONOTONIC ns of this boot. */
typedef struct motet_trace_op {
    _Atomic uint64_t
            seq;    /* the communicator's number of the operation, from 1; 0 = empty */
    uint64_t count; /* elements, or bytes of a pairwise operation                    */
    uint64_t
            start_ns; /* coarse                                                        */
    _Atomic uint64_t
            end_ns; /* coarse; 0 while it runs                                       */
    _Atomic uint64_t
            wait_ns; /* since when it waits; 0 = not seen waiting                     */
    uint32_t fingerprint;
    _Atomic int32_t
            waits_for; /* rank, −1 none                                                */
    uint8_t kind, type,
            redop; /* enums of base/types.h                                        */
    _Atomic uint8_t
            state; /* motet_trace_state                                            */
    int32_t peer;  /* root or peer, −1 none                                        */
    uint32_t
            algorithm; /* plan's row, for the reader                                   */
    uint32_t collective; /* collectives begun so far, this one included if it is one:
                           sends and receives are not numbered alike on all ranks, so
                           this, not seq, is what ranks are compared by            */
} motet_trace_op;

/** The file: this header, then MOTET_TRACE_OPS records. */
typedef struct motet_trace_file {
    uint64_t magic;
    uint32_t version, header_bytes, op_bytes, ops;
    int32_t rank, nranks;
    int32_t pid, device; /* device: ordinal, −1 for a CPU rank                */
    uint64_t pid_start;  /* field 22 of /proc/PID/stat: tells a reused pid    */
    uint64_t comm;       /* the same number on all ranks of the communicator  */
    uint64_t created_wall_ns;
    uint64_t created_ns; /* CLOCK_MONOTONIC at the same moment                */
    char boot_id[40];    /* /proc/sys/kernel/random/boot_id                   */
    char host[MOTET_TRACE_NAME];
    char comm_name[MOTET_TRACE_NAME];
    char command
            [MOTET_TRACE_NAME];  /* /proc/self/comm                                 */
    char path[MOTET_TRACE_NAME]; /* how the ranks' memory meets; "" while they do not */
    _Atomic uint64_t begun; /* operations begun  (records are at (seq − 1) % ops) */
    _Atomic uint64_t
            heartbeat_ns;    /* coarse; every 250 ms while the process runs      */
    _Atomic uint32_t failed; /* motet_result of the communicator, 0 = fine        */
    _Atomic uint32_t closed; /* 1 after a clean destroy                           */
    char failure
            [MOTET_TRACE_TEXT]; /* the sentence; written before `failed`           */
    motet_trace_op op[MOTET_TRACE_OPS];
} motet_trace_file;

_Static_assert(sizeof(motet_trace_op) == 64, "one cache line");
_Static_assert(sizeof(motet_trace_file) <= 64 * 1024, "at most 64 KiB a rank");

typedef struct motet_recorder {
    motet_trace_file *file;   /* never NULL between create and destroy       */
    char path[256];           /* "" when it lives in memory only             */
    uint64_t next;            /* sequence of the operation that begins next  */
    uint32_t collectives;     /* begun so far                                */
    _Atomic uint32_t failing; /* whoever sets it writes the sentence       */
} motet_recorder;

typedef struct motet_recorder_args {
    int rank, nranks, device;
    uint64_t comm;
    const char *comm_name; /* may be NULL */
} motet_recorder_args;

/**
 * Create. No writable folder is not an error.
 * @retval MOTET_ERR_SYSTEM no memory for the in-memory one either.
 */
MOTET_MUST_USE motet_result motet_recorder_create(const motet_params *params,
        const motet_recorder_args *args, motet_recorder *out);

/** Unmap; @p clean removes the file, otherwise it stays for `motet status`. Idempotent. */
void motet_recorder_destroy(motet_recorder *recorder, bool clean);

/** What an operation is, for the record. */
typedef struct motet_trace_call {
    uint64_t count;
    uint32_t fingerprint;
    int32_t peer;
    uint32_t algorithm;
    uint32_t
            collective; /* the communicator's number of a collective; 0 = count it here */
    uint8_t kind, type, redop;
} motet_trace_call;

/** An operation begins. Hot path. */
static inline motet_trace_op *motet_recorder_begin(motet_recorder *recorder,
        const motet_trace_call *call)
{
    uint64_t seq = recorder->next++;
    motet_trace_op *op = &recorder->file->op[(seq - 1) % MOTET_TRACE_OPS];

    if (!motet_kind_table[call->kind].pairwise)
        recorder->collectives =
                call->collective != 0 ? call->collective : recorder->collectives + 1;
    /* A reader that sees seq 0, or seq change while it copies, drops the record.
     * Every store after seq = 0 is a release, so that none is seen before it; no
     * fence, which ThreadSanitizer does not know. Plain moves on x86. */
    atomic_store_explicit(&op->seq, 0, memory_order_relaxed);
    __atomic_store_n(&op->count, call->count, __ATOMIC_RELEASE);
    __atomic_store_n(&op->start_ns, motet_now_coarse_ns(), __ATOMIC_RELEASE);
    atomic_store_explicit(&op->end_ns, 0, memory_order_release);
    atomic_store_explicit(&op->wait_ns, 0, memory_order_release);
    __atomic_store_n(&op->fingerprint, call->fingerprint, __ATOMIC_RELEASE);
    atomic_store_explicit(&op->waits_for, -1, memory_order_release);
    __atomic_store_n(&op->kind, call->kind, __ATOMIC_RELEASE);
    __atomic_store_n(&op->type, call->type, __ATOMIC_RELEASE);
    __atomic_store_n(&op->redop, call->redop, __ATOMIC_RELEASE);
    atomic_store_explicit(&op->state, MOTET_TRACE_RUNNING, memory_order_release);
    __atomic_store_n(&op->peer, call->peer, __ATOMIC_RELEASE);
    __atomic_store_n(&op->algorithm, call->algorithm, __ATOMIC_RELEASE);
    __atomic_store_n(&op->collective, recorder->collectives, __ATOMIC_RELEASE);
    atomic_store_explicit(&op->seq, seq, memory_order_release);
    atomic_store_explicit(&recorder->file->begun, seq, memory_order_release);
    return op;
}

/** The running operation has waited for a while: for whom, and since when. Slow path. */
static inline void motet_recorder_waits(motet_trace_op *op, int rank, uint64_t since_ns)
{
    atomic_store_explicit(&op->wait_ns, since_ns, memory_order_relaxed);
    atomic_store_explicit(&op->waits_for, rank, memory_order_relaxed);
    atomic_store_explicit(&op->state, MOTET_TRACE_WAITING, memory_order_release);
}

/** What the running operation waited for has come. */
static inline void motet_recorder_resumes(motet_trace_op *op)
{
    if (atomic_load_explicit(&op->state, memory_order_relaxed) != MOTET_TRACE_WAITING)
        return; /* it has ended meanwhile */
    atomic_store_explicit(&op->state, MOTET_TRACE_RUNNING, memory_order_relaxed);
    atomic_store_explicit(&op->waits_for, -1, memory_order_relaxed);
    atomic_store_explicit(&op->wait_ns, 0, memory_order_release);
}

/** The operation ended. Hot path. */
static inline void motet_recorder_end(motet_trace_op *op, motet_result result)
{
    atomic_store_explicit(&op->end_ns, motet_now_coarse_ns(), memory_order_relaxed);
    atomic_store_explicit(&op->state,
            result == MOTET_OK ? MOTET_TRACE_DONE : MOTET_TRACE_FAILED,
            memory_order_release);
}

/** The communicator is made: its ranks' memory meets by @p path ("shared", "direct" …). */
void motet_recorder_path(motet_recorder *recorder, const char *path);

/** The communicator failed: keep the sentence in the file. The first one stays. */
void motet_recorder_fail(motet_recorder *recorder, motet_result result,
        const char *text);

/** In the child of a fork: unmap nothing shared, remove nothing; the handle becomes memory-only. */
void motet_recorder_after_fork(motet_recorder *recorder);

/* ---- reading: `motet status`, doctor, the fuzzer ---- */

/** A checked copy of a file: every enum in range, every text ended, every seq plausible. */
typedef struct motet_trace_snapshot {
    motet_trace_file file; /* op[] sorted by seq, only the first `ops` are valid */
    unsigned ops;
    bool alive; /* pid exists and pid_start matches, same boot: filled by the caller of parse */
    char path[256];
} motet_trace_snapshot;

/**
 * Copy and check @p bytes of a recorder file, which may be live, torn, short or hostile.
 * @retval MOTET_ERR_ARGUMENT not a recorder file, another version, or too short.
 */
MOTET_MUST_USE motet_result motet_trace_parse(const void *data, size_t bytes,
        motet_trace_snapshot *out);

/**
 * Read and check the file at @p path, also while its owner writes: a record that
 * changes meanwhile is left out. Does not follow a symbolic link, never blocks, and
 * fills everything but `alive`.
 * @retval MOTET_ERR_SYSTEM   it could not be read; errno tells why.
 * @retval MOTET_ERR_ARGUMENT it is no recorder file.
 */
MOTET_MUST_USE motet_result motet_trace_read(const char *path,
        motet_trace_snapshot *out);

/** What /proc says about a process. */
typedef struct motet_trace_process {
    uint64_t start; /* field 22 of stat, clock ticks since boot  */
    char state;     /* R, S, D, T (stopped), Z …                 */
} motet_trace_process;

/** False if @p pid does not exist here (any more). */
bool motet_trace_process_read(int32_t pid, motet_trace_process *out);

/** This boot's id, "" if the kernel does not tell. */
void motet_trace_boot_id(char *buf, size_t bytes);

/**
 * True if the process that wrote @p file still runs: same boot, its pid exists with
 * the same start, and it is no zombie. A process of another pid namespace is not
 * seen; its heartbeat tells.
 */
bool motet_trace_alive(const motet_trace_file *file);

/** The last moment at which the process is known to have run, CLOCK_MONOTONIC ns of its boot. */
uint64_t motet_trace_last_sign_ns(const motet_trace_snapshot *snapshot);

/** True if @p name is that of a recorder file; then its process, communicator and rank. */
bool motet_trace_name_parse(const char *name, int32_t *pid_out, uint64_t *comm_out,
        int32_t *rank_out);

/** Files of dead processes that stay. */
#define MOTET_TRACE_KEEP 16

/**
 * Remove the caller's files of dead processes from @p dir except the newest
 * MOTET_TRACE_KEEP. motet_recorder_create() does this.
 */
void motet_trace_prune(const char *dir);

/** Folder in which files would be made under @p params; "" if none is writable. */
void motet_trace_dir(const motet_params *params, char *buf, size_t bytes);

#endif
