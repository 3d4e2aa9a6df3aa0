/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static void test_a_failure_leaves_its_sentence_and_its_place(void **state)
{
    (void)state;
    assert_int_equal(motet_fail(MOTET_ERR_ARGUMENT, "nranks is %d", 0),
            MOTET_ERR_ARGUMENT);
    assert_string_equal(motet_error_trail(), "nranks is 0");
    assert_int_equal(strncmp(motet_error_origin(), "test_error.c:", 13), 0);
    motet_error_clear();
    assert_string_equal(motet_error_trail(), "");
    assert_string_equal(motet_error_origin(), "");
}

static void test_errno_is_appended_and_survives(void **state)
{
    (void)state;
    errno = ENOSPC;
    assert_int_equal(motet_fail_errno(MOTET_ERR_SYSTEM, "write '%s'", "x"),
            MOTET_ERR_SYSTEM);
    assert_string_equal(motet_error_trail(), "write 'x': No space left on device");
    assert_int_equal(errno, ENOSPC);
    (void)motet_fail(MOTET_ERR_SYSTEM, "plain");
    (void)motet_error_wrap(MOTET_ERR_SYSTEM, "wrapped");
    assert_int_equal(errno, ENOSPC);
}

static void test_context_goes_in_front(void **state)
{
    (void)state;
    (void)motet_fail(MOTET_ERR_REMOTE, "end of stream");
    assert_int_equal(motet_error_wrap(MOTET_ERR_REMOTE, "read from rank %d", 3),
            MOTET_ERR_REMOTE);
    assert_string_equal(motet_error_trail(), "read from rank 3: end of stream");
    motet_error_clear();
    (void)motet_error_wrap(MOTET_ERR_REMOTE, "no cause is known");
    assert_string_equal(motet_error_trail(), "no cause is known");
}

static void test_a_full_trail_keeps_the_cause(void **state)
{
    char cause[MOTET_ERROR_TRAIL_MAX];

    (void)state;
    memset(cause, 'c', sizeof(cause));
    cause[sizeof(cause) - 10] = '\0';
    (void)motet_fail(MOTET_ERR_SYSTEM, "%s", cause);
    (void)motet_error_wrap(MOTET_ERR_SYSTEM,
            "1234567"); /* 7 + 2 + rest + NUL: just fits */
    assert_int_equal(strlen(motet_error_trail()), MOTET_ERROR_TRAIL_MAX - 1);
    (void)motet_error_wrap(MOTET_ERR_SYSTEM, "x");
    assert_int_equal(strncmp(motet_error_trail(), "1234567: ccc", 12), 0);
    (void)motet_fail(MOTET_ERR_SYSTEM, "%2000s", "long");
    assert_int_equal(strlen(motet_error_trail()), MOTET_ERROR_TRAIL_MAX - 1);
}

static void test_the_trail_can_be_quoted_in_the_next_one(void **state)
{
    (void)state;
    (void)motet_fail(MOTET_ERR_SYSTEM, "inner");
    (void)motet_fail(MOTET_ERR_INTERNAL, "outer (%s)", motet_error_trail());
    assert_string_equal(motet_error_trail(), "outer (inner)");
    (void)motet_error_adopt(MOTET_ERR_INTERNAL, motet_error_trail());
    assert_string_equal(motet_error_trail(), "outer (inner)");
}

static motet_result try_it(motet_result result, int *reached)
{
    if (result != MOTET_OK)
        (void)motet_fail(result, "cause");
    MOTET_TRY(result, "step %d", 7);
    *reached = 1;
    return MOTET_OK;
}

static void test_try_returns_at_a_failure_only(void **state)
{
    int reached = 0;

    (void)state;
    assert_int_equal(try_it(MOTET_ERR_USAGE, &reached), MOTET_ERR_USAGE);
    assert_int_equal(reached, 0);
    assert_string_equal(motet_error_trail(), "step 7: cause");
    assert_int_equal(try_it(MOTET_OK, &reached), MOTET_OK);
    assert_int_equal(reached, 1);
}

static void *fail_elsewhere(void *arg)
{
    (void)motet_fail(MOTET_ERR_DEVICE, "other thread");
    memcpy(arg, motet_error_trail(), strlen(motet_error_trail()) + 1);
    return NULL;
}

static void test_trails_belong_to_threads_until_adopted(void **state)
{
    char theirs[MOTET_ERROR_TRAIL_MAX];
    pthread_t thread;

    (void)state;
    (void)motet_fail(MOTET_ERR_USAGE, "this thread");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, theirs), 0);
    pthread_join(thread, NULL);
    assert_string_equal(theirs, "other thread");
    assert_string_equal(motet_error_trail(), "this thread");
    assert_int_equal(motet_error_adopt(MOTET_ERR_DEVICE, theirs), MOTET_ERR_DEVICE);
    assert_string_equal(motet_error_trail(), "other thread");
    assert_string_equal(motet_error_origin(), "");
    (void)motet_error_adopt(MOTET_ERR_DEVICE, NULL);
    assert_string_equal(motet_error_trail(), "");
}

static void test_result_texts_are_nccls(void **state)
{
    static const struct {
        int code;
        const char *name, *text;
    } rows[] = {
        { 0, "ncclSuccess", "no error" },
        { 1, "ncclUnhandledCudaError",
                "unhandled cuda error (run with NCCL_DEBUG=INFO for details)" },
        { 2, "ncclSystemError",
                "unhandled system error (run with NCCL_DEBUG=INFO for details)" },
        { 3, "ncclInternalError",
                "internal error - please report this issue to the NCCL developers" },
        { 4, "ncclInvalidArgument",
                "invalid argument (run with NCCL_DEBUG=WARN for details)" },
        { 5, "ncclInvalidUsage",
                "invalid usage (run with NCCL_DEBUG=WARN for details)" },
        { 6, "ncclRemoteError", "remote process exited or there was a network error" },
        { 7, "ncclInProgress", "NCCL operation in progress" },
        { 8, "ncclTimeout", "timeout" },
        { 9, "unknown", "unknown result code" },
        { -1, "unknown", "unknown result code" },
        { INT32_MAX, "unknown", "unknown result code" },
        { INT32_MIN, "unknown", "unknown result code" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const motet_result_info *info = motet_result_describe(rows[i].code);

        assert_string_equal(info->name, rows[i].name);
        assert_string_equal(info->text, rows[i].text);
        assert_true(strlen(info->remedy) > 10);
        assert_true(info->remedy[strlen(info->remedy) - 1] != '.');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failure_leaves_its_sentence_and_its_place),
        cmocka_unit_test(test_errno_is_appended_and_survives),
        cmocka_unit_test(test_context_goes_in_front),
        cmocka_unit_test(test_a_full_trail_keeps_the_cause),
        cmocka_unit_test(test_the_trail_can_be_quoted_in_the_next_one),
        cmocka_unit_test(test_try_returns_at_a_failure_only),
        cmocka_unit_test(test_trails_belong_to_threads_until_adopted),
        cmocka_unit_test(test_result_texts_are_nccls),
    };

    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
