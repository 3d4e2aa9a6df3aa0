/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVIDIA's driver has of its own: see backend_gpu.h. Each device's primary context
 * is used, the one that CUDA programs share; it is kept until the process ends.
 */
#include "backend_gpu.h"

#include "device/cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define DRIVER "libcuda.so.1"

static struct {
    CUresult (*cuGetErrorName)(CUresult error, const char **name);
    CUresult (*cuGetErrorString)(CUresult error, const char **text);
    CUresult (*cuDeviceGet)(CUdevice *device, int ordinal);
    CUresult (*cuDeviceGetUuid)(CUuuid *uuid, CUdevice device);
    CUresult (*cuDeviceGetAttribute)(int *value, CUdevice_attribute attribute,
            CUdevice device);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device);
    CUresult (*cuCtxSetCurrent)(CUcontext context);
    CUresult (*cuMemcpyAsync)(CUdeviceptr to, CUdeviceptr from, size_t bytes,
            CUstream stream);
} cu;

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[GPU_DEVICES_MAX];

#define SAID(symbol, ...) gpu_said(#symbol, (int)cu.symbol(__VA_ARGS__))

static const char *cuda_open(void **handle_out)
{
    *handle_out = dlopen(DRIVER, RTLD_NOW);
    return *handle_out != NULL ? NULL : gpu_sentence("open the driver: %s", dlerror());
}

static const char *cuda_take(void *handle)
{
#define TAKE(symbol) { #symbol, &cu.symbol }
    const struct {
        const char *symbol;
        void *slot;
    } all[] = {
        TAKE(cuGetErrorName),
        TAKE(cuGetErrorString),
        TAKE(cuDeviceGet),
        TAKE(cuDeviceGetUuid),
        TAKE(cuDeviceGetAttribute),
        TAKE(cuDevicePrimaryCtxRetain),
        TAKE(cuCtxSetCurrent),
        TAKE(cuMemcpyAsync),
    };
#undef TAKE
    const char *bad = NULL;

    for (size_t i = 0; bad == NULL && i < sizeof(all) / sizeof(*all); i++)
        bad = gpu_take(handle, all[i].symbol, all[i].slot);
    return bad;
}

static const char *cuda_error(int code, const char **text_out)
{
    const char *name = NULL;

    *text_out = NULL;
    (void)cu.cuGetErrorName((CUresult)code, &name);
    (void)cu.cuGetErrorString((CUresult)code, text_out);
    return name;
}

static const char *cuda_bind(int ordinal)
{
    const char *bad = NULL;
    CUcontext context;
    CUdevice device;

    pthread_mutex_lock(&context_lock);
    if (contexts[ordinal] == NULL) {
        bad = SAID(cuDeviceGet, &device, ordinal);
        if (bad == NULL)
            bad = SAID(cuDevicePrimaryCtxRetain, &contexts[ordinal], device);
    }
    context = contexts[ordinal];
    pthread_mutex_unlock(&context_lock);
    return bad != NULL ? bad : SAID(cuCtxSetCurrent, context);
}

static void cuda_version(int number, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "CUDA %d.%d", number / 1000, number % 1000 / 10);
}

static void spell_identity(const CUuuid *uuid, char *out, size_t bytes)
{
    size_t n = (size_t)snprintf(out, bytes, "GPU-");

    for (int i = 0; i < 16 && n + 4 < bytes; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;

        n += (size_t)snprintf(out + n, bytes - n, "%s%02x", dash ? "-" : "",
                (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

static const char *cuda_describe(int device, struct backend_device *out)
{
    CUuuid uuid = { { 0 } };
    int major = 0, minor = 0;
    const char *bad = SAID(cuDeviceGetUuid, &uuid, device);

    if (bad == NULL)
        bad = SAID(cuDeviceGetAttribute, &major,
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (bad == NULL)
        bad = SAID(cuDeviceGetAttribute, &minor,
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (bad != NULL)
        return bad;
    spell_identity(&uuid, out->identity, sizeof(out->identity));
    snprintf(out->target, sizeof(out->target), "sm_%d%d", major, minor);
    return NULL;
}

static const char *cuda_device(int ordinal, int *device_out)
{
    return SAID(cuDeviceGet, device_out, ordinal);
}

static const char *cuda_copy(void *to, const void *from, size_t bytes, void *stream)
{
    return SAID(cuMemcpyAsync, (uintptr_t)to, (uintptr_t)from, bytes, stream);
}

const struct gpu_vendor gpu_vendor_cuda = {
    .column = GPU_CUDA,
    .since = "CUDA 11.4",
    .open = cuda_open,
    .take = cuda_take,
    .error = cuda_error,
    .bind = cuda_bind,
    .version = cuda_version,
    .device = cuda_device,
    .describe = cuda_describe,
    .copy = cuda_copy,
};
