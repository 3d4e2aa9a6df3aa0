/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the CUDA device share; only cuda*.c include it.
 *
 *     cuda_driver.c   the library: finding it, its functions, what its errors mean
 *     cuda_context.c  devices, their primary contexts, and the caller's context
 *     cuda_memory.c   allocations, registered host memory, pointers
 *     cuda_share.c    exports and imports
 *     cuda_stream.c   code, launches, streams, events
 *     cuda_capture.c  what a stream is doing; captures and graphs
 *     cuda.c          the two tables
 */
#ifndef MOTET_DEVICE_CUDA_H
#define MOTET_DEVICE_CUDA_H

#include "device/cuda_api.h"
#include "device/device.h"
#include "device/gpu.h"
#include "device/gpu_shared.h"

/** The driver's functions; of the optional ones those that are missing are NULL. */
typedef struct motet_cuda_functions {
#define FIELD(need, symbol, parameters, since, feature) CUresult(*symbol) parameters;
    MOTET_CUDA_FUNCTIONS(FIELD)
#undef FIELD
} motet_cuda_functions;

extern motet_cuda_functions motet_cuda;

struct motet_gpu {
    motet_gpu_facts facts;
    int ordinal;
    CUdevice device;
    /* The primary context, retained until the process ends. */
    CUcontext context;
    /* Ours alone, for set-up; waits for no default stream. */
    CUstream service;
    /* Of the addresses and sizes that memory is mapped at; 0 without share_fd. */
    size_t granularity;
    /* Network cards may reach memory that is made for it. */
    bool rdma;
};

/* ---- cuda_driver.c ---- */

/** motet_cuda_look() as a result: MOTET_ERR_DEVICE unless USABLE. */
MOTET_MUST_USE motet_result motet_cuda_open(void);

/** How many devices there are; as the driver says, 12040. Both 0 unless USABLE. */
int motet_cuda_num_devices(void);
int motet_cuda_version(void);

/** MOTET_OK, or a failure that names @p call, the error and what it means. */
motet_result motet_cuda_check(CUresult error, const char *call, const char *file,
        int line);

