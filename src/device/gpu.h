/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kind of GPU must provide, above what device.h asks of every kind. One const
 * table for each vendor's runtime; nothing above it knows which.
 *
 * Handles of the runtime (streams, events, modules, functions) are void pointers that
 * only the table's owner looks into. Every call that needs a current context sets the
 * device's and restores the caller's, on every path, also when it fails. All failures
 * are MOTET_ERR_DEVICE with the runtime's own name for the error and a sentence, unless
 * said otherwise. Calls are safe from any thread.
 *
 * During a capture only the calls marked "capture" may be made on the capturing thread.
 */
#ifndef MOTET_DEVICE_GPU_H
#define MOTET_DEVICE_GPU_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A device that is open: made once for each ordinal and process, never taken down. */
typedef struct motet_gpu motet_gpu;

typedef struct motet_gpu_facts {
    /** "NVIDIA H200" */
    char name[96];
    /** "GPU-<uuid>/0000:18:00.0"; an instance of a divided GPU "MIG-<uuid>/…" */
    char identity[96];
    /** What code must be built for: "sm_90", "gfx1100:xnack-". */
    char target[32];
    /** Place on the PCI bus, "0000:18:00.0" in lower case; "" unknown. */
    char bus_id[32];
    /** Of the architecture: 9 and 0. */
    int major, minor;
    /** Multiprocessors, compute units. */
    int processors;
    /** Of its slot; −1 unknown. */
    int numa_node;
    uint64_t memory_bytes;
    /** As the driver says: 13000 is 13.0. */
    int driver_version, runtime_version;
    /** Device memory can be handed to another process as a descriptor, or as a handle. */
    bool share_fd, legacy_ipc;
    /** Its memory is the host's. */
    bool integrated;
    /**
     * A launch returns when the kernel has ended (CUDA_LAUNCH_BLOCKING=1): of two ranks
     * in one thread the first would wait for the second for ever.
     */
    bool launch_blocks;
    /** Why captured streams cannot be served ("libcuda.so.1 lacks …"); "" if they can. */
    char no_capture[384];
    /**
     * It may send atomic read-modify-writes to host memory: as the runtime says, and as
     * the kernel's driver says of its link; 1, 0, −1 unknown. Reported, never needed.
     */
    int host_atomics, link_atomics;
    /** Why kernels of several streams may wait for each other though all could run, and
     *  what to do about it; "" if they may not. */
    char queue_hint[256];
} motet_gpu_facts;

/** Device memory that other processes and devices may map. */
typedef struct motet_gpu_memory {
    /** In this process, on this device. */
    uint64_t address;
    /** From there to the end of what was mapped. */
    uint64_t bytes;
    /** The table owner's. */
    void *owned;
} motet_gpu_memory;

/** How a peer gets at exported memory. Fixed width: goes over the wire. */
typedef struct motet_gpu_export {
    /** enum motet_gpu_export_kind */
    uint32_t kind;
    /** Of the owner, in its own process. */
    int32_t ordinal;
    /** The owner's token: alike in all exports of one process, unlike any other's. */
    uint64_t process;
    /** What was asked for, as the owner sees it. */
    uint64_t address;
    /** Of the whole allocation, and where `address` lies in it. */
    uint64_t bytes, offset;
    /** Of the allocation, unlike any other's in the life of the owner; 0 unknown. */
    uint64_t buffer_id;
    /** For kind HANDLE. */
    uint8_t handle[64];
    /** Of the owner's device. */
    char identity[96];
} motet_gpu_export;

enum motet_gpu_export_kind {
    /** Cannot be shared with another process; in this one it can. */
    MOTET_GPU_EXPORT_NONE,
    /** A descriptor goes along. */
    MOTET_GPU_EXPORT_FD,
    /** `handle` says it. */
    MOTET_GPU_EXPORT_HANDLE
};

typedef enum motet_pointer_kind {
    /** Ordinary memory, or memory that was freed. */
    MOTET_POINTER_UNKNOWN,
    /** Host memory that the runtime knows: pinned. */
    MOTET_POINTER_HOST,
    MOTET_POINTER_DEVICE,
    MOTET_POINTER_MANAGED
} motet_pointer_kind;

