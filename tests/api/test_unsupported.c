/* SPDX-License-Identifier: Apache-2.0 */
/* What every call that motet does not support comes to, and how a failure becomes the
 * sentence of ncclGetLastError(). */
#include "api/report.h"
#include "nccl.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* NCCL's device API is declared nowhere. */
typedef struct team {
    int nRanks, rank, stride;
} team;
typedef struct multimem {
    void *base;
} multimem;

ncclResult_t ncclCommQueryProperties(ncclComm_t, void *);
ncclResult_t ncclDevCommCreate(ncclComm_t, const void *, void *);
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void *);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void **);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t, size_t, multimem, void **);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void **);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void **);
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t, size_t, int, void *, size_t *);
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t, size_t, void *, size_t *);
ncclResult_t ncclLsaBarrierCreateRequirement(team, int, void *, void *);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t, team, int, void *, void *);
ncclResult_t ncclGinOutboxCreateRequirement(int, int, void *, void *);
ncclResult_t ncclGinInboxA2ACreateRequirement(team, int, int, void *, void *);
ncclResult_t ncclLLA2ACreateRequirement(int, int, void *, void *);
int ncclLLA2ACalcSlots(int, int);
team ncclTeamWorld(ncclComm_t);
team ncclTeamLsa(ncclComm_t);
team ncclTeamRail(ncclComm_t);
int ncclTeamRankToWorld(ncclComm_t, team, int);
int ncclTeamRankToLsa(ncclComm_t, team, int);

