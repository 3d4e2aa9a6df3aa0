/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The finder in Python environments, and on NCCL, which belongs to no install; and on what
 * has neither.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "find_rig_lib.h"

static int setup_nccl(void **state)
{
    (void)state;
    memset(environment, 0, sizeof(environment));
    return start(&motet_find_nccl);
}

#define WHEEL "nvidia/nccl/lib/libnccl.so.2"

static void test_a_named_environment_is_authoritative(void **state)
{
    (void)state;
    put(GOOD, "/venv/lib/python3.9/site-packages/" WHEEL);
    put(GOOD, "/venv/lib/python3.12/site-packages/" WHEEL);
    put(GOOD, "/other/lib/python3.12/site-packages/" WHEEL);
    set(0, "VIRTUAL_ENV", at("/other"));
    ask(&motet_find_nccl, NULL);
    request.python = (motet_find_setting){ "--python", at("/venv") };
    expect_found(at("/venv/lib/python3.12/site-packages/" WHEEL), MOTET_FIND_PYTHON);
    expect_row(at("/other/lib/python3.12/site-packages/" WHEEL), MOTET_FIND_NOT_TRIED,
            "to use it set MOTET_NCCL_LIB=");
    make_folders(at("/venv/bin/"));
    put_bytes(at("/venv/bin/python3"), 0, "x", 1);
    request.python.value = at("/venv/bin/python3");
    expect_found(at("/venv/lib/python3.12/site-packages/" WHEEL), MOTET_FIND_PYTHON);
    request.python.value = at("/venv/lib/python3.9/site-packages");
    expect_found(at("/venv/lib/python3.9/site-packages/" WHEEL), MOTET_FIND_PYTHON);
    put(GOOD, "/sys/local/lib/python3.11/dist-packages/" WHEEL);
    request.python.value = at("/sys");
    expect_found(at("/sys/local/lib/python3.11/dist-packages/" WHEEL),
            MOTET_FIND_PYTHON);
    request.python.value = at("/empty");
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("no wheel in it has the library; it is authoritative");
}

/* By paths that start in the folder that the process is in. */
static void test_an_interpreter_may_be_named_from_where_one_is(void **state)
{
    static const struct {
        const char *folder, *python, *path;
    } rows[] = { { "/venv", "bin/python3", "./lib/python3.12/site-packages/" WHEEL },
        { "/venv/bin", "python3", "./../lib/python3.12/site-packages/" WHEEL },
        { "/venv/lib", "../bin/python3", "../lib/python3.12/site-packages/" WHEEL },
        { "/venv/bin/x", "../python3", "../../lib/python3.12/site-packages/" WHEEL } };
    char before[512];

    (void)state;
    put(GOOD, "/venv/lib/python3.12/site-packages/" WHEEL);
    make_folders(at("/venv/bin/x/"));
    put_bytes(at("/venv/bin/python3"), 0, "x", 1);
    ask(&motet_find_nccl, NULL);
    assert_non_null(getcwd(before, sizeof(before)));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(chdir(at(rows[i].folder)), 0);
        request.python = (motet_find_setting){ "--python", rows[i].python };
        expect_found(rows[i].path, MOTET_FIND_PYTHON);
    }
    assert_int_equal(chdir(before), 0);
}

/* The HIP runtime's row has no wheels, and a row of another program may have less. */
static void test_what_a_library_does_not_have_is_not_looked_for(void **state)
{
    (void)state;
    put(GOOD, "/r/lib/libamdhip64.so.6");
    set(0, "ROCM_PATH", at("/r"));
    library = motet_find_hip;
    ask(&motet_find_hip, NULL);
    expect_found(at("/r/lib/libamdhip64.so.6"), MOTET_FIND_CONFIGURED);
    request.python = (motet_find_setting){ "--python", top };
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("no wheel in it has the library");
    expect_no_words("(null)");
    library.override = NULL;
    library.variables = NULL;
    library.by_name = false;
    motet_find_ask(&request, &library, NULL, look_up, environment);
    request.prefix = top;
    expect_outcome(MOTET_FIND_NONE);
}

