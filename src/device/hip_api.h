/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of AMD's HIP runtime API that motet uses, declared by ourselves: the library is
 * opened at run time and its headers are not needed to build. Names, numbers and layouts
 * are the runtime's own and so are written as AMD writes them; they were compared with the
 * headers of ROCm 5.2, 5.4, 5.7, 6.0, 6.2 and 7.
 *
 * MOTET_HIP_FUNCTIONS is the whole of what the library calls, one row a symbol:
 *
 *     F(need, symbol, returns, parameters, since, feature)
 *
 * `need` is REQUIRED or OPTIONAL; `since` the first ROCm version (1000 · major +
 * 10 · minor) whose runtime has it; `feature` what is lost without an optional one, NULL
 * for the others. All symbols are plain C names (their ELF versions are hip_4.2 and on;
 * dlsym() takes the default one). MOTET_HIP_APPLICATION lists what only an application
 * calls: the tests that play one resolve it, the library does not.
 *
 * Calls without a stream of their own take a default one by its handle: NULL is the legacy
 * stream of the current device, hipStreamPerThread the calling thread's on it.
 * hipStreamLegacy is known to ROCm 6.3 and later only and means what NULL does.
 */
#ifndef MOTET_DEVICE_HIP_API_H
#define MOTET_DEVICE_HIP_API_H

#include <stddef.h>
#include <stdint.h>

typedef int hipDevice_t;
typedef void *hipDeviceptr_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef struct hipUserObject *hipUserObject_t;
typedef void (*hipHostFn_t)(void *arg);

#define hipStreamLegacy    ((hipStream_t)(uintptr_t)1)
#define hipStreamPerThread ((hipStream_t)(uintptr_t)2)

typedef enum hipError_t {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorNotInitialized = 3,
    hipErrorDeinitialized = 4,
    hipErrorInvalidDevicePointer = 17,
    hipErrorInsufficientDriver = 35,
    hipErrorInvalidDeviceFunction = 98,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101,
    hipErrorInvalidImage = 200,
    hipErrorInvalidContext = 201,
    hipErrorMapFailed = 205,
    hipErrorNoBinaryForGpu = 209,
    hipErrorECCNotCorrectable = 214,
    hipErrorPeerAccessUnsupported = 217,
    hipErrorInvalidKernelFile = 218,
    hipErrorSharedObjectInitFailed = 303,
    hipErrorOperatingSystem = 304,
    hipErrorInvalidHandle = 400,
    hipErrorIllegalState = 401,
    hipErrorNotFound = 500,
    hipErrorNotReady = 600,
    hipErrorIllegalAddress = 700,
    hipErrorLaunchOutOfResources = 701,
    hipErrorLaunchTimeOut = 702,
    hipErrorPeerAccessAlreadyEnabled = 704,
    hipErrorPeerAccessNotEnabled = 705,
    hipErrorContextIsDestroyed = 709,
    hipErrorAssert = 710,
    hipErrorHostMemoryAlreadyRegistered = 712,
    hipErrorHostMemoryNotRegistered = 713,
    hipErrorLaunchFailure = 719,
    hipErrorCooperativeLaunchTooLarge = 720,
    hipErrorNotSupported = 801,
    hipErrorStreamCaptureUnsupported = 900,
    hipErrorStreamCaptureInvalidated = 901,
    hipErrorStreamCaptureMerge = 902,
    hipErrorStreamCaptureUnmatched = 903,
    hipErrorStreamCaptureUnjoined = 904,
    hipErrorStreamCaptureIsolation = 905,
    hipErrorStreamCaptureImplicit = 906,
    hipErrorCapturedEvent = 907,
    hipErrorStreamCaptureWrongThread = 908,
    hipErrorUnknown = 999,
    hipErrorRuntimeMemory = 1052,
    hipErrorRuntimeOther = 1053
} hipError_t;

