/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/segment.h"
#include "child.h"
#include "device/device.h"
#include "device/stream.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sys/sendfile.h>

static const motet_device_ops *const cpu = &motet_device_cpu;

/* Every member of the table is a pointer. */
static void check_gpu(const motet_gpu_ops *gpu)
{
    const void *slot;

    for (size_t at = 0; at < sizeof(*gpu); at += sizeof(slot)) {
        memcpy(&slot, (const char *)gpu + at, sizeof(slot));
        if (slot == NULL)
            fail_msg("slot %zu of the GPU's table is empty", at / sizeof(slot));
    }
}

static void test_every_kind_fills_its_table(void **state)
{
    size_t kinds = 0;

    (void)state;
    for (; motet_devices[kinds] != NULL; kinds++) {
        const motet_device_ops *ops = motet_devices[kinds];

        assert_non_null(ops->name);
        assert_true(ops->kind < MOTET_DEVICE_NUM_KINDS);
        assert_non_null(ops->count);
        assert_non_null(ops->describe);
        assert_non_null(ops->alloc);
        assert_non_null(ops->free);
        assert_non_null(ops->share);
        assert_non_null(ops->unshare);
        assert_non_null(ops->stream_check);
        assert_non_null(ops->stream_blocks);
        assert_true((ops->gpu == NULL) == (ops->kind == MOTET_DEVICE_KIND_CPU));
        if (ops->gpu != NULL)
            check_gpu(ops->gpu);
    }
    assert_int_equal(kinds, MOTET_DEVICE_NUM_KINDS);
}

static void test_a_cpu_is_described(void **state)
{
    motet_device_info info = { .memory_bytes = 1 };
    int count;

    (void)state;
    assert_int_equal(cpu->count(&count), MOTET_OK);
    assert_int_equal(count, INT_MAX);
    assert_int_equal(cpu->describe(-1, &info), MOTET_ERR_ARGUMENT);
    assert_int_equal(info.memory_bytes, 1);
    assert_int_equal(cpu->describe(3, &info), MOTET_OK);
    assert_true(strlen(info.name) > 3);
    assert_string_equal(info.identity, "cpu:3");
    assert_true(info.memory_bytes > 1 << 20);
}

static void test_memory_is_aligned_zeroed_and_given_back(void **state)
{
    static const size_t sizes[] = { 1, 4096, 4097, (size_t)3 << 20 };
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        unsigned char *bytes;
        void *ptr;

        assert_int_equal(cpu->alloc(sizes[i], &ptr), MOTET_OK);
        assert_int_equal((uintptr_t)ptr % page, 0);
        bytes = ptr;
        assert_int_equal(bytes[0] | bytes[sizes[i] - 1], 0);
        memset(bytes, 0xff, sizes[i]);
        assert_int_equal(cpu->free(ptr), MOTET_OK);
        assert_int_equal(msync(ptr, page, MS_ASYNC), -1); /* not mapped any more */
        assert_int_equal(errno, ENOMEM);
    }
}

static void test_a_pointer_from_elsewhere_is_not_freed(void **state)
{
    void *ptr, *heap = malloc(10);
    void *foreign[] = { &ptr, heap, (void *)1, NULL, NULL };

    (void)state;
    assert_int_equal(cpu->alloc(8192, &ptr), MOTET_OK);
    foreign[3] = (char *)ptr + 4096;
    foreign[4] = (char *)ptr + 1;
    for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
        assert_int_equal(cpu->free(foreign[i]), MOTET_ERR_ARGUMENT);
        assert_non_null(strstr(motet_error_trail(), "not allocated here"));
    }
    assert_int_equal(cpu->free(NULL), MOTET_OK);
    assert_int_equal(cpu->free(ptr), MOTET_OK);
    assert_int_equal(cpu->free(ptr), MOTET_ERR_ARGUMENT);
    free(heap);
}

