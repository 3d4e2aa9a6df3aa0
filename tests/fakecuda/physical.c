/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: a file in memory, one page longer than the allocation. The last page
 * is a label, by which another process that got the descriptor knows what it has.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x616475636b616601u
#define UNIT  ((size_t)65536) /* what falsified mappings exchange                  */
#define POISONED \
    ((size_t)1 << 20) /* of new memory                                     */

static LIST_HEAD(, fake_physical) all;

/* A number of this process that no other has. */
static uint64_t process_token(void)
{
    static uint64_t token;

    while (token == 0 && getrandom(&token, sizeof(token), 0) != sizeof(token))
        token = 0;
    return token;
}

fake_label fake_physical_label(const fake_physical *memory)
{
    return (fake_label){
        .magic = MAGIC,
        .process = process_token(),
        .number = memory->number,
        .bytes = memory->bytes,
        .physical = memory->physical,
    };
}

/* New memory holds what somebody left there: nobody may count on zeros. */
static void poison(int fd, size_t bytes)
{
    static unsigned char pattern[65536];

    memset(pattern, 0xa5, sizeof(pattern));
    for (size_t at = 0; at < bytes && at < POISONED; at += sizeof(pattern)) {
        size_t n = bytes - at < sizeof(pattern) ? bytes - at : sizeof(pattern);

        if (pwrite(fd, pattern, n, (off_t)at) != (ssize_t)n)
            return;
    }
}

