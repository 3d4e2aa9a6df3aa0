/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/segment.h"
#include "child.h"

#include <fcntl.h>
#include <signal.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define BYTES ((size_t)100000) /* not a multiple of a page */

static int lowest_free_fd(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    close(fd);
    return fd;
}

static void test_a_segment_is_zeroed_shared_and_of_fixed_size(void **state)
{
    unsigned char *mine, *theirs;
    void *map;
    int fd;

    (void)state;
    assert_int_equal(motet_segment_create("arena", BYTES, &map, &fd), MOTET_OK);
    mine = map;
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(mine[i], 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 10), -1);
    assert_int_equal(ftruncate(fd, BYTES * 2), -1);

    assert_int_equal(motet_segment_map(fd, BYTES, true, &map), MOTET_OK);
    theirs = map;
    assert_ptr_not_equal(mine, theirs);
    theirs[BYTES - 1] = 42;
    assert_int_equal(mine[BYTES - 1], 42);
    close(fd);
    motet_segment_unmap(theirs, BYTES);
    assert_int_equal(mine[BYTES - 1], 42); /* outlives descriptor and other mapping */
    motet_segment_unmap(mine, BYTES);
    motet_segment_unmap(NULL, BYTES);
}

static int store_into(const void *arg)
{
    *(volatile unsigned char *)(uintptr_t)arg = 1;
    return 0;
}

static void test_a_reader_cannot_write(void **state)
{
    void *map, *reader;
    child_result child;
    int fd;

    (void)state;
    assert_int_equal(motet_segment_create("arena", BYTES, &map, &fd), MOTET_OK);
    assert_int_equal(motet_segment_map(fd, BYTES, false, &reader), MOTET_OK);
    child = child_run(store_into, reader, NULL);
    assert_int_not_equal(child.status, 0);
    assert_int_equal(*(unsigned char *)map, 0);
    child = child_run(store_into, map, NULL);
    assert_int_equal(child.status, 0);
    assert_int_equal(*(unsigned char *)map, 1);
    motet_segment_unmap(reader, BYTES);
    motet_segment_unmap(map, BYTES);
    close(fd);
}

static void test_a_segment_that_cannot_be_trusted_is_refused(void **state)
{
    int small, loose, pipes[2];
    void *map, *other = &map;

    (void)state;
    assert_int_equal(motet_segment_create("small", BYTES, &map, &small), MOTET_OK);
    assert_int_equal(motet_segment_map(small, BYTES + 1, true, &other),
            MOTET_ERR_SYSTEM);
    assert_non_null(strstr(motet_error_trail(), "100000 bytes, need at least 100001"));

    loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(loose, BYTES), 0);
    assert_int_equal(motet_segment_map(loose, BYTES, true, &other), MOTET_ERR_SYSTEM);
    assert_non_null(strstr(motet_error_trail(), "can be resized"));

    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(motet_segment_map(pipes[0], 1, true, &other), MOTET_ERR_SYSTEM);
    assert_int_equal(motet_segment_map(-1, 1, true, &other), MOTET_ERR_SYSTEM);
    assert_non_null(strstr(motet_error_trail(), "Bad file descriptor"));
    assert_int_equal(motet_segment_map(small, 0, true, &other), MOTET_ERR_ARGUMENT);
    assert_ptr_equal(other, &map); /* written on success only */

    motet_segment_unmap(map, BYTES);
    close(small);
    close(loose);
    close(pipes[0]);
    close(pipes[1]);
}

/* Returns 0 if no size that cannot be had was attempted. The limit is a safety belt: a
 * library that tried would be stopped by it, and not by the kernel's memory killer. */
static int create_too_much(const void *arg)
{
    const size_t memory =
            (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    const size_t sizes[] = { memory + 1, (size_t)1 << 62, (size_t)INT64_MAX + 1,
        SIZE_MAX };
    const struct rlimit belt = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };

    (void)arg;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &belt) != 0)
        return 99;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        int before = lowest_free_fd(), fd = -7;
        void *map = &fd;
        char number[32];

        snprintf(number, sizeof(number), "reserve %zu bytes", sizes[i]);
        if (motet_segment_create("huge", sizes[i], &map, &fd) != MOTET_ERR_SYSTEM)
            return 1;
        if (strstr(motet_error_trail(), number) == NULL ||
                strstr(motet_error_trail(), "available: Cannot allocate memory") ==
                        NULL)
            return 2;
        if (fd != -7 || map != &fd || lowest_free_fd() != before)
            return 3;
    }
    if (motet_segment_create("over the belt", 2 << 20, &(void *){ NULL },
                &(int){ 0 }) != MOTET_ERR_SYSTEM ||
            strstr(motet_error_trail(),
                    "resize segment 'over the belt' to 2097152 bytes: "
                    "File too large") == NULL)
        return 4;
    return 0;
}

static void test_a_size_that_cannot_be_had_is_an_error_and_leaks_nothing(void **state)
{
    child_result child = child_run(create_too_much, NULL, NULL);
    void *map;
    int fd;

    (void)state;
    assert_int_equal(child.status, 0);
    assert_int_equal(motet_segment_create("none", 0, &map, &fd), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "'none' is 0 bytes"));
}

static int create_without_descriptors(const void *arg)
{
    struct rlimit none = { .rlim_cur = 0, .rlim_max = 0 };
    void *map;
    int fd;

    (void)arg;
    if (setrlimit(RLIMIT_NOFILE, &none) != 0)
        return 99;
    if (motet_segment_create("arena", BYTES, &map, &fd) != MOTET_ERR_SYSTEM)
        return 1;
    return strstr(motet_error_trail(), "Too many open files") != NULL ? 0 : 2;
}

static int create_without_memfd(const void *arg)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { .len = 4, .filter = code };
    void *map;
    int fd;

    (void)arg;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return 77;
    if (motet_segment_create("arena", BYTES, &map, &fd) != MOTET_ERR_SYSTEM)
        return 1;
    return strstr(motet_error_trail(), "Function not implemented") != NULL ? 0 : 2;
}

static void test_without_descriptors_or_memfd_the_reason_is_given(void **state)
{
    child_result child;

    (void)state;
    child = child_run(create_without_descriptors, NULL, NULL);
    assert_int_equal(child.status, 0);
    child = child_run(create_without_memfd, NULL, NULL);
    if (child.status == 77)
        print_message("seccomp is not to be had here: memfd_create stays\n");
    else
        assert_int_equal(child.status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_segment_is_zeroed_shared_and_of_fixed_size),
        cmocka_unit_test(test_a_reader_cannot_write),
        cmocka_unit_test(test_a_segment_that_cannot_be_trusted_is_refused),
        cmocka_unit_test(test_a_size_that_cannot_be_had_is_an_error_and_leaks_nothing),
        cmocka_unit_test(test_without_descriptors_or_memfd_the_reason_is_given),
    };

    return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
