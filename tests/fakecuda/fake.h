/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the stand-in runtimes share. This is the core: devices, memory,
 * streams, events, captures and graphs, with the driver's calls over them. A face makes
 * a library of it: libcuda.so.1 (fakecuda.h says what for, and how it is set up), or
 * libamdhip64.so of ../fakehip/, which hides the driver's calls and makes its own of them.
 *
 * One lock guards every structure; it is never held while something of the caller's
 * runs: kernels, copies, host functions, destructors. fake_changed is signalled when
 * anything that somebody may wait for has happened. A fake_point is what is waited for:
 * reached once, for ever. Streams are queues of items that pool threads work off while
 * there are any; an item runs when the items before it and the points it depends on
 * are done. A captured stream makes graph nodes of the same work instead.
 */
#ifndef FAKECUDA_FAKE_H
#define FAKECUDA_FAKE_H

#include "fakecuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define FAKE_DEVICES \
    16 /* most devices of a machine, and contexts on a thread's stack */
#define FAKE_THREADS \
    2048 /* most threads of the pool                                  */
#define FAKE_SM_THREADS \
    2048 /* threads that a multiprocessor holds                       */
#define FAKE_BLOCK_LIMIT \
    1024 /* threads of a block                                        */
#define FAKE_ARGS_LIMIT \
    4096 /* bytes of kernel arguments                                 */
#define FAKE_PARTS \
    16 /* most arguments of a kernel that are told apart                   */
#define FAKE_GRANULE \
    ((size_t)2 << 20) /* of virtual memory management                 */

/** Of what a device does to its memory by itself: not looked at by ThreadSanitizer, which
 *  would take most of a test's time for it. What orders it is locks, which are. */
#define FAKE_BY_DEVICE __attribute__((no_sanitize("thread")))

/* ---- settings.c: the environment, read once by cuInit() ---- */

enum fake_peer { FAKE_PEER_ALL, FAKE_PEER_NONE, FAKE_PEER_ONEWAY };
enum fake_import {
    FAKE_IMPORT_SHARE,
    FAKE_IMPORT_DROP,
    FAKE_IMPORT_ZERO,
    FAKE_IMPORT_FALSIFY,
    FAKE_IMPORT_ONES,
    FAKE_IMPORT_PRIVATE,
    FAKE_IMPORT_ONEWAY,
    FAKE_IMPORT_SLOW,
    FAKE_IMPORT_STALE,
    FAKE_IMPORT_FLAGFIRST
};

typedef struct fake_settings {
    unsigned
            devices; /* of the machine                                                */
    unsigned visible[FAKE_DEVICES],
            nvisible; /* by ordinal: which of the machine's     */
    unsigned processors;
    uint64_t driver_version, init_code, memory_bytes, import_from, import_to, import_ms,
            slow_us;
    uint64_t
            sticky_after; /* launches; UINT64_MAX: never                               */
    enum fake_peer peer;
    enum fake_import import;
    bool paired; /* both only between two devices of the machine: … */
    unsigned pair[2];
    bool vmm;
    void *kernels; /* library whose kernels take the place of ours; NULL: none */
} fake_settings;

extern fake_settings fake_set;

typedef struct fake_function fake_function;
typedef struct fake_module fake_module;
struct fake_work;

/** What makes a library of the core. */
typedef struct fake_face {
    const char *name;   /* "fakecuda": begins what it has to say on stderr */
    const char *prefix; /* of its variables: "FAKECUDA_" */
    /** Its own variables, after those that all faces have. */
    CUresult (*settings)(void);
    void (*uuid)(unsigned physical, unsigned char uuid[16]);
    /** What stands behind "GPU-" for it, without dashes. */
    void (*uuid_text)(unsigned physical, char text[33]);
    /** Make fake_module_add() of each kernel. Says on stderr what is wrong. */
    CUresult (*image)(const void *image, fake_module *module);
    /** Code of the face's own, as fake_kernel_find() gives it. NULL: it has none. */
    fakecuda_kernel (*kernel)(const char *name, size_t *bytes_out);
    /** May the grid run? Called without the lock; returns when it may. NULL: it may. */
    void (*before_grid)(const struct fake_work *work);
    /** Called without the lock on the thread of each block, before it. NULL: nothing. */
    void (*before_block)(const struct fake_work *work);
} fake_face;

/** Defined by the face. */
extern const fake_face fake_the_face;