/* Usage error, and a last error that begins with the name. */
#define REFUSED(name, ...)                                                          \
    do {                                                                            \
        assert_int_equal(name(__VA_ARGS__), ncclInvalidUsage);                      \
        assert_non_null(strstr(motet_api_last_error(), #name " is not supported")); \
    } while (0)

static void an_unsupported_call_is_a_usage_error_with_a_sentence(void **state)
{
    ncclParamHandle_t handle;
    size_t counts[1] = { 0 };
    const char *text, **texts;
    int number;

    (void)state;
    REFUSED(ncclCommSuspend, NULL, NCCL_SUSPEND_MEM);
    REFUSED(ncclCommResume, NULL);
    REFUSED(ncclPutSignal, NULL, 0, ncclInt8, 0, NULL, 0, 0, 0, 0, NULL, NULL);
    REFUSED(ncclSignal, 0, 0, 0, 0, NULL, NULL);
    REFUSED(ncclWaitSignal, 0, NULL, NULL, NULL);
    REFUSED(ncclParamBind, &handle, "NCCL_DEBUG");
    REFUSED(ncclParamGetI8, NULL, NULL);
    REFUSED(ncclParamGetI16, NULL, NULL);
    REFUSED(ncclParamGetI32, NULL, NULL);
    REFUSED(ncclParamGetI64, NULL, NULL);
    REFUSED(ncclParamGetU8, NULL, NULL);
    REFUSED(ncclParamGetU16, NULL, NULL);
    REFUSED(ncclParamGetU32, NULL, NULL);
    REFUSED(ncclParamGetU64, NULL, NULL);
    REFUSED(ncclParamGetStr, NULL, &text);
    REFUSED(ncclParamGet, NULL, NULL, 0, &number);
    REFUSED(ncclParamGetParameter, "NCCL_DEBUG", &text, &number);
    REFUSED(ncclParamGetAllParameterKeys, &texts, &number);
    ncclParamDumpAll();
    REFUSED(mscclLoadAlgo, "file.xml", &number, 0);
    REFUSED(mscclRunAlgo, NULL, counts, counts, NULL, counts, counts, 0, ncclInt8, 0, 0,
            ncclSum, 0, NULL, NULL);
    REFUSED(mscclUnloadAlgo, 0);
    REFUSED(rcclGetAlgoInfo, NULL, 0, 0, ncclInt8, 0, 0, 0, &number, &number, &number);
    REFUSED(rcclGetCollImplInfo, NULL, 0, 0, ncclInt8, ncclSum, NULL, NULL, 0, &number,
            &number, &number);
    REFUSED(rcclGetAlgoName, 0, &text);
    REFUSED(rcclGetProtocolName, 0, &text);
}

static void the_device_api_is_a_usage_error_or_empty(void **state)
{
    const team none = { 0, 0, 0 };
    team got;

    (void)state;
    REFUSED(ncclCommQueryProperties, NULL, NULL);
    REFUSED(ncclDevCommCreate, NULL, NULL, NULL);
    REFUSED(ncclDevCommDestroy, NULL, NULL);
    REFUSED(ncclGetLsaMultimemDevicePointer, NULL, 0, NULL);
    REFUSED(ncclGetMultimemDevicePointer, NULL, 0, (multimem){ NULL }, NULL);
    REFUSED(ncclGetLsaDevicePointer, NULL, 0, 0, NULL);
    REFUSED(ncclGetPeerDevicePointer, NULL, 0, 0, NULL);
    REFUSED(ncclGetPeerDeviceLeInfo, NULL, 0, 0, NULL, NULL);
    REFUSED(ncclGetMultimemDeviceLeInfo, NULL, 0, NULL, NULL);
    REFUSED(ncclLsaBarrierCreateRequirement, none, 0, NULL, NULL);
    REFUSED(ncclGinBarrierCreateRequirement, NULL, none, 0, NULL, NULL);
    REFUSED(ncclGinOutboxCreateRequirement, 0, 0, NULL, NULL);
    REFUSED(ncclGinInboxA2ACreateRequirement, none, 0, 0, NULL, NULL);
    REFUSED(ncclLLA2ACreateRequirement, 0, 0, NULL, NULL);
    got = ncclTeamWorld(NULL);
    assert_memory_equal(&got, &none, sizeof(got));
    got = ncclTeamLsa(NULL);
    assert_memory_equal(&got, &none, sizeof(got));
    got = ncclTeamRail(NULL);
    assert_memory_equal(&got, &none, sizeof(got));
    assert_int_equal(ncclTeamRankToWorld(NULL, none, 0), -1);
    assert_int_equal(ncclTeamRankToLsa(NULL, none, 0), -1);
    assert_int_equal(ncclLLA2ACalcSlots(1, 1), 0);
}

static void only_a_failure_replaces_the_last_error(void **state)
{
    (void)state;
    errno = EBADF;
    assert_int_equal(motet_api_report(motet_fail(MOTET_ERR_REMOTE, "rank 3 is gone")),
            ncclRemoteError);
    assert_int_equal(errno, EBADF);
    assert_non_null(strstr(motet_api_last_error(), "rank 3 is gone; "));
    assert_non_null(strstr(motet_api_last_error(),
            motet_result_describe(MOTET_ERR_REMOTE)->remedy));
    assert_int_equal(motet_api_report(MOTET_OK), ncclSuccess);
    assert_int_equal(motet_api_report(MOTET_IN_PROGRESS), ncclInProgress);
    assert_non_null(strstr(motet_api_last_error(), "rank 3 is gone"));
}

static void a_failure_without_a_trail_has_a_sentence_too(void **state)
{
    (void)state;
    motet_error_clear();
    assert_int_equal(motet_api_report(MOTET_ERR_SYSTEM), ncclSystemError);
    assert_non_null(strstr(motet_api_last_error(), "unhandled system error"));
}

static void *fail_on_another_thread(void *arg)
{
    (void)arg;
    motet_api_report(motet_fail(MOTET_ERR_USAGE, "said by the other thread"));
    return NULL;
}

static void the_sentence_stays_while_its_reader_prints_it(void **state)
{
    pthread_t thread;
    const char *seen;

    (void)state;
    motet_api_report(motet_fail(MOTET_ERR_USAGE, "said by this thread"));
    seen = motet_api_last_error();
    assert_int_equal(pthread_create(&thread, NULL, fail_on_another_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(strstr(seen, "said by this thread"));
    assert_non_null(strstr(motet_api_last_error(), "said by the other thread"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unsupported_call_is_a_usage_error_with_a_sentence),
        cmocka_unit_test(the_device_api_is_a_usage_error_or_empty),
        cmocka_unit_test(only_a_failure_replaces_the_last_error),
        cmocka_unit_test(a_failure_without_a_trail_has_a_sentence_too),
        cmocka_unit_test(the_sentence_stays_while_its_reader_prints_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
