/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are refused, that hang, and cards that stop; how cards differ. */
#include "hip.h"

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PENDING 64

/* ---- refusals ---- */

/* Streams on which something was refused that is not told yet. */
static struct {
    hipStream_t stream;
    int ordinal;
} pending[PENDING];
static size_t npending;

bool hip_refuses(const fake_function *function)
{
    return hip_set.refuse_all ||
            (function->hostcall &&
                    !hip_set.atomics[function->context->device->physical]);
}

/* As the real runtime logs it, at the level of errors. */
static void log_refusal(void)
{
    const char *level = getenv("AMD_LOG_LEVEL");

    if (level == NULL || strtol(level, NULL, 10) < 1)
        return;
    if (!hip_set.refuse_all)
        fprintf(stderr,
                ":1:rocvirtual.cpp           :3232: Pcie atomics not enabled, "
                "hostcall not supported\n");
    fprintf(stderr, ":1:rocvirtual.cpp           :3589: AQL dispatch failed!\n");
}

hipError_t hip_refuse(hipStream_t stream)
{
    log_refusal();
    if (hip_set.refusal == HIP_REFUSE_LAUNCH)
        return hip_end_own(hipErrorIllegalState);
    if (hip_set.refusal == HIP_REFUSE_LAST) {
        hip_leave_behind(hipErrorIllegalState);
        return hip_end_own(hipSuccess);
    }
    if (hip_set.refusal == HIP_REFUSE_NEVER)
        return hip_end_own(hipSuccess);
    pthread_mutex_lock(&fake_lock);
    if (npending < PENDING) {
        pending[npending].stream = stream;
        pending[npending++].ordinal = hip_ordinal();
    }
    pthread_mutex_unlock(&fake_lock);
    return hip_end_own(hipSuccess);
}

hipError_t hip_refused(hipStream_t stream, bool all)
{
    hipError_t error = hipSuccess;

    pthread_mutex_lock(&fake_lock);
    for (size_t i = npending; i-- > 0;) {
        bool mine = pending[i].ordinal == hip_ordinal();

        if (!(all ? mine
                  : pending[i].stream == stream && (mine || (uintptr_t)stream > 2)))
            continue;
        error = hipErrorIllegalState;
        pending[i] = pending[--npending];
    }
    pthread_mutex_unlock(&fake_lock);
    return error;
}

/* ---- kernels that hang ---- */

/* Arguments of other types begin with motet_gpu_args. */
#define CONTROL_OF(args_type)                                                \
    _Generic((args_type *)NULL,                                              \
            motet_gpu_small_args *: offsetof(motet_gpu_small_args, control), \
            motet_gpu_pairs_args *: offsetof(motet_gpu_pairs_args, control), \
            default: offsetof(motet_gpu_args, control))
#define KERNEL_ROW(name, args_type) { #name, CONTROL_OF(args_type) },
static const struct {
    const char *name;
    size_t control; /* where the pointer to its rank's control words lies              */
} ours[] = {
#include "kernels/gpu/kernels.def"
};
#undef KERNEL_ROW

static bool listed(const char *list, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && memcmp(at, name, length) == 0)
            return true;
    return false;
}

static void wait_for_ever(void)
{
    for (;;)
        pause();
}

/* Until the host tells the rank's kernels to leave; then the kernel may run, and leaves. */
static void wait_for_abort(const fake_work *work)
{
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
        motet_gpu_control *control;

        if (strcmp(ours[i].name, work->kernel.function->name) != 0)
            continue;
        memcpy(&control, (const char *)work->kernel.args + ours[i].control,
                sizeof(control));
        while (__atomic_load_n(&control->abort, __ATOMIC_ACQUIRE) == 0)
            usleep(500);
        return;
    }
    wait_for_ever();
}

/* ---- cards that stop ---- */

/* Counts the launch. Has the card of @p context stopped? */
static bool stopped(fake_context *context)
{
    static uint64_t launches[FAKE_DEVICES];
    unsigned physical = context->device->physical;
    bool stop;

    pthread_mutex_lock(&fake_lock);
    stop = (hip_set.stop_card == UINT64_MAX || hip_set.stop_card == physical) &&
            launches[physical]++ >= hip_set.stop_after;
    if (stop && !hip_set.stop_hangs)
        context->sticky = CUDA_ERROR_LAUNCH_FAILED;
    pthread_mutex_unlock(&fake_lock);
    return stop && hip_set.stop_hangs;
}

void hip_before_grid(const fake_work *work)
{
    if (stopped(work->context))
        wait_for_ever();
    if (listed(hip_set.hang, work->kernel.function->name))
        wait_for_abort(work);
}

/* gfx940 to 942 take 8-bit floats for FNUZ. */
void hip_before_block(const fake_work *work)
{
    const char *target = hip_target(work->context->device->physical);

    motet_gpu_host_fp8_fnuz = memcmp(target, "gfx94", 5) == 0;
}
