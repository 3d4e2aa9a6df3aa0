/* SPDX-License-Identifier: Apache-2.0 */
/* motet_lib_open(): what an engine gets, with a library and without. */
#include "motet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <dlfcn.h>

static int setup(void **state)
{
    static const char *const variables[] = { "MOTET_RCCL_LIB", "MOTET_NCCL_LIB",
        "HIPFIRE_RCCL_LIB", "HIPFIRE_ROCM_PATH", "ROCM_PATH", "HIP_PATH", "DTK_ROOT" };

    (void)state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        unsetenv(variables[i]);
    return 0;
}

static void test_bad_questions_are_refused(void **state)
{
    motet_lib_info_t info = MOTET_LIB_INFO_INITIALIZER, none = { 0 };

    (void)state;
    assert_int_equal(motet_lib_open("rccl", NULL, NULL), ncclInvalidArgument);
    assert_int_equal(motet_lib_open("rccl", NULL, &none), ncclInvalidArgument);
    assert_int_equal(motet_lib_open(NULL, NULL, &info), ncclInvalidArgument);
    assert_int_equal(motet_lib_open("hip", NULL, &info), ncclInvalidArgument);
    assert_non_null(strstr(ncclGetLastError(NULL), "'hip', need rccl or nccl"));
    assert_int_equal(motet_lib_open("nccl", "hipfire", &info), ncclInvalidArgument);
    assert_int_equal(motet_lib_open("rccl", "nobody", &info), ncclInvalidArgument);
    assert_null(info.handle);
}

static void test_none_is_an_answer(void **state)
{
    motet_lib_info_t info = MOTET_LIB_INFO_INITIALIZER;

    (void)state;
    setenv("HIPFIRE_ROCM_PATH", "/nonexistent/rocm", 1);
    assert_int_equal(motet_lib_open("rccl", "hipfire", &info), ncclSuccess);
    assert_null(info.handle);
    assert_int_equal(info.version, 0);
    assert_string_equal(info.path, "");
    assert_non_null(strstr(info.sentence, "HIPFIRE_ROCM_PATH=/nonexistent/rocm"));
    assert_non_null(strstr(info.sentence, "HIPFIRE_RCCL_LIB=/path/to/librccl.so"));
    assert_non_null(strstr(info.candidates, "/nonexistent/rocm/lib64/librccl.so.1.0"));
    assert_memory_equal(info.candidates, "  /nonexistent/rocm/lib/librccl.so (", 36);
    setenv("HIPFIRE_RCCL_LIB", "/nonexistent/librccl.so", 1);
    assert_int_equal(motet_lib_open("rccl", "hipfire", &info), ncclSuccess);
    assert_null(info.handle);
    assert_non_null(strstr(info.sentence, "it is authoritative"));
}

static void test_a_short_structure_is_not_written_behind_its_end(void **state)
{
    union {
        motet_lib_info_t info;
        unsigned char bytes[sizeof(motet_lib_info_t)];
    } u;

    (void)state;
    memset(&u, 0x5a, sizeof(u));
    u.info.size = offsetof(motet_lib_info_t, path);
    setenv("ROCM_PATH", "/nonexistent/rocm", 1);
    assert_int_equal(motet_lib_open("rccl", NULL, &u.info), ncclSuccess);
    assert_null(u.info.handle);
    for (size_t i = offsetof(motet_lib_info_t, path); i < sizeof(u); i++)
        assert_int_equal(u.bytes[i], 0x5a);
}

/* Last: the library stays mapped. */
static void test_a_library_is_opened(void **state)
{
    motet_lib_info_t info = MOTET_LIB_INFO_INITIALIZER;

    (void)state;
    if (getenv("API_RCCL") == NULL)
        skip();
    setenv("HIPFIRE_RCCL_LIB", getenv("API_RCCL"), 1);
    assert_int_equal(motet_lib_open("rccl", "hipfire", &info), ncclSuccess);
    assert_non_null(info.handle);
    assert_non_null(dlsym(info.handle, "ncclCommInitAll"));
    assert_int_equal(info.version, 22707);
    assert_non_null(strstr(info.path, "librccl.so"));
    assert_non_null(strstr(info.sentence, "HIPFIRE_RCCL_LIB names it"));
    assert_int_equal(dlclose(info.handle), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_bad_questions_are_refused, setup),
        cmocka_unit_test_setup(test_none_is_an_answer, setup),
        cmocka_unit_test_setup(test_a_short_structure_is_not_written_behind_its_end,
                setup),
        cmocka_unit_test_setup(test_a_library_is_opened, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
