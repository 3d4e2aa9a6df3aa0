/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: windows, local registration, and operations in and beside them. */
#include "suite.h"

#define COUNT 70001
#define BYTES (COUNT * sizeof(float))
#define ROOM  (4u << 20)

/** ncclMemAlloc() memory in a window of the communicator. */
struct window {
    void *memory;
    ncclWindow_t window;
};

static bool window_make(gpu_rank *g, struct window *w, size_t bytes)
{
    *w = (struct window){ NULL, NULL };
    return multi_ok(g->rank, ncclMemAlloc(&w->memory, bytes), "ncclMemAlloc") &&
            multi_ok(g->rank,
                    ncclCommWindowRegister(g->comm, w->memory, bytes, &w->window,
                            NCCL_WIN_COLL_SYMMETRIC),
                    "ncclCommWindowRegister");
}

static void window_drop(gpu_rank *g, struct window *w)
{
    if (w->window != NULL)
        (void)multi_ok(g->rank, ncclCommWindowDeregister(g->comm, w->window),
                "ncclCommWindowDeregister");
    if (w->memory != NULL)
        (void)multi_ok(g->rank, ncclMemFree(w->memory), "ncclMemFree");
}

static CUdeviceptr in(const struct window *w, size_t offset)
{
    return (CUdeviceptr)(uintptr_t)w->memory + offset;
}

static bool sum_at(gpu_rank *g, CUdeviceptr from, CUdeviceptr to, size_t count,
        uint64_t seed)
{
    return suite_put(g, from, seed, g->number, 0, count) &&
            suite_sum(g, g->comm, from, to, count, g->stream[seed & 1]) &&
            gpu_sync(g, g->stream[seed & 1]) && gpu_well(g->rank, g->comm) &&
            suite_is_sum(g, to, seed, count, "the sum");
}

/** Both buffers in windows, one of them, none; at odd places; in place. */
static void sums_in_windows(gpu_rank *g)
{
    struct window a, b;
    CUdeviceptr plain = gpu_reserve(g, BYTES);
    bool fine = plain != 0 && window_make(g, &a, ROOM) && window_make(g, &b, ROOM);

    for (uint64_t i = 0; fine && i < suite_rounds(100); i++) {
        size_t count = value_mix(i) % COUNT + 1;
        size_t at = value_mix(i + 1000) % 1000 * sizeof(float);
        CUdeviceptr from = i % 5 == 1 ? plain : in(&a, at);
        CUdeviceptr to = i % 5 == 2 ? plain : i % 5 == 3 ? from : in(&b, at * 3);

        multi_doing(g->rank, "sum %llu of %zu", (unsigned long long)i, count);
        fine = sum_at(g, from, to, count, i);
    }
    if (fine) {
        window_drop(g, &b);
        window_drop(g, &a);
    }
}

/** What one rank alone does with its buffers must not matter to the others. */
static void only_one_rank_uses_its_window(gpu_rank *g)
{
    struct window w;
    CUdeviceptr plain = gpu_reserve(g, BYTES), out = gpu_reserve(g, BYTES);
    bool fine = plain != 0 && out != 0 && window_make(g, &w, ROOM);

    for (uint64_t i = 0; fine && i < suite_rounds(50); i++) {
        bool mine = (int)(i % (unsigned)g->rank->nranks) == g->number;

        fine = sum_at(g, mine ? in(&w, 256) : plain, mine ? in(&w, ROOM / 2) : out,
                i % 2 ? 600 : COUNT, i);
    }
    if (fine)
        window_drop(g, &w);
}