static void test_many_allocations_live_side_by_side(void **state)
{
    void *pointers[600]; /* several in each bucket of the table */

    (void)state;
    for (size_t i = 0; i < 600; i++)
        assert_int_equal(cpu->alloc(1, &pointers[i]), MOTET_OK);
    for (size_t i = 0; i < 600; i++)
        assert_int_equal(cpu->free(pointers[i]), MOTET_OK);
    for (size_t i = 0; i < 600; i++)
        assert_int_equal(cpu->free(pointers[i]), MOTET_ERR_ARGUMENT);
}

static void test_sizes_that_cannot_be_had_are_refused(void **state)
{
    void *ptr = &state;

    assert_int_equal(cpu->alloc(0, &ptr), MOTET_ERR_ARGUMENT);
    assert_int_equal(cpu->alloc(SIZE_MAX, &ptr), MOTET_ERR_SYSTEM);
    assert_int_equal(cpu->alloc((size_t)1 << 60, &ptr), MOTET_ERR_SYSTEM);
    assert_non_null(
            strstr(motet_error_trail(), "allocate 1152921504606846976 bytes: "));
    assert_non_null(strstr(motet_error_trail(), ": Cannot allocate memory"));
    assert_ptr_equal(ptr, &state);
}

static void *allocate_many(void *arg)
{
    uintptr_t bad = 0;

    (void)arg;
    for (int i = 0; i < 500; i++) {
        void *a, *b;

        bad += cpu->alloc(100, &a) != MOTET_OK;
        bad += cpu->alloc(5000, &b) != MOTET_OK;
        bad += cpu->free(a) != MOTET_OK;
        bad += cpu->free(b) != MOTET_OK;
    }
    return (void *)bad;
}

static void test_memory_can_be_handed_to_another_process(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 3 * page;
    size_t offset = 7, whole = 7;
    void *ptr, *map;
    char *at;
    int fd;

    (void)state;
    assert_int_equal(cpu->alloc(bytes, &ptr), MOTET_OK);
    at = ptr;
    assert_int_equal(cpu->share(at + page, 2 * page, &fd, &offset, &whole), MOTET_OK);
    assert_true(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    assert_int_equal(offset, page);
    assert_int_equal(whole, bytes);
    assert_int_equal(motet_segment_map(fd, whole, false, &map), MOTET_OK);
    at[page + 5] = 42;
    assert_int_equal(((char *)map)[offset + 5], 42);
    motet_segment_unmap(map, whole);
    close(fd);

    /* beyond its end, before its begin, and not ours at all */
    assert_int_equal(cpu->share(at + page, 2 * page + 1, &fd, &offset, &whole),
            MOTET_OK);
    assert_int_equal(fd, -1);
    assert_int_equal(cpu->share(at, SIZE_MAX, &fd, &offset, &whole), MOTET_OK);
    assert_int_equal(fd, -1);
    assert_int_equal(cpu->share(&fd, 1, &fd, &offset, &whole), MOTET_OK);
    assert_int_equal(fd, -1);
    cpu->unshare(at + page);
    assert_int_equal(cpu->free(ptr), MOTET_OK);
    assert_int_equal(cpu->share(ptr, 1, &fd, &offset, &whole), MOTET_OK);
    assert_int_equal(fd, -1);
}

static void test_shared_memory_keeps_its_place_until_it_is_given_back(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 3 * page;
    size_t offset, whole;
    int fd[2], none;
    void *ptr;
    char *at;

    (void)state;
    assert_int_equal(cpu->alloc(bytes, &ptr), MOTET_OK);
    at = ptr;
    assert_int_equal(cpu->share(at, page, &fd[0], &offset, &whole), MOTET_OK);
    assert_int_equal(cpu->share(at + page, page, &fd[1], &offset, &whole), MOTET_OK);
    assert_int_equal(cpu->free(ptr), MOTET_OK);
    assert_int_equal(cpu->free(ptr), MOTET_ERR_ARGUMENT);
    assert_int_equal(cpu->share(at, page, &none, &offset, &whole), MOTET_OK);
    assert_int_equal(none, -1);
    cpu->unshare(at);
    assert_int_equal(mprotect(ptr, bytes, PROT_READ | PROT_WRITE), 0); /* it is there */
    cpu->unshare(at + page);
    assert_int_equal(mprotect(ptr, bytes, PROT_READ | PROT_WRITE), -1);
    cpu->unshare(at); /* of nothing: nothing happens */
    close(fd[0]);
    close(fd[1]);
}

static void test_threads_allocate_side_by_side(void **state)
{
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_many, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;

        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
}

static void test_stream_handles_are_told_apart(void **state)
{
    motet_host_stream *stream;

    (void)state;
    for (uintptr_t handle = 0; handle <= 2; handle++) {
        assert_int_equal(cpu->stream_check((void *)handle), MOTET_OK);
        assert_true(cpu->stream_blocks((void *)handle));
    }
    assert_int_equal(cpu->stream_check((void *)3), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "0x3"));
    assert_int_equal(cpu->stream_check(&stream), MOTET_ERR_ARGUMENT);
    assert_int_equal(motet_host_stream_create(&stream), MOTET_OK);
    assert_int_equal(cpu->stream_check(stream), MOTET_OK);
    assert_false(cpu->stream_blocks(stream));
    assert_int_equal(motet_host_stream_destroy(stream), MOTET_OK);
    assert_int_equal(cpu->stream_check(stream), MOTET_ERR_ARGUMENT);
}

