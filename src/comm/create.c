/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a communicator: choose a device, make the own arena, meet the other ranks,
 * map and prove their arenas, and watch their lives. Everything that operations need
 * exists when this is over.
 *
 * The last step is a handshake through the arenas: a rank says READY when it has
 * mapped and proved everybody's arena, and goes on when all have said so. Until then
 * a rank that ends tells the others through its life line.
 */
#include "comm/gpu.h"
#include "comm/introduction.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What is made on the way, and given up if it fails. */
typedef struct making {
    motet_params *params;
    motet_introduction intro;
    motet_roster roster;
    motet_arena own;
    int arena_fd, life_read, self_fd;
    uint64_t deadline_ns;
    motet_gpu_constants forced; /* of a GPU rank */
} making;

/* A GPU rank's device, and what is forced there. */
static motet_result open_gpu(motet_comm *comm, making *m)
{
    if (comm->device->gpu == NULL)
        return MOTET_OK;
    MOTET_TRY(comm->device->gpu->open(comm->ordinal, &comm->gpu_device), "device %d",
            comm->ordinal);
    motet_log_set_device(comm->ordinal);
    m->forced.zero = (comm->config.cta_policy & MOTET_CTA_POLICY_ZERO) != 0;
    MOTET_TRY(motet_gpu_force(motet_param_text(m->params, MOTET_P_PROTO), &m->forced),
            "read NCCL_PROTO");
    return motet_gpu_plan_force(motet_param_text(m->params, MOTET_P_PLAN), &m->forced);
}

static motet_result read_settings(motet_comm *comm, const motet_comm_spec *spec,
        making *m)
{
    motet_constants *constants = &m->intro.constants;
    int64_t chunk, path;

    MOTET_TRY(motet_params_new(&m->params), "read the environment");
    MOTET_TRY(motet_device_choose(m->params, spec->choice, &comm->device),
            "choose a device");
    path = motet_param(m->params, MOTET_P_PATH);
    if (comm->device->gpu == NULL ? path >= MOTET_PATH_WORD_DIRECT
                                  : path == MOTET_PATH_WORD_SHARED)
        return motet_fail(MOTET_ERR_USAGE,
                "MOTET_PATH names a path that %s ranks do not have, need %s",
                comm->device->name,
                comm->device->gpu == NULL ? "auto or shared"
                                          : "auto, direct, staged or copy");
    MOTET_TRY(open_gpu(comm, m), "open the device");
    motet_constants_default(comm->nranks, constants);
    chunk = motet_param(m->params, MOTET_P_CHUNK_BYTES);
    if (chunk != 0)
        constants->board_chunk = (uint32_t)((chunk + 4095) & ~(int64_t)4095);
    if (constants->board_chunk < (uint32_t)comm->nranks * 64)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "MOTET_CHUNK_BYTES is %u, need at least %d for %d ranks",
                constants->board_chunk, comm->nranks * 64, comm->nranks);
    constants->epoch_start = (uint64_t)motet_param(m->params, MOTET_P_EPOCH_START);
    MOTET_TRY(motet_plan_force(motet_param_text(m->params, MOTET_P_ALGO), constants),
            "choose algorithms");
    comm->init_timeout_s = spec->timeout_s != 0
            ? spec->timeout_s
            : (uint64_t)motet_param(m->params, MOTET_P_INIT_TIMEOUT_S);
    m->deadline_ns = motet_deadline_after_s(comm->init_timeout_s);
    return motet_introduction_fill(&m->intro);
}

/* The own arena, the own life line, and a descriptor of this process for the peers. */
static motet_result make_own(motet_comm *comm, making *m)
{
    motet_arena_shape shape = {
        .nranks = comm->nranks,
        .board_chunk = m->intro.constants.board_chunk,
        .pair_chunk = m->intro.constants.pair_chunk,
    };
    int ends[2];

    MOTET_TRY(motet_arena_create(&shape, comm->rank, m->intro.nonce, &m->own,
                      &m->arena_fd),
            "make this rank's arena");
    if (pipe2(ends, O_CLOEXEC) != 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "make a life line");
    m->life_read = ends[0];
    comm->life_line = ends[1];
    /* Old kernels and some sandboxes have no pidfds: the life line tells as well. */
    m->self_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    return MOTET_OK;
}

