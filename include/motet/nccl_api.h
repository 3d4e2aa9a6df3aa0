/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collective API that nccl.h and rccl/rccl.h have in common: every type,
 * constant and function. Include one of those two, never this file: they first
 * define MOTET_STREAM_T, the type of a stream.
 *
 * Rules that hold for every function below, unless it says otherwise:
 *
 * - The result is ncclSuccess, or the code that says what is wrong;
 *   ncclGetLastError() then has the sentence. Outputs are written only on success.
 * - Every function exists twice: ncclX, and pncclX with the same meaning. A
 *   profiler may replace ncclX and call pncclX.
 * - A count is a number of elements of the data type, never bytes, and may exceed
 *   2^32. Buffers must hold what the operation reads or writes, and belong to the
 *   operation until it has completed on its stream.
 * - `stream` orders the operation. On a CPU rank NULL (or the handles 1 and 2, CUDA's
 *   names for its default streams) makes the call return when the result is there; a
 *   stream made by motet_stream_create() makes it return at once.
 * - Collectives must be issued in the same order, with the same counts and types, by
 *   all ranks of a communicator. A difference is found and reported on every rank.
 * - One communicator is used by one thread at a time, except for ncclCommAbort(),
 *   ncclCommRevoke() and ncclCommGetAsyncError(), which any thread may call any time.
 */
#ifndef MOTET_NCCL_API_H
#define MOTET_NCCL_API_H

#ifndef MOTET_STREAM_T
#error "include nccl.h or rccl/rccl.h, not motet/nccl_api.h"
#endif

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/** Version of the API that this header speaks, in parts. */
#define NCCL_MAJOR  2
#define NCCL_MINOR  27
#define NCCL_PATCH  7
#define NCCL_SUFFIX ""

/** A version as one number: 2.8.4 is 2804, and from 2.9 on 2.27.7 is 22707. */
#define NCCL_VERSION(major, minor, patch)                                      \
    (((major) <= 2 && (minor) <= 8) ? (major) * 1000 + (minor) * 100 + (patch) \
                                    : (major) * 10000 + (minor) * 100 + (patch))

/** This header's version as one number; a literal, since build scripts search for it. */
#define NCCL_VERSION_CODE 22707

/** Declares a function and its twin. */
#define MOTET_DECLARE(type, name, params) \
    type name params;                     \
    type p##name params

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ types */

/** A communicator: this rank's end of a set of ranks that work together. */
typedef struct ncclComm *ncclComm_t;

/** No communicator. */
#define NCCL_COMM_NULL NULL

/** A buffer that all ranks registered together; see ncclCommWindowRegister(). */
typedef struct ncclWindow *ncclWindow_t;

/** Size of a unique id, bytes. */
#define NCCL_UNIQUE_ID_BYTES 128

/** What ranks need to find each other: plain bytes, to be copied by any means. */
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES]; /**< not to be looked into */
} ncclUniqueId;

/** What a call came to. */
typedef enum {
    ncclSuccess = 0,            /**< done, or enqueued */
    ncclUnhandledCudaError = 1, /**< a device or its driver failed, or there is none */
    ncclSystemError = 2,        /**< the operating system refused something */
    ncclInternalError = 3,      /**< a mistake inside the library */
    ncclInvalidArgument = 4,    /**< one argument is wrong by itself */
    ncclInvalidUsage = 5,       /**< arguments do not fit together, or not supported */
    ncclRemoteError = 6,        /**< a peer died, left, or did not answer in time */
    ncclInProgress = 7,         /**< not an error: a non-blocking communicator works */
    ncclTimeout = 8,            /**< a deadline; motet says ncclRemoteError instead */
    ncclNumResults = 9          /**< how many codes there are */
} ncclResult_t;

/** Element type of a buffer; the size of an element, bytes, is in the name. */
typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6, /**< IEEE half: 5 exponent bits, 10 fraction bits */
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,    /**< upper half of a float32 */
    ncclFloat8e4m3 = 10, /**< 4 exponent bits, 3 fraction bits */
    ncclFloat8e5m2 = 11, /**< 5 exponent bits, 2 fraction bits */
    ncclNumTypes = 12    /**< how many types there are */
} ncclDataType_t;

