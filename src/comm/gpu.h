/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a communicator of ranks one of GPU ranks: see gpu.c. */
#ifndef MOTET_COMM_GPU_H
#define MOTET_COMM_GPU_H

#include "comm/comm.h"

/** The words of MOTET_PATH, in the order of param.def. */
enum {
    MOTET_PATH_WORD_AUTO,
    MOTET_PATH_WORD_SHARED,
    MOTET_PATH_WORD_DIRECT,
    MOTET_PATH_WORD_STAGED,
    MOTET_PATH_WORD_COPY
};

/** Where this communicator's ranks meet: "shared", "direct", "staged", "direct+staged" if
 *  pairs differ, or "copy". */
const char *motet_comm_path_name(const motet_comm *comm);

/**
 * The kernels, for @p gpu: once for each device and process, since a load is slow and a
 * module stays.
 * @param files MOTET_KERNEL_PATH's, before those that are built in
 */
MOTET_MUST_USE motet_result motet_comm_gpu_load(const motet_gpu_ops *ops,
        motet_gpu *gpu, const char *files, void **module_out);

/**
 * Once the ranks have met: agree on paths, map each other's arenas, prove them. Leaves
 * comm->gpu NULL where only copies are left.
 * @param process alike in the ranks of one process, and only there
 * @param thread that asked for the communicator, 0 unknown
 */
MOTET_MUST_USE motet_result motet_comm_gpu_start(motet_comm *comm,
        const motet_params *params, const motet_gpu_constants *forced, uint64_t process,
        int thread, uint64_t deadline_ns);

/** Run a batch on the copy path; returns when its results are there. */
motet_result motet_comm_bounce(motet_comm *comm, motet_batch *batch);

/** Enqueue a batch: nothing waits. */
motet_result motet_comm_gpu_enqueue(motet_comm *comm, motet_batch *batch);

/** motet_window_map() for GPU ranks. */
MOTET_MUST_USE motet_result motet_comm_gpu_window_map(motet_comm *comm, void *base,
        size_t bytes, uint32_t *number_out);
void motet_comm_gpu_window_unmap(motet_comm *comm, uint32_t number);

/** Refuse buffers that the communicator's device cannot use, or that are too short. */
MOTET_MUST_USE motet_result motet_comm_gpu_check_buffers(motet_comm *comm,
        const motet_op *op);

/** Wait until kernels have left, as long as the communicator has not failed. */
motet_result motet_comm_gpu_drain(motet_comm *comm);

/** Give up the engine; memory goes when nothing uses it any more. Idempotent. */
void motet_comm_gpu_release(motet_comm *comm);

#endif
