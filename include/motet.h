/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What motet adds to the NCCL API: a choice of device, streams for CPU ranks, time
 * limits, and questions about communicators and devices. The rules at the head of
 * motet/nccl_api.h hold here too. These functions are in libmotet only; the drop-ins
 * libnccl.so.2 and librccl.so.1 do not export them.
 *
 * Works on top of nccl.h, or of rccl/rccl.h where that was included first.
 */
#ifndef MOTET_H
#define MOTET_H

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ devices */

/** A kind of device. */
typedef enum motet_device {
    MOTET_DEVICE_AUTO = 0, /**< what MOTET_DEVICE and the machine's state give */
    MOTET_DEVICE_CPU = 1,
    MOTET_DEVICE_GPU = 2
} motet_device;

/** A device, as motet_device_query() describes it. Begin with the initializer. */
typedef struct motet_device_info_t {
    size_t size;           /**< set by the initializer */
    motet_device device;   /**< its kind */
    int ordinal;           /**< its number among its kind */
    int count;             /**< how many of its kind; INT_MAX: numbers are labels */
    char name[64];         /**< what people call it */
    char identity[64];     /**< what tells it from others on this host */
    uint64_t memory_bytes; /**< its memory */
} motet_device_info_t;

/** Start value of every motet_device_info_t. */
#define MOTET_DEVICE_INFO_INITIALIZER \
    { sizeof(motet_device_info_t), MOTET_DEVICE_AUTO, 0, 0, { 0 }, { 0 }, 0 }

/**
 * Describe device @p ordinal of a kind; MOTET_DEVICE_AUTO asks for the kind that a
 * communicator made now would get.
 * @param info its `size` says how much of it the caller knows; the rest is not written
 * @retval ncclUnhandledCudaError there is no device of this kind
 * @retval ncclInvalidArgument no such ordinal, or @p info is NULL or has no size
 */
ncclResult_t motet_device_query(motet_device device, int ordinal,
        motet_device_info_t *info);

/* ------------------------------------------------------------ communicators */

/**
 * ncclCommInitRankConfig() with the kind of device said by the caller, so that one
 * process can have communicators of CPU and of GPU ranks. All ranks of a communicator
 * must be of one kind.
 * @param config NULL for all defaults
 * @param timeout_s how long to wait for all ranks, seconds; 0 takes MOTET_INIT_TIMEOUT_S.
 *        What is made from the communicator waits as long.
 */
ncclResult_t motet_comm_init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id,
        int rank, motet_device device, ncclConfig_t *config, unsigned int timeout_s);

/**
 * How long operations of this communicator that are issued from now on wait for their
 * peers, seconds, before the communicator fails; 0 is no limit. The start value is
 * MOTET_OP_TIMEOUT_S. May differ between ranks: the shortest is felt by all.
 */
ncclResult_t motet_comm_set_timeout(ncclComm_t comm, unsigned int seconds);

/** A communicator, as motet_comm_query() describes it. Begin with the initializer. */
typedef struct motet_comm_info_t {
    size_t size;               /**< set by the initializer */
    int rank;                  /**< this rank's number */
    int nranks;                /**< how many ranks */
    int nodes;                 /**< on how many nodes */
    motet_device device;       /**< kind of device of all ranks */
    int ordinal;               /**< this rank's device */
    char path[16];             /**< how the ranks' memory meets: "shared" … */
    char version[32];          /**< version of the library */
    unsigned long long number; /**< the communicator's number in reports */
    uint64_t operations;       /**< how many operations this rank has begun */
    char recorder[256];        /**< file of the flight recorder, "" if there is none */
} motet_comm_info_t;

/** Start value of every motet_comm_info_t. */
#define MOTET_COMM_INFO_INITIALIZER                                                 \
    { sizeof(motet_comm_info_t), 0, 0, 0, MOTET_DEVICE_AUTO, 0, { 0 }, { 0 }, 0, 0, \
        { 0 } }

/**
 * Describe a communicator. Waits for nothing, and works on one that has failed.
 * @param info its `size` says how much of it the caller knows; the rest is not written
 */