/** Fixes the width of ncclRedOp_t across versions of the API. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;

/** How the elements of all ranks become one. */
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,    /**< the sum over the number of ranks; integers truncate */
    ncclNumOps = 5, /**< how many are built in; made ones start here */
    /** Largest value of a made one. */
    ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

/** When the scalar of ncclRedOpCreatePreMulSum() is read. */
typedef enum {
    ncclScalarDevice = 0,       /**< when an operation runs: must stay valid */
    ncclScalarHostImmediate = 1 /**< before the call that names it returns */
} ncclScalarResidence_t;

/* ---------------------------------------------------------- configuration */

/** Value of an integer field that the caller leaves to the library. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN
/** Value of a pointer field that the caller leaves to the library. */
#define NCCL_CONFIG_UNDEF_PTR NULL
/** Value of a time that is not known. */
#define NCCL_UNDEF_FLOAT -1.0f
/** Marks configuration structures that went through their initializer. */
#define NCCL_API_MAGIC 0xcafebeef

/** ncclCommSplit(): this rank joins no new communicator. */
#define NCCL_SPLIT_NOCOLOR -1

/** ncclCommWindowRegister(): nothing special. */
#define NCCL_WIN_DEFAULT 0x00
/** ncclCommWindowRegister(): every rank uses the same offsets in collectives. */
#define NCCL_WIN_COLL_SYMMETRIC 0x01
/** ncclCommWindowRegister(): writes must be seen in the order they were made. */
#define NCCL_WIN_STRICT_ORDERING 0x02
/** ncclCommWindowRegister(): for GPU-initiated networking only. */
#define NCCL_WIN_GIN_ONLY 0x04
/** Alignment of a window's address, bytes. */
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/** CTAPolicy bit: none, the library decides. */
#define NCCL_CTA_POLICY_DEFAULT 0x00
/** CTAPolicy bit: as few GPU blocks as reach full bandwidth. */
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
/** CTAPolicy bit: no GPU blocks where copy engines can do it. */
#define NCCL_CTA_POLICY_ZERO 0x02

/** ncclCommShrink(): the parent is idle. */
#define NCCL_SHRINK_DEFAULT 0x00
/** ncclCommShrink(): end what the parent still runs first. */
#define NCCL_SHRINK_ABORT 0x01

/** ncclCommRevoke(): the only flags that there are. */
#define NCCL_REVOKE_DEFAULT 0x00

/** ncclCommSuspend(): give back device memory. */
#define NCCL_SUSPEND_MEM 0x01

/**
 * How a communicator is to be made. Begin with NCCL_CONFIG_INITIALIZER, then set
 * fields; a field left alone gets the default. Strings are copied by the call.
 * Structures of other versions of the API are understood: `size` and `version` tell.
 * A value out of range is ncclInvalidArgument. "GPU" marks fields that have no
 * effect on CPU ranks; they are checked and kept all the same.
 */
typedef struct ncclConfig_v22700 {
    size_t size;          /**< set by the initializer */
    unsigned int magic;   /**< set by the initializer */
    unsigned int version; /**< set by the initializer */
    int blocking; /**< 1 calls wait, 0 they may return ncclInProgress; default 1 */
    int cgaClusterSize;  /**< GPU: blocks per cluster, 0…8; default 4 */
    int minCTAs;         /**< GPU: fewest blocks, at least 1; set maxCTAs too */
    int maxCTAs;         /**< GPU: most blocks, at least minCTAs; default 64 */
    const char *netName; /**< network to use, NULL for any */
    int splitShare;   /**< 1: children of ncclCommSplit() share resources; default 0 */
    int trafficClass; /**< traffic class of the network */
    const char *commName; /**< name that reports show, at most 127 bytes are kept */
    int collnetEnable;    /**< 1: reductions inside the network; default 0 */
    int CTAPolicy;        /**< GPU: NCCL_CTA_POLICY_* bits; default 0 */
    int shrinkShare; /**< 1: children of ncclCommShrink() share resources; default 0 */
    int nvlsCTAs;    /**< GPU: blocks of NVLink SHARP, at least 1 */
} ncclConfig_t;

