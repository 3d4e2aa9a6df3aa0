/* SPDX-License-Identifier: Apache-2.0 */
/* How the memory of two GPU ranks meets: one table. Both directions of a pair take one
 * path; the lower down, the slower. */
#ifndef MOTET_TRANSPORT_GPU_PATH_H
#define MOTET_TRANSPORT_GPU_PATH_H

typedef enum motet_gpu_path {
    MOTET_GPU_PATH_NONE,
    MOTET_GPU_PATH_DIRECT, /* in device memory, which the peers have mapped        */
    MOTET_GPU_PATH_STAGED, /* in host memory, which every device has mapped        */
    MOTET_GPU_PATH_COPY,   /* nowhere: the runtime copies, the host executor works;
                              of all pairs of a communicator or of none            */
    MOTET_GPU_NUM_PATHS
} motet_gpu_path;

extern const char *const motet_gpu_path_names[MOTET_GPU_NUM_PATHS];

#endif
