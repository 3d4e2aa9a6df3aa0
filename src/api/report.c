/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's last error is one buffer behind a mutex. A reader gets a copy in
 * memory of its own thread: the pointer that ncclGetLastError() hands out must not
 * change under a caller that prints it while another thread fails.
 */
#include "api/report.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)MOTET_OK == (int)ncclSuccess, "result codes are NCCL's");
_Static_assert((int)MOTET_ERR_DEVICE == (int)ncclUnhandledCudaError, "as above");
_Static_assert((int)MOTET_ERR_SYSTEM == (int)ncclSystemError, "as above");
_Static_assert((int)MOTET_ERR_INTERNAL == (int)ncclInternalError, "as above");
_Static_assert((int)MOTET_ERR_ARGUMENT == (int)ncclInvalidArgument, "as above");
_Static_assert((int)MOTET_ERR_USAGE == (int)ncclInvalidUsage, "as above");
_Static_assert((int)MOTET_ERR_REMOTE == (int)ncclRemoteError, "as above");
_Static_assert((int)MOTET_IN_PROGRESS == (int)ncclInProgress, "as above");
_Static_assert((int)MOTET_ERR_TIMEOUT == (int)ncclTimeout, "as above");
_Static_assert((int)MOTET_NUM_RESULTS == (int)ncclNumResults, "as above");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[MOTET_API_ERROR_MAX];

void motet_api_format_error(motet_result result, char *buf, size_t bytes)
{
    const motet_result_info *info = motet_result_describe((int)result);
    const char *trail = motet_error_trail();

    snprintf(buf, bytes, "%s; %s", trail[0] != '\0' ? trail : info->text, info->remedy);
}

/* Only when NCCL_DEBUG asks, unlike a motet_warn(): the caller has the code, and may
 * expect it. NCCL's WARN lines carry the place that found the failure, not this one. */
static void log_failure(const char *sentence)
{
    char file[128];
    int line = 0;
    char *colon;

    if (!motet_log_on(MOTET_LOG_VERSION, 0) || !motet_log_on(MOTET_LOG_WARN, ~0u))
        return;
    snprintf(file, sizeof(file), "%s", motet_error_origin());
    colon = strrchr(file, ':');
    if (colon != NULL) {
        *colon = '\0';
        line = (int)strtol(colon + 1, NULL, 10);
    }
    motet_log_write(MOTET_LOG_WARN, ~0u, file, line, "%s", sentence);
}

ncclResult_t motet_api_report_text(motet_result result, const char *sentence)
{
    int saved_errno = errno;

    pthread_mutex_lock(&lock);
    snprintf(last_error, sizeof(last_error), "%s", sentence);
    pthread_mutex_unlock(&lock);
    log_failure(sentence);
    errno = saved_errno;
    return (ncclResult_t)result;
}

ncclResult_t motet_api_report(motet_result result)
{
    char sentence[MOTET_API_ERROR_MAX];

    if (result == MOTET_OK || result == MOTET_IN_PROGRESS)
        return (ncclResult_t)result;
    motet_api_format_error(result, sentence, sizeof(sentence));
    return motet_api_report_text(result, sentence);
}

const char *motet_api_last_error(void)
{
    static _Thread_local char copy[MOTET_API_ERROR_MAX];

    pthread_mutex_lock(&lock);
    memcpy(copy, last_error, sizeof(copy));
    pthread_mutex_unlock(&lock);
    return copy;
}