/** Start value of every ncclConfig_t. */
#define NCCL_CONFIG_INITIALIZER                     \
    {                                               \
        sizeof(ncclConfig_t),  /* size */           \
        NCCL_API_MAGIC,        /* magic */          \
        NCCL_VERSION_CODE,     /* version */        \
        NCCL_CONFIG_UNDEF_INT, /* blocking */       \
        NCCL_CONFIG_UNDEF_INT, /* cgaClusterSize */ \
        NCCL_CONFIG_UNDEF_INT, /* minCTAs */        \
        NCCL_CONFIG_UNDEF_INT, /* maxCTAs */        \
        NCCL_CONFIG_UNDEF_PTR, /* netName */        \
        NCCL_CONFIG_UNDEF_INT, /* splitShare */     \
        NCCL_CONFIG_UNDEF_INT, /* trafficClass */   \
        NCCL_CONFIG_UNDEF_PTR, /* commName */       \
        NCCL_CONFIG_UNDEF_INT, /* collnetEnable */  \
        NCCL_CONFIG_UNDEF_INT, /* CTAPolicy */      \
        NCCL_CONFIG_UNDEF_INT, /* shrinkShare */    \
        NCCL_CONFIG_UNDEF_INT  /* nvlsCTAs */       \
    }

/** One option that only some vendor's library knows; a list, at most 64 long. */
typedef struct ncclConfigExt {
    struct ncclConfigExt *next; /**< the next option, or NULL */
    struct {
        int vendorId; /**< whose option it is; others pass over it. See MOTET_EXT_VENDOR */
        int optionId; /**< which one; at most once in a list */
    } key;
    union {
        int i;         /**< a number */
        const char *s; /**< a string, the caller's, valid during the call */
        void *raw;     /**< anything else */
    } val;
} ncclConfigExt_t;

/**
 * Options of one call of an ncclXConfig() function, the same on every rank. Begin
 * with NCCL_COLLCONFIG_INITIALIZER. The caller owns it, and the list, and keeps both
 * until the call returns.
 */
typedef struct ncclCollConfig_v23100 {
    size_t size;              /**< set by the initializer */
    unsigned int magic;       /**< set by the initializer */
    unsigned int version;     /**< set by the initializer */
    ncclConfigExt_t *ext;     /**< options of vendors, or NULL */
    int minCTAs;              /**< GPU: fewest blocks, at least 1 */
    int maxCTAs;              /**< GPU: most blocks, at least minCTAs */
    int nvlsCTAs;             /**< GPU: blocks of NVLink SHARP, at least 1 */
    int cgaClusterSize;       /**< GPU: blocks per cluster, 0…8 */
    const char *algSelection; /**< algorithms to choose from, NULL or "" for any */
    int forceAlgSelection;    /**< 1: none of them possible is an error; 0: any other */
    int CTAPolicy;            /**< GPU: NCCL_CTA_POLICY_* bits */
    uint64_t userProfilerTag; /**< shown by profilers; the top bit is reserved */
} ncclCollConfig_t;

/** Start value of every ncclCollConfig_t. */
#define NCCL_COLLCONFIG_INITIALIZER                       \
    {                                                     \
        sizeof(ncclCollConfig_t), /* size */              \
        NCCL_API_MAGIC,           /* magic */             \
        NCCL_VERSION_CODE,        /* version */           \
        NCCL_CONFIG_UNDEF_PTR,    /* ext */               \
        NCCL_CONFIG_UNDEF_INT,    /* minCTAs */           \
        NCCL_CONFIG_UNDEF_INT,    /* maxCTAs */           \
        NCCL_CONFIG_UNDEF_INT,    /* nvlsCTAs */          \
        NCCL_CONFIG_UNDEF_INT,    /* cgaClusterSize */    \
        NCCL_CONFIG_UNDEF_PTR,    /* algSelection */      \
        1,                        /* forceAlgSelection */ \
        NCCL_CONFIG_UNDEF_INT,    /* CTAPolicy */         \
        0                         /* userProfilerTag */   \
    }

