/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sentences of result codes. */
#include "fake.h"

#define ROW(code, text) { code, #code, text }

static const struct row {
    CUresult code;
    const char *name, *text;
} rows[] = {
    ROW(CUDA_SUCCESS, "no error"),
    ROW(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ROW(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ROW(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ROW(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is busy or unavailable"),
    ROW(CUDA_ERROR_NO_DEVICE, "no device was found"),
    ROW(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ROW(CUDA_ERROR_INVALID_IMAGE, "the device image is invalid"),
    ROW(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ROW(CUDA_ERROR_MAP_FAILED, "the mapping failed"),
    ROW(CUDA_ERROR_ALREADY_MAPPED, "the resource is already mapped"),
    ROW(CUDA_ERROR_NO_BINARY_FOR_GPU, "no image fits this device"),
    ROW(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "the devices have no peer access"),
    ROW(CUDA_ERROR_INVALID_PTX, "the PTX could not be compiled"),
    ROW(CUDA_ERROR_OPERATING_SYSTEM, "a system call failed"),
    ROW(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ROW(CUDA_ERROR_NOT_FOUND, "the named symbol was not found"),
    ROW(CUDA_ERROR_NOT_READY, "the device is not ready"),
    ROW(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ROW(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources were asked for"),
    ROW(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ROW(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is destroyed"),
    ROW(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the memory is already registered"),
    ROW(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the memory is not registered"),
    ROW(CUDA_ERROR_LAUNCH_FAILED, "the launch failed"),
    ROW(CUDA_ERROR_NOT_PERMITTED, "the operation is not permitted"),
    ROW(CUDA_ERROR_NOT_SUPPORTED, "the operation is not supported"),
    ROW(CUDA_ERROR_SYSTEM_NOT_READY, "the system is not ready"),
    ROW(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "library and kernel module do not match"),
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted during a capture"),
    ROW(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture failed earlier"),
    ROW(CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures would become one"),
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began in another stream"),
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "forked work was not joined"),
    ROW(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
            "captured work would depend on other work"),
    ROW(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            "the legacy stream would depend on a captured stream"),
    ROW(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture"),
    ROW(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture"),
    ROW(CUDA_ERROR_UNKNOWN, "unknown error"),
};

static const struct row *row_of(CUresult code)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].code == code)
            return &rows[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult code, const char **name)
{
    const struct row *row = row_of(code);

    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = row != NULL ? row->name : NULL;
    return row != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
    const struct row *row = row_of(code);

    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = row != NULL ? row->text : NULL;
    return row != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
