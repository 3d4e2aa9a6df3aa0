/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gpu.h"

#include "base/segment.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const motet_gpu_path_names[MOTET_GPU_NUM_PATHS] = {
    [MOTET_GPU_PATH_NONE] = "none",
    [MOTET_GPU_PATH_DIRECT] = "direct",
    [MOTET_GPU_PATH_STAGED] = "staged",
    [MOTET_GPU_PATH_COPY] = "copy",
};

/* Links that nobody holds: freed where the runtime may be called. */
static pthread_mutex_t dead_lock = PTHREAD_MUTEX_INITIALIZER;
static motet_gpu_link *dead;

static size_t page_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static size_t control_bytes(void)
{
    return page_up(sizeof(motet_gpu_control));
}

/* The control page: ordinary pages, so that their registration harms nobody's. */
static motet_result make_control(motet_gpu_link *link)
{
    void *page = aligned_alloc(4096, control_bytes());
    motet_result result;

    if (page == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "control page");
    memset(page, 0, control_bytes());
    result = link->ops->register_host(link->gpu, page, control_bytes(),
            &link->control_device);
    if (result != MOTET_OK) {
        free(page);
        return motet_error_wrap(result, "show the device a page of the host");
    }
    link->control = page;
    return MOTET_OK;
}

static void free_link(motet_gpu_link *link)
{
    motet_gpu_link_unmap(link);
    if (link->control != NULL) {
        link->ops->unregister_host(link->gpu, link->control);
        free(link->control);
    }
    if (link->order != NULL)
        link->ops->event_destroy(link->gpu, link->order);
    if (link->stream != NULL)
        link->ops->stream_destroy(link->gpu, link->stream);
    free(link);
}

motet_result motet_gpu_link_make(const motet_gpu_ops *ops, motet_gpu *gpu, int rank,
        int nranks, motet_gpu_link **out)
{
    motet_gpu_link *link = calloc(1, sizeof(*link));
    motet_result result;

    if (link == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "link of rank %d", rank);
    link->ops = ops;
    link->gpu = gpu;
    link->rank = rank;
    link->nranks = nranks;
    atomic_store(&link->holds, 1);
    result = ops->stream_create(gpu, true, &link->stream);
    if (result == MOTET_OK)
        result = ops->event_create(gpu, &link->order);
    if (result == MOTET_OK)
        result = make_control(link);
    if (result != MOTET_OK) {
        free_link(link);
        return motet_error_wrap(result, "rank %d", rank);
    }
    *out = link;
    return MOTET_OK;
}

motet_result motet_gpu_link_copy(motet_gpu_link *link, uint64_t dst, uint64_t src,
        size_t bytes)
{
    MOTET_TRY(link->ops->copy(link->gpu, dst, src, bytes, link->stream), "copy");
    return link->ops->stream_sync(link->gpu, link->stream);
}

static motet_result offer_device(motet_gpu_link *link, uint64_t process,
        motet_gpu_offer *out, int *fd_out)
{
    MOTET_TRY(link->ops->alloc(link->gpu, link->layout.arena_bytes, &link->arena),
            "arena of rank %d", link->rank);
    link->at[link->rank] = link->arena.address;
    MOTET_TRY(link->ops->export_memory(link->gpu, link->arena.address, &out->memory,
                      fd_out),
            "hand the arena of rank %d on", link->rank);
    out->memory.process = process;
    return MOTET_OK;
}

static motet_result offer_segment(motet_gpu_link *link, int *fd_out)
{
    MOTET_TRY(motet_segment_create("motet-staging", page_up(link->layout.arena_bytes),
                      &link->segment, fd_out),
            "host arena of rank %d", link->rank);
    return link->ops->register_host(link->gpu, link->segment,
            page_up(link->layout.arena_bytes), &link->at[link->rank]);
}

/* The nonce lies in the line that the rank would write for itself, which nobody uses. */
static uint64_t nonce_at(const motet_gpu_link *link, int owner)
{
    return (uint64_t)(uintptr_t)motet_gpu_line_at((uint8_t *)(uintptr_t)link->at[owner],
                   &link->layout, 0, (uint32_t)owner) +
            offsetof(motet_gpu_line, reserved);
}