/* The numbers are alike since ROCm 5.0. */
typedef enum hipDeviceAttribute_t {
    hipDeviceAttributeCanMapHostMemory = 3,
    hipDeviceAttributeHostNativeAtomicSupported = 15,
    hipDeviceAttributeIntegrated = 16,
    hipDeviceAttributeComputeCapabilityMajor = 23,
    hipDeviceAttributeMaxThreadsPerBlock = 56,
    hipDeviceAttributeComputeCapabilityMinor = 61,
    hipDeviceAttributeMultiprocessorCount = 63,
    hipDeviceAttributeWarpSize = 87,
    hipDeviceAttributeIsLargeBar = 10011,
    hipDeviceAttributeFineGrainSupport = 10016
} hipDeviceAttribute_t;

/* hipPointerAttribute_t has one layout; what its first word means changed with ROCm 6. */
typedef struct hipPointerAttribute_t {
    int type;   /* HIP_MEMORY_… of the runtime's version */
    int device; /* its ordinal */
    void *devicePointer, *hostPointer;
    int isManaged;
    unsigned allocationFlags;
} hipPointerAttribute_t;

/* hipMemoryType up to 5.7 and since 6.0. The old runtime answers hipErrorInvalidValue for
 * memory that it does not know, the new one 0. */
#define HIP_MEMORY_R0000_HOST   0
#define HIP_MEMORY_R0000_DEVICE 1

#define HIP_MEMORY_R0600_UNREGISTERED 0
#define HIP_MEMORY_R0600_HOST         1
#define HIP_MEMORY_R0600_DEVICE       2
#define HIP_MEMORY_R0600_MANAGED      3

typedef enum hipPointer_attribute {
    HIP_POINTER_ATTRIBUTE_BUFFER_ID = 7 /* 32 bits, though 64 are asked for */
} hipPointer_attribute;

/* hipDeviceProp_t is never declared: of its two layouts (up to 5.7, and R0600) only the
 * place of the architecture's name counts, "gfx90a:sramecc+:xnack-". */
#define HIP_PROP_R0000_BYTES     792
#define HIP_PROP_R0000_ARCH      396
#define HIP_PROP_R0600_BYTES     1472
#define HIP_PROP_R0600_ARCH      1160
#define HIP_PROP_ARCH_NAME_BYTES 256

typedef struct hipUUID {
    char bytes[16];
} hipUUID;

typedef struct hipIpcMemHandle_t {
    char reserved[64];
} hipIpcMemHandle_t;

/* The one flag that hipIpcOpenMemHandle() takes: since ROCm 6.0, and up to 5.7. */
#define hipIpcMemLazyEnablePeerAccess 0x1u
#define HIP_IPC_LAZY_R0000            0x0u

/* Uncached since ROCm 5.5; before, the runtime answers hipErrorInvalidValue. */
#define hipDeviceMallocDefault     0x0u
#define hipDeviceMallocFinegrained 0x1u
#define hipDeviceMallocUncached    0x3u

#define hipHostRegisterPortable 0x1u
#define hipHostRegisterMapped   0x2u

#define hipHostMallocPortable 0x1u
#define hipHostMallocMapped   0x2u
#define hipHostMallocCoherent 0x40000000u

#define hipStreamNonBlocking 0x1u

#define hipEventDisableTiming 0x2u

typedef enum hipMemcpyKind {
    hipMemcpyDefault = 4 /* by the addresses */
} hipMemcpyKind;

/* What hipModuleLaunchKernel()'s `extra` is made of: pairs, ended by the third. Not
 * CUDA's numbers. */
#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *)(uintptr_t)1)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE    ((void *)(uintptr_t)2) /* size_t * */
#define HIP_LAUNCH_PARAM_END            ((void *)(uintptr_t)3)

typedef enum hipStreamCaptureStatus {
    hipStreamCaptureStatusNone = 0,
    hipStreamCaptureStatusActive = 1,
    hipStreamCaptureStatusInvalidated = 2
} hipStreamCaptureStatus;

typedef enum hipStreamCaptureMode {
    hipStreamCaptureModeGlobal = 0,
    hipStreamCaptureModeThreadLocal = 1,
    hipStreamCaptureModeRelaxed = 2
} hipStreamCaptureMode;

/* hipStreamUpdateCaptureDependencies(): the given nodes replace what was waited for. */
#define hipStreamSetCaptureDependencies 1u

