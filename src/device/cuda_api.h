/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NVIDIA's driver API that motet uses, declared by ourselves: the library is
 * opened at run time and its headers are not needed to build. Names, numbers and layouts
 * are the driver's own and so are written as NVIDIA writes them.
 *
 * MOTET_CUDA_FUNCTIONS is the whole of what the library calls, one row a symbol:
 *
 *     F(need, symbol, parameters, since, feature)
 *
 * `need` is REQUIRED or OPTIONAL; `symbol` the exported name with its version suffix;
 * `since` the first CUDA version (1000 · major + 10 · minor) whose driver has it; `feature`
 * what is lost without an optional one, NULL for the others. MOTET_CUDA_APPLICATION lists
 * what only an application calls: the tests that play one resolve it, the library does not.
 *
 * Calls without a stream of their own take a default one by its handle: NULL and
 * CU_STREAM_LEGACY are the legacy stream of the current context, CU_STREAM_PER_THREAD the
 * calling thread's. The plain symbols honour all three; the _ptsz twins are not needed.
 */
#ifndef MOTET_DEVICE_CUDA_API_H
#define MOTET_DEVICE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef void (*CUhostFn)(void *arg);

#define CU_STREAM_LEGACY     ((CUstream)(uintptr_t)1)
#define CU_STREAM_PER_THREAD ((CUstream)(uintptr_t)2)

typedef enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_STUB_LIBRARY = 34,
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_MAP_FAILED = 205,
    CUDA_ERROR_ALREADY_MAPPED = 208,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE = 216,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
    CUDA_ERROR_CONTAINED = 226,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_LOSSY_QUERY = 402,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_TOO_MANY_PEERS = 711,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
    CUDA_ERROR_INVALID_PC = 718,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
    CUDA_ERROR_MPS_CONNECTION_FAILED = 805,
    CUDA_ERROR_MPS_RPC_FAILURE = 806,
    CUDA_ERROR_MPS_SERVER_NOT_READY = 807,
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = 808,
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = 809,
    CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
    CUDA_ERROR_TIMEOUT = 909,
    CUDA_ERROR_EXTERNAL_DEVICE = 911,
    CUDA_ERROR_UNKNOWN = 999
} CUresult;

typedef enum CUdevice_attribute {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED = 86,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134
} CUdevice_attribute;

typedef enum CUpointer_attribute {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,                 /* unsigned: CUmemorytype */
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,                   /* unsigned long long */
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,                  /* 32 bits */
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,              /* int */
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10, /* 32 bits */
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,           /* CUdeviceptr */
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,                 /* size_t */
    /* 64 bits, of CUmemAllocationHandleType */
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20 /* unsigned long long */
} CUpointer_attribute;

typedef enum CUmemorytype {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2
} CUmemorytype;

typedef enum CUfunction_attribute {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4
} CUfunction_attribute;

typedef enum CUjit_option {
    CU_JIT_ERROR_LOG_BUFFER = 5,           /* char * */
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 /* unsigned, as a pointer */
} CUjit_option;

typedef struct CUuuid {
    char bytes[16];
} CUuuid;

typedef struct CUipcMemHandle {
    char reserved[64];
} CUipcMemHandle;

#define CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS 0x1u

#define CU_MEMHOSTREGISTER_PORTABLE  0x1u
#define CU_MEMHOSTREGISTER_DEVICEMAP 0x2u

typedef enum CUmemAllocationType {
    CU_MEM_ALLOCATION_TYPE_PINNED = 1
} CUmemAllocationType;

typedef enum CUmemAllocationHandleType {
    CU_MEM_HANDLE_TYPE_NONE = 0,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 /* int */
} CUmemAllocationHandleType;

typedef enum CUmemLocationType { CU_MEM_LOCATION_TYPE_DEVICE = 1 } CUmemLocationType;

typedef enum CUmemAccess_flags {
    CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
    CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
} CUmemAccess_flags;

typedef enum CUmemAllocationGranularity_flags {
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1
} CUmemAllocationGranularity_flags;

typedef struct CUmemLocation {
    CUmemLocationType type;
    int id; /* the device's ordinal */
} CUmemLocation;