/** A number in the environment: the face's prefix and @p name. */
typedef struct fake_number {
    const char *name;
    uint64_t *out, fallback, min, max;
} fake_number;

/** @retval CUDA_ERROR_INVALID_VALUE it is malformed; stderr says so. */
CUresult fake_load_number(const fake_number *number);
/** One of the words of @p words, which is ended by NULL; the first is the default. */
CUresult fake_load_word(const char *name, const char *const *words, int *out);
/** The value of the face's variable @p name, NULL where it is not set or empty. */
const char *fake_load_text(const char *name, char full[64]);
/** stderr: that variable is not what it may be. @return CUDA_ERROR_INVALID_VALUE */
CUresult fake_load_refuse(const char *name, const char *value, const char *need);
/**
 * Keep of the visible devices what the variable @p name lists: their numbers or
 * GPU-UUIDs, up to the first entry that names none; none at all if one is named twice.
 */
void fake_visible_filter(const char *name);
/** @retval CUDA_ERROR_INVALID_VALUE a variable is malformed; stderr says which. */
CUresult fake_settings_load(void);
/** May device @p from read and write @p to? Both as numbers of the machine. */
bool fake_peers(unsigned from, unsigned to);
/* Do the settings for peers and imports speak of these two devices of the machine? */
bool fake_is_faulty(unsigned one, unsigned other);

/* ---- pool.c: threads that are never short ---- */

/** Run fn(arg) on a thread of its own, at once. @retval false there are no more threads. */
bool fake_start(void (*fn)(void *), void *arg);
void *fake_need(size_t bytes);
void *fake_grow(void *old, size_t bytes);

/* ---- device.c, context.c ---- */

typedef struct fake_stream fake_stream;
typedef struct fake_event fake_event;
typedef struct fake_graph fake_graph;
typedef struct fake_node fake_node;
typedef struct fake_exec fake_exec;
typedef struct fake_capture fake_capture;

typedef struct fake_device {
    unsigned ordinal, physical;
    unsigned
            free_threads; /* of all multiprocessors: what no running block holds       */
    uint64_t free_bytes;
    struct fake_context *primary;
    unsigned primary_refs;
} fake_device;

typedef struct fake_context {
    LIST_ENTRY(fake_context) link;
    fake_device *device;
    unsigned flags;
    uint32_t
            peers; /* bit d: peer access to ordinal d was enabled                      */
    CUresult
            sticky; /* the error that every call returns from now on, or 0              */
    bool green; /* nothing but a name: streams of it are recognised                 */
    bool ended;
    uint64_t launches, number;
    fake_stream *legacy;
    LIST_HEAD(, fake_stream)
    streams; /* all, destroyed ones while they work            */
} fake_context;

/** What the runtime knows of a thread. */
typedef struct fake_thread {
    fake_context *stack[FAKE_DEVICES];
    unsigned depth;
    int capture_mode; /* as exchanged; 0 global, 1 thread-local, 2 relaxed               */
    bool callback; /* runs a host function, which may not call the driver            */
    uint64_t
            number; /* 0 until fake_thread_number()                                   */
} fake_thread;

extern _Thread_local fake_thread fake_self;
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;
extern fake_device fake_devices[FAKE_DEVICES];

enum {
    FAKE_CONTEXT =
            1, /* needs a current context                                        */
    FAKE_HEALTHY =
            2, /* if there is one, it has no sticky error                        */
    FAKE_UNSAFE =
            4 /* ends a capture, as in cuThreadExchangeStreamCaptureMode()       */
};

/** Begin a call: takes the lock on success only. @p needs: a set of the above. */
CUresult fake_enter(unsigned needs);
/** End a call: releases the lock, hands @p code on. */
static inline CUresult fake_leave(CUresult code)
{
    pthread_mutex_unlock(&fake_lock);
    return code;
}
/** All there were, ended ones too. */
fake_context *fake_context_first(void);
/** The calling thread's, or NULL. */
fake_context *fake_current(void);
uint64_t fake_thread_number(void);
/** A number that was never given before in this process, from 1. */
uint64_t fake_serial(void);
/** @retval CUDA_ERROR_INVALID_DEVICE */
CUresult fake_device_of(int ordinal, fake_device **out);
/** @retval CUDA_ERROR_INVALID_CONTEXT never one @retval CUDA_ERROR_CONTEXT_IS_DESTROYED */
CUresult fake_context_check(const fake_context *context);

