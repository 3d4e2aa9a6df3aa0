/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that an instruction emulator stands in for: its memory is this process's, each
 * allocation a file of its own that other processes may map, and a launch is a call back
 * to whoever runs the kernel. Everything happens at once and in order, so that streams
 * and events have nothing to do, also in what says that it is a capture.
 */
#ifndef MOTET_EMULATE_DEVICE_H
#define MOTET_EMULATE_DEVICE_H

#include "device/gpu.h"

#include <stdbool.h>

/** Run all blocks of @p kernel to their end. @return 0, or not 0 if it could not. */
typedef int emulate_launch(const char *kernel, uint32_t blocks, uint32_t threads,
        const void *args, size_t bytes);

/** Allocations of a device. */
#define EMULATE_ALLOCATIONS 16

typedef struct emulate_allocation {
    void *map;
    size_t bytes;
    int fd;
} emulate_allocation;

struct motet_gpu {
    emulate_launch *launch;
    /* streams say that they are being captured */
    bool captured;
    emulate_allocation allocation[EMULATE_ALLOCATIONS];
};

extern const motet_gpu_ops emulate_ops;

#endif
