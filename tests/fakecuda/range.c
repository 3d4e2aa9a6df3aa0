/* SPDX-License-Identifier: Apache-2.0 */
/* What lies where, and what the driver tells of an address. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

static LIST_HEAD(, fake_range) ranges;

fake_range *fake_range_add(enum fake_range_kind kind, uint64_t address, uint64_t bytes)
{
    fake_range *range = fake_need(sizeof(*range));

    range->kind = kind;
    range->address = address;
    range->bytes = bytes;
    range->number = fake_serial();
    LIST_INSERT_HEAD(&ranges, range, link);
    return range;
}

void fake_range_remove(fake_range *range)
{
    LIST_REMOVE(range, link);
    fake_physical_unref(range->memory);
    free(range);
}

fake_range *fake_range_overlap(bool reserved, uint64_t address, uint64_t bytes)
{
    fake_range *r;

    for (r = LIST_FIRST(&ranges); r != NULL; r = LIST_NEXT(r, link))
        if ((r->kind == FAKE_RANGE_RESERVED) == reserved &&
                address < r->address + r->bytes && r->address < address + bytes)
            return r;
    return NULL;
}

fake_range *fake_range_at(uint64_t address)
{
    return fake_range_overlap(false, address, 1);
}

fake_range *fake_range_exact(enum fake_range_kind kind, uint64_t address)
{
    fake_range *r = fake_range_overlap(kind == FAKE_RANGE_RESERVED, address, 1);

    return r != NULL && r->kind == kind && r->address == address ? r : NULL;
}

fake_range *fake_range_opened(const fake_label *label)
{
    fake_range *r;

    for (r = LIST_FIRST(&ranges); r != NULL; r = LIST_NEXT(r, link))
        if (r->kind == FAKE_RANGE_IPC && r->process == label->process &&
                r->memory->number == label->number)
            return r;
    return NULL;
}

CUresult fake_range_check(const fake_context *context, uint64_t address, uint64_t bytes)
{
    const fake_range *range = fake_range_at(address);

    if (range == NULL)
        return address == 0 && bytes > 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (bytes > range->address + range->bytes - address)
        return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == FAKE_RANGE_MAPPED &&
            (range->access & 1u << context->device->ordinal) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    const fake_range *range;
    CUresult code = fake_enter(FAKE_CONTEXT);

    if (code != CUDA_SUCCESS)
        return code;
    range = fake_range_at(address);
    if (range == NULL)
        return fake_leave(CUDA_ERROR_NOT_FOUND);
    if (base != NULL)
        *base = range->address;
    if (bytes != NULL)
        *bytes = range->bytes;
    return fake_leave(CUDA_SUCCESS);
}

/* The device that owns it; if that is not visible here, one that may reach it. */
static int ordinal_of(const fake_range *range)
{
    for (unsigned d = 0; range->memory != NULL && d < fake_set.nvisible; d++)
        if (fake_set.visible[d] == range->memory->physical)
            return (int)d;
    if (range->access != 0)
        return __builtin_ctz(range->access);
    return range->context != NULL ? (int)range->context->device->ordinal : 0;
}

/* The range whose addresses stay together: of mapped memory, all that was reserved. */
static const fake_range *whole(const fake_range *range)
{
    return range != NULL && range->kind == FAKE_RANGE_MAPPED
            ? fake_range_overlap(true, range->address, 1)
            : range;
}

/* An attribute as a number; memory that the driver does not know (NULL) has 0 for all. */
static bool value_of(const fake_range *range, CUpointer_attribute attribute,
        uint64_t *value)
{
    static const fake_range unknown = { .kind = FAKE_RANGE_RESERVED };
    const fake_range *r = range != NULL ? range : &unknown, *all = whole(r);
    bool host = r->kind == FAKE_RANGE_HOST || r->kind == FAKE_RANGE_REGISTERED;
    bool mapped = r->kind == FAKE_RANGE_MAPPED;

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *value = all->number; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *value = r->kind == FAKE_RANGE_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value = range != NULL ? (uint64_t)ordinal_of(r) : (uint64_t)-2;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *value = r->kind == FAKE_RANGE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *value = all->address; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *value = all->bytes; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *value = mapped && r->memory->shareable
                ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value = r->memory != NULL ? r->memory->id : 0;
        break;
    default: return false;
    }
    if (range == NULL && attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *value = 0;
    return true;
}

/* Into what the caller has for it: 32 bits or 64. */
static CUresult answer(const fake_range *range, CUpointer_attribute attribute,
        void *out)
{
    uint64_t value;
    uint32_t low;

    if (!value_of(range, attribute, &value))
        return CUDA_ERROR_INVALID_VALUE;
    low = (uint32_t)value;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        memcpy(out, &low, sizeof(low));
        break;
    default: memcpy(out, &value, sizeof(value));
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
        void **values, CUdeviceptr address)
{
    CUresult code = count > 0 && attributes != NULL && values != NULL
            ? fake_enter(0)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    for (unsigned i = 0; code == CUDA_SUCCESS && i < count; i++)
        code = values[i] != NULL
                ? answer(fake_range_at(address), attributes[i], values[i])
                : CUDA_ERROR_INVALID_VALUE;
    return fake_leave(code);
}