/* ---- queue.c: points, work, streams ---- */

typedef struct fake_point {
    unsigned refs;
    bool done;
    uint64_t done_ns;
} fake_point;

typedef struct fake_points {
    fake_point **at;
    size_t count;
} fake_points;

fake_point *fake_point_new(void);
fake_point *fake_point_ref(fake_point *point);
void fake_point_unref(fake_point *point);
void fake_point_reach(fake_point *point);
/** Wait with the lock held; it is released meanwhile. */
void fake_point_wait(fake_point *point);
/** Appends a reference of its own. */
void fake_points_add(fake_points *points, fake_point *point);
void fake_points_clear(fake_points *points);

enum fake_kind {
    FAKE_EMPTY,
    FAKE_KERNEL,
    FAKE_COPY,
    FAKE_FILL,
    FAKE_HOST,
    FAKE_RECORD,
    FAKE_WAIT,
    FAKE_GRAPH
};

typedef struct fake_fill {
    uint64_t address;
    uint32_t value;
    size_t words;
} fake_fill;

/** What an item of a stream or a node of a graph does. Owns what it points to. */
typedef struct fake_work {
    enum fake_kind kind;
    fake_context *context;
    union {
        struct {
            fake_function *function;
            uint32_t blocks, threads;
            void *args; /* a copy, on the heap                                          */
            size_t bytes;
        } kernel;
        struct {
            uint64_t to, from;
            size_t bytes;
            void *staged; /* what `from` points to, or NULL                             */
        } copy;
        fake_fill fill;
        struct {
            void (*fn)(void *);
            void *arg;
        } host;
        fake_event
                *event; /* RECORD, WAIT: of a graph only; a reference                */
        struct fake_launch *launch;
    };
} fake_work;

fake_work fake_work_copy(const fake_work *work);
void fake_work_release(fake_work *work);
/** Do it, without the lock. Not for RECORD, WAIT and EMPTY, which do nothing here. */
void fake_work_run(const fake_work *work);

typedef struct fake_nodes {
    fake_node **at;
    size_t count;
} fake_nodes;

typedef struct fake_item {
    struct fake_item *next;
    fake_work work;
    fake_point *point;
    fake_points after;
} fake_item;

struct fake_stream {
    LIST_ENTRY(fake_stream) link;
    fake_context *context;
    unsigned refs, flags;
    int priority;
    bool destroyed, active;
    uint64_t number,
            thread; /* thread: whose per-thread default stream, or 0           */
    fake_item *head, *tail;
    fake_point
            *last; /* of the newest item, or NULL                                    */
    fake_capture *capture;
    fake_nodes
            front; /* of the capture: what the next node depends on                  */
};

fake_stream *fake_stream_new(fake_context *context, unsigned flags, int priority);
void fake_stream_drop(fake_stream *stream);
/** Any handle, the default ones too. Checks the context's health. */
CUresult fake_stream_of(CUstream handle, fake_stream **out);
bool fake_stream_blocking(const fake_stream *stream);
/**
 * Enqueue or capture. Takes over @p work and @p after, also when it fails.
 * @param point_out the item's point, a reference; NULL: not wanted. Untouched by capture
 */
CUresult fake_submit(fake_stream *stream, fake_work work, fake_points after,
        fake_point **point_out);
/** Wait for everything that was enqueued in @p context so far. */
void fake_context_drain(fake_context *context);

/* ---- event.c ---- */

struct fake_event {
    LIST_ENTRY(fake_event) link;
    fake_context *context;
    unsigned refs, flags;
    bool destroyed;
    fake_point
            *point; /* of the last record outside a capture                         */
    fake_capture
            *capture; /* or the capture of the last record, a reference            */
    fake_nodes front;
};

CUresult fake_event_of(CUevent handle, fake_event **out);
void fake_event_unref(fake_event *event);
/** As if recorded anew, at @p point, which is taken over; NULL: never recorded. */
void fake_event_reset(fake_event *event, fake_point *point);

/* ---- kernels.c, module.c, grid.c ---- */

struct fake_function {
    LIST_ENTRY(fake_function) link;
    char name[128];
    fakecuda_kernel run; /* NULL: the host has no such kernel                         */
    size_t bytes; /* of its argument                                            */
    unsigned
            threads; /* most of a block                                                */
    unsigned registers;
    bool hostcall; /* declares that it may call the host                              */
    struct {
        uint32_t offset, bytes;
    } part[FAKE_PARTS]; /* of the argument, where a face tells them apart              */
    unsigned parts;
    fake_context *context;
};