typedef struct motet_pointer {
    motet_pointer_kind kind;
    /** Of DEVICE and MANAGED; −1 otherwise. */
    int ordinal;
    /** The allocation that holds it; 0 and 0 unknown. */
    uint64_t base, bytes;
    /** Of the allocation, unlike any other's in this process's life; 0 unknown. */
    uint64_t buffer_id;
} motet_pointer;

/** What a stream is doing, as its owner's next operation must know. */
typedef struct motet_stream_state {
    bool capturing;
    /** A capture that has already failed. */
    bool invalidated;
    /** Number of the capture, unlike any other's; 0 outside one. */
    uint64_t capture;
    /** The graph being captured, NULL outside. */
    void *graph;
} motet_stream_state;

typedef struct motet_launch {
    void *function;
    uint32_t blocks, threads;
    /** One struct, by value; read before launch() returns. */
    const void *args;
    /** Of it. */
    size_t bytes;
} motet_launch;

typedef struct motet_gpu_ops {
    const char *vendor; /* of the images that it loads: "nvidia" */

    /* ---- devices ---- */
    /** @retval MOTET_ERR_ARGUMENT there is no such ordinal; the sentence says how many. */
    motet_result (*open)(int ordinal, motet_gpu **out);
    const motet_gpu_facts *(*facts)(const motet_gpu *gpu);
    /** The device of the caller's current context; with none, 0. */
    motet_result (*current)(int *ordinal_out);

    /* ---- memory ---- */
    /** Zeroed, aligned to 2 MiB where it can be exported, else to 256 bytes. */
    motet_result (*alloc)(motet_gpu *gpu, size_t bytes, motet_gpu_memory *out);
    /** Idempotent; the memory's users are the caller's business. May wait for all that
     *  the device runs. */
    void (*free)(motet_gpu *gpu, motet_gpu_memory *memory);
    /**
     * Describe memory of this process for peers: what alloc() gave, or any address.
     * @param fd_out a descriptor to send along, CLOEXEC, the caller's; −1 if none
     * @retval MOTET_OK with kind NONE: it cannot be shared with another process.
     */
    motet_result (*export_memory)(motet_gpu *gpu, uint64_t address,
            motet_gpu_export *out, int *fd_out);
    /**
     * Map a peer's memory for this device: over a descriptor or handle, or, where the
     * peer is this process, in place (peer access of the two devices is enabled).
     * Imports of one allocation are shared and counted. The owner's device need not be
     * visible here: whether the bytes arrive is for the caller to check.
     * @param own_process the `process` of this process's own exports
     * @param fd the descriptor that came along, stays the caller's; −1 if none
     * @retval MOTET_ERR_DEVICE no way from this device to that memory
     */
    motet_result (*import)(motet_gpu *gpu, const motet_gpu_export *exported,
            uint64_t own_process, int fd, motet_gpu_memory *out);
    /** May wait for all that the device runs, as free(). */
    void (*unimport)(motet_gpu *gpu, motet_gpu_memory *memory);
    /**
     * Make host memory (any mapping, page aligned) visible to the device, coherent. The
     * same memory may be registered for several devices, each with its own unregister,
     * which may wait for all that its device runs.
     */
    motet_result (*register_host)(motet_gpu *gpu, void *memory, size_t bytes,
            uint64_t *device_address_out);
    void (*unregister_host)(motet_gpu *gpu, void *memory);
    /** Classify any address; never fails for an unknown one. */
    motet_result (*pointer)(uint64_t address, motet_pointer *out);

    /* ---- code ---- */
    /**
     * Load an image (a binary, or PTX as text); it stays loaded.
     * @retval MOTET_ERR_DEVICE it does not fit the device, and what the compiler said.
     */
    motet_result (*load)(motet_gpu *gpu, const void *image, size_t bytes, void **out);
    /** @retval MOTET_ERR_DEVICE the module has no such kernel. Makes it resident. */
    motet_result (*function)(motet_gpu *gpu, void *module, const char *name,
            void **function_out);
    /** Blocks of @p threads of @p function that run at the same time on the device. */
    motet_result (*resident_blocks)(motet_gpu *gpu, void *function, uint32_t threads,
            uint32_t *blocks_out);
    /** capture. @p stream: the caller's handle, as he gave it. */
    motet_result (*launch)(motet_gpu *gpu, const motet_launch *launch, void *stream);

    /* ---- streams and events; a stream may be one of the runtime's default handles ---- */
    /** A stream of our own that waits for no default stream. */
    motet_result (*stream_create)(motet_gpu *gpu, bool urgent, void **stream_out);
    void (*stream_destroy)(motet_gpu *gpu, void *stream);
    motet_result (*stream_sync)(motet_gpu *gpu, void *stream);
    /** MOTET_OK when idle, MOTET_IN_PROGRESS while it works. */
    motet_result (*stream_query)(motet_gpu *gpu, void *stream);
    /**
     * capture. Also the check of the handle.
     * @retval MOTET_ERR_ARGUMENT a stream of a foreign or green context, or of another
     *         device: the sentence says which.
     */
    motet_result (*stream_state)(motet_gpu *gpu, void *stream, motet_stream_state *out);
    motet_result (*event_create)(motet_gpu *gpu, void **event_out);
    void (*event_destroy)(motet_gpu *gpu, void *event);
    /** capture. @p external: a node of the graph that touches the event when it runs;
     *  only while @p stream is captured. */
    motet_result (
            *event_record)(motet_gpu *gpu, void *event, void *stream, bool external);
    motet_result (
            *event_wait)(motet_gpu *gpu, void *event, void *stream, bool external);
    /** MOTET_OK when reached, MOTET_IN_PROGRESS before. */
    motet_result (*event_query)(motet_gpu *gpu, void *event);
    /** capture. Any mixture of device and host addresses; @p stream orders it. */
    motet_result (*copy)(motet_gpu *gpu, uint64_t dst, uint64_t src, size_t bytes,
            void *stream);
    /** capture. Fill @p words 32-bit words. */
    motet_result (*fill)(motet_gpu *gpu, uint64_t dst, uint32_t value, size_t words,
            void *stream);
    /** capture. Run @p fn on a thread of the runtime; it must not call the runtime. */
    motet_result (
            *call_host)(motet_gpu *gpu, void (*fn)(void *), void *arg, void *stream);

    /* ---- graphs ---- */
    /**
     * capture. Record @p event when the graph reaches this point of @p stream, as a leaf
     * that nothing of the stream waits for. *node_io is the leaf that this gave for the
     * same event before in the same capture, or NULL: a capture has only one, behind the
     * last point that was asked for, which must come after those before.
     * @retval MOTET_ERR_USAGE @p stream is not in the capture of @p state
     */
    motet_result (*graph_record)(motet_gpu *gpu, const motet_stream_state *state,
            void *event, void *stream, void **node_io);
    /**
     * capture. @p release(@p arg) runs once, on a thread of the runtime, when the graph
     * and all that was instantiated from it are gone; it must not call the runtime. After
     * a failure it is not called.
     */
    motet_result (*graph_hold)(motet_gpu *gpu, void *graph, void (*release)(void *),
            void *arg);

    /* ---- errors ---- */
    /** What the device says of itself: MOTET_OK, or a sticky error as a sentence. */
    motet_result (*health)(motet_gpu *gpu);
} motet_gpu_ops;

/**
 * Wait, without occupying the runtime, until @p stream is idle.
 * @retval MOTET_IN_PROGRESS it still works at @p deadline_ns
 */
MOTET_MUST_USE motet_result motet_gpu_await(const motet_gpu_ops *ops, motet_gpu *gpu,
        void *stream, uint64_t deadline_ns);

/**
 * @p gpu runs a kernel that will never leave. From now on what would wait for the device
 * (free, unimport, unregister_host) leaves its memory where it is, which is said once.
 */
void motet_gpu_give_up(const motet_gpu_ops *ops, motet_gpu *gpu);

#endif
