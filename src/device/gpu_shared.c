/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols, devices that are opened once, and the plain table over the GPU's. */
#include "device/gpu_shared.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- symbols ---- */

const motet_gpu_symbol *motet_gpu_resolve(const motet_gpu_symbol *symbols, size_t count,
        void *library, void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, symbols[i].name);

        if (found == NULL && symbols[i].required)
            return &symbols[i];
        memcpy((char *)table + symbols[i].offset, &found, sizeof(found));
    }
    return NULL;
}

const motet_gpu_symbol *motet_gpu_missing(const motet_gpu_symbol *symbols, size_t count,
        const void *table, const char *feature)
{
    for (size_t i = 0; i < count; i++) {
        void *function;

        memcpy(&function, (const char *)table + symbols[i].offset, sizeof(function));
        if (function == NULL && strcmp(symbols[i].feature, feature) == 0)
            return &symbols[i];
    }
    return NULL;
}

/* ---- devices ---- */

motet_result motet_gpu_open_once(motet_gpu_slots *slots, int ordinal, int count,
        motet_result (*make)(int ordinal, motet_gpu **out), motet_gpu **out)
{
    motet_gpu *gpu = NULL;
    motet_result result;

    if (ordinal < 0 || ordinal >= count)
        return motet_fail(MOTET_ERR_ARGUMENT, "device is %d, need 0..%d", ordinal,
                count - 1);
    pthread_mutex_lock(&slots->lock);
    while (slots->busy[ordinal])
        pthread_cond_wait(&slots->changed, &slots->lock);
    gpu = atomic_load(&slots->gpu[ordinal]);
    slots->busy[ordinal] = gpu == NULL;
    pthread_mutex_unlock(&slots->lock);
    if (gpu != NULL) {
        *out = gpu;
        return MOTET_OK;
    }
    result = make(ordinal, &gpu);
    pthread_mutex_lock(&slots->lock);
    if (result == MOTET_OK)
        atomic_store(&slots->gpu[ordinal], gpu);
    slots->busy[ordinal] = false;
    pthread_cond_broadcast(&slots->changed);
    pthread_mutex_unlock(&slots->lock);
    if (result == MOTET_OK)
        *out = gpu;
    return result;
}

motet_gpu *motet_gpu_opened(motet_gpu_slots *slots, int ordinal)
{
    return ordinal >= 0 && ordinal < MOTET_GPU_DEVICES
            ? atomic_load(&slots->gpu[ordinal])
            : NULL;
}

int motet_gpu_numa_node(const char *bus_id)
{
    char path[96];
    int node = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.31s/numa_node", bus_id);
    file = fopen(path, "re");
    if (file == NULL)
        return -1;
    if (fscanf(file, "%d", &node) != 1)
        node = -1;
    (void)fclose(file); /* only read from */
    return node;
}

void motet_gpu_print_uuid(const char *prefix, const void *bytes, char *buf, size_t size)
{
    const unsigned char *b = bytes;

    snprintf(buf, size,
            "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
            prefix, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
            b[11], b[12], b[13], b[14], b[15]);
}

void motet_gpu_lower(char *text)
{
    for (; *text != '\0'; text++)
        *text = (char)tolower((unsigned char)*text);
}

long motet_gpu_number(const char *variable)
{
    const char *text = motet_param_environment(variable);

    return text != NULL ? strtol(text, NULL, 10) : 0;
}

/* ---- waiting ---- */

motet_result motet_gpu_await(const motet_gpu_ops *ops, motet_gpu *gpu, void *stream,
        uint64_t deadline_ns)
{
    const struct timespec nap = { .tv_nsec = 20000 };
    motet_result result;

    while ((result = ops->stream_query(gpu, stream)) == MOTET_IN_PROGRESS &&
            !motet_deadline_passed(deadline_ns))
        nanosleep(&nap, NULL);
    return result;
}

/* From the beginning, without gaps. */
static const motet_gpu *_Atomic given_up[MOTET_GPU_DEVICES];

void motet_gpu_give_up(const motet_gpu_ops *ops, motet_gpu *gpu)
{
    for (int i = 0; i < MOTET_GPU_DEVICES; i++) {
        const motet_gpu *there = NULL;

        if (atomic_compare_exchange_strong(&given_up[i], &there, gpu)) {
            motet_warn("the GPU at %s runs a kernel that does not leave: memory of its "
                       "communicators is not given back before the process ends",
                    ops->facts(gpu)->bus_id);
            return;
        }
        if (there == gpu)
            return;
    }
}

bool motet_gpu_given_up(const motet_gpu *gpu)
{
    const motet_gpu *there = gpu;

    for (int i = 0; i < MOTET_GPU_DEVICES && there != NULL; i++) {
        there = atomic_load(&given_up[i]);
        if (there == gpu)
            return true;
    }
    return false;
}

/* ---- the plain table ---- */

motet_result motet_gpu_describe(const motet_gpu_ops *ops, int ordinal,
        motet_device_info *info_out)
{
    const motet_gpu_facts *facts;
    motet_gpu *gpu;

    MOTET_TRY(ops->open(ordinal, &gpu), "describe");
    facts = ops->facts(gpu);
    snprintf(info_out->name, sizeof(info_out->name), "%.63s", facts->name);
    snprintf(info_out->identity, sizeof(info_out->identity), "%.63s", facts->identity);
    info_out->memory_bytes = facts->memory_bytes;
    return MOTET_OK;
}

motet_result motet_gpu_alloc_here(const motet_gpu_ops *ops, size_t bytes,
        void **ptr_out)
{
    motet_gpu_memory memory;
    motet_gpu *gpu;
    int ordinal;

    MOTET_TRY(ops->current(&ordinal), "allocate %zu bytes", bytes);
    MOTET_TRY(ops->open(ordinal, &gpu), "allocate %zu bytes", bytes);
    MOTET_TRY(ops->alloc(gpu, bytes, &memory), "current device");
    *ptr_out = (void *)(uintptr_t)memory.address;
    return MOTET_OK;
}

motet_result motet_gpu_share_none(const void *ptr, size_t bytes, int *fd_out,
        size_t *offset_out, size_t *bytes_out)
{
    (void)ptr;
    (void)bytes;
    (void)offset_out;
    (void)bytes_out;
    *fd_out = -1;
    return MOTET_OK;
}

void motet_gpu_unshare_none(const void *ptr)
{
    (void)ptr;
}

bool motet_gpu_stream_blocks(const void *stream)
{
    (void)stream;
    return false;
}