/** A new function of @p module, for the face to fill in, then fake_module_bind(). */
fake_function *fake_module_add(fake_module *module);
/** Give it its code. @retval CUDA_ERROR_INVALID_PTX the builds differ */
CUresult fake_module_bind(fake_function *function);
CUresult fake_function_of(CUfunction handle, fake_function **out);
/** The image reader of libcuda.so.1: PTX text. */
CUresult fake_ptx_read(const void *image, fake_module *module);
/** The host build of a kernel, or NULL. @param bytes_out of its argument */
fakecuda_kernel fake_kernel_find(const char *name, size_t *bytes_out);
/** Blocks of @p threads that one multiprocessor holds. */
unsigned fake_grid_fit(unsigned threads);
/** Run a grid, each block on a thread. */
void fake_grid_run(const fake_work *work);

/* ---- physical.c ---- */

/** Memory of a device, as a file that its processes map. */
typedef struct fake_physical {
    LIST_ENTRY(fake_physical) link;
    int fd;
    unsigned refs; /* handles and mappings                                          */
    unsigned
            handles; /* of them, handles                                              */
    unsigned
            physical; /* device of the machine                                         */
    fake_device
            *device; /* whose budget it counts against, or NULL                     */
    size_t bytes;
    uint64_t
            number; /* of the allocation, in the process that made it                  */
    uint64_t id; /* in this process                                                 */
    bool shareable;
    bool foreign; /* made by another process                                            */
} fake_physical;

/** What another process finds at the end of the file. */
typedef struct fake_label {
    uint64_t magic, process, number, bytes;
    uint32_t physical;
} fake_label;

/** With one reference, and no handle. @p bytes: whole pages. */
CUresult fake_physical_new(fake_device *device, size_t bytes, fake_physical **out);
/** Takes over @p fd on success. @retval CUDA_ERROR_INVALID_VALUE not one of ours */
CUresult fake_physical_import(int fd, fake_physical **out);
/** The label of @p memory. */
fake_label fake_physical_label(const fake_physical *memory);
fake_physical *fake_physical_of(CUmemGenericAllocationHandle handle);
void fake_physical_unref(fake_physical *memory);
/** Map @p bytes from @p offset over @p address, with the faults that were asked for. */
CUresult fake_physical_map(const fake_physical *memory, size_t offset, size_t bytes,
        void *address, int protection);
/** Reserve addresses that fault. @return NULL: there are none */
void *fake_reserve(size_t bytes, size_t alignment);

/* ---- shadow.c: memory over a bad link ---- */

/** A new file with those bytes of @p fd, CLOEXEC; −1: there is none. */
int fake_shadow_copy(int fd, size_t offset, size_t bytes);
/** Map a copy of those bytes over @p address, and keep it as alike as fake_set.import
 *  says, until fake_shadow_unmap(). All are whole pages. */
bool fake_shadow_map(int fd, size_t offset, size_t bytes, void *address,
        int protection);
/** Carry now what may be carried: to be called before and after work that is not a
 *  kernel's, and after kernels. */
void fake_shadow_carry(void);
/** To be called before those bytes are unmapped, whatever they are. */
void fake_shadow_unmap(const void *address, size_t bytes);

/* ---- range.c: what is where ---- */

enum fake_range_kind {
    FAKE_RANGE_DEVICE,
    FAKE_RANGE_MAPPED, /* virtual memory management                                     */
    FAKE_RANGE_IPC,
    FAKE_RANGE_MANAGED,
    FAKE_RANGE_HOST,
    FAKE_RANGE_REGISTERED,
    FAKE_RANGE_RESERVED
};

typedef struct fake_range {
    LIST_ENTRY(fake_range) link;
    enum fake_range_kind kind;
    uint64_t address, bytes,
            number;        /* number: its buffer id                           */
    uint32_t access;       /* bit d: ordinal d may                            */
    unsigned opened;       /* IPC: how often                                  */
    unsigned flags;        /* that the application gave, for who asks for them */
    uint64_t process;      /* IPC: of the allocation                          */
    fake_physical *memory; /* a reference; NULL: of the host                  */
    fake_context *context; /* NULL: of none                                   */
} fake_range;

