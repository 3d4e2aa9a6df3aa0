/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NCCL API, for programs in C (C99 and later) and C++. See motet/nccl_api.h for
 * the functions, and motet.h for what motet adds.
 *
 * CUDA's headers are not needed. Where the compiler finds them they are included,
 * since programs written for NCCL expect that; define MOTET_NO_CUDA_HEADERS to
 * leave them alone. Either way cudaStream_t is CUDA's own type.
 */
#ifndef NCCL_H_
#define NCCL_H_

#if !defined(MOTET_NO_CUDA_HEADERS) && defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#define MOTET_HAVE_CUDA_RUNTIME_H 1
#if defined(__cplusplus) && __has_include(<cuda_fp16.h>)
#include <cuda_fp16.h>
#endif
#if defined(__cplusplus) && __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
#endif
#endif

/* The second half of the test: CUDA's headers came first, by whatever path. Where they
 * come later they repeat this typedef, which C11 and C++ allow. */
#if !defined(MOTET_HAVE_CUDA_RUNTIME_H) && !defined(__DRIVER_TYPES_H__) && \
        !defined(CUDART_VERSION)
/** A stream; the pointer is all that this header knows of it. */
typedef struct CUstream_st *cudaStream_t;
#endif

/** The stream type of this process's programs; see motet/nccl_api.h. */
#define MOTET_STREAM_T cudaStream_t
#include "motet/nccl_api.h"

#endif
