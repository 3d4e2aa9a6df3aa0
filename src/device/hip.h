/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the HIP device share; only hip*.c include it.
 *
 *     hip_runtime.c  the library: finding it, its functions, what its errors mean
 *     hip_nodes.c    what the kernel's driver says: device nodes, KFD's topology
 *     hip_device.c   devices, their facts, and the caller's current device
 *     hip_memory.c   allocations, registered host memory, pointers
 *     hip_share.c    exports and imports
 *     hip_stream.c   code, launches, streams, events
 *     hip_capture.c  what a stream is doing; captures and graphs
 *     hip.c          the two tables
 */
#ifndef MOTET_DEVICE_HIP_H
#define MOTET_DEVICE_HIP_H

#include "device/device.h"
#include "device/gpu.h"
#include "device/gpu_shared.h"
#include "device/hip_api.h"

#include <sys/types.h>

/** The runtime's functions; of the optional ones those that are missing are NULL. */
typedef struct motet_hip_functions {
#define FIELD(need, symbol, returns, parameters, since, feature) \
    returns(*symbol) parameters;
    MOTET_HIP_FUNCTIONS(FIELD)
#undef FIELD
} motet_hip_functions;

extern motet_hip_functions motet_hip;

struct motet_gpu {
    motet_gpu_facts facts;
    int ordinal;
    /* Ours alone, for set-up; waits for no default stream. */
    hipStream_t service;
    /* It has a pool of fine-grained memory. */
    bool fine_grained;
};

/* ---- hip_runtime.c ---- */

/** motet_hip_look() as a result: MOTET_ERR_DEVICE unless USABLE. */
MOTET_MUST_USE motet_result motet_hip_open(void);

/** How many devices there are; 1000 · major + 10 · minor. Both 0 unless USABLE. */
int motet_hip_num_devices(void);
int motet_hip_version(void);

/** MOTET_OK, or a failure that names @p call, the error and what it means. */
motet_result motet_hip_check(hipError_t error, const char *call, const char *file,
        int line);

