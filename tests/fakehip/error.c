/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sentences of errors, and the last one of each thread. */
#include "hip.h"

#define ROW(code, text) { code, #code, text }

static const struct row {
    hipError_t code;
    const char *name, *text;
} rows[] = {
    ROW(hipSuccess, "no error"),
    ROW(hipErrorInvalidValue, "invalid argument"),
    ROW(hipErrorOutOfMemory, "out of memory"),
    ROW(hipErrorNotInitialized, "initialization error"),
    ROW(hipErrorDeinitialized, "driver shutting down"),
    ROW(hipErrorInvalidDevicePointer, "invalid device pointer"),
    ROW(hipErrorInsufficientDriver,
            "driver version is insufficient for runtime version"),
    ROW(hipErrorInvalidDeviceFunction, "invalid device function"),
    ROW(hipErrorNoDevice, "no ROCm-capable device is detected"),
    ROW(hipErrorInvalidDevice, "invalid device ordinal"),
    ROW(hipErrorInvalidImage, "device kernel image is invalid"),
    ROW(hipErrorInvalidContext, "invalid device context"),
    ROW(hipErrorMapFailed, "mapping of buffer object failed"),
    ROW(hipErrorNoBinaryForGpu,
            "no kernel image is available for execution on the device"),
    ROW(hipErrorECCNotCorrectable, "uncorrectable ECC error encountered"),
    ROW(hipErrorPeerAccessUnsupported,
            "peer access is not supported between these two devices"),
    ROW(hipErrorInvalidKernelFile, "invalid kernel file"),
    ROW(hipErrorSharedObjectInitFailed, "shared object initialization failed"),
    ROW(hipErrorOperatingSystem,
            "OS call failed or operation not supported on this OS"),
    ROW(hipErrorInvalidHandle, "invalid resource handle"),
    ROW(hipErrorIllegalState, "the operation cannot be performed in the present state"),
    ROW(hipErrorNotFound, "named symbol not found"),
    ROW(hipErrorNotReady, "device not ready"),
    ROW(hipErrorIllegalAddress, "an illegal memory access was encountered"),
    ROW(hipErrorLaunchOutOfResources, "too many resources requested for launch"),
    ROW(hipErrorLaunchTimeOut, "the launch timed out and was terminated"),
    ROW(hipErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ROW(hipErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ROW(hipErrorContextIsDestroyed, "context is destroyed"),
    ROW(hipErrorAssert, "device-side assert triggered"),
    ROW(hipErrorHostMemoryAlreadyRegistered,
            "part or all of the requested memory range is already mapped"),
    ROW(hipErrorHostMemoryNotRegistered,
            "pointer does not correspond to a registered memory region"),
    ROW(hipErrorLaunchFailure, "unspecified launch failure"),
    ROW(hipErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    ROW(hipErrorNotSupported, "operation not supported"),
    ROW(hipErrorStreamCaptureUnsupported,
            "operation not permitted when stream is capturing"),
    ROW(hipErrorStreamCaptureInvalidated,
            "operation failed due to a previous error during capture"),
    ROW(hipErrorStreamCaptureMerge,
            "operation would result in a merge of separate capture sequences"),
    ROW(hipErrorStreamCaptureUnmatched,
            "capture was not ended in the same stream as it began"),
    ROW(hipErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ROW(hipErrorStreamCaptureIsolation,
            "dependency created on uncaptured work in another stream"),
    ROW(hipErrorStreamCaptureImplicit,
            "operation would make the legacy stream depend on a capturing blocking "
            "stream"),
    ROW(hipErrorCapturedEvent,
            "operation not permitted on an event last recorded in a capturing stream"),
    ROW(hipErrorStreamCaptureWrongThread,
            "attempt to terminate a thread-local capture sequence from another thread"),
    ROW(hipErrorUnknown, "unknown error"),
    ROW(hipErrorRuntimeMemory, "runtime memory call returned error"),
    ROW(hipErrorRuntimeOther, "runtime call other than memory returned error"),
};

/* Codes that the core has and HIP has not; all others are the same numbers. */
static const struct {
    CUresult core;
    hipError_t hip;
} others[] = {
    { CUDA_ERROR_NOT_PERMITTED, hipErrorNotSupported },
    { CUDA_ERROR_DEVICE_UNAVAILABLE, hipErrorInvalidDevice },
    { CUDA_ERROR_ALREADY_MAPPED, hipErrorMapFailed },
};

static _Thread_local hipError_t last, behind;

/* Up to ROCm 6 every call sets the last error, also one that goes well. */
hipError_t hip_end_own(hipError_t error)
{
    if (hip_set.major < 7 || (error != hipSuccess && error != hipErrorNotReady))
        last = error;
    return error;
}

hipError_t hip_end(CUresult code)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (others[i].core == code)
            return hip_end_own(others[i].hip);
    return hip_end_own((hipError_t)code);
}

void hip_leave_behind(hipError_t error)
{
    behind = error;
}

hipError_t hipPeekAtLastError(void)
{
    return behind != hipSuccess ? behind : last;
}

hipError_t hipGetLastError(void)
{
    hipError_t error = hipPeekAtLastError();

    last = behind = hipSuccess;
    return error;
}

static const struct row *row_of(hipError_t code)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].code == code)
            return &rows[i];
    return row_of(hipErrorUnknown);
}

const char *hipGetErrorName(hipError_t code)
{
    return row_of(code)->name;
}

const char *hipGetErrorString(hipError_t code)
{
    return row_of(code)->text;
}
