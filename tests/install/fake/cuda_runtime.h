/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for CUDA's header where there is none: what nccl.h may meet. */
#ifndef __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_H__
#define __DRIVER_TYPES_H__
#define CUDART_VERSION 12040
typedef struct CUstream_st *cudaStream_t;
#endif
