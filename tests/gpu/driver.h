/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver as the tests' ranks use it: an application's part of it, opened at run time,
 * so that the programs build and skip where there is none. It is NVIDIA's, or, with
 * TEST_DEVICE=hip, AMD's runtime behind the same functions (driver_hip.c). Either
 * may be a stand-in; nothing here knows.
 *
 * Never touched before the harness has forked: a driver does not survive a fork.
 * Memory, streams and events are made when a rank opens, not while kernels wait for one
 * another: freeing device memory waits for the whole device.
 */
#ifndef MOTET_TESTS_GPU_DRIVER_H
#define MOTET_TESTS_GPU_DRIVER_H

#include "harness.h"

#include "device/cuda_api.h"

#define GPU_STREAMS   2
#define GPU_ALIGN     256
#define GPU_VARIABLES 4

#define GPU_POINTER(need, symbol, parameters, since, feature) \
    CUresult(*symbol) parameters;

/**
 * Every function of both lists of cuda_api.h; those that this driver lacks are NULL. Of
 * AMD's runtime there are those that tests call.
 */
typedef struct gpu_driver {
    MOTET_CUDA_FUNCTIONS(GPU_POINTER)
    MOTET_CUDA_APPLICATION(GPU_POINTER)
    CUresult (*cuMemGetInfo_v2)(size_t *free, size_t *total);
    /** Of a device; NULL where contexts are objects that a thread may lack. */
    CUcontext (*context_of)(int ordinal);
    void *library;
    int devices;
} gpu_driver;

/** The driver of this process; opened by the first call. NULL, having failed @p rank. */
const gpu_driver *gpu_driver_of(multi_rank *rank);

/**
 * Look for a driver with a device in a process of its own.
 * @return 0, or 77 after a line that says what is missing
 */
int gpu_look(void);

/** How many devices gpu_look() found, and whether they are the stand-in's. */
int gpu_devices(void);
bool gpu_is_fake(void);

/**
 * From now on the library remembers things in an empty folder of this program's own: what
 * a path did in one run says nothing about the next. The folder goes when the program ends.
 */
void gpu_forget_paths(void);

/** Whether the driver is AMD's runtime. Known before gpu_look(). */
bool gpu_is_hip(void);

/** The variable that says which devices a process sees. */
const char *gpu_visible_variable(void);

/** What the stand-in's own variables begin with: "FAKECUDA_". */
const char *gpu_fake_prefix(void);

/** Environment that GPU ranks need, NULL-ended; see there. Filled in by gpu_look(). */
extern const char *gpu_environment[GPU_VARIABLES + 1];

/**
 * AMD's runtime behind the functions of gpu_driver; its devices are counted.
 * @return false, and @p why says what is missing
 */
bool gpu_driver_open_hip(gpu_driver *out, char *why, size_t bytes);

/** What one rank works with. Lives in its body. */
typedef struct gpu_rank {
    multi_rank *rank;
    const gpu_driver *cu;
    int number; /* of the rank: one thread may drive several */
    int ordinal;
    CUcontext context;
    CUdeviceptr pool;
    size_t pool_bytes, pool_used;
    CUstream stream[GPU_STREAMS];
    ncclComm_t comm; /* of a test that has one */
} gpu_rank;

/** Check a driver's result; a failure of the rank names it. */
bool gpu_ok(gpu_rank *g, CUresult got, const char *what);

/**
 * Open device (number mod devices) for a rank: its primary context becomes the thread's,
 * with @p pool_bytes of device memory and GPU_STREAMS streams that wait for no other.
 */
bool gpu_open(gpu_rank *g, multi_rank *rank, int number, size_t pool_bytes);
/** Give back what gpu_open() made; the rank's work must have ended. */
void gpu_close(gpu_rank *g);
/** Make the rank's device the thread's again. */
bool gpu_enter(gpu_rank *g);
/**
 * A context that is not the rank's device's: none at all, or, where threads always have
 * a device, another one (its own if there is no other).
 */
CUcontext gpu_elsewhere(const gpu_rank *g);

/** Device memory from the pool, aligned to GPU_ALIGN; 0, having failed, if it is used up. */
CUdeviceptr gpu_reserve(gpu_rank *g, size_t bytes);
/** All of the pool is free again. */
void gpu_forget(gpu_rank *g);

/** Copy and wait. The stream must not be recording. */
bool gpu_send(gpu_rank *g, CUdeviceptr to, const void *from, size_t bytes);
bool gpu_fetch(gpu_rank *g, void *to, CUdeviceptr from, size_t bytes);
/** Fill with a byte, and wait. @p bytes is a multiple of 4. */
bool gpu_fill(gpu_rank *g, CUdeviceptr to, unsigned char byte, size_t bytes);

/** Wait for the stream, at most until the run's deadline is near. */
bool gpu_sync(gpu_rank *g, CUstream stream);
/** Wait at most @p ms; false, without a failure, if the stream is not idle by then. */
bool gpu_idle_within(gpu_rank *g, CUstream stream, unsigned ms);

/** Hold @p stream for @p us: what is given to it from now on starts later. */
bool gpu_delay(gpu_rank *g, CUstream stream, unsigned us);

/** Record what is given to @p stream until gpu_recorded(). */
bool gpu_record(gpu_rank *g, CUstream stream, CUstreamCaptureMode mode);
bool gpu_recorded(gpu_rank *g, CUstream stream, CUgraphExec *out);
/** The two steps of gpu_recorded(): none may instantiate while it still records. */
bool gpu_end_record(gpu_rank *g, CUstream stream, CUgraph *out);
bool gpu_make_graph(gpu_rank *g, CUgraph graph, CUgraphExec *out);
bool gpu_play(gpu_rank *g, CUgraphExec exec, CUstream stream);
void gpu_drop_graph(gpu_rank *g, CUgraphExec *exec);

/** Streams of the driver under the API's name. */
static inline cudaStream_t gpu_handle(CUstream stream)
{
    return (cudaStream_t)(void *)stream;
}

static inline void *gpu_at(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/**
 * A communicator of all ranks, id number @p slot, on the rank's device. For one thread
 * with all ranks: gpu_comms().
 */
bool gpu_comm(gpu_rank *g, int slot, ncclComm_t *out);
bool gpu_comms(gpu_rank *g, int ranks, int slot, ncclComm_t *out);

/** Wait until the communicator is at rest and well: no operation failed. */
bool gpu_well(multi_rank *rank, ncclComm_t comm);

#endif