ncclResult_t motet_comm_query(ncclComm_t comm, motet_comm_info_t *info);

/**
 * What a call on this communicator would run as, and why, in lines "name: value": the
 * path, the algorithm or protocol, into what it is cut, and which figure or setting
 * decided. Nothing runs. For people: lines may change from version to version.
 * @param operation "all_reduce", "all_gather", "send" … or as motet bench spells it
 * @param count     as the call gets it, of one rank's smaller buffer
 * @param op        of what reduces; others ignore it
 * @param text      gets as much as there is room for, always terminated
 * @param bytes     of @p text, 1 at least
 * @retval ncclInvalidArgument no such operation or type, or no room
 */
ncclResult_t motet_explain(ncclComm_t comm, const char *operation, size_t count,
        ncclDataType_t datatype, ncclRedOp_t op, char *text, size_t bytes);

/** Vendor id of motet's options in the list `ext` of an ncclCollConfig_t. */
#define MOTET_EXT_VENDOR 0x6d6f74
/** Option: val.i is the time limit of this call, ms; 0 for none. */
#define MOTET_EXT_TIMEOUT_MS 1

/* -------------------------------------------------- streams of CPU ranks */

/**
 * Make a stream: a thread that runs what it is given, in order. Operations on it
 * return at once. Not a CUDA stream: only motet's CPU ranks take it.
 */
ncclResult_t motet_stream_create(MOTET_STREAM_T *stream);

/** Wait for the stream's work, then end it. NULL is ncclInvalidArgument. */
ncclResult_t motet_stream_destroy(MOTET_STREAM_T stream);

/** Wait until all work given so far has run; reports its first failure, once. */
ncclResult_t motet_stream_synchronize(MOTET_STREAM_T stream);

/** ncclSuccess if the stream is idle, ncclInProgress while it is busy. Never waits. */
ncclResult_t motet_stream_query(MOTET_STREAM_T stream);

/** What is given to @p stream from now on waits for what @p other was given before. */
ncclResult_t motet_stream_wait(MOTET_STREAM_T stream, MOTET_STREAM_T other);

/**
 * Run fn(arg) on the stream, in its turn. It must not call a motet function on the
 * same stream that waits.
 */
ncclResult_t motet_stream_launch(MOTET_STREAM_T stream, void (*fn)(void *arg),
        void *arg);

/* ------------------------------------------------------- finding a library */

/** What motet_lib_open() found. Begin with the initializer. */
typedef struct motet_lib_info_t {
    size_t size;           /**< set by the initializer */
    void *handle;          /**< for dlsym(), the caller's to dlclose(); NULL: none */
    int version;           /**< what its ncclGetVersion() says, 0 if it does not */
    char path[1024];       /**< of the file, "" if there is none */
    char sentence[1024];   /**< which and why, or why none and the way out */
    char candidates[8192]; /**< every copy with its answer, a line each; may be cut */
} motet_lib_info_t;

/** Start value of every motet_lib_info_t. */
#define MOTET_LIB_INFO_INITIALIZER \
    { sizeof(motet_lib_info_t), 0, 0, { 0 }, { 0 }, { 0 } }

/**
 * Find and open the RCCL or NCCL of this machine, by the rules of docs/find.md, for a
 * program that must also run where there is none. That none is there, or that the one
 * that decides cannot be used, is an answer, not an error: the handle is then NULL.
 * Constructors of what is opened run in this process.
 * @param library "rccl" or "nccl"
 * @param client  who asks, for variables of its own ("hipfire": HIPFIRE_RCCL_LIB), as
 *                `motet lib --for` spells it; NULL: nobody in particular
 * @param info    its `size` says how much of it the caller knows; the rest is not written
 * @retval ncclInvalidArgument no such library or client, or @p info is NULL or has no size
 */
ncclResult_t motet_lib_open(const char *library, const char *client,
        motet_lib_info_t *info);

/* ------------------------------------------------------------------ library */

/** Version of the library, "0.1.0"; fixed, never NULL. */
const char *motet_version(void);

#ifdef __cplusplus
}
#endif

#endif