/** What ncclGroupSimulateEnd() finds out. Begin with NCCL_SIM_INFO_INITIALIZER. */
typedef struct ncclSimInfo_v22200 {
    size_t size;          /**< set by the initializer */
    unsigned int magic;   /**< set by the initializer */
    unsigned int version; /**< set by the initializer */
    float estimatedTime;  /**< µs that the group would take; negative: unknown */
} ncclSimInfo_t;

/** Start value of every ncclSimInfo_t. */
#define NCCL_SIM_INFO_INITIALIZER                  \
    {                                              \
        sizeof(ncclSimInfo_t), /* size */          \
        0x74685283,            /* magic */         \
        NCCL_VERSION_CODE,     /* version */       \
        NCCL_UNDEF_FLOAT       /* estimatedTime */ \
    }

/* ------------------------------------------------------ library and errors */

/** The library's version as one number, NCCL_VERSION() of its parts. */
MOTET_DECLARE(ncclResult_t, ncclGetVersion, (int *version));

/** A fixed text for a code, never NULL; "unknown result code" for what is none. */
MOTET_DECLARE(const char *, ncclGetErrorString, (ncclResult_t result));

/**
 * The sentence of the latest failure: of @p comm, or of the whole process if it is NULL.
 * "" if nothing failed yet, never NULL. Valid until the calling thread asks again or
 * the communicator is gone.
 */
MOTET_DECLARE(const char *, ncclGetLastError, (ncclComm_t comm));

/** Read NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE again. Deprecated. */
MOTET_DECLARE(void, ncclResetDebugInit, (void));

/* ------------------------------------------------------------ communicators */

/**
 * Make an id for a new communicator. One rank makes it, all ranks get a copy. The
 * process that made it must live until all ranks have connected.
 */
MOTET_DECLARE(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId));

/**
 * Join a new communicator of @p nranks ranks as number @p rank (0 to nranks − 1, each
 * once). Waits for all ranks, at most MOTET_INIT_TIMEOUT_S; ranks of one thread need a
 * group. *comm becomes NULL on failure.
 */
MOTET_DECLARE(ncclResult_t, ncclCommInitRank,
        (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank));

/** ncclCommInitRank() with a configuration; NULL for all defaults. */
MOTET_DECLARE(ncclResult_t, ncclCommInitRankConfig,
        (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank,
                ncclConfig_t *config));

/**
 * ncclCommInitRankConfig() with @p nId ids (1 to nranks) that share the work of
 * bringing many ranks together; every rank passes the same array.
 */
MOTET_DECLARE(ncclResult_t, ncclCommInitRankScalable,
        (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                ncclConfig_t *config));

/**
 * Make all @p ndev ranks of a communicator in this process, from one thread.
 * @param comm array of ndev, filled in rank order
 * @param devlist device of each rank, each once; NULL for 0 to ndev − 1. CPU ranks
 *        take the numbers as labels.
 */
MOTET_DECLARE(ncclResult_t, ncclCommInitAll,
        (ncclComm_t * comm, int ndev, const int *devlist));

/**
 * Complete all work and tell the peers that no more comes: collective. NULL is fine, a
 * second call is ncclInvalidArgument. Only ncclCommDestroy() may follow.
 */
MOTET_DECLARE(ncclResult_t, ncclCommFinalize, (ncclComm_t comm));

/** Give a communicator back; finalizes it first if that was not done. NULL is fine. */
MOTET_DECLARE(ncclResult_t, ncclCommDestroy, (ncclComm_t comm));

/**
 * End whatever the communicator still does, on every thread, then give it back. Never
 * waits for a peer. NULL is fine.
 */
MOTET_DECLARE(ncclResult_t, ncclCommAbort, (ncclComm_t comm));

/**
 * End whatever the communicator still does and refuse further operations, but keep it
 * for ncclCommSplit(), ncclCommShrink(), ncclCommGrow(), ncclCommDestroy().
 * @param revokeFlags NCCL_REVOKE_DEFAULT
 */
MOTET_DECLARE(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags));

/**
 * Divide a communicator: ranks of the same @p color (at least 0, or
 * NCCL_SPLIT_NOCOLOR) form a new one, in the order of (key, old rank). All ranks call.
 * @param newcomm the new communicator, NULL for a rank without colour
 * @param config NULL inherits the parent's configuration
 */
