/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: handles, reserved addresses, mappings, access. */
#include "fake.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static CUresult enter_vmm(bool valid)
{
    CUresult code =
            valid ? fake_enter(FAKE_HEALTHY | FAKE_UNSAFE) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS || fake_set.vmm)
        return code;
    return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
}

static bool granular(uint64_t value)
{
    return value % FAKE_GRANULE == 0;
}

/* The device that @p prop names. */
static CUresult device_of(const CUmemAllocationProp *prop, fake_device **out)
{
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
            prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            (prop->requestedHandleTypes &
                    ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_device_of(prop->location.id, out);
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
        CUmemAllocationGranularity_flags option)
{
    fake_device *device;
    CUresult code = enter_vmm(bytes != NULL && prop != NULL &&
            (unsigned)option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);

    if (code != CUDA_SUCCESS)
        return code;
    code = device_of(prop, &device);
    if (code == CUDA_SUCCESS)
        *bytes = FAKE_GRANULE;
    return fake_leave(code);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
        const CUmemAllocationProp *prop, unsigned long long flags)
{
    fake_physical *memory;
    fake_device *device;
    CUresult code = enter_vmm(
            out != NULL && prop != NULL && flags == 0 && bytes > 0 && granular(bytes));

    if (code != CUDA_SUCCESS)
        return code;
    code = device_of(prop, &device);
    if (code == CUDA_SUCCESS)
        code = fake_physical_new(device, bytes, &memory);
    if (code == CUDA_SUCCESS) {
        memory->handles = 1;
        memory->shareable = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
        *out = (uintptr_t)memory;
    }
    return fake_leave(code);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    fake_physical *memory;
    CUresult code = enter_vmm(true);

    if (code != CUDA_SUCCESS)
        return code;
    memory = fake_physical_of(handle);
    if (memory == NULL)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    memory->handles--;
    fake_physical_unref(memory);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    fake_range *range;
    CUresult code = enter_vmm(out != NULL);

    if (code != CUDA_SUCCESS)
        return code;
    range = fake_range_at((uintptr_t)address);
    if (range == NULL || range->kind != FAKE_RANGE_MAPPED)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    range->memory->handles++;
    range->memory->refs++;
    *out = (uintptr_t)range->memory;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment,
        CUdeviceptr wish, unsigned long long flags)
{
    void *address;
    CUresult code = enter_vmm(out != NULL && bytes > 0 && granular(bytes) &&
            flags == 0 && (alignment & (alignment - 1)) == 0 && granular(wish));

    if (code != CUDA_SUCCESS)
        return code;
    address = fake_reserve(bytes, alignment > FAKE_GRANULE ? alignment : FAKE_GRANULE);
    if (address == NULL)
        return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    fake_range_add(FAKE_RANGE_RESERVED, (uintptr_t)address, bytes);
    *out = (uintptr_t)address;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    fake_range *range;
    CUresult code = enter_vmm(true);

    if (code != CUDA_SUCCESS)
        return code;
    range = fake_range_exact(FAKE_RANGE_RESERVED, address);
    if (range == NULL || range->bytes != bytes ||
            fake_range_overlap(false, address, bytes) != NULL)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    munmap((void *)(uintptr_t)address, bytes);
    fake_range_remove(range);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const fake_range *reserved;
    fake_physical *memory;
    fake_range *range;
    CUresult code = enter_vmm(flags == 0 && offset == 0 && bytes > 0 &&
            granular(bytes) && granular(address));

    if (code != CUDA_SUCCESS)
        return code;
    memory = fake_physical_of(handle);
    reserved = fake_range_overlap(true, address, 1);
    if (memory == NULL || bytes > memory->bytes || reserved == NULL ||
            bytes > reserved->address + reserved->bytes - address)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (fake_range_overlap(false, address, bytes) != NULL)
        return fake_leave(CUDA_ERROR_ALREADY_MAPPED);
    code = fake_physical_map(memory, offset, bytes, (void *)(uintptr_t)address,
            PROT_NONE);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    range = fake_range_add(FAKE_RANGE_MAPPED, address, bytes);
    range->memory = memory;
    memory->refs++;
    return fake_leave(CUDA_SUCCESS);
}

/* Do whole mappings, and nothing else, make up these bytes? */
static bool tiled(uint64_t address, size_t bytes)
{
    while (bytes > 0) {
        const fake_range *range = fake_range_exact(FAKE_RANGE_MAPPED, address);

        if (range == NULL || range->bytes > bytes)
            return false;
        address += range->bytes;
        bytes -= range->bytes;
    }
    return true;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CUresult code = enter_vmm(bytes > 0);

    if (code != CUDA_SUCCESS)
        return code;
    if (!tiled(address, bytes))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    fake_shadow_unmap((void *)(uintptr_t)address, bytes);
    if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                0) == MAP_FAILED)
        return fake_leave(CUDA_ERROR_OPERATING_SYSTEM);
    for (size_t at = 0; at < bytes;) {
        fake_range *range = fake_range_exact(FAKE_RANGE_MAPPED, address + at);

        at += range->bytes;
        fake_range_remove(range);
    }
    return fake_leave(CUDA_SUCCESS);
}

