/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU ranks: their devices and the code for them; operations; the end. Which paths they
 * take is found in paths.c.
 */
#include "comm/gpu.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/paths.h"
#include "kernels/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a rank says of its device. */
typedef struct card {
    char identity[96];
    char target[32];
    uint32_t resident; /* blocks that run at the same time */
    uint32_t max_blocks;
    uint32_t has_code;
    int32_t thread; /* that asked for the communicator */
    uint32_t launch_blocks;
    uint64_t process;
    char reason[160]; /* why it has none */
} card;

typedef struct setup {
    motet_comm *comm;
    const motet_gpu_ops *ops;
    const motet_params *params;
    uint64_t process, deadline_ns;
    int thread;
    void *module;
    uint32_t limit;
    bool shared_device; /* several ranks on one device: they may take turns on it */
    bool shared_thread; /* one thread drives several ranks */
    char identity[MOTET_GPU_RANKS][96]; /* of the ranks' devices */
} setup;

/* ---- code ---- */

/* The image for just this device; if the driver is too old for it, one that it translates. */
static motet_result load_best(const motet_gpu_ops *ops, motet_gpu *gpu,
        const char *files, void **module_out)
{
    void *image = NULL;
    size_t bytes;
    motet_result result = motet_image_get(files, ops->vendor, ops->facts(gpu)->target,
            &image, &bytes);

    if (result != MOTET_OK)
        return result;
    result = ops->load(gpu, image, bytes, module_out);
    free(image);
    if (result == MOTET_OK ||
            motet_image_get_portable(ops->vendor, &image, &bytes) != MOTET_OK)
        return result;
    result = ops->load(gpu, image, bytes, module_out);
    free(image);
    return result;
}