/* "NAME=VALUE" as the one variable that is set. */
static const char *lookup_one(const char *name, void *arg)
{
    const char *pair = arg;
    size_t length = strlen(name);

    return pair != NULL && strncmp(pair, name, length) == 0 && pair[length] == '='
            ? pair + length + 1
            : NULL;
}

static motet_result choose(const char *pair, motet_device_choice choice,
        const motet_device_ops **ops_out)
{
    static motet_params params;

    assert_int_equal(motet_params_load(lookup_one, (void *)(uintptr_t)pair, &params),
            MOTET_OK);
    return motet_device_choose(&params, choice, ops_out);
}

static int count_gpus(const void *arg)
{
    int count;

    (void)arg;
    return motet_device_cuda.count(&count) == MOTET_OK;
}

/* Where a GPU is, what is said without one cannot be seen. Asked in a child: a driver does
 * not survive the forks of the other tests. */
static bool has_gpu(void)
{
    return child_run(count_gpus, NULL, NULL).status != 0;
}

static void test_a_cpu_rank_is_never_made_where_a_gpu_was_meant(void **state)
{
    static const struct {
        const char *pair;
        motet_device_choice choice;
        motet_result result;
        const char *said;
    } cases[] = {
        { NULL, MOTET_CHOOSE_AUTO, MOTET_OK, NULL },
        { "MOTET_DEVICE=auto", MOTET_CHOOSE_AUTO, MOTET_OK, NULL },
        { "MOTET_DEVICE=cpu", MOTET_CHOOSE_AUTO, MOTET_OK, NULL },
        { "MOTET_DEVICE=gpu", MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE,
                "MOTET_DEVICE is 'gpu'" },
        { "MOTET_DEVICE=cuda", MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE, "'cuda'" },
        { "MOTET_DEVICE=hip", MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE,
                "'hip' but no GPU can be used: " },
        { "MOTET_DEVICE=gpu", MOTET_CHOOSE_CPU, MOTET_OK, NULL },
        { "MOTET_DEVICE=cpu", MOTET_CHOOSE_GPU, MOTET_ERR_DEVICE,
                "a GPU communicator was asked for but no GPU can be used: " },
        { NULL, MOTET_CHOOSE_GPU, MOTET_ERR_DEVICE, "no NVIDIA driver can be opened" },
        { "CUDA_VISIBLE_DEVICES=0", MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE,
                "CUDA_VISIBLE_DEVICES is '0'" },
        { "HIP_VISIBLE_DEVICES=1,2", MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE,
                "HIP_VISIBLE_DEVICES is '1,2'" },
        { "ROCR_VISIBLE_DEVICES=0", MOTET_CHOOSE_AUTO, MOTET_ERR_DEVICE,
                "MOTET_DEVICE=cpu" },
        { "CUDA_VISIBLE_DEVICES=", MOTET_CHOOSE_AUTO, MOTET_OK, NULL },
        { "CUDA_VISIBLE_DEVICES=0", MOTET_CHOOSE_CPU, MOTET_OK, NULL },
        { NULL, (motet_device_choice)7, MOTET_ERR_ARGUMENT, "device choice is 7" },
    };

    (void)state;
    if (has_gpu())
        skip();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const motet_device_ops *ops = NULL;
        motet_result result;

        motet_error_clear();
        result = choose(cases[i].pair, cases[i].choice, &ops);
        if (result != cases[i].result)
            fail_msg("case %zu: %d, %s", i, result, motet_error_trail());
        assert_ptr_equal(ops, result == MOTET_OK ? cpu : NULL);
        if (cases[i].said != NULL && strstr(motet_error_trail(), cases[i].said) == NULL)
            fail_msg("case %zu: %s", i, motet_error_trail());
    }
}

