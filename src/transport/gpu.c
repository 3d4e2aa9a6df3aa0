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
    link->segment_fd = -1;
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

static bool has_peer_on(const motet_gpu_link *link, motet_gpu_path path)
{
    for (int r = 0; r < link->nranks; r++)
        if (link->path[r] == path && (r != link->rank || link->nranks == 1))
            return true;
    return false;
}

static motet_result make_segment(motet_gpu_link *link)
{
    size_t bytes = page_up(link->layout.arena_bytes);
    motet_result result;
    int fd;

    MOTET_TRY(motet_segment_create("motet-staging", bytes, &link->segment, &fd),
            "host arena of rank %d", link->rank);
    link->segment_fd = fd;
    result = link->ops->register_host(link->gpu, link->segment, bytes, &link->inbox[1]);
    return result == MOTET_OK
            ? MOTET_OK
            : motet_error_wrap(result, "host arena of rank %d", link->rank);
}

motet_result motet_gpu_link_begin(motet_gpu_link *link, const motet_gpu_layout *layout,
        const motet_gpu_path *path)
{
    link->layout = *layout;
    link->hosted = 0;
    memcpy(link->path, path, (size_t)link->nranks * sizeof(*path));
    for (int r = 0; r < link->nranks; r++)
        if (path[r] == MOTET_GPU_PATH_STAGED)
            link->hosted |= 1u << r;
    MOTET_TRY(link->ops->alloc(link->gpu, layout->own_bytes, &link->own),
            "own words of rank %d", link->rank);
    return MOTET_OK;
}

motet_result motet_gpu_link_make_arena(motet_gpu_link *link, motet_gpu_path path)
{
    if (!has_peer_on(link, path))
        return MOTET_OK;
    if (path == MOTET_GPU_PATH_DIRECT) {
        MOTET_TRY(link->ops->alloc(link->gpu, link->layout.arena_bytes, &link->arena),
                "arena of rank %d", link->rank);
        link->inbox[0] = link->inbox[1] = link->arena.address;
        return MOTET_OK;
    }
    MOTET_TRY(make_segment(link), "staged path");
    if (link->arena.address == 0)
        link->inbox[0] = link->inbox[1];
    return MOTET_OK;
}

/* The words of an arena's owner lie in the line that the rank would write for itself,
 * which nobody uses: the first one when it offers the arena, the second one later. */
static uint64_t nonce_offset(const motet_gpu_link *link, int owner, int word)
{
    return motet_gpu_line_offset(&link->layout, 0, (uint32_t)owner) +
            offsetof(motet_gpu_line, reserved) + (size_t)word * sizeof(uint64_t);
}

/* See whether a word of @p peer's arena is the one that it wrote. */
static motet_result see_nonce(motet_gpu_link *link, int peer, int word, uint64_t wanted)
{
    uint64_t seen = 0;

    MOTET_TRY(motet_gpu_link_copy(link, (uint64_t)(uintptr_t)&seen,
                      link->at[peer] + nonce_offset(link, peer, word), sizeof(seen)),
            "read the arena of rank %d", peer);
    if (seen != wanted)
        return motet_fail(MOTET_ERR_DEVICE,
                "the arena of rank %d shows other bytes here than its owner wrote%s",
                peer, word == 0 ? "" : " after it was mapped");
    return MOTET_OK;
}