static motet_result meet(motet_comm *comm, const motet_comm_spec *spec, making *m)
{
    char settings[MOTET_SETTINGS_MAX];
    motet_join_args args = {
        .rank = comm->rank,
        .nranks = comm->nranks,
        .settings = settings,
        .blob = &m->intro,
        .blob_bytes = sizeof(m->intro),
        .fds = { m->arena_fd, m->life_read, m->self_fd },
        .nfds = m->self_fd >= 0 ? 3 : 2,
        .deadline_ns = m->deadline_ns,
        .cancel = &comm->cancel,
    };

    MOTET_TRY(motet_settings_text(m->params, spec, comm->device, &m->intro.constants,
                      settings, sizeof(settings)),
            "describe this rank");
    MOTET_TRY(motet_bootstrap_join(m->params, &spec->id, &args, &m->roster),
            "meet the other ranks");
    for (int r = 0; r < comm->nranks; r++)
        if (m->roster.rank[r].blob_bytes != sizeof(motet_introduction))
            return motet_fail(MOTET_ERR_USAGE,
                    "rank %d said %zu bytes of itself, need %zu", r,
                    m->roster.rank[r].blob_bytes, sizeof(motet_introduction));
    return MOTET_OK;
}

static void introduction_of(const making *m, int rank, motet_introduction *out)
{
    memcpy(out, m->roster.rank[rank].blob, sizeof(*out));
}

static motet_result allocate(motet_comm *comm)
{
    size_t n = (size_t)comm->nranks;
    int *watch_fd;

    comm->arena = calloc(n, sizeof(*comm->arena));
    comm->peer = calloc(n, sizeof(*comm->peer));
    comm->engine.pair = calloc(n, sizeof(*comm->engine.pair));
    watch_fd = malloc(2 * n * sizeof(*watch_fd));
    for (size_t i = 0; watch_fd != NULL && i < 2 * n; i++)
        watch_fd[i] = -1;
    comm->watch_fd = watch_fd; /* filled: a child forked now closes what it lists */
    if (comm->arena == NULL || comm->peer == NULL || comm->engine.pair == NULL ||
            watch_fd == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "tables of %d ranks", comm->nranks);
    return MOTET_OK;
}

/* Take over what the others brought: map their arenas, keep their life descriptors. */
static motet_result adopt(motet_comm *comm, making *m)
{
    motet_arena_shape shape = m->own.shape;

    comm->arena[comm->rank] = m->own;
    m->own = (motet_arena){ 0 };
    for (int r = 0; r < comm->nranks; r++) {
        motet_roster_entry *entry = &m->roster.rank[r];
        motet_introduction intro;

        comm->peer[r].pid = (int)entry->pid;
        memcpy(comm->peer[r].host, entry->host, sizeof(comm->peer[r].host));
        if (r == comm->rank)
            continue;
        introduction_of(m, r, &intro);
        MOTET_TRY(motet_arena_map(&shape, r, intro.nonce, entry->fds[0],
                          &comm->arena[r]),
                "map the other ranks' memory");
        comm->watch_fd[2 * r] = entry->fds[1];
        entry->fds[1] = -1;
        if (entry->pid != getpid()) {
            comm->watch_fd[2 * r + 1] = entry->fds[2];
            entry->fds[2] = -1;
        }
    }
    return MOTET_OK;
}

/* Do more ranks than cores share this node? */
static motet_result look_for_sharing(motet_comm *comm, const making *m)
{
    size_t n = (size_t)comm->nranks;
    motet_introduction *all = malloc(n * sizeof(*all));
    int64_t wanted = motet_param(m->params, MOTET_P_OVERSUBSCRIBED);

    if (all == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "introductions of %d ranks",
                comm->nranks);
    for (int r = 0; r < comm->nranks; r++)
        introduction_of(m, r, &all[r]);
    comm->engine.oversubscribed = wanted == 0
            ? motet_introduction_oversubscribed(all, comm->nranks)
            : wanted == 2;
    comm->engine.constants = all[0].constants;
    comm->number = all[0].number;
    free(all);
    return MOTET_OK;
}