fake_range *fake_range_add(enum fake_range_kind kind, uint64_t address, uint64_t bytes);
void fake_range_remove(fake_range *range);
/** The first that overlaps; of RESERVED, only if asked for. NULL: none */
fake_range *fake_range_overlap(bool reserved, uint64_t address, uint64_t bytes);
/** The range of any kind but RESERVED that holds @p address, or NULL. */
fake_range *fake_range_at(uint64_t address);
fake_range *fake_range_exact(enum fake_range_kind kind, uint64_t address);
/** What was opened of that allocation before, or NULL. */
fake_range *fake_range_opened(const fake_label *label);
/** May a stream of @p context touch these bytes? Unknown memory is the host's: yes. */
CUresult fake_range_check(const fake_context *context, uint64_t address,
        uint64_t bytes);

/* ---- capture.c ---- */

struct fake_capture {
    LIST_ENTRY(fake_capture) link;
    unsigned refs;
    uint64_t number, thread;
    int mode;
    bool live, invalid;
    fake_graph *graph;
    fake_stream *origin;
};

extern LIST_HEAD(fake_captures, fake_capture) fake_captures;

fake_capture *fake_capture_ref(fake_capture *capture);
void fake_capture_unref(fake_capture *capture);
/** An unsafe call is made: end the captures that forbid it. */
CUresult fake_capture_unsafe(void);
/** Work for the legacy stream: ends captures of blocking streams of @p context. */
CUresult fake_capture_implicit(const fake_context *context, bool invalidate);
/** Something waits for all of @p context: ends its captures, if there are any. */
CUresult fake_capture_in(const fake_context *context);
CUresult fake_capture_add(fake_stream *stream, fake_work work);
CUresult fake_capture_record(fake_stream *stream, fake_event *event);
/** A stream waits for an event: one of both is captured. */
CUresult fake_capture_wait(fake_stream *stream, fake_event *event);

/* ---- graph.c ---- */

struct fake_node {
    TAILQ_ENTRY(fake_node) link;
    fake_graph *graph;
    fake_work work;
    fake_nodes after;
    size_t index; /* while the graph is walked                                          */
};

struct fake_graph {
    LIST_ENTRY(fake_graph) link;
    bool captured; /* being: its owner is the capture                                   */
    TAILQ_HEAD(, fake_node)
    nodes; /* as they were made                                 */
    size_t count;
    struct fake_keep *keeps;
};

/** For a capture, until fake_graph_publish() makes it the caller's. */
fake_graph *fake_graph_new(void);
CUgraph fake_graph_publish(fake_graph *graph);
void fake_graph_free(fake_graph *graph);
/** Takes over @p work. */
fake_node *fake_graph_add(fake_graph *graph, fake_work work, const fake_nodes *after);
CUresult fake_graph_of(CUgraph handle, fake_graph **out);
/** A node that records @p event or waits for it: @p kind is RECORD or WAIT. */
CUresult fake_graph_add_event(CUgraphNode *out, CUgraph handle,
        const CUgraphNode *dependencies, size_t count, CUevent event,
        enum fake_kind kind);
bool fake_graph_holds(const fake_graph *graph, const void *node);
/** Nodes in an order in which each comes after what it depends on, and has its place in
 *  `index`; fewer than the graph has if that is a circle. The caller's. */
fake_nodes fake_graph_order(fake_graph *graph);

/* Sets of nodes. */
void fake_nodes_add(fake_nodes *nodes, fake_node *node);
void fake_nodes_union(fake_nodes *nodes, const fake_nodes *more);
void fake_nodes_clear(fake_nodes *nodes);
bool fake_nodes_remove(fake_nodes *nodes, const fake_node *node);

/* ---- exec.c ---- */

typedef struct fake_launch fake_launch;
/** Does a node of the graph launch a kernel that @p is says yes to? With the lock held. */
bool fake_exec_launches(CUgraphExec handle, bool (*is)(const fake_function *));
void fake_launch_run(fake_launch *launch);
void fake_launch_free(fake_launch *launch);

/* ---- object.c ---- */

/** References to a user object that a graph holds. */
typedef struct fake_keep {
    struct fake_keep *next;
    struct fake_object *object;
    unsigned count;
} fake_keep;

fake_keep *fake_keeps_copy(const fake_keep *keeps);
void fake_keeps_free(fake_keep *keeps);

#endif
