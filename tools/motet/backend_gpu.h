/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What backend_cuda.c and backend_hip.c hand to backend_gpu.c: how a vendor's runtime is
 * found and what is its own. Everything else is one table of calls that the two runtimes
 * have in common.
 */
#ifndef MOTET_TOOLS_BACKEND_GPU_H
#define MOTET_TOOLS_BACKEND_GPU_H

#include "backend.h"

/** Devices that can be bound. */
#define GPU_DEVICES_MAX 64

/**
 * F(name, parameters, CUDA's symbol, HIP's symbol)
 *
 * All return 0 or the runtime's error. The two take the same arguments in the same
 * order, and have the same numbers for what is passed here: handles and addresses are
 * one 64-bit word each, whatever the vendor calls their type.
 */
/* clang-format off */
#define GPU_CALLS(F) \
    F(init, (unsigned flags), "cuInit", "hipInit") \
    F(version, (int *version), "cuDriverGetVersion", "hipRuntimeGetVersion") \
    F(count, (int *count), "cuDeviceGetCount", "hipGetDeviceCount") \
    F(device_name, (char *name, int bytes, int device), "cuDeviceGetName", "hipDeviceGetName") \
    F(device_place, (char *place, int bytes, int device), "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId") \
    F(alloc, (void **memory, size_t bytes), "cuMemAlloc_v2", "hipMalloc") \
    F(release, (void *memory), "cuMemFree_v2", "hipFree") \
    F(stream_create, (void **stream, unsigned flags), "cuStreamCreate", "hipStreamCreateWithFlags") \
    F(stream_destroy, (void *stream), "cuStreamDestroy_v2", "hipStreamDestroy") \
    F(stream_wait, (void *stream), "cuStreamSynchronize", "hipStreamSynchronize") \
    F(event_create, (void **event, unsigned flags), "cuEventCreate", "hipEventCreateWithFlags") \
    F(event_destroy, (void *event), "cuEventDestroy_v2", "hipEventDestroy") \
    F(event_record, (void *event, void *stream), "cuEventRecord", "hipEventRecord") \
    F(event_elapsed, (float *ms, void *from, void *to), "cuEventElapsedTime", "hipEventElapsedTime") \
    F(capture_begin, (void *stream, int mode), "cuStreamBeginCapture_v2", "hipStreamBeginCapture") \
    F(capture_end, (void *stream, void **graph), "cuStreamEndCapture", "hipStreamEndCapture") \
    F(graph_make, (void **exec, void *graph, unsigned long long flags), "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags") \
    F(graph_launch, (void *exec, void *stream), "cuGraphLaunch", "hipGraphLaunch") \
    F(graph_destroy, (void *graph), "cuGraphDestroy", "hipGraphDestroy") \
    F(exec_destroy, (void *exec), "cuGraphExecDestroy", "hipGraphExecDestroy")
/* clang-format on */

/** Columns of GPU_CALLS. */
enum gpu_column { GPU_CUDA, GPU_HIP };

/**
 * A vendor's own part. Functions that can fail return NULL or a sentence, as those of
 * backend.h do; all but open() are called after it succeeded.
 */
struct gpu_vendor {
    enum gpu_column column;
    const char *since; /* the oldest runtime that has all of GPU_CALLS: "CUDA 11.4" */
    /** Open the runtime. */
    const char *(*open)(void **handle_out);
    /** The functions that only this file calls. */
    const char *(*take)(void *handle);
    /** *text_out: what it means, or NULL. @return NULL for a number without a name */
    const char *(*error)(int code, const char **text_out);
    /** Make @p ordinal, which exists, the thread's device. */
    const char *(*bind)(int ordinal);
    /** "CUDA 13.0" */
    void (*version)(int number, char *buf, size_t bytes);
    /** The runtime's handle of a device. */
    const char *(*device)(int ordinal, int *device_out);
    /** Identity and target; name and place are filled in. */
    const char *(*describe)(int device, struct backend_device *out);
    /** As in backend.h; NULL if it has none. */
    const char *(*last_error)(void);
    /** In either direction, on @p stream. */
    const char *(*copy)(void *to, const void *from, size_t bytes, void *stream);
};

extern const struct gpu_vendor gpu_vendor_cuda, gpu_vendor_hip;

/** A function of the runtime by its name, into the pointer at @p slot. */
const char *gpu_take(void *handle, const char *symbol, void *slot);

/** NULL for 0, else "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". */
const char *gpu_said(const char *call, int error);

/** A sentence of this thread's, as backend.h promises. */
const char *gpu_sentence(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