/** A call of the driver by its symbol, as a motet_result. */
#define CUDA(symbol, ...) \
    motet_cuda_check(motet_cuda.symbol(__VA_ARGS__), #symbol, __FILE__, __LINE__)

/**
 * True if a function of @p feature (MOTET_CUDA_FD …) is missing; then @p buf names it, the
 * library and the oldest driver that has it.
 */
bool motet_cuda_lacks(const char *feature, char *buf, size_t bytes);

/* ---- cuda_context.c ---- */

motet_result motet_cuda_gpu_open(int ordinal, motet_gpu **out);
motet_result motet_cuda_gpu_current(int *ordinal_out);
/** Some open device, or NULL: for calls that want a context, whichever. */
motet_gpu *motet_cuda_gpu_any(void);
/** The open device whose primary context @p context is, or NULL. */
motet_gpu *motet_cuda_gpu_of(CUcontext context);
/** False if @p context is somebody's own rather than a device's primary one. */
bool motet_cuda_is_primary(CUcontext context);

/** What was changed, for motet_cuda_leave() to undo. */
typedef struct motet_cuda_scope {
    bool pushed, exchanged;
    CUstreamCaptureMode mode;
} motet_cuda_scope;

/** Make @p gpu's context current if it is not. */
MOTET_MUST_USE motet_result motet_cuda_enter(const motet_gpu *gpu,
        motet_cuda_scope *scope);
/**
 * The same, for calls that are forbidden while any thread captures in global mode: they
 * concern no captured stream, and the driver is told so.
 */
MOTET_MUST_USE motet_result motet_cuda_enter_relaxed(const motet_gpu *gpu,
        motet_cuda_scope *scope);
void motet_cuda_leave(const motet_cuda_scope *scope);

/* ---- cuda_memory.c ---- */

motet_result motet_cuda_alloc(motet_gpu *gpu, size_t bytes, motet_gpu_memory *out);
void motet_cuda_free(motet_gpu *gpu, motet_gpu_memory *memory);
motet_result motet_cuda_register_host(motet_gpu *gpu, void *memory, size_t bytes,
        uint64_t *device_address_out);
void motet_cuda_unregister_host(motet_gpu *gpu, void *memory);
motet_result motet_cuda_pointer(uint64_t address, motet_pointer *out);

/** Let @p gpu read and write @p bytes mapped at @p address. */
motet_result motet_cuda_grant(const motet_gpu *gpu, uint64_t address, uint64_t bytes);
/** Map all of @p handle for @p gpu; the handle stays the caller's. */
motet_result motet_cuda_map(const motet_gpu *gpu, CUmemGenericAllocationHandle handle,
        uint64_t bytes, uint64_t *address_out);
void motet_cuda_unmap(uint64_t address, uint64_t bytes);

/** All that this kind has allocated and registered. */
extern motet_gpu_memories motet_cuda_memories;

/* ---- cuda_share.c ---- */

motet_result motet_cuda_export(motet_gpu *gpu, uint64_t address, motet_gpu_export *out,
        int *fd_out);
motet_result motet_cuda_import(motet_gpu *gpu, const motet_gpu_export *exported,
        uint64_t own_process, int fd, motet_gpu_memory *out);
void motet_cuda_unimport(motet_gpu *gpu, motet_gpu_memory *memory);

/* ---- cuda_stream.c ---- */

motet_result motet_cuda_load(motet_gpu *gpu, const void *image, size_t bytes,
        void **module_out);
motet_result motet_cuda_function(motet_gpu *gpu, void *module, const char *name,
        void **function_out);
motet_result motet_cuda_resident_blocks(motet_gpu *gpu, void *function,
        uint32_t threads, uint32_t *blocks_out);
motet_result motet_cuda_launch(motet_gpu *gpu, const motet_launch *launch,
        void *stream);
motet_result motet_cuda_stream_create(motet_gpu *gpu, bool urgent, void **stream_out);
void motet_cuda_stream_destroy(motet_gpu *gpu, void *stream);
motet_result motet_cuda_stream_sync(motet_gpu *gpu, void *stream);
motet_result motet_cuda_stream_query(motet_gpu *gpu, void *stream);
motet_result motet_cuda_event_create(motet_gpu *gpu, void **event_out);
void motet_cuda_event_destroy(motet_gpu *gpu, void *event);
motet_result motet_cuda_event_record(motet_gpu *gpu, void *event, void *stream,
        bool external);
motet_result motet_cuda_event_wait(motet_gpu *gpu, void *event, void *stream,
        bool external);
motet_result motet_cuda_event_query(motet_gpu *gpu, void *event);
motet_result motet_cuda_copy(motet_gpu *gpu, uint64_t dst, uint64_t src, size_t bytes,
        void *stream);
motet_result motet_cuda_fill(motet_gpu *gpu, uint64_t dst, uint32_t value, size_t words,
        void *stream);
motet_result motet_cuda_call_host(motet_gpu *gpu, void (*fn)(void *), void *arg,
        void *stream);
motet_result motet_cuda_health(motet_gpu *gpu);

/* ---- cuda_capture.c ---- */

/** True for the handles of default streams: NULL, legacy, per thread. */
bool motet_cuda_is_default(const void *stream);
motet_result motet_cuda_stream_state(motet_gpu *gpu, void *stream,
        motet_stream_state *out);
/** Refuse a stream that is of no open device's primary context. */
motet_result motet_cuda_stream_check(const void *stream);
motet_result motet_cuda_graph_record(motet_gpu *gpu, const motet_stream_state *state,
        void *event, void *stream, void **node_io);
motet_result motet_cuda_graph_hold(motet_gpu *gpu, void *graph, void (*release)(void *),
        void *arg);

#endif