static motet_result start_engine(motet_comm *comm, making *m)
{
    motet_engine *engine = &comm->engine;
    motet_recorder_args args = {
        .rank = comm->rank,
        .nranks = comm->nranks,
        .device = comm->gpu_device != NULL ? comm->ordinal : -1,
        .comm_name = comm->config.comm_name,
    };

    MOTET_TRY(look_for_sharing(comm, m), "compare ranks and cores");
    args.comm = comm->number;
    MOTET_TRY(motet_recorder_create(m->params, &args, &comm->recorder),
            "make the recorder");
    engine->rank = comm->rank;
    engine->nranks = comm->nranks;
    engine->arena = comm->arena;
    engine->peer = comm->peer;
    engine->recorder = &comm->recorder;
    engine->warn_after_ns =
            (uint64_t)motet_param(m->params, MOTET_P_WARN_AFTER_S) * MOTET_NS_PER_S;
    atomic_store(&engine->timeout_ns,
            (uint64_t)motet_param(m->params, MOTET_P_OP_TIMEOUT_S) * MOTET_NS_PER_S);
    motet_engine_init(engine);
    return MOTET_OK;
}

static uint32_t life_of(const motet_comm *comm, int rank)
{
    return atomic_load_explicit(&comm->arena[rank].head->life, memory_order_acquire);
}

/* A rank that has not said READY: is it still there? A life line that is closed says no
 * only if the rank still has not: it may have been READY and have left meanwhile. */
static motet_result still_coming(motet_comm *comm, int rank, uint64_t deadline_ns)
{
    struct pollfd life = { .fd = comm->watch_fd[2 * rank], .events = POLLIN };

    if (atomic_load_explicit(&comm->cancel, memory_order_acquire) != 0)
        return motet_fail(MOTET_ERR_REMOTE,
                "the communicator was aborted while it was made");
    if (life_of(comm, rank) == MOTET_LIFE_GAVE_UP ||
            (poll(&life, 1, 1) > 0 && life_of(comm, rank) == MOTET_LIFE_JOINING))
        return motet_fail(MOTET_ERR_REMOTE,
                "rank %d (pid %d) gave up or died while the communicator was made",
                rank, comm->peer[rank].pid);
    if (motet_deadline_passed(deadline_ns))
        return motet_fail(MOTET_ERR_REMOTE,
                "rank %d (pid %d) has not mapped the others' memory within %llu s",
                rank, comm->peer[rank].pid, (unsigned long long)comm->init_timeout_s);
    return MOTET_OK;
}

static motet_result await_ready(motet_comm *comm, uint64_t deadline_ns)
{
    atomic_store_explicit(&comm->arena[comm->rank].head->life, MOTET_LIFE_READY,
            memory_order_release);
    for (int r = 0; r < comm->nranks; r++) {
        /* A rank may be READY, do its work, and leave before this one looks. */
        while (life_of(comm, r) == MOTET_LIFE_JOINING ||
                life_of(comm, r) == MOTET_LIFE_GAVE_UP)
            MOTET_TRY(still_coming(comm, r, deadline_ns),
                    "wait for all ranks to be ready");
    }
    return MOTET_OK;
}

/* Ranks of this process end with it: once they are ready, nothing is learned from their
 * life lines, and a process of many ranks would need many descriptors. */
static void close_siblings(motet_comm *comm, const making *m)
{
    for (int r = 0; r < comm->nranks; r++) {
        int fd = comm->watch_fd[2 * r];
        motet_introduction intro;

        introduction_of(m, r, &intro);
        if (intro.process != m->intro.process || fd < 0)
            continue;
        comm->watch_fd[2 * r] = -1;
        close(fd);
    }
}

static motet_comm *comm_of(motet_watch_item *item)
{
    return (motet_comm *)(void *)((char *)item - offsetof(motet_comm, watch));
}