MOTET_DECLARE(ncclResult_t, ncclCommSplit,
        (ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                ncclConfig_t *config));

/**
 * Make a communicator of the ranks that are not excluded; only those call.
 * @param excludeRanksList ranks to leave out; sorted in place
 * @param excludeRanksCount how many, at least 1
 * @param config NULL inherits the parent's configuration
 * @param shrinkFlags NCCL_SHRINK_DEFAULT, or NCCL_SHRINK_ABORT if ranks failed
 */
MOTET_DECLARE(ncclResult_t, ncclCommShrink,
        (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags));

/** Make the id with which new ranks join by ncclCommGrow(); one old rank calls. */
MOTET_DECLARE(ncclResult_t, ncclCommGetUniqueId,
        (ncclComm_t comm, ncclUniqueId *uniqueId));

/**
 * Make a larger communicator of old ranks and new ones; all call.
 * @param comm the old communicator; NULL on a new rank
 * @param nRanks size of the new one, more than the old one has
 * @param uniqueId of ncclCommGetUniqueId(); NULL on old ranks that did not make it
 * @param rank −1 on old ranks, which keep theirs; a free number on a new rank
 */
MOTET_DECLARE(ncclResult_t, ncclCommGrow,
        (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
                ncclComm_t *newcomm, ncclConfig_t *config));

/**
 * State of a communicator: ncclSuccess, ncclInProgress while a non-blocking call is
 * under way, or the failure that ended it. Never waits.
 */
MOTET_DECLARE(ncclResult_t, ncclCommGetAsyncError,
        (ncclComm_t comm, ncclResult_t *asyncError));

/** Number of ranks. */
MOTET_DECLARE(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int *count));

/** Ordinal of the device; on a CPU rank the label it was made with, 0 if none. */
MOTET_DECLARE(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int *device));

/** This rank's number. */
MOTET_DECLARE(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank));

/** Give device memory back until ncclCommResume(). Not supported: ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags));

/** Undo ncclCommSuspend(). Not supported: ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, ncclCommResume, (ncclComm_t comm));

/** What ncclCommMemStats() can say. */
typedef enum {
    ncclStatGpuMemSuspend = 0,   /**< bytes that ncclCommSuspend() would give back */
    ncclStatGpuMemSuspended = 1, /**< 1 while suspended */
    ncclStatGpuMemPersist = 2,   /**< bytes that stay */
    ncclStatGpuMemTotal = 3      /**< bytes in all */
} ncclCommMemStat_t;

/** Memory of a communicator, bytes; on a CPU rank its shared memory. */
MOTET_DECLARE(ncclResult_t, ncclCommMemStats,
        (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value));

/* ------------------------------------------------- memory and registration */

/** Memory that suits registration: page aligned, zeroed. Freed by ncclMemFree(). */
MOTET_DECLARE(ncclResult_t, ncclMemAlloc, (void **ptr, size_t size));

/** Free what ncclMemAlloc() gave; NULL is fine. */
MOTET_DECLARE(ncclResult_t, ncclMemFree, (void *ptr));

/** Announce a buffer of @p size bytes that many operations will use. Local to the rank. */
MOTET_DECLARE(ncclResult_t, ncclCommRegister,
        (const ncclComm_t comm, void *buff, size_t size, void **handle));

/** Undo ncclCommRegister(); a NULL handle is fine, an unknown one ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle));

/**
 * Register a buffer of @p size bytes together with all ranks: collective.
 * @param win the window; NULL, with ncclSuccess, where windows bring nothing
 * @param winFlags NCCL_WIN_* bits
 */
MOTET_DECLARE(ncclResult_t, ncclCommWindowRegister,
        (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags));

/** Undo ncclCommWindowRegister(); a NULL window is fine. */
MOTET_DECLARE(ncclResult_t, ncclCommWindowDeregister,
        (ncclComm_t comm, ncclWindow_t win));

/** The address that a window was registered with; NULL where windows bring nothing. */
MOTET_DECLARE(ncclResult_t, ncclWinGetUserPtr,
        (ncclComm_t comm, ncclWindow_t win, void **outUserPtr));

/* ------------------------------------------------------ reduction operators */

