/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels built for the host: each block is a thread of the caller's. */
#ifndef MOTET_KERNELS_GPU_HOST_H
#define MOTET_KERNELS_GPU_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Run one block of a kernel to its end. Blocks of one grid must run at the same time.
 * @param args   the kernel's arguments, its own struct; addresses are the host's
 * @param block  of this call, < @p blocks
 */
typedef void (*motet_gpu_host_fn)(const void *args, uint32_t block, uint32_t blocks);

typedef struct motet_gpu_host_kernel {
    const char *name;
    motet_gpu_host_fn run;
    size_t args_bytes;
} motet_gpu_host_kernel;

/**
 * Whether kernels that this thread runs take fp8 for FNUZ, as a card does for which
 * motet_target_fp8_fnuz() (kernels/images.h) is true. False in a new thread.
 */
extern _Thread_local bool motet_gpu_host_fp8_fnuz;

/** All kernels, ended by a NULL name. */
extern const motet_gpu_host_kernel motet_gpu_host_kernels[];

/** The kernel called @p name, or NULL. */
const motet_gpu_host_kernel *motet_gpu_host_find(const char *name);

#endif
