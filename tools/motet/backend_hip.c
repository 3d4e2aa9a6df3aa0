/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What AMD's runtime has of its own: see backend_gpu.h. The library finds it, so that a process never holds
 * two.
 */
#include "backend_gpu.h"

#include "device/hip.h"
#include "find/find.h"

#include <dlfcn.h>
#include <stdio.h>

static struct {
    const char *(*hipGetErrorName)(hipError_t error);
    const char *(*hipGetErrorString)(hipError_t error);
    hipError_t (*hipSetDevice)(int ordinal);
    hipError_t (*hipGetLastError)(void);
    hipError_t (*hipMemcpyAsync)(void *to, const void *from, size_t bytes,
            hipMemcpyKind kind, hipStream_t stream);
    /* One of the two: the properties before and since ROCm 6. */
    hipError_t (*hipGetDeviceProperties)(void *properties, int ordinal);
    hipError_t (*hipGetDevicePropertiesR0600)(void *properties, int ordinal);
} hip;

/* The library says at length what is wrong, and maps the one that it uses. */
static const char *hip_open(void **handle_out)
{
    static motet_find_report report; /* large, and a process opens one runtime */
    const motet_find_request request = { .library = &motet_find_hip };

    *handle_out = NULL;
    if (motet_hip_look() != MOTET_GPU_USABLE)
        return gpu_sentence("%s", motet_error_trail());
    if (!motet_find_open(&request, &report))
        return gpu_sentence("open the runtime: %s", report.sentence);
    *handle_out = report.handle;
    return NULL;
}

static const char *hip_take(void *handle)
{
    const char *bad = gpu_take(handle, "hipGetErrorName", &hip.hipGetErrorName);

    if (bad == NULL)
        bad = gpu_take(handle, "hipGetErrorString", &hip.hipGetErrorString);
    if (bad == NULL)
        bad = gpu_take(handle, "hipSetDevice", &hip.hipSetDevice);
    if (bad == NULL)
        bad = gpu_take(handle, "hipGetLastError", &hip.hipGetLastError);
    if (bad == NULL)
        bad = gpu_take(handle, "hipMemcpyAsync", &hip.hipMemcpyAsync);
    *(void **)(&hip.hipGetDevicePropertiesR0600) =
            dlsym(handle, "hipGetDevicePropertiesR0600");
    *(void **)(&hip.hipGetDeviceProperties) = dlsym(handle, "hipGetDeviceProperties");
    return bad;
}

static const char *hip_error(int code, const char **text_out)
{
    *text_out = hip.hipGetErrorString((hipError_t)code);
    return hip.hipGetErrorName((hipError_t)code);
}

static const char *hip_bind(int ordinal)
{
    return gpu_said("hipSetDevice", (int)hip.hipSetDevice(ordinal));
}

/* Two answers of theirs that are no failure stay behind as errors, too. */
static const char *hip_last_error(void)
{
    hipError_t error = hip.hipGetLastError();

    if (error == hipErrorNotReady || error == hipErrorPeerAccessAlreadyEnabled)
        return NULL;
    return gpu_said("hipGetLastError", (int)error);
}

/* 60241133 is 6.2.41133. */
static void hip_version(int number, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "HIP %d.%d.%d", number / 10000000, number / 100000 % 100,
            number % 100000);
}

static const char *hip_device(int ordinal, int *device_out)
{
    *device_out = ordinal;
    return NULL;
}

/* The place on the bus, which is there already, is the identity. */
static const char *hip_describe(int device, struct backend_device *out)
{
    /* Larger than the runtime's own, which grows at its end. */
    char properties[2 * HIP_PROP_R0600_BYTES] = { 0 };
    size_t offset = HIP_PROP_R0600_ARCH;
    hipError_t (*ask)(void *, int) = hip.hipGetDevicePropertiesR0600;
    const char *bad;

    if (ask == NULL) {
        ask = hip.hipGetDeviceProperties;
        offset = HIP_PROP_R0000_ARCH;
    }
    if (ask == NULL)
        return NULL;
    bad = gpu_said("hipGetDeviceProperties", (int)ask(properties, device));
    if (bad == NULL)
        (void)motet_hip_find_target(properties, sizeof(properties), offset, out->target,
                sizeof(out->target));
    return bad;
}

static const char *hip_copy(void *to, const void *from, size_t bytes, void *stream)
{
    return gpu_said("hipMemcpyAsync",
            (int)hip.hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, stream));
}

const struct gpu_vendor gpu_vendor_hip = {
    .column = GPU_HIP,
    .since = "ROCm 5.0",
    .open = hip_open,
    .take = hip_take,
    .error = hip_error,
    .bind = hip_bind,
    .version = hip_version,
    .device = hip_device,
    .describe = hip_describe,
    .last_error = hip_last_error,
    .copy = hip_copy,
};