/* A peer's descriptor speaks: its process has ended, or it has left in good order. */
static void on_life_event(motet_watch_item *item, int index)
{
    motet_comm *comm = comm_of(item);
    int rank = index / 2, fd = item->fds[index];

    if (life_of(comm, rank) != MOTET_LIFE_LEFT)
        motet_engine_peer_died(&comm->engine, rank);
    item->fds[index] = -1; /* first: a child forked now must not close it again */
    close(fd);
}

static void on_tick(motet_watch_item *item, uint64_t now_ns)
{
    motet_comm *comm = comm_of(item);

    atomic_store_explicit(&comm->arena[comm->rank].head->heartbeat_ns, now_ns,
            memory_order_relaxed);
    atomic_store_explicit(&comm->recorder.file->heartbeat_ns, now_ns,
            memory_order_relaxed);
    if (atomic_load_explicit(&comm->gpu_ready, memory_order_acquire) != 0 &&
            motet_gpu_look(comm->gpu, now_ns) != MOTET_OK)
        motet_error_clear(); /* kept by the engine for whoever asks */
    if (motet_engine_poll(&comm->engine) != MOTET_OK)
        motet_error_clear();
}

static motet_result watch(motet_comm *comm)
{
    comm->watch = (motet_watch_item){
        .fds = comm->watch_fd,
        .nfds = 2 * comm->nranks,
        .on_event = on_life_event,
        .on_tick = on_tick,
    };
    on_tick(&comm->watch, motet_now_ns());
    MOTET_TRY(motet_watch_add(&comm->watch), "watch the other ranks");
    comm->watched = true;
    return MOTET_OK;
}

static motet_result make(motet_comm *comm, const motet_comm_spec *spec, making *m)
{
    motet_result result = read_settings(comm, spec, m);

    if (result == MOTET_OK)
        result = make_own(comm, m);
    if (result == MOTET_OK)
        result = meet(comm, spec, m);
    if (result == MOTET_OK)
        result = allocate(comm);
    if (result == MOTET_OK)
        result = adopt(comm, m);
    if (result == MOTET_OK)
        result = start_engine(comm, m);
    if (result == MOTET_OK)
        result = await_ready(comm, m->deadline_ns);
    if (result != MOTET_OK)
        return result;
    close_siblings(comm, m);
    result = watch(comm);
    if (result != MOTET_OK || comm->gpu_device == NULL)
        return result;
    return motet_comm_gpu_start(comm, m->params, &m->forced, m->intro.process,
            spec->thread, m->deadline_ns);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

motet_result motet_comm_start(motet_comm *comm, const motet_comm_spec *spec)
{
    making m = { .arena_fd = -1, .life_read = -1, .self_fd = -1 };
    motet_result result;

    motet_fork_guard();
    comm->rank = spec->rank;
    comm->nranks = spec->nranks;
    comm->ordinal = spec->ordinal;
    comm->config = spec->config;
    m.intro.ordinal = spec->ordinal;
    result = make(comm, spec, &m);
    free(m.params);
    motet_roster_release(&m.roster);
    motet_arena_release(&m.own);
    close_fd(m.arena_fd);
    close_fd(m.life_read);
    close_fd(m.self_fd);
    if (result != MOTET_OK) {
        motet_comm_release(comm, true);
        return result;
    }
    motet_recorder_path(&comm->recorder, motet_comm_path_name(comm));
    motet_info(MOTET_SUB_INIT,
            "comm %p rank %d nranks %d device %s %d number %016llx path %s%s - "
            "Init COMPLETE",
            (void *)comm, comm->rank, comm->nranks, comm->device->name, comm->ordinal,
            (unsigned long long)comm->number, motet_comm_path_name(comm),
            comm->engine.oversubscribed ? " oversubscribed" : "");
    return MOTET_OK;
}

void motet_comm_started(motet_comm *comm, motet_result result)
{
    comm->start_result = result;
    if (result != MOTET_OK)
        snprintf(comm->start_error, sizeof(comm->start_error), "%s",
                motet_error_trail());
    atomic_store_explicit(&comm->state,
            result == MOTET_OK ? MOTET_COMM_READY : MOTET_COMM_BROKEN,
            memory_order_release);
}