motet_result motet_comm_gpu_load(const motet_gpu_ops *ops, motet_gpu *gpu,
        const char *files, void **module_out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        motet_gpu *gpu;
        void *module;
    } loaded[64];
    motet_result result = MOTET_OK;
    size_t i = 0;

    pthread_mutex_lock(&lock);
    while (i < 64 && loaded[i].gpu != NULL && loaded[i].gpu != gpu)
        i++;
    if (i < 64 && loaded[i].gpu == gpu) {
        *module_out = loaded[i].module;
    } else {
        result = load_best(ops, gpu, files, module_out);
        if (result == MOTET_OK && i < 64) {
            loaded[i].gpu = gpu;
            loaded[i].module = *module_out;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Blocks of the hungriest kernel that run on the device at the same time. */
static motet_result resident_blocks(setup *s, uint32_t *blocks_out)
{
    static const char *const hungry[] = { "motet_ll_reduce", "motet_stage_reduce",
        "motet_twoshot_reduce", "motet_pairs" };
    uint32_t least = MOTET_GPU_BLOCKS;

    for (size_t i = 0; i < sizeof(hungry) / sizeof(*hungry); i++) {
        void *function;
        uint32_t blocks;

        MOTET_TRY(s->ops->function(s->comm->gpu_device, s->module, hungry[i],
                          &function),
                "look at the kernels");
        MOTET_TRY(s->ops->resident_blocks(s->comm->gpu_device, function,
                          MOTET_GPU_THREADS, &blocks),
                "look at the kernels");
        least = blocks < least ? blocks : least;
    }
    if (least == 0)
        return motet_fail(MOTET_ERR_DEVICE, "no block of %d threads fits the device",
                MOTET_GPU_THREADS);
    *blocks_out = least;
    return MOTET_OK;
}

static void fill_card(setup *s, card *c)
{
    const motet_gpu_facts *facts = s->ops->facts(s->comm->gpu_device);
    int64_t most = motet_param(s->params, MOTET_P_MAX_CTAS);
    motet_result result;

    memset(c, 0, sizeof(*c));
    snprintf(c->identity, sizeof(c->identity), "%s", facts->identity);
    snprintf(c->target, sizeof(c->target), "%s", facts->target);
    c->thread = s->thread;
    c->process = s->process;
    c->launch_blocks = facts->launch_blocks;
    if (most < 0)
        most = s->comm->config.max_ctas;
    c->max_blocks = most < 2          ? 2
            : most > MOTET_GPU_BLOCKS ? MOTET_GPU_BLOCKS
                                      : (uint32_t)most;
    result = motet_comm_gpu_load(s->ops, s->comm->gpu_device,
            motet_param_text(s->params, MOTET_P_KERNEL_PATH), &s->module);
    if (result == MOTET_OK)
        result = resident_blocks(s, &c->resident);
    c->has_code = result == MOTET_OK;
    if (result != MOTET_OK)
        snprintf(c->reason, sizeof(c->reason), "%s", motet_error_trail());
    motet_error_clear();
}

/* The grid that fits on every device, whoever shares it. */
static void find_limit(setup *s, const card *all)
{
    uint32_t limit = MOTET_GPU_BLOCKS;

    for (int r = 0; r < s->comm->nranks; r++) {
        uint32_t sharing = 0, share;

        for (int q = 0; q < s->comm->nranks; q++)
            sharing += strcmp(all[r].identity, all[q].identity) == 0;
        s->shared_device = s->shared_device || sharing > 1;
        share = all[r].resident / sharing;
        limit = share < limit ? share : limit;
        limit = all[r].max_blocks < limit ? all[r].max_blocks : limit;
    }
    s->limit = limit < 2 ? 2 : limit;
}

/* What makes one thread wait with a rank's launches waits for kernels of the other rank
 * that it has still to launch: a launch that returns when its kernel has ended, or more
 * launches than a queue holds. */
static motet_result check_threads(setup *s, const card *all)
{
    for (int r = 0; r < s->comm->nranks; r++)
        for (int q = r + 1; q < s->comm->nranks; q++) {
            if (all[r].thread == 0 || all[r].process != all[q].process ||
                    all[r].thread != all[q].thread)
                continue;
            s->shared_thread = true;
            if (all[r].launch_blocks != 0)
                return motet_fail(MOTET_ERR_USAGE,
                        "CUDA_LAUNCH_BLOCKING=1 makes each launch wait for its kernel, "
                        "and one thread drives ranks %d and %d: unset it, or give each "
                        "rank a thread or process",
                        r, q);
        }
    return MOTET_OK;
}

/* Compare devices. @p code_out: every rank has kernels for its own. */
static motet_result compare_cards(setup *s, bool *code_out)
{
    int n = s->comm->nranks;
    card mine, *all = calloc((size_t)n, sizeof(*all));
    motet_result result;

    if (all == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "cards of %d ranks", n);
    fill_card(s, &mine);
    s->comm->fp8_fnuz = motet_target_fp8_fnuz(mine.target);
    result = motet_comm_say(s->comm, &mine, sizeof(mine), all, s->deadline_ns,
            &s->comm->cancel);
    *code_out = true;
    if (result == MOTET_OK)
        result = check_threads(s, all);
    for (int r = 0; r < n && result == MOTET_OK; r++) {
        snprintf(s->identity[r], sizeof(s->identity[r]), "%.95s", all[r].identity);
        if (!all[r].has_code && *code_out)
            motet_warn("rank %d has no kernels for its device (%s): copies only, which "
                       "are slow: %.*s",
                    r, all[r].target, (int)sizeof(all[r].reason), all[r].reason);
        *code_out = *code_out && all[r].has_code;
        if (motet_target_fp8_fnuz(all[r].target) != s->comm->fp8_fnuz)
            s->comm->fp8_odd = r + 1;
    }
    if (result == MOTET_OK)
        find_limit(s, all);
    free(all);
    return result;
}

static motet_result make_engine(setup *s)
{
    motet_comm *comm = s->comm;

    comm->gpu = calloc(1, sizeof(*comm->gpu));
    if (comm->gpu == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "engine of a GPU rank");
    comm->gpu->engine = &comm->engine;
    comm->gpu->mixing = comm->config.graph_usage_mode == 2 &&
            motet_param(s->params, MOTET_P_GRAPH_MIXING_SUPPORT);
    comm->gpu->limit = s->limit;
    MOTET_TRY(motet_gpu_link_make(s->ops, comm->gpu_device, comm->rank, comm->nranks,
                      &comm->gpu->link),
            "memory of a GPU rank");
    return motet_gpu_engine_init(comm->gpu, s->module);
}

const char *motet_comm_path_name(const motet_comm *comm)
{
    if (comm->gpu == NULL)
        return comm->gpu_device != NULL ? motet_gpu_path_names[MOTET_GPU_PATH_COPY]
                                        : "shared";
    switch (comm->gpu->link->paths) {
    case 1u << MOTET_GPU_PATH_DIRECT:
        return motet_gpu_path_names[MOTET_GPU_PATH_DIRECT];
    case 1u << MOTET_GPU_PATH_STAGED:
        return motet_gpu_path_names[MOTET_GPU_PATH_STAGED];
    default: return "direct+staged";
    }
}

motet_result motet_comm_gpu_start(motet_comm *comm, const motet_params *params,
        const motet_gpu_constants *forced, uint64_t process, int thread,
        uint64_t deadline_ns)
{
    setup s = {
        .comm = comm,
        .ops = comm->device->gpu,
        .params = params,
        .process = process,
        .thread = thread,
        .deadline_ns = deadline_ns,
    };
    motet_path_search search = {
        .comm = comm,
        .params = params,
        .forced = forced,
        .process = process,
        .deadline_ns = deadline_ns,
        .identity = (const char(*)[96])s.identity,
    };
    bool has_code = false, taken = false;

    comm->gpu_process = process;
    comm->check_pointers = motet_param(params, MOTET_P_CHECK_POINTERS) != 0;
    motet_gpu_link_sweep(comm->gpu_device);
    if (comm->nranks > MOTET_GPU_RANKS)
        return motet_fail(MOTET_ERR_USAGE,
                "%d GPU ranks on one host, and %d are the most", comm->nranks,
                MOTET_GPU_RANKS);
    MOTET_TRY(compare_cards(&s, &has_code), "compare devices");
    if (!has_code || motet_param(params, MOTET_P_PATH) == MOTET_PATH_WORD_COPY)
        return MOTET_OK;
    MOTET_TRY(make_engine(&s), "start");
    search.shared_device = s.shared_device;
    MOTET_TRY(motet_comm_find_paths(&search, &taken), "find paths");
    if (!taken) {
        motet_warn("between some of the GPUs no path passed its proof: copies only for "
                   "all, which are slow; NCCL_DEBUG=INFO says why");
        motet_comm_gpu_release(comm);
        return MOTET_OK;
    }
    if (s.shared_thread)
        motet_gpu_constants_few_calls(&comm->gpu->constants);
    comm->engine.device_abort = &comm->gpu->link->control->abort;
    atomic_store_explicit(&comm->gpu_ready, 1, memory_order_release);
    return MOTET_OK;
}

/* Streams of one group: the first carries all; it waits for the others, and they for it. */
static motet_result join_streams(motet_comm *comm, const motet_batch *batch,
        bool before)
{
    const motet_gpu_ops *ops = comm->device->gpu;
    void *first = (void *)(uintptr_t)batch->stream[0];

    for (int i = 1; i < batch->streams; i++) {
        void *other = (void *)(uintptr_t)batch->stream[i];

        MOTET_TRY(ops->event_record(comm->gpu_device, comm->gpu->join,
                          before ? other : first, false),
                "join the streams of a group");
        MOTET_TRY(ops->event_wait(comm->gpu_device, comm->gpu->join,
                          before ? first : other, false),
                "join the streams of a group");
    }
    return MOTET_OK;
}

/* Before anything of the group is enqueued. */
static motet_result check_capture(motet_comm *comm, const motet_batch *batch)
{
    motet_stream_state state;

    if (!motet_gpu_pairs_by_copies(comm->gpu, batch->transfer, batch->transfers))
        return MOTET_OK;
    for (int i = 0; i < batch->streams; i++) {
        MOTET_TRY(motet_gpu_stream_state(comm->gpu, (void *)(uintptr_t)batch->stream[i],
                          &state),
                "group");
        if (state.capturing)
            return motet_fail(MOTET_ERR_USAGE,
                    "sends and receives by copy engines cannot be captured: leave out "
                    "NCCL_PROTO=ce, and ce for send in MOTET_PLAN");
    }
    return MOTET_OK;
}

motet_result motet_comm_gpu_enqueue(motet_comm *comm, motet_batch *batch)
{
    const void *stream = batch->stream[0];
    motet_result result = check_capture(comm, batch);

    if (result == MOTET_OK)
        result = join_streams(comm, batch, true);
    for (int i = 0; i < batch->collectives && result == MOTET_OK; i++)
        result = motet_gpu_collective(comm->gpu, &batch->collective[i], stream);
    if (result == MOTET_OK && batch->transfers != 0)
        result = motet_gpu_pairs(comm->gpu, batch->transfer, batch->transfers, stream);
    return result == MOTET_OK ? join_streams(comm, batch, false) : result;
}

motet_result motet_comm_gpu_drain(motet_comm *comm)
{
    const motet_gpu_ops *ops = comm->device->gpu;
    motet_gpu_engine *g = comm->gpu;
    struct timespec nap = { .tv_nsec = 20000 };

    while (atomic_load(&comm->engine.stop) == 0 &&
            (!motet_gpu_link_idle(g->link) ||
                    (g->events &&
                            ops->event_query(g->link->gpu, g->link->order) ==
                                    MOTET_IN_PROGRESS)))
        nanosleep(&nap, NULL);
    return motet_engine_failure(&comm->engine);
}

void motet_comm_gpu_release(motet_comm *comm)
{
    motet_gpu_engine *g = comm->gpu;

    if (comm->copies != NULL)
        comm->device->gpu->stream_destroy(comm->gpu_device, comm->copies);
    comm->copies = NULL;
    if (g == NULL)
        return;
    atomic_store_explicit(&comm->gpu_ready, 0, memory_order_release);
    motet_engine_detach(&comm->engine);
    for (int i = 0; i < MOTET_GPU_WINDOWS; i++)
        if (g->window[i].bytes != 0)
            motet_comm_gpu_window_unmap(comm, (uint32_t)i + 1);
    comm->gpu = NULL;
    if (g->link != NULL) {
        __atomic_store_n(&g->link->control->abort, 1, __ATOMIC_RELEASE);
        if (motet_gpu_link_close(g->link) != MOTET_OK)
            motet_error_clear(); /* a device that has failed runs no replay either */
        motet_gpu_engine_release(g);
        motet_gpu_link_release(g->link);
        motet_gpu_link_sweep(comm->gpu_device);
    }
    free(g);
}
