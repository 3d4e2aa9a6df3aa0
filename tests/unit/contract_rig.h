/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of all kinds of GPU share: each case runs in a child of its own, since a
 * runtime does not survive a fork, and a small kernel stores words. The rig of a kind
 * (cuda_rig.h, hip_rig.h) defines `ops` and what is declared here; bodies that are alike
 * for all kinds are in contract_*.h.
 */
#ifndef MOTET_TEST_CONTRACT_RIG_H
#define MOTET_TEST_CONTRACT_RIG_H

#include "base/error.h"
#include "child.h"
#include "device/device.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* In children: what is not so is said, and the child fails. */
#define CHECK(truth)                                                              \
    do {                                                                          \
        if (!(truth)) {                                                           \
            fprintf(stderr, "%s:%d: %s; trail: %s\n", __FILE__, __LINE__, #truth, \
                    motet_error_trail());                                         \
            return 1;                                                             \
        }                                                                         \
    } while (0)
#define CHECK_SAID(words) CHECK(strstr(motet_error_trail(), (words)) != NULL)

/* What the child returns for "not on this machine". */
#define RIG_SKIP 77

/* The runtime's names of the other default streams, alike for all kinds. */
#define RIG_LEGACY     ((void *)(uintptr_t)1)
#define RIG_PER_THREAD ((void *)(uintptr_t)2)
/* And of the modes of a capture. */
enum { RIG_GLOBAL, RIG_THREAD_LOCAL, RIG_RELAXED };

/* ---- of each kind: what an application beside motet does; true if it went well ---- */

/* The runtime is the stand-in, if @p fake, and has @p devices. */
static inline bool rig_start(bool fake, int devices);
/* Its device @p ordinal is current. */
static inline bool rig_use(int ordinal);
static inline uint64_t rig_app_alloc(size_t bytes);
static inline uint64_t rig_app_managed(size_t bytes);
static inline bool rig_app_register(void *memory, size_t bytes);
static inline bool rig_app_unregister(void *memory);
static inline void *rig_app_stream(void); /* waits for no default one */
static inline bool rig_app_sync(void *stream);
static inline bool rig_capture_begin(void *stream, int mode);
static inline bool rig_capture_end(void *stream, void **graph_out);
static inline int rig_capture_mode(void); /* of the thread, which is relaxed then */
static inline bool rig_graph_nodes(void *graph, size_t *count_out);
static inline bool rig_node_edges(void *node, size_t *count_out);
static inline bool rig_graph_make(void *graph, void **exec_out);
static inline bool rig_graph_run(void *exec, void *stream);
static inline bool rig_graph_drop(void *graph, void *exec); /* NULL: not that one */
/* The kernel below on @p gpu, or NULL. */
static inline void *rig_store_kernel(motet_gpu *gpu);

/* ---- running ---- */

typedef struct rig_case {
    int (*body)(void);
    bool fake; /* needs the stand-in */
    int devices;
} rig_case;

static inline int rig_child(const void *arg)
{
    const rig_case *c = arg;

    return rig_start(c->fake, c->devices) ? c->body() : RIG_SKIP;
}

/* Run @p body in a child with nothing but @p variables ("NAME=VALUE" or NULL) set. */
/* In a child with @p environment, NAME=VALUE strings ended by NULL. */
static inline void rig_run_in(int (*body)(void), bool fake, int devices,
        const char *const *environment)
{
    const rig_case c = { .body = body, .fake = fake, .devices = devices };
    child_result child = child_run(rig_child, &c, environment);

    if (child.status == RIG_SKIP)
        skip();
    if (child.status != 0)
        fail_msg("status %d\n%s%s", child.status, child.out, child.err);
}

static inline void rig_run_with(int (*body)(void), bool fake, int devices,
        const char *variable, const char *other)
{
    const char *const environment[] = { variable, other, NULL };

    rig_run_in(body, fake, devices, environment + (variable == NULL ? 1 : 0));
}

static inline void rig_run(int (*body)(void), bool fake, int devices,
        const char *variable)
{
    rig_run_with(body, fake, devices, variable, NULL);
}

/* ---- a kernel: word b of `at` becomes `value` + b, b the block ---- */

typedef struct store_args {
    uint64_t at;
    uint32_t value, reserved;
} store_args;

static inline void store_on_host(const void *args, uint32_t block, uint32_t blocks)
{
    const store_args *a = args;

    (void)blocks;
    ((uint32_t *)(uintptr_t)a->at)[block] = a->value + block;
}

static inline motet_result rig_store(motet_gpu *gpu, void *kernel, uint64_t at,
        uint32_t value, void *stream)
{
    const store_args args = { .at = at, .value = value };
    const motet_launch launch = { .function = kernel,
        .blocks = 2,
        .threads = 32,
        .args = &args,
        .bytes = sizeof(args) };

    return ops->launch(gpu, &launch, stream);
}

/* The word at @p at of the device, read over a stream of our own. */
static inline uint32_t rig_word(motet_gpu *gpu, uint64_t at)
{
    uint32_t word = 0xdead;
    void *stream = NULL;

    if (ops->stream_create(gpu, false, &stream) != MOTET_OK ||
            ops->copy(gpu, (uint64_t)(uintptr_t)&word, at, sizeof(word), stream) !=
                    MOTET_OK ||
            ops->stream_sync(gpu, stream) != MOTET_OK)
        word = 0xbad;
    ops->stream_destroy(gpu, stream);
    return word;
}

#endif
