/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the stand-in for HIP share. */
#ifndef MOTET_TEST_FAKEHIP_RIG_H
#define MOTET_TEST_FAKEHIP_RIG_H

#include "amd_image.h"
#include "fake_rig.h"
#include "../fakehip/fakehip.h"

#include <fcntl.h>

#define OK(call) IS(hipSuccess, call)

static const rig_kernel rig_all_kernels[] = {
    { "rig_meet", sizeof(meet_args), false },
    { "rig_crowd", sizeof(crowd_args), false },
    { "rig_append", sizeof(append_args), false },
    { "rig_gate", sizeof(uint32_t *), false },
    { "rig_calls_host", sizeof(append_args), true },
    { "nowhere", 24, false },
};

static inline rig_image rig_kernels_for(unsigned machine)
{
    return rig_object(machine, rig_all_kernels,
            sizeof(rig_all_kernels) / sizeof(*rig_all_kernels));
}

/* ---- two devices with what runs on them ---- */

typedef struct rig {
    hipModule_t module[2];
    hipFunction_t meet[2], append[2], crowd, gate,
            calls_host;    /* the last: of device 0 */
    hipStream_t stream[3]; /* of device 0, free */
} rig;

static inline int rig_add_kernels(void)
{
    OK(fakehip_kernel_add("rig_meet", rig_meet, sizeof(meet_args)));
    OK(fakehip_kernel_add("rig_crowd", rig_crowd, sizeof(crowd_args)));
    OK(fakehip_kernel_add("rig_append", rig_append, sizeof(append_args)));
    OK(fakehip_kernel_add("rig_gate", rig_gate, sizeof(uint32_t *)));
    OK(fakehip_kernel_add("rig_calls_host", rig_append, sizeof(append_args)));
    return 0;
}

/* Leaves device 0 current. Both devices are gfx1100. */
static inline int rig_open(rig *r)
{
    rig_image image = rig_kernels_for(RIG_GFX1100);

    OK(hipInit(0));
    CHECK(rig_add_kernels() == 0);
    for (int d = 1; d >= 0; d--) {
        OK(hipSetDevice(d));
        OK(hipModuleLoadData(&r->module[d], image.bytes));
        OK(hipModuleGetFunction(&r->meet[d], r->module[d], "rig_meet"));
        OK(hipModuleGetFunction(&r->append[d], r->module[d], "rig_append"));
    }
    OK(hipModuleGetFunction(&r->crowd, r->module[0], "rig_crowd"));
    OK(hipModuleGetFunction(&r->gate, r->module[0], "rig_gate"));
    OK(hipModuleGetFunction(&r->calls_host, r->module[0], "rig_calls_host"));
    for (int s = 0; s < 3; s++)
        OK(hipStreamCreateWithFlags(&r->stream[s], hipStreamNonBlocking));
    return 0;
}

static inline hipError_t rig_launch(hipFunction_t function, uint32_t blocks,
        hipStream_t stream, const void *args, size_t bytes)
{
    void *extra[] = { HIP_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)args,
        HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END };

    return hipModuleLaunchKernel(function, blocks, 1, 1, 512, 1, 1, 0, stream, NULL,
            extra);
}

static inline hipError_t rig_note(hipFunction_t append, uint32_t *list, uint32_t value,
        hipStream_t stream)
{
    const append_args args = { list, value };

    return rig_launch(append, 1, stream, &args, sizeof(args));
}

static inline hipError_t rig_wait_for(const rig *r, const uint32_t *word,
        hipStream_t stream)
{
    return rig_launch(r->gate, 1, stream, &word, sizeof(word));
}

/* Device memory that the host reads directly: the stand-in lets it. */
static inline uint32_t *rig_words(size_t count)
{
    void *address;

    if (hipMalloc(&address, count * sizeof(uint32_t)) != hipSuccess)
        return NULL;
    memset(address, 0, count * sizeof(uint32_t));
    return address;
}

/* ---- code objects from files ---- */

/* Folders: of those that the build made, and of one for tests. NULL: there are none. */
static const char *rig_images, *rig_planted;

/* Before the first case, which has an environment of its own. */
static inline void rig_find_folders(void)
{
    rig_images = getenv("MOTET_TEST_AMD_IMAGES");
    rig_planted = getenv("MOTET_TEST_PLANTED");
}

/* All of a file, for the caller to free; NULL: it is not there. */
static inline void *rig_file(const char *folder, const char *name)
{
    char path[4096];
    void *content = calloc(1, 1 << 22);
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_RDONLY);
    if (fd >= 0 && content != NULL && read(fd, content, 1 << 22) > 0) {
        close(fd);
        return content;
    }
    free(content);
    return NULL;
}

/* ---- cases: a function, a name, an environment ---- */

#define TEST_WITH(fn, name, ...)                                                  \
    static void test_##name(void **state)                                         \
    {                                                                             \
        static const char *const environment[] = { __VA_ARGS__, NULL };           \
        (void)state;                                                              \
        assert_int_equal(rig_run_case(&(rig_case){ #name, fn, environment }), 0); \
    }
#define TEST(fn) TEST_WITH(fn, fn, NULL)

/* With what a compiler for AMD GPUs made. */
#define TEST_OF_IMAGES(fn, folder, file, ...)                                   \
    static void test_##fn(void **state)                                         \
    {                                                                           \
        static const char *const environment[] = { __VA_ARGS__, NULL };         \
        void *there = folder != NULL ? rig_file(folder, file) : NULL;           \
        (void)state;                                                            \
        if (there == NULL)                                                      \
            skip();                                                             \
        free(there);                                                            \
        assert_int_equal(rig_run_case(&(rig_case){ #fn, fn, environment }), 0); \
    }

#endif