motet_result motet_gpu_link_offer(motet_gpu_link *link, motet_gpu_path path,
        uint64_t process, uint64_t nonce, motet_gpu_offer *out, int *fd_out)
{
    bool hosted = path == MOTET_GPU_PATH_STAGED;

    *fd_out = -1;
    *out = (motet_gpu_offer){ .path = path, .nonce = nonce };
    if (!has_peer_on(link, path))
        return MOTET_OK;
    MOTET_TRY(motet_gpu_link_copy(link,
                      link->inbox[hosted] + nonce_offset(link, link->rank, 0),
                      (uint64_t)(uintptr_t)&out->nonce, sizeof(out->nonce)),
            "write into the arena of rank %d", link->rank);
    if (hosted) {
        *fd_out = link->segment_fd;
        link->segment_fd = -1;
    } else {
        MOTET_TRY(link->ops->export_memory(link->gpu, link->arena.address, &out->memory,
                          fd_out),
                "hand the arena of rank %d on", link->rank);
        out->memory.process = process;
    }
    out->bytes = link->layout.arena_bytes;
    return MOTET_OK;
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
    motet_result result;

    if (offer->path != (uint32_t)link->path[peer] ||
            offer->bytes != link->layout.arena_bytes)
        return motet_fail(MOTET_ERR_DEVICE,
                "rank %d offers an arena of %llu bytes on path %u, need %llu on %u",
                peer, (unsigned long long)offer->bytes, offer->path,
                (unsigned long long)link->layout.arena_bytes,
                (unsigned)link->path[peer]);
    if (link->path[peer] == MOTET_GPU_PATH_DIRECT) {
        result = link->ops->import(link->gpu, &offer->memory, process, fd,
                &link->imported[peer]);
        link->at[peer] = link->imported[peer].address;
    } else {
        result = map_segment(link, peer, fd);
    }
    if (result != MOTET_OK)
        return motet_error_wrap(result, "map the arena of rank %d", peer);
    return see_nonce(link, peer, 0, offer->nonce);
}

/* ---- a first look at a mapping ---- */

/* Words of an arena that only rank `writer` writes: in its line, and the last one of what
 * it may fill of the LL slots, of the staging slots and of those of the pairs. */
enum { SIGNED = 4 };
static void places_of(const motet_gpu_layout *l, uint32_t writer, uint64_t *out)
{
    uint64_t after = l->nranks - writer - 1;

    out[0] = motet_gpu_line_offset(l, 0, writer) + offsetof(motet_gpu_line, reserved);
    out[1] = l->stage - after * 2 * l->ll_bytes;
    out[2] = l->pair_stage - after * l->chunk;
    out[3] = l->ring - after * l->pair_chunk;
    for (int i = 1; i < SIGNED; i++)
        out[i] -= sizeof(uint64_t);
}

static uint64_t sign_of(uint64_t nonce, int from, int to, int place)
{
    uint64_t h = nonce ^ ((uint64_t)from << 16 | (uint64_t)to << 8 | (uint64_t)place);

    h *= 0xbf58476d1ce4e5b9ull;
    return h ^ h >> 31;
}

motet_result motet_gpu_link_sign(motet_gpu_link *link, int peer, uint64_t nonce)
{
    uint64_t place[SIGNED], word[SIGNED];

    places_of(&link->layout, (uint32_t)link->rank, place);
    for (int i = 0; i < SIGNED; i++) {
        word[i] = sign_of(nonce, link->rank, peer, i);
        MOTET_TRY(link->ops->copy(link->gpu, link->at[peer] + place[i],
                          (uint64_t)(uintptr_t)&word[i], sizeof(word[i]), link->stream),
                "write into the arena of rank %d", peer);
    }
    return link->ops->stream_sync(link->gpu, link->stream);
}

motet_result motet_gpu_link_verify(motet_gpu_link *link, int peer, uint64_t nonce)
{
    uint64_t place[SIGNED], seen = 0;
    uint64_t inbox = link->inbox[link->hosted >> peer & 1];

    places_of(&link->layout, (uint32_t)peer, place);
    for (int i = 0; i < SIGNED; i++) {
        MOTET_TRY(motet_gpu_link_copy(link, (uint64_t)(uintptr_t)&seen,
                          inbox + place[i], sizeof(seen)),
                "look for what rank %d wrote", peer);
        if (seen != sign_of(nonce, peer, link->rank, i))
            return motet_fail(MOTET_ERR_DEVICE,
                    "what rank %d writes at byte %llu of its arena does not arrive",
                    peer, (unsigned long long)place[i]);
    }
    return MOTET_OK;
}

/* Unlike the first nonce, and unlike what other communicators write. */
static uint64_t second_nonce(uint64_t nonce)
{
    return ~nonce;
}

motet_result motet_gpu_link_change(motet_gpu_link *link, uint64_t nonce)
{
    uint64_t second = second_nonce(nonce);

    for (int i = 0; i < MOTET_GPU_INBOXES; i++)
        MOTET_TRY(motet_gpu_link_copy(link,
                          link->inbox[i] + nonce_offset(link, link->rank, 1),
                          (uint64_t)(uintptr_t)&second, sizeof(second)),
                "write into the arena of rank %d", link->rank);
    return MOTET_OK;
}