/* May the device of @p access reach the memory of every mapping? */
static CUresult check_access(uint64_t address, size_t bytes,
        const CUmemAccessDesc *access)
{
    fake_device *device;
    CUresult code = access->location.type == CU_MEM_LOCATION_TYPE_DEVICE
            ? fake_device_of(access->location.id, &device)
            : CUDA_ERROR_INVALID_VALUE;

    for (size_t at = 0; code == CUDA_SUCCESS && at < bytes;) {
        const fake_range *range = fake_range_exact(FAKE_RANGE_MAPPED, address + at);

        if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                !fake_peers(device->physical, range->memory->physical))
            code = CUDA_ERROR_INVALID_DEVICE;
        at += range->bytes;
    }
    return code;
}

/* The pages allow what any device may do. */
static CUresult grant(uint64_t address, size_t bytes, const CUmemAccessDesc *access)
{
    for (size_t at = 0; at < bytes;) {
        fake_range *range = fake_range_exact(FAKE_RANGE_MAPPED, address + at);
        uint32_t bit = 1u << access->location.id;

        range->access &= ~bit;
        if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            range->access |= bit;
        if (mprotect((void *)(uintptr_t)range->address, range->bytes,
                    range->access == 0 ? PROT_NONE
                            : access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ
                            ? PROT_READ
                            : PROT_READ | PROT_WRITE) != 0)
            return CUDA_ERROR_OPERATING_SYSTEM;
        at += range->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes,
        const CUmemAccessDesc *access, size_t count)
{
    CUresult code = enter_vmm(access != NULL && count > 0 && bytes > 0);

    if (code != CUDA_SUCCESS)
        return code;
    if (!tiled(address, bytes))
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; code == CUDA_SUCCESS && i < count; i++)
        code = check_access(address, bytes, &access[i]);
    for (size_t i = 0; code == CUDA_SUCCESS && i < count; i++)
        code = grant(address, bytes, &access[i]);
    return fake_leave(code);
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
        CUmemAllocationHandleType type, unsigned long long flags)
{
    const fake_physical *memory;
    int fd;
    CUresult code = enter_vmm(out != NULL && flags == 0 &&
            type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    if (code != CUDA_SUCCESS)
        return code;
    memory = fake_physical_of(handle);
    if (memory == NULL || !memory->shareable)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return fake_leave(CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)out = fd;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out,
        void *shareable, CUmemAllocationHandleType type)
{
    fake_physical *memory;
    int fd;
    CUresult code =
            enter_vmm(out != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    if (code != CUDA_SUCCESS)
        return code;
    fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    code = fake_physical_import(fd, &memory);
    if (code != CUDA_SUCCESS) {
        close(fd);
        return fake_leave(code);
    }
    memory->handles = 1;
    *out = (uintptr_t)memory;
    return fake_leave(CUDA_SUCCESS);
}