#define hipUserObjectNoDestructorSync 1u
#define hipGraphUserObjectMove        1u

_Static_assert(sizeof(hipError_t) == 4, "as the runtime was built");
_Static_assert(sizeof(hipPointerAttribute_t) == 32, "as the runtime was built");
_Static_assert(sizeof(hipIpcMemHandle_t) == 64, "as the runtime was built");

/* What is lost without an optional function: the words of the rows below. */
#define MOTET_HIP_UUID     "telling GPUs apart by a number of their own"
#define MOTET_HIP_TARGET   "the runtime's own name of the architecture"
#define MOTET_HIP_IPC      "handing device memory to another process"
#define MOTET_HIP_BUFFERS  "sharing one mapping of a buffer among its users"
#define MOTET_HIP_OWNER    "naming the device of a stream"
#define MOTET_HIP_HOSTCALL "calling the host from a stream"
#define MOTET_HIP_CAPTURE  "operations in a captured stream"

/* clang-format off */
#define MOTET_HIP_FUNCTIONS(F) \
    /* the runtime and its devices */ \
    F(REQUIRED, hipInit, hipError_t, (unsigned flags), 1000, NULL) \
    F(REQUIRED, hipRuntimeGetVersion, hipError_t, (int *version), 1000, NULL) \
    F(REQUIRED, hipGetErrorName, const char *, (hipError_t error), 1000, NULL) \
    F(REQUIRED, hipGetErrorString, const char *, (hipError_t error), 1000, NULL) \
    F(REQUIRED, hipGetLastError, hipError_t, (void), 1000, NULL) \
    F(REQUIRED, hipPeekAtLastError, hipError_t, (void), 1000, NULL) \
    F(REQUIRED, hipGetDeviceCount, hipError_t, (int *count), 1000, NULL) \
    F(REQUIRED, hipGetDevice, hipError_t, (int *ordinal), 1000, NULL) \
    F(REQUIRED, hipSetDevice, hipError_t, (int ordinal), 1000, NULL) \
    F(REQUIRED, hipDeviceGetName, hipError_t, (char *name, int bytes, hipDevice_t device), 1000, NULL) \
    F(REQUIRED, hipDeviceGetAttribute, hipError_t, (int *value, hipDeviceAttribute_t attribute, int ordinal), 1000, NULL) \
    F(REQUIRED, hipDeviceTotalMem, hipError_t, (size_t *bytes, hipDevice_t device), 1000, NULL) \
    F(REQUIRED, hipDeviceGetPCIBusId, hipError_t, (char *bus_id, int bytes, int ordinal), 1000, NULL) \
    F(REQUIRED, hipDeviceGetStreamPriorityRange, hipError_t, (int *least, int *greatest), 1000, NULL) \
    F(OPTIONAL, hipDeviceGetUuid, hipError_t, (hipUUID *uuid, hipDevice_t device), 5010, MOTET_HIP_UUID) \
    F(OPTIONAL, hipGetDevicePropertiesR0600, hipError_t, (void *properties, int ordinal), 6000, MOTET_HIP_TARGET) \
    F(OPTIONAL, hipGetDeviceProperties, hipError_t, (void *properties, int ordinal), 1000, MOTET_HIP_TARGET) \
    /* memory of devices */ \
    F(REQUIRED, hipExtMallocWithFlags, hipError_t, (void **address, size_t bytes, unsigned flags), 3000, NULL) \
    F(REQUIRED, hipFree, hipError_t, (void *address), 1000, NULL) \
    F(REQUIRED, hipMemGetAddressRange, hipError_t, (hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t address), 1000, NULL) \
    F(REQUIRED, hipPointerGetAttributes, hipError_t, (hipPointerAttribute_t *attributes, const void *address), 1000, NULL) \
    F(OPTIONAL, hipPointerGetAttribute, hipError_t, (void *value, hipPointer_attribute attribute, hipDeviceptr_t address), 5000, MOTET_HIP_BUFFERS) \
    F(REQUIRED, hipDeviceCanAccessPeer, hipError_t, (int *can, int ordinal, int peer), 1000, NULL) \
    F(REQUIRED, hipDeviceEnablePeerAccess, hipError_t, (int peer, unsigned flags), 1000, NULL) \
    F(OPTIONAL, hipIpcGetMemHandle, hipError_t, (hipIpcMemHandle_t *handle, void *address), 1000, MOTET_HIP_IPC) \
    F(OPTIONAL, hipIpcOpenMemHandle, hipError_t, (void **address, hipIpcMemHandle_t handle, unsigned flags), 1000, MOTET_HIP_IPC) \
    F(OPTIONAL, hipIpcCloseMemHandle, hipError_t, (void *address), 1000, MOTET_HIP_IPC) \
    /* memory of the host */ \
    F(REQUIRED, hipHostRegister, hipError_t, (void *memory, size_t bytes, unsigned flags), 1000, NULL) \
    F(REQUIRED, hipHostUnregister, hipError_t, (void *memory), 1000, NULL) \
    F(REQUIRED, hipHostGetDevicePointer, hipError_t, (void **address, void *memory, unsigned flags), 1000, NULL) \
    /* code */ \
    F(REQUIRED, hipModuleLoadData, hipError_t, (hipModule_t *module, const void *image), 1000, NULL) \
    F(REQUIRED, hipModuleGetFunction, hipError_t, (hipFunction_t *function, hipModule_t module, const char *name), 1000, NULL) \
    F(REQUIRED, hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, hipError_t, (int *blocks, hipFunction_t function, int threads, size_t shared_bytes), 3050, NULL) \
    F(REQUIRED, hipModuleLaunchKernel, hipError_t, (hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, hipStream_t stream, void **parameters, void **extra), 1000, NULL) \
    F(OPTIONAL, hipLaunchHostFunc, hipError_t, (hipStream_t stream, hipHostFn_t function, void *arg), 5030, MOTET_HIP_HOSTCALL) \
    /* streams and events */ \
    F(REQUIRED, hipMemcpyAsync, hipError_t, (void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream), 1000, NULL) \
    F(REQUIRED, hipMemsetD32Async, hipError_t, (hipDeviceptr_t to, int value, size_t words, hipStream_t stream), 3000, NULL) \
    F(REQUIRED, hipStreamCreateWithPriority, hipError_t, (hipStream_t *stream, unsigned flags, int priority), 2000, NULL) \
    F(REQUIRED, hipStreamDestroy, hipError_t, (hipStream_t stream), 1000, NULL) \
    F(REQUIRED, hipStreamSynchronize, hipError_t, (hipStream_t stream), 1000, NULL) \
    F(REQUIRED, hipStreamQuery, hipError_t, (hipStream_t stream), 1000, NULL) \
    F(REQUIRED, hipStreamGetFlags, hipError_t, (hipStream_t stream, unsigned *flags), 1000, NULL) \
    F(OPTIONAL, hipStreamGetDevice, hipError_t, (hipStream_t stream, hipDevice_t *device), 5060, MOTET_HIP_OWNER) \
    F(OPTIONAL, hipGetStreamDeviceId, int, (hipStream_t stream), 4000, MOTET_HIP_OWNER) \
    F(REQUIRED, hipStreamWaitEvent, hipError_t, (hipStream_t stream, hipEvent_t event, unsigned flags), 1000, NULL) \
    F(REQUIRED, hipEventCreateWithFlags, hipError_t, (hipEvent_t *event, unsigned flags), 1000, NULL) \
    F(REQUIRED, hipEventDestroy, hipError_t, (hipEvent_t event), 1000, NULL) \
    F(REQUIRED, hipEventRecord, hipError_t, (hipEvent_t event, hipStream_t stream), 1000, NULL) \
    F(REQUIRED, hipEventQuery, hipError_t, (hipEvent_t event), 1000, NULL) \
    /* captures and graphs */ \
    F(REQUIRED, hipStreamIsCapturing, hipError_t, (hipStream_t stream, hipStreamCaptureStatus *status), 4030, NULL) \
    F(REQUIRED, hipThreadExchangeStreamCaptureMode, hipError_t, (hipStreamCaptureMode *mode), 5000, NULL) \
    F(OPTIONAL, hipStreamGetCaptureInfo_v2, hipError_t, (hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id, hipGraph_t *graph, const hipGraphNode_t **dependencies, size_t *count), 4050, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipStreamUpdateCaptureDependencies, hipError_t, (hipStream_t stream, hipGraphNode_t *dependencies, size_t count, unsigned flags), 4050, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipGraphAddEventRecordNode, hipError_t, (hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies, size_t count, hipEvent_t event), 4050, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipGraphAddEventWaitNode, hipError_t, (hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies, size_t count, hipEvent_t event), 4050, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipGraphNodeGetDependencies, hipError_t, (hipGraphNode_t node, hipGraphNode_t *dependencies, size_t *count), 4050, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipGraphAddDependencies, hipError_t, (hipGraph_t graph, const hipGraphNode_t *from, const hipGraphNode_t *to, size_t count), 4040, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipGraphRemoveDependencies, hipError_t, (hipGraph_t graph, const hipGraphNode_t *from, const hipGraphNode_t *to, size_t count), 4050, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipUserObjectCreate, hipError_t, (hipUserObject_t *object, void *ptr, hipHostFn_t destroy, unsigned references, unsigned flags), 5030, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipUserObjectRelease, hipError_t, (hipUserObject_t object, unsigned count), 5030, MOTET_HIP_CAPTURE) \
    F(OPTIONAL, hipGraphRetainUserObject, hipError_t, (hipGraph_t graph, hipUserObject_t object, unsigned count, unsigned flags), 5030, MOTET_HIP_CAPTURE)