/**
 * Make an operator that multiplies rank r's elements by rank r's scalar, then sums.
 * @param op the operator, for this communicator and @p datatype only
 * @param scalar one element of @p datatype
 * @param residence when the scalar is read
 */
MOTET_DECLARE(ncclResult_t, ncclRedOpCreatePreMulSum,
        (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype,
                ncclScalarResidence_t residence, ncclComm_t comm));

/** Give an operator back, at the earliest once the last call that names it returned. */
MOTET_DECLARE(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* -------------------------------------------------------------- collectives */

/**
 * Reduce to @p root: its recvbuff gets the result of @p count elements.
 * In place if sendbuff == recvbuff. recvbuff is not used on other ranks.
 */
MOTET_DECLARE(ncclResult_t, ncclReduce,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                ncclRedOp_t op, int root, ncclComm_t comm, MOTET_STREAM_T stream));

/** ncclBroadcast(buff, buff, …). */
MOTET_DECLARE(ncclResult_t, ncclBcast,
        (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                MOTET_STREAM_T stream));

/**
 * Copy @p count elements from @p root's sendbuff to every rank's recvbuff, its own too.
 * In place if sendbuff == recvbuff. sendbuff is not used on other ranks.
 */
MOTET_DECLARE(ncclResult_t, ncclBroadcast,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                int root, ncclComm_t comm, MOTET_STREAM_T stream));

/**
 * Reduce @p count elements; every rank gets the same bits. In place if
 * sendbuff == recvbuff.
 */
MOTET_DECLARE(ncclResult_t, ncclAllReduce,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                ncclRedOp_t op, ncclComm_t comm, MOTET_STREAM_T stream));

/**
 * Reduce nranks · recvcount elements; rank r gets the r-th recvcount of the result.
 * In place if recvbuff is the r-th part of sendbuff.
 */
MOTET_DECLARE(ncclResult_t, ncclReduceScatter,
        (const void *sendbuff, void *recvbuff, size_t recvcount,
                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                MOTET_STREAM_T stream));

/**
 * Gather @p sendcount elements of each rank, in rank order, on every rank; recvbuff
 * holds nranks · sendcount. In place if sendbuff is the own part of recvbuff.
 */
MOTET_DECLARE(ncclResult_t, ncclAllGather,
        (const void *sendbuff, void *recvbuff, size_t sendcount,
                ncclDataType_t datatype, ncclComm_t comm, MOTET_STREAM_T stream));

/**
 * Each rank sends its r-th @p count elements to rank r and keeps what rank r sent in
 * its r-th place; both buffers hold nranks · count and must differ.
 */
MOTET_DECLARE(ncclResult_t, ncclAlltoAll,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                ncclComm_t comm, MOTET_STREAM_T stream));

/**
 * Gather @p count elements of each rank on @p root, whose recvbuff holds
 * nranks · count; other ranks' recvbuff is not used. In place if root's sendbuff is its
 * own part of recvbuff.
 */
MOTET_DECLARE(ncclResult_t, ncclGather,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                int root, ncclComm_t comm, MOTET_STREAM_T stream));

/**
 * Rank r gets the r-th @p count elements of @p root's sendbuff, which holds
 * nranks · count; other ranks' sendbuff is not used. In place if root's recvbuff is its
 * own part of sendbuff.
 */
MOTET_DECLARE(ncclResult_t, ncclScatter,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                int root, ncclComm_t comm, MOTET_STREAM_T stream));

/**
 * Send @p count elements to rank @p peer, which must receive as many bytes. To the own
 * rank only inside a group that receives too. A count of 0 is a message as well.
 */
MOTET_DECLARE(ncclResult_t, ncclSend,
        (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                ncclComm_t comm, MOTET_STREAM_T stream));

/** Receive what ncclSend() of rank @p peer sends; messages of a pair keep their order. */
MOTET_DECLARE(ncclResult_t, ncclRecv,
        (void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                ncclComm_t comm, MOTET_STREAM_T stream));

/* ------------------------------- collectives with options for a single call */

/** ncclAllReduce() with options; NULL for none. */
MOTET_DECLARE(ncclResult_t, ncclAllReduceConfig,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                ncclRedOp_t op, ncclComm_t comm, MOTET_STREAM_T stream,
                const ncclCollConfig_t *config));

