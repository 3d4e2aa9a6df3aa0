/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kinds of GPU have in common: bookkeeping that asks no runtime. Only cuda*.c,
 * hip*.c, gpu_*.c and device.c include it.
 *
 *     gpu_shared.c   symbols, devices opened once, what device.h's table asks
 *     gpu_memory.c   allocations and their users, registered host memory
 *     gpu_import.c   exports described, imports shared and counted
 *     gpu_capture.c  captured streams, edges and holdings of graphs
 */
#ifndef MOTET_DEVICE_GPU_SHARED_H
#define MOTET_DEVICE_GPU_SHARED_H

#include "device/device.h"
#include "device/gpu.h"

#include <pthread.h>
#include <stdatomic.h>

/** Most devices of a process. */
#define MOTET_GPU_DEVICES 64

/** How a runtime's library stands. */
typedef enum motet_gpu_standing {
    MOTET_GPU_USABLE,
    MOTET_GPU_NO_RUNTIME, /* no such library on this machine                   */
    MOTET_GPU_NO_DEVICE,  /* a library, but no device that it may show         */
    MOTET_GPU_BROKEN      /* too old, failing, without rights, a forked child  */
} motet_gpu_standing;

/**
 * Open the runtime of a kind (NVIDIA's driver, AMD's HIP), once, and count its devices.
 * Unless USABLE, which all other calls of the kind need, the trail says why. What is wrong
 * stays wrong, but a missing library is looked for again.
 */
motet_gpu_standing motet_cuda_look(void);
motet_gpu_standing motet_hip_look(void);

/* ---- symbols ---- */

/** A function of a runtime's library; its place is a pointer in the table of functions. */
typedef struct motet_gpu_symbol {
    const char *name;
    size_t offset; /* in the table */
    bool required;
    int since;           /* 1000 · major + 10 · minor */
    const char *feature; /* NULL if required */
} motet_gpu_symbol;

/** Fill @p table from @p library. The first required symbol that it lacks, or NULL. */
const motet_gpu_symbol *motet_gpu_resolve(const motet_gpu_symbol *symbols, size_t count,
        void *library, void *table);

/** The first symbol of @p feature that @p table lacks, or NULL. */
const motet_gpu_symbol *motet_gpu_missing(const motet_gpu_symbol *symbols, size_t count,
        const void *table, const char *feature);

/* ---- devices ---- */