#define MOTET_HIP_APPLICATION(F) \
    F(OPTIONAL, hipDeviceSynchronize, hipError_t, (void), 1000, NULL) \
    F(OPTIONAL, hipMalloc, hipError_t, (void **address, size_t bytes), 1000, NULL) \
    F(OPTIONAL, hipMallocManaged, hipError_t, (void **address, size_t bytes, unsigned flags), 4000, NULL) \
    F(OPTIONAL, hipHostMalloc, hipError_t, (void **memory, size_t bytes, unsigned flags), 1000, NULL) \
    F(OPTIONAL, hipHostFree, hipError_t, (void *memory), 1000, NULL) \
    F(OPTIONAL, hipMemcpy, hipError_t, (void *to, const void *from, size_t bytes, hipMemcpyKind kind), 1000, NULL) \
    F(OPTIONAL, hipStreamCreate, hipError_t, (hipStream_t *stream), 1000, NULL) \
    F(OPTIONAL, hipStreamCreateWithFlags, hipError_t, (hipStream_t *stream, unsigned flags), 1000, NULL) \
    F(OPTIONAL, hipEventSynchronize, hipError_t, (hipEvent_t event), 1000, NULL) \
    F(OPTIONAL, hipEventElapsedTime, hipError_t, (float *ms, hipEvent_t from, hipEvent_t to), 1000, NULL) \
    F(OPTIONAL, hipStreamBeginCapture, hipError_t, (hipStream_t stream, hipStreamCaptureMode mode), 4030, NULL) \
    F(OPTIONAL, hipStreamEndCapture, hipError_t, (hipStream_t stream, hipGraph_t *graph), 4030, NULL) \
    F(OPTIONAL, hipGraphGetNodes, hipError_t, (hipGraph_t graph, hipGraphNode_t *nodes, size_t *count), 4040, NULL) \
    F(OPTIONAL, hipGraphInstantiateWithFlags, hipError_t, (hipGraphExec_t *exec, hipGraph_t graph, unsigned long long flags), 4050, NULL) \
    F(OPTIONAL, hipGraphLaunch, hipError_t, (hipGraphExec_t exec, hipStream_t stream), 4030, NULL) \
    F(OPTIONAL, hipGraphExecDestroy, hipError_t, (hipGraphExec_t exec), 4030, NULL) \
    F(OPTIONAL, hipGraphDestroy, hipError_t, (hipGraph_t graph), 4030, NULL)
/* clang-format on */

#endif