/** ncclBroadcast() with options; NULL for none. */
MOTET_DECLARE(ncclResult_t, ncclBroadcastConfig,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                int root, ncclComm_t comm, MOTET_STREAM_T stream,
                const ncclCollConfig_t *config));

/** ncclReduce() with options; NULL for none. */
MOTET_DECLARE(ncclResult_t, ncclReduceConfig,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                ncclRedOp_t op, int root, ncclComm_t comm, MOTET_STREAM_T stream,
                const ncclCollConfig_t *config));

/** ncclAllGather() with options; NULL for none. */
MOTET_DECLARE(ncclResult_t, ncclAllGatherConfig,
        (const void *sendbuff, void *recvbuff, size_t sendcount,
                ncclDataType_t datatype, ncclComm_t comm, MOTET_STREAM_T stream,
                const ncclCollConfig_t *config));

/** ncclReduceScatter() with options; NULL for none. */
MOTET_DECLARE(ncclResult_t, ncclReduceScatterConfig,
        (const void *sendbuff, void *recvbuff, size_t recvcount,
                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                MOTET_STREAM_T stream, const ncclCollConfig_t *config));

/** ncclAlltoAll() with options; NULL for none. */
MOTET_DECLARE(ncclResult_t, ncclAlltoAllConfig,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                ncclComm_t comm, MOTET_STREAM_T stream,
                const ncclCollConfig_t *config));

/** ncclGather() with options; NULL for none. */
MOTET_DECLARE(ncclResult_t, ncclGatherConfig,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                int root, ncclComm_t comm, MOTET_STREAM_T stream,
                const ncclCollConfig_t *config));

/** ncclScatter() with options; NULL for none. */
MOTET_DECLARE(ncclResult_t, ncclScatterConfig,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                int root, ncclComm_t comm, MOTET_STREAM_T stream,
                const ncclCollConfig_t *config));

/* ------------------------------------------------------------------- groups */

/**
 * Open a group: calls that follow on this thread are collected and start together at
 * the matching ncclGroupEnd(). Groups nest; only the outermost end starts anything.
 */
MOTET_DECLARE(ncclResult_t, ncclGroupStart, (void));

/** Close a group and start what it collected; also reports what a call in it returned. */
MOTET_DECLARE(ncclResult_t, ncclGroupEnd, (void));

/** Close a group, start nothing, and say how long it would take; NULL is fine. */
MOTET_DECLARE(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo));

/* ------------------------------------------ one-sided messages (not supported) */

/** What to wait for: @p opCnt signals of rank @p peer. */
typedef struct {
    int opCnt;  /**< how many */
    int peer;   /**< whose */
    int sigIdx; /**< which of that rank's signals */
    int ctx;    /**< which context */
} ncclWaitSignalDesc_t;

/** Write into a peer's window, then signal. Not supported: ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, ncclPutSignal,
        (const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                unsigned int flags, ncclComm_t comm, MOTET_STREAM_T stream));

/** Signal a peer. Not supported: ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, ncclSignal,
        (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                MOTET_STREAM_T stream));

/** Wait for signals of peers. Not supported: ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, ncclWaitSignal,
        (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm,
                MOTET_STREAM_T stream));

/* --------------------------- NCCL's own parameters by name (not supported) */

/** A parameter of NCCL's. motet's are shown by `motet params`. */
typedef struct ncclParamHandle *ncclParamHandle_t;

/** Look a parameter up. Not supported: ncclInvalidUsage, as all of these. */
MOTET_DECLARE(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char *key));
/** A parameter as an int8_t. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetI8, (ncclParamHandle_t h, int8_t *out));
/** A parameter as an int16_t. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetI16, (ncclParamHandle_t h, int16_t *out));
/** A parameter as an int32_t. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetI32, (ncclParamHandle_t h, int32_t *out));
/** A parameter as an int64_t. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetI64, (ncclParamHandle_t h, int64_t *out));
/** A parameter as a uint8_t. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetU8, (ncclParamHandle_t h, uint8_t *out));
/** A parameter as a uint16_t. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetU16, (ncclParamHandle_t h, uint16_t *out));
/** A parameter as a uint32_t. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetU32, (ncclParamHandle_t h, uint32_t *out));
/** A parameter as a uint64_t. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetU64, (ncclParamHandle_t h, uint64_t *out));
/** A parameter as a string. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t h, const char **out));
/** A parameter's bytes, at most @p maxLen. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGet,
        (ncclParamHandle_t h, void *out, int maxLen, int *len));
/** A parameter as a string, by name. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetParameter,
        (const char *key, const char **value, int *valueLen));
/** The names of all parameters. Not supported. */
MOTET_DECLARE(ncclResult_t, ncclParamGetAllParameterKeys,
        (const char ***table, int *tableLen));
