/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for HIP's header where there is none: what rccl.h may meet. */
#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_API_H
#define HIP_INCLUDE_HIP_HIP_RUNTIME_API_H
typedef struct ihipStream_t *hipStream_t;
#endif