/** Devices that are open. Zero-initialised but for the locks. */
typedef struct motet_gpu_slots {
    motet_gpu *_Atomic gpu[MOTET_GPU_DEVICES];
    bool busy[MOTET_GPU_DEVICES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
} motet_gpu_slots;

#define MOTET_GPU_SLOTS_INIT \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER }

/**
 * The device @p ordinal of @p count, made by @p make unless it is open. Several devices
 * may be made at the same time, since that takes long; one device is made once.
 * @retval MOTET_ERR_ARGUMENT no such ordinal
 */
MOTET_MUST_USE motet_result motet_gpu_open_once(motet_gpu_slots *slots, int ordinal,
        int count, motet_result (*make)(int ordinal, motet_gpu **out), motet_gpu **out);
/** The open device @p ordinal, or NULL. */
motet_gpu *motet_gpu_opened(motet_gpu_slots *slots, int ordinal);

/** motet_gpu_give_up() was called. */
bool motet_gpu_given_up(const motet_gpu *gpu);

/** Of the slot @p bus_id, from sysfs; −1 unknown. */
int motet_gpu_numa_node(const char *bus_id);
/** Sixteen bytes as PREFIX-8-4-4-4-12 hexadecimal digits. */
void motet_gpu_print_uuid(const char *prefix, const void *bytes, char *buf,
        size_t size);
void motet_gpu_lower(char *text);
/** The number in @p variable of the environment; 0 if it is not set or none. */
long motet_gpu_number(const char *variable);

/* ---- allocations ---- */

typedef struct motet_gpu_allocation motet_gpu_allocation;
struct motet_gpu_allocation {
    motet_gpu_allocation *next;
    motet_gpu *gpu;
    int ordinal;
    uint64_t address, bytes, id;
    int how;        /* it was made, as its owner counts */
    unsigned holds; /* peers of this process that use it in place */
    bool freed;     /* its owner has, and the last holder may     */
};

typedef struct motet_gpu_registration motet_gpu_registration;

/** The allocations and registrations of one kind of GPU. */
typedef struct motet_gpu_memories {
    /** Fills address, bytes and how of @p out, zeroed memory on @p gpu. */
    motet_result (*make)(motet_gpu *gpu, size_t bytes, motet_gpu_allocation *out);
    void (*unmake)(const motet_gpu_allocation *allocation);
    /**
     * unmake() waits until the device is idle. A peer that lets go must not: what runs
     * there may wait for that very peer. It leaves it to the owner's next call.
     */
    bool unmake_waits;
    /** Register @p memory with the runtime for all devices. *ours_out: nobody had before. */
    motet_result (*enrol)(motet_gpu *gpu, void *memory, size_t bytes, bool *ours_out);
    /** Of what was ours. */
    void (*dismiss)(motet_gpu *gpu, void *memory);
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a registration was made, or is gone */
    motet_gpu_allocation *allocations;
    motet_gpu_registration *registrations;
    uint64_t made;
} motet_gpu_memories;

#define MOTET_GPU_MEMORIES_INIT(make_, unmake_, waits, enrol_, dismiss_) \
    { .make = (make_),                                                   \
        .unmake = (unmake_),                                             \
        .unmake_waits = (waits),                                         \
        .enrol = (enrol_),                                               \
        .dismiss = (dismiss_),                                           \
        .lock = PTHREAD_MUTEX_INITIALIZER,                               \
        .changed = PTHREAD_COND_INITIALIZER }

/** In a buffer id: numbered by us, as no runtime's own number is. */
#define MOTET_GPU_OWN_ID (1ull << 63)

/** motet_gpu_ops.alloc of @p gpu, which is @p ordinal. */
MOTET_MUST_USE motet_result motet_gpu_allocate(motet_gpu_memories *m, motet_gpu *gpu,
        int ordinal, size_t bytes, motet_gpu_memory *out);
/** motet_gpu_ops.free */
void motet_gpu_give_back(motet_gpu_memories *m, motet_gpu_memory *memory);
/** Free what begins at @p address. What peers hold stays until the last of them lets go. */
MOTET_MUST_USE motet_result motet_gpu_free_at(motet_gpu_memories *m, uint64_t address);

/** A peer of this process uses the memory at @p address in place, or does no more. Memory
 *  that was not allocated here is its owner's business. */
void motet_gpu_hold(motet_gpu_memories *m, uint64_t address);
void motet_gpu_release(motet_gpu_memories *m, uint64_t address);

/** A copy of the allocation that holds @p address; false if there is none. */
bool motet_gpu_allocation_at(motet_gpu_memories *m, uint64_t address,
        motet_gpu_allocation *out);
/** What it is as a pointer. */
motet_pointer motet_gpu_own_pointer(const motet_gpu_allocation *allocation);

/* ---- registered host memory ---- */

/** One more holder of @p memory, which the first one registers: a runtime may take a second
 *  registration for another one. What concerns one address is done one after the other. */
MOTET_MUST_USE motet_result motet_gpu_enrol(motet_gpu_memories *m, motet_gpu *gpu,
        void *memory, size_t bytes);
/** One holder less; the last one lets the runtime go of it. Of nothing: nothing. */
void motet_gpu_dismiss(motet_gpu_memories *m, motet_gpu *gpu, void *memory);

/* ---- exports and imports ---- */

/**
 * What every export says, of kind NONE yet.
 * @retval MOTET_ERR_ARGUMENT @p pointer is not memory of a device
 */
MOTET_MUST_USE motet_result motet_gpu_describe_export(const motet_gpu_facts *facts,
        uint64_t address, const motet_pointer *pointer, motet_gpu_export *out);

typedef enum motet_gpu_import_state {
    MOTET_GPU_IMPORT_BUSY,
    MOTET_GPU_IMPORT_READY,
    MOTET_GPU_IMPORT_FAILED
} motet_gpu_import_state;

typedef struct motet_gpu_import motet_gpu_import;
struct motet_gpu_import {
    motet_gpu_import *next;
    /* what it is */
    motet_gpu *gpu;
    uint32_t kind;
    uint64_t process, buffer_id, base;
    /* where it is here */
    uint64_t address, bytes;
    unsigned holds;
    motet_gpu_import_state state;
};

/** The imports from other processes of one kind of GPU. */
typedef struct motet_gpu_imports {
    /** Map all of the allocation; fills address of @p out, whose bytes are set. */
    motet_result (*open)(motet_gpu *gpu, const motet_gpu_export *exported, int fd,
            motet_gpu_import *out);
    void (*close)(motet_gpu *gpu, const motet_gpu_import *import);
    pthread_mutex_t lock;
    pthread_cond_t changed;
    motet_gpu_import *list;
} motet_gpu_imports;

#define MOTET_GPU_IMPORTS_INIT(open_, close_) \
    { .open = (open_),                        \
        .close = (close_),                    \
        .lock = PTHREAD_MUTEX_INITIALIZER,    \
        .changed = PTHREAD_COND_INITIALIZER }

/** motet_gpu_ops.import of another process's memory, on @p gpu, which is @p ordinal. */
MOTET_MUST_USE motet_result motet_gpu_import_shared(motet_gpu_imports *imports,
        motet_gpu *gpu, int ordinal, const motet_gpu_export *exported, int fd,
        motet_gpu_memory *out);
/** motet_gpu_ops.import of this process's memory, that @p gpu reaches: in place. */
void motet_gpu_import_in_place(motet_gpu_memories *m, const motet_gpu_export *exported,
        motet_gpu_memory *out);
/** motet_gpu_ops.unimport, for both. */
void motet_gpu_unimport_any(motet_gpu_imports *imports, motet_gpu_memories *m,
        motet_gpu *gpu, motet_gpu_memory *memory);

/* ---- captures and graphs ---- */

/** What a runtime says of a stream that may be captured. */
typedef struct motet_gpu_capture {
    bool active, invalidated;
    uint64_t id;
    void *graph;
    /** Nodes that the stream's next operation waits for: pointers of the runtime's type. */
    const void *after;
    size_t count;
} motet_gpu_capture;

/**
 * motet_gpu_ops.stream_state of @p stream, from what the runtime said.
 * @retval MOTET_ERR_DEVICE it is captured, and such streams cannot be served
 */
MOTET_MUST_USE motet_result motet_gpu_capture_state(const motet_gpu_facts *facts,
        void *stream, const motet_gpu_capture *c, motet_stream_state *out);
/** @retval MOTET_ERR_USAGE @p stream is in no capture, or not in that of @p graph (NULL: any) */
MOTET_MUST_USE motet_result motet_gpu_capture_check(const motet_gpu_capture *c,
        const void *stream, const void *graph);
/** @retval MOTET_ERR_DEVICE graphs cannot be served; @p what was to be done */
MOTET_MUST_USE motet_result motet_gpu_graphs_check(const motet_gpu_facts *facts,
        const char *what);

/** How a runtime tells and changes the edges of its graphs. */
typedef struct motet_gpu_edges {
    /** Fill @p nodes, as motet_gpu_capture.after, with at most *count_io. */
    motet_result (*before)(void *node, void *nodes, size_t *count_io);
    motet_result (*add)(void *graph, void *from, void *to);
    motet_result (*remove)(void *graph, void *from, void *to);
} motet_gpu_edges;

/** Let node @p leaf, behind which there is none, wait for what @p c's stream waits for now
 *  and for nothing else. */
MOTET_MUST_USE motet_result motet_gpu_move_leaf(const motet_gpu_edges *edges,
        const motet_gpu_capture *c, void *leaf);

/** What a graph holds, for a runtime that takes a function and one argument. */
typedef struct motet_gpu_held motet_gpu_held;

/** For the runtime to call: release, and free @p held. */
void motet_gpu_held_end(void *held);
/** motet_gpu_held_end() will not release. */
void motet_gpu_held_disarm(motet_gpu_held *held);
/**
 * motet_gpu_ops.graph_hold.
 * @param give hands it to the graph; takes @p held over, and after a failure it has ended
 *        without a release
 */
MOTET_MUST_USE motet_result motet_gpu_hold_by_graph(motet_gpu *gpu,
        const motet_gpu_facts *facts, void *graph, void (*release)(void *), void *arg,
        motet_result (*give)(motet_gpu *gpu, void *graph, motet_gpu_held *held));

/* ---- what motet_device_ops asks of every kind, in terms of its GPU table ---- */

MOTET_MUST_USE motet_result motet_gpu_describe(const motet_gpu_ops *ops, int ordinal,
        motet_device_info *info_out);
/** On the device of the caller. */
MOTET_MUST_USE motet_result motet_gpu_alloc_here(const motet_gpu_ops *ops, size_t bytes,
        void **ptr_out);
/** No host maps a device's memory by a descriptor: ranks share it by export_memory(). */
MOTET_MUST_USE motet_result motet_gpu_share_none(const void *ptr, size_t bytes,
        int *fd_out, size_t *offset_out, size_t *bytes_out);
void motet_gpu_unshare_none(const void *ptr);
bool motet_gpu_stream_blocks(const void *stream);

#endif