motet_result motet_gpu_link_offer(motet_gpu_link *link, motet_gpu_path path,
        const motet_gpu_layout *layout, uint64_t process, uint64_t nonce,
        motet_gpu_offer *out, int *fd_out)
{
    *fd_out = -1;
    *out = (motet_gpu_offer){ .path = path,
        .bytes = layout->arena_bytes,
        .nonce = nonce };
    link->path = path;
    link->layout = *layout;
    MOTET_TRY(link->ops->alloc(link->gpu, layout->own_bytes, &link->own),
            "own words of rank %d", link->rank);
    if (path == MOTET_GPU_PATH_DIRECT)
        MOTET_TRY(offer_device(link, process, out, fd_out), "direct path");
    else
        MOTET_TRY(offer_segment(link, fd_out), "staged path");
    return motet_gpu_link_copy(link, nonce_at(link, link->rank),
            (uint64_t)(uintptr_t)&out->nonce, sizeof(out->nonce));
}

static motet_result map_segment(motet_gpu_link *link, int peer, int fd)
{
    size_t bytes = page_up(link->layout.arena_bytes);

    MOTET_TRY(motet_segment_map(fd, bytes, true, &link->mapped[peer]), "map it");
    return link->ops->register_host(link->gpu, link->mapped[peer], bytes,
            &link->at[peer]);
}

motet_result motet_gpu_link_map(motet_gpu_link *link, int peer,
        const motet_gpu_offer *offer, uint64_t process, int fd)
{
    uint64_t seen = 0;
    motet_result result;

    if (offer->path != (uint32_t)link->path || offer->bytes != link->layout.arena_bytes)
        return motet_fail(MOTET_ERR_USAGE,
                "rank %d offers an arena of %llu bytes on path %u, need %llu on %u",
                peer, (unsigned long long)offer->bytes, offer->path,
                (unsigned long long)link->layout.arena_bytes, (unsigned)link->path);
    if (link->path == MOTET_GPU_PATH_DIRECT) {
        result = link->ops->import(link->gpu, &offer->memory, process, fd,
                &link->imported[peer]);
        link->at[peer] = link->imported[peer].address;
    } else {
        result = map_segment(link, peer, fd);
    }
    if (result != MOTET_OK)
        return motet_error_wrap(result, "map the arena of rank %d", peer);
    MOTET_TRY(motet_gpu_link_copy(link, (uint64_t)(uintptr_t)&seen,
                      nonce_at(link, peer), sizeof(seen)),
            "read the arena of rank %d", peer);
    if (seen != offer->nonce)
        return motet_fail(MOTET_ERR_DEVICE,
                "the arena of rank %d shows other bytes here than its owner wrote",
                peer);
    return MOTET_OK;
}

static motet_result fill(motet_gpu_link *link, uint64_t at, uint32_t value,
        uint64_t bytes)
{
    return link->ops->fill(link->gpu, at, value, bytes / sizeof(uint32_t),
            link->stream);
}

/* Lines that say "everything below start was read", as a rank without steps would. */
static motet_result reset_lines(motet_gpu_link *link, uint32_t start)
{
    const motet_gpu_layout *l = &link->layout;
    size_t lines = (size_t)l->blocks * l->nranks,
           bytes = lines * sizeof(motet_gpu_line);
    motet_gpu_line *line = calloc(lines, sizeof(*line));
    motet_result result;

    if (line == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "lines of an arena");
    for (size_t i = 0; i < lines; i++) {
        line[i].progress = start;
        line[i].published = start;
    }
    result = motet_gpu_link_copy(link, link->at[link->rank] + l->line,
            (uint64_t)(uintptr_t)line, bytes);
    free(line);
    return result;
}

static motet_result reset_states(motet_gpu_link *link, uint32_t start)
{
    uint32_t gen = start >> 29;
    motet_gpu_state *state = calloc(link->layout.blocks, sizeof(*state));
    motet_result result;

    if (state == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "states of an arena");
    for (uint32_t b = 0; b < link->layout.blocks; b++) {
        state[b].position = start;
        state[b].cleared = gen | gen << 8;
    }
    result = motet_gpu_link_copy(link, link->own.address, (uint64_t)(uintptr_t)state,
            (size_t)link->layout.blocks * sizeof(*state));
    free(state);
    return result;
}