/** Log all parameters. Logs one line that says where motet's are. */
MOTET_DECLARE(void, ncclParamDumpAll, (void));

/* ------------------------------------------------------- RCCL's additions */

/** ncclAlltoAll() as RCCL first spelled it. */
MOTET_DECLARE(ncclResult_t, ncclAllToAll,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                ncclComm_t comm, MOTET_STREAM_T stream));

/**
 * All-to-all with a size for each pair: sendcounts[r] elements at sendbuff + sdispls[r]
 * go to rank r, recvcounts[r] elements of rank r go to recvbuff + rdispls[r]. Counts
 * and displacements are elements; each array has nranks entries, read before the call
 * returns. The buffers must differ.
 */
MOTET_DECLARE(ncclResult_t, ncclAllToAllv,
        (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
                void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
                ncclDataType_t datatype, ncclComm_t comm, MOTET_STREAM_T stream));

/** ncclAllToAllv() as RCCL spells it now. */
MOTET_DECLARE(ncclResult_t, ncclAlltoAllv,
        (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
                void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
                ncclDataType_t datatype, ncclComm_t comm, MOTET_STREAM_T stream));

/** ncclAllReduce(), then this rank's acc[i] is added to its result; acc is not NULL. */
MOTET_DECLARE(ncclResult_t, ncclAllReduceWithBias,
        (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                ncclRedOp_t op, ncclComm_t comm, MOTET_STREAM_T stream,
                const void *acc));

/** An algorithm that mscclLoadAlgo() would load. */
typedef int mscclAlgoHandle_t;

/** Load an algorithm file. Not supported: ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, mscclLoadAlgo,
        (const char *mscclAlgoFilePath, mscclAlgoHandle_t *mscclAlgoHandle, int rank));

/** Run a loaded algorithm. Not supported: ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, mscclRunAlgo,
        (const void *sendBuff, const size_t sendCounts[], const size_t sDisPls[],
                void *recvBuff, const size_t recvCounts[], const size_t rDisPls[],
                size_t count, ncclDataType_t dataType, int root, int peer,
                ncclRedOp_t op, mscclAlgoHandle_t mscclAlgoHandle, ncclComm_t comm,
                MOTET_STREAM_T stream));

/** Forget a loaded algorithm. Not supported: ncclInvalidUsage. */
MOTET_DECLARE(ncclResult_t, mscclUnloadAlgo, (mscclAlgoHandle_t mscclAlgoHandle));

/** What RCCL would run for a call. No twin. Not supported: ncclInvalidUsage. */
ncclResult_t rcclGetAlgoInfo(ncclComm_t comm, int coll, uint64_t count,
        ncclDataType_t dataType, int collNetSupport, int nvlsSupport, int numPipeOps,
        int *algo, int *protocol, int *maxChannels);

/** Same, from the very operands of a call. No twin. Not supported: ncclInvalidUsage. */
ncclResult_t rcclGetCollImplInfo(ncclComm_t comm, int coll, uint64_t count,
        ncclDataType_t dataType, ncclRedOp_t op, const void *sendbuff, void *recvbuff,
        int graphCapturing, int *algo, int *protocol, int *maxChannels);

/** Name of an algorithm of RCCL's. No twin. Not supported: ncclInvalidUsage. */
ncclResult_t rcclGetAlgoName(int algo, const char **name);

/** Name of a protocol of RCCL's. No twin. Not supported: ncclInvalidUsage. */
ncclResult_t rcclGetProtocolName(int protocol, const char **name);

#ifdef __cplusplus
}
#endif

#endif
