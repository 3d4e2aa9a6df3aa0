/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one process in another. An export names the allocation by its owner's token
 * and number, so that two imports of it share one mapping. A freed allocation's mapping
 * elsewhere stays valid until it is given up there; its successor at the same address has
 * another number.
 */
#include "device/gpu_shared.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

static pthread_once_t token_once = PTHREAD_ONCE_INIT;
static uint64_t token;

/* Random: process ids repeat, in containers they are all alike. */
static void make_token(void)
{
    if (getrandom(&token, sizeof(token), GRND_NONBLOCK) != (ssize_t)sizeof(token) ||
            token == 0)
        token = motet_wall_ns() ^ (uint64_t)getpid() << 40 ^ 1;
}

motet_result motet_gpu_describe_export(const motet_gpu_facts *facts, uint64_t address,
        const motet_pointer *pointer, motet_gpu_export *out)
{
    if (pointer->kind != MOTET_POINTER_DEVICE || pointer->bytes == 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "export 0x%llx: it is not memory of a device",
                (unsigned long long)address);
    pthread_once(&token_once, make_token);
    *out = (motet_gpu_export){ .kind = MOTET_GPU_EXPORT_NONE,
        .address = address,
        .process = token,
        .ordinal = pointer->ordinal,
        .bytes = pointer->bytes,
        .offset = address - pointer->base,
        .buffer_id = pointer->buffer_id };
    snprintf(out->identity, sizeof(out->identity), "%s", facts->identity);
    return MOTET_OK;
}

/* With the lock held; waits for one that is being made. NULL: there is none. */
static motet_gpu_import *find(motet_gpu_imports *imports, const motet_gpu *gpu,
        const motet_gpu_export *e)
{
    const uint64_t base = e->address - e->offset;
    motet_gpu_import *i = imports->list;

    while (i != NULL &&
            (e->buffer_id == 0 || i->gpu != gpu || i->kind != e->kind ||
                    i->process != e->process || i->buffer_id != e->buffer_id ||
                    i->base != base))
        i = i->next;
    if (i != NULL)
        i->holds++;
    while (i != NULL && i->state == MOTET_GPU_IMPORT_BUSY)
        pthread_cond_wait(&imports->changed, &imports->lock);
    return i;
}

/* With the lock held: one holder less; the import if that was the last one, taken out. */
static motet_gpu_import *drop(motet_gpu_imports *imports, motet_gpu_import *i)
{
    motet_gpu_import **at = &imports->list;

    if (--i->holds != 0)
        return NULL;
    while (*at != i)
        at = &(*at)->next;
    *at = i->next;
    return i;
}

/* Not under the lock: the runtime may wait for a kernel that waits for another thread. */
static motet_result finish(motet_gpu_imports *imports, motet_gpu *gpu,
        const motet_gpu_export *e, int fd, motet_gpu_import *i)
{
    motet_result result = imports->open(gpu, e, fd, i);
    motet_gpu_import *last = NULL;

    pthread_mutex_lock(&imports->lock);
    i->state = result == MOTET_OK ? MOTET_GPU_IMPORT_READY : MOTET_GPU_IMPORT_FAILED;
    pthread_cond_broadcast(&imports->changed);
    if (result != MOTET_OK)
        last = drop(imports, i);
    pthread_mutex_unlock(&imports->lock);
    free(last);
    return result;
}

static motet_result check_export(const motet_gpu_export *e, int fd)
{
    if (e->kind != MOTET_GPU_EXPORT_FD && e->kind != MOTET_GPU_EXPORT_HANDLE)
        return motet_fail(MOTET_ERR_DEVICE,
                "memory of %.95s cannot be shared with another process", e->identity);
    if (e->kind == MOTET_GPU_EXPORT_FD && fd < 0)
        return motet_fail(MOTET_ERR_INTERNAL,
                "memory of %.95s came without its descriptor", e->identity);
    if (e->bytes == 0 || e->offset >= e->bytes || e->address < e->offset)
        return motet_fail(MOTET_ERR_REMOTE,
                "memory of %.95s: offset %llu of %llu bytes makes no sense",
                e->identity, (unsigned long long)e->offset,
                (unsigned long long)e->bytes);
    return MOTET_OK;
}

motet_result motet_gpu_import_shared(motet_gpu_imports *imports, motet_gpu *gpu,
        int ordinal, const motet_gpu_export *exported, int fd, motet_gpu_memory *out)
{
    motet_gpu_import *fresh, *i, *last = NULL;
    motet_result result = MOTET_OK;

    MOTET_TRY(check_export(exported, fd), "import");
    fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "import");
    *fresh = (motet_gpu_import){ .gpu = gpu,
        .kind = exported->kind,
        .process = exported->process,
        .buffer_id = exported->buffer_id,
        .base = exported->address - exported->offset,
        .bytes = exported->bytes,
        .holds = 1,
        .state = MOTET_GPU_IMPORT_BUSY };
    pthread_mutex_lock(&imports->lock);
    i = find(imports, gpu, exported);
    if (i == NULL) {
        fresh->next = imports->list;
        imports->list = fresh;
    } else if (i->state == MOTET_GPU_IMPORT_FAILED) {
        last = drop(imports, i);
        result = motet_fail(MOTET_ERR_DEVICE,
                "another thread failed to map it at the same time");
    }
    pthread_mutex_unlock(&imports->lock);
    free(last);
    if (i == NULL)
        result = finish(imports, gpu, exported, fd, i = fresh);
    else
        free(fresh);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "memory of %.95s on device %d",
                exported->identity, ordinal);
    *out = (motet_gpu_memory){ .address = i->address + exported->offset,
        .bytes = exported->bytes - exported->offset,
        .owned = i };
    return MOTET_OK;
}

void motet_gpu_import_in_place(motet_gpu_memories *m, const motet_gpu_export *exported,
        motet_gpu_memory *out)
{
    motet_gpu_hold(m, exported->address);
    *out = (motet_gpu_memory){ .address = exported->address,
        .bytes = exported->bytes - exported->offset };
}

void motet_gpu_unimport_any(motet_gpu_imports *imports, motet_gpu_memories *m,
        motet_gpu *gpu, motet_gpu_memory *memory)
{
    motet_gpu_import *last = NULL;

    if (memory->owned != NULL) {
        pthread_mutex_lock(&imports->lock);
        last = drop(imports, memory->owned);
        pthread_mutex_unlock(&imports->lock);
    } else if (memory->address != 0) {
        motet_gpu_release(m, memory->address);
    }
    *memory = (motet_gpu_memory){ .address = 0 };
    if (last != NULL && !motet_gpu_given_up(gpu))
        imports->close(gpu, last);
    free(last);
}