static int find_cmocka(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    (void)bytes;
    if (strstr(info->dlpi_name, "libcmocka.so") == NULL)
        return 0;
    snprintf(arg, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

/* Copy some shared library to @p to: the name is all that counts. */
static int copy_library(const char *to)
{
    char from[PATH_MAX] = "";
    off_t bytes;
    int in, out, rc;

    if (dl_iterate_phdr(find_cmocka, from) == 0)
        return -1;
    in = open(from, O_RDONLY | O_CLOEXEC);
    out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    bytes = lseek(in, 0, SEEK_END);
    lseek(in, 0, SEEK_SET);
    rc = sendfile(out, in, NULL, (size_t)bytes) == bytes ? 0 : -1;
    close(in);
    close(out);
    return rc;
}

static int choose_with_library(const void *arg)
{
    const motet_device_ops *ops = NULL;

    if (dlopen(arg, RTLD_NOW | RTLD_LOCAL) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 99;
    }
    if (choose("MOTET_DEVICE=cpu", MOTET_CHOOSE_AUTO, &ops) != MOTET_OK || ops != cpu)
        return 98;
    if (choose(NULL, MOTET_CHOOSE_AUTO, &ops) == MOTET_OK)
        return 0;
    printf("%s", motet_error_trail());
    return MOTET_ERR_DEVICE;
}

static void test_a_mapped_driver_is_a_sign_of_a_gpu(void **state)
{
    static const struct {
        const char *library, *driver; /* NULL: not one */
    } cases[] = {
        { "libcuda.so.1", "libcuda.so" },
        { "libamdhip64.so.6", "libamdhip64.so" },
        { "libgalaxyhip.so.5", "libgalaxyhip.so" },
        { "libcudart.so.12", NULL },
        { "notlibcuda.so.1", NULL },
    };
    char folder[] = "/tmp/motet-device-XXXXXX", path[96];

    (void)state;
    if (has_gpu())
        skip();
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        child_result child;

        snprintf(path, sizeof(path), "%s/%s", folder, cases[i].library);
        assert_int_equal(copy_library(path), 0);
        child = child_run(choose_with_library, path, NULL);
        unlink(path);
        if (child.status != (cases[i].driver != NULL ? MOTET_ERR_DEVICE : MOTET_OK))
            fail_msg("%s: status %d %s%s", cases[i].library, child.status, child.out,
                    child.err);
        if (cases[i].driver != NULL)
            assert_non_null(strstr(child.out, cases[i].driver));
    }
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_fills_its_table),
        cmocka_unit_test(test_a_cpu_is_described),
        cmocka_unit_test(test_memory_is_aligned_zeroed_and_given_back),
        cmocka_unit_test(test_a_pointer_from_elsewhere_is_not_freed),
        cmocka_unit_test(test_many_allocations_live_side_by_side),
        cmocka_unit_test(test_sizes_that_cannot_be_had_are_refused),
        cmocka_unit_test(test_memory_can_be_handed_to_another_process),
        cmocka_unit_test(test_shared_memory_keeps_its_place_until_it_is_given_back),
        cmocka_unit_test(test_threads_allocate_side_by_side),
        cmocka_unit_test(test_stream_handles_are_told_apart),
        cmocka_unit_test(test_a_cpu_rank_is_never_made_where_a_gpu_was_meant),
        cmocka_unit_test(test_a_mapped_driver_is_a_sign_of_a_gpu),
    };

    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