typedef struct CUmemAllocationProp {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

#define CU_STREAM_NON_BLOCKING 0x1u

#define CU_EVENT_DISABLE_TIMING  0x2u
#define CU_EVENT_RECORD_EXTERNAL 0x1u
#define CU_EVENT_WAIT_EXTERNAL   0x1u

/* What cuLaunchKernel()'s `extra` is made of: pairs, ended by the first. */
#define CU_LAUNCH_PARAM_END            ((void *)(uintptr_t)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)(uintptr_t)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE    ((void *)(uintptr_t)2) /* size_t * */

typedef enum CUstreamCaptureStatus {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
} CUstreamCaptureStatus;

typedef enum CUstreamCaptureMode {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2
} CUstreamCaptureMode;

/* What an edge of a graph means beyond "after": all zero everywhere we make one. */
typedef struct CUgraphEdgeData {
    unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;

#define CU_USER_OBJECT_NO_DESTRUCTOR_SYNC 1u
#define CU_GRAPH_USER_OBJECT_MOVE         1u

_Static_assert(sizeof(CUresult) == 4, "as the driver was built");
_Static_assert(sizeof(CUmemAllocationProp) == 32, "as the driver was built");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "as the driver was built");
_Static_assert(sizeof(CUgraphEdgeData) == 8, "as the driver was built");

/* What is lost without an optional function: the words of the rows below. */
#define MOTET_CUDA_MIG     "telling MIG instances of one GPU apart"
#define MOTET_CUDA_IPC     "handing ordinary device memory to another process"
#define MOTET_CUDA_FD      "sharing device memory by descriptor"
#define MOTET_CUDA_PRELOAD "loading a kernel before its first launch"
#define MOTET_CUDA_GREEN   "naming a green context's stream as such"
#define MOTET_CUDA_CAPTURE "operations in a captured stream"
#define MOTET_CUDA_EDGES   "operations behind a programmatic launch in a captured stream"

/* clang-format off */
#define MOTET_CUDA_FUNCTIONS(F) \
    /* the driver and its devices */ \
    F(REQUIRED, cuInit, (unsigned flags), 2000, NULL) \
    F(REQUIRED, cuDriverGetVersion, (int *version), 2020, NULL) \
    F(REQUIRED, cuGetErrorName, (CUresult error, const char **name), 6000, NULL) \
    F(REQUIRED, cuGetErrorString, (CUresult error, const char **text), 6000, NULL) \
    F(REQUIRED, cuDeviceGet, (CUdevice *device, int ordinal), 2000, NULL) \
    F(REQUIRED, cuDeviceGetCount, (int *count), 2000, NULL) \
    F(REQUIRED, cuDeviceGetName, (char *name, int bytes, CUdevice device), 2000, NULL) \
    F(REQUIRED, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device), 2000, NULL) \
    F(REQUIRED, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), 3020, NULL) \
    F(REQUIRED, cuDeviceGetPCIBusId, (char *bus_id, int bytes, CUdevice device), 4010, NULL) \
    F(REQUIRED, cuDeviceGetUuid, (CUuuid *uuid, CUdevice device), 9020, NULL) \
    F(OPTIONAL, cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device), 11040, MOTET_CUDA_MIG) \
    /* contexts */ \
    F(REQUIRED, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device), 7000, NULL) \
    F(REQUIRED, cuDevicePrimaryCtxRelease_v2, (CUdevice device), 11000, NULL) \
    F(REQUIRED, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active), 7000, NULL) \
    F(REQUIRED, cuCtxPushCurrent_v2, (CUcontext context), 4000, NULL) \
    F(REQUIRED, cuCtxPopCurrent_v2, (CUcontext *context), 4000, NULL) \
    F(REQUIRED, cuCtxGetCurrent, (CUcontext *context), 4000, NULL) \
    F(REQUIRED, cuCtxGetDevice, (CUdevice *device), 2000, NULL) \
    F(REQUIRED, cuCtxGetStreamPriorityRange, (int *least, int *greatest), 5050, NULL) \
    /* memory of devices */ \
    F(REQUIRED, cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes), 3020, NULL) \
    F(REQUIRED, cuMemFree_v2, (CUdeviceptr address), 3020, NULL) \
    F(REQUIRED, cuMemGetAddressRange_v2, (CUdeviceptr *base, size_t *bytes, CUdeviceptr address), 3020, NULL) \
    F(REQUIRED, cuPointerGetAttributes, (unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr address), 7000, NULL) \
    F(REQUIRED, cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), 4000, NULL) \
    F(REQUIRED, cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), 4000, NULL) \
    F(OPTIONAL, cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr address), 4010, MOTET_CUDA_IPC) \
    F(OPTIONAL, cuIpcOpenMemHandle_v2, (CUdeviceptr *address, CUipcMemHandle handle, unsigned flags), 11000, MOTET_CUDA_IPC) \
    F(OPTIONAL, cuIpcCloseMemHandle, (CUdeviceptr address), 4010, MOTET_CUDA_IPC) \
    F(OPTIONAL, cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemRelease, (CUmemGenericAllocationHandle handle), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *address), 11000, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemAddressReserve, (CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemAddressFree, (CUdeviceptr address, size_t bytes), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemUnmap, (CUdeviceptr address, size_t bytes), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemGetAllocationGranularity, (size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemExportToShareableHandle, (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags), 10020, MOTET_CUDA_FD) \
    F(OPTIONAL, cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type), 10020, MOTET_CUDA_FD) \
    /* memory of the host */ \
    F(REQUIRED, cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags), 6050, NULL) \
    F(REQUIRED, cuMemHostUnregister, (void *memory), 4000, NULL) \
    F(REQUIRED, cuMemHostGetDevicePointer_v2, (CUdeviceptr *address, void *memory, unsigned flags), 3020, NULL) \
    /* code */ \
    F(REQUIRED, cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values), 2010, NULL) \
    F(REQUIRED, cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name), 2000, NULL) \
    F(REQUIRED, cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function), 2020, NULL) \
    F(OPTIONAL, cuFuncLoad, (CUfunction function), 12040, MOTET_CUDA_PRELOAD) \
    F(REQUIRED, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, CUfunction function, int threads, size_t shared_bytes), 6050, NULL) \
    F(REQUIRED, cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra), 4000, NULL) \
    F(REQUIRED, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *arg), 10000, NULL) \
    /* streams and events */ \
    F(REQUIRED, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), 4000, NULL) \
    F(REQUIRED, cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t words, CUstream stream), 3020, NULL) \
    F(REQUIRED, cuStreamCreateWithPriority, (CUstream *stream, unsigned flags, int priority), 5050, NULL) \
    F(REQUIRED, cuStreamDestroy_v2, (CUstream stream), 4000, NULL) \
    F(REQUIRED, cuStreamSynchronize, (CUstream stream), 2000, NULL) \
    F(REQUIRED, cuStreamQuery, (CUstream stream), 2000, NULL) \
    F(REQUIRED, cuStreamGetCtx, (CUstream stream, CUcontext *context), 9020, NULL) \
    F(OPTIONAL, cuStreamGetGreenCtx, (CUstream stream, CUgreenCtx *context), 12040, MOTET_CUDA_GREEN) \
    F(REQUIRED, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), 3020, NULL) \
    F(REQUIRED, cuEventCreate, (CUevent *event, unsigned flags), 2000, NULL) \
    F(REQUIRED, cuEventDestroy_v2, (CUevent event), 4000, NULL) \
    F(REQUIRED, cuEventRecord, (CUevent event, CUstream stream), 2000, NULL) \
    F(REQUIRED, cuEventQuery, (CUevent event), 2000, NULL) \
    F(REQUIRED, cuEventSynchronize, (CUevent event), 2000, NULL) \
    /* captures and graphs */ \
    F(REQUIRED, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), 10000, NULL) \
    F(REQUIRED, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode), 10010, NULL) \
    F(OPTIONAL, cuStreamGetCaptureInfo_v2, (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *count), 11030, MOTET_CUDA_CAPTURE) \
    F(OPTIONAL, cuStreamGetCaptureInfo_v3, (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count), 12030, MOTET_CUDA_EDGES) \
    F(OPTIONAL, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), 11010, MOTET_CUDA_CAPTURE) \
    F(OPTIONAL, cuGraphAddEventRecordNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event), 11010, MOTET_CUDA_CAPTURE) \
    F(OPTIONAL, cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *dependencies, size_t *count), 10000, MOTET_CUDA_CAPTURE) \
    F(OPTIONAL, cuGraphAddDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count), 10000, MOTET_CUDA_CAPTURE) \
    F(OPTIONAL, cuGraphRemoveDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count), 10000, MOTET_CUDA_CAPTURE) \
    F(OPTIONAL, cuUserObjectCreate, (CUuserObject *object, void *ptr, CUhostFn destroy, unsigned references, unsigned flags), 11030, MOTET_CUDA_CAPTURE) \
    F(OPTIONAL, cuUserObjectRelease, (CUuserObject object, unsigned count), 11030, MOTET_CUDA_CAPTURE) \
    F(OPTIONAL, cuGraphRetainUserObject, (CUgraph graph, CUuserObject object, unsigned count, unsigned flags), 11030, MOTET_CUDA_CAPTURE)