static void test_rocm_wheels_are_found(void **state)
{
    static const char *const wheels[] = { "torch/lib/librccl.so",
        "_rocm_sdk_libraries_gfx110X_dgpu/lib/librccl.so.1" };
    char path[256];

    (void)state;
    ask(&motet_find_rccl, NULL);
    request.python = (motet_find_setting){ "--python", at("/venv") };
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "/venv/lib64/python3.11/site-packages/%s",
                wheels[i]);
        put(GOOD, path);
        request.python.value = at("/venv");
        expect_found(at(path), MOTET_FIND_PYTHON);
    }
}

static void test_nccl_stands_alone_and_is_used_where_it_lies(void **state)
{
    (void)state;
    put(GOOD, "/usr/lib/x86_64-linux-gnu/libnccl.so.2");
    ask(&motet_find_nccl, NULL);
    expect_found(at("/usr/lib/x86_64-linux-gnu/libnccl.so.2"), MOTET_FIND_ELSEWHERE);
    expect_words("the first that loads, in the usual places");
    put(GOOD, "/venv/lib/python3.12/site-packages/" WHEEL);
    set(0, "VIRTUAL_ENV", at("/venv"));
    ask(&motet_find_nccl, NULL);
    expect_found(at("/venv/lib/python3.12/site-packages/" WHEEL), MOTET_FIND_PYTHON);
    expect_row(at("/usr/lib/x86_64-linux-gnu/libnccl.so.2"), MOTET_FIND_NOT_TRIED, "");
    make_folders(at("/py/bin/"));
    put(GOOD, "/py/lib/python3.10/site-packages/" WHEEL);
    set(0, "PATH", at("/py/bin"));
    ask(&motet_find_nccl, NULL);
    expect_found(at("/py/lib/python3.10/site-packages/" WHEEL), MOTET_FIND_PYTHON);
    put(GOOD, "/home/.local/lib/python3.10/site-packages/" WHEEL);
    set(0, "HOME", at("/home"));
    ask(&motet_find_nccl, NULL);
    expect_found(at("/home/.local/lib/python3.10/site-packages/" WHEEL),
            MOTET_FIND_PYTHON);
    put(GOOD, "/site/" WHEEL);
    set(1, "PYTHONPATH", at("/site"));
    ask(&motet_find_nccl, NULL);
    expect_found(at("/site/" WHEEL), MOTET_FIND_PYTHON);
    set(0, "NCCL_HOME", at("/gone"));
    ask(&motet_find_nccl, NULL);
    expect_outcome(MOTET_FIND_REFUSED);
}

static void test_copies_of_nccl_that_do_not_load_are_said(void **state)
{
    (void)state;
    put(NEEDY, "/usr/lib/x86_64-linux-gnu/libnccl.so.2");
    ask(&motet_find_nccl, NULL);
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("no copy of NCCL can be used: ");
    expect_words("libmotetfindneeded.so");
    put(GOOD, "/usr/local/cuda/lib64/libnccl.so.2");
    expect_found(at("/usr/local/cuda/lib64/libnccl.so.2"), MOTET_FIND_ELSEWHERE);
}

static void test_the_linker_comes_first_for_nccl(void **state)
{
    static const char *const names[] = { "libmotetfindlinked.so.1", NULL };

    (void)state;
    library.names = names;
    library.by_name = true;
    put(GOOD, "/usr/local/lib/libmotetfindlinked.so.1");
    ask(&motet_find_nccl, NULL);
    expect_outcome(MOTET_FIND_FOUND);
    assert_int_equal(report.origin, MOTET_FIND_LINKER);
    expect_row(at("/usr/local/lib/libmotetfindlinked.so.1"), MOTET_FIND_NOT_TRIED, "");
    assert_int_equal(dlclose(report.handle), 0);
}

#define NCCL(name) cmocka_unit_test_setup_teardown(name, setup_nccl, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NCCL(test_a_named_environment_is_authoritative),
        NCCL(test_an_interpreter_may_be_named_from_where_one_is),
        RCCL(test_what_a_library_does_not_have_is_not_looked_for),
        RCCL(test_rocm_wheels_are_found),
        NCCL(test_nccl_stands_alone_and_is_used_where_it_lies),
        NCCL(test_copies_of_nccl_that_do_not_load_are_said),
        NCCL(test_the_linker_comes_first_for_nccl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