CUresult fake_physical_new(fake_device *device, size_t bytes, fake_physical **out)
{
    fake_physical *memory;
    fake_label label;
    int fd;

    if (bytes > device->free_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fd = memfd_create(fake_the_face.name, MFD_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory = fake_need(sizeof(*memory));
    memory->fd = fd;
    memory->refs = 1;
    memory->physical = device->physical;
    memory->bytes = bytes;
    memory->id = memory->number = fake_serial();
    label = fake_physical_label(memory);
    if (ftruncate(fd, (off_t)(bytes + 4096)) != 0 ||
            pwrite(fd, &label, sizeof(label), (off_t)bytes) != sizeof(label)) {
        close(fd);
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    poison(fd, bytes);
    device->free_bytes -= bytes;
    memory->device = device;
    LIST_INSERT_HEAD(&all, memory, link);
    *out = memory;
    return CUDA_SUCCESS;
}

CUresult fake_physical_import(int fd, fake_physical **out)
{
    fake_physical *memory;
    fake_label label;
    struct stat st;

    if (fstat(fd, &st) != 0 || st.st_size < 8192 ||
            pread(fd, &label, sizeof(label), st.st_size - 4096) != sizeof(label) ||
            label.magic != MAGIC || (off_t)(label.bytes + 4096) != st.st_size)
        return CUDA_ERROR_INVALID_VALUE;
    memory = fake_need(sizeof(*memory));
    memory->fd = fd;
    memory->refs = 1;
    memory->physical = label.physical;
    memory->bytes = label.bytes;
    memory->number = label.number;
    memory->id = fake_serial();
    memory->shareable = true;
    memory->foreign = label.process != process_token();
    LIST_INSERT_HEAD(&all, memory, link);
    *out = memory;
    return CUDA_SUCCESS;
}

fake_physical *fake_physical_of(CUmemGenericAllocationHandle handle)
{
    fake_physical *m;

    for (m = LIST_FIRST(&all); m != NULL; m = LIST_NEXT(m, link))
        if ((uintptr_t)m == handle && m->handles > 0)
            return m;
    return NULL;
}

void fake_physical_unref(fake_physical *memory)
{
    if (memory == NULL || --memory->refs > 0)
        return;
    if (memory->device != NULL)
        memory->device->free_bytes += memory->bytes;
    LIST_REMOVE(memory, link);
    close(memory->fd);
    free(memory);
}

static bool map(const fake_physical *memory, size_t offset, size_t bytes, char *address,
        int protection, int flags)
{
    bool anonymous = (flags & MAP_ANONYMOUS) != 0;

    return bytes == 0 ||
            mmap(address, bytes, protection, flags | MAP_FIXED,
                    anonymous ? -1 : memory->fd,
                    anonymous ? 0 : (off_t)offset) != MAP_FAILED;
}

/* Units 2k and 2k+1 in each other's place; what is left over at the end, as it is. */
static bool map_falsified(const fake_physical *memory, size_t offset, size_t bytes,
        char *address, int protection)
{
    size_t whole = bytes / (2 * UNIT) * (2 * UNIT);
    bool ok = true;

    for (size_t at = 0; ok && at < whole; at += UNIT)
        ok = map(memory, offset + (at ^ UNIT), UNIT, address + at, protection,
                MAP_SHARED);
    return ok &&
            map(memory, offset + whole, bytes - whole, address + whole, protection,
                    MAP_SHARED);
}

static size_t least(size_t bytes, uint64_t other)
{
    return other < bytes ? (size_t)other : bytes;
}

/* All bits are 1: one file of them, again and again. */
static bool map_ones(size_t bytes, char *address, int protection)
{
    static int ones = -1;
    bool ok = true;

    if (ones < 0) {
        unsigned char *unit = fake_need(UNIT);

        memset(unit, 0xff, UNIT);
        ones = memfd_create(fake_the_face.name, MFD_CLOEXEC);
        ok = ones >= 0 && pwrite(ones, unit, UNIT, 0) == (ssize_t)UNIT;
        free(unit);
    }
    for (size_t at = 0; ok && at < bytes; at += UNIT)
        ok = mmap(address + at, bytes - at < UNIT ? bytes - at : UNIT, protection,
                     MAP_PRIVATE | MAP_FIXED, ones, 0) != MAP_FAILED;
    return ok;
}

/* A copy that nobody else sees. */
static bool map_copy(const fake_physical *memory, size_t offset, size_t bytes,
        char *address, int protection)
{
    int copy = fake_shadow_copy(memory->fd, offset, bytes);
    bool ok = copy >= 0 &&
            mmap(address, bytes, protection, MAP_SHARED | MAP_FIXED, copy, 0) !=
                    MAP_FAILED;

    if (copy >= 0)
        close(copy);
    return ok;
}

static bool map_faulty(enum fake_import fault, const fake_physical *memory,
        size_t offset, size_t bytes, char *address, int protection)
{
    if (bytes == 0)
        return true;
    switch (fault) {
    case FAKE_IMPORT_DROP:
        return map(memory, offset, bytes, address, protection, MAP_PRIVATE);
    case FAKE_IMPORT_ZERO:
        return map(memory, offset, bytes, address, protection,
                MAP_PRIVATE | MAP_ANONYMOUS);
    case FAKE_IMPORT_FALSIFY:
        return map_falsified(memory, offset, bytes, address, protection);
    case FAKE_IMPORT_ONES: return map_ones(bytes, address, protection);
    case FAKE_IMPORT_PRIVATE:
        return map_copy(memory, offset, bytes, address, protection);
    case FAKE_IMPORT_SLOW:
    case FAKE_IMPORT_STALE:
    case FAKE_IMPORT_FLAGFIRST:
        return fake_shadow_map(memory->fd, offset, bytes, address, protection);
    default: return map(memory, offset, bytes, address, protection, MAP_SHARED);
    }
}

/* What is wrong with @p memory as the calling thread's device sees it. */
static enum fake_import fault_of(const fake_physical *memory)
{
    unsigned mine = fake_current() != NULL ? fake_current()->device->physical
                                           : memory->physical;

    if (!memory->foreign || !fake_is_faulty(mine, memory->physical))
        return FAKE_IMPORT_SHARE;
    if (fake_set.import != FAKE_IMPORT_ONEWAY)
        return fake_set.import;
    return mine <= memory->physical ? FAKE_IMPORT_SHARE : FAKE_IMPORT_DROP;
}

CUresult fake_physical_map(const fake_physical *memory, size_t offset, size_t bytes,
        void *address, int protection)
{
    enum fake_import fault = fault_of(memory);
    size_t from =
            least(bytes, fault == FAKE_IMPORT_SHARE ? bytes : fake_set.import_from);
    size_t to = least(bytes, fake_set.import_to > from ? fake_set.import_to : from);
    char *at = address;
    bool ok = map(memory, offset, from, at, protection, MAP_SHARED) &&
            map_faulty(fault, memory, offset + from, to - from, at + from,
                    protection) &&
            map(memory, offset + to, bytes - to, at + to, protection, MAP_SHARED);

    return ok ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

void *fake_reserve(size_t bytes, size_t alignment)
{
    size_t room = bytes + alignment;
    uintptr_t at, wanted;
    void *address = mmap(NULL, room, PROT_NONE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (address == MAP_FAILED)
        return NULL;
    at = (uintptr_t)address;
    wanted = (at + alignment - 1) / alignment * alignment;
    if (wanted > at)
        munmap(address, wanted - at);
    munmap((void *)(wanted + bytes), at + room - (wanted + bytes));
    return (void *)wanted;
}
