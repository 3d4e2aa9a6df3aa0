/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RCCL API, for programs in C (C99 and later) and C++: NCCL's with hipStream_t and
 * RCCL's additions. See motet/nccl_api.h for the functions.
 *
 * HIP's headers are not needed. Where the compiler finds them and a HIP platform is
 * chosen (hipcc does) they are included, since programs written for RCCL expect that;
 * define MOTET_NO_HIP_HEADERS to leave them alone.
 *
 * The guard is the one of nccl.h, as in RCCL: a program uses one of the two.
 */
#ifndef NCCL_H_
#define NCCL_H_

#if !defined(MOTET_NO_HIP_HEADERS) && defined(__has_include) && \
        (defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_NVIDIA__))
#if __has_include(<hip/hip_runtime_api.h>)
#define MOTET_HAVE_HIP_RUNTIME_H 1
#ifdef __cplusplus
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#else
#include <hip/hip_runtime_api.h>
#endif
#endif
#endif

/* The second half of the test: HIP's headers came first, by whatever path. */
#if !defined(MOTET_HAVE_HIP_RUNTIME_H) && !defined(HIP_INCLUDE_HIP_HIP_RUNTIME_API_H)
/** A stream; the pointer is all that this header knows of it. */
typedef struct ihipStream_t *hipStream_t;
#endif

/** Types and operations that RCCL had before NCCL; programs test for them. */
#define RCCL_BFLOAT16            1 /**< ncclBfloat16 */
#define RCCL_FLOAT8              1 /**< ncclFloat8e4m3 and ncclFloat8e5m2 */
#define RCCL_GATHER_SCATTER      1 /**< ncclGather() and ncclScatter() */
#define RCCL_ALLTOALLV           1 /**< ncclAllToAllv() */
#define RCCL_ALLREDUCE_WITH_BIAS 1 /**< ncclAllReduceWithBias() */
#define RCCL_SUSPEND_RESUME      1 /**< ncclCommSuspend() and so on are declared */

/** ncclFloat8e4m3 as older versions of RCCL spell it. */
#define ncclFp8E4M3 ncclFloat8e4m3
/** ncclFloat8e5m2 as older versions of RCCL spell it. */
#define ncclFp8E5M2 ncclFloat8e5m2

/** The stream type of this process's programs; see motet/nccl_api.h. */
#define MOTET_STREAM_T hipStream_t
#include "../motet/nccl_api.h"

#ifdef __cplusplus
#include <string>
#include <unordered_map>

/** State of a communicator for flight recorders: motet keeps its own, the map is left alone. */
ncclResult_t ncclCommDump(ncclComm_t comm,
        std::unordered_map<std::string, std::string> &map);
#endif

#endif