motet_result motet_gpu_link_reset(motet_gpu_link *link, uint32_t start)
{
    const motet_gpu_layout *l = &link->layout;
    uint64_t arena = link->at[link->rank];

    memset(link->control, 0, sizeof(*link->control));
    link->used = false; /* what `done` said of launches is gone, too */
    MOTET_TRY(reset_states(link, start), "prepare the own words");
    MOTET_TRY(reset_lines(link, start), "prepare the arena");
    MOTET_TRY(fill(link, arena + l->pair_line, 0, l->ll - l->pair_line),
            "prepare the arena");
    MOTET_TRY(fill(link, arena + l->ll, start ^ 0x80000000u, l->stage - l->ll),
            "prepare the arena");
    MOTET_TRY(fill(link, link->own.address + l->pair_state, 0,
                      l->own_bytes - l->pair_state),
            "prepare the own words");
    return link->ops->stream_sync(link->gpu, link->stream);
}

void motet_gpu_link_unmap(motet_gpu_link *link)
{
    size_t bytes = page_up(link->layout.arena_bytes);

    for (int r = 0; r < link->nranks; r++) {
        link->ops->unimport(link->gpu, &link->imported[r]);
        if (link->mapped[r] != NULL) {
            link->ops->unregister_host(link->gpu, link->mapped[r]);
            motet_segment_unmap(link->mapped[r], bytes);
            link->mapped[r] = NULL;
        }
        link->at[r] = 0;
    }
    if (link->segment != NULL) {
        link->ops->unregister_host(link->gpu, link->segment);
        motet_segment_unmap(link->segment, bytes);
        link->segment = NULL;
    }
    link->ops->free(link->gpu, &link->arena);
    link->ops->free(link->gpu, &link->own);
}

motet_result motet_gpu_link_close(motet_gpu_link *link)
{
    uint32_t one = 1;

    for (uint32_t b = 0; b < link->layout.blocks && link->own.address != 0; b++)
        MOTET_TRY(link->ops->copy(link->gpu,
                          link->own.address + b * sizeof(motet_gpu_state) +
                                  offsetof(motet_gpu_state, closed),
                          (uint64_t)(uintptr_t)&one, sizeof(one), link->stream),
                "close the own words");
    return link->ops->stream_sync(link->gpu, link->stream);
}

bool motet_gpu_link_ended(const motet_gpu_link *link, uint32_t ticket, uint32_t blocks)
{
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t done = __atomic_load_n(&link->control->done[b], __ATOMIC_ACQUIRE);

        if ((int32_t)(done - ticket) < 0)
            return false;
    }
    return true;
}

bool motet_gpu_link_idle(const motet_gpu_link *link)
{
    return !link->used || motet_gpu_link_ended(link, link->ticket, link->blocks);
}

void motet_gpu_link_hold(motet_gpu_link *link)
{
    atomic_fetch_add(&link->holds, 1);
}

/* To be freed when its kernels have left. */
static void put_aside(motet_gpu_link *link)
{
    pthread_mutex_lock(&dead_lock);
    link->next = dead;
    dead = link;
    pthread_mutex_unlock(&dead_lock);
}

void motet_gpu_link_release(motet_gpu_link *link)
{
    if (link != NULL && atomic_fetch_sub(&link->holds, 1) == 1)
        put_aside(link);
}

/* A device that has failed runs nothing any more. */
static bool is_free(motet_gpu_link *link)
{
    bool gone = motet_gpu_link_idle(link) || link->ops->health(link->gpu) != MOTET_OK;

    motet_error_clear();
    return gone;
}

void motet_gpu_link_sweep(void)
{
    motet_gpu_link *all, *next;

    pthread_mutex_lock(&dead_lock);
    all = dead;
    dead = NULL;
    pthread_mutex_unlock(&dead_lock);
    for (motet_gpu_link *link = all; link != NULL; link = next) {
        next = link->next;
        if (is_free(link))
            free_link(link);
        else
            put_aside(link);
    }
}
