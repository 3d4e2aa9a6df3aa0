/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kind of device must provide. One const table for each kind; motet_devices[]
 * lists them, best first. Slots are never NULL, but for `gpu`.
 */
#ifndef MOTET_DEVICE_DEVICE_H
#define MOTET_DEVICE_DEVICE_H

#include "base/error.h"
#include "base/param.h"
#include "device/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum motet_device_kind {
    MOTET_DEVICE_KIND_CPU,
    MOTET_DEVICE_KIND_CUDA,
    MOTET_DEVICE_KIND_HIP,
    MOTET_DEVICE_NUM_KINDS
} motet_device_kind;

/** What a caller may ask for. */
typedef enum motet_device_choice {
    MOTET_CHOOSE_AUTO,
    MOTET_CHOOSE_CPU,
    MOTET_CHOOSE_GPU,
    MOTET_CHOOSE_CUDA,
    MOTET_CHOOSE_HIP
} motet_device_choice;

typedef struct motet_device_info {
    char name[64];     /* "Intel(R) Xeon(R) Processor"           */
    char identity[64]; /* what tells it from others on this host */
    uint64_t memory_bytes;
} motet_device_info;

typedef struct motet_device_ops {
    const char *name; /* "cpu" */
    motet_device_kind kind;
    /** What GPUs do beyond this table; NULL for the CPU. */
    const motet_gpu_ops *gpu;

    /** How many ordinals a communicator may name; INT_MAX where they are only labels. */
    motet_result (*count)(int *count_out);
    motet_result (*describe)(int ordinal, motet_device_info *info_out);

    /**
     * Memory that suits registration: page aligned, zeroed; a GPU's on the device of the
     * caller's current context. Size 0 is an argument error.
     */
    motet_result (*alloc)(size_t bytes, void **ptr_out);
    /** NULL is fine; a pointer that alloc() did not return is an argument error. */
    motet_result (*free)(void *ptr);

    /**
     * The segment behind @p bytes at @p ptr, for other processes to map.
     * @param fd_out a duplicate, CLOEXEC, or −1 if the memory cannot be handed on
     * @param offset_out where @p ptr lies in it; @p bytes_out how large it is
     * Shared memory keeps its place, also when it is freed, until unshare() was called
     * as often as share() gave a descriptor. A GPU's memory has no segment (−1): see
     * motet_gpu_ops.export_memory.
     */
    motet_result (*share)(const void *ptr, size_t bytes, int *fd_out,
            size_t *offset_out, size_t *bytes_out);

    void (*unshare)(const void *ptr);

    /** Refuse, with a sentence, a stream handle that this kind cannot use. */
    motet_result (*stream_check)(const void *stream);
    /** True for a handle that means "return when the result is there". */
    bool (*stream_blocks)(const void *stream);
} motet_device_ops;

extern const motet_device_ops motet_device_cpu;
extern const motet_device_ops motet_device_cuda;
extern const motet_device_ops motet_device_hip;

/** The table of NVIDIA's driver API: motet_device_cuda.gpu. */
extern const motet_gpu_ops motet_gpu_cuda;
/** The table of AMD's runtime API: motet_device_hip.gpu. */
extern const motet_gpu_ops motet_gpu_hip;

/** All kinds, best first, ended by NULL. */
extern const motet_device_ops *const motet_devices[];

/**
 * The device kind that @p choice, MOTET_DEVICE and this process's surroundings give. The
 * automatic choice is a GPU wherever a driver shows one: the kind whose runtime the process
 * has mapped, else the first that the library's flavour lists (motet_conf_gpus).
 * @retval MOTET_ERR_DEVICE a GPU was asked for or expected (a driver is mapped, or a
 *         *_VISIBLE_DEVICES is set) and none can be used; the sentence names the sign.
 */
MOTET_MUST_USE motet_result motet_device_choose(const motet_params *params,
        motet_device_choice choice, const motet_device_ops **ops_out);

/** The choice that falls on @p kind again: for a communicator made from another. */
motet_device_choice motet_device_choice_of(motet_device_kind kind);

/** motet_device_choose() with the environment as it is now. */
MOTET_MUST_USE motet_result motet_device_choose_now(motet_device_choice choice,
        const motet_device_ops **ops_out);

#endif