#define MOTET_CUDA_APPLICATION(F) \
    F(OPTIONAL, cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), 3020, NULL) \
    F(OPTIONAL, cuCtxDestroy_v2, (CUcontext context), 4000, NULL) \
    F(OPTIONAL, cuCtxSetCurrent, (CUcontext context), 4000, NULL) \
    F(OPTIONAL, cuCtxSynchronize, (void), 2000, NULL) \
    F(OPTIONAL, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags), 2020, NULL) \
    F(OPTIONAL, cuMemFreeHost, (void *memory), 2000, NULL) \
    F(OPTIONAL, cuMemAllocManaged, (CUdeviceptr *address, size_t bytes, unsigned flags), 6000, NULL) \
    F(OPTIONAL, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), 3020, NULL) \
    F(OPTIONAL, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), 3020, NULL) \
    F(OPTIONAL, cuStreamCreate, (CUstream *stream, unsigned flags), 2000, NULL) \
    F(OPTIONAL, cuEventElapsedTime, (float *ms, CUevent from, CUevent to), 2000, NULL) \
    F(OPTIONAL, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), 10010, NULL) \
    F(OPTIONAL, cuStreamEndCapture, (CUstream stream, CUgraph *graph), 10000, NULL) \
    F(OPTIONAL, cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count), 10000, NULL) \
    F(OPTIONAL, cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), 11040, NULL) \
    F(OPTIONAL, cuGraphLaunch, (CUgraphExec exec, CUstream stream), 10000, NULL) \
    F(OPTIONAL, cuGraphExecDestroy, (CUgraphExec exec), 10000, NULL) \
    F(OPTIONAL, cuGraphDestroy, (CUgraph graph), 10000, NULL)
/* clang-format on */

#endif