/** A graph with windows, and windows made and dropped between its plays. */
static void graph_in_windows(gpu_rank *g)
{
    struct window a, b;
    CUgraphExec graph = NULL;
    bool fine = window_make(g, &a, ROOM) && window_make(g, &b, ROOM) &&
            gpu_record(g, g->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) &&
            suite_sum(g, g->comm, in(&a, 0), in(&b, 0), COUNT, g->stream[0]) &&
            gpu_recorded(g, g->stream[0], &graph);

    for (uint64_t i = 0; fine && i < suite_rounds(50); i++) {
        struct window other;

        fine = suite_put(g, in(&a, 0), i, g->number, 0, COUNT) &&
                gpu_play(g, graph, g->stream[0]) && gpu_sync(g, g->stream[0]) &&
                gpu_well(g->rank, g->comm) &&
                suite_is_sum(g, in(&b, 0), i, COUNT, "a play");
        if (fine && i % 10 == 5) {
            fine = window_make(g, &other, ROOM) &&
                    sum_at(g, in(&other, 0), in(&other, ROOM / 2), COUNT, i);
            if (fine)
                window_drop(g, &other);
        }
    }
    gpu_drop_graph(g, &graph);
    if (fine) {
        window_drop(g, &b);
        window_drop(g, &a);
    }
}

/** Pieces of an all_gather and an all_to_all in windows. */
static void moves_in_windows(gpu_rank *g)
{
    int n = g->rank->nranks;
    size_t piece = 6007;
    struct window a, b;
    bool fine = window_make(g, &a, ROOM) && window_make(g, &b, ROOM);

    for (uint64_t i = 0; fine && i < suite_rounds(50); i++) {
        cudaStream_t stream = gpu_handle(g->stream[0]);
        bool all = i % 2;

        fine = suite_put(g, in(&a, 0), i, g->number, 0, piece * (size_t)n) &&
                multi_ok(g->rank,
                        all ? ncclAlltoAll(gpu_at(in(&a, 0)), gpu_at(in(&b, 0)), piece,
                                      ncclFloat32, g->comm, stream)
                            : ncclAllGather(gpu_at(in(&a, 0)), gpu_at(in(&b, 0)), piece,
                                      ncclFloat32, g->comm, stream),
                        all ? "ncclAlltoAll" : "ncclAllGather") &&
                gpu_sync(g, g->stream[0]) && gpu_well(g->rank, g->comm);
        for (int r = 0; fine && r < n; r++)
            fine = suite_is(g, in(&b, (size_t)r * piece * sizeof(float)), i, r,
                    all ? (size_t)g->number * piece : 0, piece, "a piece");
    }
    if (fine) {
        window_drop(g, &b);
        window_drop(g, &a);
    }
}

/** ncclCommRegister() is each rank's own affair. */
static void registered_by_one_rank(gpu_rank *g)
{
    CUdeviceptr from = gpu_reserve(g, BYTES), to = gpu_reserve(g, BYTES);
    void *handle = NULL;
    bool fine = from != 0 && to != 0;

    if (fine && g->number == 0)
        fine = multi_ok(g->rank,
                ncclCommRegister(g->comm, gpu_at(from), BYTES, &handle),
                "ncclCommRegister");
    for (uint64_t i = 0; fine && i < 20; i++)
        fine = sum_at(g, from, to, COUNT, i);
    if (handle != NULL)
        (void)multi_ok(g->rank, ncclCommDeregister(g->comm, handle),
                "ncclCommDeregister");
}

const suite_test suite_windows[] = {
    SUITE_ROW("sums of buffers in windows, one, both or none", sums_in_windows, THREADS,
            2),
    SUITE_ROW("sums of buffers in windows, one, both or none", sums_in_windows,
            PROCESSES, 2),
    SUITE_ROW("only one rank uses its window", only_one_rank_uses_its_window, THREADS,
            3),
    SUITE_ROW("only one rank uses its window", only_one_rank_uses_its_window, PROCESSES,
            2),
    SUITE_ROW("a graph in windows, with others made and dropped between",
            graph_in_windows, THREADS, 2),
    SUITE_ROW("a graph in windows, with others made and dropped between",
            graph_in_windows, PROCESSES, 2),
    SUITE_ROW("all_gather and all_to_all in windows", moves_in_windows, THREADS, 4),
    SUITE_ROW("all_gather and all_to_all in windows", moves_in_windows, PROCESSES, 2),
    SUITE_ROW("a buffer that one rank registered", registered_by_one_rank, THREADS, 2),
    { .sentence = NULL },
};
