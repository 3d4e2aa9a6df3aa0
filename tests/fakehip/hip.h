/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the HIP face share. The core (../fakecuda/fake.h) does the work and
 * speaks the language of NVIDIA's driver; the face gives each thread a current device
 * where the core has contexts, and translates numbers.
 *
 * An entry point begins with hip_begin() and ends with hip_end(), which is also where the
 * thread's last error is kept.
 */
#ifndef FAKEHIP_HIP_H
#define FAKEHIP_HIP_H

#include "fakehip.h"
#include "../fakecuda/fake.h"

/* ---- settings.c ---- */

enum hip_refusal {
    HIP_REFUSE_LAUNCH,
    HIP_REFUSE_SYNC,
    HIP_REFUSE_LAST,
    HIP_REFUSE_NEVER
};
enum hip_ipc { HIP_IPC_ALL, HIP_IPC_NOGET, HIP_IPC_NOOPEN };

typedef struct hip_settings {
    char target[FAKE_DEVICES]
               [64]; /* by number of the machine                         */
    bool atomics[FAKE_DEVICES];
    char hang
            [256]; /* names of kernels, with commas                                    */
    unsigned
            major; /* of the runtime's version                                         */
    enum hip_refusal refusal;
    enum hip_ipc ipc;
    bool refuse_all, uuids, stop_hangs, fine_grained;
    uint64_t stop_after, stop_card, allocations;
} hip_settings;

extern hip_settings hip_set;

/** The runtime's version where nothing else was asked for; each library has its own. */
extern const unsigned hip_variant_major;

/** "gfx942:sramecc+:xnack-" */
const char *hip_target(unsigned physical);
/** "gfx1100" as {11, 0, 0}. */
void hip_target_numbers(const char *target, unsigned numbers[3]);

/* ---- error.c ---- */

/** The end of an entry point: @p code as HIP says it, which becomes the last error. */
hipError_t hip_end(CUresult code);
/** The same for a code that is HIP's own. */
hipError_t hip_end_own(hipError_t error);
/** An error that nothing returns but hipGetLastError(), until that was called. */
void hip_leave_behind(hipError_t error);

/* ---- device.c ---- */

/** The runtime is initialised and the thread's device current. */
CUresult hip_begin(void);
/** The number of the thread's device. */
int hip_ordinal(void);
/** hip_begin(), and @p stream is one. @retval CUDA_ERROR_CONTEXT_IS_DESTROYED it is not,
 *  which is what HIP says then. */
CUresult hip_begin_stream(hipStream_t stream);

static inline CUstream hip_stream(hipStream_t stream)
{
    return (CUstream)(void *)stream;
}

/* ---- image.c, kernels.c, launch.c, trouble.c ---- */

/** The face's reader of images. */
CUresult hip_image_read(const void *image, fake_module *module);
/** The face's own code: the kernels of `motet probe --gate-kernels`. */
fakecuda_kernel hip_kernel_find(const char *name, size_t *bytes_out);
/** Must the launch of @p function on the thread's device be refused? */
bool hip_refuses(const fake_function *function);
/** Refuse work of @p stream as the settings say. @return what the call returns */
hipError_t hip_refuse(hipStream_t stream);
/** What was refused on @p stream and is to be told at its next synchronisation: 0 or the
 *  error, which is told once. @p all: of all streams of the thread's device. */
hipError_t hip_refused(hipStream_t stream, bool all);
/** The face's before_grid: kernels that hang, and cards that stop. */
void hip_before_grid(const struct fake_work *work);
/** The face's before_block: what differs between cards. */
void hip_before_block(const struct fake_work *work);

#endif