motet_result motet_gpu_link_see_change(motet_gpu_link *link, int peer, uint64_t nonce)
{
    return see_nonce(link, peer, 1, second_nonce(nonce));
}

/* ---- fresh words ---- */

static motet_result fill(motet_gpu_link *link, uint64_t at, uint32_t value,
        uint64_t bytes)
{
    return link->ops->fill(link->gpu, at, value, bytes / sizeof(uint32_t),
            link->stream);
}

/* Lines that say "everything below start was read", as a rank without steps would. */
static motet_result reset_lines(motet_gpu_link *link, uint64_t arena, uint32_t start)
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
    result = motet_gpu_link_copy(link, arena + l->line, (uint64_t)(uintptr_t)line,
            bytes);
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

static motet_result reset_arena(motet_gpu_link *link, uint64_t arena, uint32_t start)
{
    const motet_gpu_layout *l = &link->layout;

    MOTET_TRY(reset_lines(link, arena, start), "lines");
    MOTET_TRY(fill(link, arena + l->pair_line, 0, l->ll - l->pair_line), "pairs");
    return fill(link, arena + l->ll, start ^ 0x80000000u, l->stage - l->ll);
}

motet_result motet_gpu_link_reset(motet_gpu_link *link, uint32_t start)
{
    const motet_gpu_layout *l = &link->layout;

    memset(link->control, 0, sizeof(*link->control));
    link->used = false; /* what `done` said of launches is gone, too */
    MOTET_TRY(reset_states(link, start), "prepare the own words");
    for (int i = 0; i < MOTET_GPU_INBOXES; i++)
        if (i == 0 || link->inbox[i] != link->inbox[0])
            MOTET_TRY(reset_arena(link, link->inbox[i], start), "prepare an arena");
    MOTET_TRY(fill(link, link->own.address + l->pair_state, 0,
                      l->own_bytes - l->pair_state),
            "prepare the own words");
    return link->ops->stream_sync(link->gpu, link->stream);
}

static void unmap_peer(motet_gpu_link *link, int peer, size_t bytes)
{
    link->ops->unimport(link->gpu, &link->imported[peer]);
    if (link->mapped[peer] != NULL) {
        link->ops->unregister_host(link->gpu, link->mapped[peer]);
        motet_segment_unmap(link->mapped[peer], bytes);
    }
    link->mapped[peer] = NULL;
    link->at[peer] = 0;
}

void motet_gpu_link_unmap(motet_gpu_link *link)
{
    size_t bytes = page_up(link->layout.arena_bytes);

    if (link->stuck)
        return;
    for (int r = 0; r < link->nranks; r++)
        unmap_peer(link, r, bytes);
    if (link->segment != NULL) {
        link->ops->unregister_host(link->gpu, link->segment);
        motet_segment_unmap(link->segment, bytes);
    }
    if (link->segment_fd >= 0)
        close(link->segment_fd);
    link->segment = NULL;
    link->segment_fd = -1;
    link->inbox[0] = link->inbox[1] = 0;
    link->ops->free(link->gpu, &link->arena);
    link->ops->free(link->gpu, &link->own);
}

motet_result motet_gpu_link_close(motet_gpu_link *link)
{
    uint32_t one = 1;

    if (link->stuck)
        return MOTET_OK;
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

/* A device that has failed runs nothing any more; one that is stuck never ends. */
static bool is_free(motet_gpu_link *link)
{
    bool gone = !link->stuck &&
            (motet_gpu_link_idle(link) || link->ops->health(link->gpu) != MOTET_OK);

    motet_error_clear();
    return gone;
}

void motet_gpu_link_sweep(const motet_gpu *gpu)
{
    motet_gpu_link *own = NULL, *next;

    pthread_mutex_lock(&dead_lock);
    for (motet_gpu_link **at = &dead, *link; (link = *at) != NULL;) {
        if (link->gpu != gpu) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        link->next = own;
        own = link;
    }
    pthread_mutex_unlock(&dead_lock);
    for (motet_gpu_link *link = own; link != NULL; link = next) {
        next = link->next;
        if (is_free(link))
            free_link(link);
        else
            put_aside(link);
    }
}
