/* SPDX-License-Identifier: Apache-2.0 */
/* Entry to the driver, and its devices. */
#include "fake.h"

#include <stdio.h>
#include <string.h>

_Thread_local fake_thread fake_self;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
fake_device fake_devices[FAKE_DEVICES];

static bool initialised, loaded, forked, watches_forks;
static CUresult load_code;
static uint64_t serial;

/* The threads of the pool are not here, and the lock may be held for ever: a driver that
 * had begun is lost. One that was only asked for its version begins anew. */
static void in_child(void)
{
    forked |= initialised;
    loaded = false;
    pthread_mutex_init(&fake_lock, NULL);
}

/* With the lock held. */
static CUresult load(void)
{
    if (loaded)
        return load_code;
    loaded = true;
    load_code = fake_settings_load();
    if (!watches_forks)
        watches_forks = pthread_atfork(NULL, NULL, in_child) == 0;
    for (unsigned d = 0; load_code == CUDA_SUCCESS && d < fake_set.nvisible; d++)
        fake_devices[d] = (fake_device){
            .ordinal = d,
            .physical = fake_set.visible[d],
            .free_threads = fake_set.processors * FAKE_SM_THREADS,
            .free_bytes = fake_set.memory_bytes,
        };
    return load_code;
}

CUresult fake_enter(unsigned needs)
{
    CUresult code = CUDA_SUCCESS;

    if (forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (fake_self.callback)
        return CUDA_ERROR_NOT_PERMITTED;
    pthread_mutex_lock(&fake_lock);
    if (!initialised)
        code = CUDA_ERROR_NOT_INITIALIZED;
    if (code == CUDA_SUCCESS && (needs & FAKE_CONTEXT) != 0)
        code = fake_context_check(fake_current());
    if (code == CUDA_SUCCESS && (needs & (FAKE_CONTEXT | FAKE_HEALTHY)) != 0 &&
            fake_current() != NULL)
        code = fake_current()->sticky;
    if (code == CUDA_SUCCESS && (needs & FAKE_UNSAFE) != 0)
        code = fake_capture_unsafe();
    if (code != CUDA_SUCCESS)
        pthread_mutex_unlock(&fake_lock);
    return code;
}

uint64_t fake_serial(void)
{
    return ++serial;
}

uint64_t fake_thread_number(void)
{
    if (fake_self.number == 0)
        fake_self.number = fake_serial();
    return fake_self.number;
}

CUresult fake_device_of(int ordinal, fake_device **out)
{
    if (ordinal < 0 || (unsigned)ordinal >= fake_set.nvisible)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = &fake_devices[ordinal];
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags)
{
    CUresult code;

    if (forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    code = load();
    if (code == CUDA_SUCCESS)
        code = (CUresult)fake_set.init_code;
    if (code == CUDA_SUCCESS && fake_set.nvisible == 0)
        code = CUDA_ERROR_NO_DEVICE;
    if (code == CUDA_SUCCESS)
        initialised = true;
    return fake_leave(code);
}

CUresult cuDriverGetVersion(int *version)
{
    CUresult code;

    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&fake_lock);
    code = load();
    if (code == CUDA_SUCCESS)
        *version = (int)fake_set.driver_version;
    return fake_leave(code);
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult code = count != NULL ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    *count = (int)fake_set.nvisible;
    return fake_leave(CUDA_SUCCESS);
}

/* Enter for a call about one device. */
static CUresult enter_device(int ordinal, const void *out, fake_device **device)
{
    CUresult code = out != NULL ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_device_of(ordinal, device);
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    fake_device *device;
    CUresult code = enter_device(ordinal, out, &device);

    if (code != CUDA_SUCCESS)
        return code;
    *out = ordinal;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice ordinal)
{
    fake_device *device;
    CUresult code = enter_device(ordinal, name, &device);

    if (code != CUDA_SUCCESS)
        return code;
    if (bytes > 0)
        snprintf(name, (size_t)bytes, "Fake GPU");
    return fake_leave(bytes > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    fake_device *device;
    CUresult code = enter_device(ordinal, bytes, &device);

    if (code != CUDA_SUCCESS)
        return code;
    *bytes = fake_set.memory_bytes;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *bus_id, int bytes, CUdevice ordinal)
{
    fake_device *device;
    CUresult code = enter_device(ordinal, bus_id, &device);

    if (code != CUDA_SUCCESS)
        return code;
    if (bytes < 13)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(bus_id, (size_t)bytes, "0000:%02X:00.0", 0x10 + device->physical);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal)
{
    fake_device *device;
    CUresult code = enter_device(ordinal, uuid, &device);

    if (code != CUDA_SUCCESS)
        return code;
    fake_the_face.uuid(device->physical, (unsigned char *)uuid->bytes);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    return cuDeviceGetUuid(uuid, ordinal);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
        CUdevice ordinal)
{
    const struct {
        CUdevice_attribute attribute;
        int value;
    } rows[] = {
        { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, FAKE_BLOCK_LIMIT },
        { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, (int)fake_set.processors },
        { CU_DEVICE_ATTRIBUTE_INTEGRATED, 0 },
        { CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0 },
        { CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7 },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0 },
        { CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, fake_set.vmm },
        { CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                fake_set.vmm },
        { CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0 },
        { CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0 },
    };
    fake_device *device;
    CUresult code = enter_device(ordinal, value, &device);

    if (code != CUDA_SUCCESS)
        return code;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].attribute == attribute) {
            *value = rows[i].value;
            return fake_leave(CUDA_SUCCESS);
        }
    return fake_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer_ordinal)
{
    fake_device *device, *peer;
    CUresult code = enter_device(ordinal, can, &device);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_device_of(peer_ordinal, &peer);
    if (code == CUDA_SUCCESS)
        *can = device != peer && fake_peers(device->physical, peer->physical);
    return fake_leave(code);
}