/** A call of the runtime by its symbol, as a motet_result. */
#define HIP(symbol, ...) \
    motet_hip_check(motet_hip.symbol(__VA_ARGS__), #symbol, __FILE__, __LINE__)

/**
 * True if a function of @p feature (MOTET_HIP_IPC …) is missing; then @p buf names it, the
 * library and the oldest ROCm that has it.
 */
bool motet_hip_lacks(const char *feature, char *buf, size_t bytes);

/* ---- hip_nodes.c ---- */

/** What the kernel's driver knows of a GPU, from its topology in sysfs. */
typedef struct motet_hip_kfd {
    bool known;
    /** major · 10000 + minor · 100 + step: 110001 is gfx1101, 90010 gfx90a. */
    unsigned gfx_version;
    /** It may send AtomicOps to the host; −1 unknown. */
    int atomics;
} motet_hip_kfd;

/**
 * Look @p bus_id ("0000:03:00.0") up in the topology under @p root ("" for the machine's
 * own /sys). Not known if there is no such GPU, or it is not ours to see.
 */
void motet_hip_kfd_read(const char *root, const char *bus_id, motet_hip_kfd *out);

/** The value of @p name in @p text of "name value" lines; false if it is not there. */
bool motet_hip_kfd_value(const char *text, const char *name, uint64_t *value_out);

/** "gfx90a" of 90010, into @p buf. */
void motet_hip_gfx_name(unsigned version, char *buf, size_t bytes);
/** 110000 of "11.0.0", as HSA_OVERRIDE_GFX_VERSION is written; false if it is not. */
bool motet_hip_gfx_parse(const char *text, unsigned *version_out);

/**
 * Whether this process can reach AMD's GPUs through the nodes under @p root ("" for the
 * machine's own /dev): USABLE; NO_DEVICE if they are missing, BROKEN if they may not be
 * opened, and then @p buf names the node, its mode and its group.
 */
motet_gpu_standing motet_hip_nodes(const char *root, char *buf, size_t bytes);

/* ---- hip_device.c ---- */

motet_result motet_hip_gpu_open(int ordinal, motet_gpu **out);
motet_result motet_hip_gpu_current(int *ordinal_out);

/** The target in a filled hipDeviceProp_t of @p bytes, whose field should begin at
 *  @p offset; false if there is none. */
bool motet_hip_find_target(const char *properties, size_t bytes, size_t offset,
        char *buf, size_t size);

/** What was found and changed, for motet_hip_leave() to put back. */
typedef struct motet_hip_scope {
    int before; /* the caller's device */
    bool switched, exchanged;
    hipStreamCaptureMode mode;
    hipError_t pending; /* an error that the application has not asked for yet */
} motet_hip_scope;

/** Make @p gpu the thread's current device if it is not. */
MOTET_MUST_USE motet_result motet_hip_enter(const motet_gpu *gpu,
        motet_hip_scope *scope);
/**
 * The same, for work whose refusal may show in the last error only. Where errors stick
 * there (ROCm 7) it would hide behind one like it that the application has not read: that
 * one is read away, and lost.
 */
MOTET_MUST_USE motet_result motet_hip_enter_work(const motet_gpu *gpu,
        motet_hip_scope *scope);
/**
 * The same, for calls that are forbidden while any thread captures in global mode: they
 * concern no captured stream, and the runtime is told so.
 */
MOTET_MUST_USE motet_result motet_hip_enter_relaxed(const motet_gpu *gpu,
        motet_hip_scope *scope);
/** The same for a call that concerns no device. */
void motet_hip_enter_any(motet_hip_scope *scope);
void motet_hip_leave(const motet_hip_scope *scope);
/**
 * What a call that returned @p error came to: some refusals show only in the thread's last
 * error.
 */
hipError_t motet_hip_settle(const motet_hip_scope *scope, hipError_t error);

/** HIP(), for calls whose refusal may show in the thread's last error only. */
#define HIP_SETTLED(scope, symbol, ...)                                                \
    motet_hip_check(motet_hip_settle((scope), motet_hip.symbol(__VA_ARGS__)), #symbol, \
            __FILE__, __LINE__)

/* ---- hip_memory.c ---- */

/** motet_gpu_allocation.how: what the runtime gave for memory that peers may read. */
enum { MOTET_HIP_UNCACHED, MOTET_HIP_FINE, MOTET_HIP_COARSE };

/** All that this kind has allocated and registered. */
extern motet_gpu_memories motet_hip_memories;

/** What the runtime makes of @p flags (hipDeviceMalloc…) on @p gpu is what they ask for:
 *  without a pool of that kind it gives coarse memory, and still says the flags. */
bool motet_hip_has_memory(const motet_gpu *gpu, unsigned flags);

motet_result motet_hip_alloc(motet_gpu *gpu, size_t bytes, motet_gpu_memory *out);
void motet_hip_free(motet_gpu *gpu, motet_gpu_memory *memory);
motet_result motet_hip_register_host(motet_gpu *gpu, void *memory, size_t bytes,
        uint64_t *device_address_out);
void motet_hip_unregister_host(motet_gpu *gpu, void *memory);
motet_result motet_hip_pointer(uint64_t address, motet_pointer *out);
/** The kind that the first words of hipPointerGetAttributes() mean to @p version. */
motet_pointer_kind motet_hip_pointer_kind(int version,
        const hipPointerAttribute_t *attributes);

/* ---- hip_share.c ---- */

motet_result motet_hip_export(motet_gpu *gpu, uint64_t address, motet_gpu_export *out,
        int *fd_out);
motet_result motet_hip_import(motet_gpu *gpu, const motet_gpu_export *exported,
        uint64_t own_process, int fd, motet_gpu_memory *out);
void motet_hip_unimport(motet_gpu *gpu, motet_gpu_memory *memory);

/* ---- hip_stream.c ---- */

/** An event and the stream that it was recorded in last, outside of graphs. */
typedef struct motet_hip_event {
    hipEvent_t event;
    void *stream;
    pid_t thread; /* whose it is, if it is a thread's default stream */
} motet_hip_event;

/** The runtime's handle of what the caller calls @p stream. */
hipStream_t motet_hip_stream(const void *stream);

motet_result motet_hip_load(motet_gpu *gpu, const void *image, size_t bytes,
        void **module_out);
motet_result motet_hip_function(motet_gpu *gpu, void *module, const char *name,
        void **function_out);
motet_result motet_hip_resident_blocks(motet_gpu *gpu, void *function, uint32_t threads,
        uint32_t *blocks_out);
motet_result motet_hip_launch(motet_gpu *gpu, const motet_launch *launch, void *stream);
motet_result motet_hip_stream_create(motet_gpu *gpu, bool urgent, void **stream_out);
void motet_hip_stream_destroy(motet_gpu *gpu, void *stream);
motet_result motet_hip_stream_sync(motet_gpu *gpu, void *stream);
motet_result motet_hip_stream_query(motet_gpu *gpu, void *stream);
motet_result motet_hip_event_create(motet_gpu *gpu, void **event_out);
void motet_hip_event_destroy(motet_gpu *gpu, void *event);
motet_result motet_hip_event_record(motet_gpu *gpu, void *event, void *stream,
        bool external);
motet_result motet_hip_event_wait(motet_gpu *gpu, void *event, void *stream,
        bool external);
motet_result motet_hip_event_query(motet_gpu *gpu, void *event);
motet_result motet_hip_copy(motet_gpu *gpu, uint64_t dst, uint64_t src, size_t bytes,
        void *stream);
motet_result motet_hip_fill(motet_gpu *gpu, uint64_t dst, uint32_t value, size_t words,
        void *stream);
motet_result motet_hip_call_host(motet_gpu *gpu, void (*fn)(void *), void *arg,
        void *stream);
motet_result motet_hip_health(motet_gpu *gpu);

/* ---- hip_capture.c ---- */

/** True for the handles of default streams: NULL, legacy, per thread. */
bool motet_hip_is_default(const void *stream);
motet_result motet_hip_stream_state(motet_gpu *gpu, void *stream,
        motet_stream_state *out);
/** Refuse a stream that is none of HIP's. */
motet_result motet_hip_stream_check(const void *stream);
/** Put a node that records @p event, or waits for it, into the capture of @p stream, and
 *  let what comes next wait for it. With a device entered. */
motet_result motet_hip_event_node(const motet_gpu *gpu, hipEvent_t event, void *stream,
        bool wait);
motet_result motet_hip_graph_record(motet_gpu *gpu, const motet_stream_state *state,
        void *event, void *stream, void **node_io);
motet_result motet_hip_graph_hold(motet_gpu *gpu, void *graph, void (*release)(void *),
        void *arg);

#endif
